"""Maxima of windows that are ranges of uneven length, as of adaptive pooling, and of ranges whose starts are drawn for each plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.cpu import pool


def expected(x: np.ndarray, ranges: Sequence[Sequence[range]]) -> tuple[np.ndarray, np.ndarray]:
    """Maxima of one plane `x` and their places, by Python, element after element: the first of equal ones; of several nan the last.

    `ranges` are the elements of the windows along each axis.
    """
    shape = tuple(map(len, ranges))
    out, places = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    for cell in np.ndindex(*shape):
        found: tuple[float, int] | None = None
        lists = [along[i] for along, i in zip(ranges, cell, strict=True)]
        for at in np.stack(np.meshgrid(*lists, indexing="ij"), -1).reshape(-1, len(ranges)):
            v, place = float(x[tuple(at)]), int(np.ravel_multi_index(tuple(at), x.shape))
            if found is None or v > found[0] or v != v:
                found = v, place
        assert found is not None
        out[cell], places[cell] = found
    return out, places


def assert_maxima(x: np.ndarray, windows: Sequence[Any], ranges: Sequence[Sequence[Sequence[range]]]) -> None:
    """`ranges` of each plane."""
    values, places = pool.max_of_ranges(x, windows)
    want, at = (np.stack(made) for made in zip(*map(expected, x, ranges), strict=True))

    assert values.dtype == x.dtype
    assert values.tobytes() == want.tobytes()
    np.testing.assert_array_equal(places, at)


def planes(count: int, sizes: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Some equal elements, and some nan."""
    random = np.random.default_rng(0)
    x = np.round(random.standard_normal((count, *sizes)) * 2).astype(dtype)
    if x.dtype.kind != "i":
        x.reshape(-1)[random.integers(0, x.size, 3)] = np.nan
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32])
@pytest.mark.parametrize(("sizes", "counts"), [((7,), (3,)), ((5, 9), (3, 4)), ((4, 5, 7), (3, 2, 5)), ((1, 6), (1, 4)), ((9, 70), (4, 9))])
def test_maxima_of_uneven_ranges_and_their_places(dtype, sizes, counts):
    along = [[range(j * s // c, -(-(j + 1) * s // c)) for j in range(c)] for s, c in zip(sizes, counts, strict=True)]

    assert_maxima(planes(3, sizes, dtype), [pool.Ranges(s, c) for s, c in zip(sizes, counts, strict=True)], [along] * 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("drawn", [1, 2, 4])
def test_maxima_of_drawn_ranges_and_their_places(dtype, drawn):
    random = np.random.default_rng(1)
    starts = [np.sort(random.integers(0, size - 3, (drawn, count))) for size, count in ((12, 4), (19, 6))]
    along = [[[range(start, start + 3) for start in each[plane % drawn]] for each in starts] for plane in range(4)]

    assert_maxima(planes(4, (12, 19), dtype), [pool.DrawnRanges(each, 3) for each in starts], along)
