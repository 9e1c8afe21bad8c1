"""Modules whose intermediate tensors are computed again, or kept in the memory of the host, for backward."""

from . import checkpoint_wrapper

__all__ = ["checkpoint_wrapper"]
