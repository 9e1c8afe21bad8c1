"""Where PyTorch keeps what makes MaskedTensors."""

from __future__ import annotations

from .core import as_masked_tensor, masked_tensor

__all__ = ["as_masked_tensor", "masked_tensor"]
