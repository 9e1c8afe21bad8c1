"""The older name of `ao.nn.intrinsic`, which programs still use."""

from __future__ import annotations

from typing import Any

from ...ao.nn import intrinsic as _new
from ...ao.nn.intrinsic import *  # noqa: F403  # the same names


def __getattr__(name: str) -> Any:
    return getattr(_new, name)
