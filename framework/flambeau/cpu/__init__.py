"""The CPU as a device with PyTorch's device functions: work is done when a call returns, so there is nothing to wait for."""

from __future__ import annotations

from typing import Any

from .._on_demand import names_on_demand

__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count", "empty_cache", "get_capabilities",
    "is_available", "is_initialized",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "set_cache_limit", "set_device", "stream", "synchronize",
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


class Event:
    """A point in the work of the CPU, which has always been reached."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing: work is done when a call returns."""

    def synchronize(self) -> None:
        """Nothing: it has happened."""

    def wait(self, stream: Any = None) -> None:
        """Nothing: it has happened."""


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


def get_capabilities() -> Any:
    """What the processor has, by name; see `backends.cpu.capabilities`."""
    from ..backends.cpu import capabilities

    return capabilities()


def synchronize(device: Any = None) -> None:
    """Nothing: work is done when a call returns."""


__getattr__, __dir__ = names_on_demand(__name__, modules=("amp",))


# -- memory ----------------------------------------------------------------------------------------------------------------
# PyTorch has these for its accelerators. Here arrays of 64 kB and more are counted, in bytes, by size class: the size of
# an array rounded up by at most an eighth. What numpy allocates for other code in a thread that uses Flambeau is counted
# as well. Memory is counted until it is free, also where a numpy array shares it.


def memory_stats(device: Any = None) -> dict[str, int]:
    """What the caching allocator holds and has done.

    Returns: `allocated_bytes` (in use now) and its peak, `reserved_bytes` (in use or kept for later) and its peak,
    `cached_bytes` (kept for later), `cache_limit_bytes`, and how many `allocations`, `reused` ones and `frees` there were.
    Raises: RuntimeError where the allocator is off (the numpy backend, systems other than Linux, FLAMBEAU_KEEP_MEMORY=0).
    """
    from flambeau_kernels import memory

    return memory.statistics()


def memory_allocated(device: Any = None) -> int:
    """Bytes in large arrays now; see `memory_stats`."""
    return memory_stats()["allocated_bytes"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in large arrays at once, since the start or `reset_peak_memory_stats`."""
    return memory_stats()["peak_allocated_bytes"]


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the system for large arrays, whether in use or kept for later."""
    return memory_stats()["reserved_bytes"]


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were taken from the system at once."""
    return memory_stats()["peak_reserved_bytes"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks start again from what is in use now."""
    from flambeau_kernels import memory

    memory.reset_peaks()


def empty_cache() -> None:
    """Give the memory that is kept for later arrays back to the system."""
    from flambeau_kernels import memory

    memory.release()


def set_cache_limit(size: int) -> None:
    """Keep at most `size` bytes of freed memory for later arrays, 0 none; by default what FLAMBEAU_KEEP_MEMORY says, or 512 MB.

    Raises: TypeError if `size` is not an int; ValueError if it is negative.
    """
    from flambeau_kernels import memory

    memory.set_limit(size)
