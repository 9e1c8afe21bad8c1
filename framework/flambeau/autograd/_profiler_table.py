"""The table of a profile as text: one row for each event, columns for what was recorded."""

from __future__ import annotations

import math
from typing import Any

from .profiler_util import EventList, _format_memory, _format_time, _format_time_share, _rewrite_name

_GAP = "  "
_WIDTH = 12  # of columns of numbers
_PLACES = 4  # what a column of text is wider than its longest text
_FLOPS = "FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs"


def build(events: Any, sort_by: str | None, row_limit: int, widths: tuple[int, int, int], header: str | None, top_level_only: bool) -> str:
    """The table of `events`; `widths` are the widest that columns of sources, names and shapes may get."""
    if not len(events):
        return ""
    given = events
    if sort_by is not None:
        by = sort_by.replace("cuda", "device").replace("xpu", "device").replace("privateuse1", "device")
        events = EventList(sorted(events, key=lambda e: getattr(e, by), reverse=True), use_device=given._use_device,
                           profile_memory=given._profile_memory, with_flops=given._with_flops)  # fmt: skip
    columns = _Columns(events, given, widths)
    rule = "".join([f"{'-' * w}{_GAP}" for w in columns.sizes])
    lines = [rule, columns.line(columns.heads), rule]
    double = "=" * (len(rule) - len(_GAP))
    if top_level_only:
        lines[:0] = [double, "This report only display top-level ops statistics"]
    if header is not None:
        lines[:0] = [double, header]
    shown = 0
    for event in events:
        if shown == row_limit:
            break
        if top_level_only and event.cpu_parent is not None:
            continue
        shown += 1
        lines.append(columns.line(columns.row(event)))
        lines += columns.lines_of_sources(event)
    lines += [rule, f"Self CPU time total: {_format_time(columns.total_cpu)}"]
    if columns.has_device:
        lines.append(f"Self {columns.device} time total: {_format_time(columns.total_device)}")
    return "\n".join(lines) + "\n"


class _Columns:
    """Which columns a table of `events` has and how wide they are; shares are of the totals of all events that were `given`."""

    def __init__(self, events: Any, given: Any, widths: tuple[int, int, int]) -> None:
        most_source, self.most_name, most_shapes = widths
        self.name_width = _column(max(len(e.key) for e in events), self.most_name)
        self.shapes_width = _column(max(len(str(e.input_shapes)) for e in events), most_shapes)
        self.source_width = _column(max((len(s) for e in events for s in e.stack or ()), default=0), most_source)
        self.has_shapes = any(e.input_shapes is not None and len(e.input_shapes) > 0 for e in events)
        self.has_stacks = any(e.stack is not None and len(e.stack) > 0 for e in events)
        self.has_device = any(e.self_device_time_total > 0 for e in events)
        self.has_memory, self.has_flops = given._profile_memory, given._with_flops
        self.device = (given._use_device or "cuda").upper()
        self.total_cpu = sum(e.self_cpu_time_total for e in given)
        self.total_device = sum(e.self_device_time_total for e in given)
        power, self.scale = _flops_unit([e.flops for e in events if e.flops])
        self._add_heads(_FLOPS[power])

    def _add_heads(self, unit: str) -> None:
        device = self.device
        heads = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        sizes = [self.name_width] + [_WIDTH] * 5
        if self.has_device:
            heads += [f"Self {device}", f"Self {device} %", f"{device} total", f"{device} time avg"]
        if self.has_memory:
            heads += ["CPU Mem", "Self CPU Mem"]
            if self.has_device:
                heads += [f"{device} Mem", f"Self {device} Mem"]
        heads.append("# of Calls")
        sizes += [_WIDTH] * (len(heads) - len(sizes))
        if self.has_shapes:
            heads.append("Input Shapes")
            sizes.append(self.shapes_width)
        if self.has_stacks:
            heads.append("Source Location")
            sizes.append(self.source_width)
        if self.has_flops:
            heads.append(f"Total {unit}")
            sizes.append(_WIDTH)
        self.heads, self.sizes = heads, sizes

    def line(self, texts: list[str]) -> str:
        left = len(self.heads) - 1 - bool(self.has_flops) if self.has_stacks else -1  # sources are set to the left
        cells = enumerate(zip(texts, self.sizes, strict=True))
        return "".join([f"{t:<{w}}{_GAP}" if i == left else f"{t:>{w}}{_GAP}" for i, (t, w) in cells])

    def row(self, e: Any) -> list[str]:
        name = e.key if len(e.key) <= self.most_name else f"{e.key[: self.most_name - 3]}..."
        share = _format_time_share(e.cpu_time_total, self.total_cpu) if not e.is_async else "0"
        texts = [
            _rewrite_name(name, with_wildcard=True), _format_time_share(e.self_cpu_time_total, self.total_cpu), e.self_cpu_time_total_str,
            share, e.cpu_time_total_str, e.cpu_time_str,
        ]  # fmt: skip
        if self.has_device:
            texts += [
                e.self_device_time_total_str, _format_time_share(e.self_device_time_total, self.total_device), e.device_time_total_str,
                e.device_time_str,
            ]  # fmt: skip
        if self.has_memory:
            texts += [_format_memory(e.cpu_memory_usage), _format_memory(e.self_cpu_memory_usage)]
            if self.has_device:
                texts += [_format_memory(e.device_memory_usage), _format_memory(e.self_device_memory_usage)]
        texts.append(str(e.count))
        if self.has_shapes:
            texts.append(str(e.input_shapes)[: self.shapes_width])
        if self.has_stacks:
            texts.append(_end_of(e.stack[0], self.source_width) if e.stack else "")
        if self.has_flops:
            texts.append(f"{e.flops * self.scale:8.3f}" if e.flops else "--")
        return texts

    def lines_of_sources(self, event: Any) -> list[str]:
        """A line for each further place that `event` was called from, and an empty one; none if no event has any."""
        if not self.has_stacks:
            return []
        at = self.heads.index("Source Location")
        frames = [*[_end_of(frame, self.source_width) for frame in event.stack[1:]], ""]
        return [self.line([frame if i == at else "" for i in range(len(self.heads))]) for frame in frames]


def _column(longest: int, most: int) -> int:
    return min(longest + _PLACES, most)


def _end_of(text: str, width: int) -> str:
    """The last `width` characters, where the line number is."""
    return text if len(text) <= width else f"...{text[len(text) - width + 3 :]}"


def _flops_unit(counts: list[Any]) -> tuple[int, float]:
    """Which of `_FLOPS` the smallest of `counts` is shown in, and what counts are multiplied with."""
    if not counts:
        return 0, 1.0
    power = max(0, min(int(math.log10(min(counts)) / 3), len(_FLOPS) - 1))
    return power, 10.0 ** (-3 * power)
