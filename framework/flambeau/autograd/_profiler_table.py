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
    most_source, most_name, most_shapes = widths
    name_width = _column(max(len(e.key) for e in events), most_name)
    shapes_width = _column(max(len(str(e.input_shapes)) for e in events), most_shapes)
    source_width = _column(max((len(s) for e in events for s in e.stack or ()), default=0), most_source)
    has_shapes = any(e.input_shapes is not None and len(e.input_shapes) > 0 for e in events)
    has_stacks = any(e.stack is not None and len(e.stack) > 0 for e in events)
    has_device = any(e.self_device_time_total > 0 for e in events)
    device = (given._use_device or "cuda").upper()
    total_cpu = sum(e.self_cpu_time_total for e in given)
    total_device = sum(e.self_device_time_total for e in given)
    power, scale = _flops_unit([e.flops for e in events if e.flops])

    heads = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
    sizes = [name_width] + [_WIDTH] * 5
    if has_device:
        heads += [f"Self {device}", f"Self {device} %", f"{device} total", f"{device} time avg"]
    if given._profile_memory:
        heads += ["CPU Mem", "Self CPU Mem"]
        if has_device:
            heads += [f"{device} Mem", f"Self {device} Mem"]
    heads.append("# of Calls")
    sizes += [_WIDTH] * (len(heads) - len(sizes))
    if has_shapes:
        heads.append("Input Shapes")
        sizes.append(shapes_width)
    if has_stacks:
        heads.append("Source Location")
        sizes.append(source_width)
    if given._with_flops:
        heads.append(f"Total {_FLOPS[power]}")
        sizes.append(_WIDTH)

    def line(texts: list[str]) -> str:
        left = len(heads) - 1 - bool(given._with_flops) if has_stacks else -1  # sources are set to the left
        return "".join([f"{t:<{w}}{_GAP}" if i == left else f"{t:>{w}}{_GAP}" for i, (t, w) in enumerate(zip(texts, sizes, strict=True))])

    def row(e: Any) -> list[str]:
        name = e.key if len(e.key) <= most_name else f"{e.key[: most_name - 3]}..."
        share = _format_time_share(e.cpu_time_total, total_cpu) if not e.is_async else "0"
        texts = [
            _rewrite_name(name, with_wildcard=True), _format_time_share(e.self_cpu_time_total, total_cpu), e.self_cpu_time_total_str,
            share, e.cpu_time_total_str, e.cpu_time_str,
        ]  # fmt: skip
        if has_device:
            texts += [
                e.self_device_time_total_str, _format_time_share(e.self_device_time_total, total_device), e.device_time_total_str,
                e.device_time_str,
            ]  # fmt: skip
        if given._profile_memory:
            texts += [_format_memory(e.cpu_memory_usage), _format_memory(e.self_cpu_memory_usage)]
            if has_device:
                texts += [_format_memory(e.device_memory_usage), _format_memory(e.self_device_memory_usage)]
        texts.append(str(e.count))
        if has_shapes:
            texts.append(str(e.input_shapes)[:shapes_width])
        if has_stacks:
            texts.append(_end_of(e.stack[0], source_width) if e.stack else "")
        if given._with_flops:
            texts.append(f"{e.flops * scale:8.3f}" if e.flops else "--")
        return texts

    rule = "".join([f"{'-' * w}{_GAP}" for w in sizes])
    lines = [rule, line(heads), rule]
    double = "=" * (len(rule) - len(_GAP))
    if top_level_only:
        lines[:0] = [double, "This report only display top-level ops statistics"]
    if header is not None:
        lines[:0] = [double, header]
    shown = 0
    at = heads.index("Source Location") if has_stacks else -1
    for event in events:
        if shown == row_limit:
            break
        if top_level_only and event.cpu_parent is not None:
            continue
        shown += 1
        lines.append(line(row(event)))
        if has_stacks:
            rest = [*[_end_of(frame, source_width) for frame in event.stack[1:]], ""]
            lines += [line([frame if i == at else "" for i in range(len(heads))]) for frame in rest]
    lines += [rule, f"Self CPU time total: {_format_time(total_cpu)}"]
    if has_device:
        lines.append(f"Self {device} time total: {_format_time(total_device)}")
    return "\n".join(lines) + "\n"


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
