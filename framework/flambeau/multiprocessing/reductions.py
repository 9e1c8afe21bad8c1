"""How tensors and storages are pickled on their way to another process: as a handle on shared memory."""

from __future__ import annotations

import weakref
from multiprocessing import reduction
from typing import Any

import flambeau as fb
from flambeau import _shared_memory
from flambeau._kinds import KindArray
from flambeau.nn.parameter import Parameter, _rebuild_parameter
from flambeau.overrides import DisableTorchFunctionSubclass
from flambeau.storage import TypedStorage, UntypedStorage
from flambeau.tensor import rebuild_kind

__all__ = [
    "init_reductions",
    "rebuild_meta_tensor",
    "rebuild_storage_empty",
    "rebuild_storage_fd",
    "rebuild_storage_filename",
    "rebuild_storage_same",
    "rebuild_subclass",
    "rebuild_tensor",
    "rebuild_typed_storage",
    "reduce_storage",
    "reduce_subclass",
    "reduce_tensor",
    "reduce_typed_storage",
    "register_subclass",
]


def init_reductions() -> None:
    """Let the picklers of `multiprocessing` send tensors, parameters and storages by `reduce_tensor` and its like."""
    reduction.ForkingPickler.register(fb.Tensor, reduce_tensor)
    reduction.ForkingPickler.register(Parameter, reduce_tensor)
    reduction.ForkingPickler.register(UntypedStorage, reduce_storage)
    reduction.ForkingPickler.register(TypedStorage, reduce_typed_storage)
    waiting = list(fb.Tensor.__subclasses__())
    while waiting:
        cls = waiting.pop()
        register_subclass(cls)
        waiting.extend(cls.__subclasses__())


def register_subclass(cls: type) -> None:
    """Let instances of `cls`, a subclass of Tensor that is pickled as Tensor is, share their memory too."""
    if cls.__reduce_ex__ is fb.Tensor.__reduce_ex__ and cls.__reduce__ is object.__reduce__:
        reduction.ForkingPickler.register(cls, reduce_subclass)


# -- tensors -------------------------------------------------------------------------------------------------------------


def reduce_tensor(tensor: Any) -> Any:
    """What a Tensor or Parameter is sent as: its class, its storage, and its place there. Its gradient stays behind.

    Raises: RuntimeError for a tensor with autograd history; NotImplementedError for one on a CUDA device.
    """
    _refuse_history(tensor)
    cls, requires_grad = type(tensor), tensor.requires_grad
    if tensor.is_meta:
        return rebuild_meta_tensor, (cls, tuple(tensor.shape), tensor.stride(), tensor.dtype, requires_grad)
    if tensor.device.type != "cpu":
        raise NotImplementedError(f"multiprocessing: sending tensors on {tensor.device} to other processes is not built; send tensor.cpu()")
    if isinstance(tensor._array, KindArray):          # its parts are sent as tensors, each in its memory
        return rebuild_kind, (cls, *tensor._array.rebuilding(), requires_grad, None)
    metadata = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, requires_grad)
    return rebuild_tensor, (cls, _representative(tensor.untyped_storage()), metadata)


def _refuse_history(tensor: Any) -> None:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            f"multiprocessing: a tensor of shape {tuple(tensor.shape)} has autograd history ({tensor.grad_fn}), which does not cross "
            f"to another process; send tensor.detach()"
        )


def rebuild_tensor(cls: Any, storage: UntypedStorage, metadata: Any) -> Any:
    """The tensor that `reduce_tensor` described, over `storage`."""
    offset, size, stride, dtype, requires_grad = metadata
    return _as_class(cls, fb.empty(0, dtype=dtype).set_(storage, offset, size, stride), requires_grad)


def rebuild_meta_tensor(cls: Any, size: Any, stride: Any, dtype: Any, requires_grad: bool) -> Any:
    """The meta tensor that `reduce_tensor` described."""
    return _as_class(cls, fb.empty_strided(size, stride, dtype=dtype, device="meta"), requires_grad)


def _as_class(cls: Any, tensor: Any, requires_grad: bool) -> Any:
    return _rebuild_parameter(tensor, requires_grad) if cls is Parameter else tensor.requires_grad_(requires_grad)


def reduce_subclass(tensor: Any) -> Any:
    """What an instance of a subclass of Tensor is sent as: the memory of a plain tensor, its class and its attributes.

    Raises: RuntimeError for a tensor with autograd history.
    """
    _refuse_history(tensor)
    if tensor.device.type != "cpu":
        return tensor.__reduce_ex__(2)
    with DisableTorchFunctionSubclass():
        plain = tensor.detach().as_subclass(fb.Tensor)
    return rebuild_subclass, (type(tensor), plain, tensor.requires_grad, tensor._attributes())


def rebuild_subclass(cls: Any, plain: Any, requires_grad: bool, attributes: dict[str, Any]) -> Any:
    """The instance that `reduce_subclass` described."""
    made = fb.Tensor._make_subclass(cls, plain, requires_grad)
    made.__dict__.update(attributes)
    return made


# -- storages ------------------------------------------------------------------------------------------------------------


