"""Scaled dot-product attention, and multi-head attention made of it."""

from __future__ import annotations

import math
import warnings
from typing import Any

from flambeau_kernels.cpu import attention as kernels

from ... import _arrays, _state, dtypes
from ...tensor import Tensor
from .. import _dispatch
from .._batching import run
from .._spec import composite, describe, primitive, sum_tensor_to, whole_gradients
from .._spec.plans import Plan
from ..shapes.expand import broadcast_shapes

F = "nn.functional"


# -- which ways of computing it are allowed ---------------------------------------------------------------------------------

# On the CPU "flash" is `attention`, which never holds all scores, and "math" a composition of plain ops. The others are CUDA's.
_allowed = {"flash": True, "efficient": True, "math": True, "cudnn": True}


def allowed(way: str) -> bool:
    """Whether `scaled_dot_product_attention` may be computed in this `way`: flash, efficient, math or cudnn."""
    return _allowed[way]


def allow(**ways: bool) -> None:
    """Allow or forbid ways for the whole process, as ``allow(math=False)``."""
    _allowed.update({way: bool(yes) for way, yes in ways.items()})
    _state.set_ways(tuple(_allowed.items()))
    scaled_dot_product_attention.plans.clear()


def _composed(query: Tensor, mask: Any, dropout_p: float) -> bool:
    """Whether plain ops are to answer. Raises: RuntimeError where nothing that is allowed can."""
    if _allowed["flash"]:
        fits = dropout_p == 0 and query.ndim == 4 and not (isinstance(mask, Tensor) and mask.requires_grad)
        if not fits and not _allowed["math"]:
            raise RuntimeError(
                "scaled_dot_product_attention: No available kernel. Aborting execution. SDPBackend.FLASH_ATTENTION takes four "
                "dimensions, no dropout and no mask that requires grad; allow SDPBackend.MATH as well"
            )
        return False
    if not _allowed["math"]:
        raise RuntimeError(
            "scaled_dot_product_attention: No viable backend for scaled_dot_product_attention was found. This is likely due to "
            "turning off both the math kernel and the fused kernels."
        )
    return True


# -- one attention over batches of heads ---------------------------------------------------------------------------------


@primitive(
    surface=0, tensors=("query", "key", "value", "mask"), keeps=True,
    samples="of nn.functional.scaled_dot_product_attention",
    public_name="scaled_dot_product_attention",
    cuda="rows.attention", deferrable=True,
)
def attention(query, key, value, mask=None, scale=1.0, causal=False):
    """``softmax(scale * query @ key.T + mask) @ value``: ``(B, H, L, E), (B, G, S, E), (B, G, S, V) -> (B, H, L, V)``.

    Each of the G heads of key and value serves H / G heads of query. The ``L x S`` scores are never held at once, unless a
    second derivative is asked for.
    """


attention.shown_as(
    "ScaledDotProductFlashAttentionForCpuBackward0", is_causal="causal", attn_mask="mask", output="out", dropout_p=lambda saved: 0.0,
    logsumexp=lambda saved: saved["kept"][..., 0] if isinstance(saved["kept"], Tensor) else None,
)  # fmt: skip


@attention.in_pieces
def _attention_pieces(asked):
    rows = "_" if asked["causal"] else "q"
    return f"...{rows}_,...__,...__,...{rows}_->...{rows}_"


@attention.kernel
def _attend(q, k, v, mask, scale, causal):
    return kernels.attend(q, k, v, mask, scale, causal)


@attention.shape
def _attend_shape(query, key, value, mask, scale, causal):
    shape, a = (*query.shape[:-1], value.shape[-1]), query._array
    if _arrays.is_c_contiguous(a) or not a.strides[1] < a.strides[2]:
        return shape, query.dtype
    return shape, query.dtype, _arrays.strides_in(shape, a.itemsize, [0, 2, 1, 3])  # as the kernels give it


