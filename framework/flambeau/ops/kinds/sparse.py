"""Sparse tensors: constructors, what they are made of, conversions, and the functions of ``flambeau.sparse``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import _state, devices, dtypes
from ...autograd import tape
from ...autograd.making import new_node
from ...tensor import Tensor, bump, without_history, wrap, wrap_dim
from .._sparse import check, rules
from .._sparse.arrays import (
    BLOCKED,
    BY_ROWS,
    COMPRESSED,
    CompressedArray,
    CooArray,
    SparseArray,
    compressed,
    coo,
    host,
    is_sparse,
    pattern_of,
    places,
    titled,
    values_of,
    with_values,
)  # fmt: skip
from .._sparse.layouts import NAMES, flat_places, to_coo, to_layout, values_at
from .._sparse.layouts import coalesce as _coalesced
from .._sparse.layouts import to_dense as _dense
from .._spec import FUNCTION, METHOD, OPS, OUT, composite
from ..creation.from_values import tensor as _tensor
from ..creation.ranges import arange
from ..creation.shared_memory import as_tensor
from . import sparse_products  # noqa: F401  # declares the products

_OF_ROWS, _OF_COLUMNS = (devices.sparse_csr, devices.sparse_bsr), (devices.sparse_csc, devices.sparse_bsc)


# -- constructors ---------------------------------------------------------------------------------------------------------


def _values_given(values: Any, dtype: Any, device: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.to(dtype=dtype or values.dtype, device=device or values.device)
    return _tensor(values, dtype=dtype, device=device)


def _indices_given(indices: Any, values: Tensor, dtype: Any = None) -> Tensor:
    made = indices if isinstance(indices, Tensor) else _tensor(indices, device=values.device)
    if made.numel() == 0 and made.dtype.is_floating_point:
        made = made.to(dtypes.int64)
    return made if dtype is None else made.to(dtype)


def _finished(made: Tensor, requires_grad: bool) -> Tensor:
    return made.requires_grad_(True) if requires_grad else made


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None, is_coalesced: bool | None = None, layout: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor in coordinates, with `values` at `indices`; those of the same place count together.

    Args:
        indices: integers ``(sparse_dim, nnz)``, converted to int64.
        values: ``(nnz, *dense)``, tensor or nested lists.
        size: the shape, ``sparse_dim`` sizes and the ones of `values` after the first; the smallest that holds the indices by default.
            ``sparse_coo_tensor(size)`` has no values.
        dtype, device: of the values; their own by default.
        requires_grad: whether it is a leaf that gets a gradient.
        check_invariants: whether indices are checked to be in range; as `sparse.check_sparse_tensor_invariants` says by default.
        is_coalesced: whether the indices are sorted and each there once.
    Raises: RuntimeError for parts whose shapes do not go together.

    >>> fb.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 5.]])
    """
    if layout not in (None, devices.sparse_coo):
        raise RuntimeError(f"sparse_coo_tensor: expected sparse_coo layout, but got layout {layout}")
    if values is None and (size is None) == (indices is None):
        raise TypeError("sparse_coo_tensor() takes indices and values, or a size alone")
    if values is None:
        shape = tuple(int(n) for n in (indices if size is None else size))
        values = _tensor([], dtype=dtype, device=device)
        at = wrap(np.zeros((len(shape), 0), np.int64)).to(values.device)
        return _finished(coo(at, values, shape, True), requires_grad)
    values = _values_given(values, dtype, device)
    at = _indices_given(indices, values, dtypes.int64).to(values.device)
    if values.ndim == 0:
        values = values.expand(at.shape[1] if at.ndim == 2 else 1)
    if at.ndim == 2 and not at.numel() and values.ndim == 1 and not values.numel() and size is not None:
        values = values.reshape(at.shape[1], *tuple(size)[at.shape[0] :]) if at.shape[1] == 0 else values
    if size is None:
        if at.ndim != 2:
            raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(at.shape)}")
        largest = host("sparse_coo_tensor", at)[0].max(1) + 1 if at.shape[1] else np.zeros(at.shape[0], np.int64)
        size = (*(int(n) for n in largest), *values.shape[1:])
    shape = tuple(int(n) for n in ((size,) if isinstance(size, int) else size))
    check.check_sizes(at, values, shape)
    if check.is_checked(check_invariants):
        check.check_coo(at, values, shape, bool(is_coalesced))
    made = titled(coo(at, values, shape, bool(is_coalesced) or not at.shape[1]), "SparseCooTensorWithDimsAndTensorsBackward0")
    return _finished(made, requires_grad)


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """A tensor whose rows or columns, or those of blocks, are compressed.

    Args:
        compressed_indices: ``(*batch, n + 1)`` int32 or int64: where the elements of each row (column) begin, and the last ends.
        plain_indices: ``(*batch, nnz)``: columns (rows) of the elements.
        values: ``(*batch, nnz, *block, *dense)``.
        size: the shape ``(*batch, rows, columns, *dense)``; the smallest that holds the indices by default.
        layout: `sparse_csr`, `sparse_csc`, `sparse_bsr` or `sparse_bsc`.
        dtype, device: of the values; their own by default.
        requires_grad: whether it is a leaf that gets a gradient.
        check_invariants: whether the parts are checked; as `sparse.check_sparse_tensor_invariants` says by default.
    Raises: RuntimeError without a compressed `layout`, and for parts that fail the check.
    """
    return _compressed_tensor("sparse_compressed_tensor", layout, compressed_indices, plain_indices, values, size, dtype, device,
                              requires_grad, check_invariants)  # fmt: skip


