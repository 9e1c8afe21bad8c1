"""Activation checkpointing: parts of a model keep only their inputs, and run again on the way back.

Without reentry a region runs under `saved_tensors_hooks`: each tensor that its operations would save is replaced by a
`_Slot`, and the first slot that backward opens runs the region again, filling them all. A region inside another has its
inputs packed by the hooks of the outer one, so they too come back only when they are wanted.
"""

from __future__ import annotations

import contextlib
import enum
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import flambeau as fb

from .. import _state
from .._interpreters import DECOMPOSE, Interpreter, pop, push
from .._ops import higher_order
from ..autograd.function import Function
from ..autograd.grad_mode import enable_grad, no_grad
from ..autograd.graph import saved_tensors_hooks
from ..autograd.tape import Place, shown_line, shown_writer, users_place, written_at
from ..ops import _dispatch
from ..tensor import Tensor, wrap
from ._pytree import tree_flatten, tree_unflatten

__all__ = [
    "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "DefaultDeviceType", "SelectiveCheckpointContext",
    "check_backward_validity", "checkpoint", "checkpoint_sequential", "create_selective_checkpoint_contexts",
    "detach_variable", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip

_local = _state.local
Contexts = tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]


class CheckpointError(RuntimeError):
    """A region did something else when it ran again."""


class _AllThere(BaseException):
    """Ends a recomputation whose remaining work nobody needs; no `except Exception` of the region may catch it."""


# -- the public functions ------------------------------------------------------------------------------------------------


