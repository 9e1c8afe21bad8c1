"""Small functions of `torch.utils`."""

from __future__ import annotations

import copyreg
import traceback
import weakref
from typing import Any

from ..autograd import tape
from ..tensor import Tensor

__all__ = ["get_cpp_backtrace", "set_module", "swap_tensors"]

_SLOTS = ("_array", "_node", "_storage", "_gradient", "_view_of")
_MISSING = object()


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange two tensors: what is reached by one is afterwards the other's data, class, gradient, history, hooks and attributes.

    Args:
        t1, t2: tensors; views of neither may be recorded.
    Raises: TypeError for what is no tensor; RuntimeError if their classes have different slots, or views of one are recorded.

    >>> a, b = fb.ones(2), fb.zeros(3)
    >>> fb.utils.swap_tensors(a, b)
    >>> a, b
    (tensor([0., 0., 0.]), tensor([1., 1.]))
    """
    for name, t in (("t1", t1), ("t2", t2)):
        if not isinstance(t, Tensor):
            raise TypeError(f"swap_tensors: {name} must be a Tensor, but got {type(t).__name__}")
    more = _slots_of(t1)
    if more != _slots_of(t2):
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    if t1 is t2:
        return
    for name, t in (("t1", t1), ("t2", t2)):
        if any(view is not None and view._view_of is not None and view._view_of[0] is t for view in _views(t)):
            raise RuntimeError(f"swap_tensors: Cannot swap {name} because it has views whose history goes through it; detach() them first")
    first, second = _contents(t1, more), _contents(t2, more)
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    _fill(t1, second)
    _fill(t2, first)
    for t in (t1, t2):
        # Gradients arrive at the tensor that has the leaf now.
        for leaf in (t._node, t._leaf):
            if type(leaf) is tape.Leaf and not tape.is_of_nobody(leaf):
                leaf.tensor = weakref.ref(t)
        _rename_views(t, t1, t2)


def _slots_of(t: Tensor) -> tuple[str, ...]:
    """Slots that classes derived from Tensor have added."""
    return tuple(sorted({*copyreg._slotnames(type(t))} - {*_SLOTS}))  # type: ignore[attr-defined]  # what copy uses as well


def _contents(t: Tensor, more: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"__dict__": t.__dict__}
    for name in (*_SLOTS, *more):
        try:
            found[name] = object.__getattribute__(t, name)
        except AttributeError:  # a slot that nothing has been stored in
            found[name] = _MISSING
    return found


def _fill(t: Tensor, contents: dict[str, Any]) -> None:
    for name, value in contents.items():
        if value is not _MISSING:
            object.__setattr__(t, name, value)
        elif object.__getattribute__(t, "__class__") and _is_stored(t, name):
            object.__delattr__(t, name)


def _is_stored(t: Tensor, name: str) -> bool:
    try:
        object.__getattribute__(t, name)
    except AttributeError:
        return False
    return True


def _views(t: Tensor) -> list[Any]:
    record = t._storage
    return [] if record is None else [ref() for ref in record[tape.VIEWS] or ()]


def _rename_views(t: Tensor, t1: Tensor, t2: Tensor) -> None:
    """In the record of `t`, which is one of two that have been swapped, the other is no longer the view; it is."""
    record = t._storage
    other = t2 if t is t1 else t1
    if record is not None and record[tape.VIEWS]:
        record[tape.VIEWS] = [weakref.ref(t) if ref() is other else ref for ref in record[tape.VIEWS]]


def set_module(obj: Any, mod: str) -> None:
    """Say that `obj` lives in the module `mod`, for nicer printing.

    Args:
        obj: a function or class.
        mod: the module's name.
    Raises: TypeError if it is no string.
    """
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def get_cpp_backtrace(frames_to_skip: int = 0, maximum_number_of_frames: int = 64) -> str:
    """The calls of this thread as text; they are Python's, as nothing here is C++.

    Args:
        frames_to_skip: how many of the innermost calls to leave out.
        maximum_number_of_frames: how many to show at most.
    """
    frames = traceback.extract_stack()[:-1]
    shown = list(reversed(frames))[frames_to_skip : frames_to_skip + maximum_number_of_frames]
    return "".join(f"frame #{i}: {f.name} ({f.filename}:{f.lineno})\n" for i, f in enumerate(shown))
