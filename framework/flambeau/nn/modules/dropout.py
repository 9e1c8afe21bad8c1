"""Dropout: in training, zero at random and scale the rest so that the mean stays; in evaluation, nothing."""

from __future__ import annotations

import flambeau as fb

from .. import functional as F
from .module import Module
from .utils import _NamesItsConstructor

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"]


class _DropoutNd(_NamesItsConstructor, Module):
    """What all dropouts take.

    Args:
        p: probability of dropping, 0 to 1.
        inplace: whether to overwrite the input.
    Raises: ValueError for `p` outside of ``[0, 1]``.
    """

    __constants__ = ["p", "inplace"]
    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"{type(self).__name__}: p must be a probability between 0 and 1, got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zero each element with probability `p`; multiply the others by ``1 / (1 - p)``. Shapes: any, unchanged.

    In evaluation mode the input passes as it is.
    Source: Hinton et al. 2012, "Improving neural networks by preventing co-adaptation of feature detectors".

    >>> nn.Dropout(0.5).eval()(fb.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Zero each channel with probability `p`. Shapes: ``(N, C, L)`` or ``(C, L)``, unchanged."""

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Zero each channel with probability `p`. Shapes: ``(N, C, H, W)``, unchanged."""

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Zero each channel with probability `p`. Shapes: ``(N, C, D, H, W)``, unchanged."""

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean 0 and variance 1 behind SELU. Shapes: any, unchanged.

    Args:
        p: probability of dropping an element, which then takes SELU's limit at minus infinity.
    Source: Klambauer et al. 2017, "Self-normalizing neural networks".
    """

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """`AlphaDropout` of whole channels. Shapes: ``(N, C, *)``, unchanged."""

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