def noop_context_fn() -> Contexts:
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose intermediate tensors are computed again for backward instead of being kept.

    Args:
        use_reentrant: False, which is recommended, records the graph as usual and works with every way of running
            backward. True runs `function` without recording and differentiates it in a backward of its own: only
            tensors among `args` count, keyword arguments are refused, as are `autograd.grad` and ``inputs=``.
        context_fn: returns two contexts, for the forward pass and for the recomputation.
        determinism_check: 'default' compares shape, dtype and device of what is recomputed, 'none' does not.
        debug: errors list the operations of both runs.
        early_stop: recompute only as far as something is needed.
        preserve_rng_state: as a keyword, whether the recomputation draws the same random numbers; True by default.
    Raises: CheckpointError in backward if `function` saves other tensors when it runs again; ValueError for what
        ``use_reentrant=True`` does not take.

    >>> x = fb.tensor([0.0, 1.0], requires_grad=True)
    >>> y = fb.utils.checkpoint.checkpoint(lambda x: x.exp().square(), x, use_reentrant=False)
    >>> y.sum().backward()
    >>> x.grad
    tensor([ 2.0000, 14.7781])
    """
    if use_reentrant is None:
        warnings.warn("checkpoint: give use_reentrant explicitly; True is assumed, and use_reentrant=False is recommended", stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if not use_reentrant and context_fn is noop_context_fn and early_stop and not debug:
        settings: dict[str, Any] = {"use_reentrant": False}
        if not preserve:
            settings["preserve_rng_state"] = False
        if determinism_check != "default":
            settings["determinism_check"] = determinism_check
        for interpreter in reversed(_state.local.calls.interpreters):
            result = interpreter.run_checkpoint(function, args, kwargs, settings)
            if result is not NotImplemented:
                return result
    if use_reentrant:
        if kwargs:
            raise ValueError(
                f"checkpoint: keyword arguments {', '.join(kwargs)} cannot be passed on with use_reentrant=True; "
                "use use_reentrant=False, or bind them with functools.partial"
            )
        if context_fn is not noop_context_fn or debug:
            raise ValueError("checkpoint: context_fn and debug need use_reentrant=False")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"checkpoint: determinism_check should be 'default' or 'none', but got {determinism_check!r}")
    forward_context, again_context = context_fn()
    if not _state.grad_enabled():
        with forward_context:
            return function(*args, **kwargs)
    region = _Region(function, args, kwargs, _Surroundings(preserve, args, kwargs), again_context)
    region.check = determinism_check == "default"
    region.early_stop = _override("checkpoint_early_stop", early_stop)
    if _override("checkpoint_debug", debug):
        region.trace = []
    with _logging(region.trace), saved_tensors_hooks(region.pack, _Slot.open), forward_context:
        result = function(*args, **kwargs)
    region.is_complete = True
    return result


tag_activation_checkpoint = higher_order("tag_activation_checkpoint")(checkpoint)  # as graphs of compiled functions name it


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """`input` sent through `functions` in order, cut into `segments` parts of which all but the last are checkpointed.

    Args:
        functions: a Sequential, or a sequence of modules or functions.
        segments: at least 1 and at most ``len(functions)``.
        use_reentrant, preserve_rng_state: as for `checkpoint`.
    Raises: ValueError for more segments than functions, or other keywords; ZeroDivisionError for no segments.
    """
    if use_reentrant is None:
        warnings.warn(
            "checkpoint_sequential: give use_reentrant explicitly; True is assumed, and use_reentrant=False is recommended",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(f"checkpoint_sequential: unexpected keyword arguments {', '.join(kwargs)}")
    functions = list(functions.children()) if isinstance(functions, fb.nn.Sequential) else list(functions)
    if segments == 0:
        raise ZeroDivisionError("checkpoint_sequential: segments must be at least 1, got 0")
    size = len(functions) // segments
    if size < 1:
        raise ValueError(f"checkpoint_sequential: segments={segments}, but there are only {len(functions)} functions to cut")
    last = size * (segments - 1)
    for start in range(0, last, size):
        part = _in_order(functions[start : start + size])
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _in_order(functions[last:])(input)


def _in_order(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(input: Any) -> Any:
        for function in functions:
            input = function(input)
        return input

    return run


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """A region in which `enable` replaces the `early_stop` of every `checkpoint`; True is how it is by default."""
    with _overriding("checkpoint_early_stop", enable):
        yield


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """A region in which `enabled` replaces the `debug` of every `checkpoint`; None leaves it to them."""
    with _overriding("checkpoint_debug", enabled):
        yield


def _override(name: str, given: bool) -> bool:
    found = getattr(_local, name, None)
    return given if found is None else found


@contextlib.contextmanager
def _overriding(name: str, value: bool | None) -> Iterator[None]:
    before = getattr(_local, name, None)
    setattr(_local, name, value)
    try:
        yield
    finally:
        setattr(_local, name, before)


# -- without reentry -----------------------------------------------------------------------------------------------------


class _Region:
    """One call of a checkpointed function: how to run it again, and a slot for each tensor it saved."""

    def __init__(self, function: Any, args: Any, kwargs: Any, surroundings: _Surroundings, again_context: Any) -> None:
        self.function, self.kwargs = function, kwargs
        self.args = [_Kept(a) if isinstance(a, Tensor) else a for a in args]
        self.surroundings, self.again_context = surroundings, again_context
        self.slots: list[weakref.ref[_Slot]] = []
        self.check = self.early_stop = True
        self.is_complete = False  # until then a backward inside the region may ask for what it has saved so far
        self.trace: list[Any] | None = None

    def pack(self, tensor: Tensor) -> _Slot:
        slot = _Slot(self, len(self.slots), (tensor.shape, tensor.dtype, tensor.device))
        self.slots.append(weakref.ref(slot))
        return slot

    def run_again(self) -> None:
        """Fill the slots that are still wanted."""
        args = [a.get() if type(a) is _Kept else a for a in self.args]
        again = _Again(self)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.surroundings.restored())
            stack.enter_context(enable_grad())
            stack.enter_context(_logging(again.trace))
            stack.enter_context(saved_tensors_hooks(again.pack, _Refilled.open))
            stack.enter_context(self.again_context)
            stack.enter_context(contextlib.suppress(_AllThere))
            self.function(*args, **self.kwargs)
        again.verify()


class _Slot:
    """Stands for a saved tensor; holds its value from a recomputation until it is used."""

    __slots__ = ("region", "index", "meta", "value", "__weakref__")

    def __init__(self, region: _Region, index: int, meta: Any) -> None:
        self.region, self.index, self.meta = region, index, meta
        self.value: Tensor | None = None

    def open(self) -> Tensor:
        if self.value is None:
            self.region.run_again()
        value, self.value = self.value, None
        if value is None:
            raise CheckpointError(f"checkpoint: saved tensor {self.index} of the region was not computed when it ran again")
        return value


class _Again:
    """A recomputation: the tensors it saves go to the slots of the region, in the same order."""

    def __init__(self, region: _Region) -> None:
        self.region, self.count = region, 0
        self.trace: list[Any] | None = None if region.trace is None else []
        self.differences: list[str] = []

    def pack(self, tensor: Tensor) -> _Refilled:
        region, index = self.region, self.count
        self.count += 1
        if index >= len(region.slots):
            if not region.is_complete:
                return _Refilled(tensor)
            raise self.error(f"the region saved {len(region.slots)} tensors for backward, and more when it ran again")
        slot = region.slots[index]()
        if slot is not None:
            meta = (tensor.shape, tensor.dtype, tensor.device)
            if region.check and meta != slot.meta:
                self.differences.append(f"  saved tensor {index}: {_shown(slot.meta)}, then {_shown(meta)}")
            slot.value = wrap(tensor._array)
        if region.early_stop and self.count == len(region.slots):
            raise _AllThere
        return _Refilled(tensor)

    def verify(self) -> None:
        """Raise CheckpointError unless the same was saved as the first time."""
        saved = len(self.region.slots)
        if self.count < saved or self.count > saved and self.region.is_complete:
            raise self.error(f"the region saved {saved} tensors for backward, but {self.count} when it ran again")
        if self.differences:
            raise self.error("\n".join(("tensors were different when the region ran again", *self.differences)))

    def error(self, what: str) -> CheckpointError:
        for ref in self.region.slots:
            slot = ref()
            if slot is not None:
                slot.value = None
        advice = "checkpointed functions must do the same each time; look for globals, caches and randomness in it"
        lines = [f"checkpoint: {what}", advice]
        if self.trace is None:
            lines.append("debug=True, or set_checkpoint_debug_enabled(True), lists the operations of both runs")
        else:
            for title, trace in (("the first time", self.region.trace or []), ("when it ran again", self.trace)):
                lines += [f"operations {title}:", *(f"  {name}{shapes} at {shown_line(at)}" for name, shapes, at in trace)]
        return CheckpointError("\n".join(lines))


def _shown(meta: Any) -> str:
    shape, dtype, device = meta
    return f"{tuple(shape)} {dtype} {device}"


class _Refilled:
    """What nodes of a recomputation save: the tensor, for a backward inside the region."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def open(self) -> Tensor:
        return self.tensor


