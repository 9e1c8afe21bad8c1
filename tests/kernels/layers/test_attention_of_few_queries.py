"""Attention of fewer queries than a vector has lanes: by the compiled kernel where little is to be done, else by the numpy tier."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau_kernels.cpu import attention
from flambeau_kernels.cpu.attention import tiles


def draw(batch, heads, queries, keys, width):
    rng = np.random.default_rng(queries)
    return [rng.standard_normal((batch, heads, n, width)).astype(np.float32) for n in (queries, keys, keys)]


@pytest.mark.parametrize("queries", range(1, 8))
@pytest.mark.parametrize("causal", [False, True])
def test_few_queries_attend_as_the_formula_says(queries, causal):
    q, k, v = draw(2, 3, queries, 9, 5)
    out, logs = attention.attend(q, k, v, None, 0.5, causal)

    scores = 0.5 * (q.astype(float) @ k.swapaxes(-1, -2))
    if causal:
        scores[..., np.arange(queries)[:, None] < np.arange(9)] = -np.inf
    weights = np.exp(scores)
    np.testing.assert_allclose(out, weights / weights.sum(-1, keepdims=True) @ v, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(logs, np.log(weights.sum(-1, keepdims=True)), rtol=2e-5, atol=2e-6)


def test_a_single_query_over_many_keys_leaves_vectors_idle_and_is_left_to_numpy():
    q, _, v = draw(1, 8, 1, 1024, 64)

    assert not tiles.fits(q, v)
    assert tiles.fits(q, v[:, :, :16])
