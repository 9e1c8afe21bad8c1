"""The older name of `ao.nn.intrinsic.qat`."""

from __future__ import annotations

from flambeau.ao.nn.intrinsic.qat import *  # noqa: F403  # the same names