def _compressed_tensor(name: str, layout: Any, compressed_indices: Any, plain_indices: Any, values: Any, size: Any, dtype: Any,
                       device: Any, requires_grad: bool, check_invariants: bool | None) -> Tensor:  # fmt: skip
    if layout not in COMPRESSED:
        shown = "none" if layout is None else NAMES.get(layout, layout)
        raise RuntimeError(f"{name} expected sparse compressed tensor layout but got {shown}")
    values = _values_given(values, dtype, device)
    comp, plain = (_indices_given(x, values).to(values.device) for x in (compressed_indices, plain_indices))
    if size is None:
        size = _smallest(name, layout, comp, plain, values)
    shape = tuple(int(n) for n in size)
    if check.is_checked(check_invariants):
        check.check_compressed(layout, comp, plain, values, shape)
    return _finished(compressed(layout, (comp, plain, values), shape), requires_grad)


def _smallest(name: str, layout: Any, comp: Tensor, plain: Tensor, values: Tensor) -> tuple[int, ...]:
    """The smallest shape that holds these indices."""
    batch = comp.ndim - 1
    blocked = layout in BLOCKED
    if comp.ndim < 1 or plain.ndim < 1 or values.ndim < batch + 1 + 2 * blocked:
        raise RuntimeError(f"{name}: indices and values need a dimension at least; got {comp.ndim}, {plain.ndim} and {values.ndim}")
    block = tuple(values.shape[batch + 1 : batch + 3]) if blocked else (1, 1)
    count = comp.shape[-1] - 1
    across = int(host(name, plain)[0].max()) + 1 if plain.numel() else 0
    rows, columns = (count, across) if layout in BY_ROWS else (across, count)
    dense = values.shape[batch + 1 + 2 * blocked :]
    return (*comp.shape[:-1], rows * block[0], columns * block[1], *dense)


def _constructor(layout: Any, what: str, comp: str, plain: str) -> Any:
    name = f"{layout.name}_tensor"

    def make(first: Any, second: Any, values: Any, size: Any, dtype: Any, device: Any, requires_grad: bool, checked: Any) -> Tensor:
        return _compressed_tensor(name, layout, first, second, values, size, dtype, device, requires_grad, checked)

    text = (
        f"def {name}({comp}, {plain}, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False, "
        "check_invariants=None, layout=None):\n"
        f"    return make({comp}, {plain}, values, size, dtype, device, requires_grad, check_invariants)\n"
    )
    scope: dict[str, Any] = {"make": make}
    exec(text, scope)  # our own text, once for each layout
    fn = scope[name]
    fn.__module__ = __name__
    fn.__doc__ = (
        f"A tensor of {what}: `sparse_compressed_tensor` of the layout `{layout.name}`.\n\n    Args:\n"
        f"        {comp}, {plain}, values: the parts, as there.\n"
        "        size: the shape; the smallest that holds the indices by default.\n"
        "        check_invariants: whether the parts are checked.\n"
    )
    return fn


FUNCTIONS = {
    "sparse_coo_tensor": sparse_coo_tensor,
    "sparse_compressed_tensor": sparse_compressed_tensor,
    "sparse_csr_tensor": _constructor(devices.sparse_csr, "compressed rows", "crow_indices", "col_indices"),
    "sparse_csc_tensor": _constructor(devices.sparse_csc, "compressed columns", "ccol_indices", "row_indices"),
    "sparse_bsr_tensor": _constructor(devices.sparse_bsr, "compressed rows of blocks", "crow_indices", "col_indices"),
    "sparse_bsc_tensor": _constructor(devices.sparse_bsc, "compressed columns of blocks", "ccol_indices", "row_indices"),
}


