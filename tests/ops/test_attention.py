"""Attention against the formula written out, tile by tile and as a whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special

import flambeau as fb
import flambeau.nn.functional as F
from flambeau.ops._spec import OPS
from flambeau_kernels import engines
from flambeau_kernels.cpu import attention

RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=(2, 3, n, d)) for n, d in ((7, 4), (9, 4), (9, 5)))
VISIBLE = RNG.uniform(size=(7, 9)) > 0.4


def written_out(mask: Any = 0.0, scale: float = 0.5) -> np.ndarray:
    return special.softmax(scale * Q @ K.swapaxes(-1, -2) + mask, -1) @ V


def additive(visible: np.ndarray) -> np.ndarray:
    return np.where(visible, 0.0, -np.inf)


def attend(*args: Any, **kwargs: Any) -> np.ndarray:
    return F.scaled_dot_product_attention(*(fb.tensor(x) for x in (Q, K, V)), *args, **kwargs).numpy()


@pytest.fixture(params=[None, (12, 4)], ids=["one tile", "many tiles"])
def _tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(attention, "TILE_SCORES", request.param[0])
        monkeypatch.setattr(attention, "TILE_KEYS", request.param[1])


@pytest.mark.usefixtures("_tiles")
def test_attention_is_softmax_of_scores_times_values() -> None:
    bias = RNG.normal(size=(3, 7, 9))

    np.testing.assert_allclose(attend(), written_out(), rtol=1e-12)
    np.testing.assert_allclose(attend(scale=2.0), written_out(scale=2.0), rtol=1e-10)
    np.testing.assert_allclose(attend(is_causal=True), written_out(additive(np.tri(7, 9, dtype=bool))), rtol=1e-12)
    np.testing.assert_allclose(attend(fb.tensor(VISIBLE)), written_out(additive(VISIBLE)), rtol=1e-12)
    np.testing.assert_allclose(attend(fb.tensor(bias)), written_out(bias), rtol=1e-12)


@pytest.mark.usefixtures("_tiles")
def test_gradients_equal_those_of_the_formula_made_of_tensor_ops() -> None:
    bias = RNG.normal(size=(1, 1, 7, 9))
    found = []
    for whole in (False, True):
        q, k, v, b = (fb.tensor(x, requires_grad=True) for x in (Q, K, V, bias))
        if whole:
            out = (q @ k.transpose(-2, -1) * 0.5 + b).softmax(-1) @ v
        else:
            out = F.scaled_dot_product_attention(q, k, v, b)
        out.sin().sum().backward()
        found.append([x.grad.numpy() for x in (q, k, v, b)])

    for mine, expected in zip(*found, strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-12)


def test_a_query_that_sees_nothing_gets_zeros_and_gives_no_gradient() -> None:
    visible = VISIBLE.copy()
    visible[2] = False
    q, k, v = (fb.tensor(x, requires_grad=True) for x in (Q, K, V))
    out = F.scaled_dot_product_attention(q, k, v, fb.tensor(visible))
    out.sum().backward()

    assert not out[:, :, 2].any()
    assert not q.grad[:, :, 2].any()
    assert not q.grad.isnan().any()


def test_heads_of_keys_serve_several_heads_of_queries() -> None:
    q = fb.tensor(RNG.normal(size=(1, 4, 3, 2)))
    k, v = (fb.tensor(RNG.normal(size=(1, 2, 5, 2))) for _ in range(2))
    grouped = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    for head in range(4):
        alone = F.scaled_dot_product_attention(q[:, head], k[:, head // 2], v[:, head // 2])
        np.testing.assert_allclose(grouped[:, head].numpy(), alone.numpy(), rtol=1e-12)


def test_long_sequences_need_no_square_of_memory() -> None:
    import tracemalloc

    q = fb.zeros(1, 8192, 8)
    tracemalloc.start()
    F.scaled_dot_product_attention(q, q, q, is_causal=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 8192 * 8192 * 4 / 8


@pytest.mark.parametrize("ndim", [3, 4])
def test_a_mask_and_the_causal_one_apply_together(ndim) -> None:
    q, k, v = (fb.tensor(x.reshape(-1, *x.shape[-2:])[:2]).requires_grad_() for x in (Q, K, V))
    operands = [x[None] for x in (q, k, v)] if ndim == 4 else [q, k, v]
    earlier = fb.ones(q.shape[-2], k.shape[-2], dtype=fb.bool).tril()
    lets = fb.rand(q.shape[-2], k.shape[-2]) > 0.3
    for mask, both in ((lets, lets & earlier), (lets.double(), lets.double().masked_fill(~earlier, -math.inf))):
        made = F.scaled_dot_product_attention(*operands, attn_mask=mask, is_causal=True)
        expected = F.scaled_dot_product_attention(*operands, attn_mask=both)
        fb.testing.assert_close(made, expected)
        for x, y in zip(*(fb.autograd.grad(m.square().sum(), (q, k, v)) for m in (made, expected)), strict=True):
            fb.testing.assert_close(x, y)


def test_what_does_not_go_together_is_refused() -> None:
    q, k, v = (fb.tensor(x) for x in (Q, K, V))
    with pytest.raises(RuntimeError, match="should not be set when is_causal=True"):
        F.scaled_dot_product_attention(q, k, v, fb.tensor(VISIBLE), 0.5, is_causal=True)
    with pytest.raises(RuntimeError, match="same dtype"):
        F.scaled_dot_product_attention(q, k.float(), v)
    with pytest.raises(RuntimeError, match=r"attn_mask of shape \(7, 8\) does not broadcast"):
        F.scaled_dot_product_attention(q, k, v, fb.ones(7, 8, dtype=fb.bool))


def test_multi_head_attention_is_attention_of_projected_slices() -> None:
    length, batch, width, heads = 5, 2, 6, 3
    x = RNG.normal(size=(length, batch, width))
    packed, bias, after = RNG.normal(size=(3 * width, width)), RNG.normal(size=3 * width), RNG.normal(size=(width, width))
    t = fb.tensor(x)
    made, weights = F.multi_head_attention_forward(
        t, t, t, width, heads, fb.tensor(packed), fb.tensor(bias), None, None, False, 0.0, fb.tensor(after), None
    )

    q, k, v = np.split(x @ packed.T + bias, 3, -1)
    per_head = []
    for h in range(heads):
        part = slice(2 * h, 2 * h + 2)
        qh, kh, vh = (np.moveaxis(z[..., part], 1, 0) for z in (q, k, v))  # (N, L, 2)
        p = special.softmax(qh @ kh.swapaxes(1, 2) / math.sqrt(2), -1)
        per_head.append((p, p @ vh))
    expected = np.moveaxis(np.concatenate([out for _, out in per_head], -1), 0, 1) @ after.T
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(weights.numpy(), np.mean([p for p, _ in per_head], 0), rtol=1e-10)


def test_padded_keys_are_not_attended_to() -> None:
    x = fb.tensor(RNG.normal(size=(4, 2, 6)))
    weight = fb.tensor(RNG.normal(size=(18, 6)))
    padding = fb.tensor([[False, False, False, True], [False] * 4])
    for need_weights in (True, False):
        made, weights = F.multi_head_attention_forward(
            x, x, x, 6, 2, weight, None, None, None, False, 0.0, fb.eye(6, dtype=fb.float64), None,
            key_padding_mask=padding, need_weights=need_weights,
        )  # fmt: skip
        short, _ = F.multi_head_attention_forward(
            x[:, :1], x[:3, :1], x[:3, :1], 6, 2, weight, None, None, None, False, 0.0, fb.eye(6, dtype=fb.float64), None
        )
        np.testing.assert_allclose(made[:, :1].numpy(), short.numpy(), rtol=1e-10)
        assert weights is None or not weights[0, :, 3].any()


@pytest.mark.parametrize("shape", [(7, 5), (1, 1, 7, 5), (2, 1, 1, 5)])
@pytest.mark.parametrize("kind", ["bool", "floating", "with history"])
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
def test_masked_attention_is_answered_by_a_plan_to_the_same_bits(shape, kind, dtype) -> None:
    fb.manual_seed(0)
    q, k, v = (fb.randn(2, 4, n, 8, dtype=dtype, requires_grad=True) for n in (7, 5, 5))
    mask = fb.rand(*shape, dtype=dtype) > 0.3 if kind == "bool" else fb.randn(*shape, dtype=dtype, requires_grad=kind == "with history")
    wanted = [q, k, v, mask] if kind == "with history" else [q, k, v]
    args = (q, k, v, mask, 0.0, False, None, False)
    op = OPS["nn.functional.scaled_dot_product_attention"]

    planned, composed = op.answer(*args), op.run(*args)

    if engines.chosen().compiles:
        assert planned is not None
        assert planned.tolist() == composed.tolist()
        assert [g.tolist() for g in fb.autograd.grad(planned.sum(), wanted)] == [
            g.tolist() for g in fb.autograd.grad(composed.sum(), wanted)
        ]
    with pytest.raises(RuntimeError, match="does not broadcast"):
        F.scaled_dot_product_attention(q, k, v, attn_mask=fb.zeros(3, 5, dtype=dtype))


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (4, 0), (0, 0)])
def test_attention_without_queries_or_keys_is_zero_and_has_gradients_of_all_three(queries: int, keys: int) -> None:
    query = fb.full((3, queries, 2), float("inf"), requires_grad=True)
    key, value = (fb.ones(3, keys, 2, requires_grad=True) for _ in range(2))
    made = F.scaled_dot_product_attention(query, key, value)
    made.sum().backward()
    assert made.shape == (3, queries, 2)
    assert made.eq(0).all()
    for x in (query, key, value):
        assert x.grad.shape == x.shape
        assert x.grad.eq(0).all()
