"""Attention in tiles: the scores of all queries against all keys never exist at once.

A running maximum and sum per query make softmax work tile by tile; the gradient computes each tile's weights again from
the logarithm of that sum. Arrays are ``(B, H, L, E)``, ``(B, G, S, E)``, ``(B, G, S, V)``; each of the G heads of keys
serves H / G heads of queries. Compiled kernels (`tiles.py`) take most shapes; here are the numpy tier, which
has batches and heads in one dimension, and the choice.

Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022, "FlashAttention".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import tier
from ..reductions.softmax import narrow, widen
from . import tiles

__all__ = ["attend", "attend_grad", "planned"]

# Scores of one tile: 256 KiB of float32 stay in a core's second-level cache from product to exp to product.
TILE_SCORES = 1 << 16
TILE_KEYS = 256


def _compiled(q: np.ndarray, v: np.ndarray) -> bool:
    return tiles.fits(q, v) and tier.compiles()


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any, scale: float, causal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """``softmax(scale * q @ k.T + mask) @ v`` and the logarithm of each softmax's sum.

    Args:
        mask: None, bool (True takes part) or floating (added), of shape ``(B or 1, H or 1, L or 1, S or 1)``.
        causal: query i sees keys 0 to i only.
    Returns: ``(B, H, L, V)``, zeros for a query that sees nothing, and ``(B, H, L, 1)``.
    """
    if _compiled(q, v):
        return tiles.attend(q, k, v, mask, scale, causal)
    heads = q.shape[1]
    flat, logs = attend_flat(_flat(q, heads), _flat(k, heads), _flat(v, heads), _flat_mask(mask, q), scale, causal)
    out = tiles.empty_like(q, v.shape[3])
    out[...] = flat.reshape(out.shape)
    return out, logs.reshape(*q.shape[:3], 1)


def planned(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any, scale: float, causal: bool) -> Any:
    """``run(q, k, v, mask)``, as `attend` for arrays with the shapes, strides and dtypes of these; or None."""
    if not _compiled(q, v) or not tiles.in_rows(q, k, v):
        return None
    return tiles.planned(q, k, v, mask, scale, causal)


def attend_grad(
    grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any, out: np.ndarray, logs: np.ndarray,
    scale: float, causal: bool, of_mask: bool,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """The gradients of `attend` at q, k, v and, if `of_mask`, at the mask."""
    if _compiled(q, v) and not of_mask:
        return *tiles.attend_grad(grad, q, k, v, mask, out, logs, scale, causal), None
    heads = q.shape[1]
    g, a, b, c, o, sums = (_flat(x, heads) for x in (grad, q, k, v, out, logs))
    dq, dk, dv, dmask = attend_grad_flat(g, a, b, c, _flat_mask(mask, q), o, sums, scale, causal, of_mask)
    dk, dv = (_sum_groups(d, x) for d, x in ((dk, k), (dv, v)))
    return dq.reshape(q.shape), dk, dv, None if dmask is None else _sum_mask(dmask, mask, q)


def _flat(x: np.ndarray, heads: int) -> np.ndarray:
    """``(B, G, n, d) -> (B * heads, n, d)``, each head repeated for those it serves."""
    if x.shape[1] != heads:
        x = np.repeat(x, heads // x.shape[1], axis=1)
    return x.reshape(x.shape[0] * heads, *x.shape[2:])


def _sum_groups(d: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The gradient ``(B * H, n, d)`` of repeated heads at ``x (B, G, n, d)``."""
    batch, groups, n, width = x.shape
    split = widen(d).reshape(batch, groups, len(d) // max(1, batch * groups), n, width)
    return narrow(np.add.reduce(split, axis=2), x.dtype)


def _flat_mask(mask: Any, q: np.ndarray) -> Any:
    """The mask as ``(B * H or 1, L or 1, S or 1)``."""
    if mask is None:
        return None
    if mask.shape[0] == mask.shape[1] == 1:
        return mask[0]
    return np.broadcast_to(mask, (*q.shape[:2], *mask.shape[2:])).reshape(q.shape[0] * q.shape[1], *mask.shape[2:])


def _sum_mask(dmask: np.ndarray, mask: np.ndarray, q: np.ndarray) -> np.ndarray:
    if dmask.size == mask.size:
        return dmask.reshape(mask.shape)
    stretched = tuple(d for d in (0, 1) if mask.shape[d] == 1)
    by_heads = widen(dmask).reshape(*q.shape[:2], *dmask.shape[1:])
    return narrow(np.add.reduce(by_heads, axis=stretched, keepdims=True), mask.dtype)


# -- numpy -------------------------------------------------------------------------------------------------------------------


def _tiles(batch: int, queries: int, keys: int) -> Iterator[tuple[slice, slice]]:
    """Pieces of the batch and of the queries whose scores against one tile of keys stay within `TILE_SCORES`."""
    wide = min(keys, TILE_KEYS) or 1
    rows = max(1, min(queries, TILE_SCORES // wide))
    heads = max(1, TILE_SCORES // (wide * rows))
    for b in range(0, batch, heads):
        for i in range(0, queries, rows):
            yield slice(b, b + heads), slice(i, min(i + rows, queries))


def _key_tiles(keys: int, last_query: int, causal: bool) -> Iterator[slice]:
    """Tiles of keys that some query up to `last_query` may see."""
    seen = min(keys, last_query) if causal else keys
    for j in range(0, seen, TILE_KEYS):
        yield slice(j, min(j + TILE_KEYS, keys))


def _scores(q: np.ndarray, k: np.ndarray, mask: Any, at: tuple[slice, slice, slice], scale: float, causal: bool) -> np.ndarray:
    """Scaled and masked scores of one tile: ``(b, l, s)``."""
    heads, rows, columns = at
    s = np.matmul(q[heads, rows], k[heads, columns].swapaxes(-1, -2))
    s *= scale
    if mask is not None:
        part = mask[_clip(heads, mask.shape[0]), _clip(rows, mask.shape[1]), _clip(columns, mask.shape[2])]
        if part.dtype.kind == "b":
            s[np.broadcast_to(~part, s.shape)] = -np.inf
        else:
            s += widen(part)
    if causal and columns.stop > rows.start + 1:
        s[:, np.arange(rows.start, rows.stop)[:, None] < np.arange(columns.start, columns.stop)] = -np.inf
    return s


def _clip(part: slice, size: int) -> slice:
    """`part`, or everything of a mask dimension that broadcasts."""
    return slice(None) if size == 1 else part


def attend_flat(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any, scale: float, causal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """`attend` of ``(B, L, E), (B, S, E), (B, S, V)`` and a mask ``(B or 1, L or 1, S or 1)``."""
    dtype = q.dtype
    q, k, v = widen(q), widen(k), widen(v)
    batch, queries, keys = q.shape[0], q.shape[1], k.shape[1]
    out = np.zeros((batch, queries, v.shape[2]), q.dtype)
    logs = np.full((batch, queries, 1), np.inf, q.dtype)
    for heads, rows in _tiles(batch, queries, keys):
        top = np.full((out[heads].shape[0], rows.stop - rows.start, 1), -np.inf, q.dtype)
        total = np.zeros_like(top)
        made = np.zeros((*top.shape[:2], v.shape[2]), q.dtype)
        for columns in _key_tiles(keys, rows.stop, causal):
            s = _scores(q, k, mask, (heads, rows, columns), scale, causal)
            higher = np.maximum(top, s.max(-1, keepdims=True))
            base = np.where(np.isinf(higher), 0, higher)
            s -= base
            np.exp(s, s)
            shrink = np.exp(top - base)
            total = total * shrink + s.sum(-1, keepdims=True)
            made *= shrink
            made += np.matmul(s, v[heads, columns])
            top = higher
        out[heads, rows] = made / np.where(total == 0, 1, total)
        # Where nothing was seen the logarithm is inf, so that the gradient's weights exp(score - inf) are 0.
        logs[heads, rows] = np.where(total == 0, np.inf, np.where(np.isinf(top), 0, top) + np.log(total))
    return narrow(out, dtype), logs


def attend_grad_flat(
    grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any, out: np.ndarray, logs: np.ndarray,
    scale: float, causal: bool, of_mask: bool,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """The gradients of `attend_flat`."""
    dtype = q.dtype
    grad, q, k, v, out = widen(grad), widen(q), widen(k), widen(v), widen(out)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    dmask = np.zeros(mask.shape, q.dtype) if of_mask else None
    balance = (grad * out).sum(-1, keepdims=True)
    keys = k.shape[1]
    for heads, rows in _tiles(q.shape[0], q.shape[1], keys):
        g = grad[heads, rows]
        for columns in _key_tiles(keys, rows.stop, causal):
            p = _scores(q, k, mask, (heads, rows, columns), scale, causal)
            p -= logs[heads, rows]
            np.exp(p, p)
            dv[heads, columns] += np.matmul(p.swapaxes(-1, -2), g)
            ds = np.matmul(g, v[heads, columns].swapaxes(-1, -2))
            ds -= balance[heads, rows]
            ds *= p
            if dmask is not None:
                _add_to_mask(dmask, ds, heads, rows, columns)
            ds *= scale
            dq[heads, rows] += np.matmul(ds, k[heads, columns])
            dk[heads, columns] += np.matmul(ds.swapaxes(-1, -2), q[heads, rows])
    return narrow(dq, dtype), narrow(dk, dtype), narrow(dv, dtype), None if dmask is None else narrow(dmask, mask.dtype)


def _add_to_mask(dmask: np.ndarray, ds: np.ndarray, heads: slice, rows: slice, columns: slice) -> None:
    """Add the tile `ds` where it belongs, summed over the dimensions along which the mask broadcasts."""
    at = tuple(_clip(part, size) for part, size in zip((heads, rows, columns), dmask.shape, strict=True))
    stretched = tuple(d for d, size in enumerate(dmask.shape) if size == 1)
    dmask[at] += ds.sum(stretched, keepdims=True) if stretched else ds