class _Kept:
    """A tensor argument until its region runs again; inside another region, that one's hooks say what is kept of it."""

    def __init__(self, tensor: Tensor) -> None:
        self.node, self.record, self.seq = tensor._node, tensor._storage, _state.next_seq()
        self.kept: Any = tensor
        self.unpack: Any = None
        if _local.calls.saved_hooks and self.node is not None:
            pack, self.unpack = _local.calls.saved_hooks[-1]
            with no_grad():
                self.kept, self.record = pack(tensor.detach()), None

    def get(self) -> Tensor:
        if self.unpack is not None:
            return wrap(self.unpack(self.kept)._array, self.node)
        record = self.record
        if record is not None and written_at(record) > self.seq:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: an argument of "
                f"checkpoint() of shape {list(self.kept.shape)} was overwritten by {shown_writer(record)}. Use the out-of-place "
                "form there, or clone() what is modified"
            )
        return self.kept


class _Log(Interpreter):
    """The interpreter that notes which operations run."""

    kind = "checkpoint_log"

    def __init__(self, trace: list[tuple[str, list[Any], Place | None]]) -> None:
        self.trace = trace

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        if op.kind != "composite":
            shapes = [tuple(a.shape) for a in args if isinstance(a, Tensor)]
            self.trace.append((op.name + "_" * inplace, shapes, users_place()))
        return NotImplemented


