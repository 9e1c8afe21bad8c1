"""How usual calls of a primitive without a plan are answered: by its check and its kernel for the host, with nothing between them.

What `PrimitiveOp.run` finds out about each call, such as which parameters are Tensors and whether there are residuals, the declaration
says, so the text that is written here does not ask. Calls with anything but single Tensors of the host are left to `run`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ...tensor import wrap
from . import plans
from .nodes import indented, record, written
from .shapes import LARGEST
from .strict import check_refused

__all__ = ["answer", "has_answer"]


def has_answer(op: Any) -> bool:
    """Whether usual calls of the primitive `op` are those that `answer` takes: with single tensors, and no draw that may be repeated."""
    return op.kernel_rule is not None and not op.is_view and op.index_tensors is None and not op.random


def answer(op: Any) -> Any:
    """``fn(*args)``: the result of usual arguments, or None."""
    tensors = [name for name in op.params if name in op.tensor_params]
    lines: list[str] = []
    for name in tensors:
        lines += plans.fetched(name, name in op.defaults, "None")
    lines += _plain_arguments(op)
    given = [f"a_{name}" if name in tensors else name for name in op.params]
    if op.check is not None:
        # A check may put others in the place of the arguments, of Tensors as well.
        again = [f"a_{name} = {_array_of(op, name)}" for name in tensors]
        lines += [
            f"_checked = check({', '.join(op.params)})",
            "if _checked is not None:",
            f"    {', '.join(op.params)}, = _checked",
            *indented(again),
        ]
    compute = [
        "_token = ignore_fp_flags()",
        "try:",
        f"    _o = rule({', '.join(given)})",
        "finally:",
        "    restore_fp_flags(_token)",
    ]
    if op.keeps:
        compute.append("_o, _kept = _o")
    if op.memory is not None:
        compute += _in_order(op, tensors)
    several = ["outs = tuple([_wrap(_as_array(_each)) for _each in _o])"]
    single = ["made = hot_calls.over(_o if _o.__class__ is ndarray else _as_array(_o))"]
    if op.vjp_rule is not None:
        several.append(f"histories(outs, {'_kept' if op.keeps else 'None'}, {', '.join(op.params)})")
        single += record(op, list(op.params), 2)
    several.append(f"return {'OP.named(outs)' if op.returns else 'outs'}")
    body = [
        f"def answer({', '.join(op.params)}):",
        "    try:",
        *indented(indented(lines + compute)),
        *indented(plans.refused(op, tuple(tensors))),
        "    if _o.__class__ is tuple or _o.__class__ is list:",
        *indented(indented(several)),
        *indented(single),
        "    return made",
    ]
    return written(
        op, "answer", body, rule=op.kernel_rule, check=op.check, ignore_fp_flags=ignore_fp_flags, restore_fp_flags=restore_fp_flags,
        _wrap=wrap, _as_array=np.asarray, REFUSED=plans.REFUSED, check_refused=check_refused, LARGEST=LARGEST,
        _are_rows=_are_rows,
        **({} if op.vjp_rule is None else {"histories": op.histories}),
    )  # fmt: skip


def _array_of(op: Any, name: str) -> str:
    return f"None if {name} is None else {name}._array" if name in op.defaults else f"{name}._array"


def _plain_arguments(op: Any) -> list[str]:
    """Lines that leave arguments to the fallback which are of types that the declaration does not have, and ints beyond 64 bits."""
    tests: list[str] = []
    for name in op.params:
        default = op.defaults.get(name)
        kind = op.declared_types.get(name, type(default).__name__)
        if name in op.tensor_params or kind == "bool":  # entry points have looked at flags
            continue
        tests.append((_UNLIKE.get(kind) or _UNLIKE[""]).format(name))
    return [f"if {' or '.join(tests)}:", "    return None"] if tests else []


# Text that tests whether an argument is another than a declared type has, or one that the fallback looks at; "" is any other type.
_UNLIKE = {
    "str": "{0}.__class__ is not str",
    "int": "{0}.__class__ is not int or not -LARGEST <= {0} <= LARGEST",
    "int | None": "{0} is not None and ({0}.__class__ is not int or not -LARGEST <= {0} <= LARGEST)",
    "float": "{0}.__class__ is not float and ({0}.__class__ is not int or not -LARGEST <= {0} <= LARGEST)",
    "float | None": "{0} is not None and {0}.__class__ is not float and ({0}.__class__ is not int or not -LARGEST <= {0} <= LARGEST)",
    "": "({0}.__class__ is int and not -LARGEST <= {0} <= LARGEST or isinstance({0}, Tensor))",
}


def _in_order(op: Any, tensors: list[str]) -> list[str]:
    """Lines that move the result to the order of memory that the declaration says, which row-major operands have of themselves."""
    arrays = ", ".join(f"a_{name}" if name in tensors else name for name in op.params)
    move = f"_o = OP.in_order(_o, ({arrays},))"
    if type(op.memory) is tuple or not op.ordering:
        return [move]
    rows = [f"a_{n}.flags.c_contiguous" if n not in op.defaults else f"(a_{n} is None or a_{n}.flags.c_contiguous)" for n in op.ordering]
    made = "(_o.flags.c_contiguous if _o.__class__ is ndarray else _are_rows(_o))"
    return [f"if not ({' and '.join((*rows, made))}):", f"    {move}"]


def _are_rows(made: Any) -> bool:
    """Whether all arrays of a tuple are row-major; a number of numpy's is."""
    return made.__class__ is not tuple or all([a.flags.c_contiguous for a in made])  # noqa: C419  # a generator takes longer