def zeros_of(shape: Any, layout: Any, dtype: Any, device: Any, requires_grad: bool = False) -> Tensor:
    """A sparse tensor without values."""
    shape = tuple(shape)
    if not isinstance(layout, devices.layout):
        raise TypeError(f"empty(): argument 'layout' must be torch.layout, not {type(layout).__name__}")
    values = _tensor([], dtype=dtype, device=device)
    if layout is devices.sparse_coo:
        return sparse_coo_tensor(shape, dtype=values.dtype, device=values.device, requires_grad=requires_grad)
    if layout in BLOCKED:
        raise RuntimeError(f"empty: a tensor of the layout {layout} needs the sizes of its blocks; use sparse_compressed_tensor")
    if layout not in COMPRESSED or len(shape) < 2:
        raise RuntimeError(f"empty: a tensor of the layout {layout} needs two dimensions at least, got {shape}")
    count = shape[-2 if layout in BY_ROWS else -1]
    starts, plain = np.zeros((*shape[:-2], count + 1), np.int64), np.zeros((*shape[:-2], 0), np.int64)
    made = compressed(layout, (wrap(starts), wrap(plain), values.reshape(*shape[:-2], 0)), shape)
    return _finished(made, requires_grad)


def zeros_like_of(x: Tensor, dtype: Any, device: Any) -> Tensor:
    """Zeros shaped like the sparse `x`, in its layout: without values."""
    array = pattern_of(x)
    if isinstance(array, CooArray):
        values = array.values.new_zeros((0, *array.values.shape[1:]), dtype=dtype, device=device)
        at = wrap(np.zeros((array.sparse_dim, 0), np.int64)).to(values.device)
        return coo(at, values, array.shape, True)
    starts, plain, values = array.parts
    lead = plain.ndim - 1                                 # dimensions of the batch
    empty = values.new_zeros((*values.shape[:lead], 0, *values.shape[lead + 1 :]), dtype=dtype, device=device)
    nowhere = plain.new_zeros((*plain.shape[:-1], 0), device=empty.device)
    return compressed(array.form, (starts.new_zeros(starts.shape, device=empty.device), nowhere, empty), array.shape)


def empty_like_of(x: Tensor, dtype: Any, device: Any) -> Tensor:
    """A tensor with the pattern of `x`, which is compressed, and any values."""
    array = pattern_of(x)
    assert isinstance(array, CompressedArray)
    values = array.values.new_empty(array.values.shape, dtype=dtype, device=device)
    starts, plain = (part.to(values.device, copy=True) for part in array.parts[:2])
    return compressed(array.form, (starts, plain, values), array.shape)


# -- parts ----------------------------------------------------------------------------------------------------------------


def _layout_of(x: Tensor) -> str:
    return NAMES[x.layout]


def _need_coo(name: str, x: Tensor) -> CooArray:
    pattern = pattern_of(x)
    if not isinstance(pattern, CooArray):
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {_layout_of(x)}")
    return pattern


def _need_compressed(name: str, x: Tensor, forms: Any, what: str) -> CompressedArray:
    pattern = pattern_of(x)
    if not isinstance(pattern, CompressedArray) or pattern.form not in forms:
        raise RuntimeError(f"{name} expected sparse {what} compressed tensor layout but got {_layout_of(x)}")
    return pattern


def _need_sparse(name: str, x: Tensor) -> SparseArray:
    pattern = pattern_of(x)
    if not isinstance(pattern, SparseArray):
        raise RuntimeError(f"{name} expected sparse tensor layout but got {_layout_of(x)}")
    return pattern


@composite(surface=METHOD, samples="fb.eye(3).to_sparse()")
def indices(self):
    """The indices ``(sparse_dim, nnz)`` of a coalesced tensor in coordinates. Raises: RuntimeError for others."""
    array = _need_coo("indices", self)
    if not array.coalesced:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return without_history(array.indices)


@composite(surface=METHOD, samples="fb.eye(3).to_sparse(); fb.eye(3).to_sparse_csr()")
def values(self):
    """The values of a sparse tensor, in the same memory. Raises: RuntimeError for a dense tensor, and if it is not coalesced."""
    array = _need_sparse("values", self)
    if isinstance(array, CooArray) and not array.coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return values_of(self)


@composite(surface=METHOD, samples="fb.eye(3).to_sparse()")
def coalesce(self):
    """The same in coordinates that are sorted and each there once; values of the same place are added up."""
    _need_coo("coalesce", self)
    made = _coalesced(self)
    return made if made is self else titled(made, "CoalesceBackward0")


def _method(fn: Any) -> Any:
    setattr(Tensor, fn.__name__, fn)
    return fn


@_method
def is_coalesced(self: Tensor) -> bool:
    """Whether the coordinates are sorted and each there once, as far as is known. Raises: RuntimeError for other layouts."""
    return _need_coo("is_coalesced", self).coalesced


@_method
def _indices(self: Tensor) -> Tensor:
    """The indices, coalesced or not."""
    return without_history(_need_coo("_indices", self).indices)


@_method
def _values(self: Tensor) -> Tensor:
    """The values, coalesced or not, without history."""
    return without_history(_need_coo("_values", self).values)


