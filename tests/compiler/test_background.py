"""Kernels that are compiled in the background: no call waits for them, and taking over changes no bit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import flambeau as fb
from flambeau._inductor import config
from flambeau.compiler import _background, _programs
from flambeau_kernels.cpu import tier
from fused_programs import same

pytestmark = pytest.mark.skipif(not tier.compiles(), reason="nothing is compiled here")


@pytest.fixture(autouse=True)
def _in_the_background(_calls_wait_for_kernels: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(config, "compile_threads", 2)
    monkeypatch.setattr(_programs, "WORTH", 0)
    yield
    assert _background.wait(60)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An event that compiling waits for; `done` has the threads that have compiled something."""
    opened: Any = threading.Event()
    done: list[str] = []
    plain = _background._start

    def start(kernel: _background.Kernel) -> None:
        prepare = kernel.prepare

        def wait_and_prepare() -> None:
            assert opened.wait(60)
            prepare()
            done.append(threading.current_thread().name)

        kernel.prepare = wait_and_prepare
        plain(kernel)

    monkeypatch.setattr(_background, "_start", start)
    opened.done = done
    yield opened
    opened.set()


def chain(x: fb.Tensor, c: float) -> fb.Tensor:
    return ((x * c).sin() + x).exp() * 0.5 - x


def rows(x: fb.Tensor, c: float) -> fb.Tensor:
    return fb.softmax((x * c).tanh() + x, -1) * x


class Counted:
    """How often fused parts have run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cls: Any) -> None:
        self.runs, plain = 0, cls.run

        def run(part: Any, operands: Any) -> Any:
            self.runs += 1
            return plain(part, operands)

        monkeypatch.setattr(cls, "run", run)


@pytest.mark.parametrize("f", [chain, rows])
def test_operations_answer_until_the_kernel_is_there(f: Any, gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, _programs.Chain if f is chain else _programs._rows.Rows)
    compiled, x, c = fb.compile(f), fb.randn(64, 1024), 0.1 + len(f.__name__)
    expected = f(x, c)

    assert all(same(compiled(x, c), expected) for _ in range(6))
    assert counted.runs == 0
    gate.set()
    assert _background.wait(60)
    assert gate.done == ["flambeau compile"]
    assert all(same(compiled(x, c), expected) for _ in range(3))
    assert counted.runs == 3


def test_gradients_run_one_after_the_other_until_their_kernel_is_there(gate: Any) -> None:
    from flambeau.compiler import _backward

    compiled, x = fb.compile(chain), fb.randn(64, 1024, requires_grad=True)
    (expected,) = fb.autograd.grad(chain(x, 0.7).sum(), x)
    taken: list[bool] = []
    plain = _backward.Group.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_backward.Group, "run", lambda *args: taken.append(plain(*args)) or taken[-1])
        for _ in range(4):
            assert same(fb.autograd.grad(compiled(x, 0.7).sum(), x)[0], expected)
        assert not any(taken)
        gate.set()
        assert _background.wait(60)
        for _ in range(3):
            assert same(fb.autograd.grad(compiled(x, 0.7).sum(), x)[0], expected)
            assert _background.wait(60)
    assert taken[-1]
    assert len(gate.done) == 2


def test_with_one_thread_a_call_waits(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, _programs.Chain)
    with config.patch("compile_threads", 1):
        compiled, x = fb.compile(chain), fb.randn(64, 1024)
        for _ in range(_programs.FUSED_AFTER + 1):
            compiled(x, 0.3)

    assert counted.runs == 1
    assert not gate.done


def test_what_cannot_be_compiled_is_said_by_the_call_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise RuntimeError("no code for this")

    monkeypatch.setattr(_programs.kernels, "planned", refuse)
    compiled, x = fb.compile(chain), fb.randn(64, 1024)
    for _ in range(6):
        assert same(compiled(x, 0.9), chain(x, 0.9))
        assert _background.wait(60)


def test_several_threads_may_call_while_kernels_are_compiled() -> None:
    compiled, x = fb.compile(chain), fb.randn(64, 1024)
    expected = [chain(x, c) for c in (0.2, 0.4)]
    results: list[Any] = []

    def call(at: int) -> None:
        results.extend([(compiled(x, (0.2, 0.4)[at % 2]), expected[at % 2]) for _ in range(30)])

    threads = [threading.Thread(target=call, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(same(made, wanted) for made, wanted in results)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_ends_and_forks_while_kernels_are_compiled() -> None:
    code = """
import os
import flambeau as fb
f = fb.compile(lambda x: (x.sin() * 0.123 + x).exp() - x)
x = fb.randn(512, 1024)
for _ in range(4):
    f(x)
child = os.fork()
for _ in range(4):
    f(x)
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {**os.environ, "FLAMBEAU_CACHE": "off"}

    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_many_small_operations_that_join_no_kernel_are_not_recorded_for_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs, "WORTH", 1 << 20)

    def f(x: fb.Tensor) -> fb.Tensor:
        y = ((x * 2 + 1).exp() - x).mean(0)
        for _ in range(200):
            y = y * 0.99
        return y

    compiled, x = fb.compile(f), fb.randn(1024, 512)
    for _ in range(4):
        compiled(x)

    (segment,) = compiled.explain().segments
    assert segment.calls == 2                         # when it was known what joins
