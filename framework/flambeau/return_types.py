"""The named tuples that operations with several results return: ``return_types.max``, ``return_types.topk``, ..."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from .ops import _results

    found = None if name.startswith("__") else _results.named_result(name)
    if found is None:
        from . import _missing

        raise _missing.attribute_error(__name__, name)
    return found