@_method
def _nnz(self: Tensor) -> int:
    """The number of specified elements (of a batch each; of blocks)."""
    array = _need_sparse("_nnz", self)
    return array.parts[-2]._array.shape[-1]


@_method
def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    """Say whether the coordinates are sorted and each there once."""
    array = _need_coo("_coalesced_", self)
    self._array = CooArray(array.indices, array.values, array.shape, bool(coalesced))
    return self


@_method
def sparse_dim(self: Tensor) -> int:
    """How many dimensions are sparse; 0 for a dense tensor."""
    array = self._array
    return array.sparse_dim if isinstance(array, CooArray) else 2 if isinstance(array, CompressedArray) else 0


@_method
def dense_dim(self: Tensor) -> int:
    """How many dimensions are dense: all of a dense tensor."""
    array = self._array
    return array.ndim - sparse_dim(self) - (len(array.batch) if isinstance(array, CompressedArray) else 0)


Tensor._dimI, Tensor._dimV = sparse_dim, dense_dim  # type: ignore[attr-defined]


@_method
def crow_indices(self: Tensor) -> Tensor:
    """Where the elements of each row begin, and the last ends. Raises: RuntimeError unless rows are compressed."""
    return without_history(_need_compressed("crow_indices", self, _OF_ROWS, "row").parts[0])


@_method
def col_indices(self: Tensor) -> Tensor:
    """The columns of the elements. Raises: RuntimeError unless rows are compressed."""
    return without_history(_need_compressed("col_indices", self, _OF_ROWS, "row").parts[1])


@_method
def ccol_indices(self: Tensor) -> Tensor:
    """Where the elements of each column begin, and the last ends. Raises: RuntimeError unless columns are compressed."""
    return without_history(_need_compressed("ccol_indices", self, _OF_COLUMNS, "column").parts[0])


@_method
def row_indices(self: Tensor) -> Tensor:
    """The rows of the elements. Raises: RuntimeError unless columns are compressed."""
    return without_history(_need_compressed("row_indices", self, _OF_COLUMNS, "column").parts[1])


# -- conversions ----------------------------------------------------------------------------------------------------------


@composite(surface=METHOD, samples="fb.eye(3).to_sparse()", elements="mapped")
def to_dense(self, dtype: dtypes.dtype | None = None, *, masked_grad=True):
    """The tensor in strided memory; itself, if that is what it is.

    Args:
        dtype: of the result.
        masked_grad: whether its gradient has only the elements that this tensor has; else it is dense.
    """
    if not is_sparse(self):
        return self if dtype is None else self.to(dtype)
    if masked_grad is False and self._node is not None and _state.grad_enabled():
        made = _dense(without_history(self), dtype)
        made._node = new_node(_ToDense, (self._node,), (self.dtype,))
        return made
    made = _dense(self, dtype)
    if made._node is not None:
        made._node.__dict__["title"] = "ToDenseBackward0"
    return made


class _ToDense(tape.Node):
    """A sparse tensor made dense, whose gradient is dense too."""

    __slots__ = ()
    title = "ToDenseBackward0"

    def vjp(self, grad: Any) -> Any:
        return (grad.to(self.saved[0]),)


@composite(surface=METHOD, samples="x(2, 3); x(2, 3), 1; x(2, 3), layout=fb.sparse_csr")
def to_sparse(self, sparse_dim: int | None = None, *, layout=None, blocksize=None, dense_dim=None):
    """The tensor as a sparse one, with its non-zero elements.

    Args:
        sparse_dim: how many of the first dimensions are sparse, all by default, in coordinates.
        layout: coordinates by default, or a compressed layout.
        blocksize: two sizes, for layouts of blocks.
        dense_dim: how many of the last dimensions stay dense in a compressed layout.
    """
    if isinstance(sparse_dim, devices.layout):
        sparse_dim, layout = None, sparse_dim
    if sparse_dim is not None:
        if layout is not None or blocksize is not None or dense_dim is not None:
            raise RuntimeError("to_sparse: sparse_dim goes without layout, blocksize and dense_dim")
        if is_sparse(self):
            if sparse_dim != self.sparse_dim():
                raise RuntimeError(
                    "to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not supported"
                )
            return self
        if not 0 < int(sparse_dim) <= self.ndim and not (self.ndim == 0 and sparse_dim == 0):
            raise RuntimeError(f"to_sparse: sparse_dim must be from 1 to {self.ndim}, got {sparse_dim}")
        return to_coo(self, int(sparse_dim))
    layout = layout or devices.sparse_coo
    if layout in BLOCKED and blocksize is None and not is_sparse(self):
        raise RuntimeError(f"to_sparse: conversion from Strided to {NAMES[layout]} without blocksize argument given is not supported")
    if layout is devices.sparse_coo and not is_sparse(self) and dense_dim is not None:
        return to_coo(self, self.ndim - int(dense_dim))
    return to_layout("to_sparse", self, layout, blocksize, dense_dim)


