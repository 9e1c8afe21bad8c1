"""Attention with any function of the scores and any mask, given as Python functions of one score and its place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ...tensor import Tensor
from . import _fused
from ._block_mask import DEFAULT_BLOCK as _DEFAULT_SPARSE_BLOCK_SIZE  # noqa: F401  # programs ask for it
from ._block_mask import (
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    each_place,
    noop_mask,
    or_masks,
)
from ._sequences import Sequences, create_nested_block_mask, mask_of_sequences, score_of_sequences

__all__ = [
    "BlockMask", "and_masks", "create_block_mask", "create_mask", "create_nested_block_mask", "flex_attention", "noop_mask",
    "or_masks",
]  # fmt: skip

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None, block_mask: BlockMask | None = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """``softmax(score_mod(query @ key.T * scale)) @ value``: ``(B, H, L, E), (B, G, S, E), (B, G, S, V) -> (B, H, L, V)``.

    Args:
        query, key, value: as above, H = G unless `enable_gqa`. Scores are float32, of float64 tensors float64. Or nested tensors
            ``(B, H, ragged, E)`` of the layout jagged, of which each sequence sees itself; `score_mod` is given places in a sequence.
        score_mod: ``(score, b, h, q_idx, kv_idx)`` to the score that is used instead: scalars, the place as int64. It may read
            tensors, ``bias[h, q_idx - kv_idx]``; gradients reach these too.
        block_mask: which scores count; of the others the weight is 0, and blocks it skips are not computed. Of nested tensors it is one
            of `create_nested_block_mask`.
        scale: ``1 / sqrt(E)`` by default.
        enable_gqa: each of the G heads of key and value serves H / G heads of query.
        return_lse: return the logarithm of the sum of ``exp`` of each query's scores as well, ``(B, H, L)``.
        kernel_options: options of PyTorch's GPU kernels; accepted, and without a meaning here.
    Returns: the result in the dtype of query, zeros for a query that sees no key; with `return_lse` a pair.
    Raises: ValueError for sizes that do not go together, NotImplementedError for other than four dimensions.
    Source: Dong et al. 2024, "Flex Attention: A Programming Model for Generating Optimized Attention Kernels".

    >>> from flambeau.nn.attention.flex_attention import flex_attention
    >>> x = fb.eye(2).reshape(1, 1, 2, 2)
    >>> flex_attention(x, x, x, lambda score, b, h, q_idx, kv_idx: score - (q_idx - kv_idx).abs())[0, 0]
    tensor([[0.8465, 0.1535],
            [0.1535, 0.8465]])
    """
    if block_mask is not None and not isinstance(block_mask, BlockMask):
        raise TypeError(f"flex_attention: block_mask must be a BlockMask, got {type(block_mask).__name__}")
    if any(isinstance(x, Tensor) and x.is_nested for x in (query, key, value)):
        return _of_nested(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options)
    _check(query, key, value, block_mask, enable_gqa)
    if kernel_options is not None:
        dict(kernel_options)                             # a TypeError for what is none
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if key.shape[0] != query.shape[0]:
        key, value = (x.expand(query.shape[0], *x.shape[1:]) for x in (key, value))
    try:
        plan = _fused.plan(query, key, value, score_mod, block_mask, scale, _composition(score_mod, block_mask, scale))
        out, lse = _fused.attend(plan, query, key, value)
    except _fused.Unfused:
        out, lse = composed(query, key, value, score_mod, block_mask, scale)
    return (out, lse) if return_lse else out


def _of_nested(query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, *rest: Any) -> Any:
    """`flex_attention` of the sequences in nested tensors, as one call of all their positions."""
    queries, keys, values = Sequences("query", query), Sequences("key", key), Sequences("value", value)
    if not all(x.dim() == 4 and x.size(0) == queries.count for x in (query, key, value)) or not fb.equal(keys.offsets, values.offsets):
        raise RuntimeError(
            "flex_attention: nested query, key and value must be (batch, heads, ragged, width) with as many sequences each, those of key "
            f"and value as long, got {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        )
    mask = mask_of_sequences(block_mask, query, key, queries, keys)
    joined = [x.transpose(1, 2).values().transpose(0, 1).unsqueeze(0) for x in (query, key, value)]
    made = flex_attention(joined[0], joined[1], joined[2], score_of_sequences(score_mod, queries, keys), mask, *rest)
    if isinstance(made, tuple):
        return tuple([_nested_again(x, query) for x in made])
    return _nested_again(made, query)


def _nested_again(made: Tensor, query: Any) -> Tensor:
    """``(1, H, all positions, ...)`` as the nested tensor ``(B, H, ragged, ...)`` of the sequences of `query`."""
    return fb.nested.nested_tensor_from_jagged(made.squeeze(0).transpose(0, 1), query.offsets()).transpose(1, 2)


def _composition(score_mod: ScoreMod | None, block_mask: BlockMask | None, scale: float) -> Any:
    return lambda query, key, value: composed(query, key, value, score_mod, block_mask, scale)


def _explain(
    query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None, block_mask: BlockMask | None = None,
    scale: float | None = None, *_: Any, **__: Any,
) -> str:  # fmt: skip
    """What computes this call, for `kernels.explain`."""
    try:
        plan = _fused.plan(query, key, value, score_mod, block_mask, 1.0, None)
    except _fused.Unfused as error:
        return f"composed of plain ops, which hold all scores: {error}"
    return f"one kernel, which skips blocks; a tile of scores s at (b, h, i, j) is changed by: {plan.formula_text}"


flex_attention.explain_call = _explain  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError(
            f"flex_attention: query, key, and value must be 4D tensors (batch, heads, length, width), got {tuple(query.shape)}, "
            f"{tuple(key.shape)} and {tuple(value.shape)}"
        )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "flex_attention: Expect query and key/value to have the same embedding dimension but got "
            f"E={query.shape[-1]} and E={key.shape[-1]}."
        )
    heads, kv_heads = query.shape[1], key.shape[1]
    if not enable_gqa and heads != kv_heads:
        raise ValueError(
            "flex_attention: Expect query and key/value to have the same number of heads but got "
            f"Hq={heads} and Hkv={kv_heads}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and (not kv_heads or heads % kv_heads):
        raise ValueError(
            "flex_attention: Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={heads} and Hkv={kv_heads}."
        )
    batch, kv_batch = query.shape[0], key.shape[0]
    mask_batch = None if block_mask is None else block_mask.shape[0]
    if batch != kv_batch and (kv_batch != 1 or mask_batch != batch):
        raise ValueError(
            "flex_attention: Expect query and key/value to have the same batch size, or block_mask and query to have the same batch "
            f"size and key/value a batch of 1, but got Bq={batch}, Bkv={kv_batch} and B_block_mask={mask_batch}."
        )
    if tuple(value.shape[:3]) != tuple(key.shape[:3]):
        raise RuntimeError(
            f"flex_attention: key and value must agree in batch, heads and length, got {tuple(key.shape)} and {tuple(value.shape)}"
        )
    if block_mask is not None:
        _check_lengths(block_mask, query.shape[-2], key.shape[-2])


def _check_lengths(block_mask: BlockMask, q_len: int, kv_len: int) -> None:
    if tuple(block_mask.shape[-2:]) == (q_len, kv_len):
        return
    head = f"flex_attention: block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q_len} and kv_len={kv_len}. "
    if q_len > block_mask.shape[-2] or kv_len > block_mask.shape[-1]:
        raise ValueError(
            head + "As the block mask was created for a smaller length than you're using it for, you likely need to create a new "
            "block mask."
        )
    raise ValueError(
        head + "As the block mask was created for a larger length than you're using it for, you can either 1. create a new block "
        "mask with the correct length, or 2. 'adjust' the existing block mask to the correct length by calling "
        "block_mask._adjust(q_len, kv_len). This essentially 'crops' the block mask to the upper left corner, which does not work "
        "for all mask_mods!"
    )


# -- of plain ops --------------------------------------------------------------------------------------------------------


def composed(
    query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None, block_mask: BlockMask | None, scale: float
) -> tuple[Tensor, Tensor]:
    """The result and the logarithms of the sums, by plain ops that hold all scores; functions are asked for all places at once."""
    heads, working = query.shape[1], fb.float64 if query.dtype is fb.float64 else fb.float32
    q, k, v = (x.to(working) for x in (query, key, value))
    if k.shape[1] != heads:
        k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) * scale              # (B, H, L, S)
    sizes = tuple(scores.shape)
    if score_mod is not None:
        scores = each_place(score_mod, sizes, query.device, scores).to(working)
    if block_mask is not None:
        scores = scores.masked_fill(~_seen(block_mask, sizes, query.device), -math.inf)
    blind = (scores == -math.inf).all(-1, keepdim=True)  # its softmax would be nan
    scores = scores.masked_fill(blind, 0)
    weights = scores.softmax(-1).masked_fill(blind, 0)
    lse = scores.logsumexp(-1).masked_fill(blind.squeeze(-1), -math.inf)
    return (weights @ v).to(query.dtype), lse


def _seen(block_mask: BlockMask, sizes: tuple[int, ...], device: Any) -> Tensor:
    """Which scores count: the blocks that are seen whole, and what `mask_mod` says of those partly seen."""
    from ._block_mask import _unlisted

    def elements(counts: Tensor, indices: Tensor) -> Tensor:
        blocks = _unlisted(counts, indices).to(fb.bool)
        rows, columns = block_mask.BLOCK_SIZE
        return blocks.repeat_interleave(rows, -2).repeat_interleave(columns, -1)[..., : sizes[2], : sizes[3]]

    partly = elements(block_mask.kv_num_blocks, block_mask.kv_indices)
    seen = partly if block_mask.mask_mod is noop_mask else partly & each_place(block_mask.mask_mod, sizes, device)
    if block_mask.full_kv_num_blocks is None or block_mask.full_kv_indices is None:
        return seen
    return seen | elements(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
