"""Copies of arrays of any strides, and conversions between floating dtypes, by compiled loops."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau_kernels.cpu.creation import fill
from flambeau_kernels.cpu.shapes import move
from flambeau_kernels.cpu.tier import compiles

SHAPES = [(130, 190), (7, 70, 65), (3, 65, 5, 33), (2, 3, 17, 19, 21)]


DTYPES = [np.bool_, np.int8, np.uint16, np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16,
          ml_dtypes.float8_e4m3fn]  # fmt: skip
by_loops = pytest.mark.skipif(not compiles(), reason="the numpy backend compiles nothing")


@by_loops
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_permutation(shape, dtype):
    a = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8).astype(dtype)
    for order in itertools.permutations(range(len(shape))):
        permuted = a.transpose(order)
        out = np.zeros(permuted.shape, dtype)
        if not move.into(out, permuted):
            assert permuted.flags.c_contiguous        # which a call of the C library does as well
            continue
        np.testing.assert_array_equal(out.view(np.uint8), np.ascontiguousarray(permuted).view(np.uint8))
        back = np.zeros(shape, dtype)
        assert move.into(back.transpose(order), out)
        np.testing.assert_array_equal(back.view(np.uint8), a.view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_of_slices_turned_and_stretched(dtype):
    a = np.random.default_rng(0).normal(size=(70, 3, 90)).astype(np.float32).astype(dtype)
    for seen in (a[::-1], a[:, :, ::-1], a[3:, 1:, 5:80:3], a.transpose(2, 0, 1)[::2], np.broadcast_to(a[:, :1], a.shape), a[:, :0]):
        expected = np.ascontiguousarray(seen)
        for made in (move.in_rows(seen), move.like(seen)):
            assert made.shape == seen.shape
            assert not np.may_share_memory(made, a)
            np.testing.assert_array_equal(np.ascontiguousarray(made).view(np.uint8), expected.view(np.uint8))
        assert move.in_rows(seen).flags.c_contiguous


@by_loops
def test_a_copy_keeps_the_bits_of_nan_and_of_odd_truths():
    for a in (np.full(5000, 0x7E01, np.uint16).view(np.float16), np.full(5000, 0x7FA1, np.uint16).view(ml_dtypes.bfloat16),
              np.full(5000, 0x7FC00001, np.uint32).view(np.float32), np.full(5000, 2, np.uint8).view(np.bool_)):  # fmt: skip
        np.testing.assert_array_equal(move.in_rows(a[::-1]).view(np.uint8), a.view(np.uint8))


@by_loops
def test_like_keeps_the_order_of_dimensions():
    a = np.zeros((40, 50, 60), np.float32)
    assert move.like(a.transpose(2, 0, 1)).strides == a.transpose(2, 0, 1).strides
    assert move.like(a.transpose(2, 0, 1)[:, ::2]).strides == (4, 60 * 50 * 4, 60 * 4)


@by_loops
def test_what_is_contiguous_keeps_its_memory_and_shape():
    for a in (np.array(2.5), np.ones(3), np.ones((0, 4)), np.ones((2, 3))):
        assert move.contiguous(a) is a
    assert move.contiguous(np.ones((2, 3)).T).shape == (3, 2)


def test_what_overlaps_is_left_to_numpy():
    a = np.arange(400 * 400).reshape(400, 400)
    before = a.copy()
    assert not move.into(a[1:], a[:-1])
    assert not move.into(a, a.T)
    np.testing.assert_array_equal(a, before)


@by_loops
def test_gaps_in_the_source():
    a = np.random.default_rng(0).normal(size=(150, 300)).astype(np.float32)[10:, ::1][:, 20:220]
    out = np.zeros((200, 140), np.float32)

    assert move.into(out, a.T)
    np.testing.assert_array_equal(out, a.T)


FLOATS = [np.float32, np.float16, np.float64, ml_dtypes.bfloat16]


@pytest.mark.parametrize("new", FLOATS)
@pytest.mark.parametrize("old", FLOATS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_arrays_are_converted_as_small_ones_are(old, new, order):
    values = np.concatenate([np.random.default_rng(0).normal(size=8000) * 100, [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-6, 65520.0, 3e38]])
    with np.errstate(all="ignore"):
        a = np.asarray(values.astype(old).reshape(-1, 8), order=order)
        wanted = kernels.cast(a, np.dtype(new))
        out = np.empty(a.shape, new)
        kernels.store(out, a)

    np.testing.assert_array_equal(out.astype(np.float64), wanted.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(out), np.signbit(wanted))


@pytest.mark.parametrize("size", [3, 10_000])
def test_gradients_of_conversions(size):
    x = fb.randn(size, requires_grad=True)
    y = x.to(fb.bfloat16)

    assert y.grad_fn.name() == "ToCopyBackward0"
    y.sum().backward()
    assert x.grad.dtype is fb.float32
    assert (x.grad == 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (90, 50), (130, 140), (300, 400)])
def test_filling_is_numpys(shape, dtype):
    for number in (0, 1, 2.5):
        value = np.dtype(dtype).type(number)
        made, expected = np.empty(shape, dtype), np.empty(shape, dtype)
        expected[...] = value
        fill.refill(made, value)
        np.testing.assert_array_equal(made.view(np.uint8), expected.view(np.uint8))
    gaps = np.zeros((*shape, 2), dtype)
    fill.refill(gaps[..., 0], np.dtype(dtype).type(1))
    assert (gaps[..., 0].astype(np.complex64) == 1).all()
    assert not gaps[..., 1].astype(np.complex64).any()


@pytest.mark.parametrize("shape", [(6, 4), (70, 90), (3, 40, 50)])
def test_rolling_along_several_dimensions_is_numpys(shape):
    a = np.arange(np.prod(shape)).reshape(shape)
    for x in (a, np.asfortranarray(a)):
        for shifts, dims in (((1, 2), (0, 1)), ((-1, 7), (1, -2)), ((0, 5), (0, 1)), ((100, -77), (-1, 0))):
            made = fb.roll(fb.from_numpy(x), shifts, dims)
            assert made.is_contiguous()
            np.testing.assert_array_equal(made.numpy(), np.roll(x, shifts, dims))


def test_flip_keeps_the_order_of_dimensions():
    x = fb.arange(60 * 70).reshape(60, 70)
    made = x.t().flip(0)
    assert made.stride() == (1, 70)
    np.testing.assert_array_equal(made.numpy(), x.numpy().T[::-1])


@pytest.mark.parametrize("amounts", [(1, 1), (0, 3, 2, 0), (-1, 2), (-2, -1, 1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_padding_of_some_thousand_elements_is_numpys(amounts, dtype):
    a = (np.random.default_rng(0).normal(size=(3, 40, 50)) * 9).astype(dtype)
    pairs = [(0, 0)] * (3 - len(amounts) // 2) + list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    inner = a[tuple(slice(max(-b, 0), n - max(-e, 0)) for n, (b, e) in zip(a.shape, pairs, strict=True))]
    for _ in range(2):                                # the second by what the first one planned
        made = fb.nn.functional.pad(fb.from_numpy(a), amounts, value=1).numpy()
        np.testing.assert_array_equal(made, np.pad(inner, [(max(b, 0), max(e, 0)) for b, e in pairs], constant_values=1))


def test_a_diagonal_among_zeros_is_numpys():
    a = np.arange(1, 13).reshape(3, 4)
    for offset in (-2, 0, 3):
        expected = np.stack([np.diag(row, offset) for row in a])
        for dims, moved in (((-2, -1), (1, 2)), ((0, 2), (0, 2)), ((2, 0), (2, 0))):
            made = fb.diag_embed(fb.from_numpy(a), offset, *dims).numpy()
            np.testing.assert_array_equal(made, np.moveaxis(expected, (1, 2), moved))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), *SHAPES])
def test_an_array_or_a_copy_of_it_in_c_order(shape):
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    turned = a.transpose()

    made = move.contiguous(turned)

    assert made.flags.c_contiguous
    assert made.shape == turned.shape
    np.testing.assert_array_equal(made, turned)
    assert np.may_share_memory(move.contiguous(a), a)


def test_gradients_lie_as_what_they_are_of():
    x = fb.randn(4, 16, 24, 32).to(memory_format=fb.channels_last).requires_grad_()
    for dims in [1, (2, 3), None]:
        x.grad = None

        (x * x).sum(dims).sum().backward()
        x.sum(dims).sum().backward()

        assert x.grad.stride() == x.stride()
        np.testing.assert_array_equal(x.grad.numpy(), 2 * x.detach().numpy() + 1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("other", [np.float64, np.int64, np.int32, np.int16, np.uint8, np.int8, np.bool_])
def test_halves_from_and_to_other_numbers(half, other):
    halves = np.arange(1 << 16, dtype=np.uint16).view(half)
    finite = halves[np.isfinite(halves.astype(np.float32))].astype(np.float64)
    between = (finite[1:] + finite[:-1]) / 2
    numbers = np.concatenate([between, between * (1 + 2.0**-40), between * (1 - 2.0**-40), finite, [np.inf, -np.inf, 1e39, -0.0]])
    numbers = numbers if other is np.float64 else (finite * 1000).astype(np.int64).astype(other)
    for old, new in [(halves, other), (numbers, half)]:
        expected = old.astype(np.float32).astype(new)     # as in PyTorch
        for _ in range(3):                                # numpy answers first, a kernel later
            made = fb.from_numpy(old.view(np.int16)).view(fb.bfloat16) if old.dtype == ml_dtypes.bfloat16 else fb.from_numpy(old)

            made = made.to(getattr(fb, np.dtype(new).name))

            np.testing.assert_array_equal(made._array.astype(np.float64), expected.astype(np.float64))
            np.testing.assert_array_equal(np.signbit(made._array.astype(np.float64)), np.signbit(expected.astype(np.float64)))