@contextlib.contextmanager
def _logging(trace: list[Any] | None) -> Iterator[None]:
    if trace is None:
        yield
        return
    log = _Log(trace)
    _dispatch.push(log)
    try:
        yield
    finally:
        _dispatch.pop(log)


# -- what a function finds around it -------------------------------------------------------------------------------------


class _Surroundings:
    """Random generators and autocast as they are now, for a function that will run again."""

    def __init__(self, preserve_rng: bool, args: Any, kwargs: Any) -> None:
        self.rng: Any = None
        self.devices: list[int] = []
        self.device_states: list[Tensor] = []
        if preserve_rng:
            self.rng = fb.get_rng_state()
            self.devices, self.device_states = get_device_states(*args, *kwargs.values())
        self.autocast = _autocast_settings() if hasattr(_local, "autocast") else None

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.rng is not None:
                stack.enter_context(fb.random.fork_rng())
                stack.enter_context(_device_states_kept(self.devices))
                fb.set_rng_state(self.rng)
                set_device_states(self.devices, self.device_states)
            if hasattr(_local, "autocast"):
                for place, (enabled, dtype) in (self.autocast or _NO_AUTOCAST).items():
                    if dtype is None:
                        stack.enter_context(fb.autocast(place, enabled=False))
                    else:
                        stack.enter_context(fb.autocast(place, enabled=enabled, dtype=dtype))
            yield


_NO_AUTOCAST: dict[str, tuple[bool, Any]] = {"cpu": (False, None), "cuda": (False, None)}


def _autocast_settings() -> dict[str, tuple[bool, Any]]:
    state = _local.autocast
    return {place: (state.enabled[place], state.dtype[place]) for place in state.enabled}


@contextlib.contextmanager
def _device_states_kept(devices: list[int]) -> Iterator[None]:
    if not devices:
        yield
        return
    before = [fb.cuda.get_rng_state(index) for index in devices]
    try:
        yield
    finally:
        set_device_states(devices, before)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The CUDA devices of the tensors in `args` (also inside lists and dicts), and the states of their generators."""
    devices = sorted({t.get_device() for t in _tensors(args) if t.device.type == "cuda"})
    return devices, [fb.cuda.get_rng_state(index) for index in devices]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Give the CUDA generators of `devices` the `states` that `get_device_states` found."""
    if device_type == "meta":
        return
    for index, state in zip(devices, states, strict=True):
        fb.cuda.set_rng_state(state, index)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


class DefaultDeviceType:
    """The device type that PyTorch looks at when no argument is on a device; here the arguments alone decide."""

    _kind = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        DefaultDeviceType._kind = device

    @staticmethod
    def get_device_type() -> str:
        return DefaultDeviceType._kind


