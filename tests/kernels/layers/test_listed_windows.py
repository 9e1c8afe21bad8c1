"""Maxima of windows whose members are listed, as of adaptive pooling into cells of unequal size."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.cpu import pool


def expected(x: np.ndarray, members: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """By Python, element after element: the first of equal ones; of several nan the last."""
    shape = (len(x), *(len(m) for m in members))
    out, places = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    for cell in np.ndindex(*shape):
        found: tuple[float, int] | None = None
        lists = [m[i] for m, i in zip(members, cell[1:], strict=True)]
        for at in np.stack(np.meshgrid(*lists, indexing="ij"), -1).reshape(-1, len(members)):
            v, place = float(x[(cell[0], *at)]), int(np.ravel_multi_index(tuple(at), x.shape[1:]))
            if found is None or v > found[0] or v != v:
                found = v, place
        assert found is not None
        out[cell], places[cell] = found
    return out, places


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32])
@pytest.mark.parametrize(("sizes", "counts"), [((7,), (3,)), ((5, 9), (3, 4)), ((4, 5, 7), (3, 2, 5)), ((1, 6), (1, 4))])
def test_maxima_of_ranges_and_their_places(dtype, sizes, counts):
    random = np.random.default_rng(0)
    x = np.round(random.standard_normal((3, *sizes)) * 2).astype(dtype)
    if x.dtype.kind != "i":
        x.reshape(-1)[random.integers(0, x.size, 3)] = np.nan
    ranges = [pool.Ranges(s, c) for s, c in zip(sizes, counts, strict=True)]

    values, places = pool.max_of_windows(x, ranges)
    want, at = expected(x, [r.members() for r in ranges])

    assert values.dtype == x.dtype
    assert values.tobytes() == want.tobytes()
    np.testing.assert_array_equal(places, at)


def test_windows_that_are_listed_one_by_one():
    x = np.random.default_rng(1).standard_normal((2, 8, 8)).astype(np.float32)
    members = [np.array([[0, 3], [6, 1]]), np.array([[5, 4, 7]])]

    values, places = pool.max_of_windows(x, members)
    want, at = expected(x, members)

    assert values.tobytes() == want.tobytes()
    np.testing.assert_array_equal(places, at)
