"""Making tensors from nothing, from Python values, and from other libraries' memory."""

from __future__ import annotations

import inspect
import math
from functools import wraps
from itertools import chain, islice
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.creation import fill as kernel
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ... import _arrays, _state, devices, dtypes
from ..._arrays import HeldArray, MetaArray, ndarray
from ..._kinds import KindArray
from ..._state import interpreted
from ..._symbolic import SymInt
from ..._warn import warn, warn_once
from ...devices import device
from ...dtypes import FLOAT32, FLOAT64, dtype, from_numpy_dtype
from ...tensor import Tensor, bump, wrap
from .. import _dispatch
from .._makers import refusing, usually
from .._parameters import input_of
from .._promote import NUMBERS
from .._spec import (
    FUNCTION,
    METHOD,
    NUMPY_NAMES,
    OUT,
    check_room,
    composite,
    need_bools,
    need_int,
    out_of_shape,
    refuse_other_dtype_out,
)
from .._spec.writing import refuse_read_only

IN_FORCE, PLACED, MARKED = _state.IN_FORCE, _state.PLACED, _state.MARKED
_state.share(globals(), "IN_FORCE", "PLACED", "MARKED")  # keeps them as they are there
next_seq = _state.next_seq


def _sizes(size: tuple[Any, ...], named: Any = None) -> tuple[int, ...]:
    """The shape in ``zeros(2, 3)``, ``zeros((2, 3))`` and ``zeros(size=(2, 3))``. Raises: TypeError if it is missing."""
    if named is not None:
        if size:
            raise TypeError(f"argument 'size' is given twice, by position as {size} and by name as {named}")
        if not isinstance(named, (tuple, list)):
            raise TypeError(f"argument 'size' must be tuple of ints, not {type(named).__name__}")
        size = (named,)
    if not size:
        raise TypeError("missing argument 'size'; give ints or a tuple of them, () for a tensor without dimensions")
    if len(size) == 1 and not isinstance(size[0], (int, np.integer, SymInt)):
        size = size[0] if not isinstance(size[0], Tensor) else (size[0],)
    if size.__class__ is not tuple:
        if not isinstance(size, (tuple, list)):
            raise TypeError(f"argument 'size' must be tuple of ints, not {type(size).__name__}")
        size = tuple(size)
    for n in size:
        if n.__class__ is not int:
            if size[0].__class__ is bool or isinstance(size[0], np.bool_):  # by the first PyTorch tells whether these are sizes
                raise TypeError(f"argument 'size' must be tuple of ints, but found element of type bool at pos 0: {size}")
            size = tuple([_index(n) for n in size])
            break
    total = 1
    for n in size:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(size)}. Dimension size must be non-negative.")
        total *= n
    if total.__class__ is int and total >= 1 << 63:
        if max(size) >= 1 << 63:
            raise TypeError("argument 'size' failed to unpack: Overflow when unpacking long long, sizes are below 2**63")
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(size)}: no array can be that large")
    return size


def _index(n: Any) -> int:
    from operator import index

    if n.__class__ is SymInt:
        return n
    try:
        return int(index(n))
    except TypeError:
        raise TypeError(f"sizes must be ints, but found element of type {type(n).__name__}: {n!r}") from None


def made_or_refused(make: Any, shape: tuple[int, ...], d: np.dtype) -> Any:
    """``make(shape, d)``. Raises: RuntimeError where no memory holds it."""
    try:
        return make(shape, d)
    except MemoryError:
        bytes_wanted = math.prod(shape) * d.itemsize
        raise RuntimeError(f"can't allocate memory: you tried to allocate {bytes_wanted} bytes, for sizes={list(shape)}") from None
    except ValueError as error:  # what numpy says where the bytes, or a dimension that has none, exceed 64 bits
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}: {error}") from None


def _place(place: Any) -> device | None:
    """The device to make a tensor on; None for the CPU."""
    if PLACED and _state.local.stand_in is not None:
        return _state.local.stand_in
    if place is None:
        place = _state.default_device()
        if place is None:
            return None
    place = device(place)
    return None if place.type == "cpu" else place


def on_host(place: Any) -> bool:
    """Whether a tensor that is asked for on `place` is sure to be made in host memory."""
    if PLACED:
        return False
    return place is None or (place.__class__ is device and place.type == "cpu" or place.__class__ is str and place == "cpu")


def refuse_names(names: Any) -> None:
    """Raise NotImplementedError for names given to the dimensions of a new tensor."""
    raise NotImplementedError(f"named tensors are not built: got names={names!r}; leave it out and address dimensions by number")


def finish(array: Any, requires_grad: bool, place: Any, pin_memory: bool = False) -> Tensor:
    """A leaf over `array`, on `place`."""
    if place is not None:
        if place.type == "meta":
            array = MetaArray(array.shape, array.dtype)
        else:
            from ..._cuda.device import to_device

            array = to_device(array, place)
    if pin_memory is not False:
        refuse_pinning("empty", pin_memory)
    made = wrap(array)
    return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)


def refuse_pinning(name: str, pin_memory: Any) -> None:
    """Raise what PyTorch does for a `pin_memory` that is not False, where there is no device to pin memory for; None is False."""
    if pin_memory is not None:
        need_bools(name, pin_memory=pin_memory)
        if pin_memory:
            raise RuntimeError(f"{name}: pin_memory=True requires a CUDA or other accelerator backend, and no device is available")


