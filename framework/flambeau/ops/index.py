"""Indexing: ``x[...]``, ``x[...] = y`` and the operations that pick and put elements by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _state, dtypes
from .._arrays import MetaArray, ndarray
from ..autograd import tape
from ..dtypes import from_numpy_dtype
from ..tensor import Tensor, bump, wrap
from ._spec import FUNCTION, INPLACE, METHOD, check_writable, composite, describe, primitive, view

_INTS = frozenset(("int64", "int32", "int16", "int8", "uint8"))


@view(surface=0)
def basic_index(input, key):
    """``input[key]`` for a tuple of ints, slices, None and Ellipsis: a view."""


@basic_index.kernel
def _basic(a, key):
    if type(a) is MetaArray:
        return _meta_basic(a, key)
    try:
        made = a[key]
    except IndexError as error:
        raise IndexError(_explain(error, a.shape, key)) from None
    return made if type(made) is ndarray else a[(*key, ...)]


def _explain(error: IndexError, shape: Any, key: Any) -> str:
    text = str(error)
    if "too many indices" in text:
        return f"too many indices for tensor of dimension {len(shape)}"
    d = 0
    for k in key:
        if k is None or k is Ellipsis:
            continue
        if isinstance(k, (int, np.integer)) and d < len(shape) and not -shape[d] <= k < shape[d]:
            return f"index {k} is out of bounds for dimension {d} with size {shape[d]}"
        d += 1
    return f"{text} (tensor of shape {tuple(shape)})"


def _meta_basic(a: MetaArray, key: Any) -> MetaArray:
    """The same index on an array of that shape without memory of that size."""
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, a.dtype.str if a.dtype.isbuiltin == 1 else np.uint8), a.shape, (0,) * a.ndim)
    shape = stand_in[(*key, ...)].shape
    return MetaArray(shape, from_numpy_dtype(a.dtype).numpy)


@basic_index.vjp
def _basic_vjp(grad, input_shape, key):
    whole = grad.new_zeros(input_shape)
    basic_index.function(whole, key).copy_(grad)
    return (whole,)


@basic_index.raw
def _basic_raw(grad, input_shape, key):
    whole = np.zeros(input_shape, grad.dtype)
    whole[key] = grad
    return (whole,)


basic_index.node_class.title = "SelectBackward0"
_BASIC = (int, slice, type(None), type(Ellipsis))


def getitem(self: Tensor, key: Any) -> Tensor:
    """``self[key]``: a view for ints, slices, None and Ellipsis; a copy where tensors, lists or masks take part.

    Raises: IndexError out of range, for too many indices and for masks that do not fit.
    """
    if _state.SLOW:
        from . import _slow

        return _slow.call(getitem_op, (self, key))
    kind = key.__class__
    if self._a.__class__ is ndarray:
        try:
            if kind is int:
                return basic_index.of(self, self._a[key, ...], ((key,),))
            if kind is tuple and _all_basic(key):
                return basic_index.of(self, self._a[(*key, ...)], (key,))
        except IndexError:
            pass  # said better below
    return _getitem(self, key)


def _all_basic(key: tuple[Any, ...]) -> bool:
    """Whether `key` holds only ints and slices without a step that goes back."""
    for k in key:
        kind = k.__class__
        if kind is not int and (kind is not slice or (k.step is not None and (k.step.__class__ is not int or k.step <= 0))):
            return False
    return True


def _getitem(self: Tensor, key: Any) -> Tensor:
    kind = key.__class__
    if kind is int:
        if self._a.ndim == 0:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a 0-dim tensor to a number")
        return _view_at(self, (key,))
    if kind is tuple:
        for k in key:
            if k.__class__ is not int and k.__class__ is not slice:
                break
        else:
            _check_slices(key)
            return _view_at(self, key)
    elif kind is slice:
        _check_slices((key,))
        return _view_at(self, (key,))
    key = normalize(key)
    if all(isinstance(k, _BASIC) for k in key):
        _check_slices(key)
        return _view_at(self, key)
    return advanced(self, key)


def _view_at(self: Tensor, key: tuple[Any, ...]) -> Tensor:
    return basic_index.function(self, key) if _state.SLOW else basic_index.run(self, key)


def _check_slices(key: Any) -> None:
    for k in key:
        if k.__class__ is slice and k.step is not None and k.step <= 0:
            raise ValueError("step must be greater than zero")


@composite(surface=0)
def getitem_op(input, key):
    """``input[key]``."""
    return _getitem(input, key)


def normalize(key: Any) -> tuple[Any, ...]:
    """`key` as a tuple of ints, slices, None, Ellipsis, bools and Tensors."""
    if isinstance(key, list):
        key = _as_index_list(key)
    items = key if isinstance(key, tuple) else (key,)
    made: list[Any] = []
    for k in items:
        if isinstance(k, (bool, np.bool_)):
            made.append(wrap(np.array(bool(k))))
        elif isinstance(k, slice):
            made.append(slice(_bound(k.start), _bound(k.stop), _bound(k.step)))
        elif k is None or k is Ellipsis or isinstance(k, int):
            made.append(k)
        elif isinstance(k, Tensor):
            if k._a.ndim == 0 and k.dtype.name in _INTS and k.dtype is not dtypes.uint8 and not k.is_meta:
                made.append(int(k._a))
            else:
                made.append(k)
        elif isinstance(k, np.integer):
            made.append(int(k))
        elif isinstance(k, ndarray):
            made.append(wrap(k))
        elif isinstance(k, (list, tuple, range)):
            made.append(_index_tensor(k))
        elif hasattr(k, "__index__"):
            made.append(k.__index__())
        else:
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
                f"{type(k).__name__})"
            )
    if made.count(Ellipsis) > 1 if not any(isinstance(k, Tensor) for k in made) else sum(k is Ellipsis for k in made) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    return tuple(made)


def _as_index_list(key: list[Any]) -> Any:
    """A list is one index tensor, unless it holds slices and the like, when it stands for a tuple."""
    if any(k is None or k is Ellipsis or isinstance(k, (slice, Tensor, list, tuple, ndarray)) for k in key) and any(
        k is None or k is Ellipsis or isinstance(k, slice) or (isinstance(k, Tensor) and k.ndim) for k in key
    ):
        return tuple(key)
    return (_index_tensor(key),)


def _index_tensor(values: Any) -> Tensor:
    from .create import tensor

    if len(values) == 0:
        return wrap(np.zeros((0,), np.int64))
    return tensor(list(values) if isinstance(values, range) else values)


def _bound(x: Any) -> Any:
    return int(x) if isinstance(x, Tensor) else x


def expand_key(shape: Any, key: tuple[Any, ...]) -> list[Any]:
    """`key` with the Ellipsis written out, masks turned into index tensors, and a slice for every dimension not named.

    Raises: IndexError for too many indices, masks that do not fit and index dtypes that are none.
    """
    taken = sum(0 if k is None or k is Ellipsis else _mask_dims(k) for k in key)
    if taken > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    fill = [slice(None)] * (len(shape) - taken)
    if not any(k is Ellipsis for k in key):
        key = (*key, Ellipsis)
    made: list[Any] = []
    d = 0
    for k in key:
        if k is Ellipsis:
            made += fill
            d += len(fill)
        elif isinstance(k, Tensor):
            if k.dtype in (dtypes.bool, dtypes.uint8):
                mask = k._a if k._a.dtype == np.bool_ else k._a != 0
                for i, n in enumerate(mask.shape):
                    if shape[d + i] != n:
                        raise IndexError(
                            f"The shape of the mask {list(mask.shape)} at index {i} does not match the shape of the indexed "
                            f"tensor {list(shape)} at index {d + i}"
                        )
                if mask.ndim == 0:
                    made += [None, wrap(np.zeros((1,) if mask else (0,), np.int64))]
                else:
                    made += [wrap(np.ascontiguousarray(x)) for x in mask.nonzero()]
                d += mask.ndim
            elif k.dtype.name in _INTS:
                made.append(k)
                d += 1
            else:
                raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {k.dtype}")
        else:
            made.append(k)
            d += k is not None
    return made


def _mask_dims(k: Any) -> int:
    if isinstance(k, Tensor) and k.dtype in (dtypes.bool, dtypes.uint8):
        return k._a.ndim
    return 1


def split_key(self: Tensor, key: tuple[Any, ...]) -> tuple[Tensor, list[Any]]:
    """The view that the basic part of `key` takes, and one index tensor (or None) per dimension of it."""
    items = expand_key(self._a.shape, key)
    basic = tuple(slice(None) if isinstance(k, Tensor) else k for k in items)
    _check_slices(basic)
    part = _view_at(self, basic)
    indices = [k if isinstance(k, Tensor) else None for k in items if not isinstance(k, int)]
    return part, indices


def advanced(self: Tensor, key: tuple[Any, ...]) -> Tensor:
    part, indices = split_key(self, key)
    return index.function(part, tuple(indices))


def check_indices(input: Tensor, indices: Any) -> None:
    """Raise IndexError for values out of range and shapes that do not broadcast."""
    shapes = []
    for d, k in enumerate(indices):
        if k is None or type(k._a) is not ndarray:
            continue
        n = input._a.shape[d]
        if k._a.size and (k._a.max() >= n or k._a.min() < -n):
            bad = k._a[(k._a >= n) | (k._a < -n)].reshape(-1)[0]
            raise IndexError(f"index {bad} is out of bounds for dimension {d} with size {n}")
        shapes.append(k._a.shape)
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {', '.join(map(str, map(list, shapes)))}") from None


def _check_index(input, indices):
    check_indices(input, indices)
    return input, tuple(k if k is None else _long(k) for k in indices)


def _long(k: Tensor) -> Tensor:
    return k if k.dtype is dtypes.int64 else wrap(k._a.astype(np.int64)) if type(k._a) is ndarray else k


def array_key(indices: Any) -> tuple[Any, ...]:
    """numpy's form of one index (array or None) per dimension."""
    return tuple(slice(None) if k is None else k._a if isinstance(k, Tensor) else k for k in indices)


