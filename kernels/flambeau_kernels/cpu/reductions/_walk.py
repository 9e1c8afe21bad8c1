"""Where the work of a `_folds.Cut` lies, for kernels: item number `item` of its two patterns."""

from __future__ import annotations

__all__ = ["row_at", "strip_at"]


def row_at(x, item, pieces, runs, per_run, k1, outer, step, r0, r1):
    """Of pattern 'rows': where the row begins, and the ranges of its outer and inner reduced dimension that the item is."""
    row, piece = item, 0
    if pieces > 1:
        row = item // pieces
        piece = item % pieces
    p = x + row * step
    if row >= k1:
        p = x + (row // k1) * outer + (row % k1) * step
    from0, from1 = 0, 0
    to0, to1 = r0, r1
    if pieces > 1:
        if r0 > 1:
            from0 = piece * runs
            to0 = min(r0, from0 + runs)
        else:
            from1 = piece * per_run
            to1 = min(r1, from1 + per_run)
    return p, from0, to0, from1, to1


def strip_at(x, item, strips, width, pieces, height, rows, across, block, row):
    """Of pattern 'columns': where the strip begins, its first row, its rows, its columns, and where its results go."""
    strip = item % strips
    piece = (item // strips) % pieces
    outside = item // (strips * pieces)
    first = piece * height
    p = x + (outside * block + first * row + strip * width)
    to = (outside * pieces + piece) * across + strip * width
    return p, first, min(height, rows - first), min(width, across - strip * width), to
