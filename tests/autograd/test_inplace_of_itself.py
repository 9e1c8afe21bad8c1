"""In-place operations that have nothing to do: their target keeps its history, and is marked as written."""

from __future__ import annotations

import pytest

import flambeau as fb


def test_the_conjugate_of_real_numbers_stores_nothing_into_a_leaf() -> None:
    x = fb.ones(3, requires_grad=True)
    with fb.no_grad():
        assert x.conj_physical_() is x

    assert x._version == 1
    assert x.is_leaf


def test_what_was_saved_before_counts_as_overwritten() -> None:
    y = fb.ones(3, requires_grad=True).exp()

    y.conj_physical_()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_argument_that_is_the_result_is_stored_into_out_without_recording() -> None:
    x, out = fb.ones(3, requires_grad=True), fb.zeros(3)

    with fb.no_grad():
        fb.conj_physical(x, out=out)

    assert out.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        fb.conj_physical(x, out=out)
