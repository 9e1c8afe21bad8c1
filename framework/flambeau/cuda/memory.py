"""What PyTorch's CUDA allocator tells of itself, as far as there is an answer without following every allocation."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .. import _missing
from .._errors import OutOfMemoryError
from .._on_demand import names_on_demand
from .._warn import warn

__all__ = [
    "OutOfMemoryError", "max_memory_cached", "memory_cached", "memory_stats", "memory_stats_as_nested_dict", "memory_summary",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats",
]  # fmt: skip


def _check_device(name: str) -> None:
    from . import is_available

    if is_available():
        raise _missing.not_built(f"cuda.{name}", "cuda.memory_allocated and cuda.memory_reserved tell the bytes in use")


def memory_cached(device: Any = None) -> int:
    """`memory_reserved` by its old name."""
    from . import memory_reserved

    warn("`torch.cuda.memory_cached` has been renamed to `torch.cuda.memory_reserved`", FutureWarning)
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """`max_memory_reserved` by its old name."""
    from . import max_memory_reserved

    warn("`torch.cuda.max_memory_cached` has been renamed to `torch.cuda.max_memory_reserved`", FutureWarning)
    return max_memory_reserved(device)


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """Counts of allocations by name; empty without a device. Raises: NotImplementedError with one."""
    _check_device("memory_stats")
    return OrderedDict()


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """`memory_stats` as nested dicts; empty without a device. Raises: NotImplementedError with one."""
    _check_device("memory_stats_as_nested_dict")
    return {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A text on the memory of `device`; says so where there is none. Raises: NotImplementedError with one."""
    _check_device("memory_summary")
    return "no CUDA device is in use"


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begin new peaks; nothing without a device. Raises: NotImplementedError with one, where peaks are not followed yet."""
    _check_device("reset_peak_memory_stats")


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Begin new counts; nothing without a device. Raises: NotImplementedError with one."""
    _check_device("reset_accumulated_memory_stats")


def reset_max_memory_allocated(device: Any = None) -> None:
    """`reset_peak_memory_stats` by an older name, which warns."""
    _warn_of_all_peaks("reset_max_memory_allocated")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """`reset_peak_memory_stats` by an older name, which warns."""
    _warn_of_all_peaks("reset_max_memory_cached")
    reset_peak_memory_stats(device)


def _warn_of_all_peaks(name: str) -> None:
    warn(f"torch.cuda.{name} now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak memory stats.", FutureWarning)


__getattr__, __dir__ = names_on_demand(
    __name__,
    {
        "._facts": (
            "CUDAPluggableAllocator", "MemPool", "MemPoolContext", "_dump_snapshot", "_record_memory_history", "_snapshot",
            "caching_allocator_disabled", "caching_allocator_enable", "host_memory_stats",
            "host_memory_stats_as_nested_dict", "reset_accumulated_host_memory_stats", "list_gpu_processes",
            "reset_peak_host_memory_stats", "use_mem_pool",
        )
    },
)  # fmt: skip
