"""Products of a sparse matrix, given by its values and where they are, and a dense one; and sums of products at given places."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.indexing import scatter
from flambeau_kernels.cpu.indexing.rows import add_rows, weighted_bags
from flambeau_kernels.cpu.reductions.softmax import narrow, widen

from ...dtypes import from_numpy_dtype
from ...tensor import Tensor
from .._spec import primitive

_MOST = 1 << 22                                       # elements of an intermediate
_MOST_PRODUCTS = 1 << 15                                      # products that are computed before they are added up


@primitive(surface=0, tensors=("values", "rows", "columns", "dense"), samples="of sparse.mm")
def sparse_dense_product(values, rows, columns, dense, count):
    """``out[rows[k]] += values[k] * dense[columns[k]]`` over all k, in rows of zeros: ``(n), (n), (n), (m, j) -> (count, j)``.

    Products of a row are added up in the order of k, or in that of columns where neither rows nor columns are sorted.
    """


@sparse_dense_product.kernel
def _product(values, rows, columns, dense, count):
    kind = _computed(dense.dtype)
    if not len(rows):
        return np.zeros((count, dense.shape[1]), dense.dtype)
    # Nobody has checked the indices of a sparse tensor, and compiled loops read where they say.
    for name, at, n in (("row", rows, count), ("column", columns, dense.shape[0])):
        if not scatter.in_range(at, 0, n):
            wrong = at[(at < 0) | (at >= n)][0]
            raise RuntimeError(
                f"product of a sparse matrix: {name} index {wrong} is out of range for {n} {name}s; make it with check_invariants=True"
            )
    if (rows[1:] >= rows[:-1]).all():
        made = weighted_bags(dense, columns, values, _starts(rows, count, np.int64))
        if made is not None:
            return made
    if len(rows) * dense.shape[1] <= _MOST_PRODUCTS and kind == dense.dtype:
        return add_rows(values[:, None] * dense.take(columns, 0), rows, count)
    matrix = _matrix(values.astype(kind, copy=False), rows, columns, (count, dense.shape[0]))
    return np.ascontiguousarray(matrix @ np.ascontiguousarray(dense, kind)).astype(dense.dtype, copy=False)


def _computed(dtype: np.dtype) -> np.dtype:
    """The dtype that products are computed in: scipy's own, half types in float32."""
    if dtype.kind in "fc" and dtype.isbuiltin == 1 and dtype.itemsize > 2:
        return dtype
    if dtype.kind in "iu":
        return dtype
    return np.dtype(np.complex64 if from_numpy_dtype(dtype).is_complex else np.float32)


