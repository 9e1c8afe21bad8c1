"""What is told of processes that took too long."""

from __future__ import annotations

import logging

__all__ = ["log_debug_info_for_expired_timers"]

_log = logging.getLogger(__name__)


def log_debug_info_for_expired_timers(run_id: str, expired_timers: dict[int, list[str]]) -> None:
    """Log a warning about timers that have run out.

    Args:
        run_id: the job.
        expired_timers: the scopes of each process, by its id.
    """
    if expired_timers:
        _log.warning("timers of job %s have run out; processes and what they were doing: %s", run_id, expired_timers)
