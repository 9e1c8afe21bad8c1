"""Copies of arrays lie in memory as they are asked to, whatever ran before."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau_kernels as kernels
from flambeau_kernels.cpu.shapes import move


@pytest.mark.parametrize("shape", [(1, 24, 1), (24, 1), (1, 5, 1, 3), (3, 1, 4), (30, 1, 2), (1, 1), (1, 4, 1, 5, 1)])
def test_a_copy_in_rows_of_a_view_that_runs_backward_has_row_major_strides(shape):
    turned = np.zeros((5, 7), np.float32).T
    kernels.specialise(move._COPIED, (turned,), turned, turned.dtype)
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    for keys in itertools.product((slice(None), slice(None, None, -1)), repeat=len(shape)):
        made = move.in_rows(a[keys])

        assert made.strides == a.strides, keys
        assert np.array_equal(made, a[keys])
