"""What a profile is made of: events, lists of them, averages by name, and the tables that show them."""

from __future__ import annotations

import bisect
import enum
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

__all__ = [
    "DeviceType", "EventList", "FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "MemRecordsAcc",
    "StringTable",
]  # fmt: skip

MEMORY_EVENT_NAME = "[memory]"
OUT_OF_MEMORY_EVENT_NAME = "[OutOfMemory]"
_STEP_NAME = "ProfilerStep#"


class DeviceType(enum.Enum):
    """Where an event ran."""

    CPU = 0
    CUDA = 1
    XPU = 12
    HPU = 15
    MTIA = 19
    PrivateUse1 = 20


# -- numbers as text -----------------------------------------------------------------------------------------------------


def _format_time(time_us: float) -> str:
    """Microseconds with a unit that suits them, and three decimals."""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3f}s"
    return f"{time_us / 1e3:.3f}ms" if time_us >= 1e3 else f"{time_us:.3f}us"


def _format_time_share(time_us: float, total_time_us: float) -> str:
    """`time_us` as a share of the total. Raises: AssertionError for a time without a total."""
    if total_time_us == 0:
        if time_us != 0:
            raise AssertionError(f"Expected time_us == 0 but got {time_us}")
        return "NaN"
    return f"{time_us * 100.0 / total_time_us:.2f}%"


def _format_memory(nbytes: float) -> str:
    """Bytes with a binary unit that suits them."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(nbytes) >= 1024**power:
            return f"{nbytes / 1024**power:.2f} {unit}"
    return f"{nbytes} B"


def _rewrite_name(name: str, with_wildcard: bool = False) -> str:
    """The name that events are grouped by: with `with_wildcard`, all steps of a profile have one."""
    return f"{_STEP_NAME[:-1]}*" if with_wildcard and name.startswith(_STEP_NAME) else name


# -- small records -------------------------------------------------------------------------------------------------------


class Interval:
    """From `start` to `end`, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """Its length in microseconds."""
        return self.end - self.start


class Kernel(NamedTuple):
    """What ran on a device on behalf of an event: its `name`, the number of the `device`, and `duration` in microseconds."""

    name: str
    device: int
    duration: float


class StringTable(defaultdict):
    """Names by themselves, each kept once."""

    def __missing__(self, key: str) -> str:
        self[key] = key
        return key


class MemRecordsAcc:
    """Records of memory, each with a method `start_ns()`, found by the time they were made at."""

    def __init__(self, mem_records: Iterable[Any]) -> None:
        self._mem_records = list(mem_records)
        pairs = sorted((record[0].start_ns(), at) for at, record in enumerate(self._mem_records))
        self._start_nses = [start for start, _ in pairs]
        self._indices = [at for _, at in pairs]

    def in_interval(self, start_ns: int, end_ns: int) -> Iterator[Any]:
        """The records from `start_ns` to `end_ns`, both in nanoseconds."""
        first = bisect.bisect_left(self._start_nses, start_ns)
        for at in range(first, bisect.bisect_right(self._start_nses, end_ns)):
            yield self._mem_records[self._indices[at]]


