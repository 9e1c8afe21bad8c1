"""There is no mtia device here: the module says so, and refuses what needs one."""

from __future__ import annotations

from typing import Any

from .. import _no_device
from .._streams import Event as Event
from .._streams import Stream as Stream
from . import memory as memory
from .memory import max_memory_allocated as max_memory_allocated
from .memory import memory_allocated as memory_allocated
from .memory import memory_stats as memory_stats
from .memory import reset_peak_memory_stats as reset_peak_memory_stats

_refused = _no_device.refusing(
    "mtia",
    (
        "MTIAGraph", "attach_out_of_memory_observer", "current_device", "current_stream", "default_stream", "empty_cache",
        "get_device_capability", "get_device_properties", "graph", "graph_pool_handle", "set_rng_state", "snapshot", "stream",
        "synchronize",
    ),
) | _no_device.refusing("mtia", ("get_rng_state", "init", "initial_seed"), AssertionError)  # fmt: skip
default_generators: tuple[Any, ...] = ()
globals().update(_refused)


class DeferredMtiaCallError(Exception):
    """A call that waited for the device failed when it came."""


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


def seed() -> None:
    """Nothing: there is no generator to seed."""


def seed_all() -> None:
    """Nothing: there is no generator to seed."""


def get_rng_state_all() -> list[Any]:
    """The states of all generators: none."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Nothing: there is no generator to set."""


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True, as PyTorch says of these devices whether or not there is one."""
    return True


def record_memory_history(enabled: str | None = "all", stacks: str = "python", max_entries: int = 0) -> None:
    """Nothing: there is no memory of such a device to follow."""


def set_stream(stream: Any) -> None:
    """None changes nothing. Raises: RuntimeError for a stream, as there is no mtia device."""
    if stream is not None:
        raise _no_device.refusal("mtia.set_stream", "mtia")


def set_device(device: Any) -> None:
    """A negative index changes nothing. Raises: ValueError for None; RuntimeError for a device, as there is none."""
    if device is None:
        raise ValueError("mtia.set_device: expected a device with an index or an integer, got None")
    if not isinstance(device, int) or device >= 0:
        raise _no_device.refusal("mtia.set_device", "mtia")


class device:  # PyTorch's name
    """A context with another current device; a negative index changes nothing, anything else cannot be entered: RuntimeError."""

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> None:
        if not isinstance(self.idx, int) or self.idx >= 0:
            raise _no_device.refusal("mtia.device", "mtia")

    def __exit__(self, *_: object) -> None:
        pass


class StreamContext:
    """A context with another current stream. Raises: RuntimeError when made, as there is no mtia device."""

    def __init__(self, stream: Any) -> None:
        raise _no_device.refusal("mtia.StreamContext", "mtia")


def __getattr__(name: str) -> Any:
    from .. import _missing

    raise _missing.attribute_error(__name__, name)
