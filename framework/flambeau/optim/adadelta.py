"""Adadelta."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau_kernels.vocabulary import sqrt

from ._elementwise import ElementwiseOptimizer, Update, check_at_least_zero, check_rate
from ._rule import decay, direction, update_rule
from .optimizer import ParamsT

__all__ = ["Adadelta"]


@update_rule(state=("square_avg", "acc_delta"))
def adadelta(param, grad, square_avg, acc_delta, lr, rho, rest, eps, weight_decay):
    grad = decay(direction(grad), param, weight_decay)
    square = square_avg * rho + rest * grad * grad
    delta = sqrt(acc_delta + eps) / sqrt(square + eps) * grad
    return param - lr * delta, square, acc_delta * rho + rest * delta * delta


class Adadelta(ElementwiseOptimizer):
    """Scales the gradient by the ratio of the mean squares of past steps and past gradients.

    Args:
        lr: factor on the step, >= 0. rho: share of the mean squares kept per step, in ``[0, 1]``.
        eps: added under both roots. weight_decay: L2 penalty, >= 0.
        foreach, capturable, maximize, differentiable: as for `Adam`.
    State: 'step', 'square_avg', 'acc_delta'.
    Source: Zeiler 2012, "ADADELTA: An Adaptive Learning Rate Method".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}, it must be in [0, 1]")
        check_at_least_zero(epsilon=eps, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        })

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return adadelta.state

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        rho, rot = group["rho"], group["weight_decay"]
        numbers = (group["lr"], rho, 1 - rho, group["eps"], rot)
        return Update(adadelta.formula(group["maximize"], rot), numbers, (float(scalars[0]) + 1,))
