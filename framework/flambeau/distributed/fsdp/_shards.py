"""Pieces of tensors: cut along one dimension as `torch.chunk` cuts, many of them sent and combined as one flat tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import flambeau as fb

from .. import distributed_c10d as c10d

__all__ = ["Layout", "Pending", "gather", "reduce_scatter"]


class Layout(NamedTuple):
    """How a tensor of `shape` is cut along `dim` into `count` pieces; the last may be shorter, or empty."""

    shape: tuple[int, ...]
    dim: int
    count: int

    @property
    def step(self) -> int:
        """The extent of all pieces but the last."""
        return math.ceil(self.shape[self.dim] / self.count)

    @property
    def rest(self) -> tuple[int, ...]:
        """The extents of the other dimensions."""
        return (*self.shape[: self.dim], *self.shape[self.dim + 1 :])

    @property
    def padded(self) -> int:
        """How many elements a piece has, filled up to `step`."""
        return self.step * math.prod(self.rest)

    def piece(self, unsharded: Any, at: int) -> Any:
        """Piece `at` of the tensor `unsharded`, in memory of its own."""
        begin = min(self.step * at, self.shape[self.dim])
        length = min(self.step, self.shape[self.dim] - begin)
        return unsharded.detach().narrow(self.dim, begin, length).clone(memory_format=fb.contiguous_format)

    def put(self, piece: Any, flat: Any) -> None:
        """Store `piece` in the vector `flat` of `padded` elements, the cut dimension first."""
        values = piece.movedim(self.dim, 0).reshape(-1)
        flat[: values.numel()].copy_(values)

    def put_unsharded(self, unsharded: Any, rows: Any) -> None:
        """Store all pieces of `unsharded` in the rows of `rows`, ``(count, padded)``, filled up with zeros."""
        values = unsharded.movedim(self.dim, 0).reshape(-1)
        full, left = divmod(values.numel(), self.padded) if self.padded else (0, 0)
        rows[:full].copy_(values[: full * self.padded].view(full, self.padded))
        if full < self.count:
            rows[full:].zero_()
            rows[full, :left].copy_(values[full * self.padded :])

    def take(self, flat: Any, at: int) -> Any:
        """Piece `at` out of the vector `flat` that `put` fills, in memory of its own."""
        begin = min(self.step * at, self.shape[self.dim])
        length = min(self.step, self.shape[self.dim] - begin)
        made = flat[: length * math.prod(self.rest)].view(length, *self.rest)
        return made.movedim(0, self.dim).clone(memory_format=fb.contiguous_format)

    def take_unsharded(self, rows: Any) -> Any:
        """The whole tensor out of ``(count, padded)``, in memory of its own."""
        size = self.shape[self.dim]
        values = rows.reshape(-1)[: size * math.prod(self.rest)].view(size, *self.rest)
        return values.movedim(0, self.dim).clone(memory_format=fb.contiguous_format)


class Pending:
    """Whole tensors that are on their way; `wait` gives them."""

    def __init__(self, work: Any, received: Any, layouts: Sequence[Layout]) -> None:
        self.work, self.received, self.layouts = work, received, layouts

    def wait(self) -> list[Any]:
        if self.work is not None:
            self.work.wait()
        made, begin = [], 0
        for layout in self.layouts:
            made.append(layout.take_unsharded(self.received[:, begin : begin + layout.padded]))
            begin += layout.padded
        return made


def gather(pieces: Sequence[Any], layouts: Sequence[Layout], group: Any, dtype: Any, async_op: bool = False) -> Pending:
    """Ask for the whole tensors that all ranks of `group` have `pieces` of, as `dtype`; one collective for all."""
    total, begin = sum(layout.padded for layout in layouts), 0
    device = pieces[0].device if pieces else None
    sent = fb.zeros(total, dtype=dtype, device=device)
    for piece, layout in zip(pieces, layouts, strict=True):
        layout.put(piece, sent[begin : begin + layout.padded])
        begin += layout.padded
    received = fb.empty((layouts[0].count if layouts else 1, total), dtype=dtype, device=device)
    if layouts and layouts[0].count == 1:
        received[0].copy_(sent)
        return Pending(None, received, layouts)
    return Pending(c10d.all_gather_into_tensor(received, sent, group=group, async_op=async_op), received, layouts)


def reduce_scatter(all_unsharded: Sequence[Any], layouts: Sequence[Layout], group: Any, dtype: Any) -> Any:
    """The sum over the ranks of `group` of the pieces of this rank of `all_unsharded`, one after the other in a vector of `dtype`."""
    total, begin = sum(layout.padded for layout in layouts), 0
    count = layouts[0].count
    rows = fb.empty((count, total), dtype=dtype, device=all_unsharded[0].device)
    for unsharded, layout in zip(all_unsharded, layouts, strict=True):
        layout.put_unsharded(unsharded.to(dtype), rows[:, begin : begin + layout.padded])
        begin += layout.padded
    if count == 1:
        return rows[0]
    made = fb.empty(total, dtype=dtype, device=all_unsharded[0].device)
    c10d.reduce_scatter_tensor(made, rows, group=group)
    return made
