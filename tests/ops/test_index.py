"""Indexing and assignment, against numpy and, where it is installed, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb

SHAPES = ((4,), (3, 4), (2, 3, 4), (5, 1, 3), (2, 3, 2, 3), (0, 3))
common = settings(max_examples=120, deadline=None, derandomize=True)


@st.composite
def keys(draw, shape):
    """A tuple of ints, slices, None, Ellipsis, masks, index arrays and lists that fits `shape`; arrays as numpy's."""
    group = draw(st.sampled_from([(), (1,), (3,), (2, 1), (2, 3)]))
    parts, d = [], 0
    while d < len(shape) and draw(st.integers(0, 6)):
        n = shape[d]
        kind = draw(st.sampled_from(["int", "slice", "none", "index", "mask", "list", "number", "flag"]))
        if kind == "none":
            parts.append(None)
            continue
        if kind == "flag":
            parts.append(draw(st.booleans()))
            continue
        if kind == "mask":
            span = draw(st.integers(1, len(shape) - d))
            seed = draw(st.integers(0, 1000))
            mask = np.random.default_rng(seed).random(shape[d : d + span]) < 0.5
            if group and sum(isinstance(p, (np.ndarray, list)) for p in parts) == 0:
                parts.append(mask)
                group = None  # its count decides what other arrays may look like
                d += span
                continue
            kind = "slice"
        if kind == "slice" or n == 0 or group is None and kind in ("index", "list"):
            bound = st.one_of(st.none(), st.integers(-n - 1, n + 1))
            parts.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3]))))
        elif kind == "int":
            parts.append(draw(st.integers(-n, n - 1)))
        elif kind == "number":
            parts.append(np.array(draw(st.integers(-n, n - 1))))
        elif kind == "list":
            count = group[-1] if group else 1
            parts.append(draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)))
        else:
            seed = draw(st.integers(0, 1000))
            parts.append(np.random.default_rng(seed).integers(-n, n, group))
        d += 1
    if draw(st.booleans()):
        at = draw(st.integers(0, len(parts)))
        if at == len(parts) or d == len(shape):
            parts.insert(at, Ellipsis)
    return tuple(parts)


any_case = st.sampled_from(SHAPES).flatmap(lambda shape: st.tuples(st.just(shape), keys(shape)))


def means_the_same_in_numpy(case):
    """Numbers beside index arrays are not indices in PyTorch: they select first, and leave no gap between the arrays."""
    arrays = any(isinstance(k, (list, bool)) or isinstance(k, np.ndarray) and k.ndim for k in case[1])
    numbers = any(type(k) is int or isinstance(k, np.ndarray) and not k.ndim for k in case[1])
    return not (arrays and numbers)


cases = any_case.filter(means_the_same_in_numpy)


def of(library, key):
    """`key` with the arrays as tensors of `library`."""
    return tuple(library.tensor(k) if isinstance(k, np.ndarray) else k for k in key)


def counting(shape):
    return np.arange(float(np.prod(shape))).reshape(shape) + 1


def fits(shape, key):
    try:
        return counting(shape)[key]
    except IndexError:
        return None


@common
@given(cases)
def test_getitem_picks_what_numpy_picks(case):
    shape, key = case
    expected = fits(shape, key)
    if expected is None:
        with pytest.raises(IndexError):
            fb.tensor(counting(shape))[of(fb, key)]
        return

    found = fb.tensor(counting(shape))[of(fb, key)]

    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)


@common
@given(cases, st.integers(0, 3))
def test_setitem_stores_where_numpy_stores(case, form):
    shape, key = case
    part = fits(shape, key)
    if part is None:
        return
    value = [-1.0, np.full(part.shape, -2.0), np.full(part.shape[-1:], -3.0), np.full((1, *part.shape), -4.0)][form]
    expected = counting(shape)
    expected[key] = value[0] if form == 3 else value
    x = fb.tensor(counting(shape))

    x[of(fb, key)] = fb.tensor(value) if isinstance(value, np.ndarray) else value

    np.testing.assert_array_equal(x.numpy(), expected)


@common
@given(cases)
def test_the_gradient_of_getitem_counts_how_often_each_element_was_picked(case):
    shape, key = case
    if fits(shape, key) is None:
        return
    picked = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)[key].reshape(-1)
    expected = np.bincount(picked, minlength=int(np.prod(shape))).reshape(shape)
    x = fb.tensor(counting(shape), requires_grad=True)

    x[of(fb, key)].sum().backward()

    np.testing.assert_array_equal(x.grad.numpy(), expected)


