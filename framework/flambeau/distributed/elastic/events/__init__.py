"""Events of a job, written where a program wants them.

>>> from flambeau.distributed.elastic.events import Event, EventSource
>>> print(Event("started", EventSource.AGENT, 0, {"workers": 2}))
{"name": "started", "source": "AGENT", "timestamp": 0, "metadata": {"workers": 2}}
"""

from __future__ import annotations

import logging
import os
import socket
import traceback

from .api import Event, EventMetadataValue, EventSource, NodeState, RdzvEvent
from .handlers import get_logging_handler

__all__ = [
    "Event",
    "EventMetadataValue",
    "EventSource",
    "NodeState",
    "RdzvEvent",
    "construct_and_record_rdzv_event",
    "get_logging_handler",
    "record",
    "record_rdzv_event",
]


def _logger(destination: str) -> logging.Logger:
    logger = logging.getLogger(f"flambeau-events-{destination}")
    if not logger.handlers:
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(get_logging_handler(destination))
    return logger


def record(event: Event, destination: str = "null") -> None:
    """Write `event` to `destination`, a name that `get_logging_handler` knows."""
    _logger(destination).info(event.serialize())


def record_rdzv_event(event: RdzvEvent) -> None:
    """Write an event of a rendezvous to the destination of those."""
    _logger("dynamic_rendezvous").info(event.serialize())


def construct_and_record_rdzv_event(
    run_id: str,
    message: str,
    node_state: NodeState,
    name: str = "",
    hostname: str = "",
    pid: int | None = None,
    master_endpoint: str = "",
    local_id: int | None = None,
    rank: int | None = None,
) -> None:
    """Write an event of a rendezvous, if anyone wants to have it.

    Args:
        run_id: the job.
        message: what happened.
        node_state: where this machine stands; FAILED adds the traceback of the exception that is handled now.
        name: what the event is called.
        hostname, pid: which process it is; this one if they are left out.
        master_endpoint: where workers meet, as ``host:port``.
        local_id: of the agent on its machine, if there are several.
        rank: of the machine, if it has one.
    """
    # The usual destination is nowhere, so nothing is looked up for it.
    if isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler):
        return
    trace = traceback.format_exc() if node_state is NodeState.FAILED else ""
    record_rdzv_event(
        RdzvEvent(
            name, run_id, message, hostname or socket.getfqdn(), os.getpid() if pid is None else pid, node_state,
            master_endpoint, rank, local_id, trace,
        )
    )
