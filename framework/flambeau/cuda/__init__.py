"""CUDA devices through cupy; without cupy or a driver there are none, and what needs one says how to get it."""

from __future__ import annotations

from typing import Any

from flambeau_kernels.cuda import device as _device

from .._cuda.device import _cupy, current_device, device_count, index_of, is_available, require
from .._on_demand import names_on_demand
from ..devices import device as _device_type
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "Event", "ExternalStream", "Stream", "StreamContext", "can_device_access_peer", "current_device", "current_stream",
    "default_stream", "device", "device_count", "device_of", "empty_cache", "get_arch_list", "get_device_capability",
    "get_device_name", "get_device_properties", "init", "initial_seed", "ipc_collect", "is_available", "is_bf16_supported",
    "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_reserved", "seed", "seed_all", "set_device", "set_stream", "stream", "synchronize",
]  # fmt: skip


for function in (current_device, device_count, is_available):
    function.__module__ = __name__
del function


def is_initialized() -> bool:
    """Whether CUDA is in use by this process: as soon as it was found."""
    return _device.find.cache_info().currsize > 0 and _cupy() is not None


def init() -> None:
    """Make sure that CUDA can be used. Raises: RuntimeError if not."""
    require("cuda.init")


def set_device(device: Any) -> None:
    """Make `device` current for this thread."""
    require("cuda.set_device").cuda.Device(index_of(device)).use()


class device:  # PyTorch's name
    """Makes a device current inside the block; None and negative indices change nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = device
        self._before: int | None = None

    def __enter__(self) -> None:
        if self.idx is not None and not (isinstance(self.idx, int) and self.idx < 0):
            self._before = current_device()
            set_device(self.idx)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            set_device(self._before)


class device_of(device):  # PyTorch's name
    """Makes the device of a tensor current inside the block; tensors on the CPU change nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def synchronize(device: Any = None) -> None:
    """Wait until the work of `device` is done."""
    require("cuda.synchronize").cuda.Device(index_of(device)).synchronize()


# -- what the devices are ------------------------------------------------------------------------------------------------


class DeviceProperties:
    """Facts about a device: `name`, `major`, `minor`, `total_memory` in bytes, `multi_processor_count`."""

    def __init__(self, facts: dict[str, Any]) -> None:
        name = facts["name"]
        self.name = name.decode() if isinstance(name, bytes) else name
        self.major, self.minor = facts["major"], facts["minor"]
        self.total_memory = facts["totalGlobalMem"]
        self.multi_processor_count = facts["multiProcessorCount"]
        self.warp_size = facts["warpSize"]
        self.max_threads_per_multi_processor = facts["maxThreadsPerMultiProcessor"]

    def __repr__(self) -> str:
        body = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"_CudaDeviceProperties({body})"


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Facts about `device`, the current one by default."""
    found = require("cuda.get_device_properties")
    return DeviceProperties(found.cuda.runtime.getDeviceProperties(index_of(device)))


def get_device_name(device: Any = None) -> str:
    """The name of `device`."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Compute capability of `device`, major and minor."""
    facts = get_device_properties(device)
    return facts.major, facts.minor


def get_arch_list() -> list[str]:
    """Architectures that code was compiled for ahead of time: none, kernels are compiled when they are first used."""
    return []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device computes with bfloat16."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether `device` can read the memory of `peer_device`."""
    found = require("cuda.can_device_access_peer")
    return bool(found.cuda.runtime.deviceCanAccessPeer(index_of(device), index_of(peer_device)))


# -- memory --------------------------------------------------------------------------------------------------------------


def _pool() -> Any:
    found = _cupy()
    return None if found is None else found.get_default_memory_pool()


def empty_cache() -> None:
    """Give memory that no tensor uses back to the driver."""
    if (pool := _pool()) is not None:
        from .._streams import settle_lent

        settle_lent()
        pool.free_all_blocks()


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors."""
    pool = _pool()
    return 0 if pool is None else pool.used_bytes()


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the driver, in use or kept for later."""
    pool = _pool()
    return 0 if pool is None else pool.total_bytes()


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes in use so far; 0 without a device. Raises: NotImplementedError with one, where peaks are not followed yet."""
    return _peak("max_memory_allocated")


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes taken so far; 0 without a device. Raises: NotImplementedError with one, where peaks are not followed yet."""
    return _peak("max_memory_reserved")


