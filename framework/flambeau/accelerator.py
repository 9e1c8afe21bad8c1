"""The accelerator of this machine, whichever it is: CUDA where cupy finds a device, else none."""

from __future__ import annotations

from typing import Any

from . import cuda
from ._streams import Stream
from .devices import CPU, device
from .devices import device as _device_type

__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "is_available",
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
