"""Code that runs while a compiler reads a program. Nothing reads programs here, for Python runs in every call, so such code never runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["comptime"]


class _Comptime:
    """``comptime(fn, fallback_fn)`` calls `fallback_fn`, and its methods do nothing, as in PyTorch outside of compiled code."""

    def __call__(self, fn: Callable[[Any], Any], fallback_fn: Callable[[], Any] = lambda: None) -> None:
        fallback_fn()

    def graph_break(self) -> None:
        """End the graph."""

    def print(self, e: Any) -> None:
        """Print what is known of `e`."""

    def print_graph(self) -> None:
        """Print the graph so far."""

    def print_disas(self, *, stacklevel: int = 0) -> None:
        """Print the bytecode."""

    def print_value_stack(self, *, stacklevel: int = 0) -> None:
        """Print the stack of the bytecode."""

    def print_value_stack_and_return(self, e: Any, *, stacklevel: int = 0) -> Any:
        """`e`, after the stack has been printed."""
        return e

    def print_locals(self, *, stacklevel: int = 0) -> None:
        """Print local names."""

    def print_bt(self, *, stacklevel: int = 0) -> None:
        """Print where the program is."""

    def print_guards(self) -> None:
        """Print what the graph depends on."""

    def assert_static(self, val: Any) -> None:
        """Fail if the size `val` is not a constant of the graph."""

    def force_static(self, val: Any) -> None:
        """Make the size `val` a constant of the graph."""

    def breakpoint(self) -> None:
        """Stop in the debugger."""

    def sleep(self, sec: float) -> None:
        """Wait `sec` seconds."""


comptime = _Comptime()
