"""The older name of `ao.nn.qat`, which programs still use."""

from __future__ import annotations

from functools import partial

from ..._on_demand import names_on_demand
from ...ao.nn import qat as _new
from ...ao.nn.qat import *  # noqa: F403  # the same names

__getattr__, __dir__ = names_on_demand(__name__, make=partial(getattr, _new), listed=partial(dir, _new))
