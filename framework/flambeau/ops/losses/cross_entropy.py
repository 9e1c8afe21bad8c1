"""Losses of one class per sample: negative log likelihood and cross entropy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.cpu import losses as kernels

from ... import _state, dtypes
from ...tensor import Tensor, wrap
from .. import _dispatch
from .._batching import run
from .._spec import composite, constant_along, describe, gradients_of, primitive
from .._spec.nodes import record_as
from .loss import F, reduction_of

# -- classification: one class per sample --------------------------------------------------------------------------------


@primitive(
    surface=0, tensors=("input", "target", "weight"), keeps=True, operator="nll_loss_nd(input, target, weight, reduction, ignore_index)",
    samples="of nn.functional.nll_loss",
    public_name="nll_loss",
    cuda="rows.nll",
)
def nll(input, target, weight=None, ignore_index=-100, reduction="mean"):
    """``-weight[target] * input[target]`` of log probabilities ``(N, C, *)`` and classes ``(N, *)``."""


def _total_weight(saved: Any) -> Tensor:
    """What a mean of losses is divided by, which nodes show."""
    target, weight = saved["target"].detach(), saved["weight"]
    target = target[target != saved["ignore_index"]]
    if isinstance(weight, Tensor):
        return weight.detach()[target.to(dtypes.int64)].sum()
    return wrap(np.asarray(target.numel(), saved["input"]._array.dtype if isinstance(saved["input"], Tensor) else saved["input"].dtype))


nll.shown_by("titled['NllLoss2DBackward0'] if input._array.ndim > 2 else Node")
nll.shown_as(
    "NllLossBackward0", hides="input_shape", reduction=lambda saved: ("none", "mean", "sum").index(saved["reduction"]),
    total_weight=_total_weight,
)  # fmt: skip


@nll.in_pieces
def _nll_pieces(asked):
    if asked["input"].ndim == 1:
        return "_,,_->"
    return {"none": "n_*,n*,_->n*", "sum": "n_*,n*,_->"}.get(asked["reduction"], "*,*,_->")


@nll.kernel
def _nll(a, target, weight, ignore_index, reduction):
    return kernels.nll(a, target, weight, ignore_index, reduction)


@nll.shape
def _nll_shape(input, target, weight, ignore_index, reduction):
    return tuple(target.shape) if reduction == "none" else (), input.dtype


@nll.vjp(target=None, weight=None)
def _nll_vjp(grad, input, kept, target, weight, ignore_index, reduction):
    if _dispatch.is_seen(input):
        picked = _picked_by_ops(input, target, weight, ignore_index, reduction)
    else:
        picked = picked_weights.function(input, kept)
    # What is ignored gets no gradient, also where the mean is one over nothing; nor do the other classes, not even -0.
    counts = (target != ignore_index).unsqueeze(1) & (picked != 0)
    found = (-(grad.unsqueeze(1) if reduction == "none" else grad) * picked).where(counts, 0)
    return constant_along(found, [input]), None, None


@primitive(surface=0, samples="of nn.functional.nll_loss", public_name="nll_loss")
def picked_weights(input, kept):
    """The weight of each element in the loss, shaped like `input`, from what the kernel of `nll` has kept."""


picked_weights.in_pieces(lambda asked: [])
picked_weights.not_differentiable = "weights of classes are constants"
picked_weights.shape(lambda input, kept: (input.shape, input.dtype))


@picked_weights.kernel
def _picked_weights(x, kept):
    return kernels.picked_weights(x.shape, x.dtype, kept)


@picked_weights.kernel(device="cuda")
def _picked_weights_on_device(x, kept):
    return kept.picked


def _picked_by_ops(input: Tensor, target: Tensor, weight: Any, ignore_index: int, reduction: str) -> Tensor:
    """The weight of each element in the loss, shaped like `input`: where modes look, in the place of the kernel's residual."""
    classes = target.where(target != ignore_index, 0).to(dtypes.int64)
    weights = input.new_ones(target.shape) if weight is None else weight[classes]
    weights = weights.where(target != ignore_index, 0)
    if reduction == "mean":
        weights = weights / weights.sum()
    dim = 1 if input.ndim > 1 else 0
    return input.new_zeros(input.shape).scatter(dim, classes.unsqueeze(dim), weights.unsqueeze(dim))


