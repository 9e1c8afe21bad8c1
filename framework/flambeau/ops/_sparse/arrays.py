"""The arrays of sparse tensors, and what connects a sparse tensor with its values in the history.

A sparse tensor is a pattern, which says where elements are specified, and a tensor of their values. What operations compute is
computed of values, so two nodes are all that the tape needs: one for the values that were taken of a sparse tensor, and one for a
sparse tensor that was made of values. The gradient of a sparse tensor is one of the same pattern.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ... import _state, devices
from ..._kinds import KindArray
from ...autograd import engine
from ...autograd.making import new_node
from ...autograd.tape import Node
from ...tensor import Tensor, ndarray, without_history, wrap
from .._spec.shapes import host_only

__all__ = [
    "BLOCKED", "BY_ROWS", "COMPRESSED", "CompressedArray", "CooArray", "SparseArray", "compressed", "coo", "is_sparse", "pattern_of",
    "places", "titled", "values_of", "with_values",
]  # fmt: skip

COMPRESSED = (devices.sparse_csr, devices.sparse_csc, devices.sparse_bsr, devices.sparse_bsc)
BY_ROWS = (devices.sparse_csr, devices.sparse_bsr)
BLOCKED = (devices.sparse_bsr, devices.sparse_bsc)


class SparseArray(KindArray):
    """The last of `parts` are the values; what comes before says where they are."""

    __slots__ = ()
    kind = "sparse"

    @property
    def values(self) -> Tensor:
        return self.parts[-1]

    def answer(self, op: Any, args: tuple[Any, ...], target: Any = None, inplace: bool = False) -> Any:
        from .answer import answer

        return answer(op, args, target, inplace)

    def store(self, name: str, target: Tensor, result: Tensor) -> Tensor:
        from .answer import store

        return store(name, target, result)

    def plain(self, name: str) -> Tensor:
        from .layouts import to_dense

        return to_dense(wrap(self))

    def text(self, tensor: Any) -> str:
        from .text import text

        return text(tensor)

    def zeros(self, dtype: Any, place: Any) -> Tensor:
        from ..kinds.sparse import zeros_like_of

        return zeros_like_of(wrap(self), dtype, place)

    def over(self, values: Tensor) -> SparseArray:
        """This pattern with other `values`, which may have another dtype."""
        raise NotImplementedError

    def copy(self) -> SparseArray:
        raise NotImplementedError


class CooArray(SparseArray):
    """Coordinates: `parts` are indices ``(sparse_dim, nnz)`` and values ``(nnz, *dense)``."""

    __slots__ = ("coalesced",)

    def __init__(self, indices: Tensor, values: Tensor, shape: tuple[int, ...], coalesced: bool) -> None:
        super().__init__(shape, values._array.dtype, (indices, values))
        self.coalesced = coalesced

    layout = devices.sparse_coo  # pyright: ignore[reportAssignmentType]  # the same for all

    @property
    def indices(self) -> Tensor:
        return self.parts[0]

    @property
    def sparse_dim(self) -> int:
        return self.parts[0]._array.shape[0]

    def over(self, values: Tensor) -> CooArray:
        return CooArray(self.parts[0], values, self.shape, self.coalesced)

    def copy(self) -> CooArray:
        return CooArray(self.parts[0].clone(), self.parts[1].clone(), self.shape, self.coalesced)

    def rebuilding(self) -> tuple[Any, tuple[Any, ...]]:
        return coo, (*self.parts, self.shape, self.coalesced)


class CompressedArray(SparseArray):
    """Rows or columns compressed, see the documentation of PyTorch's layouts.

    `parts` are the compressed indices ``(*batch, n + 1)``, the plain ones ``(*batch, nnz)`` and values
    ``(*batch, nnz, *block, *dense)``.
    """

    __slots__ = ("form",)

    def __init__(self, form: Any, parts: tuple[Tensor, ...], shape: tuple[int, ...]) -> None:
        super().__init__(shape, parts[2]._array.dtype, parts)
        self.form = form

    @property
    def layout(self) -> Any:
        return self.form

    def empty(self, dtype: Any, place: Any) -> Tensor:
        from ..kinds.sparse import empty_like_of

        return empty_like_of(wrap(self), dtype, place)

    @property
    def by_rows(self) -> bool:
        return self.form in BY_ROWS

    @property
    def batch(self) -> tuple[int, ...]:
        return self.parts[0]._array.shape[:-1]

    @property
    def block(self) -> tuple[int, ...]:
        """The two sizes of blocks; none for layouts without."""
        at = len(self.batch) + 1
        return self.parts[2]._array.shape[at : at + 2] if self.form in BLOCKED else ()

    def over(self, values: Tensor) -> CompressedArray:
        return CompressedArray(self.form, (*self.parts[:2], values), self.shape)

    def copy(self) -> CompressedArray:
        return CompressedArray(self.form, tuple(part.clone() for part in self.parts), self.shape)

    def rebuilding(self) -> tuple[Any, tuple[Any, ...]]:
        return compressed, (self.form, self.parts, self.shape)


def is_sparse(x: Any) -> bool:
    """Whether `x` is a sparse tensor of some layout."""
    return isinstance(x, Tensor) and isinstance(x._array, SparseArray)


def pattern_of(x: Tensor) -> Any:
    """The parts of the sparse tensor `x`, which are Tensors; of a dense one the array, which is no `SparseArray`."""
    return x._array


# -- a history through values --------------------------------------------------------------------------------------------


class _Values(Node):
    """The values of a sparse tensor: their gradient is sparse, with the same pattern, of which each place is there once.

    Values of the same place, which are to be added up, have the same gradient. Were it there for each, the gradient of the tensor would
    be as many times as large.
    """

    __slots__ = ()
    title = "ValuesBackward0"
    has_array_vjp = True

    def vjp_on_arrays(self, grad: Any) -> Any:
        pattern = self.saved[0]
        if grad.__class__ is not ndarray or _first_of_places(pattern) is not None:
            return engine.through_tensors(self, grad)
        return (pattern.over(wrap(grad)),)

    def vjp(self, grad: Any) -> Any:
        pattern = self.saved[0]
        first = _first_of_places(pattern)
        if first is None:
            return (_made(pattern.over(without_history(grad)), grad),)
        indices = wrap(np.ascontiguousarray(pattern.indices._array[:, first]))
        return (coo(indices, grad.index_select(0, wrap(first)), pattern.shape, True),)


def _first_of_places(array: Any) -> Any:
    """Which values of `array` are the first of their places, which these put in order; None where no place is there twice."""
    if not isinstance(array, CooArray) or array.coalesced or array.indices._array.__class__ is not ndarray:
        return None
    from .layouts import flat_places

    indices = array.indices._array
    flat = flat_places("backward", indices, array.shape[: len(indices)])
    if (flat[1:] > flat[:-1]).all():
        return None
    ordered = np.sort(flat)
    if (ordered[1:] > ordered[:-1]).all():
        return None
    return np.unique(flat, return_index=True)[1]


class _Made(Node):
    """A sparse tensor made of values: their gradient is taken out where they are."""

    __slots__ = ()
    title = "SparseTensorBackward0"
    has_array_vjp = True

    def vjp_on_arrays(self, grad: Any) -> Any:
        pattern = self.saved[0]
        if isinstance(grad, SparseArray) and all(map(operator.is_, grad.parts[:-1], pattern.parts[:-1])):
            return (grad.values._array,)
        return engine.through_tensors(self, grad)

    def vjp(self, grad: Any) -> Any:
        from .layouts import values_at

        return (values_at(grad, self.saved[0]),)


def _attach(node_class: Any, made: Tensor, source: Tensor, pattern: Any) -> None:
    if source._node is not None and _state.grad_enabled():
        made._node = new_node(node_class, (source._node,), (pattern,))


def values_of(x: Tensor) -> Tensor:
    """The values of the sparse tensor `x`, in the same memory, with its history."""
    made = without_history(x._array.values)
    _attach(_Values, made, x, x._array)
    return made


def _made(array: SparseArray, values: Tensor) -> Tensor:
    """The sparse tensor of `array`, with the history of `values`."""
    made = wrap(array)
    _attach(_Made, made, values, array)
    return made


def titled(made: Any, title: str) -> Any:
    """`made`, whose node is shown under the name `title` if it has one."""
    if made._node is not None and isinstance(made._node, (_Made, _Values)):
        made._node.__dict__["title"] = title
    return made


def coo(indices: Tensor, values: Tensor, shape: Any, coalesced: bool = False) -> Tensor:
    """The tensor of `shape` with `values` ``(nnz, *dense)`` at `indices` ``(sparse_dim, nnz)``; nothing is checked."""
    array = CooArray(without_history(indices), without_history(values), tuple(int(n) for n in shape), coalesced)
    return _made(array, values)


def compressed(form: Any, parts: tuple[Tensor, ...], shape: Any) -> Tensor:
    """The tensor of the layout `form` and of `shape`; `parts` are compressed and plain indices and values. Nothing is checked."""
    plain = tuple(without_history(x) for x in parts)
    return _made(CompressedArray(form, plain, tuple(int(n) for n in shape)), parts[2])


def with_values(x: Tensor, values: Tensor) -> Tensor:
    """A sparse tensor with the pattern of `x` and other `values`, whose history it has."""
    return _made(x._array.over(without_history(values)), values)


# -- where values are ----------------------------------------------------------------------------------------------------


def host(name: str, *tensors: Tensor) -> list[Any]:
    """The arrays of index tensors. Raises: NotImplementedError for those of a device."""
    host_only(name, *tensors)
    return [t._array for t in tensors]


def places(array: Any) -> tuple[Any, ...]:
    """Where the values of `array` are: an index array for each sparse dimension, which broadcast to the shape of the values."""
    if isinstance(array, CooArray):
        at = host("sparse", array.indices)[0]
        if at.size and at.min() < 0:                  # which would count from the end
            raise RuntimeError(f"found negative index {at.min()} in a sparse tensor; make it with check_invariants=True")
        return tuple(at)
    starts, plain = host("sparse", array.parts[0], array.parts[1])
    batch, block = array.batch, array.block
    major = majors(starts, plain.shape[-1])
    rows, columns = (major, plain) if array.by_rows else (plain, major)
    rows, columns = rows.astype(np.int64, copy=False), columns.astype(np.int64, copy=False)
    if block:
        rows = rows[..., None, None] * block[0] + np.arange(block[0])[:, None]
        columns = columns[..., None, None] * block[1] + np.arange(block[1])
    leading = [
        np.arange(n).reshape([n if d == i else 1 for d in range(len(batch))] + [1] * (rows.ndim - len(batch)))
        for i, n in enumerate(batch)
    ]
    return (*leading, rows, columns)


def majors(starts: Any, count: int) -> Any:
    """The row (or column) of each of `count` elements ``(*batch, count)``, of where rows begin ``(*batch, n + 1)``."""
    n = starts.shape[-1] - 1
    counts = np.diff(starts)
    if (counts < 0).any() or (counts.sum(-1) != count).any():
        raise RuntimeError(
            f"the compressed indices of a sparse tensor do not share out its {count} elements: {starts.tolist()!s:.80}; make it with "
            "check_invariants=True"
        )
    if starts.ndim == 1:
        return np.repeat(np.arange(n), counts)
    flat = starts.reshape(-1, n + 1)
    made = np.empty((len(flat), count), np.int64)
    for i, each in enumerate(flat):
        made[i] = np.repeat(np.arange(n), np.diff(each))
    return made.reshape(*starts.shape[:-1], count)


def index_tensors(arrays: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """`places` as tensors, to index with."""
    return tuple(wrap(np.ascontiguousarray(a)) for a in arrays)