# By the id of a block, which they keep alive.
_representatives: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()


def _representative(storage: UntypedStorage) -> UntypedStorage:
    """The one storage of this memory, shared now, that picklers see: so that each of them sends it once."""
    storage.share_memory_()
    return _representatives.setdefault(id(_shared_memory.block_of(storage._bytes)), storage)


def reduce_storage(storage: UntypedStorage) -> Any:
    """What the bytes of a storage are sent as: a handle on them, after they have moved to shared memory.

    Raises: RuntimeError for a storage on the meta device; NotImplementedError for one on a CUDA device.
    """
    if storage.device.type == "cuda":
        raise NotImplementedError(
            f"multiprocessing: sending storages on {storage.device} to other processes is not built; send storage.cpu()"
        )
    representative = _representative(storage)
    if representative is not storage:
        return rebuild_storage_same, (representative,)
    block = _shared_memory.block_of(storage._bytes)
    assert block is not None
    if not block.nbytes:
        return rebuild_storage_empty, (UntypedStorage,)
    if block.name is not None:
        return rebuild_storage_filename, (UntypedStorage, block.lend(), block.nbytes)
    assert block.descriptor is not None
    return rebuild_storage_fd, (UntypedStorage, reduction.DupFd(block.descriptor), block.nbytes)


def rebuild_storage_same(storage: UntypedStorage) -> UntypedStorage:
    """The storage that was sent for all of this memory."""
    return storage


def rebuild_storage_empty(cls: type[UntypedStorage]) -> UntypedStorage:
    """A storage without bytes."""
    return cls()


def rebuild_storage_fd(cls: type[UntypedStorage], handle: Any, nbytes: int) -> UntypedStorage:
    """The storage of the anonymous memory that the sender holds open.

    Raises: ConnectionError if the sender has ended before its handle was taken.
    """
    try:
        descriptor = handle.detach()
    except (ConnectionError, FileNotFoundError, EOFError) as error:
        raise ConnectionError(
            "multiprocessing: the process that sent a tensor ended before it was received, and its memory with it. Let senders wait "
            "until what they sent has been taken, or share by set_sharing_strategy('file_system')"
        ) from error
    return cls._over(_shared_memory.attach_descriptor(descriptor, nbytes))


def rebuild_storage_filename(cls: type[UntypedStorage], name: str, nbytes: int) -> UntypedStorage:
    """The storage of the file `name` of /dev/shm."""
    return cls._over(_shared_memory.attach_file(name, nbytes))


def reduce_typed_storage(storage: TypedStorage) -> Any:
    """What a typed storage is sent as: its bytes and its dtype."""
    return rebuild_typed_storage, (storage.untyped(), storage.dtype)


def rebuild_typed_storage(storage: UntypedStorage, dtype: Any) -> TypedStorage:
    """`storage` seen as elements of `dtype`."""
    return TypedStorage._wrap(storage, dtype)


# -- names that PyTorch has here too ---------------------------------------------------------------------------------------


def rebuild_typed_storage_child(storage: UntypedStorage, storage_type: Any) -> TypedStorage:
    """`storage` seen as elements of the dtype of ``FloatStorage`` and the like."""
    return TypedStorage._wrap(storage, storage_type.dtype)


reduce_typed_storage_child = reduce_typed_storage
# Sparse and nested tensors are sent by the same function as dense ones.
reduce_sparse_tensor = reduce_nested_tensor = reduce_tensor


def fd_id(fd: int) -> tuple[int, int]:
    """The file and the device that the descriptor `fd` stands for: the same for all descriptors of a file."""
    import os

    found = os.fstat(fd)
    return found.st_ino, found.st_dev


class StorageWeakRef:
    """A weak reference to a storage, equal to others to it; `expired` says whether it has gone.

    Args:
        storage: a storage, typed or not.
    """

    __slots__ = ("_reference", "cdata")

    def __init__(self, storage: Any) -> None:
        untyped = storage.untyped() if isinstance(storage, TypedStorage) else storage
        self.cdata = untyped._cdata
        self._reference = _watch(untyped)

    def expired(self) -> bool:
        """Whether nothing holds the storage, or its memory, any more."""
        return self._reference() is None

    def __hash__(self) -> int:
        return self.cdata

    def __eq__(self, other: object) -> bool:
        return self is other or isinstance(other, StorageWeakRef) and self.cdata == other.cdata


def _watch(storage: UntypedStorage) -> Any:
    """A weak reference to the memory of `storage`, which storages made for a tensor anew have in common."""
    return weakref.ref(storage._bytes)


class SharedCache(dict[Any, StorageWeakRef]):
    """Storages by what identifies them in all processes; entries whose storage has gone are dropped, 128 and more at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 128

    def __setitem__(self, key: Any, storage_ref: StorageWeakRef) -> None:
        super().__setitem__(key, storage_ref)
        if len(self) > self.limit:
            self.free_dead_references()

    def free_dead_references(self) -> None:
        """Drop the entries whose storage has gone."""
        for key, reference in list(self.items()):
            if reference.expired():
                del self[key]
        self.limit = max(128, 2 * len(self))


shared_cache = SharedCache()
