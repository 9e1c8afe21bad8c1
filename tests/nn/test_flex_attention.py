"""flex_attention and its masks: PyTorch's results, and the gradients of the same attention written with PyTorch's plain ops."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.nn.attention import _fused
from flambeau.nn.attention import flex_attention as flex
from flambeau.nn.attention.flex_attention import (
    BlockMask,
    create_block_mask,
    create_mask,
    create_nested_block_mask,
    flex_attention,
)
from flambeau_kernels.engine.machine_code import llvm

torch = pytest.importorskip("torch")
their_flex = pytest.importorskip("torch.nn.attention.flex_attention")


@pytest.fixture(autouse=True)
def their_functions_run_as_they_are(monkeypatch):
    monkeypatch.setattr(their_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)


pytestmark = pytest.mark.filterwarnings(
    "ignore:flex_attention called without torch.compile", "ignore:return_lse is deprecated", "ignore:`isinstance"
)


def theirs(x):
    return torch.tensor(x.tolist(), dtype=getattr(torch, str(x.dtype).removeprefix("torch."))).reshape(tuple(x.shape))


def same(got, want, atol=2e-6, rtol=2e-5):
    got, want = got.detach().double(), fb.tensor(want.detach().double().tolist(), dtype=fb.float64)
    return tuple(got.shape) == tuple(want.shape) and fb.allclose(got, want, atol=atol, rtol=rtol, equal_nan=True)


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i - j).abs() <= 3


def strides(b, h, i, j):
    return (i + h) % 3 == (j + b) % 3


def some_rows_see_nothing(b, h, i, j):
    return (i > 4) & (j < 7)


MASKS = {"causal": causal, "window": window, "strides": strides, "blind rows": some_rows_see_nothing}


def documents(lib):
    numbers = lib.tensor([0] * 5 + [1] * 9 + [2] * 100)
    return lambda b, h, i, j: (numbers[i] == numbers[j]) & (i >= j)


def mods(lib, tables):
    """Score functions by name, over captured tables: a bias of heads and distances, a slope for each head, a matrix for a batch."""
    bias, slopes, matrix = tables
    return {
        "identity": lambda s, b, h, i, j: s,
        "distance": lambda s, b, h, i, j: s - 0.1 * (i - j).abs(),
        "slopes": lambda s, b, h, i, j: s + slopes[h] * (j - i),
        "soft cap": lambda s, b, h, i, j: 3 * lib.tanh(s / 3),
        "relative bias": lambda s, b, h, i, j: s + bias[h, i - j],
        "row of a matrix": lambda s, b, h, i, j: s * matrix[b][i],
        "masked": lambda s, b, h, i, j: lib.where(i % 3 != j % 3, s, -float("inf")),
        "powers": lambda s, b, h, i, j: (s.abs() + 0.7) ** 1.3 + (i - j) * 0.01,
        "by parts": lambda s, b, h, i, j: lib.where((i > j) & (h == 0) | (j < 3), lib.exp(0.3 * s) + lib.sigmoid(s) ** 2, s.abs()),
        "steps": lambda s, b, h, i, j: s * (1 + lib.minimum(i, j) // 4) - lib.clamp(i - j, -2, 5) / 7 + (i <= j),
    }


def tables(dtype=None):
    fb.manual_seed(1)
    return [fb.randn(4, 60, dtype=dtype), fb.randn(4, dtype=dtype), fb.randn(2, 40, dtype=dtype)]


def operands(*shapes, dtype=None):
    fb.manual_seed(0)
    return [fb.randn(*shape, dtype=dtype) for shape in shapes]


MODS = list(mods(fb, tables()))
SHAPES = [(2, 4, 13, 8), (2, 4, 17, 8), (2, 4, 17, 5)]


# -- masks ---------------------------------------------------------------------------------------------------------------


def both_masks(mask, their_mask, B, H, rows, columns, block):
    return (
        create_block_mask(mask, B, H, rows, columns, "cpu", BLOCK_SIZE=block),
        their_flex.create_block_mask(their_mask, B, H, rows, columns, "cpu", BLOCK_SIZE=block),
    )


def listed(mask):
    names = [f"{full}{side}_{what}" for full in ("", "full_") for side in ("kv", "q") for what in ("num_blocks", "indices")]
    tensors = {name: getattr(mask, name) for name in names}
    return {name: None if t is None else (str(t.dtype), t.tolist()) for name, t in tensors.items()}


def assert_same_mask(ours, their):
    assert listed(ours) == listed(their)
    assert (tuple(ours.shape), ours.seq_lengths, ours.BLOCK_SIZE) == (tuple(their.shape), their.seq_lengths, their.BLOCK_SIZE)
    assert (ours.sparsity(), ours.numel(), str(ours)) == (their.sparsity(), their.numel(), str(their))
    assert ours.to_dense().tolist() == their.to_dense().tolist()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("B", "H", "block"), [(None, None, (4, 3)), (2, 3, 5), (1, 2, (16, 16)), (2, None, (1, 2))])
def test_block_masks_list_the_blocks_that_pytorchs_list(mask, B, H, block):
    ours, their = both_masks(MASKS[mask], MASKS[mask], B, H, 13, 17, block)

    assert_same_mask(ours, their)
    assert repr(ours) == repr(their)
    for grid, limit in (((4, 4), 2), (-1, 1), (3, 9), ((2, 1), 4)):
        assert ours.to_string(grid, limit) == their.to_string(grid, limit)


@pytest.mark.parametrize("index", [0, -1, (0, 1), slice(0, 1), (slice(None), 0), (0, 0, 1), (0, 0, slice(1, 3)), (1, slice(0, 2))])
def test_parts_of_block_masks(index):
    ours, their = both_masks(strides, strides, 2, 3, 13, 17, (4, 3))

    assert_same_mask(ours[index], their[index])
    with pytest.raises(RuntimeError, match="mask_mod from a sliced BlockMask"):
        ours[index].mask_mod(*[fb.tensor(0)] * 4)


@pytest.mark.parametrize("lengths", [(13, 17), (8, 17), (9, 16), (4, 3), (12, 4)])
def test_block_masks_are_cropped(lengths):
    ours = create_block_mask(causal, 2, None, 13, 17, BLOCK_SIZE=(4, 3))._adjust(*lengths)
    inside = create_block_mask(causal, 2, None, 13, 17, BLOCK_SIZE=(4, 3)).to_dense()

    assert tuple(ours.shape) == (2, 1, *lengths)
    assert ours.to_dense().tolist() == inside[..., : -(-lengths[0] // 4), : -(-lengths[1] // 3)].tolist()


def test_block_masks_of_lists():
    counts, indices = [[[1, 2]]], [[[[0, 1], [1, 0]]]]

    def make(lib, module, **kwargs):
        return module.BlockMask.from_kv_blocks(lib.tensor(counts, dtype=lib.int32), lib.tensor(indices, dtype=lib.int32), **kwargs)

    for kwargs in ({}, {"BLOCK_SIZE": 3}, {"BLOCK_SIZE": (2, 5), "seq_lengths": (3, 9)}, {"compute_q_blocks": False}):
        assert_same_mask(make(fb, flex, **kwargs), make(torch, their_flex, **kwargs))
    mask = make(fb, flex)
    assert listed(BlockMask(*mask.as_tuple(flatten=False))) == listed(mask)
    assert len(mask.as_tuple()) == 13
    assert mask.to("meta").kv_indices.device.type == "meta"
    with pytest.raises(AssertionError, match="both provided or omitted"):
        BlockMask.from_kv_blocks(mask.kv_num_blocks, mask.kv_indices, full_kv_num_blocks=mask.kv_num_blocks)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        BlockMask.from_kv_blocks(mask.kv_num_blocks[0, 0, 0], mask.kv_indices[0, 0, 0])


@pytest.mark.parametrize("name", ["and_masks", "or_masks"])
def test_masks_are_joined(name):
    for given_masks in ((), (causal,), (causal, window), (causal, window, strides)):
        ours = create_mask(getattr(flex, name)(*given_masks), 2, 2, 6, 7)
        want = their_flex.create_mask(getattr(their_flex, name)(*given_masks), 2, 2, 6, 7, "cpu")
        assert ours.tolist() == want.tolist()
    with pytest.raises(RuntimeError, match="callable mask_mods"):
        getattr(flex, name)(causal, 3)


def test_masks_of_score_functions():
    def hides(lib):
        return lambda s, b, h, i, j: lib.where(i >= j, s + j, -float("inf"))

    want = their_flex.create_mask(hides(torch), 1, 2, 3, 4, "cpu")
    assert create_mask(hides(fb), 1, 2, 3, 4).tolist() == want.tolist()


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (lambda: create_block_mask(lambda s, b, h, i, j: s, 1, 1, 2, 2), AssertionError, "requires a mask_mod"),
        (lambda: create_block_mask(lambda b, h, i: i, 1, 1, 2, 2), AssertionError, "Expected 4 or 5 positional args, got 3"),
        (lambda: create_mask(lambda *a: a[0], 1, 1, 2, 2), AssertionError, "got 0"),
        (lambda: create_mask(3, 1, 1, 2, 2), TypeError, "not a callable"),
        (lambda: create_block_mask(lambda b, h, i, j: i, 1, 1, 2, 2), AssertionError, "must be torch.bool, got torch.int64"),
        (lambda: create_mask(lambda b, h, i, j: True, 1, 1, 2, 2), ValueError, "must only return Tensors"),
    ],
)
def test_wrong_masks_are_refused(wrong, error, match):
    with pytest.raises(error, match=match):
        wrong()


# -- attention -----------------------------------------------------------------------------------------------------------


def written_out(q, k, v, mod, mask, scale=None):
    """The same attention by PyTorch's plain ops, with gradients; `mod` and `mask` take tensors of all places."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    b, h, i, j = torch.meshgrid(*map(torch.arange, scores.shape), indexing="ij")
    if mod is not None:
        scores = mod(scores, b, h, i, j)
    if mask is not None:
        scores = scores.masked_fill(~mask(b, h, i, j), -math.inf)
    blind = (scores == -math.inf).all(-1, keepdim=True)
    safe = scores.masked_fill(blind, 0)
    out = safe.softmax(-1).masked_fill(blind, 0) @ v
    return out, safe.logsumexp(-1).masked_fill(blind.squeeze(-1), -math.inf)


