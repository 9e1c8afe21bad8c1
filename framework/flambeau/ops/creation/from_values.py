"""Tensors of Python's numbers, nested sequences and whatever else holds values."""

from __future__ import annotations

from itertools import chain, islice
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import hot_calls
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ... import _state, dtypes
from ..._arrays import MetaArray, ndarray
from ..._names import names_by
from ..._state import interpreted
from ..._symbolic import _SYMBOLIC
from ..._warn import warn, warn_once
from ...dtypes import dtype, from_numpy_dtype
from ...tensor import Tensor, warn_of_recorded
from .. import _dispatch
from .._makers import usually
from .._promote import NUMBERS
from .._spec import check_room
from ._options import _IN_HOST_MEMORY, _fits_plainly, _place, finish, on_host, scalar_of_dtype, with_names
from .convert import empty_arranged

PLACED = _state.PLACED
_state.share(globals(), "PLACED")  # keeps it as it is there


@names_by("keep")
@usually(f"names is None and (dtype is None or dtype.__class__ is _dtype_class) and {_IN_HOST_MEMORY}", "_of_values(data, dtype)")
def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
           names: Any = None) -> Tensor:  # fmt: skip
    """A copy of `data`: a number, nested sequences, an array or a tensor; or all elements of a storage, where they are.

    Args:
        data: floats give the default dtype, ints int64, bools bool; arrays and tensors keep theirs.
        dtype, device: convert to these.
        requires_grad: record what is done with the tensor.
        names: what each dimension is called, None for one without a name; see `Tensor.names`.
    Raises: ValueError for sequences of uneven length; TypeError for something else, such as a str.

    >>> fb.tensor([[1, 2], [3, 4.5]])
    tensor([[1.0000, 2.0000],
            [3.0000, 4.5000]])
    """
    if names is not None:
        return with_names(tensor(data, dtype=dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory), names)
    here = device is None and not PLACED or on_host(device)
    if here and (dtype is None or dtype.__class__ is _dtype_class):
        made = _of_values(data, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if isinstance(data, Tensor):
        warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor)."
        )
        device = data.device if device is None else device
        made = data.detach().clone().to(device=device, dtype=data.dtype if dtype is None else dtypes.as_dtype(dtype))
        return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    read = getattr(data, "_read_as", None)
    if read is not None:
        made = read(None if dtype is None else dtypes.as_dtype(dtype))
        made = made if here else made.to(_place(device))
        return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    place = _place(device)
    made = _without_values(data, dtype) if place is not None and place.type == "meta" else array_of(data, dtype)
    return finish(made, requires_grad, place)


_dtype_class = dtype
_OF_NUMPY = {d.numpy.type: d for d in dtypes.ALL if d.numpy.isbuiltin == 1}  # numpy's own classes of numbers
_OF_KIND = {bool: dtypes.bool, int: dtypes.int64, **_OF_NUMPY}


def _of_values(data: Any, d: dtype | None) -> Tensor | None:
    """A tensor of a Python number, or of lists and tuples of such numbers; None where that takes a closer look."""
    kind = data.__class__
    if kind is range:
        check_room("tensor", (len(data),), 8)
        data, kind = list(data), list
    if kind is list or kind is tuple:
        if not data:
            return hot_calls.over(np.empty(0, (d or dtypes._default).numpy))
        array = _of_plain_numbers(data, d)
        return None if array is None else hot_calls.over(array)
    if kind is not float and kind is not int and kind is not bool:
        return None
    plain = (d or _OF_KIND.get(kind) or dtypes._default).numpy
    return hot_calls.over(np.array(data, plain)) if _fits_plainly(data, plain) else None


def array_of(data: Any, d: Any) -> ndarray:
    """`data` copied to a new array; the dimensions of an array stay in their order of memory.

    Raises: TypeError, ValueError as PyTorch for values it cannot take.
    """
    if d is not None:
        d = dtypes.as_dtype(d)
    if isinstance(data, (ndarray, np.generic)):
        _check_byte_order(data)
        data = _with_own_dtype(data)
        wanted = data.dtype if d is None else d.numpy
        with np.errstate(all="ignore"):
            if data.ndim < 2 or data.flags.c_contiguous:
                return np.array(data, wanted, order="C")
            made = empty_arranged(data, wanted, None)
            np.copyto(made, data, casting="unsafe")
            return made
    if isinstance(data, NUMBERS):
        wanted = d or dtypes.of_number(data)
        return np.full((), _element(data, wanted), wanted.numpy)
    if hasattr(data, "__array_interface__") or hasattr(data, "__dlpack__"):
        return array_of(np.asarray(data), d)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'; give a number, a sequence, an array or a tensor")
    if isinstance(data, (dict, set)) or not hasattr(data, "__len__"):
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}; give a number, a sequence, an array or a tensor")
    read = getattr(data, "_read_as", None)            # which storages have
    return _from_nested(data, d) if read is None else read(d)._array.copy()


