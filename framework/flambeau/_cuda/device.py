"""Which CUDA device is meant, and arrays brought there; without cupy or a driver there are none, and what needs one says how to get it."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cuda import device as _device

from .._errors import NoCudaDevice
from ..devices import device as _device_type

_cupy = _device.library


def require(what: str) -> Any:
    """cupy. Raises: NoCudaDevice naming `what` was wanted and what is missing."""
    found, reason = _device.find()
    if found is None:
        raise NoCudaDevice(f"{what}: no CUDA device is available: {reason}. It takes an NVIDIA driver and the extra flambeau[cuda]")
    return found


def is_available() -> bool:
    """Whether there is a CUDA device and cupy to drive it."""
    return _cupy() is not None


def device_count() -> int:
    """How many CUDA devices there are."""
    found = _cupy()
    return 0 if found is None else found.cuda.runtime.getDeviceCount()


def index_of(place: Any, what: str = "device") -> int:
    """The index that an int, string, device or None (the current one) names. Raises: RuntimeError if there is no such device."""
    found = require(what)
    if isinstance(place, str):
        place = _device_type(place)
    if isinstance(place, _device_type):
        if place.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {place}")
        place = place.index
    at = found.cuda.runtime.getDevice() if place is None else int(place)
    if not 0 <= at < device_count():
        raise RuntimeError(f"{what}: invalid device ordinal {at}, there are {device_count()} CUDA devices")
    return at


def current_device() -> int:
    """Index of the current device."""
    return index_of(None, "cuda.current_device")


def _refuse_other_kinds(place: Any) -> None:
    """Raises: RuntimeError for a kind of device that no kernels here run on."""
    if place.type != "cuda":
        raise RuntimeError(
            f"Flambeau has no support for {place.type} devices, but device='{place}' was asked for: tensors are on cpu, cuda or meta"
        )


def to_device(array: Any, place: Any) -> Any:
    """`array` (numpy or cupy) in the memory of the CUDA device `place`."""
    _refuse_other_kinds(place)
    found = require("Tensor.to(device='cuda')")
    from .arrays import from_host

    with found.cuda.Device(index_of(place)):
        return from_host(array) if isinstance(array, np.ndarray) else found.asarray(array)


def filled(shape: tuple[int, ...], dtype: np.dtype, value: Any, place: Any) -> Any:
    """A new array of the CUDA device `place` with `value` in every element; None leaves what was in memory."""
    _refuse_other_kinds(place)
    found = require("a CUDA tensor")
    from . import arrays

    with found.cuda.Device(index_of(place)):
        return arrays.filled(shape, dtype, value)
