"""``x[...]``: which op answers a key, and usual keys at once."""

from __future__ import annotations

from typing import Any

from flambeau_kernels import hot_calls

from ... import _state, dtypes
from ..._arrays import ndarray
from ...tensor import Tensor, wrap
from .. import _dispatch
from .._dispatch import SINGLE, may_override
from .._spec import composite
from .._spec.nodes import recorded_as
from ._keys import BOOL, INT64, basic_key, list_index, normalize, places_of, plain_key
from .basic_index import BASIC, basic_index, checked_key, split_key, view_at, with_steps
from .index import index, pick

OVERRIDING = _state.OVERRIDING
_state.share(globals(), "OVERRIDING")  # keeps it as it is there


def getitem(self: Tensor, key: Any) -> Tensor:
    """``self[key]``: a view for ints, slices, None and Ellipsis; a copy where tensors, lists or masks take part.

    Raises: IndexError out of range, for too many indices and for masks that do not fit.
    """
    in_force = _state.IN_FORCE and basic_index not in _state.PASSED
    if in_force and (follow := _state.FOLLOWED) is not None and (made := follow(getitem_op, self, key)) is not None:
        return made
    if (in_force or OVERRIDING and self.__class__ is not Tensor and self.__class__ not in SINGLE) and may_override(self, key):
        return _dispatch.call(getitem_op, (self, key))
    kind = key.__class__
    if self._array.__class__ is ndarray:
        try:
            if key is None:
                return self.unsqueeze(0)
            keys = key if kind is tuple else (key,)
            made = hot_calls.seen_part(self, keys, basic_index, _state.GRAD or _state.local.grad)
            if made is not None:
                return made if made._node is None else basic_index.with_history(made, self, (keys,))
            if _state.IN_FORCE and may_override(self, key):   # somebody may have a say in other keys
                return _dispatch.call(getitem_op, (self, key))
            if kind is int:
                return basic_index.of(self, self._array[key, ...], (keys,))
            if kind is Tensor and not key._array.ndim and key._array.dtype is INT64 and key._array.__class__ is ndarray:
                key = key._array.item()
                return basic_index.of(self, self._array[key, ...], ((key,),))
            keys = key if kind is tuple else (list_index(key) if kind is list else key,)
            there = basic_key(keys)
            if there is not None:
                made = self._array[there]
                return basic_index.of(self, made if None not in keys else with_steps(made, self._array, keys), (keys,))
            made = _picked(self, keys)
            if made is not None:
                return made
        except (IndexError, OverflowError):
            pass  # the checks below raise an error that names the op
    if (OVERRIDING or _state.IN_FORCE) and may_override(key):             # what has answered so far takes plain Tensors alone
        return _dispatch.call(getitem_op, (self, key))
    return _getitem(self, key)


def _picked(self: Tensor, key: tuple[Any, ...]) -> Tensor | None:
    """What a key of index vectors, masks, numbers and slices picks; None for another key."""
    recording = self._node is not None and (_state.GRAD or _state.local.grad)
    if len(key) == 1 and key[0].__class__ is Tensor:
        k = key[0]._array
        if k.__class__ is ndarray and k.ndim and (k.dtype is INT64 or k.dtype is BOOL and k.size and not recording):
            made = pick(self._array, (k,))
            if not recording:
                return wrap(made)
            return recorded_as(index, made, (self._node,), (self._array.shape, key), (None, (key[0]._storage,)))
    if len(key) == 2 and not recording and key[0].__class__ is Tensor is key[1].__class__:
        made = hot_calls.pick_pairs(self._array, key[0]._array, key[1]._array)
        if made is not None:
            return wrap(made)
    split = plain_key(key)
    if split is None:
        return None
    basic, there, dots = split
    a = self._array
    if basic is not None:
        basic = (*basic, ...) if dots < 0 else basic
    if not recording:
        return wrap(pick(a if basic is None else a[basic], there))
    if basic is not None:
        if None in basic:
            return None
        self = basic_index.of(self, a[basic], (basic,))
        a = self._array
    places = places_of(there, dots, a.ndim)
    indices = tuple([None if k is None else wrap(k) for k in places])
    # Overwriting a tensor of the key before backward is to be noticed.
    theirs = tuple([k._storage for k in key if k.__class__ is Tensor])
    return recorded_as(index, pick(a, there), (self._node,), (a.shape, indices), (None, theirs))


def _getitem(self: Tensor, key: Any) -> Tensor:
    kind = key.__class__
    if kind is int and self.ndim == 0:
        raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a 0-dim tensor to a number")
    key = normalize(key)
    if all(isinstance(k, BASIC) for k in key):
        return view_at(self, checked_key(key))
    part, indices = split_key(self, key)
    return index.function(part, indices)


@composite(
    surface=0,
    samples="x(4, 3), (1, slice(None)); x(4, 3), (slice(0, 4, 2), None, ...); x(4, 3), fb.tensor([0, 3, 0])",
    public_name="index",
)
def getitem_op(input, key):
    """``input[key]``."""
    return _getitem(input, key)


@getitem_op.exported
def _as_index(run, input, key):
    """`aten.index` of masks, whole dimensions beside them; other keys are views and indices that the parts show."""
    keys = key if isinstance(key, tuple) else (key,)
    if not any(isinstance(k, Tensor) and k.dtype is dtypes.bool for k in keys):
        return NotImplemented
    if not all(isinstance(k, Tensor) or k == slice(None) for k in keys):
        return NotImplemented
    return run("index.Tensor", input, [k if isinstance(k, Tensor) else None for k in keys])


getitem.__name__ = "__getitem__"
Tensor.__getitem__ = getitem  # type: ignore[attr-defined]
