"""Histograms have the same counts and edges by whatever is compiled, and by numpy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau_kernels.cpu.sorting.sort import places_in_bins

CALLS = 600  # until a kernel has taken over
CASES = [(1000, 0.0, 1.0), (5, 0.0, 1.0), (3000, 1e6, 1.0), (3000, 0.0, 1e-30), (40000, 3.0, 0.1)]  # elements, their centre, their spread


def drawn(size, centre, spread, dtype):
    return (np.random.default_rng(size).standard_normal(size) * spread + centre).astype(dtype)


def counted(a, edges):
    bins = len(edges) - 1
    return np.bincount(places_in_bins(a, edges.__getitem__, bins), minlength=bins).astype(a.dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("bins", [1, 9, 1000])
@pytest.mark.parametrize("given", [False, True])
def test_counts_and_edges_do_not_change_when_a_kernel_takes_over(case, dtype, bins, given):
    a = drawn(*case, dtype)
    x = fb.tensor(a)
    span = (case[1] - 1.0, case[1] + 2.5) if given else None
    ends = span or (float(a.min()), float(a.max()))
    edges = fb.linspace(*ends, bins + 1, dtype=x.dtype).numpy()

    first = fb.histogram(x, bins, range=span)
    for _ in range(CALLS if case[0] < 5000 else 1):
        hist, found = fb.histogram(x, bins, range=span)

    assert found.numpy().tobytes() == first.bin_edges.numpy().tobytes() == edges.tobytes()
    assert hist.numpy().tolist() == first.hist.numpy().tolist() == counted(a, edges).tolist()
    assert fb.histc(x, bins, *ends).tolist() == hist.tolist()
    assert fb.histogram(x.clone().requires_grad_(), bins, range=span).hist.tolist() == hist.tolist()


def test_given_edges_are_searched_for():
    a = drawn(3000, 0.0, 1.0, "f4")
    edges = np.sort(drawn(40, 0.0, 0.8, "f4"))
    a[:40], a[50] = edges, np.nan
    expected = np.histogram(a, edges)[0]

    hist, found = fb.histogram(fb.tensor(a), fb.tensor(edges))

    assert hist.tolist() == expected.tolist()
    assert found.numpy().tobytes() == edges.tobytes()


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("span", [None, [-1.0, 1.0, -2.0, 2.0, 0.0, 1.0]])
def test_points_are_counted_in_cells(density, span):
    a = drawn(3000, 0.0, 1.0, "f8").reshape(1000, 3)
    expected, edges = np.histogramdd(a, [3, 4, 5], None if span is None else [span[:2], span[2:4], span[4:]], density)

    hist, found = fb.histogramdd(fb.tensor(a), [3, 4, 5], span, density=density)

    assert np.allclose(hist.numpy(), expected, rtol=1e-12)
    assert all(np.allclose(one.numpy(), other) for one, other in zip(found, edges, strict=True))


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_elements_that_are_no_bounds_are_refused_and_in_a_given_range_not_counted(odd):
    x = fb.tensor([1.0, odd, 2.0])
    fb.histogram(fb.ones(3) * fb.arange(3), 5)
    for _ in range(CALLS):
        assert fb.histogram(x, 5, range=(0.0, 3.0)).hist.tolist() == [0, 1, 0, 1, 0]
    with pytest.raises(RuntimeError, match="not finite"):
        fb.histogram(x, 5)


def test_a_range_of_one_value_gets_a_width():
    for _ in range(CALLS):
        hist, edges = fb.histogram(fb.full((4,), 2.0), 4)

    assert hist.tolist() == [0, 0, 4, 0]
    assert edges.tolist() == [1.5, 1.75, 2.0, 2.25, 2.5]
    assert fb.histc(fb.full((4,), 2.0), 2).tolist() == [0, 4]
