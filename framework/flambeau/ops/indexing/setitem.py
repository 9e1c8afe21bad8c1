"""``x[...] = y``: which op stores it, and usual assignments at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.indexing import scatter

from ... import _arrays, _state, dtypes
from ..._arrays import MetaArray, ndarray
from ..._kinds import KindArray
from ..._names import names_by
from ...autograd import tape
from ...tensor import Tensor, one_memory, wrap
from .. import _dispatch
from .._dispatch import SINGLE, may_override
from .._spec import EXACTLY, NEVER, check_recorded, refuse
from ._keys import BOOL, INT64, NUMPY_UP_TO, basic_key, is_mask, list_index, normalize, plain_key
from .basic_index import BASIC, check_slices, checked_key, split_key, view_at
from .index import count_stored, index_put, index_shape

OVERRIDING = _state.OVERRIDING
_state.share(globals(), "OVERRIDING")  # keeps it as it is there


@names_by("refused")
def setitem(self: Tensor, key: Any, value: Any) -> None:
    """``self[key] = value``, broadcasting `value`, a number or Tensor.

    Raises: IndexError as `getitem`, RuntimeError for shapes and values that do not fit, TypeError for other values.
    """
    if (_state.IN_FORCE or OVERRIDING and self.__class__ is not Tensor and self.__class__ not in SINGLE) and may_override(self, key, value):
        _dispatch.call_setitem(self, key, value)
        return
    if self._node is None and self._array.__class__ is ndarray:
        try:
            if _stored(self, key, value):
                return
        except (IndexError, ValueError, TypeError, OverflowError):
            pass  # the checks below raise an error that names the op
    if (OVERRIDING or _state.IN_FORCE) and may_override(key, value):
        _dispatch.call_setitem(self, key, value)
        return
    store(self, key, value)


def _stored(self: Tensor, key: Any, value: Any) -> bool:
    """Whether this was a plain assignment without history, which is done then."""
    if _state.MARKED and self._storage[0].__class__ is not int:
        return False
    if key.__class__ is list:
        key = list_index(key)
        if key.__class__ is not Tensor:
            return False
    a = self._array
    d = a.dtype
    kind = value.__class__
    related = False
    if kind is Tensor:
        if value._node is not None or value._array.__class__ is not ndarray:
            return False
        own = value._array.dtype
        if own is not d and (own.char, d.char) not in _STORED_AS:
            return False
        related = one_memory(value, self)
        value = value._array
    elif kind is float and d.char in "eE":
        value = _number_tensor(self, value)._array
    elif d.char not in (_FLOATS if kind is float else _NUMBERS if kind is int else ""):
        return False
    kind = key.__class__
    if kind is int:
        there: Any = (key, ...)
    elif key is Ellipsis:
        there = (...,)
    elif kind is Tensor and _is_array_key(key._array):
        there = (key._array,)
    else:
        keys = key if kind is tuple else (key,)
        there = basic_key(keys)
        if there is None:
            split = plain_key(keys)
            if split is None:
                return False
            basic, there, dots = split
            if basic is not None:
                a = a[(*basic, ...) if dots < 0 else basic]
    if not a.flags.writeable or 0 in a.strides:
        return False
    if (related or d is INT64 or d is BOOL) and _overlap(a, there, value):  # which is told elsewhere
        return False
    if (value.__class__ is not ndarray or not value.ndim) and _is_full_mask(there, a):
        if a.size >= NUMPY_UP_TO:
            scatter.fill_masked_into(a, there[0], value if value.__class__ is ndarray else d.type(value))
        else:
            np.putmask(a, there[0], value)
    else:
        a[there] = value
    record = self._storage
    record[0] += 1
    record[1] = _state.next_seq()
    return True


def _is_array_key(k: Any) -> bool:
    """Whether numpy reads the array of a key as PyTorch reads the tensor: positions, or a mask of some elements."""
    return k.__class__ is ndarray and k.ndim > 0 and (k.dtype is INT64 or k.dtype is BOOL and k.size > 0)


def _overlap(a: Any, there: Any, value: Any) -> bool:
    """Whether what is written, ``a[there]``, may share memory with the value or with an array of the key."""
    keys = [k for k in there if k.__class__ is ndarray]
    if value.__class__ is ndarray and np.may_share_memory(a if keys else a[there], value):
        return True
    return any(np.may_share_memory(a, k) for k in keys)


_FLOATS, _NUMBERS = "fd", "fdlihbB"
# Pairs of dtypes, of a value and of what it is stored in, that numpy converts between as `copy_` does.
_STORED_AS = frozenset({("f", "d"), ("d", "f"), ("l", "d"), ("l", "f"), ("i", "l"), ("?", "f"), ("?", "d"), ("?", "l")})


def _is_full_mask(key: Any, a: Any) -> bool:
    """Whether the numpy key is one mask of the shape of `a`."""
    return len(key) == 1 and key[0].__class__ is ndarray and key[0].dtype is BOOL and key[0].shape == a.shape


def store(self: Tensor, key: Any, value: Any) -> None:
    if self._array.__class__ is not ndarray and isinstance(self._array, KindArray):
        raise TypeError(f"Cannot assign to a sparse tensor: elements of the layout {self.layout} are not set by indexing")
    if not isinstance(value, Tensor):
        value = _number_tensor(self, value)
    if key is False:                                  # which takes nothing
        return
    key = (None,) if key is True else normalize(key)
    if all(isinstance(k, BASIC) for k in key):
        part = view_at(self, checked_key(key))
        fitted = _fit(value, part._array.ndim)
        # Repeated to the shape of the part, it may be a part of `self` too.
        part.copy_(fitted if fitted._array.shape == part._array.shape else fitted.expand(part.shape))
        return
    if self._array.ndim:
        check_recorded(self)
    part, indices = split_key(self, key, count_stored(value))
    single = value._array.size == 1 and len(key) == 1 and is_mask(key[0]) and key[0].ndim > 0
    for k in key:
        if isinstance(k, Tensor) and k.ndim:          # masks too, which are turned into places here
            refuse(index_put, "indices", k, part, part._array.shape, EXACTLY if single else NEVER)
    if single:
        value = _single_value(self, value)
    index_put.run_inplace(part, indices, _fit(value, len(index_shape(part, indices)[0])), False)


def store_by_ops(self: Tensor, key: Any, value: Any) -> None:
    """`store` made of operations that interpreters know: a view and `copy_`, `masked_fill_`, or `index_put_`."""
    from ..creation import from_values

    is_given = isinstance(value, Tensor)
    if not is_given:
        value = from_values.tensor(value, dtype=self.dtype, device=self.device)
    if key is False:
        return
    key = (None,) if key is True else normalize(key)
    if all(isinstance(k, BASIC) for k in key):
        check_slices(key)
        part = view_at(self, key)
        fitted = _fit(value, part.ndim)
        # Repeated to the shape of the part, it may be a part of `self` too.
        # Programs that are recorded for other values have what PyTorch's have.
        is_number = fitted.ndim == 0 and (not is_given or _dispatch.stands_for_others())
        part.copy_(fitted if is_number or fitted.shape == part.shape else fitted.expand(part.shape))
    elif len(key) == 1 and key[0].dtype.name == "bool" and value.ndim == 0:
        mask = key[0]
        if mask.ndim < self.ndim:                     # else nothing to reshape: a recorded program would have its sizes
            mask = mask.reshape(*mask.shape, *(1,) * (self.ndim - mask.ndim))
        self.masked_fill_(mask, value.to(self.dtype))
    else:
        part, indices = split_key(self, key)
        given = [k for k in indices if k is not None]  # sizes may be unknown, the number of dimensions never is
        value = _fit(value.to(self.dtype), part.ndim - len(given) + max(k.ndim for k in given))
        part.index_put_(tuple(indices), value, False)


def _single_value(self: Tensor, value: Tensor) -> Tensor:
    """A tensor of one element that is stored wherever a mask holds: of the dtype of `self`, and in memory of its own."""
    if value.is_complex() and not self.is_complex() and not value._lacks_values and value.item().imag:
        raise RuntimeError(f"value cannot be converted to type {self.dtype} without overflow: {value.item()} is not real")
    return value.reshape(()).to(self.dtype, copy=one_memory(value, self))


def _number_tensor(self: Tensor, value: Any) -> Tensor:
    """A Python or numpy number as a 0-d tensor of the dtype of `self`."""
    from ..creation._options import scalar_of_dtype

    if not isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        raise TypeError(f"can't assign a {type(value).__name__} to a tensor of dtype {self.dtype}; make it a tensor first")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"Overflow when unpacking long long: {value} is no 64-bit integer; give it as a float")
    if isinstance(value, (complex, np.complexfloating)) and not self.is_complex():
        raise RuntimeError(f"value {value} cannot be converted to type {self.dtype} without overflow")
    if isinstance(value, int) and self.dtype.category == dtypes.INTEGER:
        info = np.iinfo(self.dtype.numpy)
        if not (info.min if info.min else -info.max) <= value <= info.max:
            raise RuntimeError(f"value {value} cannot be converted to type {self.dtype} without overflow")
    made = np.full((), scalar_of_dtype(value, _arrays.plain_dtype(self._array.dtype), 1), _arrays.plain_dtype(self._array.dtype))
    return wrap(MetaArray((), made.dtype) if self._lacks_values else made)


def _fit(value: Tensor, ndim: int) -> Tensor:
    """Leading dimensions of size 1 that the target lacks are dropped, as assignment allows."""
    while value.ndim > ndim and value.shape[0] == 1:
        value = value.squeeze(0)
    return value


setitem.__name__ = "__setitem__"
Tensor.__setitem__ = setitem  # type: ignore[attr-defined]
assert tape.VIEWS == 3  # `_storage` has the fields the generated entry points write
