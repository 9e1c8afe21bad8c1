"""Programs of launches as one native call: the same arrays, for other inputs too, and nothing lost or kept."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

import flambeau_kernels as kernels
from flambeau_kernels import hot_calls
from flambeau_kernels.engine.calls import launch_table
from flambeau_kernels.engine.calls.direct import builtin
from flambeau_kernels.engine.calls.launch_table import LaunchTable, Unknown
from flambeau_kernels.formula import Formula

pytestmark = pytest.mark.skipif(not launch_table.available(), reason="native code does not walk tables here")

rng = np.random.default_rng(0)
MIX = Formula(lambda a, b: a * b + a, "mixed")
HALF = Formula(lambda a: a * 0.5, "halved")


def array(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def specialised(formula: Formula, *operands: Any) -> Any:
    kernels.specialise(formula, operands, np.empty_like(operands[0]), operands[0].dtype)
    return builtin(formula, "direct")


@pytest.fixture
def program() -> Any:
    """A table of two formulas, a view, a new array and a callable of Python; its builtin, and the same in numpy."""
    a, b = array(3, 4), array(3, 4)
    table = LaunchTable([a, b])
    mixed = table.call(specialised(MIX, a, b), a, b)
    flat = table.view(mixed, mixed.reshape(4, 3)[1:, ::2])
    table.new((5,), np.dtype(np.float64))
    half = table.call(specialised(HALF, a), b)
    pair = table.call_any(lambda x, y: (x + 1, y), "pair", half, 2.5)
    more = table.item(pair, 0)
    run = table.finish([mixed, flat, more])

    def expected(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        mixed = a * b + a
        return [mixed, mixed.reshape(4, 3)[1:, ::2], b * np.float32(0.5) + 1]

    return table, run, expected


def test_a_table_gives_what_its_program_gives(program: Any) -> None:
    table, run, expected = program
    for _ in range(3):
        a, b = array(3, 4), array(3, 4)
        results = run(a, b)

        assert all(np.array_equal(x, y) and x.strides == y.strides for x, y in zip(results, expected(a, b), strict=True))
    assert (table.native, table.others) == (2, ["pair"])


def test_views_hold_what_they_are_views_of(program: Any) -> None:
    _, run, expected = program
    a, b = array(3, 4), array(3, 4)
    view = run(a, b)[1]
    other = [array(3, 4) for _ in range(50)]          # which would take the place of memory that was given back

    assert np.array_equal(view, expected(a, b)[1])
    assert view.flags.writeable
    assert len(other) == 50


def test_inputs_of_other_looks_are_refused(program: Any) -> None:
    _, run, _ = program
    a, b = array(3, 4), array(3, 4)

    assert run(a, b) is not None
    for other in (array(4, 3), array(3, 4).astype(np.float64), array(4, 3).T, array(3, 8)[:, ::2], array(12), None, 1.0, a.view(np.int32)):
        assert run(other, b) is None
        assert run(a, other) is None
    assert run(a) is None
    assert run(a, b, b) is None


def test_references_are_given_back(program: Any) -> None:
    _, run, _ = program
    a, b = array(3, 4), array(3, 4)
    for inputs in ((a, b), (a, a.T)):
        run(*inputs)

    def counts() -> list[int]:
        objects = -1
        while objects != (objects := _objects_left()):    # what other tests left falls level by level: a weak table keeps the next one
            pass
        return [sys.getrefcount(a), sys.getrefcount(b), sys.getrefcount(None), sys.getrefcount(a.dtype), objects]

    rounds = []
    for _ in range(3):
        before = counts()
        for _ in range(4000):
            run(a, b)
            run(a, a.T)
        rounds.append([y - x for x, y in zip(before, counts(), strict=True)])

    # Other threads have references of their own to None and dtypes, for a while; what a call loses, it loses in every round.
    assert all(min(abs(n) for n in of_one) < 200 for of_one in zip(*rounds, strict=True)), rounds
    assert all(of_round[:2] == [0, 0] for of_round in rounds), rounds


def _objects_left() -> int:
    gc.collect()
    return len(gc.get_objects())


def test_errors_of_callables_come_through() -> None:
    a, fails = array(2), []

    def python(x: np.ndarray) -> np.ndarray:
        if fails:
            raise ZeroDivisionError("of the test")
        return x

    table = LaunchTable([a])
    made = table.call(specialised(HALF, a), a)
    run = table.finish([table.call_any(python, "python", made)])
    assert np.array_equal(run(a)[0], a * np.float32(0.5))
    fails.append(1)
    before = sys.getrefcount(a)
    for _ in range(20):
        with pytest.raises(ZeroDivisionError, match="of the test"):
            run(a)

    assert sys.getrefcount(a) == before


def test_a_refusal_of_a_builtin_refuses_the_whole() -> None:
    a, b = array(3, 4), array(4, 5)
    formula = Formula(lambda a: a + 2, "two_more")
    table = LaunchTable([a])
    made = table.call(specialised(formula, a), a)
    refuses: list[int] = []
    run = table.finish([table.call_any(lambda x: None if refuses else x, "maybe", made)])
    assert np.array_equal(run(a)[0], a + 2)
    refuses.append(1)

    assert run(a) is None
    assert LaunchTable([a]).call(formula.direct, "no operand") is None
    assert LaunchTable([b]).call(lambda x: x, b) is None


def test_arrays_from_elsewhere_are_not_taken_for_constants() -> None:
    a = array(3)
    table = LaunchTable([a])
    specialised(HALF, a)
    with pytest.raises(Unknown):
        table.call(builtin(HALF, "direct"), array(3))
    given = table.constant(array(3))
    run = table.finish([table.call(builtin(HALF, "direct"), given)])

    assert np.array_equal(run(array(3))[0], given * np.float32(0.5))


def test_an_operand_may_be_given_back_and_be_a_result_twice() -> None:
    a = array(3)
    table = LaunchTable([a])
    same = table.call_any(lambda x: x, "same", a)
    half = table.call(specialised(HALF, a), same)
    run = table.finish([half, half, a])
    b = array(3)
    first, second, third = run(b)

    assert first is second
    assert third is b
    assert np.array_equal(first, b * np.float32(0.5))


def test_builtins_that_write_to_an_operand_are_run() -> None:
    a, b = array(6), array(6)
    table = LaunchTable([a, b])
    kernels.specialise(MIX, (a, b), np.empty_like(a), a.dtype)
    made = table.call(specialised(HALF, a), a)
    assert table.run(builtin(MIX, "direct_"), made, b)
    run = table.finish([made])
    x, y = array(6), array(6)
    half = x * np.float32(0.5)

    assert np.array_equal(run(x, y)[0], half * y + half)


def test_threads_walk_one_table_at_once(program: Any) -> None:
    _, run, expected = program
    wrong: list[int] = []

    def walk(seed: int) -> None:
        own = np.random.default_rng(seed)
        for _ in range(300):
            a, b = (own.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
            if not all(np.array_equal(x, y) for x, y in zip(run(a, b), expected(a, b), strict=True)):
                wrong.append(seed)

    threads = [threading.Thread(target=walk, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_the_builtin_outlives_its_table() -> None:
    a = array(3)
    table = LaunchTable([a])
    run = table.finish([table.call(specialised(HALF, a), a)])
    del table
    gc.collect()

    assert np.array_equal(run(a)[0], a * np.float32(0.5))


def test_another_choice_of_products_is_another_state() -> None:
    before = launch_table.state()
    hot_calls.start_over()

    assert launch_table.state() != before