@attention.vjp
def _attend_vjp(grad, out, query, key, value, mask, scale, causal):
    if _dispatch.takes_gradients_whole():
        return attention_backward(grad, query, key, value, mask, scale, causal)
    heads = query.shape[1]
    keys, values = _repeated(key, heads), _repeated(value, heads)
    weights = _weights(query, keys, mask, scale, causal)
    slopes = weights * (grad @ values.transpose(-2, -1) - (grad * out).sum(-1, keepdim=True))
    floating = getattr(mask, "dtype", dtypes.bool) is not dtypes.bool  # None has no dtype
    return (
        (slopes @ keys) * scale,
        _sum_groups((slopes.transpose(-2, -1) @ query) * scale, key.shape[1]),
        _sum_groups(weights.transpose(-2, -1) @ grad, value.shape[1]),
        (lambda: sum_tensor_to(slopes, tuple(mask.shape)).to(mask.dtype)) if floating else None,
    )


@composite(surface=0, one_node=True, samples="x(1, 2, 3, 4), x(1, 2, 3, 4), x(1, 2, 5, 4), x(1, 2, 5, 4)")
def attention_backward(grad, query, key, value, mask=None, scale=1.0, causal=False):
    """The gradients of `attention` by query, key, value and a floating mask."""
    return whole_gradients(
        lambda *given: attention.run(*given, scale, causal),
        lambda: _attend_vjp(grad, attention.function(query, key, value, mask, scale, causal), query, key, value, mask, scale, causal),
        grad, (query, key, value, mask), (True, True, True, mask is not None and mask.dtype is not dtypes.bool),
    )  # fmt: skip


@attention.vjp_on_arrays
def _attend_vjp_on_arrays(grad, out, query, key, value, mask, scale, causal, kept, needs_mask):
    return kernels.attend_grad(grad, query, key, value, mask, out, kept, scale, causal, needs_mask)


@attention.batch
def _attention_batch(level: Any, op: Any, args: Any) -> Any:
    *operands, mask, scale, causal = args
    if any(x.ndim != 4 for x in operands) or not level.size or not all(x.shape[0] for x in operands):
        return NotImplemented
    q, k, v = (level.full(x).reshape(-1, *x.shape[1:]) for x in operands)
    if mask is not None and (level.has(mask) or mask.ndim == 4 and mask.shape[0] != 1):
        value = level.full(mask)
        value = value.reshape(level.size, *(1,) * (4 - mask.ndim), *mask.shape)
        value = value.expand(level.size, operands[0].shape[0], *value.shape[2:])
        mask = value.reshape(-1, *value.shape[2:])
    made = run(op, q, k, v, mask, scale, causal)
    return level.wrap(made.reshape(level.size, -1, *made.shape[1:]))


