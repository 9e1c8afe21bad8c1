"""An optimizer whose parameters are averaged over ranks now and then."""

from __future__ import annotations

import warnings
from typing import Any

from ...optim import Optimizer

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Steps `optim` on this rank, and lets `averager` average its parameters when it is time.

    Args:
        optim: the optimizer of this rank.
        averager: a `ModelAverager`, whose warm-up is as long as that of the `PostLocalSGDState`.
    """

    def __init__(self, optim: Optimizer, averager: Any) -> None:
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]  # that of the optimizer inside
        """The state of `optim`."""
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """That of `optim`, with the averager's count of steps under "step"."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state of `state_dict`; without "step" the averager begins at 0, with a warning.

        Raises: what `load_state_dict` of `optim` raises.
        """
        self.optim.load_state_dict({name: value for name, value in state_dict.items() if name != "step"})
        self.param_groups = self.optim.param_groups
        if "step" not in state_dict:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.", stacklevel=2
            )
        self.averager.step = state_dict.get("step", 0)

    def step(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # without closures, as in PyTorch
        """Step on this rank, then average if it is time."""
        self.optim.step()
        self.averager.average_parameters(self.param_groups)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients; see `Optimizer.zero_grad`."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimize further parameters; see `Optimizer.add_param_group`."""
        self.optim.add_param_group(param_group)
