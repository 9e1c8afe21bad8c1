"""The order of the rows of a matrix, which `unique` along a dimension asks for."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau_kernels.cpu.sorting.sort import order_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("values", [1, 2, 3, 1000])
def test_rows_are_compared_element_by_element_and_keep_their_order(dtype, values):
    random = np.random.default_rng(values)
    for n, columns in [(0, 3), (1, 5), (7, 0), (40, 1), (40, 4), (40, 5), (30, 29), (200, 3)]:
        rows = random.integers(0, values, (n, columns)).astype(dtype)
        rows[n // 2 :] = rows[: n - n // 2]               # equal ones
        if rows.dtype.kind == "f" and rows.size:
            rows.reshape(-1)[random.integers(0, rows.size, 4)] = np.nan

        want = np.lexsort([rows[:, k] for k in range(columns - 1, -1, -1)]) if columns else np.arange(n)
        np.testing.assert_array_equal(order_rows(rows), want)