@pytest.mark.parametrize("mod", [None, *MODS])
@pytest.mark.parametrize("mask", [None, "documents", *MASKS])
def test_results_are_pytorchs(mod, mask):
    ours = operands(*SHAPES)
    captured = tables()
    named, their_named = mods(fb, captured), mods(torch, [theirs(t) for t in captured])
    mask_of = {"documents": documents(fb), **MASKS}, {"documents": documents(torch), **MASKS}
    blocks = (None, None) if mask is None else both_masks(mask_of[0][mask], mask_of[1][mask], 2, 4, 13, 17, (4, 5))

    got, lse = flex_attention(*ours, named.get(mod), blocks[0], return_lse=True)
    want, their_lse = their_flex.flex_attention(*map(theirs, ours), their_named.get(mod), blocks[1], return_lse=True)

    assert same(got, want)
    assert same(lse, their_lse)
    assert fb.equal(flex_attention(*ours, named.get(mod), blocks[0]), got)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(dtype):
    ours = operands(*SHAPES, dtype=getattr(fb, dtype))
    blocks = both_masks(causal, causal, None, None, 13, 17, (4, 5))

    def seen(s, b, h, i, j):
        assert str(s.dtype) == ("torch.float64" if dtype == "float64" else "torch.float32")
        return s * 1.5

    got, lse = flex_attention(*ours, seen, blocks[0], return_lse=True)
    want, their_lse = their_flex.flex_attention(*map(theirs, ours), seen, blocks[1], return_lse=True)

    assert (str(got.dtype), str(lse.dtype)) == (str(want.dtype), str(their_lse.dtype))
    assert same(got, want, *((1e-12, 1e-12) if dtype == "float64" else (2e-2, 2e-2)))
    assert same(lse, their_lse, *((1e-12, 1e-12) if dtype == "float64" else (2e-2, 2e-2)))


