"""Timers, measurements and tables: statistics and texts beside PyTorch's on given times."""

from __future__ import annotations

import importlib
import pickle
import platform
import shutil

import pytest

import flambeau as fb
from flambeau.utils import benchmark

TIMES = [1e-3, 1.1e-3, 1.2e-3, 1.05e-3]


def measurement(lib, times, number=100, **names):
    spec = lib.utils.benchmark.TaskSpec(stmt="x", setup="pass", **names)
    return lib.utils.benchmark.Measurement(number_per_run=number, raw_times=list(times), task_spec=spec)


def both(oracle):
    import torch.utils.benchmark  # noqa: F401 - makes it an attribute

    return oracle, fb


@pytest.mark.oracle
@pytest.mark.parametrize("times", [TIMES, [1e-3], [1.0, 2.0, 10.0], [500.0, 501.0]], ids=str)
def test_measurements_are_described_as_pytorchs(oracle, times):
    told = []
    for lib in both(oracle):
        made = measurement(lib, times, label="L", sub_label="S", description="D")
        numbers = [made.mean, made.median, made.iqr, made.significant_figures, made.has_warnings, made.title]
        told.append((repr(made).splitlines()[1:], numbers))

    assert told[1][0] == told[0][0]
    assert told[1][1][5] == told[0][1][5]
    for ours, theirs in zip(told[1][1][:3], told[0][1][:3], strict=True):
        assert ours == pytest.approx(theirs)
    assert told[1][1][3:5] == told[0][1][3:5]


@pytest.mark.oracle
@pytest.mark.parametrize("ways", [(), ("trim_significant_figures",), ("trim_significant_figures", "colorize")], ids=str)
def test_tables_are_pytorchs(oracle, ways):
    told = []
    for lib in both(oracle):
        rows = [
            measurement(lib, TIMES, label="L", sub_label="S1", description="D1"),
            measurement(lib, [t * 20 for t in TIMES], label="L", sub_label="S2", description="D1"),
            measurement(lib, [t * 2 for t in TIMES], label="L", sub_label="S1", description="D2"),
            measurement(lib, TIMES, 10, label="L", sub_label="S1", description="D1", num_threads=2),
            measurement(lib, TIMES, 10, label="L2", sub_label="S1", description="D1", num_threads=2),
        ]
        table = lib.utils.benchmark.Compare(rows)
        for way in ways:
            getattr(table, way)()
        told.append(str(table))

    assert told[1] == told[0]


def test_statements_run_with_the_threads_asked_for():
    seen, before = [], fb.get_num_threads()
    timer = benchmark.Timer("seen.append(threads())", globals={"seen": seen, "threads": fb.get_num_threads}, num_threads=1)

    assert timer.timeit(10).number_per_run == 10
    assert set(seen) == {1}
    assert fb.get_num_threads() == before


def test_replicates_go_on_for_the_time_asked_for():
    now = [0.0]

    def clock():
        return now[0]

    def step():
        now[0] += 0.001

    timer = benchmark.Timer("step()", globals={"step": step}, timer=clock)
    blocked, adaptive, told = timer.blocked_autorange(min_run_time=0.5), timer.adaptive_autorange(), []
    timer.blocked_autorange(lambda number, seconds: told.append((number, seconds)), min_run_time=0.01)

    assert sum(blocked.raw_times) >= 0.5
    assert blocked.median == pytest.approx(0.001)
    assert len(adaptive.raw_times) > 3
    assert told[0][1] == pytest.approx(told[0][0] * 0.001)


def test_merging_and_pickling():
    first = measurement(fb, TIMES, 100, label="L")
    merged = benchmark.Measurement.merge([first, measurement(fb, TIMES, 10, label="L"), measurement(fb, TIMES, 10, label="M")])

    assert [(m.number_per_run, len(m.raw_times)) for m in merged] == [(1, 8), (1, 4)]
    assert pickle.loads(pickle.dumps(first)).times == first.times
    assert first.label == "L"


