"""Comparisons of two operands, and logic of truth values."""

from __future__ import annotations

import numpy as np

from .._promote import refuse, to_bool
from .._spec import FUNCTION, INPLACE, METHOD, OUT, elementwise
from .binary import check_tensors

COMPARED = METHOD | FUNCTION | OUT | INPLACE
# Of what is stored in place: the result depends on both, and changes with neither.
_STEPS = {"input": lambda: 0, "other": lambda: 0}


@elementwise(surface=COMPARED, dtype=to_bool, partials=_STEPS, ufunc=np.equal, quantized="numbers")
def eq(input, other):
    """Whether ``input == other``, elementwise."""
    return input == other


@elementwise(surface=COMPARED, dtype=to_bool, partials=_STEPS, ufunc=np.not_equal, aliases=("not_equal",), quantized="numbers")
def ne(input, other):
    """Whether ``input != other``, elementwise."""
    return input != other


ordered = refuse("complex")(to_bool)
ordered.__name__ = "to_bool"


@elementwise(surface=COMPARED, dtype=ordered, partials=_STEPS, ufunc=np.less, aliases=("less",), quantized="numbers")
def lt(input, other):
    """Whether ``input < other``, elementwise."""
    return input < other


@elementwise(surface=COMPARED, dtype=ordered, partials=_STEPS, ufunc=np.less_equal, aliases=("less_equal",), quantized="numbers")
def le(input, other):
    """Whether ``input <= other``, elementwise."""
    return input <= other


@elementwise(surface=COMPARED, dtype=ordered, partials=_STEPS, ufunc=np.greater, aliases=("greater",), quantized="numbers")
def gt(input, other):
    """Whether ``input > other``, elementwise."""
    return input > other


@elementwise(surface=COMPARED, dtype=ordered, partials=_STEPS, ufunc=np.greater_equal, aliases=("greater_equal",), quantized="numbers")
def ge(input, other):
    """Whether ``input >= other``, elementwise."""
    return input >= other


for _op in (eq, ne, lt, le, gt, ge):
    _op.shown_of(f"{_op.name.title()}Backward1", "input", "other")


@elementwise(surface=COMPARED, dtype=to_bool, check=check_tensors)
def logical_and(input, other):
    """Whether both are non-zero."""
    return logical_and(input, other)


@elementwise(surface=COMPARED, dtype=to_bool, check=check_tensors)
def logical_or(input, other):
    """Whether either is non-zero."""
    return logical_or(input, other)


@elementwise(surface=COMPARED, dtype=to_bool, check=check_tensors)
def logical_xor(input, other):
    """Whether exactly one is non-zero."""
    return logical_xor(input, other)
