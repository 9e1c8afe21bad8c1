"""Adafactor: Adam's second moment kept as row and column means."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor

from ._elementwise import check_rate
from .optimizer import ByParameter, ParamsT

__all__ = ["Adafactor"]


class Adafactor(ByParameter):
    """Adam with a factored second moment: memory for a matrix is its rows plus its columns.

    Args:
        lr: bound on the relative step, >= 0.
        beta2_decay: power of the step that gives the weight of the newest square, <= 0.
        eps: floor of the second moment (None: machine epsilon of the dtype), and of the parameters' root mean square.
        d: root mean square of the update beyond which it is scaled down, >= 1.
        weight_decay: share of ``lr`` by which parameters shrink, >= 0.
        foreach: accepted; parameters are stepped one at a time. maximize: ascend instead of descend.
    State: 'step', and 'row_var' and 'col_var' for two or more dimensions, else 'variance'.
    Source: Shazeer & Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_rate(lr)
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        for i, floor in enumerate(eps):
            if floor is not None and not floor >= 0.0:
                raise ValueError(f"eps[{i}] should be >= 0 but is: {floor}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize,
        })

    def _step_param(self, group: dict[str, Any], param: Any, grad: Any) -> None:
        if param.is_complex():
            raise RuntimeError(f"Adafactor does not support complex parameters, got {param.dtype}")
        if grad.layout is not fb.strided:
            raise RuntimeError("Adafactor does not support sparse gradients")
        state = self._state_of(param, grad)
        grad = -grad if group["maximize"] else grad
        eps1, eps2 = group["eps"]
        eps1 = fb.finfo(param.dtype).eps if eps1 is None else eps1
        state["step"].add_(1)
        step, lr = state["step"].item(), group["lr"]
        newest = step ** group["beta2_decay"]  # weight of this step's squares in the running means
        rate = max(eps2, _rms(param).item()) * min(lr, 1 / step**0.5)
        if group["weight_decay"] != 0:
            param.mul_(1 - lr * group["weight_decay"])
        update = grad * _second_moment(state, grad, newest, eps1).clamp_(min=eps1 * eps1).rsqrt_()
        param.sub_(update * (rate / max(1.0, _rms(update).item() / group["d"])))

    def _state_of(self, param: Any, grad: Any) -> dict[str, Any]:
        state = self.state[param]
        if not state:
            state["step"] = fb.tensor(0.0, dtype=fb.float32)
            if grad.dim() > 1:
                state["row_var"] = grad.new_zeros((*grad.shape[:-1], 1))
                state["col_var"] = grad.new_zeros((*grad.shape[:-2], 1, grad.shape[-1]))
            else:
                state["variance"] = fb.zeros_like(grad, memory_format=fb.preserve_format)
        return state


def _rms(tensor: Any) -> Any:
    return (tensor * tensor).mean().sqrt()


def _second_moment(state: dict[str, Any], grad: Any, newest: float, floor: float) -> Any:
    """Update the means of squares; estimate them all from rows (..., m, 1) and columns (..., 1, n)."""
    square = grad * grad
    if grad.dim() <= 1:
        state["variance"].lerp_(square, newest)
        return state["variance"].clone()
    state["row_var"].lerp_(square.mean(-1, keepdim=True), newest)
    state["col_var"].lerp_(square.mean(-2, keepdim=True), newest)
    mean = state["row_var"].mean(-2, keepdim=True).clamp_(min=floor)
    return state["row_var"] @ state["col_var"] / mean
