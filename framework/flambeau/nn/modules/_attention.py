"""What `MultiheadAttention` computes.

Shapes: L queries, S keys, N sequences, H heads of D = E / H features.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb

from ..._warn import warn
from .. import functional as F

Tensor = fb.Tensor


def warn_of_mixed_masks(**masks: Tensor | None) -> None:
    """Warn where one of two masks is boolean and the other floating."""
    (name, mask), (other_name, other) = masks.items()
    if mask is not None and other is not None and mask.dtype != other.dtype:
        warn(f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.")


def additive_mask(mask: Tensor | None, name: str, dtype: Any) -> Tensor | None:
    """A floating mask from a boolean one: minus infinity where True.

    Raises: AssertionError for other dtypes.
    """
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype != fb.bool:
        raise AssertionError(f"{name} must be boolean or floating, got {mask.dtype}")
    return fb.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def multi_head_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    need_weights: bool,
    attn_mask: Tensor | None,
    average_attn_weights: bool,
    is_causal: bool,
) -> tuple[Tensor, Tensor | None]:
    """Project, attend in every head, and project back.

    Args:
        module: a `MultiheadAttention`, for its weights and settings.
        query, key, value: (L, N, E), (S, N, kdim), (S, N, vdim), with N first if the module has it first, or all
            without N.
    The other arguments are those of `MultiheadAttention.forward`.
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, module)
    if is_causal and attn_mask is None:
        raise RuntimeError("MultiheadAttention: is_causal=True needs the attn_mask that it speaks of")
    if not batched:
        # Asking for identity first: the same tensor three times is projected at once.
        alone = query.unsqueeze(1)
        key, value, query = (alone if t is query else t.unsqueeze(1) for t in (key, value, query))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    warn_of_mixed_masks(key_padding_mask=key_padding_mask, attn_mask=attn_mask)
    padding = additive_mask(key_padding_mask, "key_padding_mask", query.dtype)
    # The causal kernel needs no mask, but it gives no weights and knows no padding.
    causal_kernel = is_causal and padding is None and not need_weights
    mask = None if causal_kernel else additive_mask(attn_mask, "attn_mask", query.dtype)

    q, k, v = project_in(module, query, key, value)
    if q.ndim != 3 or k.ndim != 3 or v.ndim != 3:
        raise RuntimeError(
            f"MultiheadAttention: the projection weights must be matrices; they made queries of shape {tuple(q.shape)}, keys of "
            f"{tuple(k.shape)} and values of {tuple(v.shape)}, where three dimensions are meant"
        )
    batch_first = module.batch_first and batched
    if batch_first:
        q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    k, v, mask, padding = _extend(module, k, v, mask, padding)
    length, batch, size = q.shape
    heads = (module.num_heads, size // module.num_heads)
    q, k, v = (t.transpose(0, 1).reshape(batch, t.shape[0], *heads).transpose(1, 2) for t in (q, k, v))
    mask = _merge(mask, padding, batch, module.num_heads)
    dropout = module.dropout if module.training else 0.0
    if need_weights:
        heads, weights = _attend(q, k, v, mask, dropout)                # (N, H, L, D), (N, H, L, S)
    else:
        heads = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal_kernel)
        weights = None
    # Evaluated in the order of the heads in memory; in training as in PyTorch, where a dropout that follows draws
    # in the order of memory.
    in_place = batch_first and not module.training
    if in_place:
        joined = heads.transpose(1, 2).reshape(batch, length, size)      # (N, L, E)
    else:
        joined = heads.permute(2, 0, 1, 3).reshape(length, batch, size)  # (L, N, E)
    output = F.linear(joined, module.out_proj.weight, module.out_proj.bias)
    if batch_first and not in_place:
        output = output.transpose(0, 1)
    if weights is not None and average_attn_weights:
        weights = weights.mean(dim=1)
    if not batched:
        output, weights = output.squeeze(1), None if weights is None else weights.squeeze(0)
    return output, weights


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, module: Any) -> bool:
    """Whether there is a batch dimension. Raises AssertionError if the shapes do not belong together."""
    for name, given in (("query", query), ("key", key), ("value", value)):
        if not isinstance(given, Tensor):
            raise TypeError(f"MultiheadAttention: argument '{name}' must be Tensor, not {type(given).__name__}")
    if not isinstance(module.num_heads, int):
        raise TypeError(f"MultiheadAttention: num_heads must be int, not {type(module.num_heads).__name__}")
    dims = query.dim()
    if dims not in (2, 3):
        raise AssertionError(f"MultiheadAttention: query must have 2 or 3 dimensions, got {tuple(query.shape)}")
    if module.batch_first and dims == 3 and min(key.dim(), value.dim()) < 2:
        low = min(key.dim(), value.dim())
        raise IndexError(f"Dimension out of range: MultiheadAttention with batch_first takes 3 dimensions, key or value has {low}")
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if key.dim() != dims or value.dim() != dims:
        raise AssertionError(f"MultiheadAttention: inputs must have the same number of dimensions: {shapes}")
    if padding is not None and padding.dim() != dims - 1:
        raise AssertionError(
            f"MultiheadAttention: key_padding_mask must have {dims - 1} dimension(s) here, "
            f"got {tuple(padding.shape)}"
        )
    if mask is not None and mask.dim() not in (2, 3):
        raise AssertionError(f"MultiheadAttention: attn_mask must have 2 or 3 dimensions, got {tuple(mask.shape)}")
    if query.shape[-1] != module.embed_dim:
        raise AssertionError(f"MultiheadAttention: query must have embed_dim={module.embed_dim} features: {shapes}")
    if key.shape[:-1] != value.shape[:-1] or module._qkv_same_embed_dim and key.shape != value.shape:
        raise AssertionError(f"MultiheadAttention: keys and values must belong together: {shapes}")
    if mask is not None:
        along = 1 if module.batch_first and dims == 3 else 0
        batch = query.shape[1 - along] if dims == 3 else 1
        _check_mask(mask, query.shape[along], key.shape[along], batch, module.num_heads)
    return dims == 3