def made_at(place: Any, shape: tuple[int, ...], d: np.dtype, make: Any, requires_grad: bool = False, out: Any = None) -> Tensor:
    """A leaf over the array ``make()`` of `shape` and dtype `d`, on `place`, or where `out` is; on meta nothing is made."""
    if place is None and out is not None and out._lacks_values or place is not None and place.type == "meta":
        made = wrap(MetaArray(shape, d))
        return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    return finish(make(), requires_grad, place)


def _dtype(d: Any) -> np.dtype:
    if d is None:
        return dtypes.get_default_dtype().numpy
    return d.numpy if d.__class__ is dtype else dtypes.as_dtype(d).numpy


def _quickly(make: Any, sizes: tuple[Any, ...], d: Any, otherwise: Any = None) -> Tensor | None:
    """A tensor in host memory as ``make(shape, numpy dtype)`` fills it; None where arguments take a closer look.

    Without a dtype `d` its numpy dtype is `otherwise`, or the default one.
    """
    if not sizes or sizes[0] is True or sizes[0] is False:
        return None
    try:
        plain = d.numpy if d is not None else otherwise or dtypes._default.numpy
        shape = sizes if len(sizes) != 1 else sizes[0]
        if shape.__class__ not in SHAPES or shape.__class__ is not int and len(shape) and shape[0].__class__ is bool:
            return None
        return hot_calls.over(make(shape, plain))
    except (TypeError, ValueError, AttributeError, MemoryError):
        return None                                   # the fallback raises the error


_IN_HOST_MEMORY = "requires_grad is pin_memory is False and (device is None and not PLACED or on_host(device))"
SHAPES = frozenset((int, tuple, list, devices.Size))  # numpy takes other sequences too


def _check_layout(layout: Any) -> None:
    if layout is not None and layout is not devices.strided:
        if not isinstance(layout, devices.layout):
            raise TypeError(f"argument 'layout' must be torch.layout, not {type(layout).__name__}")
        raise NotImplementedError(f"creation with layout={layout} is not built yet; make a strided tensor and convert it")


def _sparse(shape: tuple[int, ...], layout: Any, dtype: Any, place: Any, requires_grad: bool) -> Tensor:
    """Zeros in another layout than strided memory: no values."""
    from ..kinds.sparse import zeros_of

    return zeros_of(shape, layout, dtype, place, requires_grad)


def _allocate(make: Any, shape: tuple[int, ...], d: np.dtype, place: Any, requires_grad: bool, memory_format: Any = None) -> Tensor:
    if place is not None and place.type == "meta":
        made = wrap(MetaArray(shape, d))
        return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if place is not None:
        return _on_device(make, shape, d, place, requires_grad, memory_format)
    if memory_format is not None and memory_format is not devices.contiguous_format:
        from .convert import empty_arranged

        array = empty_arranged(made_or_refused(np.empty, shape, d), d, memory_format)
        array[...] = make(shape, d)
    else:
        array = made_or_refused(make, shape, d)
    return finish(array, requires_grad, place)


def _on_device(make: Any, shape: tuple[int, ...], d: np.dtype, place: Any, requires_grad: bool, memory_format: Any) -> Tensor:
    """As `_allocate` on a CUDA device, where the value that `make` repeats is written."""
    from ..._cuda.device import filled

    value = None if make is _empty_filled and not _state.FILL_EMPTY else make((), d)
    array = filled(shape, d, None, place)
    if memory_format is not None and memory_format is not devices.contiguous_format:
        from .convert import empty_arranged

        array = empty_arranged(array, d, memory_format)
    if value is not None:
        kernels.store(array, value)
    made = wrap(array)
    return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)


