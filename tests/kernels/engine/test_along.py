"""Kernels along dimensions of small arrays: what they answer, to the bit, and what they refuse."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

import flambeau_kernels as kernels
from flambeau_kernels import takeover
from flambeau_kernels.cpu.reductions import along, extremes, moments, scan
from flambeau_kernels.cpu.reductions.along import ALL, ONE, SEVERAL, Along
from flambeau_kernels.cpu.reductions.reduce import Reduction, reduce_by_numpy
from flambeau_kernels.cpu.sorting import sort
from flambeau_kernels.cpu.tier import compiles


def builtins_work():
    if not compiles():
        return False
    from flambeau_kernels.engine.builtins import launchers

    return launchers.available()[0]


pytestmark = pytest.mark.skipif(not builtins_work(), reason="no builtins can be compiled here")

FLOATS = ("float32", "float64")
DTYPES = (*FLOATS, "float16", ml_dtypes.bfloat16, "int64", "int32", "uint8", "bool")
SHAPES = [(4, 4), (1,), (7,), (130,), (1025,), (3, 1, 5), (2, 17, 3), (5, 130), (33, 2, 9), (1, 1), (128, 9), (2, 3, 4, 5)]


@pytest.fixture(autouse=True)
def taught_at_once(monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)


def array(shape, dtype, seed=0):
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "iub":
        return np.asarray(rng.integers(0, 2 if dtype.kind == "b" else 9, shape), dtype)
    values = np.asarray(np.round(rng.normal(size=shape) * 3, 1))
    if seed % 3 == 1:
        values[rng.random(shape) < 0.1] = np.nan
        values[rng.random(shape) < 0.1] = np.inf
    return values.astype(dtype)


def assert_same(made, expected):
    made, expected = (x if isinstance(x, tuple) else (x,) for x in (made, expected))
    assert len(made) == len(expected)
    for m, e in zip(made, map(np.asarray, expected), strict=True):
        assert (m.dtype, m.shape) == (e.dtype, e.shape)
        np.testing.assert_array_equal(m.astype("float64") if m.dtype.name == "bfloat16" else m,
                                      e.astype("float64") if e.dtype.name == "bfloat16" else e)  # fmt: skip
        assert m.flags.c_contiguous
        assert m.flags.owndata


def dims_of(a):
    return range(-a.ndim, a.ndim)


def same(dtype):
    return dtype, dtype


def widened_sum(dtype):
    return (np.dtype(np.int64),) * 2 if dtype.kind in "iub" else (dtype, dtype)


def not_zero(x):
    return x != 0


def average(total, n):
    return total / n


def truth(dtype):
    return dtype, np.dtype(bool)


FOLDS = {
    "sum": (Reduction("sum", "add"), widened_sum),
    "prod": (Reduction("prod", "mul"), widened_sum),
    "max": (Reduction("max", "max"), same),
    "min": (Reduction("min", "min"), same),
    "any": (Reduction("any", "or", not_zero), truth),
    "all": (Reduction("all", "and", not_zero), truth),
    "count": (Reduction("count", "add", not_zero), lambda dtype: (dtype, np.dtype(np.int64))),
    "mean": (Reduction("mean", "add", None, average), lambda dtype: (dtype, dtype) if dtype.kind not in "iub" else None),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FOLDS)
def test_reductions_have_numpys_bits(name, dtype):
    how, rule = FOLDS[name]
    kinds = rule(np.dtype(dtype))
    fold = Along("fold", how, rule, dims=SEVERAL)
    if kinds is None:
        assert fold(array((4, 4), dtype), 0) is None
        return
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        whole = tuple(range(a.ndim))
        wanted = [(d, (d % a.ndim,)) for d in dims_of(a)] + [(None, whole), ((), whole), (list(whole), whole), (whole[::-1], whole)]
        wanted += [((0, 1), (0, 1)), ([-1, -2], (a.ndim - 1, a.ndim - 2))] if a.ndim > 1 else []
        for dim, axes in wanted:
            for keepdim in (False, True):
                assert_same(fold(a, dim, keepdim), reduce_by_numpy(how, a, axes, keepdim, *kinds))
    assert_same(fold(array((), dtype), None), reduce_by_numpy(how, array((), dtype), (), False, *kinds))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("less", [0, 1])
def test_variances(dtype, less):
    variance, both = Along("spread", less, False, False, dims=SEVERAL), Along("spread", less, True, True, dims=SEVERAL)
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        for d in dims_of(a):
            with np.errstate(all="ignore"):
                expected = moments.variance(a, (d % a.ndim,), less, True)
                assert_same(variance(a, d, True), expected)
                mean = reduce_by_numpy(FOLDS["mean"][0], a, (d % a.ndim,), True, a.dtype, a.dtype)
                assert_same(both(a, d, True), (np.sqrt(expected), mean))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_extremes_and_their_places(dtype, largest):
    pair, place = Along("extremes", largest, True), Along("extremes", largest, False, dims=ALL)
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        for d in dims_of(a):
            assert_same(pair(a, d, False), extremes.extreme(a, d, False, largest))
            assert_same(place(a, d, True), extremes.argument(a, d, True, largest))
        assert_same(place(a, None, False), extremes.argument(a, None, False, largest))
        assert_same(place(a, None, True), extremes.argument(a, None, True, largest))
        assert pair(a, None, False) is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_order(dtype, descending, monkeypatch):
    monkeypatch.setattr(sort, "COMPILED_FROM", 1 << 60)
    whole = Along("ordered", descending, True, True, most_along=64)
    first = Along("ordered", descending, False, True, takes_k=True, most_along=64)
    places = Along("ordered", descending, True, False, most_along=64)
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        for d in dims_of(a):
            if a.shape[d] > 64:
                assert whole(a, d) is None
                continue
            expected = sort.sort(a, d % a.ndim, descending)
            assert_same(whole(a, d), expected)
            assert_same(places(a, d), expected[1])
            for k in {1, a.shape[d] // 2 or 1, a.shape[d]}:
                assert_same(first(a, d, False, k), sort.topk(a, k, d, descending))
            assert first(a, d, False, 0) is first(a, d, False, a.shape[d] + 1) is first(a, d, False, 1.0) is None


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"], ids=str)
def test_ranks(dtype, monkeypatch):
    monkeypatch.setattr(sort, "COMPILED_FROM", 1 << 60)
    ranked = Along("ranked", "kth", takes_k=True, most_along=64)
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        for d in dims_of(a):
            if a.shape[d] <= 64:
                assert_same(ranked(a, d, True, a.shape[d]), sort.kth(a, a.shape[d] - 1, d))


@pytest.mark.parametrize("dtype", [*FLOATS, "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("combine", ["add", "mul"])
def test_running_totals(dtype, combine):
    running, general = Along("running", combine), {"add": scan.cumsum, "mul": scan.cumprod}[combine]
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        for d in dims_of(a):
            assert_same(running(a, d), general(a, d % a.ndim, widened_sum(a.dtype)[1]))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"], ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_running_extremes(dtype, largest):
    running = Along("running_extremes", largest)
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        for d in dims_of(a):
            assert_same(running(a, d), scan.cumextreme(a, d % a.ndim, largest))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_differences_and_bounds(dtype):
    differences, bounds = Along("differences", takes_k=True), Along("bounds", dims=ALL)
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        for d in dims_of(a):
            with np.errstate(all="ignore"):
                expected = np.diff(a, axis=d)
            made = differences(a, d, False, a.shape[d] - 1)
            assert made is None if a.shape[d] == 1 else assert_same(made, expected) is None
            x = a.astype(np.float32) if a.dtype.name == "bfloat16" else a
            both = tuple(np.asarray(f.reduce(x, d, keepdims=True)).astype(a.dtype) for f in (np.minimum, np.maximum))
            assert_same(bounds(a, d, True), both)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"], ids=str)
def test_beside_another_array(dtype):
    below, upto = (Along("places_in_sorted", right, dims=ALL, takes_array=True) for right in (False, True))
    member, stranger = (Along("members", invert, dims=ALL, takes_array=True, most_beside=8) for invert in (False, True))
    among = np.array([0, 1, 1, 3], dtype)
    for seed, shape in enumerate([*SHAPES, ()]):
        a = array(shape, dtype, seed)
        x, y = (v.astype(np.float64) for v in (a, among))
        assert_same(below(a, None, False, among), np.searchsorted(y, x, "left").astype(np.int64))
        assert_same(upto(a, None, False, among), np.searchsorted(y, x, "right").astype(np.int64))
        assert_same(member(a, None, False, among), np.isin(x, y))
        assert_same(stranger(a, None, False, among), np.isin(x, y, invert=True))
    a = array((4, 5), dtype)
    refused = [among[::2], among.astype("complex64"), among.tolist(), None, 3, np.zeros(9, dtype)]
    assert [other for other in refused if member(a, None, False, other) is not None] == []
    assert member(a, None, False) is None
    assert_same(member(a, None, False, among[:0]), np.zeros((4, 5), bool))


@pytest.mark.parametrize("dtype", FLOATS)
def test_running_logs(dtype):
    logs = Along("running_logs", at_once=True)
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        for d in dims_of(a):
            with np.errstate(all="ignore"):
                expected = np.logaddexp.accumulate(a.astype(np.float64), d)
            eps = 200 * np.finfo(dtype).eps
            np.testing.assert_allclose(logs(a, d), expected, rtol=eps, atol=eps)


def relative(a, d):
    """The elements less the largest of their line, in float64, and that."""
    x = a.astype(np.float64)
    top = np.maximum.reduce(x, d, keepdims=True)
    return x - top, top


@pytest.mark.parametrize("dtype", FLOATS)
def test_exponentials(dtype):
    shares, logs = Along("shares", False, at_once=True), Along("shares", True, at_once=True)
    sums = Along("log_sums", dims=SEVERAL, at_once=True)
    close = {"rtol": 20 * np.finfo(dtype).eps, "atol": 20 * np.finfo(dtype).eps}
    for seed, shape in enumerate(SHAPES):
        a = array(shape, dtype, seed)
        for d in dims_of(a):
            with np.errstate(all="ignore"):
                off, top = relative(a, d)
                total = np.exp(off).sum(d, keepdims=True)
                np.testing.assert_allclose(shares(a, d), np.exp(off) / total, **close)
                np.testing.assert_allclose(logs(a, d), off - np.log(total), **close)
                finite = np.where(np.isinf(top), 0, top)
                expected = np.log(np.exp(a.astype(np.float64) - finite).sum(d, keepdims=True)) + finite
                np.testing.assert_allclose(sums(a, d, True), expected, **close)


def test_what_it_was_not_made_for_is_refused():
    fold = Along("fold", *FOLDS["sum"], dims=SEVERAL)
    a = array((4, 5), "float32")
    assert fold(a, 0) is not None
    call = fold.call
    refused = [
        (a, 2), (a, -3), (a, 0.0), (a, True), (a, "0"), (a, np.int64(0)), (a, (0, 0)), (a, (0, 2)), (a, (0, None)), (a, 1 << 80),
        (a, 0, 1), (a, 0, None), (a, 0, False, 1), (a,), (), (a.T, 0), (a[:, ::2], 0), (a[:0], 0), (a.tolist(), 0), (None, 0),
        (a.astype("float64"), 0), (a.view(type("Sub", (np.ndarray,), {})), 0), (array((65, 65), "float32"), 0),
        (array((2, 3, 4), "float32"), (0, 2)), (a.astype(">f4"), 0), (array((), "float32"), 0),
    ]  # fmt: skip
    assert [args for args in refused if call(*args) is not None] == []
    one = Along("shares", False, dims=ONE)
    assert one(a, 0) is not None
    assert one.call(a, None) is one.call(a, (0,)) is None


def test_dimensions_of_one_element_do_not_keep_others_apart():
    fold = Along("fold", *FOLDS["sum"], dims=SEVERAL)
    a = array((3, 1, 5), "float32")
    assert_same(fold(a, (0, 2), True), a.sum((0, 2), keepdims=True))
    assert_same(fold(a, (0, 1), False), a.sum((0, 1)))


def test_references_are_kept():
    pair = Along("extremes", True, True)
    a = array((4, 5), "float32")
    counted = (a, a.dtype, np.dtype(np.int64), None)
    assert pair(a, 0, False) is not None
    before = [sys.getrefcount(item) for item in counted]
    for _ in range(1000):
        pair(a, 0, False)
        pair(a, 7, False)
    assert all(abs(sys.getrefcount(item) - n) < 100 for item, n in zip(counted, before, strict=True))


def test_another_backend_makes_it_forget(monkeypatch):
    fold = Along("fold", *FOLDS["sum"], dims=SEVERAL)
    a = array((4, 5), "float32")
    assert fold(a, 0) is not None
    before = kernels.backend()
    try:
        kernels.set_backend("numpy")
        assert fold(a, 0) is None
    finally:
        kernels.set_backend(before)


def test_calls_are_counted_before_anything_is_compiled(monkeypatch):
    monkeypatch.setattr(takeover, "LOADED", 1e9)
    monkeypatch.setattr(takeover, "CALL", takeover.KERNEL / (4.5 * along._COST))
    monkeypatch.setattr(takeover, "_paid_by_all", takeover.LIBRARY)
    fold = Along("fold", *FOLDS["sum"], dims=SEVERAL)
    a = array((4, 5), "float32")
    assert [fold(a, 0) is None for _ in range(6)] == [True] * 4 + [False] * 2
