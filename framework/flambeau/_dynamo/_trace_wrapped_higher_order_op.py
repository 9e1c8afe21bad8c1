"""A private mode of PyTorch under which positions may be tensors inside `vmap`."""

from __future__ import annotations

from ..overrides import BaseTorchFunctionMode

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(BaseTorchFunctionMode):
    """Let ``x[i]`` with a tensor `i` of no dimensions gather inside `vmap`. It always does here, so the mode changes nothing."""
