"""Instance normalization: each channel of each sample is scaled to mean 0 and variance 1."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fb

from .. import functional as F
from .batchnorm import _check_dims, _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]


class _InstanceNorm(_NormBase):
    """The forward of all instance normalizations; a subclass says how many dimensions a sample has."""

    _sample_dims: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: fb.Tensor) -> None:
        _check_dims(self, input, (self._sample_dims, self._sample_dims + 1))

    def _get_no_batch_dim(self) -> int:
        return self._sample_dims

    def _apply_instance_norm(self, input: fb.Tensor) -> fb.Tensor:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )

    def _check_channels(self, input: fb.Tensor) -> None:
        channels = input.size(input.dim() - self._sample_dims)
        if channels == self.num_features:
            return
        if self.affine:
            raise ValueError(
                f"{type(self).__name__}: input {tuple(input.shape)} has {channels} channels, "
                f"num_features is {self.num_features}"
            )
        warnings.warn(
            f"{type(self).__name__}: input has {channels} channels, num_features is {self.num_features}; "
            "without affine it is not used, so any number does",
            stacklevel=4,
        )

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        self._check_input_dim(input)
        self._check_channels(input)
        if input.dim() == self._sample_dims:
            return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return self._apply_instance_norm(input)


class InstanceNorm1d(_InstanceNorm):
    """Normalize each channel of each sample over its length.

    Args:
        num_features: number of channels C.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics, if tracked.
        affine: whether to learn a scale and (unless ``bias=False``) a shift for each channel.
        track_running_stats: whether to keep running statistics and use them in evaluation.
    Shapes: ``(N, C, L)`` or ``(C, L)``, unchanged.
    Raises: ValueError for other ranks, or with `affine` for another number of channels.
    Source: Ulyanov et al. 2016, "Instance normalization: the missing ingredient for fast stylization".
    """

    _sample_dims = 2


class InstanceNorm2d(_InstanceNorm):
    """As `InstanceNorm1d`, for images. Shapes: ``(N, C, H, W)`` or ``(C, H, W)``, unchanged."""

    _sample_dims = 3


class InstanceNorm3d(_InstanceNorm):
    """As `InstanceNorm1d`, for volumes. Shapes: ``(N, C, D, H, W)`` or ``(C, D, H, W)``, unchanged."""

    _sample_dims = 4


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm1d` whose `num_features` comes from its first input."""

    cls_to_become = InstanceNorm1d
    _sample_dims = 2


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm2d` whose `num_features` comes from its first input."""

    cls_to_become = InstanceNorm2d
    _sample_dims = 3


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm3d` whose `num_features` comes from its first input."""

    cls_to_become = InstanceNorm3d
    _sample_dims = 4
