"""Padding of images whose channels lie last in memory, against that of images in rows."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

F = fb.nn.functional

AMOUNTS = [(1, 1, 1, 1), (3, 0, 2, 5), (2, -1, -3, 1), (-2, -3), (0, 4)]


def images(shape: tuple[int, ...], dtype: fb.dtype) -> fb.Tensor:
    return fb.tensor(np.random.default_rng(0).normal(size=shape) * 9).to(dtype)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.float16, fb.bfloat16, fb.uint8])
@pytest.mark.parametrize("shape", [(2, 19, 9, 11), (1, 130, 6, 7), (3, 2, 40, 33), (2, 16, 5, 6, 7), (1, 3, 6, 7)])
@pytest.mark.parametrize("amounts", AMOUNTS)
@pytest.mark.parametrize("value", [None, 7, -0.0])
def test_constants(shape, amounts, dtype, value):
    x = images(shape, dtype)
    format = fb.channels_last if len(shape) == 4 else fb.channels_last_3d
    if value is not None and not dtype.is_floating_point:
        value = int(value)
    for _ in range(2):
        made, expected = F.pad(x.to(memory_format=format), amounts, value=value), F.pad(x, amounts, value=value)

        assert made.is_contiguous(memory_format=format)
        np.testing.assert_array_equal(made.contiguous().view(fb.uint8).numpy(), expected.view(fb.uint8).numpy())


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.float16, fb.bfloat16])
@pytest.mark.parametrize("shape", [(2, 19, 9, 11), (1, 130, 6, 7), (3, 2, 40, 33), (2, 3, 4, 4)])
@pytest.mark.parametrize("amounts", [(1, 1, 1, 1), (3, 0, 2, 3), (2, -1, -2, 1)])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_elements_of_the_image_and_their_gradients(mode, amounts, shape, dtype):
    plain = images(shape, dtype).requires_grad_()
    last = plain.detach().to(memory_format=fb.channels_last).requires_grad_()
    expected = F.pad(plain, amounts, mode)
    for _ in range(2):
        made = F.pad(last, amounts, mode)
        seen = F.pad(last.detach(), amounts, mode)

        assert made.is_contiguous(memory_format=fb.channels_last)
        assert fb.equal(made, expected)
        assert fb.equal(seen, expected)
    grad = images(tuple(expected.shape), dtype)
    (wanted,) = fb.autograd.grad(expected, plain, grad)

    (given,) = fb.autograd.grad(made, last, grad.to(memory_format=fb.channels_last))

    assert given.is_contiguous(memory_format=fb.channels_last)
    np.testing.assert_array_equal(given.contiguous().view(fb.uint8).numpy(), wanted.view(fb.uint8).numpy())


def test_volumes_of_channels_last():
    x = images((2, 8, 5, 6, 7), fb.float32)
    last = x.to(memory_format=fb.channels_last_3d)
    for mode in ("reflect", "replicate"):
        made = F.pad(last, (1, 2, 3, 1, 2, 2), mode)

        assert fb.equal(made, F.pad(x, (1, 2, 3, 1, 2, 2), mode))


def test_amounts_that_leave_nothing():
    x = images((2, 8, 20, 20), fb.float32).to(memory_format=fb.channels_last)

    assert F.pad(x, (-10, -10)).shape == (2, 8, 20, 0)
