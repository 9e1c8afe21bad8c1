"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor

from ._elementwise import ElementwiseOptimizer, Update, check_at_least_zero, check_rate
from ._rule import blend, decay, direction, update_rule
from .optimizer import ParamsT

__all__ = ["ASGD"]


@update_rule(state=("ax",))
def averaged_descent(param, grad, ax, eta, keep, mu, weight_decay):
    grad = decay(direction(grad), param, weight_decay)
    param = param * keep - eta * grad
    return param, blend(ax, param, mu)


class ASGD(ElementwiseOptimizer):
    """Gradient descent with a falling rate that also keeps the average of its parameters.

    Args:
        lr: first learning rate, >= 0. lambd: decay of parameters and rate. alpha: power of the fall of the rate.
        t0: steps before averaging starts. weight_decay: L2 penalty, >= 0.
        foreach, maximize, differentiable, capturable: as for `Adam`.
    State: 'step', 'eta' (learning rate), 'mu' (weight of the newest parameters), 'ax' (the average).
    Source: Polyak & Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging", with the schedule
        of Bottou's stochastic gradient code.
    """

    _scalar_state = ("step", "eta", "mu")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        })

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return averaged_descent.state

    def _first_scalar(self, name: str, group: dict[str, Any]) -> float:
        return {"step": 0.0, "eta": float(group["lr"]), "mu": 1.0}[name]

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        step, eta, mu = float(scalars[0]) + 1, scalars[1], float(scalars[2])
        eta = eta if isinstance(eta, Tensor) else float(eta)
        lr, lambd, rot = group["lr"], group["lambd"], group["weight_decay"]
        numbers = (eta, 1 - lambd * eta, mu, rot)
        eta = lr / (1 + lambd * lr * step) ** group["alpha"]
        after = (step, eta, 1 / max(1, step - group["t0"]))
        return Update(averaged_descent.formula(group["maximize"], rot, mu), numbers, after)
