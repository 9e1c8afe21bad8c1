"""How a tensor lies on one dimension of a device mesh: in pieces, whole on each, or as parts of a sum."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """What is common to all placements."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the tensor is divided; along its dimension `dim`, if one is given."""
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self) -> bool:
        """Whether each process has the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether each process has a part that has still to be reduced; by `reduce_op`, if one is given."""
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


@dataclass(frozen=True, slots=True)
class Shard(Placement):
    """The tensor is divided along its dimension `dim`, which may count from the end."""

    dim: int

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """How many of `curr_local_size` elements are in piece `rank` of `num_chunks`, and where it begins."""
        step = -(-curr_local_size // num_chunks)
        begin = min(step * rank, curr_local_size)
        return min(step, curr_local_size - begin), begin

    def _local_shard_size_and_offset(self, curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        return self.local_shard_size_and_offset(curr_local_size, num_chunks, rank)

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Placement):
    """The tensor is divided into `split_factor` parts first, and each of them into the pieces, which therefore lie apart."""

    dim: int
    split_factor: int = 1

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each process has the whole tensor."""

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Each process has a tensor of the whole shape; the value is what `reduce_op` makes of them: "sum", "avg", "min", "max", "product"."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"
