"""Functions and types that PyTorch has since 2.7, beside PyTorch's; attention over lengths, beside attention of each sequence."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.nn import attention
from flambeau.nn.attention import varlen
from flambeau.nn.functional import ScalingType

torch = pytest.importorskip("torch")
F, TF = fb.nn.functional, torch.nn.functional


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("dims", "size"), [(1, 3), (2, (2, 3)), (3, 2)])
def test_pooling_tells_places(dims, size):
    x = numbers(2, 3, *(7, 6, 5)[:dims])
    found, wanted = (
        getattr(f, f"adaptive_max_pool{dims}d_with_indices")(lib.tensor(x), size) for lib, f in ((fb, F), (torch, TF))
    )

    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize(
    "options", [{}, {"reduction": "none"}, {"reduction": "sum", "label_smoothing": 0.1}, {"ignore_index": 1}, {"bias": True,
    "weight": True}]
)
def test_linear_cross_entropy(options):
    x, w, b, c = numbers(4, 8), numbers(10, 8, seed=1), numbers(10, seed=2), np.abs(numbers(10, seed=3))
    found = []
    for lib, f in ((fb, F), (torch, TF)):
        given = {k: v for k, v in options.items() if k not in ("bias", "weight")}
        given |= {"linear_bias": lib.tensor(b), "weight": lib.tensor(c)} if "bias" in options else {}
        rows = lib.tensor(x).requires_grad_()
        targets = lib.tensor([1, 2, 3, 1 if "ignore_index" in options else -100])
        loss = f.linear_cross_entropy(rows, lib.tensor(w), targets, **given)
        loss.sum().backward()
        found.append((loss.detach().numpy(), rows.grad.numpy()))

    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [False, True])
def test_products_with_scales(rows):
    a, b = numbers(16, 32), numbers(16, 32, seed=1)
    found = []
    for lib, f in ((fb, F), (torch, TF)):
        left, right = lib.tensor(a).to(lib.float8_e4m3fn), lib.tensor(b).to(lib.float8_e4m3fn).t()
        kind = f.ScalingType.RowWise if rows else f.ScalingType.TensorWise
        scales = (lib.full((16, 1), 0.5), lib.full((1, 16), 3.0)) if rows else (lib.tensor(0.5), lib.tensor(3.0))
        found.append(f.scaled_mm(left, right, scales[0], kind, [scales[1]], [kind], output_dtype=lib.float32).numpy())

    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)
    left = fb.tensor(a).to(fb.float8_e4m3fn)
    with pytest.raises(NotImplementedError, match="BlockWise1x16"):
        F.scaled_mm(left, left.t(), fb.ones(1), ScalingType.BlockWise1x16, fb.ones(1), ScalingType.BlockWise1x16)
    with pytest.raises(ValueError, match="Invalid scaling"):
        F.scaled_mm(left, left.t(), fb.ones(3), ScalingType.TensorWise, fb.ones(1), ScalingType.TensorWise)


def test_kinds_of_scales_have_torchs_names_and_numbers():
    for name in ("ScalingType", "SwizzleType"):
        ours, theirs = getattr(F, name), getattr(TF, name)
        assert {m.name: m.value for m in ours} == {n: v.value for n, v in theirs.__members__.items()}


def test_a_pair_is_asked_for():
    for f in (F, TF):
        assert f.assert_int_or_pair((1, 2), "a", "m") is None
        with pytest.raises(AssertionError):
            f.assert_int_or_pair((1, 2, 3), "a", "m")


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (1, 0), (0, 1)])
@pytest.mark.parametrize("gqa", [False, True])
def test_sequences_attend_within_themselves(window, gqa):
    q, k, v = fb.tensor(numbers(7, 4, 8)), *(fb.tensor(numbers(9, 2 if gqa else 4, 8, seed=s)) for s in (1, 2))
    starts_q, starts_k = fb.tensor([0, 2, 7], dtype=fb.int32), fb.tensor([0, 4, 9], dtype=fb.int32)
    out, lse = varlen.varlen_attn(
        q, k, v, starts_q, starts_k, 5, 5, window_size=window, enable_gqa=gqa, return_aux=varlen.AuxRequest(lse=True)
    )

    for (qs, qe), (ks, ke) in (((0, 2), (0, 4)), ((2, 7), (4, 9))):
        left, keys, values = (t.numpy().astype(np.float64).swapaxes(0, 1) for t in (q[qs:qe], k[ks:ke], v[ks:ke]))
        if gqa:
            keys, values = keys.repeat(2, 0), values.repeat(2, 0)
        scores = left @ keys.swapaxes(1, 2) / 8**0.5
        place = np.arange(ke - ks) - (np.arange(qe - qs)[:, None] + (ke - ks) - (qe - qs))
        seen = (place >= -window[0] if window[0] >= 0 else True) & (place <= window[1] if window[1] >= 0 else place > -99)
        scores = np.where(seen, scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        np.testing.assert_allclose(
            out[qs:qe].numpy().swapaxes(0, 1), share / share.sum(-1, keepdims=True) @ values, rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(lse[:, qs:qe].numpy(), np.log(np.exp(scores).sum(-1)), rtol=1e-4, atol=1e-5)
    into = fb.empty(7, 4, 8)
    assert varlen.varlen_attn_out(into, q, k, v, starts_q, starts_k, 5, 5, window_size=window, enable_gqa=gqa) is into
    assert fb.equal(into, out)


def test_other_ways_of_attention_are_put_in_force_and_taken_out():
    for lib in (fb, torch):
        room, calls = lib.nn.attention, []

        class Handle:
            def remove(self, calls=calls):
                calls.append("out")

        room.register_flash_attention_impl("mine", register_fn=lambda calls=calls: calls.append("in") or Handle())
        assert "mine" in room.list_flash_attention_impls()
        assert room.current_flash_attention_impl() is None
        room.activate_flash_attention_impl("mine")
        assert (room.current_flash_attention_impl(), calls) == ("mine", ["in"])
        room.restore_flash_attention_impl()
        assert (room.current_flash_attention_impl(), calls) == (None, ["in", "out"])
        with pytest.raises(ValueError, match="Unknown flash attention impl 'none'"):
            room.activate_flash_attention_impl("none")
    with pytest.raises(NotImplementedError, match="kernels of its own"):
        attention.activate_flash_attention_impl("FA4")
    with pytest.warns(UserWarning, match="no custom impl"):
        attention.restore_flash_attention_impl()
