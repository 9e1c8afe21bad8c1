"""Not here: oneDNN."""

from __future__ import annotations

from typing import Any

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2


def is_available() -> bool:
    """False."""
    return False


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
