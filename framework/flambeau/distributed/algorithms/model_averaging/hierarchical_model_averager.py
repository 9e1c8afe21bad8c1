"""Averages within small groups often, and within larger ones seldom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from ... import distributed_c10d as c10d
from . import averagers, utils

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(averagers.ModelAverager):
    """Averages over groups whose size depends on the step.

    Where several periods end at one step, the largest of their groups is averaged.

    Args:
        period_group_size_dict: from the period, in steps, to the number of ranks that average; both grow, and the last group
            has all ranks. Groups hold neighbouring ranks.
        warmup_steps: steps without any average.
        process_group: the ranks; None for all.
    Raises: ValueError for other dicts or a negative number of steps.
    """

    def __init__(self, period_group_size_dict: dict[int, int] | None = None, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        periods, sizes = list(period_group_size_dict), list(period_group_size_dict.values())
        if periods[0] <= 0:
            raise ValueError(f"The minimum period in arg ``period_group_size_dict`` must be a positive value. Got {periods[0]}.")
        if periods != sorted(set(periods)) or sizes != sorted(set(sizes)):
            raise ValueError(f"Periods and group sizes in arg ``period_group_size_dict`` must grow. Got {dict(period_group_size_dict)}.")
        if sizes[-1] != self.process_group.size():
            raise ValueError(
                f"The last value in arg ``period_group_size_dict`` {sizes[-1]} must be equal to the size of arg "
                f"``process_group`` {self.process_group.size()}."
            )
        if warmup_steps < 0:
            raise ValueError(f"Arg ``warmup_steps`` must be a non-negative number. Got {warmup_steps}.")
        self.warmup_steps = warmup_steps
        self.period_process_group_dict: OrderedDict[int, Any] = OrderedDict(
            (period, self._group(size)) for period, size in zip(periods, sizes, strict=True)
        )

    def _group(self, size: int) -> Any:
        ranks = c10d.get_process_group_ranks(self.process_group)
        if size == len(ranks):
            return self.process_group
        if len(ranks) % size:
            raise ValueError(f"The world size ({len(ranks)}) must be divisible by 'group_size={size}'")
        parts = [ranks[at : at + size] for at in range(0, len(ranks), size)]
        return c10d.new_subgroups_by_enumeration(parts)[0]

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Average `params`, parameters or groups of them, over the group of this step, and count a step."""
        if self.step >= self.warmup_steps:
            due = [group for period, group in self.period_process_group_dict.items() if self.step % period == 0]
            if due:
                utils.average_parameters_or_parameter_groups(params, due[-1])
        self.step += 1
