"""Private helpers of PyTorch that other packages use: flattening gradients, device numbers, errors of workers, pickles."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import flambeau as fb

from . import _missing
from ._files.torch_globals import (
    _rebuild_meta_tensor_no_storage,
    _rebuild_parameter,
    _rebuild_parameter_with_state,
    _rebuild_sparse_tensor,
)
from .compiler import is_compiling

__all__ = [
    "CallbackRegistry", "ExceptionWrapper", "KeyErrorMessage", "classproperty", "get_current_device_index",
    "get_tensor_metadata", "is_compiling", "render_call", "set_tensor_metadata", "try_import",
]  # fmt: skip

P = TypeVar("P")
# PyTorch's pickles of memory formats name ``torch.channels_last`` in this module.
torch = fb

# They read pickles of tensors; `load` calls them with what it read.
_REBUILDERS = (
    _rebuild_meta_tensor_no_storage, _rebuild_parameter, _rebuild_parameter_with_state, _rebuild_sparse_tensor,
)  # fmt: skip


# -- pickles -------------------------------------------------------------------------------------------------------------


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
    """A tensor over `storage`, whose dtype it takes; offset, size and stride count elements."""
    dtype = getattr(storage, "dtype", fb.get_default_dtype())
    untyped = getattr(storage, "_untyped_storage", storage)
    if untyped.device.type == "meta":  # there is nothing to look at: the shape is all that such a tensor has
        return fb.empty_strided(size, stride, dtype=dtype, device="meta")
    return fb.empty(0, dtype=dtype).set_(untyped, storage_offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any, metadata: Any = None
) -> Any:
    """As `_rebuild_tensor`, with the rest of a tensor's state."""
    return _with_state(_rebuild_tensor(storage, storage_offset, size, stride), requires_grad, backward_hooks, metadata)


def _rebuild_tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Any:
    """As `_rebuild_tensor_v2`, over a storage of bytes seen as elements of `dtype`."""
    untyped = getattr(storage, "_untyped_storage", storage)
    tensor = fb.empty(0, dtype=dtype, device=untyped.device).set_(untyped, storage_offset, size, stride)
    return _with_state(tensor, requires_grad, backward_hooks, metadata)


def _with_state(tensor: Any, requires_grad: bool, backward_hooks: Any, metadata: Any) -> Any:
    if metadata:
        # There are no lazy bits here, so what they stand for is done.
        tensor = tensor.conj() if metadata.get("conj") else tensor
        tensor = tensor.neg() if metadata.get("neg") else tensor
    tensor.requires_grad_(requires_grad)
    tensor._backward_hooks = backward_hooks
    return tensor


def get_tensor_metadata(tensor: Any) -> dict[str, Any]:
    """What a file keeps of a tensor beside values and shape: which lazy bits are set."""
    return {bit: True for bit, is_set in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if is_set}


def set_tensor_metadata(tensor: Any, metadata: dict[str, Any]) -> None:
    """Set on `tensor` what `get_tensor_metadata` returned of another.

    Raises: NotImplementedError for a lazy bit, which no tensor of this library can be given.
    """
    if metadata.get("conj") or metadata.get("neg"):
        raise _missing.not_built("_utils.set_tensor_metadata", "resolve_conj() and resolve_neg() before the metadata is read")


def _import_dotted_name(name: str) -> Any:
    """The object behind a dotted name whose first part is a module."""
    first, *rest = name.split(".")
    return functools.reduce(getattr, rest, __import__(first))


# -- flat gradients ------------------------------------------------------------------------------------------------------


def _flatten_dense_tensors(tensors: Iterable[Any]) -> Any:
    """One vector with the elements of all `tensors`, in their order."""
    parts = [tensor.reshape(-1) for tensor in tensors]
    return fb.cat(parts) if parts else fb.empty(0)


def _unflatten_dense_tensors(flat: Any, tensors: Iterable[Any]) -> tuple[Any, ...]:
    """Views of the vector `flat` with the shapes of `tensors`."""
    found, start = [], 0
    for tensor in tensors:
        found.append(flat.narrow(0, start, tensor.numel()).view_as(tensor))
        start += tensor.numel()
    return tuple(found)


def _reorder_tensors_as(tensors: Iterable[Any], ordered_tensors: Iterable[Any]) -> tuple[Any, ...]:
    """`tensors`, whose order within each dtype is that of `ordered_tensors`, in the order of `ordered_tensors`."""
    by_type: dict[str, Iterator[Any]] = {}
    groups: dict[str, list[Any]] = defaultdict(list)
    for tensor in tensors:
        groups[tensor.type()].append(tensor)
    by_type.update((kind, iter(group)) for kind, group in groups.items())
    return tuple(next(by_type[tensor.type()]) for tensor in ordered_tensors)


