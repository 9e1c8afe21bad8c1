"""Making tensors from nothing, from Python values, and from other libraries' memory."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.cpu import fill as kernel

from .. import _arrays, _state, devices, dtypes
from .._arrays import MetaArray, ndarray
from .._warn import warn, warn_once
from ..devices import device
from ..dtypes import dtype, from_numpy_dtype
from ..tensor import Tensor, bump, wrap
from ._promote import NUMBERS
from ._spec import FUNCTION, METHOD, OUT, composite, refuse_other_dtype_out

_new = object.__new__


def _sizes(size: tuple[Any, ...], named: Any = None) -> tuple[int, ...]:
    """The shape in ``zeros(2, 3)``, ``zeros((2, 3))`` and ``zeros(size=(2, 3))``. Raises: TypeError if it is missing."""
    if named is not None:
        if size:
            raise TypeError(f"argument 'size' is given twice, by position as {size} and by name as {named}")
        size = (tuple(named),)
    if not size:
        raise TypeError("missing argument 'size'; give ints or a tuple of them, () for a tensor without dimensions")
    if len(size) == 1 and not isinstance(size[0], int):
        size = size[0] if not isinstance(size[0], Tensor) else (size[0],)
    if size.__class__ is not tuple:
        size = tuple(size)
    for n in size:
        if n.__class__ is not int:
            size = tuple(_index(n) for n in size)
            break
    for n in size:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(size)}")
    return size


def _index(n: Any) -> int:
    from operator import index

    if isinstance(n, bool):
        raise TypeError(f"argument 'size' must be tuple of ints, not bool: {n}")
    try:
        return int(index(n))
    except TypeError:
        raise TypeError(f"sizes must be ints, but found element of type {type(n).__name__}: {n!r}") from None


def _place(place: Any) -> device | None:
    """The device to make a tensor on; None for the CPU."""
    if place is None:
        place = _state.default_device()
        if place is None:
            return None
    place = device(place)
    return None if place.type == "cpu" else place


def refuse_names(names: Any) -> None:
    """Raise NotImplementedError for names given to the dimensions of a new tensor."""
    raise NotImplementedError(f"named tensors are not built: got names={names!r}; leave it out and address dimensions by number")


def finish(array: Any, requires_grad: bool, place: Any, pin_memory: bool = False) -> Tensor:
    """A leaf over `array`, on `place`."""
    if place is not None:
        if place.type == "meta":
            array = MetaArray(array.shape, array.dtype)
        else:
            from ..cuda import to_device

            array = to_device(array, place)
    if pin_memory:
        raise RuntimeError("pin_memory: cannot pin memory, no CUDA device is available")
    made = wrap(array)
    if requires_grad:
        made.requires_grad_(True)
    return made


def _dtype(d: Any) -> np.dtype:
    if d is None:
        return dtypes.get_default_dtype().numpy
    return d.numpy if d.__class__ is dtype else dtypes.as_dtype(d).numpy


def _check_layout(layout: Any) -> None:
    if layout is not None and layout is not devices.strided:
        raise NotImplementedError(f"creation with layout={layout} is not built yet; make a strided tensor and convert it")


def _allocate(make: Any, shape: tuple[int, ...], d: np.dtype, place: Any, requires_grad: bool, memory_format: Any = None) -> Tensor:
    if place is not None and place.type == "meta":
        made = wrap(MetaArray(shape, d))
        return made.requires_grad_(True) if requires_grad else made
    if place is not None:
        return _on_device(make, shape, d, place, requires_grad, memory_format)
    if memory_format is not None and memory_format is not devices.contiguous_format:
        from .convert import empty_arranged

        array = empty_arranged(np.empty(shape, d), d, memory_format)
        array[...] = make(shape, d)
    else:
        array = make(shape, d)
    return finish(array, requires_grad, place)


def _on_device(make: Any, shape: tuple[int, ...], d: np.dtype, place: Any, requires_grad: bool, memory_format: Any) -> Tensor:
    """As `_allocate` on a CUDA device, where the value that `make` repeats is written."""
    from .. import cuda

    value = None if make is _empty_filled and not _state.FILL_EMPTY else make((), d)
    array = cuda.filled(shape, d, None, place)
    if memory_format is not None and memory_format is not devices.contiguous_format:
        from .convert import empty_arranged

        array = empty_arranged(array, d, memory_format)
    if value is not None:
        kernels.store(array, value)
    made = wrap(array)
    return made.requires_grad_(True) if requires_grad else made


def empty(*sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
          device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, memory_format: Any = None, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` with whatever was in memory.

    Args:
        sizes, size: the shape, as several ints or one sequence.
    """
    _check_layout(layout)
    if names is not None:
        refuse_names(names)
    if out is not None:
        out.resize_(_sizes(sizes, size))
        if _state.FILL_EMPTY and not out.is_meta:
            kernel.fill_unset(out._a)
        return out
    if memory_format is devices.preserve_format:
        raise RuntimeError("empty: unsupported memory format torch.preserve_format; there is nothing to preserve")
    return _allocate(_empty_filled, _sizes(sizes, size), _dtype(dtype), _place(device), requires_grad, memory_format)