@usually(f"out is layout is size is names is memory_format is None and {_IN_HOST_MEMORY}", "_quickly(_new_empty, sizes, dtype)")
def empty(*sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
          device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, memory_format: Any = None, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` with whatever was in memory.

    Args:
        sizes, size: the shape, as several ints or one sequence.
    """
    if pin_memory is not False:
        refuse_pinning("empty", pin_memory)
    if IN_FORCE and interpreted():
        given = {
            "size": _sizes(sizes, size), "out": out, "dtype": dtype,
            "layout": layout, "device": device, "pin_memory": pin_memory, "memory_format": memory_format,
        }
        if (made := _dispatch.made_there("empty", given, requires_grad)) is not None:
            return made
    here = device is None and not PLACED or on_host(device)
    if here and out is layout is size is names is memory_format is None:
        made = _quickly(_empty_filled if _state.FILL_EMPTY else np.empty, sizes, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if layout is not None and layout is not devices.strided:
        return _sparse(_sizes(sizes, size), layout, dtype, device, requires_grad)
    if names is not None:
        refuse_names(names)
    if out is not None:
        out_of_shape("empty", out, _sizes(sizes, size), dtype, device)
        if _state.FILL_EMPTY and not out._lacks_values:
            kernel.fill_unset(out._array)
        return out
    if memory_format is devices.preserve_format:
        raise RuntimeError("empty: unsupported memory format torch.preserve_format; there is nothing to preserve")
    return _allocate(_empty_filled, _sizes(sizes, size), _dtype(dtype), _place(device), requires_grad, memory_format)


def _empty_filled(shape: Any, d: Any) -> Any:
    made = np.empty(shape, d)
    return kernel.fill_unset(made) if _state.FILL_EMPTY else made


@usually(f"out is layout is size is names is None and {_IN_HOST_MEMORY}", "_quickly(np.zeros, sizes, dtype)")
def zeros(*sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
          device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` filled with 0.

    Args:
        sizes, size: the shape, as several ints or one sequence.
    """
    if pin_memory is not False:
        refuse_pinning("zeros", pin_memory)
    if IN_FORCE and interpreted():
        given = {"size": _sizes(sizes, size), "out": out, "dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory}
        if (made := _dispatch.made_there("zeros", given, requires_grad)) is not None:
            return made
    if out is layout is size is names is None and (device is None and not PLACED or on_host(device)):
        made = _quickly(np.zeros, sizes, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if names is not None:
        refuse_names(names)
    if out is not None:
        return out_of_shape("zeros", out, _sizes(sizes, size), dtype, device).zero_()
    if layout is not None and layout is not devices.strided:
        return _sparse(_sizes(sizes, size), layout, dtype, device, requires_grad)
    return _allocate(np.zeros, _sizes(sizes, size), _dtype(dtype), _place(device), requires_grad)


def _ones(shape: Any, d: np.dtype) -> ndarray:
    made = np.empty(shape, d)
    kernel.refill(made, 1)
    return made


@usually(f"out is layout is size is names is None and {_IN_HOST_MEMORY}", "_quickly(_ones, sizes, dtype)")
def ones(*sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
         device: Any = None, requires_grad: bool = False,
         pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` filled with 1.

    Args:
        sizes, size: the shape, as several ints or one sequence.
    """
    if pin_memory is not False:
        refuse_pinning("ones", pin_memory)
    if IN_FORCE and interpreted():
        given = {"size": _sizes(sizes, size), "out": out, "dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory}
        if (made := _dispatch.made_there("ones", given, requires_grad)) is not None:
            return made
    if out is layout is size is names is None and (device is None and not PLACED or on_host(device)):
        made = _quickly(_ones, sizes, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if names is not None:
        refuse_names(names)
    if out is not None:
        return out_of_shape("ones", out, _sizes(sizes, size), dtype, device).fill_(1)
    _check_layout(layout)
    return _allocate(_ones, _sizes(sizes, size), _dtype(dtype), _place(device), requires_grad)


@usually(f"out is layout is names is None and {_IN_HOST_MEMORY}", "_filled_quickly(size, fill_value, dtype)")
def full(size: Any, fill_value: Any, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` filled with `fill_value`, whose kind decides the dtype by default.

    A bool gives bool, an int int64, a float the default dtype, a complex number the complex of it.
    """
    if pin_memory is not False:
        refuse_pinning("full", pin_memory)
    if IN_FORCE and interpreted():
        given = {
            "size": size, "fill_value": fill_value, "out": out,
            "dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory,
        }
        if (made := _dispatch.made_there("full", given, requires_grad)) is not None:
            return made
    if out is layout is names is None and (device is None and not PLACED or on_host(device)):
        made = _filled_quickly(size, fill_value, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if isinstance(size, int):
        raise TypeError("full(): argument 'size' (position 1) must be tuple of ints, not int")
    if names is not None:
        refuse_names(names)
    value, asked = _fill_number("full", fill_value), dtype
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
    elif out is not None:
        dtype = out.dtype
    else:
        dtype = dtypes.of_number(value)
    shape = _sizes((size,))
    if out is not None:
        return out_of_shape("full", out, shape, asked, device).fill_(value)
    _check_layout(layout)
    return _allocate(lambda s, d: kernel.filled(s, d, _as(value, d, math.prod(s))), shape, dtype.numpy, _place(device), requires_grad)


_HALF_RANGE = 1 << 62
_PRESERVE = devices.preserve_format


def _fits_plainly(value: Any, d: np.dtype) -> bool:
    """Whether `value`, of exactly Python's float, int or bool, can be stored as `d` without a question."""
    kind = value.__class__
    if kind is float:
        return (d is FLOAT32 and -1e38 < value < 1e38) or d is FLOAT64
    if kind is int:
        return (d is _INT64 and -_HALF_RANGE < value < _HALF_RANGE) or ((d is FLOAT32 or d is FLOAT64) and -16777216 <= value <= 16777216)
    return kind is bool and d is _B1


_INT64, _B1 = np.dtype(np.int64), np.dtype(np.bool_)


def _filled_quickly(size: Any, value: Any, d: Any) -> Tensor | None:
    """`full` of a few elements in host memory, of the commonest dtypes; None for everything else."""
    if size.__class__ is not tuple and size.__class__ is not list or True in size and any(n.__class__ is bool for n in size):
        return None
    kind = value.__class__
    try:
        if d is None:
            array = np.empty(size, dtypes._default.numpy if kind is float else _INT64 if kind is int else _B1)
        else:
            array = np.empty(size, d.numpy)
    except (TypeError, ValueError, AttributeError, MemoryError):
        return None
    if not _fits_plainly(value, array.dtype):
        return None
    kernel.refill(array, value)
    return hot_calls.over(array)


def _fill_number(name: str, value: Any) -> Any:
    """The number to fill with, which may come as a 0-d Tensor without history."""
    if isinstance(value, Tensor):
        if value.ndim or value._node is not None:
            raise TypeError(f"{name}(): argument 'fill_value' must be Number, not a Tensor of shape {tuple(value.shape)} that "
                            f"{'requires grad' if value._node is not None else 'has dimensions'}")  # fmt: skip
        return value.item()
    if not isinstance(value, NUMBERS):
        raise TypeError(f"{name}(): argument 'fill_value' must be Number, not {type(value).__name__}")
    return value


def _as(value: Any, d: np.dtype, count: int = 0) -> Any:
    """`value` as a scalar of `d`; negative integers wrap for unsigned types. Raises: RuntimeError if it does not fit.

    Args:
        count: of the elements that it is for. A single one of a half type becomes infinite, as in PyTorch.
    """
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"int too big to convert: integers are from -2**63 to 2**64 - 1, got {value}")
    if not isinstance(value, NUMBERS):
        raise TypeError(f"fill_value must be Number, not {type(value).__name__}")
    if count != 1 or d.itemsize != 2 or d.kind in "iu" or isinstance(value, (complex, np.complexfloating)):
        dtypes.check_number(value, from_numpy_dtype(d))
    if d.kind == "u" and isinstance(value, (int, np.integer)):
        return int(value) & ((1 << d.itemsize * 8) - 1)
    if isinstance(value, (complex, np.complexfloating)) and d.kind not in "cb" and d.name != "complex32":
        value = value.real
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(d)[()]


def _like(make: Any) -> Any:
    def like(input: Any = ..., _: Any = ..., dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
             memory_format: Any = devices.preserve_format, pin_memory: bool = False, x: Any = None, a: Any = None,
             x1: Any = None) -> Tensor:  # fmt: skip
        if pin_memory is not False:
            refuse_pinning(like.__name__, pin_memory)
        if _ is not ... or x is not None or a is not None or x1 is not None or input is ...:
            input = input_of(like.__name__, input, {"x": x, "a": a, "x1": x1}, _)
        if IN_FORCE and interpreted() or getattr(input, "_array", None).__class__ is HeldArray:
            given = {"self": input, "dtype": dtype, "layout": layout, "device": device, "pin_memory": False}
            given["memory_format"] = None if memory_format is _PRESERVE else memory_format
            if (seen := _dispatch.made(like.__name__, given, requires_grad)) is not None:
                return seen
        plainly = memory_format is _PRESERVE and layout is None and (device is None or on_host(device))
        if plainly and input.__class__ in _dispatch.SINGLE and isinstance(input, Tensor) and not (IN_FORCE and interpreted()):
            array = input._array
            if dtype is None and array.__class__ is ndarray and array.flags.c_contiguous:
                made = hot_calls.over(make(array.shape, array.dtype))
            else:
                made = _like_quickly(make, array, dtype)
            if made is not None:
                return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
        if not isinstance(input, Tensor):
            raise TypeError(f"{like.__name__}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return like_tensor(make, input, dtype, device, requires_grad, memory_format, layout)

    of_plain = "input.__class__ in _dispatch.SINGLE and isinstance(input, Tensor) and _ is ... and layout is x is a is x1 is None"
    usually(f"{of_plain} and memory_format is _PRESERVE and {_IN_HOST_MEMORY}", "_like_quickly(make, input._array, dtype)", make=make)(like)

    def declared(input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
                 memory_format: Any = devices.preserve_format, pin_memory: bool = False) -> None:  # fmt: skip
        pass

    like.__signature__ = inspect.signature(declared)  # pyright: ignore[reportFunctionMemberAccess]  # which `inspect` reads
    return like


def _like_quickly(make: Any, a: Any, d: Any) -> Tensor | None:
    """A tensor as ``make(shape, dtype)`` fills it, in the layout of the host array `a` if that is a plain one; else None."""
    if a.__class__ is not ndarray or d is not None and d.__class__ is not dtype:
        return None
    if a.flags.c_contiguous:
        return hot_calls.over(make(a.shape, a.dtype if d is None else d.numpy))
    if a.ndim == 2 and a.flags.f_contiguous:
        return hot_calls.over(make(a.shape[::-1], a.dtype if d is None else d.numpy).T)
    return None


def like_tensor(make: Any, input: Tensor, d: Any, place: Any, requires_grad: bool, memory_format: Any, layout: Any = None) -> Tensor:
    """A tensor shaped and, unless `memory_format` says otherwise, laid out like `input`."""
    from .convert import arranged_strides, empty_arranged

    if _state.INTERPRETED and hasattr(input, "_shaped_alike"):
        return input._shaped_alike(lambda x: like_tensor(make, x, d, place, requires_grad, memory_format, layout))
    if not isinstance(input, Tensor):
        raise TypeError(f"argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if isinstance(input._array, KindArray) and layout in (None, input.layout):
        if make is not np.zeros and make is not _empty_filled:
            raise NotImplementedError(f"not built for {input._array.shown}: only zeros are; make a dense tensor like {input._array.dense}")
        made = input._array.zeros(None if d is None else dtypes.as_dtype(d), place)
        return made.requires_grad_(True) if requires_grad else made
    if layout is not None and layout is not devices.strided:
        made = _sparse(tuple(input.shape), layout, input.dtype if d is None else d, input.device if place is None else place, False)
        return made.requires_grad_(True) if requires_grad else made
    if isinstance(input._array, KindArray):
        place, memory_format = input.device if place is None else place, None
        input = wrap(MetaArray(input._array.shape, input.dtype.numpy))
    if memory_format is not None and not isinstance(memory_format, devices.memory_format):
        raise TypeError(f"argument 'memory_format' must be torch.memory_format, not {type(memory_format).__name__}")
    target = input.dtype.numpy if d is None else _dtype(d)
    at = _place(device(place) if place is not None else input.device)
    if at is not None and at.type == "meta":
        made = wrap(MetaArray(tuple(input.shape), target, arranged_strides(input._array, target.itemsize, memory_format)))
        return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if at is not None:
        return _like_on_device(make, input, target, at, requires_grad, memory_format)
    source = input._array if type(input._array) is ndarray else made_or_refused(np.empty, input._array.shape, target)
    if type(source) is ndarray and source.flags.c_contiguous and memory_format in (devices.preserve_format, None):
        return finish(made_or_refused(make, source.shape, target), requires_grad, at)
    array = empty_arranged(source, target, memory_format)
    array[...] = make(source.shape, target)
    return finish(array, requires_grad, at)


def _like_on_device(make: Any, input: Tensor, target: np.dtype, place: Any, requires_grad: bool, memory_format: Any) -> Tensor:
    """As `like_tensor` on a CUDA device."""
    from ..._cuda.device import filled
    from .convert import empty_arranged

    source = input._array if input.is_cuda else filled(tuple(input.shape), target, None, place)
    array = empty_arranged(source, target, memory_format)
    if make is not _empty_filled:
        kernels.store(array, make((), target))
    made = wrap(array)
    return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)


empty_like, zeros_like, ones_like = _like(_empty_filled), _like(np.zeros), _like(_ones)
empty_like.__name__, zeros_like.__name__, ones_like.__name__ = "empty_like", "zeros_like", "ones_like"
empty_like.__qualname__, zeros_like.__qualname__, ones_like.__qualname__ = "empty_like", "zeros_like", "ones_like"
empty_like.__doc__ = "An uninitialised tensor shaped like `input`, with its dtype, device and layout by default."
zeros_like.__doc__ = "Zeros shaped like `input`, with its dtype, device and layout by default."
ones_like.__doc__ = "Ones shaped like `input`, with its dtype, device and layout by default."


def full_like(input: Any = ..., fill_value: Any = ..., *, dtype: Any = None, layout: Any = None, device: Any = None,
              requires_grad: bool = False, memory_format: Any = devices.preserve_format, pin_memory: bool = False,
              **named: Any) -> Tensor:  # fmt: skip
    """A tensor shaped like `input` filled with `fill_value`."""
    if pin_memory is not False:
        refuse_pinning("full_like", pin_memory)
    if named or fill_value is ...:
        input = input_of("full_like", input, named)
        if fill_value is ...:
            raise TypeError("full_like() missing 1 required positional argument: 'fill_value'")
    if IN_FORCE and interpreted() or getattr(input, "_array", None).__class__ is HeldArray:
        given = {"self": input, "fill_value": fill_value, "dtype": dtype, "layout": layout, "device": device, "pin_memory": False}
        given["memory_format"] = None if memory_format is _PRESERVE else memory_format
        if (seen := _dispatch.made("full_like", given, requires_grad)) is not None:
            return seen
    if (
        memory_format is _PRESERVE and device is layout is None and input.__class__ is Tensor and not (IN_FORCE and interpreted())
        and _fits_plainly(fill_value, input._array.dtype if dtype is None else dtypes.as_dtype(dtype).numpy)
    ):  # fmt: skip
        made = _like_quickly(np.empty, input._array, dtype)
        if made is not None:
            kernel.refill(made._array, fill_value)
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    value = _fill_number("full_like", fill_value)
    return like_tensor(lambda s, d: np.full(s, _as(value, d), d), input, dtype, device, requires_grad, memory_format, layout)


def _new_method(fn: Any, name: str, make: Any) -> Any:
    def new(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
        if device is None and not options and make is not None and not (IN_FORCE and interpreted()) and self._array.__class__ is ndarray:
            made = _quickly(make, size, dtype, self._array.dtype)
            if made is not None:
                return made
        if isinstance(self._array, KindArray) and make in (np.zeros, _new_empty):
            options.setdefault("layout", self.layout)
        if "size" in options:
            size = (options.pop("size"), *size)
        held = self._array.__class__ is HeldArray
        if (IN_FORCE and interpreted() or held) and make is not None or held and len(size) == 2:
            sizes = {"size": _sizes(size)} if make is not None else {"size": list(size[0]), "stride": list(size[1])}
            given = {"self": self, **sizes, "dtype": dtype, "layout": options.get("layout"), "device": device, "pin_memory": False}
            if (seen := _dispatch.made(name, given, options.get("requires_grad", False))) is not None:
                return seen
        return fn(*size, dtype=dtype or self.dtype, device=self.device if device is None else device, **options)

    new.__name__ = name
    new.__doc__ = f"`{fn.__name__}` with this tensor's dtype and device by default."
    return new


def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    """A tensor of `size` filled with `fill_value`, with this tensor's dtype and device by default. See `full`."""
    if IN_FORCE and interpreted() or self._array.__class__ is HeldArray:
        given = {"self": self, "size": size, "fill_value": fill_value, "dtype": dtype, "device": device, "pin_memory": False}
        if (seen := _dispatch.made("new_full", given, options.get("requires_grad", False))) is not None:
            return seen
    if device is None and not options and not (IN_FORCE and interpreted()) and self._array.__class__ is ndarray:
        made = _filled_quickly(size, fill_value, self.dtype if dtype is None else dtype)
        if made is not None:
            return made
    return full(size, fill_value, dtype=dtype or self.dtype, device=self.device if device is None else device, **options)


def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Tensor:
    """A copy of `data` with this tensor's dtype and device by default."""
    if device is None and self._array.__class__ is ndarray:
        device = "cpu"
    return tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device, requires_grad=requires_grad)


def empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                  requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """Uninitialised memory seen with the given size and stride."""
    if pin_memory is not False:
        refuse_pinning("empty_strided", pin_memory)
    if IN_FORCE and interpreted():
        given = {"size": size, "stride": stride, "dtype": dtype, "device": device, "pin_memory": pin_memory}
        if (made := _dispatch.made_there("empty_strided", given, requires_grad)) is not None:
            return made
    if not isinstance(stride, (tuple, list)):
        raise TypeError(f"empty_strided(): argument 'stride' (position 2) must be tuple of ints, not {type(stride).__name__}")
    shape, steps = _sizes((size,)), tuple(need_int("empty_strided", "stride", s) for s in stride)
    if len(shape) != len(steps):
        raise RuntimeError(f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(steps)})")
    d = _dtype(dtype)
    need = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    if need * d.itemsize >= 2**63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(steps)}")
    place = _place(device)
    if place is not None and place.type == "meta":
        return wrap(MetaArray(shape, d, tuple(s * d.itemsize for s in steps)))
    base = np.empty(need, d)
    if _state.FILL_EMPTY:
        kernel.fill_unset(base)
    strides = tuple([s * d.itemsize for s in steps])
    array = hot_calls.restrided(base, shape, strides, 0) if base.size else None
    if array is None:
        array = _arrays.restride(base, shape, strides, 0, base.view(np.uint8))
    return finish(array, requires_grad, place)


# -- from values ---------------------------------------------------------------------------------------------------------


@usually(f"(dtype is None or dtype.__class__ is _dtype_class) and {_IN_HOST_MEMORY}", "_of_values(data, dtype)")
def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A copy of `data`: a number, nested sequences, an array or a tensor; or all elements of a storage, where they are.

    Args:
        data: floats give the default dtype, ints int64, bools bool; arrays and tensors keep theirs.
        dtype, device: convert to these.
        requires_grad: record what is done with the tensor.
    Raises: ValueError for sequences of uneven length; TypeError for something else, such as a str.

    >>> fb.tensor([[1, 2], [3, 4.5]])
    tensor([[1.0000, 2.0000],
            [3.0000, 4.5000]])
    """
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
    """`data` copied to a new array. Raises: TypeError, ValueError as PyTorch for values it cannot take."""
    if d is not None:
        d = dtypes.as_dtype(d)
    if isinstance(data, (ndarray, np.generic)):
        _check_byte_order(data)
        data = _with_own_dtype(data)
        with np.errstate(all="ignore"):
            return np.array(data, dtype=data.dtype if d is None else d.numpy, order="C")
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
        return _as(value, wanted.numpy)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(wanted.numpy)[()]


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


def _from_nested(data: Any, d: Any) -> ndarray:
    if data.__class__ is list or data.__class__ is tuple:
        made = _of_plain_numbers(data, d)
        if made is not None:
            return made
    shape, leaves = _flatten(data)
    if d is None:
        d = _infer(leaves)
    plain = d.numpy
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
        if plain.isbuiltin == 1:
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
    for x in leaves:
        if isinstance(x, (str, bytes)):
            raise ValueError(f"too many dimensions '{type(x).__name__}': {x!r} is not a number")
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


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, sharing memory with a Tensor or array where dtype and device allow."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype) if dtype is not None or device is not None else data
    if isinstance(data, ndarray) and (dtype is None or dtype.numpy == data.dtype):
        made = from_numpy(data)
        return made if device is None else made.to(device)
    return tensor(data, dtype=dtype, device=device)


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool | None = None) -> Tensor:
    """`obj` as a tensor, sharing memory when possible.

    Args:
        obj: a tensor, an array, a DLPack capsule or an object that exports one, an object with the buffer protocol, whose bytes are
            taken as elements of `dtype` (the default one if None), or what `tensor` takes.
        copy: True always copies, False never does, None where it must.
        requires_grad: None as `obj` does; True and False also set a leaf that is shared, False gives others without history.
    Raises: ValueError when copy=False is impossible; RuntimeError for a numpy scalar with copy=False.
    """
    if copy is not False and not isinstance(obj, (Tensor, ndarray)):
        read = getattr(obj, "_read_as", None)         # which storages have
        if read is not None:
            made = read(None if dtype is None else dtypes.as_dtype(dtype))
            made = made if on_host(device) else made.to(_place(device))
            made = made.clone() if copy else made
            return made.requires_grad_() if requires_grad else made
    shared, is_copy = _sharing(obj, dtype, bool(copy))
    if shared is None:
        if copy is False and isinstance(obj, np.generic):
            raise RuntimeError("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray.")
        if copy is False:
            raise ValueError(f"can't alias arbitrary sequence into a tensor. A {type(obj).__name__} was given with copy=False")
        return tensor(obj, dtype=dtype, device=device, requires_grad=bool(requires_grad))
    made = shared.to(dtype=dtype, device=device)
    if copy is False and made is not shared:
        if made.dtype is not shared.dtype:
            raise ValueError(f"can't alias tensor with dtype '{shared.dtype}' into dtype '{made.dtype}'; copy=False was given.")
        raise ValueError(f"can't alias tensor from device '{shared.device}' to '{made.device}'; copy=False was given.")
    if copy and made is shared and not is_copy:
        made = made.clone()
    if requires_grad is None or bool(requires_grad) == made.requires_grad:
        return made
    # PyTorch changes a leaf that is shared.
    return made.requires_grad_(bool(requires_grad)) if made.is_leaf else made.detach()


def _sharing(obj: Any, dtype: Any, copied: bool) -> tuple[Tensor | None, bool]:
    """A tensor over the memory of `obj`, None if it has none to share; and whether it is a copy, made where it is going to be one."""
    from ... import _dlpack

    if isinstance(obj, Tensor):
        return obj, False
    if isinstance(obj, ndarray):
        return from_numpy(obj.copy() if copied else obj), copied
    if isinstance(obj, np.generic):
        return None, False
    if _dlpack.is_capsule(obj) or hasattr(obj, "__dlpack__"):
        return wrap(_dlpack.array_from(obj)), False
    try:
        memoryview(obj)
    except TypeError:
        return None, False
    return frombuffer(bytearray(obj) if copied else obj, dtype=dtype or dtypes.get_default_dtype()), copied


_OWN = {d.numpy: d.numpy for d in dtypes.ALL}


def from_numpy(array: Any) -> Tensor:
    """A tensor over the memory of a numpy array. Raises: TypeError for another type or dtype, ValueError for negative strides."""
    if array.__class__ is ndarray and array.dtype is _OWN.get(array.dtype):
        flags = array.flags
        # A dimension of size 1 may have any stride in an array that counts as contiguous.
        if flags.c_contiguous and flags.writeable and array.size and 1 not in array.shape:
            # A view, because the caller may set the shape or the flags of what is his.
            view = array.view()
            made = hot_calls.over(view)
            if array.base is not None:
                # The storage begins where the given array does, and keeps it alive: numpy's view refers to the owner of the memory.
                made._storage[2] = view, array
            return made
    if not isinstance(array, ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    _check_byte_order(array)
    plain = _with_own_dtype(array.view(ndarray))
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
    made = wrap(plain)
    if array.base is not None and plain.size:
        made._storage[2] = plain, array
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
    return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over memory exported by another library through DLPack.

    Args:
        ext_tensor: an object with ``__dlpack__``, or the capsule that this gives.
        device: where the tensor is to be; None for where the memory is.
        copy: True always copies, False never does, None where it must.
    Raises: BufferError for memory that cannot be shared; ValueError where copy=False is impossible; RuntimeError for what is
        neither object nor capsule, or a capsule that has been used; AssertionError for a capsule with `device` or `copy`.
    """
    from ... import _dlpack

    if _dlpack.is_capsule(ext_tensor) and (device is not None or copy is not None):
        raise AssertionError("device and copy kwargs not supported when ext_tensor is already a DLPack capsule.")
    if device is not None and not isinstance(device, (str, int, devices.device)):
        raise AssertionError(f"from_dlpack: unsupported device type: {type(device)}")
    made = wrap(_dlpack.array_from(ext_tensor, copies=copy is not False))
    place = made.device if device is None else devices.device(device)
    if place.type == "meta":
        raise BufferError("Cannot pack tensors on meta: they have no data")
    there = made.to(place)
    if there is not made and copy is False:
        raise ValueError(f"from_dlpack: cannot move memory from {made.device} to {place} without copying, and copy=False was given")
    return there.clone() if copy and there is made else there


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule that another library takes the memory of `tensor` from, once."""
    return tensor.__dlpack__()


def legacy_tensor(*args: Any, dtype: Any = None, device: Any = None, data: Any = None) -> Tensor:
    """What ``torch.Tensor(...)`` makes: the default dtype from sizes, a copy of a sequence, another view of a Tensor or storage.

    Raises: TypeError for a storage, or where a dtype is asked for a Tensor, of another dtype.
    """
    from ...storage import TypedStorage, UntypedStorage

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
    if isinstance(first, (list, tuple, range, ndarray)):
        return tensor(first, dtype=d, device=device)
    raise TypeError(f"new(): data must be a sequence (got {type(first).__name__})")


def new(self: Tensor, *args: Any, device: Any = None) -> Tensor:
    """As ``torch.Tensor(...)`` with this tensor's dtype; older programs make new tensors so."""
    return legacy_tensor(*args, dtype=self.dtype, device=self.device if device is None else device)


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Tensor:
    """A 0-d tensor of the default dtype holding `s`."""
    if IN_FORCE and interpreted():
        given = {"s": s, "dtype": dtype, "device": device}
        if (made := _dispatch.made_there("scalar_tensor", given, requires_grad)) is not None:
            return made
    if isinstance(s, int) and not -(2**63) <= s < 2**64:
        raise OverflowError(f"scalar_tensor(): int too big to convert: argument 's' is {s}, integers have 64 bits; give a float")
    return tensor(s, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad)


@composite(surface=FUNCTION | OUT, autocast=("float32", None), samples="p(2, 3), x(2, 3)")
def polar(abs, angle):
    """Complex values from magnitudes and angles in radians."""
    from ..shapes.parts import complex as complex_of

    for name, x in (("abs", abs), ("angle", angle)):
        if not isinstance(x, Tensor):
            raise TypeError(f"polar(): argument '{name}' must be Tensor, not {type(x).__name__}")
    if abs.dtype is not angle.dtype:
        raise RuntimeError(f"polar: expected abs and angle of one dtype, but got {abs.dtype} and {angle.dtype}; convert one of them")
    return complex_of(abs * angle.cos(), abs * angle.sin())


refuse_other_dtype_out(polar, lambda abs: abs.dtype.to_complex())


# -- filling -------------------------------------------------------------------------------------------------------------


@composite(surface=FUNCTION | METHOD, samples="x(2, 3), 1.5; x(2, 3), x()")
def fill(input, value):
    """A tensor like `input` filled with `value`."""
    return input.clone().fill_(value)


@composite(surface=0, operator="copy(input, src)", samples="x(2, 3), x(3)")
def copy(input, src):
    """The values of `src` in a tensor like `input`, which is only asked for its shape, dtype and strides."""
    return input.clone().copy_(src)


@composite(surface=0, operator="zero(input)", samples="x(2, 3)")
def zero(input):
    """Zeros in a tensor like `input`."""
    return input.clone().zero_()


def _written_directly(self: Tensor) -> bool:
    """Whether filling `self` needs neither recording nor a check."""
    a = self._array
    if a.__class__ is not ndarray or not a.flags.writeable or IN_FORCE and interpreted():
        return False
    if _state.MARKED and self._storage[0].__class__ is not int:
        return False
    return self._node is None and (self._view_of is None or self._view_of[0]._node is None) or not _state.grad_enabled()


def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to `value`, a number or 0-d tensor."""
    # Where the class answers ops, what was recorded of the elements is forgotten by `copy_`.
    told = self._node is None or type(self)._answerer is None or not _state.grad_enabled()
    if IN_FORCE and interpreted() or self._array.__class__ is HeldArray and told:
        made = _dispatch.made("fill_", {"self": self, "value": value})
        if made is not None:
            return made
    a = self._array
    if a.__class__ is ndarray and _fits_plainly(value, a.dtype) and _written_directly(self):
        kernel.refill(a, value)
        bump(self)
        return self
    if isinstance(a, KindArray):
        return a.answer(fill, (self, value), self, True)
    refuse_read_only("fill_", a)
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
        return self.copy_(value.expand(self._array.shape))  # so that it may be an element of `self`
    if _written_directly(self):
        kernel.refill(self._array, _as(value, self._array.dtype, self._array.size))
        bump(self)
        return self
    kind = self.dtype.numpy
    once = self                                       # what lies at one place is written once
    for d, (n, step) in enumerate(zip(self._array.shape, self._array.strides, strict=True)):
        if step == 0 and n > 1:
            once = once.narrow(d, 0, 1)
    once.copy_(wrap(MetaArray((), kind)) if self._lacks_values else wrap(np.full((), _as(value, kind, once._array.size), kind)))
    return self


def zero_(self: Tensor) -> Tensor:
    """Set every element to 0."""
    a = self._array
    if a.__class__ is ndarray and self._node is self._view_of is None and not (IN_FORCE or MARKED) and kernel.refilled(a, 0.0):
        record = self._storage
        record[0] += 1
        record[1] = next_seq()
        return self
    if _written_directly(self):
        kernel.refill(a, 0.0 if a.dtype is FLOAT32 or a.dtype is FLOAT64 else 0)
        bump(self)
        return self
    told = self._node is None or type(self)._answerer is None or not _state.grad_enabled()
    if IN_FORCE and interpreted() or self._array.__class__ is HeldArray and told:
        made = _dispatch.made("zero_", {"self": self})
        if made is not None:
            return made
    if isinstance(self._array, KindArray):
        return self._array.answer(zero, (self,), self, True)
    refuse_read_only("zero_", a)
    return fill_(self, 0)


def _new_empty(shape: Any, d: Any) -> ndarray:
    return _empty_filled(shape, d) if _state.FILL_EMPTY else np.empty(shape, d)


for _fn, _name, _make in ((empty, "new_empty", _new_empty), (zeros, "new_zeros", np.zeros), (ones, "new_ones", _ones),
                          (empty_strided, "new_empty_strided", None)):  # fmt: skip
    setattr(Tensor, _name, _new_method(_fn, _name, _make))
Tensor.new = new  # type: ignore[attr-defined]
Tensor.new_tensor, Tensor.new_full = new_tensor, new_full  # type: ignore[attr-defined]
Tensor.fill_, Tensor.zero_ = fill_, zero_  # type: ignore[attr-defined]

FUNCTIONS = {
    fn.__name__.rstrip("_"): fn
    for fn in (empty, zeros, ones, full, empty_like, zeros_like, ones_like, full_like, empty_strided, tensor, as_tensor,
               asarray, from_numpy, frombuffer, from_dlpack, scalar_tensor)
}  # fmt: skip


def _by_method(method: Any) -> Any:
    """A method of Tensor as a function, which recorders of methods see too."""

    @wraps(method)
    def call(input: Any = ..., *args: Any, **named: Any) -> Any:
        if "self" in named:                           # the operator's name of it
            input = named.pop("self")
        elif input is ...:
            input = input_of(method.__name__, input, {n: named.pop(n) for n in NUMPY_NAMES["input"] if n in named})
        return getattr(input, method.__name__)(*args, **named)

    return refusing(call)


FUNCTIONS["fill_"], FUNCTIONS["zero_"], FUNCTIONS["to_dlpack"] = _by_method(fill_), _by_method(zero_), to_dlpack
