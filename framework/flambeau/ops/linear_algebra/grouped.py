"""Products of groups of rows, columns or inner elements with a matrix each, as layers of several experts have them."""

from __future__ import annotations

from operator import le
from typing import Any

import numpy as np

from ... import dtypes
from .._spec import ROWS, composite, describe, pieces, primitive
from ._matrices import adjoint
from ._products import product
from .products import bmm

F = "nn.functional"
_INT32 = dtypes.int32.numpy
# By the number of dimensions of the factors: the dimensions that meet, which groups divide or which may be divided among processes.
_PIECES = {(2, 3): "_k,_kn,_->_n", (2, 2): "m_,_n,_->_mn", (3, 2): "_mk,k_,_->m_"}


def _divided(a: Any, b: Any) -> int:
    """The size that ends of groups divide: of rows, columns, or what is added."""
    return a.shape[0] if b.ndim == 3 else b.shape[0 if a.ndim == 2 else 1]


def _divide(ends: list[int], size: int) -> bool:
    """Whether `ends` rise from 0 or more to at most `size`."""
    return all(map(le, [0, *ends], [*ends, size]))


def _check_operands(mat_a, mat_b, offs):
    for name, x in (("mat_a", mat_a), ("mat_b", mat_b)):
        if x.ndim not in (2, 3):
            raise RuntimeError(f"grouped_mm: {name} has to be 2 or 3d\n{describe(mat_a=mat_a, mat_b=mat_b)}")
        if x.dtype.category != dtypes.FLOATING:
            raise RuntimeError(
                f"grouped_mm: Expected {name} to be a floating matrix, got {dtypes.scalar_type(x.dtype)}; convert it, by .float()"
            )
    if mat_a.dtype is not mat_b.dtype:
        raise RuntimeError(f"grouped_mm: expected mat_a and mat_b to have the same dtype, but got: {mat_a.dtype} != {mat_b.dtype}")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(f"grouped_mm: contraction dimension of mat_a and mat_b must match\n{describe(mat_a=mat_a, mat_b=mat_b)}")
    if (offs is None) != (mat_a.ndim == mat_b.ndim == 3):
        raise RuntimeError(
            "grouped_mm: Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d\n"
            f"{describe(mat_a=mat_a, mat_b=mat_b)}"
        )
    groups = [x.shape[0] for x in (mat_a, mat_b) if x.ndim == 3]
    if offs is None:
        if groups[0] != groups[1]:
            raise RuntimeError(f"grouped_mm: batched dimension has to match\n{describe(mat_a=mat_a, mat_b=mat_b)}")
        return
    if offs.ndim != 1:
        raise RuntimeError(f"grouped_mm: offs has to be 1D, it has {offs.ndim} dimensions")
    if offs.dtype is not dtypes.int32:
        raise RuntimeError(f"grouped_mm: Offsets have to be int32, got {offs.dtype}; use .int()")
    if groups and groups[0] != offs.shape[0]:
        raise RuntimeError(
            f"grouped_mm: matrix batch sizes have to match: offs has {offs.shape[0]} groups\n{describe(mat_a=mat_a, mat_b=mat_b)}"
        )


def _check_grouped(mat_a, mat_b, offs):
    _check_operands(mat_a, mat_b, offs)
    if not offs._lacks_values:
        ends, size = offs._array.tolist(), _divided(mat_a, mat_b)
        if not _divide(ends, size):
            raise RuntimeError(f"grouped_mm: offs must rise from 0 or more to at most {size}, the size that it divides, got {ends}")


@primitive(
    surface=0, tensors=("mat_a", "mat_b", "offs"), linear_in=("mat_a", "mat_b"), check=_check_grouped, memory=ROWS,
    operator="_grouped_mm(mat_a, mat_b, offs)", public_name="nn.functional.grouped_mm", samples="of nn.functional.grouped_mm",
    cuda="matrices.grouped", costly=True,
)  # fmt: skip
def grouped_product(mat_a, mat_b, offs):
    """`grouped_mm` of groups that end at `offs`. What is in no group is zero."""


grouped_product.shown_as("GroupedMmBackward0")


@grouped_product.in_pieces
def _grouped_pieces(asked):
    return pieces.of_text(_PIECES[asked["mat_a"].ndim, asked["mat_b"].ndim])(asked)


