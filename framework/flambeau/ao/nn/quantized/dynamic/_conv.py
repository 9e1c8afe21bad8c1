"""Convolutions whose inputs are quantized when they run; they take and give dense tensors."""

from __future__ import annotations

import warnings
from typing import Any

from .....ops._quantized.layers import contracted
from .....tensor import Tensor
from .. import _conv
from ._linear import quantized_input

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _Dynamic:
    """What turns a convolution of quantized tensors into one of dense tensors; it precedes that in the list of bases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("reduce_range", None)              # which the call has too, and which counts there
        warnings.warn(
            f"The current implementation of the {self._get_name()} module has poor numerical accuracy and its use is not recommended",
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def forward(self: Any, input: Tensor, reduce_range: bool = True) -> Tensor:
        """The dense result.

        Args:
            input: dense, ``(N, C, ...)``.
            reduce_range: use half of the integers for the input.
        Raises: ValueError for an input with another number of dimensions.
        """
        self._check_input(input)
        weight, bias = self._weight_bias()
        quantized = quantized_input(input, reduce_range)
        # The result has the input's scale, and ends where that ends, as in PyTorch: hence the warning.
        scale, zero_point = quantized.q_scale(), quantized.q_zero_point()
        sums, channel = self._sums(), -1 - len(self.kernel_size)
        return contracted(self.operator, quantized, weight, bias, scale, zero_point, sums, self._terms(), channel).dequantize()


class Conv1d(_Dynamic, _conv.Conv1d):
    """`nn.Conv1d` with a quantized weight, of a dense ``(N, C, L)`` that is quantized when the layer runs; the result is dense.

    Warns: UserWarning when it is made, as the results are the less exact.
    """


class Conv2d(_Dynamic, _conv.Conv2d):
    """`nn.Conv2d` of a dense ``(N, C, H, W)``; see `Conv1d`."""


class Conv3d(_Dynamic, _conv.Conv3d):
    """`nn.Conv3d` of a dense ``(N, C, D, H, W)``; see `Conv1d`."""


class ConvTranspose1d(_Dynamic, _conv.ConvTranspose1d):
    """`nn.ConvTranspose1d` of a dense ``(N, C, L)``; see `Conv1d`."""


class ConvTranspose2d(_Dynamic, _conv.ConvTranspose2d):
    """`nn.ConvTranspose2d` of a dense ``(N, C, H, W)``; see `Conv1d`."""


class ConvTranspose3d(_Dynamic, _conv.ConvTranspose3d):
    """`nn.ConvTranspose3d` of a dense ``(N, C, D, H, W)``; see `Conv1d`."""