@pytest.mark.parametrize("kwargs", [{"scale": 0.7}, {"scale": 0}, {"enable_gqa": True}, {"kernel_options": {"BLOCK_M": 32}}])
def test_options(kwargs):
    ours = operands((2, 4, 9, 8), *(((2, 2, 9, 8),) * 2 if "enable_gqa" in kwargs else ((2, 4, 9, 8),) * 2))

    def mod(s, b, h, i, j):
        return s + h * 0.1

    want = their_flex.flex_attention(*map(theirs, ours), mod, **kwargs)
    assert same(flex_attention(*ours, mod, **kwargs), want)


def test_one_batch_of_keys_serves_all_queries():
    ours = operands((3, 2, 9, 8), (1, 2, 9, 8), (1, 2, 9, 4))
    blocks = both_masks(causal, causal, 3, None, 9, 9, 4)

    assert same(flex_attention(*ours, block_mask=blocks[0]), their_flex.flex_attention(*map(theirs, ours), block_mask=blocks[1]))


def gradients(mod, mask, shapes, block, scale=None, captured_too=True, dtype=None):
    """Gradients at query, key, value and the captured tables, of a mixture of result and logarithms; ours and PyTorch's."""
    ours, captured = operands(*shapes, dtype=dtype), tables(dtype)
    leaves = [*ours, *(captured if captured_too else ())]
    their_leaves = [theirs(x).requires_grad_() for x in leaves]
    their_tables = their_leaves[3:] or [theirs(t) for t in captured]
    for x in leaves:
        x.requires_grad_()
    masks = {"documents": documents(fb), **MASKS}, {"documents": documents(torch), **MASKS}
    q, k, v = ours
    B, H = (q.shape[0], q.shape[1]) if mask == "strides" else (None, None)  # the one mask that tells batches and heads apart
    block_mask = None if mask is None else create_block_mask(masks[0][mask], B, H, q.shape[2], k.shape[2], BLOCK_SIZE=block)
    out, lse = flex_attention(
        q, k, v, mods(fb, captured).get(mod), block_mask, scale, enable_gqa=q.shape[1] != k.shape[1], return_lse=True
    )
    (out.square().sum() + lse.where(lse > -math.inf, 0).sin().sum()).backward()
    mod_of = mods(torch, their_tables)
    mod_of["row of a matrix"] = lambda s, b, h, i, j: s * their_tables[2][b, i]
    want, their_lse = written_out(*their_leaves[:3], mod_of.get(mod), masks[1].get(mask), scale)
    (want.square().sum() + their_lse.where(their_lse > -math.inf, 0.0).sin().sum()).backward()
    return [(x.grad, y.grad) for x, y in zip(leaves, their_leaves, strict=True)]


@pytest.mark.parametrize("mod", [None, *MODS])
@pytest.mark.parametrize("mask", [None, "documents", "blind rows"])
def test_gradients_reach_operands_and_captured_tensors(mod, mask):
    for got, want in gradients(mod, mask, SHAPES, (4, 5)):
        assert (got is None and want is None) or same(got, want, 1e-5, 1e-4)


def test_second_derivatives():
    (q,) = operands((1, 2, 5, 4), dtype=fb.float64)
    block = create_block_mask(causal, None, None, 5, 5, BLOCK_SIZE=2)

    assert fb.autograd.gradgradcheck(lambda q: flex_attention(q, q, q, lambda s, *_: s.tanh(), block), q.requires_grad_())


@settings(max_examples=30, deadline=None)
@given(
    seen=st.integers(1, 14).flatmap(
        lambda n: st.lists(st.lists(st.booleans(), min_size=11, max_size=11), min_size=n, max_size=n)
    ),
    block=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
def test_any_mask_means_what_it_means_in_pytorch(seen, block):
    rows = len(seen)
    ours = operands((1, 2, rows, 4), (1, 2, 11, 4), (1, 2, 11, 4))
    table, their_table = fb.tensor(seen), torch.tensor(seen)
    masks = both_masks(lambda b, h, i, j: table[i, j], lambda b, h, i, j: their_table[i, j], None, None, rows, 11, block)

    assert_same_mask(*masks)
    got, lse = flex_attention(*ours, block_mask=masks[0], return_lse=True)
    want, their_lse = their_flex.flex_attention(*map(theirs, ours), block_mask=masks[1], return_lse=True)
    assert same(got, want)
    assert same(lse, their_lse)


def ones(*shape):
    return fb.ones(*shape)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda q, m: flex_attention(q[0], q[0], q[0]), NotImplementedError, "4D tensors"),
        (lambda q, m: flex_attention(q, ones(2, 2, 6, 5), q), ValueError, "same embedding dimension but got E=4 and E=5"),
        (lambda q, m: flex_attention(q, q, ones(2, 2, 5, 4)), RuntimeError, "agree in batch, heads and length"),
        (lambda q, m: flex_attention(ones(2, 4, 6, 4), q, q), ValueError, "Hq=4 and Hkv=2. Try setting enable_gqa=True"),
        (lambda q, m: flex_attention(ones(2, 3, 6, 4), q, q, enable_gqa=True), ValueError, "multiple of kv heads.*Hq=3 and Hkv=2"),
        (lambda q, m: flex_attention(q, q[:1], q[:1]), ValueError, "same batch size.*Bq=2, Bkv=1"),
        (lambda q, m: flex_attention(ones(3, 2, 6, 4), q, q, block_mask=m), ValueError, "Bq=3, Bkv=2 and B_block_mask=1"),
        (lambda q, m: flex_attention(q[:, :, :5], q, q, block_mask=m), ValueError, "q_len=5 and kv_len=6.*_adjust"),
        (lambda q, m: flex_attention(ones(2, 2, 7, 4), q, q, block_mask=m), ValueError, "create a new block mask"),
        (lambda q, m: flex_attention(q, q, q, lambda s, b, h, i: s), TypeError, "positional argument"),
        (lambda q, m: flex_attention(q, q, q, lambda *_: None), ValueError, "must only return Tensors"),
        (lambda q, m: flex_attention(q, q, q, lambda s, b, h, i, j: s if i > j else -s), RuntimeError, "data-dependent"),
        (lambda q, m: flex_attention(q, q, q, lambda s, b, h, i, j: s + ones(3)[i]), IndexError, "out of"),
        (lambda q, m: flex_attention(q, q, q, 3), TypeError, "callable"),
        (lambda q, m: flex_attention(q, q, q, block_mask=ones(6, 6)), TypeError, "must be a BlockMask"),
        (lambda q, m: flex_attention(q, q, q, kernel_options=3), TypeError, "not iterable"),
    ],
)
def test_wrong_arguments_are_refused(call, error, match):
    with pytest.raises(error, match=match):
        call(ones(2, 2, 6, 4), create_block_mask(causal, None, None, 6, 6, BLOCK_SIZE=2))


# -- one kernel ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def one_kernel(monkeypatch):
    """Small calls go to the kernel as well; the value says what computes a call."""
    if fb.kernels.backend() == "numpy" or llvm.available() is not None:
        pytest.skip("nothing is compiled here")
    monkeypatch.setattr(_fused, "FUSED_FROM", 0)
    return flex_attention.explain_call


LONG = [(2, 4, 37, 8), (2, 4, 41, 8), (2, 4, 41, 8)]
COMBINED = [
    ("identity", None), ("distance", "documents"), ("slopes", "causal"), ("soft cap", "window"), ("relative bias", "strides"),
    ("row of a matrix", None), ("masked", "blind rows"), ("by parts", "documents"), ("steps", "causal"),
    ("powers", "documents"), (None, "documents"),
]  # fmt: skip


def assert_in_one_kernel(explain, mod, mask, shapes, block):
    q, k, v = operands(*shapes)
    captured = [t.requires_grad_() for t in tables()]
    masks = {"documents": documents(fb), **MASKS}
    block_mask = None if mask is None else create_block_mask(masks[mask], 2, 4, 37, 41, BLOCK_SIZE=block)
    said = explain(q, k, v, mods(fb, captured).get(mod), block_mask)
    assert said.startswith("one kernel"), said


@pytest.mark.parametrize(("mod", "mask"), COMBINED)
def test_the_kernel_has_the_gradients_of_plain_ops(one_kernel, mod, mask):
    for block in ((16, 32), (7, 5)):
        assert_in_one_kernel(one_kernel, mod, mask, LONG, block)
        for got, want in gradients(mod, mask, LONG, block):
            assert (got is None and want is None) or same(got, want, 2e-5, 2e-4)


@pytest.mark.parametrize(("mod", "mask"), COMBINED)
def test_the_kernel_has_pytorchs_results(one_kernel, mod, mask):
    ours = operands(*LONG)
    captured = tables()
    masks = {"documents": documents(fb), **MASKS}, {"documents": documents(torch), **MASKS}
    blocks = (None, None) if mask is None else both_masks(masks[0][mask], masks[1][mask], 2, 4, 37, 41, (16, 32))

    got, lse = flex_attention(*ours, mods(fb, captured).get(mod), blocks[0], return_lse=True)
    want, their_lse = their_flex.flex_attention(
        *map(theirs, ours), mods(torch, [theirs(t) for t in captured]).get(mod), blocks[1], return_lse=True
    )

    assert same(got, want)
    assert same(lse, their_lse)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_the_kernel_computes_in_other_dtypes(one_kernel, dtype):
    atol, rtol = {"float64": (1e-11, 1e-10), "float16": (2e-2, 2e-2), "bfloat16": (1e-1, 5e-2)}[dtype]
    if dtype == "float64":
        for got, want in gradients("soft cap", "documents", LONG, (16, 32), captured_too=False, dtype=fb.float64):
            assert same(got, want, atol, rtol)
        return
    leaves = [x.requires_grad_() for x in operands(*LONG, dtype=getattr(fb, dtype))]
    their_leaves = [theirs(x.detach().float()).requires_grad_() for x in leaves]
    block_mask = create_block_mask(documents(fb), None, None, 37, 41, BLOCK_SIZE=(16, 32))
    out = flex_attention(*leaves, mods(fb, tables())["soft cap"], block_mask)
    want, _ = written_out(*their_leaves, lambda s, *_: 3 * torch.tanh(s / 3), documents(torch))
    out.sin().sum().backward()
    want.sin().sum().backward()

    assert out.dtype is getattr(fb, dtype)
    assert same(out, want, atol, rtol)
    assert all(same(x.grad, y.grad, atol, rtol) for x, y in zip(leaves, their_leaves, strict=True))


def test_heads_of_keys_serve_several_heads_of_queries_in_the_kernel(one_kernel):
    for got, want in gradients("slopes", "documents", [(2, 4, 37, 8), (2, 2, 41, 8), (2, 2, 41, 5)], (16, 32), 0.3, captured_too=False):
        assert same(got, want, 2e-5, 2e-4)


def test_the_kernel_takes_any_strides(one_kernel):
    q, k, v = (x.transpose(1, 2) for x in operands((1, 37, 2, 8), (1, 41, 2, 8), (1, 41, 2, 8)))
    block_mask = create_block_mask(causal, None, None, 37, 41, BLOCK_SIZE=16)
    want, _ = written_out(*map(theirs, (q, k, v)), None, causal)

    assert same(flex_attention(q, k, v, block_mask=block_mask), want)
    turned = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k, v)]
    assert same(flex_attention(*turned, block_mask=block_mask), want)
    wide = k[:1, :1].expand(1, 2, 41, 8)
    assert same(flex_attention(q, wide, wide), written_out(*map(theirs, (q, wide, wide)), None, None)[0])


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(8, 70), seed=st.integers(0, 1000), part=st.sampled_from([0.02, 0.3, 0.9, 1.0]),
    block=st.tuples(st.integers(1, 50), st.integers(1, 70)),
)  # fmt: skip
def test_any_mask_means_the_same_in_the_kernel(rows, seed, part, block):
    if fb.kernels.backend() == "numpy" or llvm.available() is not None:
        pytest.skip("nothing is compiled here")
    q, k, v = (x.requires_grad_() for x in operands((1, 2, rows, 4), (1, 2, 53, 4), (1, 2, 53, 4)))
    fb.manual_seed(seed)
    table = (fb.rand(rows, 53) < part) & (fb.rand(rows, 1) < 0.9)
    block_mask = create_block_mask(lambda b, h, i, j: table[i, j], None, None, rows, 53, BLOCK_SIZE=block)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fused, "FUSED_FROM", 0)
        assert flex_attention.explain_call(q, k, v, None, block_mask).startswith("one kernel")
        out, lse = flex_attention(q, k, v, block_mask=block_mask, return_lse=True)
    want, want_lse = flex.composed(q, k, v, None, block_mask, 0.5)

    assert fb.allclose(out, want, atol=2e-6, rtol=1e-5)
    assert fb.allclose(lse, want_lse, atol=2e-6, rtol=1e-5)
    weights = fb.randn(out.shape)
    got = fb.autograd.grad((out * weights).sum(), (q, k, v))
    expected = fb.autograd.grad((want * weights).sum(), (q, k, v))
    assert all(fb.allclose(x, y, atol=1e-5, rtol=1e-4) for x, y in zip(got, expected, strict=True))


def test_blocks_that_a_mask_skips_are_not_read(one_kernel):
    q, k, v = operands((1, 1, 64, 8), (1, 1, 64, 8), (1, 1, 64, 8))
    block_mask = create_block_mask(causal, None, None, 64, 64, BLOCK_SIZE=32)
    k[:, :, 32:], v[:, :, 32:] = math.nan, math.nan

    out = flex_attention(q, k, v, block_mask=block_mask)

    assert out[:, :, :32].isfinite().all()
    assert out[:, :, 32:].isnan().all()


def test_bits_do_not_depend_on_threads(one_kernel):
    def everything(threads):
        before = fb.get_num_threads()
        fb.set_num_threads(threads)
        try:
            leaves = [x.requires_grad_() for x in operands((1, 2, 150, 16), (1, 2, 300, 16), (1, 2, 300, 16))]
            block_mask = create_block_mask(documents_of_300, None, None, 150, 300, BLOCK_SIZE=32)
            out = flex_attention(*leaves, lambda s, b, h, i, j: s - 0.1 * (i - j).abs(), block_mask)
            out.sin().sum().backward()
            return [out.detach(), *(x.grad for x in leaves)]
        finally:
            fb.set_num_threads(before)

    def documents_of_300(b, h, i, j):
        return i // 40 == j // 40

    first = everything(1)
    for threads in (2, 3):
        assert all(fb.equal(x, y) for x, y in zip(first, everything(threads), strict=True))


def test_an_index_that_is_out_of_bounds_is_an_error(one_kernel):
    q = fb.ones(1, 1, 16, 4)
    table = fb.arange(16.0)

    wrapped = flex_attention(q, q, q, lambda s, b, h, i, j: s + table[j - 16])
    assert fb.allclose(wrapped, flex_attention(q, q, q, lambda s, b, h, i, j: s + table[j]))
    for mod in (lambda s, b, h, i, j: s + table[j + 1], lambda s, b, h, i, j: s + table[i - 17]):
        assert one_kernel(q, q, q, mod).startswith("one kernel")
        with pytest.raises(IndexError, match=r"out of bounds.*\(16,\)"):
            flex_attention(q, q, q, mod)


def test_a_captured_tensor_that_changes_before_backward_is_noticed(one_kernel):
    q, slopes = fb.ones(1, 2, 16, 4, requires_grad=True), fb.ones(2)
    out = flex_attention(q, q, q, lambda s, b, h, i, j: s * slopes[h])
    slopes.mul_(2)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_second_derivatives_of_the_kernel(one_kernel):
    q = fb.randn(1, 1, 8, 2, dtype=fb.float64, requires_grad=True)
    block_mask = create_block_mask(causal, None, None, 8, 8, BLOCK_SIZE=4)

    bias = fb.randn(8, dtype=fb.float64, requires_grad=True)

    def plain(s, b, h, i, j):
        return s.tanh() * 2

    def mod(s, b, h, i, j):
        return s.tanh() + bias[i - j] * bias[j] * s

    assert one_kernel(q, q, q, plain, block_mask).startswith("one kernel")
    assert one_kernel(q, q, q, mod, block_mask).startswith("one kernel")
    assert fb.autograd.gradgradcheck(lambda q: flex_attention(q, q, q, plain, block_mask, return_lse=True), q)

    def second(out, lse):
        first = fb.autograd.grad(out.sin().sum() + lse.cos().sum(), (q, bias), create_graph=True)
        return *first, *fb.autograd.grad(sum(g.square().sum() for g in first), (q, bias))

    made = second(*flex_attention(q, q, q, mod, block_mask, return_lse=True))
    for got, want in zip(made, second(*flex.composed(q, q, q, mod, block_mask, 0.5**0.5)), strict=True):
        assert fb.allclose(got, want, atol=1e-10)


def test_functions_that_differ_in_a_number_share_a_kernel(one_kernel):
    q = operands((1, 1, 16, 4))[0]

    def decayed(slope):
        return lambda s, b, h, i, j: fb.where(i > j, s - slope * (i - j), s * slope)

    def plan(mod):
        block_mask = create_block_mask(lambda b, h, i, j: i - j < 9, None, None, 16, 16)  # a mask of its own in each call, too
        return _fused.plan(q, q, q, mod, block_mask, 1.0, None)

    assert plan(decayed(0.3)).changes == plan(decayed(0.7)).changes
    assert plan(decayed(0.3)).changes != plan(lambda s, *_: s * 0.3).changes
    for slope in (0.3, 0.7, -4.5, 1e-40, 0.0):
        assert fb.allclose(flex_attention(q, q, q, decayed(slope)), flex.composed(q, q, q, decayed(slope), None, 0.5)[0], atol=1e-6)


UNTRACEABLE = {
    "has a history": lambda table: lambda s, b, h, i, j: s + (table.requires_grad_() * 2)[i],
    "is no elementwise op": lambda table: lambda s, b, h, i, j: s + s.sum() * table[i],
    "writes to a tensor": lambda table: lambda s, b, h, i, j: s.mul(2).add_(1),
    "takes the part": lambda table: lambda s, b, h, i, j: s + table.reshape(1, -1)[b * 0][2:][3],
    "does not follow from its arguments": lambda table: lambda s, b, h, i, j: table[0] * 2,
    "rounds to torch.float16": lambda table: lambda s, b, h, i, j: s.half() + 1,
}


@pytest.mark.parametrize("reason", UNTRACEABLE)
def test_what_cannot_be_traced_is_composed_and_explained(one_kernel, reason):
    q, table = operands((1, 1, 40, 4))[0], fb.arange(40.0) / 10
    mod = UNTRACEABLE[reason](table)
    said = one_kernel(q, q, q, mod)

    assert said.startswith("composed of plain ops")
    assert reason in said
    assert "composed of plain ops" in fb.kernels.explain(flex_attention, q, q, q, mod)
    assert fb.equal(flex_attention(q, q, q, mod).detach(), flex.composed(q, q, q, mod, None, 0.5)[0].detach())


def test_explain_says_what_was_made_of_a_function(one_kernel):
    q = fb.ones(1, 1, 16, 4)
    said = fb.kernels.explain("nn.attention.flex_attention.flex_attention", q, q, q, lambda s, b, h, i, j: s - (i - j).abs())

    assert "one kernel, which skips blocks" in said
    assert "flex_block" in said


def test_small_calls_are_composed():
    q = fb.ones(1, 1, 16, 4)

    assert "256 scores; the kernel pays from" in flex_attention.explain_call(q, q, q)


# -- nested tensors ------------------------------------------------------------------------------------------------------


def nested(lengths, heads=2, width=8, grad=False):
    parts = [fb.randn(n, heads * width) for n in lengths]
    made = fb.nested.nested_tensor(parts, layout=fb.jagged, requires_grad=grad)
    return made, made.unflatten(-1, [heads, width]).transpose(1, 2)


@pytest.mark.parametrize("score_mod", [None, lambda s, b, h, i, j: s - (i - j).abs() * 0.1 + h + b], ids=["plain", "places"])
@pytest.mark.parametrize("masked", [False, True])
def test_nested_sequences_attend_to_themselves(score_mod, masked):
    lengths = (3, 40, 7)
    (leaf, q), (_, k) = nested(lengths, grad=True), nested((5, 33, 7))
    v = fb.nested.nested_tensor_from_jagged(fb.randn(45, 16), k.offsets()).unflatten(-1, [2, 8]).transpose(1, 2)
    seen = lambda b, h, i, j: i + b >= j  # noqa: E731
    mask = create_nested_block_mask(seen, None, None, q, k, BLOCK_SIZE=16) if masked else None

    made, lse = flex_attention(q, k, v, score_mod, mask, return_lse=True)
    made.values().square().sum().backward()

    for n, parts in enumerate(zip(q.unbind(), k.unbind(), v.unbind(), made.unbind(), lse.unbind(), strict=True)):
        one, *others = [x.detach().unsqueeze(0) for x in parts]
        one.requires_grad_()
        shifted = score_mod and (lambda s, b, h, i, j, n=n: score_mod(s, b + n, h, i, j))
        visible = lambda b, h, i, j, n=n: seen(b + n, h, i, j)  # noqa: E731
        own = create_block_mask(visible, None, None, one.shape[2], others[0].shape[2]) if masked else None
        wanted, wanted_lse = flex_attention(one, others[0], others[1], shifted, own, return_lse=True)
        wanted.square().sum().backward()
        fb.testing.assert_close(others[2], wanted.detach(), rtol=1e-4, atol=1e-5)
        fb.testing.assert_close(others[3], wanted_lse.detach(), rtol=1e-4, atol=1e-5)
        got = leaf.grad.unbind()[n].unflatten(-1, [2, 8]).transpose(0, 1)
        fb.testing.assert_close(got, one.grad[0], rtol=1e-4, atol=1e-5)


def test_masks_of_nested_tensors_ask_for_nested_tensors_of_their_lengths():
    (_, q), (_, k) = nested((3, 4)), nested((3, 5))

    with pytest.raises(ValueError, match="q_nt must be a nested tensor"):
        create_nested_block_mask(causal, None, None, fb.ones(2, 3))
    with pytest.raises(ValueError, match="q_nt has 2 sequences, and kv_nt 3"):
        create_nested_block_mask(causal, None, None, q, nested((1, 2, 3))[1])
    with pytest.raises(RuntimeError, match="make it by create_nested_block_mask of these"):
        flex_attention(q, k, k, block_mask=create_nested_block_mask(causal, None, None, q))
    with pytest.raises(RuntimeError, match="those of key and value as long"):
        flex_attention(q, k, q)
