"""Contexts that are decorators too, where PyTorch keeps theirs."""

from __future__ import annotations

from ..autograd.grad_mode import _DecoratorContextManager as _DecoratorContextManager

__all__: list[str] = []