@composite(surface=METHOD, samples="x(2, 3)")
def to_sparse_coo(self):
    """The tensor in coordinates."""
    return to_sparse.function(self)


@composite(surface=METHOD, samples="x(2, 3)")
def to_sparse_csr(self, dense_dim: int | None = None):
    """The tensor with compressed rows; the last `dense_dim` dimensions stay dense."""
    return to_layout("to_sparse_csr", self, devices.sparse_csr, None, dense_dim)


@composite(surface=METHOD, samples="x(2, 3)")
def to_sparse_csc(self, dense_dim: int | None = None):
    """The tensor with compressed columns; the last `dense_dim` dimensions stay dense."""
    return to_layout("to_sparse_csc", self, devices.sparse_csc, None, dense_dim)


def _of_blocks(blocksize: Any) -> Any:
    return (blocksize, blocksize) if isinstance(blocksize, int) else blocksize


@composite(surface=METHOD, samples="x(4, 4), (2, 2)")
def to_sparse_bsr(self, blocksize: int | Sequence[int], dense_dim: int | None = None):
    """The tensor with compressed rows of blocks, whose two sizes are `blocksize`; the last `dense_dim` dimensions stay dense."""
    return to_layout("to_sparse_bsr", self, devices.sparse_bsr, _of_blocks(blocksize), dense_dim)


@composite(surface=METHOD, samples="x(4, 4), (2, 2)")
def to_sparse_bsc(self, blocksize: int | Sequence[int], dense_dim: int | None = None):
    """The tensor with compressed columns of blocks, whose two sizes are `blocksize`; the last `dense_dim` dimensions stay dense."""
    return to_layout("to_sparse_bsc", self, devices.sparse_bsc, _of_blocks(blocksize), dense_dim)


@composite(surface=METHOD, samples="x(3, 3), fb.eye(3).to_sparse()")
def sparse_mask(self, mask):
    """The elements of this tensor where the sparse `mask` has values; a sparse tensor of that pattern.

    Raises: RuntimeError for shapes that differ, or a dense `mask`.
    """
    if not is_sparse(mask):
        raise RuntimeError(f"sparse_mask(): the mask tensor must be sparse, got the layout {mask.layout}")
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size {list(mask.shape)}"
        )
    array = pattern_of(mask)
    if isinstance(array, CooArray) and not array.coalesced and is_sparse(self):
        mask = _coalesced(mask)
    return with_values(mask, values_at(self, pattern_of(mask)))


@_method
def sparse_resize_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Change the shape of a tensor in coordinates, which keeps its values: sizes of sparse dimensions may grow.

    Args:
        size: the new shape, of `sparse_dim` sparse dimensions and `dense_dim` dense ones.
    Raises: RuntimeError where that would lose values or change the number of dimensions of a kind, unless there are none.
    """
    array = _need_coo("sparse_resize_", self)
    size = tuple(int(n) for n in size)
    _check_counts("sparse_resize_", size, sparse_dim, dense_dim)
    count = array.indices.shape[1]
    if count:
        have = array.sparse_dim, array.ndim - array.sparse_dim
        kinds = (("sparse", have[0], sparse_dim), ("dense", have[1], dense_dim))
        for what, before, after in kinds:
            if before != after:
                raise RuntimeError(
                    f"changing the number of {what} dimensions (from {before} to {after}) on a non-empty sparse tensor is not supported. "
                    "Make an empty one of that size with sparse_coo_tensor(size), or convert it"
                )
        for what, part in (("sparse", slice(0, sparse_dim)), ("dense", slice(sparse_dim, None))):
            old, new = array.shape[part], size[part]
            if any(m < n for m, n in zip(new, old, strict=True)):
                raise RuntimeError(
                    f"shrinking the size of {what} dimensions (from {list(old)} to {list(new)}) on a non-empty sparse tensor is not "
                    "supported. Make an empty one of that size with sparse_coo_tensor(size), or use sparse_resize_and_clear_"
                )
        values = array.values
        if tuple(size[sparse_dim:]) != tuple(values.shape[1:]):
            grown = values.new_zeros((count, *size[sparse_dim:]))
            grown[tuple(slice(0, n) for n in values.shape)] = values
            values = grown
        self._array = CooArray(array.indices, values, size, array.coalesced)
        bump(self)
        return self
    return sparse_resize_and_clear_(self, size, sparse_dim, dense_dim)


@_method
def sparse_resize_and_clear_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Remove all values of a tensor in coordinates and give it another shape.

    Args:
        size: the new shape, of `sparse_dim` sparse dimensions and `dense_dim` dense ones.
    """
    array = _need_coo("sparse_resize_and_clear_", self)
    size = tuple(int(n) for n in size)
    _check_counts("sparse_resize_and_clear_", size, sparse_dim, dense_dim)
    values = array.values.new_zeros((0, *size[sparse_dim:]))
    self._array = CooArray(wrap(np.zeros((sparse_dim, 0), np.int64)), values, size, True)
    bump(self)
    return self


