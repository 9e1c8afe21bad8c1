"""The older name of `ao.quantization.fake_quantize`."""

from __future__ import annotations

from ..ao.quantization.fake_quantize import *  # noqa: F403  # the same names
