"""Functions at the top level have the bits of those of `nn.functional`; copies of many elements those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

F = fb.nn.functional


def drawn(*shape, seed=0):
    return fb.tensor(np.random.default_rng(seed).standard_normal(shape), dtype=fb.float32)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype is b.dtype and a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("shape", [(4, 6), (2, 6, 5), (300, 6), (3, 6, 20, 20)], ids=str)
def test_norms_at_the_top_level(shape):
    x = drawn(*shape).requires_grad_()
    of_rows, of_channels = [[drawn(n, seed=k).requires_grad_() for k in (1, 2)] for n in (shape[-1], 6)]
    pairs = [
        (fb.layer_norm(x, [shape[-1]], *of_rows), F.layer_norm(x, [shape[-1]], *of_rows), of_rows),
        (fb.group_norm(x, 3, *of_channels), F.group_norm(x, 3, *of_channels), of_channels),
    ]

    for one, other, parameters in pairs:
        assert same_bits(one.detach(), other.detach())
        grad = drawn(*shape, seed=5)
        grads = zip(*(fb.autograd.grad(made, [x, *parameters], grad) for made in (one, other)), strict=True)
        assert all(same_bits(*each) for each in grads)


def test_a_single_value_per_group_is_refused_by_the_layer_alone():
    x = fb.tensor([[3.0]])
    for _ in range(3):
        assert fb.group_norm(x, 1).tolist() == [[0.0]]
        with pytest.raises(ValueError, match="more than 1 value"):
            F.group_norm(x, 1)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.bfloat16], ids=str)
@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("affine", [False, True])
def test_groups_of_vectors_are_normalized_as_in_float64(dtype, groups, affine):
    x = drawn(40, 70).to(dtype)
    weight, bias = (drawn(70, seed=k).to(dtype) if affine else None for k in (1, 2))
    a = x.double().numpy().reshape(40, groups, -1)
    expected = ((a - a.mean(2, keepdims=True)) / np.sqrt(a.var(2, keepdims=True) + 1e-5)).reshape(40, 70)
    if affine:
        expected = expected * weight.double().numpy() + bias.double().numpy()

    made = F.group_norm(x, groups, weight, bias)

    tolerance = {fb.float32: 1e-5, fb.float64: 1e-12, fb.bfloat16: 1e-2}[dtype]
    assert np.allclose(made.double().numpy(), expected, rtol=tolerance, atol=tolerance)
    images = F.group_norm(x.reshape(40, 70, 1, 1), groups, weight, bias)
    assert same_bits(images.reshape(40, 70).double(), made.double())


@pytest.mark.parametrize("shape", [(5, 30), (2, 5, 30), (40, 300)], ids=str)
def test_maxima_at_the_top_level(shape):
    x = drawn(*shape).requires_grad_()
    one, other = fb.max_pool1d(x, 3, 2, 1), F.max_pool1d(x, 3, 2, 1)

    assert same_bits(one.detach(), other.detach())
    assert same_bits(*(fb.autograd.grad(made.square().sum(), x)[0] for made in (one, other)))
    values, places = fb.max_pool1d_with_indices(x.detach(), 3)
    assert all(map(same_bits, (values, places), F.max_pool1d(x.detach(), 3, return_indices=True)))


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(4000,), (50, 100), (5000, 1), (70, 70, 3), (3, 2, 5000)], ids=str)
def test_flipping_many_elements(dtype, shape):
    a = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    x, last = fb.tensor(a), len(shape) - 1

    for dims in [(last,), (0,), tuple(range(len(shape)))]:
        assert fb.flip(x, dims).numpy().tobytes() == np.flip(a, dims).tobytes()


def test_filling_gives_new_memory_of_the_same_dtype():
    for dtype, value in ((fb.float32, 2), (fb.int64, 7), (fb.bool, True), (fb.bfloat16, 0.5)):
        x = drawn(20, 30).to(dtype)
        before = x.clone()
        made = fb.fill(x, value)

        assert same_bits(made.double(), fb.full((20, 30), value).double())
        assert made.dtype is dtype
        assert same_bits(x.double(), before.double())
    x = drawn(3).requires_grad_()
    assert fb.autograd.grad(fb.fill(x, 2.0).sum(), x)[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.complex64, fb.int64, fb.bfloat16], ids=str)
def test_contractions_of_all_dimensions(dtype):
    a, b = (drawn(3, 40, 50, seed=k).mul(9).to(dtype) for k in (1, 2))
    expected = (a.to(fb.complex128 if dtype.is_complex else fb.float64) * b.to(fb.complex128 if dtype.is_complex else fb.float64)).sum()

    made = fb.tensordot(a, b, 3)

    assert made.shape == ()
    assert made.dtype is dtype
    assert fb.allclose(made.to(expected.dtype), expected, rtol=2e-2 if dtype is fb.bfloat16 else 1e-4)
    assert fb.allclose(fb.tensordot(a, b.permute(1, 0, 2), ([0, 1, 2], [1, 0, 2])).to(expected.dtype), expected, rtol=2e-2)
