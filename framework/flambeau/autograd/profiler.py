"""The autograd profiler: what ran, how long, with which operands, and where in the program.

`flambeau.profiler` is the profiler of today, with schedules and traces; this one is a region and its table.
"""

from __future__ import annotations

import functools
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from .. import _state
from ._recorder import Details, Recorder, Wanted
from ._region import record_function
from .profiler_util import EventList, FunctionEvent, FunctionEventAvg, MemRecordsAcc

__all__ = [
    "EnforceUnique", "EventList", "FunctionEvent", "KinetoStepTracker", "MemRecordsAcc", "emit_itt", "emit_nvtx", "load_nvprof",
    "parse_nvprof_trace", "profile", "record_function",
]  # fmt: skip


class profile:  # PyTorch's name
    """A region whose calls are recorded: ops, the rules of backward, steps of optimizers, and `record_function`.

    A program computes the same bits inside as outside. What other threads run is not recorded.

    Args:
        enabled: False makes the region do nothing.
        record_shapes: note the shapes of operands.
        with_flops: count the operations of products, and of additions and multiplications.
        profile_memory: note the memory that results take and give back, in bytes.
        with_stack: note the program's lines that led to each call.
        with_modules: note the modules around each call.
        use_cuda, use_device: devices are not timed; only None and False are taken.
        use_kineto, use_cpu, experimental_config, acc_events: accepted; nothing here depends on them but `acc_events`, which keeps the
            events of earlier regions of the same object.
        custom_trace_id_callback: called for the name of each trace.
    Raises: NotImplementedError for a device.
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None, record_shapes: bool = False,
        with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False,
        use_kineto: bool = False, use_cpu: bool = True, experimental_config: Any = None, acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.enabled, self.record_shapes, self.with_flops, self.profile_memory = enabled, record_shapes, with_flops, profile_memory
        self.with_stack, self.with_modules, self.acc_events = with_stack, with_modules, acc_events
        self.use_device = use_device or ("cuda" if use_cuda else None)
        if enabled and self.use_device is not None:
            raise NotImplementedError(
                f"autograd.profiler.profile(use_device={self.use_device!r}): devices are not timed yet; without it calls on the CPU are"
            )
        self.entered = False
        self.trace_id = ""
        self.custom_trace_id_callback = custom_trace_id_callback
        self._recorder: Recorder | None = None
        self._earlier: list[FunctionEvent] = []
        self._events: EventList | None = None

    def default_trace_id(self) -> str:
        """A new name for a trace: 32 hexadecimal digits."""
        return uuid.uuid4().hex.upper()

    def create_trace_id(self) -> str:
        """A new name for a trace, by the callback if there is one."""
        return (self.custom_trace_id_callback or self.default_trace_id)()

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self.trace_id = self.create_trace_id()
        self._start_trace()
        return self

    def _start_trace(self) -> None:
        if self.acc_events and self._recorder is not None:
            self._earlier = list(self.function_events)
        wanted = Wanted(self.record_shapes, self.profile_memory, self.with_stack, self.with_flops, self.with_modules)
        self._recorder, self._events = Recorder(wanted), None
        self._recorder.start()

    def __exit__(self, *_: object) -> bool:
        if self.enabled and self._recorder is not None and not self._recorder.ended:
            self._recorder.stop()
        return False

    @property
    def function_events(self) -> EventList:
        """All events, in the order in which they began."""
        if self._events is None:
            events = EventList(profile_memory=self.profile_memory, with_flops=self.with_flops)
            if self._recorder is not None:
                events = self._recorder.events()
            events[:0] = self._earlier
            events._tree_built = True
            if self._recorder is None or not self._recorder.ended:
                return events
            self._events = events
        return self._events

    def __repr__(self) -> str:
        return repr(self.function_events)

    def __str__(self) -> str:
        return str(self.function_events)

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
        max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False,
    ) -> str:  # fmt: skip
        """The events as a table; see `EventList.table`."""
        return self.function_events.table(
            sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header, top_level_events_only
        )

    def export_chrome_trace(self, path: str) -> None:
        """Write the trace to the file `path`, for chrome://tracing and Perfetto; gzipped if it ends in ``.gz``."""
        from ._profiler_trace import write

        write(self, path, {})

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks with their times to the file `path`, as flame graphs are made of. Raises: AssertionError without `with_stack`."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self.function_events.export_stacks(path, metric)

    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[Any]) -> None:
        """Stop recording calls on the CPU, or go on with it, inside the region."""
        if self._recorder is not None and any(getattr(a, "name", a) == "CPU" for a in activities):
            self._recorder.pause(not enabled)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The events added up by name; see `EventList.key_averages`."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """What all events come to together."""
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds that all events took, each counted without those inside."""
        return self.function_events.self_cpu_time_total


