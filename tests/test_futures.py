"""Futures: one value or exception, waiting threads, callbacks and chains."""

from __future__ import annotations

import threading

import pytest

from flambeau.futures import Future, collect_all, wait_all


def test_a_waiting_thread_gets_the_value():
    future: Future[int] = Future()
    got = []
    thread = threading.Thread(target=lambda: got.append(future.wait()))
    thread.start()
    assert not future.done()
    future.set_result(5)
    thread.join(10)

    assert got == [5]
    assert (future.done(), future.value()) == (True, 5)


def test_an_exception_is_raised_again():
    future: Future[int] = Future()
    future.set_exception(ValueError("foo"))

    for ask in (future.wait, future.value, future.then(lambda f: f.value()).wait):
        with pytest.raises(ValueError, match="foo"):
            ask()


def test_chains_pass_values_and_failures_on():
    future: Future[int] = Future()
    doubled, failed = future.then(lambda f: f.value() * 2), future.then(lambda f: 1 // 0)
    future.set_result(4)

    assert doubled.wait() == 8
    with pytest.raises(ZeroDivisionError):
        failed.wait()


def test_a_future_completes_once():
    future: Future[int] = Future()
    future.set_result(1)

    with pytest.raises(RuntimeError, match="only be marked completed once"):
        future.set_result(2)
    with pytest.raises(RuntimeError, match="not completed"):
        Future().value()
    with pytest.raises(AssertionError, match="not an Exception"):
        Future().set_exception("no")  # type: ignore[arg-type]


def test_a_callback_that_fails_says_so_and_harms_nobody(capsys):
    future: Future[int] = Future()
    called = []
    future.add_done_callback(lambda f: 1 // 0)
    future.add_done_callback(lambda f: called.append(f.value()))
    future.set_result(1)
    future.add_done_callback(lambda f: called.append("late"))

    assert called == [1, "late"]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_all_of_several():
    futures: list[Future[int]] = [Future() for _ in range(3)]
    collected = collect_all(futures)
    for number, future in enumerate(futures):
        assert not collected.done()
        future.set_result(number)

    assert [f.value() for f in collected.wait()] == wait_all(futures) == [0, 1, 2]
    assert collect_all([]).wait() == []
    broken: Future[int] = Future()
    broken.set_exception(KeyError("gone"))
    with pytest.raises(KeyError, match="gone"):
        wait_all([futures[0], broken])


def test_devices_need_an_index():
    with pytest.raises(ValueError, match="indices"):
        Future(devices=["cpu"])