def _check_counts(name: str, size: tuple[int, ...], sparse_dim: int, dense_dim: int) -> None:
    if sparse_dim + dense_dim != len(size):
        raise RuntimeError(
            f"{name}: number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}), but got {len(size)} "
            f"(size {list(size)})"
        )


# -- products -------------------------------------------------------------------------------------------------------------


def _need_matrix(name: str, mat: Tensor) -> None:
    if not is_sparse(mat):
        raise RuntimeError(f"{name}: expected a sparse matrix, got the layout {mat.layout} and shape {tuple(mat.shape)}")


def _rows_of_product(name: str, mat1: Tensor, mat2: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that `mat1` has elements in, and what they are in the product with the dense `mat2`."""
    _need_matrix(name, mat1)
    rows = OPS["unique"].function(to_coo(mat1)._indices()[0])
    return rows, rules.matrix_product(mat1, mat2).index_select(0, rows)


@composite(surface=FUNCTION | METHOD, samples="fb.eye(3).to_sparse(), x(3, 2)")
def smm(input, mat):
    """The product of a sparse matrix and a dense one as a sparse matrix: ``(n, m), (m, p) -> (n, p)``."""
    rows, product = _rows_of_product("smm", input, mat)
    return _of_rows(rows, product, input.shape[0])


def _of_rows(rows: Tensor, values: Tensor, count: int) -> Tensor:
    """A matrix of `count` rows in coordinates, with all elements of some `rows`."""
    width = values.shape[1]
    columns = arange(width, device=rows.device).repeat(rows.shape[0])
    return coo(OPS["stack"].function([rows.repeat_interleave(width), columns]), values.reshape(-1), (count, width))


@composite(surface=FUNCTION, samples="fb.eye(3).to_sparse(), x(3, 2)")
def hspmm(mat1, mat2):
    """The product of a sparse matrix and a dense one with its rows sparse and its columns dense: ``(n, m), (m, p) -> (n, p)``."""
    rows, product = _rows_of_product("hspmm", mat1, mat2)
    return coo(rows.unsqueeze(0), product, (mat1.shape[0], mat2.shape[1]))


@composite(surface=FUNCTION | METHOD, samples="fb.eye(3).to_sparse(), fb.eye(3).to_sparse(), x(3, 3)")
def sspaddmm(input, mat1, mat2, *, beta=1, alpha=1):
    """``beta * input + alpha * (mat1 @ mat2)`` as a sparse matrix, for sparse `input` and `mat1` and a dense `mat2`."""
    _need_matrix("sspaddmm", input)
    rows, product = _rows_of_product("sspaddmm", mat1, mat2)
    made = _of_rows(rows, product if alpha == 1 else product * alpha, mat1.shape[0])
    return rules._coo_sum(input if beta == 1 else input * beta, made, 1)


def _sparse_function(fn: Any, out: int = 0, **options: Any) -> Any:
    return composite(surface=FUNCTION | out, namespace="sparse", **options)(fn)


def _declare() -> None:
    def mm(mat1, mat2, reduce: str | None = None):
        """The product of two matrices, one of which is sparse at least; gradients of sparse ones are sparse.

        Args:
            mat1, mat2: ``(n, m)`` and ``(m, p)``, of one dtype.
            reduce: with compressed rows, how products are combined in each row: 'sum', 'mean', 'amax' or 'amin'.
        Raises: RuntimeError for shapes or dtypes that do not go together.

        >>> fb.sparse.mm(fb.eye(2).to_sparse(), fb.ones(2, 2))
        tensor([[1., 1.],
                [1., 1.]])
        """
        if reduce not in (None, "sum"):
            return _combined_product(mat1, mat2, reduce)
        if not (is_sparse(mat1) or is_sparse(mat2)):
            return OPS["mm"].function(mat1, mat2)
        made = rules.matrix_product(mat1, mat2)
        if made._node is not None:
            made._node.__dict__["title"] = "SparseAddmmBackward0"
        return made

    _sparse_function(mm, samples="fb.eye(3).to_sparse(), x(3, 2)")

    def addmm(mat, mat1, mat2, *, beta=1.0, alpha=1.0):
        """``beta * mat + alpha * (mat1 @ mat2)`` for a sparse `mat1`; the gradient of that is sparse."""
        return rules._added(mat, rules.matrix_product(mat1, mat2), beta, alpha)

    _sparse_function(addmm, samples="x(3, 2), fb.eye(3).to_sparse(), x(3, 2)")

    def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0):
        """``beta * input + alpha * (mat1 @ mat2)`` where the sparse `input` has elements, for dense `mat1` and `mat2`.

        Raises: RuntimeError for shapes that do not go together, or a dense `input`.
        """
        _need_matrix("sampled_addmm", input)
        return _sampled(input, mat1, mat2, beta, alpha)

    _sparse_function(sampled_addmm, out=OUT, samples="fb.eye(3).to_sparse_csr(), x(3, 2), x(2, 3)")

    def sum(input, dim: int | Sequence[int] | None = None, dtype: dtypes.dtype | None = None):
        """The sum of a sparse tensor over `dim`: sparse, if a sparse dimension is left; all of it by default.

        >>> fb.sparse.sum(fb.eye(2).to_sparse())
        tensor(2.)
        """
        if not is_sparse(input):
            raise RuntimeError(f"sparse.sum: expected a sparse tensor, got the layout {input.layout}")
        if dtype is None and dim is not None:
            dtype = input.dtype
        return rules.sum_of(input, dim, False, dtype)

    _sparse_function(sum, samples="fb.eye(3).to_sparse(), 0")

    def softmax(input, dim: int, *, dtype=None):
        """Softmax over `dim` of a tensor in coordinates, where elements that are not specified count as minus infinity."""
        return _softmax("softmax", input, dim, dtype, False)

    _sparse_function(softmax, samples="fb.eye(3).to_sparse(), 0")

    def log_softmax(input, dim: int, *, dtype=None):
        """The logarithm of `sparse.softmax`."""
        return _softmax("log_softmax", input, dim, dtype, True)

    _sparse_function(log_softmax, samples="fb.eye(3).to_sparse(), 0")

    def spdiags(diagonals, offsets, shape: Sequence[int], layout=None):
        """A sparse matrix of `shape` with the rows of `diagonals` along the diagonals `offsets`.

        Args:
            diagonals: ``(n, k)`` or ``(k)``; number j of a row goes to column j.
            offsets: ``(n)`` or one integer: above the main diagonal where positive.
            layout: coordinates by default, or `sparse_csr` or `sparse_csc`.
        Raises: RuntimeError for offsets that occur twice, and for another number of them.

        >>> fb.sparse.spdiags(fb.tensor([1.0, 2.0, 3.0]), fb.tensor([1]), (2, 3)).to_dense()
        tensor([[0., 2., 0.],
                [0., 0., 3.]])
        """
        return _spdiags(diagonals, offsets, shape, layout)

    _sparse_function(spdiags, samples="x(2, 3), fb.tensor([0, 1]), (3, 3)")

    def spsolve(input, other, *, left=True):
        """The solution x of ``input @ x = other``, for a square sparse matrix and a dense vector ``(n)``; of ``x @ input`` if not `left`.

        It has no derivative. Raises: RuntimeError for other shapes, and for a matrix without an inverse.
        """
        return _spsolve(input, other, left)

    _sparse_function(spsolve, samples="fb.eye(3).to_sparse_csr(), x(3)")


_declare()


def _combined_product(mat1: Tensor, mat2: Tensor, reduce: str) -> Tensor:
    if reduce not in ("mean", "amax", "amin"):
        raise RuntimeError(f"sparse.mm: reduce argument must be either sum, mean, amax or amin, got {reduce}")
    if mat1.layout is not devices.sparse_csr or is_sparse(mat2):
        raise RuntimeError(
            f"sparse.mm: reduce={reduce!r} is for a matrix with compressed rows and a dense one, got {mat1.layout} and {mat2.layout}"
        )
    rules._check_matrices("sparse.mm", mat1, mat2)
    values, rows, columns = rules._elements(mat1)
    if reduce == "mean":
        counts = np.bincount(rows._array, minlength=mat1.shape[0])
        total = OPS["sparse_dense_product"].function(values, rows, columns, mat2, mat1.shape[0])
        return total / wrap(np.maximum(counts, 1)[:, None]).to(total.dtype)
    each = values.unsqueeze(1) * mat2.index_select(0, columns)
    return mat2.new_zeros((mat1.shape[0], mat2.shape[1])).index_reduce(0, rows, each, reduce, include_self=False)


def _sampled(input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor:
    if is_sparse(mat1) or is_sparse(mat2):
        raise RuntimeError("sampled_addmm: expected mat1 and mat2 to be dense")
    if mat1.shape[-1] != mat2.shape[-2] or (*mat1.shape[:-1], mat2.shape[-1]) != tuple(input.shape):
        raise RuntimeError(
            f"sampled_addmm: mat1 {tuple(mat1.shape)} and mat2 {tuple(mat2.shape)} must have a product of the shape of self "
            f"{tuple(input.shape)}"
        )
    own = values_of(input)
    if mat1.ndim > 2:
        found = values_at(mat1 @ mat2, pattern_of(input))
    else:
        rows, columns = (np.ascontiguousarray(p) for p in np.broadcast_arrays(*places(pattern_of(input))))
        found = OPS["products_at"].function(mat1, wrap(rows.reshape(-1)), mat2.t(), wrap(columns.reshape(-1))).reshape(own.shape)
    found = found if alpha == 1 else found * alpha
    return with_values(input, found if beta == 0 else found + (own if beta == 1 else own * beta))


def _softmax(name: str, input: Tensor, dim: int, dtype: Any, logarithm: bool) -> Tensor:
    array = _need_coo(name, input)
    if dtype is not None:
        input = input.to(dtype)
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"sparse.{name}: not implemented for {input.dtype}; convert it to a floating dtype")
    x = _coalesced(input)
    array, values = pattern_of(x), values_of(x)
    dim = wrap_dim(dim, array.ndim)
    n = array.sparse_dim
    if dim >= n:
        return with_values(x, getattr(values, name)(dim - n + 1))
    where = np.delete(host(name, array.indices)[0], dim, axis=0)
    flat = flat_places(name, where, tuple(s for d, s in enumerate(array.shape[:n]) if d != dim))
    if len(flat) and (flat[1:] >= flat[:-1]).all():  # along the last dimension
        groups = np.zeros(len(flat), np.int64)
        np.cumsum(flat[1:] > flat[:-1], out=groups[1:])
    else:
        groups = np.unique(flat, return_inverse=True)[1].reshape(-1)
    count = int(groups.max()) + 1 if len(flat) else 0
    made = OPS["log_softmax_of_groups" if logarithm else "softmax_of_groups"].function(values, wrap(np.ascontiguousarray(groups)), count)
    return with_values(x, made)


def _spdiags(diagonals: Tensor, offsets: Any, shape: Any, layout: Any) -> Tensor:
    diagonals = diagonals if diagonals.ndim == 2 else diagonals.unsqueeze(0)
    steps, _ = host("spdiags", as_tensor(offsets), diagonals)
    steps = steps.reshape(-1)
    shape = tuple(int(n) for n in shape)
    if len(shape) != 2:
        raise RuntimeError(f"Output shape must be 2d, got {shape}")
    if len(steps) != diagonals.shape[0]:
        raise RuntimeError(f"Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets ({len(steps)})")
    if len(np.unique(steps)) != len(steps):
        raise RuntimeError("Offset tensor contains duplicate values")
    if layout not in (None, devices.sparse_coo, devices.sparse_csr, devices.sparse_csc):
        raise RuntimeError(f"Only output layouts (sparse_coo, sparse_csc, sparse_csr) are supported, got {layout}")
    rows, columns, source = [], [], []
    for i, step in enumerate(steps.tolist()):
        at = np.arange(max(step, 0), min(shape[1], diagonals.shape[1], shape[0] + step))
        rows.append(at - step)
        columns.append(at)
        source.append(at + i * diagonals.shape[1])
    indices = np.stack((np.concatenate(rows), np.concatenate(columns))) if rows else np.zeros((2, 0), np.int64)
    values = diagonals.reshape(-1).index_select(0, wrap(np.concatenate(source) if source else np.zeros(0, np.int64)))
    made = coo(wrap(indices), values, shape)
    return made if layout in (None, devices.sparse_coo) else to_layout("spdiags", made, layout)


def _spsolve(input: Tensor, other: Tensor, left: bool) -> Tensor:
    _need_matrix("spsolve", input)
    if input.ndim != 2 or input.shape[0] != input.shape[1]:
        raise RuntimeError(f"spsolve: expected a square matrix, got shape {tuple(input.shape)}")
    if other.ndim != 1 or other.shape[0] != input.shape[0]:
        raise RuntimeError(f"spsolve: expected a vector of {input.shape[0]} numbers, got shape {tuple(other.shape)}")
    from scipy import sparse
    from scipy.sparse.linalg import MatrixRankWarning, spsolve

    from .._spec.history import without_derivative

    values, rows, columns = rules._elements(input)
    matrix = sparse.coo_matrix((values._array, (rows._array, columns._array)), tuple(input.shape)).tocsc()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", MatrixRankWarning)
        try:
            found = spsolve(matrix if left else matrix.T.tocsc(), host("spsolve", other)[0])
        except MatrixRankWarning:
            raise RuntimeError(f"spsolve: the matrix of shape {tuple(input.shape)} is singular") from None
    return without_derivative("spsolve", wrap(np.ascontiguousarray(found, other._array.dtype)), input, other)


__all__ = ["FUNCTIONS", "empty_like_of", "zeros_like_of", "zeros_of"]
