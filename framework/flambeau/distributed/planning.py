"""What a training step costs on a number of ranks: found on one, from shapes alone."""

from __future__ import annotations

import copy
import itertools
import math
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flambeau as fb

from .. import _arrays
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ..utils._python_dispatch import TorchDispatchMode
from ..utils.flop_counter import count_of_call
from . import _ledger
from . import distributed_c10d as c10d
from .device_mesh import init_device_mesh
from .tensor import DTensor, _rules

__all__ = ["Machine", "Plan", "Traffic", "measure", "plan"]


@dataclass(frozen=True)
class Machine:
    """The constants of the time model; the defaults are those that `measure` found between two processes of a machine with two cores.

    Args:
        flops: floating point operations per second of products, of one rank.
        memory_bandwidth: bytes per second that operations read and write, of one rank.
        call: seconds that an operation takes without any element.
        link_bandwidth: bytes per second that a rank sends while it receives as many.
        latency: seconds that a message takes to another rank.
    """

    flops: float = 2.5e11
    memory_bandwidth: float = 7.0e9
    call: float = 4.0e-7
    link_bandwidth: float = 2.0e9
    latency: float = 9.0e-5


@dataclass
class Traffic:
    """The calls of one collective in one group of ranks during a step.

    Attributes:
        op: the collective.
        group: the name of the dimension of the mesh; "all ranks" and the like for other groups.
        ranks: how many ranks the group has.
        calls: how often each of them calls it.
        bytes: of all messages: what a rank gets in all by gathers, what it gives by other calls.
        sent: bytes that a rank sends for them, by the algorithms that send the fewest.
        seconds: that they take by the time model.
    """

    op: str
    group: str
    ranks: int
    calls: int = 0
    bytes: int = 0
    sent: int = 0
    seconds: float = 0.0


@dataclass
class Plan:
    """What one training step costs a rank.

    Attributes:
        ranks: how many there are.
        rank: the one that was looked at.
        parameters, buffers, gradients, optimizer: bytes of what stays from step to step.
        peak: the most bytes that tensors have at once during a step, with all of these.
        collectives: a `Traffic` for each collective and group.
        flops: of products.
        computing, communicating: seconds of operations and of collectives, each by itself.
    """

    ranks: int
    rank: int
    parameters: int = 0
    buffers: int = 0
    gradients: int = 0
    optimizer: int = 0
    peak: int = 0
    collectives: list[Traffic] = field(default_factory=list)
    flops: int = 0
    computing: float = 0.0
    communicating: float = 0.0

    @property
    def activations(self) -> int:
        """Bytes at the peak beyond what stays from step to step."""
        return max(0, self.peak - self.parameters - self.buffers - self.gradients - self.optimizer)

    @property
    def seconds(self) -> tuple[float, float]:
        """How long a step takes at least, if all collectives run beside operations, and at most, if none does."""
        return max(self.computing, self.communicating), self.computing + self.communicating

    def __str__(self) -> str:
        least, most = self.seconds
        lines = [
            f"rank {self.rank} of {self.ranks}",
            f"memory   {_bytes(self.peak)} at the peak: parameters {_bytes(self.parameters)}, buffers {_bytes(self.buffers)}, "
            f"gradients {_bytes(self.gradients)}, optimizer {_bytes(self.optimizer)}, activations {_bytes(self.activations)}",
            f"time     {least:.4g} to {most:.4g} s: operations {self.computing:.4g} s ({self.flops:.4g} operations of products), "
            f"collectives {self.communicating:.4g} s",
        ]
        for t in self.collectives:
            where = f"{t.op:24} {t.group:>12} x {t.ranks:<7} {t.calls:>5} calls"
            lines.append(f"{where} {_bytes(t.bytes):>10} {_bytes(t.sent):>10} sent {t.seconds:.4g} s")
        return "\n".join(lines)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


# -- the step ------------------------------------------------------------------------------------------------------------


