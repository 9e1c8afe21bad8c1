"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor
from flambeau_kernels.vocabulary import maximum, minimum, sign, where

from ._elementwise import ElementwiseOptimizer, Update, check_rate
from ._rule import direction, update_rule
from .optimizer import ParamsT

__all__ = ["Rprop"]


@update_rule(state=("prev", "step_size"))
def rprop(param, grad, prev, step_size, shrink, grow, smallest, largest):
    grad = direction(grad)
    agreement = grad * prev
    factor = where(agreement > 0, grow, where(agreement < 0, shrink, 1))
    step_size = minimum(maximum(step_size * factor, smallest), largest)
    # After a change of sign the step is skipped, and the next gradient is taken as new.
    grad = where(agreement < 0, 0, grad)
    return param - sign(grad) * step_size, grad, step_size


class Rprop(ElementwiseOptimizer):
    """Steps by the sign of the gradient; a step grows while the sign stays and shrinks when it changes.

    Args:
        lr: size of the first step, >= 0.
        etas: factors on a step after a change of sign, in ``(0, 1)``, and after none, > 1.
        step_sizes: the smallest and the largest step.
        capturable, foreach, maximize, differentiable: as for `Adam`.
    State: 'step', 'prev' (the previous gradient), 'step_size'.
    Source: Riedmiller & Braun 1993, "A direct adaptive method for faster backpropagation learning: the RPROP
        algorithm".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}; they must satisfy 0 < etas[0] < 1 < etas[1]")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        })

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return rprop.state

    def _first_tensor(self, name: str, param: Any, group: dict[str, Any]) -> Any:
        if name == "prev":
            return super()._first_tensor(name, param, group)
        lr = float(group["lr"])
        # The parts of a complex number are stepped apart.
        return fb.full_like(param, complex(lr, lr) if param.is_complex() else lr, requires_grad=False)

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        return Update(rprop.formula(group["maximize"]), (*group["etas"], *group["step_sizes"]), (float(scalars[0]) + 1,))
