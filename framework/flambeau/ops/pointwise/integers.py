"""Elementwise operations of two integers: bits, shifts and divisors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensor import Tensor
from .._promote import common, integral, only
from .._spec import FUNCTION, INPLACE, METHOD, OUT, elementwise, looks_at
from .binary import check_tensors


@looks_at("dtypes")
def check_some_tensor(op: Any, input: Any, other: Any) -> None:
    """Raise TypeError when both operands are numbers."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError(f"{op.name}(): one of 'input' and 'other' must be a Tensor, got two numbers: {input!r} and {other!r}")


@elementwise(
    surface=METHOD | FUNCTION | OUT | INPLACE, dtype=integral, scalar_first=True, check=check_some_tensor,
    samples="i(9, 2, 3), i(5, 3)",
)
def bitwise_and(input, other):
    """Bitwise and of integers; logical and of bools."""
    return input & other


@elementwise(
    surface=METHOD | FUNCTION | OUT | INPLACE, dtype=integral, scalar_first=True, check=check_some_tensor,
    samples="i(9, 2, 3), i(5, 3)",
)
def bitwise_or(input, other):
    """Bitwise or of integers; logical or of bools."""
    return input | other


@elementwise(
    surface=METHOD | FUNCTION | OUT | INPLACE, dtype=integral, scalar_first=True, check=check_some_tensor,
    samples="i(9, 2, 3), i(5, 3)",
)
def bitwise_xor(input, other):
    """Bitwise exclusive or of integers; logical exclusive or of bools."""
    return input ^ other


@elementwise(
    surface=METHOD | FUNCTION | OUT | INPLACE, dtype=only("integer")(common), scalar_first=True, check=check_some_tensor,
    samples="i(9, 2, 3), i(5, 3)",
)
def bitwise_left_shift(input, other):
    """``input << other``, elementwise."""
    return input << other


@elementwise(
    surface=METHOD | FUNCTION | OUT | INPLACE, dtype=only("integer")(common), scalar_first=True, check=check_some_tensor,
    samples="i(9, 2, 3), i(5, 3)",
)
def bitwise_right_shift(input, other):
    """``input >> other``, elementwise, keeping the sign."""
    return input >> other


@elementwise(
    check=check_tensors, surface=METHOD | FUNCTION | OUT | INPLACE, dtype=only("integer")(common), ufunc=np.gcd,
    samples="i(9, 2, 3), i(5, 3)",
)
def gcd(input, other):
    """Greatest common divisor, elementwise; never negative. Integers only."""
    return gcd(input, other)


@elementwise(
    check=check_tensors, surface=METHOD | FUNCTION | OUT | INPLACE, dtype=only("integer")(common),
    samples="i(9, 2, 3), i(5, 3)",
)
def lcm(input, other):
    """Least common multiple, elementwise; never negative. Integers only."""
    return lcm(input, other)
