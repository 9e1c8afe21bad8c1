"""How operations on spread tensors run: each process runs them on its pieces, placed in the way that moves the fewest bytes.

Which ways there are is a fact of each op (`ops/_spec/pieces.py`), asked for each dimension of the mesh alone. What has no rule runs on
whole tensors; compositions without one are taken apart.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import flambeau as fb

from ... import _aten
from ..._arrays import unseen
from ..._interpreters import Interpreter
from ..._tags import Tag
from ..._warn import warn_once
from ...ops import _dispatch
from ...ops._spec import pieces
from ...ops._spec.pieces import DividedCall, Place, Way
from ...tensor import Tensor
from ...utils import _pytree as pytree
from ...utils._python_dispatch import seen_as
from ._redistribute import local_part, redistributed
from .placement_types import Partial, Placement, Replicate, Shard, _StridedShard

__all__ = ["Spread", "implicit_replication", "place_of", "ways_of"]

R, P = Replicate(), Partial()
Placements = tuple[Placement, ...]

_replicates: contextvars.ContextVar[bool] = contextvars.ContextVar("replicates", default=False)


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """A region in which plain tensors beside spread ones count as whole on every rank, which they must be: the same everywhere."""
    before = _replicates.set(True)
    try:
        yield
    finally:
        _replicates.reset(before)


ran: list[
    Callable[[Any, Any, Any, Any], None]
] = []  # told of each operation on pieces: ``(operator, args, kwargs, result)``
REGISTERED: dict[
    str, Callable[[Any, Any], list[Way]]
] = {}  # by programs: ``rule(args, kwargs)`` of an operator of this name


def _placement(place: Place, have: Placement = R) -> Placement:
    """What a rule says of an operand, or result, that lies as `have`."""
    if place == "any":
        return have
    return R if place is None else Shard(place) if isinstance(place, int) else Partial(place)


def place_of(placement: Placement) -> Place:
    """`placement` in the words of rules."""
    return (
        placement.dim
        if isinstance(placement, Shard)
        else placement.reduce_op
        if isinstance(placement, Partial)
        else None
    )


class Spread(Interpreter):
    """What answers operations with DTensors among their operands, in the place of their kernels."""

    kind = "spread"
    sees_makers = True

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        return _dispatch.answered_by(self, op, args, out, inplace)

    def run_maker(self, call: Any) -> Any:
        return _made(self.cls, *call)

    # -- what `_dispatch` asks of a class that answers ops

    def taken(self, op: Any, args: tuple[Any, ...], within: bool) -> tuple[Any, ...]:
        """`args` with all their tensors spread over one mesh: those of one element are whole, and all that compositions make.

        Raises: RuntimeError where a program mixes plain tensors of several elements with spread ones, or tensors of different meshes.
        """
        cls = self.cls
        leaves = _tensors(args)
        mesh = next(x.device_mesh for x in leaves if isinstance(x, cls))
        for x in leaves:
            if isinstance(x, cls) and x.device_mesh != mesh:
                raise RuntimeError(
                    f"{op.public_name}: DTensors of different device meshes: {x.device_mesh} and {mesh}; redistribute one of them"
                )
            if not isinstance(x, cls) and x.numel() != 1 and not within and not _replicates.get():
                raise RuntimeError(
                    f"{op.public_name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
                    f"distributed operators! The plain one has shape {tuple(x.shape)}; use distribute_tensor or DTensor.from_local"
                )
        if all(isinstance(x, cls) for x in leaves):
            return args
        return _mapped(args, lambda x: x if isinstance(x, cls) else cls.from_local(x, mesh, [R] * mesh.ndim))

    def composed(self, op: Any, args: tuple[Any, ...]) -> Any:
        """The result of a composition that has a rule, with its history; NotImplemented for others, which are taken apart."""
        if op.pieces_rule is None:
            return NotImplemented
        known = _known(op, args)
        return self._locally(op, args, known, _chosen(op, args, known, False))

    def on_replicas(self, op: Any, args: tuple[Any, ...]) -> Any:
        """The result of an op that reads elements on its way, with its history: of whole tensors, on every rank."""
        mesh = _tensors(args)[0].device_mesh
        _warn_of_replicating(op, _tensors(args))
        everywhere = [(R,) * mesh.ndim] * len(_tensors(args))
        return self._locally(op, args, None, _Chosen(everywhere, [], [Way((None,) * len(everywhere), ())] * mesh.ndim))

    def _locally(self, op: Any, args: tuple[Any, ...], known: list[Any] | None, chosen: _Chosen) -> Any:
        operands, results, per_dim = chosen
        mesh = _tensors(args)[0].device_mesh
        slopes = [tuple([_slope(way, i) for way in per_dim]) for i in range(len(operands))]
        given = zip(_tensors(args), operands, slopes, strict=True)
        pieces = [x.redistribute(placements=p).to_local(grad_placements=s) for x, p, s in given]
        versions, local = [x._version for x in pieces], iter(pieces)
        given, count = _mapped(args, lambda _: next(local)), len(op.positional)
        made = op.function(*given[:count], **dict(zip(op.keyword_only, given[count:], strict=True)))
        for x, piece, version, place in zip(_tensors(args), pieces, versions, operands, strict=True):
            if piece._version != version and place != tuple(x.placements):  # statistics, say
                self.store(x, self.cls._of(piece.detach(), mesh, place, x.shape, x.stride()))
        place, like = iter(results), iter(known or ())

        def spread(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            if x.layout != fb.strided:
                kind = x.layout
                raise NotImplementedError(f"{op.public_name}: the result has layout {kind}, of which there are no DTensors; use to_local()")
            global_like, placed = next(like, x), list(next(place, (R,) * mesh.ndim))
            for at, p in enumerate(placed):
                if p.is_partial("avg"):               # so that gradients are those of parts of a sum
                    x, placed[at] = x / mesh.size(at), P
            return self.cls.from_local(x, mesh, placed, shape=tuple(global_like.shape), stride=tuple(global_like.stride()))

        return pytree.tree_map(spread, made)

    def answer(self, op: Any, args: tuple[Any, ...], inplace: bool) -> Any:
        """The result of an op that is no composition, without history; `taken` has seen to its arguments."""
        spread = _tensors(args)
        if "generator" in op.params:
            return _drawn(
                self.cls,
                spread[0],
                inplace,
                _dispatch.interpret(op, _mapped(args, lambda x: x.full_tensor().clone())),
            )
        known = _known(op, args)
        operands, results, _ = _chosen(op, args, known, inplace)
        local = iter([x._local_as(p) for x, p in zip(spread, operands, strict=True)])
        given = _mapped(args if op.for_pieces is None else op.for_pieces(*args), lambda _: next(local))
        mesh = spread[0].device_mesh
        if inplace:
            return _stored(op, spread[0], given, operands[0])
        sized = getattr(op, "sized_by", "")
        if sized and known:
            at = op.params.index(sized)
            given = (*given[:at], _local_shape(known[0].shape, results[0], mesh), *given[at + 1 :])
        made = _dispatch.interpret(op, given)
        _tell(op, given, made, False)
        place, like = iter(results), iter(known or ())

        def wrapped(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            global_like = next(like, x)
            return self.cls._of(x, mesh, next(place, (R,) * mesh.ndim), tuple(global_like.shape), tuple(global_like.stride()))

        return pytree.tree_map(wrapped, made)

    def store(self, target: Any, value: Any) -> None:
        """Put the values of `value`, spread in any way, into the pieces of `target`."""
        target._local_tensor.copy_(value.detach()._local_as(target.placements))


def _tensors(args: Any) -> list[Any]:
    return [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(x, Tensor)]


def _mapped(args: tuple[Any, ...], fn: Callable[[Any], Any]) -> tuple[Any, ...]:
    """`args` with `fn` of their tensors, also of those in lists."""

    def one(a: Any) -> Any:
        if isinstance(a, Tensor):
            return fn(a)
        if isinstance(a, (list, tuple)) and any(isinstance(x, Tensor) for x in a):
            return type(a)([fn(x) if isinstance(x, Tensor) else x for x in a])
        return a

    return tuple([one(a) for a in args])


def _on_meta(x: Any) -> Any:
    return fb.empty_strided(tuple(x.shape), tuple(x.stride()), dtype=x.dtype, device="meta")


def _known(op: Any, args: tuple[Any, ...]) -> list[Any] | None:
    """What the results of a call on whole tensors look like; None where that depends on values."""
    with unseen(), fb.no_grad():
        try:
            made = _dispatch.interpret(op, _mapped(args, _on_meta))
        except NotImplementedError:
            return None
    return [x for x in pytree.tree_leaves(made) if isinstance(x, Tensor)]


def _local_shape(shape: Sequence[int], placements: Sequence[Placement], mesh: Any) -> tuple[int, ...]:
    from ._utils import compute_local_shape_and_global_offset

    return tuple(compute_local_shape_and_global_offset(tuple(shape), mesh, placements, True)[0])


# -- choosing ------------------------------------------------------------------------------------------------------------------


def ways_of(asked: DividedCall) -> list[Way] | None:
    """The ways to run a call, by its declaration or kind or a rule of the program's; None if there is no rule."""
    op = asked.op
    if REGISTERED:
        func, args, kwargs = seen_as(op, asked.args)
        rule = REGISTERED.get(getattr(func, "_opname", ""))
        if rule is not None:
            return rule(args, kwargs)
    found = op.ways(asked)
    return pieces.everywhere(asked) if found is None and _aten.is_pointwise(op) else found


