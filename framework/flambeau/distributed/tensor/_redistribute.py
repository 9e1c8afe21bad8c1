"""Bringing the pieces of a tensor from one set of placements to another, by collectives along dimensions of the mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as fb

from .. import distributed_c10d as c10d
from .placement_types import Partial, Placement, Replicate, Shard, _StridedShard

__all__ = ["local_part", "normalized", "redistributed", "size_before"]

_OPS = {"sum": "SUM", "avg": "AVG", "min": "MIN", "max": "MAX", "product": "PRODUCT"}


def normalized(placements: Sequence[Placement] | None, mesh: Any, ndim: int, name: str) -> tuple[Placement, ...]:
    """`placements` with dimensions counted from the front; whole everywhere by default.

    Raises: ValueError if there is not one for each dimension of the mesh; IndexError for dimensions that the tensor has not.
    """
    if placements is None:
        return (Replicate(),) * mesh.ndim
    if len(placements) != mesh.ndim:
        raise ValueError(f"{name}: `placements` must have the same length as `device_mesh.ndim`! Found {len(placements)} and {mesh.ndim}")
    made = []
    for placement in placements:
        if isinstance(placement, Shard):
            if not -ndim <= placement.dim < ndim:
                raise IndexError(f"{name}: Shard(dim={placement.dim}) of a tensor with {ndim} dimensions")
            placement = Shard(placement.dim % ndim)
        elif not isinstance(placement, (Replicate, Partial)):
            kind = type(placement).__name__
            raise NotImplementedError(f"{name}: placements of type {kind} are not built; use Shard, Replicate or Partial")
        made.append(placement)
    return tuple(made)


def size_before(shape: Sequence[int], placements: Sequence[Placement], mesh: Any, at: int) -> int:
    """The extent, on this rank, of the dimension that dimension `at` of the mesh divides, before it does."""
    dim = placements[at].dim  # type: ignore[attr-defined]
    where, size = mesh.get_coordinate(), shape[dim]
    strided = isinstance(placements[at], _StridedShard)
    for i in range(len(placements) if strided else at):
        placement = placements[i]
        if isinstance(placement, Shard) and placement.dim == dim:
            step = math.ceil(size / mesh.size(i))
            size = max(0, min(step, size - step * where[i]))
    return size


def local_part(tensor: Any, dim: int, count: int, at: int) -> Any:
    """Piece `at` of `count` along `dim`, as `torch.chunk` cuts; empty beyond the last."""
    size = tensor.shape[dim]
    step = math.ceil(size / count) if size else 0
    begin = min(step * at, size)
    return tensor.narrow(dim, begin, min(step, size - begin)).contiguous()


def _gathered(local: Any, dim: int, size: int, mesh: Any, at: int) -> Any:
    """The whole along `dim` of pieces of a dimension of `size`."""
    count = mesh.size(at)
    step = math.ceil(size / count) if size else 0
    if local.shape[dim] < step:
        missing = list(local.shape)
        missing[dim] = step - local.shape[dim]
        local = fb.cat([local, local.new_zeros(missing)], dim)
    pieces = [fb.empty_like(local, memory_format=fb.contiguous_format) for _ in range(count)]
    c10d.all_gather(pieces, local.contiguous(), group=mesh.get_group(at))
    return fb.cat(pieces, dim).narrow(dim, 0, size).contiguous()


def _reduced(local: Any, how: str, mesh: Any, at: int) -> Any:
    made = local.clone(memory_format=fb.contiguous_format)
    c10d.all_reduce(made, op=getattr(c10d.ReduceOp, _OPS[how]), group=mesh.get_group(at))
    return made


def redistributed(local: Any, shape: Sequence[int], mesh: Any, source: Sequence[Placement], target: Sequence[Placement]) -> Any:
    """The piece of this rank under the placements `target`, of the tensor of `shape` that it has the piece `local` of under `source`.

    All ranks of the mesh must call it alike.
    """
    where = mesh.get_coordinate()
    changed = {i for i in range(mesh.ndim) if source[i] != target[i]}
    # A dimension that several dimensions of the mesh divide is put together from the last, and divided from the first.
    # Strided pieces are pieces of what the others have divided: put together first, and divided last.
    divided = {p.dim for i in changed for p in (source[i], target[i]) if isinstance(p, (Shard, _StridedShard))}
    for i in range(mesh.ndim):
        if any(isinstance(p, (Shard, _StridedShard)) and p.dim in divided for p in (source[i], target[i])):
            changed.add(i)
    for i in sorted(changed, key=lambda i: (not isinstance(source[i], _StridedShard), -i)):
        placement = source[i]
        if isinstance(placement, (Shard, _StridedShard)):
            local = _gathered(local, placement.dim, size_before(shape, source, mesh, i), mesh, i)
        elif isinstance(placement, Partial) and target[i] != placement:
            local = _reduced(local, placement.reduce_op, mesh, i)
    for i in sorted(changed, key=lambda i: (isinstance(target[i], _StridedShard), i)):
        wanted = target[i]
        if isinstance(wanted, (Shard, _StridedShard)):
            local = local_part(local, wanted.dim, mesh.size(i), where[i])
        elif isinstance(wanted, Partial) and source[i] != wanted:
            if wanted.reduce_op == "sum" and where[i]:
                local = fb.zeros_like(local)
            elif wanted.reduce_op == "product" and where[i]:
                local = fb.ones_like(local)
    return local
