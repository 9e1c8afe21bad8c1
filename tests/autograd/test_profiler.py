"""Events, their averages and tables, compared with PyTorch's on the same events; and the profiler of autograd."""

from __future__ import annotations

import json
import sqlite3

import pytest

import flambeau as fb
from flambeau.autograd import profiler, profiler_util


def _events(util, *, stacks=True, flops=False, **settings):
    """A list with nesting, another thread, an asynchronous event, a long name, and numbers of all sizes."""

    def event(number, name, start, end, thread=1, **details):
        details = {"flops": 0, "stack": [], "input_shapes": [], **details}
        return util.FunctionEvent(number, name, thread, start, end, **details)

    stack = ["a.py(3): f", "b.py(1): <module>"] if stacks else []
    shapes = [[4, 4], [3, 4], [3]]
    made = util.EventList(
        [
            event(0, "aten::linear", 0.0, 100.0, input_shapes=shapes, sequence_nr=0, stack=stack, cpu_memory_usage=48),
            event(1, "aten::addmm", 10.0, 60.5, flops=96, input_shapes=[[3], [4, 4], [4, 3]], stack=stack, cpu_memory_usage=48),
            event(2, "aten::relu", 150.0, 1400.25, stack=stack[1:], cpu_memory_usage=-(2**21)),
            event(3, "aten::linear", 2000.0, 3100000.0, flops=10**13, input_shapes=shapes),
            event(4, "aten::mm", 2005.0, 2007.0, flops=123456),
            event(5, "x" * 70, 2006.0, 2006.5, thread=2),
            event(6, "later", 5000.0, 6000.0, is_async=True),
        ],
        profile_memory=True,
        with_flops=flops,
        **settings,
    )
    made._build_tree()
    return made


_TABLES = [
    {}, {"sort_by": "cpu_time_total"}, {"sort_by": "count", "row_limit": 2}, {"header": "HEAD"}, {"top_level_events_only": True},
    {"max_name_column_width": 20}, {"sort_by": "self_cpu_time_total", "row_limit": -1},
    {"max_src_column_width": 8, "max_shapes_column_width": 12}, {"header": "HEAD", "top_level_events_only": True},
]  # fmt: skip
# PyTorch puts counts of operations below the head of the stacks where a table has both, so they are compared one at a time.
_KINDS = [{"stacks": True}, {"stacks": False, "flops": True}, {"stacks": False, "use_device": "cuda"}]


@pytest.mark.parametrize("kind", _KINDS, ids=str)
@pytest.mark.parametrize("settings", _TABLES, ids=str)
def test_tables_are_those_of_pytorch(oracle, settings, kind):
    ours, theirs = _events(profiler_util, **kind), _events(oracle.autograd.profiler_util, **kind)

    assert ours.table(**settings) == theirs.table(**settings)
    assert str(ours) == ours.table()


@pytest.mark.parametrize("kind", _KINDS, ids=str)
@pytest.mark.parametrize("groups", [{}, {"group_by_input_shapes": True}, {"group_by_stack_n": 1}, {"group_by_stack_n": 5}], ids=str)
def test_averages_are_those_of_pytorch(oracle, groups, kind):
    def told(util):
        averages = _events(util, **kind).key_averages(**groups)
        names = "key", "count", "flops", "cpu_time_total", "self_cpu_time_total", "cpu_time", "cpu_memory_usage", "input_shapes", "stack"
        rows = [[getattr(a, name) for name in names] for a in averages]
        return rows, averages.table(sort_by="cpu_time_total")

    assert told(profiler_util) == told(oracle.autograd.profiler_util)


def test_events_tell_what_those_of_pytorch_tell(oracle):
    def told(util):
        names = (
            "key", "cpu_time_total", "self_cpu_time_total", "cpu_time", "self_cpu_memory_usage", "device_time_total", "cpu_time_str",
            "self_cpu_time_total_str",
        )  # fmt: skip
        events = _events(util)
        total = events.total_average()
        return (
            [[getattr(e, name) for name in names] for e in events], [[c.id for c in e.cpu_children] for e in events],
            [e.cpu_parent and e.cpu_parent.id for e in events], events.self_cpu_time_total, total.key, total.count, total.cpu_time,
        )  # fmt: skip

    assert told(profiler_util) == told(oracle.autograd.profiler_util)


def test_numbers_become_the_text_of_pytorch(oracle):
    theirs = oracle.autograd.profiler_util
    for time in (0, 0.5, 999.9, 1000, 1e6, 1e9):
        assert profiler_util._format_time(time) == theirs._format_time(time)
    for size in (0, 1, -1, 1023, 1024, -3 * 2**20, 2**33):
        assert profiler_util._format_memory(size) == theirs._format_memory(size)
    assert profiler_util._format_time_share(1, 3) == theirs._format_time_share(1, 3)


def test_lists_of_no_events_have_no_table():
    assert profiler_util.EventList([]).table() == ""
    with pytest.raises(AssertionError, match="tree to be built"):
        profiler_util.EventList([]).key_averages()


