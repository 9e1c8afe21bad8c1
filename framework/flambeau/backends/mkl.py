"""Not here: Intel's MKL."""

from __future__ import annotations

from typing import Any

VERBOSE_OFF, VERBOSE_ON = 0, 1


def is_available() -> bool:
    """False."""
    return False


class verbose:  # PyTorch's name
    """A context in which MKL would report its calls; nothing here calls it, so there is no report.

    Args:
        enable: `VERBOSE_OFF` or `VERBOSE_ON`.
    Raises: AssertionError when entered with another value.
    """

    def __init__(self, enable: int) -> None:
        self.enable = enable

    def __enter__(self) -> Any:
        if self.enable == VERBOSE_OFF:
            return None
        if self.enable != VERBOSE_ON:
            raise AssertionError(f"backends.mkl.verbose: enable must be VERBOSE_OFF or VERBOSE_ON, got {self.enable!r}")
        return self

    def __exit__(self, *_: object) -> None:
        pass
