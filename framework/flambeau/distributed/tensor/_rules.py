"""Which placements operators take and give, and how they run on the pieces.

A rule is asked for each dimension of the mesh alone, and lists ways: a placement for each spread operand, and that of the results. The
way that moves the fewest bytes is taken. What has no rule runs on whole tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flambeau as fb

from ..._arrays import unseen
from ..._warn import warn_once
from ...ops._spec import OPS
from ...utils import _pytree as pytree
from ._redistribute import local_part, redistributed
from .placement_types import Partial, Placement, Replicate, Shard, _StridedShard

__all__ = ["run"]

R, P = Replicate(), Partial()


class Way(NamedTuple):
    """A way to run on pieces: the placement of each operand along one dimension of the mesh, and that of the results."""

    operands: tuple[Placement, ...]
    result: Placement


class Asked(NamedTuple):
    """A call as rules see it: operands are the spread tensors in their order, by their whole shapes."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: list[tuple[int, ...]]
    result: tuple[int, ...] | None  # the shape of the first result
    count: int  # of pieces that a dimension may be divided into

    def argument(self, at: int, name: str, default: Any = None) -> Any:
        return self.args[at] if len(self.args) > at else self.kwargs.get(name, default)


ran: list[Callable[[Any, Any, Any, Any], None]] = []  # told of each operation on pieces: ``(operator, args, kwargs, result)``
Rule = Callable[[Asked], list[Way]]
RULES: dict[str, Rule] = {}
REGISTERED: dict[str, Rule] = {}                      # by programs


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


# -- elementwise ---------------------------------------------------------------------------------------------------------

_SUMS = frozenset(("add", "sub"))
_SCALED = frozenset(("mul", "div"))
_LINEAR = frozenset(("neg", "clone", "_to_copy", "detach", "alias", "conj_physical", "copy"))
_POINTWISE = frozenset((
    "add", "sub", "mul", "div", "rsub", "copy", "clone", "_to_copy", "detach", "alias", "where", "gelu", "clamp", "clamp_min",
    "clamp_max", "masked_fill", "lerp", "addcmul", "addcdiv", "silu", "elu", "hardtanh", "leaky_relu", "softplus", "square", "pow", "logit",
    "nan_to_num", "true_divide", "conj_physical", "isclose", "threshold",
))  # fmt: skip


def _is_pointwise(name: str) -> bool:
    if name in _POINTWISE:
        return True
    op = OPS.get(name) or OPS.get(name.replace("special_", "special.", 1))
    return op is not None and op.kind == "elementwise"


def _pointwise(asked: Asked) -> list[Way]:
    result = asked.result or ()
    ways = []
    for dim in range(len(result)):
        placements = []
        for shape in asked.shapes:
            own = dim - (len(result) - len(shape))
            placements.append(Shard(own) if own >= 0 and shape[own] != 1 else R)
        if result[dim] != 1 and any(isinstance(p, Shard) for p in placements):
            ways.append(Way(tuple(placements), Shard(dim)))
    ways.append(Way((R,) * len(asked.shapes), R))
    tensors = len(asked.shapes)
    numbers = any(isinstance(a, (int, float, complex)) and not isinstance(a, bool) for a in asked.args)
    if asked.name in _LINEAR or asked.name in _SUMS and not numbers or asked.name in _SCALED and tensors == 1:
        ways.append(Way((P,) * tensors, P))
    if asked.name == "mul" and tensors == 2:
        ways += [Way((P, R), P), Way((R, P), P)]
    if asked.name == "div" and tensors == 2:
        ways.append(Way((P, R), P))
    return ways


# -- reductions, and what goes along a dimension ---------------------------------------------------------------------------

_REDUCED_BY = {"sum": "sum", "amax": "max", "amin": "min", "prod": "product", "mean": "avg"}


def _dims(value: Any, ndim: int) -> tuple[int, ...]:
    if value is None or value == []:
        return tuple(range(ndim))
    return tuple(d % ndim for d in (value if isinstance(value, (list, tuple)) else (value,))) if ndim else ()


