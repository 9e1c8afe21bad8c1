"""Softmax, likelihoods and normalizations: formulas between reductions."""

from __future__ import annotations

import math
from math import prod
from typing import Any

from ...tensor import Tensor, wrap


def _wide(a: Any) -> Tensor:
    x = wrap(a)
    return x.float() if a.dtype.itemsize == 2 else x


def _shifted(a: Any, dim: int) -> tuple[Tensor, Tensor]:
    """The elements less the largest along `dim`, and their exponentials."""
    x = _wide(a)
    shifted = x - (x.amax(dim, True) if a.ndim else x)
    return shifted, shifted.exp()


def softmax(a: Any, dim: int) -> Any:
    if not a.size:
        return wrap(a).clone()._array
    _, powers = _shifted(a, dim)
    return (powers / (powers.sum(dim, True) if a.ndim else powers)).to(wrap(a).dtype)._array


def log_softmax(a: Any, dim: int) -> Any:
    if not a.size:
        return wrap(a).clone()._array
    shifted, powers = _shifted(a, dim)
    return (shifted - (powers.sum(dim, True) if a.ndim else powers).log()).to(wrap(a).dtype)._array


def attention(q: Any, k: Any, v: Any, mask: Any, scale: float, causal: bool) -> Any:
    from ...ops.layers.attention import _repeated, _weights

    query, heads = wrap(q), q.shape[1]
    keys, values = _repeated(wrap(k), heads), _repeated(wrap(v), heads)
    weights = _weights(query, keys, None if mask is None else wrap(mask), scale, causal)
    return (weights @ values).to(query.dtype)._array, None


class Picked:
    """What `nll` keeps: the weight of each score in the result, as an array."""

    __slots__ = ("picked",)

    def __init__(self, picked: Any) -> None:
        self.picked = picked


def nll(a: Any, target: Any, weight: Any, ignored: int, reduction: str) -> Any:
    scores, classes = wrap(a), wrap(target).long()
    one = scores.unsqueeze(0) if a.ndim == 1 else scores
    at = classes.reshape(1) if a.ndim == 1 else classes
    counts = at != ignored
    safe = at.masked_fill(~counts, 0)
    w = counts.to(one.dtype) if weight is None else wrap(weight)[safe] * counts
    picked = one.new_zeros(one.shape).scatter(1, safe.unsqueeze(1), w.unsqueeze(1))
    # A class that does not count may have the score -inf, and 0 times that is nan.
    losses = -(one.gather(1, safe.unsqueeze(1)).squeeze(1) * w)
    losses = losses.masked_fill(~counts, 0)
    if reduction == "none":
        return losses.reshape(target.shape)._array, Picked(picked.reshape(a.shape)._array)
    total = losses.sum()
    if reduction == "mean":
        over = w.sum()
        return (total / over)._array, Picked((picked / over).reshape(a.shape)._array)
    return total._array, Picked(picked.reshape(a.shape)._array)


# -- normalizations --------------------------------------------------------------------------------------------------------


def _standardized(x: Tensor, dims: Any, eps: float, shape: Any) -> tuple[Tensor, Any]:
    """`x` with mean 0 and variance 1 over `dims`, and its moments, which have `shape`."""
    from flambeau_kernels.cpu.norm import Moments

    if not x.numel():
        none = x.sum(dims, True).reshape(shape) + math.nan
        return x, Moments(*(none.clone()._array for _ in range(3)))
    variance = x.var(dims, correction=0, keepdim=True)
    mean = x.mean(dims, True)
    inverse = (variance + eps).rsqrt()
    return (x - mean) * inverse, Moments(*(found.reshape(shape)._array for found in (mean, variance, inverse)))


def _scaled(x: Tensor, weight: Any, bias: Any, shape: Any) -> Tensor:
    if weight is not None:
        x = x * _wide(weight).reshape(shape)
    return x if bias is None else x + _wide(bias).reshape(shape)


def normalize_trailing(a: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    if not a.size:
        return wrap(a).clone()._array, None
    dims = tuple(range(a.ndim - len(shape), a.ndim))
    made, moments = _standardized(_wide(a), dims, eps, (prod(a.shape[: a.ndim - len(shape)]), 1))
    return _scaled(made, weight, bias, tuple(shape)).to(wrap(a).dtype)._array, moments


def normalize_trailing_and_moments(a: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    out, moments = normalize_trailing(a, shape, weight, bias, eps)
    return _with_moments(a, out, moments, (*a.shape[: a.ndim - len(shape)], *(1,) * len(shape)))


def _with_moments(a: Any, out: Any, moments: Any, shape: tuple[int, ...]) -> Any:
    """``(out, mean, inverse)``, the last two of that `shape`, nan where `a` is empty and has no `moments`; and the moments."""
    if moments is None:
        none = _wide(a).new_full(shape, math.nan)
        return (out, none._array, none.clone()._array), None
    return (out, *(found.reshape(shape).copy() for found in (moments.mean, moments.inverse))), moments


def scale_trailing(a: Any, shape: Any, weight: Any, eps: Any) -> Any:
    x = _wide(a)
    dims = tuple(range(a.ndim - len(shape), a.ndim))
    inverse = ((x * x).mean(dims, True) + eps).rsqrt()
    return _scaled(x * inverse, weight, None, tuple(shape)).to(wrap(a).dtype)._array, None


def _channels(x: Any) -> tuple[int, ...]:
    return (1, -1, *(1,) * (x.ndim - 2))


def normalize_channels(a: Any, weight: Any, bias: Any, eps: float) -> Any:
    made, moments = _standardized(_wide(a), (0, *range(2, a.ndim)), eps, (1, a.shape[1]))
    return _scaled(made, weight, bias, _channels(a)).to(wrap(a).dtype)._array, moments


def normalize_channels_tracked(a: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float) -> Any:
    from flambeau_kernels.cpu.norm import channels_tracked

    return channels_tracked(normalize_channels(a, weight, bias, eps), a, (mean, variance), momentum)


def normalize_by_running(a: Any, mean: Any, variance: Any, weight: Any, bias: Any, eps: float) -> Any:
    shape = _channels(a)
    made = (_wide(a) - _wide(mean).reshape(shape)) * (_wide(variance) + eps).rsqrt().reshape(shape)
    return _scaled(made, weight, bias, shape).to(wrap(a).dtype)._array


def normalize_groups(a: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    n = a.shape[0]
    made, moments = _standardized(_wide(a).reshape(n, groups, prod(a.shape[1:]) // groups), (2,), eps, (n, groups))
    return _scaled(made.reshape(a.shape), weight, bias, _channels(a)).to(wrap(a).dtype)._array, moments


def normalize_groups_and_moments(a: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    return _with_moments(a, *normalize_groups(a, groups, weight, bias, eps), shape=(a.shape[0], groups))


def normalize_images_tracked(a: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float) -> Any:
    from flambeau_kernels.cpu.norm import images_tracked

    return images_tracked(normalize_groups(a, a.shape[1], weight, bias, eps), a, (mean, variance), momentum)


def depends_on(value: Any, other: Any) -> Any:
    return value


def raise_to(value: Any, low: Any) -> Any:
    return wrap(value).clamp(min=low)._array
