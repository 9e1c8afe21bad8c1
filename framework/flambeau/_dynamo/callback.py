"""Functions that are called before and after a backend of the program's own makes something of a graph."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["CallbackArgs", "CallbackTrigger", "CompilationCallbackHandler", "callback_handler", "on_compile_end", "on_compile_start"]


class CallbackTrigger(enum.Enum):
    """What is compiled: here the graph of a function, always."""

    DYNAMO = 1
    LAZY_BACKWARD = 2
    TRITON_AUTOTUNING = 3
    CUDAGRAPH_RECORDING = 4


@dataclasses.dataclass
class CallbackArgs:
    """What callbacks are told: why, and which graph, as ``"<number of the function>/<number of its graph>"``."""

    callback_trigger: CallbackTrigger
    compile_id: str


@dataclasses.dataclass
class CompilationCallbackHandler:
    """The callbacks: functions of `CallbackArgs`."""

    start_callbacks: list[Callable[[CallbackArgs], None]] = dataclasses.field(default_factory=list)
    end_callbacks: list[Callable[[CallbackArgs], None]] = dataclasses.field(default_factory=list)
    _depth: int = 0                                   # of compilations in one another: only the outermost is told of

    def register_start_callback(self, callback: Callable[[CallbackArgs], None]) -> Callable[[CallbackArgs], None]:
        """Call `callback` before; returns it."""
        self.start_callbacks.append(callback)
        return callback

    def register_end_callback(self, callback: Callable[[CallbackArgs], None]) -> Callable[[CallbackArgs], None]:
        """Call `callback` after; returns it."""
        self.end_callbacks.append(callback)
        return callback

    def remove_start_callback(self, callback: Callable[[CallbackArgs], None]) -> None:
        """Raises: ValueError if it is not registered."""
        self.start_callbacks.remove(callback)

    def remove_end_callback(self, callback: Callable[[CallbackArgs], None]) -> None:
        """Raises: ValueError if it is not registered."""
        self.end_callbacks.remove(callback)

    def run_start_callbacks(self, args: CallbackArgs) -> None:
        """Call those of the start."""
        for callback in list(self.start_callbacks):
            callback(args)

    def run_end_callbacks(self, args: CallbackArgs) -> None:
        """Call those of the end."""
        for callback in list(self.end_callbacks):
            callback(args)

    @contextlib.contextmanager
    def install_callbacks(self, trigger: CallbackTrigger, compile_id: str) -> Iterator[None]:
        """Call those of the start before the context, and those of the end after it, also if it raises."""
        args = CallbackArgs(trigger, compile_id)
        self._depth += 1
        try:
            if self._depth == 1:
                self.run_start_callbacks(args)
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.run_end_callbacks(args)

    def clear(self) -> None:
        """Forget all callbacks."""
        self.start_callbacks.clear()
        self.end_callbacks.clear()


callback_handler = CompilationCallbackHandler()


def on_compile_start(callback: Callable[[CallbackArgs], Any]) -> Callable[[CallbackArgs], Any]:
    """A decorator: `callback` is called before a graph is compiled."""
    return callback_handler.register_start_callback(callback)


def on_compile_end(callback: Callable[[CallbackArgs], Any]) -> Callable[[CallbackArgs], Any]:
    """A decorator: `callback` is called after a graph was compiled."""
    return callback_handler.register_end_callback(callback)
