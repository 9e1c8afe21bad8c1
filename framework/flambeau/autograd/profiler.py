"""The autograd profiler's names; profiling is not built yet."""

from __future__ import annotations

from typing import Any

__all__ = [
    "EnforceUnique", "KinetoStepTracker", "emit_itt", "emit_nvtx", "load_nvprof", "parse_nvprof_trace", "profile",
    "record_function",
]  # fmt: skip


def _refuse(name: str) -> Any:
    raise NotImplementedError(f"autograd.profiler.{name} is not built yet; time regions with time.perf_counter()")


class _NotBuilt:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__)


class profile(_NotBuilt):
    """Times operations in a region; not built yet."""


class record_function(_NotBuilt):
    """Names a region for the profiler; not built yet."""


class emit_itt(_NotBuilt):
    """Marks operations for Intel's profiler; not built yet."""


class emit_nvtx(_NotBuilt):
    """Marks operations for NVIDIA's profiler; not built yet."""


class EnforceUnique(_NotBuilt):
    """Raises for keys seen twice; not built yet."""


class KinetoStepTracker(_NotBuilt):
    """Counts the steps of profiled loops; not built yet."""


def load_nvprof(path: str) -> Any:
    """Read a trace of nvprof; not built yet."""
    _refuse("load_nvprof")


def parse_nvprof_trace(path: str) -> Any:
    """Read the events of a trace of nvprof; not built yet."""
    _refuse("parse_nvprof_trace")