@_rule("sum", "mean", "amax", "amin", "prod", "var", "std", "any", "all", "linalg_vector_norm", "logsumexp")
def _reduction(asked: Asked) -> list[Way]:
    shape = asked.shapes[0]
    at = 2 if asked.name == "linalg_vector_norm" else 1
    dims = _dims(asked.argument(at, "dim"), len(shape))
    keepdim = bool(asked.argument(at + 1, "keepdim", False))
    ways = []
    for d in range(len(shape)):
        if d not in dims:
            ways.append(Way((Shard(d),), Shard(d if keepdim else d - sum(x < d for x in dims))))
        elif asked.name in _REDUCED_BY and (asked.name != "mean" or shape[d] % asked.count == 0) and shape[d] >= asked.count:
            ways.append(Way((Shard(d),), Partial(_REDUCED_BY[asked.name])))
    if asked.name in ("sum", "mean"):
        ways.append(Way((P,), P))
    return [*ways, Way((R,), R)]


@_rule("_softmax", "_log_softmax", "cumsum", "cumprod", "sort", "topk", "flip", "argmax", "argmin")
def _along(asked: Asked) -> list[Way]:
    shape = asked.shapes[0]
    at = 2 if asked.name == "topk" else 1
    given = asked.argument(at, "dim", asked.argument(1, "dims", -1) if asked.name == "flip" else -1)
    if given is None:
        return [Way((R,), R)]
    dims = _dims(given, len(shape))
    keeps = asked.name not in ("argmax", "argmin") or bool(asked.argument(2, "keepdim", False))
    others = [d for d in range(len(shape)) if d not in dims]
    return [Way((Shard(d),), Shard(d if keeps else d - sum(x < d for x in dims))) for d in others] + [Way((R,), R)]


# -- products ------------------------------------------------------------------------------------------------------------


@_rule("mm")
def _mm(asked: Asked) -> list[Way]:
    return [Way((R, R), R), Way((Shard(0), R), Shard(0)), Way((R, Shard(1)), Shard(1)), Way((Shard(1), Shard(0)), P),
            Way((P, R), P), Way((R, P), P)]  # fmt: skip


@_rule("bmm")
def _bmm(asked: Asked) -> list[Way]:
    return [Way((R, R), R), Way((Shard(0), Shard(0)), Shard(0)), Way((Shard(1), R), Shard(1)), Way((R, Shard(2)), Shard(2)),
            Way((Shard(2), Shard(1)), P)]  # fmt: skip


@_rule("addmm")
def _addmm(asked: Asked) -> list[Way]:
    if len(asked.shapes) != 3:
        return []
    flat = len(asked.shapes[0]) == 1
    ways = [Way((R, R, R), R), Way((R if flat else Shard(0), Shard(0), R), Shard(0)), Way((Shard(0 if flat else 1), R, Shard(1)), Shard(1))]
    return [*ways, Way((P, Shard(1), Shard(0)), P)]


@_rule("linear")
def _linear(asked: Asked) -> list[Way]:
    last, biased = len(asked.shapes[0]) - 1, len(asked.shapes) == 3

    def way(x: Placement, weight: Placement, bias: Placement, result: Placement) -> Way:
        return Way((x, weight, bias) if biased else (x, weight), result)

    rows = [way(Shard(d), R, R, Shard(d)) for d in range(last)]
    return [way(R, R, R, R), *rows, way(R, Shard(0), Shard(0), Shard(last)), way(Shard(last), Shard(1), P, P)]


@_rule("convolution", "conv1d", "conv2d", "conv3d")
def _convolution(asked: Asked) -> list[Way]:
    others = (R,) * (len(asked.shapes) - 1)
    return [Way((R, *others), R), Way((Shard(0), *others), Shard(0))]


@_rule("scaled_dot_product_attention", "attention")
def _attention(asked: Asked) -> list[Way]:
    count = len(asked.shapes)
    if count != 3 or len({shape[:2] for shape in asked.shapes}) != 1:
        return []
    return [Way((R,) * 3, R), Way((Shard(0),) * 3, Shard(0)), Way((Shard(1),) * 3, Shard(1))]


@_rule("embedding")
def _embedding(asked: Asked) -> list[Way]:
    if len(asked.shapes) != 2:
        return []
    places = len(asked.shapes[1])
    return [Way((R, R), R), Way((Shard(1), R), Shard(places)), *(Way((R, Shard(d)), Shard(d)) for d in range(places))]


