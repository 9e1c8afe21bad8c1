"""Adamax."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau_kernels.vocabulary import abs, maximum  # the vocabulary's abs

from ._elementwise import ElementwiseOptimizer, Update, check_at_least_zero, check_betas, check_rate
from ._rule import blend, decay, direction, update_rule
from .optimizer import ParamsT

__all__ = ["Adamax"]


@update_rule(state=("exp_avg", "exp_inf"))
def adamax(param, grad, exp_avg, exp_inf, step_size, rest1, beta2, eps, weight_decay):
    grad = decay(direction(grad), param, weight_decay)
    mean = blend(exp_avg, grad, rest1)
    largest = maximum(exp_inf * beta2, abs(grad) + eps)
    return param - step_size * mean / largest, mean, largest


class Adamax(ElementwiseOptimizer):
    """Adam that divides by the decaying maximum of the gradient's size.

    Args:
        lr: learning rate, >= 0. betas: each in ``[0, 1)``. eps: added to the size of the gradient.
        weight_decay: L2 penalty, >= 0.
        foreach, maximize, differentiable, capturable: as for `Adam`.
    State: 'step', 'exp_avg', 'exp_inf'.
    Source: Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization", section 7.1.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(epsilon=eps)
        check_betas(betas)
        check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return adamax.state

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        step = float(scalars[0]) + 1
        (beta1, beta2), rot = group["betas"], group["weight_decay"]
        numbers = (group["lr"] / (1 - beta1**step), 1 - beta1, beta2, group["eps"], rot)
        return Update(adamax.formula(group["maximize"], rot, 1 - beta1), numbers, (step,))