def _matrix(values: Any, rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
    """scipy's matrix of these elements, compressed along what is sorted; elements of a row keep their order."""
    from scipy import sparse

    index = np.int32 if max(*shape, len(rows)) < 1 << 31 else np.int64
    if (rows[1:] >= rows[:-1]).all():
        return sparse.csr_matrix((values, columns.astype(index), _starts(rows, shape[0], index)), shape, copy=False)
    if not (columns[1:] >= columns[:-1]).all():
        order = np.argsort(columns, kind="stable")
        values, rows, columns = values[order], rows[order], columns[order]
    return sparse.csc_matrix((values, rows.astype(index), _starts(columns, shape[1], index)), shape, copy=False)


def _starts(numbers: Any, count: int, index: Any) -> Any:
    """Where each of `count` rows begins among their sorted `numbers`, and where the last ends."""
    made = np.zeros(count + 1, index)
    np.cumsum(np.bincount(numbers, minlength=count), out=made[1:])
    return made


@sparse_dense_product.shape
def _product_shape(values, rows, columns, dense, count):
    return (count, dense.shape[1]), dense.dtype


@sparse_dense_product.vjp(rows=None, columns=None)
def _product_vjp(grad, values, rows, columns, dense, dense_shape):
    return (
        lambda: products_at(grad, rows, dense.conj(), columns),
        None,
        None,
        lambda: sparse_dense_product.function(values.conj(), columns, rows, grad, dense_shape[0]),
    )


@sparse_dense_product.vjp_on_arrays
def _product_vjp_on_arrays(grad, values, rows, columns, dense, dense_shape, needs_values, needs_dense):
    if values.dtype.kind == "c":                      # conjugates are made by the rule on tensors
        return None
    return (
        _products_at(grad, rows, dense, columns) if needs_values else None,
        None,
        None,
        _product(values, columns, rows, grad, dense_shape[0]) if needs_dense else None,
    )


@primitive(surface=0, tensors=("left", "rows", "right", "columns"), samples="of sparse.sampled_addmm")
def products_at(left, rows, right, columns):
    """``(left[rows[k]] * right[columns[k]]).sum()`` for each k: ``(n, j), (k), (m, j), (k) -> (k)``."""


@products_at.kernel
def _products_at(left, rows, right, columns):
    made = np.empty(len(rows), left.dtype)
    kind = _computed(left.dtype)
    if left.size and right.size and len(rows) * left.shape[1] <= _MOST_PRODUCTS and kind == left.dtype:
        return np.einsum("kj,kj->k", left.take(rows, 0), right.take(columns, 0))
    step = max(1, _MOST // max(1, left.shape[1]))
    for at in range(0, len(rows), step):              # pieces of rows, whatever the number of threads
        a, b = left[rows[at : at + step]], right[columns[at : at + step]]
        made[at : at + step] = np.einsum("kj,kj->k", a.astype(kind, copy=False), b.astype(kind, copy=False))
    return made


@products_at.shape
def _products_at_shape(left, rows, right, columns):
    return rows.shape, left.dtype


@products_at.vjp(rows=None, columns=None)
def _products_at_vjp(grad, left, rows, right, columns, left_shape, right_shape):
    return (
        lambda: sparse_dense_product.function(grad, rows, columns, right.conj(), left_shape[0]),
        None,
        lambda: sparse_dense_product.function(grad, columns, rows, left.conj(), right_shape[0]),
        None,
    )


# -- softmax within groups of elements -----------------------------------------------------------------------------------


@primitive(surface=0, tensors=("values", "groups"), samples="of sparse.softmax")
def softmax_of_groups(values, groups, count):
    """The softmax of the `values` of each of `count` groups: ``(n, *), (n) -> (n, *)``; groups are numbered from 0."""


@primitive(surface=0, tensors=("values", "groups"), samples="of sparse.log_softmax")
def log_softmax_of_groups(values, groups, count):
    """The logarithm of `softmax_of_groups`."""


def _sums(values: Any, groups: Any, count: int) -> Any:
    """The sum of each group, at each of its elements."""
    return add_rows(values, groups, count).take(groups, 0)


def _below_largest(values: Any, groups: Any, count: int) -> Any:
    """`values`, in float32 at least, less the largest of their group; less 0 where that is infinite."""
    wide = widen(values)
    top = np.full((count, *values.shape[1:]), -np.inf, wide.dtype)
    if len(groups) and (groups[1:] >= groups[:-1]).all():
        starts = np.searchsorted(groups, np.arange(count))
        np.maximum.reduceat(wide, starts, out=top)    # no group is empty
    else:
        np.maximum.at(top, groups, wide)
    top[np.isinf(top)] = 0
    return wide - top.take(groups, 0)


@softmax_of_groups.kernel
def _softmax_of_groups(values, groups, count):
    if not len(values):
        return values.copy()
    shares = np.exp(_below_largest(values, groups, count))
    return narrow(shares / _sums(shares, groups, count), values.dtype)


@log_softmax_of_groups.kernel
def _log_softmax_of_groups(values, groups, count):
    if not len(values):
        return values.copy()
    shifted = _below_largest(values, groups, count)
    return narrow(shifted - np.log(_sums(np.exp(shifted), groups, count)), values.dtype)


@softmax_of_groups.shape
@log_softmax_of_groups.shape
def _of_groups_shape(values, groups, count):
    return values.shape, values.dtype


def _group_sums(values: Tensor, groups: Tensor, count: int) -> Any:
    return values.new_zeros((count, *values.shape[1:])).index_add(0, groups, values).index_select(0, groups)  # pyright: ignore[reportAttributeAccessIssue]  # made on first use


@softmax_of_groups.vjp(groups=None)
def _softmax_of_groups_vjp(grad, out, groups, count):
    weighted = grad * out
    return weighted - out * _group_sums(weighted, groups, count), None


@softmax_of_groups.vjp_on_arrays
def _softmax_of_groups_vjp_on_arrays(grad, out, groups, count):
    weighted = widen(grad) * widen(out)
    return narrow(weighted - out * _sums(weighted, groups, count), grad.dtype), None


@log_softmax_of_groups.vjp(groups=None)
def _log_softmax_of_groups_vjp(grad, out, groups, count):
    return grad - out.exp() * _group_sums(grad, groups, count), None


@log_softmax_of_groups.vjp_on_arrays
def _log_softmax_of_groups_vjp_on_arrays(grad, out, groups, count):
    wide = widen(grad)
    return narrow(wide - np.exp(widen(out)) * _sums(wide, groups, count), grad.dtype), None
