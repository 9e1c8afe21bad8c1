"""Programs that write in place, and their derivatives, are recorded as they run: with values, without, for any size, under transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.func import functionalize, grad, jvp, vjp, vmap
from flambeau.fx.experimental.proxy_tensor import make_fx

F = fb.nn.functional

# What a step of a program does to the values that it has so far.
STEPS: dict[str, Any] = {
    "product with a sum": lambda v: v.append(v[-1] * v[0].sum()),
    "scaled by its mean": lambda v: v[-1].mul_(v[-1].mean()),
    "sine": lambda v: v[-1].sin_(),
    "copied from a sum": lambda v: v[-1].copy_(v[0].sum().expand_as(v[-1])),
    "an element": lambda v: v[-1].__setitem__(0, v[0].sum()),
    "where positive": lambda v: v[-1].__setitem__(v[-1] > 0, 0.5),
    "flat": lambda v: v.append(v[-1].reshape(-1)),
    "its sum added": lambda v: v[-1].add_(v[-1].sum()),
    "divided": lambda v: v[-1].div_(2 + v[-1].detach().abs()),
    "softmax": lambda v: v.append(F.softmax(v[-1], 0)),
    "clamped": lambda v: v[-1].clamp_(-1, 1),
    "an earlier one scaled": lambda v: v[len(v) // 2].mul_(v[-1].sum()),
    "one more dimension": lambda v: v.append(v[-1].unsqueeze(0)),
    "index filled": lambda v: v[-1].index_fill_(0, fb.tensor([0]), 2.0),
    "squared": lambda v: v[-1].pow_(2),
    "masked": lambda v: v[-1].masked_fill_(v[-1] > 1, 0.0),
    "zeros": lambda v: v[-1].zero_(),
    "filled with a sum": lambda v: v[-1].fill_(v[0].sum()),
    "filled": lambda v: v[-1].fill_(0.5),
    "detached": lambda v: v.append(v[-1].detach()),
    "relu": lambda v: F.relu_(v[-1]),
    "products added": lambda v: v[-1].addcmul_(v[-1].detach().sin(), v[0].sum()),
    "joined": lambda v: v.append(fb.cat([v[-1].reshape(-1), v[0].reshape(-1)])),
    "interpolated": lambda v: v[-1].lerp_(v[-1].detach() * 2, 0.3),
    "turned": lambda v: v[-1].transpose_(0, -1),
    "first part": lambda v: v.append(v[-1].split(1)[0]),
    "each scaled": lambda v: fb._foreach_mul_([v[-1]], 2.0),
    "rounded to halves": lambda v: v.append(v[-1].half().float()),
    "as bits and back": lambda v: v.append(v[-1].detach().view(fb.int32).view(fb.float32) * v[-1]),
    "added at an index": lambda v: v.append(v[-1].index_put((fb.tensor((0, 0)),), v[-1][:2] * 2, accumulate=True)),
    "rows of a table": lambda v: v.append(F.embedding(fb.tensor((0, 1, 0)), v[-1].reshape(len(v[-1]), -1))),
    "index added": lambda v: v[-1].index_add_(0, fb.zeros(v[-1].shape[0], dtype=fb.int64), v[-1] * 2),
}


def program(steps: list[str]) -> Any:
    def f(x: Any) -> Any:
        w = x * 1.5
        values = [w, w[1:]]
        for name in steps:
            STEPS[name](values)
        return values[-1].sum() + w.sum() * 2 + sum((a * 0.1).sum() for a in values)

    return f


def derivative(f: Any) -> Any:
    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return fb.autograd.grad(f(x), x)[0]

    return gradient


FORMS: dict[str, Any] = {
    "with values": lambda f, x: make_fx(derivative(f))(x)(x),
    "without values": lambda f, x: make_fx(derivative(f), tracing_mode="fake")(x)(x),
    "for any size": lambda f, x: make_fx(derivative(f), tracing_mode="symbolic")(x)(x),
    "without writes": lambda f, x: make_fx(functionalize(derivative(f)))(x)(x),
    "without writes and views": lambda f, x: make_fx(functionalize(derivative(f), remove="mutations_and_views"))(x)(x),
    "grad": lambda f, x: grad(f)(x),
    "recorded grad": lambda f, x: make_fx(grad(f))(x)(x),
    "vjp": lambda f, x: vjp(f, x)[1](fb.tensor(1.0))[0],
    "examples": lambda f, x: vmap(grad(f))(fb.stack([x, x]))[1],
    "recorded examples": lambda f, x: make_fx(vmap(grad(f)))(fb.stack([x, x]))(fb.stack([x, x]))[1],
    "forward": lambda f, x: jvp(f, (x,), (fb.ones_like(x),))[1],
    "compiled": lambda f, x: fb.compile(derivative(f))(x),
    "compiled ahead": lambda f, x: fb.compile(derivative(f), backend="aot_eager")(x),
}


def check(steps: list[str], form: str, shape: tuple[int, ...]) -> bool:
    """Whether the steps are a program; what it gives must then be the same in this form."""
    f = program(steps)
    x = fb.linspace(-1, 2, int(np.prod(shape))).view(shape)
    try:
        expected = derivative(f)(x)
    except (RuntimeError, IndexError):                # no program: a saved value is lost, or shapes do not fit
        return False
    if form == "forward":
        expected = expected.sum()
    np.testing.assert_allclose(FORMS[form](f, x).detach().numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)
    return True


@pytest.mark.parametrize("form", FORMS)
def test_each_write_is_recorded_as_it_runs(form: str) -> None:
    if form == "for any size":
        pytest.importorskip("sympy")
    for step in STEPS:
        assert check([step], form, (5,)), step
        assert check([step], form, (4, 3)), step


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(list(STEPS)), min_size=2, max_size=5), st.sampled_from(list(FORMS)), st.sampled_from([(5,), (4, 3)]))
def test_programs_of_writes_are_recorded_as_they_run(steps: list[str], form: str, shape: tuple[int, ...]) -> None:
    if form == "for any size":
        pytest.importorskip("sympy")
    check(steps, form, shape)


def test_graphs_keep_writes_and_draws_that_nobody_reads() -> None:
    def f(a: Any) -> Any:
        b = a * 2
        b[1:3].mul_(3)
        fb.bernoulli(a)
        fb.ops.aten.abs(a)
        return b.sin()

    gm = make_fx(f)(fb.full((4,), 0.5))
    gm.graph.eliminate_dead_code()

    names = [n.target._opname for n in gm.graph.nodes if n.op == "call_function"]
    assert "mul_" in names
    assert "bernoulli" in names
    assert "abs" not in names
