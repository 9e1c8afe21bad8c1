"""Layers that compute in float32 with the numbers of a quantized weight: what a quantized layer means, for backends to follow."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .....nn import functional as F
from .....nn import modules as nn
from .....tensor import Tensor
from ._rnn import GRU, LSTM, GRUCell, LSTMCell, RNNCell
from ._weights import dequantized, quantized_weight

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding", "EmbeddingBag", "GRU",
    "GRUCell", "LSTM", "LSTMCell", "Linear", "RNNCell", "ReferenceQuantizedModule",
]  # fmt: skip


class ReferenceQuantizedModule:
    """What reference layers share: `weight` as a parameter of numbers, and how it is quantized."""

    weight: Any
    weight_qscheme: Any
    weight_dtype: Any
    weight_scale: Any
    weight_zero_point: Any
    weight_axis: int

    def _init_weight_qparams(self: Any, weight_qparams: dict[str, Any]) -> None:
        self.weight_qscheme = weight_qparams["qscheme"]
        self.weight_dtype = weight_qparams["dtype"]
        self.weight_axis = int(weight_qparams.get("axis", 0))
        self.register_buffer("weight_scale", fb.as_tensor(weight_qparams.get("scale", 1.0)).detach())
        self.register_buffer("weight_zero_point", fb.as_tensor(weight_qparams.get("zero_point", 0)).detach())

    def get_quantized_weight(self) -> Tensor:
        """The weight quantized; in float16 where that is its dtype."""
        return quantized_weight(
            self.weight, self.weight_qscheme, self.weight_dtype, self.weight_scale, self.weight_zero_point, self.weight_axis
        )

    def get_weight(self) -> Tensor:
        """The numbers of the quantized weight, in float32."""
        return dequantized(self.get_quantized_weight())

    @classmethod
    def from_float(cls: Any, float_module: Any, weight_qparams: dict[str, Any]) -> Any:
        """The reference layer of a float one.

        Args:
            float_module: a layer of `torch.nn`, whose parameters it takes.
            weight_qparams: "qscheme", "dtype", "scale", "zero_point" and, for scales per channel, "axis".
        """
        made = cls.__new__(cls)
        for name, value in float_module.__dict__.items():
            made.__dict__[name] = dict(value) if name in ("_parameters", "_buffers", "_modules") else value
        made._init_weight_qparams(weight_qparams)
        return made

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"


class Linear(ReferenceQuantizedModule, nn.Linear):
    """``x @ weight.T + bias`` with the numbers of the quantized weight."""

    def forward(self, x: Tensor) -> Tensor:
        """The result in float32."""
        return F.linear(x, self.get_weight(), self.bias)


class _Conv(ReferenceQuantizedModule):
    def forward(self: Any, x: Tensor) -> Tensor:
        """The convolution in float32."""
        return self._conv_forward(x, self.get_weight(), self.bias)


class Conv1d(_Conv, nn.Conv1d):
    """`nn.Conv1d` with the numbers of the quantized weight."""


class Conv2d(_Conv, nn.Conv2d):
    """`nn.Conv2d` with the numbers of the quantized weight."""


class Conv3d(_Conv, nn.Conv3d):
    """`nn.Conv3d` with the numbers of the quantized weight."""


class _ConvTranspose(ReferenceQuantizedModule):
    _function: Any

    def forward(self: Any, x: Tensor) -> Tensor:
        """The transposed convolution in float32."""
        return type(self)._function(
            x, self.get_weight(), self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


class ConvTranspose1d(_ConvTranspose, nn.ConvTranspose1d):
    """`nn.ConvTranspose1d` with the numbers of the quantized weight."""

    _function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose, nn.ConvTranspose2d):
    """`nn.ConvTranspose2d` with the numbers of the quantized weight."""

    _function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose, nn.ConvTranspose3d):
    """`nn.ConvTranspose3d` with the numbers of the quantized weight."""

    _function = staticmethod(F.conv_transpose3d)


class Embedding(ReferenceQuantizedModule, nn.Embedding):
    """`nn.Embedding` with the numbers of the quantized weight."""

    def forward(self, input: Tensor) -> Tensor:
        """Rows of the table, in float32."""
        return F.embedding(input, self.get_weight(), self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)


class EmbeddingBag(ReferenceQuantizedModule, nn.EmbeddingBag):
    """`nn.EmbeddingBag` with the numbers of the quantized weight."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """One row for each bag, in float32."""
        return F.embedding_bag(
            input, self.get_weight(), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip
