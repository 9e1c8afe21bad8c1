"""The accelerator of this machine, whichever it is: CUDA where cupy finds a device, else none."""

from __future__ import annotations

from typing import Any

from . import cuda
from ._streams import Stream
from .devices import CPU, device
from .devices import device as _device_type

__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index", "empty_cache",
    "empty_host_cache", "get_device_capability", "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_reserved", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
    "set_device_idx", "set_device_index", "set_stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is one."""
    return cuda.is_available()


def device_count() -> int:
    """How many there are."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> device | None:
    """Its kind, such as ``device('cuda')``; None if there is none."""
    return device("cuda") if cuda.is_available() else None


def _need() -> None:
    if not cuda.is_available():
        raise RuntimeError(
            "Cannot access accelerator device when none is available; CUDA comes with the extra flambeau[cuda]"
        )


def current_device_index() -> int:
    """Index of the current device. Raises: RuntimeError if there is none."""
    _need()
    return cuda.current_device()


def set_device_index(device: Any) -> None:
    """Make `device` current. Raises: RuntimeError if there is none."""
    _need()
    cuda.set_device(device)


def current_stream(device: Any = None) -> Any:
    """The current stream of `device`. Raises: RuntimeError if there is none."""
    _need()
    return cuda.current_stream(device)


def set_stream(stream: Any) -> None:
    """Make `stream` current. Raises: TypeError for what is no stream; RuntimeError if there is no accelerator."""
    if not isinstance(stream, (Stream, cuda.Stream)):
        raise TypeError(f"accelerator.set_stream: stream must be a Stream, got {type(stream).__name__}")
    _need()
    if isinstance(stream, Stream):
        raise RuntimeError(f"accelerator.set_stream: the accelerator is cuda, but stream is of {stream.device}")
    cuda.set_stream(stream)


def synchronize(device: Any = None) -> None:
    """Wait until the work of `device` is done. Raises: RuntimeError if there is none."""
    _need()
    cuda.synchronize(device)


class device_index:  # PyTorch's name
    """Makes the device of this index current inside the block; None changes nothing. Raises: RuntimeError if there is none."""

    def __init__(self, device: int | None, /) -> None:
        self.idx = device
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx is not None:
            self.prev_idx = current_device_index()
            set_device_index(self.idx)

    def __exit__(self, *_: object) -> None:
        if self.idx is not None:
            set_device_index(self.prev_idx)


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """What `device` can compute with: "supported_dtypes", a set. Raises: RuntimeError if there is none."""
    _need()
    from . import dtypes

    kinds = (
        "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128", "bool",
        "bfloat16", "float8_e5m2", "float8_e4m3fn",
    )  # fmt: skip
    return {"supported_dtypes": {getattr(dtypes, kind) for kind in kinds}}


# -- memory ----------------------------------------------------------------------------------------------------------------


def empty_cache() -> None:
    """Give memory that is held for later arrays back. Raises: RuntimeError if there is no accelerator, as do all below."""
    _need()
    cuda.empty_cache()


def empty_host_cache() -> None:
    """Give memory of the host that copies use back."""
    _need()
    import cupy  # pyright: ignore[reportMissingImports]  # of the extra that an accelerator comes with

    cupy.get_default_pinned_memory_pool().free_all_blocks()


def get_memory_info(device_index: Any = None, /) -> tuple[int, int]:
    """Bytes that are free, and bytes in all."""
    _need()
    return cuda.mem_get_info(device_index)


def memory_stats(device_index: Any = None, /) -> Any:
    """Counts of allocations, by name."""
    _need()
    return cuda.memory_stats(device_index)


def memory_allocated(device_index: Any = None, /) -> int:
    """Bytes of arrays."""
    _need()
    return cuda.memory_allocated(device_index)


def max_memory_allocated(device_index: Any = None, /) -> int:
    """The most bytes of arrays so far."""
    _need()
    return cuda.max_memory_allocated(device_index)


def memory_reserved(device_index: Any = None, /) -> int:
    """Bytes of arrays and of what is held for later ones."""
    _need()
    return cuda.memory_reserved(device_index)


def max_memory_reserved(device_index: Any = None, /) -> int:
    """The most bytes of that so far."""
    _need()
    return cuda.max_memory_reserved(device_index)


def reset_accumulated_memory_stats(device_index: Any = None, /) -> None:
    """Count allocations from 0 again."""
    _need()
    cuda.reset_accumulated_memory_stats(device_index)


def reset_peak_memory_stats(device_index: Any = None, /) -> None:
    """Let the most bytes so far be those of now."""
    _need()
    cuda.reset_peak_memory_stats(device_index)


current_device_idx, set_device_idx = current_device_index, set_device_index


def get_device_module(device: Any = None) -> Any:
    """The module of a kind of device, ``flambeau.cpu`` and the like; that of the accelerator, or the CPU's, by default."""
    from importlib import import_module

    if device is None:
        device = current_accelerator() or CPU
    kind = _device_type(device).type
    if kind == "meta":
        raise RuntimeError("Device 'meta' does not have a corresponding module registered as 'torch.meta'.")
    registered = vars(import_module(__package__)).get(kind)  # pyright: ignore[reportArgumentType]  # this module is in a package
    return import_module(f".{kind}", __package__) if registered is None else registered
