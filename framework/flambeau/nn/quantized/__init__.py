"""The older name of `ao.nn.quantized`, which programs still use."""

from __future__ import annotations

from typing import Any

from ...ao.nn import quantized as _new
from ...ao.nn.quantized import *  # noqa: F403  # the same names


def __getattr__(name: str) -> Any:
    return getattr(_new, name)