@nll.vjp_on_arrays
def _nll_vjp_on_arrays(grad, kept, input_shape, target, ignore_index):
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
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, (int, np.integer)):
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
    scripted_as="nll_loss_nd",
)
def nll_loss(
    input, target, weight=None, size_average: bool | int | None = None, ignore_index=-100, reduce: bool | int | None = None,
    reduction="mean"
):
    """``-weight[target] * input[target]``, where `input` holds log probabilities.

    Args:
        input: ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``: natural logarithms, as `log_softmax` gives.
        target: classes, ``()``, ``(N)`` or ``(N, d1, ...)``, int64; those equal to `ignore_index` do not count.
        weight: ``(C)``, or None; 'mean' divides by the weights of the targets that count, and is nan if none does.
        reduction: 'mean', 'sum', or 'none' for the shape of `target`.
    Raises: ValueError, RuntimeError for shapes that do not fit; IndexError for a class that does not exist.

    >>> F.nll_loss(fb.tensor([[-0.5, -2.0], [-1.0, -0.1]]), fb.tensor([0, 0]))
    tensor(0.7500)
    """
    _check_ignored("nll_loss", ignore_index)
    return _likelihood("nll_loss", input, target, weight, ignore_index, reduction_of(reduction, size_average, reduce))


def _class_bounds(input: Tensor, target: Tensor) -> list[tuple[int, int]] | None:
    """Where classes have to lie, as `put_off_within` asks; None for others than int64, such as probabilities."""
    if target.dtype is not dtypes.int64 or not input.ndim:
        return None
    return [(0, input.shape[min(1, input.ndim - 1)])]


@nll_loss.put_off_within("target")
def _nll_bounds(input, target, weight, size_average, ignore_index, reduce, reduction):
    return _class_bounds(input, target)


@nll_loss.forwards
def _nll_of_classes(input, target, weight, size_average, ignore_index, reduce, reduction):
    if ignore_index.__class__ is not int or size_average is not None or reduce is not None or reduction not in _REDUCTIONS:
        return None
    if input._array.ndim == 1 and input._node is not None:
        return None
    return nll.answer(input, target, weight, ignore_index, reduction)


nll.plan(kernels.picked_by_kernel)


_REDUCTIONS = frozenset(("mean", "sum", "none"))


