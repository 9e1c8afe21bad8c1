"""Events of mps devices, of which there are none."""

from __future__ import annotations

from .. import _no_device

__all__ = ["Event"]


class Event:
    """A point in the work of an mps device. Raises: RuntimeError when made, as there is none."""

    def __init__(self, enable_timing: bool = False) -> None:
        raise _no_device.refusal("mps.event.Event", "mps")

    def record(self) -> None:
        """Happen when the work so far is done."""
        raise _no_device.refusal("mps.event.Event.record", "mps")

    def wait(self) -> None:
        """Let later work wait for it."""
        raise _no_device.refusal("mps.event.Event.wait", "mps")

    def query(self) -> bool:
        """Whether it has happened."""
        raise _no_device.refusal("mps.event.Event.query", "mps")

    def synchronize(self) -> None:
        """Wait until it has happened."""
        raise _no_device.refusal("mps.event.Event.synchronize", "mps")

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`."""
        raise _no_device.refusal("mps.event.Event.elapsed_time", "mps")
