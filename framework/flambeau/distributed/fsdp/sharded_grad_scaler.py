"""A `GradScaler` for parameters that are spread over processes: all of them skip a step if one has met inf or nan."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ...amp.grad_scaler import GradScaler
from .. import distributed_c10d as dist

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """As `amp.GradScaler`; every process of the group calls `unscale_` or `step` for the same optimizers in the same order.

    Args:
        process_group: the processes that have parts of the parameters; all by default.
        device, init_scale, backoff_factor, growth_factor, growth_interval, enabled: as for `amp.GradScaler`.
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, backoff_factor: float = 0.5, growth_factor: float = 2.0,
        growth_interval: int = 2000, enabled: bool = True, process_group: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            device, init_scale=init_scale, backoff_factor=backoff_factor, growth_factor=growth_factor, growth_interval=growth_interval,
            enabled=enabled,
        )  # fmt: skip
        if self._enabled:
            self.process_group = process_group

    def _unscale(self, optimizer: Any, factor: float, allow_half: bool) -> bool:
        # Shards may be of half types, which the parameters of other optimizers should not be.
        found = fb.tensor(float(super()._unscale(optimizer, factor, allow_half=True)), device=self._scale_tensor().device)
        dist.all_reduce(found, dist.ReduceOp.MAX, self.process_group)
        return bool(found)
