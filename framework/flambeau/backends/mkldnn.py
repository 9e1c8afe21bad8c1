"""Not here: oneDNN."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

enabled = True
deterministic = False
allow_tf32: bool | None = None
VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2


def is_available() -> bool:
    """False."""
    return False


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none") -> Iterator[None]:
    """Set the switches inside the block, for programs that do; no kernel here asks them.

    Args:
        enabled, deterministic, allow_tf32: the switches.
        fp32_precision: not kept.
    """
    here = globals()
    given = {"enabled": enabled, "deterministic": deterministic, "allow_tf32": allow_tf32}
    before = {name: here[name] for name in given}
    here.update(given)
    try:
        yield
    finally:
        here.update(before)


class verbose:  # PyTorch's name
    """A context in which oneDNN would report its calls; nothing here calls it, so there is no report.

    Args:
        level: `VERBOSE_OFF`, `VERBOSE_ON` or `VERBOSE_ON_CREATION`.
    Raises: AssertionError when entered with another value.
    """

    def __init__(self, level: int) -> None:
        self.level = level

    def __enter__(self) -> Any:
        if self.level == VERBOSE_OFF:
            return None
        if self.level not in (VERBOSE_ON, VERBOSE_ON_CREATION):
            raise AssertionError(
                f"backends.mkldnn.verbose: level must be VERBOSE_OFF, VERBOSE_ON or VERBOSE_ON_CREATION, got {self.level!r}"
            )
        return self

    def __exit__(self, *_: object) -> None:
        pass
