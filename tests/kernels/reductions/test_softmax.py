"""Compiled softmax and log_softmax against their formulas in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from flambeau_kernels.cpu.reductions import softmax as kernels
from flambeau_kernels.cpu.reductions import softmax_loops as loops
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool

pytestmark = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")

SHAPES = [((7, 10), 1), ((3, 1000), 1), ((2, 5, 33), 1), ((4, 300, 7), 1), ((2, 3, 700), 1), ((300, 2), 0), ((5, 64), 1), ((1, 1), 1),
          ((40, 10, 1, 1), 1), ((6, 5, 4), -2)]  # fmt: skip
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def drawn(shape, dtype, seed=0, spread=3.0):
    return (np.random.default_rng(seed).normal(size=shape) * spread).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("logs", [False, True])
def test_values_and_gradients(shape, dim, logs, dtype):
    x, g = drawn(shape, dtype), drawn(shape, dtype, 1, 1.0)

    made = loops.along(x, dim, logs)
    slope = loops.along_grad(g, made, dim, logs)

    wide, up = made.astype(np.float64), g.astype(np.float64)
    expected = (special.log_softmax if logs else special.softmax)(x.astype(np.float64), dim)
    if logs:
        of_input = up - np.exp(wide) * up.sum(dim, keepdims=True)
    else:
        of_input = wide * (up - (up * wide).sum(dim, keepdims=True))
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert made.dtype == slope.dtype == dtype
    np.testing.assert_allclose(wide, expected, rtol=3 * eps, atol=4 * eps)
    np.testing.assert_allclose(slope.astype(np.float64), of_input, rtol=6 * eps, atol=30 * eps)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("logs", [False, True])
def test_nan_and_infinities_reach_their_own_row_only(dim, logs):
    x = drawn((40, 40), np.float32)
    along = (lambda i, j: (i, j)) if dim == 1 else (lambda i, j: (j, i))
    x[along(3, 5)] = np.nan
    x[along(4, 39)] = np.inf
    x[along(5, 39)] = -np.inf
    x[along(6, slice(None))] = -np.inf

    made = np.moveaxis(loops.along(x, dim, logs), dim, -1)

    broken = np.isnan(made).any(-1)
    assert np.flatnonzero(broken).tolist() == [3, 4, 6]
    assert np.isnan(made[[3, 6]]).all()
    assert made[5, 39] == (-np.inf if logs else 0)


def test_strided_inputs_and_broadcast_gradients():
    x = drawn((20, 30, 10), np.float32).transpose(2, 0, 1)
    g = np.broadcast_to(drawn((20, 1), np.float32), x.shape)

    made = loops.along(x, 2, False)

    np.testing.assert_allclose(made, special.softmax(x.astype(float), 2), rtol=1e-5)
    np.testing.assert_allclose(loops.along_grad(g, made, 2, False), 0, atol=1e-6)


@pytest.mark.parametrize(("shape", "dim"), [((300, 1000), 1), ((50, 20, 700), 1)])
def test_results_do_not_depend_on_the_number_of_threads(shape, dim):
    x = drawn(shape, np.float32)
    before = pool.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            made = loops.along(x, dim, True)
            found.append(made.tobytes() + loops.along_grad(x, made, dim, True).tobytes())
    finally:
        pool.set_num_threads(before)

    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_tiers_agree(name, monkeypatch):
    x, g = drawn((30, 41), np.float32), drawn((30, 41), np.float32, 1)
    found = []
    for taken in (True, False):
        monkeypatch.setattr(kernels, "_compiled", lambda a, taken=taken: loops if taken else None)
        made = getattr(kernels, name)(x, 1)
        found.append((made, getattr(kernels, name + "_grad")(g, made, 1)))

    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
