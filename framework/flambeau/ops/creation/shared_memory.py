"""Tensors over memory that is there: numpy's arrays, buffers, other libraries' by DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import hot_calls

from ... import _state, devices, dtypes
from ..._arrays import ndarray
from ..._names import names_by
from ..._warn import warn_once
from ...tensor import Tensor, wrap
from ._options import _place, on_host
from .from_values import _check_byte_order, _with_own_dtype, tensor


@names_by("keep")
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, sharing memory with a Tensor or array where dtype and device allow."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype) if dtype is not None or device is not None else data
    if isinstance(data, ndarray) and (dtype is None or dtype.numpy == data.dtype):
        made = from_numpy(data)
        return made if device is None else made.to(device)
    return tensor(data, dtype=dtype, device=device)


@names_by("keep")
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
    if requires_grad is None and made.requires_grad:
        warn_once("asarray: requires_grad was left out, so it is that of the tensor given; pass requires_grad=False for no history")
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
        return from_numpy(obj.copy("K") if copied else obj), copied
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
    if _state.IN_FORCE and isinstance(array, ndarray):
        _state.settle_shared(array)
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
    dtype = dtypes.as_dtype(dtype, "frombuffer")
    try:
        size, step = memoryview(buffer).nbytes, dtype.itemsize
    except TypeError:
        raise ValueError(f"frombuffer(): object does not implement Python buffer protocol: {type(buffer).__name__}") from None
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


FUNCTIONS = {fn.__name__: fn for fn in (as_tensor, asarray, from_numpy, frombuffer, from_dlpack, to_dlpack)}
