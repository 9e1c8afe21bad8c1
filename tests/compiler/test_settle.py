"""What a known path has pending is computed by one native call: when it is, when it is left to Python, and what is to be seen of it."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import pytest

import flambeau as fb
from flambeau.compiler import _array_runs, _programs, _recorder
from flambeau_kernels import backend, set_backend
from flambeau_kernels.engine.calls import launch_table, settle
from fused_programs import same

pytestmark = pytest.mark.skipif(settle.builtin() is None or not launch_table.available(), reason="native code computes nothing here")
ENOUGH = _programs.FUSED_AFTER + _array_runs.TABULATED_AT[0] + 1


@pytest.fixture(autouse=True)
def _small_programs_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recorder, "RECORDED_FROM", 1)
    monkeypatch.setattr(_programs, "FUSED_FROM", 1)
    monkeypatch.setattr(_programs, "WORTH", 0)


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why the programs end that Python has run."""
    found: list[str] = []
    plain = _recorder.Recorder._run_program

    def run(self: Any, step: Any, why: str) -> None:
        found.append(why)
        plain(self, step, why)

    monkeypatch.setattr(_recorder.Recorder, "_run_program", run)
    return found


def test_calls_that_are_known_are_computed_natively(by_python: list[str]) -> None:
    w = fb.nn.Parameter(fb.randn(6), requires_grad=False)

    def f(x: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        y = x * 0.5 + w
        return y.tanh(), y.abs() - x

    compiled = fb.compile(f)
    for _ in range(ENOUGH):
        compiled(fb.randn(4, 6))
    by_python.clear()
    for _ in range(3):
        x = fb.randn(4, 6)
        for found, expected in zip(compiled(x), f(x), strict=True):
            assert type(found) is fb.Tensor
            assert same(found, expected)
            assert (found.is_leaf, found.requires_grad, found.grad, found._version) == (True, False, None, 0)

    assert by_python == []


def test_results_are_tensors_of_their_own() -> None:
    compiled = fb.compile(lambda x: (x * 2.0).sin() + x)
    x = fb.randn(8)
    for _ in range(ENOUGH):
        compiled(x)
    first, second = compiled(x), compiled(x)
    view, expected = first[2:5], second.clone()
    view += 1
    first.requires_grad_(True)

    assert fb.equal(first[2:5].detach(), expected[2:5] + 1)
    assert fb.equal(second, expected)
    assert (first._version, second._version) == (1, 0)


def test_values_that_are_asked_for_in_the_midst_begin_the_next_segment(by_python: list[str]) -> None:
    def f(x: fb.Tensor) -> tuple[fb.Tensor, float]:
        y = (x * 0.5).exp()
        first = y.tolist()[0]
        return (y + x).tanh() * 2.0, first

    compiled = fb.compile(f)
    for _ in range(ENOUGH + 3):
        x = fb.randn(4, 5)
        by_python.clear()
        found, expected = compiled(x), f(x)
        assert found[1] == expected[1]
        assert same(found[0], expected[0])
    assert by_python == []


def test_operations_in_place_are_counted(by_python: list[str]) -> None:
    def f(x: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        y = x * 2.0 + 1.0
        z = y.abs()
        z += x
        z *= 0.5
        y.neg_()
        dropped = z + 1.0
        dropped += z
        del dropped
        return y, z

    compiled = fb.compile(f)
    for _ in range(ENOUGH + 3):
        x = fb.randn(60, 70)
        by_python.clear()
        found, expected = compiled(x), f(x)
        assert all(map(same, found, expected))
        assert [y._version for y in found] == [y._version for y in expected] == [1, 2]
        found[0].add_(1)
        assert found[0]._version == 2
    assert by_python == []


def test_other_results_than_last_time_are_left_to_python(by_python: list[str]) -> None:
    kept: list[Any] = []

    @fb.compile
    def f(x: fb.Tensor, keeps: bool) -> fb.Tensor:
        y = x * 2.0 + 1.0
        if keeps:
            kept.append(y)
        return y.abs() - x

    x = fb.randn(6000)
    for _ in range(ENOUGH):
        f(x, False)
    by_python.clear()
    f(x, False)
    assert by_python == []
    assert fb.equal(f(x, True), (x * 2.0 + 1.0).abs() - x)

    assert len(by_python) == 1
    assert fb.equal(kept[0], x * 2.0 + 1.0)
    assert fb.equal(f(x, False), (x * 2.0 + 1.0).abs() - x)


def test_an_input_that_was_written_to_while_it_was_pending_is_said() -> None:
    x = fb.randn(6000)
    numbers = x.numpy()
    writes = [False]

    @fb.compile
    def f(x: fb.Tensor) -> fb.Tensor:
        y = x * 2.0 + 1.0
        if writes[0]:
            numbers[0] = 5.0
            x._storage[0] += 1                        # as one who writes without an operation counts it
        return y.abs()

    for _ in range(ENOUGH):
        f(x)
    writes[0] = True
    with pytest.raises(RuntimeError, match="was written to by no operation"):
        f(x)
    writes[0] = False

    assert fb.equal(f(x), (x * 2.0 + 1.0).abs())


@pytest.mark.parametrize("how", ["no_grad", "inference_mode", "gradients"])
def test_what_decides_over_results_is_seen(how: str) -> None:
    f = fb.compile(lambda x: (x * 2.0).sin() * x)
    x = fb.randn(5)
    for _ in range(ENOUGH):
        f(x)
    for _ in range(ENOUGH):
        if how == "gradients":
            y = x.clone().requires_grad_(True)
            f(y).sum().backward()
            z = x.clone().requires_grad_(True)
            ((z * 2.0).sin() * z).sum().backward()
            assert same(y.grad, z.grad)
        else:
            with getattr(fb, how)():
                assert f(x).is_inference() is (how == "inference_mode")
        assert not f(x).is_inference()
        assert same(f(x), (x * 2.0).sin() * x)


def test_another_backend_computes_without_the_table(by_python: list[str]) -> None:
    f = fb.compile(lambda x: (x * 2.0).abs() - x)
    x = fb.randn(7000)
    for _ in range(ENOUGH):
        f(x)
    by_python.clear()
    before = backend()
    try:
        set_backend("numpy")
        found = f(x)
    finally:
        set_backend(before)

    assert len(by_python) == 1
    assert fb.equal(found, (x * 2.0).abs() - x)


def test_what_fails_natively_leaves_a_function_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = fb.compile(lambda x: (x * 2.0).abs() - x)
    x = fb.randn(7000)
    given: list[Any] = []
    plain = _programs.Program.natively

    def natively(self: Any, inputs: Any) -> Any:
        walk = plain(self, inputs)

        def run(*arrays: Any) -> Any:
            if given:
                answer = given.pop()
                if answer is MemoryError:
                    raise answer
                return answer
            return walk(*arrays)

        return None if walk is None else run

    monkeypatch.setattr(_programs.Program, "natively", natively)
    for _ in range(ENOUGH):
        compiled(x)
    for answer in (None, (), (1, 2), [1]):
        given.append(answer)
        assert fb.equal(compiled(x), (x * 2.0).abs() - x)
        assert not given
    given.append(MemoryError)
    with pytest.raises(MemoryError):
        compiled(x)
    assert fb.equal(compiled(x), (x * 2.0).abs() - x)


def test_what_runs_while_kernels_do_may_ask_for_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    pending: list[Any] = []
    met: list[Any] = []
    plain = _programs.Program.natively

    def natively(self: Any, inputs: Any) -> Any:
        walk = plain(self, inputs)

        def run(*arrays: Any) -> Any:
            if pending:
                met.append(pending.pop().tolist())    # as a finalizer does
            return walk(*arrays)

        return None if walk is None else run

    monkeypatch.setattr(_programs.Program, "natively", natively)

    @fb.compile
    def f(x: fb.Tensor, asks: bool) -> fb.Tensor:
        y = (x * 2.0).abs() - x
        if asks:
            pending.append(y)
        return y

    x = fb.randn(3000)
    expected = ((x * 2.0).abs() - x).tolist()
    for _ in range(ENOUGH):
        f(x, False)
    for _ in range(3):
        assert f(x, True).tolist() == expected
        assert met.pop() == expected
        assert f(x, False).tolist() == expected


def test_nothing_is_kept() -> None:
    f = fb.compile(lambda x: (x * 2.0).abs() - x)
    x = fb.randn(7000)
    for _ in range(ENOUGH + 3):
        f(x)
    gc.collect()

    def counted() -> list[int]:
        return [sys.getrefcount(o) for o in (fb.Tensor, _recorder.Deferred, x, x._array, x._storage)]

    before, objects = counted(), len(gc.get_objects())
    for _ in range(200):
        last = f(x)
    gone = weakref.ref(last)
    del last
    gc.collect()

    assert gone() is None
    assert all(abs(now - then) < 5 for now, then in zip(counted(), before, strict=True))
    assert len(gc.get_objects()) - objects < 20


def test_threads_call_the_same_function() -> None:
    f = fb.compile(lambda x: (x * 2.0).sin() * x + 1.0)
    inputs = [fb.randn(50) for _ in range(4)]
    expected = [(x * 2.0).sin() * x + 1.0 for x in inputs]
    wrong: list[int] = []

    def call(k: int) -> None:
        wrong.extend(k for _ in range(100) if not fb.equal(f(inputs[k]), expected[k]))

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


BY_ROWS: dict[str, Any] = {
    "softmax": lambda x, y: (x * 2.0 + y).softmax(-1) * y + 1.0,
    "log_softmax": lambda x, y: [(x * 2.0 + y).log_softmax(-1), x - y],
    "layer_norm": lambda x, y: fb.nn.functional.layer_norm(x * 2.0 + y, x.shape[1:], y[0], y[1]) * x,
    "rms_norm": lambda x, y: fb.nn.functional.rms_norm(x * 2.0 + y, x.shape[1:], y[-1]) * x,
    "sum": lambda x, y: ((x * 2.0 + y) * x).sum(-1),
    "mean kept": lambda x, y: (x - (x * y).mean(-1, keepdim=True)) * 2.0,
    "of everything": lambda x, y: ((x * 2.0 + y) * x).sum() * 0.5,
    "parts": lambda x, y: (x * 2.0 + y)[3] + (x - y)[..., :1] * 2.0,
}


@pytest.mark.parametrize("shape", [(64, 96), (200, 500), (4, 6000), (4, 70000)])
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
@pytest.mark.parametrize("name", BY_ROWS)
def test_what_works_by_rows_is_computed_natively(name: str, dtype: Any, shape: tuple[int, ...], by_python: list[str]) -> None:
    f = BY_ROWS[name]
    compiled = fb.compile(f)
    for _ in range(ENOUGH + 4):
        x, y = fb.randn(shape, dtype=dtype), fb.randn(shape, dtype=dtype)
        by_python.clear()
        made, expected = compiled(x, y), f(x, y)

        for a, b in zip(*(found if isinstance(found, list) else [found] for found in (made, expected)), strict=True):
            assert same(a, b)
            assert (a._base is None, a._version, a.requires_grad) == (True, 0, False)
    assert by_python == [] or len(x) == 4 or name == "of everything"  # which are fewer rows than threads share
