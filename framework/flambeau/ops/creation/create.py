"""Making tensors of a size and a value: empty, zeros, ones, full, and those like another."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.creation import fill as kernel

from ... import _arrays, _state, devices, dtypes
from ..._arrays import HeldArray, MetaArray, ndarray
from ..._kinds import KindArray
from ..._names import names_by
from ..._state import interpreted
from ...devices import device
from ...dtypes import dtype
from ...tensor import Tensor, wrap
from .. import _dispatch
from .._makers import usually
from .._parameters import input_of
from .._spec import need_int, out_of_shape
from ._options import (
    _BOOL,
    _IN_HOST_MEMORY,
    _INT64,
    _PRESERVE,
    _allocate,
    _check_layout,
    _dtype,
    _empty_filled,
    _fill_number,
    _fits_plainly,
    _place,
    _quickly,
    _sizes,
    _sparse,
    finish,
    made_or_refused,
    on_host,
    refuse_pinning,
    scalar_of_dtype,
    with_names,
)

PLACED = _state.PLACED
_state.share(globals(), "PLACED")  # keeps it as it is there


@usually(f"out is layout is size is names is memory_format is None and {_IN_HOST_MEMORY}", "_quickly(_new_empty, sizes, dtype)")
def empty(*sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
          device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, memory_format: Any = None, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` with whatever was in memory.

    Args:
        sizes, size: the shape, as several ints or one sequence.
        names: what each dimension is called, None for one without a name; see `Tensor.names`.
    """
    if names is not None:
        made = empty(
            *sizes, size=size, out=out, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
            pin_memory=pin_memory, memory_format=memory_format
        )
        return with_names(made, names)
    if pin_memory is not False:
        refuse_pinning("empty", pin_memory)
    if _state.IN_FORCE and interpreted():
        given = {
            "size": _sizes(sizes, size), "out": out, "dtype": dtype,
            "layout": layout, "device": device, "pin_memory": pin_memory, "memory_format": memory_format,
        }
        if (made := _dispatch.made_there("empty", given, requires_grad)) is not None:
            return made
    here = device is None and not PLACED or on_host(device)
    if here and out is layout is size is memory_format is None:
        made = _quickly(_empty_filled if _state.FILL_EMPTY else np.empty, sizes, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if layout is not None and layout is not devices.strided:
        return _sparse(_sizes(sizes, size), layout, dtype, device, requires_grad)
    if out is not None:
        out_of_shape("empty", out, _sizes(sizes, size), dtype, device)
        if _state.FILL_EMPTY and not out._lacks_values:
            kernel.fill_unset(out._array)
        return out
    if memory_format is devices.preserve_format:
        raise RuntimeError("empty: unsupported memory format torch.preserve_format; there is nothing to preserve")
    return _allocate(_empty_filled, _sizes(sizes, size), _dtype(dtype), _place(device), requires_grad, memory_format)


def _new_empty(shape: Any, d: Any) -> ndarray:
    return _empty_filled(shape, d) if _state.FILL_EMPTY else np.empty(shape, d)


@usually(f"out is layout is size is names is None and {_IN_HOST_MEMORY}", "_quickly(np.zeros, sizes, dtype)")
def zeros(*sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
          device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` filled with 0.

    Args:
        sizes, size: the shape, as several ints or one sequence.
        names: what each dimension is called, None for one without a name; see `Tensor.names`.
    """
    if names is not None:
        made = zeros(
            *sizes, size=size, out=out, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
            pin_memory=pin_memory
        )
        return with_names(made, names)
    if pin_memory is not False:
        refuse_pinning("zeros", pin_memory)
    if _state.IN_FORCE and interpreted():
        given = {"size": _sizes(sizes, size), "out": out, "dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory}
        if (made := _dispatch.made_there("zeros", given, requires_grad)) is not None:
            return made
    if out is layout is size is None and (device is None and not PLACED or on_host(device)):
        made = _quickly(np.zeros, sizes, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if out is not None:
        _check_layout(layout, "zeros", out)
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
        names: what each dimension is called, None for one without a name; see `Tensor.names`.
    """
    if names is not None:
        made = ones(
            *sizes, size=size, out=out, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
            pin_memory=pin_memory
        )
        return with_names(made, names)
    if pin_memory is not False:
        refuse_pinning("ones", pin_memory)
    if _state.IN_FORCE and interpreted():
        given = {"size": _sizes(sizes, size), "out": out, "dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory}
        if (made := _dispatch.made_there("ones", given, requires_grad)) is not None:
            return made
    if out is layout is size is None and (device is None and not PLACED or on_host(device)):
        made = _quickly(_ones, sizes, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    _check_layout(layout, "ones", out, RuntimeError)
    if out is not None:
        return out_of_shape("ones", out, _sizes(sizes, size), dtype, device).fill_(1)
    return _allocate(_ones, _sizes(sizes, size), _dtype(dtype), _place(device), requires_grad)


@usually(f"out is layout is names is None and {_IN_HOST_MEMORY}", "_filled_quickly(size, fill_value, dtype)")
def full(size: Any, fill_value: Any, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:  # fmt: skip
    """A tensor of `size` filled with `fill_value`, whose kind decides the dtype by default.

    A bool gives bool, an int int64, a float the default dtype, a complex number the complex of it. `names` are as for `zeros`.
    """
    if names is not None:
        made = full(
            size, fill_value, out=out, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad, pin_memory=pin_memory
        )
        return with_names(made, names)
    if pin_memory is not False:
        refuse_pinning("full", pin_memory)
    if _state.IN_FORCE and interpreted():
        given = {
            "size": size, "fill_value": fill_value, "out": out,
            "dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory,
        }
        if (made := _dispatch.made_there("full", given, requires_grad)) is not None:
            return made
    if out is layout is None and (device is None and not PLACED or on_host(device)):
        made = _filled_quickly(size, fill_value, dtype)
        if made is not None:
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    if isinstance(size, int):
        raise TypeError("full(): argument 'size' (position 1) must be tuple of ints, not int")
    value, asked = _fill_number("full", fill_value), dtype
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
    elif out is not None:
        dtype = out.dtype
    else:
        dtype = dtypes.of_number(value)
    shape = _sizes((size,))
    _check_layout(layout, "full", out, RuntimeError)
    if out is not None:
        return out_of_shape("full", out, shape, asked, device).fill_(value)
    def filled(s: Any, d: np.dtype) -> ndarray:
        return kernel.filled(s, d, scalar_of_dtype(value, d, math.prod(s)))

    return _allocate(filled, shape, dtype.numpy, _place(device), requires_grad)


def _filled_quickly(size: Any, value: Any, d: Any) -> Tensor | None:
    """`full` of a few elements in host memory, of the commonest dtypes; None for everything else."""
    if size.__class__ is not tuple and size.__class__ is not list or True in size and any(n.__class__ is bool for n in size):
        return None
    kind = value.__class__
    try:
        if d is None:
            array = np.empty(size, dtypes._default.numpy if kind is float else _INT64 if kind is int else _BOOL)
        else:
            array = np.empty(size, d.numpy)
    except (TypeError, ValueError, AttributeError, MemoryError):
        return None
    if not _fits_plainly(value, array.dtype):
        return None
    kernel.refill(array, value)
    return hot_calls.over(array)


def _like(make: Any) -> Any:
    @names_by("keep")
    def like(input: Any = ..., _: Any = ..., dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
             memory_format: Any = devices.preserve_format, pin_memory: bool = False, x: Any = None, a: Any = None,
             x1: Any = None) -> Tensor:  # fmt: skip
        if pin_memory is not False:
            refuse_pinning(like.__name__, pin_memory)
        if _ is not ... or x is not None or a is not None or x1 is not None or input is ...:
            input = input_of(like.__name__, input, {"x": x, "a": a, "x1": x1}, _)
        if _state.IN_FORCE and interpreted() or getattr(input, "_array", None).__class__ is HeldArray:
            given = {"self": input, "dtype": dtype, "layout": layout, "device": device, "pin_memory": False}
            given["memory_format"] = None if memory_format is _PRESERVE else memory_format
            if (seen := _dispatch.made(like.__name__, given, requires_grad)) is not None:
                return seen
        plainly = memory_format is _PRESERVE and layout is None and (device is None or on_host(device))
        if plainly and input.__class__ in _dispatch.SINGLE and isinstance(input, Tensor) and not (_state.IN_FORCE and interpreted()):
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
    input = input._looks
    if isinstance(input._array, KindArray) and layout in (None, input.layout):
        asked = None if d is None else dtypes.as_dtype(d)
        made = input._array.zeros(asked, place) if make is np.zeros else input._array.empty(asked, place)
        if make is not np.zeros and make is not _empty_filled:
            made.fill_(wrap(make((), made.dtype.numpy)))
        return made.requires_grad_(True) if requires_grad else made
    if layout is not None and layout is not devices.strided:
        if make is not np.zeros and make is not _empty_filled:
            _check_layout(layout)
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


@names_by("keep")
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
    if _state.IN_FORCE and interpreted() or getattr(input, "_array", None).__class__ is HeldArray:
        given = {"self": input, "fill_value": fill_value, "dtype": dtype, "layout": layout, "device": device, "pin_memory": False}
        given["memory_format"] = None if memory_format is _PRESERVE else memory_format
        if (seen := _dispatch.made("full_like", given, requires_grad)) is not None:
            return seen
    if (
        memory_format is _PRESERVE and layout is None and (device is None or on_host(device)) and input.__class__ is Tensor
        and not (_state.IN_FORCE and interpreted())
        and _fits_plainly(fill_value, input._array.dtype if dtype is None else dtypes.as_dtype(dtype).numpy)
    ):  # fmt: skip
        made = _like_quickly(np.empty, input._array, dtype)
        if made is not None:
            kernel.refill(made._array, fill_value)
            return made if requires_grad is False or requires_grad is None else made.requires_grad_(requires_grad)
    value = _fill_number("full_like", fill_value)
    return like_tensor(lambda s, d: np.full(s, scalar_of_dtype(value, d), d), input, dtype, device, requires_grad, memory_format, layout)


def _strided_quickly(size: Any, stride: Any, dtype: Any) -> Tensor | None:
    """`empty_strided` of tuples of ints with elements; None for everything else."""
    if size.__class__ is not tuple or stride.__class__ is not tuple or len(size) != len(stride):
        return None
    last = 0
    for n, s in zip(size, stride, strict=True):
        if n.__class__ is not int or s.__class__ is not int or n <= 0 or s < 0:
            return None
        last += (n - 1) * s
    if last >= 1 << 59:                               # of 16 bytes each, more than there are addresses
        return None
    d = _dtype(dtype)
    base = _new_empty(last + 1, d)
    made = hot_calls.restrided(base, size, tuple([s * d.itemsize for s in stride]), 0)
    return None if made is None else hot_calls.over(made)


@usually(f"layout is None and {_IN_HOST_MEMORY}", "_strided_quickly(size, stride, dtype)")
def empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                  requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """Uninitialised memory seen with the given size and stride."""
    if pin_memory is not False:
        refuse_pinning("empty_strided", pin_memory)
    if _state.IN_FORCE and interpreted():
        given = {"size": size, "stride": stride, "dtype": dtype, "device": device, "pin_memory": pin_memory}
        if (made := _dispatch.made_there("empty_strided", given, requires_grad)) is not None:
            return made
    if layout is None and requires_grad is False and (device is None and not PLACED or on_host(device)):
        made = _strided_quickly(size, stride, dtype)
        if made is not None:
            return made
    _check_layout(layout)
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


FUNCTIONS = {fn.__name__: fn for fn in (empty, zeros, ones, full, empty_like, zeros_like, ones_like, full_like, empty_strided)}
