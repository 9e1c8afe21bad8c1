"""The table of decompositions that `run_decompositions` takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView
from typing import Any

__all__ = ["CustomDecompTable"]


class CustomDecompTable(dict[Any, Callable[..., Any]]):
    """Functions by operator that run in its place: those of core operators, which are looked up when they are first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._complete = False
        self._gone: set[Any] = set()

    def materialize(self) -> dict[Any, Callable[..., Any]]:
        """The table as a dict."""
        self._fill()
        return dict(super().items())

    def _fill(self) -> None:
        if not self._complete:
            from .._decomp import core_aten_decompositions
            from .._decomp.own import of_own_operators
            from ._core_operators import of_core_operators

            self._complete = True
            for operator, fn in (core_aten_decompositions() | of_own_operators() | of_core_operators()).items():
                if operator not in self._gone and not super().__contains__(operator):
                    super().__setitem__(operator, fn)

    def __getitem__(self, key: Any) -> Any:
        self._fill()
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self._fill()
        return super().__contains__(key)

    def __len__(self) -> int:
        self._fill()
        return super().__len__()

    def __iter__(self) -> Iterator[Any]:
        self._fill()
        return super().__iter__()

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def keys(self) -> KeysView[Any]:
        """The operators."""
        self._fill()
        return super().keys()

    def items(self) -> Any:
        """Operators and functions."""
        self._fill()
        return super().items()

    def pop(self, key: Any, *default: Any) -> Any:
        """Take the function of an operator out of the table, so that the operator stays as it is."""
        self._fill()
        self._gone.add(key)
        return super().pop(key, *default)

    def update(self, *given: Any, **named: Any) -> None:
        """Add functions by operator."""
        self._fill()
        super().update(*given, **named)

    def copy(self) -> CustomDecompTable:
        """Another table with the same functions."""
        made = CustomDecompTable()
        made._complete, made._gone = True, set(self._gone)
        dict.update(made, self.materialize())
        return made