# -- with reentry --------------------------------------------------------------------------------------------------------


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """`inputs` with every tensor cut from its history; those that required grad still do."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"detach_variable: a tuple of tensors is expected, got {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn when no tensor of `inputs` requires grad."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class CheckpointFunction(Function):
    """`checkpoint` with reentry, as one operation whose backward runs the function again and differentiates it."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = _Surroundings(preserve_rng_state, args, {})
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.plain = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if _local.backward.wanted is not None:
            raise RuntimeError(
                "checkpoint with use_reentrant=True is incompatible with autograd.grad() and with backward(inputs=...): "
                "use use_reentrant=False, or call backward() without inputs"
            )
        inputs = list(ctx.plain)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[place] = tensor
        detached = detach_variable(tuple(inputs))
        with ctx.surroundings.restored(), enable_grad():
            results = ctx.run_function(*detached)
        results = results if isinstance(results, (tuple, list)) else (results,)
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if isinstance(r, Tensor) and r.requires_grad]
        if not pairs:
            raise RuntimeError("checkpoint: no result of the function requires grad, so checkpointing it serves no purpose")
        fb.autograd.backward([r for r, _ in pairs], [g for _, g in pairs])
        return None, None, *(x.grad if isinstance(x, Tensor) else None for x in detached)


# -- selective checkpointing ---------------------------------------------------------------------------------------------


class CheckpointPolicy(enum.Enum):
    """What a policy function says of an operation."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


class SelectiveCheckpointContext:
    """What a policy function is told: whether the region runs again."""

    def __init__(self, *, is_recompute: bool) -> None:
        self.is_recompute = is_recompute


def create_selective_checkpoint_contexts(policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False) -> Contexts:
    """Two contexts for `context_fn` of `checkpoint`, which keep the results of chosen operations instead of computing them again.

    Operations are those that dispatch modes see: a linear layer is ``aten.linear`` here, where PyTorch sees ``aten.addmm``.

    Args:
        policy_fn_or_list: operators (``torch.ops.aten.mm.default``) whose results are kept, or a function
            ``policy(ctx, op, *args, **kwargs) -> CheckpointPolicy`` that is asked for each operation in both runs; see
            `SelectiveCheckpointContext`. Views, and operations that store in a tensor, run again in any case.
        allow_cache_entry_mutation: whether the program may write into results that are kept.
    Raises: TypeError for anything else; in backward RuntimeError if a kept result has been overwritten, is not there, or is asked
        for a second time.

    >>> from functools import partial
    >>> from flambeau.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> x = fb.ones(2, 2, requires_grad=True)
    >>> contexts = partial(create_selective_checkpoint_contexts, [fb.ops.aten.mm.default])
    >>> checkpoint(lambda x: (x @ x).sin(), x, use_reentrant=False, context_fn=contexts).sum().backward()
    >>> x.grad
    tensor([[-1.6646, -1.6646],
            [-1.6646, -1.6646]])
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not hasattr(op, "overloadpacket"):
                raise ValueError(
                    f"create_selective_checkpoint_contexts: the list must have operators such as torch.ops.aten.mm.default, got {op!r}"
                )
        kept = frozenset(policy_fn_or_list)
        policy: Any = lambda ctx, op, *args, **kwargs: op in kept  # noqa: E731  # as the other branch has it
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    store: dict[Any, list[_KeptResult]] = {}
    return _Keeping(policy, store), _Returning(policy, store, allow_cache_entry_mutation)


class _KeptResult:
    """The results of one operation, and the random generator after it where it has drawn."""

    def __init__(self, result: Any, rng: Any) -> None:
        leaves, self.structure = tree_flatten(result)
        self.parts = [(x._array, x._storage) if isinstance(x, Tensor) else (x, None) for x in leaves]
        self.is_tensor = [isinstance(x, Tensor) for x in leaves]
        self.seq, self.rng = _state.next_seq(), rng

    def leaves(self, operator: Any, may_be_written: bool) -> list[Any]:
        if self.rng is not None:
            fb.set_rng_state(self.rng)
        for _, record in self.parts:
            if not may_be_written and record is not None and written_at(record) > self.seq:
                raise RuntimeError(
                    f"checkpoint: the result of {operator} that was kept has been overwritten by {shown_writer(record)}. Use the "
                    "out-of-place form there, or give allow_cache_entry_mutation=True"
                )
        return [wrap(x) if is_tensor else x for (x, _), is_tensor in zip(self.parts, self.is_tensor, strict=True)]


