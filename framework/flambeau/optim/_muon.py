"""Muon: momentum of matrices, made orthogonal."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb
from flambeau import Tensor

from .optimizer import ByParameter, ParamsT

__all__ = ["Muon"]


class Muon(ByParameter):
    """Momentum whose singular values are all brought near 1 before the step; for weights of two dimensions.

    Args:
        lr: learning rate, >= 0.
        weight_decay: share of ``lr`` by which parameters shrink, >= 0.
        momentum: share of the previous momentum that is kept, >= 0.
        nesterov: look ahead along the momentum.
        ns_coefficients: of x, x**3 and x**5 in the polynomial that brings singular values near 1.
        eps: the least norm that the momentum is divided by.
        ns_steps: how often the polynomial is applied, below 100.
        adjust_lr_fn: how the step is scaled: None or "original" by ``sqrt(max(1, rows / columns))``, "match_rms_adamw" by
            ``0.2 * sqrt(max(rows, columns))``, so that settings of AdamW serve.
    State: 'momentum_buffer'. The polynomial is computed in bfloat16.
    Source: Jordan 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et al. 2025, arXiv:2502.16982.
    """

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients,
            "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        })
        for group in self.param_groups:
            for param in group["params"]:
                if param.ndim != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {param.size()}")

    def _step_param(self, group: dict[str, Any], param: Any, grad: Any) -> None:
        if param.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        if grad.layout is not fb.strided:
            raise RuntimeError("Muon does not support sparse gradients")
        state = self.state[param]
        if not state:
            state["momentum_buffer"] = fb.zeros_like(grad, memory_format=fb.preserve_format)
        momentum = group["momentum"]
        buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        update = _orthogonal(grad.lerp(buffer, momentum) if group["nesterov"] else buffer, group)
        rows, columns = param.shape[:2]
        matched = group["adjust_lr_fn"] == "match_rms_adamw"
        ratio = 0.2 * math.sqrt(max(rows, columns)) if matched else math.sqrt(max(1, rows / columns))
        param.mul_(1 - group["lr"] * group["weight_decay"])
        param.sub_(update * (group["lr"] * ratio))


def _orthogonal(update: Tensor, group: dict[str, Any]) -> Tensor:
    """A matrix with the singular vectors of `update` and singular values near 1, by Newton-Schulz iteration, in bfloat16.

    Raises: ValueError for 100 steps or more, or another number of coefficients than 3.
    """
    if group["ns_steps"] >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(group["ns_coefficients"]) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = group["ns_coefficients"]
    tall = update.shape[0] > update.shape[1]
    x = update.mT if tall else update                 # so that the products of the iteration are the small ones
    x = x.bfloat16()
    x = (x / x.norm().clamp(min=group["eps"])).float()
    for _ in range(group["ns_steps"]):
        gram = _rounded(x @ x.mT)
        x = _rounded(fb.addmm(x, _rounded(fb.addmm(gram, gram, gram, beta=b, alpha=c)), x, beta=a))
    return x.mT if tall else x


def _rounded(sums: Tensor) -> Tensor:
    """Numbers of bfloat16 nearest to `sums`, in float32: sums of products are rounded once, as matrix units do."""
    return sums.bfloat16().float()