def _repeated(x: Tensor, heads: int) -> Tensor:
    """``(B, G, S, E) -> (B, heads, S, E)``: each head as often as it serves."""
    b, g, n, width = x.shape
    return x if g == heads else x.unsqueeze(2).expand(b, g, heads // g, n, width).reshape(b, heads, n, width)


def _sum_groups(x: Tensor, groups: int) -> Tensor:
    """The opposite of `_repeated`: heads of one group added up."""
    b, heads, n, width = x.shape
    return x if groups == heads else x.reshape(b, groups, heads // groups, n, width).sum(2)


def _weights(query: Tensor, key: Tensor, mask: Any, scale: float, causal: bool) -> Tensor:
    """The whole of ``softmax(scale * query @ key.T + mask)``; a row that sees nothing is zero."""
    scores = (query @ key.transpose(-2, -1)) * scale
    if causal:
        earlier = query.new_ones((query.shape[-2], key.shape[-2]), dtype=dtypes.bool).tril()
        scores = scores.where(earlier, -math.inf)
    if mask is not None:
        scores = scores.where(mask, -math.inf) if mask.dtype is dtypes.bool else scores + mask
    if not scores.shape[-1]:
        return scores
    blind = (scores == -math.inf).all(-1, keepdim=True)
    return scores.where(~blind, 0).softmax(-1).where(~blind, 0)


def _check_attention(query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout_p: float) -> None:
    operands = {"query": query, "key": key, "value": value}
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            f"scaled_dot_product_attention: Expected query, key, and value to have the same dtype\n{describe(**operands)}"
        )
    if min(x.ndim for x in operands.values()) < 2:
        raise RuntimeError(
            f"scaled_dot_product_attention: query, key and value need at least 2 dimensions\n{describe(**operands)}"
        )
    if not query.dtype.is_floating_point:
        kind = NotImplementedError if query.is_complex() else RuntimeError
        raise kind(f"scaled_dot_product_attention: expected a floating dtype, but got\n{describe(**operands)}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            "scaled_dot_product_attention: query and key must agree in their last dimension, key and value in the one before\n"
            f"{describe(**operands)}"
        )
    if mask is not None:
        if mask.dtype not in (dtypes.bool, dtypes.float32, query.dtype):
            raise RuntimeError(
                "scaled_dot_product_attention: Expected attn_mask dtype to be bool or float or to match query dtype, "
                f"but got attn_mask.dtype: {mask.dtype} and query.dtype: {query.dtype} instead."
            )
        if mask.ndim < 2:
            raise IndexError(f"scaled_dot_product_attention: attn_mask needs at least 2 dimensions, got shape {tuple(mask.shape)}")
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")


@composite(
    namespace=F, autocast="lower", operator="scaled_dot_product_attention", reads_parts=True, random=("dropout_p",),
    samples=(
        "x(2, 4, 3), x(2, 5, 3), x(2, 5, 3); x(1, 2, 4, 3), x(1, 2, 4, 3), x(1, 2, 4, 3), is_causal=True; "
        "x(2, 4, 3), x(2, 5, 3), x(2, 5, 3), b(4, 5, some=True), scale=0.5"
    ),
)
def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):
    """``softmax(query @ key.T * scale + attn_mask) @ value``: ``(*, L, E), (*, S, E), (*, S, V) -> (*, L, V)``.

    Args:
        attn_mask: bool, where True takes part, or floating, which is added; broadcasts to ``(*, L, S)``.
        dropout_p: probability with which weights are dropped, here and now; there is no training flag.
        is_causal: query i sees keys 0 to i, of those that `attn_mask` lets it.
        scale: ``1 / sqrt(E)`` by default.
        enable_gqa: heads (the third dimension from the end) of key and value serve several heads of query each.
    Returns: zeros for a query that sees no key.
    Raises: RuntimeError for dtypes or shapes that do not go together.
    Source: Vaswani et al. 2017, "Attention Is All You Need".

    >>> x = fb.eye(2)
    >>> F.scaled_dot_product_attention(x, x, x, is_causal=True)
    tensor([[1.0000, 0.0000],
            [0.3302, 0.6698]])
    """
    _check_attention(query, key, value, attn_mask, dropout_p)
    scale = (1 / math.sqrt(query.shape[-1]) if query.shape[-1] else math.inf) if scale is None else scale
    if not value.shape[-1] or 0 in value.shape[:-2]:
        attn_mask = None                                 # nothing comes out, whatever its shape
    composed = _composed(query, attn_mask, dropout_p)
    if is_causal and attn_mask is not None and (composed or dropout_p > 0):
        raise RuntimeError(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True, with dropout or without the "
            "kernel that never holds all scores; join them: attn_mask & ones(L, S, dtype=bool).tril()"
        )
    if dropout_p == 0 and not composed and _heads_fit(query, key, value, enable_gqa):
        mask = attn_mask if attn_mask is None else _full_mask(attn_mask, query, key)
        return attention.function(query, key, value, mask, scale, is_causal)
    return _of_any_shape(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, composed)


