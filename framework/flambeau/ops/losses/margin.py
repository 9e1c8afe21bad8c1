"""Losses of rankings and embeddings: what is compared must differ by a margin."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.losses import all_count, all_equal, row_starts
from flambeau_kernels.cpu.reductions.softmax import compiled_module

from ... import dtypes
from ...tensor import Tensor
from .. import _dispatch
from .._spec import composite, describe, host_only
from .._spec.plans import MOST_BY_NUMPY
from ..creation.ranges import arange
from .loss import reduced, reduced_pieces, reduction_of

F = "nn.functional"
_COMPILED_FROM = 1024  # scores that are worth a kernel
_PAIRS_LEFT_OUT_FROM = 4096  # pairs of classes, from which it repays to look for those of no label


def _positive(x: Tensor) -> Tensor:
    return x.clamp_min(0)


_total: Any = np.add.reduce  # because numpy's stubs know no positional `keepdims`


def _reduced(losses: Any, reduction: str, size_average: Any, reduce: Any) -> Any:
    """Losses of few elements, reduced as usual; or None."""
    if size_average is not None or reduce is not None:
        return None
    if reduction == "none":
        return losses
    total = _total(losses, None)
    if reduction == "mean":
        total = total / losses.dtype.type(losses.size)
    return np.asarray(total) if reduction in ("mean", "sum") else None


@composite(
    namespace=F, autocast=("float32", None), samples="x(2, 3), signs(2, 3); x(2, 3), signs(2, 3), 0.5, reduction='none'",
    scripted_as="hinge_embedding_loss",
)
def hinge_embedding_loss(
    input, target, margin=1.0, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean"
):
    """`input`, a distance, where `target` is 1, ``max(0, margin - input)`` where it is -1; reduced.

    Args:
        margin: the distance beyond which pairs that differ cost nothing, in the unit of `input`.
        reduction: 'mean', 'sum' or 'none'.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    near = _positive(margin - input).where(target != 1, 0)
    return reduced(near + input.where(target != -1, 0), reduction)


@hinge_embedding_loss.plan(tensors=("input", "target"), most_by_numpy=MOST_BY_NUMPY)
def _planned_hinges(a, target, margin, size_average, reduce, reduction):
    near = np.maximum(np.subtract(margin, a, dtype=a.dtype), 0)
    losses = np.where(target != 1, near, 0) + np.where(target != -1, a, 0)
    return _reduced(losses, reduction, size_average, reduce) if losses.ndim else None


@composite(
    namespace=F, autocast=("float32", None), samples="x(3), x(3), signs(3); x(3), x(3), signs(3), 0.5, reduction='sum'",
    scripted_as="margin_ranking_loss",
)
def margin_ranking_loss(
    input1, input2, target, margin=0, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean"
):
    """``max(0, -target * (input1 - input2) + margin)``: with target 1 `input1` should rank higher; reduced.

    Args:
        input1, input2, target: shapes that broadcast together; target -1 says that `input1` should rank lower.
        margin: by how much it should, in the unit of the inputs.
        reduction: 'mean', 'sum' or 'none'.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            f"margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: {input1.shape}, input2: "
            f"{input2.shape}, target: {target.shape}\n"
            f"{describe(input1=input1, input2=input2, target=target)}"
        )
    return reduced(_positive(-target * (input1 - input2) + margin), reduction)


@composite(
    namespace=F, autocast=("float32", None), samples="x(3, 4), x(3, 4), signs(3); x(3, 4), x(3, 4), signs(3), 0.2, reduction='none'",
    scripted_as="cosine_embedding_loss",
)
def cosine_embedding_loss(
    input1, input2, target, margin=0, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean"
):
    """``1 - cos(input1, input2)`` where `target` is 1, ``max(0, cos - margin)`` where it is -1; reduced.

    Args:
        input1, input2: ``(N, D)``, or ``(D)`` with a 0-d target.
        target: ``(N)``.
        margin: cosine below which pairs that differ cost nothing, in [-1, 1].
        reduction: 'mean', 'sum' or 'none'.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if target.ndim > 1:
        raise RuntimeError("cosine_embedding_loss: 0D or 1D target tensor expected, multi-target not supported")
    if max(input1.ndim, input2.ndim) != target.ndim + 1 or min(input1.ndim, input2.ndim) != target.ndim + 1:
        raise RuntimeError(
            f"cosine_embedding_loss: {target.ndim}D target tensor expects {target.ndim + 1}D input tensors\n"
            f"{describe(input1=input1, input2=input2, target=target)}"
        )
    tiny = 1e-12
    size1, size2 = (input1 * input1).sum(-1) + tiny, (input2 * input2).sum(-1) + tiny
    cosine = (input1 * input2).sum(-1) / (size1 * size2).sqrt()
    of_different = _positive(cosine - margin).where(target == -1, 0)
    return reduced((1 - cosine).where(target == 1, 0) + of_different, reduction)


