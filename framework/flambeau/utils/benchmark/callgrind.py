"""Counts of instructions by function, as callgrind writes them: containers to combine, compare and clean them.

`Timer.collect_callgrind` counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .measurement import TaskSpec

__all__ = ["CallgrindStats", "FunctionCount", "FunctionCounts"]

_LINE_WIDTH, _LEAST_WIDTH = 80, 40  # characters of a line; of a name in it
_SHOWN = 18  # rows at most: half from the beginning, half from the end
# Looking names up in dicts takes more or fewer instructions with every run of Python.
_NOISY = "dictobject.c:lookdict_unicode"
# What stands before the part of a path that is the same wherever a program was built, and the library at the end.
_PREFIX = re.compile(r"^.*/(?=(?:Objects|Python|Modules|Parser|Programs)/)")
_BUILD = re.compile(r"^.*/(?=torch/csrc/|c10/|caffe2/)")
_LIBRARY = re.compile(r"\s*\[[^\]]*\]$")


class FunctionCount(NamedTuple):
    """Instructions of one function."""

    count: int
    function: str


class FunctionCounts:
    """Instructions by function, in an order that is kept; ``+`` and ``-`` combine, ``*`` scales, and an index selects rows.

    Args:
        _data: pairs of count and function.
        inclusive: whether counts have those of the functions that are called.
        truncate_rows: show the first and last rows only, where there are many.
        _linewidth: characters of a shown line.
    """

    def __init__(self, _data: Iterable[Any], inclusive: bool, truncate_rows: bool = True, _linewidth: int | None = None) -> None:
        self._data = tuple(FunctionCount(*pair) for pair in _data)
        self.inclusive, self.truncate_rows, self._linewidth = inclusive, truncate_rows, _linewidth

    def __iter__(self) -> Iterator[FunctionCount]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, item: Any) -> FunctionCount | FunctionCounts:
        found = self._data[item]
        return self._with(found) if isinstance(item, slice) else found

    def _with(self, data: Iterable[Any]) -> FunctionCounts:
        return FunctionCounts(data, self.inclusive, self.truncate_rows, self._linewidth)

    def __repr__(self) -> str:
        count_width = max([len(str(c)) + (c < 0) for c, _ in self], default=0)
        width = max((self._linewidth or _LINE_WIDTH) - count_width - 4, _LEAST_WIDTH)
        rows = [f"  {count:>{count_width}}  {_shortened(function, width)}" for count, function in self]
        if self.truncate_rows and len(rows) > _SHOWN:
            rows[_SHOWN // 2 : len(rows) - _SHOWN // 2] = [f"  {'...':>{count_width}}"]
        if not self.inclusive:
            rows += ["", f"Total: {self.sum()}"]
        return "\n".join([object.__repr__(self), *rows])

    def __add__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merged(other, 1)

    def __sub__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merged(other, -1)

    def __mul__(self, factor: int) -> FunctionCounts:
        return self._summed((count * factor, function) for count, function in self)

    def _merged(self, other: FunctionCounts, sign: int) -> FunctionCounts:
        if self.inclusive is not other.inclusive:
            raise AssertionError("Cannot merge inclusive and exclusive counts.")
        return self._summed((*self, *((sign * count, function) for count, function in other)))

    def _summed(self, pairs: Iterable[Any]) -> FunctionCounts:
        """Counts of one function added up, the largest first; those that come to nothing are left out."""
        sums: Counter[str] = Counter()
        for count, function in pairs:
            sums[function] += count
        found = [FunctionCount(count, function) for function, count in sums.items() if count]
        return self._with(sorted(found, reverse=True))

    def transform(self, map_fn: Callable[[str], str]) -> FunctionCounts:
        """The counts under the names that `map_fn` makes of the functions'; those of one name are added up."""
        return self._summed((count, map_fn(function)) for count, function in self)

    def filter(self, filter_fn: Callable[[str], bool]) -> FunctionCounts:
        """The counts of functions for whose name `filter_fn` is true."""
        return self._with(pair for pair in self if filter_fn(pair.function))

    def sum(self) -> int:
        """All counts together."""
        return sum(count for count, _ in self)

    def denoise(self) -> FunctionCounts:
        """The counts without those of Python that differ from run to run."""
        return self.filter(lambda function: _NOISY not in function)


def _shortened(text: str, width: int) -> str:
    """`text`, or its two ends if it is longer."""
    if len(text) <= width:
        return text
    half = (width - 5) // 2
    return f"{text[:half]} ... {text[half + 5 - width :]}"


@dataclass(repr=False, eq=False, slots=True)
class CallgrindStats:
    """What callgrind counted of a statement.

    Args:
        task_spec: the statement, and under which names it was run.
        number_per_run: how often it was executed.
        built_with_debug_symbols: whether functions could be told from each other.
        baseline_inclusive_stats, baseline_exclusive_stats: the counts of the loop around an empty statement.
        stmt_inclusive_stats, stmt_exclusive_stats: the counts of the loop around the statement.
        stmt_callgrind_out: what callgrind wrote, or None.
    """

    task_spec: TaskSpec
    number_per_run: int
    built_with_debug_symbols: bool
    baseline_inclusive_stats: FunctionCounts
    baseline_exclusive_stats: FunctionCounts
    stmt_inclusive_stats: FunctionCounts
    stmt_exclusive_stats: FunctionCounts
    stmt_callgrind_out: str | None = None

    def __repr__(self) -> str:
        baseline = self.baseline_exclusive_stats
        lines = [object.__repr__(self), self.task_spec.title, *([self.task_spec.setup_str()] if self.task_spec.setup_str() else [])]
        lines.append(f"{'All':>30}{'Noisy symbols removed':>31}")
        lines.append(f"    Instructions: {self.counts():>12}{self.counts(denoise=True):>27}")
        lines.append(f"    Baseline:     {baseline.sum():>12}{baseline.denoise().sum():>27}")
        threads = f"{self.task_spec.num_threads} thread{'s' if self.task_spec.num_threads > 1 else ''}"
        lines.append(f"{self.number_per_run} runs per measurement, {threads}")
        return "\n".join(lines)

    def stats(self, inclusive: bool = False) -> FunctionCounts:
        """The counts by function.

        Args:
            inclusive: with those of the functions that are called.
        """
        return self.stmt_inclusive_stats if inclusive else self.stmt_exclusive_stats

    def counts(self, *, denoise: bool = False) -> int:
        """All instructions.

        Args:
            denoise: without those of Python that differ from run to run.
        """
        stats = self.stmt_exclusive_stats
        return (stats.denoise() if denoise else stats).sum()

    def delta(self, other: CallgrindStats, inclusive: bool = False) -> FunctionCounts:
        """What was counted more here than in `other`, by function.

        Args:
            inclusive: as for `stats`.
        """
        return self.stats(inclusive) - other.stats(inclusive)

    def as_standardized(self) -> CallgrindStats:
        """The same with names that do not say where programs were built, so that those of two builds cancel."""

        def standard(function: str) -> str:
            return _LIBRARY.sub("", _BUILD.sub("", _PREFIX.sub("", function)))

        names: Any = ("baseline_inclusive_stats", "baseline_exclusive_stats", "stmt_inclusive_stats", "stmt_exclusive_stats")
        return replace(self, **{name: getattr(self, name).transform(standard) for name in names})
