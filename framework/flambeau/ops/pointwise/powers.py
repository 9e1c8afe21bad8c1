"""Powers, and what some exponents have for shorter formulas and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import log, real, sqrt, where

from ... import dtypes
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor
from .._promote import common, result_type
from .._spec import OPS, ElementwiseOp, elementwise, looks_at, saved_tensor


@looks_at("dtypes")
def check_pow(op: Any, input: Any, exponent: Any) -> None:
    is_integer = isinstance(exponent, (int, np.integer))
    if is_integer and exponent < 0 and isinstance(input, Tensor) and result_type((input, exponent)).category < 2:
        raise RuntimeError(f"{op.name}: Integers to negative integer powers are not allowed, got exponent {exponent}")
    if is_integer and isinstance(input, Tensor) and result_type((input, exponent)).category == dtypes.INTEGER:
        dtypes.check_number(exponent, result_type((input, exponent)))


@elementwise(
    dtype=common,
    scalar_first=True,
    check=check_pow,
    partials={
        # Where the exponent is 0 the function is constant, also at input 0.
        "input": lambda input, exponent: where(exponent == 0, 0, exponent * pow(input, exponent - 1)),
        # 0 ** positive stays 0 for neighbouring exponents.
        "exponent": lambda input, exponent, out: where(
            (input == 0) & (real(exponent) >= 0), 0, out * log(where((input == 0) & (real(exponent) >= 0), 1, input))
        ),
    },
    samples=(0.2, 3.0),
)
def pow(input, exponent):
    """``input ** exponent``, elementwise; nan for a negative number to a fraction.

    Raises: RuntimeError for an integer to a negative integer power; make one of them floating.
    """
    return pow(input, exponent)


pow.shown_of("PowBackward1", "input", "exponent")
pow.shown_of("PowBackward2", "exponent")


# Powers by numbers whose gradients are found without a general power. PyTorch takes ``input ** (exponent - 1)`` in these steps too, which
# decides the last bits.


@elementwise(surface=0, partials={"input": lambda input: 3 * (input * input)})
def cube(input):
    """``input * input * input``."""
    return input * input * input


# These two are general powers, whose exponent is an operand: written into the formula it would be expanded, and round otherwise.


@elementwise(surface=0, partials={"input": lambda input, exponent: exponent * (input * input * input)}, samples=(0.2, 3.0))
def fourth_power(input, *, exponent=4.0):
    """``input ** exponent``, which is 4."""
    return pow(input, exponent)


@elementwise(surface=0, partials={"input": lambda input, exponent: exponent * sqrt(input)}, samples=(0.2, 3.0))
def power_of_three_halves(input, *, exponent=1.5):
    """``input ** exponent``, which is 1.5."""
    return pow(input, exponent)


@elementwise(surface=0, partials={"input": lambda input: 0.5 * (1 / sqrt(input))}, samples=(0.2, 3.0))
def power_of_one_half(input):
    """``input ** 0.5``."""
    return sqrt(input)


@elementwise(surface=0, partials={"input": lambda input: -1 * (1 / (input * input))}, samples=(0.2, 3.0))
def power_of_minus_one(input):
    """``input ** -1``."""
    return 1 / input


_REAL_FLOATING_DTYPES = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
_BY_SHORT_SLOPE = {2: OPS["square"], 3: cube, 4: fourth_power, 1.5: power_of_three_halves, 0.5: power_of_one_half, -1: power_of_minus_one}


def _show_as_power(op: ElementwiseOp, exponent: float) -> None:
    """Let nodes of `op` be PyTorch's of ``input ** exponent``, and its gradient on Tensors be made of powers."""

    def gradient(i: int, node: Any, grad: Any) -> Any:
        input = saved_tensor(node, 1)
        half = op._half_to_widen(0, grad, [input])
        if half is not None:                          # as the kernel, which computes in float32 and rounds once
            input, grad = input.float(), grad.float()
        slope = grad * (exponent * pow.function(input, exponent - 1))
        return slope if half is None else slope.to(half)

    op.shown_as("PowBackward0", exponent=lambda saved: exponent)
    op.grad_tensor = gradient  # pyright: ignore[reportAttributeAccessIssue]  # in the place of the method


for _exponent, _op in _BY_SHORT_SLOPE.items():
    if _exponent != 2:
        _show_as_power(_op, _exponent)


