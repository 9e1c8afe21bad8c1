"""Adam with Nesterov momentum."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau_kernels.vocabulary import sqrt

from ._elementwise import ElementwiseOptimizer, Update, check_at_least_zero, check_betas, check_rate
from ._rule import blend, decay, direction, update_rule
from .optimizer import ParamsT

__all__ = ["NAdam"]


@update_rule(state=("exp_avg", "exp_avg_sq"))
def nadam(
    param,
    grad,
    exp_avg,
    exp_avg_sq,
    grad_rate,
    mean_rate,
    bias2,
    rest1,
    beta2,
    rest2,
    eps,
    weight_decay,
    keep,
):
    grad = decay(direction(grad), param, weight_decay)
    mean = blend(exp_avg, grad, rest1)
    square = exp_avg_sq * beta2 + rest2 * grad * grad
    scale = sqrt(square / bias2) + eps
    return param * keep - grad_rate * grad / scale - mean_rate * mean / scale, mean, square


class NAdam(ElementwiseOptimizer):
    """Adam that looks ahead along its momentum, which grows over the first steps.

    Args:
        lr: learning rate, >= 0. betas: each in ``[0, 1)``. eps: added to the root.
        weight_decay: L2 penalty, >= 0; with `decoupled_weight_decay` the parameters shrink instead, as in AdamW.
        momentum_decay: how fast the momentum reaches its final value, >= 0.
        foreach, maximize, capturable, differentiable: as for `Adam`.
    State: 'step', 'mu_product' (product of the momenta so far), 'exp_avg', 'exp_avg_sq'.
    Source: Dozat 2016, "Incorporating Nesterov Momentum into Adam"; the constant 0.96 is from its schedule of
        momenta.
    """

    _scalar_state = ("step", "mu_product")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        check_at_least_zero(weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        })

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return nadam.state

    def _first_scalar(self, name: str, group: dict[str, Any]) -> float:
        return 1.0 if name == "mu_product" else 0.0

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        step, product = float(scalars[0]) + 1, scalars[1]
        lr, (beta1, beta2), rot = group["lr"], group["betas"], group["weight_decay"]
        mu = beta1 * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))
        mu_next = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * group["momentum_decay"]))
        product = product * mu  # in its own dtype, float32, and from here on exactly
        kept, product = product, product if isinstance(product, Tensor) else float(product)
        decoupled = group["decoupled_weight_decay"]
        numbers = (
            lr * (1 - mu) / (1 - product), lr * mu_next / (1 - product * mu_next), 1 - beta2**step, 1 - beta1,
            beta2, 1 - beta2, group["eps"], rot, 1 - lr * rot if decoupled else 1,
        )
        return Update(nadam.formula(group["maximize"], 0 if decoupled else rot, 1 - beta1), numbers, (step, kept))
