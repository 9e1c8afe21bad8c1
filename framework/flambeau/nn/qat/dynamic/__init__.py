"""The older name of `ao.nn.qat.dynamic`."""

from __future__ import annotations

from flambeau.ao.nn.qat.dynamic import *  # noqa: F403  # the same names
