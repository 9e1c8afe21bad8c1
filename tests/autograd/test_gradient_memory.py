"""Who owns the memory of a gradient: leaves keep arrays that nothing else refers to, and copy others."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd.engine import _owns
from flambeau.ops._spec import OPS


def test_a_view_owns_memory_that_it_shows_whole_and_alone():
    kept = np.empty((4, 4))
    other = np.empty((4, 4))
    first, second = other.reshape(16), other.T
    del other

    # Not inside assert, which pytest makes keep all values that its expression passes through.
    owned = [_owns(np.empty(3)), _owns(np.empty((4, 4)).reshape(16)), _owns(np.empty((4, 4)).T)]
    shared = [_owns(np.empty((4, 4))[:2]), _owns(kept.reshape(16)), _owns(first)]

    assert owned == [True] * 3
    assert shared == [False] * 3
    assert second.size == 16


def test_changing_a_gradient_in_place_changes_nothing_else():
    x, y = fb.ones(3, 4, requires_grad=True), fb.ones(3, 4, requires_grad=True)
    given = fb.ones(4, 3)
    (x.reshape(4, 3) + y.reshape(4, 3)).backward(given)
    x.grad.add_(1)

    assert (y.grad == 1).all()
    assert (given == 1).all()


@pytest.mark.parametrize(
    "cut",
    [lambda x: x.unbind(0), lambda x: x.T.unbind(1), lambda x: x.split(1), lambda x: x.split([1] * len(x)), lambda x: x.chunk(len(x))],
    ids=["unbind", "unbind of columns", "split", "split into sizes", "chunk"],
)
@pytest.mark.parametrize("create_graph", [False, True])
def test_the_gradient_of_a_piece_costs_nothing_for_the_other_pieces(cut, create_graph, monkeypatch):
    x = fb.randn(60, 3, requires_grad=True)
    total = sum((i * p.square()).sum() for i, p in enumerate(cut(x)))
    views = []
    for name in ("unbind", "split_sizes"):
        rule = OPS[name].kernel_rule
        monkeypatch.setattr(OPS[name], "kernel_rule", lambda *args, rule=rule: views.append(made := rule(*args)) or made)

    (found,) = fb.autograd.grad(total, x, create_graph=create_graph)

    assert fb.allclose(found, 2 * x * fb.arange(60)[:, None])
    assert not views


PARTS = {
    "chunk": lambda y: list(y.chunk(3, -1)),
    "split": lambda y: list(y.split([8, 16, 24], -1)),
    "unbind": lambda y: list(y.unbind(1)),
    "select": lambda y: [y.select(1, i) for i in (0, 2, 2)],
    "narrow": lambda y: [y.narrow(2, 0, 20), y.narrow(2, 10, 30), y.narrow(0, 1, 2)],
    "indices": lambda y: [y[:, :, ::2], y[..., 5], y[1], y[None, :, 1:]],
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [3, 400])
@pytest.mark.parametrize("whole_too", [None, "first", "last"])
@pytest.mark.parametrize("cut", PARTS.values(), ids=PARTS)
def test_gradients_of_parts_are_added_where_they_lie(cut, whole_too, rows, turned):
    x = fb.randn(4, rows, 48, requires_grad=True)
    weights: list = []

    def total(y, weight):
        pieces = cut(y)
        pieces = [*([y] if whole_too == "first" else []), *pieces, *([y] if whole_too == "last" else [])]
        return sum((p * weight(i, p)).sum() for i, p in enumerate(pieces))

    def draw(i, p):
        drawn = fb.randn(*p.shape[::-1]).permute(*reversed(range(p.ndim))) if turned else fb.randn(p.shape)
        weights.append(drawn)
        return drawn

    (found,) = fb.autograd.grad(total(x * 1.0, draw), x)

    # The loss is linear: along a direction it grows by the loss of that direction.
    for _ in range(3):
        direction = fb.randn_like(x).detach()
        along = float(total(direction.double(), lambda i, p: weights[i].double()))
        assert abs(float((found.double() * direction.double()).sum()) - along) < 1e-5 * float(found.norm() * direction.norm())


def test_gradients_of_parts_that_hooks_have_seen_stay_as_they_were():
    x = fb.randn(4, 6, requires_grad=True)
    y = x * 1.0
    seen = []
    parts = y.chunk(3, 1)
    for p in parts:
        p.register_hook(seen.append)
    y.register_hook(seen.append)
    weights = fb.randn(3, 4, 2)

    sum((p * w).sum() for p, w in zip(parts, weights, strict=True)).backward()

    assert [g.tolist() for g in seen[:3]] == [w.tolist() for w in weights.flip(0)]
    assert seen[3].tolist() == fb.cat(list(weights), 1).tolist()
    assert x.grad.tolist() == seen[3].tolist()
