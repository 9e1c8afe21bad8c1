"""What a `Timer` measured, and what follows from it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Measurement", "TaskSpec", "time_unit", "trim_significant"]

_UNITS = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))
_NORMAL_95 = 1.645  # the 95 % quantile of the normal distribution
_CLOCK = 25e-9  # seconds that no clock tells apart
_NOISY, _VERY_NOISY = 0.10, 0.25  # interquartile range over median


@dataclass(frozen=True)
class TaskSpec:
    """What was timed, and under which names.

    Args:
        stmt, setup, global_setup: the code.
        label, sub_label, description, env: names; see `Timer`.
        num_threads: of the kernels.
    """

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement, with the sub-label."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n" + textwrap.indent(self.stmt, "  ")

    def setup_str(self) -> str:
        """The setup, if it is worth a line."""
        if self.setup in ("pass", ""):
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}\n" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """The names, a line each; after code of several lines an empty one."""
        title = self.title
        lines = [title + "\n" * ("\n" in title), self.description or "", self.setup_str()]
        return "\n".join(line for line in lines if line)


@dataclass(repr=False)
class Measurement:
    """Times of one statement.

    Args:
        number_per_run: how often the statement ran in each replicate.
        raw_times: seconds of each replicate, all of its runs together.
        task_spec: what was timed.
        metadata: anything that goes with it.
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None)

    def __getattr__(self, name: str) -> Any:
        # What was timed is asked of the measurement itself: label, description, num_threads, ...
        if name.startswith("__") or name == "task_spec":
            raise AttributeError(name)
        return getattr(self.task_spec, name)

    @property
    def times(self) -> list[float]:
        """Seconds a run, one number a replicate."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """Seconds; -1 without times."""
        return float(np.median(self.times)) if self.raw_times else -1.0

    @property
    def mean(self) -> float:
        """Seconds; -1 without times."""
        return float(np.mean(self.times)) if self.raw_times else -1.0

    @property
    def iqr(self) -> float:
        """The interquartile range, in seconds; 0 without times."""
        if not self.raw_times:
            return 0.0
        low, high = np.quantile(self.times, (0.25, 0.75))
        return float(high - low)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median mean something, from the spread of its middle half. Raises: ValueError without times."""
        if not self.raw_times:
            raise ValueError("Measurement: there are no times")
        times = np.sort(self.times)
        n = len(times)
        middle = times[n // 4 : math.ceil(3 * n / 4)]
        width = max(_NORMAL_95 * float(np.std(middle)) / len(middle) ** 0.5, _CLOCK)
        return max(math.floor(math.log10(self.median / width)), 1)

    @property
    def has_warnings(self) -> bool:
        """Whether the times spread by more than a tenth of the median."""
        return bool(self.raw_times) and not self.meets_confidence(_NOISY)

    def meets_confidence(self, threshold: float = _NOISY) -> bool:
        """Whether the interquartile range is below `threshold` of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        """The label, or the statement, with the sub-label."""
        return self.task_spec.title

    @property
    def env(self) -> str | None:
        """The environment's name; None if it has none."""
        return self.task_spec.env

    @property
    def as_row_name(self) -> str:
        """The name of the row in a table."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        if not self.raw_times:
            raise ValueError("Measurement: there are no times to show")
        spec = self.task_spec
        lines = [object.__repr__(self), spec.summarize()]
        n = len(self.raw_times)
        unit, scale = time_unit(self.median)
        if n == 1:
            lines.append(f"  {self.median / scale:.2f} {unit}")
        else:
            lines.append(f"  Median: {self.median / scale:.2f} {unit}")
            if n >= 4:
                low, high = np.quantile(self.times, (0.25, 0.75)) / scale
                lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        threads = f"{spec.num_threads} thread{'s' if spec.num_threads > 1 else ''}"
        runs = f"{self.number_per_run} runs {'per measurement' if n > 1 else ''}"
        lines.append(f"  {n} measurement{'s' if n > 1 else ''}, {runs}, {threads}")
        if self.has_warnings:
            share = self.iqr / self.median * 100
            noise = "This could indicate system fluctuation."
            if self.iqr / self.median > _VERY_NOISY:
                noise = "This suggests significant environmental influence."
            lines += [f"  WARNING: Interquartile range is {share:.1f}% of the median measurement.", f"           {noise}"]
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, with the times of all replicates, as of one run each."""
        grouped: dict[TaskSpec, list[float]] = {}
        for measurement in measurements:
            grouped.setdefault(measurement.task_spec, []).extend(measurement.times)
        return [Measurement(1, times, spec) for spec, times in grouped.items()]


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit to write `seconds` in, and how many seconds that is."""
    for unit, scale in reversed(_UNITS):
        if seconds >= scale:
            return unit, scale
    return _UNITS[0]


def trim_significant(value: float, digits: int) -> float:
    """`value` rounded to so many significant digits."""
    if not value:
        return value
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return round(value, places)