def _profiler_enabled() -> bool:
    """Whether a profile of this thread is being recorded."""
    return _state.observer() is not None


def _disable_profiler() -> None:
    """End the profile that this thread records. Raises: RuntimeError if there is none."""
    observer = _state.observer()
    if observer is None:
        raise RuntimeError("Can't disable profiler when it's not running")
    observer.stop()


def kineto_available() -> bool:
    """True: the features that PyTorch has only with its library Kineto are there."""
    return True


# -- ranges for other profilers ------------------------------------------------------------------------------------------


class _Emitting(Recorder):
    """Opens and closes a range around each call instead of recording it."""

    def __init__(self, push_range: Callable[[str], Any], pop_range: Callable[[], Any], record_shapes: bool) -> None:
        super().__init__(Wanted(shapes=record_shapes))
        self.push_range, self.pop_range = push_range, pop_range
        self.observe = self._observe_in_ranges

    def _observe_in_ranges(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool, run: Any) -> Any:
        from ._recorder import aten_name

        return self._in_range(self._title(aten_name(op, inplace), args), run, op, args, out, inplace)

    def observe_function(self, name: str, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any], plain: bool = False) -> Any:
        call = run if not plain else functools.partial(lambda a, k: run(a, k))
        given = (args, kwargs) if plain else args
        return self._in_range(self._title(name, args), call, *given, **({} if plain else kwargs))

    def _title(self, name: str, args: Any) -> str:
        if not self.wanted.shapes:
            return name
        return f"{name}, sizes = {[list(shape) for shape, _, _, _ in Details(*self._details(args)).descriptions()]}"

    def _in_range(self, title: str, run: Any, *args: Any, **kwargs: Any) -> Any:
        self.push_range(title)
        try:
            return run(*args, **kwargs)
        finally:
            self.pop_range()

    def begins_node(self, node: Any) -> None:
        self.push_range(f"{node.name()}, stashed seq={max(node.seq, -1)}")

    def ends_node(self, node: Any, grad: Any, grads: Any) -> None:
        self.pop_range()

    def ends_leaf(self, node: Any) -> None:
        self.pop_range()


