"""Which part of a tensor a process has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .placement_types import Placement, Shard, _StridedShard

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: Any, placements: Sequence[Placement], skip_offset: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and place of the piece of a tensor of shape `global_shape` that this rank has.

    Pieces along a dimension are those of `torch.chunk`; a dimension that is divided along several dimensions of the mesh is divided by
    the first of them first. A rank beyond the last piece has an empty one.

    Args:
        mesh: a DeviceMesh; placements: one for each of its dimensions.
        skip_offset: give no place.
    """
    shape, offset = list(global_shape), [0] * len(global_shape)
    where = mesh.get_coordinate()
    if where is None:
        return (0,) if not shape else (0, *shape[1:]), ()
    # Strided pieces are pieces of what the other dimensions of the mesh have divided.
    strided = [at for at, placement in enumerate(placements) if isinstance(placement, _StridedShard)]
    for at in (*(at for at in range(len(placements)) if at not in strided), *strided):
        placement = placements[at]
        if isinstance(placement, (Shard, _StridedShard)):
            dim, count = placement.dim % len(shape), mesh.size(at)
            step = math.ceil(shape[dim] / count)
            begin = min(step * where[at], shape[dim])
            shape[dim] = min(step, shape[dim] - begin)
            offset[dim] += begin
    return tuple(shape), () if skip_offset else tuple(offset)
