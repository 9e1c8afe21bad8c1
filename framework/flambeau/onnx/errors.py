"""Errors of exporting that programs name in `except` clauses."""

from __future__ import annotations

__all__ = ["OnnxExporterError", "SymbolicValueError", "UnsupportedOperatorError"]


class OnnxExporterError(RuntimeError):
    """A model could not be exported."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator has no translation."""


class SymbolicValueError(OnnxExporterError):
    """A value in a graph is not what a translation takes."""
