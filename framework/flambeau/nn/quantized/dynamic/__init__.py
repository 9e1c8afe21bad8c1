"""The older name of `ao.nn.quantized.dynamic`."""

from __future__ import annotations

from flambeau.ao.nn.quantized.dynamic import *  # noqa: F403  # the same names