def plan(
    model: Any,
    mesh: int | Sequence[int] | Mapping[str, int],
    batch: Any,
    *,
    parallelize: Callable[[Any, Any], Any] | None = None,
    loss: Callable[[Any, Any], Any] | None = None,
    optimizer: Callable[[Any], Any] | None = None,
    rank: int = 0,
    machine: Machine | None = None,
) -> Plan:
    """What a training step of `model` costs a rank of `mesh`: memory, messages and time.

    Nothing is computed and no process is started: the step runs on meta tensors with the engine `fake`, in a job of its own.

    Args:
        model: a module on any device, meta too; it is not changed.
        mesh: how many ranks there are, or how many along each dimension, with names if it is a dict: ``{"dp": 8, "tp": 4}``.
        batch: what one rank gets: a tensor, a tuple of arguments or a dict of keyword arguments. Only shapes and dtypes count.
        parallelize: ``fn(model, mesh)``, which divides the module over a `DeviceMesh` and returns it; by default it is wrapped in
            `DistributedDataParallel` over all ranks.
        loss: ``fn(model, batch)``; by default the mean of the first tensor that the model returns.
        optimizer: ``fn(parameters)``; `AdamW` by default.
        rank: the rank to look at.
        machine: the constants of the time model.
    Returns: a `Plan`; ``print`` shows it as a table.
    Raises: ValueError for a rank outside of the mesh; what the step raises, such as NotImplementedError for operations whose
        shapes depend on values.

    >>> model = fb.nn.Linear(1000, 1000, device="meta")
    >>> found = fb.distributed.plan(model, 100_000, fb.empty(8, 1000, device="meta"))
    >>> found.parameters, found.collectives[0].op, found.collectives[0].bytes
    (4004000, 'all_reduce', 4004000)
    """
    names = tuple(mesh) if isinstance(mesh, Mapping) else None
    sizes = tuple(mesh.values()) if isinstance(mesh, Mapping) else (mesh,) if isinstance(mesh, int) else tuple(mesh)
    ranks = math.prod(sizes)
    if not sizes or ranks < 1 or not 0 <= rank < ranks:
        raise ValueError(f"plan: rank {rank} of a mesh with sizes {sizes}; sizes must be positive, and the rank in [0, {ranks})")
    from ._fake import FakeStore

    made, memory = Plan(ranks, rank), _MetaMemory()
    machine = machine or Machine()
    with c10d._own_world(), memory:
        c10d.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
        laid_out = init_device_mesh("cpu", sizes, mesh_dim_names=names)
        shadow = _on_meta(model)
        net = (parallelize or _replicated)(shadow, laid_out)
        stepper = (optimizer or fb.optim.AdamW)(net.parameters())
        given = pytree.tree_map(lambda x: _meta_like(x) if isinstance(x, Tensor) else x, batch)

        def step() -> None:
            stepper.zero_grad()
            (loss or _mean)(net, given).backward()
            stepper.step()

        step()                                         # the first one makes the states of the optimizer
        made.parameters = _size(net.parameters())
        made.buffers = _size(net.buffers())
        made.gradients = _size(p.grad for p in net.parameters() if p.grad is not None)
        made.optimizer = _size(x for state in stepper.state.values() for x in pytree.tree_leaves(state) if isinstance(x, Tensor))
        heard: list[Any] = []
        memory.begin()
        _ledger.listeners.append(heard.append)
        try:
            step()
        finally:
            _ledger.listeners.remove(heard.append)
        made.peak = memory.end()
        costs = _Costs(machine)
        with costs:
            stepper.zero_grad()
            (loss or _mean)(net, given).backward()
        # An optimizer reads parameters, gradients and its states, and writes what is not a gradient, in one pass.
        moved = 2 * (made.parameters + made.optimizer) + made.gradients
        costs.seconds += machine.call * sum(p.grad is not None for p in net.parameters()) + moved / machine.memory_bandwidth
        made.flops, made.computing = costs.flops, costs.seconds
        made.collectives = _traffic(heard, laid_out, machine)
        made.communicating = sum(t.seconds for t in made.collectives)
        c10d.destroy_process_group()
    return made


def _replicated(model: Any, mesh: Any) -> Any:
    return fb.nn.parallel.DistributedDataParallel(model)


