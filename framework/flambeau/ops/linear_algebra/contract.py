"""Sums of products over chosen dimensions: einsum, tensordot, inner and cross products, covariances, norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau_kernels.cpu.products.matmul import product_by_numpy
from flambeau_kernels.cpu.reductions.softmax import widen

from ... import dtypes
from ..._warn import warn_once
from ...tensor import Tensor, wrap_dim
from .. import _dispatch
from .._batching import along
from .._spec import (
    EXACTLY,
    FOREACH,
    FUNCTION,
    INPLACE,
    METHOD,
    NEVER,
    OPS,
    OUT,
    broadcast_shapes,
    composite,
    describe,
    primitive,
    sum_tensor_to,
    wrap_dims,
)
from ._einsum import evaluate
from ._products import large
from .products import dot, mm

# -- einsum ------------------------------------------------------------------------------------------------------------------


@composite(
    surface=FUNCTION, variadic="operands", autocast=(None, "lower"),
    samples="'ij,jk->ik', x(2, 3), x(3, 4); 'bij,bjk->b', x(2, 3, 2), x(2, 2, 4); 'ii->i', x(3, 3)", costly=True,
    handed_on=lambda equation, operands: (equation, *operands),  # PyTorch's function calls itself with the operands of a list
)
def einsum(equation: str, operands):
    """The sum of products that `equation` writes in Einstein's notation, such as ``'bij,bjk->bik'``.

    Labels repeated within an operand take its diagonal, labels missing from the right side are summed over, '...' stands for broadcast
    dimensions. Without ``->`` the result has the labels that occur once, in alphabetical order. The form
    ``einsum(x, [0, 1], y, [1, 2], [0, 2])`` numbers the labels instead.
    Raises: RuntimeError for an equation that does not go with the operands.

    >>> a = fb.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> fb.einsum("ii", a), fb.einsum("ij->j", a)
    (tensor(5.), tensor([4., 6.]))
    """
    return evaluate(equation, operands)


@einsum.exported
def _einsum_of_text(run, equation, operands):
    return run("einsum", equation, list(operands)) if isinstance(equation, str) else NotImplemented


# -- products over dimensions --------------------------------------------------------------------------------------------------


def _contracted_dims(a: Tensor, b: Tensor, dims: Any) -> tuple[list[int], list[int]]:
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    if not isinstance(dims, (list, tuple)) or len(dims) != 2:
        raise RuntimeError(f"tensordot expects dims to be int or a pair of lists of ints, but got dims={dims}")
    left, right = dims
    left = [left] if isinstance(left, int) else list(left)
    right = [right] if isinstance(right, int) else list(right)
    if len(left) != len(right):
        raise RuntimeError(f"tensordot: both dimension lists should have same length, got {left} and {right}")
    return list(wrap_dims("tensordot", left, a.ndim)) if left else [], list(wrap_dims("tensordot", right, b.ndim)) if right else []


@composite(
    surface=FUNCTION | OUT,
    samples="x(2, 3, 4), x(3, 4, 5); x(2, 3), x(3, 4), 1; x(2, 3, 4), x(4, 2), ((0, 2), (1, 0))",
    exact_out=True,
)
def tensordot(a, b, dims=2):
    """The sum of products of `a` and `b` over pairs of dimensions.

    Args:
        dims: how many, the last of `a` against the first of `b`; or two lists that pair dimensions of `a`
            with those of `b`.
    Returns: the dimensions of `a` that are left, then those of `b`.

    >>> fb.tensordot(fb.ones(2, 3, 4), fb.ones(4, 3, 5), dims=([1, 2], [1, 0])).shape
    torch.Size([2, 5])
    """
    if a._array.dtype is not b._array.dtype and a.dtype is not b.dtype:
        raise RuntimeError(f"tensordot: both inputs should have same dtype, got {a.dtype} and {b.dtype}")
    left, right = _contracted_dims(a, b, dims)
    for i, j in zip(left, right, strict=True):
        n, m = a._array.shape[i], b._array.shape[j]
        if n != m and 1 not in (n, m):
            raise RuntimeError(
                f"tensordot: contracted dimensions need to match, but first has size {n} in dim {i} and second has size {m} in dim {j}"
            )
        if n == 1 and m != 1:
            b = b.sum(j, keepdim=True, dtype=b.dtype)
        elif m == 1 and n != 1:
            a = a.sum(i, keepdim=True, dtype=a.dtype)
    free_a = [d for d in range(a.ndim) if d not in left]
    free_b = [d for d in range(b.ndim) if d not in right]
    one, two = a._array.shape, b._array.shape
    shape = (*[one[d] for d in free_a], *[two[d] for d in free_b])
    rows, inner, columns = (math.prod([n[d] for d in dims]) for n, dims in ((one, free_a), (one, left), (two, free_b)))
    if rows == columns == 1 and a.dtype.category >= dtypes.FLOATING:
        made = dot(_laid_out(a, [*free_a, *left], (inner,)), _laid_out(b, [*right, *free_b], (inner,)))
    else:
        made = mm(_laid_out(a, [*free_a, *left], (rows, inner)), _laid_out(b, [*right, *free_b], (inner, columns)))
    return made if made._array.shape == shape else made.reshape(shape)


def _laid_out(x: Tensor, order: list[int], shape: tuple[int, ...]) -> Tensor:
    """`x` with its dimensions in this order, in another shape."""
    if order != list(range(len(order))):
        x = x.permute(order)
    return x if x._array.shape == shape else x.reshape(shape)


def _inner_of_vectors(input, other):
    return dot.answer(input, other) if input._array.ndim == 1 == other._array.ndim else None


@composite(surface=FUNCTION | METHOD | OUT, samples="x(2, 3), x(4, 3); x(3), x(3)", exact_out=True)
def inner(input, other: Tensor):
    """The sums of products over the last dimensions of both; with a 0-d operand, the product."""
    if input.dtype is not other.dtype and input.ndim and other.ndim:
        raise RuntimeError(f"inner: both inputs should have same dtype, got {input.dtype} and {other.dtype}")
    if not input.ndim or not other.ndim:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and {list(other.shape)}"
        )
    if input._array.ndim == other._array.ndim == 1:
        return dot(input, other)
    return tensordot(input, other, [[-1], [-1]])


inner.forwards(_inner_of_vectors)


@inner.plan(tensors=("input", "other"))
def _inner_of_matrices(a, b):
    if a.ndim != 2 or b.ndim != 2:
        return None
    made = product_by_numpy(a, b.T)
    return large(a, b.T) if made is None else made


def _check_cross(input, other, dim):
    if input.ndim != other.ndim:
        raise RuntimeError(f"linalg.cross: inputs must have the same number of dimensions.\n{describe(input=input, other=other)}")
    if input.dtype is not other.dtype:
        raise RuntimeError(f"cross: expected both inputs to have the same dtype, got {input.dtype} and {other.dtype}")
    if input.dtype is dtypes.bool:
        raise NotImplementedError('"cross" not implemented for bool; convert the operands with .to(dtype) first')
    broadcast_shapes(cross_along, (input, other))
    d = wrap_dim(dim, input.ndim)
    if not input.ndim or input.shape[d] != 3 or other.shape[d] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[d] if input.ndim else 1} and "
            f"{other.shape[d] if other.ndim else 1}\n{describe(input=input, other=other)}"
        )
    return input, other, d - max(input.ndim, 1)


@primitive(
    surface=0, tensors=("input", "other"), check=_check_cross, operator="linalg_cross(input, other, dim)",
    samples="x(2, 3), x(2, 3), 1",
    public_name="linalg.cross",
    batch_rule=along,
)
def cross_along(input, other, dim):
    """The vector products of vectors along `dim`, counted from the end."""


cross_along.shown_as("LinalgCrossBackward0")


cross_along.in_pieces(along="dim")


@cross_along.kernel
def _cross(a, b, dim):
    x, y = widen(a), widen(b)
    made = x.take(_NEXT, dim) * y.take(_LAST, dim) - x.take(_LAST, dim) * y.take(_NEXT, dim)
    return made.astype(a.dtype, copy=False)


_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])  # the other two of three coordinates


@cross_along.plan
def _cross_planned(a, b, dim):
    if dim.__class__ is not int or not -a.ndim <= dim < 0 or a.ndim != b.ndim or not a.shape[dim] == 3 == b.shape[dim]:
        return None
    if b.dtype is not a.dtype:
        return None
    if a.dtype.char not in "fdil":
        return None
    return a.take(_NEXT, dim) * b.take(_LAST, dim) - a.take(_LAST, dim) * b.take(_NEXT, dim)


@cross_along.shape
def _cross_shape(input, other, dim):
    return broadcast_shapes(cross_along, (input, other)), input.dtype


@cross_along.vjp(input="other", other="input")
def _cross_vjp(grad, input, other, dim):
    return (
        lambda: sum_tensor_to(cross_along.function(other.conj(), grad, dim), tuple(input.shape)),
        lambda: sum_tensor_to(cross_along.function(grad, input.conj(), dim), tuple(other.shape)),
    )


@composite(
    surface=FUNCTION | METHOD | OUT, overlap=NEVER, operator="linalg_cross(input, other, dim)",
    samples="x(2, 3), x(2, 3), dim=1; x(3, 2), x(3, 2), 0",
    exact_out=True,
)
def cross(input, other, dim: int | None = None):
    """The vector products of the 3-vectors along `dim`, by default the first dimension of size 3.

    `input` and `other` broadcast. Raises: RuntimeError where no dimension has size 3.
    """
    if dim is None:
        warn_once(
            "Using torch.cross without specifying the dim arg is deprecated.\n"
            "Please either pass the dim explicitly or simply use torch.linalg.cross.\n"
            "The default value of dim will change to agree with that of linalg.cross in a future release."
        )
        shape = broadcast_shapes(cross, (input, other))
        if 3 not in input.shape:
            raise RuntimeError(f"cross: no dimension of size 3 in input of shape {tuple(input.shape)}; broadcast shape {shape}")
        dim = list(input.shape).index(3)
    return cross_along.function(input, other, dim)


@cross.forwards
def _cross_from_the_end(input, other, dim):
    if dim.__class__ is not int:                      # without one it is deprecated, and slower
        return None
    return cross_along.answer(input, other, dim - input._array.ndim if dim >= 0 else dim)


# -- covariance ----------------------------------------------------------------------------------------------------------------


def _check_weights(x: Tensor, weights: Any, label: str, integral: bool) -> None:
    if weights is None:
        return
    if not isinstance(weights, Tensor):
        raise TypeError(f"cov(): argument '{label}' must be Tensor, not {type(weights).__name__}")
    if weights.ndim > 1:
        raise RuntimeError(f"cov(): expected {label} to have one or fewer dimensions but got {label} with {weights.ndim} dimensions")
    if (weights.dtype.category == dtypes.INTEGER) is not integral or not integral and not weights.is_floating_point():
        kind = "integral" if integral else "floating point"
        raise RuntimeError(f"cov(): expected {label} to have {kind} dtype but got {label} with {dtypes.scalar_type(weights.dtype)} dtype")
    if weights.numel() != x.shape[1]:
        raise RuntimeError(
            f"cov(): expected {label} to have the same numel as there are observations in the input but got "
            f"{weights.numel()} != {x.shape[1]}"
        )
    if _dispatch.may_be_checked(weights) and bool((weights < 0).any()):
        raise RuntimeError(f"cov(): {label} cannot be negative")


@composite(
    surface=FUNCTION | METHOD,
    samples="x(3, 5); x(5), correction=0; x(3, 5), fweights=i(3, 5) + 1, aweights=k(5)",
)
def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance matrix of variables, one a row, over observations, one a column: ``(n, observations) -> (n, n)``.

    Args:
        correction: what is taken off the number of observations in the denominator.
        fweights: how often each observation counts, integers.
        aweights: how much each observation weighs, floating.

    >>> fb.cov(fb.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if input.ndim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions")
    if input.dtype is dtypes.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input.unsqueeze(0) if input.ndim == 1 else input.reshape(1, 1) if not input.ndim else input
    _check_weights(x, fweights, "fweights", True)
    _check_weights(x, aweights, "aweights", False)
    w = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    w = None if w is None else w.reshape(-1)
    total: Any = x.shape[1] if w is None else w.sum()
    if w is not None and _dispatch.may_be_checked(w) and w.numel() and float(total) == 0:
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    mean = (x if w is None else x * w).sum(1, keepdim=True) / total
    if w is None or not correction or aweights is None:
        free = total - correction
    else:
        free = total - correction * (w * aweights.reshape(-1)).sum() / total
    if isinstance(free, Tensor) and not _dispatch.may_be_checked(free):
        free = free.clamp(min=0)                      # of other values it may be what is warned of below
    elif (free.detach().item() if isinstance(free, Tensor) else free) <= 0:
        import warnings

        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be less than the number of observations.", stacklevel=3)
        free = free.clamp(min=0) if isinstance(free, Tensor) else 0
    off = x - mean
    weighted = off if w is None else off * w
    return (mm(off, weighted.to(off.dtype).transpose(0, 1).conj()) / free).squeeze()


@composite(surface=FUNCTION | METHOD, samples="x(3, 5)")
def corrcoef(input):
    """The correlation coefficients of variables, one a row, over observations, one a column.

    ``(n, observations) -> (n, n)``, ones on the diagonal.
    """
    if input.ndim > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions")
    c = cov(input)
    if not c.ndim:
        return c / c
    variance = c.diagonal()
    deviation = (variance.real if variance.is_complex() else variance).sqrt()
    c = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if c.is_complex():
        return OPS["complex"].function(c.real.clamp(-1, 1), c.imag.clamp(-1, 1))
    return c.clamp(-1, 1)


# -- norms -----------------------------------------------------------------------------------------------------------------------


def _vector_norm(x: Tensor, p: Any, dim: Any, keepdim: bool, dtype: Any = None) -> Tensor:
    return OPS["linalg.vector_norm"].function(x, p, dim, keepdim, dtype=dtype)


@composite(
    surface=FUNCTION | METHOD | OUT | FOREACH, numpy_names=False, operator="",
    samples="x(2, 3); x(2, 3), 1, 0; x(2, 3), 3.0, (0, 1), True",
    exact_out=True,
    elements="reduced",
)
def norm(input, p="fro", dim: int | Sequence[int] | None = None, keepdim=False, *, dtype=None):
    """The `p`-norm over `dim` (or of all elements), or the Frobenius ('fro') or nuclear ('nuc') norm of matrices.

    `linalg.vector_norm` and `linalg.matrix_norm` say which of the two they are.
    Raises: RuntimeError for integers, which have to be converted first.
    """
    if not input.dtype.category >= dtypes.FLOATING:
        raise RuntimeError(f"norm: Expected a floating point or complex tensor as input. Got {input.dtype}")
    dims = [dim] if isinstance(dim, int) else dim
    if p == "fro" and (dims is None or len(dims) <= 2):
        return _vector_norm(input, 2, dims, keepdim, dtype)
    if isinstance(p, str):
        if p not in ("fro", "nuc"):
            raise RuntimeError(f"norm: Order {p!r} not supported; there are 'fro', 'nuc' and numbers")
        dims = list(range(input.ndim)) if dims is None else dims
        if len(dims) != 2:
            raise RuntimeError(f"norm: dim must be a 2-tuple for p={p!r}. Got {dims}")
        return OPS["linalg.matrix_norm"].function(input, p, tuple(dims), keepdim, dtype=dtype)
    return _vector_norm(input, 2 if p is None else p, dims, keepdim, dtype)


norm.on_lists(lambda tensor, ord=2, dtype=None: _vector_norm(tensor, ord, None, False, dtype))


@composite(surface=0, samples="x(2, 3); x(3), 3.0")
def powsum(input, ord=2, dtype=None):
    """The sum of the powers `ord` of absolute values, of which the norm is the root; for lists alone, as `_foreach_powsum`."""
    return (input if dtype is None else input.to(dtype)).abs().pow(ord).sum()


powsum.on_lists(powsum.function)


@norm.forwards
def _norm_over(input, p, dim, keepdim, dtype):
    if dtype is not None or p.__class__ is str and (p != "fro" or not (dim is None or dim.__class__ is int)):
        return None
    return OPS["norm_over"].answer(input, 2.0 if p is None or p.__class__ is str else p, dim, keepdim)


@composite(surface=FUNCTION | METHOD, reads_parts=True, samples="x(2, 3), x(2, 3); x(2, 3), x(3), 1.0")
def dist(input, other, p=2):
    """The `p`-norm of ``input - other``, which broadcast: a scalar."""
    return _vector_norm(input - other, p, None, False)


dist.result_shown_as("DistBackward0")


@composite(
    surface=FUNCTION | METHOD | INPLACE | OUT, overlap=EXACTLY, reads_parts=True,
    samples="x(3, 4), 2, 0, 1.0; x(3, 4), 1, 1, 2.5", exact_out=True,
)
def renorm(input, p, dim: int, maxnorm):
    """`input` with each slice along `dim` scaled down to a `p`-norm of `maxnorm` where its norm is more.

    >>> fb.renorm(fb.tensor([[3.0, 4.0], [0.1, 0.1]]), p=2, dim=0, maxnorm=1)
    tensor([[0.6000, 0.8000],
            [0.1000, 0.1000]])
    """
    if isinstance(p, complex) or not p > 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported, got p={p}")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    if isinstance(maxnorm, complex) or not maxnorm >= 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    d = wrap_dim(dim, input.ndim)
    lengths = _vector_norm(input, p, [k for k in range(input.ndim) if k != d], True)
    # The small number keeps the quotient finite for slices of zeros.
    factor = OPS["where"].function(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)
    return input.contiguous() * factor.to(input.dtype)


renorm.result_shown_as("RenormBackward0")
