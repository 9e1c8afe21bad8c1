"""Layers whose weight passes a fake quantization, for quantization aware training."""

from __future__ import annotations

from typing import Any

from ...._on_demand import names_on_demand
from ....nn import functional as F
from ....nn import modules as float_modules
from ....tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]


def need_qconfig(layer: str, qconfig: Any) -> Any:
    """`qconfig`. Raises: AssertionError for None."""
    if not qconfig:
        raise AssertionError(f"{layer}: qconfig must be provided for QAT module")
    return qconfig


class _Trained:
    """What layers with a fake quantization of their weight share."""

    float_class: Any
    qconfig: Any
    weight_fake_quant: Any

    def _observe(self: Any, qconfig: Any) -> None:
        self.qconfig = need_qconfig(type(self).__name__, qconfig)
        self.weight_fake_quant = qconfig.weight()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of `torch.nn`, whose parameters it takes.

        Raises: AssertionError for another layer, or one without a `qconfig`.
        """
        layer = cls._layer_of(mod)
        if type(layer) is not cls.float_class:
            raise AssertionError(f"qat.{cls.__name__}.from_float only works for {cls.float_class.__name__}, got {type(mod).__name__}")
        if not getattr(mod, "qconfig", None):
            raise AssertionError("Input float module must have a valid qconfig")
        made = cls._like(layer, mod.qconfig)
        made.weight = layer.weight
        if getattr(layer, "bias", None) is not None:
            made.bias = layer.bias
        return made

    @classmethod
    def _layer_of(cls, mod: Any) -> Any:
        return mod

    @classmethod
    def _like(cls, layer: Any, qconfig: Any) -> Any:
        raise NotImplementedError


class Linear(_Trained, float_modules.Linear):
    """`nn.Linear` with a fake quantization of its weight, `weight_fake_quant`.

    Args:
        qconfig: makes it, by ``qconfig.weight()``.
    Raises: AssertionError without one.
    """

    float_class: Any = float_modules.Linear

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, qconfig: Any = None, device: Any = None, dtype: Any = None
    ) -> None:
        float_modules.Linear.__init__(self, in_features, out_features, bias, device, dtype)
        self._observe(qconfig)

    def forward(self, input: Tensor) -> Tensor:
        """The result with the rounded weight."""
        return F.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def _like(cls, layer: Any, qconfig: Any) -> Any:
        return cls(layer.in_features, layer.out_features, bias=layer.bias is not None, qconfig=qconfig)

    def to_float(self) -> Any:
        """The layer of `torch.nn` with the same parameters."""
        made = float_modules.Linear(self.in_features, self.out_features, self.bias is not None)
        made.load_state_dict({name: value for name, value in self.state_dict().items() if name in ("weight", "bias")})
        return made


class _Conv(_Trained):
    def __init__(
        self: Any, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", qconfig: Any = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        self.float_class.__init__(
            self, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self._observe(qconfig)

    def forward(self: Any, input: Tensor) -> Tensor:
        """The result with the rounded weight."""
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def _like(cls: Any, layer: Any, qconfig: Any) -> Any:
        return cls(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups,
            layer.bias is not None, layer.padding_mode, qconfig=qconfig,
        )  # fmt: skip

    def to_float(self: Any) -> Any:
        """The layer of `torch.nn` with the same parameters."""
        made = self.float_class(
            self.in_channels, self.out_channels, self.kernel_size, self.stride, self.padding, self.dilation, self.groups,
            self.bias is not None, self.padding_mode,
        )  # fmt: skip
        made.load_state_dict({name: value for name, value in self.state_dict().items() if name in ("weight", "bias")})
        return made


class Conv1d(_Conv, float_modules.Conv1d):
    """`nn.Conv1d` with a fake quantization of its weight; see `Linear`."""

    float_class = float_modules.Conv1d


class Conv2d(_Conv, float_modules.Conv2d):
    """`nn.Conv2d` with a fake quantization of its weight; see `Linear`."""

    float_class = float_modules.Conv2d


class Conv3d(_Conv, float_modules.Conv3d):
    """`nn.Conv3d` with a fake quantization of its weight; see `Linear`."""

    float_class = float_modules.Conv3d


class Embedding(_Trained, float_modules.Embedding):
    """`nn.Embedding` with a fake quantization of its weight; see `Linear`."""

    float_class = float_modules.Embedding

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None, device: Any = None,
        dtype: Any = None, qconfig: Any = None,
    ) -> None:  # fmt: skip
        float_modules.Embedding.__init__(
            self, num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, device=device,
            dtype=dtype,
        )  # fmt: skip
        self._observe(qconfig)

    def forward(self, input: Tensor) -> Tensor:
        """Rows of the rounded weight."""
        return F.embedding(
            input, self.weight_fake_quant(self.weight), self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip

    @classmethod
    def _like(cls, layer: Any, qconfig: Any) -> Any:
        return cls(
            layer.num_embeddings, layer.embedding_dim, layer.padding_idx, layer.max_norm, layer.norm_type, layer.scale_grad_by_freq,
            layer.sparse, qconfig=qconfig,
        )  # fmt: skip


class EmbeddingBag(_Trained, float_modules.EmbeddingBag):
    """`nn.EmbeddingBag` with a fake quantization of its weight; see `Linear`."""

    float_class = float_modules.EmbeddingBag

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Any = None,
        include_last_offset: bool = False, padding_idx: int | None = None, qconfig: Any = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        float_modules.EmbeddingBag.__init__(
            self, num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, mode, sparse, _weight, include_last_offset,
            padding_idx, device, dtype,
        )  # fmt: skip
        self._observe(qconfig)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Sums or means of rows of the rounded weight."""
        return F.embedding_bag(
            input, self.weight_fake_quant(self.weight), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    @classmethod
    def _like(cls, layer: Any, qconfig: Any) -> Any:
        return cls(
            layer.num_embeddings, layer.embedding_dim, layer.max_norm, layer.norm_type, layer.scale_grad_by_freq, layer.mode, layer.sparse,
            None, layer.include_last_offset, layer.padding_idx, qconfig,
        )  # fmt: skip


__getattr__, __dir__ = names_on_demand(__name__, modules=("dynamic",))
