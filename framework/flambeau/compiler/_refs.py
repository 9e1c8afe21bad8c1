"""Arguments of recorded steps, and what groups of elementwise steps compute as one formula."""

from __future__ import annotations

from typing import Any

from ..dtypes import bool as bool_
from ._backward import formula_of
from ._formulas import Number, Text
from ._steps import Constant, Step


def decoded(ref: Any, values: Any, inputs: Any) -> Any:
    """What an argument of a step stands for."""
    if ref.__class__ is int:
        return inputs[-1 - ref] if ref < 0 else values[ref]
    if ref.__class__ is Constant or ref.__class__ is Number:
        return ref.value
    return type(ref)([decoded(r, values, inputs) for r in ref])


def read_by(refs: Any) -> list[int]:
    """The numbers of values among arguments."""
    return [ref for ref in tensors_in(refs) if ref >= 0]


def tensors_in(refs: Any) -> list[int]:
    """The values and inputs among arguments."""
    found: list[int] = []
    for ref in refs:
        if ref.__class__ is int:
            found.append(ref)
        elif ref.__class__ is not Constant:
            found += tensors_in(ref)
    return found


class GroupFormula:
    """The elementwise steps of `group` as one formula of `operands`, which gives the values `results`; `text` shows it.

    The value `first`, if one is given, is the first operand.
    """

    def __init__(self, group: list[Step], results: tuple[int, ...], first: int | None = None) -> None:
        own = {step.first for step in group}
        text = Text("_".join(["fused", *dict.fromkeys(step.op.name for step in group)])[:60], group[-1].results[0].dtype)
        if first is not None:
            text.operand(("value", first))
        names: dict[int, str] = {}
        for step in group:
            formula, refs = formula_of(step)
            arguments = []
            for i, ref in enumerate(refs):
                if ref.__class__ is Constant:
                    arguments.append(text.constant(ref.value, formula, i, refs))
                else:
                    arguments.append(names[ref] if ref in own else text.operand(("value", ref)))
            name = text.line(formula, arguments, step.results[0].dtype is not bool_)
            names[step.first] = name if step.results[0].dtype is not bool_ else text.number(name)
        given = tuple([names[value] for value in results])
        self.formula = text.formula(given)
        self.operands = tuple([key for _, key in text.operands])
        self.text = text.shown(given)
