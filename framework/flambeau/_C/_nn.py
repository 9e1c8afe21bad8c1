"""How arguments of `Module.to` are read."""

from __future__ import annotations

from ..nn.modules.module import _parse_to

__all__ = ["_parse_to"]
