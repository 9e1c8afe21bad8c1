"""DistributedDataParallel: each process trains on its own batches, and all have the mean of the gradients."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import flambeau as fb

from ... import _state
from ...autograd.engine import queue_callback
from ...distributed import _debug
from ...distributed import distributed_c10d as c10d
from ...distributed._buckets import GradBucket
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ...dtypes import scalar_type
from ...utils import _pytree as pytree
from ..modules.module import Module

__all__ = ["DistributedDataParallel"]

_FIRST_BUCKET_BYTES = 1 << 20


def _tensors_of(value: Any) -> Iterator[Any]:
    if isinstance(value, fb.Tensor):
        yield value
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _tensors_of(item)
    elif isinstance(value, dict):
        yield from _tensors_of(list(value.values()))
    elif hasattr(value, "__dataclass_fields__"):
        yield from _tensors_of([getattr(value, name) for name in value.__dataclass_fields__])


def _leaves(outputs: Any) -> set[int]:
    """The ids of the leaves that a backward from `outputs` reaches."""
    seen: set[int] = set()
    todo = [tensor._node for tensor in _tensors_of(outputs) if tensor._node is not None]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        todo.extend(parent for parent in getattr(node, "parents", ()) if parent is not None)
    return seen


@dataclass
class _MixedPrecision:
    """The dtypes that `DistributedDataParallel` computes in; None keeps them.

    Attributes:
        param_dtype: of parameters and of arguments in forward and backward.
        reduce_dtype: of the exchange of gradients; `param_dtype` if None.
        buffer_dtype: of buffers in forward.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None


def _cast(value: Any, dtype: Any) -> Any:
    return value.to(dtype) if dtype is not None and isinstance(value, fb.Tensor) and value.is_floating_point() else value


@contextlib.contextmanager
def _in_dtypes(module: Module, precision: Any, ignored: set[str]) -> Iterator[None]:
    """For a while, parameters and buffers of `module` are casts of themselves, through which gradients reach them.

    What happened to a cast buffer is written into the real one at the end.
    """
    casts: dict[int, Any] = {}
    swaps = []
    for path, part in module.named_modules():
        for registry, dtype in ((part._parameters, precision.param_dtype), (part._buffers, precision.buffer_dtype)):
            for name, value in registry.items():
                if f"{path}.{name}".lstrip(".") in ignored or _cast(value, dtype) is value:
                    continue
                if id(value) not in casts:  # tied parameters stay one
                    casts[id(value)] = _cast(value, dtype)
                swaps.append((registry, name, value, registry is part._buffers))
    for registry, name, value, _ in swaps:
        registry[name] = casts[id(value)]
    try:
        yield
    finally:
        with fb.no_grad():
            for registry, name, value, is_buffer in swaps:
                if is_buffer:
                    value.copy_(registry[name])
                registry[name] = value


class _Bucket:
    def __init__(self, parameters: list[Any]) -> None:
        self.parameters = parameters
        self.size = sum(parameter.numel() for parameter in parameters)
        self.dtype = parameters[0].dtype
        self.pending: set[int] = set()
        self.future: Any = None
        self.sent: Any = None

    def flat_gradients(self) -> Any:
        return fb.cat([_gradient(p).reshape(-1) for p in self.parameters])


def _gradient(parameter: Any) -> Any:
    return fb.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach()


def _in_buckets(parameters: list[Any], first_bytes: int, bytes_each: int) -> list[_Bucket]:
    """Parameters, last first as their gradients come, in buckets of one dtype."""
    buckets: list[_Bucket] = []
    group: list[Any] = []
    filled = 0
    for parameter in reversed(parameters):
        size = parameter.numel() * parameter.element_size()
        limit = bytes_each if buckets else first_bytes
        if group and (filled + size > limit or parameter.dtype != group[0].dtype):
            buckets.append(_Bucket(group))
            group, filled = [], 0
        group.append(parameter)
        filled += size
    if group:
        buckets.append(_Bucket(group))
    return buckets