class _TakingApart(Interpreter):
    """Takes operations apart that PyTorch shows as several, before anyone else is asked."""

    kind = "selective_checkpoint"

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        return DECOMPOSE if op.in_parts is not None and out is None else NotImplemented


class _Selecting(Interpreter):
    """Asks the policy about each operation of a region, in the end: below the hooks on what is saved, which pack what is recorded here."""

    kind = "selective_checkpoint"
    # No rule reads what a kernel has computed on the side, which a kept result does not have.
    sees_makers = True
    keeps_results = True
    is_recompute = False

    def __init__(self, policy: Any, store: dict[Any, list[_KeptResult]]) -> None:
        self.policy, self.store = policy, store
        self.parts = _TakingApart()

    def __enter__(self) -> _Selecting:
        push(self, outermost=True)
        push(self.parts)
        return self

    def __exit__(self, *_: object) -> None:
        pop(self.parts)
        pop(self)

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        from ._python_dispatch import seen_as

        recorded = _state.grad_enabled() and any(t._node is not None for t in _tensors(args))
        if op.kind == "composite" and recorded:
            return NotImplemented  # its parts are asked about
        operator, given, kwargs = seen_as(op, args, out, inplace)
        if operator is None:
            return NotImplemented
        if not self.keeps(operator, given, kwargs) or out is not None or inplace or op.kind == "view":
            return NotImplemented
        return self.kept(op, args, operator, recorded)

    def run_backend(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Any) -> Any:
        if not self.keeps(operator.overload, *operator.schema.without_defaults(args, kwargs)) or operator.schema.is_mutable:
            return run()
        return self.kept_below(operator.overload, run)

    def keeps(self, operator: Any, args: Any, kwargs: Any) -> bool:
        """What the policy says."""
        decision = self.policy(SelectiveCheckpointContext(is_recompute=self.is_recompute), operator, *args, **kwargs)
        return decision is True or decision in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)

    def kept(self, op: Any, args: tuple[Any, ...], operator: Any, recorded: bool) -> Any:
        """The result of an operation that is kept, with its history."""
        raise NotImplementedError

    def kept_below(self, operator: Any, run: Any) -> Any:
        """The result of ``run()`` for an operator that is kept, without history."""
        raise NotImplementedError


class _Keeping(_Selecting):
    """The first run: results are kept."""

    def kept(self, op: Any, args: tuple[Any, ...], operator: Any, recorded: bool) -> Any:
        return self.kept_below(operator, lambda: _dispatch.interpret(op, args))

    def kept_below(self, operator: Any, run: Any) -> Any:
        before = fb.get_rng_state()
        result = run()
        after = fb.get_rng_state()
        has_drawn = bool((before._array != after._array).any())
        self.store.setdefault(operator, []).append(_KeptResult(result, after if has_drawn else None))
        return result


class _Returning(_Selecting):
    """The second run: results that were kept are handed out in the same order."""

    is_recompute = True

    def __init__(self, policy: Any, store: dict[Any, list[_KeptResult]], may_be_written: bool) -> None:
        super().__init__(policy, store)
        self.may_be_written = may_be_written

    def kept(self, op: Any, args: tuple[Any, ...], operator: Any, recorded: bool) -> Any:
        outs = self.next_of(operator).leaves(operator, self.may_be_written)
        return _dispatch.answered(op, args, tuple(outs), recorded)

    def kept_below(self, operator: Any, run: Any) -> Any:
        found = self.next_of(operator)
        return tree_unflatten(found.leaves(operator, self.may_be_written), found.structure)

    def next_of(self, operator: Any) -> _KeptResult:
        """The oldest result of `operator` that has not been handed out."""
        there = self.store.get(operator)
        if there is None:
            raise RuntimeError(f"{operator} encountered during backward, but not found in storage")
        if not there:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under selective "
                "activation checkpoint."
            )
        return there.pop(0)
