"""Losses as modules: each calls the function of `nn.functional` whose docstring has the formula.

`reduction` is ``'mean'``, ``'sum'`` or ``'none'``. `size_average` and `reduce` are its deprecated forerunners.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fb

from .. import functional as F
from .distance import PairwiseDistance
from .module import Module
from .utils import _NamesItsConstructor

__all__ = [
    "L1Loss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "GaussianNLLLoss",
    "KLDivLoss",
    "MSELoss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "HingeEmbeddingLoss",
    "MultiLabelMarginLoss",
    "SmoothL1Loss",
    "HuberLoss",
    "SoftMarginLoss",
    "CrossEntropyLoss",
    "MultiLabelSoftMarginLoss",
    "CosineEmbeddingLoss",
    "MarginRankingLoss",
    "MultiMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "CTCLoss",
]

Tensor = fb.Tensor


def _reduction_of(size_average: bool | None, reduce: bool | None) -> str:
    """What the two deprecated flags mean, each True by default."""
    if reduce is not None and not reduce:
        chosen = "none"
    else:
        chosen = "mean" if size_average is None or size_average else "sum"
    warnings.warn(f"size_average and reduce are deprecated; use reduction={chosen!r}", UserWarning, stacklevel=4)
    return chosen


class _Loss(_NamesItsConstructor, Module):
    reduction: str

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        super().__init__()
        deprecated = size_average is not None or reduce is not None
        self.reduction = _reduction_of(size_average, reduce) if deprecated else reduction


class _WeightedLoss(_Loss):
    """A loss with a weight per class, kept as a buffer."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """``|input - target|``: in the unit of the target. Shapes: any, the same for both."""

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """``(input - target) ** 2``: the unit of the target, squared. Shapes: any, the same for both."""

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class NLLLoss(_WeightedLoss):
    """Minus the log-probability of the target class.

    Args:
        weight: (C,), a factor per class; the mean is weighted by it.
        ignore_index: targets of this value do not count.
    Shapes: log-probabilities ``(N, C, *)`` and classes ``(N, *)``, or ``(C,)`` and ``()``.
    """

    __constants__ = ["ignore_index", "reduction"]

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """Deprecated name of `NLLLoss`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn("NLLLoss2d is deprecated; use NLLLoss", FutureWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class PoissonNLLLoss(_Loss):
    """Minus the log-likelihood of counts under a Poisson distribution.

    Args:
        log_input: whether the input is the logarithm of the rate.
        full: whether to add Stirling's approximation of the constant term.
        eps: added to the rate inside its logarithm, without `log_input`.
    """

    __constants__ = ["log_input", "full", "eps", "reduction"]

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: Any = None,
        eps: float = 1e-8,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """Minus the log-likelihood of `target` under a normal distribution of mean `input` and variance `var`.

    Args:
        full: whether to add the constant term.
        eps: least variance.
    """

    __constants__ = ["full", "eps", "reduction"]

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class KLDivLoss(_Loss):
    """``target * (log(target) - input)``, the input being log-probabilities.

    Args:
        reduction: 'batchmean' divides the sum by the batch size, which is the divergence itself; 'mean' by
            all elements.
        log_target: whether the target is log-probabilities too.
    """

    __constants__ = ["reduction"]

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class BCELoss(_WeightedLoss):
    """Cross entropy of probabilities for targets between 0 and 1; for logits see `BCEWithLogitsLoss`.

    Args:
        weight: broadcasts to the batch.
    Shapes: any, the same for both; a scalar, or with ``reduction='none'`` that shape.
    """

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """`BCELoss` of ``sigmoid(input)``, without its rounding.

    Args:
        weight: broadcasts to the batch.
        pos_weight: factor of the positive part, broadcasts to the target.
    Shapes: any, the same for both.

    >>> nn.BCEWithLogitsLoss()(fb.tensor([0.0]), fb.tensor([1.0]))
    tensor(0.6931)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """The input, a distance, where the target is 1, ``max(0, margin - input)`` where it is -1.

    Args:
        margin: the distance beyond which pairs that differ cost nothing.
    Shapes: any, the same for both.
    """

    __constants__ = ["margin", "reduction"]

    def __init__(self, margin: float = 1.0, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Hinge loss between each target class and each other. Targets are class indices, ended by -1.

    Shapes: scores ``(N, C)`` and int64 targets ``(N, C)``, or ``(C,)`` for both.
    """

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Quadratic within `beta` of the target, linear beyond, with slope 1 there.

    ``0.5 * e ** 2 / beta`` where ``e = |input - target| < beta``, ``e - 0.5 * beta`` beyond.

    Args:
        beta: in the unit of the target, >= 0; 0 gives `L1Loss`.
    Shapes: any, the same for both.
    """

    __constants__ = ["reduction"]

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Quadratic within `delta` of the target, linear beyond, with slope `delta` there.

    ``0.5 * e ** 2`` where ``e = |input - target| < delta``, ``delta * (e - 0.5 * delta)`` beyond.

    Args:
        delta: in the unit of the target, > 0.
    Shapes: any, the same for both.
    Source: Huber 1964, "Robust Estimation of a Location Parameter", Ann. Math. Stat. 35(1).
    """

    __constants__ = ["reduction", "delta"]

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        if not isinstance(delta, (float, int)):
            raise TypeError(f"HuberLoss: delta must be a float or int, got {delta!r}")
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class SoftMarginLoss(_Loss):
    """``log(1 + exp(-target * input))`` for targets 1 and -1. Shapes: any, the same for both."""

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy of the softmax of logits, in nats.

    Args:
        weight: (C,), a factor per class; the mean is weighted by it.
        ignore_index: class targets of this value do not count.
        label_smoothing: share of each target spread over all classes, 0 to 1.
    Shapes: logits ``(N, C, *)`` and classes ``(N, *)`` or probabilities ``(N, C, *)``; or ``(C,)`` and ``()``.

    >>> nn.CrossEntropyLoss()(fb.zeros(1, 4), fb.tensor([2]))
    tensor(1.3863)
    """

    __constants__ = ["ignore_index", "reduction", "label_smoothing"]

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Mean over the classes of the cross entropy of each class for itself, from logits and targets 0 or 1.

    Args:
        weight: (C,), a factor per class.
    Shapes: ``(N, C)`` or ``(C,)`` for both.
    """

    __constants__ = ["reduction"]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """``1 - cos(input1, input2)`` where the target is 1, ``max(0, cos - margin)`` where it is -1.

    Args:
        margin: cosine below which pairs that differ cost nothing, in [-1, 1].
    Shapes: ``(N, D)`` twice and targets ``(N,)``, or ``(D,)`` and ``()``.
    """

    __constants__ = ["margin", "reduction"]

    def __init__(self, margin: float = 0.0, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_Loss):
    """``max(0, -target * (input1 - input2) + margin)``: target 1 says that input1 should rank higher, -1 lower."""

    __constants__ = ["margin", "reduction"]

    def __init__(self, margin: float = 0.0, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """Hinge loss, to the power `p` (1 or 2), between the target class and every other.

    Args:
        margin: by how much the target's score should be the largest.
        weight: (C,), a factor per class.
    Shapes: scores ``(N, C)`` and classes ``(N,)``, or ``(C,)`` and ``()``.
    Raises: ValueError for another `p` or a `weight` of more than one dimension.
    """

    __constants__ = ["p", "margin", "reduction"]

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError(f"MultiMarginLoss: p must be 1 or 2, got {p}")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"MultiMarginLoss: weight must have 1 dimension, got {tuple(weight.shape)}")
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` with the p-norm distance d.

    Args:
        eps: added to differences before their norm is taken.
        swap: whether the positive may stand in for the anchor where it is nearer to the negative.
    Shapes: ``(N, D)`` or ``(D,)``, three times.
    Raises: ValueError unless ``margin > 0``.
    """

    __constants__ = ["margin", "p", "eps", "swap", "reduction"]

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: margin must be > 0, got {margin}")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """`TripletMarginLoss` with any distance.

    Args:
        distance_function: of two tensors, `PairwiseDistance` by default.
        margin, swap: as for `TripletMarginLoss`.
    """

    __constants__ = ["margin", "swap", "reduction"]

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, None, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginWithDistanceLoss: margin must be > 0, got {margin}")
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class CTCLoss(_Loss):
    """Minus the log-probability of a target sequence, summed over all its alignments to a longer input.

    Args:
        blank: class that stands for no output.
        zero_infinity: whether infinite losses, of targets that do not fit, become zero.
    Shapes: log-probabilities ``(T, N, C)``, targets ``(N, S)`` or all in one, lengths ``(N,)``; or without N.
    Source: Graves et al. 2006, "Connectionist temporal classification".
    """

    __constants__ = ["blank", "reduction"]

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)
