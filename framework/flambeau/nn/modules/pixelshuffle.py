"""Rearranging channels into pixels and back."""

from __future__ import annotations

import flambeau as fb

from .. import functional as F
from .module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Trade channels for resolution: ``(*, C r^2, H, W) -> (*, C, H r, W r)`` with r = `upscale_factor`.

    Source: Shi et al. 2016, "Real-time single image and video super-resolution".
    """

    __constants__ = ["upscale_factor"]

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """The inverse of `PixelShuffle`: ``(*, C, H r, W r) -> (*, C r^2, H, W)`` with r = `downscale_factor`."""

    __constants__ = ["downscale_factor"]

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"
