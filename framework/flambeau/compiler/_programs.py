"""What a recorded path is made into: its operations one after the other, with chains of them fused, or a graph for a backend.

Fused kernels have the bits of the operations they stand for. An elementwise operation whose operands, arithmetic and result are of
one floating dtype rounds after every word of its formula, and so does the formula of a chain: it calls theirs one after the other, on
the same numbers. Operations that convert between, or choose their formula by numbers, are not fused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula

from .._arrays import is_c_contiguous
from ..tensor import Tensor, wrap
from ._recorder import SMALL, Constant, Step, become

FUSED_FROM = SMALL                                    # elements; a chain of fewer is computed as fast one by one
FUSED_AFTER = 2                                       # calls of a path, for a kernel takes some 20 ms to compile
_MOST_FUSED = 32                                      # operations of a chain, and half as many operands


class Chain(NamedTuple):
    """Some elementwise operations as one: a formula, its operands, and the values that are asked for."""

    formula: Formula
    operands: tuple[Any, ...]
    values: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: Any
    steps: tuple[Step, ...]


def decoded(ref: Any, values: Any, inputs: Any) -> Any:
    """What an argument of a step stands for."""
    if ref.__class__ is int:
        return inputs[-1 - ref] if ref < 0 else values[ref]
    if ref.__class__ is Constant:
        return ref.value
    return type(ref)([decoded(r, values, inputs) for r in ref])


def read_by(refs: Any) -> list[int]:
    """The numbers of values among arguments."""
    found = []
    for ref in refs:
        if ref.__class__ is int:
            if ref >= 0:
                found.append(ref)
        elif ref.__class__ is not Constant:
            found += read_by(ref)
    return found


class Program:
    """Computes the values `wanted` of a path by its own operations.

    Args:
        fuse: compute chains of elementwise operations by one kernel, and nothing that no result needs.
    """

    def __init__(self, step: Step, wanted: tuple[int, ...], fuse: bool) -> None:
        self.steps = step.path()
        self.count = step.first + len(step.twins)
        self.wanted = frozenset(wanted)
        self.calls = 0
        self.fused: list[Any] | None = None
        if fuse:
            self.steps = _needed(self.steps, self.wanted)
            self.fused = _chained(self.steps, self.wanted)
        self.chains = [part for part in self.fused or () if isinstance(part, Chain)]

    def __call__(self, inputs: list[Tensor], made: dict[int, Any]) -> None:
        self.calls += 1
        values: list[Any] = [None] * self.count
        parts: Any = self.fused if self.chains and self.calls > FUSED_AFTER else self.steps
        for part in parts:
            if isinstance(part, Chain):
                outs = tuple([np.empty(part.shape, part.dtype) for _ in part.values])
                operands = [decoded(ref, values, inputs) for ref in part.operands]
                kernels.launch(part.formula, tuple([a._array if isinstance(a, Tensor) else a for a in operands]), outs, part.dtype)
                results: Any = [wrap(out) for out in outs]
                numbers: Any = part.values
            else:
                result = part.op.enter(*[decoded(ref, values, inputs) for ref in part.refs])
                results = (result,) if part.several is None else result
                numbers = range(part.first, part.first + len(part.twins))
            for number, one in zip(numbers, results, strict=True):
                deferred = made.get(number)
                if deferred is not None:
                    become(deferred, one)
                values[number] = one if deferred is None else deferred


def _needed(steps: list[Step], wanted: frozenset[int]) -> list[Step]:
    """Those of `steps` that results need."""
    asked, kept = set(wanted), []
    for step in reversed(steps):
        if any(step.first + i in asked for i in range(len(step.twins))):
            kept.append(step)
            asked.update(read_by(step.refs))
    return kept[::-1]


def _chained(steps: list[Step], wanted: frozenset[int]) -> list[Any]:
    """`steps` with chains in the place of what fuses."""
    parts: list[Any] = []
    group: list[Step] = []
    readers: dict[int, int] = {}
    for step in steps:
        for value in read_by(step.refs):
            readers[value] = readers.get(value, 0) + 1

    def close() -> None:
        parts.extend([_chain(group, readers, wanted)] if len(group) > 1 else group)
        group.clear()

    for step in steps:
        if _fuses(step):
            if group and (_looks(group[0]) != _looks(step) or len(group) >= _MOST_FUSED):
                close()
            group.append(step)
        else:
            if {s.first for s in group}.intersection(read_by(step.refs)):
                close()
            parts.append(step)
    close()
    return parts


def _looks(step: Step) -> Any:
    return step.twins[0]._array.shape, step.twins[0].dtype


def _fuses(step: Step) -> bool:
    """Whether the operation is a formula whose operands, arithmetic and result are of one dtype, over enough elements."""
    op, made = step.op, step.twins[0]
    if op.kind != "elementwise" or "run" in op.__dict__ or "launch" in op.__dict__:
        return False
    if made._array.size < FUSED_FROM or made.dtype.numpy not in (np.float32, np.float64) or not is_c_contiguous(made._array):
        return False
    for a in step.looks:
        if isinstance(a, Tensor) and a.dtype is not made.dtype or not isinstance(a, Tensor) and not _fits(a):
            return False
    compute, result = op.dtype_rule(op, step.looks[: len(op.positional)])
    return compute is made.dtype and result is made.dtype


def _fits(number: Any) -> bool:
    return number.__class__ is float or number.__class__ is int and abs(number) < 2**53


def _chain(group: list[Step], readers: dict[int, int], wanted: frozenset[int]) -> Chain:
    """The steps of `group` as one formula."""
    own = {step.first for step in group}
    within: dict[int, int] = {}
    for step in group:
        for value in read_by(step.refs):
            within[value] = within.get(value, 0) + 1
    values = tuple([step.first for step in group if step.first in wanted or readers.get(step.first, 0) > within.get(step.first, 0)])
    names: dict[Any, str] = {}
    operands: list[Any] = []
    scope: dict[str, Any] = {}
    lines: list[str] = []

    def name_of(ref: Any, exact: bool) -> str:
        if ref.__class__ is int and ref in own:
            return f"t{ref}"
        constant = ref.__class__ is Constant
        if constant and exact:                        # part of the kernel, which is half as fast again when it is handed in
            name = f"c{len(scope)}"
            scope[name] = ref.value
            return name
        key = (ref.value.__class__, repr(ref.value)) if constant else ref
        if key not in names:                          # functions of a constant may be worked out in another way
            names[key] = f"a{len(operands)}"
            operands.append(ref)
        return names[key]

    for at, step in enumerate(group):
        op, refs = step.op, step.refs
        count = len(op.positional)
        usual = all(ref.__class__ is Constant and ref.value == d for ref, d in zip(refs[count:], op.keyword_defaults, strict=True))
        formula, refs = (op.short, refs[:count]) if op.short is not None and usual else (op.formula, refs)
        scope[f"f{at}"] = formula.fn
        lines.append(f"    t{step.first} = f{at}({', '.join([name_of(ref, formula.exact) for ref in refs])})")
    lines.append(f"    return {', '.join([f't{value}' for value in values])}")
    text = "\n".join([f"def fused({', '.join(names.values())}):", *lines])
    exec(compile(text, "<flambeau fused>", "exec"), scope)  # the text is made of names of this function's own
    title = "_".join(["fused", *dict.fromkeys(step.op.name for step in group)])[:60]
    looks = group[0].twins[0]
    return Chain(Formula(scope["fused"], title), tuple(operands), values, looks._array.shape, looks.dtype.numpy, tuple(group))
