"""Pooling: maxima, means and p-norms over windows, and maxima put back where they came from.

Shapes: ``(N, C, *spatial)`` or ``(C, *spatial)``. A window of `kernel_size` moves by `stride` (by default its
    own size)
over the input grown by `padding`, giving ``(size + 2 padding - dilation (kernel_size - 1) - 1) // stride +
1`` positions, rounded up instead with `ceil_mode`. Sizes are ints or one int per spatial dimension.
"""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .. import functional as F
from .module import Module
from .utils import _NamesItsConstructor, _ntuple

__all__ = [
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
]


class _MaxPoolNd(_NamesItsConstructor, Module):
    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _MaxPoolNd.__constants__}

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The maximum over windows of a sequence.

    Args:
        kernel_size: elements in a window.
        stride: from one window to the next; `kernel_size` by default.
        padding: minus infinities added at both ends, at most half the kernel.
        dilation: distance between the elements of a window.
        return_indices: return ``(values, indices)``; the indices are for `MaxUnpool1d`.
        ceil_mode: let a last window stick out at the end.
    Shapes: ``(N, C, L)`` or ``(C, L)`` -> ``(N, C, L')`` with
        ``L' = (L + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1``, rounded up with `ceil_mode`.
    """

    def forward(self, input: fb.Tensor) -> Any:
        return F.max_pool1d(input, **self._arguments())


class MaxPool2d(_MaxPoolNd):
    """The maximum over windows of an image. Arguments as `MaxPool1d`, ints or pairs.

    Shapes: ``(N, C, H, W)`` or without N -> ``(N, C, H', W')``, each as in `MaxPool1d`.

    >>> nn.MaxPool2d(2)(fb.arange(16.0).reshape(1, 4, 4))
    tensor([[[ 5.,  7.],
             [13., 15.]]])
    """

    def forward(self, input: fb.Tensor) -> Any:
        return F.max_pool2d(input, **self._arguments())


class MaxPool3d(_MaxPoolNd):
    """The maximum over windows of a volume. Arguments as `MaxPool1d`, ints or triples.

    Shapes: ``(N, C, D, H, W)`` or without N -> ``(N, C, D', H', W')``, each as in `MaxPool1d`.
    """

    def forward(self, input: fb.Tensor) -> Any:
        return F.max_pool3d(input, **self._arguments())


class _MaxUnpoolNd(_NamesItsConstructor, Module):
    _dims: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        n = _ntuple(self._dims)
        self.kernel_size = n(kernel_size)
        self.stride = n(stride if stride is not None else kernel_size)
        self.padding = n(padding)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts the maxima of `MaxPool1d` back at their indices and zeros elsewhere.

    Args:
        kernel_size, stride, padding: those of the pooling.
    A call takes the maxima, their indices, and the `output_size` where pooling could have come from several sizes.
    """

    _dims = 1

    def forward(self, input: fb.Tensor, indices: fb.Tensor, output_size: list[int] | None = None) -> fb.Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts the maxima of `MaxPool2d` back at their indices and zeros elsewhere. Arguments and calls as `MaxUnpool1d`.
    """

    _dims = 2

    def forward(self, input: fb.Tensor, indices: fb.Tensor, output_size: list[int] | None = None) -> fb.Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts the maxima of `MaxPool3d` back at their indices and zeros elsewhere. Arguments and calls as `MaxUnpool1d`.
    """

    _dims = 3

    def forward(self, input: fb.Tensor, indices: fb.Tensor, output_size: list[int] | None = None) -> fb.Tensor:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class _AvgPoolNd(_NamesItsConstructor, Module):
    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean over windows of a sequence.

    Args:
        kernel_size: elements in a window.
        stride: from one window to the next; `kernel_size` by default.
        padding: zeros added at both ends, at most half the kernel.
        ceil_mode: let a last window stick out at the end; what sticks out does not count.
        count_include_pad: whether the padding counts as elements.
    Shapes: ``(N, C, L)`` or ``(C, L)`` -> ``(N, C, L')`` with ``L' = (L + 2 padding - kernel_size) // stride
        + 1``,
        rounded up with `ceil_mode`.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        n = _ntuple(1)
        self.kernel_size = n(kernel_size)
        self.stride = n(stride if stride is not None else kernel_size)
        self.padding = n(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolWithDivisor(_AvgPoolNd):
    __constants__ = [*_AvgPoolNd.__constants__, "divisor_override"]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override


class AvgPool2d(_AvgPoolWithDivisor):
    """The mean over windows of an image. Arguments as `AvgPool1d`, ints or pairs, and:

    Args:
        divisor_override: divides the sum, in place of the number of elements.
    Shapes: ``(N, C, H, W)`` or without N -> ``(N, C, H', W')``, each as in `AvgPool1d`.
    """

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(_AvgPoolWithDivisor):
    """The mean over windows of a volume. Arguments as `AvgPool1d`, ints or triples, and:

    Args:
        divisor_override: divides the sum, in place of the number of elements.
    Shapes: ``(N, C, D, H, W)`` or without N -> ``(N, C, D', H', W')``, each as in `AvgPool1d`.
    """

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.avg_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class _FractionalMaxPool(_NamesItsConstructor, Module):
    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]
    _dims: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: fb.Tensor | None = None,
    ) -> None:
        super().__init__()
        n = _ntuple(self._dims)
        name = type(self).__name__
        self.kernel_size = n(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = n(output_size) if output_size is not None else None
        self.output_ratio = n(output_ratio) if output_ratio is not None else None
        if (output_size is None) == (output_ratio is None):
            given = "neither" if output_size is None else "both"
            raise ValueError(f"{name}: give either output_size or output_ratio, got {given}")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"{name}: output_ratio must be between 0 and 1, got {output_ratio}")


class FractionalMaxPool2d(_FractionalMaxPool):
    """The maximum over windows of an image at random positions, so that any output size can be had.

    Args:
        kernel_size: size of the windows.
        output_size: output sizes; or
        output_ratio: output sizes as fractions of the input's, between 0 and 1.
        return_indices: return ``(values, indices)``; the indices are for `MaxUnpool2d`.
    Shapes: ``(N, C, H, W)`` or without N -> ``(N, C, *output_size)``.
    Source: Graham 2014, "Fractional max-pooling".
    """

    _dims = 2

    def forward(self, input: fb.Tensor) -> Any:
        return F.fractional_max_pool2d(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool3d(_FractionalMaxPool):
    """The maximum over windows of a volume at random positions. Arguments as `FractionalMaxPool2d`."""

    _dims = 3

    def forward(self, input: fb.Tensor) -> Any:
        return F.fractional_max_pool3d(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class _LPPoolNd(_NamesItsConstructor, Module):
    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """``sum(x ** norm_type) ** (1 / norm_type)`` over windows of a sequence; no absolute values are taken.

    Args:
        kernel_size, stride, ceil_mode: as for `AvgPool1d`, and shapes too.
    """

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """``sum(x ** norm_type) ** (1 / norm_type)`` over windows of an image. Arguments as `LPPool1d`, ints or pairs."""

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """``sum(x ** norm_type) ** (1 / norm_type)`` over windows of a volume. Arguments as `LPPool1d`, ints or triples."""

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _AdaptiveMaxPoolNd(_NamesItsConstructor, Module):
    __constants__ = ["output_size", "return_indices"]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The maximum over `output_size` windows that divide the sequence: ``(N, C, L) -> (N, C, output_size)``.

    With `return_indices` also where it was, for `MaxUnpool1d`. N may be left out.
    """

    def forward(self, input: fb.Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The maximum over windows that divide the image: ``(N, C, H, W) -> (N, C, *output_size)``.

    Args:
        output_size: an int or a pair; None keeps a dimension's size.
        return_indices: return ``(values, indices)``; the indices are for `MaxUnpool2d`.
    """

    def forward(self, input: fb.Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The maximum over windows that divide the volume: ``(N, C, D, H, W) -> (N, C, *output_size)``.

    Args:
        output_size: an int or a triple; None keeps a dimension's size.
        return_indices: return ``(values, indices)``; the indices are for `MaxUnpool3d`.
    """

    def forward(self, input: fb.Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _AdaptiveAvgPoolNd(_NamesItsConstructor, Module):
    __constants__ = ["output_size"]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The mean over `output_size` windows that divide the sequence: ``(N, C, L) -> (N, C, output_size)``."""

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The mean over windows that divide the image: ``(N, C, H, W) -> (N, C, *output_size)``.

    Args:
        output_size: an int or a pair; None keeps a dimension's size.

    >>> nn.AdaptiveAvgPool2d(1)(fb.ones(8, 3, 5, 7)).shape
    torch.Size([8, 3, 1, 1])
    """

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The mean over windows that divide the volume: ``(N, C, D, H, W) -> (N, C, *output_size)``.

    Args:
        output_size: an int or a triple; None keeps a dimension's size.
    """

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)