@cosine_embedding_loss.plan(tensors=("input1", "input2", "target"), most_by_numpy=MOST_BY_NUMPY)
def _planned_cosines(a, b, target, margin, size_average, reduce, reduction):
    if a.ndim != 2 or a.shape != b.shape or target.shape != a.shape[:1]:
        return None
    sizes = _total(a * a, 1) + 1e-12
    sizes *= _total(b * b, 1) + 1e-12
    cosine = _total(a * b, 1)
    cosine /= np.sqrt(sizes, sizes)
    losses = np.where(target == 1, 1 - cosine, 0) + np.where(target == -1, np.maximum(cosine - margin, 0), 0)
    return _reduced(losses, reduction, size_average, reduce)


@composite(
    namespace=F, autocast=("float32", None), reads_parts=True, samples="x(3, 4), i(4, 3); x(3, 4), i(4, 3), 2, 0.5, k(4), reduction='none'",
    scripted_as="multi_margin_loss",
)
def multi_margin_loss(
    input, target, p=1, margin=1.0, weight=None, size_average: bool | int | None = None, reduce: bool | int | None = None,
    reduction="mean"
):
    """The mean over classes of ``max(0, margin - input[target] + input) ** p``, without the target's own term; reduced.

    Args:
        input: scores ``(N, C)`` or ``(C)``.
        target: classes ``(N)`` or ``()``.
        p: 1 or 2.
        weight: ``(C)``; each sample's loss is multiplied by its class's.
    Raises: ValueError for another `p`; RuntimeError for shapes that do not fit.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    host_only("multi_margin_loss", input, target)
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: only p == 1 and p == 2 supported, got p={p}")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"multi_margin_loss: weight must be one-dimensional, got shape {tuple(weight.shape)}")
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"multi_margin_loss: target: expected scalar type Long but found {dtypes.scalar_type(target.dtype)}")
    if weight is not None and weight.numel() != rows.shape[1]:
        raise RuntimeError(f"multi_margin_loss: inconsistent weight size, expected {rows.shape[1]} but got {list(weight.shape)}")
    fits = input.ndim == target.ndim + 1 if input.ndim == 2 else input.ndim < 2 and target.ndim < 2
    if not fits or rows.shape[1] == 0 or target.numel() != rows.shape[0]:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch size). Expected "
            f"target size [{rows.shape[0]}], but got {list(target.shape)}. Input has shape {list(input.shape)}.\n"
            f"{describe(input=input, target=target)}"
        )
    classes = target.reshape(-1)
    if _dispatch.may_be_checked(classes) and bool(((classes < 0) | (classes >= rows.shape[1])).any()):
        raise RuntimeError(f"multi_margin_loss: target out of range, there are {rows.shape[1]} classes")
    own = classes[:, None] == arange(rows.shape[1], device=target.device)
    score = rows.where(own, 0).sum(1, keepdim=True)
    over = margin - score + rows
    over = over.where((over > 0) & ~own, 0)
    if p == 2:
        over = over * over
    if weight is not None:
        over = over * weight[target.reshape(-1)].unsqueeze(1)
    loss = over.sum(1) / rows.shape[1]
    return reduced(loss if target.ndim else loss.reshape(()), reduction)


multi_margin_loss.result_shown_as("MultiMarginLossBackward0")


@multi_margin_loss.in_pieces
def _multi_margin_loss_pieces(asked):
    if asked["size_average"] is not None or asked["reduce"] is not None or asked["input"].ndim != 2:
        return []
    return reduced_pieces(asked, [({0: 0, 1: 0}, 0, asked["input"].shape[0])])


_MARGINS_BY_NUMPY = 8192                              # scores of which the margins are soon found by numpy


@multi_margin_loss.plan(tensors=("input",), beside=("target",), dtypes="fd", rows=True)
def _planned_margins(a, t, p, margin, weight, size_average, reduce, reduction):
    if a.ndim != 2 or not a.size or t.shape != a.shape[:1] or t.dtype.char != "l" or p not in (1, 2) or weight is not None:
        return None
    if not all_count(t, a.shape[1], -1):
        return None
    if a.size > _MARGINS_BY_NUMPY:
        rows = compiled_module("losses.margin_rows")
        return None if rows is None else _reduced(rows.of_targets(a, t, p == 2, margin), reduction, size_average, reduce)
    own = t + row_starts(*a.shape)
    over = a - a.take(own).reshape(-1, 1)
    over += margin
    np.fmax(over, 0, out=over)  # nan is not over
    over.put(own, 0)
    if p == 2:
        np.multiply(over, over, over)
    losses = over.dot(all_equal(a.shape[1], 1 / a.shape[1], a.dtype))
    if reduction == "mean" and size_average is None and reduce is None:
        return np.asarray(losses.dot(all_equal(len(losses), 1 / len(losses), a.dtype)))
    return _reduced(losses, reduction, size_average, reduce)


@composite(
    namespace=F, autocast=("float32", None), samples="x(2, 4), fb.tensor([[3, 0, -1, 1], [1, -1, 0, 2]])",
    scripted_as="multilabel_margin_loss",
)
def multilabel_margin_loss(input, target, size_average: bool | int | None = None, reduce: bool | int | None = None, reduction="mean"):
    """The sum over a sample's classes y and all others i of ``max(0, 1 - input[y] + input[i])``, over the classes; reduced.

    Args:
        input: scores ``(N, C)`` or ``(C)``.
        target: int64 of the same shape: in each row the sample's classes, ended by -1.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    host_only("multilabel_margin_loss", input, target)
    if input.ndim > 2 or input.ndim == 2 and input.shape[1] == 0 or tuple(input.shape) != tuple(target.shape):
        raise RuntimeError(
            f"multilabel_margin_loss: inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}\n"
            f"{describe(input=input, target=target)}"
        )
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"multilabel_margin_loss: expected scalar type Long for target but found {target.dtype}; use .long()")
    rows = input.reshape(-1, input.shape[-1] if input.ndim else 1)
    count = rows.shape[1]
    labels = target.reshape(rows.shape)
    known = _dispatch.may_be_checked(labels)
    if known and bool(((labels < -1) | (labels >= count)).any()):
        raise RuntimeError(f"multilabel_margin_loss: target out of range, there are {count} classes, and -1 for none")
    listed = (labels >= 0).long().cumprod(1)  # 1 before the first -1 of a row
    chosen = labels * listed
    belongs = labels.new_zeros(labels.shape).scatter_add(1, chosen, listed)
    if known and labels.numel() * count >= _PAIRS_LEFT_OUT_FROM:
        longest = int(listed.sum(1).amax())  # no row lists more classes than that
        listed, chosen = listed[:, :longest], chosen[:, :longest]
    scores = rows.gather(1, chosen)  # (N, J)
    over = 1 - scores.unsqueeze(2) + rows.unsqueeze(1)  # (N, J, C)
    over = over.where((over > 0) & (listed.unsqueeze(2) > belongs.unsqueeze(1)), 0)
    loss = over.sum([1, 2]) / count
    return reduced(loss if input.ndim == 2 else loss.reshape(()), reduction)


