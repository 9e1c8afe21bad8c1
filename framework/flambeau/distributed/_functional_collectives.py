"""Collectives that return a new tensor and leave their argument alone. Results are there when a call returns, so nothing waits."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from . import distributed_c10d as c10d
from .nn import functional

__all__ = [
    "all_gather_tensor", "all_gather_tensor_autograd", "all_reduce", "all_to_all_single", "all_to_all_single_autograd", "broadcast",
    "reduce_scatter_tensor", "reduce_scatter_tensor_autograd", "wait_tensor",
]  # fmt: skip


def _group(group: Any) -> Any:
    """The process group of a DeviceMesh of one dimension, of a pair of mesh and dimension, or the group itself."""
    if isinstance(group, tuple):
        return group[0].get_group(group[1])
    return group.get_group() if hasattr(group, "get_group") else group


def _reduction_called(name: str) -> Any:
    found = getattr(c10d.ReduceOp, name.upper(), None)
    if found is None:
        raise ValueError(f"Unsupported reduceOp {name!r}: expected sum, avg, product, min, max, band, bor or bxor")
    return found


def wait_tensor(tensor: Any) -> Any:
    """`tensor`, whose values are there already."""
    return tensor


def all_reduce(self: Any, reduceOp: str, group: Any, tag: str = "") -> Any:  # PyTorch's names
    """What all ranks' tensors combine to.

    Args:
        self: of one shape on all ranks.
        reduceOp: "sum", "avg", "product", "min" or "max".
        group: a process group, a DeviceMesh of one dimension, or a pair of mesh and dimension.
        tag: taken for compatibility.
    """
    made = self.detach().clone()
    c10d.all_reduce(made, _reduction_called(reduceOp), _group(group))
    return made


def broadcast(self: Any, src: int, group: Any, tag: str = "") -> Any:
    """The tensor of rank `src`.

    Args:
        self, group, tag: as for `all_reduce`.
        src: a rank of the job.
    """
    made = self.detach().clone()
    c10d.broadcast(made, src, _group(group))
    return made


def all_gather_tensor_autograd(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """The tensors of all ranks, concatenated; with gradients.

    Args:
        self, group, tag: as for `all_reduce`.
        gather_dim: the dimension along which.
    """
    return fb.cat(functional.all_gather(self.contiguous(), _group(group)), gather_dim)


def all_gather_tensor(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """The tensors of all ranks, concatenated.

    Args:
        self, gather_dim, group, tag: as for `all_gather_tensor_autograd`.
    """
    return all_gather_tensor_autograd(self.detach(), gather_dim, group)


def reduce_scatter_tensor_autograd(self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Any:
    """This rank's piece of what all ranks' tensors combine to; with gradients.

    Args:
        self, group, tag: as for `all_reduce`.
        reduceOp: "sum" or "avg".
        scatter_dim: the dimension along which the pieces lie; its size is a multiple of the number of ranks.
    """
    found = _group(group)
    count = c10d.get_world_size(found)
    if self.shape[scatter_dim] % count:
        raise ValueError(f"input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of group_size {count}")
    if reduceOp not in ("sum", "avg"):
        raise NotImplementedError(f"reduce_scatter_tensor: {reduceOp} is not built yet; use sum or avg")
    parts = [part.contiguous() for part in self.chunk(count, scatter_dim)]
    total = functional.reduce_scatter(fb.empty_like(parts[0]), parts, group=found)
    return total / count if reduceOp == "avg" else total


def reduce_scatter_tensor(self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Any:
    """This rank's piece of what all ranks' tensors combine to.

    Args:
        self, reduceOp, scatter_dim, group, tag: as for `reduce_scatter_tensor_autograd`.
    """
    return reduce_scatter_tensor_autograd(self.detach(), reduceOp, scatter_dim, group)


def all_to_all_single_autograd(self: Any, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = "") -> Any:
    """The parts that each rank's tensor has for this one, concatenated; with gradients.

    Args:
        self, group, tag: as for `all_reduce`.
        output_split_sizes: rows that come from each rank; None for equal parts.
        input_split_sizes: rows for each rank; None for equal parts.
    """
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    made = fb.empty((rows, *self.shape[1:]), dtype=self.dtype)
    return functional.all_to_all_single(made, self, output_split_sizes, input_split_sizes, _group(group))


def all_to_all_single(self: Any, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = "") -> Any:
    """The parts that each rank's tensor has for this one, concatenated.

    Args:
        self, output_split_sizes, input_split_sizes, group, tag: as for `all_to_all_single_autograd`.
    """
    return all_to_all_single_autograd(self.detach(), output_split_sizes, input_split_sizes, group)
