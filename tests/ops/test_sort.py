"""Order, ranks, quantiles, distinct elements and histograms: values by hand and by numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import peak_of
from flambeau.ops._spec import OPS

nan = math.nan


def t(*values):
    return fb.tensor(values)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: t(3.0, nan, 1.0, 3.0).sort().values, [1, 3, 3, nan]),
        (lambda: t(3.0, nan, 1.0, 3.0).sort(descending=True, stable=True).indices, [1, 0, 3, 2]),
        (lambda: fb.argsort(t(2, 1, 2, 0), stable=True), [3, 1, 0, 2]),
        (lambda: fb.msort(fb.tensor([[3, 1], [2, 5]])), [[2, 1], [3, 5]]),
        (lambda: t(5, 1, 9, 7).topk(2).values, [9, 7]),
        (lambda: t(5, 1, 9, 7).topk(2, largest=False).indices, [1, 0]),
        (lambda: fb.arange(100).topk(3).values, [99, 98, 97]),
        (lambda: t(5, 1, 9, 7).kthvalue(3).values, 7),
        (lambda: t(5, 1, 9, 7).median(), 5),
        (lambda: t(5.0, nan, 9.0).median(), nan),
        (lambda: t(5.0, nan, 9.0).nanmedian(), 5),
        (lambda: t(2, 1, 2, 1, 0).mode().values, 1),
        (lambda: t(2, 1, 2, 1, 0).mode().indices, 3),
        (lambda: t(1.0, 2.0, 4.0, 8.0).quantile(t(0.5, 0.25)), [3, 1.75]),
        (lambda: t(1.0, 2.0, 4.0).quantile(0.25, interpolation="midpoint"), 1.5),
        (lambda: t(1.0, nan, 4.0).nanquantile(0.5), 2.5),
        (lambda: t(3, 1, 3, 2).unique(), [1, 2, 3]),
        (lambda: t(3, 1, 3, 2).unique(return_inverse=True)[1], [2, 0, 2, 1]),
        (lambda: t(3, 1, 3, 2).unique(return_counts=True)[1], [1, 1, 2]),
        (lambda: fb.tensor([[1, 2], [0, 5], [1, 2]]).unique(dim=0), [[0, 5], [1, 2]]),
        (lambda: t(3, 3, 1, 3).unique_consecutive(), [3, 1, 3]),
        (lambda: fb.searchsorted(t(1, 3, 3, 5), t(3, 6)), [1, 4]),
        (lambda: fb.searchsorted(fb.tensor([[1, 3], [2, 9]]), fb.tensor([[3], [3]]), right=True), [[2], [1]]),
        (lambda: fb.bucketize(t(0.5, 2.0, 7.0), t(1.0, 2.0)), [0, 1, 2]),
        (lambda: fb.bincount(t(1, 3, 1), minlength=5), [0, 2, 0, 1, 0]),
        (lambda: fb.bincount(t(1, 3, 1), t(0.5, 2.0, 1.0)), [0, 1.5, 0, 2]),
        (lambda: fb.histc(t(0.0, 1.0, 1.5, 3.0, 9.0), 3, 0, 3), [1, 2, 1]),
        (lambda: fb.histogram(t(0.0, 1.0, 3.0), t(0.0, 1.0, 4.0)).hist, [1, 2]),
        (lambda: fb.histogram(t(0.0, 1.0, 3.0), 3, density=True).hist, [1 / 3, 1 / 3, 1 / 3]),
        (lambda: fb.histogramdd(fb.tensor([[0.0, 0.0], [1.0, 2.0]]), [2, 1]).hist, [[1], [1]]),
    ],
)
def test_values(found, expected):
    np.testing.assert_allclose(found().numpy(), expected, rtol=1e-6)


def test_quantiles_are_numpys():
    x = np.random.default_rng(0).standard_normal((5, 7))

    found = fb.tensor(x).quantile(fb.tensor([0.1, 0.77], dtype=fb.float64), dim=1, keepdim=True)

    np.testing.assert_allclose(found.numpy(), np.quantile(x, [0.1, 0.77], axis=1, keepdims=True))


def test_selected_elements_get_the_gradient():
    x = fb.tensor([5.0, 1.0, 9.0], requires_grad=True)

    (x.sort().values * t(1.0, 10.0, 100.0)).sum().backward()

    assert x.grad.tolist() == [10, 1, 100]


def test_results_have_names():
    assert repr(t(2, 1).sort()).startswith("torch.return_types.sort(\nvalues=")


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: t(1, 2).topk(3), RuntimeError, "k=3"),
        (lambda: t(1, 2).kthvalue(0), RuntimeError, "k=0"),
        (lambda: fb.zeros(2, dtype=fb.complex64).sort(), RuntimeError, "no order"),
        (lambda: t(1.0).quantile(1.5), RuntimeError, "1.5"),
        (lambda: fb.searchsorted(t(1, 2), t(1), side="up"), RuntimeError, "up"),
        (lambda: fb.bincount(t(-1)), RuntimeError, "non-negative"),
        (lambda: fb.empty(0, 3).median(0), IndexError, "non-zero size"),
    ],
)
def test_mistakes_are_explained(call, error, said):
    with pytest.raises(error, match=said):
        call()


@pytest.mark.parametrize(("dtype", "count"), [(fb.int8, 150), (fb.int16, 40000), (fb.uint8, 200), (fb.int32, 300)], ids=str)
def test_unique_of_integers_that_lie_farther_apart_than_their_dtype_counts(dtype, count):
    info = fb.iinfo(dtype)
    values = np.random.default_rng(0).integers(max(info.min, -40000), min(info.max, 40000), count, endpoint=True).astype(dtype.numpy)
    values[:2] = max(info.min, -40000), min(info.max, 40000)
    found, inverse, counts = fb.tensor(values).unique(return_inverse=True, return_counts=True)
    expected = np.unique(values, return_inverse=True, return_counts=True)

    assert [found.tolist(), inverse.tolist(), counts.tolist()] == [x.tolist() for x in expected]


@pytest.mark.parametrize("rows", [9, 500])
def test_unique_slices_with_nan_are_all_kept_and_equal_ones_without_are_merged(rows):
    values = np.random.default_rng(0).choice([0.0, -0.0, 1.0, np.nan], (rows, 2))
    found, inverse, counts = fb.unique(fb.tensor(values), dim=0, return_inverse=True, return_counts=True)
    with_nan = np.isnan(values).any(1)

    assert len(found) == with_nan.sum() + len({*map(tuple, values[~with_nan])})
    np.testing.assert_array_equal(found[inverse].numpy(), values)
    assert counts.tolist() == np.bincount(inverse.numpy()).tolist()


def test_bins_without_elements_take_the_memory_of_the_result(oracle: Any) -> None:
    values = [0.0, 0.5, 3.25, 7.0, float("nan"), 10.0, 9.999]
    with peak_of() as peak:
        counts = fb.histc(fb.tensor(values), 3 << 20, 0, 10)

    assert peak() < 1.5 * counts.nbytes
    assert counts.nonzero().flatten().tolist() == oracle.histc(oracle.tensor(values), 3 << 20, 0, 10).nonzero().flatten().tolist()
    assert fb.equal(fb.histc(fb.tensor(values), 5000, 0, 10), fb.histc(fb.tensor(values * 2000), 5000, 0, 10) / 2000)


def test_strides_of_a_descending_order_of_one_element_are_positive():
    x = fb.rand(3, 1, 5, dtype=fb.float16)

    assert x.sort(1, True).indices.stride() == fb.argsort(x, 1, True).stride() == (5, 5, 1)


@pytest.mark.parametrize("arguments", [(0.5,), (0.5, 0), (0.5, 1, True), (0.5, None, True)])
def test_a_quantile_is_no_view_however_it_is_computed(arguments):
    assert fb.rand(4, 5).quantile(*arguments)._base is None
    assert fb.rand(100, 50).nanquantile(*arguments)._base is None


@pytest.mark.parametrize(("shape", "dim"), [((2, 198), 1), ((198, 3), 0), ((2, 150, 3), -2)])
def test_the_best_of_longer_lines_are_found_by_a_plan(shape, dim):
    x = fb.randn(*shape)
    op = OPS["topk"]

    planned, composed = op.answer(x, 4, dim, True, True), op.run(x, 4, dim, True, True)

    assert planned is not None
    assert [part.tolist() for part in planned] == [part.tolist() for part in composed]
    assert [part.stride() for part in planned] == [part.stride() for part in composed]
    with pytest.raises(RuntimeError, match="k=199"):
        fb.randn(2, 198).topk(199)


@pytest.mark.parametrize("out_int32", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_a_sorted_vector_are_those_of_numpy_in_every_call(side, out_int32):
    boundaries = np.sort(np.random.default_rng(0).integers(0, 9, 20)).astype("float32")
    values = np.random.default_rng(1).integers(-1, 10, (4, 5)).astype("float32")
    expected = np.searchsorted(boundaries, values, side)
    x, y = fb.from_numpy(boundaries), fb.from_numpy(values)

    for _ in range(300):                              # a kernel takes over meanwhile
        for found in (
            fb.searchsorted(x, y, side=side, out_int32=out_int32),
            fb.searchsorted(x, y, right=side == "right", out_int32=out_int32),
            fb.bucketize(y, x, right=side == "right", out_int32=out_int32),
        ):
            assert found.dtype is (fb.int32 if out_int32 else fb.int64)
            np.testing.assert_array_equal(found.numpy(), expected)
    with pytest.raises(RuntimeError, match="opposites"):
        fb.searchsorted(x, y, side="left", right=True)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64], ids=str)
@pytest.mark.parametrize("count", [40, 5000])
def test_histograms_count_what_lies_between_edges(count, dtype):
    x = fb.randn(count, generator=fb.Generator().manual_seed(3)).to(dtype)
    x[:5] = fb.tensor([nan, math.inf, -math.inf, -1.0, 2.0])
    weight = fb.rand(count, generator=fb.Generator().manual_seed(4)).to(dtype)
    edges = fb.tensor([-1.0, -0.25, 0.0, 0.3, 2.0], dtype=dtype)
    a, w, e = (t.double().numpy() for t in (x, weight, edges))
    inside = (a >= e[0]) & (a <= e[-1])

    assert fb.histogram(x, edges).hist.tolist() == np.histogram(a[inside], e)[0].tolist()
    weighed = fb.histogram(x, edges, weight=weight).hist.double().numpy()
    np.testing.assert_allclose(weighed, np.histogram(a[inside], e, weights=w[inside])[0], rtol=1e-5)
    points = fb.stack([x, x.flip(0)], 1)
    both = inside & inside[::-1]
    wanted = np.histogram2d(a[both], a[::-1][both], [e, e])[0]
    assert fb.histogramdd(points, [edges, edges]).hist.tolist() == wanted.tolist()
