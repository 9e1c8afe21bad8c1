"""Losses. `reduction` is 'mean', 'sum' or 'none'; `size_average` and `reduce` are its deprecated forerunners."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from flambeau_kernels.cpu import losses as kernels
from flambeau_kernels.vocabulary import exp, log, log1p, maximum, sigmoid, where

from .. import dtypes
from ..dtypes import FLOAT32, FLOAT64
from ..tensor import Tensor, wrap
from . import _dispatch
from ._batching import leading, run
from ._promote import common, only
from ._spec import composite, constant_along, describe, elementwise, need_number, primitive
from ._spec.nodes import record_as

_new = object.__new__

F = "nn.functional"
floating_common = only("floating")(common)


# -- reductions of losses ------------------------------------------------------------------------------------------------


def reduction_of(reduction: str, size_average: Any = None, reduce: Any = None) -> str:
    """The reduction to apply. Raises: ValueError for a name that is none."""
    if size_average is not None or reduce is not None:
        if reduce is not None and not reduce:
            reduction = "none"
        else:
            reduction = "mean" if size_average is None or size_average else "sum"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.", UserWarning, stacklevel=4
        )
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction; use 'mean', 'sum' or 'none'")
    return reduction


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean, the sum, or `loss` itself."""
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def warn_sizes(name: str, input: Tensor, target: Tensor) -> None:
    """Warn when a target is stretched to the input, which is seldom meant."""
    if input._array.shape != target._array.shape:
        warnings.warn(
            f"{name}: Using a target size ({target.shape}) that is different to the input size ({input.shape}). "
            "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=4,
        )


# -- classification: one class per sample --------------------------------------------------------------------------------


@primitive(
    surface=0, tensors=("input", "target", "weight"), keeps=True, operator="nll_loss_nd(input, target, weight, reduction, ignore_index)",
    samples="of nn.functional.nll_loss",
    public_name="nll_loss",
    cuda="rows.nll",
)
def nll(input, target, weight=None, ignore_index=-100, reduction="mean"):
    """``-weight[target] * input[target]`` of log probabilities ``(N, C, *)`` and classes ``(N, *)``."""


@nll.in_pieces
def _nll_pieces(asked):
    if asked["input"].ndim == 1:
        return "_,,_->"
    return {"none": "n_*,n*,_->n*", "sum": "n_*,n*,_->"}.get(asked["reduction"], "*,*,_->")


nll.node_class.title = "NllLossBackward0"


@nll.kernel
def _nll(a, target, weight, ignore_index, reduction):
    return kernels.nll(a, target, weight, ignore_index, reduction)


@nll.shape
def _nll_shape(input, target, weight, ignore_index, reduction):
    return tuple(target.shape) if reduction == "none" else (), input.dtype


@nll.vjp
def _nll_vjp(grad, input, kept, target, weight, ignore_index, reduction):
    if _dispatch.is_seen(input):
        picked = _picked_by_ops(input, target, weight, ignore_index, reduction)
    elif input._lacks_values:
        picked = input.new_empty(input.shape)
    else:
        on_device = getattr(kept, "picked", None)
        picked = wrap(kernels.picked_weights(input._array.shape, input.dtype.numpy, kept) if on_device is None else on_device)
    # What is ignored gets no gradient, also where the mean is one over nothing; nor do the other classes, not even -0.
    counts = (target != ignore_index).unsqueeze(1) & (picked != 0)
    found = (-(grad.unsqueeze(1) if reduction == "none" else grad) * picked).where(counts, 0)
    return constant_along(found, [input]), None, None


def _picked_by_ops(input: Tensor, target: Tensor, weight: Any, ignore_index: int, reduction: str) -> Tensor:
    """The weight of each element in the loss, shaped like `input`: where modes look, in the place of the kernel's residual."""
    classes = target.where(target != ignore_index, 0).to(dtypes.int64)
    weights = input.new_ones(target.shape) if weight is None else weight[classes]
    weights = weights.where(target != ignore_index, 0)
    if reduction == "mean":
        weights = weights / weights.sum()
    dim = 1 if input.ndim > 1 else 0
    return input.new_zeros(input.shape).scatter(dim, classes.unsqueeze(dim), weights.unsqueeze(dim))


@nll.raw
def _nll_raw(grad, kept, input_shape, target, ignore_index):
    return kernels.nll_grad(grad, input_shape, kept, target, ignore_index), None, None


