"""Where PyTorch keeps the class Tensor."""

from __future__ import annotations

from typing import Any

from . import _missing
from .tensor import Tensor

__all__ = ["Tensor"]


def __getattr__(name: str) -> Any:
    raise _missing.attribute_error(__name__, name)
