"""Where PyTorch tries out kinds of attention; it documents none of them."""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    from .... import _missing

    raise _missing.attribute_error(__name__, name)
