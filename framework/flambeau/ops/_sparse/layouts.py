"""Conversions: between sparse layouts and to strided memory and back, and the elements of one tensor where another has some."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ... import devices
from ...tensor import Tensor, wrap
from .arrays import (
    BLOCKED,
    BY_ROWS,
    COMPRESSED,
    CooArray,
    SparseArray,
    compressed,
    coo,
    host,
    index_tensors,
    pattern_of,
    places,
    values_of,
    with_values,
)  # fmt: skip

NAMES = {
    devices.sparse_coo: "Sparse", devices.sparse_csr: "SparseCsr", devices.sparse_csc: "SparseCsc", devices.sparse_bsr: "SparseBsr",
    devices.sparse_bsc: "SparseBsc", devices.strided: "Strided",
}  # fmt: skip


def flat_places(name: str, indices: Any, shape: tuple[int, ...]) -> Any:
    """One number for each column of `indices` ``(d, nnz)``, in the order of elements of `shape` in memory."""
    if prod(shape) >= 1 << 63:
        raise NotImplementedError(f"{name}: sparse dimensions {tuple(shape)} have 2**63 places or more, which are not numbered")
    flat = np.zeros(indices.shape[1], np.int64)
    for at, n in zip(indices, shape, strict=True):
        flat *= n
        flat += at
    return flat


def coalesce(x: Tensor) -> Tensor:
    """`x` in coordinates sorted, each once; values of the same place are added up in the order they have."""
    array = pattern_of(x)
    if array.coalesced:
        return x
    indices = host("coalesce", array.indices)[0]
    sizes = array.shape[: len(indices)]
    flat = flat_places("coalesce", indices, sizes)
    if len(flat) < 2 or (flat[1:] > flat[:-1]).all():
        return coo(array.indices, values_of(x), array.shape, True)
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    values = values_of(x).index_select(0, wrap(order))
    if not first.all():
        values = added_up(values, np.cumsum(first) - 1, int(first.sum()))
    return coo(wrap(np.ascontiguousarray(indices[:, order[first]])), values, array.shape, True)


def added_up(values: Tensor, groups: Any, count: int) -> Tensor:
    """`values` ``(n, *)`` of each group added up: ``(count, *)``; of bools, whether one is True."""
    if values.dtype.name == "bool":
        return added_up(values.to(_UINT8), groups, count) != 0
    return values.new_zeros((count, *values.shape[1:])).index_add(0, wrap(np.ascontiguousarray(groups)), values)


def to_dense(x: Tensor, dtype: Any = None) -> Tensor:
    """The sparse tensor `x` in strided memory; values of the same place are added up."""
    array = pattern_of(x)
    values = values_of(x)
    if dtype is not None:
        values = values.to(dtype)
    if values.dtype.name == "bool":
        return to_dense(with_values(x, values.to(_UINT8))) != 0
    where = places(array)
    made = values.new_zeros(array.shape)
    if not where:                                     # a tensor without dimensions
        return made + values.sum(0)
    return made.index_put(index_tensors(where), values, True)


def values_at(source: Tensor, array: Any) -> Tensor:
    """The elements of `source`, dense or sparse, where the sparse `array` has values, in their shape."""
    have = source._array
    if isinstance(have, SparseArray):
        same = len(have.parts) == len(array.parts)
        if same and all(a._array is b._array for a, b in zip(have.parts[:-1], array.parts[:-1], strict=True)):
            return values_of(source)
        return _values_found(coalesce(to_coo(source)), array)
    where = places(array)
    if not where:
        return source.expand(array.parts[0].shape[1]) if array.parts[0].shape[1] != 1 else source.reshape(1)
    return source[index_tensors(where)]


def _values_found(source: Tensor, array: Any) -> Tensor:
    """`values_at` for a coalesced `source`: 0 where it has no element."""
    have = pattern_of(source)
    wanted = np.stack(np.broadcast_arrays(*places(array))) if have.sparse_dim else np.zeros((0, array.parts[0].shape[1]), np.int64)
    lead = wanted.shape[1:]
    sizes = have.shape[: have.sparse_dim]
    values = values_of(source)
    keys = flat_places("sparse_mask", host("sparse_mask", have.indices)[0], sizes)
    asked = flat_places("sparse_mask", wanted.reshape(len(wanted), -1), sizes)
    if not len(keys):
        return values.new_zeros((*lead, *values.shape[1:]))
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    found = wrap((keys[at] == asked).reshape(-1, *[1] * (values.ndim - 1)))
    picked = values.index_select(0, wrap(at))
    return picked.masked_fill(found.logical_not(), 0).reshape(*lead, *values.shape[1:])


# -- to coordinates ------------------------------------------------------------------------------------------------------


def to_coo(x: Tensor, sparse_dim: int | None = None) -> Tensor:
    """`x`, of any layout, in coordinates; a dense tensor's first `sparse_dim` dimensions become sparse, all by default."""
    array = x._array
    if isinstance(array, CooArray):
        return x
    if isinstance(array, SparseArray):
        where = places(array)
        values = values_of(x)
        lead = np.broadcast_shapes(*(w.shape for w in where))
        indices = np.stack([np.broadcast_to(w, lead).reshape(-1) for w in where])
        made = coo(wrap(indices), values.reshape(-1, *values.shape[len(lead) :]), array.shape)
        return coalesce(made)
    dims = x.ndim if sparse_dim is None else sparse_dim
    mask = x != 0
    if dims < x.ndim:
        mask = mask.flatten(dims).any(dims)
    where = np.stack(np.nonzero(host("to_sparse", mask)[0])) if dims else np.zeros((0, 1), np.int64)
    if not dims:
        return coo(wrap(where), x.reshape(1, *x.shape), x.shape, True)
    return coo(wrap(where), x[index_tensors(tuple(where))], x.shape, True)