class FormattedTimesMixin:
    """Times of a class as text: ``x_str`` is the time ``x``."""

    cpu_time_total: Any
    device_time_total: Any
    self_cpu_time_total: Any
    self_device_time_total: Any
    count: int

    @property
    def cpu_time(self) -> float:
        """Average microseconds of a call on the CPU."""
        return 0.0 if self.count == 0 else 1.0 * self.cpu_time_total / self.count

    @property
    def device_time(self) -> float:
        """Average microseconds of a call on its device."""
        return 0.0 if self.count == 0 else 1.0 * self.device_time_total / self.count

    @property
    def cuda_time(self) -> float:
        """`device_time`, under the name it had."""
        return self.device_time

    @property
    def cpu_time_str(self) -> str:
        return _format_time(self.cpu_time)

    @property
    def device_time_str(self) -> str:
        return _format_time(self.device_time)

    @property
    def cpu_time_total_str(self) -> str:
        return _format_time(self.cpu_time_total)

    @property
    def device_time_total_str(self) -> str:
        return _format_time(self.device_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return _format_time(self.self_cpu_time_total)

    @property
    def self_device_time_total_str(self) -> str:
        return _format_time(self.self_device_time_total)


# -- events --------------------------------------------------------------------------------------------------------------


class FunctionEvent(FormattedTimesMixin):
    """One call that was recorded: of an op, of a rule of backward, or of a region with a name.

    Attributes: `time_range` in microseconds; `thread` and, for backward, `fwd_thread`, counted from 1; `input_shapes`; `stack` of
    the program's lines, the innermost first; `sequence_nr`, equal for an op and the backward of it, else -1; `cpu_memory_usage` in
    bytes, what was allocated less what was freed; `flops`; `cpu_parent` and `cpu_children`.
    """

    def __init__(
        self, id: int, name: str, thread: int, start_us: float, end_us: float, overload_name: str | None = None,
        fwd_thread: int | None = None, input_shapes: Any = None, stack: Any = None, scope: int = 0, use_device: str | None = None,
        cpu_memory_usage: int = 0, device_memory_usage: int = 0, is_async: bool = False, is_remote: bool = False,
        sequence_nr: int = -1, node_id: int = -1, device_type: DeviceType = DeviceType.CPU, device_index: int = 0,
        device_resource_id: int | None = None, is_legacy: bool = False, flops: int | None = None, trace_name: str | None = None,
        concrete_inputs: Any = None, kwinputs: Any = None, is_user_annotation: bool = False, metadata_json: Any = None,
    ) -> None:  # fmt: skip
        self.id, self.node_id, self.name, self.overload_name, self.trace_name = id, node_id, name, overload_name, trace_name
        self.time_range = Interval(start_us, end_us)
        self.thread, self.fwd_thread = thread, fwd_thread
        self.kernels: list[Kernel] = []
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes = () if input_shapes is None else input_shapes
        self.concrete_inputs = () if concrete_inputs is None else concrete_inputs
        self.kwinputs = {} if kwinputs is None else kwinputs
        self.stack = [] if stack is None else stack
        self.scope, self.use_device = scope, use_device
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.is_legacy = is_async, is_remote, is_legacy
        self.sequence_nr = sequence_nr
        self.device_type, self.device_index = device_type, device_index
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.flops = flops
        self.is_user_annotation = is_user_annotation
        self.self_cpu_percent = self.total_cpu_percent = self.total_device_percent = -1
        self.metadata_json = metadata_json

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Add what ran on a device on behalf of this event."""
        if self.device_type != DeviceType.CPU:
            raise AssertionError(f"Expected device_type to be CPU, but got {self.device_type}")
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Add an event that ran inside this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Say which event this one ran inside."""
        self.cpu_parent = parent

    def _without_children(self, of: Callable[[FunctionEvent], Any]) -> Any:
        if self.is_async or self.device_type != DeviceType.CPU:
            return 0
        return of(self) - sum([of(child) for child in self.cpu_children])

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes, without those of events inside."""
        return self._without_children(lambda e: e.cpu_memory_usage)

    @property
    def self_device_memory_usage(self) -> int:
        """Bytes of the device, without those of events inside."""
        return self._without_children(lambda e: e.device_memory_usage)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds, without those of events inside."""
        return self._without_children(lambda e: e.cpu_time_total)

    @property
    def cpu_time_total(self) -> float:
        """Microseconds from its start to its end."""
        return self.time_range.elapsed_us() if self.device_type == DeviceType.CPU else 0

    @property
    def device_time_total(self) -> float:
        """Microseconds on the device, of this event and those inside."""
        if self.is_async or not self.use_device:
            return 0
        if self.device_type != DeviceType.CPU:
            return self.time_range.elapsed_us()
        return sum(kernel.duration for kernel in self.kernels) + sum(child.device_time_total for child in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:
        """Microseconds on the device, without those of events inside."""
        return self.device_time_total - sum([child.device_time_total for child in self.cpu_children]) if self.use_device else 0

    @property
    def cuda_time_total(self) -> float:
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        return self.self_device_time_total

    @property
    def self_cuda_memory_usage(self) -> int:
        return self.self_device_memory_usage

    @property
    def key(self) -> str:
        """The name it is grouped by."""
        return self.name

    def __repr__(self) -> str:
        device, time = self.use_device, self.device_time_str
        return (
            f"<FunctionEvent id={self.id} name={self.name} overload_name={self.overload_name} device_type={self.device_type} "
            f"node_id={self.node_id} cpu_time={self.cpu_time_str} start_us={self.time_range.start} end_us={self.time_range.end} "
            f"cpu_children={[child.id for child in self.cpu_children]} {device}_time={time} name={self.name} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} "
            f"{device}_memory_usage={self.device_memory_usage} is_async={self.is_async} is_remote={self.is_remote} "
            f"seq_nr={self.sequence_nr} is_legacy={self.is_legacy}>"
        )


class FunctionEventAvg(FormattedTimesMixin):
    """What all events of one key come to together."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.node_id = 0
        self.is_async = self.is_remote = self.is_legacy = self.is_user_annotation = False
        self.use_device: str | None = None
        self.cpu_time_total = self.device_time_total = self.self_cpu_time_total = self.self_device_time_total = 0.0
        self.input_shapes: Any = None
        self.overload_name: str | None = None
        self.stack: Any = None
        self.scope: int | None = None
        self.cpu_memory_usage = self.device_memory_usage = self.self_cpu_memory_usage = self.self_device_memory_usage = 0
        self.cpu_children: Any = None
        self.cpu_parent: Any = None
        self.device_type = DeviceType.CPU
        self.flops = 0

    def add(self, other: Any) -> FunctionEventAvg:
        """Take in an event, or another average, of the same key."""
        if self.key is None:
            self.key, self.node_id = other.key, other.node_id
            for name in (
                "is_async", "is_remote", "is_legacy", "is_user_annotation", "use_device", "input_shapes", "overload_name", "stack",
                "scope", "cpu_parent", "cpu_children", "device_type",
            ):  # fmt: skip
                setattr(self, name, getattr(other, name))
        if not isinstance(other, (FunctionEvent, FunctionEventAvg)) or other.key != self.key:
            raise AssertionError(f"Expected an event with the key {self.key!r}, but got {other!r}")
        for name in (
            "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total", "cpu_memory_usage",
            "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage", "count",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        device = self.use_device or "cuda"
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str}  "
            f"self_{device}_time={self.self_device_time_total_str} {device}_time={self.device_time_str} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} "
            f"{device}_memory_usage={self.device_memory_usage}>"
        )


# -- lists of events -----------------------------------------------------------------------------------------------------


class EventList(list):
    """Events, or averages of them; ``str()`` of it is the table."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        use_device = kwargs.pop("use_device", None)
        profile_memory, with_flops = kwargs.pop("profile_memory", False), kwargs.pop("with_flops", False)
        super().__init__(*args, **kwargs)
        self._use_device, self._profile_memory, self._with_flops = use_device, profile_memory, with_flops
        self._tree_built = False

    def _build_tree(self) -> None:
        self._populate_cpu_children()
        self._set_backward_stacktraces()
        self._tree_built = True

    def __str__(self) -> str:
        return self.table()

    def _populate_cpu_children(self) -> None:
        """Say of each event which one it ran inside: the innermost of its thread that lasts at least as long."""
        for event in self:
            event.cpu_children.clear()
            event.cpu_parent = None
        on_cpu = [e for e in self if not e.is_async and e.device_type == DeviceType.CPU]
        on_cpu.sort(key=lambda e: (e.thread, e.node_id))
        for _, events in itertools.groupby(on_cpu, key=lambda e: (e.thread, e.node_id)):
            around: list[FunctionEvent] = []
            for event in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end)):
                while around and (around[-1].time_range.end <= event.time_range.start or around[-1].time_range.end < event.time_range.end):
                    around.pop()
                if around:
                    around[-1].append_cpu_child(event)
                    event.set_cpu_parent(around[-1])
                around.append(event)

    def _set_backward_stacktraces(self) -> None:
        """Give events of backward the stacks of the ops that they are the backward of."""
        stacks = {e.sequence_nr: e.stack for e in self if e.stack and not e.fwd_thread and e.sequence_nr >= 0}
        for event in self:
            at: Any = event
            while at is not None and not at.fwd_thread:
                at = at.cpu_parent
            if at is not None and at.sequence_nr in stacks:
                event.stack = stacks[at.sequence_nr]

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds that all events took, each counted without those inside."""
        return sum(event.self_cpu_time_total for event in self)

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
        max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False,
    ) -> str:  # fmt: skip
        """The events as a table.

        Args:
            sort_by: the attribute to sort by, the largest first, such as "self_cpu_time_total", "cpu_memory_usage" or "count".
            row_limit: rows at most; -1 for all.
            max_src_column_width, max_name_column_width, max_shapes_column_width: characters at most, the rest is cut off.
            header: a line above the table.
            top_level_events_only: leave out what ran inside other events.
        """
        from ._profiler_table import build

        widths = max_src_column_width, max_name_column_width, max_shapes_column_width
        return build(self, sort_by, row_limit, widths, header, top_level_events_only)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events to the file `path` as a trace that chrome://tracing and Perfetto show."""
        entries = [
            {
                "name": event.trace_name or event.name, "ph": "X", "ts": event.time_range.start, "dur": event.time_range.elapsed_us(),
                "tid": event.thread, "pid": "CPU functions", "args": {},
            }
            for event in self
            if not event.is_remote
        ]  # fmt: skip
        with open(path, "w") as file:
            json.dump(entries, file)

    def supported_export_stacks_metrics(self) -> list[str]:
        """What `export_stacks` can add up."""
        return ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """Write a line for each event with a stack: its frames, the outermost first, and its `metric` in whole microseconds.

        Raises: ValueError for an unknown metric.
        """
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}, got {metric!r}")
        blanks = str.maketrans(" ;\t\n", "____")
        name = metric.replace("cuda", "device").replace("xpu", "device").replace("privateuse1", "device")
        with open(path, "w") as file:
            for event in self:
                value = int(getattr(event, name)) if event.stack else 0
                if value > 0:
                    file.write(f"{';'.join(frame.translate(blanks) for frame in reversed(event.stack))} {value}\n")

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The events added up by name.

        Args:
            group_by_input_shapes: keep calls with operands of other shapes apart.
            group_by_stack_n: keep calls apart whose innermost so many lines of the program differ.
            group_by_overload_name: keep overloads apart.
        """
        if not self._tree_built:
            raise AssertionError("Expected tree to be built before calling key_averages")
        averages: dict[tuple[str, ...], FunctionEventAvg] = defaultdict(FunctionEventAvg)
        for event in self:
            key = [event.key, str(event.node_id), str(event.device_type), str(event.is_legacy), str(event.is_user_annotation)]
            key.append(event.overload_name or "" if group_by_overload_name else "")
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n > 0:
                key += event.stack[:group_by_stack_n]
            averages[tuple(key)].add(event)
        made = EventList(averages.values(), use_device=self._use_device, profile_memory=self._profile_memory, with_flops=self._with_flops)
        for average in made:
            average.stack = average.stack[:group_by_stack_n]
            if not group_by_input_shapes:
                average.input_shapes = ""
            if not group_by_overload_name:
                average.overload_name = ""
        return made

    def total_average(self) -> FunctionEventAvg:
        """What all events come to together; those inside others are counted there too."""
        total = FunctionEventAvg()
        for event in self:
            total.add(_Renamed(event))
        total.key = "Total" if len(self) else None
        return total


class _Renamed(FunctionEventAvg):
    """An event as one of all."""

    def __init__(self, event: Any) -> None:
        super().__init__()
        self.add(event)
        self.key = ""
