"""Arrays with channels last in memory: recognised, turned round and back, and kept by the ops on images."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau_kernels.cpu.shapes.layout import alike, planar
from flambeau_kernels.cpu.shapes.order import is_last


def last(*shape: int, dtype: str = "f4") -> np.ndarray:
    n, c, *spatial = shape
    x = (np.random.default_rng(0).normal(size=(n, *spatial, c)) * 9).astype(dtype)
    return x.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "?", "c16"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 33, 17, 40), (3, 8, 4, 5, 6)])
def test_there_and_back(shape, dtype):
    x = last(*shape, dtype=dtype)

    plain = planar(x)

    assert is_last(x)
    assert plain.flags.c_contiguous
    assert not is_last(plain)
    np.testing.assert_array_equal(plain, x)
    np.testing.assert_array_equal(alike(plain, x), x)
    assert alike(plain, x).strides == x.strides
    assert alike(plain, plain) is plain


def test_what_is_not_last():
    assert not is_last(last(2, 1, 4, 4))
    assert not is_last(last(2, 3, 4, 4)[:, :, ::2])
    assert not is_last(last(2, 3, 4))
    assert not is_last(last(2, 3, 4, 4)[0][None])


F = fb.nn.functional
OPS = {
    "conv2d": lambda x: F.conv2d(x, fb.ones(6, 4, 3, 3)),
    "conv2d by its weight": lambda x: F.conv2d(x.contiguous(), fb.ones(6, 4, 3, 3).to(memory_format=fb.channels_last)),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, fb.ones(4, 3, 3, 3)),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "zeros": lambda x: F.pad(x, (1, 1, 1, 1)),
}


@pytest.mark.parametrize("name", OPS)
def test_ops_on_images_keep_channels_last(name):
    x = fb.randn(2, 4, 8, 8).to(memory_format=fb.channels_last)

    made, plain = OPS[name](x), OPS[name](x.contiguous())

    assert made.is_contiguous(memory_format=fb.channels_last)
    assert "weight" in name or plain.is_contiguous()
    np.testing.assert_allclose(made.numpy(), plain.numpy(), rtol=1e-6)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
@pytest.mark.parametrize(("shape", "amounts"), [((2, 3, 20, 30), (1, 2, 3, 4)), ((1, 70, 9, 11), (0, 2, 1, 0)), ((2, 3, 20, 30), (2, 1)),
                                                ((2, 5, 6, 7, 8), (1, 2, 3, 0, 2, 1)), ((2, 3, 20, 30), (-1, 2, 3, -4))])  # fmt: skip
def test_padding_of_channels_last(shape, amounts, mode):
    if mode != "constant" and (min(amounts) < 0 or len(amounts) != 2 * (len(shape) - 2)):
        return
    x = fb.from_numpy(last(*shape)).requires_grad_()
    plain = x.detach().contiguous().requires_grad_()

    made, expected = F.pad(x, amounts, mode), F.pad(plain, amounts, mode)
    weights = fb.randn(made.shape)
    (made * weights.contiguous(memory_format=fb.channels_last_3d if len(shape) == 5 else fb.channels_last)).sum().backward()
    (expected * weights).sum().backward()

    assert is_last(made.detach().numpy())
    assert x.grad.stride() == x.stride()
    np.testing.assert_array_equal(made.detach().numpy(), expected.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), plain.grad.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (3, 64, 30, 31), (1, 40, 9, 9), (2, 8, 4, 5, 6)])
def test_means_of_whole_planes_of_channels_last(shape, dtype):
    x = fb.from_numpy(last(*shape)).to(dtype).requires_grad_()
    pool = F.adaptive_avg_pool3d if len(shape) == 5 else F.adaptive_avg_pool2d

    made = pool(x, 1)
    made.sum().backward()

    exact = x.detach().double().numpy().mean(tuple(range(2, len(shape))), keepdims=True)
    assert made.stride() == pool(x.detach().requires_grad_(), 1).stride()
    assert len(shape) == 5 or made.is_contiguous(memory_format=fb.channels_last)
    eps = fb.finfo(dtype).eps
    np.testing.assert_allclose(made.detach().double().numpy(), exact, rtol=2 * eps, atol=eps)
    np.testing.assert_allclose(x.grad.double().numpy(), 1 / np.prod(shape[2:]), rtol=2 * eps)
