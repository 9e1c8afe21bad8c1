"""The older name of `ao.quantization.qconfig`."""

from __future__ import annotations

from ..ao.quantization.qconfig import *  # noqa: F403  # the same names
