"""Blocks of weights are 0 where their norm is least."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb

from ....nn import Module
from ....tensor import Tensor
from .base_sparsifier import BaseSparsifier

__all__ = ["WeightNormSparsifier"]

_NORMS: dict[Any, Callable[[Tensor], Tensor]] = {None: lambda x: x * x, 1: lambda x: x.abs(), 2: lambda x: x * x}


class WeightNormSparsifier(BaseSparsifier):
    """Masks the blocks of a matrix whose weights are least.

    Args:
        sparsity_level: which share of blocks is masked.
        sparse_block_shape: (rows, columns) of a block.
        zeros_per_block: how many weights of such a block are 0, the least; all by default.
        norm: 1 or 2, or a function of the weights whose sums over blocks are compared; 2 by default.
    Raises: NotImplementedError for another norm.
    """

    def __init__(
        self, sparsity_level: float = 0.5, sparse_block_shape: tuple[int, int] = (1, 4), zeros_per_block: int | None = None,
        norm: Any = None,
    ) -> None:  # fmt: skip
        rows, columns = sparse_block_shape
        self.norm_fn: Callable[[Tensor], Tensor]
        if callable(norm):
            self.norm_fn = norm  # pyright: ignore[reportAttributeAccessIssue]  # any callable is taken for one of tensors
        elif norm in _NORMS:
            self.norm_fn = _NORMS[norm]
        else:
            raise NotImplementedError(f"L-{norm} is not yet implemented.")
        super().__init__(defaults={
            "sparsity_level": sparsity_level, "sparse_block_shape": sparse_block_shape,
            "zeros_per_block": rows * columns if zeros_per_block is None else zeros_per_block,
        })

    def update_mask(
        self, module: Module, tensor_name: str, sparsity_level: float, sparse_block_shape: tuple[int, int], zeros_per_block: int,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        """Set the mask. Raises: ValueError for more zeros than a block has."""
        rows, columns = sparse_block_shape
        if zeros_per_block > rows * columns:
            raise ValueError("Number of zeros per block cannot be more than the total number of elements in that block.")
        if zeros_per_block < 0:
            raise ValueError("Number of zeros per block should be positive.")
        mask = getattr(module.parametrizations, tensor_name)[0].mask
        if sparsity_level <= 0 or zeros_per_block == 0:
            mask.data = fb.ones_like(mask)
            return
        if sparsity_level >= 1.0 and zeros_per_block == rows * columns:
            mask.data = fb.zeros_like(mask)
            return
        size = tuple(mask.shape[:2])
        weight: Tensor = getattr(module, tensor_name)
        importance = _in_blocks(self.norm_fn(weight.detach().float()), rows, columns)
        blocks = fb.ones(importance.shape[0])
        # Below a level of 1 at least one block stays whole, as in PyTorch.
        count = min(round(sparsity_level * len(blocks)), len(blocks) if sparsity_level >= 1 else len(blocks) - 1)
        present = _in_blocks(fb.ones(size), rows, columns).sum(1)  # of blocks at the edges, which may reach beyond
        blocks[(importance.sum(1) / present).argsort()[:count]] = 0
        if zeros_per_block == rows * columns:
            mask.data = _out_of_blocks(blocks.unsqueeze(1).expand(importance.shape), size, rows, columns)
            return
        within = fb.ones(importance.shape)
        within.scatter_(1, importance.argsort(1)[:, :zeros_per_block], 0)
        kept = blocks.unsqueeze(1).logical_or(within.bool())
        mask.data = _out_of_blocks(kept, size, rows, columns)


def _in_blocks(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """``(blocks, rows * columns)``; blocks at the edges have zeros."""
    short = -matrix.shape[0] % rows, -matrix.shape[1] % columns
    padded = fb.nn.functional.pad(matrix, (0, short[1], 0, short[0]))
    high, wide = padded.shape[0] // rows, padded.shape[1] // columns
    return padded.reshape(high, rows, wide, columns).transpose(1, 2).reshape(high * wide, rows * columns)


def _out_of_blocks(blocks: Tensor, size: tuple[int, int], rows: int, columns: int) -> Tensor:
    """The matrix of this size that the blocks make."""
    high, wide = -(-size[0] // rows), -(-size[1] // columns)
    whole = blocks.reshape(high, wide, rows, columns).transpose(1, 2).reshape(high * rows, wide * columns)
    return whole[: size[0], : size[1]].contiguous()