# Of floating and complex values, PyTorch computes these powers in fewer steps, which decides their last bits and their infinities.
_SHORT_POWERS = {
    2: Formula(lambda input: input * input, "pow_2"),
    3: Formula(lambda input: input * input * input, "pow_3"),
    0.5: Formula(lambda input: sqrt(input), "pow_half", np.sqrt),
    -0.5: Formula(lambda input: 1 / sqrt(input), "pow_minus_half"),
    -1: Formula(lambda input: 1 / input, "pow_minus_1"),
    -2: Formula(lambda input: 1 / (input * input), "pow_minus_2"),
}


_POWER_BY_NUMBER = Formula(lambda input, exponent: pow(input, exponent), "pow_by_number")


def _launch_pow(arrays: tuple[Any, ...], out: Any, compute: np.dtype) -> None:
    input, exponent = arrays
    usual = compute is FLOAT32 or compute is FLOAT64 or compute.kind in "iu"
    if exponent.__class__ not in (int, float):
        ElementwiseOp.launch(pow, arrays, out, compute)
        if input.__class__ in (int, float) and usual:
            pow.learn(pow.formula, arrays, out, compute)
        return
    if compute.kind == "c" and exponent == 0:             # also of 0, unlike an exponent that is an array of zeros
        out.fill(1)
        return
    formula = None
    if exponent in (2, 3) or dtypes.from_numpy_dtype(compute).category >= dtypes.FLOATING:
        formula = _SHORT_POWERS.get(exponent)
    formula, operands = (_POWER_BY_NUMBER, arrays) if formula is None else (formula, (input,))
    kernels.launch(formula, operands, (out,), compute)
    # Integers to a floating power are computed in floating numbers by the formula that integers to a whole power have.
    if usual and getattr(input, "dtype", compute) == compute:
        pow.learn(formula, operands, out, compute)


def _formula_of_power(arrays: tuple[Any, ...]) -> tuple[Formula, tuple[Any, ...]]:
    """What `_launch_pow` computes powers of floating numbers by, so that in-place forms ask for the same."""
    input, exponent = arrays
    if exponent.__class__ not in (int, float) or getattr(input, "dtype", None) not in (FLOAT32, FLOAT64):
        return ElementwiseOp.formula_of(pow, arrays)
    formula = _SHORT_POWERS.get(exponent)
    return (_POWER_BY_NUMBER, arrays) if formula is None else (formula, (input,))


pow.formula_of = _formula_of_power  # pyright: ignore[reportAttributeAccessIssue]  # and which formula that is
pow.launch = _launch_pow  # pyright: ignore[reportAttributeAccessIssue]  # how this one op runs its formula


def _power_of_short_slope(input: Any, exponent: Any) -> Any:
    """The op of `_BY_SHORT_SLOPE` that answers a power, and its argument; None for other powers."""
    if exponent.__class__ is not int and exponent.__class__ is not float or not isinstance(input, Tensor):
        return None
    op = _BY_SHORT_SLOPE.get(exponent)
    if op is None or input.dtype not in _REAL_FLOATING_DTYPES:
        return None
    return op, (input, exponent)[: len(op.params)]


def _record_pow(made: Tensor, *args: Any) -> None:
    """As `ElementwiseOp.record`, so that powers with short gradients have one derivative, however they are written."""
    op, given = _power_of_short_slope(*args) or (None, args)
    if op is None:
        pow.written_record(made, *args)
    else:
        op.record(made, *given)


pow.record = _record_pow  # pyright: ignore[reportAttributeAccessIssue]  # how this one op records


def _power_by_number(input: Any, exponent: Any) -> Any:
    """Powers of floating tensors by a number, and of integers."""
    if exponent.__class__ is not int and exponent.__class__ is not float:
        return None
    dtype = input._array.dtype
    if dtype is not FLOAT32 and dtype is not FLOAT64:
        if dtype.kind not in "iu" or exponent.__class__ is not int or exponent < 0:
            return None
        power = _SHORT_POWERS.get(exponent) if exponent > 1 else None
    elif exponent in (2, 3):
        return _BY_SHORT_SLOPE[exponent].function(input)
    else:
        power = _SHORT_POWERS.get(exponent)
    made = _POWER_BY_NUMBER.enter(input, exponent) if power is None else power.enter(input)
    if made is not None and made._node is not None:
        pow.record(made, input, exponent)
    return made


pow.forwards(_power_by_number, to=_power_of_short_slope)