class _Chosen(NamedTuple):
    operands: list[Placements]
    results: list[Placements]
    per_dim: list[Way]


def _chosen(op: Any, args: tuple[Any, ...], known: list[Any] | None, inplace: bool) -> _Chosen:
    """The placements of operands and results that move the fewest bytes; all whole if there is no rule."""
    spread = _tensors(args)
    mesh = spread[0].device_mesh
    per_dim: list[Way] = []
    strided: dict[int, Placement] = {}
    for at in range(mesh.ndim):
        # Another dimension of the mesh may divide the same dimension: then its pieces are to be equal too.
        asked = DividedCall(op, args, known or (), mesh.size(at) if mesh.ndim == 1 else mesh.size())
        ways = None if known is None else ways_of(asked)
        if ways is None:
            _warn_of_replicating(op, spread)
            ways = [asked.replicated()]
        if inplace:
            ways = [w for w in ways if w.results[:1] == w.operands[:1]] or [asked.replicated()]
        best = min(
            ways,
            key=lambda w: sum(_cost(x, at, _placement(p, x.placements[at])) for x, p in zip(spread, w.operands, strict=True)),
        )
        placement = _strided(op, spread, known, at)
        if placement is not None:
            strided[at] = placement
            best = asked.replicated()
        per_dim.append(best)

    def placed(places: Sequence[Place], x: Any, have: Placements) -> Placements:
        is_alike = known and tuple(x.shape) == tuple(known[0].shape)
        return tuple([strided[i] if i in strided and is_alike else _placement(p, have[i]) for i, p in enumerate(places)])

    operands = [placed([w.operands[i] for w in per_dim], x, x.placements) for i, x in enumerate(spread)]
    results = [placed([w.results[i] for w in per_dim], x, (R,) * mesh.ndim) for i, x in enumerate(known or ())]
    return _Chosen(operands, results, per_dim)


