"""Convolutions of images of one position, as those of squeeze and excitation, against products in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau.nn.functional as F
from flambeau_kernels.cpu import conv, tier
from flambeau_kernels.cpu.conv import single_positions
from flambeau_kernels.engine import get_num_threads, set_num_threads

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def results(x, w, y, bias, back):
    ones, zeros = (1,) * (x.ndim - 2), (0,) * (x.ndim - 2)
    return conv.convolve(x, w, ones, zeros, ones, 1, bias), conv.convolve_input(y, w, ones, ones, zeros, ones, 1, back)


@pytest.mark.skipif(not tier.compiles(), reason="nothing can be compiled here")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("images", [1, 2, 7])
@pytest.mark.parametrize(("channels", "outputs", "dims"), [(96, 100, 2), (1, 8200, 2), (8200, 1, 1), (301, 33, 3), (960, 240, 2)])
def test_results_are_products_and_those_of_an_image_depend_on_no_other(channels, outputs, dims, images, dtype):
    shape = (1,) * dims
    x, y = drawn(images, channels, *shape, dtype=dtype), drawn(images, outputs, *shape, dtype=dtype)
    w, bias, back = drawn(outputs, channels, *shape, dtype=dtype), drawn(outputs, dtype=dtype), drawn(channels, dtype=dtype)
    assert single_positions.pays(x, w, shape, (0,) * dims, 1)

    before, found = get_num_threads(), []
    for threads in (1, 3):
        set_num_threads(threads)
        found.append(results(x, w, y, bias, back))
    set_num_threads(before)
    made, backward = found[0]

    assert [a.tobytes() for a in found[0]] == [a.tobytes() for a in found[1]]
    for k in range(images):
        alone = results(x[k : k + 1], w, y[k : k + 1], bias, back)
        assert [a.tobytes() for a in alone] == [made[k].tobytes(), backward[k].tobytes()]
    wide = [a.astype(np.float64).reshape(a.shape[:2]) for a in (x, w, y)]
    exact = {8: 1e-12, 4: 2e-5}.get(dtype.itemsize if dtype is BFLOAT16 else np.dtype(dtype).itemsize, 1e-2)
    scale = np.sqrt(max(channels, outputs))
    np.testing.assert_allclose(made.astype(float).reshape(images, -1), wide[0] @ wide[1].T + bias.astype(float), exact, exact * scale)
    np.testing.assert_allclose(backward.astype(float).reshape(images, -1), wide[2] @ wide[1] + back.astype(float), exact, exact * scale)


@pytest.mark.parametrize("last", [False, True])
def test_layers_behind_a_pooling_have_the_gradients_of_linear_ones(last):
    x, w, b = fb.randn(3, 200, 1, 1, dtype=fb.float64), fb.randn(50, 200, 1, 1, dtype=fb.float64), fb.randn(50, dtype=fb.float64)
    given = [t.requires_grad_() for t in (x.contiguous(memory_format=fb.channels_last) if last else x, w, b)]
    grads = fb.autograd.grad(F.conv2d(*given).sin().sum(), given)
    flat = F.linear(given[0].view(3, 200), given[1].view(50, 200), given[2])
    expected = fb.autograd.grad(flat.sin().sum(), given)

    assert F.conv2d(*given).shape == (3, 50, 1, 1)
    assert all(fb.allclose(a, e) for a, e in zip(grads, expected, strict=True))
