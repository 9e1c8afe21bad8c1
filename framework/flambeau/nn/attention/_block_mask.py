"""BlockMask: which blocks of queries and keys meet in attention, and the functions that make one."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ...tensor import Tensor

__all__ = [
    "BlockMask", "and_masks", "create_block_mask", "create_mask", "each_place", "noop_mask", "or_masks",
]  # fmt: skip

DEFAULT_BLOCK = 128
_TENSORS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices", "full_q_num_blocks",
    "full_q_indices",
)  # fmt: skip
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


# -- functions of a place ------------------------------------------------------------------------------------------------


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The mask function that hides nothing: True wherever it is asked.

    Args:
        batch, head, token_q, token_kv: the place, as scalars.
    """
    return batch.new_ones((), dtype=fb.bool)


def _check_masks(mask_mods: tuple[Any, ...]) -> None:
    if not all(callable(mask_mod) for mask_mod in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask function that is True where one of `mask_mods` is; of none, it hides everything. Raises: RuntimeError for others."""
    _check_masks(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        made = b.new_zeros((), dtype=fb.bool) if not mask_mods else mask_mods[0](b, h, q_idx, kv_idx)
        for mask in mask_mods[1:]:
            made = made | mask(b, h, q_idx, kv_idx)
        return made

    return or_mask


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask function that is True where all of `mask_mods` are; of none, it hides nothing. Raises: RuntimeError for others."""
    _check_masks(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        made = noop_mask(b, h, q_idx, kv_idx) if not mask_mods else mask_mods[0](b, h, q_idx, kv_idx)
        for mask in mask_mods[1:]:
            made = made & mask(b, h, q_idx, kv_idx)
        return made

    return and_mask


def each_place(mod: Callable[..., Tensor], sizes: tuple[int, ...], device: Any, score: Tensor | None = None) -> Tensor:
    """`mod` at each place ``(b, h, q, kv)`` of `sizes`, as ``(B, H, L, S)``, with the score there as its first argument if given."""
    first = () if score is None else (0,)
    for place in reversed(range(4)):
        dims = tuple(0 if k == place else None for k in range(4))
        mod = fb.func.vmap(mod, in_dims=(*first, *dims))
    indices = [fb.arange(n, device=device) for n in sizes]
    return mod(*indices) if score is None else mod(score, *indices)


def _takes_score(mod: Any) -> bool:
    """Whether `mod` is a function of a score and a place, rather than of a place. Raises: AssertionError for neither."""
    parameters = inspect.signature(mod).parameters.values()
    count = sum(p.default is inspect.Parameter.empty for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    if count not in (4, 5):
        raise AssertionError(f"score_mod or mask_mod: Expected 4 or 5 positional args, got {count}")
    return count == 5


def create_mask(mod_fn: Callable[..., Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """What a mask or score function says at every place, as ``(B, H, Q_LEN, KV_LEN)``.

    Args:
        mod_fn: a mask function ``(b, h, q_idx, kv_idx)``, whose values are handed out, or a score function
            ``(score, b, h, q_idx, kv_idx)``, of which it is told where a score of 0 is not made -inf.
        B, H: batches and heads; None counts as 1.
        Q_LEN, KV_LEN: queries and keys.
        device: where to compute; the CPU by default.
    Raises: AssertionError for a function of another number of arguments.

    >>> from flambeau.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 2, 3)
    tensor([[[[ True, False, False],
              [ True,  True, False]]]])
    """
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    device = "cpu" if device is None else device
    if _takes_score(mod_fn):
        scores = each_place(mod_fn, sizes, device, fb.zeros(sizes, device=device))
        return fb.where(scores.isneginf(), False, True)
    return each_place(mod_fn, sizes, device)


# -- lists of blocks -----------------------------------------------------------------------------------------------------


def _pair(block: Any) -> tuple[int, int]:
    if isinstance(block, int):
        return block, block
    q_block, kv_block = block
    return q_block, kv_block


def _listed(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Of ``(..., rows, columns)`` zeros and ones: how many ones each row has, and its columns, those with ones first."""
    dense = dense.to(fb.int32)
    return dense.sum(-1).to(fb.int32), dense.argsort(dim=-1, descending=True, stable=True).to(fb.int32).contiguous()


def _unlisted(counts: Tensor, indices: Tensor) -> Tensor:
    """The opposite of `_listed`: zeros and ones, int32."""
    columns = indices.shape[-1]
    listed = fb.arange(columns, device=indices.device, dtype=fb.int32) < counts.unsqueeze(-1)
    return fb.zeros(indices.shape, dtype=fb.int32, device=indices.device).scatter(-1, indices.to(fb.int64), listed.to(fb.int32))


def _transposed(counts: Tensor | None, indices: Tensor | None) -> tuple[Any, Any]:
    if counts is None or indices is None:
        return None, None
    return _listed(_unlisted(counts, indices).transpose(-2, -1))


def _sliced_mask_mod_error(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    raise RuntimeError(
        "Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the mask_mod attribute is reset. "
        "You must set it from the original BlockMask's mask_mod, shifted to where the slice begins:\n"
        "  base_mask = create_block_mask(my_mask_fn, ...)\n"
        "  sliced_mask = base_mask[:, :, block_idx]\n"
        "  sliced_mask.mask_mod = apply_offset(base_mask.mask_mod, offset)"
    )


class BlockMask:
    """Which blocks of queries and keys meet: for each block of queries a list of blocks of keys, and the other way round.

    Blocks in the `full` lists are seen whole; in those of the other lists `mask_mod` decides for each query and key; blocks in
    neither are skipped. `create_block_mask` and `from_kv_blocks` make one.

    Args:
        seq_lengths: how many queries and keys there are.
        kv_num_blocks, kv_indices: ``(B, H, rows), (B, H, rows, columns)`` int32, for each block of queries how many blocks of
            keys are partly seen, and the columns of these, first in each row. B and H may be 1, for all.
        full_kv_num_blocks, full_kv_indices: the same of blocks that are seen whole, or None.
        q_num_blocks, q_indices, full_q_num_blocks, full_q_indices: the same for each block of keys, or None.
        BLOCK_SIZE: queries and keys of a block.
        mask_mod: the function of a place, ``(b, h, q_idx, kv_idx)``, that decides inside partly seen blocks.
    Raises: AssertionError if one of two lists that go together is missing.
    """

    seq_lengths: tuple[int, int]
    kv_num_blocks: Tensor
    kv_indices: Tensor
    full_kv_num_blocks: Tensor | None
    full_kv_indices: Tensor | None
    q_num_blocks: Tensor | None
    q_indices: Tensor | None
    full_q_num_blocks: Tensor | None
    full_q_indices: Tensor | None
    BLOCK_SIZE: tuple[int, int]
    mask_mod: MaskMod

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None, q_num_blocks: Tensor | None, q_indices: Tensor | None, full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None, BLOCK_SIZE: tuple[int, int] = (DEFAULT_BLOCK, DEFAULT_BLOCK), mask_mod: MaskMod = noop_mask,
    ) -> None:  # fmt: skip
        if kv_indices.dim() < 2:
            raise RuntimeError(f"BlockMask must have at least 2 dimensions, kv_indices has shape {tuple(kv_indices.shape)}")
        for name, counts, indices in (
            ("full_kv", full_kv_num_blocks, full_kv_indices), ("full_q", full_q_num_blocks, full_q_indices),
        ):  # fmt: skip
            if (counts is None) != (indices is None):
                raise AssertionError(f"BlockMask: {name}_num_blocks and {name}_indices must be both provided or omitted")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK, mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None, compute_q_blocks: bool = True,
    ) -> BlockMask:  # fmt: skip
        """A BlockMask of the lists for blocks of queries.

        Args:
            kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices: as of the class, which see.
            BLOCK_SIZE: queries and keys of a block, or one number for both.
            mask_mod: decides inside partly seen blocks; None hides nothing there.
            seq_lengths: how many queries and keys there are; by default all blocks are whole.
            compute_q_blocks: whether to make the lists for blocks of keys as well.
        Raises: RuntimeError for lists of less than two dimensions; AssertionError if one of two is missing.
        """
        if kv_indices.dim() < 2:
            raise RuntimeError(f"BlockMask must have at least 2 dimensions, kv_indices has shape {tuple(kv_indices.shape)}")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("BlockMask: full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        q_counts = q_indices = full_q_counts = full_q_indices = None
        if compute_q_blocks:
            q_counts, q_indices = _transposed(kv_num_blocks, kv_indices)
            full_q_counts, full_q_indices = _transposed(full_kv_num_blocks, full_kv_indices)
        block = _pair(BLOCK_SIZE)
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * block[0], kv_indices.shape[-1] * block[1])
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, q_counts, q_indices, full_q_counts,
            full_q_indices, block, noop_mask if mask_mod is None else mask_mod,
        )  # fmt: skip

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """The arguments that make this mask again; `flatten` has lengths and block sizes as numbers of their own."""
        tensors = tuple(getattr(self, name) for name in _TENSORS)
        if flatten:
            return (*self.seq_lengths, *tensors, *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *tensors, self.BLOCK_SIZE, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batches and heads, as far as the mask tells them apart, queries and keys."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many scores the mask speaks of, those it skips included."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The percentage of scores in blocks that are skipped; below 0 where blocks at the edge reach far beyond it."""
        seen = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            seen += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - seen * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """Which blocks are seen, partly or whole: ``(B, H, rows, columns)`` int32 zeros and ones."""
        partial = _unlisted(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return partial
        return partial | _unlisted(self.full_kv_num_blocks, self.full_kv_indices)

    def to(self, device: Any) -> BlockMask:
        """The mask with its lists on `device`; tensors that `mask_mod` captured stay where they are."""
        moved: dict[str, Any] = {name: getattr(self, name) for name in _TENSORS}
        moved = {name: None if t is None else t.to(device) for name, t in moved.items()}
        return type(self)(self.seq_lengths, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod, **moved)

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches, heads and blocks of queries; a number keeps its dimension, and `mask_mod` is to be set anew."""
        index = index if isinstance(index, tuple) else (index,)
        index = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in index)
        full_counts, full_indices = self.full_kv_num_blocks, self.full_kv_indices
        return type(self).from_kv_blocks(
            self.kv_num_blocks[index], self.kv_indices[index],
            None if full_counts is None else full_counts[index], None if full_indices is None else full_indices[index],
            self.BLOCK_SIZE, _sliced_mask_mod_error, self.seq_lengths, self.q_indices is not None,
        )  # fmt: skip

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left part of the mask, for fewer queries and keys."""
        rows, columns = -(-new_q_len // self.BLOCK_SIZE[0]), -(-new_kv_len // self.BLOCK_SIZE[1])

        def part(counts: Any, indices: Any) -> tuple[Any, Any]:
            if counts is None:
                return None, None
            return _listed(_unlisted(counts, indices)[..., :rows, :columns])

        counts, indices = part(self.kv_num_blocks, self.kv_indices)
        full_counts, full_indices = part(self.full_kv_num_blocks, self.full_kv_indices)
        return type(self).from_kv_blocks(
            counts, indices, full_counts, full_indices, self.BLOCK_SIZE, self.mask_mod, (new_q_len, new_kv_len),
            self.q_indices is not None,
        )  # fmt: skip

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture for each batch and head: dark where blocks are seen, light where some of several are.

        Args:
            grid_size: the most rows and columns of a picture; -1 shows each block.
            limit: the most pictures.
        """
        dense = self.to_dense()
        *batch, rows, columns = dense.shape
        most = _pair(grid_size)
        high, wide = (1 if n == -1 else max(-(-size // n), 1) for size, n in zip((rows, columns), most, strict=True))
        parts = []
        for count, place in enumerate(itertools.product(*map(range, batch))):
            if count == limit:
                parts.append(
                    "...\nTo print out more, set BlockMask.to_string(limit=N)\n"
                    "You can also index (BlockMask[batch, head]) to choose a specific batch or head"
                )
                break
            grid = dense[place].tolist()
            lines = []
            for r in range(0, rows, high):
                cells = [[x for line in grid[r : r + high] for x in line[c : c + wide]] for c in range(0, columns, wide)]
                lines.append("".join("██" if all(cell) else "░░" if any(cell) else "  " for cell in cells))
            parts.append("\n".join([str(place), *lines, ""]))
        return "\n".join(parts)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        def say(value: Any) -> str:
            return "None" if value is None else str(value.shape)

        lines = [f"{name}={say(getattr(self, name))}" for name in _TENSORS]
        lines += [
            f"BLOCK_SIZE={self.BLOCK_SIZE}", f"shape={self.shape}", f"sparsity={self.sparsity():.2f}%",
            f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}",
        ]  # fmt: skip
        return "BlockMask(\n    " + ",\n    ".join(lines) + "\n)"


def create_block_mask(
    mask_mod: MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK, _compile: bool = False,
) -> BlockMask:  # fmt: skip
    """The BlockMask of a mask function, which is asked once for every query and key.

    Args:
        mask_mod: ``(b, h, q_idx, kv_idx)`` scalars to a bool: whether the query sees the key.
        B, H: batches and heads that the mask tells apart; None for a mask that is the same for all.
        Q_LEN, KV_LEN: queries and keys.
        device: of the lists; the CPU by default.
        BLOCK_SIZE: queries and keys of a block, or one number for both.
        _compile: accepted; the function is asked for all places at once either way.
    Raises: AssertionError for a function of a score, or with values that are not bool.

    >>> from flambeau.nn.attention.flex_attention import create_block_mask
    >>> create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 256, 256).sparsity()
    25.0
    """
    if _takes_score(mask_mod):
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    q_block, kv_block = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    if mask.dtype is not fb.bool:
        raise AssertionError(f"create_block_mask: mask.dtype must be torch.bool, got {mask.dtype}")
    rows, columns = -(-Q_LEN // q_block), -(-KV_LEN // kv_block)
    # Blocks at the edge count as partly seen: the places beyond it are not.
    padded = fb.nn.functional.pad(mask, (0, columns * kv_block - KV_LEN, 0, rows * q_block - Q_LEN))
    blocks = padded.reshape(*mask.shape[:2], rows, q_block, columns, kv_block).to(fb.int32).sum((3, 5))
    full = blocks == q_block * kv_block
    counts, indices = _listed((blocks > 0) & ~full)
    full_counts, full_indices = _listed(full)
    return BlockMask.from_kv_blocks(counts, indices, full_counts, full_indices, (q_block, kv_block), mask_mod, seq_lengths=(Q_LEN, KV_LEN))
