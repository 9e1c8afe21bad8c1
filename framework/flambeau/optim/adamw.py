"""Adam whose weight decay does not pass through the gradient."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor

from .adam import Adam
from .optimizer import ParamsT

__all__ = ["AdamW"]


class AdamW(Adam):
    """`Adam` that shrinks the parameters by ``lr * weight_decay`` per step instead of changing the gradient.

    Args, state: those of `Adam`.
    Source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Checkpoints made when AdamW was a class of its own lack the flag, or say what was then Adam's default.
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
