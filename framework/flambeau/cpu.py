"""The CPU as a device with PyTorch's device functions: work is done when a call returns, so there is nothing to wait for."""

from __future__ import annotations

from typing import Any

__all__ = [
    "Stream", "StreamContext", "current_device", "current_stream", "device_count", "is_available", "is_initialized", "set_device",
    "stream", "synchronize",
]  # fmt: skip


class Stream:
    """A queue of work; on the CPU there is one, and it is always empty."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Wait for the work of `stream`, which is done."""

    def record_event(self, event: Any = None) -> Any:
        """Nothing; returns `event`."""
        return event

    def wait_event(self, event: Any) -> None:
        """Wait for `event`, which has happened."""


class StreamContext:
    """Makes a stream current inside the block."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before: list[Stream] = []

    def __enter__(self) -> None:
        global _current
        if self.stream is not None:
            self._before.append(_current)
            _current = self.stream

    def __exit__(self, *_: object) -> None:
        global _current
        if self.stream is not None:
            _current = self._before.pop()


_current = Stream()


def stream(stream: Stream | None) -> StreamContext:
    """A context in which `stream` is current."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """The current stream."""
    return _current


def current_device() -> str:
    """'cpu'."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one CPU device."""


def device_count() -> int:
    """1."""
    return 1


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def synchronize(device: Any = None) -> None:
    """Nothing: work is done when a call returns."""


def __getattr__(name: str) -> Any:
    from . import _missing

    raise _missing.attribute_error(__name__, name)
