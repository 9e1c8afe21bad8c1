"""What schedulers of sparsity share."""

from __future__ import annotations

import warnings
from typing import Any

from ..sparsifier.base_sparsifier import BaseSparsifier

__all__ = ["BaseScheduler"]


class BaseScheduler:
    """Sets the sparsity of a sparsifier's tensors, one step after the other. A class of it says by `get_sl` how much.

    Args:
        sparsifier: what it sets "sparsity_level" of; those at the start are `base_sl`.
        last_epoch: how many steps there have been, less one.
        verbose: print what is set.
    """

    def __init__(self, sparsifier: BaseSparsifier, last_epoch: int = -1, verbose: bool = False) -> None:
        self.sparsifier = sparsifier
        self.base_sl = [group["sparsity_level"] for group in sparsifier.groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self.verbose = verbose
        self._get_sl_called_within_step = False
        self._last_sl: list[float] = []
        self.step()

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the sparsifier."""
        return {key: value for key, value in self.__dict__.items() if key != "sparsifier"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.__dict__.update(state_dict)

    def get_last_sl(self) -> list[float]:
        """What the last step set."""
        return self._last_sl

    def get_sl(self) -> list[float]:
        """The sparsity of each tensor now."""
        if not self._get_sl_called_within_step:
            warnings.warn("To get the last sparsity level computed by the scheduler, please use `get_last_sl()`.", stacklevel=2)
        raise NotImplementedError(f"{type(self).__name__}.get_sl")

    def print_sl(self, is_verbose: bool, group: int, sl: float, epoch: int | None = None) -> None:
        """Print what is set, where `is_verbose`."""
        if is_verbose:
            at = "" if epoch is None else f"Epoch {epoch:5d}: "
            print(f"{at}{'adjusting' if at else 'Adjusting'} sparsity level of group {group} to {sl:.4e}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__} (\nSparsifier {self.sparsifier}\n    base_sl: {self.base_sl}\n)"

    def step(self, epoch: int | None = None) -> None:
        """Go on by one step, and set what `get_sl` says."""
        self._step_count += 1
        self.last_epoch += 1
        self._get_sl_called_within_step = True
        try:
            values = self.get_sl()
        finally:
            self._get_sl_called_within_step = False
        for i, (group, level) in enumerate(zip(self.sparsifier.groups, values, strict=True)):
            group["sparsity_level"] = level
            self.print_sl(self.verbose, i, level, epoch)
        self._last_sl = [group["sparsity_level"] for group in self.sparsifier.groups]
        self.sparsifier.enable_mask_update = True

    def _make_sure_a_list(self, var: Any) -> list[Any]:
        """`var` for each tensor, or a list or tuple of one for each. Raises: ValueError for another number."""
        count = len(self.sparsifier.groups)
        if not isinstance(var, (list, tuple)):
            return [var] * count
        if len(var) != count:
            raise ValueError(f"Expected variable of length {count}, but got {len(var)}")
        return list(var)
