"""What functions that make tensors share: the size, dtype, device, layout and number that are asked for, and the tensor made so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.creation import fill as kernel

from ... import _state, devices, dtypes
from ..._arrays import MetaArray
from ..._symbolic import SymInt, is_claimed_to_be_a_size
from ...devices import device
from ...dtypes import FLOAT32, FLOAT64, dtype, from_numpy_dtype
from ...tensor import Tensor, wrap
from .._promote import NUMBERS
from .._spec import need_bools

PLACED = _state.PLACED
_state.share(globals(), "PLACED")  # keeps it as it is there


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
        size = size[0] if not hasattr(size[0], "__index__") else (size[0],)
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
        is_unknown = n.__class__ is SymInt and not n.node.has_hint()  # for values decide it, so the graph raises where it is no size
        if not is_claimed_to_be_a_size(n) if is_unknown else n < 0:
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


def with_names(made: Tensor, names: Any) -> Tensor:
    """The new tensor `made`, whose dimensions are called `names`, where those are not None. Raises: as `Tensor.rename` does."""
    if names is not None:
        made.names = names  # pyright: ignore[reportAttributeAccessIssue]  # put on Tensor by `ops/shapes/names.py`
    return made


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
    if not sizes:
        return None
    try:
        plain = d.numpy if d is not None else otherwise or dtypes._default.numpy
        first, shape = sizes[0], sizes
        if first.__class__ is not int:                # a shape, mostly
            if first is True or first is False:
                return None
            if len(sizes) == 1:
                if first.__class__ not in SHAPES or first and first[0].__class__ is bool:
                    return None
                shape = first
        return hot_calls.over(make(shape, plain))
    except (TypeError, ValueError, AttributeError, MemoryError):
        return None                                   # the fallback raises the error


_IN_HOST_MEMORY = "requires_grad is pin_memory is False and (device is None and not PLACED or on_host(device))"
SHAPES = frozenset((tuple, list, devices.Size))  # numpy takes other sequences too


def _check_layout(layout: Any, name: str = "creation", out: Any = None, error: type[Exception] = NotImplementedError) -> None:
    """Raise `error` for another layout than strided memory, TypeError for what is no layout, RuntimeError for one that `out` has not."""
    if layout is not None and layout is not devices.strided:
        if not isinstance(layout, devices.layout):
            raise TypeError(f"argument 'layout' must be torch.layout, not {type(layout).__name__}")
        if isinstance(out, Tensor):
            raise RuntimeError(f"{name}: layout {layout} does not match layout of out parameter ({out.layout})")
        raise error(f"{name} with layout={layout} is not built for values; make a strided tensor and convert it")


def _sparse(shape: tuple[int, ...], layout: Any, dtype: Any, place: Any, requires_grad: bool) -> Tensor:
    """Zeros in another layout than strided memory: no values."""
    from ..kinds.sparse import zeros_of

    return zeros_of(shape, layout, dtype, place, requires_grad)


def _empty_filled(shape: Any, d: Any) -> Any:
    made = np.empty(shape, d)
    return kernel.fill_unset(made) if _state.FILL_EMPTY else made


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


_HALF_RANGE = 1 << 62
_PRESERVE = devices.preserve_format


def _fits_plainly(value: Any, d: np.dtype) -> bool:
    """Whether `value`, of exactly Python's float, int or bool, can be stored as `d` without a question."""
    kind = value.__class__
    if kind is float:
        return (d is FLOAT32 and -1e38 < value < 1e38) or d is FLOAT64
    if kind is int:
        return (d is _INT64 and -_HALF_RANGE < value < _HALF_RANGE) or ((d is FLOAT32 or d is FLOAT64) and -16777216 <= value <= 16777216)
    return kind is bool and d is _BOOL


_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


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


def scalar_of_dtype(value: Any, d: np.dtype, count: int = 0) -> Any:
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
        return kernels.cast(np.asarray(value), d)[()]
