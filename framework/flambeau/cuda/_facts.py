"""What NVIDIA's management library says of devices, and settings of CUDA that nothing here has."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Any, NoReturn

from .. import _missing
from ._unbuilt import unbuilt

__all__ = [
    "CUDAPluggableAllocator", "CudaError", "DeferredCudaCallError", "GreenContext", "MemPool", "MemPoolContext",
    "caching_allocator_disabled", "check_error", "cudaStatus", "cudart", "current_solver_handle", "get_gencode_flags",
    "get_stream_from_external", "host_memory_stats",
    "host_memory_stats_as_nested_dict", "reset_accumulated_host_memory_stats",
    "is_tf32_supported", "list_gpu_processes", "reset_peak_host_memory_stats", "use_mem_pool",
]  # fmt: skip


def _management(what: str) -> Any:
    try:
        import pynvml  # pyright: ignore[reportMissingImports]  # optional, of no extra
    except ImportError:
        raise ModuleNotFoundError(
            f"cuda.{what}: nvidia-ml-py does not seem to be installed or it can't be imported; pip install nvidia-ml-py", name="pynvml"
        ) from None
    pynvml.nvmlInit()
    return pynvml


def _handle(what: str, device: Any) -> tuple[Any, Any]:
    library = _management(what)
    from . import index_of

    return library, library.nvmlDeviceGetHandleByIndex(index_of(device))


def utilization(device: Any = None) -> int:
    """Per cent of the last sample period in which a kernel ran on `device`. Raises: ModuleNotFoundError without nvidia-ml-py."""
    library, handle = _handle("utilization", device)
    return library.nvmlDeviceGetUtilizationRates(handle).gpu


def memory_usage(device: Any = None) -> int:
    """Per cent of the last sample period in which memory of `device` was read or written. Raises: as `utilization`."""
    library, handle = _handle("memory_usage", device)
    return library.nvmlDeviceGetUtilizationRates(handle).memory


def device_memory_used(device: Any = None) -> int:
    """Bytes of memory of `device` in use by anyone. Raises: as `utilization`."""
    library, handle = _handle("device_memory_used", device)
    return library.nvmlDeviceGetMemoryInfo(handle).used


def temperature(device: Any = None) -> int:
    """Temperature of `device` in degrees Celsius. Raises: as `utilization`."""
    library, handle = _handle("temperature", device)
    return library.nvmlDeviceGetTemperature(handle, 0)


def power_draw(device: Any = None) -> int:
    """Power that `device` draws, in milliwatts. Raises: as `utilization`."""
    library, handle = _handle("power_draw", device)
    return library.nvmlDeviceGetPowerUsage(handle)


def clock_rate(device: Any = None) -> int:
    """Clock of the multiprocessors of `device`, in MHz. Raises: as `utilization`."""
    library, handle = _handle("clock_rate", device)
    return library.nvmlDeviceGetClockInfo(handle, 1)


def list_gpu_processes(device: Any = None) -> str:
    """A text on the processes that use `device`; without nvidia-ml-py it says that this is missing."""
    try:
        library, handle = _handle("list_gpu_processes", device)
    except ModuleNotFoundError:
        return "pynvml module not found, please install nvidia-ml-py"
    found = library.nvmlDeviceGetComputeRunningProcesses(handle)
    lines = [f"process {each.pid:>10d} uses {each.usedGpuMemory / 2**20:>12.3f} MB GPU memory" for each in found]
    return "\n".join(lines or ["no processes are running"])


def get_gencode_flags() -> str:
    """Flags of code compiled ahead of time: none, kernels are compiled when they are first used."""
    return ""


def is_tf32_supported() -> bool:
    """Whether the current device could compute products in TensorFloat-32; False without one. None are computed so."""
    from . import get_device_capability, is_available

    return is_available() and get_device_capability()[0] >= 8


def get_stream_from_external(data_ptr: int, device: Any = None) -> Any:
    """The stream that another library made, by its handle. Raises: RuntimeError without a device."""
    from .streams import ExternalStream

    return ExternalStream(data_ptr, device)


def cudart() -> Any:
    """The functions of CUDA's runtime, cupy's. Raises: RuntimeError without a device."""
    from . import require

    return require("cuda.cudart").cuda.runtime


def current_blas_handle() -> int:
    """The handle of cuBLAS that is in use. Raises: RuntimeError without a device."""
    from . import require

    return require("cuda.current_blas_handle").cuda.device.get_cublas_handle()


def host_memory_stats() -> OrderedDict[str, int]:
    """Counts of pinned memory: none are kept."""
    return OrderedDict()


def reset_peak_host_memory_stats() -> None:
    """Nothing: there are no counts."""


def caching_allocator_enable(value: bool = True) -> None:
    """True changes nothing. Raises: NotImplementedError for False with a device."""
    from . import is_available

    if not value and is_available():
        raise _missing.not_built("cuda.memory.caching_allocator_enable", "memory is kept by cupy's pool")


@contextlib.contextmanager
def caching_allocator_disabled() -> Any:
    """A context without a pool of memory. Raises: RuntimeError without a device, else NotImplementedError."""
    _refused["caching_allocator_disabled"]()
    yield


class cudaStatus:  # PyTorch's name
    """Codes of CUDA's runtime that programs compare with."""

    SUCCESS: int = 0
    ERROR_NOT_READY: int = 34


