"""Convolution layers, transposed ones, and those that learn their input channels from the first input."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb

from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module
from .utils import _NamesItsConstructor, _ntuple, _reverse_repeat_tuple

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(_NamesItsConstructor, Module):
    """What all convolutions have: the checked arguments, `weight` and `bias`.

    Attributes hold one number per spatial dimension: `kernel_size`, `stride`, `padding` (or ``'same'``, ``'valid'``),
    `dilation`, `output_padding`.
    Raises: ValueError if `groups` is not positive or divides neither channel count, or for an unknown padding.
    """

    __constants__ = [
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
        "output_padding",
        "in_channels",
        "out_channels",
        "kernel_size",
    ]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: Any,
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._check(in_channels, out_channels, groups, padding, stride, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._explicit_padding()
        ends = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(fb.empty((*ends, *kernel_size), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(fb.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _check(
        self,
        in_channels: int,
        out_channels: int,
        groups: int,
        padding: Any,
        stride: tuple[int, ...],
        padding_mode: str,
    ) -> None:
        name = type(self).__name__
        if groups <= 0:
            raise ValueError(f"{name}: groups must be positive, got {groups}")
        if in_channels % groups != 0:
            raise ValueError(f"{name}: in_channels={in_channels} must be divisible by groups={groups}")
        if out_channels % groups != 0:
            raise ValueError(f"{name}: out_channels={out_channels} must be divisible by groups={groups}")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"{name}: padding must be numbers, 'same' or 'valid', got {padding!r}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError(f"{name}: padding='same' needs stride 1, got {stride}")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(f"{name}: padding_mode must be one of {_PADDING_MODES}, got {padding_mode!r}")

    def _explicit_padding(self) -> list[int] | tuple[int, ...]:
        """The padding as `F.pad` takes it, last dimension first, for padding modes other than zeros."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        padding = [0, 0] * len(self.kernel_size)
        if self.padding == "same":
            for i, (kernel, dilation) in enumerate(zip(self.kernel_size, self.dilation, strict=True)):
                total = dilation * (kernel - 1)
                place = 2 * (len(self.kernel_size) - 1 - i)
                # An odd total puts the extra element at the end.
                padding[place : place + 2] = [total // 2, total - total // 2]
        return padding

    def reset_parameters(self) -> None:
        """Draw new weights, uniformly from ``±1/sqrt(fan_in)``."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        count = len(self.kernel_size)
        if self.padding != (0,) * count:
            # A string is shown bare, as PyTorch does.
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * count:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * count:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class _Conv(_ConvNd):
    """The forward of `Conv1d` to `Conv3d`; a subclass names its function and its number of dimensions."""

    _dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        n = _ntuple(self._dims)
        super().__init__(
            in_channels,
            out_channels,
            n(kernel_size),
            n(stride),
            padding if isinstance(padding, str) else n(padding),
            n(dilation),
            False,
            n(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _convolve(self, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> fb.Tensor:
        raise NotImplementedError

    def _conv_forward(self, input: fb.Tensor, weight: fb.Tensor, bias: fb.Tensor | None) -> fb.Tensor:
        if self.padding_mode == "zeros":
            return self._convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return self._convolve(padded, weight, bias, self.stride, 0, self.dilation, self.groups)

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        weight, bias = self._weight_and_bias()
        return self._conv_forward(input, weight, bias)


class Conv1d(_Conv):
    """Cross-correlation of sequences of channels with a learned kernel.

    Args:
        in_channels, out_channels: channel counts; both divisible by `groups`.
        kernel_size, stride, dilation: an int or a 1-tuple.
        padding: elements added at both ends, or ``'valid'`` (none) or ``'same'`` (output as long as the input).
        groups: number of groups of channels that do not see each other.
        bias: whether to learn `bias`, (out_channels,).
        padding_mode: what is added: ``'zeros'``, ``'reflect'``, ``'replicate'`` or ``'circular'``.
    Shapes: ``(N, in_channels, L)`` or ``(in_channels, L)`` -> ``(N, out_channels, L')`` with
        ``L' = (L + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1``; `weight`
        ``(out_channels, in_channels / groups, kernel_size)``.
    """

    _dims = 1

    def _convolve(self, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> fb.Tensor:
        return F.conv1d(input, weight, bias, stride, padding, dilation, groups)


class Conv2d(_Conv):
    """Cross-correlation of images of channels with a learned kernel. Arguments as `Conv1d`, ints or pairs.

    Shapes: ``(N, in_channels, H, W)`` or without N -> ``(N, out_channels, H', W')``, each as in `Conv1d`.

    >>> nn.Conv2d(3, 16, 3, stride=2, padding=1)(fb.ones(8, 3, 32, 32)).shape
    torch.Size([8, 16, 16, 16])
    """

    _dims = 2

    def _convolve(self, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> fb.Tensor:
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)


class Conv3d(_Conv):
    """Cross-correlation of volumes of channels with a learned kernel. Arguments as `Conv1d`, ints or triples.

    Shapes: ``(N, in_channels, D, H, W)`` or without N -> ``(N, out_channels, D', H', W')``, each as in `Conv1d`.
    """

    _dims = 3

    def _convolve(self, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> fb.Tensor:
        return F.conv3d(input, weight, bias, stride, padding, dilation, groups)


class _ConvTransposeNd(_ConvNd):
    """The transposed convolutions; a subclass names its function and its number of dimensions."""

    _dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f"{type(self).__name__}: only padding_mode='zeros' is defined, got {padding_mode!r}")
        n = _ntuple(self._dims)
        super().__init__(
            in_channels,
            out_channels,
            n(kernel_size),
            n(stride),
            n(padding),
            n(dilation),
            True,
            n(output_padding),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _convolve(self, *args: Any) -> fb.Tensor:
        raise NotImplementedError

    def _output_padding(
        self,
        input: fb.Tensor,
        output_size: list[int] | None,
        stride: Any,
        padding: Any,
        kernel_size: Any,
        num_spatial_dims: int,
        dilation: Any = None,
    ) -> tuple[int, ...] | list[int]:
        """The output padding that makes the output as large as `output_size`.

        Raises: ValueError if `output_size` has the wrong length or is out of reach.
        """
        if output_size is None:
            return _ntuple(num_spatial_dims)(self.output_padding)
        sizes = list(output_size)
        if len(sizes) == num_spatial_dims + (2 if input.dim() == num_spatial_dims + 2 else 1):
            sizes = sizes[-num_spatial_dims:]
        if len(sizes) != num_spatial_dims:
            raise ValueError(
                f"{type(self).__name__}: output_size must have {num_spatial_dims} or {input.dim()} elements, "
                f"got {len(output_size)}"
            )
        dilation = (1,) * num_spatial_dims if dilation is None else dilation
        extra = []
        for d, size in enumerate(sizes):
            length = input.size(d + input.dim() - num_spatial_dims)
            least = (length - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel_size[d] - 1) + 1
            if not least <= size < least + stride[d]:
                raise ValueError(
                    f"{type(self).__name__}: output_size {tuple(sizes)} is out of reach from input "
                    f"{tuple(input.shape)}: dimension {d} can be {least} to {least + stride[d] - 1}"
                )
            extra.append(size - least)
        return extra

    def forward(self, input: fb.Tensor, output_size: list[int] | None = None) -> fb.Tensor:
        output_padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, self._dims, self.dilation)
        return self._convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of `Conv1d` as a linear map: each input element spreads a copy of the kernel.

    Args:
        padding: elements cut off at both ends of the output.
        output_padding: elements added at one end of the output, fewer than `stride` or `dilation`.
        in_channels, out_channels, kernel_size, stride, groups, bias, dilation: as for `Conv1d`.
        padding_mode: ``'zeros'`` only.
    A call may name the `output_size` instead of `output_padding`.
    Shapes: ``(N, in_channels, L)`` or ``(in_channels, L)`` -> ``(N, out_channels, L')`` with
        ``L' = (L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1``.
    """

    _dims = 1

    def _convolve(self, *args: Any) -> fb.Tensor:
        return F.conv_transpose1d(*args)


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of `Conv2d` as a linear map. Arguments as `ConvTranspose1d`, ints or pairs.

    Shapes: ``(N, in_channels, H, W)`` or without N -> ``(N, out_channels, H', W')``, each as in `ConvTranspose1d`.
    """

    _dims = 2

    def _convolve(self, *args: Any) -> fb.Tensor:
        return F.conv_transpose2d(*args)


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of `Conv3d` as a linear map. Arguments as `ConvTranspose1d`, ints or triples.

    Shapes: ``(N, in_channels, D, H, W)`` or without N -> the same with each as in `ConvTranspose1d`.
    """

    _dims = 3

    def _convolve(self, *args: Any) -> fb.Tensor:
        return F.conv_transpose3d(*args)


class _LazyConvXdMixin(LazyModuleMixin):
    """Learns `in_channels` from the channel dimension of the first input."""

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # pyright: ignore[reportAttributeAccessIssue]  # the layer's own

    def initialize_parameters(self, input: fb.Tensor, *args: Any, **kwargs: Any) -> None:
        """Take `in_channels` from `input`.

        Raises: RuntimeError for a wrong number of dimensions; ValueError if the channels do not divide by `groups`.
        """
        if not self.has_uninitialized_params():
            return
        self._need_tensor(input)
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError(
                f"{type(self).__name__}: the input's {self.in_channels} channels must be divisible by "
                f"groups={self.groups}"
            )
        ends = (
            (self.in_channels, self.out_channels // self.groups)
            if self.transposed
            else (self.out_channels, self.in_channels // self.groups)
        )
        self.weight.materialize((*ends, *_ntuple(self._dims)(self.kernel_size)))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input: fb.Tensor) -> int:
        if input.dim() not in (self._dims + 1, self._dims + 2):
            raise RuntimeError(
                f"Expected {self._dims + 1}D (unbatched) or {self._dims + 2}D (batched) input to {type(self).__name__}, but got input "
                f"of size: {input.shape}"
            )
        return input.shape[-self._dims - 1]

    def _make_lazy(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)


class _LazyConv(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        # No channels and no bias, so that nothing is drawn yet.
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._make_lazy(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self._make_lazy(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` whose `in_channels` comes from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` whose `in_channels` comes from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` whose `in_channels` comes from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A `ConvTranspose1d` whose `in_channels` comes from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A `ConvTranspose2d` whose `in_channels` comes from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A `ConvTranspose3d` whose `in_channels` comes from its first input."""

    cls_to_become = ConvTranspose3d
