"""Products of matrices and vectors added to a tensor: `addmm` and its like."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import Formula, hot_calls, launch
from flambeau_kernels.arithmetic import PLUS
from flambeau_kernels.cpu.products import matmul as kernel

from ... import dtypes
from ..._arrays import ndarray
from ...dtypes import FLOAT32
from ...tensor import Tensor
from .._spec import EXACTLY, FUNCTION, METHOD, OPS, OUT, composite, primitive
from .._spec.names import adds_product
from ._products import product
from .products import _check_bmm, _check_mm, _outer_of_vectors, adjoint, bmm, mm, mv, outer


def _scaled(name: str, input: Tensor, made: Tensor, beta: Any, alpha: Any, alike: str = "product") -> Tensor:
    """``beta * input + alpha * made``, in memory `alike` one of them: 'product' or 'input'. A zero `beta` ignores `input`, nan and all."""
    kind = np.dtype(made.dtype.numpy).kind            # looks alone, which are known of results that are not computed yet
    if kind == "b":
        return (input.expand(made.shape) & bool(beta)) | (made & bool(alpha))
    if kind in "iu":
        beta, alpha = int(beta), int(alpha)
    if input.dtype is not made.dtype:
        raise RuntimeError(f"{name}: expected input and the products to have the same dtype, but got: {input.dtype} != {made.dtype}")
    if alpha != 1:
        made = made * alpha
    shape = made.shape
    if beta == 0:
        return OPS["piecewise_constant"].function(made, input) if input.requires_grad else made
    own = input.shape
    if own != shape[max(len(shape) - len(own), 0) :]:  # sums stretch the others themselves
        input = input.expand(shape)
    term = input if beta == 1 else input * beta
    return made + term if alike == "product" else term + made          # results lie as the first operand does


_SCALED_SUM = Formula(lambda made, c, alpha, beta: made * alpha + c * beta, "scaled_sum")


def _check_product_added(input, mat1, mat2, beta, alpha):
    (_check_mm if mat1.ndim < 3 else _check_bmm)(mat1, mat2)


@primitive(
    surface=0, tensors=("input", "mat1", "mat2"), check=_check_product_added,
    samples="x(2, 4), x(2, 3), x(3, 4), 0.5, 2; x(2, 3, 2), x(2, 3, 4), x(2, 4, 2), 1, 1",
)  # fmt: skip
def product_added(input, mat1, mat2, beta, alpha):
    """``beta * input + alpha * (mat1 @ mat2)``, of halves rounded once: ``(*, n, m), (*, n, k), (*, k, m) -> (*, n, m)``."""


product_added.in_pieces("+...ij,...ik,...kj->...ij")


@product_added.kernel
def _product_added(c, a, b, beta, alpha):
    wide = c.dtype if c.dtype.itemsize > 2 else FLOAT32
    if a.__class__ is ndarray:
        made = kernel.wide_product(a, b) if wide is FLOAT32 else None
        if made is None:
            made = kernel.matmul(a, b, np.empty((*a.shape[:-1], b.shape[-1]), wide))
    else:
        made = product(a.astype(wide), b.astype(wide))
    out = np.empty_like(made, c.dtype)
    launch(_SCALED_SUM, (made, c, float(alpha), float(beta)), (out,), wide)
    return out


@product_added.shape
def _product_added_shape(input, mat1, mat2, beta, alpha):
    return (*mat1.shape[:-1], mat2.shape[-1]), mat1.dtype


@product_added.vjp
def _product_added_vjp(grad, input, mat1, mat2, beta, alpha):
    multiply = mm if mat1.ndim == 2 else bmm
    scaled = grad if alpha == 1 else grad * alpha
    return (
        lambda: grad if beta == 1 else grad * beta,
        lambda: multiply(scaled, adjoint(mat2)),
        lambda: multiply(adjoint(mat1), scaled),
    )


@product_added.decomposition
def _product_added_parts(input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor:
    return (addmm if mat1.ndim == 2 else baddbmm).function(input, mat1, mat2, beta=beta, alpha=alpha)


def _rounded_once(input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor | None:
    """``beta * input + alpha * (mat1 @ mat2)`` of halves, which `_scaled` would round after the product too; None for others."""
    kind = mat1.dtype
    if kind is not dtypes.bfloat16 and kind is not dtypes.float16 or input.dtype is not kind or mat2.dtype is not kind or beta == 0:
        return None
    if mat1.ndim < 2 or mat1.ndim != mat2.ndim:
        return None                                   # which is refused
    return product_added(input.expand(*mat1.shape[:-1], mat2.shape[-1]), mat1, mat2, beta, alpha)


def _plus(multiply: Any) -> Any:
    """The plan of ``beta * input + alpha * multiply(a, b)`` for arrays of one real floating dtype."""

    def rule(c: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
        made = multiply(a, b) if beta != 0 else None
        if made is None:
            return None
        if alpha != 1:
            np.multiply(made, alpha, made)
        PLUS.into(made, c if beta == 1 else c * beta)  # which refuses what is larger than the product
        return made

    return rule


def _halves_added(ndim: int) -> Any:
    """The plan of the same for halves, matrices or batches of them: that of `product_added`."""

    def rule(c: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
        shape = a.shape
        if a.ndim != ndim or b.ndim != ndim or c.ndim > ndim or shape[-1] != b.shape[-2] or shape[:-2] != b.shape[:-2] or beta == 0:
            return None
        wanted = *shape[:-1], b.shape[-1]
        fits = c.shape == wanted or all(n in (1, m) for n, m in zip(reversed(c.shape), reversed(wanted), strict=False))
        return _product_added(c, a, b, beta, alpha) if fits else None

    return rule


def _two_matrices(a: Any, b: Any) -> Any:
    if a.ndim != 2 or b.ndim != 2:
        return None
    made = hot_calls.matmul(a, b)
    return kernel.product_by_numpy(a, b) if made is None else made


def _two_batches(a: Any, b: Any) -> Any:
    if a.ndim != 3 or b.ndim != 3:
        return None
    made = hot_calls.bmm(a, b)
    return kernel.batch_by_numpy(a, b) if made is None else made


def _with_factors_first(input: str, *factors: str) -> tuple[tuple[str, ...], ...]:
    """The older orders of arguments: as functions with `beta` first, as methods after the tensor; `alpha` may be left out."""
    return tuple((*first, *alpha, *factors) for first in (("beta", input), (input, "beta")) for alpha in ((), ("alpha",)))


@composite(
    surface=FUNCTION | METHOD | OUT | 4, autocast="lower", overlap=(EXACTLY, None),
    samples="x(2, 4), x(2, 3), x(3, 4); x(4), x(2, 3), x(3, 4), beta=0.5, alpha=2",
    exact_out=True,
    older=_with_factors_first("input", "mat1", "mat2"), costly=True,
    names=adds_product("mat1", "mat2"),
)
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """``beta * input + alpha * (mat1 @ mat2)``: ``(n, k), (k, m) -> (n, m)``, `input` of a shape that broadcasts to it.

    With ``beta=0`` `input` does not count at all, nan included.
    """
    made = _rounded_once(input, mat1, mat2, beta, alpha)
    return _scaled("addmm", input, mm(mat1, mat2), beta, alpha) if made is None else made


addmm.result_shown_as("AddmmBackward0")


addmm.rounds_as_its_parts = True


addmm.plan(_plus(_two_matrices), tensors=("input", "mat1", "mat2"), dtypes="fd")
addmm.plan(_halves_added(2), tensors=("input", "mat1", "mat2"), dtypes="eE", after=True)


@composite(
    surface=FUNCTION | METHOD | OUT | 4, autocast=(None, "lower"), overlap=(EXACTLY, None),
    samples="x(2), x(2, 3), x(3); x(2), x(2, 3), x(3), beta=0.5, alpha=2",
    exact_out=True,
    older=_with_factors_first("input", "mat", "vec"), costly=True,
    names=adds_product("mat", "vec"),
)
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """``beta * input + alpha * (mat @ vec)``: ``(n, m), (m) -> (n)``; see `addmm`."""
    if mat.ndim == 2 and vec.ndim == 1 and input.ndim < 2:
        made = _rounded_once(input if input.ndim == 0 else input.unsqueeze(-1), mat, vec.unsqueeze(-1), beta, alpha)
        if made is not None:
            return made.squeeze(-1)
    return _scaled("addmv", input, mv(mat, vec), beta, alpha)


addmv.result_shown_as("AddmvBackward0")


addmv.plan(_plus(kernel.vector_by_numpy), tensors=("input", "mat", "vec"), dtypes="fd")


@composite(
    surface=FUNCTION | METHOD | OUT | 4, overlap=EXACTLY,
    reads_parts=True, samples="x(2, 3), x(2), x(3); x(3), x(2), x(3), beta=0.5, alpha=2",
    older=_with_factors_first("input", "vec1", "vec2"),
)
def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """``beta * input + alpha * outer(vec1, vec2)``: ``(n), (m) -> (n, m)``; see `addmm`."""
    from .._promote import result_type

    made = outer(vec1, vec2)
    wanted = result_type((input, made))
    _check_factors("addr", wanted, beta=beta, alpha=alpha)
    return _scaled("addr", input.to(wanted), made.to(wanted), beta, alpha, alike="input")


addr.result_shown_as("AddrBackward0")


_plus_outer = _plus(_outer_of_vectors)


@addr.plan(tensors=("input", "vec1", "vec2"), dtypes="fd")
def _addr_of_vectors(c, a, b, beta, alpha):
    """Of a row-major matrix: the result is ordered as that is."""
    if not c.flags.c_contiguous or beta.__class__ is bool or alpha.__class__ is bool:
        return None                                   # factors that are bools are refused, other than by `addmm`
    return _plus_outer(c, a, b, beta, alpha)


@composite(
    surface=FUNCTION | METHOD | OUT | 4, autocast="lower", overlap=(EXACTLY, None),
    samples="x(2, 3, 2), x(2, 3, 4), x(2, 4, 2); x(2, 1, 2), x(2, 3, 4), x(2, 4, 2), beta=0.5, alpha=2",
    exact_out=True,
    older=_with_factors_first("input", "batch1", "batch2"), costly=True,
)
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """``beta * input + alpha * (batch1 @ batch2)``: ``(b, n, k), (b, k, m) -> (b, n, m)``; see `addmm`."""
    made = _rounded_once(input, batch1, batch2, beta, alpha)
    return _scaled("baddbmm", input, bmm(batch1, batch2), beta, alpha) if made is None else made


baddbmm.result_shown_as("BaddbmmBackward0")


baddbmm.rounds_as_its_parts = True


baddbmm.plan(_plus(_two_batches), tensors=("input", "batch1", "batch2"), dtypes="fd")
baddbmm.plan(_halves_added(3), tensors=("input", "batch1", "batch2"), dtypes="eE", after=True)


@composite(
    surface=FUNCTION | METHOD | OUT | 4, autocast="lower", overlap=(EXACTLY, None),
    samples="x(3, 2), x(2, 3, 4), x(2, 4, 2); x(3, 2), x(2, 3, 4), x(2, 4, 2), beta=0.5, alpha=2",
    exact_out=True,
    older=_with_factors_first("input", "batch1", "batch2"),
)
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """``beta * input + alpha * sum over b of (batch1 @ batch2)``: ``(b, n, k), (b, k, m) -> (n, m)``; see `addmm`."""
    products = bmm(batch1, batch2)
    return _scaled("addbmm", input, products.sum(0, dtype=products.dtype), beta, alpha)


addbmm.result_shown_as("AddbmmBackward0")


def _check_factors(name: str, result: Any, **factors: Any) -> None:
    """Raise RuntimeError for a factor of a kind that `result`, a dtype, cannot hold."""
    for key, value in factors.items():
        if isinstance(value, bool) and result is not dtypes.bool:
            raise RuntimeError(f"{name}: Boolean {key} only supported for Boolean results, got a {result.name} result")
        if isinstance(value, float) and result.category < dtypes.FLOATING:
            raise RuntimeError(f"{name}: For integral input tensors, argument {key} must not be a floating point number.")
        if isinstance(value, complex) and not result.is_complex:
            raise RuntimeError(f"{name}: For non-complex input tensors, argument {key} must not be a complex number.")
