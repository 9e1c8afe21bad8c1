"""Padding: making the spatial dimensions longer.

`padding` is an int for all sides, or two per spatial dimension, the last dimension first: ``(left, right)``,
``(left, right, top, bottom)``, ``(left, right, top, bottom, front, back)``. Negative numbers cut off.
Shapes: ``(N, C, *spatial)`` or ``(C, *spatial)``, each spatial size grown by its two paddings.
"""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .. import functional as F
from .module import Module
from .utils import _NamesItsConstructor, _ntuple

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(_NamesItsConstructor, Module):
    """Pads `_dims` spatial dimensions in the mode `_mode`."""

    __constants__ = ["padding"]
    _dims: int
    _mode: str
    padding: tuple[int, ...]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_Pad):
    _mode = "circular"

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        if input.dim() not in (self._dims + 1, self._dims + 2):
            raise ValueError(
                f"{type(self).__name__}: expected {self._dims + 1} or {self._dims + 2} dimensions, "
                f"got {tuple(input.shape)}"
            )
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Pad a sequence with its own other end. Arguments and shapes as `ConstantPad1d`.

    Paddings are at most the length.

    >>> nn.CircularPad1d(1)(fb.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3., 1., 2., 3., 1.]])
    """

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """Pad an image with its own opposite sides. Arguments and shapes as `ConstantPad2d`.

    Paddings are at most the sizes.
    """

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """Pad a volume with its own opposite sides. Arguments and shapes as `ConstantPad3d`.

    Paddings are at most the sizes.
    """

    _dims = 3


class _ConstantPadNd(_Pad):
    __constants__ = ["padding", "value"]
    _mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Pad a sequence with `value`.

    Args:
        padding: elements at both ends, an int, or a pair ``(left, right)``; negative ones cut.
        value: what is added.
    Shapes: ``(N, C, L)`` or ``(C, L)`` -> ``(N, C, left + L + right)``.

    >>> nn.ConstantPad1d((1, 2), 9.0)(fb.tensor([[1.0, 2.0]]))
    tensor([[9., 1., 2., 9., 9.]])
    """

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Pad an image with `value`.

    Args:
        padding: pixels on every side, an int, or ``(left, right, top, bottom)``; negative ones cut.
        value: what is added.
    Shapes: ``(N, C, H, W)`` or ``(C, H, W)`` -> ``(N, C, top + H + bottom, left + W + right)``.
    """

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Pad a volume with `value`.

    Args:
        padding: voxels on every side, an int, or ``(left, right, top, bottom, front, back)``; negative ones cut.
        value: what is added.
    Shapes: ``(N, C, D, H, W)`` or ``(C, D, H, W)`` -> the same, padded.
    """

    _dims = 3


class _ReflectionPadNd(_Pad):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Pad a sequence with its mirror image; the end itself is not repeated.

    Arguments and shapes as `ConstantPad1d`; paddings are below the length.

    >>> nn.ReflectionPad1d(1)(fb.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 1., 2., 3., 2.]])
    """

    _dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Pad an image with its mirror images; edges are not repeated.

    Arguments and shapes as `ConstantPad2d`; paddings are below the sizes.
    """

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pad a volume with its mirror images; faces are not repeated.

    Arguments and shapes as `ConstantPad3d`; paddings are below the sizes.
    """

    _dims = 3


class _ReplicationPadNd(_Pad):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Pad a sequence by repeating its ends. Arguments and shapes as `ConstantPad1d`."""

    _dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Pad an image by repeating its edges. Arguments and shapes as `ConstantPad2d`."""

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pad a volume by repeating its faces. Arguments and shapes as `ConstantPad3d`."""

    _dims = 3


class _ZeroPadMixin:
    padding: tuple[int, ...]

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)  # pyright: ignore[reportCallIssue]  # ConstantPadNd's

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPadMixin, ConstantPad1d):
    """Pad a sequence with zeros. Arguments and shapes as `ConstantPad1d`."""


class ZeroPad2d(_ZeroPadMixin, ConstantPad2d):
    """Pad an image with zeros. Arguments and shapes as `ConstantPad2d`."""


class ZeroPad3d(_ZeroPadMixin, ConstantPad3d):
    """Pad a volume with zeros. Arguments and shapes as `ConstantPad3d`."""