@nll.batch
def _nll_batch(level: Any, op: Any, args: Any) -> Any:
    scores, target, weight, ignore_index, reduction = args
    if not level.size or not scores.numel():
        return NotImplemented
    x, t = level.full(scores), level.full(target)
    if scores.ndim > 1:
        x, t = x.reshape(-1, *x.shape[2:]), t.reshape(-1, *t.shape[2:])
    losses = run(op, x, t, None, ignore_index, "none").reshape(level.size, -1)
    t = level.full(target).reshape(level.size, -1)
    counted = t != ignore_index
    shares = counted.to(losses.dtype)
    if weight is not None:
        shares = shares * level.full(weight).gather(1, t.where(counted, 0))
        losses = losses * shares
    if reduction == "none":
        return level.wrap(losses.reshape(level.size, *target.shape))
    total = losses.sum(1)
    return level.wrap(total if reduction == "sum" else total / shares.sum(1))


def _check_classes(name: str, input: Tensor, target: Tensor, weight: Any) -> None:
    """Raise as PyTorch does for shapes and dtypes of scores and classes that do not go together."""
    if input.ndim == 0:
        raise ValueError(f"{name}: Expected 1 or more dimensions (got 0)\n{describe(input=input, target=target)}")
    if target.dtype.name not in ("int64", "uint8"):
        raise RuntimeError(f"{name}: expected target dtype to be Long or Byte, but got {target.dtype}; use target.long()")
    shape = tuple(input.shape)
    if input.ndim == 1:
        if target.ndim > 1 or target.numel() != 1:
            raise RuntimeError(f"{name}: one sample needs one target\n{describe(input=input, target=target)}")
    elif not target.ndim or shape[0] != target.shape[0]:
        if input.ndim == 2 and target.ndim > 1:
            raise RuntimeError(f"{name}: 0D or 1D target tensor expected, multi-target not supported")
        raise ValueError(
            f"{name}: Expected input batch_size ({shape[0]}) to match target batch_size "
            f"({target.shape[0] if target.ndim else 'none'}).\n{describe(input=input, target=target)}"
        )
    elif input.ndim == 2 and target.ndim != 1:
        raise RuntimeError(f"{name}: 0D or 1D target tensor expected, multi-target not supported\n{describe(input=input, target=target)}")
    elif shape[:1] + shape[2:] != tuple(target.shape):
        raise RuntimeError(
            f"{name}: Expected target size {[shape[0], *shape[2:]]}, got {list(target.shape)}\n{describe(input=input, target=target)}"
        )
    _check_class_weight(name, input, weight)


def _check_class_weight(name: str, input: Tensor, weight: Any) -> None:
    if weight is None:
        return
    classes = input.shape[1 if input.ndim > 1 else 0]
    if weight.ndim != 1 or weight.numel() != classes:
        raise RuntimeError(
            f"{name}: weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of "
            f"shape: {list(weight.shape)}"
        )
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}: expected weight of dtype {input.dtype} but found {weight.dtype}\n{describe(input=input, weight=weight)}"
        )


def _check_ignored(name: str, ignore_index: Any) -> None:
    if not isinstance(ignore_index, (int, np.integer)):
        found = type(ignore_index).__name__
        raise TypeError(f"{name}(): argument 'ignore_index' (position 5) must be int, not {found}")


def _likelihood(name: str, input: Tensor, target: Tensor, weight: Any, ignore_index: int, reduction: str) -> Tensor:
    _check_classes(name, input, target, weight)
    if not input.dtype.is_floating_point:
        raise RuntimeError(f'"{name}" not implemented for {input.dtype}; use a floating dtype')
    if target.dtype is not dtypes.int64:
        target = target.long()
    if input.ndim == 1:
        made = nll.function(input.unsqueeze(0), target.reshape(1), weight, ignore_index, reduction)
        return made.reshape(()) if made.ndim and not target.ndim else made
    return nll.function(input, target, weight, ignore_index, reduction)


