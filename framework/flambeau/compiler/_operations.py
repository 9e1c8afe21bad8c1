"""What is known of an operation before it is computed: whether it may wait, is the same as its parts, and how its results look."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from flambeau_kernels.cpu.indexing.scatter import in_range

from .. import _state, _warn
from .._arrays import MetaArray, ndarray
from .._interpreters import Interpreter
from ..ops import _dispatch
from ..tensor import Tensor, wrap
from ._deferred import Deferred, is_there, pending_of, set_pending
from ._steps import PLAIN

_local = _state.local


def maker_of(kind: Any) -> Any:
    """What makes a list, tuple or named tuple of one sequence of results."""
    return getattr(kind, "_make", kind)


def may_wait(op: Any) -> bool:
    """Whether `op`, neither a formula nor a view, may be computed later than it is called, whatever its operands hold."""
    return op.in_rows is not None or op.deferrable or op.shares_memory or op.finished_by is not None


def is_sound(op: Any, args: tuple[Any, ...]) -> bool | None:
    """Whether `op`, whose elements decide whether it fails, does not, where those are there and say so; else None."""
    if op.bounds_of_elements is None:
        return None
    read = [args[k] for k in op.read_before]
    bounds = op.bounds_of_elements(*args) if all(map(is_there, read)) else None
    if bounds is None:
        return None
    arrays = [a._array for a in _tensors_in(read)]
    return all(not a.size or in_range(a, low, high) for a, (low, high) in zip(arrays, bounds, strict=True))


def _tensors_in(args: Any) -> Iterator[Tensor]:
    for a in args:
        if a.__class__ is list or a.__class__ is tuple:
            yield from _tensors_in(a)
        elif a is not None:
            yield a


class _Kinds(Interpreter):
    """Notes what a composition is made of. What would be pending is Deferred, results too, so a composition that reads arrays is told."""

    kind = "compile"

    def __init__(self) -> None:
        self.formulas = self.rows = self.products = self.others = 0

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        self._note(op, out)
        if op.kind == "composite" and not may_wait(op) or out is not None:
            return NotImplemented                     # its parts come in turn
        made = op.enter(*map(_without_memory, args))
        if isinstance(made, (tuple, list)):
            return maker_of(type(made))([self.pending(one) for one in made])
        return self.pending(made)

    def pending(self, looks: Tensor) -> Any:
        """What is pending and looks so."""
        one = object.__new__(Deferred)
        set_pending(one, (self, 0, looks))
        return one

    def flush_for(self, asker: Deferred) -> None:
        raise RuntimeError("a composition that reads arrays on its way is not recorded as its parts")

    def _note(self, op: Any, out: Any) -> None:
        has_kernel = op.kind not in ("elementwise", "view", "composite")
        if out is None and op.finished_by is not None:
            self.products += 1
        elif out is not None or has_kernel and op.in_rows is None and not op.deferrable and op.bounds_of_elements is None:
            self.others += 1
        self.formulas += op.kind == "elementwise"
        self.rows += op.in_rows is not None or has_kernel and op.deferrable and op.elements not in ("moved", "mapped")

    def are_recorded(self, op: Any) -> bool:
        """Whether `op`, a composition of these, is the same taken apart.

        It is where it has no plan of its own, or says that it rounds as its parts do; else where it is elementwise operations and views,
        or another name for a row's: plans may have kernels that round otherwise.
        """
        if self.others:
            return False
        if not op.answers or op.rounds_as_its_parts:
            return True
        return not self.products and (not self.rows or self.rows == 1 and not self.formulas)


_the_same_apart: dict[Any, bool] = {}                 # of compositions, by dtypes of operands and by constants
_MOST_COMPOSITIONS = 4096


def is_the_same_apart(op: Any, args: tuple[Any, ...]) -> bool:
    """Whether the composition is the same taken apart, into what is recorded."""
    name = (op, *[_kind_of(a) for a in args])
    if None in name:
        return False
    found = _the_same_apart.get(name)
    if found is None:
        if len(_the_same_apart) >= _MOST_COMPOSITIONS:
            _the_same_apart.clear()
        found = _the_same_apart[name] = has_recorded_parts(op, args)
    return found


def _kind_of(a: Any) -> Any:
    """Of an argument, what a composition is chosen by; None if that cannot be said."""
    kind = a.__class__
    if isinstance(a, Tensor):
        return (a.dtype, a.ndim, a.requires_grad, kind is Deferred) if kind is Deferred or a._array.__class__ is ndarray else None
    if kind is slice:
        return kind, a.start.__class__, a.stop.__class__, a.step.__class__
    if kind is list or kind is tuple:
        within = tuple([_kind_of(x) for x in a])
        return None if None in within else (kind, within)
    return (kind, a) if kind is float or kind in PLAIN else None


def has_recorded_parts(op: Any, args: tuple[Any, ...]) -> bool:
    """`is_the_same_apart`, found by going through the composition once without values."""
    kinds = _Kinds()
    # What draws fills tensors that it makes as its operands are: these have to be without memory.
    given = [meta_of_argument(a) if op.random else _as_pending(a, kinds) for a in args]
    try:
        with looking(no_draws, kinds):
            _dispatch._composed(op, tuple(given), None, False)
    except Exception:  # it reads values, or the operands are wrong, which it says itself
        return False
    return kinds.are_recorded(op)


def _as_pending(a: Any, kinds: _Kinds) -> Any:
    """An argument with what stands for tensors in their place: of pending ones, what is pending too."""
    if a.__class__ is Deferred:
        return kinds.pending(meta_of(pending_of(a)[2]))
    return type(a)([_as_pending(x, kinds) for x in a]) if a.__class__ in (list, tuple) else meta_of_argument(a)


def _without_memory(a: Any) -> Any:
    """An argument with tensors of the meta device for what is pending and for those that a composition has made."""
    if a.__class__ is Deferred:
        return pending_of(a)[2]
    if a.__class__ in (list, tuple):
        return type(a)(map(_without_memory, a))
    return meta_of(a) if isinstance(a, Tensor) and a._array.__class__ is not MetaArray else a


def meta_of_argument(a: Any) -> Any:
    """An argument with meta tensors in the place of tensors."""
    if isinstance(a, Tensor):
        return meta_of(pending_of(a)[2] if a.__class__ is Deferred else a)
    return type(a)([meta_of_argument(x) for x in a]) if a.__class__ in (list, tuple) else a


class looking:  # a context manager
    """Only looks of results are worked out: by `interpreters`, and without warnings.

    Raises: RuntimeError at the end if there was one, which the operation itself will give.
    """

    def __init__(self, *interpreters: Interpreter) -> None:
        self.interpreters = interpreters

    def __enter__(self) -> None:
        self.before, _local.calls.interpreters = _local.calls.interpreters, self.interpreters
        self.given = set(_warn._given)
        self.held = warnings.catch_warnings(record=True)
        self.warned: Any = self.held.__enter__()
        warnings.simplefilter("always")

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.held.__exit__(kind, *rest)
        _local.calls.interpreters = self.before
        if self.warned:
            _warn._given &= self.given
            if kind is None:
                raise RuntimeError("an operation that warns is not recorded")


class _NoDraws(Interpreter):
    """In force while the looks of a result are worked out: random numbers are not used up by that."""

    kind = "compile"

    def settle(self) -> None:
        raise RuntimeError("an operation that draws random numbers to know the looks of its result is not recorded")

    def settle_write(self, target: Tensor) -> None:
        pass                                          # tensors without memory are written to as others are


no_draws = _NoDraws()


def meta_of(looks: Tensor) -> Tensor:
    """A tensor of the meta device with shape, strides, dtype and `requires_grad` of `looks`."""
    array = looks._array
    made = wrap(MetaArray(array.shape, np.dtype(looks.dtype.numpy), array.strides))
    if looks.requires_grad:
        made.requires_grad_(True)
        if looks._node is not None and not looks.is_leaf:
            made = made.view(made.shape)              # a result, which may be written in place: of no leaf
            made._view_of = None
    return made
