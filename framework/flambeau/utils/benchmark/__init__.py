"""Times of statements, with replicates, and tables that compare them."""

from __future__ import annotations

from typing import Any

from .compare import Compare
from .measurement import Measurement, TaskSpec
from .timer import Language, Timer, timer

__all__ = ["Compare", "Language", "Measurement", "TaskSpec", "Timer", "timer"]


def __getattr__(name: str) -> Any:
    from flambeau import _missing

    raise _missing.attribute_error(__name__, name)
