"""How a primitive runs on tensors of the host, written out for each: its check, its kernel, its results and their history.

What `PrimitiveOp.run_on` finds out about a call, such as which parameters are tensors and whether there are residuals, the declaration
says, so the text asks only whether the operands are single tensors with arrays of the host. All other calls it leaves to `run_on`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ...tensor import wrap
from . import plans
from .memory import COLUMNS, placed
from .nodes import indented, record, written
from .shapes import LARGEST

__all__ = ["as_array", "run"]


def run(op: Any) -> Any:
    """``fn(*args)``: `PrimitiveOp.run`, which is the same for all operands."""
    if op.kernel_rule is None or op.index_tensors is not None:
        return op.run_on
    tensors = [name for name in op.params if name in op.tensor_params]
    otherwise = f"return run_on({', '.join(op.params)})"
    lines = [line for name in op.params for line in (_fetched if name in tensors else _plain)(op, name, otherwise)]
    given = [f"a_{name}" if name in tensors else name for name in op.params]
    if op.check is not None:
        # A check may put others in the place of the arguments.
        again = [f"a_{name} = None if {name} is None else {name}._array" for name in tensors]
        changed = ["if _checked is not None:", f"    {', '.join(op.params)}, = _checked", *indented(again)]
        lines += [f"_checked = check({', '.join(op.params)})", *changed]
    call = f"_o = rule({', '.join(given)})"
    lines += ["_token = ignore_fp_flags()", "try:", f"    {call}", "finally:", "    restore_fp_flags(_token)"]
    if op.keeps:
        lines.append("_o, _kept = _o")
    if op.memory is not None:
        lines += _in_order(op, given)
    lines += _several(op) if op.returns else _one_or_several(op)
    body = [f"def run({', '.join(op.params)}):", *indented(lines)]
    constants = {} if not op.has_history or op.returns else {"histories": op.histories}
    return written(
        op, "run", body, rule=op.kernel_rule, check=op.check, run_on=op.run_on, ignore_fp_flags=ignore_fp_flags,
        restore_fp_flags=restore_fp_flags, _wrap=wrap, _as_array=as_array, _are_rows=_are_rows, LARGEST=LARGEST, SEVERAL=(list, tuple),
        NAMED=plans.named(op), new_tuple=tuple.__new__, MEMORY=op.memory, placed=placed, **constants,
    )  # fmt: skip


def _fetched(op: Any, name: str, otherwise: str) -> list[str]:
    """Lines that bring a tensor of the host down to its array."""
    array = f"a_{name}"
    fetch = [
        f"if {name}.__class__ is not Tensor and not isinstance({name}, Tensor):",
        f"    {otherwise}",
        f"{array} = {name}._array",
        f"if {array}.__class__ is not ndarray:",
        f"    {otherwise}",
    ]
    return [f"{array} = None", f"if {name} is not None:", *indented(fetch)] if name in op.defaults else fetch


def _plain(op: Any, name: str, otherwise: str) -> list[str]:
    """Lines that look at an argument of which other things have to be asked: an int that may be beyond 64 bits, or Tensors."""
    kind = op.declared_types.get(name, type(op.defaults.get(name)).__name__)
    if kind in ("bool", "bool | None", "str"):
        return []
    tests = [f"{name}.__class__ is int and not -LARGEST <= {name} <= LARGEST"]
    if kind not in ("int", "float", "int | None", "float | None"):
        tests.append(f"isinstance({name}, Tensor) or {name}.__class__ in SEVERAL and {name} and isinstance({name}[0], Tensor)")
    return [f"if {' or '.join(tests)}:", f"    {otherwise}"]


def _in_order(op: Any, given: list[str]) -> list[str]:
    """Lines that move the result to the order of memory that the declaration says, which row-major operands have of themselves."""
    move = f"_o = OP.in_order(_o, ({', '.join(given)},))"
    if type(op.memory) is tuple:
        operands = f"[_a for _a in ({''.join(f'a_{n}, ' for n in op.ordering)}) if _a is not None]"
        each = "".join(f"placed(_as_array(_o[{i}]), MEMORY[{i}], _operands), " for i in range(len(op.memory)))
        moved = ["if _o.__class__ is tuple:", f"    _operands = {operands}", f"    _o = ({each})", "else:", f"    {move}"]
        return moved if COLUMNS in op.memory else [f"if not ({_all_rows(op)}):", *indented(moved)]
    if not op.ordering:
        return [move]
    return [f"if not ({_all_rows(op)}):", f"    {move}"]


def _all_rows(op: Any) -> str:
    """Text that tests whether operands and results are row-major."""
    rows = [f"a_{n}.flags.c_contiguous" if n not in op.defaults else f"(a_{n} is None or a_{n}.flags.c_contiguous)" for n in op.ordering]
    return " and ".join((*rows, "(_o.flags.c_contiguous if _o.__class__ is ndarray else _are_rows(_o))"))


def _are_rows(made: Any) -> bool:
    """Whether all arrays of a tuple are row-major; a number of numpy's is."""
    return made.__class__ is not tuple or all([a.flags.c_contiguous for a in made])  # noqa: C419  # a generator takes longer


def _tensor_of(result: str) -> str:
    """Text that makes a Tensor of what a kernel returned."""
    return f"hot_calls.over({result}) if {result}.__class__ is ndarray else _wrap(_as_array({result}))"


def as_array(result: Any) -> Any:
    """What a kernel returned as an array: a number of numpy's is none yet, arrays of other devices are."""
    return result if type(result) is np.ndarray or not isinstance(result, (np.generic, np.ndarray)) else np.asarray(result)


def _several(op: Any) -> list[str]:
    """Lines that return the results of an op that says what they are called."""
    results = [f"_o{i}" for i in range(len(op.returns))]
    lines = [f"{', '.join(results)}, = _o", f"outs = ({''.join(f'{_tensor_of(r)}, ' for r in results)})"]
    recorded = [] if op.vjp_rule is None else record(op, list(op.params), 3, several=True)
    return [*lines, *recorded, "return new_tuple(NAMED, outs)"]


def _one_or_several(op: Any) -> list[str]:
    """Lines that return one result, or as many as the kernel gave."""
    several, one = ["outs = (*[_wrap(_as_array(_each)) for _each in _o],)"], [f"made = {_tensor_of('_o')}"]
    if op.has_history:
        several.append(f"histories(outs, {'_kept' if op.keeps else 'None'}, {', '.join(op.params)})")
    if op.vjp_rule is not None:
        one += record(op, list(op.params), 3)
    return ["if _o.__class__ is tuple or _o.__class__ is list:", *indented([*several, "return outs"]), *one, "return made"]