class CudaError(RuntimeError):
    """A function of CUDA's runtime gave this code. Raises: RuntimeError when made without a device, as nobody knows its name.

    Args:
        code: the code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"{cudart().getErrorString(code)} ({code})")


class DeferredCudaCallError(Exception):
    """A call that waited for the device failed when it came."""


def check_error(res: int) -> None:
    """Raise CudaError for a code of CUDA's runtime that is not `cudaStatus.SUCCESS`. Raises: RuntimeError without a device."""
    cudart()
    if res != cudaStatus.SUCCESS:
        raise CudaError(res)


def current_solver_handle() -> int:
    """The handle of cuSOLVER that is in use. Raises: RuntimeError without a device."""
    from . import require

    return require("cuda.current_solver_handle").cuda.device.get_cusolver_handle()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Counts of pinned memory: none are kept."""
    return {}


def reset_accumulated_host_memory_stats() -> None:
    """Nothing: there are no counts."""


class GreenContext:
    """Part of the multiprocessors of a device. `create` raises RuntimeError without a device, else NotImplementedError."""

    @staticmethod
    def create(
        *, num_sms: int | None = None, workqueue_scope: str | None = None, workqueue_concurrency_limit: int | None = None,
        device_id: int | None = None,
    ) -> NoReturn:  # fmt: skip
        """A context of `num_sms` multiprocessors."""
        raise _refused["GreenContext"]()


class CUDAPluggableAllocator:
    """An allocator from a library in C. Not built: raises NotImplementedError when made.

    Args:
        path_to_so_file: the library.
        alloc_fn_name, free_fn_name: its functions that take memory and give it back.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        raise _missing.not_built("cuda.CUDAPluggableAllocator", "cupy.cuda.set_allocator takes an allocator")


class MemPool:
    """A pool of memory of its own. Raises: RuntimeError without a device, else NotImplementedError."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refused["MemPool"]()

    @property
    def id(self) -> NoReturn:
        """Its number."""
        raise _missing.not_built("cuda.MemPool.id", _ADVICE)

    @property
    def allocator(self) -> NoReturn:
        """What it takes memory from."""
        raise _missing.not_built("cuda.MemPool.allocator", _ADVICE)

    def use_count(self) -> NoReturn:
        """How many use it."""
        raise _missing.not_built("cuda.MemPool.use_count", _ADVICE)

    def snapshot(self) -> NoReturn:
        """What it holds."""
        raise _missing.not_built("cuda.MemPool.snapshot", _ADVICE)


class MemPoolContext:
    """The pool in use. Raises: RuntimeError without a device, else NotImplementedError."""

    def __init__(self, pool: Any) -> None:
        _refused["MemPoolContext"]()

    @staticmethod
    def active_pool() -> None:
        """None: memory comes from the one pool there is."""


@contextlib.contextmanager
def use_mem_pool(pool: Any, device: Any = None) -> Any:
    """A context that cannot be entered: RuntimeError without a device, else NotImplementedError."""
    _refused["use_mem_pool"]()
    yield


_ADVICE = "memory comes from cupy's pool; cupy.get_default_memory_pool() has its settings"
_refused = unbuilt(
    "cuda",
    (
        "GreenContext", "MemPool", "MemPoolContext", "caching_allocator_disabled", "_dump_snapshot", "_record_memory_history",
        "_snapshot", "caching_allocator_alloc",
        "caching_allocator_delete", "change_current_allocator", "get_allocator_backend", "get_per_process_memory_fraction",
        "get_sync_debug_mode", "memory_snapshot", "set_per_process_memory_fraction", "set_sync_debug_mode", "use_mem_pool",
    ),
    _ADVICE,
)  # fmt: skip
globals().update({name: made for name, made in _refused.items() if name not in globals()})
