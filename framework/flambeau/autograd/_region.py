"""Regions with names, which cost next to nothing where no profiler looks on."""

from __future__ import annotations

import time
from contextlib import ContextDecorator
from typing import Any

from .. import _state

_now = time.perf_counter_ns


class record_function(ContextDecorator):  # PyTorch's name
    """A region with a name, or a function whose calls are such regions; without a profiler it does nothing.

    Args:
        name: what the event is called.
        args: text that is recorded with it.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self.run_callbacks_on_exit = True
        self._observer: Any = None
        self._began = 0

    def _recreate_cm(self) -> record_function:
        return record_function(self.name, self.args)

    def __enter__(self) -> record_function:
        self._observer = _state.observer()
        if self._observer is not None:
            self._began = _now()
        return self

    def __exit__(self, *_: object) -> None:
        if self.run_callbacks_on_exit:
            self._end()

    def _end(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None and not observer.ended:
            observer.region(self.name, self._began, self.args)

    def _call_end_callbacks_on_future(self, fut: Any) -> Any:
        """Let the region last until `fut` is done; the future that is returned completes after that."""
        if not self.run_callbacks_on_exit:
            raise RuntimeError("_call_end_callbacks_on_future can only be called once.")
        self.run_callbacks_on_exit = False

        def ended(done: Any) -> Any:
            self._end()
            return done.value()

        return fut.then(ended)