# -- to compressed layouts -----------------------------------------------------------------------------------------------


def to_compressed(name: str, x: Tensor, form: Any, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """`x`, of any layout, as `form`.

    Args:
        blocksize: two sizes, for layouts of blocks.
        dense_dim: how many of the last dimensions of a strided `x` stay dense.
    """
    if form in BLOCKED:
        blocksize = _block_of(name, x, form, blocksize, dense_dim or 0)
    elif blocksize is not None:
        raise RuntimeError(f"{name}: conversion to {NAMES[form]} does not use blocksize, got {tuple(blocksize)}")
    array = x._array
    if not isinstance(array, SparseArray):
        return _compress_strided(name, x, form, blocksize or (), dense_dim or 0)
    if dense_dim is not None:
        raise RuntimeError(f"{name}: dense_dim argument is not used when the input is sparse, got dense_dim={dense_dim}")
    if array.layout is form and (form not in BLOCKED or array.block == blocksize):
        return x
    if isinstance(array, CooArray):
        if array.sparse_dim != 2:
            raise RuntimeError(f"{name}: Only tensors with two sparse dimensions can be converted to {form}, got {array.sparse_dim}")
        return _compress(coalesce(x), form, blocksize or ())
    if not array.batch:
        return _compress(to_coo(x), form, blocksize or ())
    return _each_of_batch(name, x, lambda one: to_compressed(name, one, form, blocksize or None))


def _block_of(name: str, x: Tensor, form: Any, blocksize: Any, dense_dim: int) -> tuple[int, int]:
    if blocksize is None or len(tuple(blocksize)) != 2:
        have = x._array
        if blocksize is None and isinstance(have, SparseArray) and have.layout in BLOCKED:
            return tuple(have.block)  # pyright: ignore[reportAttributeAccessIssue]  # a compressed array's
        raise RuntimeError(f"{name}: conversion to {NAMES[form]} needs a blocksize of two numbers, got {blocksize}")
    block = tuple(int(n) for n in blocksize)
    last = (x.shape[: x.ndim - dense_dim] if dense_dim else x.shape)[-2:]
    if min(block) < 1 or any(n % b for n, b in zip(last, block, strict=True)):
        raise RuntimeError(f"{name}: tensor sparse size ({last[0]},{last[1]}) must be divisible by given blocksize ({block[0]},{block[1]})")
    return block  # pyright: ignore[reportReturnType]  # two of them


def _compress(x: Tensor, form: Any, block: tuple[int, ...]) -> Tensor:
    """A coalesced matrix in coordinates as `form`."""
    array = pattern_of(x)
    rows, columns = host("to_sparse", array.indices)[0]
    values = values_of(x)
    by_rows = form in BY_ROWS
    count = array.shape[0 if by_rows else 1]
    if block:
        height, width = block
        tall, wide = rows // height, columns // width
        count //= height if by_rows else width
        across = array.shape[1] // width if by_rows else array.shape[0] // height
        keys, inverse = np.unique(tall * across + wide if by_rows else wide * across + tall, return_inverse=True)
        major, plain = keys // max(across, 1), keys % max(across, 1)
        blocks = values.new_zeros((len(keys), height, width, *values.shape[1:]))
        values = blocks.index_put(index_tensors((inverse.reshape(-1), rows % height, columns % width)), values, True)
    elif by_rows:
        major, plain = rows, columns
    else:
        order = np.argsort(columns, kind="stable")
        major, plain = columns[order], rows[order]
        values = values.index_select(0, wrap(order))
    return compressed(form, (wrap(starts_of(major, count)), wrap(np.ascontiguousarray(plain)), values), array.shape)


def starts_of(major: Any, count: int) -> Any:
    """Where each of `count` rows begins among their sorted numbers, and where the last ends: ``(count + 1,)``."""
    made = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(major, minlength=count), out=made[1:])
    return made


