"""Compiled attention against its formula in float64, for the shapes, layouts, masks and dtypes it takes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.cpu import attention
from flambeau_kernels.cpu.attention import tiles
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool

pytestmark = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")

TOLERANCE = {"float32": 1e-5, "float64": 1e-13, "float16": 4e-3, "bfloat16": 3e-2}


def arrays(batch, heads, groups, rows, keys, width, out_width, dtype=np.float32, swapped=False):
    """q, k, v and a gradient; with `swapped` heads lie inside rows, as projections leave them."""
    rng = np.random.default_rng(rows + keys)
    shapes = ((heads, rows, width), (groups, keys, width), (groups, keys, out_width), (heads, rows, out_width))
    if swapped:
        return [rng.normal(size=(batch, n, h, d)).astype(dtype).swapaxes(1, 2) for h, n, d in shapes]
    return [rng.normal(size=(batch, h, n, d)).astype(dtype) for h, n, d in shapes]


def by_formula(q, k, v, g, mask=None, causal=False):
    """Output, logarithms of the sums, and the gradients, in float64 and with all weights at once."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    group = q.shape[1] // k.shape[1]
    scale = q.shape[3] ** -0.5
    keys, values = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = scale * q @ keys.swapaxes(2, 3)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask.astype(np.float64)
    if causal:
        s = np.where(np.tri(*s.shape[2:], dtype=bool), s, -np.inf)
    with np.errstate(divide="ignore"):
        top = np.maximum(s.max(3, keepdims=True), -1e300)
        total = np.exp(s - top).sum(3, keepdims=True)
        logs = np.where(total == 0, np.inf, top + np.log(total))
    p = np.exp(s - logs)
    out = p @ values
    ds = p * (g @ values.swapaxes(2, 3) - (g * out).sum(3, keepdims=True)) * scale
    split = (*k.shape[:2], group, k.shape[2], -1)
    dk = (ds.swapaxes(2, 3) @ q).reshape(split).sum(2)
    dv = (p.swapaxes(2, 3) @ g).reshape(split).sum(2)
    return out, logs, ds @ keys, dk, dv


def compiled(q, k, v, g, mask=None, causal=False):
    scale = q.shape[3] ** -0.5
    out, logs = tiles.attend(q, k, v, mask, scale, causal)
    return out, logs, *tiles.attend_grad(g, q, k, v, mask, out, logs, scale, causal)


def check(made, expected, dtype):
    for m, e in zip(made, expected, strict=True):
        assert m.dtype in (np.dtype(dtype), np.float32)
        np.testing.assert_allclose(m.astype(np.float64), e, rtol=TOLERANCE[np.dtype(dtype).name],
                                   atol=TOLERANCE[np.dtype(dtype).name])  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [
    (2, 3, 3, 128, 128, 64, 64), (1, 1, 1, 33, 70, 64, 64), (1, 2, 2, 70, 33, 64, 32), (2, 4, 2, 40, 65, 48, 40),
    (1, 4, 1, 9, 1, 7, 5), (1, 1, 1, 64, 200, 128, 100),
])  # fmt: skip
def test_shapes_and_groups(shape, causal):
    given = arrays(*shape)

    check(compiled(*given, causal=causal), by_formula(*given, causal=causal), np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_dtypes(dtype):
    given = arrays(1, 2, 2, 50, 80, 64, 64, dtype)

    check(compiled(*given), by_formula(*given), dtype)


@pytest.mark.parametrize("shape", [(2, 2, 40, 70), (1, 1, 40, 70), (2, 1, 1, 70), (1, 2, 40, 1)])
@pytest.mark.parametrize("kind", [bool, np.float32])
def test_masks_that_broadcast(shape, kind):
    given = arrays(2, 2, 1, 40, 70, 64, 64)
    drawn = np.random.default_rng(0).normal(size=shape)
    mask = drawn > -0.5 if kind is bool else drawn.astype(kind)

    check(compiled(*given, mask=mask), by_formula(*given, mask=mask), np.float32)


def test_queries_that_see_nothing_get_zeros_and_give_none():
    given = arrays(1, 1, 1, 40, 70, 64, 64)
    mask = np.ones((1, 1, 40, 70), bool)
    mask[:, :, 5] = False

    out, logs, dq, dk, dv = compiled(*given, mask=mask)

    assert not out[0, 0, 5].any()
    assert logs[0, 0, 5, 0] == np.inf
    assert not dq[0, 0, 5].any()
    check((out, logs, dq, dk, dv), by_formula(*given, mask=mask), np.float32)


def test_projections_are_read_where_they_lie_and_results_lie_alike():
    given = arrays(2, 3, 3, 40, 40, 64, 64, swapped=True)

    made = compiled(*given)

    check(made, by_formula(*given), np.float32)
    assert [a.strides for a in (made[0], *made[2:])] == [given[0].strides] * 4


def test_a_nan_reaches_the_queries_that_see_it_and_no_others():
    q, k, v, g = arrays(1, 1, 1, 64, 64, 64, 64)
    k[0, 0, 30] = np.nan

    out = compiled(q, k, v, g, causal=True)[0]

    assert not np.isnan(out[0, 0, :30]).any()
    assert np.isnan(out[0, 0, 30:]).all()


def test_scores_far_from_zero():
    q, k, v, g = arrays(1, 1, 1, 40, 70, 64, 64, np.float64)

    made, expected = compiled(q * 50, k * 50, v, g), by_formula(q * 50, k * 50, v, g)

    # Gradients of q and k are sums of differences that cancel, times k and q, which are fifty times as large as elsewhere.
    units = (1, 1, 50, 50, 1)
    check(*([x / unit for x, unit in zip(some, units, strict=True)] for some in (made, expected)), np.float64)


@pytest.mark.parametrize("shape", [(1, 1, 1, 100, 700, 64, 64), (4, 4, 2, 70, 70, 40, 40)])
def test_results_do_not_depend_on_the_number_of_threads(shape):
    given = arrays(*shape)
    before = pool.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            found.append([a.tobytes() for a in compiled(*given, causal=True)])
    finally:
        pool.set_num_threads(before)

    assert found[0] == found[1] == found[2]


def test_tiers_agree(monkeypatch):
    q, k, v, g = arrays(2, 4, 2, 40, 70, 48, 40)
    mask = np.random.default_rng(0).normal(size=(1, 4, 40, 70)).astype(np.float32)
    found = []
    for taken in (True, False):
        monkeypatch.setattr(attention, "_compiled", lambda *a, taken=taken: taken)
        out, logs = attention.attend(q, k, v, mask, 0.2, False)
        found.append((out, logs, *attention.attend_grad(g, q, k, v, mask, out, logs, 0.2, False, False)[:3]))

    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-5)