@primitive(surface=0, check=_check_index)
def index(input, indices):
    """The elements of `input` at `indices`, one index tensor (or None for all) per dimension."""


@index.kernel
def _index(a, indices):
    return np.ascontiguousarray(a[array_key(indices)])


@index.shape
def _index_shape(input, indices):
    stand_in = np.broadcast_to(np.zeros((), np.uint8), tuple(input.shape))
    key = tuple(slice(None) if k is None else np.zeros(tuple(k.shape), np.int64) for k in indices)
    return stand_in[key].shape, input.dtype


@index.vjp
def _index_vjp(grad, input_shape, indices):
    return (index_put.function(grad.new_zeros(input_shape), indices, grad, True),)


def add_at(target: Any, key: Any, values: Any) -> None:
    """``target[key] += values``, counting repeated places, in logical order (so the same bits every time)."""
    if target.dtype.isbuiltin == 1:
        np.add.at(target, key, values)
    else:
        wide = target.astype(np.float32)
        np.add.at(wide, key, np.asarray(values).astype(np.float32))
        target[...] = wide.astype(target.dtype)


def _check_put(input, indices, values, accumulate):
    indices = tuple(k if k is None else k for k in indices)
    expanded: list[Any] = []
    for k in indices:
        if isinstance(k, Tensor) and k.dtype in (dtypes.bool, dtypes.uint8):
            expanded += [wrap(x) for x in (k._a != 0).nonzero()]
        else:
            expanded.append(k if k is None or k.dtype is dtypes.int64 else _long(k))
    if len(expanded) > input.ndim:
        raise IndexError(f"too many indices for tensor of dimension {input.ndim} (got {len(expanded)})")
    check_indices(input, expanded)
    if values.dtype is not input.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {input.dtype} for the destination and {values.dtype} for the source."
        )
    return input, tuple(expanded), values, accumulate