def test_mistakes_are_named():
    with pytest.raises(SyntaxError):
        benchmark.Timer("x +")
    with pytest.raises(NameError, match="nowhere"):
        benchmark.Timer("nowhere").timeit(1)
    with pytest.raises(NotImplementedError, match=r"C\+\+"):
        benchmark.Timer("x", language=benchmark.Language.CPP)
    with pytest.raises(ValueError, match="Measurement"):
        benchmark.Compare([1])


@pytest.mark.skipif(
    shutil.which("valgrind") is None or platform.machine() != "x86_64", reason="valgrind is not installed, or counts for another processor"
)
def test_instructions_are_counted_by_function():
    timer = benchmark.Timer("m(x)", "x = torch.ones(2, 4)", globals={"m": fb.nn.Linear(4, 4)})

    once, again = timer.collect_callgrind(20, repeats=2, collect_baseline=False, retain_out_file=True)

    assert 20 * 1000 < once.counts() < 20 * 1_000_000
    assert abs(once.counts() - again.counts()) < 0.2 * once.counts()
    assert any("PyEval" in function for _, function in once.stats())
    inclusive = [count for count, function in once.stats(inclusive=True) if "'2" not in function]  # valgrind's mark of calls in calls
    assert 0.9 * once.counts() < inclusive[0] <= once.counts()
    assert once.stmt_callgrind_out.startswith("# callgrind format")


def test_what_cannot_be_counted_is_told(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "")
        with pytest.raises(RuntimeError, match="valgrind and callgrind_annotate not found"):
            benchmark.Timer("pass").collect_callgrind()
    if shutil.which("valgrind") is not None:
        with pytest.raises(ValueError, match=r"globals\['f'\] is a builtin_function"):
            benchmark.Timer("f()", globals={"f": len}).collect_callgrind()
        with pytest.raises(ValueError, match="must be positive, got 0"):
            benchmark.Timer("pass").collect_callgrind(0)


def _tables(lib):
    benchmark = importlib.import_module(f"{lib.__name__}.utils.benchmark")

    def measured(times, setup="pass", stmt="x", **names):
        return benchmark.Measurement(10, times, benchmark.TaskSpec(stmt, setup, **names))

    groups = [
        [
            measured([1e-2], label="l", sub_label=name, description="d", env=env, num_threads=threads)
            for name, env, threads in (("s", "A", 1), ("long", "A", 1), ("s", "Other", 4), ("long", "A", 4))
        ],
        [measured([3e-4], label="l", sub_label="a", description="1"), measured([11.0], label="l", sub_label="b", description="1"),
         measured([1.23456e-3], label="l", sub_label="c", description="2")],
        [measured([3e-4, 3.2e-4, 3.4e-4], label="l", sub_label="a", description="1"), measured([1e-2], description="1")],
    ]  # fmt: skip
    for group in groups:
        for change in ((), ("trim_significant_figures",), ("colorize", "highlight_warnings")):
            table = benchmark.Compare(group)
            for name in change:
                getattr(table, name)()
            yield str(table)
    for setup in ("pass", "import a", "import a\nimport b"):
        for stmt in ("x", "x\ny"):
            for names in ({}, {"label": "l", "description": "d"}, {"sub_label": "q", "env": "E"}):
                one = measured([1e-6], setup, stmt, **names)
                yield repr(one).partition("\n")[2], one.title, one.env, one.as_row_name, one.task_spec.summarize()
    none = measured([])
    yield none.mean, none.median, none.iqr, none.has_warnings


def test_tables_and_summaries_are_pytorchs(oracle):
    assert list(_tables(fb)) == list(_tables(oracle))


def test_languages_that_are_none_are_told_from_one_that_is_not_timed(oracle):
    for lib in (fb, oracle):
        with pytest.raises(ValueError, match="zzz"):
            importlib.import_module(f"{lib.__name__}.utils.benchmark").Timer("1", language="zzz")
    with pytest.raises(NotImplementedError, match=r"C\+\+"):
        fb.utils.benchmark.Timer("1", language="cpp")
