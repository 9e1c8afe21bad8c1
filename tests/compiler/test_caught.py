"""Programs that catch what operations raise by their values, in ``mode="reduce-overhead"``: as uncompiled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fb
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


class Caught(fb.nn.Module):
    def forward(self, x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
        try:
            return fb.take(x, i) + 1
        except IndexError:
            return x.cos()


@pytest.mark.parametrize("f", [indexed, gathered, caught_by_who_calls, noted, Caught()])
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
        with fb.no_grad():
            return x[i] * 2

    seen, calls = counted(f)
    compiled = fb.compile(seen, mode="reduce-overhead")
    x, i = fb.ones(3), fb.tensor([0, 2])
    try:                                              # of the caller's own, which is none of the function's
        made = [compiled(x, i) for _ in range(8)]
    except IndexError:
        made = []

    assert [one.tolist() for one in made] == [[2.0, 2.0]] * 8
    assert len(calls) < 8
