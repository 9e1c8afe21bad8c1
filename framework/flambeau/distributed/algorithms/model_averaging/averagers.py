"""Averagers: when the parameters of ranks that train apart are replaced by their means."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ... import distributed_c10d as c10d
from . import utils

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager(ABC):
    """Base of averagers.

    Args:
        process_group: the ranks; None for all.
    """

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = c10d._default() if process_group is None else process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None:
        """Average `params`, parameters or groups of them, if it is time, and count a step."""


class PeriodicModelAverager(ModelAverager):
    """Averages every `period` steps, after the warm-up.

    Args:
        period: steps from one average to the next.
        warmup_steps: steps without any.
        process_group: the ranks; None for all.
    Raises: ValueError for a period that is not positive, or a negative number of steps.
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError(f"Arg ``warmup_steps`` must be a non-negative number. Got {warmup_steps}.")
        if period <= 0:
            raise ValueError(f"Arg ``period`` must be a positive value. Got {period}.")
        if period == 1:
            warnings.warn(
                "PeriodicModelAverager: with a period of 1 the mean of gradients in DistributedDataParallel does the same",
                stacklevel=2,
            )
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Average `params`, parameters or groups of them, if it is time, and count a step.

        Those without a gradient stay as they are.
        """
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