def _compress_strided(name: str, x: Tensor, form: Any, block: tuple[int, ...], dense_dim: int) -> Tensor:
    lead = x.ndim - 2 - dense_dim
    if lead < 0:
        raise RuntimeError(f"{name}: dense_dim argument must be in [0,{x.ndim - 2}] range, but got {dense_dim}")
    batch, dense = tuple(x.shape[:lead]), tuple(x.shape[lead + 2 :])
    height, width = block or (1, 1)
    tall, wide = x.shape[lead] // height, x.shape[lead + 1] // width
    each = x.reshape(-1 if x.numel() else prod(batch), tall, height, wide, width, *dense).transpose(2, 3)
    if form not in BY_ROWS:
        each = each.transpose(1, 2)                   # (batch, columns, rows, height, width, *dense)
    mask = host(name, (each != 0).flatten(3).any(3))[0]
    counts = mask.sum((1, 2))
    if batch and len(set(counts.tolist())) > 1:
        raise RuntimeError(f"{name}: Expect the same number of specified elements per batch, got {counts.tolist()}")
    at = np.nonzero(mask)
    values = each[index_tensors(at)]
    if not block:
        values = values.reshape(len(at[0]), *dense)
    nnz = int(counts[0]) if len(counts) else 0
    starts = np.zeros((len(mask), mask.shape[1] + 1), np.int64)
    np.cumsum(mask.sum(2), axis=1, out=starts[:, 1:])
    parts = (
        wrap(starts.reshape(*batch, mask.shape[1] + 1)), wrap(np.ascontiguousarray(at[2].reshape(*batch, nnz))),
        values.reshape(*batch, nnz, *values.shape[1:]),
    )  # fmt: skip
    return compressed(form, parts, x.shape)


def one_of_batch(x: Tensor, at: int) -> Tensor:
    """Number `at` of the matrices in the batch, counted in the order of memory, of a compressed `x`."""
    array = pattern_of(x)
    count = len(array.batch)
    parts = tuple(part.reshape(-1, *part.shape[count:])[at] for part in (*array.parts[:2], values_of(x)))
    return compressed(array.form, parts, array.shape[count:])


def _each_of_batch(name: str, x: Tensor, fn: Any) -> Tensor:
    """``fn`` of each matrix in the batch of a compressed `x`, put together again."""
    from ..shapes.join import stack

    batch = pattern_of(x).batch
    made = [fn(one_of_batch(x, i)) for i in range(prod(batch))]
    sizes = {m._array.values.shape for m in made}
    if len(sizes) != 1:
        raise RuntimeError(f"{name}: Expect the same number of specified elements per batch, got {sorted(s[0] for s in sizes)}")
    parts = []
    for i in range(3):
        each = [values_of(m) if i == 2 else m._array.parts[i] for m in made]
        stacked = stack.function(each)
        parts.append(stacked.reshape(*batch, *stacked.shape[1:]))
    return compressed(made[0]._array.form, tuple(parts), pattern_of(x).shape)


def to_layout(name: str, x: Tensor, form: Any, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """`x` in the layout `form`."""
    if form in COMPRESSED:
        return to_compressed(name, x, form, blocksize, dense_dim)
    if form is devices.sparse_coo:
        if blocksize is not None:
            raise RuntimeError(f"{name}: blocksize is for layouts of blocks, got {tuple(blocksize)} for {form}")
        return coalesce(to_coo(x)) if not isinstance(x._array, CooArray) else x
    if form is devices.strided:
        return to_dense(x) if isinstance(x._array, SparseArray) else x
    raise RuntimeError(f"{name}: there is no layout {form!r} to convert to")


def like(x: Tensor, y: Tensor) -> Tensor:
    """`x` in the layout of the sparse tensor `y`."""
    array = pattern_of(y)
    if isinstance(array, CooArray):
        return to_coo(x)
    return to_compressed("sparse", x, array.form, array.block or None)


def _uint8() -> Any:
    from ... import dtypes

    return dtypes.uint8


_UINT8 = _uint8()
