"""Not here: MIOpen, of AMD's devices. Its switch is kept for programs that set it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

immediate = False


def set_flags(_immediate: bool) -> tuple[bool]:
    """Set the switch, which changes nothing. Returns: what it was, in a tuple."""
    global immediate
    before, immediate = immediate, bool(_immediate)
    return (before,)


@contextlib.contextmanager
def flags(immediate: bool = False) -> Iterator[None]:
    """Set the switch inside the block."""
    (before,) = set_flags(immediate)
    try:
        yield
    finally:
        set_flags(before)
