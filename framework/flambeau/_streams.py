"""`Stream` and `Event` of any kind of device: CUDA's where there is one, and those of the CPU, whose work is always done."""

from __future__ import annotations

import sys
import threading
from typing import Any

from .devices import device as _device_type

__all__ = ["Event", "Stream"]

_HOST = ("cpu", "meta")


def _place(what: str, device: Any) -> _device_type:
    """The device that is meant. Raises: RuntimeError for one that is not here."""
    from . import cuda

    if device is None:
        return _device_type("cuda", cuda.current_device()) if cuda.is_available() else _device_type("cpu")
    if isinstance(device, int) and not cuda.is_available():
        raise RuntimeError(f"{what}: cannot access accelerator device {device}, as none is available")
    place = _device_type(device)
    if place.type not in _HOST and not (place.type == "cuda" and cuda.is_available()):
        raise RuntimeError(f"{what}: there is no support for {place.type} devices here")
    return place


def _no_events(what: str, place: _device_type) -> RuntimeError:
    return RuntimeError(f"{what}: {place.type} backend doesn't support events; its work is done when a call returns")


class Stream:
    """A queue of work, done in the order in which it came.

    On the CPU and meta devices work is done when a call returns: there is nothing to wait for, and there are no events.

    Args:
        device: whose work; CUDA by default where there is one, else the CPU.
        priority: on CUDA, lower numbers go first.
    Raises: RuntimeError for a device that is not here.
    """

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self.device = _place("Stream", device)
        self.stream_id = 0
        self._cuda: Any = None
        if self.device.type == "cuda":
            from . import cuda

            self._cuda = cuda.Stream(self.device, priority)
            self.stream_id = self._cuda.cuda_stream

    @property
    def device_index(self) -> int:
        """The index of its device; -1 if that has none."""
        return -1 if self.device.index is None else self.device.index

    def query(self) -> bool:
        """Whether all its work is done."""
        return True if self._cuda is None else self._cuda.query()

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        if self._cuda is not None:
            self._cuda.synchronize()

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens when the work so far is done. Raises: RuntimeError for a device without events."""
        if self._cuda is None:
            raise _no_events("Stream.record_event", self.device)
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work wait for `event`."""
        if self._cuda is not None and event._cuda is not None:
            self._cuda.wait_event(event._cuda)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work wait for that of `stream` so far. Raises: RuntimeError for a device without events."""
        self.wait_event(stream.record_event())

    def __enter__(self) -> Stream:
        if self._cuda is not None:
            self._cuda._stream.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._cuda is not None:
            self._cuda._stream.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device, self.stream_id) == (other.device, other.stream_id)

    def __hash__(self) -> int:
        return hash((self.device, self.stream_id))

    def __repr__(self) -> str:
        return f"torch.Stream device_type={self.device.type}, device_index={self.device_index}, stream_id={self.stream_id}"


class Event:
    """A point in the work of a device.

    Args:
        device: whose work; CUDA by default where there is one, else the CPU, which has none to record.
        enable_timing: whether `elapsed_time` will be asked.
        blocking: whether waiting sleeps rather than spins.
        interprocess: True raises NotImplementedError on CUDA.
    Raises: RuntimeError for a device that is not here.
    """

    def __init__(
        self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.device = _place("Event", device)
        self._timed, self._recorded = bool(enable_timing), False
        self._cuda: Any = None
        if self.device.type == "cuda":
            from . import cuda

            self._cuda = cuda.Event(enable_timing, blocking, interprocess)

    @property
    def event_id(self) -> int:
        """A number of the event; 0 where devices have no events."""
        return 0 if self._cuda is None else id(self._cuda)

    def record(self, stream: Stream | None = None) -> None:
        """Happen when the work of `stream` so far is done. Raises: RuntimeError for a device without events."""
        if self._cuda is None:
            raise _no_events("Event.record", self.device)
        self._cuda.record(None if stream is None else stream._cuda)
        self._recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work of `stream` wait for it."""
        if self._cuda is not None:
            self._cuda.wait(None if stream is None else stream._cuda)

    def query(self) -> bool:
        """Whether it has happened; True if it was never recorded."""
        return True if self._cuda is None else self._cuda.query()

    def synchronize(self) -> None:
        """Wait until it has happened."""
        if self._cuda is not None:
            self._cuda.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`.

        Raises: ValueError unless both were made with `enable_timing` and recorded.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Event.elapsed_time: both events must be created with argument 'enable_timing=True'")
        if not (self._recorded and end_event._recorded):
            raise ValueError("Event.elapsed_time: both events must be recorded before calculating elapsed time")
        return self._cuda.elapsed_time(end_event._cuda)

    def __repr__(self) -> str:
        return (
            f"torch.Event device_type={self.device.type}, device_index={-1 if self.device.index is None else self.device.index}, "
            f"event_flag={int(self._timed)}, event_id={self.event_id}"
        )


Stream.__module__ = Event.__module__ = "flambeau"


class _Lent:
    """Memory of tensors that work of other streams reads: each piece with its stream, and the event after which it is free."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Any, Any, Any]] = []
        self.lock = threading.Lock()

    def add(self, memory: Any, stream: Any) -> None:
        self.settle()
        with self.lock:
            self.pieces.append((memory, stream, None))

    def settle(self) -> None:
        """Let go of the memory that nobody else holds, once what its stream had to do by then is done."""
        with self.lock:
            held = []
            while self.pieces:
                memory, stream, event = self.pieces.pop()
                if event is None and sys.getrefcount(memory) <= _ALONE:
                    event = stream.record_event()
                if event is None or not event.query():
                    held.append((memory, stream, event))
            self.pieces = held


_ALONE = 2                                            # references that a local name and a call make
_lent = _Lent()
settle_lent = _lent.settle


def record_stream(tensor: Any, stream: Any) -> None:
    """See `Tensor.record_stream`."""
    if not hasattr(stream, "record_event"):
        raise RuntimeError(f"record_stream: s must be a Stream, got {type(stream).__name__}")
    if not tensor.is_cuda:
        raise NotImplementedError(f"record_stream: a tensor on {tensor.device} is used when a call returns: there are no streams")
    _lent.add(tensor._array.data.mem, stream)