def _empty_filled(shape: Any, d: Any) -> Any:
    made = np.empty(shape, d)
    return kernel.fill_unset(made) if _state.FILL_EMPTY else made


def zeros(*sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
          device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` filled with 0.

    Args:
        sizes, size: the shape, as several ints or one sequence.
    """
    if names is not None:
        refuse_names(names)
    if (
        dtype is None is device and out is None is layout and size is None and not requires_grad
        and _state._global_device is None and not _state.local.devices
    ):  # fmt: skip
        try:
            if sizes and sizes[0] is not True and sizes[0] is not False:
                array = np.zeros(sizes if len(sizes) != 1 else sizes[0], dtypes._default.numpy)
                made = _new(Tensor)                   # `wrap`, written out
                made._a = array
                made._n = made._b = None
                made._v = [0, 0, None, None]
                return made
        except (TypeError, ValueError):
            pass  # said better below
    if out is not None:
        return out.resize_(_sizes(sizes, size)).zero_()
    _check_layout(layout)
    return _allocate(np.zeros, _sizes(sizes, size), _dtype(dtype), _place(device), requires_grad)


def _ones(shape: tuple[int, ...], d: np.dtype) -> ndarray:
    return kernel.filled(shape, d, d.type(1))


def ones(*sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
         device: Any = None, requires_grad: bool = False,
         pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` filled with 1.

    Args:
        sizes, size: the shape, as several ints or one sequence.
    """
    if names is not None:
        refuse_names(names)
    if out is not None:
        return out.resize_(_sizes(sizes, size)).fill_(1)
    _check_layout(layout)
    return _allocate(_ones, _sizes(sizes, size), _dtype(dtype), _place(device), requires_grad)


def full(size: Any, fill_value: Any, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` filled with `fill_value`, whose kind decides the dtype by default.

    A bool gives bool, an int int64, a float the default dtype, a complex number the complex of it.
    """
    if isinstance(size, int):
        raise TypeError("full(): argument 'size' (position 1) must be tuple of ints, not int")
    if names is not None:
        refuse_names(names)
    value = _fill_number("full", fill_value)
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
    elif out is not None:
        dtype = out.dtype
    else:
        dtype = fill_value.dtype if isinstance(fill_value, Tensor) else dtypes.of_number(value)
    shape = _sizes((size,))
    if out is not None:
        return out.resize_(shape).fill_(value)
    _check_layout(layout)
    return _allocate(lambda s, d: kernel.filled(s, d, _as(value, d)), shape, dtype.numpy, _place(device), requires_grad)


def _fill_number(name: str, value: Any) -> Any:
    """The number to fill with, which may come as a 0-d Tensor without history."""
    if isinstance(value, Tensor):
        if value.ndim or value._n is not None:
            raise TypeError(f"{name}(): argument 'fill_value' must be Number, not a Tensor of shape {tuple(value.shape)} that "
                            f"{'requires grad' if value._n is not None else 'has dimensions'}")  # fmt: skip
        return value.item()
    if not isinstance(value, NUMBERS):
        raise TypeError(f"{name}(): argument 'fill_value' must be Number, not {type(value).__name__}")
    return value


def _as(value: Any, d: np.dtype) -> Any:
    """`value` as a scalar of `d`; negative integers wrap for unsigned types. Raises: RuntimeError if it does not fit."""
    dtypes.check_number(value, from_numpy_dtype(d))
    if d.kind == "u" and isinstance(value, (int, np.integer)):
        return int(value) & ((1 << d.itemsize * 8) - 1)
    if isinstance(value, (complex, np.complexfloating)) and d.kind not in "cb" and d.name != "complex32":
        value = value.real
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(d)[()]


def _like(make: Any) -> Any:
    def like(input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
             memory_format: Any = devices.preserve_format, pin_memory: bool = False) -> Tensor:  # fmt: skip
        if not isinstance(input, Tensor):
            raise TypeError(f"{like.__name__}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return like_tensor(make, input, dtype, device, requires_grad, memory_format, layout)

    return like


def like_tensor(make: Any, input: Tensor, d: Any, place: Any, requires_grad: bool, memory_format: Any, layout: Any = None) -> Tensor:
    """A tensor shaped and, unless `memory_format` says otherwise, laid out like `input`."""
    from .convert import empty_arranged

    if _state.SLOW and hasattr(input, "_shaped_alike"):
        return input._shaped_alike(lambda x: like_tensor(make, x, d, place, requires_grad, memory_format, layout))
    _check_layout(layout)
    target = input.dtype.numpy if d is None else _dtype(d)
    at = _place(device(place) if place is not None else input.device)
    if at is not None and at.type == "meta":
        made = wrap(MetaArray(tuple(input.shape), target, _like_strides(input, target, memory_format)))
        return made.requires_grad_(True) if requires_grad else made
    if at is not None:
        return _like_on_device(make, input, target, at, requires_grad, memory_format)
    source = input._a if type(input._a) is ndarray else np.empty(input._a.shape, target)
    if type(source) is ndarray and source.flags.c_contiguous and memory_format in (devices.preserve_format, None):
        return finish(make(source.shape, target), requires_grad, at)
    array = empty_arranged(source, target, memory_format)
    array[...] = make(source.shape, target)
    return finish(array, requires_grad, at)


def _like_on_device(make: Any, input: Tensor, target: np.dtype, place: Any, requires_grad: bool, memory_format: Any) -> Tensor:
    """As `like_tensor` on a CUDA device."""
    from .. import cuda
    from .convert import empty_arranged

    source = input._a if input.is_cuda else cuda.filled(tuple(input.shape), target, None, place)
    array = empty_arranged(source, target, memory_format)
    if make is not _empty_filled:
        kernels.store(array, make((), target))
    made = wrap(array)
    return made.requires_grad_(True) if requires_grad else made


def _like_strides(input: Tensor, target: np.dtype, memory_format: Any) -> tuple[int, ...] | None:
    """Byte strides of a tensor laid out like `input`, worked out on memory that is never touched."""
    from .convert import empty_arranged

    step = input._a.itemsize
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, f"V{step}"), input._a.shape, input._a.strides)
    if _arrays.is_c_contiguous(stand_in) and memory_format in (devices.preserve_format, None):
        return None
    return empty_arranged(stand_in, target, memory_format).strides


