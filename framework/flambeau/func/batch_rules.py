"""How ops run on a whole batch at once: one rule for each kind of op, and one for each op that is of no such kind.

A rule is ``rule(level, op, args) -> result``; it sees batched operands and returns batched results, or NotImplemented
where it does not apply, and then the op runs on one example after another. Inside, the examples are the first dimension.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..ops import _dispatch
from ..ops._promote import result_type
from ..ops._spec import OPS, wrap_dims
from ..ops.shape import infer_shape
from ..tensor import Tensor, wrap, wrap_dim
from .batching import BatchedTensor

# Ops that draw random numbers, and ops whose results have a shape that depends on values.
RANDOM = {
    "bernoulli", "poisson", "binomial", "multinomial", "nn.functional.scaled_dot_product_attention",
    "nn.functional.multi_head_attention_forward", "nn.functional.gumbel_softmax", "nn.functional.rrelu", "rrelu",
    "nn.functional.rrelu_", "rrelu_", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.fractional_max_pool2d_with_indices", "nn.functional.fractional_max_pool3d_with_indices",
    *(f"{home}{kind}dropout{end}" for home in ("", "nn.functional.") for kind in ("", "alpha_", "feature_", "feature_alpha_")
      for end in ("", "_", "1d", "2d", "3d")),
}  # fmt: skip
DYNAMIC = {"nonzero", "nonzero_rows", "argwhere", "masked_select", "unique", "unique_consecutive", "distinct", "bincount"}

# Compositions that are not taken apart: what they check of values, they check of the whole batch.
_WHOLE = ("reshape", "detach", "linalg.inv", "linalg.cholesky", "linalg.solve", "nn.functional.one_hot")

_RULES: dict[str, Any] = {}


def rule(*names: str) -> Any:
    """Register the decorated rule for ops of these names."""

    def register(fn: Any) -> Any:
        for name in names:
            _RULES[name] = fn
        return fn

    return register


def rule_for(op: Any) -> Any:
    """The rule of `op`: its own declaration's, one by name, or that of its kind; None where examples go one by one."""
    if op.kind == "composite" and op.qualified not in _WHOLE:
        return None
    declared = getattr(op, "batch_rule", None)
    if declared is not None:
        return declared
    return _RULES.get(op.qualified) or _KINDS.get(op.kind)


@functools.cache
def facts(op: Any) -> tuple[bool, bool, Any]:
    """Whether `op` draws random numbers, whether its results have a shape that depends on values, and its rule."""
    return op.qualified in RANDOM, op.qualified in DYNAMIC, rule_for(op)


def draws(op: Any, args: tuple[Any, ...]) -> bool:
    """Whether this call of a random op draws at all: dropout outside training does not."""
    named = dict(zip(op.params, args, strict=True))
    if "dropout_p" in named:
        return bool(named["dropout_p"]) and bool(named.get("training", True))
    return bool(named.get("training", named.get("train", True)))


def run(op: Any, *args: Any, inplace: bool = False) -> Any:
    """`op` as the levels outside see it."""
    return _dispatch.interpret(op, args, args[0] if inplace else None, inplace)


def logical(level: Any, x: Tensor) -> int:
    """Number of dimensions one example of `x` has."""
    return x._value.ndim - 1 if level.has(x) else x.ndim


# -- elementwise ---------------------------------------------------------------------------------------------------------


