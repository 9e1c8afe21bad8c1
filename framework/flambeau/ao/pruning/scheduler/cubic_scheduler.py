"""Sparsity that grows ever slower."""

from __future__ import annotations

import warnings
from typing import Any

from ..sparsifier.base_sparsifier import BaseSparsifier
from .base_scheduler import BaseScheduler

__all__ = ["CubicSL"]


class CubicSL(BaseScheduler):
    """From `init_sl` to the sparsity at the start, along a cube: ``s_f + (s_0 - s_f) * (1 - (t - t_0) / (d * n)) ** 3``.

    Args:
        init_sl: ``s_0``; this and the next three are numbers, or lists of one for each tensor.
        init_t: ``t_0``, the step it begins at.
        delta_t: ``d``, steps between changes of the formula's time.
        total_t: ``n``, how many of these there are.
        initially_zero: 0 before it begins, rather than `init_sl`.
    Source: Zhu & Gupta 2017, "To prune, or not to prune", arXiv:1710.01878.
    """

    def __init__(
        self, sparsifier: BaseSparsifier, init_sl: Any = 0.0, init_t: Any = 0, delta_t: Any = 10, total_t: Any = 100,
        initially_zero: Any = False, last_epoch: int = -1, verbose: bool = False,
    ) -> None:  # fmt: skip
        self.sparsifier = sparsifier
        self.init_sl, self.init_t, self.delta_t, self.total_t, self.initially_zero = map(
            self._make_sure_a_list, (init_sl, init_t, delta_t, total_t, initially_zero)
        )
        super().__init__(sparsifier, last_epoch, verbose)

    @staticmethod
    def sparsity_compute_fn(s_0: float, s_f: float, t: int, t_0: int, dt: int, n: int, initially_zero: bool = False) -> float:
        """The sparsity at step `t`."""
        if initially_zero and t < t_0:
            return 0
        level = s_f + (s_0 - s_f) * (1.0 - (t - t_0) / (dt * n)) ** 3
        return min(max(level, s_0), s_f)

    def get_sl(self) -> list[float]:
        """The sparsity of each tensor now."""
        if not self._get_sl_called_within_step:
            warnings.warn("To get the last sparsity level computed by the scheduler, please use `get_last_sl()`.", stacklevel=2)
        groups = zip(self.init_sl, self.base_sl, self.init_t, self.delta_t, self.total_t, self.initially_zero, strict=True)
        return [self.sparsity_compute_fn(s_0, s_f, self.last_epoch, t_0, dt, n, zero) for s_0, s_f, t_0, dt, n, zero in groups]