empty_like, zeros_like, ones_like = _like(_empty_filled), _like(np.zeros), _like(np.ones)
empty_like.__name__, zeros_like.__name__, ones_like.__name__ = "empty_like", "zeros_like", "ones_like"
empty_like.__doc__ = "An uninitialised tensor shaped like `input`, with its dtype, device and layout by default."
zeros_like.__doc__ = "Zeros shaped like `input`, with its dtype, device and layout by default."
ones_like.__doc__ = "Ones shaped like `input`, with its dtype, device and layout by default."


def full_like(input: Tensor, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
              requires_grad: bool = False, memory_format: Any = devices.preserve_format, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """A tensor shaped like `input` filled with `fill_value`."""
    value = _fill_number("full_like", fill_value)
    return like_tensor(lambda s, d: np.full(s, _as(value, d), d), input, dtype, device, requires_grad, memory_format, layout)


def _new_method(fn: Any, name: str) -> Any:
    def new(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
        if "size" in options:
            size = (options.pop("size"), *size)
        return fn(*size, dtype=dtype or self.dtype, device=self.device if device is None else device, **options)

    new.__name__ = name
    new.__doc__ = f"`{fn.__name__}` with this tensor's dtype and device by default."
    return new


def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Tensor:
    """A copy of `data` with this tensor's dtype and device by default."""
    return tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device, requires_grad=requires_grad)


def empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                  requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """Uninitialised memory seen with the given size and stride."""
    shape, steps = _sizes((size,)), tuple(stride)
    if len(shape) != len(steps):
        raise RuntimeError(f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(steps)})")
    d = _dtype(dtype)
    need = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    place = _place(device)
    if place is not None and place.type == "meta":
        return wrap(MetaArray(shape, d, tuple(s * d.itemsize for s in steps)))
    base = np.empty(need, d)
    if _state.FILL_EMPTY:
        kernel.fill_unset(base)
    return finish(np.lib.stride_tricks.as_strided(base, shape, tuple(s * d.itemsize for s in steps)), requires_grad, place)


