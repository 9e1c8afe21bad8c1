"""There is no xpu device here: the module says so, and refuses what needs one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from . import _no_device

# PyTorch's type, in a build without xpu.
_refused = _no_device.refusing(
    "xpu",
    (
        "can_device_access_peer", "current_device", "current_stream", "get_device_capability", "get_device_name", "get_device_properties",
        "get_rng_state",
        "get_per_process_memory_fraction", "get_stream_from_external", "init", "initial_seed", "mem_get_info", "set_device",
        "set_per_process_memory_fraction", "synchronize",
    ),
    AssertionError,
)  # fmt: skip
globals().update(_refused)
globals().update(
    _no_device.refusing(
        "xpu",
        (
            "MemPool", "XPUGraph", "XPUPluggableAllocator", "change_current_allocator", "clock_rate", "device_memory_used", "graph",
            "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables", "memory_usage", "power_draw", "temperature",
            "use_mem_pool", "utilization",
        ),
    )
)  # fmt: skip
default_generators: tuple[Any, ...] = ()


def is_available() -> bool:
    """False: kernels do not run on such a device."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_bf16_supported() -> bool:
    """False."""
    return False


def is_tf32_supported() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def get_arch_list() -> list[str]:
    """Architectures with code compiled ahead of time: none."""
    return []


def get_gencode_flags() -> str:
    """Flags of such compilation: none."""
    return ""


class device:  # PyTorch's name
    """A context with another current device, which cannot be entered: NotImplementedError, as there is no xpu device."""

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> None:
        raise _no_device.refusal("xpu.device", "xpu", NotImplementedError)

    def __exit__(self, *_: object) -> None:
        pass


class device_of(device):  # PyTorch's name
    """As `device`, with the device of `obj`."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type == "xpu" else -1)


class Stream:
    """A queue of work of an xpu device. Raises: RuntimeError when made, as there is none."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        raise _no_device.refusal("xpu.Stream", "xpu")

    def query(self) -> bool:
        """Whether all its work is done."""
        raise _no_device.refusal("xpu.Stream.query", "xpu")

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        raise _no_device.refusal("xpu.Stream.synchronize", "xpu")

    def record_event(self, event: Any = None) -> Any:
        """An event that happens when the work so far is done."""
        raise _no_device.refusal("xpu.Stream.record_event", "xpu")

    def wait_event(self, event: Any) -> None:
        """Let later work wait for `event`."""
        raise _no_device.refusal("xpu.Stream.wait_event", "xpu")

    def wait_stream(self, stream: Any) -> None:
        """Let later work wait for that of `stream` so far."""
        raise _no_device.refusal("xpu.Stream.wait_stream", "xpu")


class Event:
    """A point in the work of an xpu device. Raises: RuntimeError when made, as there is none."""

    def __init__(self, enable_timing: bool = False) -> None:
        raise _no_device.refusal("xpu.Event", "xpu")

    def record(self, stream: Any = None) -> None:
        """Happen when the work of `stream` so far is done."""
        raise _no_device.refusal("xpu.Event.record", "xpu")

    def wait(self, stream: Any = None) -> None:
        """Let later work of `stream` wait for it."""
        raise _no_device.refusal("xpu.Event.wait", "xpu")

    def query(self) -> bool:
        """Whether it has happened."""
        raise _no_device.refusal("xpu.Event.query", "xpu")

    def synchronize(self) -> None:
        """Wait until it has happened."""
        raise _no_device.refusal("xpu.Event.synchronize", "xpu")

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to `end_event`."""
        raise _no_device.refusal("xpu.Event.elapsed_time", "xpu")


class StreamContext:
    """A context with another current stream; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        pass


def stream(stream: Any) -> StreamContext:
    """A context in which `stream` is current; None changes nothing."""
    return StreamContext(stream)


def set_stream(stream: Any) -> None:
    """None changes nothing. Raises: AssertionError for a stream, as there is no xpu device."""
    if stream is not None:
        raise _no_device.refusal("xpu.set_stream", "xpu", AssertionError)


# -- random numbers --------------------------------------------------------------------------------------------------------


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


def set_rng_state(new_state: Any, device: Any = "xpu") -> None:
    """Nothing: there is no generator to set."""


def set_rng_state_all(new_states: Any) -> None:
    """Nothing: there is no generator to set."""


# -- memory ----------------------------------------------------------------------------------------------------------------


def empty_cache() -> None:
    """Nothing: there is no memory of such a device."""


def memory_snapshot(mempool_id: Any = None) -> list[dict[str, Any]]:
    """What is allocated where: nothing."""
    return []


def memory_allocated(device: Any = None) -> int:
    """0 bytes."""
    return 0


def memory_reserved(device: Any = None) -> int:
    """0 bytes."""
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """0 bytes."""
    return 0


def max_memory_reserved(device: Any = None) -> int:
    """0 bytes."""
    return 0


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """Counts of allocations: none."""
    return OrderedDict()


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Counts of allocations: none."""
    return {}


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing: there are no peaks."""


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Nothing: there are no counts."""


def __getattr__(name: str) -> Any:
    from . import _missing

    raise _missing.attribute_error(__name__, name)
