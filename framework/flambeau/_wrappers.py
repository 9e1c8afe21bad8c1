"""Wrapper subclasses: tensors that have a shape, a dtype and a device, and whose class answers every op (`__torch_dispatch__`).

Such a tensor's array is a `HeldArray`: it holds the class and the attributes of the instance in the place of memory. So what
autograd saves, and gradients on their way, are arrays here as everywhere, and `tensor.wrap` makes an instance of the class of
one again. `ops/_dispatch.py` asks the class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _arrays, _inference, _state, dtypes
from .devices import device as device_class
from .tensor import Tensor, _instance, no_torch_dispatch

__all__ = ["HeldArray", "make_wrapper_subclass", "restored"]

HeldArray = _arrays.HeldArray


def make_wrapper_subclass(
    cls: Any,
    size: Any,
    strides: Any = None,
    storage_offset: Any = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    dispatch_sizes_strides_policy: Any = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False,
    _extra_dispatch_keys: Any = None,
    storage_size: Any = None,
) -> Any:
    """A `cls` of `size` without memory of its own.

    Args:
        cls: a subclass of Tensor that defines `__torch_dispatch__`.
        size, strides: of the new tensor, strides in elements; row-major by default.
        storage_offset: in elements.
        dtype, device: the default dtype and the CPU by default.
        dispatch_sizes_strides_policy, dispatch_device, dispatch_layout: whether the class says these itself. It does by overriding the
            properties and methods; nothing needs to be announced here.
        layout, memory_format, pin_memory, storage_size, _extra_dispatch_keys: taken for PyTorch's sake.
    Raises: RuntimeError if `cls` does not define `__torch_dispatch__`.
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"_make_wrapper_subclass(): argument 'cls' (position 1) must be a subclass of Tensor, not {cls!r}")
    if cls.__torch_dispatch__ in (None, no_torch_dispatch):
        raise RuntimeError(f"_make_wrapper_subclass: {cls.__name__} must define __torch_dispatch__, which answers its operations")
    kind = (dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)).numpy
    shape = tuple(int(n) for n in ((size,) if isinstance(size, int) else size))
    steps = None if strides is None else tuple(int(s) * kind.itemsize for s in strides)
    made: Any = _instance(cls)
    place = device_class("cpu") if device is None else device_class(device)
    offset = int(storage_offset or 0) * kind.itemsize
    made._array = HeldArray(shape, np.dtype(kind), steps, offset, cls, made.__dict__, place)
    made._node = made._view_of = made._gradient = None
    made._storage = _inference.new_record() if _state.MARKING else [0, 0, None, None]
    if requires_grad:
        made.requires_grad_(True)
    return made


def restored(array: Any, node: Any = None) -> Any:
    """The tensor that `array`, a HeldArray, is of: another instance with the same attributes."""
    made: Any = _instance(array.cls)
    made.__dict__ = array.attributes
    made._array, made._node, made._view_of, made._gradient = array, node, None, None
    made._storage = _inference.new_record() if _state.MARKING else [0, 0, None, None]
    return made


def item(wrapper: Any) -> Any:
    """The number that the class gives for the only element."""
    from ._ops import ops
    from .ops._dispatch import ask_classes

    return ask_classes([type(wrapper)], ops.aten._local_scalar_dense.default, (wrapper,), {})
