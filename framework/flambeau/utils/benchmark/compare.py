"""Tables of measurements: a row a statement, a column a description."""

from __future__ import annotations

import math
from typing import Any

from .measurement import Measurement, time_unit, trim_significant

__all__ = ["Compare"]

_WORDS = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds"}
_BEST, _GOOD, _BAD, _VERY_BAD, _BOLD, _END = "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m", "\033[1m", "\033[0m"


class Compare:
    """A table for each label of `results`; replicates of one task are merged.

    Args:
        results: measurements with labels, sub-labels (rows) and descriptions (columns).
    """

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim = self._colorize = self._by_row = self._highlight = False

    def extend_results(self, results: list[Measurement]) -> None:
        """Add measurements.

        Raises: ValueError for anything else.
        """
        for result in results:
            if not isinstance(result, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(result)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Write only the digits that mean something."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour the fastest and the slowest, of each column, or of each row."""
        self._colorize, self._by_row = True, rowwise

    def highlight_warnings(self) -> None:
        """Mark measurements whose times spread."""
        self._highlight = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        groups: dict[Any, list[Measurement]] = {}
        for result in Measurement.merge(self._results):
            groups.setdefault(result.task_spec.label, []).append(result)
        return "\n".join(self._table(group) for group in groups.values())

    def _table(self, results: list[Measurement]) -> str:
        unit, scale = time_unit(min(result.median for result in results))
        envs = list(dict.fromkeys(r.task_spec.env for r in results))
        columns = list(dict.fromkeys(r.task_spec.description for r in results))
        threads = sorted({r.task_spec.num_threads for r in results})
        cells = {_place(r): r for r in results}
        names = list(dict.fromkeys(r.as_row_name for r in results))

        env_width = max(len(f"({env})") for env in envs)

        def name_of(name: str, env: str | None) -> str:
            return f"  {f'({env})' if env else '':<{env_width}}  {name}" if len(envs) > 1 else f"      {name}"

        label_width = max(len(name_of(name, env)) for name in names for env in envs)
        # Digits after the point: as many in a column as all of its times carry.
        places = {column: min(_places(r, scale) for r in results if r.task_spec.description == column) for column in columns}
        texts = {place: self._text(r, scale, places[place[3]]) for place, r in cells.items()}
        widths = []
        for column in columns:
            used = [len(text) for place, text in texts.items() if place[3] == column]
            widths.append(max([len(column or ""), *used]))
        separator = "  |  "
        body = [separator.join([" " * label_width, *((c or "").center(w) for c, w in zip(columns, widths, strict=True))])]
        width = len(body[0])
        for count in threads:
            body.append(f"{count} threads: ".ljust(width, "-"))
            for env in sorted(envs, key=str):
                shown: str | None = env
                for name in names:
                    row = [cells.get((count, name, env, column)) for column in columns]
                    if not any(row):
                        continue
                    line = [name_of(name, shown).ljust(label_width)]
                    shown = None  # an environment is named once
                    for result, column, w in zip(row, columns, widths, strict=True):
                        text = texts.get((count, name, env, column), "").rjust(w)
                        others = row if self._by_row else [
                            r for place, r in cells.items() if (place[0], place[3]) == (count, column)
                        ]  # fmt: skip
                        line.append(self._coloured(text, result, others))
                    body.append(separator.join(line))
        head = f"[{f' {results[0].task_spec.label or str()} '.center(width - 2, '-')}]"
        return "\n".join([head, *body, "", f"Times are in {_WORDS[unit]} ({unit}).", ""])

    def _text(self, result: Measurement, scale: float, places: int) -> str:
        value = result.median / scale
        text = f"{trim_significant(value, result.significant_figures):.{places}f}" if self._trim else f"{value:.1f}"
        mark = f" (! {result.iqr / result.median * 100:.0f}%)" if self._highlight and result.has_warnings else ""
        return text + mark

    def _coloured(self, text: str, result: Measurement | None, among: list[Any]) -> str:
        if not self._colorize or result is None:
            return text
        best = min(other.median for other in among if other is not None)
        ratio = result.median / best
        if ratio <= 1.05:
            return f"{_BEST}{_BOLD}{text}{_END}{_END}"
        if ratio <= 1.25:
            return f"{_GOOD}{text}{_END}"
        return f"{_VERY_BAD}{_BOLD}{text}{_END}{_END}" if ratio > 5 else f"{_BAD}{text}{_END}" if ratio > 2 else text


def _places(result: Measurement, scale: float) -> int:
    """How many digits after the point of a time, written in units of `scale` seconds, mean something."""
    return max(result.significant_figures - math.ceil(math.log10(result.median / scale)), 0)


def _place(result: Measurement) -> tuple[int, str, str | None, str | None]:
    spec = result.task_spec
    return spec.num_threads, result.as_row_name, spec.env, spec.description
