"""Backends of `compile`, under the names that programs import them by."""

from . import registry

__all__ = ["registry"]
