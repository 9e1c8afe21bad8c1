"""Sparsity by functions of the step."""

from __future__ import annotations

import warnings
from typing import Any

from ..sparsifier.base_sparsifier import BaseSparsifier
from .base_scheduler import BaseScheduler

__all__ = ["LambdaSL"]


class LambdaSL(BaseScheduler):
    """The sparsity at the start, times a function of the step.

    Args:
        sl_lambda: a function, or a list of one for each tensor.
    Raises: ValueError for another number of functions.
    """

    def __init__(self, sparsifier: BaseSparsifier, sl_lambda: Any, last_epoch: int = -1, verbose: bool = False) -> None:
        count = len(sparsifier.groups)
        if not isinstance(sl_lambda, (list, tuple)):
            self.sl_lambdas = [sl_lambda] * count
        elif len(sl_lambda) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(sl_lambda)}")
        else:
            self.sl_lambdas = list(sl_lambda)
        super().__init__(sparsifier, last_epoch, verbose)

    def get_sl(self) -> list[float]:
        """The sparsity of each tensor now."""
        if not self._get_sl_called_within_step:
            warnings.warn("To get the last sparsity level computed by the scheduler, please use `get_last_sl()`.", stacklevel=2)
        return [base * function(self.last_epoch) for base, function in zip(self.base_sl, self.sl_lambdas, strict=True)]
