"""What has to hold for the parts of a sparse tensor, and whether it is checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._state import local
from ...tensor import Tensor
from .arrays import BLOCKED, BY_ROWS, host

__all__ = ["check_compressed", "check_coo", "is_checked", "set_checked"]


def is_checked(asked: bool | None = None) -> bool:
    """Whether parts are checked: as `asked`, or as this thread has it."""
    return bool(local.checks_sparse) if asked is None else bool(asked)


def set_checked(value: bool) -> None:
    local.checks_sparse = value


def check_coo(indices: Tensor, values: Tensor, shape: tuple[int, ...], coalesced: bool) -> None:
    """Raise RuntimeError where an index is outside of `shape`, or indices are said to be `coalesced` and are not."""
    at = host("sparse_coo_tensor", indices)[0]
    if at.size:
        for d, (low, high) in enumerate(zip(at.min(1), at.max(1), strict=True)):
            if low < 0:
                raise RuntimeError(f"found negative index {low} for dim {d}")
            if high >= shape[d]:
                raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {shape[d]} but found index {high}")
    if coalesced:
        from .layouts import flat_places

        flat = flat_places("sparse_coo_tensor", at, shape[: len(at)])
        if (flat[1:] <= flat[:-1]).any():
            raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")


def check_sizes(indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> None:
    """Raise RuntimeError where the shapes of the parts of a tensor in coordinates do not go together."""
    if indices.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    sparse_dim, dense_dim = indices.shape[0], values.ndim - 1
    if values.ndim < 1 or indices.shape[1] != values.shape[0]:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {indices.shape[1]}, nnz from values: "
            f"{values.shape[0] if values.ndim else 'none'}"
        )
    if len(shape) != sparse_dim + dense_dim:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = {sparse_dim}, "
            f"dense_dim = {dense_dim}"
        )
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(shape)}")
    if tuple(values.shape[1:]) != tuple(shape[sparse_dim:]):
        raise RuntimeError(
            f"values has incorrect size, expected {[indices.shape[1], *shape[sparse_dim:]]}, got {list(values.shape)}"
        )


def check_compressed(form: Any, compressed: Tensor, plain: Tensor, values: Tensor, shape: tuple[int, ...]) -> None:
    """Raise RuntimeError where the parts of a compressed tensor do not make one."""
    by_rows = form in BY_ROWS
    comp, other = ("crow_indices", "col_indices") if by_rows else ("ccol_indices", "row_indices")
    along = "rows" if by_rows else "columns"
    batch, blocks = compressed.ndim - 1, 2 * (form in BLOCKED)
    dense = values.ndim - batch - 1 - blocks
    if compressed.ndim < 1 or plain.ndim != compressed.ndim:
        raise RuntimeError(f"{comp} and {other} dimensionalities must be equal but got {compressed.ndim} and {plain.ndim}, respectively")
    if dense < 0:
        raise RuntimeError(
            f"values must have dimensionality > sum of batch and block dimensionalities (={batch} + {blocks}) but got {values.ndim}"
        )
    if len(shape) != batch + 2 + dense:
        raise RuntimeError(
            f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (={batch} + 2 + {dense}) but got {len(shape)}"
        )
    for dtype in (compressed.dtype, plain.dtype):
        if dtype.name not in ("int32", "int64"):
            raise RuntimeError(f"{comp} and {other} must be an int32 or int64 type, but got: {dtype.name}")
    if compressed.dtype is not plain.dtype:
        raise RuntimeError(
            f"{comp} and {other} must have the same dtype, but got {compressed.dtype.name} and {plain.dtype.name}, respectively"
        )
    block = tuple(values.shape[batch + 1 : batch + 3]) if blocks else (1, 1)
    rows, columns = shape[batch] // block[0], shape[batch + 1] // block[1]
    for n, b in zip(shape[batch : batch + 2], block, strict=True):
        if n % b:
            raise RuntimeError(f"tensor shape {tuple(shape)} must be divisible by blocksize {block}")
    count, width = (rows, columns) if by_rows else (columns, rows)
    nnz = values.shape[batch]
    if compressed.shape[-1] != count + 1:
        raise RuntimeError(f"{comp}.shape[-1] must be equal to the number of {along} + 1 (={count + 1}), but got {compressed.shape[-1]}")
    if plain.shape[-1] != nnz:
        raise RuntimeError(
            f"{other}.shape[-1] must be equal to nnz (={nnz}) as defined by values.shape[{batch}], but got {plain.shape[-1]}"
        )
    for name, t in ((comp, compressed), (other, plain), ("values", values)):
        if tuple(t.shape[:batch]) != tuple(shape[:batch]):
            raise RuntimeError(
                f"all batch dimensions of {name} (={list(t.shape[:batch])}) must be equal to those of the tensor {list(shape[:batch])}"
            )
    starts, at = (a.reshape(-1, a.shape[-1]) for a in host("sparse_compressed_tensor", compressed, plain))
    n = "nrows" if by_rows else "ncols"
    if (starts[:, 0] != 0).any():
        raise RuntimeError(f"`{comp}[..., 0] == 0` is not satisfied.")
    if (starts[:, -1] != nnz).any():
        raise RuntimeError(f"`{comp}[..., -1] == nnz` is not satisfied.")
    steps = np.diff(starts, axis=1)
    if (steps < 0).any() or (steps > width).any():
        limit = "ncols" if by_rows else "nrows"
        raise RuntimeError(f"`0 <= {comp}[..., 1:] - {comp}[..., :-1] <= {limit}` is not satisfied.")
    if ((at < 0) | (at >= width)).any():
        raise RuntimeError(f"`0 <= {other} < {'ncols' if by_rows else 'nrows'}` is not satisfied.")
    for each, where in zip(starts, at, strict=True):
        later = np.ones(max(nnz - 1, 0), bool)
        later[each[1:-1][(each[1:-1] > 0) & (each[1:-1] < nnz)] - 1] = False
        if (np.diff(where)[later] <= 0).any():
            raise RuntimeError(
                f"`{other}[..., {comp}[..., i - 1]:{comp}[..., i]] for all i = 1, ..., {n} are sorted and distinct along the last "
                "dimension values` is not satisfied."
            )
