"""The profiler: what a program runs, how long, with how much memory, and where; as tables, traces and a page."""

from __future__ import annotations

from .._on_demand import names_on_demand
from ..autograd.profiler import KinetoStepTracker as KinetoStepTracker
from ..autograd.profiler import kineto_available, record_function
from ..autograd.profiler_util import DeviceType
from . import itt
from ._trace_observer import ExecutionTraceObserver
from .profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from .profiler import _ExperimentalConfig as _ExperimentalConfig
from .profiler import _KinetoProfile as _KinetoProfile

__all__ = [
    "DeviceType", "ExecutionTraceObserver", "ProfilerAction", "ProfilerActivity", "itt", "kineto_available", "profile",
    "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


__getattr__, __dir__ = names_on_demand(__name__, modules=("_memory_profiler",))