# -- from values ---------------------------------------------------------------------------------------------------------


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A copy of `data`: a number, nested sequences, an array or a tensor.

    Args:
        data: floats give the default dtype, ints int64, bools bool; arrays and tensors keep theirs.
        dtype, device: convert to these.
        requires_grad: record what is done with the tensor.
    Raises: ValueError for sequences of uneven length; TypeError for something else, such as a str.

    >>> fb.tensor([[1, 2], [3, 4.5]])
    tensor([[1.0000, 2.0000],
            [3.0000, 4.5000]])
    """
    if isinstance(data, Tensor):
        warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor)."
        )
        made = data.detach().clone().to(device=device or data.device, dtype=dtypes.as_dtype(dtype or data.dtype))
        return made.requires_grad_(True) if requires_grad else made
    return finish(array_of(data, dtype), requires_grad, _place(device))


def array_of(data: Any, d: Any) -> ndarray:
    """`data` copied to a new array. Raises: TypeError, ValueError as PyTorch for values it cannot take."""
    if d is not None:
        d = dtypes.as_dtype(d)
    if isinstance(data, (ndarray, np.generic)):
        _check_byte_order(data)
        found = from_numpy_dtype(data.dtype)
        with np.errstate(all="ignore"):
            return np.array(data, dtype=(d or found).numpy, order="C")
    if isinstance(data, NUMBERS):
        wanted = d or dtypes.of_number(data)
        return np.full((), _element(data, wanted), wanted.numpy)
    if hasattr(data, "__array_interface__") or hasattr(data, "__dlpack__"):
        return array_of(np.asarray(data), d)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'; give a number, a sequence, an array or a tensor")
    if isinstance(data, (dict, set)) or not hasattr(data, "__len__"):
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}; give a number, a sequence, an array or a tensor")
    return _from_nested(data, d)


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
        return _as(value, wanted.numpy)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(wanted.numpy)[()]


def _of_plain_numbers(data: Any, d: Any) -> ndarray | None:
    """What lists and tuples of Python numbers of one class make, where that takes no conversion to look after; else None."""
    shape, level = [len(data)], data
    kinds = set(map(type, level))
    while kinds == {list} or kinds == {tuple}:
        lengths = set(map(len, level))
        if len(lengths) > 1:
            return None
        shape += lengths
        level = list(chain.from_iterable(level))
        kinds = set(map(type, level))
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    wanted = d or (dtypes.of_number(kind()) if kind in (bool, int, float) else None)
    if wanted is None or (kind, wanted) not in _UNCONVERTED:
        return None
    try:
        with np.errstate(all="ignore"):
            return np.array(level, wanted.numpy).reshape(shape)
    except OverflowError:
        return None


_UNCONVERTED = frozenset(
    [(bool, dtypes.bool), (int, dtypes.int64)] + [(kind, d) for kind in (int, float) for d in (dtypes.float32, dtypes.float64)]
)


def _from_nested(data: Any, d: Any) -> ndarray:
    if data.__class__ is list or data.__class__ is tuple:
        made = _of_plain_numbers(data, d)
        if made is not None:
            return made
    shape, leaves = _flatten(data)
    if d is None:
        d = _infer(leaves)
    plain = d.numpy
    values = [x.item() if isinstance(x, Tensor) else x for x in leaves]
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
        if plain.isbuiltin == 1:
            return np.array(values, dtype=plain).reshape(shape)
        wide = np.complex64 if d.is_complex else np.float64
        return kernels.cast(np.array(values, dtype=wide), plain).reshape(shape)


def _flatten(data: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Shape and leaves of nested sequences. Raises: ValueError naming where lengths differ."""
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
            following += list(x)
        shape.append(n)
        level = following
    for x in level:
        if _is_sequence(x):
            raise TypeError(
                f"expected a number at dim {len(shape)}, as its neighbour is one, but got a {type(x).__name__} of length {len(x)}"
            )
    return tuple(shape), level


