"""Times of statements, with replicates, and tables that compare them."""

from __future__ import annotations

from typing import Any

from .callgrind import CallgrindStats, FunctionCounts
from .compare import Compare
from .measurement import Measurement, TaskSpec
from .timer import Language, Timer, timer

__all__ = ["CallgrindStats", "Compare", "FunctionCounts", "Language", "Measurement", "TaskSpec", "Timer", "timer"]


def __getattr__(name: str) -> Any:
    from flambeau import _missing

    raise _missing.attribute_error(__name__, name)
