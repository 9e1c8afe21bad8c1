"""Compiled functions stay with the faster of two ways, which have the same bits."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau.compiler import _functions, _programs
from flambeau_kernels.cpu import tier
from fused_programs import same

pytestmark = pytest.mark.skipif(not tier.compiles(), reason="nothing is compiled here")


@pytest.fixture(autouse=True)
def _calls_are_timed(_calls_wait_for_kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_functions, "TRIALS", 3)
    monkeypatch.setattr(_programs, "WORTH", 0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The seconds that a call takes: `clock["fused"]` with a chain that runs as one, `clock["plain"]` otherwise."""
    seconds = {"fused": 1.0, "plain": 1.0, "now": 0.0, "calls": 0}
    monkeypatch.setattr(_functions, "perf_counter", lambda: seconds["now"])
    plain = _programs.Chain.run

    def run(self: Any, *args: Any) -> Any:
        seconds["calls"] += 1
        seconds["now"] += seconds["fused"] - seconds["plain"]
        return plain(self, *args)

    monkeypatch.setattr(_programs.Chain, "run", run)
    monkeypatch.setattr(_programs.Program, "natively", lambda self, inputs: None)  # which would run without telling
    return seconds


def chain(clock: Any) -> Any:
    def f(x: fb.Tensor) -> fb.Tensor:
        clock["now"] += clock["plain"]
        return (x * 0.5 + 1.0).sin()

    return f


@pytest.mark.parametrize(("fused", "stays"), [(0.5, True), (2.0, False)])
def test_the_faster_way_stays(fused: float, stays: bool, clock: Any) -> None:
    clock["fused"] = fused
    f, x = chain(clock), fb.randn(64, 1024)
    compiled, expected = fb.compile(f, mode="max-autotune"), f(x)
    for _ in range(_programs.FUSED_AFTER + 2 * 3):
        assert same(compiled(x), expected)
    assert clock["calls"] == 3                        # by turns with calls as they are

    clock["calls"] = 0
    for _ in range(4):
        assert same(compiled(x), expected)
    assert clock["calls"] == (4 if stays else 0)


def test_other_looks_are_tried_by_themselves(clock: Any) -> None:
    clock["fused"] = 2.0
    compiled = fb.compile(chain(clock), mode="max-autotune")
    for x in (fb.randn(64, 1024), fb.randn(32, 1024)):
        clock["calls"] = 0
        for _ in range(12):
            compiled(x)
        assert clock["calls"] == 3


def test_what_records_gradients_is_not_tried(clock: Any) -> None:
    clock["fused"] = 2.0
    compiled, x = fb.compile(chain(clock), mode="max-autotune"), fb.randn(64, 1024, requires_grad=True)
    for _ in range(12):
        compiled(x)

    assert clock["calls"] == 12 - _programs.FUSED_AFTER


def test_exceptions_and_side_effects_of_trials_are_those_of_calls(clock: Any) -> None:
    seen: list[int] = []

    @fb.compile(mode="max-autotune")
    def f(x: fb.Tensor, n: float) -> fb.Tensor:
        seen.append(1)
        y = (x * n).sin() + 1.0
        if n > 6.5:
            raise KeyError("too large")
        return y

    x = fb.randn(64, 1024)
    for k in range(12):
        if k == 7:
            with pytest.raises(KeyError, match="too large"):
                f(x, 7.0)
        else:
            f(x, 1.0)
    assert len(seen) == 12


def test_a_short_chain_among_many_operations_that_join_none_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs, "WORTH", 1 << 20)
    weight = fb.randn(512, 512)

    def f(x: fb.Tensor, count: int) -> fb.Tensor:
        y = (x * 2 + 1).relu()
        for _ in range(count):
            y = y.roll(1, 0)
        return y @ weight

    x = fb.randn(512, 512)
    for count, is_plain in ((0, False), (20, True)):
        compiled = fb.compile(f)
        expected = f(x, count)
        for _ in range(5):
            assert fb.equal(compiled(x, count), expected)
        assert (_functions.PLAIN in compiled.explain.__self__.known.values()) is is_plain
