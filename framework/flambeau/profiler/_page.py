"""A profile as one page: what to look at first, tables by op, module and line, a flame graph, a timeline and memory over time.

The page needs nothing but a browser, and its size is bounded: what there is too much of is left out from the small end, and said so.
"""

from __future__ import annotations

import html
import linecache
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..autograd.profiler_util import EventList, FunctionEvent, _format_memory, _format_time
from ._memory_profiler import AXIS_STYLE, MemoryProfile, legend, plot, time_axis

__all__ = ["Row", "advice", "by_line", "by_module", "page", "table"]

MOST_ROWS, MOST_BARS, MOST_FRAMES = 40, 1500, 600
_MODULE, _LOADER, _OPTIMIZER = "nn.Module: ", "enumerate(DataLoader)#", "Optimizer.step#"
_MOSTLY_CALL = 5.0  # microseconds: below that a call mostly costs what any call costs


class Row(NamedTuple):
    """Calls that belong together; times in microseconds, memory in bytes."""

    name: str
    calls: int
    total: float
    own: float  # without what ran inside
    memory: int


def by_module(events: EventList) -> list[Row]:
    """Forward times of modules by their path, such as ``Sequential_0.Linear_1``, the longest first."""
    return _rows(events, lambda e: ".".join((*e.modules, e.name.removeprefix(_MODULE))) if e.name.startswith(_MODULE) else None)


def by_line(events: EventList) -> list[Row]:
    """Times by the innermost line of the program; those of backward count for the line that they are the backward of."""
    return _rows(events, lambda e: e.stack[0] if e.stack and not e.name.startswith(_MODULE) else None)


def by_name(events: EventList) -> list[Row]:
    """Times by the names of events."""
    return _rows(events, lambda e: e.name)


def _rows(events: Iterable[Any], name_of: Callable[[Any], str | None]) -> list[Row]:
    sums: dict[str, list[Any]] = defaultdict(lambda: [0, 0.0, 0.0, 0])
    for event in events:
        name = name_of(event)
        if name is None:
            continue
        row = sums[name]
        outermost = not _is_inside(event, name, name_of)
        row[0] += outermost
        row[1] += event.cpu_time_total if outermost else 0.0
        row[2] += event.self_cpu_time_total
        row[3] += event.cpu_memory_usage if outermost else 0
    return sorted((Row(name, *row) for name, row in sums.items()), key=lambda r: (-r.total, r.name))


def _is_inside(event: Any, name: str, name_of: Callable[[Any], str | None]) -> bool:
    """Whether `event` ran inside another of the same name, whose time has its own."""
    around = event.cpu_parent
    while around is not None:
        if name_of(around) == name:
            return True
        around = around.cpu_parent
    return False


def table(rows: list[Row], head: str, most: int = MOST_ROWS) -> str:
    """Rows as text in columns."""
    shown = rows[:most]
    width = max([len(head), *(min(len(r.name), 100) for r in shown)])
    lines = [f"{head:<{width}}  {'Total':>10}  {'Self':>10}  {'Calls':>7}  {'Memory':>10}", "-" * (width + 45)]
    for row in shown:
        times = f"{_format_time(row.total):>10}  {_format_time(row.own):>10}"
        lines.append(f"{_tail(row.name, 100):<{width}}  {times}  {row.calls:>7}  {_format_memory(row.memory):>10}")
    left_out = len(rows) - len(shown)
    return "\n".join([*lines, *([f"... and {left_out} more"] if left_out else [])]) + "\n"


def _tail(text: str, width: int) -> str:
    return text if len(text) <= width else f"...{text[3 - width :]}"


# -- advice --------------------------------------------------------------------------------------------------------------


