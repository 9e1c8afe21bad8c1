"""Warnings that say where the program, not this package, is to be changed; some are given once per process."""

from __future__ import annotations

import os
import sys
import warnings

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_given: set[str] = set()
always = False  # set by `set_warn_always`


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside this package."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level)


def warn_once(text: str, category: type[Warning] = UserWarning, about: str = "") -> None:
    """`warn` the first time in this process, or every time after ``set_warn_always(True)``.

    Args:
        about: what counts as the same warning; by default that has the same text.
    """
    if always or (about or text) not in _given:
        _given.add(about or text)
        warn(text, category)


def warn_deprecated(old: str, new: str) -> None:
    """Say that the function `old` has a successor; both as programs write them after ``torch.``."""
    warn(f"`torch.{old}(args...)` is deprecated. Please use `torch.{new}` instead.", FutureWarning)


def _is_ours(file: str) -> bool:
    return file.startswith((_HERE, "<flambeau"))