def by_group(a: Any, b: Any, ends: list[int], zeros: Any, multiply: Any, store: Any) -> Any:
    """The product of arrays, by what makes zeros of a shape and dtype, multiplies two matrices and copies to an array."""
    if b.ndim == 3:
        made = zeros((a.shape[0], b.shape[2]), a.dtype)
    else:
        made = zeros((a.shape[1], b.shape[1]) if a.ndim == 3 else (len(ends), a.shape[0], b.shape[1]), a.dtype)
    start = 0
    for group, end in enumerate(ends):
        if end > start:
            if b.ndim == 3:
                store(made[start:end], multiply(a[start:end], b[group]))
            elif a.ndim == 3:
                store(made[:, start:end], multiply(a[group], b[:, start:end]))
            else:
                store(made[group], multiply(a[:, start:end], b[start:end]))
        start = end
    return made


@grouped_product.kernel
def _grouped(a, b, offs):
    return by_group(a, b, offs.tolist(), np.zeros, product, np.copyto)


@grouped_product.plan(tensors=("mat_a", "mat_b"), beside=("offs",), dtypes="fd")
def _usual_groups(a, b, offs):
    ends = offs.tolist()
    if offs.dtype is not _INT32 or a.dtype is not b.dtype or not _divide(ends, _divided(a, b)):
        return None
    if a.shape[-1] != b.shape[-2] or any(x.ndim not in (2, 3) or x.ndim == 3 and len(x) != len(ends) for x in (a, b)):
        return None
    return None if a.ndim == b.ndim == 3 else by_group(a, b, ends, np.zeros, product, np.copyto)


@grouped_product.shape
def _grouped_shape(mat_a, mat_b, offs):
    outer = offs.shape if mat_a.ndim == mat_b.ndim else ()
    return (*outer, mat_a.shape[-2], mat_b.shape[-1]), mat_a.dtype


@grouped_product.vjp(offs=None)
def _grouped_vjp(grad, mat_a, mat_b, offs):
    return (lambda: grouped_product(grad, adjoint(mat_b), offs), lambda: grouped_product(adjoint(mat_a), grad, offs), None)


@grouped_product.vjp_on_arrays
def _grouped_vjp_on_arrays(grad, mat_a, mat_b, offs):
    def of_b():
        if mat_b.strides[-2] < mat_b.strides[-1]:     # matrices by columns, as transposed weights are, have such gradients
            return _grouped(grad.swapaxes(-1, -2), mat_a, offs).swapaxes(-1, -2)
        return _grouped(mat_a.swapaxes(-1, -2), grad, offs)

    return (lambda: _grouped(grad, mat_b.swapaxes(-1, -2), offs), of_b, None)


@composite(
    namespace=F, autocast="own",
    samples=(
        "x(8, 16), x(3, 16, 24), offs=fb.tensor([3, 3, 8], dtype=fb.int32); x(8, 16), x(16, 8), offs=fb.tensor([4, 16], dtype=fb.int32); "
        "x(3, 8, 16), x(16, 8), offs=fb.tensor([1, 5, 8], dtype=fb.int32); x(2, 8, 16), x(2, 16, 8)"
    ),
)
def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of groups with a matrix each.

    Shapes: ``(rows, k), (groups, k, m) -> (rows, m)``, where groups are of rows; ``(n, k), (k, m) -> (groups, n, m)``, of what is
    added; ``(groups, n, k), (k, columns) -> (n, columns)``, of columns; ``(groups, n, k), (groups, k, m)`` is `bmm`. What is in no group
    is zero.

    Args:
        offs: where each group ends, int32, rising; the first begins at 0. None for two batches of matrices.
        bias: None; there is none.
        out_dtype: the dtype of the operands, which the result has.
    Raises: RuntimeError for other dtypes, ranks or sizes, and for ends that fall or are outside.
    """
    if bias is not None:
        raise RuntimeError("grouped_mm: Bias not supported yet; add it to the result")
    if out_dtype is not None and out_dtype is not mat_a.dtype:
        raise RuntimeError(f"grouped_mm: Grouped gemm output dtype must match `mat_a` dtype {mat_a.dtype}, got {out_dtype}")
    if offs is not None:
        return grouped_product.function(mat_a, mat_b, offs)
    _check_operands(mat_a, mat_b, None)
    return bmm(mat_a, mat_b)


@grouped_mm.forwards
def _grouped_by_ends(mat_a, mat_b, offs, bias, out_dtype):
    return grouped_product.answer(mat_a, mat_b, offs) if offs is not None and bias is None and out_dtype is None else None
