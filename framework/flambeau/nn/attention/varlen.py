"""Attention within sequences of several lengths that lie one behind the other, without padding."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import flambeau as fb

from ... import _missing
from ...tensor import Tensor

__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """What to return beside the result.

    Args:
        lse: the logarithm of the sum of ``exp`` of each query's scores.
    """

    lse: bool = False


def varlen_attn(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None, max_q: int, max_k: int, *,
    return_aux: AuxRequest | None = None, scale: float | None = None, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
    seqused_k: Tensor | None = None, block_table: Tensor | None = None, num_splits: int | None = None,
) -> Any:  # fmt: skip
    """`scaled_dot_product_attention` of each sequence by itself.

    Args:
        query: (total_q, heads, E), all sequences one behind the other.
        key, value: (total_k, heads, E); with `enable_gqa` their heads may be fewer, each for several of the query's.
        cu_seq_q, cu_seq_k: where sequences begin, and where the last ends: (sequences + 1,), integers; `cu_seq_k` is `cu_seq_q` if None.
        max_q, max_k: the greatest lengths; not used.
        return_aux: what to return beside the result.
        scale: of scores, ``E ** -0.5`` by default.
        window_size: how many keys before and behind its place a query sees; -1 for all. Places are counted from the ends of the
            sequences, as PyTorch's kernels do, and ``(-1, 0)`` is causal.
        enable_gqa: see `key`.
        seqused_k: how many keys of each sequence count.
        block_table: not built.
        num_splits: not used.
    Returns: (total_q, heads, E); with ``return_aux.lse`` a pair with (heads, total_q), float32.
    Raises: NotImplementedError for a `block_table`.
    """
    if block_table is not None:
        raise _missing.not_built("nn.attention.varlen.varlen_attn(block_table=...)", "give keys and values without pages")
    starts_q = cu_seq_q.tolist()
    starts_k = starts_q if cu_seq_k is None else cu_seq_k.tolist()
    used = [end - start for start, end in pairwise(starts_k)] if seqused_k is None else seqused_k.tolist()
    outs, sums = [], []
    for at, (start, end) in enumerate(pairwise(starts_q)):
        q = query[start:end].transpose(0, 1)                                    # (heads, length, E)
        k, v = (t[starts_k[at] : starts_k[at] + used[at]].transpose(0, 1) for t in (key, value))
        if enable_gqa and k.shape[0] != q.shape[0]:
            k, v = (t.repeat_interleave(q.shape[0] // t.shape[0], 0) for t in (k, v))
        seen = _seen(q.shape[1], k.shape[1], window_size, query.device)
        outs.append(fb.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale).transpose(0, 1))
        if return_aux is not None and return_aux.lse:
            scores = q.float() @ k.float().mT * (q.shape[-1] ** -0.5 if scale is None else scale)
            sums.append((scores if seen is None else scores.masked_fill(~seen, -fb.inf)).logsumexp(-1))
    out = fb.cat(outs) if outs else query[:0]
    return (out, fb.cat(sums, 1)) if return_aux is not None and return_aux.lse else out


def _seen(queries: int, keys: int, window: tuple[int, int], device: Any) -> Tensor | None:
    """Which keys each query sees, (queries, keys); None for all."""
    before, behind = window
    if before < 0 and behind < 0:
        return None
    distance = fb.arange(keys, device=device) - (fb.arange(queries, device=device).unsqueeze(1) + keys - queries)
    seen = fb.ones(queries, keys, dtype=fb.bool, device=device)
    if before >= 0:
        seen = seen & (distance >= -before)
    return seen & (distance <= behind) if behind >= 0 else seen


def varlen_attn_out(out: Tensor, *args: Any, **kwargs: Any) -> Any:
    """`varlen_attn`, whose result goes to `out`."""
    made = varlen_attn(*args, **kwargs)
    if isinstance(made, tuple):
        return out.copy_(made[0]), made[1]
    return out.copy_(made)
