"""`make_fx` records both branches of `cond`, as PyTorch does."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau._subclasses import FakeTensorMode
from flambeau.fx.experimental.proxy_tensor import make_fx
from fx.test_make_fx import same

INPUTS = [[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0], [1.0, 3.0, 0.0]]


def plain(torch: Any) -> Any:
    return lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def closes_over(torch: Any) -> Any:
    def program(x):
        y = x * 2
        return torch.cond(
            x.sum() > 0,
            lambda a: {"u": a.sin() + y, "v": x},
            lambda a: {"u": a.cos(), "v": y * torch.tensor([1.0, 2.0, 3.0])},
            (x + 1,),
        )

    return program


def nested(torch: Any) -> Any:
    def inner(x, a):
        return torch.cond(a.max() > 2, lambda b: b + x, lambda b: b - x, (a,))

    return lambda x: torch.cond(x.sum() > 0, lambda a: inner(x, a), lambda a: a * 0, (x,))


def used_after(torch: Any) -> Any:
    def program(x):
        y = torch.cond(x.sum() > 0, lambda a: a, lambda a: a * 3, (x,))
        y.add_(1)
        return x + y

    return program


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("program", [plain, closes_over, nested], ids=lambda f: f.__name__)
def test_either_branch_is_taken_when_the_graph_runs(program: Any, mode: str) -> None:
    f = program(fb)
    for first in INPUTS:
        gm = make_fx(f, tracing_mode=mode)(fb.tensor(first))
        gm.graph.lint()
        for values in INPUTS:
            same(gm(fb.tensor(values)), f(fb.tensor(values)))


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_results_of_branches_are_memory_of_their_own(mode: str) -> None:
    x = fb.ones(3)
    gm = make_fx(used_after(fb), tracing_mode=mode)(x)

    assert gm(x).tolist() == [3.0, 3.0, 3.0]
    assert gm(-x).tolist() == [-3.0, -3.0, -3.0]
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_the_graph_is_pytorchs_but_for_the_name_of_cond(oracle: Any) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx as theirs

    ours, expected = make_fx(plain(fb))(fb.ones(3)), theirs(plain(oracle))(oracle.ones(3))

    assert str(ours.graph).replace("torch.cond", "torch.ops.higher_order.cond") == str(expected.graph)
    assert [n.op for n in ours.true_graph_0.graph.nodes] == [n.op for n in expected.true_graph_0.graph.nodes]


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_branches_that_cannot_be_recorded_are_refused(mode: str) -> None:
    x = fb.ones(3)
    with pytest.raises(RuntimeError, match="might be modifying the input"):
        make_fx(lambda x: fb.cond(x.sum() > 0, lambda a: a.add_(1), lambda a: a * 0, (x,)), tracing_mode=mode)(x)
    with pytest.raises(RuntimeError, match="same structure, shapes and dtypes"):
        make_fx(lambda x: fb.cond(x.sum() > 0, lambda a: a.sum(), lambda a: a * 0, (x,)), tracing_mode=mode)(x)

    assert x.tolist() == [1.0, 1.0, 1.0]


def test_a_choice_by_a_fake_value_gives_what_both_branches_give() -> None:
    with FakeTensorMode():
        made = plain(fb)(fb.ones(3))
        with pytest.raises(RuntimeError, match="same structure, shapes and dtypes"):
            fb.cond(fb.ones(1) > 0, lambda: fb.ones(1), lambda: fb.ones(2))

    assert tuple(made.shape) == (3,)
