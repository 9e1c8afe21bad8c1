"""Numbers that a job gives about itself, by group and name."""

from __future__ import annotations

import abc
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, overload

__all__ = [
    "ConsoleMetricHandler",
    "MetricData",
    "MetricHandler",
    "MetricStream",
    "MetricsConfig",
    "NullMetricHandler",
    "configure",
    "getStream",
    "get_elapsed_time_ms",
    "prof",
    "profile",
    "publish_metric",
    "put_metric",
]

F = TypeVar("F", bound=Callable[..., Any])


class MetricData(NamedTuple):
    """One number: its time in seconds since 1970, its group, name and value."""

    timestamp: float
    group_name: str
    name: str
    value: int


class MetricsConfig:
    """Settings of handlers.

    Args:
        params: their values by name.
    """

    __slots__ = ["params"]

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = {} if params is None else params


class MetricHandler(abc.ABC):
    """What takes the numbers; a program's own kind defines `emit`."""

    @abc.abstractmethod
    def emit(self, metric_data: MetricData) -> None:
        """Take one number.

        Args:
            metric_data: it, with its time, group and name.
        """


class ConsoleMetricHandler(MetricHandler):
    """Prints each number."""

    def emit(self, metric_data: MetricData) -> None:
        """Print ``[time][group]: name=value``."""
        print(f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}")


class NullMetricHandler(MetricHandler):
    """Drops each number; the handler of groups that have no other."""

    def emit(self, metric_data: MetricData) -> None:
        """Do nothing."""


class MetricStream:
    """The numbers of one group.

    Args:
        group_name: the group.
        handler: where its numbers go.
    """

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name, self.handler = group_name, handler

    def add_value(self, metric_name: str, metric_value: int) -> None:
        """Give the handler the value `metric_value` of `metric_name`, with the time of now."""
        self.handler.emit(MetricData(time.time(), self.group_name, metric_name, metric_value))


_default: MetricHandler = NullMetricHandler()
_of_group: dict[str, MetricHandler] = {}


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """Let `handler` take the numbers of `group`, or of all groups that have no handler of their own if that is None."""
    global _default
    if group is None:
        _default = handler
    else:
        _of_group[group] = handler


def getStream(group: str) -> MetricStream:
    """The stream of numbers of `group`."""
    return MetricStream(group, _of_group.get(group, _default))


def put_metric(metric_name: str, metric_value: int, metric_group: str = "torchelastic") -> None:
    """Give one number.

    Args:
        metric_name: what it counts.
        metric_value: the number.
        metric_group: which handler takes it.
    """
    getStream(metric_group).add_value(metric_name, metric_value)


def publish_metric(metric_group: str, metric_name: str, metric_value: int) -> None:
    """`put_metric` with the group first, under its older name.

    Args:
        metric_group, metric_name, metric_value: as for `put_metric`.
    """
    put_metric(metric_name, metric_value, metric_group)


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    """Milliseconds since `start_time_in_seconds`, a value of ``time.time()``."""
    return int((time.time() - start_time_in_seconds) * 1000)


def _timed(fn: Any, name: str, group: str) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        outcome = "failure"
        try:
            result = fn(*args, **kwargs)
            outcome = "success"
        finally:
            put_metric(f"{name}.{outcome}", 1, group)
            put_metric(f"{name}.duration.ms", int((time.perf_counter() - begin) * 1000), group)
        return result

    return wrapper


@overload
def prof(fn: F, group: str = "torchelastic") -> F: ...
@overload
def prof(fn: None = None, group: str = "torchelastic") -> Callable[[F], F]: ...
def prof(fn: Any = None, group: str = "torchelastic") -> Any:
    """Decorate a function: each call gives its duration in milliseconds, and counts as a success or as a failure.

    The names are ``module.function.duration.ms``, ``.success`` and ``.failure``; of a method, ``Class.method`` begins them.

    Args:
        fn: the function; left out where a group is given.
        group: the group of its numbers.

    >>> from flambeau.distributed.elastic import metrics
    >>> @metrics.prof(group="mine")
    ... def work():
    ...     return 7
    >>> work()
    7
    """

    def wrap(fn: Any) -> Any:
        name = fn.__qualname__ if "." in fn.__qualname__ else f"{fn.__module__}.{fn.__name__}"
        return _timed(fn, name, group)

    return wrap if fn is None else wrap(fn)


def profile(group: str | None = None) -> Callable[[F], F]:
    """`prof` under its older name, whose numbers are named after the function alone.

    Args:
        group: the group of its numbers; None for a group without a name.
    """
    return lambda fn: _timed(fn, fn.__name__, group or "")