@composite(
    namespace=F, autocast=("float32", None),
    samples="x(3, 4), i(4, 3); x(2, 3, 2, 2), i(3, 2, 2, 2), k(3); x(3, 4), i(4, 3), reduction='sum', ignore_index=1",
)
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """``-weight[target] * input[target]``, where `input` holds log probabilities.

    Args:
        input: ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``: natural logarithms, as `log_softmax` gives.
        target: classes, ``()``, ``(N)`` or ``(N, d1, ...)``, int64; those equal to `ignore_index` do not
            count.
        weight: ``(C)``, or None; 'mean' divides by the weights of the targets that count, and is nan if none
            does.
        reduction: 'mean', 'sum', or 'none' for the shape of `target`.
    Raises: ValueError, RuntimeError for shapes that do not fit; IndexError for a class that does not exist.

    >>> F.nll_loss(fb.tensor([[-0.5, -2.0], [-1.0, -0.1]]), fb.tensor([0, 0]))
    tensor(0.7500)
    """
    _check_ignored("nll_loss", ignore_index)
    return _likelihood("nll_loss", input, target, weight, ignore_index, reduction_of(reduction, size_average, reduce))


@nll_loss.forwards
def _nll_of_classes(input, target, weight, size_average, ignore_index, reduce, reduction):
    if ignore_index.__class__ is not int or size_average is not None or reduce is not None or reduction not in _REDUCTIONS:
        return None
    if input._array.ndim == 1 and input._node is not None:
        return None
    return nll.answer(input, target, weight, ignore_index, reduction)


nll.plan(kernels.few_picked)


_REDUCTIONS = frozenset(("mean", "sum", "none"))


