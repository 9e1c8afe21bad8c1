"""Copies into another order of dimensions, whose runs are short: by squares of vectors and by lines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as fb
from flambeau_kernels.cpu.shapes import move, permuted
from flambeau_kernels.cpu.tier import compiles

F = fb.nn.functional

pytestmark = pytest.mark.skipif(not compiles(), reason="the numpy backend compiles nothing")

# Sizes beside those of squares, as well as such that fill them.
SHAPES = [(3, 7, 4, 5), (2, 5, 9, 3, 4), (4, 16, 2, 2, 6, 7), (70, 33), (9,), (1, 1), (2, 3, 1, 40, 6), (5, 8, 8, 16)]


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_order(shape, dtype):
    a = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    for order in itertools.islice(itertools.permutations(range(len(shape))), 0, None, 7 if len(shape) > 4 else 1):
        view = a.transpose(order)
        out = np.full(view.shape, 255).astype(dtype)

        permuted.planned(view)(a, out)

        np.testing.assert_array_equal(out, view)


def test_repeated_elements_and_parts_with_gaps():
    a = np.arange(6 * 40 * 9, dtype=np.float32).reshape(6, 40, 9)
    for view in (np.broadcast_to(a[:, :, :1, None], (6, 40, 1, 8)).transpose(3, 1, 0, 2), a[::2, 1:, ::3].transpose(2, 0, 1)):
        out = np.zeros(view.shape, np.float32)

        permuted.planned(view)(view, out)

        np.testing.assert_array_equal(out, view)


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.complex64, np.complex128])
def test_copies_in_rows(dtype):
    a = np.random.default_rng(1).integers(0, 99, (6, 5, 4, 3, 8, 7)).astype(dtype)
    for order in itertools.islice(itertools.permutations(range(6)), 0, None, 13):
        view = a.transpose(order)

        made = move.in_rows(view)
        again = move.reshaped(view, (90, -1))

        assert made.flags.c_contiguous
        np.testing.assert_array_equal(made, view)
        np.testing.assert_array_equal(again, view.reshape(90, -1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("format", [fb.contiguous_format, fb.channels_last])
@pytest.mark.parametrize("dtype", [fb.float32, fb.bfloat16, fb.uint8])
def test_pixels_and_channels(dtype, format, threads):
    before = fb.get_num_threads()
    fb.set_num_threads(threads)
    try:
        plain = fb.arange(3 * 72 * 12 * 18).remainder(251).reshape(3, 72, 12, 18).to(dtype)
        x = plain.to(memory_format=format)
        for _ in range(2):
            up, down, dealt = F.pixel_shuffle(x, 3), F.pixel_unshuffle(x, 3), F.channel_shuffle(x, 8)

            assert up.is_contiguous(memory_format=format)
            assert down.is_contiguous(memory_format=format)
            assert dealt.is_contiguous(memory_format=format)
            assert fb.equal(up, plain.reshape(3, 8, 3, 3, 12, 18).permute(0, 1, 4, 2, 5, 3).reshape(3, 8, 36, 54))
            assert fb.equal(down, plain.reshape(3, 72, 4, 3, 6, 3).permute(0, 1, 3, 5, 2, 4).reshape(3, 648, 4, 6))
            assert fb.equal(dealt, plain.reshape(3, 8, 9, 12, 18).transpose(1, 2).reshape(3, 72, 12, 18))
            assert fb.equal(F.pixel_unshuffle(up, 3), plain)
            assert fb.equal(F.pixel_shuffle(down, 3), plain)
    finally:
        fb.set_num_threads(before)


def test_parts_of_images_whose_channels_cannot_be_split_in_place():
    x = fb.randn(2, 20, 10, 12)
    for part in (x[:, :16, 2:], x.transpose(2, 3), x.to(memory_format=fb.channels_last)[:, 4:, :, ::2], x.flip(1)[:, ::2][:, :8]):
        expected = part.contiguous()

        assert fb.equal(F.pixel_shuffle(part, 2), F.pixel_shuffle(expected, 2))
        assert fb.equal(F.pixel_unshuffle(part, 2), F.pixel_unshuffle(expected, 2))
        assert fb.equal(F.channel_shuffle(part, 4), F.channel_shuffle(expected, 4))
