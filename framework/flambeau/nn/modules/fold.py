"""Sliding blocks: taking them out of an image, and adding them up again."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .. import functional as F
from .module import Module

__all__ = ["Fold", "Unfold"]


class Fold(Module):
    """Add columns up into an image, overlaps summed: the transpose of `Unfold`.

    Args:
        output_size: (H, W) of the image.
        kernel_size, dilation, padding, stride: of the blocks; ints or pairs.
    Shapes: ``(N, C * kernel elements, blocks) -> (N, C, H, W)``, or without N.
    """

    __constants__ = ["output_size", "kernel_size", "dilation", "padding", "stride"]

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """Every block a sliding window sees, as a column.

    Args:
        kernel_size, dilation, padding, stride: of the window; ints or pairs.
    Shapes: ``(N, C, H, W) -> (N, C * kernel elements, blocks)``, or without N.
    """

    __constants__ = ["kernel_size", "dilation", "padding", "stride"]

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )
