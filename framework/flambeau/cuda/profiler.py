"""What NVIDIA's profilers record of a program, by cupy: from `start` to `stop`. Without a CUDA device they raise RuntimeError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["profile", "start", "stop"]


def _runtime() -> Any:
    from . import require

    return require("cuda.profiler").cuda.runtime


def start() -> None:
    """Let a profiler that waits for this begin to record. Raises: RuntimeError without a device."""
    _runtime().profilerStart()


def stop() -> None:
    """Let the profiler stop recording. Raises: RuntimeError without a device."""
    _runtime().profilerStop()


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """A context that is recorded. Raises: RuntimeError without a device."""
    start()
    try:
        yield
    finally:
        stop()
