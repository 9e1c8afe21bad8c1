"""The class of custom operators, and `custom_op`, which makes them."""

from __future__ import annotations

from ..library import CustomOpDef, custom_op

__all__ = ["CustomOpDef", "custom_op"]
