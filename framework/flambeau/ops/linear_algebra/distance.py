"""Distances and similarities of vectors, and the bilinear form."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.cpu.products import matmul
from flambeau_kernels.cpu.reductions import moments

from ... import dtypes
from ...tensor import Tensor, wrap_dim
from .. import _dispatch, _promote
from .._batching import leading_of_two, run, shifted
from .._spec import (
    FUNCTION,
    OPS,
    ROWS,
    broadcast_shapes,
    check_room,
    composite,
    describe,
    need_number,
    primitive,
)
from .._spec.plans import MOST_BY_NUMPY, Plan
from ..shapes.expand import broadcast_shapes as common_shape

F = "nn.functional"


# -- norms along one dimension -------------------------------------------------------------------------------------------


@primitive(surface=0, memory=ROWS, samples="of nn.functional.pairwise_distance", cuda="sums.length")
def length_along(input, p, dim, shared):
    """The norm of order `p` along `dim`, kept as size 1.

    The derivative is 0 where the norm is. For the largest element (``p = inf``) tied elements share it if `shared`,
    else each has all of it.
    """


length_along.in_pieces(along="dim")


@length_along.kernel
def _length(a, p, dim, shared):
    return moments.norm(a, p, (dim,), True)


@length_along.shape
def _length_shape(input, p, dim, shared):
    shape = list(input.shape)
    if shape:
        shape[dim] = 1
    return shape, input.dtype.to_real()


@length_along.vjp
def _length_vjp(grad, out, input, p, dim, shared):
    size = input.abs()
    safe = out.where(out != 0, 1)
    if p == 2:
        return (input * (grad / safe).where(out != 0, 0),)
    if p == 0:
        return (input.new_zeros(input.shape),)
    if p == 1:
        return (input.sgn() * grad,)
    if np.isinf(p):
        tied = size == out
        if shared:
            grad = grad / tied.sum(dim, keepdim=True)
        return (input.sgn() * (tied * grad),)
    # |x| ** (p - 1) is infinite at 0 below p = 1; nothing there is the convention.
    powered = size.where(size != 0, 1) ** (p - 1)
    slope = powered / safe ** (p - 1)
    return (input.sgn() * slope * grad.where(out != 0, 0),)


@length_along.batch
def _length_along_batch(level: Any, op: Any, args: Any) -> Any:
    x, p, dim, *rest = args
    return level.wrap(run(op, level.front(x), p, shifted(x, dim), *rest)) if x.ndim else NotImplemented


@composite(
    namespace=F, aliases=("pairwise_distance",), numpy_names=True, operator="pairwise_distance",
    reads_parts=True, samples="x(3, 4), x(3, 4); x(3, 4), x(4), 1.0, keepdim=True",
)
def pairwise_distance(x1: Tensor, x2: Tensor, p=2.0, eps=1e-6, keepdim=False):
    """The norm of order `p` of ``x1 - x2 + eps`` along the last dimension: ``(*, D), (*, D) -> (*)``.

    Args:
        x1, x2: shapes that broadcast together.
        eps: keeps the gradient finite where both are equal.
        keepdim: keep the last dimension, as size 1.
    """
    difference = x1 - x2 + eps
    if not difference.ndim:
        return difference.abs()
    if p.__class__ is not float:
        p = float(need_number("pairwise_distance", "p", p))
    made = length_along.function(difference, p, difference.ndim - 1, True)
    return made if keepdim else made.squeeze(-1)


_total: Any = np.add.reduce  # because numpy's stubs know no positional `keepdims`


def distances(a: Any, b: Any, p: float, eps: float, keepdim: bool = False) -> Any:
    """`pairwise_distance` of order 1 or 2 of arrays of at least one dimension."""
    difference = a - b
    difference += eps
    if p == 2:
        np.multiply(difference, difference, difference)
        made = _total(difference, -1, None, None, True)
        np.sqrt(made, made)
    else:
        made = _total(np.abs(difference, difference), -1, None, None, True)
    return made if keepdim else made[..., 0]


@pairwise_distance.plan(tensors=("x1", "x2"), most_by_numpy=MOST_BY_NUMPY)
def _planned_distances(a, b, p, eps, keepdim):
    return distances(a, b, p, eps, keepdim) if p in (1, 2) and a.shape == b.shape and a.ndim > 1 else None


def cosines(a: Any, b: Any, dim: int, eps: float) -> Any:
    """`cosine_similarity` of arrays of one shape and at least two dimensions."""
    return _total(directed(a, 2, dim, eps) * directed(b, 2, dim, eps), dim)


def directed(a: Any, p: float, dim: int, eps: float) -> Any:
    """An array over its norms of order 1 or 2 along `dim`, or over `eps` where that is larger."""
    length = _total(a * a if p == 2 else np.abs(a), dim, None, None, True)
    if p == 2:
        np.sqrt(length, length)
    np.maximum(length, eps, out=length)
    return a / length


@composite(
    namespace=F, aliases=("cosine_similarity",), numpy_names=True, operator="cosine_similarity",
    reads_parts=True, samples="x(3, 4), x(3, 4); x(3, 4), x(4), dim=0",
)
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along `dim`, in [-1, 1]; norms count as at least `eps`.

    Args:
        x1, x2: shapes that broadcast together; the result lacks `dim`.

    >>> F.cosine_similarity(fb.tensor([1.0, 0.0]), fb.tensor([1.0, 1.0]), dim=0)
    tensor(0.7071)
    """
    if not x1.dtype.is_floating_point or not x2.dtype.is_floating_point:
        common = _promote.result_type((x1, x2))
        if not common.is_floating_point:
            raise RuntimeError(f"cosine_similarity: expected common dtype to be floating point, yet common dtype is {common}")
    dtype = dtypes.promote_types(x1.dtype, x2.dtype)
    x1, x2 = x1.to(dtype), x2.to(dtype)
    shape = broadcast_shapes(cosine_similarity, (x1, x2))
    x1, x2 = x1.expand(shape), x2.expand(shape)
    at = wrap_dim(dim, len(shape))
    return (_directed(x1, at, eps) * _directed(x2, at, eps)).sum(at if shape else None)