def _is_sequence(x: Any) -> bool:
    if isinstance(x, (list, tuple, range)):
        return True
    if isinstance(x, (Tensor, ndarray)):
        return x.ndim > 0
    return hasattr(x, "__len__") and hasattr(x, "__getitem__") and not isinstance(x, (str, bytes))


def _infer(leaves: list[Any]) -> dtype:
    for x in leaves:
        if isinstance(x, (str, bytes)):
            raise ValueError(f"too many dimensions '{type(x).__name__}': {x!r} is not a number")
        if not isinstance(x, (Tensor, *NUMBERS)):
            raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")
    kinds = [dtypes.from_numpy_dtype(x.dtype) if isinstance(x, np.generic) else x.dtype if isinstance(x, Tensor) else dtypes.of_number(x)
             for x in leaves]  # fmt: skip
    if not kinds:
        return dtypes.get_default_dtype()
    found = kinds[0]
    for k in kinds[1:]:
        if k is not found:
            found = dtypes.promote_types(found, k)
    return found


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, sharing memory with a Tensor or array where dtype and device allow."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype) if dtype is not None or device is not None else data
    if isinstance(data, ndarray) and (dtype is None or dtype.numpy == data.dtype):
        made = from_numpy(data)
        return made if device is None else made.to(device)
    return tensor(data, dtype=dtype, device=device)


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None, requires_grad: bool = False) -> Tensor:
    """`obj` as a tensor, sharing memory when possible.

    Args:
        obj: what `tensor` takes, or an object with the buffer protocol or DLPack.
        copy: True always copies, False never does, None where it must.
    Raises: ValueError when copy=False is impossible.
    """
    if isinstance(obj, (Tensor, ndarray)) or hasattr(obj, "__dlpack__"):
        shared = obj if isinstance(obj, Tensor) else from_numpy(obj) if isinstance(obj, ndarray) else from_dlpack(obj)
        made = shared.to(dtype=dtype, device=device)
        if copy is False and made is not shared:
            raise ValueError("asarray: can't alias with a different dtype or device; copy=False was given")
        if copy:
            made = made.clone() if made is shared else made
        made = made.detach() if isinstance(obj, Tensor) and (requires_grad or made is not obj) and not made.requires_grad else made
        return made.requires_grad_(True) if requires_grad else made
    if copy is False:
        raise ValueError(f"asarray: can't alias arbitrary sequence of type {type(obj).__name__}; copy=False was given")
    if isinstance(obj, (memoryview, bytes, bytearray)):
        return frombuffer(obj, dtype=dtype or dtypes.get_default_dtype(), requires_grad=requires_grad)
    return tensor(obj, dtype=dtype, device=device, requires_grad=requires_grad)


_NATIVE = frozenset(d.numpy for d in dtypes.ALL)


def from_numpy(array: Any) -> Tensor:
    """A tensor over the memory of a numpy array. Raises: TypeError for another type or dtype, ValueError for negative strides."""
    if array.__class__ is ndarray and array.dtype in _NATIVE:
        flags = array.flags
        # A dimension of size 1 may have any stride in an array that counts as contiguous.
        if flags.c_contiguous and flags.writeable and array.size and 1 not in array.shape:
            made = wrap(array)
            if array.base is not None:
                made._v[2] = (array,)
            return made
    if not isinstance(array, ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    _check_byte_order(array)
    from_numpy_dtype(array.dtype)
    step = array.itemsize
    if any([s < 0 for s in array.strides]):  # noqa: C419  # a generator takes three times as long for so few
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently "
            "supported. (You can probably work around this by making a copy of your array with array.copy().)"
        )
    if any([s % step for s in array.strides]):  # noqa: C419
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy array to reallocate the memory.")
    if not array.flags.writeable:
        warn_once(
            "The given NumPy array is not writable, and writing to the tensor made of it raises an error. You may want to copy the "
            "array to protect its data or make it writable before converting it to a tensor."
        )
    plain = array if type(array) is ndarray else array.view(ndarray)
    made = wrap(plain)
    if plain.base is not None and plain.size:
        made._v[2] = (plain,)  # the storage begins where the given array does
    return made


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A one-dimensional tensor over the memory of an object with the buffer protocol, which stays alive as long.

    Args:
        dtype: of the elements; nothing in the buffer says it.
        count: how many elements; -1 for all there are.
        offset: where they begin, in bytes.
    Warns where the buffer cannot be written to.

    >>> fb.frombuffer(bytearray(b"ab"), dtype=fb.uint8)
    tensor([97, 98], dtype=torch.uint8)
    """
    size, step = memoryview(buffer).nbytes, dtype.itemsize
    if size == 0 or count == 0:
        raise ValueError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({size} bytes) minus 1")
    if count < 0 and (size - offset) % step:
        raise ValueError(f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a multiple of element size ({step})")
    if count > 0 and offset + count * step > size:
        raise ValueError(
            f"requested buffer length ({count} * {step} bytes) after offset ({offset} bytes) must not be greater than "
            f"actual buffer length ({size} bytes)"
        )
    array = np.frombuffer(buffer, dtype.numpy, count, offset)
    if not array.flags.writeable:
        warn_once("The given buffer is not writable, and writing to the tensor made of it raises an error. You may want to copy it.")
    made = wrap(array)
    return made.requires_grad_(True) if requires_grad else made


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor over memory exported by another library through DLPack: an object of its, or a capsule."""
    if isinstance(ext_tensor, Tensor):
        return wrap(ext_tensor._a)
    if hasattr(ext_tensor, "__dlpack__"):
        return wrap(np.from_dlpack(ext_tensor))
    # A capsule does not say whether its memory may be written; numpy assumes not, PyTorch assumes so.
    return wrap(np.asarray(_Writable(np.from_dlpack(_Capsule(ext_tensor)))))


