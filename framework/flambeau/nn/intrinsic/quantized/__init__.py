"""The older name of `ao.nn.intrinsic.quantized`."""

from __future__ import annotations

from flambeau.ao.nn.intrinsic.quantized import *  # noqa: F403  # the same names
