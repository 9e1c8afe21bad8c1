"""The older name of `ao.nn.intrinsic`, which programs still use."""

from __future__ import annotations

from functools import partial

from ..._on_demand import names_on_demand
from ...ao.nn import intrinsic as _new
from ...ao.nn.intrinsic import *  # noqa: F403  # the same names

__getattr__, __dir__ = names_on_demand(__name__, make=partial(getattr, _new), listed=partial(dir, _new))