def aligned(level: Any, args: Any) -> tuple[Any, ...]:
    """Operands that broadcast as their examples do: single dimensions inserted after the first."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    ndim = max(logical(level, a) for a in tensors)
    common = None
    if any(logical(level, a) == 0 for a in tensors) and len({a.dtype for a in tensors}) > 1:
        common = result_type([a for a in tensors if a.dtype.name != "bool"] or tensors)
    return tuple(_aligned(level, a, ndim, common) if isinstance(a, Tensor) else a for a in args)


def _aligned(level: Any, x: Tensor, ndim: int, common: Any) -> Tensor:
    own = logical(level, x)
    if common is not None and own == 0 and x.dtype is not common and x.dtype.name != "bool":
        # One element per example weighs little in promotion; the batch of them would weigh as a full tensor.
        x = x.to(common) if not level.has(x) else type(level).wrap(level, x._value.to(common), x._bdim)
    if not level.has(x):
        return x
    value = level.front(x)
    return value if own == ndim else value.reshape(value.shape[0], *(1,) * (ndim - own), *value.shape[1:])


def elementwise(level: Any, op: Any, args: Any) -> Any:
    values = _of_one_rank(level, args)
    return level.wrap(_dispatch.interpret(op, aligned(level, args) if values is None else values))


def _of_one_rank(level: Any, args: Any) -> tuple[Any, ...] | None:
    """Operands that broadcast as their examples do as they are: batches of one rank along the first dimension, and numbers."""
    values: list[Any] = []
    ndim = 0
    for a in args:
        if isinstance(a, Tensor):
            if a.__class__ is not BatchedTensor or a._level is not level or a._bdim:
                return None
            a = a._value
            if ndim != a._array.ndim:
                if ndim:
                    return None
                ndim = a._array.ndim
        values.append(a)
    return tuple(values) if ndim > 1 else None


def elementwise_inplace(level: Any, op: Any, args: Any) -> None:
    target, *rest = args
    own = logical(level, target)
    for x in rest:
        if isinstance(x, Tensor) and logical(level, x) > own:
            raise RuntimeError(
                f"{op.name}_: output with shape {list(target.shape)} doesn't match the broadcast shape of {list(x.shape)} with it"
            )
    others = aligned(level, args)[1:]
    run(op, level.front(target), *others, inplace=True)


# -- reductions, and ops along dimensions --------------------------------------------------------------------------------


def reduction(level: Any, op: Any, args: Any) -> Any:
    x, dim, *rest = args
    value = level.front(x)
    if value.ndim == 1:
        wrap_dims(op.name, dim, 0)
        return level.wrap(run(op, value.unsqueeze(-1), 1, False, *rest[1:]))
    axes = [d + 1 for d in wrap_dims(op.name, dim, value.ndim - 1)]
    return level.wrap(run(op, value, axes, *rest))


def shifted(x: Any, dim: Any) -> Any:
    """A dimension, or several, of an example of `x` as dimensions of the batch."""
    if isinstance(dim, (list, tuple)):
        return tuple([wrap_dim(d, x.ndim) + 1 for d in dim])
    return wrap_dim(dim, x.ndim) + 1


def along(level: Any, op: Any, args: Any) -> Any:
    """Ops that work along `dim` (or `dims`) of operands with equally many dimensions, all but it alike."""
    named = dict(zip(op.params, args, strict=True))
    at = "dims" if "dims" in named else "dimension" if "dimension" in named else "dim"
    if named[at] is None:
        return NotImplemented
    tensors = {n: named[n] for n in op.tensor_params if isinstance(named[n], Tensor)}
    first = next(iter(tensors.values()))
    if first.ndim == 0 or any(x.ndim != first.ndim for x in tensors.values()):
        return NotImplemented
    named[at] = shifted(first, named[at])
    named.update({n: level.full(x) for n, x in tensors.items()})
    return level.wrap(run(op, *named.values()))


rule(
    "softmax_along", "log_softmax_along", "logsumexp_over", "variance", "flip", "gather", "scatter_src", "scatter_value",
    "scatter_add", "scatter_combine", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "topk", "kthvalue",
    "median", "nanmedian", "mode", "argmax", "argmin", "max", "min", "transform", "real_transform", "inverse_to_real",
    "cross_along",
)(along)  # fmt: skip


@rule("roll")
def _roll(level: Any, op: Any, args: Any) -> Any:
    x, shifts, dims = args
    if dims is None or (isinstance(dims, (list, tuple)) and not dims) or x.ndim == 0:
        return NotImplemented
    return level.wrap(run(op, level.front(x), shifts, shifted(x, dims)))


@rule("tril", "triu")
def _triangle(level: Any, op: Any, args: Any) -> Any:
    return level.wrap(run(op, level.front(args[0]), *args[1:])) if args[0].ndim >= 2 else NotImplemented


@rule("cat")
def _cat(level: Any, op: Any, args: Any) -> Any:
    tensors, dim = args
    if any(x.ndim != tensors[0].ndim or x.ndim == 0 for x in tensors):
        return NotImplemented
    return level.wrap(run(op, [level.full(x) for x in tensors], shifted(tensors[0], dim)))


@rule("clone", "to_copy")
def _copy(level: Any, op: Any, args: Any) -> Any:
    x, *rest = args
    if rest[-1] is not None and rest[-1].name not in ("preserve_format", "contiguous_format"):
        return NotImplemented
    return level.wrap(run(op, level.front(x), *rest))


@rule("detach")
def _detach(level: Any, op: Any, args: Any) -> Any:
    return level.wrap(args[0]._value.detach(), args[0]._bdim)


@rule("index_select")
def _index_select(level: Any, op: Any, args: Any) -> Any:
    x, dim, index = args
    if level.has(index) or x.ndim == 0:
        return NotImplemented
    return level.wrap(run(op, level.front(x), shifted(x, dim), index))


@rule("masked_fill_number")
def _masked_fill(level: Any, op: Any, args: Any) -> Any:
    x, mask, value = args
    if mask.ndim > x.ndim and not level.has(x):
        return NotImplemented
    a, b = aligned(level, (x, mask))
    if not level.has(x):
        a = x.expand(level.size, *x.shape)
    return level.wrap(run(op, a, b, value))


# -- views ---------------------------------------------------------------------------------------------------------------


@rule("view_shape", "reshape")
def _view(level: Any, op: Any, args: Any) -> Any:
    x, size = args
    sizes = infer_shape(op.name, (size,) if isinstance(size, int) else size, x.numel())
    return level.wrap(run(op, level.front(x), (level.size, *sizes)))


@rule("expand_shape")
def _expand(level: Any, op: Any, args: Any) -> Any:
    x, shape = args
    value, extra = level.front(x), len(shape) - x.ndim
    if extra > 0:
        value = value.reshape(level.size, *(1,) * extra, *x.shape)
    return level.wrap(run(op, value, (level.size, *shape)))


@rule("permute")
def _permute(level: Any, op: Any, args: Any) -> Any:
    x, dims = args
    if len(dims) != x.ndim:
        raise RuntimeError(f"permute: the tensor has {x.ndim} dimensions, but the ordering {list(dims)} has {len(dims)}")
    return level.wrap(run(op, level.front(x), (0, *shifted(x, list(dims)))))


@rule("transpose")
def _transpose(level: Any, op: Any, args: Any) -> Any:
    x, dim0, dim1 = args
    i, j = wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim)
    value = level.front(x)
    return level.wrap(run(op, value, i + 1, j + 1) if x.ndim else value.view(value.shape))


@rule("unsqueeze")
def _unsqueeze(level: Any, op: Any, args: Any) -> Any:
    x, dim = args
    return level.wrap(run(op, level.front(x), wrap_dim(dim, x.ndim + 1) + 1))


@rule("squeeze_dims")
def _squeeze(level: Any, op: Any, args: Any) -> Any:
    x, dims = args
    return level.wrap(run(op, level.front(x), tuple(d + 1 for d in dims)))


@rule("narrow", "select", "slice_dim")
def _part(level: Any, op: Any, args: Any) -> Any:
    x, dim, *rest = args
    if x.ndim == 0:
        return run(op, wrap(np.zeros(())), dim, *rest)  # raises as for any 0-d tensor
    return level.wrap(run(op, level.front(x), shifted(x, dim), *rest))


@rule("split_sizes")
def _split(level: Any, op: Any, args: Any) -> Any:
    x, sizes, dim = args
    return level.wrap(run(op, level.front(x), sizes, shifted(x, dim)))


@rule("unbind")
def _unbind(level: Any, op: Any, args: Any) -> Any:
    x, dim = args
    return level.wrap(run(op, level.front(x), shifted(x, dim)))


@rule("diagonal")
def _diagonal(level: Any, op: Any, args: Any) -> Any:
    x, offset, dim1, dim2 = args
    return level.wrap(run(op, level.front(x), offset, shifted(x, dim1), shifted(x, dim2)))


@rule("unfold")
def _unfold(level: Any, op: Any, args: Any) -> Any:
    x, dimension, size, step = args
    if x.ndim == 0:
        return level.wrap(run(op, level.front(x).unsqueeze(-1), 1, size, step).squeeze(1))
    return level.wrap(run(op, level.front(x), shifted(x, dimension), size, step))


@rule("view_as_real", "view_as_complex", "real_part", "imag_part", "view_dtype")
def _same_dims(level: Any, op: Any, args: Any) -> Any:
    return level.wrap(run(op, level.front(args[0]), *args[1:]))


@rule("as_strided")
def _as_strided(level: Any, op: Any, args: Any) -> Any:
    x, size, stride, offset = args
    value = level.front(x)
    return level.wrap(run(op, value, (level.size, *size), (value.stride(0), *stride), offset))


@rule("basic_index")
def _basic_index(level: Any, op: Any, args: Any) -> Any:
    x, key = args
    taken = sum(k is not None and k is not Ellipsis for k in key)
    if taken > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    return level.wrap(run(op, level.front(x), (slice(None), *key)))


# -- products ------------------------------------------------------------------------------------------------------------


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return OPS["matmul"].function(a, b)


def _check_product(op: Any, args: Any) -> None:
    """Let the op refuse shapes and dtypes in its own words, as examples have them."""
    if op.check is not None:
        op.check(*args)


@rule("mm")
def _mm(level: Any, op: Any, args: Any) -> Any:
    _check_product(op, args)
    return level.wrap(_matmul(*map(level.front, args)))


@rule("bmm")
def _bmm(level: Any, op: Any, args: Any) -> Any:
    _check_product(op, args)
    return level.wrap(_matmul(*(level.front(x) for x in args)))


@rule("products")
def _products(level: Any, op: Any, args: Any) -> Any:
    return level.wrap(_matmul(*(level.front(x) for x in args)))


@rule("mv")
def _mv(level: Any, op: Any, args: Any) -> Any:
    _check_product(op, args)
    a, v = args
    if not level.has(a):
        return level.wrap(_matmul(level.front(v), a.transpose(0, 1)))
    return level.wrap(_matmul(level.front(a), level.front(v).unsqueeze(-1)).squeeze(-1))


@rule("dot")
def _dot(level: Any, op: Any, args: Any) -> Any:
    _check_product(op, args)
    a, b = map(level.full, args)
    return level.wrap(_matmul(a.unsqueeze(1), b.unsqueeze(2)).reshape(level.size))


@rule("nn.functional.linear")
def _linear(level: Any, op: Any, args: Any) -> Any:
    input, weight, bias = args
    _check_product(op, args)
    if not level.has(weight) and not level.has(bias):
        return level.wrap(run(op, level.front(input), weight, bias))
    if weight.ndim == 1:
        return NotImplemented
    return level.wrap(run(OPS["linear_of_each"], level.full(input), level.full(weight), None if bias is None else level.full(bias)))


@rule("linear_of_each")
def _linear_of_each(level: Any, op: Any, args: Any) -> Any:
    given = [None if x is None else level.full(x).flatten(0, 1) for x in args]
    return level.wrap(run(op, *given).unflatten(0, (level.size, args[1].shape[0])))


@rule("convolution")
def _convolution(level: Any, op: Any, args: Any) -> Any:
    input, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args
    n = level.size
    rest = (stride, padding, dilation, transposed, output_padding)
    if not level.has(weight) and not level.has(bias):
        x = level.front(input)
        made = run(op, x.reshape(n * x.shape[1], *x.shape[2:]), weight, bias, *rest, groups)
        return level.wrap(made.reshape(n, x.shape[1], *made.shape[1:]))
    # Examples become groups of one convolution.
    x, w = level.full(input).transpose(0, 1), level.full(weight)  # (N, B, C, ...), (B, O, C, ...)
    x = x.reshape(x.shape[0], n * x.shape[2], *x.shape[3:])
    w = w.reshape(n * w.shape[1], *w.shape[2:])
    b = None if bias is None else level.full(bias).reshape(-1)
    made = run(op, x, w, b, *rest, groups * n)
    return level.wrap(made.reshape(made.shape[0], n, -1, *made.shape[2:]), 1)


# -- by index ------------------------------------------------------------------------------------------------------------


def _position(indices: Any) -> int:
    """Where the dimensions of the index tensors come out: at the first, or in front when slices stand between them."""
    at = [d for d, k in enumerate(indices) if k is not None]
    return at[0] if at[-1] - at[0] + 1 == len(at) else 0


@rule("index")
def _index(level: Any, op: Any, args: Any) -> Any:
    x, indices = args
    given = [k for k in indices if k is not None]
    wide = max(k.ndim for k in given)
    place = _position(indices)
    if not any(map(level.has, given)):
        made = run(op, level.front(x), (None, *indices))
        # With slices between them the index dimensions come out first, before the batch.
        return level.wrap(made, wide if place == 0 and indices[0] is None else 0)
    lined = [k if k is None else _index_rows(level, k, wide) for k in indices]
    if not level.has(x):
        return level.wrap(run(op, x, tuple(lined)), place)
    number = wrap(np.arange(level.size).reshape(-1, *(1,) * wide))
    made = run(op, level.front(x), (number, *lined))
    if place:  # the example's index dimensions belong at `place`, not in front
        made = made.movedim(list(range(1, 1 + wide)), list(range(1 + place, 1 + place + wide)))
    return level.wrap(made)


def _index_rows(level: Any, k: Tensor, wide: int) -> Tensor:
    if not level.has(k):
        return k
    value = level.front(k)
    return value.reshape(level.size, *(1,) * (wide - k.ndim), *k.shape)


@rule("rows_at")
def _rows_at(level: Any, op: Any, args: Any) -> Any:
    weight, indices, padding, scaled = args
    if scaled or (level.has(weight) and padding is not None and padding >= 0):
        return NotImplemented
    if not level.has(weight):
        return level.wrap(run(op, weight, level.front(indices), padding, scaled))
    # The tables of all examples are one, in which those of an example begin at its number times their rows.
    table, rows = level.front(weight), level.full(indices)
    first = wrap((np.arange(level.size) * table.shape[1]).reshape(-1, *(1,) * indices.ndim))
    return level.wrap(run(op, table.reshape(-1, table.shape[2]), rows + first, padding, scaled))


_KINDS = {"elementwise": elementwise, "reduction": reduction}

from . import batch_layers  # noqa: E402, F401  # registers its rules with the helpers above