@_rule("normalize_trailing", "scale_trailing", "layer_norm", "rms_norm")
def _trailing(asked: Asked) -> list[Way]:
    leading = len(asked.shapes[0]) - len(asked.args[1])
    others = (R,) * (len(asked.shapes) - 1)
    return [Way((R, *others), R), *(Way((Shard(d), *others), Shard(d)) for d in range(leading))]


# -- views and shapes ----------------------------------------------------------------------------------------------------


def _mapped(asked: Asked, target: Callable[[int], int | None]) -> list[Way]:
    """Ways of a view in which dimension d becomes ``target(d)``; None where it may not be divided."""
    places = [(d, target(d)) for d in range(len(asked.shapes[0]))]
    return [*(Way((Shard(d),), Shard(t)) for d, t in places if t is not None), Way((P,), P), Way((R,), R)]


@_rule("t")
def _t(asked: Asked) -> list[Way]:
    return _mapped(asked, (lambda d: 1 - d) if len(asked.shapes[0]) == 2 else (lambda d: d))


@_rule("transpose")
def _transpose(asked: Asked) -> list[Way]:
    ndim = len(asked.shapes[0])
    a, b = asked.args[1] % ndim, asked.args[2] % ndim
    return _mapped(asked, lambda d: b if d == a else a if d == b else d)


@_rule("permute")
def _permute(asked: Asked) -> list[Way]:
    dims = _dims(asked.args[1], len(asked.shapes[0]))
    return _mapped(asked, dims.index)


@_rule("unsqueeze")
def _unsqueeze(asked: Asked) -> list[Way]:
    at = asked.args[1] % (len(asked.shapes[0]) + 1)
    return _mapped(asked, lambda d: d + (d >= at))


@_rule("squeeze")
def _squeeze(asked: Asked) -> list[Way]:
    shape = asked.shapes[0]
    gone = {d for d in _dims(asked.argument(1, "dim"), len(shape)) if shape[d] == 1}
    return _mapped(asked, lambda d: None if d in gone else d - sum(x < d for x in gone))


@_rule("select")
def _select(asked: Asked) -> list[Way]:
    at = asked.args[1] % len(asked.shapes[0])
    return _mapped(asked, lambda d: None if d == at else d - (d > at))


@_rule("slice", "narrow", "split_with_sizes")
def _slice(asked: Asked) -> list[Way]:
    at = asked.argument(2 if asked.name == "split_with_sizes" else 1, "dim", 0) % len(asked.shapes[0])
    return _mapped(asked, lambda d: None if d == at else d)


@_rule("cat", "stack")
def _cat(asked: Asked) -> list[Way]:
    shape, count = asked.shapes[0], len(asked.shapes)
    ndim = len(shape) + (asked.name == "stack")
    at = asked.argument(1, "dim", 0) % ndim
    if asked.name == "stack":
        ways = [Way((Shard(d),) * count, Shard(d + (d >= at))) for d in range(len(shape))]
    else:
        ways = [Way((Shard(d),) * count, Shard(d)) for d in range(len(shape)) if d != at]
    return [*ways, Way((P,) * count, P), Way((R,) * count, R)]


@_rule("view", "reshape", "_unsafe_view")
def _view(asked: Asked) -> list[Way]:
    if asked.result is None or not isinstance(asked.args[1], (list, tuple)):
        return []
    into = _groups(asked.shapes[0], asked.result)

    def target(d: int) -> int | None:
        to = into.get(d)
        if to is None or asked.shapes[0][d] % asked.count or asked.result[to] % asked.count:  # type: ignore[index]
            return None
        return to

    return _mapped(asked, target)


@_rule("expand")
def _expand(asked: Asked) -> list[Way]:
    shape, more = asked.shapes[0], len(asked.args[1]) - len(asked.shapes[0])
    return _mapped(asked, lambda d: None if shape[d] == 1 else d + more)