class _Writable:
    """The memory of `array`, which it keeps alive, as memory that may be written."""

    def __init__(self, array: ndarray) -> None:
        self.array = array
        there = array.__array_interface__
        self.__array_interface__ = {**there, "data": (there["data"][0], False)}


class _Capsule:
    """A DLPack capsule as the object that exports it, which is what numpy takes; in host memory."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule that another library takes the memory of `tensor` from, once."""
    return tensor.__dlpack__()


def legacy_tensor(*args: Any, dtype: Any = None, device: Any = None, data: Any = None) -> Tensor:
    """What ``torch.Tensor(...)`` makes: the default dtype from sizes, a copy of a sequence, another view of a Tensor or storage.

    Raises: TypeError for a storage, or where a dtype is asked for a Tensor, of another dtype.
    """
    from ..storage import TypedStorage, UntypedStorage

    if data is not None:
        args = (data, *args)
    d = dtype or dtypes.get_default_dtype()
    if not args:
        return wrap(np.empty((0,), d.numpy))
    first = args[0]
    if isinstance(first, (TypedStorage, UntypedStorage)):
        if isinstance(first, TypedStorage) and first.dtype is not d:
            raise TypeError(f"expected a storage of {d.name}, got one of {first.dtype.name}")
        return empty(0, dtype=d).set_(first)
    if isinstance(first, Tensor) and len(args) == 1:
        if dtype is not None and first.dtype is not dtype:
            raise TypeError(f"expected a Tensor of {dtype.name} (got {first.dtype.name}); convert it with .to(dtype)")
        return first.detach()
    if isinstance(first, devices.Size) or (isinstance(first, int) and not isinstance(first, bool)):
        return empty(*args, dtype=d, device=device)
    if isinstance(first, (list, tuple, ndarray)):
        return tensor(first, dtype=d, device=device)
    raise TypeError(f"new(): data must be a sequence (got {type(first).__name__})")


def new(self: Tensor, *args: Any, device: Any = None) -> Tensor:
    """As ``torch.Tensor(...)`` with this tensor's dtype; older programs make new tensors so."""
    return legacy_tensor(*args, dtype=self.dtype, device=self.device if device is None else device)


