"""Modules that compute with integers: results of observed modules by `torch.ao.quantization.convert`."""

from __future__ import annotations

from ...._on_demand import names_on_demand
from ._conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ._embedding import Embedding, EmbeddingBag
from ._functional_modules import FloatFunctional, FXFloatFunctional, QFunctional
from ._layers import (
    ELU,
    BatchNorm2d,
    BatchNorm3d,
    DeQuantize,
    Dropout,
    GroupNorm,
    Hardswish,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LeakyReLU,
    MaxPool2d,
    PReLU,
    Quantize,
    ReLU6,
    Sigmoid,
    Softmax,
)
from ._linear import Linear

__all__ = [
    "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "DeQuantize",
    "Dropout", "ELU", "Embedding", "EmbeddingBag", "FXFloatFunctional", "FloatFunctional", "GroupNorm", "Hardswish", "InstanceNorm1d",
    "InstanceNorm2d", "InstanceNorm3d", "LSTM", "LayerNorm", "LeakyReLU", "Linear", "MaxPool2d", "MultiheadAttention", "PReLU",
    "QFunctional", "Quantize", "ReLU6",
    "Sigmoid", "Softmax",
]  # fmt: skip


# These two are made from `quantizable`, which is made from the layers above.
__getattr__, __dir__ = names_on_demand(__name__, {"._rnn": ("LSTM", "MultiheadAttention")}, modules=("dynamic", "functional", "reference"))