@composite(
    namespace=F, autocast="float32",
    samples="x(3, 4), i(4, 3); x(2, 3, 2), i(3, 2, 2), k(3), label_smoothing=0.2; x(3, 4), u(3, 4), reduction='none'",
    scripted_as="cross_entropy_loss",
)
def cross_entropy(
    input, target, weight=None, size_average: bool | int | None = None, ignore_index=-100, reduce: bool | int | None = None,
    reduction="mean", label_smoothing=0.0
):
    """The negative log likelihood of `target` under ``softmax(input)``, in nats.

    Args:
        input: scores (logits) ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``.
        target: classes, as in `nll_loss`; or probabilities, floating, of the shape of `input`.
        weight: ``(C)``. With classes, 'mean' divides by the weights that count; with probabilities, by N d1
            ....
        ignore_index: classes of this value do not count.
        label_smoothing: how much of the probability is spread evenly over all classes, in [0, 1].
        reduction: 'mean', 'sum', or 'none' for the shape of the classes.
    Raises: ValueError, RuntimeError for shapes or dtypes that do not fit; IndexError for a class that does not exist.

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
    if label_smoothing and _dispatch.records_history(input) and _has_row_kernel(input, target, weight):
        return smooth_cross_entropy.function(input, target, weight, ignore_index, reduction, label_smoothing)
    logs = input.log_softmax(dim)
    if label_smoothing == 0.0:
        return _likelihood("cross_entropy", logs, target, weight, ignore_index, reduction)
    return _smooth_cross_entropy(logs, target, weight, ignore_index, reduction, label_smoothing, dim)


@cross_entropy.put_off_within("target")
def _cross_entropy_bounds(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing):
    return _class_bounds(input, target)


@cross_entropy.exported
def _cross_entropy_loss(run, input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing):
    reduction = reduction_of(reduction, size_average, reduce)
    number = ("none", "mean", "sum").index(reduction)
    return run("cross_entropy_loss", input, target, weight, number, ignore_index, float(label_smoothing))


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


def _shown_rows(name: str) -> Any:
    """What the node of a likelihood of classes has saved, of that of a cross entropy of rows."""

    def shown(saved: Any) -> Any:
        kept = saved["kept"]
        named = {"input": saved["input"], "ignore_index": kept.ignored, "weight": None if kept.weight is None else wrap(kept.weight)}
        named["target"] = wrap(np.where(kept.target < 0, kept.ignored, kept.target))
        if name == "total_weight":
            return _total_weight(named)
        if name == "reduction":
            return ("none", "mean", "sum").index(kept.reduction)
        if name == "ignore_index":
            return kept.ignored % (1 << 64)
        return saved["input"].detach().log_softmax(1) if name == "self" else named[name]

    return shown


cross_entropy_rows.shown_as(
    "NllLossBackward0", **{name: _shown_rows(name) for name in ("self", "target", "weight", "total_weight", "reduction", "ignore_index")}
)


class RowsKept:
    """What a cross entropy of rows knows beside the scores.

    Attributes:
        target: classes, -1 where a row does not count.
        weight: of the classes, or None.
        smoothing: as in `cross_entropy`.
        divisor: of each loss in the result.
        each: whether the result is all losses, and not their sum.
        logarithms: of the sums of exp, for shifted scores.
        reduction, ignored: as in `cross_entropy`, where `ignored` is called ``ignore_index``.
    """

    __slots__ = ("divisor", "each", "ignored", "logarithms", "reduction", "smoothing", "target", "weight")

    def __init__(
        self, target: Any, weight: Any, smoothing: float, divisor: float, each: bool, logarithms: Any, reduction: str, ignored: int
    ) -> None:
        self.target, self.weight, self.smoothing = target, weight, smoothing
        self.divisor, self.each, self.logarithms = divisor, each, logarithms
        self.reduction, self.ignored = reduction, ignored

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
    slope, picked = slopes_of_rows.function(input, kept)
    each = (grad.unsqueeze(1) if kept.each else grad) / kept.divisor
    return ((input.softmax(1) * slope - picked) * each,)


@primitive(surface=0, samples="of nn.functional.cross_entropy", public_name="cross_entropy")
def slopes_of_rows(input, kept):
    """``(N, 1)`` and ``(N, C)`` numbers a, b for which ``softmax * a - b`` is the gradient of each of the losses of scores `input`."""


slopes_of_rows.in_pieces(lambda asked: [])
slopes_of_rows.not_differentiable = "they are made of classes and their weights"
slopes_of_rows.kernel(lambda scores, kept: kept.slopes(scores.shape[1], scores.dtype))
slopes_of_rows.shape(lambda input, kept: [((input.shape[0], 1), input.dtype), (input.shape, input.dtype)])


@cross_entropy_rows.vjp_on_arrays
def _rows_vjp_on_arrays(grad, input, kept):
    rows = kernels.compiled_rows()
    return (rows.backward(input, kept.target, kept.weight, kept.smoothing, kept.logarithms, grad, kept.divisor),)


# Any, because numpy's stubs know no positional `keepdims` of `reduce`.
_largest: Any = np.maximum.reduce
_total: Any = np.add.reduce
_exp, _log = np.exp, np.log
_MOST_TARGETS = 1 << 13  # of images, which are added up in one thread


@cross_entropy.forwards
def _cross_entropy_of_images(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing):
    """A few images, whose likelihood of classes is taken."""
    x, t = input._array, target._array
    if x.ndim <= 2 or x.dtype.char not in "fd" or t.dtype.char != "l" or x.__class__ is not np.ndarray or t.__class__ is not np.ndarray:
        return None
    if label_smoothing or t.shape == x.shape or not 0 < t.size <= _MOST_TARGETS or not x.flags.c_contiguous:
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
    rows = RowsKept(chosen, w, float(smoothing), counted if reduction == "mean" else 1.0, not how, logarithms, reduction, ignored)
    return result, (shifted, rows)


# Graphs have a smoothed cross entropy as one node, for its kernel rounds otherwise than what it could be made of.


def _has_row_kernel(input: Tensor, target: Tensor, weight: Any) -> bool:
    """Whether `_cross_entropy_of_rows` answers for tensors that look like these."""
    if input.ndim != 2 or not input.numel() or target.dtype is not dtypes.int64 or input.dtype not in (dtypes.float32, dtypes.float64):
        return False
    if weight is not None and (weight.dtype is not input.dtype or weight.requires_grad):
        return False
    return engines.chosen().compiles and input.is_contiguous()


@primitive(
    surface=0, tensors=("input", "target", "weight"), public_name="cross_entropy",
    samples="x(3, 4), i(4, 3), None, -100, 'mean', 0.2; x(3, 4), i(4, 3), k(4), 1, 'none', 0.1",
)  # fmt: skip
def smooth_cross_entropy(input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """`cross_entropy` of rows with smoothed labels as one node."""


# Smoothing and means are of all rows together.
smooth_cross_entropy.in_pieces(lambda asked: [])


@smooth_cross_entropy.kernel
def _smooth(x, target, weight, ignore_index, reduction, label_smoothing):
    before = _state.set_grad(False)
    try:
        return _by_rows(wrap(x), wrap(target), _wrapped(weight), ignore_index, reduction, label_smoothing)._array
    finally:
        _state.set_grad(before)


def _by_rows(input: Tensor, target: Tensor, weight: Any, ignored: int, reduction: str, smoothing: float) -> Tensor:
    return cross_entropy.enter(input, target, weight, None, ignored, None, reduction, smoothing)


def _wrapped(array: Any) -> Any:
    return None if array is None else wrap(array)


@smooth_cross_entropy.shape
def _smooth_shape(input, target, weight, ignore_index, reduction, label_smoothing):
    return input.shape[:1] if reduction == "none" else (), input.dtype


@smooth_cross_entropy.vjp(target=None, weight=None)
def _smooth_vjp(grad, input, target, weight, ignore_index, reduction, label_smoothing):
    return smooth_cross_entropy_backward(grad, input, target, weight, ignore_index, reduction, label_smoothing), None, None


@primitive(
    surface=0, tensors=("grad_output", "input", "target", "weight"),
    samples="x(), x(3, 4), i(4, 3), None, -100, 'mean', 0.2; x(3), x(3, 4), i(4, 3), k(4), 1, 'none', 0.1",
)  # fmt: skip
def smooth_cross_entropy_backward(grad_output, input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """The gradient of `smooth_cross_entropy` by its scores."""


smooth_cross_entropy_backward.in_pieces(lambda asked: [])


@smooth_cross_entropy_backward.kernel
def _smooth_backward(grad, x, target, weight, ignore_index, reduction, label_smoothing):
    def loss(x: Tensor) -> Tensor:
        return _by_rows(x, wrap(target), _wrapped(weight), ignore_index, reduction, label_smoothing)

    before = _state.set_grad(False)                   # of what is computed here nothing is differentiated again
    try:
        return gradients_of(loss, wrap(grad), (wrap(x),), (True,))[0]._array
    finally:
        _state.set_grad(before)


@smooth_cross_entropy_backward.shape
def _smooth_backward_shape(grad_output, input, target, weight, ignore_index, reduction, label_smoothing):
    return input.shape, input.dtype


@smooth_cross_entropy_backward.vjp(target=None, weight=None)
def _smooth_backward_vjp(grad, grad_output, input, target, weight, ignore_index, reduction, label_smoothing):
    def slope(grad: Tensor, input: Tensor) -> Tensor:
        def loss(x: Tensor) -> Tensor:
            return _smooth_cross_entropy(x.log_softmax(1), target, weight, ignore_index, reduction, label_smoothing, 1)

        return gradients_of(loss, grad, (input,), (True,))[0]

    return *gradients_of(slope, grad, (grad_output, input), (True, True)), None, None
