"""Losses. `reduction` is 'mean', 'sum' or 'none'; `size_average` and `reduce` are its deprecated forerunners."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.arithmetic import TIMES
from flambeau_kernels.cpu import losses as kernels
from flambeau_kernels.vocabulary import log, log1p, log1p_exp, maximum, sigmoid, where

from ... import dtypes
from ..._warn import warn
from ...dtypes import FLOAT32, FLOAT64, FLOATING
from ...tensor import Tensor
from .. import _dispatch
from .._batching import leading
from .._promote import common, common_then, only, result_type
from .._spec import OPS, composite, describe, elementwise, need_number, primitive
from .._spec.writing import cannot_be_cast

_new = object.__new__

F = "nn.functional"
floating_common = only("floating")(common)


def in_dtype_of(position: int) -> Any:
    """Computed in the common dtype, returned in that of the argument at `position`, which has to be a floating one (RuntimeError)."""
    of_both = common_then(position)

    def rule(op: Any, args: Any) -> tuple[Any, Any]:
        compute, result = of_both(op, args)
        if result.category < FLOATING <= compute.category:
            name = op.params[position]
            raise RuntimeError(f"{op.public_name}: {cannot_be_cast(compute, result)}; '{name}' has to be floating: {name}.float()")
        return compute, result

    return only("floating")(rule)


in_dtype_of_input, in_dtype_of_target = in_dtype_of(0), in_dtype_of(1)


# -- reductions of losses ------------------------------------------------------------------------------------------------


def reduction_of(reduction: str, size_average: Any = None, reduce: Any = None) -> str:
    """The reduction to apply. Raises: ValueError for a name that is none."""
    if size_average is not None or reduce is not None:
        if reduce is not None and not reduce:
            reduction = "none"
        else:
            reduction = "mean" if size_average is None or size_average else "sum"
        warn(f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction; use 'mean', 'sum' or 'none'")
    return reduction


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean, the sum, or `loss` itself."""
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def of_one_shape(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both, broadcast together, with a warning where they had to be, which is seldom meant."""
    if input.shape != target.shape:
        warn(
            f"{name}: Using a target size ({target.shape}) that is different to the input size ({input.shape}). "
            "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size."
        )
        if not input.ndim or not target.ndim:
            # The dtype of a number counts as much as that of the other operand, once it has as many dimensions.
            return OPS["broadcast_tensors"](input, target)
    return input, target


# -- regression ----------------------------------------------------------------------------------------------------------


@composite(namespace=F, autocast=("float32", None), samples="x(2, 3), x(2, 3); x(2, 3), x(2, 3), reduction='none'", scripted_as="l1_loss")
def l1_loss(input, target, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean", weight=None):
    """``|input - target|`` over the broadcast shape, reduced: in the unit of both.

    Args:
        reduction: 'mean', 'sum' or 'none'.
        weight: multiplies the loss, broadcast to its shape; 'mean' then divides by the sum of the weights.
    Raises: ValueError for an unknown `reduction`.
    """
    input, target = of_one_shape("l1_loss", input, target)
    return _weighted((input - target).abs(), weight, reduction_of(reduction, size_average, reduce))


def _weighted(loss: Tensor, weight: Any, reduction: str) -> Tensor:
    """`loss` times `weight`, reduced; the mean divides by the sum of the weights."""
    if weight is None:
        return reduced(loss, reduction)
    weighted = loss * weight
    if reduction == "mean":
        return weighted.sum() / weight.expand(loss.shape).sum()
    return reduced(weighted, reduction)


@elementwise(
    surface=0,
    dtype=floating_common,
    partials={"input": lambda input, target: 2 * (input - target), "target": lambda input, target: 2 * (target - input)},
    title="MseLossBackward0",
    operator="mse_loss(input, target, 0)",
    public_name="mse_loss",
)
def squared_error(input, target):
    """``(input - target) ** 2``."""
    return (input - target) * (input - target)


@composite(namespace=F, autocast=("float32", None), samples="x(2, 3), x(2, 3); x(2, 3), x(2, 3), reduction='sum'", scripted_as="mse_loss")
def mse_loss(input, target, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean", weight=None):
    """``(input - target) ** 2`` over the broadcast shape, reduced: in the unit of both, squared.

    Args:
        reduction: 'mean', 'sum' or 'none'.
        weight: multiplies the loss, broadcast to its shape; 'mean' then divides by the sum of the weights.
    Raises: ValueError for an unknown `reduction`; RuntimeError for integers. Warns where the shapes differ.

    >>> F.mse_loss(fb.tensor([1.0, 2.0]), fb.tensor([1.0, 5.0]), reduction="none")
    tensor([0., 9.])
    """
    input, target = of_one_shape("mse_loss", input, target)
    return _weighted(squared_error.function(input, target), weight, reduction_of(reduction, size_average, reduce))


mse_loss.result_shown_as("MseLossBackward0")


@primitive(
    surface=0, tensors=("input", "target"), operator="mse_loss(input, target)",
    samples="of nn.functional.mse_loss",
    public_name="mse_loss",
    cuda="sums.mean_squared_error",
    deferrable=True,
)
def mean_squared_error(input, target):
    """The mean of ``(input - target) ** 2`` over all elements of two arrays of one shape."""


mean_squared_error.shown_as("MseLossBackward0", reduction=lambda saved: 1)


@mean_squared_error.in_pieces
def _mse_pieces(asked):
    first, second = asked.operands
    alike = first.shape == second.shape
    return [asked.way({0: d, 1: d}, "avg") for d, n in enumerate(first.shape) if alike and n % asked.count == 0]


@mean_squared_error.kernel
def _mse(a, b):
    return np.asarray(kernels.squared_error_sum(a, b) / a.size, a.dtype)


mean_squared_error.shape(lambda input, target: ((), input.dtype))


@mean_squared_error.vjp
def _mse_vjp(grad, input, target):
    slope = (input - target) * (grad * (2 / input.numel()))
    return slope, lambda: -slope


@mean_squared_error.vjp_on_arrays
def _mse_vjp_on_arrays(grad, input, target):
    slope = kernels.scaled_difference(input, target, np.asarray(grad * (2 / input.size), input.dtype))
    slope = slope if slope.flags.c_contiguous else np.ascontiguousarray(slope)  # as PyTorch's
    return slope, lambda: np.asarray(-slope)


@mean_squared_error.launches
def _mse_launches(table, a, b):
    count = a.size
    if not 0 < count < kernels.SUMS_COMPILED_FROM or a.shape != b.shape or not a.flags.c_contiguous or a.dtype.char not in "fd":
        return None
    made = table.formula(kernels.ERROR, a, b)
    flat = None if made is None else table.view(made, made.reshape(-1))
    # The product of vectors is numpy's, in an order of its own.
    return None if flat is None else table.call_any(lambda d: np.asarray(d.dot(d) / count, d.dtype), "mse_loss: numpy's dot", flat)


@mean_squared_error.vjp_launches
def _mse_vjp_launches(table, grad, input, target):
    if input.size >= kernels.SUMS_COMPILED_FROM or not input.flags.c_contiguous:
        return None
    scale = table.formula(TIMES.formula, grad, 2 / input.size)
    slope = None if scale is None else table.formula(kernels.DIFFERENCE, input, target, scale)
    return None if slope is None else (slope, None)


def _mse_answer(input: Any, target: Any, size_average: Any, reduce: Any, reduction: Any, weight: Any) -> Any:
    """The op that answers the usual call, and its arguments."""
    if weight is not None or reduction != "mean" or size_average is not None or reduce is not None:
        return None
    if not (isinstance(input, Tensor) and isinstance(target, Tensor)) or input.dtype is not target.dtype:
        return None
    if input.dtype.numpy not in (FLOAT32, FLOAT64) or input.shape != target.shape or not input.numel():
        return None
    return mean_squared_error, (input, target)


def _mean_of_squares(input, target, size_average, reduce, reduction, weight):
    if weight is not None or reduction != "mean" or size_average is not None or reduce is not None:
        return None
    return mean_squared_error.answer(input, target)


mse_loss.forwards(_mean_of_squares, to=_mse_answer)


@mean_squared_error.plan
def _mean_squares(a, b):
    """Of one floating dtype and shape."""
    d = a.dtype
    return _mse(a, b) if (d is FLOAT32 or d is FLOAT64) and b.dtype is d and a.shape == b.shape and a.size else None


def _clipped_slope(error, beta):
    return where(error <= -beta, -1, where(error >= beta, 1, error / where(beta == 0, 1, beta)))


@elementwise(
    surface=0,
    dtype=floating_common,
    vjp={
        "input": lambda grad, input, target, beta: grad * _clipped_slope(input - target, beta),
        "target": lambda grad, input, target, beta: grad * _clipped_slope(target - input, beta),
    },
    title="SmoothL1LossBackward0",
    samples=(0.5, 3.0),
    operator="smooth_l1_loss(input, target, 0, beta)",
)
def smooth_absolute_error(input, target, beta):
    """Quadratic within `beta` of the target, of slope 1 beyond."""
    size = abs(input - target)
    return where(size < beta, 0.5 * size * size / beta, size - 0.5 * beta)


@composite(
    namespace=F, reads_parts=lambda *given: given[-1] == 0,  # where it is the mean of |input - target|
    samples="x(2, 3), x(2, 3); x(2, 3), x(2, 3), beta=0.5, reduction='none'; x(2, 3), x(2, 3), beta=0.0", scripted_as="smooth_l1_loss",
)
def smooth_l1_loss(input, target, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean", beta=1.0):
    """Quadratic within `beta` of the target, of slope 1 beyond, reduced.

    With ``e = |input - target|``: ``0.5 * e ** 2 / beta`` where ``e < beta``, ``e - 0.5 * beta`` beyond. It is `huber_loss` divided
    by `beta`; a `beta` of 0 gives `l1_loss`.

    Args:
        reduction: 'mean', 'sum' or 'none'.
        beta: in the unit of `input`, >= 0.
    Raises: RuntimeError for a negative `beta`; ValueError for an unknown `reduction`.

    >>> F.smooth_l1_loss(fb.zeros(2), fb.tensor([0.5, 3.0]), reduction="none")
    tensor([0.1250, 2.5000])
    """
    input, target = of_one_shape("smooth_l1_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, got {beta}")
    if beta == 0:
        return reduced((input - target).abs(), reduction)
    return reduced(smooth_absolute_error.function(input, target, beta), reduction)


smooth_l1_loss.result_shown_as("SmoothL1LossBackward0")


def _huber_slope(error, delta):
    return where(error <= -delta, -delta, where(error >= delta, delta, error))


@elementwise(
    surface=0,
    dtype=in_dtype_of_input,
    vjp={
        "input": lambda grad, input, target, delta: grad * _huber_slope(input - target, delta),
        "target": lambda grad, input, target, delta: grad * _huber_slope(target - input, delta),
    },
    title="HuberLossBackward0",
    samples=(0.5, 3.0),
    operator="huber_loss(input, target, 0, delta)",
)
def huber_error(input, target, delta):
    """Quadratic within `delta` of the target, of slope `delta` beyond."""
    size = abs(input - target)
    return where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))


@composite(
    namespace=F, autocast=("float32", None), samples="x(2, 3), x(2, 3); x(2, 3), x(2, 3), delta=0.5, reduction='sum'",
    scripted_as="huber_loss",
)
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Quadratic within `delta` of the target, linear beyond it, reduced.

    Args:
        input, target: floating, any shapes that broadcast together; they share a unit, say metres.
        reduction: 'mean', 'sum' or 'none'.
        delta: threshold in that same unit, > 0.
        weight: multiplies the loss; 'mean' divides by its sum.
    Returns: the broadcast shape for 'none', else a scalar; metres squared on both branches.
    Raises: RuntimeError unless ``delta > 0``; ValueError for an unknown `reduction`.
    Source: Huber 1964, "Robust Estimation of a Location Parameter", Ann. Math. Stat. 35(1).

    >>> F.huber_loss(fb.tensor([0.0, 3.0]), fb.zeros(2), reduction="none")
    tensor([0.0000, 2.5000])
    """
    input, target = of_one_shape("huber_loss", input, target)
    reduction = reduction_of(reduction)
    if delta <= 0:
        raise RuntimeError(f"huber_loss does not support non-positive values for delta. Got {delta}")
    return _weighted(huber_error.function(input, target, delta), weight, reduction)


huber_loss.result_shown_as("HuberLossBackward0")


# -- distributions -------------------------------------------------------------------------------------------------------


@composite(
    namespace=F, autocast=("float32", None),
    samples="x(2, 3), u(2, 3), reduction='batchmean'; x(2, 3), x(2, 3), reduction='sum', log_target=True",
)
def kl_div(input, target, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean", log_target=False):
    """``target * (log(target) - input)``, `input` being log probabilities: summed, the divergence from it to `target`.

    Args:
        target: probabilities, or with `log_target` log probabilities, of a shape that broadcasts; 0 contributes 0.
        reduction: 'mean' divides by the number of elements; 'batchmean', by the size of the first dimension, is the
            mathematical definition; 'sum' and 'none' are the others.
        log_target: whether `target` is given by its logarithm.

    >>> uniform = fb.full((1, 4), 0.25)
    >>> F.kl_div(uniform.log(), fb.tensor([[1.0, 0.0, 0.0, 0.0]]), reduction="batchmean")
    tensor(1.3863)
    """
    if reduction == "batchmean":
        chosen = "sum"
    else:
        chosen = reduction_of(reduction, size_average, reduce)
        if chosen == "mean":
            warn(
                "kl_div: reduction 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides "
                "only by the batch size, and aligns with the KL math definition."
            )
    if input.is_complex() or target.is_complex():
        raise RuntimeError(f"kl_div: Complex inputs not supported\n{describe(input=input, target=target)}")
    if not input.is_floating_point() or not target.is_floating_point():
        raise RuntimeError(f"kl_div: Integral inputs not supported; use .float()\n{describe(input=input, target=target)}")
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = target.xlogy(target) - target * input
    made = reduced(loss, chosen)
    return made / input.shape[0] if reduction == "batchmean" and input.ndim else made


@composite(
    namespace=F, autocast=("float32", None), samples="x(2, 3), p(2, 3); p(2, 3), p(2, 3, low=1.5), False, True",
    scripted_as="poisson_nll_loss",
)
def poisson_nll_loss(
    input, target: Tensor, log_input=True, full=False, size_average: bool | int | None = None, eps=1e-8,
    reduce: bool | int | None = None, reduction="mean"
):
    """The negative log likelihood of counts `target` under Poisson distributions, reduced.

    Args:
        input: the logarithm of the rate, or without `log_input` the rate itself.
        log_input: ``exp(input) - target * input``, rather than ``input - target * log(input + eps)``.
        full: add Stirling's approximation of ``log(target!)`` for targets above 1; else that constant is left out.
        eps: keeps the logarithm of a rate of 0 finite.
        reduction: 'mean', 'sum' or 'none'.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (target * (2 * math.pi)).log()
        loss = loss + stirling.where(target > 1, 0)
    return reduced(loss, reduction)


@composite(namespace=F, samples="x(2, 3), x(2, 3), p(2, 3); x(2, 3), x(2, 3), p(2, 1), True, reduction='sum'")
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """The negative log likelihood of `target` under normal distributions of means `input` and variances `var`, reduced.

    ``0.5 * (log(var) + (input - target) ** 2 / var)``, in nats.

    Args:
        var: of the shape of `input`, or with one dimension of size 1, or without the last; or one number.
        full: add the constant ``0.5 * log(2 * pi)``.
        eps: variances are raised to it, for stability; the gradient does not see that.
        reduction: 'mean', 'sum' or 'none'.
    Raises: ValueError for a negative variance, an unfitting shape or an unknown `reduction`.

    >>> F.gaussian_nll_loss(fb.tensor([0.0]), fb.tensor([2.0]), var=4.0)
    tensor(1.1931)
    """
    if isinstance(var, (int, float)):
        if var < 0:
            raise ValueError(f"gaussian_nll_loss: var has negative entry/entries: {var}")
        var = input.new_full(input.shape, var)
    elif not _dispatch.stands_for_others() and (var < 0).any().item():  # of the meta device too: there it is refused, as by PyTorch
        raise ValueError("gaussian_nll_loss: var has negative entry/entries")
    if var.shape != input.shape:
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif var.ndim != input.ndim or [v for n, v in zip(input.shape, var.shape, strict=True) if v != n] != [1]:
            raise ValueError(f"gaussian_nll_loss: var is of incorrect size\n{describe(input=input, var=var)}")
    reduction = reduction_of(reduction)
    if not isinstance(eps, Tensor):
        eps = need_number("gaussian_nll_loss", "eps", eps)
    elif eps.numel() == 1:
        eps = eps.item()
    var = raise_to.function(var, eps)
    loss = 0.5 * (var.log() + (input - target) * (input - target) / var)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@primitive(surface=0, samples="of nn.functional.gaussian_nll_loss", public_name="float_power", batch_rule=leading, cuda="rows.raise_to")
def raise_to(input, low):
    """``max(input, low)``, but the gradient passes as if `input` had not been raised."""


raise_to.in_pieces("...->...")


@raise_to.kernel
def _raise_to(a, low):
    return np.maximum(a, a.dtype.type(low))


raise_to.shape(lambda input, low: (input.shape, input.dtype))


@raise_to.vjp
def _raise_to_vjp(grad):
    return (grad,)


# -- two classes per element ---------------------------------------------------------------------------------------------


@elementwise(
    surface=0,
    dtype=floating_common,
    vjp={
        "input": lambda grad, input, target: grad * (input - target) / maximum((1 - input) * input, 1e-12),
        "target": lambda grad, input: grad * (log1p(-input) - log(input)),
    },
    title="BinaryCrossEntropyBackward0",
    samples=(0.1, 0.9),
)
def binary_entropy(input, target):
    """``-(target log(input) + (1 - target) log(1 - input))``, with logarithms of at least -100."""
    return (target - 1) * maximum(log1p(-input), -100) - target * maximum(log(input), -100)


@composite(
    namespace=F, autocast=("float32", None), samples="u(2, 3), u(2, 3); u(2, 3), u(2, 3), k(3), reduction='none'",
    reads_parts=lambda input, target, weight, *_: weight is not None,
    scripted_as="binary_cross_entropy",
)
def binary_cross_entropy(
    input, target, weight=None, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean"
):
    """``-(target log(input) + (1 - target) log(1 - input))`` of probabilities, times `weight`, reduced.

    Logarithms are cut off at -100, so that the loss stays finite. For scores rather than probabilities,
    `binary_cross_entropy_with_logits` is more accurate.

    Args:
        input: probabilities, in [0, 1].
        target: of the same shape, between 0 and 1.
        weight: broadcasts to that shape, or None.
        reduction: 'mean' (over the number of elements, weighted or not), 'sum' or 'none'.
    Raises: ValueError unless `input` and `target` have one shape; RuntimeError for an input outside [0, 1].

    >>> F.binary_cross_entropy(fb.tensor([0.5, 0.0]), fb.tensor([1.0, 1.0]), reduction="none")
    tensor([  0.6931, 100.0000])
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"binary_cross_entropy: Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    if input.dtype is not target.dtype:
        raise RuntimeError(
            f"binary_cross_entropy: Found dtype {target.dtype} but expected {input.dtype}\n{describe(input=input, target=target)}"
        )
    if input.is_cpu and input.numel() and _dispatch.may_be_checked(input):
        low, high = OPS["aminmax"].function(input.detach())
        if not (low >= 0 and high <= 1):              # nan is refused too
            raise RuntimeError("binary_cross_entropy: all elements of input should be between 0 and 1")
    loss = binary_entropy.function(input, target)
    return reduced(loss if weight is None else (loss * weight).to(loss.dtype), reduction)


binary_cross_entropy.result_shown_as("BinaryCrossEntropyBackward0")


@binary_cross_entropy.in_pieces
def _binary_cross_entropy_pieces(asked):
    if asked["size_average"] is not None or asked["reduce"] is not None or len({tuple(x.shape) for x in asked.operands}) > 1:
        return []
    every, sizes = range(len(asked.operands)), enumerate(asked["input"].shape)
    return reduced_pieces(asked, [(dict.fromkeys(every, d), d, size) for d, size in sizes])


def reduced_pieces(asked: Any, cuts: list[tuple[dict[int, int], int, int]]) -> list[Any]:
    """The ways of a loss by its `reduction`.

    Args:
        cuts: which dimension of each operand is divided, which of the losses that is, and its size.
    """
    how = asked["reduction"]
    return [
        asked.way(cut, to if how == "none" else "sum" if how == "sum" else "avg")
        for cut, to, size in cuts
        if how != "mean" or size % asked.count == 0
    ]


@elementwise(
    surface=0,
    dtype=in_dtype_of_target,
    partials={"input": lambda input, target: sigmoid(input) - target, "target": lambda input: -input},
    title="BinaryCrossEntropyWithLogitsBackward0",
    public_name="binary_cross_entropy_with_logits",
)
def logit_entropy(input, target):
    """`binary_entropy` of ``sigmoid(input)``, without its overflow."""
    return (1 - target) * input + log1p_exp(-input)


@elementwise(
    surface=0,
    dtype=in_dtype_of_target,
    partials={
        "input": lambda input, target, pos_weight: (1 - target) - ((pos_weight - 1) * target + 1) * sigmoid(-input),
        "target": lambda input, pos_weight: (pos_weight - 1) * log1p_exp(-input) - input,
        "pos_weight": lambda input, target: target * log1p_exp(-input),
    },
    title="BinaryCrossEntropyWithLogitsBackward0",
)
def weighted_logit_entropy(input, target, pos_weight):
    """`logit_entropy` with positive targets weighing `pos_weight`."""
    return (1 - target) * input + ((pos_weight - 1) * target + 1) * log1p_exp(-input)


@composite(
    namespace=F, autocast=("float32", None), samples="x(2, 3), u(2, 3); x(2, 3), u(2, 3), k(3), pos_weight=k(3), reduction='sum'",
    reads_parts=lambda input, target, weight, *_: weight is not None,
    scripted_as="binary_cross_entropy_with_logits",
)
def binary_cross_entropy_with_logits(
    input, target, weight: Tensor | None = None, size_average: bool | int | None = None, reduce: bool | int | None = None,
    reduction="mean", pos_weight: Tensor | None = None
):
    """`binary_cross_entropy` of ``sigmoid(input)``, without its overflow, times `weight`, reduced.

    Args:
        input: scores (logits), any real numbers.
        target: of the same shape, between 0 and 1.
        weight: broadcasts to that shape, or None.
        pos_weight: what positive targets weigh, to trade recall for precision; broadcasts against `target`.
        reduction: 'mean', 'sum' or 'none'.
    Raises: ValueError unless `input` and `target` have one shape.

    >>> F.binary_cross_entropy_with_logits(fb.tensor([0.0, 1000.0]), fb.tensor([1.0, 0.0]), reduction="none")
    tensor([6.9315e-01, 1.0000e+03])
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"binary_cross_entropy_with_logits: Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    if pos_weight is None:
        loss = logit_entropy.function(input, target)
    else:
        loss = weighted_logit_entropy.function(input, target, pos_weight)
    return reduced(loss if weight is None else (loss * weight).to(loss.dtype), reduction)


binary_cross_entropy_with_logits.result_shown_as("BinaryCrossEntropyWithLogitsBackward0")


@elementwise(
    surface=0,
    dtype=in_dtype_of_input,
    partials={
        "input": lambda input, target: -target * sigmoid(-target * input),
        "target": lambda input, target: -input * sigmoid(-target * input),
    },
    title="SoftMarginLossBackward0",
    operator="soft_margin_loss(input, target, 0)",
)
def soft_margin(input, target):
    """``log(1 + exp(-target * input))``."""
    return log1p_exp(-target * input)


@composite(
    namespace=F, autocast=("float32", None), samples="x(2, 3), signs(2, 3); x(2, 3), signs(2, 3), reduction='none'",
    scripted_as="soft_margin_loss",
)
def soft_margin_loss(input, target: Tensor, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean"):
    """``log(1 + exp(-target * input))``, targets being 1 or -1; reduced by 'mean', 'sum' or 'none'."""
    return reduced(soft_margin.function(input, target), reduction_of(reduction, size_average, reduce))


soft_margin_loss.result_shown_as("SoftMarginLossBackward0")


@composite(namespace=F, samples="x(2, 3), i(2, 2, 3); x(2, 3), i(2, 2, 3), k(3), reduction='none'")
def multilabel_soft_margin_loss(
    input, target, weight=None, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean"
):
    """The mean over classes of `binary_cross_entropy_with_logits`, each sample having any number of classes; reduced.

    Args:
        input: scores ``(N, C)`` or ``(C)``.
        target: of the same shape, 0 or 1.
        weight: ``(C)``, or None.
        reduction: 'mean', 'sum', or 'none' for ``(N)``.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if target.dtype is dtypes.bool:
        raise RuntimeError("multilabel_soft_margin_loss: Subtraction with a bool tensor is not supported; convert the target with .float()")
    if not input.ndim:
        raise IndexError("multilabel_soft_margin_loss: Dimension specified as -1 but tensor has no dimensions: scores are (N, C) or (C)")
    loss = logit_entropy.function(input, target.to(result_type([input, target])))
    if weight is not None:
        loss = loss * weight
    return reduced(loss.sum(input.ndim - 1) / input.shape[-1], reduction)
