"""Exceptions that programs name in `except` clauses."""

from __future__ import annotations

__all__ = ["AcceleratorError", "OutOfMemoryError"]


class OutOfMemoryError(RuntimeError):
    """A device has not as much memory as a tensor needs."""


class AcceleratorError(RuntimeError):
    """A device failed."""
