"""Joining tensors, most of all many small ones, which takes a shorter way."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as fb

DTYPES = [fb.float32, fb.float64, fb.int64, fb.uint8, fb.bool, fb.complex64, fb.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1, 2])
def test_stack_lines_tensors_up_along_a_new_dimension(dtype, dim):
    parts = [(fb.arange(6).view(2, 3) + i).to(dtype) for i in range(3)]

    made = fb.stack(parts, dim)

    assert made.dtype is dtype
    assert made.is_contiguous()
    assert [made.select(dim, i).tolist() for i in range(3)] == [p.tolist() for p in parts]


def test_stack_of_transposed_and_zero_dimensional_tensors():
    rows = [fb.arange(6.0).view(2, 3).t() + i for i in range(2)]

    assert fb.stack(rows).tolist() == [r.tolist() for r in rows]
    assert fb.stack([fb.tensor(3), fb.tensor(4)]).tolist() == [3, 4]
    assert fb.stack([fb.zeros(0, 2)] * 3, 1).shape == (0, 3, 2)


def test_stack_promotes_records_and_refuses():
    leaf = fb.ones(2, requires_grad=True)
    fb.stack([leaf, fb.zeros(2)], 1).sum().backward()

    assert leaf.grad.tolist() == [1.0, 1.0]
    assert fb.stack([fb.ones(2, dtype=fb.int64), fb.ones(2)]).dtype is fb.float32
    assert fb.stack([fb.empty(2, device="meta")] * 2).shape == (2, 2)
    with pytest.raises(RuntimeError, match="stack"):
        fb.stack([fb.ones(2), fb.ones(3)])
    with pytest.raises(RuntimeError, match="stack"):
        fb.stack([])
    with pytest.raises(IndexError):
        fb.stack([fb.ones(2)], 2)
    with pytest.raises(TypeError, match="element 0"):
        fb.stack([1, 2])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cat_of_one_dtype_keeps_it(dtype):
    made = fb.cat([fb.ones(2, dtype=dtype), fb.zeros(1, dtype=dtype)])

    assert made.dtype is dtype
    assert made.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("kinds", [(fb.int64, fb.float32), (fb.uint8, fb.int8), (fb.bool, fb.float64), (fb.int32, fb.float16)])
def test_cat_of_two_dtypes_promotes_as_addition_does(kinds):
    a, b = (fb.ones(2, dtype=kind) for kind in kinds)

    assert fb.cat([a, b]).dtype is (a + b).dtype
    assert fb.stack([b, a]).dtype is (a + b).dtype


@pytest.mark.parametrize("count", [3, 40000])
@pytest.mark.parametrize("kinds", list(itertools.product(DTYPES, DTYPES)), ids=str)
def test_cat_of_two_dtypes_is_that_of_both_converted(kinds, count):
    a, b = fb.arange(count).to(kinds[0]), fb.ones(2, count, dtype=kinds[1])[1]
    wanted = fb.promote_types(*kinds)

    for _ in range(3):                                # conversions have kernels after some calls
        assert fb.equal(fb.cat([a, b]), fb.cat([a.to(wanted), b.to(wanted)]))
        assert fb.equal(fb.cat([a[:0], b, a]), fb.cat([b.to(wanted), a.to(wanted)]))


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float64, fb.complex64])
def test_gradients_of_converted_tensors_are_converted_back(dtype):
    leaf = fb.arange(5.0, requires_grad=True)
    grad = fb.arange(5).to(dtype) / 3

    for _ in range(3):
        leaf.grad = None
        leaf.to(dtype).backward(grad)

        assert leaf.grad.dtype is fb.float32
        assert fb.equal(leaf.grad, (grad.real if dtype.is_complex else grad).float())


def test_tensors_of_many_numbers():
    assert fb.tensor([[1, 2], [3, 4]]).dtype is fb.int64
    assert fb.tensor(((1.5, 2.0),)).tolist() == [[1.5, 2.0]]
    assert fb.tensor([1, 2], dtype=fb.float32).tolist() == [1.0, 2.0]
    assert fb.tensor([True, False]).dtype is fb.bool
    assert fb.tensor([1, 2.5, True]).tolist() == [1.0, 2.5, 1.0]
    assert fb.tensor([1e300], dtype=fb.float32).tolist() == [float("inf")]
    assert fb.tensor([[], []]).shape == (2, 0)
    with pytest.raises(ValueError, match="expected sequence of length 2"):
        fb.tensor([[1, 2], [3]])
    with pytest.raises((ValueError, OverflowError), match="fit"):
        fb.tensor([2**70, 1])


def test_from_numpy_shares_the_memory_of_views():
    rows = np.arange(12.0).reshape(3, 4)
    tensor = fb.from_numpy(rows[1])

    tensor[0] = 40

    assert rows[1, 0] == 40
    assert tensor.storage_offset() == 0
    assert tensor.untyped_storage().nbytes() == 32
    with pytest.raises(ValueError, match="negative"):
        fb.from_numpy(rows[::-1])


@pytest.mark.parametrize("order", [(fb.int16, fb.float16), (fb.float16, fb.int16), (fb.int32, fb.float32), (fb.float32, fb.int64)], ids=str)
def test_integers_do_not_widen_the_floating_dtype_they_are_joined_with(order):
    parts = [fb.ones(1, dtype=d) for d in order]

    assert fb.cat(parts).dtype is fb.promote_types(*order)
    assert fb.stack(parts).dtype is fb.promote_types(*order)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shapes", "dim"), [
    ([(70_000,), (70_000,), (1,), (200_003,)], 0), ([(30, 300, 31), (30, 500, 31), (30, 0, 31), (30, 1, 31)], 1),
    ([(40, 7000), (40, 3001)], -1), ([(200, 3, 201)] * 3, 0),
])  # fmt: skip
def test_large_tensors_are_joined_and_taken_apart(shapes, dim, dtype):
    parts = [(fb.arange(int(np.prod(s))).reshape(s) % 251 * (i + 1)).to(dtype) for i, s in enumerate(shapes)]

    made = fb.cat(parts, dim)

    assert made.is_contiguous()
    np.testing.assert_array_equal(bits(made), np.concatenate([bits(p) for p in parts], dim))
    if len(set(shapes)) == 1:
        np.testing.assert_array_equal(bits(fb.stack(parts, dim)), np.stack([bits(p) for p in parts], dim))


def bits(tensor):
    """The elements as integers, for numpy does not have every dtype."""
    kinds = {1: fb.uint8, 2: fb.int16, 4: fb.int32, 8: fb.int64}
    return tensor.view(kinds[tensor.element_size()]).numpy()


def test_large_strided_and_mixed_tensors_are_joined():
    a, b = fb.randn(300, 400), fb.randn(400, 300)

    np.testing.assert_array_equal(fb.cat([a, b.T], 1).numpy(), np.concatenate([a.numpy(), b.numpy().T], 1))
    np.testing.assert_array_equal(fb.stack([a, b.T]).numpy(), np.stack([a.numpy(), b.numpy().T]))
    assert fb.cat([a, a.double()]).dtype is fb.float64
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        fb.cat([a, b])
    with pytest.raises(IndexError):
        fb.cat([a, a], 2)


def test_gradients_of_large_joined_tensors_are_their_parts():
    parts = [fb.randn(n, 300).requires_grad_() for n in (200, 400)]
    seed = fb.randn(600, 300)
    fb.cat(parts).backward(seed)

    for p, expected in zip(parts, (seed[:200], seed[200:]), strict=True):
        assert p.grad is not None
        np.testing.assert_array_equal(p.grad.numpy(), expected.numpy())


@pytest.mark.oracle
@pytest.mark.parametrize("grad", [False, True])
def test_an_empty_vector_before_heads_and_rows_turned_round_is_skipped(oracle, grad):
    made = []
    for lib in (fb, oracle):
        x = lib.arange(24.0).view(2, 3, 2, 2).requires_grad_(grad)
        turned = x.transpose(1, 2)
        joined = lib.cat([lib.tensor([]), turned, turned], dim=-2)
        if grad:
            (joined * joined).sum().backward()
        made.append((joined.tolist(), joined.stride(), x.grad.tolist() if grad else None))

    assert made[0] == made[1]


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, 2.5])
def test_powers_by_a_number_have_the_bits_of_the_operator_however_often_they_are_called(exponent):
    x = fb.rand(5)

    assert all(fb.equal(fb.pow(x, exponent), x**exponent) for _ in range(3))


@pytest.mark.parametrize("first", [(7,), (2, 7)])
def test_an_empty_vector_that_cat_skips_counts_for_the_dtype(first: tuple[int, ...]) -> None:
    made = fb.cat([fb.ones(first, dtype=fb.bfloat16), fb.zeros(0)])
    assert made.dtype is fb.float32
    assert tuple(made.shape) == first
    assert fb.cat([fb.zeros(0), fb.ones(first, dtype=fb.int32)]).dtype is fb.float32
    assert fb.cat([fb.zeros(0, dtype=fb.int32), fb.ones(first)]).dtype is fb.float32


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.uint8, fb.bfloat16], ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("channels", [3, 8, 17, 70, 600])
def test_cat_of_images_with_channels_last_keeps_them_there(channels, dim, dtype):
    height = max(2, 6000 // channels // 60)
    parts = [fb.randint(0, 100, (2, channels, height, 30)).to(dtype).contiguous(memory_format=fb.channels_last) for _ in range(3)]
    parts[1] = parts[1][:, :, :-1] if dim == 2 else parts[1]
    made = fb.cat(parts, dim)

    assert made.stride() == fb.empty(made.shape, memory_format=fb.channels_last).stride()
    assert fb.equal(made, fb.cat([p.contiguous() for p in parts], dim))
    assert fb.equal(fb.cat([parts[0], parts[2].contiguous()], dim), fb.cat([parts[0].contiguous(), parts[2].contiguous()], dim))


@pytest.mark.parametrize("widths", [(2, 2), (1, 5), (4, 30, 6), (16, 16), (9, 64), (100, 3), (600, 5)])
@pytest.mark.parametrize("dtype", [fb.float32, fb.bfloat16, fb.uint8], ids=str)
def test_cat_of_rows_of_any_length(widths, dtype):
    parts = [fb.randint(0, 100, (33_000, w)).to(dtype) for w in widths]

    np.testing.assert_array_equal(fb.cat(parts, 1).float().numpy(), np.concatenate([p.float().numpy() for p in parts], 1))


def test_gradients_of_cat_of_images_are_their_parts():
    parts = [fb.randn(2, c, 40, 30).contiguous(memory_format=fb.channels_last).requires_grad_() for c in (20, 30)]
    weights = fb.randn(2, 50, 40, 30)
    (fb.cat(parts, 1) * weights).sum().backward()

    assert fb.equal(parts[0].grad, weights[:, :20])
    assert fb.equal(parts[1].grad, weights[:, 20:])
