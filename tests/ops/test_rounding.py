"""Rounding of every float16."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "frac"])
def test_every_half_is_rounded_as_the_same_float32_with_its_sign(name: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[~np.isnan(halves)]

    made = getattr(fb, name)(fb.tensor(halves)).numpy()

    expected = getattr(fb, name)(fb.tensor(halves.astype("f"))).numpy().astype(np.float16)
    np.testing.assert_array_equal(made.view(np.uint16)[~np.isnan(expected)], expected.view(np.uint16)[~np.isnan(expected)])
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