@cosine_similarity.plan(tensors=("x1", "x2"), most_by_numpy=4096)      # up to which sums are added up in numpy's order
def _planned_cosines(a, b, dim, eps):
    return cosines(a, b, dim, eps) if a.shape == b.shape and a.ndim > 1 and -a.ndim <= dim < a.ndim else None


def _directed(x: Tensor, dim: int, eps: float) -> Tensor:
    """`x` over its norm along `dim`, or over `eps` where that is larger."""
    from ..losses.loss import raise_to

    if not x.ndim:
        return x / raise_to.function(x.abs(), eps)
    return x / raise_to.function(length_along.function(x, 2, dim, True), eps)


# -- all pairs -----------------------------------------------------------------------------------------------------------


def _order(name: str, p: float) -> float:
    if not p >= 0:
        raise RuntimeError(f"{name} only supports non-negative p values, got p={p}")
    return float(p)


@composite(surface=FUNCTION, autocast=("float32", None), samples="x(3, 4), x(2, 4); x(2, 3, 4), x(2, 2, 4), 1.0; x(3, 4), x(2, 4), 3.0")
def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The distance of order `p` between every row of `x1` and every row of `x2`: ``(*, P, M), (*, R, M) -> (*, P, R)``.

    Args:
        compute_mode: whether ``p = 2`` may go by way of a matrix product, which is faster and less exact:
            'use_mm_for_euclid_dist_if_necessary' (where P or R exceeds 25), 'use_mm_for_euclid_dist',
            'donot_use_mm_for_euclid_dist'.
    """
    for name, x in (("x1", x1), ("x2", x2)):
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D\n{describe(x1=x1, x2=x2)}")
        if not x.dtype.is_floating_point:
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype}")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"cdist: X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if x1.dtype is not x2.dtype:
        dtype = dtypes.promote_types(x1.dtype, x2.dtype)
        x1, x2 = x1.to(dtype), x2.to(dtype)
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ValueError(f"cdist: {compute_mode} is not a valid value for compute_mode; use one of {modes}")
    p = _order("cdist", p)
    # Products of rows that the result has no memory for take minutes before its memory is asked for.
    check_room("cdist", (*x1.shape[:-1], x2.shape[-2]), x1._array.itemsize, x1.is_meta)
    if p == 2 and _goes_by_product(x1.shape, x2.shape, compute_mode):
        return distances_by_product(x1, x2)
    if p in DIRECT and x1.dtype in (dtypes.float32, dtypes.float64):
        lead = common_shape(x1.shape[:-2], x2.shape[:-2])
        x1, x2 = (x if tuple(x.shape[:-2]) == tuple(lead) else x.expand(*lead, *x.shape[-2:]) for x in (x1, x2))
        return lengths_between.function(x1, x2, p, None)
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return length_along.function(difference, p, difference.ndim - 1, False).squeeze(-1)


DIRECT = (1.0, 2.0, math.inf)                         # orders for which there are kernels
_MOST_DIRECT = 64  # elements of a row, above which many Euclidean distances are left to a matrix product


def _goes_by_product(first: Any, second: Any, compute_mode: str) -> bool:
    """Whether Euclidean distances of rows of arrays of these shapes are found by a matrix product."""
    if compute_mode == "use_mm_for_euclid_dist":
        return True
    return compute_mode != "donot_use_mm_for_euclid_dist" and _are_many(first, second) and first[-1] > _MOST_DIRECT


def _are_many(first: Any, second: Any) -> bool:
    return max(first[-2], second[-2]) > 25            # as PyTorch


@cdist.plan(by="shape", tensors=("x1", "x2"))
def _planned_cdist(x1, x2, p, compute_mode):
    """Rows of one real dtype, at distances of an order that there is a kernel for."""
    a, b = x1._array, x2._array
    if a.dtype is not b.dtype or compute_mode == "use_mm_for_euclid_dist" or p not in DIRECT or a.ndim < 2:
        return None
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-1] or p == 2 and _goes_by_product(a.shape, b.shape, compute_mode):
        return None
    run, p = _between(a.shape, b.shape, a.dtype, float(p)), float(p)
    return run and Plan(run, lengths_between, lambda _, x1, x2: (x1, x2, p, None))


@engines.kept(256)
def _between(first: tuple[int, ...], second: tuple[int, ...], dtype: np.dtype, p: float) -> Any:
    """``run(a, b)`` for contiguous arrays of these shapes: the distances of their rows. None where there is no kernel."""
    if dtype.char not in "fd" or not math.prod(first) or not math.prod(second):
        return None
    if not _are_many(first, second) and math.prod(first) < 1024 and p in (1, 2):
        from flambeau_kernels.cpu.linear_algebra import distance_rows

        return distance_rows.planned(first, second, dtype, p == 2)
    from flambeau_kernels.cpu.linear_algebra import distances

    return distances.planned(first, second, dtype, p)


@primitive(
    surface=0, tensors=("x1", "x2"), memory=ROWS, operator="_cdist_forward(x1, x2, p, compute_mode)", cuda="sums.lengths_between",
    samples="of cdist", batch_rule=leading_of_two, costly=True,
)
def lengths_between(x1, x2, p, compute_mode):
    """The norms of order `p` of the differences of all rows of `x1` and all of `x2`, ``(*, P, M), (*, R, M) -> (*, P, R)``.

    `compute_mode` is that of PyTorch's operator, and None: distances are found from differences.
    """


lengths_between.shown_as("CdistBackward0")


lengths_between.in_pieces("...i_,...j_->...ij")


@lengths_between.kernel
def _lengths_between(a, b, p, compute_mode):
    run = _between(a.shape, b.shape, a.dtype, float(p))
    if run is not None:
        return run(np.ascontiguousarray(a), np.ascontiguousarray(b))
    if not a.shape[-1]:
        return np.zeros((*a.shape[:-1], b.shape[-2]), a.dtype)
    return moments.norm(a[..., :, None, :] - b[..., None, :, :], p, (a.ndim,), False)


@lengths_between.shape
def _lengths_between_shape(x1, x2, p, compute_mode):
    return (*x1.shape[:-1], x2.shape[-2]), x1.dtype


@lengths_between.vjp
def _lengths_between_vjp(grad, out, x1, x2, p, compute_mode):
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    slope = _length_vjp(grad.unsqueeze(-1), out.unsqueeze(-1), difference, p, difference.ndim - 1, False)[0]
    return lambda: slope.sum(-2), lambda: -slope.sum(-3)


@lengths_between.vjp_on_arrays
def _lengths_between_vjp_on_arrays(grad, out, x1, x2, p, needs_x1, needs_x2):
    from flambeau_kernels.cpu.linear_algebra import distances

    if not distances.has_gradients(x1.shape, x2.shape, x1.dtype, p):
        return None
    return distances.gradients(grad, out, x1, x2, p, (needs_x1, needs_x2))


def distances_by_product(x1: Tensor, x2: Tensor) -> Tensor:
    """Distances from ``|a|^2 + |b|^2 - 2 a.b``, centred first so that less is lost to cancellation."""
    if 0 in x1.shape or 0 in x2.shape:
        return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).square().sum(-1)
    centre = x1.detach().mean(-2, keepdim=True)
    while centre.ndim < x2.ndim:
        centre = centre.unsqueeze(0)
    if tuple(centre.shape[:-2]) != tuple(x2.shape[:-2]):
        centre = centre * 0
    x1, x2 = x1 - centre, x2 - centre
    squared = x1.square().sum(-1, keepdim=True) + x2.square().sum(-1).unsqueeze(-2) - 2 * (x1 @ x2.transpose(-2, -1))
    positive = squared > 0
    return squared.where(positive, 1).sqrt().where(positive, 0)


@composite(namespace=F, aliases=("pdist",), numpy_names=True, samples="x(4, 3); x(4, 3), 1.0")
def pdist(input, p=2):
    """The distances of order `p` between all pairs of rows, ``(N, M) -> (N (N - 1) / 2)``.

    Pairs come in the order (0, 1), (0, 2), ..., (1, 2), ....

    >>> F.pdist(fb.tensor([[0.0], [1.0], [3.0]]))
    tensor([1., 3., 2.])
    """
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"pdist only supports floating-point dtypes, got {input.dtype}")
    return pair_lengths(input, _order("pdist", p))


@primitive(surface=0, samples="of nn.functional.pdist", operator="_pdist_forward", cuda="sums.pair_lengths")
def pair_lengths(input, p):
    """The norms of order `p` of the differences of all pairs of rows, ``(*, N, M) -> (*, N (N - 1) / 2)``."""


pair_lengths.shown_as("PdistBackward0")


pair_lengths.in_pieces("...__->..._")


@functools.lru_cache(64)
def _pairs(n: int) -> Any:
    """The first and second rows of all pairs of `n`."""
    return np.triu_indices(n, 1)


@pair_lengths.kernel
def _pair_lengths(a, p):
    from flambeau_kernels.cpu.linear_algebra import distances

    run = distances.planned_pairs(a.shape, a.dtype, p)
    if run is not None:
        return run(np.ascontiguousarray(a))
    first, second = _pairs(a.shape[-2])
    return moments.norm(a.take(first, -2) - a.take(second, -2), p, (a.ndim - 1,), False)


@pair_lengths.shape
def _pair_lengths_shape(input, p):
    n = input.shape[-2]
    return (*input.shape[:-2], n * (n - 1) // 2), input.dtype


def _rows_of_pairs(input: Tensor) -> tuple[Tensor, Tensor]:
    """`_pairs` of the rows of `input`, whose number may be a symbol where a graph is recorded."""
    n = input.shape[-2]
    if not _dispatch.is_seen(input):
        first, second = OPS["triu_indices"].function(n, n, 1, device=input.device)
        return first, second
    at = input.detach().new_ones((n * (n - 1) // 2,), dtype=dtypes.int64).cumsum(0) - 1
    # The pairs from row i on begin at i (2 n - 1 - i) / 2, where the root is a whole number, and exact.
    first = ((2 * n - 1 - ((2 * n - 1) ** 2 - 8 * at).double().sqrt()) / 2).floor().long()
    return first, at - first * (2 * n - 1 - first) // 2 + first + 1


@pair_lengths.vjp
def _pair_lengths_vjp(grad, out, input, p):
    first, second = _rows_of_pairs(input)
    difference = input.index_select(-2, first) - input.index_select(-2, second)
    slope = _length_vjp(grad.unsqueeze(-1), out.unsqueeze(-1), difference, p, difference.ndim - 1, False)[0]
    return (slope.new_zeros(input.shape).index_add(-2, first, slope).index_add(-2, second, slope, alpha=-1),)


@pair_lengths.vjp_on_arrays
def _pair_lengths_vjp_on_arrays(grad, out, input, p):
    from flambeau_kernels.cpu.linear_algebra import distances

    if not distances.has_gradients(input.shape, input.shape, input.dtype, p):
        return None
    return (distances.gradients_of_pairs(grad, out, input, p),)


@pair_lengths.batch
def _pair_lengths_batch(level: Any, op: Any, args: Any) -> Any:
    x, p = args
    return level.wrap(run(op, level.front(x), p))


@pdist.plan(by="shape", dtypes="fd")
def _planned_pairs(input, p):
    """Rows of a real dtype, at distances of an order that there is a kernel for."""
    if input.ndim != 2 or p not in DIRECT:
        return None
    from flambeau_kernels.cpu.linear_algebra import distances

    p = float(p)
    run = distances.planned_pairs(tuple(input.shape), input._array.dtype, p)
    return run and Plan(run, pair_lengths, lambda _, x: (x, p))


# -- bilinear ------------------------------------------------------------------------------------------------------------


@composite(
    namespace=F, aliases=("bilinear",), autocast="own",
    samples="x(3, 2), x(3, 4), x(5, 2, 4), x(5); x(3, 2), x(3, 4), x(5, 2, 4)",
)
def bilinear(input1, input2, weight, bias=None):
    """``input1 @ weight[o] @ input2 + bias[o]`` for each output o: ``(*, I), (*, J), (O, I, J), (O) -> (*, O)``."""
    if weight.ndim != 3 or input1.ndim != input2.ndim or tuple(input1.shape[:-1]) != tuple(input2.shape[:-1]):
        raise RuntimeError(
            f"bilinear(): input batch dimensions must be the same, and weight three-dimensional\n"
            f"{describe(input1=input1, input2=input2, weight=weight, bias=bias)}"
        )
    outputs, left, right = weight.shape
    if input1.shape[-1] != left or input2.shape[-1] != right or bias is not None and tuple(bias.shape) not in ((outputs,), (1,)):
        raise RuntimeError(
            f"bilinear(): sizes of inputs, weight and bias do not match\n"
            f"{describe(input1=input1, input2=input2, weight=weight, bias=bias)}"
        )
    count = math.prod(input1.shape[:-1])
    rows1, rows2 = input1.reshape(count, left), input2.reshape(count, right)
    forms = (rows1 @ weight.permute(1, 0, 2).reshape(left, outputs * right)).reshape(count, outputs, right)  # (B, O, J)
    made = (forms @ rows2.unsqueeze(-1)).squeeze(-1)
    if bias is not None:
        made = made + bias
    return made.reshape(*input1.shape[:-1], outputs)


@bilinear.plan(tensors=("input1", "input2", "weight", "bias"), dtypes="fd")
def _planned_forms(a, b, w, c):
    """A few rows of one real dtype."""
    if a.ndim != 2 or b.ndim != 2 or w.ndim != 3:
        return None
    (count, left), (same, right), (outputs, i, j) = a.shape, b.shape, w.shape
    if same != count or i != left or j != right or not 0 < count * w.size < 4096 or c is not None and c.shape != (outputs,):
        return None
    forms = matmul.product_by_numpy(a, w.transpose(1, 0, 2).reshape(left, outputs * right)).reshape(count, outputs, right)
    made = matmul.batch_by_numpy(forms, b[:, :, None])[..., 0]
    return made if c is None else np.add(made, c, made)


