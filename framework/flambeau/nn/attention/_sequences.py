"""Masks and scores of batches in nested tensors: their sequences lie one behind the other, and none sees another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fb

from ...tensor import Tensor
from ._block_mask import DEFAULT_BLOCK, BlockMask, MaskMod, create_block_mask, noop_mask

if TYPE_CHECKING:
    from .flex_attention import ScoreMod

__all__ = ["Sequences", "create_nested_block_mask", "score_of_sequences"]


class Sequences:
    """Where the sequences of a nested tensor lie among all its positions.

    Raises: ValueError for what is no nested tensor of the layout jagged, or one whose sequences have gaps between them.
    """

    def __init__(self, name: str, nt: Any) -> None:
        if not isinstance(nt, Tensor) or not nt.is_nested or nt.layout is not fb.jagged:
            raise ValueError(f"{name} must be a nested tensor of the layout torch.jagged, got {type(nt).__name__}")
        if nt.lengths() is not None:
            raise ValueError(f"{name} has gaps between its sequences; give {name}.contiguous()")
        self.offsets: Tensor = nt.offsets()
        lengths = self.offsets.diff()
        self.count, self.total = len(lengths), int(self.offsets[-1])
        # The number of the sequence that each position belongs to.
        self.number = fb.arange(self.count, device=self.offsets.device).repeat_interleave(lengths)

    def place(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """The number of the sequence of `position`, and the position in it."""
        number = self.number[position]
        return number, position - self.offsets[number]


def create_nested_block_mask(
    mask_mod: MaskMod, B: int | None, H: int | None, q_nt: Any, kv_nt: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK, _compile: bool = False,
) -> BlockMask:  # fmt: skip
    """The BlockMask of the sequences in nested tensors, for `flex_attention` of these.

    The sequences are taken as one, in which each sees itself alone and there what `mask_mod` says.

    Args:
        mask_mod: ``(b, h, q_idx, kv_idx)`` scalars to a bool: b is the number of the sequence, and the places are those in it.
        B: accepted; as one sequence they have one batch.
        H: heads that the mask tells apart, or None.
        q_nt, kv_nt: nested tensors ``(B, ..., ragged, ...)`` of the layout jagged, of as many sequences; `kv_nt` is `q_nt` by default.
        BLOCK_SIZE, _compile: as of `create_block_mask`.
    Raises: ValueError for other tensors, for unlike numbers of sequences and for two devices.

    >>> from flambeau.nn.attention.flex_attention import create_nested_block_mask
    >>> x = fb.nested.nested_tensor([fb.ones(2, 4), fb.ones(3, 4)], layout=fb.jagged)
    >>> create_nested_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, x, BLOCK_SIZE=1).to_dense()[0, 0]
    tensor([[1, 0, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [0, 0, 1, 0, 0],
            [0, 0, 1, 1, 0],
            [0, 0, 1, 1, 1]], dtype=torch.int32)
    """
    queries = Sequences("q_nt", q_nt)
    keys = queries if kv_nt is None else Sequences("kv_nt", kv_nt)
    if queries.offsets.device != keys.offsets.device:
        raise ValueError(
            f"create_nested_block_mask: q_nt and kv_nt must be on one device, got {queries.offsets.device} and {keys.offsets.device}"
        )
    if queries.count != keys.count:
        raise ValueError(f"create_nested_block_mask: q_nt has {queries.count} sequences, and kv_nt {keys.count}")

    def mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        (number, q), (other, kv) = queries.place(q_idx), keys.place(kv_idx)
        return (number == other) & mask_mod(number, h, q, kv)

    return create_block_mask(mask, None, H, queries.total, keys.total, queries.offsets.device, BLOCK_SIZE, _compile)


def score_of_sequences(score_mod: ScoreMod | None, queries: Sequences, keys: Sequences) -> ScoreMod | None:
    """`score_mod` for the sequences as one: it is given the number of the sequence as its batch, and places in it."""
    if score_mod is None:
        return None

    def score(value: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        (number, q), (_, kv) = queries.place(q_idx), keys.place(kv_idx)
        return score_mod(value, number, h, q, kv)

    return score


def mask_of_sequences(block_mask: BlockMask | None, query: Tensor, key: Tensor, queries: Sequences, keys: Sequences) -> BlockMask:
    """The mask of a call: the given one, or one by which each sequence sees itself. Raises: RuntimeError for one of other lengths."""
    if block_mask is None:
        return create_nested_block_mask(noop_mask, None, None, query, key)
    if tuple(block_mask.seq_lengths) != (queries.total, keys.total):
        raise RuntimeError(
            f"flex_attention: block_mask is for {block_mask.seq_lengths[0]} queries and {block_mask.seq_lengths[1]} keys, and the nested "
            f"tensors have {queries.total} and {keys.total}; make it by create_nested_block_mask of these"
        )
    return block_mask