def _groups(before: Sequence[int], after: Sequence[int]) -> dict[int, int]:
    """Of dimensions of `before` that begin a run of equal size in both, the first dimension of the run in `after`."""
    found: dict[int, int] = {}
    i = j = 0
    while i < len(before) and j < len(after):
        if before[i] == 1 or after[j] == 1:           # belongs to no run
            i, j = i + (before[i] == 1), j + (before[i] != 1)
            continue
        begin = i, j
        a, b = before[i], after[j]
        i, j = i + 1, j + 1
        while a != b and (i < len(before) or j < len(after)):
            if a < b and i < len(before):
                a, i = a * before[i], i + 1
            elif j < len(after):
                b, j = b * after[j], j + 1
            else:
                break
        if a == b:
            found[begin[0]] = begin[1]
    return found


# -- running -------------------------------------------------------------------------------------------------------------

_LIKE = frozenset(("zeros_like", "ones_like", "empty_like", "full_like"))
_NEW = frozenset(("new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided"))
_DRAWS = frozenset((
    "normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_", "log_normal_", "geometric_", "rand_like", "randn_like",
    "randint_like", "dropout", "native_dropout",
))  # fmt: skip


def run(cls: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator with spread operands, spread.

    Raises: RuntimeError where plain tensors of several elements are mixed with spread ones, or tensors of different meshes.
    """
    name = func._opname
    leaves, structure = pytree.tree_flatten((args, kwargs))
    spread = [x for x in leaves if isinstance(x, cls)]
    mesh = spread[0].device_mesh
    for x in leaves:
        if isinstance(x, cls) and x.device_mesh != mesh:
            raise RuntimeError(f"{func}: DTensors of different device meshes: {x.device_mesh} and {mesh}; redistribute one of them")
        if isinstance(x, fb.Tensor) and not isinstance(x, cls) and x.numel() != 1:
            raise RuntimeError(
                f"{func}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed "
                f"operators! The plain one has shape {tuple(x.shape)}; use distribute_tensor or DTensor.from_local"
            )
    if name == "_local_scalar_dense":
        return func(spread[0].full_tensor())
    if name in _DRAWS:
        return _drawn(cls, func, leaves, structure, spread)
    with unseen():
        whole = pytree.tree_map(lambda x: _on_meta(x) if isinstance(x, fb.Tensor) else x, (args, kwargs))
        try:
            known = func(*whole[0], **whole[1])
        except (NotImplementedError, RuntimeError, TypeError):
            known = None                              # what depends on values has no shape beforehand
    inplace = name.endswith("_") and not name.endswith("__")
    plain_name = name.removesuffix("_") if inplace else name
    first = next((x for x in pytree.tree_leaves(known) if isinstance(x, fb.Tensor)), None)
    if name in _LIKE or name in _NEW:
        source = spread[0]
        kept = name in _LIKE or first is not None and tuple(first.shape) == tuple(source.shape)
        result = tuple(R if not kept or isinstance(p, Partial) else p for p in source.placements)
        operands = [result if kept else (R,) * mesh.ndim]
    else:
        shape = None if first is None else tuple(first.shape)
        operands, result = _chosen(plain_name, args, kwargs, spread, mesh, shape, known, inplace)
    parts = iter([x._local_as(p) for x, p in zip(spread, operands, strict=True)])
    locally = [next(parts) if isinstance(x, cls) else x for x in leaves]
    local_args, local_kwargs = pytree.tree_unflatten(locally, structure)
    if inplace:
        return _stored(func, spread[0], local_args, local_kwargs, operands[0])
    if name in ("view", "reshape", "_unsafe_view", "expand", *_NEW) and first is not None:
        local_args = (local_args[0], list(_local_shape(first.shape, result, mesh)), *local_args[2:])
    made = func(*local_args, **local_kwargs)
    for listener in ran:
        listener(func, local_args, local_kwargs, made)
    shapes = iter(x for x in pytree.tree_leaves(known) if isinstance(x, fb.Tensor)) if known is not None else None

    def wrapped(x: Any) -> Any:
        if not isinstance(x, fb.Tensor):
            return x
        like = x if shapes is None else next(shapes)
        return cls._of(x, mesh, result, tuple(like.shape), tuple(like.stride()))

    return pytree.tree_map(wrapped, made)


def _on_meta(x: Any) -> Any:
    return fb.empty_strided(tuple(x.shape), tuple(x.stride()), dtype=x.dtype, device="meta")


def _local_shape(shape: Sequence[int], placements: Sequence[Placement], mesh: Any) -> tuple[int, ...]:
    from ._utils import compute_local_shape_and_global_offset

    return compute_local_shape_and_global_offset(tuple(shape), mesh, placements, True)[0]


def _chosen(
    name: str, args: Any, kwargs: Any, spread: list[Any], mesh: Any, shape: Any, known: Any, inplace: bool
) -> tuple[list[tuple[Placement, ...]], tuple[Placement, ...]]:
    """The placements of operands and results that move the fewest bytes; all whole if there is no rule."""
    rule = REGISTERED.get(name) or RULES.get(name) or (_pointwise if _is_pointwise(name) else None)
    shapes = [tuple(x.shape) for x in spread]
    per_dim: list[Way] = []
    for at in range(mesh.ndim):
        # Another dimension of the mesh may divide the same dimension: then its pieces are to be equal too.
        count = mesh.size(at) if mesh.ndim == 1 else mesh.size()
        ways = [] if rule is None or known is None else rule(Asked(name, args, kwargs, shapes, shape, count))
        if rule is _pointwise:
            ways += _strided_way(spread, shapes, shape or (), at)
        ways = [w for w in ways if len(w.operands) == len(spread)]
        if inplace:
            ways = [w for w in ways if w.result == w.operands[0]]
        if not ways:
            if rule is None and any(not p.is_replicate() for x in spread for p in x.placements):
                warn_once(f"DTensor: {name} has no sharding rule; it runs on whole tensors on every rank")
            ways = [Way((R,) * len(spread), R)]
        per_dim.append(min(ways, key=lambda w: sum(_cost(x, at, p) for x, p in zip(spread, w.operands, strict=True))))
    operands = [tuple(w.operands[i] for w in per_dim) for i in range(len(spread))]
    return operands, tuple(w.result for w in per_dim)


def _strided_way(spread: list[Any], shapes: list[tuple[int, ...]], result: tuple[int, ...], at: int) -> list[Way]:
    """The way of strided pieces that an operand has, if the others can be divided so."""
    found = next((x.placements[at] for x in spread if isinstance(x.placements[at], _StridedShard)), None)
    if found is None or any(shape != result and math.prod(shape) != 1 for shape in shapes):
        return []
    return [Way(tuple(found if shape == result else R for shape in shapes), found)]


def _cost(x: Any, at: int, wanted: Placement) -> float:
    """Bytes that travel, about; a way that wants less to be put together comes first among equals."""
    have, size = x.placements[at], x.numel() * x.element_size() + 1.0
    if have == wanted:
        return 0.0
    if isinstance(have, Replicate):
        return 0.001 * size if isinstance(wanted, (Shard, _StridedShard)) else 0.002 * size if wanted == P else math.inf
    if isinstance(wanted, Partial):
        return math.inf
    return size * (2.0 if isinstance(have, Partial) and isinstance(wanted, Replicate) else 1.0)


def _stored(func: Any, target: Any, args: Any, kwargs: Any, placements: Any) -> Any:
    """`target` after an operator in place, whose placements it keeps."""
    if tuple(placements) == tuple(target.placements):
        func(target._local_tensor, *args[1:], **kwargs)
        for listener in ran:
            listener(func, args, kwargs, target._local_tensor)
        return target
    made = func(args[0].clone(), *args[1:], **kwargs)
    target._local_tensor.copy_(redistributed(made, tuple(target.shape), target.device_mesh, placements, target.placements))
    return target


def _drawn(cls: Any, func: Any, leaves: list[Any], structure: Any, spread: list[Any]) -> Any:
    """Draws are those of one process: every rank draws for the whole tensor, and keeps its piece."""
    target = spread[0]
    mesh, shape = target.device_mesh, tuple(target.shape)
    kept = tuple(R if isinstance(p, Partial) else p for p in target.placements)
    whole = [x.full_tensor().clone() if isinstance(x, cls) else x for x in leaves]
    args, kwargs = pytree.tree_unflatten(whole, structure)
    made = func(*args, **kwargs)
    piece = made
    where = mesh.get_coordinate()
    for at, placement in enumerate(kept):
        if isinstance(placement, Shard):
            piece = local_part(piece, placement.dim, mesh.size(at), where[at])
    if func._opname.endswith("_"):
        target._local_tensor.copy_(piece)
        return target
    return cls._of(piece, mesh, kept, shape, tuple(made.stride()))
