"""What operators of this framework's own (`ops.prims`) are in PyTorch's, for programs that are to have these alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _ops, dtypes
from ..ops import _derive
from ..ops._spec import OPS
from ..tensor import Tensor
from .derived import by_formula, unless_within
from .layers import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, avg_pool1d, group_norm, logsumexp, max_pool1d, rms_norm
from .making import linalg_cross, places

__all__ = ["of_own_operators"]

_aten, _prims = _ops.ops.aten, _ops.ops.prims
_BY_NAME: dict[str, Callable[..., Any]] = {}


def _is(name: str) -> Callable[[Any], Any]:
    def register(f: Any) -> Any:
        _BY_NAME[name] = f
        return f

    return register


_is("logsumexp_over")(logsumexp)
_is("cross_along")(lambda input, other, dim: linalg_cross(input, other, dim=dim))
_is("log1p_exp")(lambda input: input.clamp(min=0) + _aten.log1p.default(_aten.exp.default(-input.abs())))
_is("norm_over")(lambda input, order, dims, keepdim: _aten.linalg_vector_norm.default(input, order, list(dims), keepdim))
_is("length_along")(lambda input, p, dim, shared: _aten.linalg_vector_norm.default(input, p, [dim], True))


@_is("raise_to")
def _raise_to(input: Any, floor: Any) -> Any:
    return _aten.maximum.default(input, floor) if isinstance(floor, Tensor) else input.clamp(min=floor)


@_is("true_divide")
def _true_divide(input: Any, other: Any) -> Any:
    return _aten.div.Tensor(input, other) if isinstance(input, Tensor) else _aten.reciprocal.default(other) * input


@_is("normalize_trailing")
def _normalize_trailing(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    return _aten.native_layer_norm.default(input, list(normalized_shape), weight, bias, eps)[0]


@_is("normalize_groups")
def _normalize_groups(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return group_norm(input, num_groups, weight, bias, eps)


@_is("scale_trailing")
def _scale_trailing(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    return rms_norm(input, normalized_shape, weight, eps)


# -- windows -------------------------------------------------------------------------------------------------------------


def _as_asked(windows: Any) -> tuple[Any, ...] | None:
    """Kernel, stride, padding, dilation and whether sizes are rounded up, of windows that are a pool's; None of ranges."""
    if not hasattr(windows[0], "kernel"):
        return None
    up = any(w.count > (w.size + 2 * w.padding - w.dilation * (w.kernel - 1) - 1) // w.stride + 1 for w in windows)
    return (*([getattr(w, name) for w in windows] for name in ("kernel", "stride", "padding", "dilation")), up)


@_is("window_max_with_indices")
def _window_max_with_indices(input: Any, windows: Any) -> Any:
    asked, n = _as_asked(windows), len(windows)
    if asked is None or n == 1:
        return NotImplemented
    return (_aten.max_pool2d_with_indices if n == 2 else _aten.max_pool3d_with_indices).default(input, *asked)


@_is("window_max")
def _window_max(input: Any, windows: Any, keep: Any) -> Any:
    asked = _as_asked(windows)
    if asked is not None and len(windows) == 1:
        return max_pool1d(input, *asked)
    made = _window_max_with_indices(input, windows)
    return made if made is NotImplemented else made[0]


@_is("window_mean")
def _window_mean(input: Any, windows: Any, include_padding: bool, divisor: Any) -> Any:
    asked, n = _as_asked(windows), len(windows)
    if asked is None:
        return NotImplemented
    kernel, stride, padding, _, up = asked
    if n == 1:
        return NotImplemented if divisor is not None else avg_pool1d(input, kernel, stride, padding, up, include_padding)
    return (_aten.avg_pool2d if n == 2 else _aten.avg_pool3d).default(input, kernel, stride, padding, up, include_padding, divisor)


@_is("adaptive_mean")
def _adaptive_mean(input: Any, sizes: Any) -> Any:
    return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[len(sizes) - 1](input, list(sizes))


# -- elements elsewhere --------------------------------------------------------------------------------------------------


@_is("one_hot")
def _one_hot(tensor: Any, num_classes: int = -1) -> Any:
    if num_classes <= 0:
        return NotImplemented
    return (tensor.unsqueeze(-1) == places(num_classes, tensor)).to(dtypes.int64)


_is("nonzero_rows")(lambda input: _aten.nonzero.default(input))


@_is("is_member")
def _is_member(elements: Any, test_elements: Any, invert: bool) -> Any:
    found = _aten.any.dim(elements.unsqueeze(-1) == test_elements.reshape([-1]), -1)
    return _aten.logical_not.default(found) if invert else found


@_is("pad_constant")
def _pad_constant(input: Any, pairs: Any, value: Any) -> Any:
    return _aten.constant_pad_nd.default(input, [n for pair in reversed(pairs) for n in pair], value)


@_is("pad_mode")
def _pad_mode(input: Any, pairs: Any, mode: str) -> Any:
    for at, (before, after) in enumerate(pairs):
        dim = input.ndim - len(pairs) + at
        n = input.shape[dim]
        place = places(before + n + after, input) - before
        if mode == "circular":
            place = place % n
        elif mode == "replicate":
            place = place.clamp(0, n - 1)
        else:                                         # mirrored at both ends
            place = n - 1 - (n - 1 - place.abs()).abs()
        input = _aten.index_select.default(input, dim, place)
    return input


def _rows_of_windows(size: int, kernel: int, dilation: int, padding: int, stride: int, like: Any) -> Any:
    """Where in a padded dimension each element of each window is: ``(kernel, positions)``."""
    count = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    return (places(kernel, like) * dilation).unsqueeze(1) + places(count, like) * stride


@_is("gather_columns")
def _gather_columns(input: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    n, channels, *sizes = input.shape
    rows, columns = (_rows_of_windows(sizes[d], kernel[d], dilation[d], padding[d], stride[d], input) for d in (0, 1))
    padded = _aten.constant_pad_nd.default(input, [padding[1], padding[1], padding[0], padding[0]], 0)
    made = _aten.index.Tensor(padded, [None, None, rows.unsqueeze(-1).unsqueeze(-1), columns])  # (N, C, KH, H, KW, W)
    return made.permute([0, 1, 2, 4, 3, 5]).reshape([n, channels * kernel[0] * kernel[1], rows.shape[1] * columns.shape[1]])


@_is("fold_columns")
def _fold_columns(input: Any, extents: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    rows, columns = (_rows_of_windows(extents[d], kernel[d], dilation[d], padding[d], stride[d], input) for d in (0, 1))
    n, channels = input.shape[0], input.shape[1] // (kernel[0] * kernel[1])
    parts = input.reshape([n, channels, kernel[0], kernel[1], rows.shape[1], columns.shape[1]]).permute([0, 1, 2, 4, 3, 5])
    sizes = [n, channels, extents[0] + 2 * padding[0], extents[1] + 2 * padding[1]]
    whole = _aten.full.default(sizes, 0, dtype=input.dtype, device=input.device)
    whole = _aten.index_put.default(whole, [None, None, rows.unsqueeze(-1).unsqueeze(-1), columns], parts, True)
    return _aten.constant_pad_nd.default(whole, [-padding[1], -padding[1], -padding[0], -padding[0]], 0)


@functools.cache
def of_own_operators() -> dict[Any, Callable[..., Any]]:
    """The functions by operator: those above, and of elementwise ops the formula."""
    _derive.load_all()
    made: dict[Any, Callable[..., Any]] = {getattr(_prims, name).default: f for name, f in _BY_NAME.items()}
    for op in dict.fromkeys(OPS.values()):
        if op.kind == "elementwise":
            overload = getattr(_prims, op.name).default
            made.setdefault(overload, unless_within(overload, lambda *args, _op=op: by_formula(_op, args)))
    return made
