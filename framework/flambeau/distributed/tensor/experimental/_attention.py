"""Sequences divided among ranks under the name of the module that PyTorch keeps them in."""

from __future__ import annotations

from ._context_parallel import context_parallel, context_parallel_unshard, set_rotate_method

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]
