"""Not here: NNPACK. Its switch is kept for programs that set it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_enabled = False


def is_available() -> bool:
    """False."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Set the switch, which changes nothing. Returns: what it was, in a tuple."""
    before = globals()["_enabled"]
    globals()["_enabled"] = bool(_enabled)
    return (before,)


@contextlib.contextmanager
def flags(enabled: bool = False) -> Iterator[None]:
    """Set the switch inside the block."""
    (before,) = set_flags(enabled)
    try:
        yield
    finally:
        set_flags(before)