def _mean(model: Any, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        found = model(**batch)
    else:
        found = model(*batch) if isinstance(batch, (tuple, list)) else model(batch)
    return next(x for x in pytree.tree_leaves(found) if isinstance(x, Tensor)).float().mean()


def _meta_like(x: Any) -> Any:
    return fb.empty_strided(tuple(x.shape), tuple(x.stride()), dtype=x.dtype, device="meta").requires_grad_(x.requires_grad)


def _on_meta(model: Any) -> Any:
    """A copy of `model` whose parameters and buffers have no memory; what it shares, the copy shares too."""
    memo: dict[int, Any] = {}
    for p in model.parameters():
        made = fb.nn.Parameter(_meta_like(p.detach()), p.requires_grad)
        made.__dict__.update(p.__dict__)
        memo[id(p)] = made
    for b in model.buffers():
        memo[id(b)] = _meta_like(b.detach())
    return copy.deepcopy(model, memo)


def _size(tensors: Iterable[Any]) -> int:
    """The bytes of this rank."""
    pieces = {id(x): x._local_tensor if isinstance(x, DTensor) else x for x in tensors}
    return _ledger.bytes_of(pieces.values())


class _MetaMemory:
    """Counts the bytes that meta tensors would have.

    Whether an array is a view is known after it has been made only, so each is counted when the next one is made.
    """

    def __init__(self) -> None:
        self._live = self._peak = 0
        self._last: tuple[Any, int] | None = None
        self._refs: set[Any] = set()

    def __enter__(self) -> _MetaMemory:
        _arrays.made.append(self._made)
        return self

    def __exit__(self, *_: Any) -> None:
        _arrays.made.remove(self._made)
        self._refs.clear()

    def begin(self) -> None:
        """Look for the peak from now on."""
        self._settle()
        self._peak = self._live

    def end(self) -> int:
        """The peak in bytes."""
        self._settle()
        return self._peak

    def _made(self, array: Any) -> None:
        self._settle()
        self._last = weakref.ref(array), array.nbytes

    def _settle(self) -> None:
        if self._last is None:
            return
        (ref, count), self._last = self._last, None
        array = ref()
        if array is None or array.base is not None or not count:
            return
        self._live += count
        self._peak = max(self._peak, self._live)

        def freed(gone: Any) -> None:
            self._live -= count
            self._refs.discard(gone)

        self._refs.add(weakref.ref(array, freed))


class _Costs(TorchDispatchMode):
    """Adds up what operations on the tensors of one rank take: products, and the bytes that are read and written."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine, self.flops, self.seconds = machine, 0, 0.0

    def __enter__(self) -> Any:
        _rules.ran.append(self._count)
        return super().__enter__()

    def __exit__(self, *given: Any) -> None:
        super().__exit__(*given)
        _rules.ran.remove(self._count)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        self._count(func, args, kwargs, made)
        return made

    def _count(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        """Add a call; those with spread tensors count by what they do with the pieces, which is told as well."""
        operands = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if any(isinstance(x, DTensor) for x in operands):
            return
        results = [x for x in pytree.tree_leaves(made) if isinstance(x, Tensor)]
        if all(r._is_view() for r in results):
            return
        counted = count_of_call(func, args, kwargs, made)
        flops = 0 if counted is None else counted[1]
        moved = _ledger.bytes_of([*operands, *results])
        self.flops += flops
        self.seconds += self.machine.call + max(flops / self.machine.flops, moved / self.machine.memory_bandwidth)


# -- messages ------------------------------------------------------------------------------------------------------------

_PLACES = {"send": 1, "recv": 0, "barrier": 0, "monitored_barrier": 0}


def _shares(op: str, n: int) -> float:
    """How many times its bytes a rank sends for a collective among `n`, by the algorithms that send the fewest."""
    if op in _PLACES:
        return _PLACES[op]
    return (n - 1) / n * (2 if op.startswith("all_reduce") else 1)


def _traffic(heard: list[Any], mesh: Any, machine: Machine) -> list[Traffic]:
    names = mesh.mesh_dim_names or tuple(f"dimension {at}" for at in range(mesh.ndim))
    groups = {g.group_name: name for g, name in zip(mesh.get_all_groups(), names, strict=True)}
    found: dict[tuple[str, str], Traffic] = {}
    for entry in heard:
        if entry.size == 1:
            continue
        group = groups.get(entry.group, "all ranks" if entry.group == "default" else f"{entry.size} ranks")
        t = found.setdefault((entry.op, group), Traffic(entry.op, group, entry.size))
        sent = _shares(entry.op, entry.size) * entry.bytes
        t.calls += 1
        t.bytes += entry.bytes
        t.sent += round(sent)
        t.seconds += machine.latency * math.ceil(math.log2(entry.size)) + sent / machine.link_bandwidth
    return list(found.values())


# -- the constants -------------------------------------------------------------------------------------------------------


def measure(group: Any = None, *, seconds: float = 1.0) -> Machine:
    """The constants of the time model, measured here and now; every rank of `group` calls it.

    Args:
        group: ranks that exchange messages meanwhile; all by default. Without a job the constants of messages stay the defaults.
        seconds: about how long it takes.
    """
    each = seconds / 5

    def best(run: Callable[[], Any], times: int | None = None) -> float:
        """The shortest of several runs; ranks run collectives equally often."""
        run()
        found, end = math.inf, time.perf_counter() + each
        for at in itertools.count():
            begin = time.perf_counter()
            run()
            found = min(found, time.perf_counter() - begin)
            if at == times or times is None and time.perf_counter() > end:
                return found
        raise AssertionError

    a = fb.randn(768, 768)
    small, large, larger = fb.ones(1), fb.ones(1 << 22), fb.ones(1 << 25)
    constants = {
        "flops": 2 * 768**3 / best(lambda: a @ a),
        "memory_bandwidth": 2 * 4 * (1 << 25) / best(larger.clone),
        "call": best(lambda: small + 1),
    }
    if c10d.is_initialized() and c10d.get_world_size(group) > 1:
        n = c10d.get_world_size(group)
        quick = best(lambda: c10d.all_reduce(small, group=group), 100)
        long = best(lambda: c10d.all_reduce(large, group=group), 5)
        constants["latency"] = quick / math.ceil(math.log2(n))
        constants["link_bandwidth"] = _shares("all_reduce", n) * 4 * (1 << 22) / max(long - quick, 1e-9)
    return Machine(**constants)