class DistributedDataParallel(Module, Joinable):
    """`module` on a batch of this process, with gradients that are the mean over all processes after backward.

    Parameters and buffers of rank 0 are given to all when it is made. Gradients travel in buckets while backward goes on.

    Args:
        module: what to train; it is kept as `module`, so that keys of `state_dict` begin with ``module.``.
        device_ids, output_device: None, for modules on the CPU.
        dim: taken for compatibility.
        broadcast_buffers: give all processes the buffers of rank 0 before each forward.
        init_sync: give all processes the parameters and buffers of rank 0 now.
        process_group: the ranks; None for all.
        bucket_cap_mb: mebibytes of a bucket, 25 if None; the first has 1 at most.
        find_unused_parameters: look after each forward which parameters its outputs come from; the others are not waited for.
        check_reduction: taken for compatibility.
        gradient_as_bucket_view: gradients are views into the buckets, which saves their memory once.
        static_graph: the same parameters are used in each iteration; those that are not are found by themselves.
        delay_all_reduce_named_params: pairs of a name and a parameter whose gradients are exchanged together, when that of
            `param_to_hook_all_reduce` is there and backward ends.
        param_to_hook_all_reduce: see there; both are given, or neither.
        mixed_precision: dtypes to compute and to exchange gradients in, an object with `param_dtype`, `reduce_dtype` and `buffer_dtype`
            such as `distributed.fsdp.MixedPrecision`. Parameters and their gradients keep their own; outputs have that of `param_dtype`.
        device_mesh: of one dimension: the ranks, in place of `process_group`.
    Raises: RuntimeError for modules without parameters that require grad, and for `device_mesh` beside `process_group`; ValueError for
        delayed parameters without the one that they wait for; NotImplementedError for devices.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        if mixed_precision is not None and not all(
            hasattr(mixed_precision, name) for name in ("param_dtype", "reduce_dtype", "buffer_dtype")
        ):
            raise TypeError(
                "DistributedDataParallel: mixed_precision must have param_dtype, reduce_dtype and buffer_dtype, as "
                f"distributed.fsdp.MixedPrecision has, got {type(mixed_precision).__name__}"
            )
        if (delay_all_reduce_named_params is None) != (param_to_hook_all_reduce is None):
            raise ValueError(
                "DistributedDataParallel: delay_all_reduce_named_params and param_to_hook_all_reduce are given together, or not at all"
            )
        if device_mesh is not None:
            if process_group is not None:
                raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
            if device_mesh.ndim != 1:
                raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
            process_group = device_mesh.get_group(0)
        if device_ids:
            raise ValueError(f"DistributedDataParallel: device_ids {device_ids} are for CUDA modules; leave None on the CPU")
        self.process_group = c10d._default() if process_group is None else process_group
        ignored: set[str] = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._delayed = [p for _, p in delay_all_reduce_named_params or ()]
        late = {id(p) for p in self._delayed}
        learning = [(name, p) for name, p in module.named_parameters() if p.requires_grad and name not in ignored]
        self._named = [(name, p) for name, p in learning if id(p) not in late]
        if not learning:
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        self.module = module
        self.mixed_precision = mixed_precision
        self._ignored = ignored
        self.dim = dim
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters or static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 1024 * 1024)
        self._buffers_to_sync = [b for name, b in module.named_buffers() if name not in ignored]
        everything = [p for name, p in module.named_parameters() if name not in ignored]
        if init_sync:
            self._give([*everything, *self._buffers_to_sync], 0)
        parameters = [p for _, p in self._named]
        self._buckets = _in_buckets(parameters, min(_FIRST_BUCKET_BYTES, self.bucket_bytes_cap), self.bucket_bytes_cap)
        self._bucket_of = {id(p): bucket for bucket in self._buckets for p in bucket.parameters}
        self._name_of = {id(p): name for name, p in self._named}
        self._hook: Callable[[Any, GradBucket], Any] | None = None
        self._hook_state: Any = None
        self._waiting = False
        self._used: Any = None
        self._next_bucket = 0
        self._divisor = self.process_group.size()
        self._divides_by_all = True
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._arrived)
        self._iteration = 0
        self._times = [0.0] * 4                           # seconds in all: forward, backward, exchange, and exchange beside backward
        self._measured = 0
        self._began = self._sent_at = self._forward_took = 0.0
        if _debug.get_debug_level() is not _debug.DebugLevel.OFF:
            facts = self._get_ddp_logging_data()
            lines = "\n".join(f"{name}: {value}" for name, value in facts.items() if name in _LOGGED_AT_START)
            _debug.note(f"[Rank {facts['rank']}]: DDP Initialized with:\n{lines}")
        if param_to_hook_all_reduce is not None:
            # The order in which gradients come is the engine's affair: they are exchanged when backward ends.
            param_to_hook_all_reduce.register_post_accumulate_grad_hook(lambda _: queue_callback(self._exchange_delayed))

    # Forward

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What `module` gives; backward from it ends with the mean of gradients.

        Raises: RuntimeError when a parameter got no gradient since the last forward.
        """
        syncs = fb.is_grad_enabled() and self.require_backward_grad_sync
        if syncs:
            _state.settle()                           # each call prepares its backward, so none is left out by a compiled step
            self._check_finished()
            self._divisor = self._ranks_with_inputs(Join.notify_join_context(self))
        if self.require_forward_param_sync and self.broadcast_buffers and self._buffers_to_sync:
            self._give(self._buffers_to_sync, 0)
        begin = time.perf_counter()
        output = self._computed(inputs, kwargs)
        if syncs:
            self._prepare(output)
            self._begins_backward(begin)
        # After no_sync the buffers are those of rank 0 until gradients are exchanged again.
        self.require_forward_param_sync = syncs or not fb.is_grad_enabled() and self.require_forward_param_sync
        return output

    def _begins_backward(self, begin: float) -> None:
        self._began = time.perf_counter()
        self._forward_took, self._sent_at = self._began - begin, 0.0
        self._iteration += 1

    def _ends_iteration(self, sent: float, gradients: float) -> None:
        """Add up what the iteration took, and tell it now and then.

        Args:
            sent, gradients: when the first bucket was sent, and when the last gradient was there.
        """
        end = time.perf_counter()
        for at, took in enumerate((self._forward_took, end - self._began, end - sent, max(0.0, gradients - sent))):
            self._times[at] += took
        self._measured += 1
        if _debug.get_debug_level() is _debug.DebugLevel.DETAIL and (self._iteration <= 10 or self._iteration % 100 == 0):
            facts = self._get_ddp_logging_data()
            _debug.note(
                f"[Rank {facts['rank']} / {facts['world_size']}] Training {facts['module_name']} "
                f"unused_parameter_size={facts['unused_parameter_size']}\n Avg forward compute time: {facts['avg_forward_compute_time']}\n "
                f"Avg backward compute time: {facts['avg_backward_compute_time']}\n"
                f"Avg backward comm. time: {facts['avg_backward_comm_time']}\n "
                f"Avg backward comm/comp overlap time: {facts['avg_backward_compute_comm_overlap_time']}"
            )

    def _computed(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        precision = self.mixed_precision
        if precision is None:
            return self.module(*inputs, **kwargs)
        inputs, kwargs = pytree.tree_map(lambda x: _cast(x, precision.param_dtype), (inputs, kwargs))
        with _in_dtypes(self.module, precision, self._ignored):
            return self.module(*inputs, **kwargs)

    def _ranks_with_inputs(self, counted: Any) -> int:
        """How many ranks the mean counts; `counted` is the `Work` by which all said whether they have inputs."""
        if counted is None or self._divides_by_all:
            return self.process_group.size()
        counted.wait()
        return int(counted.result()[0])

    def _check_finished(self) -> None:
        if not self._waiting:
            return
        missing = [self._name_of[key] for bucket in self._buckets for key in bucket.pending]
        if not missing:
            return
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new one. These parameters were not used "
            f"in producing the loss on rank {self.process_group.rank()}: {', '.join(sorted(missing))}. Pass "
            "find_unused_parameters=True to DistributedDataParallel, and use all outputs of forward in the loss."
        )

    def _prepare(self, output: Any) -> None:
        self._waiting, self._next_bucket = True, 0
        reached = _leaves(output) if self.find_unused_parameters else None
        parameters = [p for _, p in self._named]
        unused = [] if reached is None else [p for p in parameters if id(p._node) not in reached]
        self._used = None
        if reached is not None:
            missing = {id(p) for p in unused}
            self._used = fb.tensor([id(p) not in missing for p in parameters], dtype=fb.uint8)
        for bucket in self._buckets:
            bucket.pending = {id(p) for p in bucket.parameters}
            bucket.future = None
        for parameter in unused:
            self._bucket_of[id(parameter)].pending.discard(id(parameter))
        if len(unused) == len(parameters):
            self._advance()

    def _give(self, tensors: list[Any], root: int) -> None:
        if tensors:
            self.process_group.broadcast([t.detach() for t in tensors], root, False)

    # Backward

    def _arrived(self, parameter: Any) -> None:
        if not self._waiting or not self.require_backward_grad_sync:
            return
        self._bucket_of[id(parameter)].pending.discard(id(parameter))
        self._advance()

    def _exchange_delayed(self) -> None:
        """The mean of the gradients that were not put into buckets, as one message."""
        if not self.require_backward_grad_sync or not self._delayed:
            return
        with fb.no_grad():
            flat = fb.cat([_gradient(p).reshape(-1) for p in self._delayed])
            self.process_group.all_reduce([flat], c10d.ReduceOp.SUM, False)
            flat /= self._divisor
            begin = 0
            for p in self._delayed:
                p.grad = flat[begin : begin + p.numel()].view(p.shape).clone()
                begin += p.numel()

    def _advance(self) -> None:
        """Send the buckets that are full, in order; finish after the last."""
        while self._next_bucket < len(self._buckets) and not self._buckets[self._next_bucket].pending:
            bucket = self._buckets[self._next_bucket]
            self._sent_at = self._sent_at or time.perf_counter()
            bucket.future = self._send(self._next_bucket, bucket.flat_gradients())
            self._next_bucket += 1
        if self._next_bucket == len(self._buckets):
            self._finish()

    def _send(self, index: int, flat: Any) -> Any:
        if self.mixed_precision is not None:
            flat = _cast(flat, self.mixed_precision.reduce_dtype or self.mixed_precision.param_dtype)
        bucket = GradBucket(index, flat, self._buckets[index].parameters, index == len(self._buckets) - 1)
        if self._hook is not None:
            return self._hook(self._hook_state, bucket)
        work = self.process_group.all_reduce([flat], c10d.ReduceOp.SUM, True)
        divisor = self._divisor
        return work.get_future().then(lambda future: _divided(future.value()[0], divisor))

    def _finish(self) -> None:
        self._waiting = False
        gradients = time.perf_counter()
        if self._used is not None:
            self.process_group.all_reduce([self._used], c10d.ReduceOp.MAX, False)
        used = None if self._used is None else dict(zip((id(p) for _, p in self._named), self._used.tolist(), strict=True))
        with fb.no_grad():
            for bucket in self._buckets:
                reduced = bucket.future.wait()
                flat = reduced[0] if isinstance(reduced, list | tuple) else reduced
                self._store(bucket, flat, used)
                bucket.future = None
        self._ends_iteration(self._sent_at or gradients, gradients)

    def _store(self, bucket: _Bucket, flat: Any, used: dict[int, int] | None) -> None:
        at = 0
        for parameter in bucket.parameters:
            mean = flat[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()
            if used is not None and not used[id(parameter)]:
                continue  # no rank has used it, so its gradient stays what it was
            if self.gradient_as_bucket_view or parameter.grad is None:
                parameter.grad = mean.to(parameter.dtype)
            else:
                parameter.grad.copy_(mean)

    # What programs set

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside of it gradients add up in this process; the first backward after it exchanges their sums."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Let `hook` combine the gradients.

        Args:
            state: given to it.
            hook: called with ``(state, bucket)`` for each `GradBucket`; returns a `Future` of the flat result.
        Raises: TypeError for what cannot be called; RuntimeError for a second hook.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self._hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        self._hook, self._hook_state = hook, state

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """What is known of it, by PyTorch's names: sizes in bytes, times in nanoseconds, on the mean over its iterations."""
        parameters = [p for _, p in self._named]
        sizes = [p.numel() * p.element_size() for p in parameters]
        unused = 0 if self._used is None else sum(n for n, used in zip(sizes, self._used.tolist(), strict=True) if not used)
        hook = getattr(self._hook, "__name__", "")
        mean = [int(1e9 * total / max(1, self._measured)) for total in self._times]
        return {
            "broadcast_buffers": int(self.broadcast_buffers), "bucket_cap_bytes": self.bucket_bytes_cap,
            "find_unused_parameters": int(self.find_unused_parameters), "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
            "static_graph": int(self.static_graph), "is_multi_device_module": 0, "iteration": self._iteration,
            "num_parameter_tensors": len(parameters), "output_device": -1, "rank": self.process_group.rank(),
            "total_parameter_size_bytes": sum(sizes), "world_size": self.process_group.size(), "backend_name": self.process_group.name(),
            "bucket_sizes": ", ".join(str(b.size * b.parameters[0].element_size()) for b in self._buckets),
            "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES", "N/A"), "device_ids": "",
            "dtypes": ", ".join(dict.fromkeys(scalar_type(p.dtype).lower() for p in parameters)),
            "master_addr": os.environ.get("MASTER_ADDR", "N/A"), "master_port": os.environ.get("MASTER_PORT", "N/A"),
            "module_name": type(self.module).__name__, "torch_distributed_debug": _debug.debug_level_name(), "comm_hook": hook,
            "unused_parameter_size": unused, "avg_forward_compute_time": mean[0], "avg_backward_compute_time": mean[1],
            "avg_backward_comm_time": mean[2], "avg_backward_compute_comm_overlap_time": mean[3],
        }  # fmt: skip

    # Uneven inputs

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Join:
        """A context in which processes may run out of batches at different times; see `Join`.

        Args:
            divide_by_initial_world_size: the mean counts the processes that have run out too.
            enable, throw_on_early_termination: as for `Join`.
        """
        kwargs = {"divide_by_initial_world_size": divide_by_initial_world_size}
        return Join([self], enable, throw_on_early_termination, **kwargs)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a process without batches does for the others; `divide_by_initial_world_size` as for `join`."""
        self._divides_by_all = kwargs.get("divide_by_initial_world_size", True)
        return _ShadowIteration(self)

    @property
    def join_device(self) -> Any:
        """The device of its collectives."""
        return fb.device("cpu")

    @property
    def join_process_group(self) -> Any:
        """The ranks it runs on."""
        return self.process_group


# Of the logging data, what is told when one is made; the rest is known later.
_LOGGED_AT_START = frozenset((
    "broadcast_buffers", "bucket_cap_bytes", "find_unused_parameters", "gradient_as_bucket_view", "is_multi_device_module", "iteration",
    "num_parameter_tensors", "output_device", "rank", "total_parameter_size_bytes", "world_size", "backend_name", "bucket_sizes",
    "cuda_visible_devices", "device_ids", "dtypes", "master_addr", "master_port", "module_name", "torch_distributed_debug",
))  # fmt: skip


class _ShadowIteration(JoinHook):
    """The collectives of an iteration with nothing to give."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.ddp = ddp

    def main_hook(self) -> None:
        ddp = self.ddp
        ddp._divisor = ddp.process_group.size() if ddp._divides_by_all else ddp._join_config["active"]
        if ddp.broadcast_buffers and ddp._buffers_to_sync:
            ddp._give(ddp._buffers_to_sync, 0)
        futures = [ddp._send(at, fb.zeros(bucket.size, dtype=bucket.dtype)) for at, bucket in enumerate(ddp._buckets)]
        used = None
        if ddp.find_unused_parameters:
            flags = fb.zeros(len(ddp._named), dtype=fb.uint8)
            ddp.process_group.all_reduce([flags], c10d.ReduceOp.MAX, False)
            used = dict(zip((id(p) for _, p in ddp._named), flags.tolist(), strict=True))
        # An optimizer that divides parameters among ranks steps those of this one too, by the gradients of the others.
        with fb.no_grad():
            for bucket, future in zip(ddp._buckets, futures, strict=True):
                reduced = future.wait()
                ddp._store(bucket, reduced[0] if isinstance(reduced, list | tuple) else reduced, used)

    def post_hook(self, is_last_joiner: bool) -> None:
        ddp = self.ddp
        last = fb.tensor([ddp.process_group.rank() if is_last_joiner else -1])
        ddp.process_group.all_reduce([last], c10d.ReduceOp.MAX, False)
        ddp._give([*ddp.module.parameters(), *ddp._buffers_to_sync], int(last))


def _divided(flat: Any, count: int) -> Any:
    with fb.no_grad():
        return flat.div_(count)
