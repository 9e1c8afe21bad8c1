"""The older name of `ao.quantization.utils`."""

from __future__ import annotations

from ..ao.quantization.utils import *  # noqa: F403  # the same names
