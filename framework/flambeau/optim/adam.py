"""Adam, with AMSGrad, and with weight decay inside or beside the gradient."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau_kernels.vocabulary import maximum, sqrt

from ._elementwise import ElementwiseOptimizer, Update, check_betas, check_flags, check_rate
from ._rule import blend, decay, direction, update_rule
from .optimizer import ParamsT

__all__ = ["Adam"]


@update_rule(state=("exp_avg", "exp_avg_sq"))
def adam(param, grad, exp_avg, exp_avg_sq, step_size, root_bias2, rest1, beta2, rest2, eps, weight_decay, keep):
    grad = decay(direction(grad), param, weight_decay)
    mean = blend(exp_avg, grad, rest1)
    square = exp_avg_sq * beta2 + rest2 * grad * grad
    return param * keep - step_size * mean / (sqrt(square) / root_bias2 + eps), mean, square


@update_rule(state=("exp_avg", "exp_avg_sq", "max_exp_avg_sq"))
def amsgrad(
    param,
    grad,
    exp_avg,
    exp_avg_sq,
    max_exp_avg_sq,
    step_size,
    root_bias2,
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
    largest = maximum(max_exp_avg_sq, square)
    return param * keep - step_size * mean / (sqrt(largest) / root_bias2 + eps), mean, square, largest


class Adam(ElementwiseOptimizer):
    """Steps along the running mean of the gradient, divided by the root of its running mean square.

    Args:
        lr: learning rate, >= 0; a Tensor of one element may be given.
        betas: how much of the running mean and mean square is kept per step, each in ``[0, 1)``.
        eps: added to the root, in the unit of the gradient.
        weight_decay: L2 penalty, >= 0.
        amsgrad: divide by the largest mean square so far.
        foreach, fused: which implementation; ``foreach=False`` steps parameters one at a time.
        maximize: ascend instead of descend.
        capturable: the step may be captured in a CUDA graph; CUDA parameters only.
        differentiable: let autograd see the step.
        decoupled_weight_decay: shrink the parameters by ``lr * weight_decay`` instead (AdamW).
    State: 'step' (float32), 'exp_avg', 'exp_avg_sq', and with amsgrad 'max_exp_avg_sq'.
    Source: Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization"; Reddi et al. 2018, "On the
        Convergence of Adam and Beyond".
    """

    _sparse_advice = "; please consider SparseAdam instead"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _check_tensor_options(lr, betas, bool(foreach) and not capturable)
        check_rate(lr)
        if not eps >= 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}, it must be >= 0")
        check_betas(betas)
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}, it must be >= 0")
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)
        check_flags(foreach, fused, differentiable)

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return amsgrad.state if group["amsgrad"] else adam.state

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        step = float(scalars[0]) + 1
        lr, (beta1, beta2), rot = group["lr"], group["betas"], group["weight_decay"]
        decoupled = group["decoupled_weight_decay"]
        numbers = (
            lr / (1 - beta1**step), (1 - beta2**step) ** 0.5, 1 - beta1, beta2, 1 - beta2, group["eps"],
            rot, 1 - lr * rot if decoupled else 1,
        )
        rule = amsgrad if group["amsgrad"] else adam
        return Update(rule.formula(group["maximize"], 0 if decoupled else rot, 1 - beta1), numbers, (step,))


def _check_tensor_options(lr: Any, betas: Any, by_foreach: bool) -> None:
    """Raises: ValueError for mixed betas, and for Tensors where PyTorch's multi-tensor step needs numbers."""
    if isinstance(lr, Tensor) and by_foreach:
        raise ValueError(
            "lr as a Tensor is not supported for capturable=False and foreach=True; pass float(lr)"
        )
    tensors = [isinstance(beta, Tensor) for beta in betas[:2]]
    if any(tensors) and not all(tensors):
        raise ValueError(f"betas must be either both floats or both Tensors, got {betas}")
    for i, beta in enumerate(betas[:2]):
        if not isinstance(beta, Tensor):
            continue
        if by_foreach:
            raise ValueError(
                f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True; pass a float"
            )
        if beta.numel() != 1:
            raise ValueError(f"Tensor betas[{i}] must be 1-element, got shape {tuple(beta.shape)}")
