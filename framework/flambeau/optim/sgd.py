"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor

from ._elementwise import ElementwiseOptimizer, Update, check_at_least_zero, check_flags, check_rate
from ._rule import decay, direction, update_rule
from .optimizer import ParamsT

__all__ = ["SGD"]


@update_rule()
def descent(param, grad, lr, weight_decay):
    return param - lr * decay(direction(grad), param, weight_decay)


@update_rule(state=("momentum_buffer",))
def momentum_descent(param, grad, momentum_buffer, lr, weight_decay, momentum, share):
    velocity = momentum_buffer * momentum + share * decay(direction(grad), param, weight_decay)
    return param - lr * velocity, velocity


@update_rule(state=("momentum_buffer",))
def nesterov_descent(param, grad, momentum_buffer, lr, weight_decay, momentum, share):
    grad = decay(direction(grad), param, weight_decay)
    velocity = momentum_buffer * momentum + share * grad
    return param - lr * (grad + momentum * velocity), velocity


class SGD(ElementwiseOptimizer):
    """Stochastic gradient descent, optionally with momentum.

    Args:
        lr: learning rate, >= 0; a Tensor of one element may be given.
        momentum: share of the previous step that is kept.
        dampening: share of the gradient that does not enter the momentum.
        weight_decay: L2 penalty, >= 0.
        nesterov: look ahead along the momentum; needs momentum > 0 and dampening 0.
        maximize: ascend instead of descend.
        foreach, fused: which implementation; ``foreach=False`` steps parameters one at a time.
        differentiable: let autograd see the step.
    State: 'momentum_buffer', with momentum only; the first step takes the gradient undamped.
    Source: Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning", with
        the learning rate applied to the velocity rather than inside it.
    """

    _scalar_state = ()
    _accepts_sparse = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(momentum=momentum, weight_decay=weight_decay)
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach, "differentiable": differentiable,
            "fused": fused,
        }
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                "Nesterov momentum requires a momentum and zero dampening, "
                f"got momentum={momentum}, dampening={dampening}"
            )
        super().__init__(params, defaults)
        check_flags(foreach, fused, differentiable)

    def _check_group(self, group: dict[str, Any]) -> None:
        pass  # foreach=True together with differentiable=True is accepted here, and means differentiable

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        rate, rot = group["lr"], group["weight_decay"]
        if group["momentum"] == 0:
            return Update(descent.formula(group["maximize"], rot), (rate, rot))
        rule = nesterov_descent if group["nesterov"] else momentum_descent
        share = 1 if fresh else 1 - group["dampening"]
        return Update(rule.formula(group["maximize"], rot), (rate, rot, group["momentum"], share))

    def _step_sparse(self, group: dict[str, Any], param: Any, grad: Any) -> None:
        if group["weight_decay"] != 0 or group["momentum"] == 0 and param.layout is fb.strided:
            super()._step_sparse(group, param, grad)
            return
        # The buffer is a sparse tensor too, so elements that no gradient has named yet keep none.
        grad = -grad if group["maximize"] else grad
        with fb.no_grad():
            if group["momentum"] == 0:
                param.add_(grad, alpha=-float(group["lr"]))
                return
            state = self.state[param]
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = grad.detach().clone()
            else:
                buffer.mul_(group["momentum"]).add_(grad, alpha=1 - group["dampening"])
            step = grad.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
            param.add_(step, alpha=-float(group["lr"]))
