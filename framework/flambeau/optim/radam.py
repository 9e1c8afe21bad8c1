"""Rectified Adam."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau_kernels.vocabulary import sqrt

from ._elementwise import ElementwiseOptimizer, Update, check_at_least_zero, check_betas, check_rate
from ._rule import blend, decay, direction, update_rule
from .optimizer import ParamsT

__all__ = ["RAdam"]


@update_rule(state=("exp_avg", "exp_avg_sq"))
def rectified(param, grad, exp_avg, exp_avg_sq, step_size, scale, rest1, beta2, rest2, eps, weight_decay, keep):
    grad = decay(direction(grad), param, weight_decay)
    mean = blend(exp_avg, grad, rest1)
    square = exp_avg_sq * beta2 + rest2 * grad * grad
    return param * keep - step_size * mean * (scale / (sqrt(square) + eps)), mean, square


@update_rule(state=("exp_avg", "exp_avg_sq"))
def unadapted(param, grad, exp_avg, exp_avg_sq, step_size, scale, rest1, beta2, rest2, eps, weight_decay, keep):
    grad = decay(direction(grad), param, weight_decay)
    mean = blend(exp_avg, grad, rest1)
    return param * keep - step_size * mean, mean, exp_avg_sq * beta2 + rest2 * grad * grad


class RAdam(ElementwiseOptimizer):
    """Adam that leaves the division out, and later damps it, while the mean square is too uncertain.

    Args:
        lr: learning rate, >= 0. betas: each in ``[0, 1)``. eps: added to the root.
        weight_decay: L2 penalty, >= 0; with `decoupled_weight_decay` the parameters shrink instead, as in AdamW.
        foreach, maximize, capturable, differentiable: as for `Adam`.
    State: 'step', 'exp_avg', 'exp_avg_sq'.
    Source: Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and Beyond", algorithm 2, with the
        threshold on the length of the mean at 5 rather than 4, as in the authors' code and in PyTorch.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(epsilon=eps)
        check_betas(betas)
        check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        })

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return rectified.state

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        step = float(scalars[0]) + 1
        lr, (beta1, beta2), rot = group["lr"], group["betas"], group["weight_decay"]
        scale = rectification(beta2, step)
        decoupled = group["decoupled_weight_decay"]
        numbers = (
            lr / (1 - beta1**step), scale or 0.0, 1 - beta1, beta2, 1 - beta2, group["eps"],
            rot, 1 - lr * rot if decoupled else 1,
        )
        rule = unadapted if scale is None else rectified
        return Update(rule.formula(group["maximize"], 0 if decoupled else rot, 1 - beta1), numbers, (step,))


def rectification(beta2: float, step: float) -> float | None:
    """The factor on ``1 / root mean square``, bias correction included; None while the mean is too short."""
    longest = 2 / (1 - beta2) - 1
    bias2 = 1 - beta2**step
    length = longest - 2 * step * beta2**step / bias2
    if length <= 5:
        return None
    ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return (ratio * bias2) ** 0.5
