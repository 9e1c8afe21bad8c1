"""The named tuples that operations with several results return: ``return_types.max``, ``return_types.topk``, ..."""

from __future__ import annotations

from typing import Any

from ._on_demand import names_on_demand


def _make(name: str) -> Any:
    from .ops import _results

    return _results.named_result(name)


def _listed() -> list[str]:
    from .ops import _results

    return _results.names()


__getattr__, __dir__ = names_on_demand(__name__, make=_make, listed=_listed)