multilabel_margin_loss.result_shown_as("MultilabelMarginLossBackward0")


@multilabel_margin_loss.plan(tensors=("input",), beside=("target",), dtypes="fd", rows=True)
def _planned_label_margins(a, labels, size_average, reduce, reduction):
    if a.ndim != 2 or a.size < _COMPILED_FROM or labels.shape != a.shape or labels.dtype.char != "l":
        return None
    rows = compiled_module("losses.margin_rows")
    losses = None if rows is None else rows.of_labels(a, labels)
    return None if losses is None else _reduced(losses, reduction, size_average, reduce)


@multilabel_margin_loss.in_pieces
def _multilabel_margin_loss_pieces(asked):
    if asked["size_average"] is not None or asked["reduce"] is not None or asked["input"].ndim != 2:
        return []
    return reduced_pieces(asked, [({0: 0, 1: 0}, 0, asked["input"].shape[0])])


# -- distances as losses -------------------------------------------------------------------------------------------------


@composite(
    namespace=F, autocast=("float32", None),
    samples="x(3, 4), x(3, 4), x(3, 4); x(3, 4), x(3, 4), x(3, 4), 2.0, 1.0, swap=True, reduction='none'",
    scripted_as="triplet_margin_loss",
)
def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average: bool | int | None = None,
    reduce: bool | int | None = None, reduction="mean"
):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` with `pairwise_distance` d of order `p`; reduced.

    Args:
        anchor, positive, negative: ``(N, D)`` or ``(D)``.
        margin: how much nearer the positive should be than the negative, > 0.
        p, eps: of the distance.
        swap: use ``d(positive, negative)`` where it is smaller than ``d(anchor, negative)``.
        reduction: 'mean', 'sum', or 'none' for ``(N)``.
    Raises: ValueError unless ``margin > 0``; RuntimeError for inputs of different dimensions.
    Source: Balntas et al. 2016, "Learning local feature descriptors with triplets and shallow convolutional neural
        networks".
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    from ..linear_algebra.distance import pairwise_distance

    return _triplet(
        "triplet_margin_loss", anchor, positive, negative, lambda x, y: pairwise_distance.function(x, y, p, eps), margin, swap, reduction
    )


@triplet_margin_loss.plan(tensors=("anchor", "positive", "negative"), most_by_numpy=MOST_BY_NUMPY)
def _planned_triplets(anchor, positive, negative, margin, p, eps, swap, size_average, reduce, reduction):
    from ..linear_algebra.distance import distances

    if swap or p not in (1, 2) or margin <= 0 or anchor.ndim < 2 or not anchor.shape == positive.shape == negative.shape:
        return None
    losses = distances(anchor, positive, p, eps)
    losses -= distances(anchor, negative, p, eps)
    losses += margin
    return _reduced(np.maximum(losses, 0, out=losses), reduction, size_average, reduce)


@composite(
    namespace=F,
    samples="x(3, 4), x(3, 4), x(3, 4); x(3, 4), x(3, 4), x(3, 4), margin=2.0, swap=True, reduction='none'",
)
def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """`triplet_margin_loss` with a distance of one's own.

    Args:
        anchor, positive, negative, margin, swap, reduction: as for `triplet_margin_loss`.
        distance_function: takes two of the three and returns distances, >= 0; `pairwise_distance` by default.
    """
    reduction = reduction_of(reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if distance_function is None:
        from ..linear_algebra.distance import pairwise_distance

        distance_function = pairwise_distance.function
    return _triplet(
        "triplet_margin_with_distance_loss", anchor, positive, negative, distance_function, margin, swap, reduction
    )


def _triplet(
    name: str, anchor: Tensor, positive: Tensor, negative: Tensor, distance: Any, margin: float, swap: bool, reduction: str
) -> Tensor:
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            f"{name}: The anchor, positive, and negative tensors are expected to have the same number of dimensions, but "
            f"got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs\n"
            f"{describe(anchor=anchor, positive=positive, negative=negative)}"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced(_positive(near - far + margin), reduction)
