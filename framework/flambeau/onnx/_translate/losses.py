"""Losses."""

from __future__ import annotations

import flambeau as fb

from .._graph import Graph, Value
from ._table import translates

__all__: list[str] = []

_NAMES = ("none", "mean", "sum")


def _reduced(g: Graph, x: Value, reduction: int) -> Value:
    if reduction == 0:
        return x
    return g.op("ReduceMean" if reduction == 1 else "ReduceSum", x, keepdims=0)


@translates("aten.mse_loss.default")
def mse_loss(g: Graph, input: Value, target: Value, reduction: int = 1) -> Value:
    apart = g.binary("Sub", input, target, g.out.dtype)
    return _reduced(g, g.op("Mul", apart, apart), reduction)


@translates("aten.l1_loss.default")
def l1_loss(g: Graph, input: Value, target: Value, reduction: int = 1) -> Value:
    return _reduced(g, g.op("Abs", g.binary("Sub", input, target, g.out.dtype)), reduction)


@translates("aten.smooth_l1_loss.default")
def smooth_l1_loss(g: Graph, input: Value, target: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    if beta == 0:
        return l1_loss(g, input, target, reduction)
    made = huber_loss(g, input, target, 0, beta)
    return _reduced(g, g.op("Div", made, g.const(float(beta), made.dtype)), reduction)


@translates("aten.huber_loss.default")
def huber_loss(g: Graph, input: Value, target: Value, reduction: int = 1, delta: float = 1.0) -> Value:
    apart = g.op("Abs", g.binary("Sub", input, target, g.out.dtype))
    dtype = apart.dtype
    bound, half = g.const(float(delta), dtype), g.const(0.5, dtype)
    near = g.op("Mul", half, g.op("Mul", apart, apart))
    far = g.op("Mul", bound, g.op("Sub", apart, g.op("Mul", half, bound)))
    return _reduced(g, g.op("Where", g.op("Less", apart, bound, dtype=fb.bool), near, far, dtype=dtype), reduction)


@translates("aten.binary_cross_entropy.default")
def binary_cross_entropy(g: Graph, input: Value, target: Value, weight: Value | None = None, reduction: int = 1) -> Value:
    one, least = g.const(1.0, input.dtype), g.const(-100.0, input.dtype)
    yes = g.op("Max", g.op("Log", input), least)
    no = g.op("Max", g.op("Log", g.op("Sub", one, input)), least)
    loss = g.op("Neg", g.op("Add", g.op("Mul", target, yes), g.op("Mul", g.op("Sub", one, target), no)))
    return _reduced(g, loss if weight is None else g.op("Mul", loss, weight), reduction)


@translates("aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    g: Graph, input: Value, target: Value, weight: Value | None = None, pos_weight: Value | None = None, reduction: int = 1
) -> Value:
    one = g.const(1.0, input.dtype)
    # log(1 + exp(-x)), from both sides of 0.
    small = g.op("Log", g.op("Add", one, g.op("Exp", g.op("Neg", g.op("Abs", input)))))
    no = g.op("Add", small, g.op("Max", g.op("Neg", input), g.const(0.0, input.dtype)))
    if pos_weight is not None:
        no = g.op("Mul", no, g.op("Add", one, g.op("Mul", g.op("Sub", pos_weight, one), target)))
    loss = g.op("Add", g.op("Mul", g.op("Sub", one, target), input), no)
    return _reduced(g, loss if weight is None else g.op("Mul", loss, weight), reduction)


@translates("aten.nll_loss.default", "aten.nll_loss_nd.default", "aten.nll_loss2d.default")
def nll_loss(
    g: Graph, input: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100
) -> Value:  # fmt: skip
    if input.ndim == 1:
        input, target = g.unsqueeze(input, 0), g.unsqueeze(target, 0)
        made = g.op("NegativeLogLikelihoodLoss", input, target, weight, reduction=_NAMES[reduction], ignore_index=ignore_index)
        return g.op("Squeeze", made, [0]) if reduction == 0 else made
    return g.op("NegativeLogLikelihoodLoss", input, target, weight, reduction=_NAMES[reduction], ignore_index=ignore_index)


@translates("aten.cross_entropy_loss.default")
def cross_entropy_loss(
    g: Graph, input: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:  # fmt: skip
    if label_smoothing or target.dtype.is_floating_point:
        return NotImplemented
    logs = g.op("LogSoftmax", input, axis=1 if input.ndim > 1 else 0, shape=input.shape)
    return nll_loss(g, logs, target, weight, reduction, ignore_index)


@translates("aten.kl_div.default")
def kl_div(g: Graph, input: Value, target: Value, reduction: int = 1, *, log_target: bool = False) -> Value:
    if log_target:
        loss = g.op("Mul", g.op("Exp", target), g.op("Sub", target, input))
    else:
        zero = g.const(0.0, target.dtype)
        terms = g.op("Mul", target, g.op("Log", target))
        loss = g.op("Sub", g.op("Where", g.op("Equal", target, zero, dtype=fb.bool), zero, terms, dtype=target.dtype),
                    g.op("Mul", target, input))  # fmt: skip
    return _reduced(g, loss, reduction)
