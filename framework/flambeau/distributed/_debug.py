"""How much a job says about itself: the debug level, and where its lines go."""

from __future__ import annotations

import logging
import os
import sys
from enum import Enum

__all__ = ["DebugLevel", "debug_level_name", "get_debug_level", "note", "set_debug_level", "set_debug_level_from_env"]

_log = logging.getLogger("flambeau.distributed")
_shown = False


class DebugLevel(Enum):
    """OFF; INFO: `DistributedDataParallel` says how it was made; DETAIL: and, after some iterations, what these take."""

    OFF = 0
    INFO = 1
    DETAIL = 2


_level: DebugLevel | None = None


def get_debug_level() -> DebugLevel:
    """The debug level: what was set, else what ``TORCH_DISTRIBUTED_DEBUG`` says.

    Raises: ValueError if the variable is none of OFF, INFO and DETAIL.
    """
    if _level is None:
        set_debug_level_from_env()
    assert _level is not None
    return _level


def set_debug_level(level: DebugLevel) -> None:
    """Set the debug level of this process. Raises: TypeError if `level` is no DebugLevel."""
    global _level
    if not isinstance(level, DebugLevel):
        raise TypeError(f"set_debug_level: level must be a DebugLevel, got {type(level).__name__}")
    _level = level


def set_debug_level_from_env() -> None:
    """Set the debug level to what ``TORCH_DISTRIBUTED_DEBUG`` says: OFF, INFO or DETAIL; OFF without it.

    Raises: ValueError for anything else.
    """
    given = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF")
    if given.upper() not in DebugLevel.__members__:
        raise ValueError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL; it is {given!r}.")
    set_debug_level(DebugLevel[given.upper()])


def debug_level_name() -> str:
    """The name of the debug level."""
    return get_debug_level().name


def note(text: str) -> None:
    """Log `text`. With ``TORCH_CPP_LOG_LEVEL=INFO`` it is shown on stderr, whether or not the program has set up logging."""
    global _shown
    if not _shown and os.environ.get("TORCH_CPP_LOG_LEVEL", "").upper() in ("INFO", "0") and not _log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname).1s%(asctime)s %(process)d %(name)s] %(message)s"))
        _log.addHandler(handler)
        _log.setLevel(logging.INFO)
        _log.propagate = False
        _shown = True
    _log.info(text)
