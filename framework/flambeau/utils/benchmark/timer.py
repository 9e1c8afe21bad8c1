"""Timing of statements: threads set, warmed up, repeated."""

from __future__ import annotations

import enum
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import flambeau as fb

from .measurement import Measurement, TaskSpec

__all__ = ["Language", "Timer", "timer"]

_OVERHEAD = 1e-3  # the timer's own share of a block


class Language(enum.Enum):
    """The language of the statement; only Python's statements can be timed."""

    PYTHON = 0
    CPP = 1


def timer() -> float:
    """The time in seconds, after work on CUDA devices is done."""
    if fb.cuda.is_available():
        fb.cuda.synchronize()
    return timeit.default_timer()


class Timer:
    """Times a statement.

    Args:
        stmt: the code that is timed; indentation that all its lines share is taken off.
        setup: code that runs before, once.
        global_setup: of C++ statements; not used.
        timer: tells the time in seconds.
        globals: what the statement sees.
        label: what is timed, in words.
        sub_label: what tells it from others of that label.
        description: a column of `Compare`'s table.
        env: where it ran; tells measurements of one name apart.
        num_threads: of the kernels while it runs.
        language: Python.
    Raises: NotImplementedError for C++ statements.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = Language.PYTHON,
    ) -> None:
        if language not in (*Language, "py", "python", "cpp", "c++"):
            raise ValueError(f"benchmark.Timer: language must be Language.PYTHON or Language.CPP, got {language!r}")
        if language not in (Language.PYTHON, "py", "python"):
            raise NotImplementedError(f"benchmark.Timer: statements in C++ are not timed, got language={language!r}")
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        self._globals = dict(globals or {})
        namespace = dict(self._globals)
        # What a program imports under PyTorch's name is there without being said.
        namespace.setdefault("torch", fb)
        stmt, setup = _dedented(stmt), _dedented(setup)
        self._clock = timer
        self._timer = timeit.Timer(stmt=stmt, setup=setup, timer=timer, globals=namespace)
        self._task_spec = TaskSpec(
            stmt=stmt,
            setup=setup,
            global_setup=global_setup,
            label=label,
            sub_label=sub_label,
            description=description,
            env=env,
            num_threads=num_threads,
        )

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One replicate of `number` runs, after a warm-up of a hundredth of them."""
        with _threads(self._task_spec.num_threads):
            self._timer.timeit(number=max(number // 100, 2))
            return Measurement(number, [self._timer.timeit(number=number)], self._task_spec)

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> None:
        """Not available, as in PyTorch: call `blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Not available, as in PyTorch: call `blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def blocked_autorange(self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2) -> Measurement:
        """Replicates of so many runs that the clock costs less than a thousandth, for `min_run_time` seconds.

        Args:
            callback: called with the number of runs and the seconds of each replicate.
            min_run_time: in seconds, without the warm-up.
        """
        with _threads(self._task_spec.num_threads):
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < min_run_time:
                times.append(self._replicate(number, callback))
            return Measurement(number, times, self._task_spec)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Replicates until their interquartile range is below `threshold` of the median, or for `max_run_time` seconds.

        Args:
            min_run_time, max_run_time: in seconds.
            callback: see `blocked_autorange`.
        """
        with _threads(self._task_spec.num_threads):
            number = self._block_size(0.05)
            times: list[float] = []
            while sum(times) < max_run_time:
                times.append(self._replicate(number, callback))
                if len(times) > 3 and sum(times) > min_run_time:
                    low, median, high = np.quantile(times, (0.25, 0.5, 0.75))
                    if (high - low) / median < threshold:
                        break
            return Measurement(number, times, self._task_spec)

    def _replicate(self, number: int, callback: Callable[[int, float], Any] | None) -> float:
        seconds = self._timer.timeit(number)
        if callback is not None:
            callback(number, seconds)
        return seconds

    def _block_size(self, min_run_time: float) -> int:
        """How many runs make the clock's own time negligible; finding it out is the warm-up."""
        clock = float(np.median([self._timer_cost() for _ in range(5)]))
        number = 1
        while True:
            seconds = self._timer.timeit(number)
            if clock <= seconds * _OVERHEAD and seconds >= min_run_time / 1000:
                return number
            if seconds > min_run_time:
                return number
            number *= 10

    def _timer_cost(self) -> float:
        return timeit.Timer(stmt="pass", timer=self._clock).timeit(0)

    def collect_callgrind(
        self, number: int = 100, *, repeats: int | None = None, collect_baseline: bool = True, retain_out_file: bool = False
    ) -> Any:
        """Instructions of `number` runs, counted by valgrind in a process of its own.

        Args:
            repeats: how often they are counted; None for once.
            collect_baseline: count the loop around an empty statement too, once for each `number`.
            retain_out_file: keep what callgrind wrote, as text.
        Returns: CallgrindStats; with `repeats` a tuple of them.
        Raises: RuntimeError without valgrind, or when the statement fails under it; ValueError for globals that another process
            cannot be given: these are plain values, tensors and modules, with containers of them.
        """
        from . import _counting

        return _counting.run(self._task_spec, self._globals, number, repeats, collect_baseline, retain_out_file)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = fb.get_num_threads()
    fb.set_num_threads(number)
    try:
        yield
    finally:
        fb.set_num_threads(before)


def _dedented(code: str) -> str:
    from textwrap import dedent

    lines = dedent(code).splitlines()
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    return "\n".join(lines)
