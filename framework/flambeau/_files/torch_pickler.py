"""The pickler of `save`: PyTorch's names for what `load` knows, and storages kept beside the pickle."""

from __future__ import annotations

import functools
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as fb
from flambeau import _arrays, _state, dtypes
from flambeau._files.storages import STORAGE_NAMES, SavedStorage, bytes_of_storage, storage_kind
from flambeau.autograd.tape import warn_if_has_hooks
from flambeau.nn.parameter import Parameter
from flambeau.tensor import storage_buffer, wrap

__all__ = ["pickle_with_storages"]

Tensor = fb.Tensor


class _Name:
    """A global as the file is to name it."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self) -> None:
        raise TypeError(f"{self.module}.{self.name} is only a name")


class _Rebuilt:
    """What the file is to make by a call."""

    def __init__(self, function: _Name, args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args


def _is_fake(tensor: Any) -> bool:
    """Whether the tensor has no values, and stands for one on a device that has."""
    return type(tensor._array) is _arrays.MetaArray and not tensor.is_meta


@functools.cache
def _name(module: str, name: str) -> _Name:
    # One object per name, so that the pickle writes each name once.
    return _Name(module, name)


def _utils(name: str) -> _Name:
    return _name("torch._utils", name)


# Attributes that tensors keep for themselves.
_OWN_ATTRIBUTES = frozenset(("_leaf", "_retains_grad", "_inference"))


# Python's pickler in Python, because the one in C cannot be told to write other names for globals.
_Pickler: Any = pickle._Pickler  # type: ignore[attr-defined]

# Neither storages nor to be reduced, and most of what there is to write.
_PLAIN = frozenset((type(None), bool, int, float, str, bytes, tuple, list, dict))
_PUTS = tuple(pickle.BINPUT + bytes((i,)) for i in range(256))
_GETS = tuple(pickle.BINGET + bytes((i,)) for i in range(256))


class _TorchPickler(_Pickler):
    """Writes tensors as PyTorch does, with references to storages that are kept beside the pickle."""

    def __init__(self, file: Any, protocol: int, location_of: Callable[[Any], str], legacy: bool, materializes: bool = False) -> None:
        super().__init__(file, protocol)
        if protocol < 4:                              # which has no frames
            self.write = file.write
        self.storages: dict[str, SavedStorage] = {}
        self._location_of = location_of
        self._legacy, self._materializes = legacy, materializes
        self._by_memory: dict[Any, SavedStorage] = {}

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        kind = obj.__class__
        if kind not in _PLAIN:
            super().save(obj, save_persistent_id)
            return
        self.framer.commit_frame()
        known = self.memo.get(id(obj))
        if known is None:
            self.dispatch[kind](self, obj)
        else:
            self.write(self.get(known[0]))

    def memoize(self, obj: Any) -> None:
        at = len(self.memo)
        if self.proto >= 4 or not self.bin or at > 255:
            super().memoize(obj)
            return
        self.write(_PUTS[at])
        self.memo[id(obj)] = at, obj

    def get(self, i: int) -> bytes:
        return _GETS[i] if i < 256 and self.bin else super().get(i)

    def persistent_id(self, obj: Any) -> Any:
        storage = obj if isinstance(obj, SavedStorage) else self._public_storage(obj)
        if storage is None:
            return None
        if self._legacy and storage.kind is None:
            raise RuntimeError(
                "save: the format of PyTorch before 1.6 keeps each storage as elements of a dtype it knows "
                f"({', '.join(sorted(str(known) for known in STORAGE_NAMES))}), and this one is written as plain bytes "
                f"({storage.nbytes} of them): its dtype is another, or its length no multiple of the element; leave "
                "_use_new_zipfile_serialization out"
            )
        kind = _name("torch.storage", "UntypedStorage") if storage.kind is None else _name("torch", STORAGE_NAMES[storage.kind])
        reference = ("storage", kind, storage.key, storage.location, storage.numel)
        return (*reference, None) if self._legacy else reference

    def _public_storage(self, obj: Any) -> SavedStorage | None:
        if type(obj).__name__ not in ("UntypedStorage", "TypedStorage"):
            return None
        from flambeau.storage import TypedStorage, UntypedStorage

        if not isinstance(obj, (TypedStorage, UntypedStorage)):
            return None
        dtype = getattr(obj, "dtype", None)
        return self._storage(bytes_of_storage(obj), dtype if dtype in STORAGE_NAMES else None)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _Name):
            return obj.name
        if isinstance(obj, _Rebuilt):
            return obj.function, obj.args
        if _state.IN_FORCE and isinstance(obj, Tensor):
            _state.settle()                           # a result that was put off is a tensor of the usual class once it is there
        if isinstance(obj, Tensor) and type(obj).__reduce_ex__ is Tensor.__reduce_ex__:
            return self._tensor(obj)
        if self._materializes and isinstance(obj, Tensor) and type(obj._array) is _arrays.MetaArray:
            return self._materialized(obj)
        if isinstance(obj, Parameter) and type(obj) is Parameter:
            return self._parameter(obj)
        if isinstance(obj, Tensor) and obj.is_nested:
            return _nested(obj)
        if isinstance(obj, fb.layout):
            return _name("torch.serialization", "_get_layout"), (f"torch.{obj.name}",)
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        known = obj if isinstance(obj, _Name) else self.name_of(obj)
        if known is None:
            super().save_global(obj, name)
        else:
            self._write_global(obj, known)

    def _write_global(self, obj: Any, known: _Name) -> None:
        if self.proto >= 4:
            self.save(known.module)
            self.save(known.name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{known.module}\n{known.name}\n".encode())
        self.memoize(obj)

    def name_of(self, obj: Any) -> _Name | None:
        """What PyTorch calls the global `obj`; None for what keeps its own name."""
        return _torch_name(obj)

    def _tensor(self, tensor: Any) -> Any:
        warn_if_has_hooks(tensor)
        function, args = self._plain_tensor(tensor)
        state = {name: value for name, value in tensor.__dict__.items() if name not in _OWN_ATTRIBUTES}
        if type(tensor) is Tensor and not state:
            return function, args
        return _name("torch._tensor", "_rebuild_from_type_v2"), (function, type(tensor), args, state or None)

    def _plain_tensor(self, tensor: Any) -> tuple[_Name, tuple[Any, ...]]:
        if tensor.layout is not fb.strided:
            return _utils("_rebuild_sparse_tensor"), (tensor.layout, sparse_parts(tensor))
        size, stride = tuple(tensor.shape), tensor.stride()
        if tensor.is_quantized:
            from flambeau.ops._quantized.arrays import quantizer_in_files

            storage = self._storage(tensor._array.memory(), tensor.dtype)
            quantizer = quantizer_in_files(tensor)
            return _utils("_rebuild_qtensor"), (storage, tensor.storage_offset(), size, stride, quantizer, False, OrderedDict())
        if tensor.is_meta:
            place = (tensor.dtype, size, stride, tensor.requires_grad)
            return _utils("_rebuild_meta_tensor_no_storage"), place
        storage = self._storage(tensor, storage_kind(tensor))
        place = (storage, tensor.storage_offset(), size, stride, tensor.requires_grad, OrderedDict())
        if storage.kind is None:
            return _utils("_rebuild_tensor_v3"), (*place, tensor.dtype)
        return _utils("_rebuild_tensor_v2"), place

    def _materialized(self, fake: Any) -> Any:
        """A fake tensor as one of the device that it stands for."""
        if fake.is_meta:
            return _utils("_rebuild_meta_tensor_no_storage"), (fake.dtype, tuple(fake.shape), fake.stride(), fake.requires_grad)
        place = (self._storage(fake, storage_kind(fake)), fake.storage_offset(), tuple(fake.shape), fake.stride())
        if isinstance(fake, Parameter):
            values = _Rebuilt(_utils("_rebuild_tensor_v2"), (*place, False, OrderedDict()))
            return _utils("_rebuild_parameter"), (values, fake.requires_grad, OrderedDict())
        return _utils("_rebuild_tensor_v2"), (*place, fake.requires_grad, OrderedDict())

    def _parameter(self, parameter: Any) -> Any:
        # Not `.data`, which is a Parameter again where tensor subclasses are handled.
        values = wrap(parameter._array)
        values._storage = parameter._storage
        args = (values, parameter.requires_grad, OrderedDict())
        state = {name: value for name, value in parameter.__dict__.items() if name not in _OWN_ATTRIBUTES}
        if state:
            return _utils("_rebuild_parameter_with_state"), (*args, state)
        return _utils("_rebuild_parameter"), args

    def _storage(self, tensor: Any, kind: Any) -> SavedStorage:
        """The storage of `tensor`, written once for all tensors that share it."""
        if _is_fake(tensor):
            buffer, memory = np.broadcast_to(np.uint8(0), (tensor.untyped_storage().nbytes(),)), id(tensor._storage)
        else:
            buffer = storage_buffer(tensor)
            memory = (str(tensor.device), _arrays.address(buffer)) if buffer.nbytes else id(buffer)
        known = self._by_memory.get(memory)
        if known is None:
            known = self._by_memory[memory] = self._new_storage(buffer, kind, self._location_of(tensor))
        elif known.kind is not kind:
            raise RuntimeError(
                f"save: the same memory is seen as {known.kind or 'bytes'} by one tensor and as "
                f"{kind or 'bytes'} by another, which the file format cannot express; clone() one of them"
            )
        return known

    def _new_storage(self, buffer: Any, kind: Any, location: str) -> SavedStorage:
        key = str(len(self.storages))
        made = self.storages[key] = SavedStorage(key, buffer, kind, location)
        return made


def _nested(tensor: Any) -> Any:
    from flambeau._files.nested_tensors import PARTS, file_parts

    layout, parts = file_parts(tensor)
    if layout == "strided":
        return _utils("_rebuild_nested_tensor"), parts
    home = "torch.nested._internal.nested_tensor"
    state = {name: value for name, value in tensor.__dict__.items() if name not in _OWN_ATTRIBUTES and name not in PARTS}
    return _name("torch._tensor", "_rebuild_from_type_v2"), (_name(home, "_rebuild_njt"), _name(home, "NestedTensor"), parts, state or None)


def sparse_parts(tensor: Any) -> tuple[Any, ...]:
    if tensor.layout is fb.sparse_coo:
        return tensor._indices(), tensor._values(), tensor.size(), tensor.is_coalesced()
    by_rows = tensor.layout in (fb.sparse_csr, fb.sparse_bsr)
    compressed, plain = ("crow", "col") if by_rows else ("ccol", "row")
    return (
        getattr(tensor, f"{compressed}_indices")(), getattr(tensor, f"{plain}_indices")(),
        tensor.values(), tensor.size(),
    )


@functools.cache
def _torch_classes() -> dict[Any, _Name]:
    return {
        Tensor: _name("torch", "Tensor"),
        fb.Size: _name("torch", "Size"),
        fb.device: _name("torch", "device"),
        Parameter: _name("torch.nn.parameter", "Parameter"),
    }


def _torch_name(obj: Any) -> _Name | None:
    """What PyTorch calls `obj`, for the few objects that both have and `load` knows."""
    if isinstance(obj, (dtypes.dtype, fb.memory_format, fb.qscheme)):
        return _name("torch", obj.name)
    return _torch_classes().get(obj) if isinstance(obj, type) else None


def pickle_with_storages(
    obj: Any, protocol: int, location_of: Callable[[Any], str], legacy: bool = False, materializes: bool = False,
) -> tuple[bytes, dict[str, SavedStorage]]:
    """`obj` as a pickle, and the storages it refers to by key.

    Args:
        location_of: what to write as the location of a tensor's storage.
        legacy: write references as the older format does.
        materializes: write fake tensors as tensors of the device that they stand for, with zeros.
    Raises: pickle.PicklingError, TypeError or what the objects' own reduction raises.
    """
    out = io.BytesIO()
    pickler = _TorchPickler(out, protocol, location_of, legacy, materializes)
    pickler.dump(obj)
    return out.getvalue(), pickler.storages