def _peak(name: str) -> int:
    if is_available():
        raise NotImplementedError(f"cuda.{name}: peaks of device memory are not followed yet; see cuda.memory_allocated")
    return 0


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total memory of `device`, in bytes."""
    found = require("cuda.mem_get_info")
    with found.cuda.Device(index_of(device)):
        return found.cuda.runtime.memGetInfo()


def ipc_collect() -> None:
    """Nothing: memory is not shared between processes."""


# -- random numbers ------------------------------------------------------------------------------------------------------


def _stream_of(what: str) -> Any:
    index = index_of(None, what)
    from .._cuda.random import default_stream

    return default_stream(index)


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device; nothing without one, where programs may say it all the same."""
    if is_available():
        _stream_of("cuda.manual_seed").manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; nothing without any."""
    for at in range(device_count()):
        with device(at):
            manual_seed(seed)


def seed() -> None:
    """Seed the generator of the current device from the system's randomness."""
    if is_available():
        _stream_of("cuda.seed").seed()


def seed_all() -> None:
    """Seed the generators of all devices from the system's randomness."""
    for at in range(device_count()):
        with device(at):
            seed()


def initial_seed() -> int:
    """The seed of the generator of the current device. Raises: RuntimeError without one."""
    return _stream_of("cuda.initial_seed").initial_seed()


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of the generator of `device`, a uint8 tensor. Raises: RuntimeError without a device."""
    return _generator_at(device).get_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Set the state of the generator of `device`; nothing without a device, so that programs go on with what others saved."""
    if is_available():
        _generator_at(device).set_state(new_state)


def _generator_at(place: Any) -> Any:
    """The generator of a device, as a view of its stream of numbers."""
    index = index_of(place, "cuda generator")
    from .._cuda.random import default_stream
    from ..random import Generator

    found = Generator(_device_type("cuda", index))
    found._stream = default_stream(index)
    return found


def get_rng_state_all() -> list[Any]:
    """The states of the generators of all devices."""
    return [get_rng_state(at) for at in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Set the states of the generators of all devices; nothing without any."""
    for at, state in enumerate(new_states):
        set_rng_state(state, at)


_LATER = {
    "_facts": (
        "CUDAPluggableAllocator", "CudaError", "DeferredCudaCallError", "GreenContext", "MemPool", "MemPoolContext",
        "caching_allocator_alloc", "caching_allocator_delete",
        "caching_allocator_disabled", "caching_allocator_enable", "change_current_allocator", "check_error", "clock_rate", "cudaStatus",
        "cudart", "current_blas_handle", "current_solver_handle", "device_memory_used", "get_allocator_backend",
        "get_gencode_flags", "get_per_process_memory_fraction", "get_stream_from_external", "get_sync_debug_mode",
        "host_memory_stats", "host_memory_stats_as_nested_dict", "is_tf32_supported", "list_gpu_processes", "memory_snapshot",
        "memory_usage", "power_draw",
        "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats", "set_per_process_memory_fraction", "set_sync_debug_mode",
        "temperature", "use_mem_pool",
        "utilization",
    ),
    "graphs": ("CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"),
    "memory": (
        "OutOfMemoryError", "max_memory_cached", "memory_cached", "memory_stats", "memory_stats_as_nested_dict", "memory_summary",
        "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats",
    ),
}  # fmt: skip


_MODULES = (
    "_sanitizer", "amp", "comm", "gds", "graphs", "jiterator", "memory", "nccl", "nvtx", "profiler", "random", "sparse", "tunable",
)  # fmt: skip
has_half, has_magma = True, False


def _make(name: str) -> Any:
    if name.endswith("Storage"):
        from ..storage import cuda_storage_class

        return cuda_storage_class(name)
    if name == "default_generators":
        return tuple(_generator_at(index) for index in range(device_count()))
    from ..ops.creation.convert import CudaTensorMeta, typed_tensor

    found = typed_tensor(name, CudaTensorMeta)
    if found is not None:
        globals()[name] = found
    return found


def _listed() -> list[str]:
    from .. import storage
    from ..ops.creation.convert import typed_tensors

    storages = (name for name in storage.STORAGE_DTYPES if storage.cuda_storage_class(name))
    return [*typed_tensors(), *storages, "default_generators"]


__getattr__, __dir__ = names_on_demand(
    __name__, {f".{home}": names for home, names in _LATER.items()}, modules=_MODULES, make=_make, listed=_listed
)
