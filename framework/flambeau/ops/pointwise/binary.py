"""Elementwise operations of two operands."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.cpu.reductions.along import ALL, Along
from flambeau_kernels.cpu.reductions.reduce import Reduction
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import floor, isinf, isnan, trunc, where

from ... import dtypes
from ..._arrays import empty_like_layout, ndarray
from ...tensor import Tensor, wrap
from .._promote import (
    common,
    floating,
    integral,
    like_input,
    real_common,
    real_floating,
    refuse,
    result_type,
)
from .._spec import (
    EVERYWHERE,
    EXACTLY,
    FOREACH,
    FUNCTION,
    INPLACE,
    METHOD,
    NO_FOREACH,
    OPS,
    OUT,
    ElementwiseOp,
    composite,
    elementwise,
    looks_at,
)
from .._spec.names import unify
from .powers import pow


@looks_at("dtypes")
def check_alpha(op: Any, input: Any, other: Any, alpha: Any) -> None:
    """Raise RuntimeError for an `alpha` of a kind the result cannot hold."""
    d = result_type((input, other))
    if isinstance(alpha, bool) and d.category != 0:
        raise RuntimeError(f"{op.name}: Boolean alpha only supported for Boolean results, got a {d.name} result")
    if isinstance(alpha, float) and d.category < 2:
        raise RuntimeError(f"{op.name}: For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and d.category < 3:
        raise RuntimeError(f"{op.name}: For non-complex input tensors, argument alpha must not be a complex number.")


@looks_at("dtypes")
def check_sub(op: Any, input: Any, other: Any, alpha: Any) -> None:
    check_alpha(op, input, other, alpha)
    kinds = [x.dtype.category == 0 if isinstance(x, Tensor) else isinstance(x, bool) for x in (input, other)]
    if any(kinds) and (all(kinds) or any(k and isinstance(x, (Tensor, bool)) for k, x in zip(kinds, (input, other), strict=True))):
        reason = (
            "with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
            if all(isinstance(x, Tensor) for x in (input, other)) and all(kinds)
            else "with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )
        raise RuntimeError(f"{op.name}: Subtraction, the `-` operator, {reason}")


@elementwise(
    ufunc=np.add,
    scalar_first=True,
    numbers_alone=True,
    check=check_alpha,
    partials={"input": lambda: 1, "other": lambda alpha: alpha},
    older=(("input", "alpha", "other"),),
)
def add(input, other, *, alpha=1):
    """``input + alpha * other``, elementwise; bools are joined by or.

    Raises: RuntimeError for an `alpha` that is not an integer between integers, or shapes that do not broadcast.

    >>> fb.add(fb.tensor([1, 2]), fb.tensor([[10], [20]]), alpha=2)
    tensor([[21, 22],
            [41, 42]])
    """
    return input + other * alpha


add.shown_as(alpha="alpha")


@elementwise(
    ufunc=np.subtract,
    scalar_first=True,
    numbers_alone=True,
    check=check_sub,
    aliases=("subtract",),
    partials={"input": lambda: 1, "other": lambda alpha: -alpha},
    operator="sub | rsub(other, input, alpha)",
    older=(("input", "alpha", "other"),),
)
def sub(input, other, *, alpha=1):
    """``input - alpha * other``, elementwise. Raises: RuntimeError for bools, which `logical_xor` subtracts."""
    return input - other * alpha


sub.shown_as(alpha="alpha")
sub.shown_of("RsubBackward1", "other")


def _factor(saved: Any) -> Any:
    """The second factor or the divisor: a number is a tensor to PyTorch, of the dtype that Python has for it."""
    other = saved.get("other")
    return wrap(np.asarray(other)) if isinstance(other, (bool, int, float, complex)) else other


@elementwise(
    ufunc=np.multiply,
    scalar_first=True,
    numbers_alone=True,
    aliases=("multiply",),
    partials={"input": lambda other: other, "other": lambda input: input},
)
def mul(input, other):
    """``input * other``, elementwise."""
    return input * other


mul.shown_as(self="input", other=_factor)


@elementwise(
    surface=NO_FOREACH,
    ufunc=np.true_divide,
    dtype=floating,
    scalar_first=True,
    numbers_alone=True,
    title="DivBackward0",
    operator="div(input, other)",
    partials={"input": lambda other: 1 / other, "other": lambda input, other: -(input / other) / other},
)
def true_divide(input, other):
    """``input / other``, elementwise; integers give the default floating dtype."""
    return input / other


true_divide.shown_as("DivBackward0", self="input", other=_factor)


@composite(
    surface=EVERYWHERE, aliases=("divide",), overlap=EXACTLY, numbers_alone=True,
    samples="x(2, 3), p(2, 3); x(2, 3), p(3), rounding_mode='floor'; x(2, 3), 2.0, rounding_mode='trunc'",
    names=unify,
)
def div(input, other, *, rounding_mode=None):
    """``input / other``, elementwise, rounded as `rounding_mode` says.

    Args:
        rounding_mode: None (integers give the default floating dtype), 'trunc' (towards zero) or 'floor';
            with a mode
            integers stay integers.
    Raises: RuntimeError for another mode, or for an integer divided by zero with one.

    >>> fb.div(fb.tensor([-7, 7]), 2), fb.div(fb.tensor([-7, 7]), 2, rounding_mode="floor")
    (tensor([-3.5000,  3.5000]), tensor([-4,  3]))
    """
    if rounding_mode is None:
        return true_divide(input, other)
    dtype = result_type((input, other))
    integers = dtype.category < 2
    if rounding_mode == "floor":
        return floor_divide(input, other) if integers else run_op(floor_quotient, input, other)
    if rounding_mode == "trunc":
        if dtype.itemsize == 2 and not integers:
            # Halves are rounded before the fraction goes, as PyTorch does: 35.997 is 36 in float16.
            return true_divide(input, other).trunc()
        return run_op(trunc_quotient_of_integers if integers else trunc_quotient, input, other)
    raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")


def run_op(op: Any, *args: Any) -> Any:
    """Call an op that has no public name, by whichever path is in force."""
    return op.function(*args)


def _has_zero(x: Tensor) -> bool:
    a = x._array
    if a.__class__ is ndarray and a.size < 4096:          # below, numpy counts sooner than a kernel is launched
        return np.count_nonzero(a) != a.size
    return not OPS["all"].function(x)


@looks_at("integers", of="other")
def check_integer_divisor(op: Any, input: Any, other: Any) -> None:
    d = result_type((input, other))
    if d.category < 2:
        if isinstance(other, Tensor):
            zero = other.is_cpu and _has_zero(other)
        else:                                         # a larger integer than the dtype holds loses its upper bits
            zero = not other & ((1 << 8 * d.itemsize) - 1) if isinstance(other, int) else not other
        if zero:
            raise RuntimeError(f"{op.public_name}: ZeroDivisionError: integer division by zero in 'other'")


@elementwise(
    surface=NO_FOREACH, dtype=real_common, scalar_first=True, numbers_alone=True, check=check_integer_divisor, partials={}
)
def floor_divide(input, other):
    """``floor(input / other)``, elementwise. Raises: RuntimeError for an integer divided by zero."""
    return floor_divide(input, other)


@elementwise(
    surface=0,
    dtype=real_common,
    scalar_first=True,
    numbers_alone=True,
    partials={"input": lambda: 0, "other": lambda: 0},
    operator="div(input, other, rounding_mode='floor')",
    public_name="div",
)
def floor_quotient(input, other):
    """`floor_divide` for floating operands, whose derivative is zero almost everywhere."""
    return floor_divide(input, other)


floor_quotient.shown_as("DivBackward2", rounding_mode=lambda saved: "floor")


@elementwise(
    surface=0,
    dtype=real_common,
    scalar_first=True,
    numbers_alone=True,
    partials={"input": lambda: 0, "other": lambda: 0},
    operator="div(input, other, rounding_mode='trunc')",
    public_name="div",
)
def trunc_quotient(input, other):
    """``trunc(input / other)`` of floating operands."""
    return trunc(input / other)


trunc_quotient.shown_as("DivBackward2", rounding_mode=lambda saved: "trunc")


@elementwise(
    surface=0, dtype=integral, scalar_first=True, numbers_alone=True, check=check_integer_divisor,
    samples="i(9, 2, 3), i(5, 3) + 1",
    public_name="div",
)
def trunc_quotient_of_integers(input, other):
    """``trunc(input / other)`` of integers, exact at any size."""
    quotient = floor_divide(input, other)
    return where((quotient < 0) & (quotient * other != input), quotient + 1, quotient)


def _is_not_zero(x: Any) -> Any:
    return x != 0


_all_of = Along("fold", Reduction("all", "and", _is_not_zero), lambda dtype: (_BOOL, _BOOL), dims=ALL)
_BOOL = np.dtype(bool)


def _by_integers(op: ElementwiseOp) -> Any:
    """Give `op`, whose formula has no value for a divisor of 0, a plan for integers: it looks at the divisor first."""
    formula = Formula(op.fn, f"{op.name}_by_integers")

    @op.plan(tensors=("input",), dtypes="bhilqBHILQ")
    def plan(a: Any, other: Any) -> Any:
        if other.__class__ is Tensor:
            b = other._array
            if b.dtype is not a.dtype or b.__class__ is not ndarray:
                return None
            found = _all_of(b, None, False)
            if not (b.all() if found is None else found):
                return None
        elif other.__class__ is int and other and (-128 < other < 128 if a.dtype.kind == "i" else 0 < other < 256):
            b = other
        else:
            return None
        made = formula.direct(a, b)
        if made is None:
            made = empty_like_layout(np.broadcast_shapes(a.shape, np.shape(b)), a.dtype, [a, b] if b.__class__ is ndarray else [a])
            kernels.launch(formula, (a, b), (made,), a.dtype)
            op.learn(formula, (a, b), made, a.dtype)
        return made

    return op


_BY_INTEGERS = {"floor": _by_integers(floor_divide), "trunc": _by_integers(trunc_quotient_of_integers)}


_OF_REALS = {"floor": floor_quotient, "trunc": trunc_quotient}


def _rounded_quotient(input: Any, other: Any, rounding_mode: Any) -> Any:
    """Of integers, or of a tensor of float32 or float64 by a number or another such tensor."""
    if rounding_mode.__class__ is not str or not isinstance(input, Tensor):
        return None
    if input._array.dtype.char in "fd":
        op = _OF_REALS.get(rounding_mode)
        by = other.__class__ is float or other.__class__ is int or isinstance(other, Tensor) and other._array.dtype.char in "fd"
        return run_op(op, input, other) if op is not None and by else None
    by_integers = _BY_INTEGERS.get(rounding_mode)
    return None if by_integers is None else by_integers.answer(input, other)


def _quotient(input: Any, other: Any, rounding_mode: Any) -> Any:
    """A quotient of a floating tensor that is not rounded."""
    if rounding_mode is None and isinstance(input, Tensor) and input.dtype.category >= dtypes.FLOATING:
        return true_divide, (input, other)
    return None


div.forwards(_rounded_quotient, to=_quotient)


@elementwise(
    surface=NO_FOREACH,
    dtype=real_common,
    scalar_first=True,
    check=check_integer_divisor,
    partials={"input": lambda: 1, "other": lambda input, other: -floor(input / other)},
)
def remainder(input, other):
    """``input - other * floor(input / other)``: the remainder with the sign of `other`."""
    return remainder(input, other)


@elementwise(
    surface=NO_FOREACH,
    dtype=real_common,
    check=check_integer_divisor,
    partials={"input": lambda: 1, "other": lambda input, other: -trunc(input / other)},
)
def fmod(input, other):
    """``input - other * trunc(input / other)``: the remainder with the sign of `input`."""
    return fmod(input, other)


remainder.shown_of("RemainderBackward1", "input", "other")
fmod.shown_of("FmodBackward1", "input", "other")
_by_integers(remainder)
_by_integers(fmod)


@elementwise(surface=0, dtype=like_input, partials={"input": lambda: 1, "of": lambda: 0}, float8=True)
def piecewise_constant(input, of):
    """`input`, which depends on `of`, but with derivative zero."""
    return input


@looks_at("dtypes")
def check_tensors(op: Any, *args: Any) -> None:
    """Raise TypeError for a number where PyTorch takes Tensors only."""
    for name, x in zip(op.params, args, strict=False):
        if not isinstance(x, Tensor):
            raise TypeError(f"{op.name}(): argument '{name}' must be Tensor, not {type(x).__name__}")


def _of_angle(side, square):
    # At the origin there is no angle, and its derivatives are taken to be 0.
    return where(square == 0, side * 0.0, side) / where(square == 0, 1.0, square)


@elementwise(
    surface=NO_FOREACH,
    dtype=real_floating,
    check=check_tensors,
    ufunc=np.arctan2,
    aliases=("arctan2",),
    partials={
        "input": lambda input, other: _of_angle(other, input * input + other * other),
        "other": lambda input, other: _of_angle(-input, input * input + other * other),
    },
)
def atan2(input, other):
    """The angle of the point ``(other, input)``, in radians, in [-pi, pi]; integers give the default floating dtype."""
    return atan2(input, other)


@elementwise(
    check=check_tensors,
    surface=METHOD | FUNCTION | OUT | FOREACH,
    dtype=real_common,
    ufunc=np.maximum,
    vjp={
        # Tied operands share the gradient equally.
        "input": lambda grad, input, other: where(input == other, grad / 2, where(input < other, 0, grad)),
        "other": lambda grad, input, other: where(input == other, grad / 2, where(other < input, 0, grad)),
    },
)
def maximum(input, other):
    """The larger of both, elementwise; nan if either is nan."""
    return maximum(input, other)


def _larger_of_one(tensor: Tensor, other: Any) -> Tensor:
    return tensor.maximum(other) if isinstance(other, Tensor) else tensor.clamp_min(other)


# Numbers may limit lists too, and in place.
maximum.on_lists(_larger_of_one, lambda tensor, other: tensor.copy_(_larger_of_one(tensor, other)))


@elementwise(
    check=check_tensors,
    surface=METHOD | FUNCTION | OUT | FOREACH,
    dtype=real_common,
    ufunc=np.minimum,
    vjp={
        "input": lambda grad, input, other: where(input == other, grad / 2, where(input > other, 0, grad)),
        "other": lambda grad, input, other: where(input == other, grad / 2, where(other > input, 0, grad)),
    },
)
def minimum(input, other):
    """The smaller of both, elementwise; nan if either is nan."""
    return minimum(input, other)


def _smaller_of_one(tensor: Tensor, other: Any) -> Tensor:
    return tensor.minimum(other) if isinstance(other, Tensor) else tensor.clamp_max(other)


minimum.on_lists(_smaller_of_one, lambda tensor, other: tensor.copy_(_smaller_of_one(tensor, other)))


@elementwise(
    check=check_tensors,
    surface=METHOD | FUNCTION | OUT,
    dtype=real_common,
    vjp={
        "input": lambda grad, input, other: where((input >= other) | isnan(other), grad, 0),
        "other": lambda grad, input, other: where((input >= other) | isnan(other), 0, grad),
    },
)
def fmax(input, other):
    """The larger of both, elementwise; a nan counts as missing."""
    return fmax(input, other)


@elementwise(
    check=check_tensors,
    surface=METHOD | FUNCTION | OUT,
    dtype=real_common,
    vjp={
        "input": lambda grad, input, other: where((input <= other) | isnan(other), grad, 0),
        "other": lambda grad, input, other: where((input <= other) | isnan(other), 0, grad),
    },
)
def fmin(input, other):
    """The smaller of both, elementwise; a nan counts as missing."""
    return fmin(input, other)


@elementwise(
    check=check_tensors,
    surface=METHOD | FUNCTION | OUT | INPLACE,
    dtype=refuse("complex", "bool", "integer")(common),
    partials={"input": lambda input, out: input / out, "other": lambda other, out: other / out},
)
def hypot(input, other):
    """``sqrt(input**2 + other**2)`` without overflow on the way."""
    return hypot(input, other)


@elementwise(
    surface=METHOD | FUNCTION | OUT | INPLACE,
    dtype=real_floating,
    vjp={
        "input": lambda grad, input, out: where(input == 0, 0, grad * where((input < 0) == (out < 0), 1, -1)),
        "other": lambda grad: where(grad == 0, 0, 0),
    },
)
def copysign(input, other):
    """The magnitude of `input` with the sign of `other`."""
    return copysign(input, other)


copysign.shown_of("CopysignBackward1", "input")


_STEPS = {
    "input": lambda grad, input, other: where(input == other, 0, grad),  # a step of fixed size, away from `other`
    "other": lambda grad: where(grad == grad, 0, 0),  # which says only where to, as PyTorch has it
}


@elementwise(
    check=check_tensors,
    surface=METHOD | FUNCTION | OUT | INPLACE,
    dtype=refuse("complex", "bool", "integer")(common),
    vjp=_STEPS,
)
def nextafter(input, other):
    """The next representable value after `input` in the direction of `other`; floating dtypes only."""
    return nextafter(input, other)


# The next value of a half type is far from the next float32 one, in which formulas of halves are computed.


def _next_half(half: str, bits: int, least: float, most: float) -> ElementwiseOp:
    """`nextafter` of a half type: more than half of a step away, and less than one and a half, so that rounding finds the next.

    Args:
        half: its name; the step is one of that type alone, so numbers of every other are refused.
        bits: of its significand, the leading one among them.
        least, most: its smallest number above 0, and its largest.
    """

    def next_half(input, other):
        """`nextafter` of numbers of one half type."""
        step = maximum(abs(input) * (1.25 * 2.0**-bits), 0.75 * least)
        moved = where(isinf(input), copysign(most, input), where(other > input, input + step, input - step))
        return where(isnan(other) | (input == other), other, moved)

    next_half.__name__ = next_half.__qualname__ = f"next_{half}"
    others = {"float16", "bfloat16", "float32", "float64", "complex", "bool", "integer"} - {half}
    op = elementwise(
        surface=0, check=check_tensors, public_name="nextafter", dtype=refuse(*others)(common), vjp=_STEPS, samples="of nextafter"
    )(next_half)
    op.shown_as("NextafterBackward0")
    return op


_NEXT_OF_HALVES = {
    dtypes.float16: _next_half("float16", 11, 2.0**-24, 65504.0),
    dtypes.bfloat16: _next_half("bfloat16", 8, 2.0**-133, (2 - 2.0**-7) * 2.0**127),
}


def _next_of_halves(input: Any, other: Any) -> Any:
    if isinstance(input, Tensor) and isinstance(other, Tensor) and input.dtype is other.dtype and input.dtype in _NEXT_OF_HALVES:
        return _NEXT_OF_HALVES[input.dtype], (input, other)
    return None


def _answer_of_halves(input: Any, other: Any) -> Any:
    found = _next_of_halves(input, other)
    return None if found is None else run_op(found[0], *found[1])


nextafter.forwards(_answer_of_halves, to=_next_of_halves)
nextafter.computed_in({d: op.formula for d, op in _NEXT_OF_HALVES.items()})


@looks_at("dtypes")
def _check_heaviside(op: Any, input: Any, values: Any) -> None:
    check_tensors(op, input, values)
    if input.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    if input.is_complex():
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")


@elementwise(check=_check_heaviside, surface=METHOD | FUNCTION | OUT | INPLACE, dtype=common, partials={}, exact_out=True)
def heaviside(input, values):
    """0 below zero, 1 above, and `values` at zero. Raises: RuntimeError for complex or different dtypes."""
    return where(input == 0, values, where(input > 0, 1, 0))


@composite(surface=METHOD | FUNCTION | OUT | INPLACE, overlap=(EXACTLY, None), reads_parts=True, samples="x(2, 3), i(3, 2, 3)")
def ldexp(input, other):
    """``input * 2 ** other``, elementwise; integers give the default floating dtype."""
    for name, x in (("input", input), ("other", other)):
        if not isinstance(x, Tensor):
            raise TypeError(f"ldexp(): argument '{name}' must be Tensor, not {type(x).__name__}")
    if other.dtype.category < dtypes.FLOATING <= input.dtype.category:
        other = other.to(input.dtype.to_real())       # so that the power has the range of the input
    return mul(input, pow(2.0, other))


ldexp.result_shown_as("LdexpBackward0")


@composite(surface=FUNCTION, samples="x(2, 3), x(3); x(2, 3), 2, alpha=3", elements="mapped")
def rsub(input, other, alpha=1):
    """``other - alpha * input``. Raises: TypeError for an `input` that is no Tensor."""
    if not isinstance(input, Tensor):
        raise TypeError(f"rsub(): argument 'input' must be Tensor, not {type(input).__name__}")
    return sub(other, input, alpha=alpha)
