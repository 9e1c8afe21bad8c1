"""`native_layer_norm`, `native_group_norm` and `native_batch_norm`: their moments, histories and what they write."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

F = fb.nn.functional
EPS = 1e-5
SHAPES = [(2, 4, 3), (4, 16, 8, 8), (3, 4)]


def drawn(*shape, seed=0):
    return fb.tensor(np.random.default_rng(seed).standard_normal(shape), dtype=fb.float32)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype is b.dtype and a.numpy().tobytes() == b.numpy().tobytes()


def of_layer(x, w, b):
    return fb.native_layer_norm(x, list(w.shape), w, b, EPS)


def of_groups(x, w, b):
    return fb.native_group_norm(x, w, b, *x.shape[:2], x.numel() // (x.shape[0] * x.shape[1]), 2, EPS)


def of_batch(x, w, b):
    return fb.native_batch_norm(x, w, b, fb.zeros(x.shape[1]), fb.ones(x.shape[1]), True, 0.1, EPS)


FUNCTIONS = {
    "layer": (of_layer, lambda x, w, b: F.layer_norm(x, list(w.shape), w, b, EPS)),
    "group": (of_groups, lambda x, w, b: F.group_norm(x, 2, w, b, EPS)),
    "batch": (of_batch, lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, EPS)),
}


def operands(kind, shape):
    size = shape[-1] if kind == "layer" else shape[1]
    return drawn(*shape), drawn(size, seed=1), drawn(size, seed=2)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_result_and_its_gradients_are_those_of_the_layer(kind, shape):
    native, layer = FUNCTIONS[kind]
    leaves = [x.requires_grad_() for x in operands(kind, shape)]
    grad = drawn(*shape, seed=3)

    made, expected = native(*leaves)[0], layer(*leaves)

    assert same_bits(made.detach(), expected.detach())
    for one, other in zip(fb.autograd.grad(made, leaves, grad), fb.autograd.grad(expected, leaves, grad), strict=True):
        assert same_bits(one, other)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_moments_are_those_of_numpy_in_float64(kind, shape):
    x, w, b = operands(kind, shape)
    a = x.numpy().astype(np.float64)
    if kind == "group":
        a = a.reshape(shape[0], 2, -1)
    axes = {"layer": (-1,), "group": (2,), "batch": (0, *range(2, len(shape)))}[kind]
    mean, variance = a.mean(axes, keepdims=kind == "layer"), a.var(axes, keepdims=kind == "layer")

    for recorded in (False, True):
        _, found, inverse = FUNCTIONS[kind][0](x.detach().requires_grad_(recorded), w, b)

        assert np.allclose(found.detach().numpy(), mean, rtol=1e-6, atol=1e-6)
        assert np.allclose(inverse.detach().numpy(), (variance + EPS) ** -0.5, rtol=1e-6)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_moments_do_not_depend_on_whether_a_history_is_recorded(kind):
    x, w, b = operands(kind, SHAPES[1])
    plain = FUNCTIONS[kind][0](x, w, b)
    recorded = FUNCTIONS[kind][0](x.requires_grad_(), w, b)

    assert all(same_bits(one, other.detach()) for one, other in zip(plain, recorded, strict=True))


def test_moments_of_groups_have_derivatives_and_the_others_none():
    x = drawn(2, 4, 3).double().requires_grad_()
    weights = [drawn(2, 2, seed=n).double() for n in (1, 2)]
    _, mean, inverse = fb.native_group_norm(x, None, None, 2, 4, 3, 2, EPS)
    groups = x.reshape(2, 2, 6)
    expected = (groups.mean(2) * weights[0]).sum() + ((groups.var(2, correction=0) + EPS) ** -0.5 * weights[1]).sum()

    found = fb.autograd.grad((mean * weights[0]).sum() + (inverse * weights[1]).sum(), x)[0]

    assert fb.allclose(found, fb.autograd.grad(expected, x)[0], rtol=1e-12, atol=1e-12)
    assert not any(m.requires_grad for m in fb.native_layer_norm(x, [3], None, None, EPS)[1:])
    assert not any(m.requires_grad for m in fb.native_batch_norm(x, None, None, None, None, True, 0.1, EPS)[1:])


def test_groups_of_images_of_another_shape_are_those_of_the_same_elements():
    x = drawn(2, 4, 3)
    out, mean, _ = fb.native_group_norm(x, None, None, 4, 2, 3, 2, EPS)

    assert (out.shape, mean.shape) == (x.shape, (4, 2))
    assert same_bits(out.reshape(4, 2, 3), F.group_norm(x.reshape(4, 2, 3), 2, eps=EPS))
    with pytest.raises(RuntimeError, match=r"N \* C \* HxW"):
        fb.native_group_norm(x, None, None, 2, 4, 4, 2, EPS)


def test_changing_the_moments_leaves_the_gradient_alone():
    for kind, (native, _) in FUNCTIONS.items():
        leaves = [x.requires_grad_() for x in operands(kind, SHAPES[0])]
        expected = fb.autograd.grad(native(*leaves)[0].square().sum(), leaves)
        out, mean, inverse = native(*leaves)
        with fb.no_grad():
            mean.fill_(7)
            inverse.fill_(9)

        assert all(map(same_bits, fb.autograd.grad(out.square().sum(), leaves), expected))


def test_running_statistics_are_moved_alike_before_and_after_a_kernel_takes_over():
    x = drawn(4, 5, 3)
    running = fb.zeros(5), fb.ones(5)
    expected = [r.numpy().copy() for r in running]
    a = x.numpy()
    variance = a.var((0, 2), ddof=0)
    for _ in range(600):
        _, mean, inverse = fb.native_batch_norm(x, None, None, *running, True, 0.1, EPS)
        versions = [r._version for r in running]
    moved = np.float32(0.1)
    biased = (1 / inverse.numpy().astype(np.float64) ** 2 - EPS)
    assert np.allclose(biased, variance, rtol=1e-4)
    for _ in range(600):
        expected[0] += (mean.numpy() - expected[0]) * moved

    assert running[0].numpy().tobytes() == expected[0].tobytes()
    assert np.allclose(running[1].numpy(), variance * 12 / 11, rtol=1e-5)
    assert versions == [600, 600]


@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 16, 8, 8), (3, 5, 70, 70)], ids=str)
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64], ids=str)
def test_normalization_by_running_statistics_has_the_bits_of_numpy(shape, dtype):
    x, c = drawn(*shape).to(dtype), shape[1]
    mean, weight, bias = (drawn(c, seed=n).to(dtype) for n in (1, 2, 3))
    variance = drawn(c, seed=4).to(dtype).square()
    across = (-1, *(1,) * (len(shape) - 2))
    scale = 1 / np.sqrt(variance.numpy() + dtype.numpy.type(EPS)) * weight.numpy()
    expected = (x.numpy() - mean.numpy().reshape(across)) * scale.reshape(across) + bias.numpy().reshape(across)

    out, *others = fb.native_batch_norm(x, weight, bias, mean, variance, False, 0.1, EPS)

    assert out.numpy().tobytes() == expected.tobytes()
    assert [o.shape for o in others] == [(0,), (0,)]
    assert same_bits(F.batch_norm(x, mean, variance, weight, bias, False, 0.1, EPS), out)