def test_lists_are_exported_as_traces_and_stacks(tmp_path):
    events = _events(profiler_util)
    events.export_chrome_trace(str(tmp_path / "trace"))
    events.export_stacks(str(tmp_path / "stacks"), "self_cpu_time_total")

    assert [e["name"] for e in json.loads((tmp_path / "trace").read_text())][:2] == ["aten::linear", "aten::addmm"]
    assert (tmp_path / "stacks").read_text().splitlines()[0] == "b.py(1):_<module>;a.py(3):_f 49"
    with pytest.raises(ValueError, match="metric should be one of"):
        events.export_stacks(str(tmp_path / "stacks"), "joules")


def test_records_of_memory_are_found_by_time():
    class Record:
        def __init__(self, at):
            self.at = at

        def start_ns(self):
            return self.at

    records = [(Record(at), None) for at in (30, 10, 20)]
    found = profiler_util.MemRecordsAcc(records).in_interval(10, 25)

    assert [r[0].at for r in found] == [10, 20]


def test_the_profiler_is_a_region_with_a_table():
    x = fb.ones(1, 1, requires_grad=True)
    with profiler.profile(record_shapes=True) as prof:
        for _ in range(3):
            (x**2).sum().backward()
    counts = {a.key: a.count for a in prof.key_averages()}

    assert counts["aten::pow"] == counts["PowBackward0"] == counts["torch::autograd::AccumulateGrad"] == 3
    assert "aten::pow" in prof.table(sort_by="self_cpu_time_total")
    assert prof.self_cpu_time_total > 0
    with pytest.raises(RuntimeError, match="not reentrant"):
        prof.__enter__()


def test_a_profiler_that_is_not_enabled_records_nothing():
    with profiler.profile(enabled=False) as prof:
        fb.ones(2) + 1

    assert prof is None


def test_devices_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="use_device='cuda'"):
        profiler.profile(use_cuda=True)


def test_regions_may_last_until_a_future_is_done():
    with profiler.profile() as prof:
        region, waiting = profiler.record_function("waits"), fb.futures.Future()
        with region:
            done = region._call_end_callbacks_on_future(waiting)
        fb.ones(2) + 1
        waiting.set_result(3)

    assert done.wait() == 3
    assert [e.name for e in prof.function_events if e.cpu_parent is None][-1] == "waits"
    assert "aten::add" in [c.name for e in prof.function_events if e.name == "waits" for c in e.cpu_children]


def test_steps_are_counted_as_in_pytorch(oracle):
    def told(tracker):
        name = "tests"
        start = tracker.current_step()
        tracker.init_step_count(name)
        steps = [tracker.increment_step(name) - start, tracker.increment_step(name) - start, tracker.current_step() - start]
        return steps, tracker.erase_step_count(name), tracker.erase_step_count(name)

    assert told(profiler.KinetoStepTracker) == told(oracle.autograd.profiler.KinetoStepTracker)


def test_keys_are_seen_once():
    unique = profiler.EnforceUnique()
    unique.see("a", 1)
    with pytest.raises(RuntimeError, match="duplicate key"):
        unique.see("a", 1)


def test_ranges_for_other_profilers_are_opened_and_closed(monkeypatch):
    log = []
    monkeypatch.setattr(fb.profiler.itt, "range_push", lambda name: log.append(name))
    monkeypatch.setattr(fb.profiler.itt, "range_pop", lambda: log.append("."))
    x = fb.ones(3, requires_grad=True)
    with profiler.emit_itt(record_shapes=True):
        x.exp().sum().backward()

    assert log[:2] == ["aten::exp, sizes = [[3]]", "."]
    assert log.count(".") * 2 == len(log)
    assert any(entry.startswith("ExpBackward0, stashed seq=") for entry in log)


def test_ranges_of_nvidia_take_a_device():
    from flambeau import cuda

    if cuda.is_available():
        pytest.skip("there is a device")
    with pytest.raises(RuntimeError, match="CUDA"):
        profiler.emit_nvtx().__enter__()
    with pytest.raises(RuntimeError, match="CUDA"), cuda.profiler.profile():
        pass

    assert not fb._state.interpreted()


def test_traces_of_nvprof_are_read(tmp_path, oracle):
    path = str(tmp_path / "trace.prof")
    with sqlite3.connect(path) as base:
        base.executescript(
            """
            CREATE TABLE StringTable (_id_ INTEGER, value TEXT);
            INSERT INTO StringTable VALUES (1, 'AddBackward0, stashed seq=3'), (2, 'kernel');
            CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER (id INTEGER, name INTEGER, timestamp INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES (7, 1, 100), (7, 0, 900);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (_id_ INTEGER, cbid INTEGER, start INTEGER, end INTEGER, correlationId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (11, 211, 200, 300, 5);
            CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (correlationId INTEGER, start INTEGER, end INTEGER, name INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES (5, 400, 650, 2);
            """
        )
    base.close()

    def told(module):
        return [(e.name, e.time_range.start, e.time_range.end, [k.duration for k in e.kernels]) for e in module.load_nvprof(path)]

    assert told(profiler) == told(oracle.autograd.profiler)
    with pytest.raises(sqlite3.OperationalError):
        profiler.load_nvprof(str(tmp_path / "none"))