def _warn_of_replicating(op: Any, spread: list[Any]) -> None:
    if any(not p.is_replicate() for x in spread for p in x.placements):
        warn_once(f"DTensor: {op.public_name} has no sharding rule; it runs on whole tensors on every rank")


def _strided(op: Any, spread: list[Any], known: list[Any] | None, at: int) -> Placement | None:
    """The strided pieces that an operand of an elementwise operation has, if the others can be divided so."""
    found = next((x.placements[at] for x in spread if isinstance(x.placements[at], _StridedShard)), None)
    if found is None or not known or not (op.kind == "elementwise" or _aten.is_pointwise(op)):
        return None
    result = tuple(known[0].shape)
    return None if any(tuple(x.shape) != result and x.numel() != 1 for x in spread) else found


def _cost(x: Any, at: int, wanted: Placement) -> float:
    """Bytes that travel, about; a way that wants less to be put together comes first among equals."""
    have, size = x.placements[at], x.numel() * x.element_size() + 1.0
    if have == wanted:
        return 0.0
    if isinstance(have, Replicate):
        return (
            0.001 * size
            if isinstance(wanted, (Shard, _StridedShard))
            else 0.002 * size
            if wanted == P
            else math.inf
        )
    if isinstance(wanted, Partial):
        return math.inf
    return size * (2.0 if isinstance(have, Partial) and isinstance(wanted, Replicate) else 1.0)