def _without_values(data: Any, d: Any) -> Any:
    """Shape and dtype of ``array_of(data, d)``: whether numbers fit is not looked at, nor what tensors among them hold."""
    d = None if d is None else dtypes.as_dtype(d)
    if isinstance(data, NUMBERS) and not isinstance(data, np.generic):
        return MetaArray((), (d or dtypes.of_number(data)).numpy)
    if not isinstance(data, (list, tuple)):
        return array_of(data, d)
    shape, leaves = _flatten(data)
    found = _infer(leaves)                            # which raises for what is no number
    return MetaArray(shape, (d or found).numpy)


def _with_own_dtype(array: Any) -> Any:
    """`array` with the dtype object that arrays of tensors have, over the same memory.

    numpy has others that are equal to it: with metadata, or of another type of C. Kernels are chosen by the object.
    Raises: TypeError if tensors have no such dtype.
    """
    own = from_numpy_dtype(array.dtype).numpy
    return array if array.dtype is own else array.view(own)


def _check_byte_order(array: Any) -> None:
    if not array.dtype.isnative:
        raise ValueError(
            f"given numpy array has byte order different from the native byte order ({array.dtype.str}). Conversion between byte "
            "orders is not supported; convert it with array.astype(array.dtype.newbyteorder('='))"
        )


def _element(value: Any, wanted: dtype) -> Any:
    """`value` as an element of `wanted`, with the errors of ``tensor(...)`` for what does not fit."""
    if isinstance(value, (int, np.integer)) and wanted.category == dtypes.INTEGER:
        if wanted is dtypes.uint64 and not 0 <= value < 2**64:
            raise OverflowError(f"{value} does not fit uint64, which holds 0 to 2**64 - 1")
        if wanted is not dtypes.uint64 and not -(2**63) <= value < 2**63:
            raise ValueError(f"Overflow when unpacking long long: {value} does not fit {wanted.name}")
    if isinstance(value, (complex, np.complexfloating)) and not wanted.is_complex and wanted is not dtypes.bool:
        what = "cannot be interpreted as an integer" if wanted.category == dtypes.INTEGER else f"cannot be stored as {wanted.name}"
        raise TypeError(f"must be real number, not complex: {value} {what}")
    if wanted.category == dtypes.INTEGER:
        return scalar_of_dtype(value, wanted.numpy)
    with np.errstate(all="ignore"):
        return kernels.cast(np.asarray(value), wanted.numpy)[()]


def _of_plain_numbers(data: Any, d: Any) -> ndarray | None:
    """What lists and tuples of numbers of one class, Python's or numpy's, make, where that takes no conversion to look after; else None."""
    shape, level = (len(data),), data
    kinds = {*map(type, level)}
    while kinds in (_LISTS, _TUPLES):
        lengths = {*map(len, level)}
        if len(lengths) > 1:
            return None
        shape = (*shape, *lengths)
        if len(shape) == _DEEP:
            _check_depth(data)
        level = [*chain.from_iterable(level)]
        kinds = {*map(type, level)}
    if kinds == _NUMBERS:                             # both together are floats
        kinds = {float}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    wanted = d or _OF_KIND.get(kind) or (dtypes._default if kind is float else None)
    if wanted is None or (kind, wanted) not in _UNCONVERTED:
        return None
    token = ignore_fp_flags()
    try:
        made = np.array(level, wanted.numpy)
    except OverflowError:
        return None
    finally:
        restore_fp_flags(token)
    return made if len(shape) == 1 else made.reshape(shape)


_MOST_DIMS = 64                                       # of a numpy array
_DEEP = 4                                             # lists in lists that few programs have


def _check_depth(data: Any) -> None:
    """Raise ValueError for sequences in sequences without end, before anything follows them: a list may hold itself."""
    first, depth = data, 0
    while _is_sequence(first) and len(first) and not isinstance(first, (Tensor, ndarray)):
        depth += 1
        if depth > _MOST_DIMS:
            raise ValueError(f"too many dimensions '{type(data).__name__}': at most {_MOST_DIMS}, and a list must not hold itself")
        try:
            first = first[0]
        except Exception as error:
            raise ValueError(f"could not determine the shape of object type '{type(first).__name__}'") from error


_LISTS, _TUPLES, _NUMBERS = {list}, {tuple}, {int, float}
_UNCONVERTED = frozenset(
    [(bool, dtypes.bool), (int, dtypes.int64), *_OF_NUMPY.items()]
    + [(kind, d) for kind in (int, float, np.int64, np.float32, np.float64) for d in (dtypes.float32, dtypes.float64)]
)


def _holds_arrays(data: Any) -> bool:
    """Whether there are arrays of several elements in the list or tuple `data`, or in the first list in it."""
    if not isinstance(data, (list, tuple)) or not data:
        return False
    return any(isinstance(x, ndarray) and x.ndim > 0 for x in data) or _holds_arrays(data[0])


