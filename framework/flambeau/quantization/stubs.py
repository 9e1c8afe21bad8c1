"""The older name of `ao.quantization.stubs`."""

from __future__ import annotations

from ..ao.quantization.stubs import *  # noqa: F403  # the same names
