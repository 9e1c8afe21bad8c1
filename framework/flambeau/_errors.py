"""Exceptions that programs name in `except` clauses."""

from __future__ import annotations

__all__ = ["AcceleratorError", "OutOfMemoryError", "ShapeDependsOnValues", "ValuesAreMissing"]


class OutOfMemoryError(RuntimeError):
    """A device has not as much memory as a tensor needs."""


class AcceleratorError(RuntimeError):
    """A device failed."""


class ValuesAreMissing(NotImplementedError):
    """Values were asked of a tensor that has none, as those of the meta device."""


class ShapeDependsOnValues(ValuesAreMissing):
    """Values that a tensor has not decide the shape of a result."""
