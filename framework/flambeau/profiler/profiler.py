"""Profiles of today: activities, schedules over the steps of a loop, and what is done with each trace."""

from __future__ import annotations

import enum
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd import profiler as autograd_profiler
from ..autograd.profiler_util import EventList
from ._trace_observer import ExecutionTraceObserver

__all__ = [
    "ExecutionTraceObserver", "ProfilerAction", "ProfilerActivity", "profile", "schedule", "supported_activities",
    "tensorboard_trace_handler",
]  # fmt: skip

PROFILER_STEP_NAME = "ProfilerStep"


class ProfilerActivity(enum.Enum):
    """What can be recorded: calls on the CPU, and work of devices."""

    CPU = 0
    XPU = 1
    CUDA = 2
    HPU = 3
    MTIA = 4
    PrivateUse1 = 5

    @property
    def name(self) -> str:
        """Its name, such as ``'CPU'``."""
        return self._name_

    def __int__(self) -> int:
        return self.value


class ProfilerAction(enum.Enum):
    """What a profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


class _ExperimentalConfig:
    """Options of PyTorch's tracing library. They are kept, and change nothing here."""

    def __init__(self, profiler_metrics: Any = (), profiler_measure_per_kernel: bool = False, verbose: bool = False, **others: Any) -> None:
        self.profiler_metrics, self.profiler_measure_per_kernel, self.verbose = list(profiler_metrics), profiler_measure_per_kernel, verbose
        self.others = others


