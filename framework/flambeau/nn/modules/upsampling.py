"""Making images larger (or smaller) by interpolation."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .. import functional as F
from .module import Module

__all__ = ["Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"]


class Upsample(Module):
    """Resize the spatial dimensions to `size`, or by `scale_factor`.

    Args:
        size: output size, an int or one per spatial dimension.
        scale_factor: factor, a number or one per spatial dimension.
        mode: ``'nearest'``, ``'linear'`` (1 spatial dimension), ``'bilinear'`` and ``'bicubic'`` (2),
            ``'trilinear'`` (3).
        align_corners: whether the centres of the corner pixels stay in place, rather than their outer edges.
        recompute_scale_factor: whether the factor used in the interpolation is that of the rounded sizes.
    Shapes: ``(N, C, *spatial) -> (N, C, *size)``, with 1 to 3 spatial dimensions.
    """

    __constants__ = ["size", "scale_factor", "mode", "align_corners", "name", "recompute_scale_factor"]

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.setdefault("recompute_scale_factor", True)
        super().__setstate__(state)

    def extra_repr(self) -> str:
        what = f"scale_factor={self.scale_factor!r}" if self.scale_factor is not None else f"size={self.size!r}"
        return f"{what}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resize images by repeating pixels. Shapes: ``(N, C, H, W) -> (N, C, H', W')``."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resize images linearly, corner pixels staying in place. Shapes: ``(N, C, H, W) -> (N, C, H', W')``."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
