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
