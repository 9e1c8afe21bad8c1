"""Loggers of agents and rendezvous."""

from __future__ import annotations

import logging
import os
import sys

from .log_level import get_log_level

__all__ = ["get_logger"]


def get_logger(name: str | None = None) -> logging.Logger:
    """The logger `name`, that of the calling module by default, at the level that the variable LOGLEVEL says, WARNING by default."""
    found = logging.getLogger(name or sys._getframe(1).f_globals.get("__name__"))
    found.setLevel(os.environ.get("LOGLEVEL", get_log_level()))
    return found
