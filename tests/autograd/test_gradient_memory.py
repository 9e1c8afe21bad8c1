"""Who owns the memory of a gradient: leaves keep arrays that nothing else refers to, and copy others."""

from __future__ import annotations

import numpy as np

import flambeau as fb
from flambeau.autograd.engine import _owns


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
