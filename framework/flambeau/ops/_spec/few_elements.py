"""Elements of operands that were met before, where the numpy tier has them: it computes them until the formula has a builtin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ..._arrays import ndarray
from .shapes import LARGEST

MOST_BY_NUMPY = 2048  # elements that are stored in a tensor after they were computed as a new array


class _ByNumpy:
    """How numpy computes few elements of operands of some kinds."""

    __slots__ = ("below", "by_numpy", "compute", "is_ufunc", "result", "run", "sought")

    def __init__(self, run: Callable[..., Any], compute: np.dtype, result: np.dtype, is_ufunc: bool, below: int) -> None:
        self.run = run                                # the numpy reading of the formula
        self.compute, self.result = compute, result
        self.is_ufunc = is_ufunc                      # its result has the shape that the operands broadcast to
        self.below = below                            # of how many elements on others compute them
        self.sought = False                           # whether the cache has been asked for the loop of these kinds
        self.by_numpy = False                         # whether there will be no builtin for them


# How few elements of operands that were met before are computed by numpy, until the formula is specialised: by `kinds_of` them.
met_before: dict[Any, _ByNumpy] = {}
kernels.plans_kept_elsewhere.append(met_before.clear)


def kinds_of(formula: Formula, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The formula, and what promotion looks at: dtypes, whether an array has dimensions, and the classes of numbers."""
    return (formula, *[(a.dtype.num if a.ndim else ~a.dtype.num) if a.__class__ is ndarray else a.__class__ for a in operands])


def remember_for_numpy(op: Any, formula: Formula, operands: tuple[Any, ...], out: Any, compute: np.dtype) -> None:
    """Let `computed_by_numpy` take operands like these, of which dtypes and classes of numbers say all and all tiers have the same bits."""
    if compute.char not in "?bBhHiIlLfd" or not kernels.has_one_answer(formula, compute):
        return
    kinds = kinds_of(formula, operands)
    if kinds not in met_before and "launch" not in op.__dict__ and all(a.dtype.kind in "biuf" for a in operands if a.__class__ is ndarray):
        run = formula.ufunc or formula.bind(kernels.WORDS_READ)
        below = kernels.numpys_below(formula, (*operands, out), compute)
        met_before[kinds] = _ByNumpy(run, compute, out.dtype, formula.ufunc is not None, below)


def computed_by_numpy(op: Any, formula: Formula, operands: tuple[Any, ...], args: tuple[Any, ...] = ()) -> Any:
    """The result of few elements as `kernels.reference_launch` computes it, without the checks of dtypes; None where those are to decide.

    Args:
        operands: the arrays and numbers of the arguments `args` of `op` that `formula` takes; without `args`, what a formula of its
            gradient takes.
    """
    plan = met_before.get(kinds_of(formula, operands))
    if plan is None or args and not op.accepts(args):
        return None
    if any(a.__class__ is ndarray for a in args):     # operators take numpy's arrays, functions refuse them
        return None
    if not plan.by_numpy:
        paid = op.waiting.paid_for()
        if paid or paid is False and not plan.sought:
            return None
    if args and op.check_looks_at == "range":
        op.check(op, *args)
    run, compute, dtype, is_ufunc, below = plan.run, plan.compute, plan.result, plan.is_ufunc, plan.below
    given = []
    token = ignore_fp_flags()
    try:
        for a in operands:
            if a.__class__ is not ndarray:
                if a.__class__ is int and not -LARGEST <= a <= LARGEST:
                    return None
                given.append(_number(a, compute))
            elif not a.flags.c_contiguous or a.size >= below:
                return None
            else:
                given.append(a if a.dtype is compute else kernels.cast(a, compute))
        if len(given) == 2 and () != given[0].shape != given[1].shape != () and np.broadcast(*given).size >= below:
            return None                               # few rows and columns make many elements
        made: Any = run(*given)
        shape = made.shape if is_ufunc else given[0].shape if len(given) == 1 else np.broadcast(*given).shape
    except ValueError:                                # shapes that do not broadcast
        return None
    finally:
        restore_fp_flags(token)
    if made.size >= below or made.shape != shape:
        return None
    if made.__class__ is not ndarray:
        made = np.asarray(made)
    if made.dtype.kind == "c":                        # of reals, as in the gradient of `angle`
        made = made.real
    if made.dtype is dtype and (is_ufunc or made.base is None and all(a is not made for a in given)):
        return made
    return made.astype(dtype) if made.dtype == dtype else kernels.cast(made, dtype)


def _number(value: Any, compute: np.dtype) -> Any:
    """`value`, no array, in the dtype `compute`."""
    kind = compute.kind
    if value.__class__ is float and kind == "f" or value.__class__ is int and -(2**24) <= value <= 2**24 and compute.char in "ilqfd":
        return compute.type(value)                    # which is exact, or is rounded once
    return kernels.cast(value, compute)
