"""Pictures of graphs without Graphviz: boxes in layers, arrows downwards, as SVG and, by Pillow, as PNG.

Boxes come below all that they read. Between layers an arrow goes through places that are kept free for it; places within a layer are
ordered so that few arrows cross, by the mean place of what they are joined to (Sugiyama, Tagawa and Toda 1981, "Methods for Visual
Understanding of Hierarchical System Structures", IEEE Trans. Systems, Man and Cybernetics 11).
"""

from __future__ import annotations

import html
import io
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Box", "Picture", "as_png", "as_svg", "laid_out"]

LETTER, LINE, MARGIN = 7.3, 16.0, 8.0                 # pixels: the width of a letter of 12 px, of a line its height, around a text
ACROSS, BETWEEN, LANE = 24.0, 44.0, 14.0              # pixels: between boxes, between layers, for an arrow that passes
SWEEPS = 8                                            # through all layers, for the order and for the places in them

# Graphviz knows these by X11's names, which SVG does not have.
_X11 = {
    "aliceblue": "#f0f8ff", "cadetblue1": "#98f5ff", "darkolivegreen1": "#caff70", "darkseagreen1": "#c1ffc1", "khaki1": "#fff68f",
    "lavenderblush1": "#fff0f5", "lemonchiffon1": "#fffacd", "mistyrose1": "#ffe4e1", "mistyrose2": "#eed5d2", "paleturquoise2": "#aeeeee",
    "peachpuff1": "#ffdab9", "thistle1": "#ffe1ff", "thistle3": "#cdb5cd", "wheat1": "#ffe7ba", "yellow2": "#eeee00",
}  # fmt: skip


class Box(NamedTuple):
    """A node: its text, line by line, and the name of its color."""

    lines: Sequence[str]
    color: str


class Picture(NamedTuple):
    """Where things are, in pixels: of each box its left, top, width and height, and the points that each arrow passes."""

    width: float
    height: float
    boxes: dict[str, tuple[float, float, float, float]]
    arrows: list[list[tuple[float, float]]]


