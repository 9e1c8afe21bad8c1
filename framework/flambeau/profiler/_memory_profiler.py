"""How much memory a program had when, and what for: the memory timeline of a profile."""

from __future__ import annotations

import enum
import gzip
import html
import json

from ..autograd._recorder import USER, Block, Recorder
from ..autograd.profiler_util import _format_memory, _format_time

__all__ = ["Action", "Category", "MemoryProfile"]


class Action(enum.Enum):
    """What happened to memory."""

    PREEXISTING = 0
    CREATE = 1
    INCREMENT_VERSION = 2
    DESTROY = 3


class Category(enum.Enum):
    """What memory is for."""

    INPUT = 1
    TEMPORARY = 2
    ACTIVATION = 3
    GRADIENT = 4
    AUTOGRAD_DETAIL = 5
    PARAMETER = 6
    OPTIMIZER_STATE = 7


AXIS_STYLE = ".axis{display:flex;justify-content:space-between;font:11px monospace;color:#555}"
_BY_ROLE = {
    "input": Category.INPUT, "temporary": Category.TEMPORARY, "activation": Category.ACTIVATION, "gradient": Category.GRADIENT,
    "backward": Category.AUTOGRAD_DETAIL, "parameter": Category.PARAMETER, "state": Category.OPTIMIZER_STATE,
}  # fmt: skip
# In the order of a plot, the longest-lived at the bottom.
_ORDER = (
    Category.PARAMETER, Category.OPTIMIZER_STATE, Category.INPUT, Category.TEMPORARY, Category.ACTIVATION, Category.GRADIENT,
    Category.AUTOGRAD_DETAIL, None,
)  # fmt: skip
_COLORS = {
    Category.PARAMETER: "#2e7d32", Category.OPTIMIZER_STATE: "#b8860b", Category.INPUT: "#212121", Category.TEMPORARY: "#8e24aa",
    Category.ACTIVATION: "#c62828", Category.GRADIENT: "#1e63c4", Category.AUTOGRAD_DETAIL: "#5c8fd6", None: "#9e9e9e",
}  # fmt: skip


class MemoryProfile:
    """The changes of memory that a recorder noted.

    Attributes: `timeline`, tuples of microseconds from the start, action, bytes and category (None if it is not known).
    """

    def __init__(self, recorder: Recorder | None) -> None:
        self.timeline: list[tuple[float, Action, int, Category | None]] = []
        if recorder is not None:
            self._read(recorder)

    def _read(self, recorder: Recorder) -> None:
        steps = [(c.began, c.ended) for c in recorder.calls if c.scope == USER and str(c.what).startswith("Optimizer.step#")]
        alive: dict[int, tuple[int, Category | None]] = {}
        before: list[tuple[float, Action, int, Category | None]] = []
        # In the order of time, for a key is used again once its memory has been given back.
        for block in sorted(recorder.blocks, key=lambda b: b.at):
            at = recorder.microseconds(block.at)
            if block.size > 0:
                alive[block.key] = block.size, _category(block, steps)
                if block.preexisting:  # it was there from the start, whenever it was first seen
                    before.append((0.0, Action.PREEXISTING, *alive[block.key]))
                else:
                    self.timeline.append((at, Action.CREATE, *alive[block.key]))
            elif block.key in alive:
                size, category = alive[block.key]
                self.timeline.append((at, Action.INCREMENT_VERSION if block.size == 0 else Action.DESTROY, size, category))
                if block.size < 0:
                    del alive[block.key]
        self.timeline[:0] = before

    def coordinates(self) -> tuple[list[float], list[list[int]]]:
        """Times in microseconds, and for each the bytes of no category followed by those of each `Category` in its order."""
        times: list[float] = []
        rows: list[list[int]] = []
        now = [0] * (len(Category) + 1)
        for at, action, size, category in self.timeline:
            place = 0 if category is None else category.value
            now[place] += {Action.CREATE: size, Action.PREEXISTING: size, Action.DESTROY: -size}.get(action, 0)
            if times and times[-1] == at:
                rows[-1] = [*now]
            else:
                times.append(at)
                rows.append([*now])
        return times, rows

    def export(self, path: str) -> None:
        """Write the timeline to the file `path`; its suffix says how.

        Raises: ValueError for another suffix than ``.html``, ``.json``, ``.json.gz`` and ``.raw.json.gz``.
        """
        name = str(path)
        if name.endswith(".html"):
            text = _page(*self.coordinates())
        elif name.endswith(".raw.json.gz"):
            text = json.dumps([(at, action.value, size, 0 if c is None else c.value) for at, action, size, c in self.timeline])
        elif name.endswith((".json", ".json.gz")):
            text = json.dumps(self.coordinates())
        else:
            raise ValueError(f"export_memory_timeline({name!r}): the name must end in .html, .json, .json.gz or .raw.json.gz")
        with gzip.open(name, "wt") if name.endswith(".gz") else open(name, "w") as file:
            file.write(text)


