"""Layers whose inputs are quantized when they run; they take and give dense tensors."""

from __future__ import annotations

from ._linear import Linear
from ._rnn import GRU, LSTM, GRUCell, LSTMCell, RNNCell

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "Linear", "RNNCell"]
