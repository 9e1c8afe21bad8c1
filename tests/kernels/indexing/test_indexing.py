"""Compiled gathers, scatters and masks against numpy: every layout and item size, repeated places, threads, tiers."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.indexing import accumulate, index, picks, scatter
from flambeau_kernels.cpu.indexing import rows as tables
from flambeau_kernels.engine.runtime import pool

compiled = pytest.mark.skipif(not tier.compiles(), reason="nothing can be compiled here")

RNG = np.random.default_rng(0)
DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int64", "uint8", "bool", "complex64"]
A = RNG.normal(size=(6, 5, 8, 7)) * 9


@compiled
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", range(4))
def test_gather_reads_from_any_layout_and_from_a_larger_array(dim, dtype):
    for a in (A.astype(dtype), A.astype(dtype).transpose(2, 0, 3, 1), A.astype(dtype)[:, ::2, :, ::-1][..., ::-1]):
        shape = [n - 1 if n > 2 else n for n in a.shape]
        shape[dim] = 9
        at = RNG.integers(-a.shape[dim], a.shape[dim], shape)
        corner = a[tuple(slice(None) if d == dim else slice(0, n) for d, n in enumerate(shape))]

        made = index.gather(a, dim, at.astype(np.int32))

        np.testing.assert_array_equal(made, np.take_along_axis(corner, at, dim))


@compiled
@pytest.mark.parametrize("dtype", [*DTYPES, "complex128"], ids=str)
@pytest.mark.parametrize("dim", range(4))
def test_take_copies_slices_of_any_width(dim, dtype):
    a, at = A.astype(dtype), RNG.integers(-5, 5, 60)

    np.testing.assert_array_equal(picks.take(a, dim, at, True), a.take(at, dim))
    np.testing.assert_array_equal(picks.take(a, dim, (at % 5).astype(np.int32)), a.take(at % 5, dim))


def combined_by_numpy(a, dim, at, values, how):
    if a.dtype.itemsize == 2 and a.dtype.kind in "fV":  # rounded once
        return combined_by_numpy(a.astype(np.float32), dim, at, np.asarray(values).astype(np.float32), how).astype(a.dtype)
    made = a.copy()
    for k, place in enumerate(at):  # one after the other
        key = (slice(None),) * dim + (place,)
        new = values[(slice(None),) * dim + (k,)] if values.ndim else values
        combine = {"put": lambda old, new: new, "sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[how]
        made[key] = combine(made[key], new)
    return made


@compiled
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", range(4))
@pytest.mark.parametrize("how", ["put", "sum", "prod", "amax", "amin"])
def test_slices_are_combined_one_after_the_other(how, dim, dtype):
    a, at = A.astype(dtype), RNG.integers(-5, 5, 90)
    values = RNG.normal(size=(*a.shape[:dim], 90, *a.shape[dim + 1 :])).astype(dtype)
    for places, negative in ((at, True), ((at % 5).astype(np.int32), False)):
        made = a.copy()
        done = scatter.combine_slices(made, dim, places, values, how, negative)

        assert done == (how == "put" or np.dtype(dtype).char in "ilfdBeE")
        np.testing.assert_array_equal(made, combined_by_numpy(a, dim, places, values, how) if done else a)
    one = values.reshape(-1)[:1]
    if done:
        made = a.copy()
        assert scatter.combine_slices(made, dim, at, one, how, True)
        np.testing.assert_array_equal(made, combined_by_numpy(a, dim, at, one[0], how))
    made = a.copy()
    assert not scatter.combine_slices(made, dim, at, values, how)  # places below zero
    assert not scatter.combine_slices(made, dim, at + 9, values, how, True)
    assert not scatter.combine_slices(made, dim, at, values[..., :1], how, True)
    np.testing.assert_array_equal(made, a)


@compiled
@pytest.mark.parametrize("dim", range(2))
def test_many_slices_are_combined_to_the_same_bits_on_any_number_of_threads(dim):
    a, at = RNG.normal(size=(300, 310)).astype(np.float32), RNG.integers(0, 300, 700)
    values = RNG.normal(size=(700, 310) if dim == 0 else (300, 700)).astype(np.float32)
    made = []
    for threads in (1, 3):
        before, _ = fb.get_num_threads(), fb.set_num_threads(threads)
        made.append(a.copy())
        assert scatter.combine_slices(made[-1], dim, at, values, "sum")
        fb.set_num_threads(before)

    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], combined_by_numpy(a, dim, at, values, "sum"))


@compiled
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", ml_dtypes.bfloat16], ids=str)
def test_rows_are_reduced_as_elements_are(dtype, include_self, reduce):
    a, at = np.abs(A).astype(dtype), RNG.integers(0, 5, 90)
    values = np.abs(RNG.normal(size=(6, 90, 8, 7))).astype(dtype)
    every = np.broadcast_to(at.reshape(-1, 1, 1), values.shape)

    made = scatter.reduce_rows(a, 1, at, values, reduce, include_self)

    expected = scatter.reduce_along(a, 1, every, values, reduce, include_self)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)


@compiled
@pytest.mark.parametrize("width", [1, 3, 16, 17, 100])
@pytest.mark.parametrize(("place", "negative"), [(-1, False), (-41, True), (40, False), (2**62, True), (-(2**62), True)])
def test_nothing_is_taken_where_a_place_is_out_of_range(place, negative, width):
    table, at = RNG.normal(size=(40, width)).astype(np.float32), RNG.integers(0, 40, 70_000 // width)
    at[-3] = place

    assert picks.take(table, 0, at, negative) is None
    assert picks.gather_rows(table[None, :, 0].copy(), at[None, :], negative) is None


@compiled
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 5), (7, 30_000), (300, 200), (3, 40, 1), (5, 4, 900)])
def test_rows_are_gathered_in_rows_of_any_length(shape, dtype):
    a = A.reshape(-1)[RNG.integers(0, A.size, (*shape[:-1], 300))].astype(dtype)
    at = RNG.integers(-300, 300, shape)

    np.testing.assert_array_equal(picks.gather_rows(a, at, True), np.take_along_axis(a, at, -1))
    np.testing.assert_array_equal(picks.gather_rows(a, np.abs(at) // 2), np.take_along_axis(a, np.abs(at) // 2, -1))


@compiled
@pytest.mark.parametrize("width", [1, 16, 70])
@pytest.mark.parametrize("wrong", [-1, 50, 2**40])
def test_bags_tell_of_places_out_of_range(width, wrong):
    table, at = np.ones((50, width), np.float32), RNG.integers(0, 50, 3000)
    made, starts = np.empty((30, width), np.float32), np.arange(0, 3001, 100)

    assert accumulate.sum_bags(table, at, starts, made)
    np.testing.assert_array_equal(made, 100)

    at[1234] = wrong

    assert not accumulate.sum_bags(table, at, starts, made)


@compiled
@pytest.mark.parametrize("shape", [(1,), (70_000,), (300, 500), (7, 11, 13), (3, 1, 50, 20)])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_nonzero_and_masks_hold_numpys_places_in_order(shape, share):
    mask, a = RNG.random(shape) < share, RNG.normal(size=shape).astype(np.float32)
    values = RNG.normal(size=int(mask.sum()) + 3).astype(np.float32)
    put = a.copy()
    put[mask] = values[: mask.sum()]

    np.testing.assert_array_equal(index.nonzero(mask), np.array(np.nonzero(mask)))
    np.testing.assert_array_equal(index.compress(a, mask), a[mask])
    np.testing.assert_array_equal(index.fill_masked(a, mask, 2.5), np.where(mask, np.float32(2.5), a))
    np.testing.assert_array_equal(index.expand(a, mask, values), put)


@compiled
@pytest.mark.parametrize(("how", "ufunc"), [("sum", np.add), ("prod", np.multiply), ("amax", np.maximum), ("amin", np.minimum)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8"])
@pytest.mark.parametrize("dim", range(3))
def test_scatter_combines_repeated_places_in_order(dim, dtype, how, ufunc):
    a = np.ascontiguousarray(np.abs(A[:, 0, :, :])).astype(dtype)
    shape = list(a.shape)
    shape[dim] = 40
    at, values = RNG.integers(0, a.shape[dim], shape), RNG.integers(1, 3, shape).astype(dtype)
    expected = a.copy()
    ufunc.at(expected, tuple(at if d == dim else grid for d, grid in enumerate(np.indices(shape))), values)

    made = a.copy()

    assert accumulate.scatter(made, dim, at, values, how)
    np.testing.assert_array_equal(made, expected)


@compiled
def test_the_last_of_repeated_places_stays_when_they_are_put():
    at, values, a = RNG.integers(0, 50, 3000), np.arange(3000.0), np.zeros(50)
    expected = a.copy()
    expected[at] = values

    assert accumulate.scatter(a, 0, at, values, "put")
    np.testing.assert_array_equal(a, expected)


def test_a_long_line_is_summed_to_the_accuracy_of_its_dtype():
    at, values = RNG.integers(0, 300, 200_000), RNG.random(200_000).astype(np.float32)
    exact = np.bincount(at, values.astype(np.float64), 300)

    made = scatter.reduce_along(np.zeros(300, np.float32), 0, at, values, "sum", True)

    np.testing.assert_allclose(made, exact, rtol=667 * 6e-8)  # terms in a sum, half an ulp each


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("means", [False, True])
def test_rows_of_a_table_are_added_up(dtype, means):
    values, at = RNG.normal(size=(600, 24)).astype(dtype), RNG.integers(0, 90, 600)
    exact = np.zeros((90, 24))
    np.add.at(exact, at, values.astype(np.float64))
    if means:
        exact /= np.maximum(np.bincount(at, minlength=90), 1)[:, None]

    made = tables.add_rows(values, at, 90, means)

    assert made.dtype == values.dtype
    eps = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(made.astype(np.float64), exact, rtol=eps, atol=30 * max(eps, 1.2e-7) if eps < 1e-6 else 30 * eps / 8)


def test_bags_are_the_sums_of_their_rows_and_empty_ones_zero():
    table, at = RNG.normal(size=(50, 33)).astype(np.float32), RNG.integers(0, 50, 500)
    starts = np.array([0, 0, 100, 100, 490, 500])

    made = tables.add_bags(table, at, starts)

    exact = [table[at[i:j]].astype(np.float64).sum(0) for i, j in itertools.pairwise(starts)]
    np.testing.assert_allclose(made, exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16], ids=str)
def test_the_largest_of_bags_is_the_first_and_nan_comes_before_numbers(dtype):
    table, at = RNG.integers(-2, 3, (50, 33)).astype(dtype), RNG.integers(0, 50, 500)
    table[7, ::2], table[9, ::3], table[11] = np.nan, np.nan, -np.inf
    at[-10:] = 11
    starts = np.array([0, 0, 100, 100, 490, 500])

    made = tables.largest_of_bags(table, at, starts)

    exact = [at[i:j][np.argmax(table[at[i:j]].astype(np.float64), 0)] if i < j else np.full(33, -1) for i, j in itertools.pairwise(starts)]
    np.testing.assert_array_equal(made, exact)


BIG = RNG.normal(size=(200, 90)).astype(np.float32)
AT = RNG.integers(0, 90, (200, 70))


@pytest.mark.parametrize("call", [
    lambda: scatter.gather(BIG, 1, AT),
    lambda: scatter.gather(BIG.T, 0, AT.T),
    lambda: scatter.put_along(BIG, 1, AT, np.float32(3)),
    lambda: scatter.reduce_along(BIG, 1, AT, BIG, "sum", True),
    lambda: scatter.reduce_along(BIG, 1, AT, BIG, "mean", False),
    lambda: scatter.reduce_along(BIG, 1, AT, BIG, "prod", False),
    lambda: scatter.reduce_along(BIG.astype(np.float16), 1, AT, BIG.astype(np.float16), "amax", True),
    lambda: scatter.reduce_rows(BIG, 0, AT[:60].reshape(-1)[:200], BIG, "sum", True),
    lambda: scatter.pick(BIG, (AT[:, 0] % 90, AT[:, 1])),
    lambda: scatter.pick(BIG, (BIG > 0.3,)),
    lambda: scatter.pick(BIG, (AT,)),
    lambda: scatter.nonzero(BIG.astype(np.int32)),
    lambda: scatter.put_masked(BIG, BIG > 0, BIG.reshape(-1)),
], ids=lambda call: None)
def test_both_tiers_agree(call):
    before, made = kernels.backend(), []
    for name in (before if kernels.engines.chosen().compiles else "llvm", "numpy"):
        kernels.set_backend(name)
        made.append(call())
    kernels.set_backend(before)

    assert made[0].dtype == made[1].dtype
    np.testing.assert_array_equal(*made)


@compiled
def test_the_number_of_threads_changes_nothing():
    before, made = pool.get_num_threads(), []
    at, values = np.random.default_rng(3).integers(0, 900, 300_000), np.random.default_rng(4).random(300_000).astype(np.float32)
    for threads in (1, 2, 4):
        pool.set_num_threads(threads)
        made.append([
            scatter.reduce_along(np.zeros(900, np.float32), 0, at, values, "sum", True).tobytes(),
            scatter.reduce_along(np.ones((900, 20), np.float32), 0, at.reshape(-1, 20), values.reshape(-1, 20), "prod", True).tobytes(),
            tables.add_rows(values.reshape(-1, 100), at[:3000], 900).tobytes(),
        ])
    pool.set_num_threads(before)

    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("write", [
    lambda x, at, src: x.scatter_add_(0, at, src),
    lambda x, at, src: x.scatter_(0, at, src),
    lambda x, at, src: x.scatter_(0, at, 1.0),
    lambda x, at, src: x.index_add_(0, at[:, 0], src),
    lambda x, at, src: x.index_put_((at[:, 0],), src, accumulate=True),
])
@pytest.mark.parametrize("wrong", [100, -101])
def test_an_index_out_of_range_is_refused_before_anything_is_written(write, wrong):
    x, at = fb.zeros(100, 80), fb.zeros(60, 80, dtype=fb.int64)
    at[59, 0] = wrong

    with pytest.raises((IndexError, RuntimeError), match=str(wrong)):
        write(x, at, fb.ones(60, 80))

    assert not x.any()


def test_in_place_sums_see_the_values_from_before_when_they_share_memory():
    # Arrays with gaps are taken to be apart, as in PyTorch, so these are not refused.
    x = fb.arange(12_800.0).reshape(80, 160)[:, ::2]
    expected = x.clone().scatter_add(0, fb.zeros(80, 80, dtype=fb.int64), x.clone())

    x.scatter_add_(0, fb.zeros(80, 80, dtype=fb.int64), x[:])

    assert (x == expected).all()


@compiled
@pytest.mark.parametrize("how", ["put", "sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8"])
@pytest.mark.parametrize(("shape", "dim", "length"), [((40_000,), 0, 50_000), ((70, 30), 0, 90), ((70, 30), 1, 40), ((3, 50, 200), 1, 77)])
def test_places_are_looked_at_and_then_combined_in_the_order_of_the_index(shape, dim, length, dtype, how):
    rng = np.random.default_rng(5)
    wanted = (*shape[:dim], length, *shape[dim + 1 :])
    a, values = (rng.integers(1, 5, size).astype(dtype) for size in (shape, wanted))
    at = rng.integers(0, shape[dim], wanted)
    expected, made = a.copy(), a.copy()
    if how == "put":
        expected[scatter.along(at, dim)] = values
    else:
        scatter._UFUNCS[how].at(expected, scatter.along(at, dim), values)

    assert scatter.combine_along(made, dim, at, values, how)
    np.testing.assert_array_equal(made, expected)


@compiled
def test_nothing_is_combined_where_a_place_or_the_memory_is_wrong():
    a, at = np.zeros(5000, np.float32), np.arange(5000)
    kept = a.copy()
    for wrong in (at + 1, at - 1, at.astype(np.int16)):
        assert not scatter.combine_along(a, 0, wrong, a + 1, "put")
    for values in (a.astype(np.float64), a[:-1], a, a[::-1]):
        assert not scatter.combine_along(a, 0, at, values, "put")
    assert not scatter.combine_along(a[::2], 0, at[:2500] // 2, np.ones(2500, np.float32), "put")
    np.testing.assert_array_equal(a, kept)


@compiled
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("n", [1024, 1029, 40_003])
@pytest.mark.parametrize("held", [0.02, 0.4, 0.98, 1.0])
def test_masked_places_take_values_in_place_if_there_are_enough(held, n, dtype):
    rng = np.random.default_rng(n)
    a, values = (rng.integers(0, 9, n).astype(dtype) for _ in range(2))
    mask = rng.random(n) < held
    expected, kept, count = a.copy(), a.copy(), int(mask.sum())
    expected[mask] = values[:count]

    assert not scatter.put_masked_into(a, mask, values[: count - 1])
    np.testing.assert_array_equal(a, kept)
    assert scatter.put_masked_into(a, mask, values[:count])
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("rows", "width", "into"), [(700, 90, 50), (40, 3, 5), (3000, 1, 11)])
def test_rows_of_halves_are_added_in_float32(rows, width, into, dim, dtype):
    x = fb.randn(rows, width).to(dtype)
    index = fb.randint(0, into, (rows,))
    start = fb.randn(into, width).to(dtype)
    turn = (lambda a: a.t().contiguous()) if dim else (lambda a: a)
    expected = start.numpy().astype(np.float32) if dtype is fb.float16 else start.float().numpy().copy()
    np.add.at(expected, index.numpy(), x.float().numpy())

    made = turn(start).index_add(dim, index, turn(x))

    assert made.dtype is dtype
    assert fb.equal(made, turn(fb.from_numpy(expected).to(dtype)))


HALVES = [np.float16, ml_dtypes.bfloat16]
UFUNCS = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


@compiled
@pytest.mark.parametrize("how", UFUNCS)
@pytest.mark.parametrize("dtype", HALVES, ids=["float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "dim", "length"), [
    ((40_000,), 0, 50_000), ((40_000,), 0, 2000), ((70, 30), 0, 90), ((700, 30), 0, 90), ((70, 300), 1, 40), ((3, 50, 200), 1, 77),
    ((2, 4, 5000), 1, 77), ((900, 7, 1), 1, 3),
])  # fmt: skip
def test_halves_are_combined_in_float32_and_rounded_once(shape, dim, length, dtype, how):
    rng = np.random.default_rng(1)
    a = rng.normal(size=shape).astype(dtype)
    own = (*shape[:dim], length, *shape[dim + 1 :])
    places, vector = rng.integers(0, shape[dim], own), rng.integers(-shape[dim], shape[dim], length)
    values = rng.normal(size=own).astype(dtype)
    expected, sliced = a.astype(np.float32), a.astype(np.float32)
    UFUNCS[how].at(expected, scatter.along(places, dim), values.astype(np.float32))
    UFUNCS[how].at(sliced, (slice(None),) * dim + (vector,), values.astype(np.float32))

    made, found = a.copy(), a.copy()
    assert scatter.combine_along(made, dim, places, values, how)
    assert scatter.combine_slices(found, dim, vector, values, how, negative=True)

    np.testing.assert_array_equal(made.view(np.int16), expected.astype(dtype).view(np.int16))
    np.testing.assert_array_equal(found.view(np.int16), sliced.astype(dtype).view(np.int16))


@compiled
def test_one_half_is_added_to_all_slices():
    a = RNG.normal(size=(60, 40)).astype(ml_dtypes.bfloat16)
    vector, expected = RNG.integers(0, 60, 50), a.astype(np.float32)
    np.add.at(expected, vector, np.float32(0.25))

    assert scatter.combine_slices(a, 0, vector, np.full(1, 0.25, ml_dtypes.bfloat16), "sum")
    np.testing.assert_array_equal(a.view(np.int16), expected.astype(ml_dtypes.bfloat16).view(np.int16))


@compiled
def test_halves_have_the_same_bits_on_any_number_of_threads():
    a, values = RNG.normal(size=(50, 3000)).astype(ml_dtypes.bfloat16), RNG.normal(size=(400, 3000)).astype(ml_dtypes.bfloat16)
    vector, places = RNG.integers(0, 50, 400), RNG.integers(0, 50, (400, 3000))
    before, made = pool.get_num_threads(), []
    for threads in (1, 2, 5):
        pool.set_num_threads(threads)
        found, slices = a.copy(), a.copy()
        assert scatter.combine_along(found, 0, places, values, "sum")
        assert scatter.combine_slices(slices, 0, vector, values, "sum")
        made.append((found.tobytes(), slices.tobytes()))
    pool.set_num_threads(before)

    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("count", [5, 2000, 50_000])
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.int64, fb.bfloat16, fb.float16], ids=str)
def test_values_of_pairs_of_places_are_added_up(dtype, count):
    a, values = fb.randint(-4, 5, (30, 20)).to(dtype), fb.randint(-2, 3, (count,)).to(dtype)
    rows, columns = fb.randint(-30, 30, (count,)), fb.randint(-20, 20, (count,))
    expected = a.double().numpy().copy()
    np.add.at(expected, (rows.numpy(), columns.numpy()), values.double().numpy())
    start = a.clone()
    for _ in range(40 if count == 5 else 1):          # until kernels have taken over
        a = start.clone().index_put_((rows, columns), values, accumulate=True)

    assert a.double().numpy().tolist() == fb.from_numpy(expected).to(dtype).double().numpy().tolist()
    with pytest.raises(IndexError, match="out of bounds"):
        start.index_put_((rows + 30, columns), values, accumulate=True)
    with pytest.raises(IndexError, match="out of bounds"):
        start.index_put_((rows, columns + 21), values, accumulate=True)


@pytest.mark.parametrize("dtype", [fb.float32, fb.int64, fb.bfloat16, fb.float16], ids=str)
@pytest.mark.parametrize("width", [1, 3, 500])
@pytest.mark.parametrize("alpha", [2, -1, 0.3])
def test_rows_times_a_number_are_added_up(alpha, width, dtype):
    if isinstance(alpha, float) and not dtype.is_floating_point:
        alpha = 3
    a, values = fb.randint(-4, 5, (30, width)).to(dtype), fb.randint(-4, 5, (70, width)).to(dtype)
    where = fb.randint(0, 30, (70,))

    made = a.index_add(0, where, values, alpha=alpha)

    assert fb.equal(made, a.index_add(0, where, values * fb.tensor(alpha).to(dtype)))
    assert fb.equal(made, a.clone().index_add_(0, where, values, alpha=alpha))