class emit_nvtx:  # PyTorch's name
    """A region in which every call is a range of NVIDIA's profilers.

    Args:
        enabled: False makes the region do nothing.
        record_shapes: add the shapes of operands to the names.
    Raises: RuntimeError without a CUDA device.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.entered, self.record_shapes = enabled, False, record_shapes
        self._emitting: _Emitting | None = None

    def _ranges(self) -> tuple[Callable[[str], Any], Callable[[], Any]]:
        from ..cuda import nvtx

        nvtx.mark("emit_nvtx")  # raises where there is no device, before anything is recorded
        return nvtx.range_push, nvtx.range_pop

    def __enter__(self) -> Any:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError(f"{'NVTX' if type(self) is emit_nvtx else 'ITT'} annotation context manager is not reentrant")
        self.entered = True
        self._emitting = _Emitting(*self._ranges(), self.record_shapes)
        self._emitting.start()
        return self

    def __exit__(self, *_: object) -> bool:
        if self._emitting is not None:
            self._emitting.stop()
            self._emitting = None
        return False


class emit_itt(emit_nvtx):  # PyTorch's name
    """A region in which every call is a range of Intel's profilers.

    Their library is not bound: where `profiler.itt.is_available()` is False, ranges go nowhere.

    Args:
        enabled: False makes the region do nothing.
        record_shapes: add the shapes of operands to the names.
    """

    def _ranges(self) -> tuple[Callable[[str], Any], Callable[[], Any]]:
        from ..profiler import itt

        return itt.range_push, itt.range_pop


# -- nvprof --------------------------------------------------------------------------------------------------------------


class EnforceUnique:
    """Raises for a key that it has seen before."""

    def __init__(self) -> None:
        self.seen: set[tuple[Any, ...]] = set()

    def see(self, *key: Any) -> None:
        """Take note of `key`. Raises: RuntimeError the second time."""
        if key in self.seen:
            raise RuntimeError("duplicate key: " + str(key))
        self.seen.add(key)


def load_nvprof(path: str) -> EventList:
    """The ranges of autograd in a database that nvprof wrote. Raises: as `parse_nvprof_trace`."""
    return EventList(parse_nvprof_trace(path))


def parse_nvprof_trace(path: str) -> list[FunctionEvent]:
    """The ranges of autograd in the database `path` that nvprof wrote, with the kernels that ran in each.

    Raises: sqlite3.Error if `path` is no such database.
    """
    import sqlite3

    base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    base.row_factory = sqlite3.Row
    try:
        names = {row["id"]: row["value"] for row in base.execute("SELECT _id_ AS id, value FROM StringTable")}
        unique = EnforceUnique()
        found: dict[int, FunctionEvent] = {}
        for row in base.execute(
            "SELECT a.id AS id, a.name AS name, a.timestamp AS began, b.timestamp AS ended FROM CUPTI_ACTIVITY_KIND_MARKER AS a "
            "INNER JOIN CUPTI_ACTIVITY_KIND_MARKER AS b ON a.id = b.id WHERE a.name != 0 AND b.name = 0"
        ):
            unique.see(row["id"])
            found[row["id"]] = FunctionEvent(row["id"], names[row["name"]], 0, row["began"], row["ended"])
        unique = EnforceUnique()
        for row in base.execute(
            "SELECT a.id AS id, c._id_ AS launch, c.cbid AS cbid, d.start AS began, d.end AS ended, d.name AS name "
            "FROM CUPTI_ACTIVITY_KIND_MARKER AS a INNER JOIN CUPTI_ACTIVITY_KIND_MARKER AS b ON a.id = b.id AND a.timestamp < b.timestamp "
            "INNER JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS c ON c.start >= a.timestamp AND c.end <= b.timestamp "
            "INNER JOIN CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL AS d ON c.correlationId = d.correlationId"
        ):
            unique.see(row["id"], row["launch"])
            found[row["id"]].append_kernel(names.get(row["name"], str(row["name"])), 0, row["ended"] - row["began"])
        return sorted(found.values(), key=lambda e: e.time_range.start)
    finally:
        base.close()


class KinetoStepTracker:
    """How many steps a program has made, as counted by several parts of it: the most that any of them has."""

    _current_step = 0
    _step_dict: dict[str, int] = defaultdict(int)

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Let `requester` count from the current step on."""
        cls._step_dict[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forget `requester`. Returns: whether it was known."""
        return cls._step_dict.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Count a step of `requester`. Returns: the current step."""
        if requester not in cls._step_dict:
            cls.init_step_count(requester)
        cls._step_dict[requester] += 1
        cls._current_step = max(cls._current_step, *cls._step_dict.values())
        return cls._current_step

    @classmethod
    def current_step(cls) -> int:
        """The current step."""
        return cls._current_step

