"""The sum of overlapping frames, in the order of the frames.

A chunk is a piece of one signal, to which the frames that reach it are added one after the other, so that sums are those of adding up
whole frames.
"""

from __future__ import annotations

import numpy as np

from flambeau_kernels.engine.language import kernel, widened

from ..shapes.move import contiguous

__all__ = ["overlapped"]

PIECE = 1 << 13                                      # samples


@kernel
def add_frames(chunk, frames, out, count, n, hop, length, pieces, signal_step, frame_step):
    KIND = widened(out)
    signal = chunk // pieces
    first = chunk % pieces * PIECE
    last = min(length, first + PIECE)
    to, source = out + signal * length, frames + signal * signal_step
    for i in range(first, last):
        to[i] = KIND(0)
    for t in range(max(0, first - n) // hop, min(count, (last - 1) // hop + 1)):
        start = t * hop
        a = source + (t * frame_step - start)
        for i in range(max(first, start), min(last, start + n)):
            to[i] = to[i] + a[i]


def overlapped(frames: np.ndarray, hop: int) -> np.ndarray:
    """The sum of real frames that start `hop` > 0 apart: ``(batch, count, n) -> (batch, (count - 1) * hop + n)``."""
    batch, count, n = frames.shape
    length = (count - 1) * hop + n
    out = np.empty((batch, length), frames.dtype)
    alike = frames.strides[0] == 0 or batch == 1
    if alike and frames.strides[1] == 0:             # copies of one frame
        frames, steps = contiguous(frames[0, 0]), (0, 0)
    else:
        frames, steps = contiguous(frames), (count * n, n)
    pieces = -(-length // PIECE)
    add_frames.run(batch * pieces, frames, out, count, n, hop, length, pieces, *steps)
    return out
