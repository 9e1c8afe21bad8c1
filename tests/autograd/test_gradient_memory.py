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

    assert _owns(np.empty(3))
    assert _owns(np.empty((4, 4)).reshape(16))
    assert _owns(np.empty((4, 4)).T)
    assert not _owns(np.empty((4, 4))[:2])
    assert not _owns(kept.reshape(16))
    assert not _owns(first)
    assert second.size == 16


def test_changing_a_gradient_in_place_changes_nothing_else():
    x, y = fb.ones(3, 4, requires_grad=True), fb.ones(3, 4, requires_grad=True)
    given = fb.ones(4, 3)
    (x.reshape(4, 3) + y.reshape(4, 3)).backward(given)
    x.grad.add_(1)

    assert (y.grad == 1).all()
    assert (given == 1).all()
