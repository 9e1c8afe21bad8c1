"""Programs that catch what operations raise by their values, in ``mode="reduce-overhead"``: as uncompiled ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as fb
from flambeau.compiler._handlers import would_be_caught
from unseen import counted


def indexed(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
    try:
        y = x[i]
    except IndexError:
        y = fb.tensor(-1.0)
    return y * 2


def gathered(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
    try:
        y = fb.gather(x, 0, i)
    except RuntimeError:
        return x * 0 - 1
    return y + 1


def inside(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
    return x.sin().index_select(0, i)


def caught_by_who_calls(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
    with fb.no_grad():
        try:
            return inside(x, i) * 2
        except IndexError as error:
            return x * len(str(error)[:3])


def noted(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
    y = x * 2
    try:
        return fb.nn.functional.embedding(i, y.view(3, 1))
    finally:
        y.add_(1)


def suppressed(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
    y = x * 2
    with contextlib.suppress(IndexError):
        y = x[i] * 3
    return y + 1


class Over:
    """A context manager that passes over errors of indices."""

    def __enter__(self) -> Over:
        return self

    def __exit__(self, kind: Any, *_: object) -> bool:
        return kind is not None and issubclass(kind, (IndexError, RuntimeError))


@contextlib.contextmanager
def passing_over() -> Iterator[None]:
    with contextlib.suppress(IndexError):
        yield


def within_one_of_its_own(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
    over, y = Over(), x * 2
    with fb.no_grad(), over:
        y = fb.gather(x, 0, i)
    with passing_over():
        y = y + x.index_select(0, i).sum()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(IndexError))
        y = y + fb.take(x, i).sum()
    return y + 1


class Caught(fb.nn.Module):
    def forward(self, x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
        try:
            return fb.take(x, i) + 1
        except IndexError:
            return x.cos()


@pytest.mark.parametrize("f", [indexed, gathered, caught_by_who_calls, noted, suppressed, within_one_of_its_own, Caught()])
@pytest.mark.parametrize("pattern", ["rrrrrrrr", "wwwwwwww", "rrrrrwrr", "wrrrrrwr", "rwrwrwrw"])
def test_what_is_caught_is_raised_where_it_is_called(f: Callable[..., Any], pattern: str) -> None:
    x, right, wrong = fb.tensor([0.1, 0.2, 0.3]), fb.tensor([0, 2]), fb.tensor([0, 9])
    compiled = fb.compile(f, mode="reduce-overhead")

    def outcome(g: Callable[..., Any], which: str) -> Any:
        try:
            return g(x, right if which == "r" else wrong).tolist()
        except IndexError as error:
            return type(error)

    assert [outcome(compiled, which) for which in pattern] == [outcome(f, which) for which in pattern]


def test_what_nobody_catches_is_replayed() -> None:
    def f(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
        with fb.no_grad(), contextlib.nullcontext():
            y = x[i]
        made = fb.no_grad()
        with fb.set_grad_enabled(True), made:
            return y[: len(i)][i * 0] * 2 + y * 0

    seen, calls = counted(f)
    compiled = fb.compile(seen, mode="reduce-overhead")
    x, i = fb.ones(3), fb.tensor([0, 2])
    try:                                              # of the caller's own, which is none of the function's
        made = [compiled(x, i) for _ in range(8)]
    except IndexError:
        made = []

    assert [one.tolist() for one in made] == [[2.0, 2.0]] * 8
    assert len(calls) < 8


def test_which_context_managers_pass_errors_on() -> None:
    told = []

    def seen(*managers: Any) -> None:
        with managers[0]:
            told.append(would_be_caught())

    def by_name() -> None:
        with fb.profiler.record_function("here"), fb.autocast("cpu"):
            told.append(would_be_caught())
        with contextlib.nullcontext():
            told.append(would_be_caught())
        with fb.no_grad() if told else Over():        # one of two
            told.append(would_be_caught())
        with Over():
            told.append(would_be_caught())
        told.append(would_be_caught())

    def function(x: fb.Tensor) -> fb.Tensor:
        with fb.no_grad():
            by_name()
        seen(contextlib.suppress(IndexError))
        return x + 1

    fb.compile(function, mode="reduce-overhead")(fb.ones(3))

    assert told == [False, False, True, True, False, True]


def divided(a: fb.Tensor, b: fb.Tensor, seen: list[str]) -> fb.Tensor:
    try:
        y = a // b
    except RuntimeError:
        seen.append("caught")
        y = a
    seen.append("divided")
    a % (b + 1)                                       # nobody reads it, but it fails for -1
    seen.append("done")
    return y + 1


@pytest.mark.parametrize("how", [{}, {"mode": "reduce-overhead"}, {"mode": "max-autotune"}, {"dynamic": True}], ids=str)
@pytest.mark.parametrize("size", [5, 100_000])
def test_integers_divided_by_zero_fail_where_they_are_divided(how: dict[str, Any], size: int) -> None:
    compiled = fb.compile(divided, **how)
    for _ in range(3):
        for divisor in (2, 0, -1, 3):
            a, b = fb.arange(size), fb.full((size,), divisor)
            outcomes = []
            for f in (divided, compiled):
                seen: list[str] = []
                try:
                    result: Any = f(a, b, seen).tolist()
                except RuntimeError as error:
                    result = str(error)
                outcomes.append((result, seen))

            assert outcomes[0] == outcomes[1]


def test_an_index_out_of_range_fails_where_it_is_used_before_a_replay() -> None:
    seen: list[str] = []

    @fb.compile(mode="reduce-overhead")
    def picked(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
        y = x.index_select(0, i)
        seen.append("after")
        return y + 1

    good, bad = fb.tensor([0, 1]), fb.tensor([0, 9])
    for i in (good, good, bad, good, bad):
        with contextlib.suppress(IndexError):
            picked(fb.ones(3, 4), i)

    assert seen == ["after"] * 3
