"""The older name of `ao.quantization`, which programs still use."""

from __future__ import annotations

from typing import Any

from ..ao import quantization as _new
from ..ao.quantization import *  # noqa: F403  # the same names


def __getattr__(name: str) -> Any:
    return getattr(_new, name)
