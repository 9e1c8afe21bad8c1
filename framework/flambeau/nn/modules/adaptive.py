"""Softmax over very many classes, the rare ones in clusters that are computed only when needed."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import flambeau as fb

from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log-probability of the target class under a softmax in two levels.

    The head decides between the frequent classes and the clusters of the others; each cluster has a smaller
    softmax of its own, behind a projection to ``in_features / div_value ** i`` features for cluster i.

    Args:
        in_features: size F of the input.
        n_classes: number of classes, numbered from the most frequent to the rarest.
        cutoffs: increasing class numbers at which clusters begin, the last below `n_classes`.
        div_value: how much smaller each further cluster's projection is.
        head_bias: whether the head has a bias.
    Shapes: input ``(N, F)``, target ``(N,)`` -> output ``(N,)``, loss ``()``; or without N.
    Raises: ValueError for cutoffs that are not increasing integers from 1 to ``n_classes - 1``.
    Source: Grave et al. 2017, "Efficient softmax approximation for GPUs".
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        self._check_cutoffs(cutoffs, n_classes)
        options = {"device": device, "dtype": dtype}
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **options),
                    Linear(hidden, size, bias=False, **options),
                )
            )

    def _check_cutoffs(self, cutoffs: list[int], n_classes: int) -> None:
        if not cutoffs:
            raise ValueError("AdaptiveLogSoftmaxWithLoss: cutoffs must not be empty")
        increasing = all(a < b for a, b in pairwise(cutoffs))
        if not (
            increasing and cutoffs[0] > 0 and cutoffs[-1] < n_classes and all(int(c) == c for c in cutoffs)
        ):
            raise ValueError(
                "AdaptiveLogSoftmaxWithLoss: cutoffs must be increasing integers between 1 and "
                f"n_classes - 1 = {n_classes - 1}, got {cutoffs}"
            )

    def reset_parameters(self) -> None:
        """Draw new weights for the head and all clusters."""
        self.head.reset_parameters()
        for projection, output in self.tail:
            projection.reset_parameters()
            output.reset_parameters()

    def forward(self, input_: fb.Tensor, target_: fb.Tensor) -> _ASMoutput:
        """The log-probability of each target, and minus their mean.

        Raises: RuntimeError if the shapes do not fit or a target is no class, TypeError for what is no Tensor.
        """
        self._check_shapes(input_, target_)
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        in_head = fb.empty_like(target)
        found = 0
        # Every row gets an entry of the head's log-softmax: its class, or its cluster; clusters add their own part.
        pieces = []
        for i, (low, high) in enumerate(pairwise([0, *self.cutoffs])):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            found += rows.numel()
            if i == 0:
                in_head = in_head.index_copy(0, rows, target[rows])
                continue
            logits = self.tail[i - 1](input.index_select(0, rows))
            in_head = in_head.index_fill(0, rows, self.shortlist_size + i - 1)
            inside = F.log_softmax(logits, dim=1).gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1)
            pieces.append((rows, inside))
        if found != target.shape[0]:
            raise RuntimeError(
                "AdaptiveLogSoftmaxWithLoss: targets must be from 0 to n_classes - 1 = "
                f"{self.n_classes - 1}, "
                f"got {target.min().item()} to {target.max().item()}"
            )
        output = F.log_softmax(self.head(input), dim=1).gather(1, in_head.unsqueeze(1)).squeeze(1)
        for rows, inside in pieces:
            output = output.index_add(0, rows, inside)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _check_shapes(self, input: fb.Tensor, target: fb.Tensor) -> None:
        for name, given in (("input", input), ("target", target)):
            if not isinstance(given, fb.Tensor):
                raise TypeError(f"AdaptiveLogSoftmaxWithLoss: argument '{name}' must be Tensor, not {type(given).__name__}")
        shapes = f"input {tuple(input.shape)} and target {tuple(target.shape)}"
        if target.dim() == 1:
            if input.shape[0] != target.shape[0]:
                raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: batch sizes differ: {shapes}")
            if input.dim() != 2:
                raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: a 1-dimensional target needs (N, F) input: {shapes}")
        elif target.dim() == 0:
            if input.dim() != 1:
                raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: a 0-dimensional target needs (F,) input: {shapes}")
        else:
            raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: the target must have 0 or 1 dimensions: {shapes}")

    def _get_full_log_prob(self, input: fb.Tensor, head_output: fb.Tensor) -> fb.Tensor:
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            parts.append(F.log_softmax(cluster(input), dim=1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return fb.cat(parts, dim=1)

    def log_prob(self, input: fb.Tensor) -> fb.Tensor:
        """The log-probabilities of all classes: ``(N, F) -> (N, n_classes)``."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: fb.Tensor) -> fb.Tensor:
        """The likeliest class: ``(N, F) -> (N,)``. Clusters are computed only for rows whose head chooses one."""
        head_output = self.head(input)
        output = head_output.argmax(dim=1)
        rows = (output >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel():
            full = self._get_full_log_prob(input[rows], head_output[rows])
            output = output.index_copy(0, rows, full.argmax(dim=1))
        return output
