"""Settings of `use_deterministic_algorithms`."""

from __future__ import annotations

import sys
from types import ModuleType

from .. import _state

__all__ = ["fill_uninitialized_memory"]


class _Settings(ModuleType):
    """This module, whose setting is a property."""

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), "fill_uninitialized_memory"})

    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether deterministic algorithms fill memory that would be uninitialised: with nan, True or the largest integer."""
        return _state.fill_wanted()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise RuntimeError(f"fill_uninitialized_memory: expected a bool, but got {type(mode).__name__}")
        _state.fill_empty(wanted=mode)


fill_uninitialized_memory: bool
sys.modules[__name__].__class__ = _Settings