def _take_tensors(tensors: Iterable[Any], size_limit: int) -> Iterator[list[Any]]:
    """`tensors` in groups of one dtype that hold at most `size_limit` bytes, or one tensor."""
    groups: dict[str, tuple[list[Any], int]] = {}
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        group, held = groups.get(tensor.type(), ([], 0))
        if group and held + size > size_limit:
            yield group
            group, held = [], 0
        groups[tensor.type()] = ([*group, tensor], held + size)
    for group, _ in groups.values():
        if group:
            yield group


# -- devices -------------------------------------------------------------------------------------------------------------


def _element_size(dtype: Any) -> int:
    """Bytes of one element."""
    return dtype.itemsize


def _get_available_device_type() -> str | None:
    """"cuda" where there is such a device, else None."""
    return "cuda" if fb.cuda.is_available() else None


def _get_device_attr(get_member: Callable[[Any], Any]) -> Any:
    """`get_member` of the module of the device there is; None on the CPU alone."""
    return get_member(fb.cuda) if fb.cuda.is_available() else None


def get_current_device_index() -> int:
    """The number of the current CUDA device, -1 where there is none."""
    return fb.cuda.current_device() if fb.cuda.device_count() > 0 else -1


_get_current_device_index = get_current_device_index


def _get_all_device_indices() -> list[int] | None:
    """The numbers of all CUDA devices, None where there are none."""
    return list(range(fb.cuda.device_count())) if fb.cuda.is_available() else None


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> Any:
    """The number of `device`: a device, its name, or the number itself.

    Args:
        optional: take the current device where `device` has no number or is None.
        allow_cpu: answer -1 for the CPU.
    Raises: ValueError otherwise.
    """
    if isinstance(device, str):
        device = fb.device(device)
    if isinstance(device, fb.device):
        if device.type == "cpu" and not allow_cpu:
            raise ValueError(f"_get_device_index: expected a device that is no cpu, but got {device}")
        if device.type == "cpu":
            return -1
        device = device.index
    if isinstance(device, int):
        return device
    if not optional:
        raise ValueError(f"_get_device_index: expected a device with an index, or an int, but got {device!r}")
    return get_current_device_index() if fb.cuda.is_available() else None


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of device. Raises: RuntimeError if there is none."""
    return fb.get_device_module(device_type)


def _handle_complex(tensor: Any) -> Any:
    """The real view of a complex tensor; any other as it is."""
    return fb.view_as_real(tensor) if not isinstance(tensor, fb.nn.UninitializedParameter) and tensor.is_complex() else tensor


# -- errors of workers ---------------------------------------------------------------------------------------------------


class KeyErrorMessage(str):
    """A message whose repr is itself, as KeyError shows the repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception caught in a worker with its traceback as text, to be raised again elsewhere."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))
        self.where = where

    def reraise(self) -> None:
        """Raise an exception of the same type that says where it comes from, a RuntimeError where the type needs more."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(KeyErrorMessage(text))
        if getattr(self.exc_type, "message", None):
            raise self.exc_type(message=text)
        try:
            error = self.exc_type(text)
        except Exception:  # whatever a constructor raises that wants other arguments
            raise RuntimeError(text) from None
        raise error


# -- the rest ------------------------------------------------------------------------------------------------------------


class classproperty:  # PyTorch's name
    """A property of the class: ``@classproperty def name(cls)``."""

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self.func = func.__func__ if isinstance(func, (classmethod, staticmethod)) else func

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.func(type(instance) if owner is None else owner)


class CallbackRegistry(Generic[P]):
    """Functions that are all called when something happens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.callback_list: list[Callable[..., None]] = []

    def add_callback(self, cb: Callable[..., None]) -> None:
        self.callback_list.append(cb)

    def fire_callbacks(self, *args: Any, **kwargs: Any) -> None:
        for callback in self.callback_list:
            callback(*args, **kwargs)


def _dummy_type(name: str) -> type:
    """A class to stand for one that was not built: making an instance raises RuntimeError."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"Tried to instantiate dummy base class {name}")

    return type(name, (), {"__init__": refuse})


def try_import(module_name: str) -> Any:
    """The module, or None where it is not installed."""
    if importlib.util.find_spec(module_name) is None:
        return None
    return importlib.import_module(module_name)


def render_call(fn: Any, args: Any, kwargs: Any) -> str:
    """``torch.add(tensor([...], size=(2,)), 3)``: a call as text, tensors by their size."""
    name = fb.overrides.resolve_name(fn) or str(fn)
    parts = [_render(arg) for arg in args] + [f"{key}={_render(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(parts)})"


def _render(value: Any) -> str:
    return f"tensor([...], size={tuple(value.shape)})" if isinstance(value, fb.Tensor) else repr(value)


def __getattr__(name: str) -> Any:
    raise _missing.attribute_error(__name__, name)