def _heads_fit(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> bool:
    """Whether these are batches of heads that `attention` takes as they are."""
    if not query.ndim == key.ndim == value.ndim == 4 or not query.shape[0] == key.shape[0] == value.shape[0]:
        return False
    heads, groups = query.shape[1], key.shape[1]
    fit = groups == value.shape[1] and (heads == groups or enable_gqa and groups and heads % groups == 0)
    return bool(fit and query.shape[2] and key.shape[2])


@scaled_dot_product_attention.plan(by="strides", tensors=("query", "key", "value", "attn_mask"))
def _planned_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    _check_attention(query, key, value, attn_mask, dropout_p)
    if dropout_p or not query.shape[-1] or not _allowed["flash"] or not _heads_fit(query, key, value, enable_gqa):
        return None
    if not value.shape[-1] or 0 in value.shape[:-2]:     # whose result is known
        return None
    if attn_mask is not None and not _allowed["math"]:   # without which a mask that requires grad is refused
        return None
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    mask = attn_mask if attn_mask is None else _full_mask(attn_mask, query, key)
    run = kernels.planned(query._array, key._array, value._array, None if mask is None else mask._array, scale, is_causal)
    if run is None:
        return None
    if mask is None or mask is attn_mask:
        return Plan(lambda *arrays: run(*arrays)[0], attention, lambda _, *tensors: (*tensors, scale, is_causal), run)
    sizes = mask.shape

    def run_with_full_mask(q, k, v, mask):
        return run(q, k, v, mask.reshape(sizes))

    return Plan(
        lambda *arrays: run_with_full_mask(*arrays)[0],
        attention,
        lambda _, q, k, v, mask: (q, k, v, mask.reshape(sizes), scale, is_causal),
        run_with_full_mask,
    )


def _of_any_shape(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any, dropout_p: float, is_causal: bool, scale: float, enable_gqa: bool,
    composed: bool,
) -> Tensor:  # fmt: skip
    """`scaled_dot_product_attention` of batches that broadcast, of any number of dimensions, with dropout, or of plain ops."""
    if enable_gqa:
        key, value = _grouped(query, key, value)
    width, out_width = query.shape[-1], value.shape[-1]
    batch = _common_batch(query, key, value)
    length, keys = query.shape[-2], key.shape[-2]
    if not keys or not length:
        return (query @ key.transpose(-2, -1)) @ value   # zeros, with a history
    count = math.prod(batch)
    q = query.expand(*batch, length, width).reshape(1, count, length, width)
    k = key.expand(*batch, keys, width).reshape(1, count, keys, width)
    v = value.expand(*batch, keys, out_width).reshape(1, count, keys, out_width)
    mask = None if attn_mask is None else _flat_mask(attn_mask, batch, length, keys)
    if dropout_p > 0:
        from .functional import _drop

        made = _drop(_weights(q, k, mask, scale, is_causal), dropout_p, True, False) @ v
    elif composed:
        made = _weights(q, k, mask, scale, is_causal) @ v
    else:
        made = attention.function(q, k, v, mask, scale, is_causal)
    return made.reshape(*batch, length, out_width)


def _full_mask(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask with four dimensions."""
    full_shape = (*query.shape[:3], key.shape[2])
    sizes = (1,) * (4 - mask.ndim) + tuple(mask.shape)
    if len(sizes) != 4 or any(n not in (1, want) for n, want in zip(sizes, full_shape, strict=True)):
        _refuse_mask(mask, full_shape)
    return mask if mask.ndim == 4 else mask.reshape(sizes)


def _refuse_mask(mask: Tensor, full_shape: tuple[int, ...]) -> None:
    raise RuntimeError(
        f"scaled_dot_product_attention: attn_mask of shape {tuple(mask.shape)} does not broadcast to {full_shape}"
    )


def _common_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """The shape before the last two dimensions, to which all three broadcast."""
    try:
        return broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except RuntimeError:
        raise RuntimeError(
            "scaled_dot_product_attention: batch dimensions of query, key and value do not broadcast\n"
            f"{describe(query=query, key=key, value=value)}"
        ) from None


def _grouped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Key and value with each head repeated for the heads of query it serves."""
    heads = query.shape[-3] if query.ndim > 2 else 1
    made = []
    for x in (key, value):
        own = x.shape[-3] if x.ndim > 2 else 1
        if not own or heads % own:
            raise RuntimeError(
                "scaled_dot_product_attention: Number of heads in key and value must divide the number of heads in query\n"
                f"{describe(query=query, key=key, value=value)}"
            )
        if own != heads:
            x = x.unsqueeze(-3).expand(*x.shape[:-2], heads // own, *x.shape[-2:]).reshape(*x.shape[:-3], heads, *x.shape[-2:])
        made.append(x)
    return made[0], made[1]


def _flat_mask(mask: Tensor, batch: tuple[int, ...], length: int, keys: int) -> Tensor:
    """The mask as ``(1, B or 1, L or 1, S or 1)``."""
    full_shape = (*batch, length, keys)
    lead = (1,) * (len(full_shape) - mask.ndim) + tuple(mask.shape[:-2])
    sizes = (*lead, *mask.shape[-2:])
    if len(sizes) != len(full_shape) or any(n not in (1, want) for n, want in zip(sizes, full_shape, strict=True)):
        _refuse_mask(mask, full_shape)
    if all(n == 1 for n in lead):
        return mask.reshape(1, 1, *mask.shape[-2:])
    return mask.expand(*batch, *mask.shape[-2:]).reshape(1, math.prod(batch), *mask.shape[-2:])


# -- multi-head attention ------------------------------------------------------------------------------------------------


def _linear(*args: Any) -> Tensor:
    from ..linear_algebra.linear import linear

    return linear.function(*args)


def _require(condition: bool, words: str) -> None:
    """Raise AssertionError with `words` unless `condition`: the type PyTorch raises for these."""
    if not condition:
        raise AssertionError(f"multi_head_attention_forward: {words}")


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, heads: int) -> bool:
    """Whether the inputs have a batch dimension. Raises: AssertionError when they do not go together."""
    for name, given in (("query", query), ("key", key), ("value", value)):
        if not isinstance(given, Tensor):
            raise TypeError(f"multi_head_attention_forward(): argument '{name}' must be Tensor, not {type(given).__name__}")
    if query.ndim not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor")
    batched = query.ndim == 3
    operands = describe(query=query, key=key, value=value)
    _require(key.ndim == query.ndim and value.ndim == query.ndim, f"key and value need as many dimensions as query\n{operands}")
    _require(padding is None or padding.ndim == query.ndim - 1, f"key_padding_mask needs {query.ndim - 1} dimensions")
    _require(mask is None or mask.ndim in (2, 3), "attn_mask needs 2 or 3 dimensions")
    if not batched and mask is not None and mask.ndim == 3:
        expected = (heads, query.shape[0], key.shape[0])
        _require(tuple(mask.shape) == expected, f"attn_mask should have shape {expected}, got {tuple(mask.shape)}")
    return batched


def _additive(mask: Any, name: str, other: Any, dtype: Any, check_other: bool = True) -> Any:
    """`mask` in floating form, to be added to scores. Raises: AssertionError for integers."""
    if mask is None:
        return None
    floating = mask.dtype.is_floating_point
    _require(floating or mask.dtype is dtypes.bool, f"only bool and floating types of {name} are supported, got {mask.dtype}")
    if check_other and other is not None and other.dtype is not mask.dtype:
        warnings.warn(f"Support for mismatched {name} and attn_mask is deprecated. Use same type for both instead.", stacklevel=4)
    if floating:
        return mask
    return mask.new_zeros(mask.shape, dtype=dtype).where(~mask, -math.inf)


def _projected(query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Any) -> Any:
    """Query, key and value through their thirds of one packed weight ``(3 E, E)``. Raises: RuntimeError for another shape."""
    width = query.shape[-1]
    if tuple(weight.shape) != (3 * width, width) or bias is not None and tuple(bias.shape) != (3 * width,):
        raise RuntimeError(
            f"multi_head_attention_forward: in_proj_weight must be {(3 * width, width)} and in_proj_bias {(3 * width,)} for queries "
            f"of {width} features\n{describe(query=query, in_proj_weight=weight, in_proj_bias=bias)}"
        )
    if query is key and key is value:
        return _linear(query, weight, bias).chunk(3, -1)
    thirds = weight.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [_linear(x, w, b) for x, w, b in zip((query, key, value), thirds, biases, strict=True)]


def _projected_separately(query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Any) -> Any:
    """Query, key and value through weights of their own, ``(E, E), (E, key width), (E, value width)``."""
    width = query.shape[-1]
    for name, x, w in zip(("q", "k", "v"), (query, key, value), weights, strict=True):
        _require(w is not None, f"use_separate_proj_weight is True but {name}_proj_weight is None")
        expected = (width, x.shape[-1])
        _require(tuple(w.shape) == expected, f"expecting {name}_proj_weight of shape {expected}, got {tuple(w.shape)}")
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [_linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]


def _append(x: Any, columns: int, value: float = 0.0) -> Any:
    """`x` with `columns` more entries of `value` along the last dimension."""
    from ..shapes.join import cat

    return None if x is None else cat.function([x, x.new_full((*x.shape[:-1], columns), value)], -1)


def _heads(x: Tensor, batch: int, heads: int) -> Tensor:
    """``(L, N, E) -> (N * heads, L, E / heads)``."""
    return x.reshape(x.shape[0], batch * heads, x.shape[-1] // heads).transpose(0, 1)


def _given_heads(name: str, given: Tensor, count: int, width: int) -> Tensor:
    _require(given.shape[0] == count, f"expecting {name}.size(0) of {count}, but got {given.shape[0]}")
    _require(given.shape[2] == width, f"expecting {name}.size(2) of {width}, but got {given.shape[2]}")
    return given


@composite(
    namespace=F, random=("dropout_p", "training"),
    samples="x(3, 2, 4), x(3, 2, 4), x(3, 2, 4), 4, 2, x(12, 4), x(12), None, None, False, 0.0, x(4, 4), x(4)",
)
def multi_head_attention_forward(
    query, key, value, embed_dim_to_check: int, num_heads: int, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight, out_proj_bias, training=True, key_padding_mask: Tensor | None = None, need_weights=True,
    attn_mask: Tensor | None = None, use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None,
    static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights=True, is_causal=False,
):  # fmt: skip
    """Attention of several heads: ``(L, N, E), (S, N, Ek), (S, N, Ev) -> (L, N, E)``, and the weights.

    Args:
        query, key, value: as above, or each without the batch dimension N.
        embed_dim_to_check: the E that is expected; `num_heads` divides it.
        in_proj_weight, in_proj_bias: ``(3 E, E), (3 E)``; with `use_separate_proj_weight` the weights are
            `q_proj_weight`, `k_proj_weight` and `v_proj_weight`.
        bias_k, bias_v: ``(1, 1, E)``, appended to keys and values; `add_zero_attn` appends zeros.
        dropout_p: probability with which weights are dropped, if `training`.
        out_proj_weight, out_proj_bias: ``(E, E), (E)``, of the projection of the result.
        key_padding_mask: ``(N, S)``: bool, True for keys to leave out, or floating, added to the scores.
        attn_mask: ``(L, S)`` or ``(N * num_heads, L, S)``: bool, True for pairs to leave out, or floating, added.
        is_causal: a hint that `attn_mask` is the causal mask; needs `attn_mask`.
        static_k, static_v: ``(N * num_heads, S, E / num_heads)``, in place of the projected key and value.
    Returns: ``(output, weights)``; weights ``(N, L, S)`` averaged over heads, ``(N, num_heads, L, S)`` with
        `average_attn_weights` False, None with `need_weights` False.
    Raises: AssertionError, RuntimeError for shapes or dtypes that do not go together.
    Source: Vaswani et al. 2017, "Attention Is All You Need".
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same_key, same_value = key is query, value is key
        query = query.unsqueeze(1)
        key = query if same_key else key.unsqueeze(1)
        value = key if same_value else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    key_padding_mask = _additive(key_padding_mask, "key_padding_mask", attn_mask, query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError("multi_head_attention_forward: Need attn_mask if specifying the is_causal hint.")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None
    else:
        attn_mask = _additive(attn_mask, "attn_mask", None, query.dtype, False)
        is_causal = is_causal and key_padding_mask is None
    _require(width == embed_dim_to_check, f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    head_width = width // num_heads
    _require(head_width * num_heads == width, f"embed_dim {width} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        _require(tuple(key.shape[:2]) == tuple(value.shape[:2]), f"key and value differ\n{describe(key=key, value=value)}")
        q, k, v = _projected_separately(query, key, value, (q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias)
    else:
        _require(tuple(key.shape) == tuple(value.shape), f"key and value differ\n{describe(key=key, value=value)}")
        _require(in_proj_weight is not None, "use_separate_proj_weight is False but in_proj_weight is None")
        q, k, v = _projected(query, key, value, in_proj_weight, in_proj_bias)
    if attn_mask is not None:
        attn_mask = _shaped_mask(attn_mask, batch * num_heads, length, k.shape[0])
    k, v, attn_mask, key_padding_mask = _with_bias(k, v, bias_k, bias_v, static_k, static_v, batch, attn_mask, key_padding_mask)
    q = _heads(q, batch, num_heads)
    count = batch * num_heads
    k = _heads(k, batch, num_heads) if static_k is None else _given_heads("static_k", static_k, count, head_width)
    v = _heads(v, batch, num_heads) if static_v is None else _given_heads("static_v", static_v, count, head_width)
    if add_zero_attn:
        from ..shapes.join import cat

        k, v = (cat.function([x, x.new_zeros((count, 1, head_width))], 1) for x in (k, v))
        attn_mask, key_padding_mask = _append(attn_mask, 1), _append(key_padding_mask, 1)
    keys = k.shape[1]
    if key_padding_mask is not None:
        given = tuple(key_padding_mask.shape)
        _require(given == (batch, keys), f"expecting key_padding_mask of shape {(batch, keys)}, got {given}")
        spread = key_padding_mask.reshape(batch, 1, 1, keys).expand(batch, num_heads, 1, keys).reshape(count, 1, keys)
        attn_mask = spread if attn_mask is None else attn_mask + spread
    dropped = dropout_p if training else 0.0
    if need_weights:
        _require(not (is_causal and attn_mask is None), "is_causal not implemented for need_weights")
        made, weights = _with_weights(q, k, v, attn_mask, dropped)
        weights = weights.reshape(batch, num_heads, length, keys)
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights if batched else weights.squeeze(0)
    else:
        made = scaled_dot_product_attention.function(q, k, v, attn_mask, dropped, is_causal and attn_mask is None)
        weights = None
    made = made.transpose(0, 1).reshape(length * batch, width)
    made = _linear(made, out_proj_weight, out_proj_bias)
    made = made.reshape(length, batch, made.shape[1])
    return (made if batched else made.squeeze(1)), weights


def _shaped_mask(mask: Tensor, count: int, length: int, keys: int) -> Tensor:
    """The mask with a dimension for batches and heads. Raises: RuntimeError for another shape."""
    expected = (length, keys) if mask.ndim == 2 else (count, length, keys)
    if tuple(mask.shape) != expected:
        raise RuntimeError(
            f"multi_head_attention_forward: The shape of the {mask.ndim}D attn_mask is {tuple(mask.shape)}, but should be {expected}."
        )
    return mask.unsqueeze(0) if mask.ndim == 2 else mask


def _with_bias(
    k: Tensor, v: Tensor, bias_k: Any, bias_v: Any, static_k: Any, static_v: Any, batch: int, mask: Any, padding: Any
) -> tuple[Any, Any, Any, Any]:
    """Keys and values with their biases appended as one more position, and masks that let it be seen."""
    if bias_k is None or bias_v is None:
        _require(bias_k is None and bias_v is None, "bias_k and bias_v go together")
        return k, v, mask, padding
    _require(static_k is None and static_v is None, "bias cannot be added to static key or value")
    from ..shapes.join import cat

    k = cat.function([k, bias_k.expand(1, batch, bias_k.shape[-1])], 0)
    v = cat.function([v, bias_v.expand(1, batch, bias_v.shape[-1])], 0)
    return k, v, _append(mask, 1), _append(padding, 1)


def _with_weights(q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout_p: float) -> tuple[Tensor, Tensor]:
    """Attention with all of its weights, which `need_weights` asks for."""
    scores = (q * math.sqrt(1 / q.shape[-1])) @ k.transpose(-2, -1)
    weights = (scores if mask is None else scores + mask).softmax(-1)
    if dropout_p > 0:
        from .functional import _drop

        weights = _drop(weights, dropout_p, True, False)
    return weights @ v, weights
