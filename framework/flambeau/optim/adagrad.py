"""Adagrad."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor
from flambeau_kernels.vocabulary import sqrt

from ._elementwise import ElementwiseOptimizer, Update, check_at_least_zero, check_flags, check_rate
from ._rule import decay, direction, update_rule
from .optimizer import ParamsT

__all__ = ["Adagrad"]


@update_rule(state=("sum",))
def adagrad(param, grad, total, lr, eps, weight_decay):
    grad = decay(direction(grad), param, weight_decay)
    total = total + grad * grad
    return param - lr * grad / (sqrt(total) + eps), total


class Adagrad(ElementwiseOptimizer):
    """Divides the gradient by the root of the sum of its squares so far.

    Args:
        lr: learning rate, >= 0, divided by ``1 + lr_decay * steps taken``.
        weight_decay: L2 penalty, >= 0. initial_accumulator_value: what the sums start at, >= 0. eps: added to
            the root.
        foreach, maximize, differentiable, fused: as for `Adam`.
    State, made by the constructor: 'step', 'sum'.
    Source: Duchi et al. 2011, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization".
    """

    _accepts_sparse = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            epsilon=eps,
        )
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        })
        check_flags(foreach, fused, differentiable)
        for group in self.param_groups:
            for param in group["params"]:
                self._make_state(param, group)

    def share_memory(self) -> None:
        """Move the sums to memory that other processes can map."""
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["sum"].share_memory_()

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return adagrad.state

    def _first_tensor(self, name: str, param: Any, group: dict[str, Any]) -> Any:
        value = group["initial_accumulator_value"]
        # The parts of a complex number are summed apart, and both start at the value.
        start = complex(value, value) if param.is_complex() else value
        return fb.full_like(param, start, memory_format=fb.preserve_format, requires_grad=False)

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        step = float(scalars[0]) + 1
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        numbers = (rate, group["eps"], group["weight_decay"])
        return Update(adagrad.formula(group["maximize"], group["weight_decay"]), numbers, (step,))
