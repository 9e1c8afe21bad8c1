"""How arguments of `Module.to` are read."""

from __future__ import annotations

from ..nn.modules._conversion import parse_to as _parse_to

__all__ = ["_parse_to"]
