"""Mixed precision on CUDA under its older names; `flambeau.amp` has the general ones."""

from __future__ import annotations

import functools
from typing import Any

from .. import amp
from .. import dtypes as _dtypes

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):  # PyTorch's name
    """``amp.autocast('cuda')``."""

    def __init__(
        self, enabled: bool = True, dtype: Any = _dtypes.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """``amp.GradScaler('cuda')``."""

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            "cuda", init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
            growth_interval=growth_interval, enabled=enabled,
        )  # fmt: skip


custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")