def supported_activities() -> set[ProfilerActivity]:
    """What can be recorded here: calls on the CPU. Work of devices is not timed yet."""
    return {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """What to do in which step: wait, warm up, record, and again.

    Args:
        wait, warmup, active: how many steps each phase of a cycle lasts.
        repeat: how many cycles; 0 for no end.
        skip_first: steps before the first cycle.
        skip_first_wait: leave out the waiting of the first cycle if it is not 0.
    Raises: AssertionError for negative numbers, and for `active` 0.
    """
    if not (wait >= 0 and warmup >= 0 and active > 0 and repeat >= 0 and skip_first >= 0):
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), active={active} "
            f"(need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if repeat > 0 and step // cycle >= repeat:
            return ProfilerAction.NONE
        within = step % cycle
        if within < wait:
            return ProfilerAction.NONE
        if within < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if within < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def _default_schedule_fn(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable[[Any], None]:
    """An `on_trace_ready` that writes each trace to a file of its own in the folder `dir_name`, for TensorBoard.

    Args:
        worker_name: the first part of the files' names; by default host and process.
        use_gzip: compress the files.
    """

    def handler(prof: Any) -> None:
        nonlocal worker_name
        if not os.path.isdir(dir_name):
            try:
                os.makedirs(dir_name, exist_ok=True)
            except OSError as error:
                raise RuntimeError(f"Can't create directory: {dir_name}") from error
        if not worker_name:
            worker_name = f"{socket.gethostname()}_{os.getpid()}"
        # Nanoseconds, so that two traces of one process never have one name.
        name = f"{worker_name}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return handler


class _KinetoProfile:
    """A profile that is started and stopped by hand.

    Args:
        activities: what to record, of `supported_activities()`; devices that are not there are left out.
        record_shapes: note the shapes of operands.
        profile_memory: note the memory that results take and give back, in bytes.
        with_stack: note the program's lines that led to each call.
        with_flops: count the operations of products, and of additions and multiplications.
        with_modules: note the modules around each call.
        experimental_config: options of PyTorch's tracing library; they change nothing here.
        execution_trace_observer: an object with `start`, `stop` and `cleanup` for the same time, such as `ExecutionTraceObserver`.
        acc_events: keep the events of earlier cycles.
        custom_trace_id_callback: called for the name of each trace.
    Raises: AssertionError if there is nothing to record.
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None, record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, with_modules: bool = False, experimental_config: Any = None,
        execution_trace_observer: Any = None, acc_events: bool = False, custom_trace_id_callback: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.activities = set(activities) if activities is not None else supported_activities()
        if not self.activities & supported_activities():
            raise AssertionError(f"No valid profiler activities found: asked for {sorted(map(str, self.activities))}, only CPU is recorded")
        left_out = sorted(str(a) for a in self.activities - supported_activities())
        if left_out:
            warnings.warn(f"profiler: {', '.join(left_out)} is not recorded, only calls on the CPU are", stacklevel=3)
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops, self.with_modules, self.acc_events = with_flops, with_modules, acc_events
        self.experimental_config = experimental_config
        self.execution_trace_observer = execution_trace_observer
        self.custom_trace_id_callback = custom_trace_id_callback
        self.profiler: autograd_profiler.profile | None = None
        self.preset_metadata: dict[str, str] = {}
        self._metadata: dict[str, Any] = {}

    def start(self) -> None:
        """Begin to record."""
        self.prepare_trace()
        self.start_trace()

    def stop(self) -> None:
        """Stop recording."""
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Make ready for `start_trace`."""
        if self.profiler is None or not self.acc_events:
            self.profiler = autograd_profiler.profile(
                record_shapes=self.record_shapes, with_flops=self.with_flops, profile_memory=self.profile_memory,
                with_stack=self.with_stack, with_modules=self.with_modules, acc_events=self.acc_events,
                experimental_config=self.experimental_config, custom_trace_id_callback=self.custom_trace_id_callback,
            )  # fmt: skip

    def start_trace(self) -> None:
        """Begin to record what `prepare_trace` made ready for. Raises: AssertionError without that."""
        if self.profiler is None:
            raise AssertionError("Profiler must be initialized before starting trace")
        self._metadata = {key: json.loads(value) for key, value in self.preset_metadata.items()}
        self.profiler.trace_id = self.profiler.create_trace_id()
        self.profiler._start_trace()
        if self.execution_trace_observer:
            try:
                self.execution_trace_observer.start()
            except BaseException:
                self.profiler.__exit__(None, None, None)
                raise

    def stop_trace(self) -> None:
        """Stop recording. Raises: AssertionError if nothing was started."""
        if self.execution_trace_observer:
            self.execution_trace_observer.stop()
        if self.profiler is None:
            raise AssertionError("Profiler must be initialized before stopping trace")
        self.profiler.__exit__(None, None, None)

    def _started(self, doing: str) -> autograd_profiler.profile:
        if self.profiler is None:
            raise AssertionError(f"Profiler must be initialized before {doing}: enter it, or call start()")
        return self.profiler

    def export_chrome_trace(self, path: str) -> None:
        """Write the trace to the file `path`, for chrome://tracing and Perfetto; gzipped if it ends in ``.gz``."""
        from ..autograd._profiler_trace import write

        write(self._started("exporting chrome trace"), path, self._metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks with their times to the file `path`, as flame graphs are made of.

        Args:
            metric: "self_cpu_time_total", or that of a device.
        """
        self._started("exporting stacks").export_stacks(path, metric)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Stop recording `activities`, or go on with it, in the middle of a profile."""
        if self.profiler is not None:
            self.profiler.toggle_collection_dynamic(enable, activities)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The events added up by name; see `EventList.key_averages`."""
        averages = self._started("getting key averages")
        return averages.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def events(self) -> EventList:
        """All events, in the order in which they began."""
        return self._started("accessing events").function_events

    def module_table(self) -> str:
        """Forward times of modules by their path, as text; what PyTorch has not. Raises: ValueError without `with_modules`."""
        from ._page import by_module, table

        if not (self.with_modules or self.with_stack):
            raise ValueError("module_table: with_modules=True is needed")
        return table(by_module(self.events()), "Module")

    def line_table(self) -> str:
        """Times by the program's lines, with those of their backward, as text; what PyTorch has not.

        Raises: ValueError without `with_stack`.
        """
        from ._page import by_line, table

        if not self.with_stack:
            raise ValueError("line_table: with_stack=True is needed")
        return table(by_line(self.events()), "Line")

    def export_html(self, path: str, title: str = "Profile") -> None:
        """Write one page that explains the profile to the file `path`; what PyTorch has not.

        It has advice in sentences, times by name, module and line, a flame graph, a timeline, and memory by category: what was
        recorded of them. It needs nothing but a browser, and has at most some 700 kB.

        Args:
            title: the heading of the page.
        """
        from ._page import page

        text = page(self._started("exporting a page"), title)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a value to the trace, given as JSON. Raises: ValueError for other text."""
        self._metadata[key] = json.loads(value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """Add a value, given as JSON, to every trace that is started from now on."""
        self.preset_metadata[key] = value

    def _memory_profile(self) -> Any:
        from ._memory_profiler import MemoryProfile

        return MemoryProfile(self._started("reading memory")._recorder)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write how much memory was in use when, by category, to the file `path`.

        Args:
            path: ends in ``.html`` (a plot), ``.json`` or ``.json.gz`` (``[times, sizes by category]``), or ``.raw.json.gz`` (each
                change as time, action, bytes and category).
            device: "cpu", which is the default.
        Raises: ValueError unless shapes, memory and stacks were recorded, or for another device or suffix.
        """
        if not (self.record_shapes and self.profile_memory and self.with_stack):
            raise ValueError("export_memory_timeline: record_shapes=True, profile_memory=True and with_stack=True are needed")
        if device not in (None, "cpu"):
            raise ValueError(f"export_memory_timeline(device={device!r}): only the memory of 'cpu' is recorded")
        self._memory_profile().export(path)


class profile(_KinetoProfile):  # PyTorch's name
    """A region, or a loop of steps, whose calls are recorded.

    A program computes the same bits inside as outside. What other threads run is not recorded.

    Args:
        activities: what to record, of `supported_activities()`; devices that are not there are left out.
        schedule: what to do in which step, such as `schedule` makes; by default all is recorded.
        on_trace_ready: called with this object at the end of each cycle of the schedule, and at the end.
        record_shapes, profile_memory, with_stack, with_flops, with_modules, experimental_config, execution_trace_observer,
            acc_events, custom_trace_id_callback: as for `_KinetoProfile`.
        use_cuda: deprecated; give `activities`.
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None, schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None, record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, with_modules: bool = False, experimental_config: Any = None,
        execution_trace_observer: Any = None, acc_events: bool = False, use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        wanted = set(activities) if activities is not None else supported_activities()
        if use_cuda is not None:
            warnings.warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning, stacklevel=2)
            wanted = wanted | {ProfilerActivity.CUDA} if use_cuda else wanted - {ProfilerActivity.CUDA}
        super().__init__(
            activities=wanted, record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops,
            with_modules=with_modules, experimental_config=experimental_config, execution_trace_observer=execution_trace_observer,
            acc_events=acc_events, custom_trace_id_callback=custom_trace_id_callback,
        )  # fmt: skip
        self.schedule = schedule or _default_schedule_fn
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(self.step_num)
        self.step_rec_fn: Any = None
        self._cycles = 0
        autograd_profiler.KinetoStepTracker.init_step_count(PROFILER_STEP_NAME)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        autograd_profiler.KinetoStepTracker.erase_step_count(PROFILER_STEP_NAME)
        if self.execution_trace_observer:
            self.execution_trace_observer.cleanup()

    def start(self) -> None:
        """Begin with the first step."""
        self._go(ProfilerAction.NONE, self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """End the last step; what is being recorded becomes a trace."""
        self._end_step()
        if self.current_action in (ProfilerAction.NONE, ProfilerAction.WARMUP) and self.profiler is None:
            return
        self._go(self.current_action, None)

    def step(self) -> None:
        """End this step and begin the next one."""
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._go(before, self.current_action)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.record_steps:
            self.step_rec_fn = autograd_profiler.record_function(f"{PROFILER_STEP_NAME}#{self.step_num}")
            self.step_rec_fn.__enter__()

    def _end_step(self) -> None:
        if self.step_rec_fn is not None:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None

    def _go(self, before: ProfilerAction, after: ProfilerAction | None) -> None:
        """What lies between the action of one step and that of the next; None after the last."""
        recording = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE
        ends = before is ProfilerAction.RECORD_AND_SAVE or before in recording and after not in recording
        if ends:
            if before is ProfilerAction.RECORD and after is not None:
                warnings.warn("Incorrect schedule: RECORD followed by NONE or WARMUP", stacklevel=3)
            self.stop_trace()
            self._trace_ready()
        if after is ProfilerAction.WARMUP and before is not ProfilerAction.WARMUP:
            self.prepare_trace()
        elif after in recording and (ends or before not in recording):
            if before is not ProfilerAction.WARMUP:
                self.prepare_trace()
            self.start_trace()

    def start_trace(self) -> None:
        self._cycles += 1
        if self._cycles == 2 and not self.acc_events and self.on_trace_ready is None:  # nobody has had the events of the first
            warnings.warn(
                "Warning: Profiler clears events at the end of each cycle. Only events from the current cycle will be reported. "
                "To keep events across cycles, set acc_events=True.",
                stacklevel=4,
            )
        super().start_trace()

    def _trace_ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Let `callback` name the traces from the next one on."""
        self.custom_trace_id_callback = callback
        if self.profiler is not None:
            self.profiler.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """The name of this trace, or None before the first."""
        return None if self.profiler is None else self.profiler.trace_id