@primitive(surface=FUNCTION | METHOD | INPLACE, tensors=("input", "values"), check=_check_put)
def index_put(input, indices, values, accumulate=False):
    """`input` with `values` (broadcast) stored at `indices`, or added there if `accumulate`."""


@index_put.kernel
def _index_put(a, indices, values, accumulate):
    made = np.array(a)
    key = array_key(indices)
    try:
        if accumulate:
            add_at(made, key, values)
        else:
            made[key] = values
    except ValueError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape "
            f"{list(made[key].shape)}"
        ) from None
    return made


@index_put.shape
def _index_put_shape(input, indices, values, accumulate):
    return input.shape, input.dtype


@index_put.vjp
def _index_put_vjp(grad, indices, values_shape, accumulate):
    from ._spec import sum_tensor_to

    def kept() -> Tensor:
        return grad if accumulate else index_put.function(grad, indices, grad.new_zeros(values_shape), False)

    return (kept, lambda: sum_tensor_to(index.function(grad, indices), values_shape))


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """``self[key] = value``, broadcasting and converting `value`."""
    if _state.SLOW:
        from . import _slow

        _slow.call_setitem(self, key, value)
        return
    _setitem(self, key, value)


def _setitem(self: Tensor, key: Any, value: Any) -> None:
    from .create import _as

    key = normalize(key)
    if not isinstance(value, Tensor):
        if isinstance(value, (ndarray, np.generic)) or not isinstance(value, (list, tuple)):
            value = wrap(np.asarray(value) if isinstance(value, ndarray) else np.full((), _as(value, self.dtype.numpy), self.dtype.numpy))
        else:
            from .create import tensor

            value = tensor(value, dtype=self.dtype)
    if all(isinstance(k, _BASIC) for k in key):
        _check_slices(key)
        part = _view_at(self, key)
        part.copy_(_fit(value, part._a.shape))
        return
    part, indices = split_key(self, key)
    if value.dtype is not self.dtype:
        value = value.to(self.dtype)
    trimmed = value
    target = index_result_shape(part, indices)
    while trimmed.ndim > len(target) and trimmed.shape[0] == 1:
        trimmed = trimmed.squeeze(0)
    index_put.run_inplace(part, tuple(indices), trimmed, False) if needs_history(self, value) else put_now(part, indices, trimmed)


