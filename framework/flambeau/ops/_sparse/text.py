"""How sparse tensors print, PyTorch's texts to the letter."""

from __future__ import annotations

from typing import Any

from ... import _printing
from ...tensor import Tensor
from .arrays import CooArray

_OF_COO = "indices", "values"
_BY_ROWS = "crow_indices", "col_indices", "values"
_BY_COLUMNS = "ccol_indices", "row_indices", "values"


def text(tensor: Any) -> str:
    """`repr` of a sparse tensor."""
    array = tensor._array
    is_coo = isinstance(array, CooArray)
    names = _OF_COO if is_coo else _BY_ROWS if array.by_rows else _BY_COLUMNS
    indent = len("tensor(")
    shown = [f"{name}={_part(part, indent + len(name) + 1)}" for name, part in zip(names, array.parts, strict=True)]
    body = (",\n" + " " * indent).join(shown)
    count = array.parts[-2]._array.shape[-1]
    suffixes = [f"size={tuple(array.shape)}", f"nnz={count}"]
    if tensor.device.type != "cpu":
        suffixes.insert(0, f"device='{tensor.device}'")
    if not _printing._dtype_is_obvious(array.values):
        suffixes.append(f"dtype={tensor.dtype}")
    suffixes += [f"layout={array.layout}", *_printing.history_suffixes(tensor)]
    begun = f"tensor({body}"
    if is_coo:
        begun += ",\n" + " " * indent + suffixes.pop(0)
    return _printing.append_suffixes(begun, suffixes, indent) + ")"


def _part(part: Tensor, indent: int) -> str:
    """A part as it prints alone, its further lines moved to where it begins."""
    array = part._array
    if not array.size:
        return f"tensor([], size={tuple(part.shape)})"
    return f"tensor({_printing.array_text(array, indent + len('tensor('), _printing._options)})"
