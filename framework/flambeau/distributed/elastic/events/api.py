"""What can happen to a job, as records that are written as JSON."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any, TypeAlias

__all__ = ["Event", "EventMetadataValue", "EventSource", "NodeState", "RdzvEvent"]

EventMetadataValue: TypeAlias = str | int | float | bool | None


class EventSource(str, enum.Enum):  # noqa: UP042  # str() of a member is PyTorch's, which StrEnum changes
    """Who tells of an event."""

    AGENT = "AGENT"
    WORKER = "WORKER"


class NodeState(str, enum.Enum):  # noqa: UP042  # as EventSource
    """Where a machine stands in a rendezvous."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclasses.dataclass
class Event:
    """Something that an agent or a worker did.

    Args:
        name: what it was.
        source: who tells of it.
        timestamp: when, in milliseconds since 1970.
        metadata: numbers, words and truth values about it, by name.
    """

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, EventMetadataValue] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | Event) -> Event:
        """The event that `serialize` wrote as `data`; an event is returned as it is."""
        if isinstance(data, Event):
            return data
        fields: dict[str, Any] = json.loads(data)
        return Event(**{**fields, "source": EventSource[fields["source"]]})

    def serialize(self) -> str:
        """The event as JSON."""
        return json.dumps(dataclasses.asdict(self))


@dataclasses.dataclass
class RdzvEvent:
    """Something that happened while machines met.

    Args:
        name: what it was.
        run_id: the job.
        message: about it.
        hostname, pid: which process tells of it.
        node_state: where that one stands.
        master_endpoint: where workers meet, as ``host:port``.
        rank: of the machine, if it has one.
        local_id: of the agent on its machine, if there are several.
        error_trace: the traceback of an error.
    """

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | RdzvEvent) -> RdzvEvent:
        """The event that `serialize` wrote as `data`; an event is returned as it is."""
        if isinstance(data, RdzvEvent):
            return data
        fields: dict[str, Any] = json.loads(data)
        return RdzvEvent(**{**fields, "node_state": NodeState[fields["node_state"]]})

    def serialize(self) -> str:
        """The event as JSON."""
        return json.dumps(dataclasses.asdict(self))
