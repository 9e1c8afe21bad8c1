"""The autograd profiler's names; profiling is not built yet."""

from __future__ import annotations

from typing import Any

_NAMES = (
    "profile", "record_function", "emit_itt", "emit_nvtx", "load_nvprof", "parse_nvprof_trace", "EnforceUnique",
    "KinetoStepTracker",
)  # fmt: skip


def _refusing(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"autograd.profiler.{name} is not built yet; time regions with time.perf_counter()")

    refuse.__name__ = name
    return refuse


profile, record_function, emit_itt, emit_nvtx, load_nvprof, parse_nvprof_trace, EnforceUnique, KinetoStepTracker = map(_refusing, _NAMES)

__all__ = list(_NAMES)
