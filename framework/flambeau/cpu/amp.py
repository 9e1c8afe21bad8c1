"""Mixed precision on the CPU under its older names; `flambeau.amp` has the general ones."""

from __future__ import annotations

from typing import Any

from .. import amp
from .. import dtypes as _dtypes
from .._warn import warn_deprecated
from ..amp.grad_scaler import OptState as OptState  # where PyTorch has it too

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):  # PyTorch's name
    """``amp.autocast('cpu')``, its deprecated name: warns so."""

    def __init__(self, enabled: bool = True, dtype: Any = _dtypes.bfloat16, cache_enabled: bool = True) -> None:
        warn_deprecated("cpu.amp.autocast", "amp.autocast('cpu', args...)")
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """``amp.GradScaler('cpu')``, its deprecated name: warns so."""

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        warn_deprecated("cpu.amp.GradScaler", "amp.GradScaler('cpu', args...)")
        super().__init__(
            "cpu", init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
            growth_interval=growth_interval, enabled=enabled,
        )  # fmt: skip