# -- ranges --------------------------------------------------------------------------------------------------------------


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """``start, start + step, ...`` up to but not including `end`: ``ceil((end - start) / step)`` elements.

    With one argument, that is the end. All ints give int64, else the default dtype.
    Raises: RuntimeError for a step of 0 or of the wrong sign.

    >>> fb.arange(1, 2, 0.5)
    tensor([1.0000, 1.5000])
    """
    _check_layout(layout)
    if end is None:
        start, end = 0, start
    start, end, step = (x.item() if isinstance(x, Tensor) else x for x in (start, end, step))
    for x in (start, end, step):
        if isinstance(x, float) and not math.isfinite(x):
            raise RuntimeError(f"unsupported range: {start} -> {end}")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError(f"upper bound and lower bound inconsistent with step sign: {start}, {end}, {step}")
    if out is not None:
        dtype = dtype or out.dtype
    if dtype is None:
        dtype = dtypes.get_default_dtype() if any(isinstance(x, float) for x in (start, end, step)) else dtypes.int64
    else:
        dtype = dtypes.as_dtype(dtype)
    if dtype.category in (dtypes.BOOL, dtypes.COMPLEX):
        raise NotImplementedError(f"arange: not implemented for {dtype.name}; give an integer or floating dtype")
    if dtype.category == dtypes.INTEGER:
        whole = (int(start), int(end), int(step))
        if whole[2] == 0:
            raise ValueError(f"arange: step {step} is 0 as an integer; give a floating dtype")
        count = max(0, -(-(whole[1] - whole[0]) // whole[2]))
        start, step = whole[0], whole[2]
    else:
        count = max(0, math.ceil((end - start) / step))
    made = finish(kernel.counted(count, start, step, dtype.numpy), requires_grad, _place(device))
    return made if out is None else out.resize_(made.shape).copy_(made)


def range_(start: Any = 0, end: Any = None, step: Any = 1, *, out: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """As `arange`, including `end`; deprecated in PyTorch.

    Args:
        options: `layout`, `device`, `requires_grad`, as everywhere.
    """
    warn(
        "torch.range is deprecated, because its behaviour is inconsistent with Python's range builtin: it includes the end. "
        "Use torch.arange, which produces values in [start, end)."
    )
    if end is None:
        raise TypeError("range() missing 1 required positional argument: 'end'")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    count = int((end - start) / step) + 1
    d = dtype or (out.dtype if out is not None else dtypes.get_default_dtype())
    values = start + step * np.arange(count, dtype=np.float64)
    made = finish(values.astype(d.numpy), options.get("requires_grad", False), _place(options.get("device")))
    return made if out is None else out.resize_(made.shape).copy_(made)


def linspace(start: Any, end: Any, steps: int, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """`steps` values evenly spaced from `start` to `end`, both included."""
    start, end = _endpoints("linspace", start, end)
    _check_steps("linspace", steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    d = dtype or (out.dtype if out is not None else None)
    if d is None:
        d = dtypes.default_complex() if isinstance(start, complex_type) or isinstance(end, complex_type) else dtypes.get_default_dtype()
    if isinstance(start, complex_type) and not d.is_complex or isinstance(end, complex_type) and not d.is_complex:
        raise RuntimeError(f"torch.linspace(): inferred dtype complex can't be safely cast to passed dtype {d}")
    made = finish(_spaced(start, end, steps, d), requires_grad, _place(device))
    return made if out is None else out.resize_(made.shape).copy_(made)


complex_type = complex


def _endpoints(name: str, *ends: Any) -> list[Any]:
    made = []
    for x in ends:
        if isinstance(x, Tensor):
            if x.ndim:
                raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors, got shape {tuple(x.shape)}")
            x = x.item()
        made.append(x)
    return made


def _check_steps(name: str, steps: Any) -> None:
    if not isinstance(steps, (int, np.integer)):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")


def _spaced(start: Any, end: Any, steps: int, d: dtype) -> ndarray:
    """Counted from the nearer end, so that both ends come out exact."""
    if steps == 1:
        return np.array([start]).astype(d.numpy)
    work = np.complex128 if d.is_complex else np.float64
    if d.category == dtypes.INTEGER:
        start, end = int(start), int(end)
    at = np.arange(steps, dtype=np.float64)
    if d.name == "float32":
        work = np.float32
    made = kernel.spaced(steps, start, end, d.numpy) if d.is_floating_point else None
    if made is not None:
        return made
    step = (work(end) - work(start)) / work(max(steps - 1, 1))
    if d.name == "float32":
        # The product of two float32 is exact in float64, so each number is rounded once.
        start, end, step = float(work(start)), float(work(end)), float(step)
        work = float
    values = np.where(at < steps // 2, work(start) + step * at, work(end) - step * (steps - 1 - at))
    return values.astype(d.numpy)


def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, out: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """`base` to the powers from `start` to `end`, `steps` of them, evenly spaced.

    Args:
        options: `layout`, `device`, `requires_grad`, as everywhere.

    >>> fb.logspace(0, 3, steps=4, base=2)
    tensor([1., 2., 4., 8.])
    """
    start, end = _endpoints("logspace", start, end)
    _check_steps("logspace", steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    d = dtype or (out.dtype if out is not None else dtypes.get_default_dtype())
    if d.category == dtypes.INTEGER:
        start, end = int(start), int(end)
    if steps == 1:
        powers = np.array([float(base) ** start])
    else:
        inner = _spaced(start, end, steps, dtypes.complex128 if d.is_complex else dtypes.float64)
        powers = np.power(type(inner[0])(base) if steps else base, inner)
    with np.errstate(all="ignore"):
        made = finish(powers.astype(d.numpy), options.get("requires_grad", False), _place(options.get("device")))
    return made if out is None else out.resize_(made.shape).copy_(made)


def eye(n: int, m: int | None = None, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """An ``(n, m)`` matrix with ones on the diagonal."""
    if n < 0 or (m is not None and m < 0):
        raise RuntimeError(f"n and m must be greater or equal to 0, got {n} and {m}")
    d = dtype or (out.dtype if out is not None else None)
    kind = _dtype(d)
    made = finish(np.eye(n, m, dtype=kind if kind.isbuiltin == 1 else None).astype(kind), requires_grad, _place(device))
    return made if out is None else out.resize_(made.shape).copy_(made)


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Tensor:
    """A 0-d tensor of the default dtype holding `s`."""
    return tensor(s, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad)


@composite(surface=FUNCTION | OUT)
def polar(abs, angle):
    """Complex values from magnitudes and angles in radians."""
    from .parts import complex as complex_of

    for name, x in (("abs", abs), ("angle", angle)):
        if not isinstance(x, Tensor):
            raise TypeError(f"polar(): argument '{name}' must be Tensor, not {type(x).__name__}")
    if abs.dtype is not angle.dtype:
        raise RuntimeError(f"polar: expected abs and angle of one dtype, but got {abs.dtype} and {angle.dtype}; convert one of them")
    return complex_of(abs * angle.cos(), abs * angle.sin())


refuse_other_dtype_out(polar, lambda abs: abs.dtype.to_complex())


# -- filling -------------------------------------------------------------------------------------------------------------


@composite(surface=FUNCTION | METHOD)
def fill(input, value):
    """A tensor like `input` filled with `value`."""
    return input.clone().fill_(value)


def _written_directly(self: Tensor) -> bool:
    """Whether filling `self` needs neither recording nor a check."""
    if type(self._a) is not ndarray or not self._a.flags.writeable:
        return False
    if _state.SLOW and (type(self) is not Tensor or _state.local.modes or _state.local.interpreters):
        return False
    return self._n is None and (self._b is None or self._b[0]._n is None) or not _state.grad_enabled()


def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to `value`, a number or 0-d tensor."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
        return self.copy_(value)
    if _written_directly(self):
        kernel.refill(self._a, _as(value, self._a.dtype))
        bump(self)
        return self
    kind = self.dtype.numpy
    return self.copy_(wrap(MetaArray((), kind)) if self.is_meta else wrap(np.full((), _as(value, kind), kind)))


def zero_(self: Tensor) -> Tensor:
    """Set every element to 0."""
    if _written_directly(self):
        kernel.refill(self._a, 0)
        bump(self)
        return self
    return fill_(self, 0)


for _fn, _name in ((empty, "new_empty"), (zeros, "new_zeros"), (ones, "new_ones"), (full, "new_full"),
                   (empty_strided, "new_empty_strided")):  # fmt: skip
    setattr(Tensor, _name, _new_method(_fn, _name))
Tensor.new = new  # type: ignore[attr-defined]
Tensor.new_tensor = new_tensor  # type: ignore[attr-defined]
Tensor.fill_, Tensor.zero_ = fill_, zero_  # type: ignore[attr-defined]

FUNCTIONS = {
    fn.__name__.rstrip("_"): fn
    for fn in (empty, zeros, ones, full, empty_like, zeros_like, ones_like, full_like, empty_strided, tensor, as_tensor,
               asarray, from_numpy, frombuffer, from_dlpack, arange, range_, linspace, logspace, eye, scalar_tensor)
}  # fmt: skip
FUNCTIONS["fill_"], FUNCTIONS["zero_"], FUNCTIONS["to_dlpack"] = fill_, zero_, to_dlpack
