"""`passes.reinplace` writes in place where nobody can tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.fx.passes.reinplace import reinplace
from fx.test_make_fx import PROGRAMS_OF_OPS, same


def numbers(*shape: int, seed: int = 0) -> Any:
    return fb.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def targets(f: Any, *args: Any) -> list[str]:
    gm = reinplace(make_fx(f)(*args), *args)
    before = [a.clone() for a in args]
    same(gm(*args), f(*args))
    for a, b in zip(args, before, strict=True):
        same(a, b)
    return [str(n.target).removeprefix("aten.") for n in gm.graph.nodes if n.op == "call_function"]


def test_what_is_used_no_more_is_written_to() -> None:
    assert targets(lambda x: (x.sin() + 1).relu() * 2, numbers(3)) == ["sin.default", "add_.Tensor", "relu_.default", "mul_.Tensor"]


def test_inputs_and_what_is_used_again_are_not_written_to() -> None:
    assert targets(lambda x: x + 1, numbers(3)) == ["add.Tensor"]
    assert targets(lambda x: (x.view(3) * 2).view(3).exp(), numbers(3))[1:] == ["mul.Tensor", "view.default", "exp_.default"]

    def again(x: Any) -> Any:
        y = x.sin()
        return y + 1, y

    assert targets(again, numbers(3)) == ["sin.default", "add.Tensor"]


def test_a_view_that_is_used_later_keeps_its_base() -> None:
    def later(x: Any) -> Any:
        y = x.sin()
        part = y[0]
        z = y + 1
        return z * part

    assert "add.Tensor" in targets(later, numbers(3, 3))


def test_memory_that_took_the_place_of_other_memory_is_followed() -> None:
    def f(x: Any) -> Any:
        y = x.sin()
        z = y + 1                                     # lies where y did
        part = z[0]
        w = z * 2
        return w, part

    assert "mul.Tensor" in targets(f, numbers(3, 3))


def test_results_of_other_shapes_and_dtypes_are_made() -> None:
    assert targets(lambda x: x.sin() + fb.ones(2, 3), numbers(3))[-1] == "add.Tensor"
    assert targets(lambda x: x.sin() > 0, numbers(3)) == ["sin.default", "gt.Scalar"]
    assert targets(lambda x: x.sin().expand(2, 3) + 1, numbers(3))[-1] == "add.Tensor"


@pytest.mark.parametrize("program", PROGRAMS_OF_OPS, ids=lambda f: f.__name__)
def test_programs_give_the_same_in_place(program: Any) -> None:
    targets(program, numbers(2, 3))