def advice(events: EventList, elapsed: float, memory: MemoryProfile | None = None, peak: float | None = None) -> list[str]:
    """Sentences on where time and memory went, the most important first.

    Args:
        elapsed: microseconds from the start of the profile to its end.
        peak: operations a second that this machine reaches in a product of matrices, for comparison.
    """
    found: list[str] = []
    ops = [e for e in events if not e.is_user_annotation and not e.name.startswith("[")]
    busy = sum(e.self_cpu_time_total for e in ops)
    if not ops or elapsed <= 0:
        return ["No call was recorded."]
    largest = max(_rows(ops, lambda e: e.name), key=lambda r: r.own)
    found.append(
        f"{largest.name} took the most time itself: {_format_time(largest.own)} in {largest.calls} calls, "
        f"{largest.own / elapsed:.0%} of {_format_time(elapsed)}."
    )
    if busy < 0.7 * elapsed:
        share = f"{1 - busy / elapsed:.0%} of the time"
        found.append(f"{share} lay between calls: in Python code, waiting, or recording; cProfile shows where.")
    loading = sum(e.cpu_time_total for e in events if e.name.startswith(_LOADER))
    if loading > 0.15 * elapsed:
        found.append(f"Loading data took {loading / elapsed:.0%} of the time: num_workers of the DataLoader moves it to other processes.")
    stepping = sum(e.cpu_time_total for e in events if e.name.startswith(_OPTIMIZER))
    if stepping > 0.25 * elapsed:
        found.append(f"Steps of optimizers took {stepping / elapsed:.0%} of the time: larger batches need fewer of them.")
    small = [e for e in ops if e.cpu_time_total < _MOSTLY_CALL and not e.cpu_children]
    if len(small) > 1000 and sum(e.cpu_time_total for e in small) > 0.2 * elapsed:
        found.append(f"{len(small)} calls took less than {_MOSTLY_CALL:.0f} us each: fewer calls on larger tensors cost less.")
    flops, seconds = sum(e.flops or 0 for e in events), sum(e.cpu_time_total for e in events if e.flops) / 1e6
    if flops and seconds:
        rate = flops / seconds
        share = "" if peak is None else f", {rate / peak:.0%} of what a product of matrices reaches on this machine"
        found.append(f"Calls with known counts made {flops / 1e9:.3f} billion operations at {rate / 1e9:.2f} billion a second{share}.")
    if memory is not None and memory.timeline:
        times, rows = memory.coordinates()
        most = max(range(len(rows)), key=lambda i: sum(rows[i]))
        found.append(f"Memory was at most {_format_memory(sum(rows[most]))}, {times[most] / 1000:.2f} ms after the start.")
    return found


def measured_peak() -> float:
    """Operations a second of a product of two float32 matrices of 512 rows, the best of five: some 20 ms."""
    import flambeau as fb

    size = 512
    with fb.no_grad():
        a, best = fb.ones(size, size), float("inf")
        for _ in range(5):
            began = time.perf_counter()
            a @ a  # pyright: ignore[reportUnusedExpression]  # its time is wanted
            best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


# -- drawings ------------------------------------------------------------------------------------------------------------


def _color(name: str) -> str:
    """A color that a name always has; backward is blue, regions of the program are grey."""
    spread = sum(ord(c) * (i + 1) for i, c in enumerate(name))
    hue = 215 + spread % 25 if "Backward" in name or name.startswith(("autograd::", "torch::autograd")) else spread % 50 + 10
    return f"hsl({hue},{20 if '::' not in name and 'Backward' not in name else 70}%,{72 + spread % 12}%)"


def _bar(x: float, y: int, width: float, name: str, title: str) -> str:
    label = html.escape(name[: int(width * 1.6)]) if width > 3 else ""
    text = f'<text x="{x + 0.2:.3f}%" y="{y + 12}">{label}</text>' if label else ""
    return (
        f'<g><title>{html.escape(title)}</title><rect x="{x:.3f}%" y="{y}" width="{max(width, 0.02):.3f}%" height="16" '
        f'fill="{_color(name)}"/>{text}</g>'
    )


def _timeline(events: list[FunctionEvent], elapsed: float) -> str:
    """The longest events over time, each below the one that it ran inside."""
    kept = sorted((e for e in events if e.cpu_time_total > 0), key=lambda e: -e.cpu_time_total)[:MOST_BARS]
    depths: dict[int, int] = {}
    for event in sorted(kept, key=lambda e: (e.time_range.start, -e.time_range.end)):
        around = event.cpu_parent
        depths[event.id] = depths.get(around.id, -1) + 1 if around is not None else 0
    bars = [
        _bar(
            e.time_range.start / elapsed * 100, depths[e.id] * 18, e.cpu_time_total / elapsed * 100, e.name[:80],
            f"{e.name[:200]}: {e.cpu_time_total_str} from {_format_time(e.time_range.start)} on",
        )
        for e in kept
    ]  # fmt: skip
    height = 18 * (max(depths.values(), default=0) + 1)
    drawing = f'<svg width="100%" height="{height}" role="img" aria-label="timeline">{"".join(bars)}</svg>'
    return drawing + time_axis(0.0, elapsed) + _left_out(len(events), len(kept))


class _Frame:
    """Calls of one name inside the same others."""

    def __init__(self, name: str) -> None:
        self.name, self.total, self.calls = name, 0.0, 0
        self.inside: dict[str, _Frame] = {}

    def add(self, event: FunctionEvent) -> None:
        frame = self.inside.setdefault(event.name, _Frame(event.name))
        frame.total += event.cpu_time_total
        frame.calls += 1
        # What overlaps its surroundings in part is none of their inside.
        for child in event.cpu_children:
            frame.add(child)


