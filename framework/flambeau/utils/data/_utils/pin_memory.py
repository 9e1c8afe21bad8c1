"""Page-locking batches, so that copies to a GPU are fast and may run beside computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flambeau as fb
from flambeau.utils.data._utils.collate import _same_mapping, _same_sequence

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data` with every tensor in it pinned; objects with a `pin_memory()` method of their own are asked to do it."""
    if isinstance(data, fb.Tensor):
        return data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return _same_mapping(data, {key: pin_memory(data[key], device) for key in data})
    if isinstance(data, tuple):
        parts = [pin_memory(part, device) for part in data]
        return type(data)(*parts) if hasattr(data, "_fields") else parts
    if isinstance(data, Sequence):
        return _same_sequence(data, [pin_memory(part, device) for part in data])
    return data
