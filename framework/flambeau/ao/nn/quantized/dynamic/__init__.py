"""Layers whose inputs are quantized when they run; they take and give dense tensors."""

from __future__ import annotations

from ._conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ._linear import Linear
from ._rnn import GRU, LSTM, GRUCell, LSTMCell, RNNCell

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "GRU", "GRUCell", "LSTM", "LSTMCell", "Linear",
    "RNNCell",
]  # fmt: skip
