"""The older name of `ao.nn.quantized.functional`."""

from __future__ import annotations

from flambeau.ao.nn.quantized.functional import *  # noqa: F403  # the same names
