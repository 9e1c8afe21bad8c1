"""Mixed precision on CUDA under its older names; `flambeau.amp` has the general ones."""

from __future__ import annotations

from typing import Any

from .. import amp
from .. import dtypes as _dtypes
from .._warn import warn_deprecated
from ..amp.grad_scaler import OptState as OptState  # where PyTorch has it too

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):  # PyTorch's name
    """``amp.autocast('cuda')``, its deprecated name: warns so."""

    def __init__(self, enabled: bool = True, dtype: Any = _dtypes.float16, cache_enabled: bool = True) -> None:
        warn_deprecated("cuda.amp.autocast", "amp.autocast('cuda', args...)")
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """``amp.GradScaler('cuda')``, its deprecated name: warns so."""

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        warn_deprecated("cuda.amp.GradScaler", "amp.GradScaler('cuda', args...)")
        super().__init__(
            "cuda", init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
            growth_interval=growth_interval, enabled=enabled,
        )  # fmt: skip


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """``amp.custom_fwd`` for CUDA, its deprecated name: warns so.

    Args:
        fwd, cast_inputs: as there.
    """
    warn_deprecated("cuda.amp.custom_fwd", "amp.custom_fwd(args..., device_type='cuda')")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """``amp.custom_bwd`` for CUDA, its deprecated name: warns so."""
    warn_deprecated("cuda.amp.custom_bwd", "amp.custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")


def amp_definitely_not_available() -> bool:
    """Whether there is no device that casts are made for."""
    from . import is_available

    return not is_available()
