"""Element types: limits, promotion, conversion, and the kinds that only store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements
from flambeau import dtypes


def test_limits_are_those_of_the_formats() -> None:
    half, brain = fb.finfo(fb.float16), fb.finfo(fb.bfloat16)

    assert (half.max, half.eps, half.tiny) == (65504.0, 2.0**-10, 2.0**-14)
    assert (brain.eps, brain.bits) == (2.0**-7, 16)
    assert (fb.iinfo(fb.int16).min, fb.iinfo(fb.uint64).max) == (-(2**15), 2**64 - 1)


@pytest.mark.parametrize("dtype", [fb.float8_e4m3fn, fb.float8_e5m2, fb.float8_e4m3fnuz, fb.float8_e5m2fnuz])
def test_float8_holds_what_its_bits_can_say(dtype: Any) -> None:
    x = fb.tensor([0.0, 1.0, -1.5, 0.25, 96.0])
    packed = x.to(dtype)

    assert packed.element_size() == 1
    assert packed.float().tolist() == x.tolist()
    assert packed.view(fb.uint8).shape == (5,)


def test_float8_without_infinity_saturates() -> None:
    assert fb.tensor([1e9, -1e9, 449.0]).to(fb.float8_e4m3fn).float().tolist() == [448.0, -448.0, 448.0]


def test_arithmetic_on_float8_says_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match="float32"):
        fb.ones(2, dtype=fb.float8_e5m2) + 1


def test_complex32_is_two_halves() -> None:
    x = fb.tensor([1 + 2j, -0.5j]).to(fb.complex32)

    assert x.element_size() == 4
    assert fb.view_as_real(x).tolist() == [[1.0, 2.0], [0.0, -0.5]]
    assert x.to(fb.complex64).tolist() == [1 + 2j, -0.5j]


def test_promotion_prefers_kinds_then_dimensions_then_sizes() -> None:
    small = fb.ones(2, dtype=fb.int8)

    assert fb.result_type(small, 2.5) is fb.float32
    assert fb.result_type(small, fb.tensor(7)) is fb.int8
    assert fb.promote_types(fb.float16, fb.bfloat16) is fb.float32
    assert fb.promote_types(fb.int8, fb.uint8) is fb.int16


def test_python_types_name_dtypes() -> None:
    made = fb.zeros(1, dtype=float).dtype, fb.ones(2).to(int).dtype, fb.arange(3, dtype=float).dtype

    assert made == (fb.float64, fb.int64, fb.float64)


def test_dtypes_are_single_objects() -> None:
    assert fb.float is fb.float32
    assert fb.long is fb.int64
    assert fb.half is fb.float16
    with pytest.raises(TypeError):
        type(fb.float32)()


def test_remainders_have_the_sign_of_the_divisor_and_zeros_that_of_the_dividend() -> None:
    rest = fb.remainder(fb.tensor([5.0, -5.0, 4.0, -4.0]), fb.tensor([-3.0, 3.0, -2.0, 2.0]))

    assert rest.tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert np.signbit(rest.numpy()).tolist() == [True, False, False, True]


def test_the_next_half_is_one_bit_away() -> None:
    for dtype in (fb.float16, fb.bfloat16):
        one = fb.ones(1, dtype=dtype)

        assert fb.nextafter(one, 2 * one).item() == 1.0 + fb.finfo(dtype).eps


def test_limits_are_printed_as_pytorchs(oracle: Any) -> None:
    programs = """
    [torch.finfo(d).__repr__() for d in (torch.float16, torch.float32, torch.float64, torch.bfloat16)]
    torch.finfo(torch.complex64).dtype
    torch.finfo(torch.int32)
    torch.finfo().dtype
    torch.finfo(torch.float32) == torch.finfo(torch.float32)
    torch.iinfo(torch.float32)
    torch.iinfo(torch.bool)
    torch.iinfo(torch.int32).bits
    torch.finfo(torch.float32).max
    """

    assert not disagreements(oracle, programs)


def test_types_promote_as_pytorchs(oracle: Any) -> None:
    programs = """
    torch.result_type(torch.ones(2, dtype=torch.int32), 1.5)
    torch.result_type(torch.tensor(1), torch.ones(2, dtype=torch.int8))
    torch.result_type(1, 2.5)
    torch.result_type(1j, torch.ones(2, dtype=torch.float64))
    torch.promote_types(torch.int8, torch.uint8)
    torch.promote_types(torch.float16, torch.bfloat16)
    torch.promote_types(torch.uint16, torch.int8)
    torch.promote_types(torch.float8_e5m2, torch.float32)
    torch.can_cast(torch.double, torch.int)
    torch.can_cast(torch.int, torch.bool)
    torch.can_cast(torch.complex64, torch.float64)
    """

    assert not disagreements(oracle, programs)


def test_float8_and_complex32_hold_values(oracle: Any) -> None:
    programs = """
    torch.tensor(1.5, dtype=torch.float8_e4m3fn)
    torch.tensor([1.5, 2], dtype=torch.float8_e5m2)
    torch.tensor([1.5, 2], dtype=torch.complex32).dtype
    torch.ones(2, dtype=torch.complex32).dtype
    torch.ones(2, dtype=torch.complex32).to(torch.complex64)
    torch.ones(2, dtype=torch.complex32).real
    torch.view_as_real(torch.ones(2, dtype=torch.complex32))
    torch.ones(2, dtype=torch.complex32) + 1
    torch.ones(2, dtype=torch.complex32) * torch.ones(2, dtype=torch.complex32)
    torch.zeros(2, dtype=torch.complex32).copy_(torch.tensor([1j, 2]))
    torch.ones(2, dtype=torch.float8_e4m3fn).to(torch.float32)
    torch.ones(2, dtype=torch.float8_e4m3fn).dtype
    torch.ones(2, dtype=torch.float8_e4m3fn) + 1
    torch.ones(2, dtype=torch.float8_e4m3fn).clone().dtype
    torch.ones(2, dtype=torch.float8_e4m3fn).view(torch.uint8)
    torch.tensor([500.0, 1000000000.0, -1000000000.0, float('inf'), float('nan')]).to(torch.float8_e4m3fn).to(torch.float32)
    torch.tensor([500.0, 1000000000.0, -1000000000.0, float('inf'), float('nan')]).to(torch.float8_e5m2).to(torch.float32)
    torch.tensor([0.3, -0.0, 0.0003, -7.0]).to(torch.float8_e4m3fnuz).to(torch.float32)
    torch.tensor([0.3, -0.0, 0.0003, -7.0, 1000000.0]).to(torch.float8_e5m2fnuz).to(torch.float32)
    torch.tensor([1.0, 3.0, 0.7, 1000000.0]).to(torch.float8_e8m0fnu).to(torch.float32)
    torch.tensor([1.5]).to(torch.float8_e4m3fn)[0].item()
    torch.cat([torch.ones(2, dtype=torch.float8_e4m3fn)] * 2).dtype
    torch.ones(2, 2, dtype=torch.float8_e4m3fn)[0].dtype
    torch.ones(2, 2, dtype=torch.float8_e4m3fn).t().contiguous().dtype
    torch.ones(2, dtype=torch.float8_e4m3fn).sum()
    torch.ones(2, dtype=torch.float8_e4m3fn) == torch.ones(2, dtype=torch.float8_e4m3fn)
    torch.tensor([500.0, 1000000000.0, -1000000000.0, float('inf'), float('nan')]).to(torch.float8_e4m3fnuz).to(torch.float32)
    torch.tensor([500000.0, 1000000000.0, -1000000000.0, float('inf'), float('nan')]).to(torch.float8_e5m2fnuz).to(torch.float32)
    torch.tensor([500.0, 1e+39, -1000000000.0, float('inf'), float('nan'), 0.0]).to(torch.float8_e8m0fnu).to(torch.float32)
    torch.tensor([464.0, 465.0, 449.0, -470]).to(torch.float8_e4m3fn).to(torch.float32)
    torch.tensor([500.0], dtype=torch.float8_e4m3fn).to(torch.float32)
    torch.tensor([500.0], dtype=torch.float64).to(torch.float8_e4m3fn).to(torch.float32)
    torch.tensor([500.0], dtype=torch.bfloat16).to(torch.float8_e4m3fn).to(torch.float32)
    -torch.ones(2, dtype=torch.float8_e4m3fn)
    torch.ones(2, dtype=torch.float8_e4m3fn).abs()
    torch.ones(2, dtype=torch.float8_e4m3fn).sigmoid()
    torch.ones(2, dtype=torch.float8_e4m3fn) * 2
    torch.ones(2, dtype=torch.float8_e4m3fn).exp()
    torch.ones(2, dtype=torch.float8_e4m3fn).clamp(0, 1)
    torch.ones(2, dtype=torch.float8_e4m3fn).fill_(2).dtype
    torch.ones(2, dtype=torch.float8_e4m3fn).isnan()
    torch.ones(2, 2, dtype=torch.float8_e4m3fn) @ torch.ones(2, 2, dtype=torch.float8_e4m3fn)
    torch.ones(2, 2, dtype=torch.float8_e4m3fn).index_select(0, torch.tensor([0])).dtype
    torch.ones(2, 2, dtype=torch.float8_e4m3fn).max()
    torch.ones(2, 2, dtype=torch.float8_e4m3fn).flip(0).dtype
    torch.ones(2, 2, dtype=torch.float8_e4m3fn)[torch.tensor([0])].dtype
    torch.equal(torch.ones(2, dtype=torch.float8_e4m3fn), torch.ones(2, dtype=torch.float8_e4m3fn))
    torch.ones(2, dtype=torch.float8_e4m3fn).tolist()
    repr(torch.ones(2, dtype=torch.float8_e4m3fn))
    """

    assert not disagreements(oracle, programs)


def test_numbers_that_do_not_fit_are_refused(oracle: Any) -> None:
    programs = """
    torch.tensor(2 ** 63, dtype=torch.uint64)
    torch.tensor([2 ** 63], dtype=torch.uint64)
    torch.tensor(2 ** 70, dtype=torch.float32)
    torch.tensor(1e+300, dtype=torch.float32)
    torch.tensor(1j, dtype=torch.float32)
    torch.tensor([1j], dtype=torch.float32)
    torch.tensor(True, dtype=torch.float32)
    torch.tensor(1.5, dtype=torch.bfloat16).item()
    torch.tensor([1.5], dtype=torch.bfloat16).tolist()
    torch.tensor(-1, dtype=torch.uint16)
    torch.tensor(-1, dtype=torch.uint32)
    torch.tensor(-1, dtype=torch.uint64)
    torch.tensor([-1], dtype=torch.uint64)
    torch.tensor(2 ** 64, dtype=torch.uint64)
    torch.tensor(2 ** 63, dtype=torch.float32)
    torch.tensor([2 ** 63], dtype=torch.float32)
    torch.full((1,), 1e+39, dtype=torch.float32)
    torch.full((1,), 2 ** 63, dtype=torch.float32)
    torch.full((1,), True, dtype=torch.float32)
    torch.tensor([1.5, -1.5, 300.0]).to(torch.uint8)
    torch.tensor([1.5, -1.5, 300.0]).to(torch.int8)
    torch.tensor([1 + 2j]).to(torch.float32)
    torch.tensor([-1]).to(torch.uint8)
    torch.tensor([10000000000.0]).to(torch.int32).dtype
    torch.full((1,), 1e+39, dtype=torch.bfloat16)
    torch.tensor(1e+39, dtype=torch.float32)
    torch.full((1,), -1, dtype=torch.uint64)
    torch.full((1,), 2 ** 63, dtype=torch.uint64)
    torch.full((1,), 1 + 0j, dtype=torch.float32)
    """

    assert not disagreements(oracle, programs)


def test_dtypes_and_conversions_agree(oracle: Any) -> None:
    programs = r"""
    torch.asarray([1, 2, 3], dtype=torch.float32)
    torch.asarray(b'\x00\x00\x80?', dtype=torch.float32)
    torch.arange(1, 2, 0.1, dtype=torch.bfloat16)
    torch.set_default_dtype(torch.int32)
    torch.set_default_dtype('float')
    torch.ones(2, dtype=torch.bfloat16).numpy()
    x = torch.ones(2, dtype=torch.bfloat16); y = pickle.loads(pickle.dumps(x)); y
    pickle.loads(pickle.dumps(torch.float32)) is torch.float32
    repr(torch.Size([1, 2]))
    repr(torch.float32)
    (torch.float32.is_floating_point, torch.int8.is_signed, torch.bool.is_signed, torch.complex64.is_complex)
    torch.float32.itemsize
    torch.float32.to_complex()
    torch.complex64.to_real()
    torch.int32.to_complex()
    torch.float32 is torch.float
    torch.float32 == torch.float64
    torch.float32()
    (repr(torch.strided), repr(torch.sparse_coo), repr(torch.channels_last), repr(torch.contiguous_format))
    torch.ones(2, dtype=torch.float32).view(int)
    torch.ones(2).to(torch.float32) is None
    x = torch.ones(2); x.to(torch.float32) is x
    x = torch.ones(2); x.to(torch.float32, copy=True) is x
    repr(torch.ones(2, device='meta'))
    torch.ones(2, dtype=torch.uint32) * 2.5
    torch.ones(2, dtype=torch.uint64).sum()
    torch.ones(2, dtype=torch.uint16).to(torch.int32)
    """

    assert not disagreements(oracle, programs)


def test_limits_of_a_dtype_are_worked_out_once():
    first = fb.finfo(fb.bfloat16)
    first.max = 0.0

    assert fb.finfo(fb.bfloat16).max > 3e38
    assert fb.finfo(fb.complex64).dtype == "float32"
    assert dtypes._limits_of(fb.bfloat16) is dtypes._limits_of(fb.bfloat16)