@common
@given(cases)
def test_setitem_passes_gradients_to_what_it_kept_and_to_what_it_stored(case):
    shape, key = case
    part = fits(shape, key)
    if part is None:
        return
    # The last of repeated places stays; its source's place is what a numpy assignment of places leaves there.
    source = np.full(shape, -1)
    source[key] = np.arange(part.size).reshape(part.shape)
    weights = counting(shape)
    x = fb.tensor(counting(shape), requires_grad=True)
    v = fb.tensor(np.ones(part.shape), requires_grad=True)
    y = x * 1

    y[of(fb, key)] = v
    (y * fb.tensor(weights)).sum().backward()

    np.testing.assert_array_equal(x.grad.numpy(), np.where(source < 0, weights, 0))
    if len(np.unique(source[source >= 0])) == part.size:
        expected = np.zeros(part.size)
        expected[source[source >= 0]] = weights[source >= 0]
        np.testing.assert_array_equal(v.grad.numpy(), expected.reshape(part.shape))


@common
@given(any_case)
def test_indexing_agrees_with_pytorch(case):
    torch = pytest.importorskip("torch")
    shape, key = case
    outcomes = []
    for library in (torch, fb):
        x = library.tensor(counting(shape))
        try:
            part = x[of(library, key)]
            x[of(library, key)] = -part
            outcomes.append((tuple(part.shape), part.numpy().tolist(), x.numpy().tolist()))
        except Exception as error:
            outcomes.append(type(error))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (4, IndexError), ((0, 9), IndexError), ((0, 0, 0), IndexError), (1.5, IndexError), ("a", TypeError),
        (slice(None, None, -1), ValueError),
    ],
)
def test_bad_indices_are_refused(key, error):
    with pytest.raises(error):
        fb.zeros(4, 5)[key]


def test_an_index_out_of_range_is_named():
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 1 with size 3"):
        fb.zeros(2, 3)[:, fb.tensor([0, 7])]


def test_a_mask_that_does_not_fit_is_named():
    with pytest.raises(IndexError, match=r"mask \[2\].*\[3, 4\]"):
        fb.zeros(3, 4)[fb.tensor([True, False])]


def test_slices_are_views_and_masks_are_copies():
    x = fb.zeros(3, 4)

    x[1:, ::2].fill_(1)
    x[x == 0].fill_(5)

    assert x.sum() == 4


@pytest.mark.parametrize("count", [500, 4096, 70000])
def test_masks_of_any_bytes_select_where_these_are_not_zero(count):
    raw = fb.arange(count).remainder(251).to(fb.uint8)
    mask, true, x = raw.view(fb.bool), raw != 0, fb.arange(count)

    assert fb.equal(mask.nonzero(), true.nonzero())
    assert fb.equal(x[mask], x[true])
    assert fb.equal(x.masked_scatter(mask, -x), x.masked_scatter(true, -x))
    assert int(mask.sum()) == int(mask.count_nonzero()) == int(true.sum())


def test_uint8_masks_select():
    with pytest.warns(UserWarning, match="indexing with dtype torch.uint8 is now deprecated"):
        assert fb.tensor([1, 2, 3])[fb.tensor([1, 0, 1], dtype=fb.uint8)].tolist() == [1, 3]


def test_repeated_places_accumulate_in_index_put():
    x = fb.zeros(3).index_put((fb.tensor([0, 2, 0]),), fb.tensor([1.0, 2.0, 4.0]), accumulate=True)

    assert x.tolist() == [5, 0, 2]


def test_accumulation_gives_the_same_bits_every_time():
    rng = np.random.default_rng(0)
    at = fb.tensor(rng.integers(0, 5, 1000))
    values = fb.tensor(rng.standard_normal(1000).astype(np.float32))
    runs = [fb.zeros(5).index_put((at,), values, accumulate=True).tolist() for _ in range(3)]

    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("count", [0, 1, 5, 3000])
def test_members_among_few_and_many_are_numpys(count):
    x, among = fb.tensor([[0.0, -0.0, float("nan")], [3.0, float("inf"), 7.5]]), fb.arange(count, dtype=fb.float32)

    found = fb.isin(x, among)

    assert np.array_equal(found.numpy(), np.isin(x.numpy(), among.numpy()))
    assert np.array_equal(fb.isin(x, among, invert=True).numpy(), ~found.numpy())