def _category(block: Block, steps: list[tuple[int, int]]) -> Category | None:
    if not block.preexisting and any(began <= block.at <= ended for began, ended in steps):
        return Category.OPTIMIZER_STATE
    return _BY_ROLE.get(block.role)


def plot(times: list[float], rows: list[list[int]], width: int = 900, height: int = 260, most: int = 600) -> str:
    """The memory of each category over time as a drawing (SVG), of at most so many columns."""
    if not times:
        return "<p>No memory was recorded.</p>"
    step = max(1, -(-len(times) // most))
    kept = sorted({*range(0, len(times), step), max(range(len(rows)), key=lambda i: sum(rows[i])), len(times) - 1})
    span, peak = max(times[-1] - times[0], 1e-9), max(max(sum(rows[i]) for i in kept), 1)
    xs = [(times[i] - times[0]) / span * width for i in kept]
    below = [0.0] * len(kept)
    shapes = []
    for category in _ORDER:
        place = 0 if category is None else category.value
        above = [b + rows[i][place] for b, i in zip(below, kept, strict=True)]
        if above == below:
            continue
        # Steps, as memory does not change in between.
        top = [f"{x:.1f},{height - a / peak * height:.1f}" for x, a in _stairs(xs, above)]
        bottom = [f"{x:.1f},{height - b / peak * height:.1f}" for x, b in reversed(_stairs(xs, below))]
        name = "unknown" if category is None else category.name.lower().replace("_", " ")
        largest = _format_memory(max(rows[i][place] for i in kept))
        title = html.escape(f"{name}: at most {largest}")
        shapes.append(f'<polygon points="{" ".join(top + bottom)}" fill="{_COLORS[category]}"><title>{title}</title></polygon>')
        below = above
    drawing = f'<svg viewBox="0 0 {width} {height}" width="100%" role="img" aria-label="memory over time">{"".join(shapes)}</svg>'
    return f"<p>Up to {_format_memory(peak)}</p>{drawing}{time_axis(times[0], times[-1])}"


def time_axis(first: float, last: float, parts: int = 4) -> str:
    """Times below a drawing that is as wide as the page, from `first` to `last` in microseconds."""
    at = [first + (last - first) * i / parts for i in range(parts + 1)]
    return '<div class="axis">' + "".join(f"<span>{_format_time(each)}</span>" for each in at) + "</div>"


def _stairs(xs: list[float], ys: list[float]) -> list[tuple[float, float]]:
    found = [(xs[0], ys[0])]
    for i in range(1, len(xs)):
        found += [(xs[i], ys[i - 1]), (xs[i], ys[i])]
    return found


def legend() -> str:
    """The colours of the categories."""
    names = [("unknown" if c is None else c.name.lower().replace("_", " "), _COLORS[c]) for c in _ORDER]
    return "".join(f'<span class="key"><i style="background:{color}"></i>{name}</span>' for name, color in names)


def _page(times: list[float], rows: list[list[int]]) -> str:
    peak = max((sum(row) for row in rows), default=0)
    style = AXIS_STYLE + (
        ".key{margin-right:1em}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}body{font:14px sans-serif}"
    )
    span = (times[-1] - times[0]) / 1000 if times else 0.0
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Memory timeline</title><style>{style}</style></head><body>'
        f"<h1>Memory timeline</h1><p>At most {_format_memory(peak)} at once, in {span:.2f} ms.</p>{plot(times, rows)}<p>{legend()}</p>"
        "</body></html>"
    )