def _check_mask(mask: Tensor, length: int, keys: int, batch: int, heads: int) -> None:
    expected = (length, keys) if mask.dim() == 2 else (batch * heads, length, keys)
    if tuple(mask.shape) != expected:
        raise RuntimeError(f"MultiheadAttention: attn_mask must be {expected} here, got {tuple(mask.shape)}")


def _check_packed(name: str, packed: Any, size: int) -> None:
    """Raise AssertionError without the parameter, RuntimeError unless it has a row for each feature of queries, keys and values."""
    if packed is None:
        raise AssertionError(f"MultiheadAttention: use_separate_proj_weight is False but {name} is None")
    if not packed.dim() or packed.shape[0] != 3 * size:
        raise RuntimeError(f"MultiheadAttention: {name} must have 3 * embed_dim = {3 * size} rows, got shape {tuple(packed.shape)}")


def _check_separate(name: str, weight: Any, shape: tuple[int, int]) -> None:
    """Raise AssertionError unless `weight` makes features of queries out of those of the input `name`."""
    if weight is None:
        raise AssertionError(f"MultiheadAttention: use_separate_proj_weight is True but {name[0]}_proj_weight is None")
    if tuple(weight.shape) != shape:
        raise AssertionError(f"MultiheadAttention: expecting {name} weights shape of {shape}, but got {weight.shape}")


def project_in(module: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, E features each."""
    weight, bias = module.in_proj_weight, module.in_proj_bias
    if module._qkv_same_embed_dim:
        _check_packed("in_proj_weight", weight, module.embed_dim)
    if bias is not None:
        _check_packed("in_proj_bias", bias, module.embed_dim)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    if not module._qkv_same_embed_dim:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        for name, separate, x in zip(("query", "key", "value"), weights, (query, key, value), strict=True):
            _check_separate(name, separate, (module.embed_dim, x.shape[-1]))
    elif query is key and key is value:
        q, k, v = F.linear(query, weight, bias).chunk(3, dim=-1)
        return q, k, v
    else:
        weights = weight.chunk(3)
    q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def _extend(
    module: Any, k: Tensor, v: Tensor, mask: Tensor | None, padding: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """One more key and value for the learned ones, and one for the zero ones, open to all queries."""
    batch, size = k.shape[1], k.shape[2]
    more: list[tuple[Tensor, Tensor]] = []
    if module.bias_k is not None and module.bias_v is not None:
        more.append((module.bias_k.expand(1, batch, size), module.bias_v.expand(1, batch, size)))
    if module.add_zero_attn:
        more.append((k.new_zeros(1, batch, size), v.new_zeros(1, batch, size)))
    if not more:
        return k, v, mask, padding
    k, v = fb.cat([k, *(pair[0] for pair in more)]), fb.cat([v, *(pair[1] for pair in more)])
    mask, padding = (None if m is None else F.pad(m, (0, len(more))) for m in (mask, padding))
    return k, v, mask, padding


def _merge(mask: Tensor | None, padding: Tensor | None, batch: int, heads: int) -> Tensor | None:
    """Both masks in one that broadcasts to (N, H, L, S)."""
    if mask is not None and mask.dim() == 3:
        mask = mask.reshape(batch, heads, *mask.shape[1:])
    if padding is None:
        return mask
    padding = padding[:, None, None, :]                                 # (N, 1, 1, S)
    return padding if mask is None else mask + padding


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> tuple[Tensor, Tensor]:
    """Attention with its weights. PyTorch returns them as they are after dropout."""
    scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)   # (N, H, L, S)
    weights = F.softmax(scores if mask is None else scores + mask, dim=-1)
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ v, weights
