"""Convolutions against scipy's and against the defining sums."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import ndimage, signal

import flambeau as fb
import flambeau.nn.functional as F
from flambeau_kernels.cpu import conv as kernels

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def by_definition(
    x: np.ndarray, w: np.ndarray, stride: int, padding: int, dilation: int, groups: int
) -> np.ndarray:
    """The sum written out with one numpy product per kernel element."""
    n = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * n])
    sizes = [
        (size - dilation * (k - 1) - 1) // stride + 1
        for size, k in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_group = w.shape[0] // groups
    for offset in itertools.product(*map(range, w.shape[2:])):
        places = [
            slice(o * dilation, o * dilation + stride * (m - 1) + 1, stride)
            for o, m in zip(offset, sizes, strict=True)
        ]
        part = x[(slice(None), slice(None), *places)].reshape(x.shape[0], groups, -1, *sizes)
        factor = w[(slice(None), slice(None), *offset)].reshape(groups, per_group, -1)
        out += np.einsum("goc,ngc...->ngo...", factor, part).reshape(out.shape)
    return out


SETTINGS = [
    # channels, outputs, kernel, stride, padding, dilation, groups
    (3, 4, 3, 1, 1, 1, 1),  # gathered windows
    (32, 4, 3, 1, 1, 1, 1),  # the first axis by shifted slices
    (4, 6, 3, 2, 1, 1, 2),  # groups and stride
    (4, 2, 2, 2, 0, 1, 1),  # transposed by phases
    (4, 2, 3, 2, 2, 2, 1),  # transposed by folding
    (6, 12, 3, 1, 1, 2, 6),  # one input channel per group
    (6, 6, 3, 2, 1, 1, 6),
    (4, 3, 1, 1, 0, 1, 1),  # pointwise
    (4, 4, 1, 2, 0, 1, 2),
    (2, 3, 3, 1, 4, 1, 1),  # more padding than the kernel reaches
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_convolution_is_the_defining_sum_and_its_gradients_its_transposes(
    n: int, setting: tuple[int, ...]
) -> None:
    channels, outputs, kernel, stride, padding, dilation, groups = setting
    x, w, b = (
        normal(2, channels, *(7, 6, 5)[:n]),
        normal(outputs, channels // groups, *(kernel,) * n),
        normal(outputs),
    )
    operands = [fb.tensor(a).requires_grad_() for a in (x, w, b)]
    conv = (F.conv1d, F.conv2d, F.conv3d)[n - 1]

    y = conv(*operands, stride, padding, dilation, groups)
    g = normal(*y.shape)
    y.backward(fb.tensor(g))

    np.testing.assert_allclose(
        y.detach().numpy(), by_definition(x, w, stride, padding, dilation, groups) + b.reshape(-1, *(1,) * n)
    )
    # <g, C(x, w)> is linear in each operand: the gradient tested along another direction.
    dx, dw = normal(*x.shape), normal(*w.shape)
    along = [(dx * operands[0].grad.numpy()).sum(), (dw * operands[1].grad.numpy()).sum()]
    expected = [
        (g * by_definition(a, c, stride, padding, dilation, groups)).sum() for a, c in ((dx, w), (x, dw))
    ]
    np.testing.assert_allclose(along, expected)
    np.testing.assert_allclose(operands[2].grad.numpy(), g.sum(axis=(0, *range(2, n + 2))))


def test_conv2d_agrees_with_scipy() -> None:
    x, w = normal(9, 8), normal(3, 3)

    y = F.conv2d(fb.tensor(x[None, None]), fb.tensor(w[None, None]))

    np.testing.assert_allclose(y[0, 0].numpy(), signal.correlate2d(x, w, "valid"))


def test_same_padding_puts_the_odd_element_at_the_end() -> None:
    x, w = normal(10), normal(4)

    y = F.conv1d(fb.tensor(x[None, None]), fb.tensor(w[None, None]), padding="same")

    np.testing.assert_allclose(y[0, 0].numpy(), ndimage.correlate1d(x, w, mode="constant", origin=-1))


def test_same_padding_refuses_strides() -> None:
    with pytest.raises(RuntimeError, match="strided"):
        F.conv1d(fb.zeros(1, 1, 8), fb.zeros(1, 1, 3), stride=2, padding="same")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_transposed_convolution_of_one_element_stamps_the_kernel(n: int) -> None:
    w = normal(1, 2, *(3,) * n)
    conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]

    y = conv(
        fb.ones(1, 1, *(1,) * n, dtype=fb.float64),
        fb.tensor(w),
        fb.tensor([1.0, 2.0], dtype=fb.float64),
        stride=2,
        output_padding=1,
    )

    expected = np.pad(w, [(0, 0), (0, 0), *[(0, 1)] * n]) + np.array([1.0, 2.0]).reshape(1, 2, *(1,) * n)
    np.testing.assert_allclose(y.numpy(), expected)


def test_second_derivatives_agree_with_finite_differences() -> None:
    x, w, v = normal(1, 2, 5), normal(3, 2, 3), normal(3, 2, 3)

    def slope(weight: np.ndarray) -> np.ndarray:
        a = fb.tensor(x).requires_grad_()
        (F.conv1d(a, fb.tensor(weight), stride=2, padding=1) ** 3).sum().backward()
        return a.grad.numpy()

    a, b = fb.tensor(x).requires_grad_(), fb.tensor(w).requires_grad_()
    (g,) = fb.autograd.grad((F.conv1d(a, b, stride=2, padding=1) ** 3).sum(), a, create_graph=True)
    u = normal(*x.shape)
    (second,) = fb.autograd.grad((g * fb.tensor(u)).sum(), b)

    step = 1e-5
    expected = (u * (slope(w + step * v) - slope(w - step * v))).sum() / (2 * step)
    np.testing.assert_allclose((second.numpy() * v).sum(), expected, rtol=1e-7)


def test_conv_tbc_is_conv1d_with_time_first() -> None:
    x, w, b = normal(6, 2, 3), normal(3, 3, 4), normal(4)

    y = fb.conv_tbc(fb.tensor(x), fb.tensor(w), fb.tensor(b), 1)

    np.testing.assert_allclose(
        y.numpy(),
        by_definition(x.transpose(1, 2, 0), w.transpose(2, 1, 0), 1, 1, 1, 1).transpose(2, 0, 1) + b,
    )


def test_unbatched_input_keeps_its_dimensions() -> None:
    x, w = fb.tensor(normal(2, 5, 5)), fb.tensor(normal(3, 2, 3, 3))

    np.testing.assert_array_equal(F.conv2d(x, w).numpy(), F.conv2d(x.unsqueeze(0), w)[0].numpy())


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16])
def test_half_sums_are_rounded_once(dtype: fb.dtype) -> None:
    # 512 ones added in half precision would stop growing at 256 in bfloat16.
    x, w = fb.ones(1, 512, 3, dtype=dtype), fb.ones(1, 512, 1, dtype=dtype)

    assert F.conv1d(x, w).float().numpy().tolist() == [[[512.0] * 3]]


def test_complex_gradient_is_conjugated() -> None:
    x, w = normal(1, 1, 4) + 1j * normal(1, 1, 4), normal(1, 1, 4) + 1j * normal(1, 1, 4)
    a = fb.tensor(x).requires_grad_()

    F.conv1d(a, fb.tensor(w)).real.sum().backward()

    np.testing.assert_allclose(a.grad.numpy(), w.conj())


def test_errors_name_both_sides() -> None:
    with pytest.raises(RuntimeError, match=r"expected input\[1, 3, 8, 8\] to have 4 channels, but got 3 channels"):
        F.conv2d(fb.zeros(1, 3, 8, 8), fb.zeros(2, 4, 3, 3))
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        F.conv2d(fb.zeros(1, 4, 2, 2), fb.zeros(2, 4, 3, 3))


def test_folding_is_the_transpose_of_gathering() -> None:
    x, settings = normal(1, 2, 6, 5), ((2, 1), (1, 0), (1, 2))
    windows = kernels.gather_windows(x, (3, 2), *settings)
    y = normal(*windows.shape)

    folded = kernels.fold_windows(y, (6, 5), *settings)

    np.testing.assert_allclose((folded * x).sum(), (windows * y).sum())
