"""Backends of `compile`, under the names that programs import them by."""

from . import common, registry

__all__ = ["common", "registry"]