def _flame_graph(events: EventList) -> str:
    """Times by name and by what calls ran inside, added up."""
    root = _Frame("")
    for event in events:
        if event.cpu_parent is None and event.cpu_time_total > 0:
            root.add(event)
    total = sum(f.total for f in root.inside.values()) or 1.0
    placed: list[tuple[float, int, _Frame]] = []
    rows: list[tuple[float, int, _Frame]] = [(0.0, 0, root)]
    while rows:
        x, depth, frame = rows.pop()
        for inner in sorted(frame.inside.values(), key=lambda f: -f.total):
            placed.append((x, depth, inner))
            rows.append((x, depth + 1, inner))
            x += inner.total / total * 100
    kept = sorted(placed, key=lambda p: -p[2].total)[:MOST_FRAMES]
    bars = [
        _bar(x, depth * 18, f.total / total * 100, f.name[:80], f"{f.name[:200]}: {_format_time(f.total)} in {f.calls} calls")
        for x, depth, f in kept
    ]
    height = 18 * (max((depth for _, depth, _ in kept), default=0) + 1)
    drawing = f'<svg width="100%" height="{height}" role="img" aria-label="flame graph">{"".join(bars)}</svg>'
    return drawing + _left_out(len(placed), len(kept))


def _left_out(count: int, kept: int) -> str:
    return f"<p>The {kept} longest of {count} are shown.</p>" if count > kept else ""


def _source_of(place: str) -> str:
    """The text of the line ``file(line): function``, empty where it cannot be read."""
    found = re.match(r"(.*)\((\d+)\): ", place)
    return linecache.getline(found[1], int(found[2])).strip()[:120] if found else ""


def _html_table(rows: list[Row], head: str, elapsed: float, below: Callable[[str], str] = lambda name: "") -> str:
    """A table of rows; `below` gives what stands under a name."""
    lines = [
        f"<tr><td>{html.escape(_tail(r.name, 160))}<small>{html.escape(below(r.name))}</small></td>"
        f"<td>{_format_time(r.total)}</td><td>{_format_time(r.own)}</td>"
        f"<td>{r.own / elapsed:.1%}</td><td>{r.calls}</td><td>{_format_memory(r.memory)}</td></tr>"
        for r in rows[:MOST_ROWS]
    ]
    heads = "".join(f"<th>{h}</th>" for h in (head, "Total", "Self", "Self share", "Calls", "Memory"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>{_left_out(len(rows), len(rows[:MOST_ROWS]))}"


_STYLE = AXIS_STYLE + (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1100px;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.15em .6em;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left;font-family:monospace;overflow-wrap:anywhere}"
    "td small{display:block;color:#555;padding-left:2em}td small:empty{display:none}"
    "svg text{font:11px monospace;pointer-events:none}"
    ".key{margin-right:1em;white-space:nowrap}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}"
)


def page(profile: Any, title: str = "Profile") -> str:
    """The page of a profile that has ended.

    Args:
        title: the page's heading.
    """
    recorder, events = profile._recorder, profile.function_events
    elapsed = max((recorder.ended - recorder.began) / 1000, 1e-3)
    memory = MemoryProfile(recorder) if profile.profile_memory else None
    peak = measured_peak() if profile.with_flops else None
    modules, lines = by_module(events), by_line(events)
    parts = [
        ("What to look at", "<ul>" + "".join(f"<li>{html.escape(s)}</li>" for s in advice(events, elapsed, memory, peak)) + "</ul>"),
        ("By name", _html_table(sorted(by_name(events), key=lambda r: -r.own), "Name", elapsed)),
        ("By module", _html_table(modules, "Module", elapsed) if modules else "<p>Give with_modules=True to see modules.</p>"),
        ("By line", _html_table(lines, "Line", elapsed, _source_of) if lines else "<p>Give with_stack=True to see lines.</p>"),
        ("Flame graph", _flame_graph(events)),
        ("Timeline", _timeline(list(events), elapsed)),
        ("Memory", "<p>Give profile_memory=True to see memory.</p>" if memory is None else _memory(memory)),
    ]
    body = "".join(f"<h2>{head}</h2>{part}" for head, part in parts)
    title = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1><p>{len(events)} events in {_format_time(elapsed)}.</p>{body}</body></html>"
    )


def _memory(memory: MemoryProfile) -> str:
    return f"{plot(*memory.coordinates())}<p>{legend()}</p>"