@composite(
    namespace=F, autocast="float32",
    samples="x(3, 4), i(4, 3); x(2, 3, 2), i(3, 2, 2), k(3), label_smoothing=0.2; x(3, 4), u(3, 4), reduction='none'",
)
def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    """The negative log likelihood of `target` under ``softmax(input)``, in nats.

    Args:
        input: scores (logits) ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``.
        target: classes, as in `nll_loss`; or probabilities, floating, of the shape of `input`.
        weight: ``(C)``. With classes, 'mean' divides by the weights that count; with probabilities, by N d1
            ....
        ignore_index: classes of this value do not count.
        label_smoothing: how much of the probability is spread evenly over all classes, in [0, 1].
        reduction: 'mean', 'sum', or 'none' for the shape of the classes.
    Raises: ValueError, RuntimeError for shapes or dtypes that do not fit; IndexError for a class that does
        not exist.

    >>> scores = fb.tensor([[2.0, 0.0, 0.0]])
    >>> F.cross_entropy(scores, fb.tensor([0]))
    tensor(0.2395)
    >>> F.cross_entropy(scores, fb.tensor([[1.0, 0.0, 0.0]]))
    tensor(0.2395)
    """
    _check_ignored("cross_entropy", ignore_index)
    reduction = reduction_of(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    dim = 0 if input.ndim == 1 else 1
    if input.shape == target.shape:
        return _soft_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing, dim)
    if input.ndim == 0:
        raise RuntimeError("cross_entropy: input needs a dimension of classes, but it is 0-dimensional")
    _check_classes("cross_entropy", input, target, weight)
    logs = input.log_softmax(dim)
    if label_smoothing == 0.0:
        return _likelihood("cross_entropy", logs, target, weight, ignore_index, reduction)
    return _smooth_cross_entropy(logs, target, weight, ignore_index, reduction, label_smoothing, dim)


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Any, ignore_index: int, reduction: str, smoothing: float, dim: int
) -> Tensor:
    """Cross entropy with a distribution as target."""
    if not target.dtype.is_floating_point:
        raise RuntimeError(f"cross_entropy: Expected floating point type for target with class probabilities, got {target.dtype}")
    if ignore_index >= 0:
        raise RuntimeError("cross_entropy: ignore_index is not supported for floating point target")
    _check_class_weight("cross_entropy", input, None if weight is None else weight.to(input.dtype))
    classes = input.shape[dim]
    if smoothing > 0:
        target = target * (1 - smoothing) + smoothing / classes
    logs = input.log_softmax(dim)
    if weight is not None:
        logs = logs * weight.reshape([-1 if d == dim else 1 for d in range(input.ndim)])
    if reduction == "none":
        return -(logs * target).sum(dim)
    total = -(logs * target).sum()
    return total if reduction == "sum" else total / (input.numel() // max(classes, 1) or math.nan)


def _smooth_cross_entropy(
    logs: Tensor, target: Tensor, weight: Any, ignore_index: int, reduction: str, smoothing: float, dim: int
) -> Tensor:
    """Cross entropy where `smoothing` of the probability is spread over all classes."""
    classes = logs.shape[dim]
    if weight is not None:
        weighted = logs * weight.reshape([-1 if d == dim else 1 for d in range(logs.ndim)])
    else:
        weighted = logs
    counts: Any = target != ignore_index
    spread = (-weighted.sum(dim)).where(counts, 0)
    picked = _likelihood("cross_entropy", logs, target, weight, ignore_index, "none" if reduction == "none" else "sum")
    if reduction != "none":
        spread = spread.sum()
    if reduction == "mean":
        if weight is None:
            total: Any = counts.sum().to(logs.dtype)
        else:
            total = weight.detach()[target.where(counts, 0)].where(counts, 0).sum()
        picked, spread = picked / total, spread / total
    return picked * (1 - smoothing) + spread * (smoothing / classes)


# -- the common case: rows of scores, one class each ---------------------------------------------------------------------


@primitive(surface=0, tensors=("input",), samples="of nn.functional.cross_entropy", public_name="cross_entropy")
def cross_entropy_rows(input, kept):
    """``sum(losses) * factor`` of rows of scores ``(N, C)``, or their losses: what `cross_entropy` records for them.

    The input may be shifted by a constant in each row, along which the loss does not change, so that every derivative is
    the same.

    Args:
        kept: a `RowsKept`.
    """


cross_entropy_rows.node_class.title = "NllLossBackward0"


class RowsKept:
    """What a cross entropy of rows knows beside the scores.

    Attributes:
        target: classes, -1 where a row does not count.
        weight: of the classes, or None.
        smoothing: as in `cross_entropy`.
        divisor: of each loss in the result.
        each: whether the result is all losses, and not their sum.
        logarithms: of the sums of exp, for shifted scores.
    """

    __slots__ = ("divisor", "each", "logarithms", "smoothing", "target", "weight")

    def __init__(self, target: Any, weight: Any, smoothing: float, divisor: float, each: bool, logarithms: Any):
        self.target, self.weight, self.smoothing = target, weight, smoothing
        self.divisor, self.each, self.logarithms = divisor, each, logarithms

    def slopes(self, classes: int, dtype: Any) -> tuple[Any, Any]:
        """``(N, 1)`` and ``(N, C)`` arrays a, b for which ``softmax * a - b`` is the gradient of each loss."""
        counts = (self.target >= 0).astype(dtype)
        weight = np.ones(classes, dtype) if self.weight is None else self.weight
        picked = counts * (1 - self.smoothing) * weight[self.target]
        spread = counts * (self.smoothing / classes)
        b = spread[:, None] * weight
        b[np.arange(len(b)), self.target] += picked
        return (picked + spread * weight.sum())[:, None].astype(dtype), b.astype(dtype)


@cross_entropy_rows.kernel
def _rows(scores, kept):
    _, picked = kept.slopes(scores.shape[1], scores.dtype)
    logs = scores - _largest(scores, 1, None, None, True)
    logs -= _log(_total(_exp(logs), 1, None, None, True))
    losses = -_total(logs * picked, 1) / kept.divisor
    return losses if kept.each else np.asarray(_total(losses), scores.dtype)


@cross_entropy_rows.shape
def _rows_shape(input, kept):
    return input.shape[:1] if kept.each else (), input.dtype


@cross_entropy_rows.vjp
def _rows_vjp(grad, input, kept):
    slope, picked = kept.slopes(input.shape[1], input._array.dtype)
    each = (grad.unsqueeze(1) if kept.each else grad) / kept.divisor
    return ((input.softmax(1) * wrap(slope) - wrap(picked)) * each,)


@cross_entropy_rows.raw
def _rows_raw(grad, input, kept):
    rows = kernels.compiled_rows()
    return (rows.backward(input, kept.target, kept.weight, kept.smoothing, kept.logarithms, grad, kept.divisor),)


# Any, because numpy's stubs know no positional `keepdims` of `reduce`.
_largest: Any = np.maximum.reduce
_total: Any = np.add.reduce
_exp, _log = np.exp, np.log
_FEW_TARGETS = 1 << 13  # of images, which are added up in one thread


@cross_entropy.forwards
def _cross_entropy_of_images(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing):
    """A few images, whose likelihood of classes is taken."""
    x, t = input._array, target._array
    if x.ndim <= 2 or x.dtype.char not in "fd" or t.dtype.char != "l" or x.__class__ is not np.ndarray or t.__class__ is not np.ndarray:
        return None
    if label_smoothing or t.shape == x.shape or not 0 < t.size <= _FEW_TARGETS or not x.flags.c_contiguous:
        return None
    if size_average is not None or reduce is not None or reduction not in _REDUCTIONS or ignore_index.__class__ is not int:
        return None
    return nll.answer(input.log_softmax(1), target, weight, ignore_index, reduction)


def _record_rows(made, kept, input, target, weight):
    """Record `cross_entropy_rows`, which keeps the scores shifted."""
    versions = [0, 0, None, None], (target._storage, None if weight is None else weight._storage)
    record_as(cross_entropy_rows, made, (input._node,), kept, versions)


@cross_entropy.plan(tensors=("input",), beside=("target", "weight"), constant=("weight",), dtypes="fd", record=_record_rows)
def _cross_entropy_of_rows(x, t, w, size_average, ignore_index, reduce, reduction, label_smoothing, recorded):
    """Rows of scores with a class each, or one of them."""
    if size_average is not None or reduce is not None or reduction not in _REDUCTIONS or ignore_index.__class__ is not int:
        return None
    if t.dtype.char != "l" or x.ndim > 2 or not 0.0 <= label_smoothing <= 1.0:
        return None
    if x.ndim == 2 and t.ndim == 1 and t.shape[0] == x.shape[0]:
        compiled = kernels.likelihood_rows(x)
        if compiled is None:
            return None
        return _compiled_rows(compiled, x, t, w, ignore_index, reduction, label_smoothing, recorded)
    if not recorded and x.ndim == 1 and not t.ndim and kernels.likelihood_rows(x.reshape(1, -1)) is not None:
        row, compiled = x.reshape(1, -1), kernels.compiled_rows()
        found = _compiled_rows(compiled, row, t.reshape(1), w, ignore_index, reduction, label_smoothing, False)
        return None if found is None else (found[0].reshape(()), None)
    return None


def _compiled_rows(
    compiled: Any, x: Any, t: Any, w: Any, ignored: int, reduction: str, smoothing: float, recorded: bool
) -> tuple[Any, tuple[Any, RowsKept] | None] | None:
    """Result and, if `recorded`, shifted scores and the rest, by compiled loops; None for what the general path answers or refuses."""
    if w is not None:
        if w.dtype is not x.dtype or w.shape != x.shape[1:]:
            return None
        w = np.ascontiguousarray(w)
    if not t.flags.c_contiguous:
        t = np.ascontiguousarray(t)
    how = compiled.HOW[reduction]
    result, shifted, logarithms, chosen, counted = compiled.forward(x, t, w, float(smoothing), ignored, how, recorded)
    if result is None:
        return None
    if not recorded:
        return result, None
    if not counted:
        return None
    rows = RowsKept(chosen, w, float(smoothing), counted if reduction == "mean" else 1.0, not how, logarithms)
    return result, (shifted, rows)


# -- regression ----------------------------------------------------------------------------------------------------------


@composite(namespace=F, autocast=("float32", None), samples="x(2, 3), x(2, 3); x(2, 3), x(2, 3), reduction='none'")
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """``|input - target|`` over the broadcast shape, reduced: in the unit of both.

    Args:
        reduction: 'mean', 'sum' or 'none'.
        weight: multiplies the loss, broadcast to its shape; 'mean' then divides by the sum of the weights.
    Raises: ValueError for an unknown `reduction`.
    """
    warn_sizes("l1_loss", input, target)
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


@composite(namespace=F, autocast=("float32", None), samples="x(2, 3), x(2, 3); x(2, 3), x(2, 3), reduction='sum'")
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """``(input - target) ** 2`` over the broadcast shape, reduced: in the unit of both, squared.

    Args:
        reduction: 'mean', 'sum' or 'none'.
        weight: multiplies the loss, broadcast to its shape; 'mean' then divides by the sum of the weights.
    Raises: ValueError for an unknown `reduction`; RuntimeError for integers. Warns where the shapes differ.

    >>> F.mse_loss(fb.tensor([1.0, 2.0]), fb.tensor([1.0, 5.0]), reduction="none")
    tensor([0., 9.])
    """
    warn_sizes("mse_loss", input, target)
    return _weighted(squared_error.function(input, target), weight, reduction_of(reduction, size_average, reduce))


@primitive(
    surface=0, tensors=("input", "target"), operator="mse_loss(input, target)",
    samples="of nn.functional.mse_loss",
    public_name="mse_loss",
    cuda="sums.mean_squared_error",
)
def mean_squared_error(input, target):
    """The mean of ``(input - target) ** 2`` over all elements of two arrays of one shape."""


@mean_squared_error.in_pieces
def _mse_pieces(asked):
    first, second = asked.operands
    alike = first.shape == second.shape
    return [asked.way({0: d, 1: d}, "avg") for d, n in enumerate(first.shape) if alike and n % asked.count == 0]


mean_squared_error.node_class.title = "MseLossBackward0"


@mean_squared_error.kernel
def _mse(a, b):
    return np.asarray(kernels.squared_error_sum(a, b) / a.size, a.dtype)


mean_squared_error.shape(lambda input, target: ((), input.dtype))


@mean_squared_error.vjp
def _mse_vjp(grad, input, target):
    slope = (input - target) * (grad * (2 / input.numel()))
    return slope, lambda: -slope


@mean_squared_error.raw
def _mse_raw(grad, input, target):
    slope = kernels.scaled_difference(input, target, np.asarray(grad * (2 / input.size), input.dtype))
    slope = slope if slope.flags.c_contiguous else np.ascontiguousarray(slope)  # as PyTorch's
    return slope, lambda: np.asarray(-slope)


def _mse_answer(input: Any, target: Any, size_average: Any, reduce: Any, reduction: Any, weight: Any) -> Any:
    """The op that answers the usual call, and its arguments."""
    if weight is not None or reduction != "mean" or size_average is not None or reduce is not None:
        return None
    if not (isinstance(input, Tensor) and isinstance(target, Tensor)) or input.dtype is not target.dtype:
        return None
    if input.dtype.numpy not in (FLOAT32, FLOAT64) or input.shape != target.shape or not input.numel():
        return None
    return mean_squared_error, (input, target)


mse_loss.answered_by = _mse_answer


@mse_loss.forwards
def _mean_of_squares(input, target, size_average, reduce, reduction, weight):
    if weight is not None or reduction != "mean" or size_average is not None or reduce is not None:
        return None
    return mean_squared_error.answer(input, target)


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


@composite(namespace=F, samples="x(2, 3), x(2, 3); x(2, 3), x(2, 3), beta=0.5, reduction='none'")
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Quadratic within `beta` of the target, of slope 1 beyond, reduced.

    With ``e = |input - target|``: ``0.5 * e ** 2 / beta`` where ``e < beta``, ``e - 0.5 * beta`` beyond. It
    is `huber_loss`
    divided by `beta`; a `beta` of 0 gives `l1_loss`.

    Args:
        reduction: 'mean', 'sum' or 'none'.
        beta: in the unit of `input`, >= 0.
    Raises: RuntimeError for a negative `beta`; ValueError for an unknown `reduction`.

    >>> F.smooth_l1_loss(fb.zeros(2), fb.tensor([0.5, 3.0]), reduction="none")
    tensor([0.1250, 2.5000])
    """
    warn_sizes("smooth_l1_loss", input, target)
    reduction = reduction_of(reduction, size_average, reduce)
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, got {beta}")
    if beta == 0:
        return reduced((input - target).abs(), reduction)
    return reduced(smooth_absolute_error.function(input, target, beta), reduction)


def _huber_slope(error, delta):
    return where(error <= -delta, -delta, where(error >= delta, delta, error))


@elementwise(
    surface=0,
    dtype=floating_common,
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


@composite(namespace=F, autocast=("float32", None), samples="x(2, 3), x(2, 3); x(2, 3), x(2, 3), delta=0.5, reduction='sum'")
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
    warn_sizes("huber_loss", input, target)
    reduction = reduction_of(reduction)
    if delta <= 0:
        raise RuntimeError(f"huber_loss does not support non-positive values for delta. Got {delta}")
    return _weighted(huber_error.function(input, target, delta), weight, reduction)


# -- distributions -------------------------------------------------------------------------------------------------------


@composite(
    namespace=F, autocast=("float32", None),
    samples="x(2, 3), u(2, 3), reduction='batchmean'; x(2, 3), x(2, 3), reduction='sum', log_target=True",
)
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """``target * (log(target) - input)``, `input` being log probabilities: summed, the divergence from it to `target`.

    Args:
        target: probabilities, or with `log_target` log probabilities, of a shape that broadcasts; 0
            contributes 0.
        reduction: 'mean' divides by the number of elements; 'batchmean', by the size of the first dimension,
            is the
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
            warnings.warn(
                "kl_div: reduction 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides "
                "only by the batch size, and aligns with the KL math definition.",
                stacklevel=3,
            )
    if input.is_complex() or target.is_complex():
        raise RuntimeError(f"kl_div: Complex inputs not supported\n{describe(input=input, target=target)}")
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = target.xlogy(target) - target * input
    made = reduced(loss, chosen)
    return made / input.shape[0] if reduction == "batchmean" and input.ndim else made


@composite(namespace=F, autocast=("float32", None), samples="x(2, 3), p(2, 3); p(2, 3), p(2, 3, low=1.5), False, True")
def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    """The negative log likelihood of counts `target` under Poisson distributions, reduced.

    Args:
        input: the logarithm of the rate, or without `log_input` the rate itself.
        log_input: ``exp(input) - target * input``, rather than ``input - target * log(input + eps)``.
        full: add Stirling's approximation of ``log(target!)`` for targets above 1; else that constant is left
            out.
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
    elif (var < 0).any().item():
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


@composite(namespace=F, autocast=("float32", None), samples="u(2, 3), u(2, 3); u(2, 3), u(2, 3), k(3), reduction='none'")
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
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
    if input.is_cpu and input.numel() and not ((input._array >= 0) & (input._array <= 1)).all():
        raise RuntimeError("binary_cross_entropy: all elements of input should be between 0 and 1")
    loss = binary_entropy.function(input, target)
    return reduced(loss if weight is None else loss * weight, reduction)


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


def _softplus(x):
    return maximum(x, 0) + log1p(exp(-abs(x)))


@elementwise(
    surface=0,
    dtype=floating_common,
    partials={"input": lambda input, target: sigmoid(input) - target, "target": lambda input: -input},
    title="BinaryCrossEntropyWithLogitsBackward0",
    public_name="binary_cross_entropy_with_logits",
)
def logit_entropy(input, target):
    """`binary_entropy` of ``sigmoid(input)``, without its overflow."""
    return (1 - target) * input + _softplus(-input)


@elementwise(
    surface=0,
    dtype=floating_common,
    partials={
        "input": lambda input, target, pos_weight: (1 - target) - ((pos_weight - 1) * target + 1) * sigmoid(-input),
        "target": lambda input, pos_weight: (pos_weight - 1) * _softplus(-input) - input,
        "pos_weight": lambda input, target: target * _softplus(-input),
    },
    title="BinaryCrossEntropyWithLogitsBackward0",
)
def weighted_logit_entropy(input, target, pos_weight):
    """`logit_entropy` with positive targets weighing `pos_weight`."""
    return (1 - target) * input + ((pos_weight - 1) * target + 1) * _softplus(-input)


@composite(namespace=F, autocast=("float32", None), samples="x(2, 3), u(2, 3); x(2, 3), u(2, 3), k(3), pos_weight=k(3), reduction='sum'")
def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
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
            f"binary_cross_entropy_with_logits: Target size {tuple(target.shape)} must be the same as input size {tuple(input.shape)}"
        )
    if pos_weight is None:
        loss = logit_entropy.function(input, target)
    else:
        loss = weighted_logit_entropy.function(input, target, pos_weight)
    return reduced(loss if weight is None else loss * weight, reduction)


@elementwise(
    surface=0,
    dtype=floating_common,
    partials={
        "input": lambda input, target: -target * sigmoid(-target * input),
        "target": lambda input, target: -input * sigmoid(-target * input),
    },
    title="SoftMarginLossBackward0",
    operator="soft_margin_loss(input, target, 0)",
)
def soft_margin(input, target):
    """``log(1 + exp(-target * input))``."""
    return _softplus(-target * input)


@composite(namespace=F, autocast=("float32", None), samples="x(2, 3), signs(2, 3); x(2, 3), signs(2, 3), reduction='none'")
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """``log(1 + exp(-target * input))``, targets being 1 or -1; reduced by 'mean', 'sum' or 'none'."""
    return reduced(soft_margin.function(input, target), reduction_of(reduction, size_average, reduce))


@composite(namespace=F, samples="x(2, 3), i(2, 2, 3); x(2, 3), i(2, 2, 3), k(3), reduction='none'")
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
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
    loss = logit_entropy.function(input, target)
    if weight is not None:
        loss = loss * weight
    return reduced(loss.sum(-1) / input.shape[-1], reduction)
