"""CUDA streams and events, cupy's under PyTorch's names."""

from __future__ import annotations

from typing import Any, NoReturn

from ..devices import device as _device_type


def _require(what: str) -> Any:
    from . import require

    return require(what)


class Stream:
    """A queue of work of one device. Raises: RuntimeError without a device."""

    def __init__(self, device: Any = None, priority: int = 0, *, _made: Any = None) -> None:
        cuda = _require("cuda.Stream").cuda
        from . import index_of

        self.device_index = index_of(device)
        with cuda.Device(self.device_index):
            self._stream = cuda.Stream(non_blocking=True) if _made is None else _made
        self.priority = priority

    @property
    def device(self) -> _device_type:
        """The device whose work it orders."""
        return _device_type("cuda", self.device_index)

    @property
    def cuda_stream(self) -> int:
        """The stream's handle, for other libraries."""
        return self._stream.ptr

    def synchronize(self) -> None:
        """Wait until all work of this stream is done."""
        self._stream.synchronize()

    def query(self) -> bool:
        """Whether all work of this stream is done."""
        return self._stream.done

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens when the work so far is done."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let work queued from now on wait for `event`."""
        self._stream.wait_event(event._event)

    def wait_stream(self, stream: Stream) -> None:
        """Let work queued from now on wait for the work of `stream` so far."""
        self.wait_event(stream.record_event())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Stream)
            and self.cuda_stream == other.cuda_stream
            and self.device_index == other.device_index
        )

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by its handle."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        super().__init__(device, _made=_require("cuda.ExternalStream").cuda.ExternalStream(stream_ptr))


class Event:
    """A point in the work of a stream. Raises: RuntimeError without a device.

    Args:
        enable_timing: whether `elapsed_time` between two of them is wanted, in milliseconds.
        blocking: whether `synchronize` sleeps rather than spins.
        interprocess: True raises NotImplementedError.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise NotImplementedError("cuda.Event(interprocess=True): events are not shared between processes yet")
        self._event = _require("cuda.Event").cuda.Event(block=blocking, disable_timing=not enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        """Happen when the work of `stream` so far is done."""
        self._event.record((stream or current_stream())._stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Let work queued in `stream` from now on wait for this event."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """Whether it has happened."""
        return self._event.done

    def synchronize(self) -> None:
        """Wait until it has happened."""
        self._event.synchronize()

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> NoReturn:
        """An event of another process. Not built: raises NotImplementedError."""
        raise NotImplementedError("cuda.Event.from_ipc_handle: events are not shared between processes yet")

    def ipc_handle(self) -> NoReturn:
        """What another process takes the event by. Not built: raises NotImplementedError."""
        raise NotImplementedError("cuda.Event.ipc_handle: events are not shared between processes yet")

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`."""
        return _require("cuda.Event").cuda.get_elapsed_time(self._event, end_event._event)


class StreamContext:
    """Makes a stream current inside the block; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.stream._stream.__exit__(*error)


def stream(stream: Stream | None) -> StreamContext:
    """A context in which `stream` is current."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """The current stream of `device`."""
    return Stream(device, _made=_require("cuda.current_stream").cuda.get_current_stream())


def default_stream(device: Any = None) -> Stream:
    """The stream that is current at first."""
    return Stream(device, _made=_require("cuda.default_stream").cuda.Stream.null)


def set_stream(stream: Stream | None) -> None:
    """Make `stream` current; None changes nothing."""
    if stream is not None:
        stream._stream.use()
