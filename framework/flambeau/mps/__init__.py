"""There is no mps device here: the module says so, and refuses what needs one."""

from __future__ import annotations

from typing import Any

from .. import _no_device
from . import event as event
from . import profiler as profiler
from .event import Event as Event

_refused = _no_device.refusing(
    "mps",
    (
        "compile_shader", "current_allocated_memory", "current_device", "driver_allocated_memory", "empty_cache", "get_rng_state", "init",
        "load_metallib", "recommended_max_memory", "seed", "set_device", "set_rng_state", "synchronize",
    ),
)  # fmt: skip
globals().update(_refused)


def is_available() -> bool:
    """False: kernels do not run on such a device."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def manual_seed(seed: int) -> None:
    """Nothing: there is no generator to seed."""


def manual_seed_all(seed: int) -> None:
    """Nothing: there is no generator to seed."""


def set_per_process_memory_fraction(fraction: float) -> None:
    """Raises RuntimeError: there is no mps device; TypeError and ValueError for what is no float from 0 to 2."""
    if not isinstance(fraction, float):
        raise TypeError(f"mps.set_per_process_memory_fraction: fraction must be a float, got {type(fraction).__name__}")
    if not 0 <= fraction <= 2:
        raise ValueError(f"mps.set_per_process_memory_fraction: fraction must be from 0 to 2, got {fraction}")
    raise _no_device.refusal("mps.set_per_process_memory_fraction", "mps")


def __getattr__(name: str) -> Any:
    from .. import _missing

    raise _missing.attribute_error(__name__, name)