def _slope(way: Way, i: int) -> Placement:
    """How the gradient of operand `i` lies that each process has computed from its pieces."""
    place = way.operands[i]
    if isinstance(place, int):
        return Shard(place)
    others = (*way.operands[:i], *way.operands[i + 1 :])
    return P if place is None and any(p not in (None, "any") for p in others) else R


# -- storing, making, drawing ----------------------------------------------------------------------------------------------------


def _tell(op: Any, args: tuple[Any, ...], made: Any, inplace: bool) -> None:
    if ran:
        func, given, kwargs = seen_as(op, args, args[0] if inplace else None, inplace)
        for listener in ran:
            listener(func, given, kwargs, made)


def _stored(op: Any, target: Any, args: tuple[Any, ...], placements: Placements) -> Any:
    """`target` after an op in place, whose placements it keeps."""
    if placements == tuple(target.placements):
        _dispatch.interpret(op, (target._local_tensor, *args[1:]), target._local_tensor, True)
        _tell(op, args, target._local_tensor, True)
        return target
    made = _dispatch.interpret(op, args)
    target._local_tensor.copy_(redistributed(made, tuple(target.shape), target.device_mesh, placements, target.placements))
    return target


def _made(cls: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function that makes or fills a tensor gives beside a spread one: spread as that, if it has its shape, else whole."""
    source = next(x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, cls))
    if Tag.nondeterministic_seeded in func.tags:
        replicated = pytree.tree_map(lambda x: x.full_tensor().clone() if isinstance(x, cls) else x, (args, kwargs))
        return _drawn(cls, source, func._opname.endswith("_"), func(*replicated[0], **replicated[1]))
    mesh = source.device_mesh
    with unseen():
        like = pytree.tree_map(lambda x: _on_meta(x) if isinstance(x, Tensor) else x, (args, kwargs))
        known = func(*like[0], **like[1])
    shape = tuple(known.shape)
    placed = tuple(
        [R if isinstance(p, Partial) or shape != tuple(source.shape) else p for p in source.placements]
    )
    named = dict(zip([a.name for a in func._schema.arguments], args, strict=False)) | kwargs
    local = {k: x._local_tensor if isinstance(x, cls) else x for k, x in named.items()}
    if "size" in local:
        local["size"] = list(_local_shape(shape, placed, mesh))
    if "stride" in local:
        local["stride"] = [math.prod(local["size"][d + 1 :]) for d in range(len(shape))]
    made = func(**local)
    if func._opname.endswith("_"):
        return source
    return cls._of(made, mesh, placed, shape, tuple(known.stride()))


def _drawn(cls: Any, source: Any, inplace: bool, made: Any) -> Any:
    """Draws are those of one process: every rank has drawn `made`, for the whole tensor, and keeps its piece."""
    mesh = source.device_mesh
    kept = tuple(
        [R if isinstance(p, Partial) or made.shape != source.shape else p for p in source.placements]
    )
    piece, where = made, mesh.get_coordinate()
    for at, placement in enumerate(kept):
        if isinstance(placement, Shard):
            piece = local_part(piece, placement.dim, mesh.size(at), where[at])
    if inplace:
        source._local_tensor.copy_(piece)
        return source
    return cls._of(piece, mesh, kept, tuple(made.shape), tuple(made.stride()))
