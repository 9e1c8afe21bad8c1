"""Recorded steps and rules of gradients as entries of a table of launches, which one native call walks (`engine/calls/launch_table.py`).

What a step is made of is said by its op: an elementwise one calls the builtin of its formula, views are views, and `Op.launches` and
`Op.vjp_launches` declare the others. A step of which nothing is said is an entry that calls Python, on the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.engine.calls.launch_table import LaunchTable, Unknown

from .._arrays import ndarray
from ..autograd import engine
from ..ops._spec import ElementwiseOp, PrimitiveOp, sum_to_in
from ..ops._spec.nodes import tensor_names
from ..tensor import wrap
from ._backward import formula_of
from ._refs import tensors_in
from ._steps import Constant, Step, constant_of, is_constant

__all__ = ["LaunchTable", "Unknown", "chain_in", "python_gradients_in", "python_step_in", "gradients_in", "step_in"]


def step_in(table: LaunchTable, step: Step, arrays: Callable[[int], Any]) -> Any:
    """The array of a step's result; `arrays` gives those of its operands by their refs."""
    return _natively(table, step, arrays) if _is_plain(step) else None


def python_step_in(table: LaunchTable, step: Step, arrays: Callable[[int], Any], fn: Callable[..., Any]) -> Any:
    """The same by `fn`, a function of the arrays among the arguments."""
    return table.call_any(fn, step.op.public_name, *[arrays(ref) for ref in tensors_in(step.refs)])


def chain_in(table: LaunchTable, chain: Any, known: dict[int, Any], spare: tuple[int, ...]) -> list[Any]:
    """The arrays of the results of a fused chain that records no gradient; `known` has arrays by their refs.

    Nothing else reads the operands at the places `spare`, whose memory results take where it is new in every run.
    """
    given = [known[ref] if ref.__class__ is int else ref.value for ref in chain.operands]
    launch = getattr(chain, "launch", None)
    if launch is not None and launch.is_planned_for(given):
        over = [a for k in spare[: launch.count] if table.is_fresh(a := given[k]) and _holds(a, chain)]
        outs = over + [table.new(chain.shape, np.dtype(chain.dtype)) for _ in range(launch.count - len(over))]
        operands = list(given)
        for k, number in launch.numbers:
            operands[k] = table.constant(number)
        if table.run(launch.run_planned, *operands, *outs):
            return outs
    by_rows = getattr(chain, "launch_in", None)
    outs = None if by_rows is None else by_rows(table, given)
    if outs is not None:
        return outs
    arrays = [k for k, a in enumerate(given) if a.__class__ is ndarray]

    def computed(*own: Any) -> tuple[Any, ...]:
        operands = list(given)
        for k, a in zip(arrays, own, strict=True):
            operands[k] = wrap(a)
        return tuple([made._array for made in chain.run(operands)])

    found = table.call_any(computed, chain.title, *[given[k] for k in arrays])
    return [table.item(found, k) for k in range(len(found))]


def _holds(array: Any, chain: Any) -> bool:
    """Whether a result of the chain may be stored in the array."""
    return array.shape == chain.shape and array.dtype == chain.dtype and array.flags.c_contiguous


def _is_plain(step: Step) -> bool:
    """Whether the step has one result, and its operands are arguments of its own; those of views may be sequences of constants."""
    is_view = step.op.kind == "view"
    return step.several is None and all(ref.__class__ in (int, Constant) or is_view and is_constant(ref) for ref in step.refs)


def _natively(table: LaunchTable, step: Step, arrays: Callable[[int], Any]) -> Any:
    op = step.op
    if op.kind == "elementwise":
        kinds = {look.dtype for look, ref in zip((*step.looks, step.results[0]), (*step.refs, 0), strict=True) if ref.__class__ is int}
        if len(kinds) > 1 or "run" in op.__dict__ or "launch" in op.__dict__:
            return None
        formula, refs = formula_of(step)
        return table.formula(formula, *[arrays(ref) if ref.__class__ is int else ref.value for ref in refs])
    given = [arrays(ref) if ref.__class__ is int else constant_of(ref) for ref in step.refs]
    if op.launches_rule is not None:
        return op.launches_rule(table, *given)
    if op.kind == "view" or op.kind == "composite":
        made = op.enter(*[wrap(a) if a.__class__ is ndarray else a for a in given])._array
        return table.view(given[0], made) if _is_view(made, given[0]) else None
    return None


def _is_view(made: Any, of: Any) -> bool:
    return made.__class__ is ndarray and of.__class__ is ndarray and made.size > 0 and np.may_share_memory(made, of)


def gradients_in(table: LaunchTable, node: Any, grad: Any, saved: tuple[Any, ...]) -> Any:
    """The gradients of a node's parents, None for those that want none; `saved` is what the node saves. None where only Python knows."""
    op = node.op
    if grad.__class__ is not ndarray or node.lengths is not None:
        return None
    if isinstance(op, ElementwiseOp):
        return _of_formulas(table, node, op, grad, saved)
    rule = op.vjp_launches_rule if isinstance(op, PrimitiveOp) else None
    if rule is None or op.array_vjp_of_first or op.array_vjp_of_all:
        return None
    found = rule(table, *arguments_of_rule(node, grad, saved))
    return None if found is None or len(found) != len(node.parents) else found


def arguments_of_rule(node: Any, grad: Any, saved: tuple[Any, ...]) -> list[Any]:
    """What the rule on arrays of a node's op is given."""
    places = {parameter: k for k, parameter in enumerate(tensor_names(node.op))}
    return [
        grad if at is None else saved[at] if at.__class__ is int else node.parents[places[at[6:]]] is not None
        for at in node.op.array_vjp_sources
    ]


def _of_formulas(table: LaunchTable, node: Any, op: Any, grad: Any, saved: tuple[Any, ...]) -> Any:
    names = ("out", *op.params)
    found: list[Any] = []
    for i, (name, parent) in enumerate(zip(op.params, node.parents, strict=True)):
        if parent is None:
            found.append(None)
            continue
        if not op.has_gradient(name) or node.dtype[i] is not grad.dtype:
            return None
        formula, _, constant = op.gradient(i)
        made = grad
        if constant is None or constant not in (0, 1):
            made = table.formula(formula, grad, *[saved[names.index(r)] for r in op.reads_of(name)])
        if made is None or constant == 0 or made.dtype is not grad.dtype:
            return None
        if made.shape != node.shape[i]:
            made = sum_to_in(table, made, node.shape[i])
        found.append(made)
    return tuple(found)


def python_gradients_in(table: LaunchTable, node: Any, grad: Any, saved: tuple[Any, ...], wanted: list[bool]) -> list[Any]:
    """The same by the node's rule in Python: those of the parents that are `wanted`."""
    arrays = [k for k, value in enumerate(saved) if value.__class__ is ndarray]
    frees = bool(node.versions)

    def rule(grad: Any, *given: Any) -> tuple[Any, ...]:
        values = list(saved)
        for k, value in zip(arrays, given, strict=True):
            values[k] = value
        if node.saved is not None:
            node.saved = tuple(values)
        try:
            return tuple(node.vjp_on_arrays(grad))
        finally:
            if frees:
                node.saved = engine.FREED

    found = table.call_any(rule, f"gradients of {node.op.public_name}", grad, *[saved[k] for k in arrays])
    return [table.item(found, place) if asked else None for place, asked in enumerate(wanted)]