def index_result_shape(part: Tensor, indices: Any) -> tuple[int, ...]:
    return _index_shape(part, indices)[0]


def needs_history(self: Tensor, value: Tensor) -> bool:
    return _state.grad_enabled() and (self._n is not None or value._n is not None)


def put_now(part: Tensor, indices: Any, value: Tensor) -> None:
    """Store without recording, directly in memory."""
    check_writable(index_put, part)
    if type(part._a) is MetaArray:
        return
    check_indices(part, indices)
    source = np.array(value._a) if np.may_share_memory(value._a, part._a) else value._a
    try:
        part._a[array_key(indices)] = source
    except ValueError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to indexing result of shape "
            f"{list(index_result_shape(part, indices))}\n{describe(input=part, value=value)}"
        ) from None
    bump(part)


def _fit(value: Tensor, shape: Any) -> Tensor:
    """Leading dimensions of size 1 that the target lacks are dropped, as assignment allows."""
    while value._a.ndim > len(shape) and value._a.shape[0] == 1:
        value = value.squeeze(0)
    return value


Tensor.__getitem__ = getitem  # type: ignore[attr-defined]
Tensor.__setitem__ = setitem  # type: ignore[attr-defined]
assert tape.VIEWS == 3  # `_v` has the fields the generated entry points write
