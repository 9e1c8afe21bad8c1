"""Result dtypes: how the dtypes of operands, 0-d operands and Python numbers combine, and what ops do with the answer.

A dtype rule maps the arguments of an elementwise op to ``(compute, result)``: the dtype to calculate in and the dtype of
the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from .._symbolic import SymBool, SymFloat, SymInt
from ..dtypes import BOOL, COMPLEX, FLOATING, dtype, from_numpy_dtype
from ..tensor import Tensor

NUMBERS = (int, float, complex, bool, np.number, np.bool_, SymInt, SymFloat, SymBool)
Rule = Callable[..., tuple[dtype, dtype]]
_LARGEST_OF_INT64 = (1 << 63) - 1


def result_type(args: Any) -> dtype:
    """The common dtype: tensors with dimensions first, then 0-d tensors, then numbers, by kind."""
    dimmed = zero = number = beyond = None
    for x in args:
        if isinstance(x, Tensor):
            d = from_numpy_dtype(x._array.dtype)
            if x._array.ndim:
                dimmed = d if dimmed is None else dtypes.promote_types(dimmed, d)
            else:
                zero = d if zero is None else dtypes.promote_types(zero, d)
        elif x is not None:
            d = dtypes.of_number(x)
            if x.__class__ is int and x > _LARGEST_OF_INT64:
                beyond = dtypes.uint64                # alone holds it
            number = d if number is None else dtypes.promote_types(number, d)
    higher = _combine(dimmed, zero)
    if beyond is not None and higher is not None and higher.category == BOOL:
        return dtypes.promote_types(higher, beyond)   # which raises
    return _combine(higher, number) or dtypes.get_default_dtype()


def _combine(higher: dtype | None, lower: dtype | None) -> dtype | None:
    """`higher` unless `lower` is of a higher kind; then the smallest dtype of that kind that suits `higher`."""
    if higher is None or lower is None:
        return higher or lower
    if lower.category <= higher.category:
        return higher
    if higher.category == FLOATING:
        return higher.to_complex()
    return lower


def common(op: Any, args: Any) -> tuple[dtype, dtype]:
    """Computed and returned in the common dtype."""
    d = result_type(args)
    return d, d


def floating(op: Any, args: Any) -> tuple[dtype, dtype]:
    """The common dtype, integers and bools becoming the default floating dtype."""
    d = result_type(args)
    if d.category < FLOATING:
        d = dtypes.get_default_dtype()
    return d, d


def to_bool(op: Any, args: Any) -> tuple[dtype, dtype]:
    """Computed in the common dtype, returned as bool."""
    return result_type(args), dtypes.bool


def to_real(op: Any, args: Any) -> tuple[dtype, dtype]:
    """Computed in the common dtype; complex gives the dtype of its parts."""
    d = result_type(args)
    return d, d.to_real()


def like_input(op: Any, args: Any) -> tuple[dtype, dtype]:
    """The dtype of the first argument, whatever the others are."""
    d = args[0].dtype
    return d, d


def common_then(position: int) -> Rule:
    """Computed in the common dtype, returned in that of the argument at `position`."""

    def rule(op: Any, args: Any) -> tuple[dtype, dtype]:
        return result_type(args), args[position].dtype

    return rule


def refuse(*names: str) -> Callable[[Rule], Rule]:
    """`rule`, but refusing the named kinds or dtypes: 'bool', 'integer', 'floating', 'complex', 'float16', ..."""
    kinds = {"bool": dtypes.BOOL, "integer": dtypes.INTEGER, "floating": FLOATING, "complex": COMPLEX}
    refused = {kinds[n] for n in names if n in kinds}
    named = {n for n in names if n not in kinds}

    def wrapper(rule: Rule) -> Rule:
        def checked(op: Any, args: Any) -> tuple[dtype, dtype]:
            compute, result = rule(op, args)
            if compute.category in refused or compute.name in named:
                raise NotImplementedError(f'"{op.public_name}" not implemented for {compute}; convert the operands with .to(dtype) first')
            return compute, result

        checked.takes_floats = FLOATING not in refused  # type: ignore[attr-defined]
        return checked

    return wrapper


def only(*names: str) -> Callable[[Rule], Rule]:
    """`rule`, but refusing every kind that is not named."""
    every = {"bool", "integer", "floating", "complex"}
    return refuse(*(every - set(names)))


real_common = refuse("complex")(common)
real_floating = refuse("complex")(floating)
integral = only("bool", "integer")(common)
