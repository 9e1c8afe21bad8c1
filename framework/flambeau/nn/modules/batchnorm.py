"""Batch normalization: each channel is scaled to mean 0 and variance 1 over the batch."""

from __future__ import annotations

import sys
from typing import Any

import flambeau as fb

from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedBuffer, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module
from .utils import _NamesItsConstructor

__all__ = [
    "BatchNorm1d",
    "LazyBatchNorm1d",
    "BatchNorm2d",
    "LazyBatchNorm2d",
    "BatchNorm3d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
]


class _NormBase(_NamesItsConstructor, Module):
    """Per-channel scale and shift, and running statistics: what batch and instance normalization share.

    Attributes:
        weight, bias: (num_features,), or None without `affine`.
        running_mean, running_var: (num_features,), or None without `track_running_stats`.
        num_batches_tracked: how many batches they have seen.
    """

    # Version 2 added num_batches_tracked.
    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]
    num_features: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.register_parameter("weight", Parameter(fb.empty(num_features, **options)) if affine else None)
        self.register_parameter("bias", Parameter(fb.empty(num_features, **options)) if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", fb.zeros(num_features, **options) if tracked else None)
        self.register_buffer("running_var", fb.ones(num_features, **options) if tracked else None)
        self.register_buffer("num_batches_tracked", fb.tensor(0, dtype=fb.long, device=device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the batches seen: mean 0, variance 1."""
        if self.track_running_stats:
            for name, value in (("running_mean", 0), ("running_var", 1), ("num_batches_tracked", 0)):
                statistic = getattr(self, name)
                if statistic is None:
                    raise RuntimeError(f"{type(self).__name__}: track_running_stats is set, but {name} is None; set it to a buffer")
                statistic.fill_(value)

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, and no batches seen."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: fb.Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        version = local_metadata.get("version")
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            kept = count is not None and not count._lacks_values
            state_dict[key] = count if kept else fb.tensor(0, dtype=fb.long)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)


def _check_dims(module: Module, input: fb.Tensor, allowed: tuple[int, ...]) -> None:
    if input.dim() not in allowed:
        raise ValueError(
            f"{type(module).__name__}: expected {' or '.join(map(str, allowed))} dimensions, "
            f"got {input.dim()}: {tuple(input.shape)}"
        )


class _BatchNorm(_NormBase):
    """The forward of all batch normalizations."""

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        training, tracks = self.training, self.track_running_stats
        if training and tracks:
            tracked = self.num_batches_tracked
            if tracked is not None:
                tracked.add_(1)
                if self.momentum is None:  # the plain average over all batches
                    momentum = 1.0 / float(tracked)
        buffers = self._buffers
        try:  # see `_weight_and_bias`
            mean, var = buffers["running_mean"], buffers["running_var"]
        except KeyError:
            mean, var = self.running_mean, self.running_var
        # Without running statistics, evaluation normalizes by the batch's own too.
        by_batch = training or (mean is None and var is None)
        keep = not training or tracks
        weight, bias = self._weight_and_bias()
        return F.batch_norm(input, mean if keep else None, var if keep else None, weight, bias, by_batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalize each channel over batch and length, then scale and shift it by learned amounts.

    Args:
        num_features: number of channels C.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None for their plain average.
        affine: whether to learn `weight` and (unless ``bias=False``) `bias`.
        track_running_stats: whether to keep running statistics and use them in evaluation.
    Shapes: ``(N, C)`` or ``(N, C, L)``, unchanged.
    Raises: ValueError for other ranks, or, in training, for a single value per channel.
    Source: Ioffe & Szegedy 2015, "Batch normalization".
    """

    def _check_input_dim(self, input: fb.Tensor) -> None:
        _check_dims(self, input, (2, 3))


class BatchNorm2d(_BatchNorm):
    """As `BatchNorm1d`, for images. Shapes: ``(N, C, H, W)``, unchanged."""

    def _check_input_dim(self, input: fb.Tensor) -> None:
        _check_dims(self, input, (4,))


class BatchNorm3d(_BatchNorm):
    """As `BatchNorm1d`, for volumes. Shapes: ``(N, C, D, H, W)``, unchanged."""

    def _check_input_dim(self, input: fb.Tensor) -> None:
        _check_dims(self, input, (5,))


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Learns `num_features` from dimension 1 of the first input."""

    weight: UninitializedParameter
    bias: UninitializedParameter

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        options = {"device": device, "dtype": dtype}
        super().__init__(0, eps, momentum, False, False, **options)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(**options)
            if bias:
                self.bias = UninitializedParameter(**options)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**options)
            self.running_var = UninitializedBuffer(**options)
            self.num_batches_tracked = fb.tensor(0, dtype=fb.long, device=device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: fb.Tensor) -> None:
        """Take `num_features` from dimension 1 of `input`."""
        if not self.has_uninitialized_params():
            return
        self._need_tensor(input)
        self.num_features = input.shape[1]
        for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
            if tensor is not None:
                tensor.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm1d` whose `num_features` comes from its first input."""

    cls_to_become = BatchNorm1d
    _check_input_dim = BatchNorm1d._check_input_dim


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm2d` whose `num_features` comes from its first input."""

    cls_to_become = BatchNorm2d
    _check_input_dim = BatchNorm2d._check_input_dim


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm3d` whose `num_features` comes from its first input."""

    cls_to_become = BatchNorm3d
    _check_input_dim = BatchNorm3d._check_input_dim


class SyncBatchNorm(_BatchNorm):
    """Batch normalization with statistics over all processes of a group: in a single process, over the batch.

    Arguments as `BatchNorm1d`, and `process_group`, None for all processes. Batches may differ in size. In training all
    processes of the group run forward and backward together.

    Shapes: ``(N, C, ...)``, unchanged.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: fb.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm: expected at least 2 dimensions, got {tuple(input.shape)}")

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        group = self._group()
        if group is None or not (self.training or self.running_mean is None):
            return super().forward(input)
        self._check_input_dim(input)
        return self._over_processes(input, group)

    def _group(self) -> Any:
        """The processes to take statistics over; None if this is the only one."""
        if self.process_group is not None:
            return self.process_group if self.process_group.size() > 1 else None
        # A program that has not imported it is no part of a job.
        c10d = sys.modules.get("flambeau.distributed.distributed_c10d")
        if c10d is None or not c10d.is_initialized() or c10d.get_world_size() == 1:
            return None
        return c10d.group.WORLD

    def _over_processes(self, input: fb.Tensor, group: Any) -> fb.Tensor:
        from ...distributed.nn.functional import all_reduce

        dims = [dim for dim in range(input.dim()) if dim != 1]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        x = input.to(fb.float32) if input.dtype in (fb.float16, fb.bfloat16) else input
        rows = fb.full((1,), float(x.numel() // x.shape[1]), dtype=x.dtype)
        sums = all_reduce(fb.cat([x.sum(dims), rows]), group=group)
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centred = x - mean.view(shape)
        var = all_reduce((centred * centred).sum(dims), group=group) / count
        out = centred * (var + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            out = out * self.weight.view(shape)
        if self.bias is not None:
            out = out + self.bias.view(shape)
        if self.training and self.running_mean is not None:
            self._remember(mean.detach(), var.detach() * count / (count - 1))
        return out.to(input.dtype)

    def _remember(self, mean: fb.Tensor, var: fb.Tensor) -> None:
        with fb.no_grad():
            self.num_batches_tracked.add_(1)
            share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.mul_(1 - share).add_(mean, alpha=share)
            self.running_var.mul_(1 - share).add_(var, alpha=share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with every batch normalization in it replaced by a SyncBatchNorm that takes over its tensors."""
        converted = module
        if isinstance(module, _BatchNorm):
            converted = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            converted._parameters.update(module._parameters)
            converted._buffers.update(module._buffers)
            converted.training = module.training
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted
