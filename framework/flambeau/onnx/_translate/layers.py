"""What layers of networks run: convolutions, normalizations, pooling, resizing, embeddings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as fb

from .._graph import Graph, Value
from ..errors import OnnxExporterError
from ._table import translates
from .reductions import spread
from .shapes import input_size, padded

__all__: list[str] = []


def _each(x: Any, count: int) -> list[Any]:
    """`x` for each of `count` dimensions."""
    x = list(x) if isinstance(x, (list, tuple)) else [x]
    return x * count if len(x) == 1 else x


def _batched(g: Graph, x: Value, spatial: int, translate: Callable[[Value], Value]) -> Value:
    """`translate` of `x` with a dimension for the batch, which is there only meanwhile where `x` has none."""
    if x.ndim == spatial + 2:
        return translate(x)
    shape = None if x.shape is None else (1, *x.shape)
    return g.op("Squeeze", translate(g.op("Unsqueeze", x, [0], shape=shape)), [0])


# -- convolutions ----------------------------------------------------------------------------------------------------------


@translates("aten.convolution.default", "aten._convolution.default")
def convolution(
    g: Graph, input: Value, weight: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *flags: bool,
) -> Value:  # fmt: skip
    spatial = weight.ndim - 2
    pads = _each(padding, spatial)
    settings: dict[str, Any] = {
        "strides": _each(stride, spatial), "dilations": _each(dilation, spatial), "pads": [*pads, *pads], "group": groups,
    }  # fmt: skip
    if weight.is_static:
        assert weight.shape is not None
        settings["kernel_shape"] = list(weight.shape[2:])
    if not transposed:
        return _batched(g, input, spatial, lambda x: g.op("Conv", x, weight, bias, **settings))
    more = _each(output_padding, spatial)
    return _batched(g, input, spatial, lambda x: g.op("ConvTranspose", x, weight, bias, output_padding=more, **settings))


def _conv(
    g: Graph, input: Value, weight: Value, bias: Value | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Value:
    if isinstance(padding, str):
        assert weight.shape is not None
        spatial = weight.ndim - 2
        if padding == "same":
            steps = _each(dilation, spatial)
            total = [steps[i] * (weight.shape[2 + i] - 1) for i in range(spatial)]
            pairs = [(n // 2, n - n // 2) for n in reversed(total)]
            input = Value(*padded(g, input, list(itertools.chain(*pairs)), "constant")[:2], input.shape)
        padding = 0
    return convolution(g, input, weight, bias, stride, padding, dilation, False, 0, groups)


translates("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default", "aten.conv1d.padding", "aten.conv2d.padding",
           "aten.conv3d.padding")(_conv)  # fmt: skip


@translates("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    g: Graph, input: Value, weight: Value, bias: Value | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Value:  # fmt: skip
    return convolution(g, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@translates("aten.im2col.default")
def im2col(g: Graph, input: Value, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (_each(x, 2) for x in (kernel_size, dilation, padding, stride))

    def windows(x: Value) -> Value:
        channels, height, width = input_size(x, 1), input_size(x, 2), input_size(x, 3)
        padded_input = padded(g, x, [pw, pw, ph, ph], "constant")
        rows, columns = (
            np.arange(0, n + 2 * p - d * (k - 1), s)[: (n + 2 * p - d * (k - 1) - 1) // s + 1]
            for n, p, d, k, s in ((height, ph, dh, kh, sh), (width, pw, dw, kw, sw))
        )
        at_rows = (np.arange(kh)[:, None] * dh + rows[None, :]).astype(np.int64)
        at_columns = (np.arange(kw)[:, None] * dw + columns[None, :]).astype(np.int64)
        taken = g.op("Gather", g.op("Gather", padded_input, at_rows, axis=2), at_columns, axis=4)   # (n, c, kh, rows, kw, columns)
        ordered = g.op("Transpose", taken, perm=[0, 1, 2, 4, 3, 5])
        return g.reshape(ordered, [g.size(x, 0), channels * kh * kw, len(rows) * len(columns)])

    return _batched(g, input, 2, windows)


@translates("aten.col2im.default")
def col2im(g: Graph, input: Value, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    pads = _each(padding, 2)
    settings: dict[str, Any] = {"dilations": _each(dilation, 2), "pads": [*pads, *pads], "strides": _each(stride, 2)}
    return _batched(g, input, 1, lambda x: g.op("Col2Im", x, g.sizes(_each(output_size, 2)), g.sizes(_each(kernel_size, 2)), **settings))


# -- normalizations --------------------------------------------------------------------------------------------------------


def _per_channel(g: Graph, x: Value, ndim: int) -> Value:
    return g.reshape(x, [-1, *[1] * (ndim - 2)]) if ndim > 2 else x


def _scaled(g: Graph, x: Value, weight: Value | None, bias: Value | None) -> Value:
    x = x if weight is None else g.op("Mul", x, g.cast(weight, x.dtype))
    return x if bias is None else g.op("Add", x, g.cast(bias, x.dtype))


@translates("aten.batch_norm.default")
def batch_norm(
    g: Graph, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None, running_var: Value | None,
    training: bool, momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    ndim, dtype = input.ndim, input.dtype
    if training or running_mean is None or running_var is None:
        variance, middle = spread(g, input, [d for d in range(ndim) if d != 1], 0, True)
        x = g.op("Div", g.op("Sub", input, middle), g.op("Sqrt", g.op("Add", variance, g.const(eps, dtype))))
        return _scaled(g, x, *(None if p is None else _per_channel(g, p, ndim) for p in (weight, bias)))
    assert running_mean.shape is not None
    count = running_mean.shape[0]
    scale = g.const(fb.ones(count, dtype=dtype)) if weight is None else g.cast(weight, dtype)
    shift = g.const(fb.zeros(count, dtype=dtype)) if bias is None else g.cast(bias, dtype)
    return g.op("BatchNormalization", input, scale, shift, g.cast(running_mean, dtype), g.cast(running_var, dtype), epsilon=float(eps))


@translates("aten._native_batch_norm_legit_no_training.default")
def batch_norm_without_training(
    g: Graph, input: Value, weight: Value | None, bias: Value | None, running_mean: Value, running_var: Value, momentum: float, eps: float
) -> tuple[Value, Value, Value]:
    none = g.const(fb.empty(0, dtype=input.dtype))
    return batch_norm(g, input, weight, bias, running_mean, running_var, False, momentum, eps), none, none


@translates("aten.instance_norm.default")
def instance_norm(
    g: Graph, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None, running_var: Value | None,
    use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    if not use_input_stats:
        return batch_norm(g, input, weight, bias, running_mean, running_var, False, momentum, eps)
    variance, middle = spread(g, input, list(range(2, input.ndim)), 0, True)
    x = g.op("Div", g.op("Sub", input, middle), g.op("Sqrt", g.op("Add", variance, g.const(eps, input.dtype))))
    return _scaled(g, x, *(None if p is None else _per_channel(g, p, input.ndim) for p in (weight, bias)))


@translates("aten.layer_norm.default")
def layer_norm(
    g: Graph, input: Value, normalized_shape: list[Any], weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:  # fmt: skip
    scale = g.const(fb.ones(*normalized_shape, dtype=input.dtype)) if weight is None else g.cast(weight, input.dtype)
    shift = None if bias is None else g.cast(bias, input.dtype)
    return g.op("LayerNormalization", input, scale, shift, axis=-len(normalized_shape), epsilon=float(eps))


@translates("aten.native_layer_norm.default")
def native_layer_norm(
    g: Graph, input: Value, normalized_shape: list[Any], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    dims = list(range(-len(normalized_shape), 0))
    variance, middle = spread(g, input, dims, 0, True)
    rstd = g.op("Reciprocal", g.op("Sqrt", g.op("Add", variance, g.const(eps, input.dtype))))
    return layer_norm(g, input, normalized_shape, weight, bias, eps), middle, rstd


@translates("aten.rms_norm.default")
def rms_norm(g: Graph, input: Value, normalized_shape: list[Any], weight: Value | None = None, eps: float | None = None) -> Value:
    half = input.dtype in (fb.float16, fb.bfloat16)
    x = g.cast(input, fb.float32) if half else input
    eps = fb.finfo(x.dtype).eps if eps is None else eps
    squares = g.reduce("ReduceMean", g.op("Mul", x, x), list(range(-len(normalized_shape), 0)), True)
    x = g.op("Div", x, g.op("Sqrt", g.op("Add", squares, g.const(eps, x.dtype))))
    return _scaled(g, x, weight, None)


@translates("aten.group_norm.default")
def group_norm(
    g: Graph, input: Value, num_groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    groups = Value(g.reshape(input, [g.size(input, 0), num_groups, -1]).name, input.dtype, (None, num_groups, None))
    middle = g.reduce("ReduceMean", groups, [2], True)
    apart = g.op("Sub", groups, middle)
    variance = g.reduce("ReduceMean", g.op("Mul", apart, apart), [2], True)
    x = g.op("Div", apart, g.op("Sqrt", g.op("Add", variance, g.const(eps, input.dtype))))
    x = g.op("Reshape", x, g.shape_of(input))
    return _scaled(g, x, *(None if p is None else _per_channel(g, p, input.ndim) for p in (weight, bias)))


@translates("aten.local_response_norm.default")
def local_response_norm(g: Graph, input: Value, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Value:
    return g.op("LRN", input, size=size, alpha=float(alpha), beta=float(beta), bias=float(k))


# -- pooling ---------------------------------------------------------------------------------------------------------------


def max_pool(spatial: int, indices: bool) -> Callable[..., Any]:
    def translate(
        g: Graph, input: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        kernel, pads = _each(kernel_size, spatial), _each(padding, spatial)
        steps = _each(stride, spatial) if stride not in ((), [], None) else kernel
        settings = {
            "kernel_shape": kernel, "strides": steps, "pads": [*pads, *pads], "dilations": _each(dilation, spatial),
            "ceil_mode": int(ceil_mode),
        }  # fmt: skip
        if not indices:
            return _batched(g, input, spatial, lambda x: g.op("MaxPool", x, **settings))
        x = input if input.ndim == spatial + 2 else g.unsqueeze(input, 0)
        most, places = g.op("MaxPool", x, dtype=(input.dtype, fb.int64), outputs=2, **settings)
        # ONNX counts through the batch and channels, PyTorch within each channel.
        plane = g.const(1, fb.int64)
        for d in range(input.ndim - spatial, input.ndim):
            plane = g.op("Mul", plane, g.size_value(input, d))
        places = g.op("Mod", places, plane)
        return (most, places) if x is input else (g.op("Squeeze", most, [0]), g.op("Squeeze", places, [0]))

    return translate


def average_pool(spatial: int) -> Callable[..., Value]:
    def translate(
        g: Graph, input: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Value:  # fmt: skip
        kernel, pads = _each(kernel_size, spatial), _each(padding, spatial)
        steps = _each(stride, spatial) if stride not in ((), [], None) else kernel
        counts_padding = count_include_pad or divisor_override is not None
        settings = {
            "kernel_shape": kernel, "strides": steps, "pads": [*pads, *pads], "ceil_mode": int(ceil_mode),
            "count_include_pad": int(counts_padding),
        }  # fmt: skip
        made = _batched(g, input, spatial, lambda x: g.op("AveragePool", x, **settings))
        if divisor_override is None:
            return made
        return g.op("Mul", made, g.const(math.prod(kernel) / divisor_override, input.dtype))

    return translate


def _adaptive_avg_pool(spatial: int) -> Callable[..., Value]:
    def translate(g: Graph, input: Value, output_size: Any) -> Value:
        wanted = _each(output_size, spatial)
        if wanted == [1] * spatial:
            return g.reduce("ReduceMean", input, list(range(-spatial, 0)), True)
        x = input
        for i, n in enumerate(wanted):
            if n is None:                             # as many as there are
                continue
            x = _averaged(g, x, i - spatial, n, input)
        return x

    return translate


def _ranges(size: int, count: int) -> list[tuple[int, int]]:
    """The ranges of `size` elements that adaptive pooling makes `count` of."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _averaged(g: Graph, x: Value, dim: int, count: int, input: Value) -> Value:
    """`x` with `count` means of ranges along `dim`: a product by a matrix of weights."""
    size = input_size(input, dim)
    if size == count:
        return x
    weights = np.zeros((size, count))
    for i, (start, end) in enumerate(_ranges(size, count)):
        weights[start:end, i] = 1 / (end - start)
    matrix = g.const(fb.tensor(weights).to(x.dtype))
    perm = list(range(input.ndim))
    perm[dim], perm[-1] = perm[-1], perm[dim]
    made = g.op("MatMul", g.op("Transpose", x, perm=perm) if dim != -1 else x, matrix)
    return g.op("Transpose", made, perm=perm) if dim != -1 else made


def _adaptive_max_pool(spatial: int) -> Callable[..., tuple[Value, Value]]:
    pool = max_pool(spatial, indices=True)

    def translate(g: Graph, input: Value, output_size: Any) -> tuple[Value, Value]:
        wanted = [input_size(input, i - spatial) if n is None else n for i, n in enumerate(_each(output_size, spatial))]
        sizes = [input_size(input, d) for d in range(-spatial, 0)]
        if any(n % m for n, m in zip(sizes, wanted, strict=True)):
            from .places import maxima_of_ranges

            return maxima_of_ranges(g, input, [_ranges(n, m) for n, m in zip(sizes, wanted, strict=True)], True)
        kernel = [n // m for n, m in zip(sizes, wanted, strict=True)]
        return pool(g, input, kernel, kernel)

    return translate


def _lp_pool(spatial: int) -> Callable[..., Value]:
    average = average_pool(spatial)

    def translate(g: Graph, input: Value, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Value:
        power = g.op("Pow", g.op("Abs", input, shape=input.shape), g.const(float(norm_type), input.dtype), shape=input.shape)
        total = g.op("Mul", average(g, power, kernel_size, stride or (), 0, ceil_mode),
                     g.const(float(math.prod(_each(kernel_size, spatial))), input.dtype))  # fmt: skip
        return g.op("Pow", total, g.const(1 / norm_type, input.dtype))

    return translate


for _n in (1, 2, 3):
    translates(f"aten.max_pool{_n}d.default")(max_pool(_n, indices=False))
    translates(f"aten.max_pool{_n}d_with_indices.default")(max_pool(_n, indices=True))
    translates(f"aten.avg_pool{_n}d.default")(average_pool(_n))
    translates(
        f"aten.adaptive_avg_pool{_n}d.default", f"aten._adaptive_avg_pool{_n}d.default", f"prims.adaptive_avg_pool{_n}d.default"
    )(_adaptive_avg_pool(_n))
    translates(f"aten.adaptive_max_pool{_n}d.default")(_adaptive_max_pool(_n))
    translates(f"aten.lp_pool{_n}d.default")(_lp_pool(_n))


# -- resizing --------------------------------------------------------------------------------------------------------------


def _resize(g: Graph, input: Value, output_size: Any, scales: Any, **settings: Any) -> Value:
    """`input` resized to sizes, or by scales where the program gave these for all dimensions."""
    scales = [s for s in scales if s is not None]
    count = input.ndim - 2
    if len(scales) == count:
        by = g.const([1.0, 1.0, *map(float, scales)], fb.float32)
        return g.op("Resize", input, None, by, **settings)
    if isinstance(output_size, (list, tuple)) and all(isinstance(n, int) for n in output_size) and input.is_static:
        assert input.shape is not None
        return g.op("Resize", input, None, None, [*input.shape[:2], *output_size], **settings)
    sizes = g.op("Concat", g.op("Shape", input, dtype=fb.int64, end=2), g.sizes(output_size), axis=0)
    return g.op("Resize", input, None, None, sizes, **settings)


def _flat(scales: tuple[Any, ...]) -> list[Any]:
    return [s for x in scales for s in (x if isinstance(x, (list, tuple)) else [x])]


def _nearest(exact: bool) -> Callable[..., Value]:
    def translate(g: Graph, input: Value, output_size: Any, *scales: Any) -> Value:
        where, rounding = ("half_pixel", "round_prefer_ceil") if exact else ("asymmetric", "floor")
        return _resize(
            g, input, output_size, _flat(scales), mode="nearest", coordinate_transformation_mode=where, nearest_mode=rounding
        )

    return translate


def _between(mode: str, antialias: int) -> Callable[..., Value]:
    def translate(g: Graph, input: Value, output_size: Any, align_corners: bool, *scales: Any) -> Value:
        where = "align_corners" if align_corners else "half_pixel"
        settings: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": where}
        if mode == "cubic":
            settings["cubic_coeff_a"] = -0.5 if antialias else -0.75
        if antialias:
            settings["antialias"] = 1
        return _resize(g, input, output_size, [] if align_corners else _flat(scales), **settings)

    return translate


for _n, _word in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    translates(f"aten.upsample_nearest{_n}d.default", f"aten.upsample_nearest{_n}d.vec")(_nearest(exact=False))
    translates(f"aten._upsample_nearest_exact{_n}d.default", f"aten._upsample_nearest_exact{_n}d.vec")(_nearest(exact=True))
    translates(f"aten.upsample_{_word}{_n}d.default", f"aten.upsample_{_word}{_n}d.vec")(_between("linear", 0))
translates("aten.upsample_bicubic2d.default", "aten.upsample_bicubic2d.vec")(_between("cubic", 0))
translates("aten._upsample_bilinear2d_aa.default", "aten._upsample_bilinear2d_aa.vec")(_between("linear", 1))
translates("aten._upsample_bicubic2d_aa.default", "aten._upsample_bicubic2d_aa.vec")(_between("cubic", 1))


@translates("aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(g: Graph, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Value:
    if input.ndim != 4 and g.opset < 20:
        raise OnnxExporterError("grid_sample of volumes needs opset_version 20")
    words = ("linear", "nearest", "cubic") if g.opset >= 20 else ("bilinear", "nearest", "bicubic")
    mode = words[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    return g.op("GridSample", input, grid, mode=mode, padding_mode=padding, align_corners=int(align_corners))


# -- embeddings ------------------------------------------------------------------------------------------------------------


@translates("aten.embedding.default")
def embedding(
    g: Graph, weight: Value, indices: Value, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Value:
    return g.op("Gather", weight, indices, axis=0)


@translates("aten.one_hot.default")
def one_hot(g: Graph, input: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise OnnxExporterError("one_hot needs num_classes: without it the size of the result depends on the values")
    return g.op("OneHot", input, g.const(num_classes, fb.int64), g.const([0, 1], fb.int64), dtype=fb.int64, axis=-1)
