"""Distances between vectors."""

from __future__ import annotations

import flambeau as fb

from .. import functional as F
from .module import Module

__all__ = ["PairwiseDistance", "CosineSimilarity"]


class PairwiseDistance(Module):
    """The p-norm of ``x1 - x2 + eps`` over the last dimension.

    Shapes: ``(N, D), (N, D) -> (N,)`` or ``(D,), (D,) -> ()``; with `keepdim` the last dimension stays, of size 1.
    """

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: fb.Tensor, x2: fb.Tensor) -> fb.Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between x1 and x2 along `dim`; norms below `eps` count as `eps`.

    Shapes: ``(*, D, *), (*, D, *) -> (*, *)``, with D at `dim`.
    """

    __constants__ = ["dim", "eps"]

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: fb.Tensor, x2: fb.Tensor) -> fb.Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
