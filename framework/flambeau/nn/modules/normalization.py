"""Normalization that keeps no statistics: over features, over groups of channels, over neighbouring channels."""

from __future__ import annotations

import numbers
from typing import Any

import flambeau as fb

from ...ops._spec.writing import cannot_be_cast
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module

__all__ = ["LocalResponseNorm", "CrossMapLRN2d", "LayerNorm", "GroupNorm", "RMSNorm"]


class LocalResponseNorm(Module):
    """Divide each channel by ``(k + alpha * mean of squares over size neighbouring channels) ** beta``.

    Args:
        size: how many channels; those beyond the ends count as 0.
        alpha, beta, k: as in the formula.
    Shapes: ``(N, C, *)``, unchanged.
    Source: Krizhevsky et al. 2012, "ImageNet classification with deep convolutional neural networks".
    """

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _window_sums(x: fb.Tensor, before: int, after: int) -> fb.Tensor:
    """Sums over the channels from `before` below to `after` above each; (N, C, H, W)."""
    padded = F.pad(x, (0, 0, 0, 0, before, after))  # (N, before + C + after, H, W)
    return padded.unfold(1, before + 1 + after, 1).sum(-1)


class _CrossMapLRN(fb.autograd.Function):
    """`CrossMapLRN2d`, with PyTorch's derivative: its windows are not those of the forward turned round."""

    @staticmethod
    def forward(ctx: Any, input: fb.Tensor, size: int, alpha: float, beta: float, k: float) -> fb.Tensor:
        if not (input.is_floating_point() or input.is_complex()):
            raise RuntimeError(
                f"{cannot_be_cast(fb.float32, input.dtype)}: CrossMapLRN2d takes floating input, convert it with .float() first"
            )
        reach = (size - 1) // 2
        square = input * input
        total = _window_sums(square, reach, reach)
        # The first channel stays in all windows that it was left behind by, as in PyTorch.
        total = fb.cat([total[:, : reach + 1], total[:, reach + 1 :] + square[:, :1]], dim=1)
        scale = total * (alpha / size) + k
        output = input * scale**-beta
        ctx.save_for_backward(input, scale, output)
        ctx.size, ctx.alpha, ctx.beta = size, alpha, beta
        return output

    @staticmethod
    def backward(ctx: Any, grad: fb.Tensor) -> Any:
        input, scale, output = ctx.saved_tensors
        # As many channels as the forward has, or one more, and one lower than they should be; PyTorch has no gradient for size 1.
        before = (ctx.size + 1) // 2 if ctx.size > 1 else 0
        spread = _window_sums(grad * output / scale, before, max(ctx.size - 1 - before, 0))
        return grad * scale**-ctx.beta - 2 * ctx.alpha * ctx.beta / ctx.size * input * spread, None, None, None, None


class CrossMapLRN2d(Module):
    """`LocalResponseNorm` for images under its older name; a window of even `size` is one channel narrower.

    Args:
        alpha, beta, k: as in the formula of `LocalResponseNorm`.
    Shapes: ``(N, C, H, W)``, unchanged.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: expected 4 dimensions, got {tuple(input.shape)}")
        return _CrossMapLRN.apply(input, self.size, self.alpha, self.beta, self.k)  # pyright: ignore[reportReturnType]  # a Tensor

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _shape_tuple(normalized_shape: Any) -> tuple[int, ...]:
    if isinstance(normalized_shape, numbers.Integral):
        return (normalized_shape,)  # pyright: ignore[reportReturnType]  # ints of any library
    return tuple(normalized_shape)


class LayerNorm(Module):
    """Normalize over the last dimensions, then scale and shift each element by learned amounts.

    Args:
        normalized_shape: the last dimensions, an int or a sequence.
        eps: added to the variance.
        elementwise_affine: whether to learn `weight` and (with `bias`) `bias`, both of `normalized_shape`.
    Shapes: ``(*, *normalized_shape)``, unchanged.
    Source: Ba et al. 2016, "Layer normalization".
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]
    normalized_shape: tuple[int, ...]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.normalized_shape = _shape_tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shape = self.normalized_shape
        self.register_parameter("weight", Parameter(fb.empty(shape, **options)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(fb.empty(shape, **options)) if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        weight, bias = self._weight_and_bias()
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Normalize over groups of channels of each sample, then scale and shift each channel by learned amounts.

    Args:
        num_groups: number of groups; divides `num_channels`.
        num_channels: number of channels C.
        eps: added to the variance.
        affine: whether to learn `weight` and (unless ``bias=False``) `bias`, both (C,).
    Shapes: ``(N, C, *)``, unchanged.
    Raises: ValueError if `num_groups` does not divide `num_channels`.
    Source: Wu & He 2018, "Group normalization".
    """

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(f"GroupNorm: num_channels={num_channels} must be divisible by num_groups={num_groups}")
        options = {"device": device, "dtype": dtype}
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", Parameter(fb.empty(num_channels, **options)) if affine else None)
        self.register_parameter("bias", Parameter(fb.empty(num_channels, **options)) if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        weight, bias = self._weight_and_bias()
        return F.group_norm(input, self.num_groups, weight, bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root mean square over the last dimensions, then scale each element by a learned amount.

    Args:
        normalized_shape: the last dimensions, an int or a sequence.
        eps: added to the mean square; by default the machine epsilon of the computation's dtype.
        elementwise_affine: whether to learn `weight`.
    Shapes: ``(*, *normalized_shape)``, unchanged.
    Source: Zhang & Sennrich 2019, "Root mean square layer normalization".
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]
    normalized_shape: tuple[int, ...]
    eps: float | None
    elementwise_affine: bool

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape_tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            self.weight = Parameter(fb.empty(self.normalized_shape, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1."""
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
