"""The searches over random calls of ops and random modules, for some seconds; the commands beside it are for more."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz import arena

HERE = Path(__file__).parent


def test_short_searches_with_other_seeds_are_about_other_names():
    names = [f"name {k}" for k in range(50)]
    first = [{arena.spread(names, seed)(unit) for unit in range(5)} for seed in range(20)]

    assert all(len(found) == 5 for found in first)
    assert len(set().union(*first)) > 35
    assert {arena.spread(names, 3)(unit) for unit in range(50, 100)} == set(names)


@pytest.mark.parametrize("error", ["OverflowError", "ZeroDivisionError"])
def test_errors_of_numbers_are_failures_unless_raised_on_purpose_where_pytorch_refuses_too(error: str) -> None:
    raised, answers = arena.Outcome(error=error, kinds=(error, "ArithmeticError")), arena.Outcome(value=1)

    assert arena.judge(raised, arena.Outcome(error="TypeError")) == "type"
    assert arena.judge(raised, answers) == "untyped"
    assert arena.judge(raised._replace(fell=True), arena.Outcome(error="TypeError")) == "untyped"


def test_damaged_programs_may_raise_what_pytorch_raises_without_the_damage():
    asserts = arena.Outcome(error="AssertionError", fell=True, kinds=("AssertionError", "Exception", "BaseException", "object"))

    assert arena.judge_damaged(asserts, lambda: asserts) is None
    assert arena.judge_damaged(asserts, lambda: arena.Outcome(value=1)) == "untyped"
    assert arena.without_damage("alone()\nx = 1\ntamper(3, x)\nresult = x") == "x = 1\nresult = x"


def _libraries() -> list[Any]:
    """Two libraries that have nothing but their names."""
    nn = SimpleNamespace(functional=None)
    return [SimpleNamespace(__name__=name, manual_seed=lambda seed: None, nn=nn, Tensor=int) for name in ("ours", "theirs")]


ENDS = {
    "abort": "os._exit(3)", "hang": "time.sleep(60)", "untyped": "{}['key']", "fell": "fall()", "refused": "int('x')", "right": "None",
}  # fmt: skip


def test_programs_that_end_badly_are_failures_and_the_search_goes_on():
    ours: dict[str, Any] = {"os": os, "time": time}
    exec(compile("def fall():\n    return ()[0]", "<flambeau test>", "exec"), ours)

    def programs(unit):
        yield f"if torch.__name__ == 'ours':\n    {list(ENDS.values())[unit]}"

    report = arena.run(range(len(ENDS)), programs, _libraries(), (ours, {}), jobs=2, limit=1.0)

    assert {f.kind: f.unit for f in report.findings.values()} == {kind: unit for unit, kind in enumerate(ENDS) if kind != "right"}
    assert sorted(f.kind for f in report.failures()) == sorted(arena.FAILURES)
    assert "4 failures (abort 1, hang 1, untyped 1, fell 1, refused 1," in report.summary()


def test_what_takes_pytorch_as_long_is_given_up_before_the_limit():
    def programs(unit):
        yield "while True:\n    pass"

    began = time.monotonic()
    report = arena.run(range(1), programs, _libraries(), ({}, {}), jobs=1, limit=20.0)

    assert report.counts == {"both hang": 1}
    assert time.monotonic() - began < 15.0


def test_what_pytorch_dies_of_alone_is_no_finding():
    dies, lives = "import os; os._exit(3) if torch.__name__ == '{}' else 0", "pass"
    libs = _libraries()

    assert arena._is_theirs(libs, ({}, {}), [dies.format("theirs"), lives], 30.0)
    assert not arena._is_theirs(libs, ({}, {}), [dies.format("ours"), lives], 30.0)
    assert not arena._is_theirs(libs, ({}, {}), [lives, dies.format("theirs")], 30.0)


@pytest.mark.parametrize(("command", "count"), [("ops", 1200), ("modules", 300)])
def test_random_programs_end_as_pytorch_ends_them(command: str, count: int, oracle: Any, fresh_python: Any) -> None:
    said = fresh_python(HERE / f"{command}.py", f"--{'calls' if command == 'ops' else command}", count, "--seed", 1)

    assert " 0 failures (abort 0, hang 0," in said, said
    assert int(said.rpartition(" programs")[0].rpartition(" ")[2]) > count / 2, said
    assert int(said.rpartition(" answered by both")[0].rpartition(" ")[2]) > count / 4, said
