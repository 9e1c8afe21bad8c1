"""Adam for sparse gradients."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor
from flambeau_kernels.vocabulary import sqrt

from ..tensor import bump
from ._elementwise import check_betas, check_rate
from ._rule import blend, direction, on_rows, update_rule
from .optimizer import ByParameter, ParamsT

__all__ = ["SparseAdam"]


@update_rule(state=("exp_avg", "exp_avg_sq"))
def lazy_adam(param, grad, exp_avg, exp_avg_sq, step_size, rest1, rest2, eps):
    grad = direction(grad)
    mean = blend(exp_avg, grad, rest1)
    square = exp_avg_sq + rest2 * (grad * grad - exp_avg_sq)
    return param - step_size * mean / (sqrt(square) + eps), mean, square


class SparseAdam(ByParameter):
    """Adam that updates only the elements, and their moments, that occur in the sparse gradient.

    Args:
        lr: learning rate, >= 0. betas: each in ``[0, 1)``. eps: added to the root. maximize: ascend instead
            of descend.
    State: 'step' (an int), 'exp_avg', 'exp_avg_sq'.
    Raises: ValueError for sparse or complex parameters; RuntimeError for dense gradients.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_rate(lr)
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}, it must be > 0")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        for i, param in enumerate(self._all_params()):
            if param.layout is not fb.strided:
                raise ValueError(f"SparseAdam requires dense parameter tensors; parameter {i} has layout {param.layout}")
            if param.is_complex():
                raise ValueError(f"SparseAdam does not support complex parameters; parameter {i} is {param.dtype}")

    def _step_param(self, group: dict[str, Any], param: Any, grad: Any) -> None:
        if grad.layout is fb.strided:
            raise RuntimeError(
                f"SparseAdam does not support dense gradients (parameter of shape {tuple(param.shape)}); "
                "please consider Adam instead"
            )
        state = self.state[param]
        if not state:
            state["step"] = 0
            state["exp_avg"] = fb.zeros_like(param, memory_format=fb.preserve_format, requires_grad=False)
            state["exp_avg_sq"] = fb.zeros_like(param, memory_format=fb.preserve_format, requires_grad=False)
        step = state["step"] = state["step"] + 1
        beta1, beta2 = group["betas"]
        step_size = float(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        grad = grad.coalesce()
        if not grad.values().numel():
            return
        tensors = [state["exp_avg"], state["exp_avg_sq"]]
        formula = lazy_adam.formula(group["maximize"], 0, 1 - beta1)
        numbers = (step_size, 1 - beta1, 1 - beta2, group["eps"])
        rows = tuple(grad.indices()._array)
        on_rows(formula, param._array, rows, grad.values()._array, [t._array for t in tensors], numbers)
        for tensor in (param, *tensors):
            bump(tensor)
