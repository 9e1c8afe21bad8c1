"""Events and counters of a running program, and the handlers they go to."""

from __future__ import annotations

import datetime
import enum
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = [
    "Aggregation",
    "Event",
    "EventHandlerHandle",
    "Stat",
    "TensorboardEventHandler",
    "data_value_t",
    "log_event",
    "register_event_handler",
    "unregister_event_handler",
]

STAT_EVENT = "torch.monitor.Stat"


class data_value_t:
    """The type of an event's values: str, float, int or bool."""


class Aggregation(enum.IntEnum):
    """What a `Stat` makes of the values added in a window."""

    VALUE = 0  # the last one
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6

    @property
    def name(self) -> str:
        """Its name, such as ``'MEAN'``."""
        return self._name_

    def __repr__(self) -> str:
        return f"<Aggregation.{self.name}: {self.value}>"


class Event:
    """Something that happened.

    Args:
        name: the same for all events of one kind.
        timestamp: when it happened.
        data: names and values, each a str, float, int or bool.
    Raises: TypeError for other values.
    """

    __slots__ = ("data", "name", "timestamp")

    def __init__(self, name: str, timestamp: datetime.datetime, data: Mapping[str, Any]) -> None:
        if not isinstance(name, str) or not isinstance(timestamp, datetime.datetime):
            raise TypeError(f"Event: name must be a str and timestamp a datetime, got {name!r} and {timestamp!r}")
        for key, value in data.items():
            if not isinstance(key, str) or not isinstance(value, (str, float, int, bool)):
                raise TypeError(f"Event: data must map names to str, float, int or bool, got {key!r}: {value!r}")
        self.name, self.timestamp, self.data = name, timestamp, dict(data)

    def __repr__(self) -> str:
        return f"Event(name={self.name!r}, timestamp={self.timestamp!r}, data={self.data!r})"


class EventHandlerHandle:
    """What `register_event_handler` returns, for `unregister_event_handler`."""

    def __init__(self, callback: Callable[[Event], None]) -> None:
        self._callback = callback


_handlers: list[EventHandlerHandle] = []
_lock = threading.Lock()


def register_event_handler(callback: Callable[[Event], None]) -> EventHandlerHandle:
    """Call `callback` with every event from now on, in the thread that logs it."""
    handle = EventHandlerHandle(callback)
    with _lock:
        _handlers.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """End what `register_event_handler` began; nothing happens if that has been."""
    with _lock:
        if handler in _handlers:
            _handlers.remove(handler)


def log_event(event: Event) -> None:
    """Hand `event` to every handler; without any nothing happens."""
    with _lock:
        handlers = list(_handlers)
    for handler in handlers:
        handler._callback(event)


class Stat:
    """Statistics of the values added in windows of time; each window is logged as one event when it has passed.

    Args:
        name: of the statistic; the event's values are called ``name.sum``, ``name.count``, ...
        aggregations: which statistics.
        window_size: how long a window is, to the millisecond.
        max_samples: once so many values have been added the window is logged, and further ones are dropped until it ends.

    What is left when the object goes is logged, too.
    """

    def __init__(
        self,
        name: str,
        aggregations: Sequence[Aggregation],
        window_size: datetime.timedelta,
        max_samples: int = 2**63 - 1,
    ) -> None:
        self._name = name
        self._aggregations = tuple(Aggregation(a) for a in aggregations)
        self._window = max(window_size // datetime.timedelta(milliseconds=1), 1)
        self._max_samples = max_samples
        self._adding = threading.RLock()
        self._window_id = self._now()
        self._full = False
        self._latest = dict.fromkeys(self._aggregations, 0.0)
        self._clear()

    @property
    def name(self) -> str:
        """The name of the statistic."""
        return self._name

    @property
    def count(self) -> int:
        """How many values this window has so far."""
        return self._count

    def add(self, v: float) -> None:
        """Add a value to this window."""
        with self._adding:
            self._close_if_over()
            if self._full:
                return
            v = float(v)
            self._count += 1
            self._sum += v
            self._value = v
            self._max, self._min = max(self._max, v), min(self._min, v)
            if self._count >= self._max_samples:
                self._log()
                self._full = True

    def get(self) -> dict[Aggregation, float]:
        """The statistics of the last window that was logged, zeros before the first."""
        with self._adding:
            self._close_if_over()
            return dict(self._latest)

    def _now(self) -> int:
        """The number of the window that time is in."""
        return time.monotonic_ns() // 1_000_000 // self._window

    def _clear(self) -> None:
        self._count, self._sum, self._value = 0, 0.0, 0.0
        self._max, self._min = -math.inf, math.inf

    def _close_if_over(self) -> None:
        now = self._now()
        if now != self._window_id:
            self._window_id = now
            if self._count:
                self._log()
            self._full = False

    def _log(self) -> None:
        found = {
            Aggregation.VALUE: self._value,
            Aggregation.MEAN: self._sum / self._count,
            Aggregation.COUNT: float(self._count),
            Aggregation.SUM: self._sum,
            Aggregation.MAX: self._max,
            Aggregation.MIN: self._min,
        }
        self._latest = {a: found[a] for a in self._aggregations}
        self._clear()
        data = {f"{self._name}.{a.name.lower()}": value for a, value in self._latest.items()}
        log_event(Event(STAT_EVENT, datetime.datetime.now(), data))

    def __del__(self) -> None:
        if getattr(self, "_count", 0):
            self._log()


class TensorboardEventHandler:
    """A handler that writes the statistics of `Stat` as scalars.

    Args:
        writer: a `flambeau.utils.tensorboard.SummaryWriter`.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == STAT_EVENT:
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
