"""RMSprop."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau_kernels.vocabulary import sqrt

from ._elementwise import ElementwiseOptimizer, Update, check_at_least_zero, check_rate
from ._rule import blend, decay, direction, update_rule
from .optimizer import ParamsT

__all__ = ["RMSprop"]


@update_rule(state=("square_avg",))
def plain(param, grad, square_avg, lr, momentum, alpha, rest, eps, weight_decay):
    grad = decay(direction(grad), param, weight_decay)
    square = square_avg * alpha + rest * grad * grad
    return param - lr * grad / (sqrt(square) + eps), square


@update_rule(state=("square_avg", "momentum_buffer"))
def with_momentum(param, grad, square_avg, momentum_buffer, lr, momentum, alpha, rest, eps, weight_decay):
    grad = decay(direction(grad), param, weight_decay)
    square = square_avg * alpha + rest * grad * grad
    velocity = momentum_buffer * momentum + grad / (sqrt(square) + eps)
    return param - lr * velocity, square, velocity


@update_rule(state=("square_avg", "grad_avg"))
def centered(param, grad, square_avg, grad_avg, lr, momentum, alpha, rest, eps, weight_decay):
    grad = decay(direction(grad), param, weight_decay)
    square = square_avg * alpha + rest * grad * grad
    mean = blend(grad_avg, grad, rest)
    return param - lr * grad / (sqrt(square - mean * mean) + eps), square, mean


@update_rule(state=("square_avg", "momentum_buffer", "grad_avg"))
def centered_with_momentum(param, grad, square_avg, momentum_buffer, grad_avg, lr, momentum, alpha, rest, eps, weight_decay):
    grad = decay(direction(grad), param, weight_decay)
    square = square_avg * alpha + rest * grad * grad
    mean = blend(grad_avg, grad, rest)
    velocity = momentum_buffer * momentum + grad / (sqrt(square - mean * mean) + eps)
    return param - lr * velocity, square, velocity, mean


RULES = {
    (False, False): plain, (False, True): with_momentum, (True, False): centered,
    (True, True): centered_with_momentum,
}


class RMSprop(ElementwiseOptimizer):
    """Divides the gradient by the root of its running mean square.

    Args:
        lr: learning rate, >= 0. alpha: share of the mean square kept per step. eps: added to the root.
        weight_decay: L2 penalty, >= 0. momentum: share of the previous step kept, >= 0.
        centered: divide by the standard deviation instead.
        capturable, foreach, maximize, differentiable: as for `Adam`.
    State: 'step', 'square_avg', with momentum 'momentum_buffer', when centered 'grad_avg'.
    Source: Hinton, lecture 6.5 of "Neural Networks for Machine Learning"; centered: Graves 2013, "Generating
        Sequences With Recurrent Neural Networks".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        })

    def _rule(self, group: dict[str, Any]) -> Any:
        return RULES[bool(group["centered"]), group["momentum"] > 0]

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return self._rule(group).state

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        alpha, rot = group["alpha"], group["weight_decay"]
        formula = self._rule(group).formula(group["maximize"], rot, 1 - alpha)
        numbers = (group["lr"], group["momentum"], alpha, 1 - alpha, group["eps"], rot)
        return Update(formula, numbers, (float(scalars[0]) + 1,))