def laid_out(boxes: dict[str, Box], edges: list[tuple[str, str]]) -> Picture:
    """The places of boxes and of the arrows between them. An arrow to an earlier box counts as one from it."""
    order = {name: at for at, name in enumerate(boxes)}
    pairs = [tuple(sorted(edge, key=order.__getitem__)) for edge in edges if edge[0] != edge[1]]
    layer = _layers(boxes, pairs)
    rows: list[list[Any]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name in boxes:
        rows[layer[name]].append(name)
    routes = []                                       # of each arrow what it is in each layer: a box, or a lane (arrow, layer)
    for at, (start, end) in enumerate(pairs):
        lanes = [(at, k) for k in range(layer[start] + 1, layer[end])]
        for lane in lanes:
            rows[lane[1]].append(lane)
        routes.append([start, *lanes, end])
    above: dict[Any, list[Any]] = {place: [] for row in rows for place in row}
    below: dict[Any, list[Any]] = {place: [] for row in rows for place in row}
    for route in routes:
        for a, b in itertools.pairwise(route):
            below[a].append(b)
            above[b].append(a)
    widths = {place: _size(boxes[place])[0] if place in boxes else LANE for row in rows for place in row}
    _order(rows, above, below)
    centers = _centers(rows, above, below, widths)
    tops, heights, top = [], [], MARGIN
    for row in rows:
        tops.append(top)
        heights.append(max([_size(boxes[place])[1] for place in row if place in boxes], default=0.0))
        top += heights[-1] + BETWEEN
    left = min([centers[p] - widths[p] / 2 for p in centers], default=0.0) - MARGIN
    width = max([centers[p] + widths[p] / 2 for p in centers], default=0.0) - left + MARGIN
    found = {}
    for name, box in boxes.items():
        w, h = _size(box)
        found[name] = centers[name] - left - w / 2, tops[layer[name]], w, h
    arrows = []
    for route in routes:
        points = []
        for k, place in enumerate(route):
            if place in boxes:
                x, y, w, h = found[place]
                points.append((x + w / 2, y + (h if k == 0 else 0.0)))
            else:
                x, y = centers[place] - left, tops[place[1]]
                points += [(x, y), (x, y + heights[place[1]])]
        arrows.append(points)
    return Picture(width, top - BETWEEN + MARGIN if rows else 2 * MARGIN, found, arrows)


def _size(box: Box) -> tuple[float, float]:
    return max(map(len, box.lines), default=0) * LETTER + 2 * MARGIN, max(len(box.lines), 1) * LINE + MARGIN


def _layers(boxes: dict[str, Box], pairs: list[Any]) -> dict[str, int]:
    """Each box one below the lowest that it reads; what reads nothing, right above the highest reader."""
    readers: dict[str, list[str]] = {name: [] for name in boxes}
    sources: dict[str, list[str]] = {name: [] for name in boxes}
    for start, end in pairs:
        readers[start].append(end)
        sources[end].append(start)
    layer: dict[str, int] = {}
    for name in boxes:                                # pairs go from earlier boxes to later ones
        layer[name] = max([layer[one] + 1 for one in sources[name]], default=0)
    for name in boxes:
        if not sources[name] and readers[name]:
            layer[name] = min(layer[one] for one in readers[name]) - 1
    return layer


def _order(rows: list[list[Any]], above: dict[Any, list[Any]], below: dict[Any, list[Any]]) -> None:
    """Sort each row by the mean place of what its members are joined to, downwards and upwards in turn."""
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            joined = above if down else below
            at = {place: k for one in rows for k, place in enumerate(one)}
            means = {p: sum(at[q] for q in joined[p]) / len(joined[p]) if joined[p] else at[p] for p in row}
            row.sort(key=means.__getitem__)           # which keeps the order of equals


def _centers(rows: list[list[Any]], above: Any, below: Any, widths: dict[Any, float]) -> dict[Any, float]:
    """How far from the left the middle of each place is: near what it is joined to, and clear of its neighbours."""
    centers: dict[Any, float] = {}
    for row in rows:
        x = 0.0
        for place in row:
            centers[place] = x + widths[place] / 2
            x += widths[place] + ACROSS
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            joined = above if down else below
            wanted = [sum(centers[q] for q in joined[p]) / len(joined[p]) if joined[p] else centers[p] for p in row]
            gaps = [(widths[a] + widths[b]) / 2 + ACROSS for a, b in itertools.pairwise(row)]
            right, left = wanted[:], wanted[:]
            for k, gap in enumerate(gaps):
                right[k + 1] = max(right[k + 1], right[k] + gap)
            for k in range(len(gaps) - 1, -1, -1):
                left[k] = min(left[k], left[k + 1] - gaps[k])
            for place, a, b in zip(row, right, left, strict=True):
                centers[place] = (a + b) / 2          # both keep the gaps, so their mean does
    return centers


def as_svg(name: str, boxes: dict[str, Box], edges: list[tuple[str, str]]) -> str:
    """The picture as the text of an SVG file."""
    e, found = html.escape, laid_out(boxes, edges)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{found.width:.0f}" height="{found.height:.0f}" '
        f'viewBox="0 0 {found.width:.0f} {found.height:.0f}" font-family="monospace" font-size="12">',
        f"<title>{e(name)}</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for points in found.arrows:
        curve = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
        for (x, y), (u, v) in itertools.pairwise(points):
            curve += f" C{x:.1f},{(y + v) / 2:.1f} {u:.1f},{(y + v) / 2:.1f} {u:.1f},{v:.1f}"
        lines.append(f'<path d="{curve}" fill="none" stroke="#444" marker-end="url(#end)"/>')
    for node, (x, y, w, h) in found.boxes.items():
        lines.append(f'<g id="{e(node)}"><rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="6" stroke="#444" '
                     f'fill="{e(_color(boxes[node]))}"/>')  # fmt: skip
        for k, line in enumerate(boxes[node].lines):
            lines.append(f'<text x="{x + MARGIN:.1f}" y="{y + LINE * (k + 1):.1f}" xml:space="preserve">{e(line)}</text>')
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def as_png(boxes: dict[str, Box], edges: list[tuple[str, str]]) -> bytes:
    """The picture as the bytes of a PNG file. Raises: RuntimeError if Pillow is not installed."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise RuntimeError(
            "a picture in the format 'png' needs Pillow, which is not installed: pip install pillow; SVG files need nothing"
        ) from None
    found = laid_out(boxes, edges)
    image = Image.new("RGB", (round(found.width), round(found.height)), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    for points in found.arrows:
        for (x, y), (u, v) in itertools.pairwise(points):
            draw.line([_on_curve(x, y, u, v, t / 16) for t in range(17)], fill="#444444")
        u, v = points[-1]
        draw.polygon([(u, v), (u - 4, v - 8), (u + 4, v - 8)], fill="black")
    for node, (x, y, w, h) in found.boxes.items():
        draw.rounded_rectangle((x, y, x + w, y + h), 6, fill=_color(boxes[node]), outline="#444444")
        for k, line in enumerate(boxes[node].lines):
            draw.text((x + MARGIN, y + LINE * k + 4), line, fill="black", font=font)
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def _on_curve(x: float, y: float, u: float, v: float, t: float) -> tuple[float, float]:
    """The point `t` of the cubic curve that leaves the first point, and comes to the second, vertically."""
    def blend(a: float, b: float, c: float, d: float) -> float:
        return (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d

    return blend(x, x, u, u), blend(y, (y + v) / 2, (y + v) / 2, v)


def _color(box: Box) -> str:
    return _X11.get(box.color.lower(), box.color)