def _from_nested(data: Any, d: Any) -> ndarray:
    if data.__class__ is list or data.__class__ is tuple:
        made = _of_plain_numbers(data, d)
        if made is not None:
            return made
    shape, leaves = _flatten(data)
    if _holds_arrays(data):
        warn_once(
            "Creating a tensor from a list of numpy.ndarrays is extremely slow: their elements are taken one by one. Convert the list to a "
            "single array first, with numpy.array(), or stack() tensors"
        )
    if d is None:
        d = _infer(leaves)
    plain = d.numpy
    if any(isinstance(x, Tensor) and x._node is not None for x in leaves):
        warn_of_recorded()
    values = [x.item() if isinstance(x, (Tensor, ndarray)) else x for x in leaves]
    for x in values:
        if not isinstance(x, NUMBERS):
            raise TypeError(f"must be real number, not {type(x).__name__}")
    if plain.kind in "iub":
        try:
            return np.array(values, dtype=plain).reshape(shape)
        except (OverflowError, ValueError, TypeError):
            return np.array([_element(x, d) for x in values], dtype=plain).reshape(shape)
    if d.category < dtypes.COMPLEX and any(isinstance(x, complex) for x in values):
        raise TypeError(f"must be real number, not complex: it cannot be stored as {d.name}")
    with np.errstate(all="ignore"):
        if plain.isbuiltin == 1 and plain.char != "e":
            return np.array(values, dtype=plain).reshape(shape)
        wide = np.complex64 if d.is_complex else np.float64
        return kernels.cast(np.array(values, dtype=wide), plain).reshape(shape)


def _flatten(data: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Shape and leaves of nested sequences. Raises: ValueError naming where lengths differ."""
    _check_depth(data)
    shape: list[int] = []
    level = [data]
    while level and _is_sequence(level[0]):
        n = len(level[0])
        following: list[Any] = []
        for x in level:
            if not _is_sequence(x):
                raise TypeError(f"not a sequence: expected length {n} at dim {len(shape)}, got {type(x).__name__}")
            if len(x) != n:
                raise ValueError(f"expected sequence of length {n} at dim {len(shape)} (got {len(x)})")
            following += _items(x, n)
        shape.append(n)
        level = following
    for x in level:
        if _is_sequence(x):
            raise TypeError(
                f"expected a number at dim {len(shape)}, as its neighbour is one, but got a {type(x).__name__} of length {len(x)}"
            )
    return tuple(shape), level


def _items(x: Any, n: int) -> list[Any]:
    """The `n` elements that a sequence says it has. Raises: ValueError if it has not."""
    if isinstance(x, (list, tuple, Tensor, ndarray)):
        return list(x)
    check_room("tensor", (n,), 8)
    made = list(islice(iter(x), n + 1))
    if len(made) != n:
        raise ValueError(f"could not determine the shape of object type '{type(x).__name__}': of {n} elements it has others")
    return made


def _is_sequence(x: Any) -> bool:
    if isinstance(x, (list, tuple, range)):
        return True
    if isinstance(x, (Tensor, ndarray)):
        return x.ndim > 0
    return hasattr(x, "__len__") and hasattr(x, "__getitem__") and not isinstance(x, (str, bytes))


def _infer(leaves: list[Any]) -> dtype:
    for i, x in enumerate(leaves):
        if isinstance(x, (str, bytes)):
            kind = type(x).__name__
            if i:
                raise TypeError(f"new(): invalid data type '{kind}': {x!r} is not a number")
            raise ValueError(f"too many dimensions '{kind}': {x!r} is not a number")
        if not isinstance(x, (Tensor, ndarray, *NUMBERS)):
            raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")
    kinds = [x.dtype if isinstance(x, Tensor) else dtypes.from_numpy_dtype(x.dtype) if isinstance(x, (np.generic, ndarray))
             else dtypes.of_number(x) for x in leaves]  # fmt: skip
    if not kinds:
        return dtypes.get_default_dtype()
    found = kinds[0]
    for k in kinds[1:]:
        if k is not found:
            found = dtypes.promote_types(found, k)
    return found


def scalar_tensor(
    s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """A 0-d tensor of the default dtype holding the number `s`, which may be a tensor without dimensions."""
    if not isinstance(s, (int, float, complex, np.number, np.bool_, *_SYMBOLIC)) and not (isinstance(s, Tensor) and s.ndim == 0):
        raise TypeError(f"scalar_tensor(): argument 's' (position 1) must be Number, not {type(s).__name__}")
    if _state.IN_FORCE and interpreted():
        given = {"s": s, "dtype": dtype, "device": device}
        if (made := _dispatch.made_there("scalar_tensor", given, requires_grad)) is not None:
            return made
    if isinstance(s, int) and not -(2**63) <= s < 2**64:
        raise OverflowError(f"scalar_tensor(): int too big to convert: argument 's' is {s}, integers have 64 bits; give a float")
    value = s.item() if isinstance(s, Tensor) else s
    return tensor(value, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad)


FUNCTIONS = {"tensor": tensor, "scalar_tensor": scalar_tensor}
