"""The one rule by which compiled kernels take over from what computes without them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

import flambeau as fb
from flambeau_kernels import engines, takeover
from flambeau_kernels.takeover import AT_ONCE, CALL, FORMULA, KERNEL, LIBRARY, LOADED, Waiting

ElementwiseOp = importlib.import_module("flambeau.ops._spec.elementwise").ElementwiseOp  # the package's name of it is the decorator


@pytest.fixture(autouse=True)
def _nothing_is_paid(monkeypatch):
    monkeypatch.setattr(takeover, "_paid_by_all", 0.0)
    monkeypatch.delitem(sys.modules, "flambeau_kernels.engine.machine_code.llvm", raising=False)


def calls_until(waiting, answer, cost=1.0):
    """The number of the first call for which `due` gives `answer`, and the other answers before it."""
    others = set()
    for n in range(1, 100_000):
        found = waiting.due(cost)
        if found is answer:
            return n, others
        others.add(found)
    raise AssertionError(f"never {answer}")


def test_a_cached_kernel_is_looked_for_before_one_is_compiled(monkeypatch):
    monkeypatch.setattr(takeover, "_paid_by_all", LIBRARY)
    waiting = Waiting(KERNEL)

    looked_at, before = calls_until(waiting, False)
    assert looked_at == pytest.approx(LOADED / CALL, abs=1)
    assert before == {None}
    assert calls_until(waiting, True)[0] == pytest.approx((KERNEL - LOADED) / CALL, abs=1)
    assert waiting.due() is None


def test_the_library_is_paid_for_by_all(monkeypatch):
    one, other = Waiting(FORMULA), Waiting(FORMULA)
    for _ in range(round(LIBRARY / CALL) - 30):
        assert one.due() is None

    assert other.due(28) is None
    assert other.due(2) is False
    assert one.due() is True


def test_calls_that_lose_more_count_more(monkeypatch):
    monkeypatch.setattr(takeover, "_paid_by_all", LIBRARY)
    cheap, _ = calls_until(Waiting(FORMULA), True, takeover.of_elements(16))
    dear, _ = calls_until(Waiting(FORMULA), True, takeover.of_elements(1 << 20))

    assert dear == 1 < 100 < cheap


def test_kernels_with_bits_of_their_own_are_had_from_the_first_call_on():
    waiting = Waiting(AT_ONCE)

    assert waiting.due() is True
    assert waiting.due() is None


def test_the_cache_is_asked_once_for_each_kind_of_operands(monkeypatch):
    monkeypatch.setattr(takeover, "_paid_by_all", LIBRARY)
    waiting = Waiting(FORMULA)
    calls_until(waiting, False)

    assert [waiting.paid_for(1.0, kind) for kind in ("some", "other", "some", "other", "third")] == [False, False, None, None, False]
    assert waiting.paid_for() is False
    while waiting.paid < FORMULA:
        waiting.due()
    assert waiting.paid_for(1.0, "some") is True


def test_sums_of_few_elements_ask_the_cache_once(monkeypatch):
    import numpy as np

    from flambeau_kernels import arithmetic

    asked = []
    monkeypatch.setattr(takeover, "_paid_by_all", LIBRARY)
    monkeypatch.setattr(arithmetic, "specialise", lambda *given: asked.append(given))
    plus, a = arithmetic.Arithmetic(lambda a, b: a + b, np.add), np.zeros(8, np.float32)
    for _ in range(round(LOADED / CALL) * 16 + 40):
        plus.into(a, a)

    assert len(asked) == 1
    assert asked[0][-1] is False


def test_what_is_compiled_for_each_kind_of_operands_stays_due(monkeypatch):
    monkeypatch.setattr(takeover, "_paid_by_all", LIBRARY)
    waiting = Waiting(FORMULA)
    found = [waiting.paid_for() for _ in range(round(FORMULA / CALL) + 5)]

    loaded, compiled = found.index(False), found.index(True)
    assert loaded + 1 == pytest.approx(LOADED / CALL, abs=1)
    assert found == [None] * loaded + [False] * (compiled - loaded) + [True] * (len(found) - compiled)
    waiting.again()
    assert waiting.paid_for() is None


CALLS = """
import sys
import flambeau as fb
from flambeau.ops._spec import OPS
from flambeau_kernels.formula import refuse
x, calls = fb.randn(40), int(sys.argv[1])
x.exp()                                               # whose formula is compiled from the first call on, by LLVM's library
for _ in range(calls):
    x - x
print(OPS["sub"].short.direct is not refuse)
"""


def test_a_formula_that_an_earlier_process_compiled_takes_over_after_some_calls(tmp_path):
    if not engines.chosen().compiles or engines.chosen().name == "numba":
        pytest.skip("nothing that is compiled is kept")

    def takes_over(calls):
        environment = os.environ | {"FLAMBEAU_CACHE": str(tmp_path / "kernels")}
        done = subprocess.run([sys.executable, "-c", CALLS, str(calls)], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()[-1] == "True"

    few, many = round(LOADED / CALL) + 5, round(FORMULA / CALL) + 5
    assert [takes_over(few), takes_over(many), takes_over(few)] == [False, True, True]


def test_operands_for_which_no_builtin_answers_stay_with_numpy_however_often_they_come(monkeypatch):
    monkeypatch.setattr(takeover, "_paid_by_all", LIBRARY)
    chosen, x, zero = fb.ones(4, dtype=fb.bool), fb.ones(4), fb.zeros(())  # dtypes differ, and one has no dimensions
    for _ in range(round(FORMULA / CALL) + 5):
        fb.where(chosen, x, zero)

    answers = []
    monkeypatch.setattr(ElementwiseOp, "_run_anew", lambda *args: answers.append(args))
    assert fb.where(chosen, x, zero).tolist() == [1, 1, 1, 1]
    assert not answers
