"""Modes as decorators of generator functions."""

from __future__ import annotations

import pytest

import flambeau as fb


@fb.no_grad()
def listening(log):
    """Notes what it is sent or thrown, and whether operations are recorded then."""
    try:
        while True:
            try:
                sent = yield len(log)
                log.append((sent, fb.is_grad_enabled()))
            except KeyError as error:
                log.append((str(error), fb.is_grad_enabled()))
    finally:
        log.append(("end", fb.is_grad_enabled()))


def test_an_error_thrown_into_a_generator_of_a_mode_comes_back_with_the_next_value():
    log = []
    running = listening(log)

    got = [next(running), running.throw(KeyError(1)), running.send("a"), running.throw(KeyError(2)), running.send("b")]

    assert got == [0, 1, 2, 3, 4]
    assert log == [("1", False), ("a", False), ("2", False), ("b", False)]
    assert fb.is_grad_enabled()


def test_a_generator_of_a_mode_is_closed_in_it():
    log = []
    running = listening(log)
    next(running)
    running.close()

    assert log == [("end", False)]
    assert fb.is_grad_enabled()


def test_an_error_that_a_generator_of_a_mode_does_not_catch_ends_it():
    log = []
    running = listening(log)
    next(running)
    with pytest.raises(ValueError, match="not mine"):
        running.throw(ValueError("not mine"))

    assert log == [("end", False)]
    assert fb.is_grad_enabled()


def test_a_generator_of_a_mode_may_return_on_an_error():
    @fb.no_grad()
    def returning():
        try:
            yield 1
        except KeyError:
            return "caught"

    running = returning()
    next(running)
    with pytest.raises(StopIteration) as stop:
        running.throw(KeyError())

    assert stop.value.value == "caught"


@pytest.mark.parametrize("mode", [True, False])
def test_the_text_of_a_mode_that_is_set_says_which(mode, oracle):
    with fb.enable_grad():
        ours = repr(fb.set_grad_enabled(mode))
    with oracle.enable_grad():
        assert ours == repr(oracle.set_grad_enabled(mode))
