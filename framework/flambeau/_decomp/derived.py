"""Decompositions that declarations say: what a composition is made of, and the formula of an elementwise op, on Tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .. import _aten, _ops, _state, dtypes
from .._interpreters import Interpreter
from .._tags import Tag
from ..ops import _dispatch
from ..ops._spec.derivatives import tensor_words
from ..tensor import Tensor
from ..utils._python_dispatch import seen_as
from .table import decomposition_table

__all__ = ["by_formula", "of_operator", "unless_within"]

_local = _state.local


def of_operator(overload: Any) -> Callable[..., Any] | None:
    """What the operator `overload` is made of, as a function of its arguments; None if declarations do not say.

    One that writes is the plain one, by public functions or as the table has it, and a copy.

    Where the function is called by what it is made of itself, it gives NotImplemented: the operator stays as it is.
    """
    name, ending = overload._opname, overload._overloadname
    schema = _aten.index()[name][ending].lstrip("~#")
    if not schema:
        return None
    if "(a!)" in schema:
        plain = _plain(overload)
        compute = None if plain is None else plain if _is_computed(plain._opname) else decomposition_table.get(plain)
        return None if compute is None else _writing(overload, compute)
    return _opening(overload) if _is_computed(name) and _is_made_of_others(name, ending) else None


def _is_computed(name: str) -> bool:
    # To make the function of an op takes a thousand times as long as to find the op.
    return bool(_aten.ops_of(name)) or _aten.function_of(name) is not None


def _plain(overload: Any) -> Any:
    """The operator that gives what `overload` writes; None if there is none."""
    name, ending = overload._opname, overload._overloadname
    if name.endswith("_") and "out" not in ending:
        name = name.removesuffix("_")
    known = _aten.index().get(name, {})
    endings = (ending.removesuffix("_out"), ending.removeprefix("Out"), "default")
    found = next((e for e in endings if e in known and (name, e) != (overload._opname, ending)), None)
    return None if found is None else getattr(getattr(_ops.ops.aten, name), found)


def _writing(overload: Any, compute: Callable[..., Any]) -> Callable[..., Any]:
    """What `compute` gives, and a copy of each result to where it belongs."""

    def computed_and_copied(*args: Any, **kwargs: Any) -> Any:
        arguments = overload._schema.arguments
        outs = [a.name for a in arguments if a.is_out]
        targets = [kwargs.pop(name) for name in outs] if outs else [args[0] if args else kwargs[arguments[0].name]]
        made = compute(*args, **kwargs)
        for target, value in zip(targets, made if isinstance(made, (tuple, list)) else (made,), strict=True):
            if outs and target.shape != value.shape:
                target.resize_(value.shape)
            target.copy_(value)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return computed_and_copied


def _is_made_of_others(name: str, ending: str) -> bool:
    """Whether the operator is a composition to PyTorch, or the declarations of the ops that it may be say what they are made of."""
    found = _aten.ops_of(name)
    return _aten.is_composition(name, ending) or bool(found) and all(
        op.kind in ("composite", "elementwise") or op.in_parts is not None for op in found
    )


class _Whole(Exception):  # not an error
    """A call turned out to be of an op that is not made of others."""


class _Opened(threading.local):
    """The operators that run as what they are made of in this thread."""

    overloads: frozenset[Any] = frozenset()


_opened = _Opened()


def unless_within(overload: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, except that it gives NotImplemented where it runs for `overload` already."""

    def run(*args: Any, **kwargs: Any) -> Any:
        before = _opened.overloads
        if overload in before:
            return NotImplemented
        _opened.overloads = before | {overload}
        try:
            return f(*args, **kwargs)
        finally:
            _opened.overloads = before

    return run


def _opening(overload: Any) -> Callable[..., Any]:
    """Runs an operator as what it is made of."""

    def run(*args: Any, **kwargs: Any) -> Any:
        opener = _Opener(overload)
        _dispatch.push(opener)
        try:
            return _aten.call(overload._opname, overload._overloadname, args, kwargs)
        except _Whole:
            return NotImplemented
        finally:
            _dispatch.pop(opener)

    return unless_within(overload, run)


class _Opener(Interpreter):
    """Takes calls of one operator apart, and what they are on the way; and of their parts operators of our own and words of formulas."""

    kind = "decomposition"
    takes_names = True

    def __init__(self, overload: Any) -> None:
        self.overload = overload
        self.opened = False

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        target, given, named = seen_as(op, args, out, inplace)
        if target is self.overload:
            return self._apart(op, args)
        if target is None:                            # a composition that is no operator
            return self._in_force(_dispatch._composed, op, args, out, inplace)
        f = _of_part(op, target) if self.opened else None
        return NotImplemented if f is None else self._in_force(f, *given, **named)

    def _apart(self, op: Any, args: tuple[Any, ...]) -> Any:
        self.opened = True
        if op.in_parts is not None:
            return self._in_force(op.in_parts, *args)
        if op.kind == "composite":
            return self._in_force(op.run, *args)
        if op.kind == "elementwise":
            # Where the formula is one word, the operator itself, this is not its decomposition.
            return self._in_force(unless_within(op, by_formula), op, args)
        raise _Whole

    def _in_force(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        calls = _local.calls
        before, calls.interpreters = calls.interpreters, (*calls.interpreters, self)
        try:
            return f(*args, **kwargs)
        finally:
            calls.interpreters = before


def _of_part(op: Any, target: Any) -> Callable[..., Any] | None:
    """What a part of an operator is made of, where programs are not to see it: one of our own, or a word of a formula; else None."""
    from .own import of_own_operators

    if op.kind == "elementwise" and Tag.core not in target.tags and target in decomposition_table:
        return decomposition_table[target]
    own = of_own_operators().get(target)
    # Where nothing records the operator that `own` names, that one is made of `target` again.
    return None if own is None else unless_within(target, own)


def by_formula(op: Any, args: tuple[Any, ...]) -> Any:
    """The formula on Tensors of the dtype in which it is computed, float32 for halves; the result is rounded once."""
    args, compute, result, *_ = op.prepare(args)
    if compute.itemsize == 2 and compute.is_floating_point:
        compute = dtypes.float32
    formula, operands = op.formula_of(args)
    given = [a.to(compute) if isinstance(a, Tensor) and a.dtype is not compute else a for a in operands]
    made = formula.bind(tensor_words())(*given)
    return made if made.dtype is result else made.to(result)
