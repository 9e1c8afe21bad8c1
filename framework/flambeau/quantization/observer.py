"""The older name of `ao.quantization.observer`."""

from __future__ import annotations

from ..ao.quantization.observer import *  # noqa: F403  # the same names
