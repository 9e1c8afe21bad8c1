"""Tensors and storages as PyTorch pickles them, for programs that import Flambeau as torch.

Such a pickle calls functions by PyTorch's names. So PyTorch reads it as well, and an unpickler that looks for
``torch.storage._load_from_bytes``, to load storages onto another device, finds it.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from typing import Any

__all__ = ["CALLED", "reduced"]

# What these pickles call, by the modules that have it.
CALLED = {
    "flambeau._tensor": ("_rebuild_from_type_v2",),
    "flambeau._utils": (
        "_rebuild_meta_tensor_no_storage", "_rebuild_parameter", "_rebuild_parameter_with_state", "_rebuild_sparse_tensor",
        "_rebuild_tensor_v2", "_rebuild_tensor_v3",
    ),
    "flambeau.storage": ("_load_from_bytes",),
}  # fmt: skip


def reduced(obj: Any) -> Any:
    """What PyTorch's `__reduce_ex__` says of the tensor, parameter or typed storage `obj`; None where `obj` has words of its own."""
    from ..nn.parameter import Parameter
    from ..serialization import write_storage
    from ..tensor import Tensor

    if type(obj) is Parameter:
        return _parameter(obj)
    if not isinstance(obj, Tensor):
        return _function("storage._load_from_bytes"), (write_storage(obj),)
    plain = _plain_tensor(obj)
    state = obj._attributes()
    if plain is None or type(obj) is Tensor and not state:
        return plain
    return _function("_tensor._rebuild_from_type_v2"), (plain[0], type(obj), plain[1], state or None)


def _function(name: str) -> Any:
    """A function under its name in PyTorch, below `torch`; importing its module so gives it that name."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"torch.{module}"), function)


def _parameter(parameter: Any) -> Any:
    # The third place is PyTorch's for hooks, which are never saved.
    arguments = (parameter.data, parameter.requires_grad, OrderedDict())
    state = parameter._attributes()
    if state:
        return _function("_utils._rebuild_parameter_with_state"), (*arguments, state)
    return _function("_utils._rebuild_parameter"), arguments


def _plain_tensor(tensor: Any) -> Any:
    """The function that rebuilds `tensor` without class and attributes, and its arguments; None for kinds PyTorch has no name for."""
    from .._arrays import MetaArray
    from .._files.storages import STORAGE_NAMES
    from .._files.torch_pickler import sparse_parts
    from .._kinds import KindArray
    from ..dtypes import uint8
    from ..ops._sparse.arrays import SparseArray
    from ..storage import TypedStorage

    if isinstance(tensor._array, SparseArray):
        return _function("_utils._rebuild_sparse_tensor"), (tensor.layout, sparse_parts(tensor))
    if isinstance(tensor._array, KindArray):
        return None
    if type(tensor._array) is MetaArray:
        place = tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad
        return _function("_utils._rebuild_meta_tensor_no_storage"), place
    elements = _alone_in_memory(tensor)
    offset, size, stride = elements.storage_offset(), tuple(elements.shape), elements.stride()
    if tensor.dtype in STORAGE_NAMES:
        place = elements._typed_storage(), offset, size, stride, tensor.requires_grad, OrderedDict()
        return _function("_utils._rebuild_tensor_v2"), place
    bytes_alone = TypedStorage(wrap_storage=elements.untyped_storage(), dtype=uint8)
    place = bytes_alone, offset, size, stride, tensor.requires_grad, OrderedDict(), tensor.dtype
    return _function("_utils._rebuild_tensor_v3"), place


def _alone_in_memory(tensor: Any) -> Any:
    """`tensor`, or a copy of it where its memory holds other elements too, which no pickle needs."""
    held = tensor.untyped_storage().nbytes()
    detached = tensor.detach()
    return detached if held == tensor.numel() * tensor.element_size() else detached.clone()
