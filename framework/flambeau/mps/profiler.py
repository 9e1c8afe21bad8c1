"""The profiler of mps devices, of which there are none; `flambeau.profiler` is the one of the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from .. import _no_device

__all__ = ["is_capturing_metal", "is_metal_capture_enabled", "metal_capture", "profile", "start", "stop"]


def start(mode: str = "interval", wait_until_completed: bool = False) -> NoReturn:
    """Raises RuntimeError: there is no mps device."""
    raise _no_device.refusal("mps.profiler.start", "mps")


def stop() -> NoReturn:
    """Raises RuntimeError: there is no mps device."""
    raise _no_device.refusal("mps.profiler.stop", "mps")


@contextlib.contextmanager
def profile(mode: str = "interval", wait_until_completed: bool = False) -> Iterator[None]:
    """A context that cannot be entered: RuntimeError, as there is no mps device."""
    start(mode, wait_until_completed)
    yield


def is_metal_capture_enabled() -> bool:
    """False."""
    return False


def is_capturing_metal() -> bool:
    """False."""
    return False


@contextlib.contextmanager
def metal_capture(fname: str) -> Iterator[None]:
    """A context that cannot be entered: RuntimeError, as there is no mps device."""
    raise _no_device.refusal("mps.profiler.metal_capture", "mps")
    yield
