"""Events, their handlers, and statistics by windows of time."""

from __future__ import annotations

import datetime
import gc

import pytest

from flambeau import monitor
from flambeau.monitor import Aggregation, Event, Stat

SECOND = datetime.timedelta(seconds=1)


@pytest.fixture
def events():
    seen: list[Event] = []
    handle = monitor.register_event_handler(seen.append)
    yield seen
    monitor.unregister_event_handler(handle)


@pytest.fixture
def clock(monkeypatch):
    """The time in milliseconds, as a list of one number."""
    now = [10_000]
    monkeypatch.setattr(monitor.time, "monotonic_ns", lambda: now[0] * 1_000_000)
    return now


def test_handlers_get_events_until_they_are_taken_back(events):
    event = Event("step", datetime.datetime(2020, 1, 1), {"loss": 0.5, "done": False, "n": 3, "what": "x"})
    extra: list[Event] = []
    handle = monitor.register_event_handler(extra.append)
    monitor.log_event(event)
    monitor.unregister_event_handler(handle)
    monitor.log_event(event)

    assert (events, extra) == ([event, event], [event])
    assert event.data["n"] == 3


def test_events_hold_plain_values():
    with pytest.raises(TypeError, match="data"):
        Event("a", datetime.datetime.now(), {"x": [1]})
    with pytest.raises(TypeError, match="timestamp"):
        Event("a", "now", {})  # type: ignore[arg-type]


def test_a_window_is_logged_when_it_has_passed(events, clock):
    stat = Stat("loss", tuple(Aggregation), SECOND)
    for value in (3.0, 5.0, 1.0):
        stat.add(value)
    assert (stat.count, stat.get()[Aggregation.SUM], events) == (3, 0.0, [])
    clock[0] += 1000
    found = stat.get()

    assert {a.name: found[a] for a in Aggregation} == {"VALUE": 1, "MEAN": 3, "COUNT": 3, "SUM": 9, "MAX": 5, "MIN": 1}
    assert events[0].name == "torch.monitor.Stat"
    assert events[0].data["loss.mean"] == 3
    assert stat.count == 0


def test_a_full_window_is_logged_at_once_and_takes_no_more(events, clock):
    stat = Stat("n", [Aggregation.COUNT], SECOND, 3)
    for _ in range(5):
        stat.add(1)

    assert [event.data for event in events] == [{"n.count": 3.0}]
    clock[0] += 1000
    stat.add(1)
    assert stat.count == 1


def test_what_is_left_is_logged_at_the_end(events, clock):
    stat = Stat("n", [Aggregation.SUM], SECOND)
    stat.add(2)
    del stat
    gc.collect()

    assert [event.data for event in events] == [{"n.sum": 2.0}]


def test_statistics_go_to_a_summary_writer(events, clock):
    written = []

    class Writer:
        def add_scalar(self, name, value, walltime):
            written.append((name, value))

    handle = monitor.register_event_handler(monitor.TensorboardEventHandler(Writer()))
    stat = Stat("n", [Aggregation.SUM], SECOND, 1)
    stat.add(2)
    monitor.log_event(Event("other", datetime.datetime.now(), {"x": 1}))
    monitor.unregister_event_handler(handle)

    assert written == [("n.sum", 2.0)]
