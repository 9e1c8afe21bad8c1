"""Pooling: means, maxima and norms over windows, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isinf, prod
from typing import Any

import numpy as np

from ... import _state, dtypes
from ...tensor import Tensor, wrap
from .. import _dispatch
from .._batching import folded
from .._spec import (
    CHANNELS,
    CHANNELS_OF_IMAGES,
    FUNCTION,
    OPS,
    OUT,
    AskedFor,
    composite,
    describe,
    need_bools,
    need_int,
    need_number,
    primitive,
)
from .._spec.pieces import batches_of
from .._spec.plans import Plan
from .conv import as_ints
from .norm import depends_on

Ints = tuple[int, ...]


Windows = Any  # a tuple of flambeau_kernels.cpu.pool.Window, one for each pooled dimension


def titles_of(name: str) -> tuple[str, ...]:
    """The names of nodes by the number of pooled dimensions, which stands in `name`."""
    return tuple([name.format(n) for n in range(4)])


def _asked(place: int) -> Any:
    """What nodes show of the windows that they have saved: kernel_size, stride, padding, dilation, ceil_mode."""
    return lambda saved: saved["windows"].asked[place] if saved["windows"].__class__ is AskedFor else None


# -- windows -------------------------------------------------------------------------------------------------


def check_rank(op: str, input: Any, n: int) -> None:
    """Raise unless `input` is a Tensor of `n` dimensions to pool, channels, and perhaps a batch."""
    if not isinstance(input, Tensor):
        raise TypeError(f"{op}(): argument 'input' must be Tensor, not {type(input).__name__}")
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"{op}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for input, "
            f"but got:{list(input.shape)}\n{describe(input=input)}"
        )


def check_input(op: str, input: Any, n: int, what: str, channels_free: bool = False) -> None:
    """Raise unless `input` has `n` dimensions to pool, channels, and perhaps a batch, and a dtype with
    order or means."""
    check_rank(op, input, n)
    needed = input.shape[-n - 1 :] if (what == "order" or input.ndim == n + 2) and not channels_free else input.shape[-n:]
    if 0 in needed:
        raise RuntimeError(
            f"{op}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for input, "
            f"but got:{list(input.shape)}; it must have non-zero size in all but the batch dimension\n"
            f"{describe(input=input)}"
        )
    refused = input.is_complex() or input.dtype is dtypes.bool
    if what == "mean":
        refused = refused or (input.dtype.category < dtypes.FLOATING and input.dtype is not dtypes.int64)
    elif what == "floating":
        refused = refused or input.dtype.category < dtypes.FLOATING
    if refused:
        raise NotImplementedError(
            f'"{op}" not implemented for {input.dtype}; convert the input with .to(dtype) first'
        )


def _windows(
    op: str, input: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, n: int
) -> Windows:
    from flambeau_kernels.cpu.pool import Window

    need_bools(op, ceil_mode=ceil_mode)
    kernel = as_ints(op, "kernel_size", kernel, n)
    given = () if stride is None or (isinstance(stride, (tuple, list)) and not stride) else as_ints(op, "stride", stride, n)
    stride = given or kernel
    padding, dilation = as_ints(op, "padding", padding, n), as_ints(op, "dilation", dilation, n)
    if max(*kernel, *stride, *padding, *dilation) >= 1 << 31:
        raise RuntimeError(
            f"{op}: value cannot be converted to type int without overflow: kernel_size {kernel}, stride {stride}, "
            f"padding {padding}, dilation {dilation}"
        )
    for k, s, d in zip(kernel, stride, dilation, strict=True):
        if k <= 0 or s <= 0 or d <= 0:
            what = "kernel size" if k <= 0 else "stride" if s <= 0 else "dilation"
            raise RuntimeError(
                f"{op}: {what} should be greater than zero, but got kernel_size {kernel}, stride {stride}, "
                f"dilation {dilation}"
            )
    windows = []
    for size, k, s, p, d in zip(input.shape[-n:], kernel, stride, padding, dilation, strict=True):
        if p < 0:
            raise RuntimeError(f"{op}: pad must be non-negative, but got pad: {p}")
        if p > ((k - 1) * d + 1) // 2:
            raise RuntimeError(
                f"{op}: pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and "
                f"dilation={d}"
            )
        count = _window_count(size, k, s, p, d, ceil_mode)
        if count < 1:
            counts = [_window_count(*each, ceil_mode) for each in zip(input.shape[-n:], kernel, stride, padding, dilation, strict=True)]
            before, after = ("x".join(map(str, (input.shape[-n - 1], *sizes))) for sizes in (input.shape[-n:], counts))
            raise RuntimeError(
                f"{op}: Given input size: ({before}). Calculated output size: ({after}). Output size is too small: "
                f"no window of {k} (dilation {d}) fits into {size} + 2 * {p}\n{describe(input=input)}"
            )
        windows.append(Window.of(size, k, s, p, d, count))
    return AskedFor.of(windows, kernel, given, padding, dilation, bool(ceil_mode))


def _window_count(size: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    span = size + 2 * p - d * (k - 1) - 1
    if not ceil_mode:
        return span // s + 1
    count = -(-span // s) + 1
    # The last window has to start inside the input or its left padding.
    return count - 1 if (count - 1) * s >= size + p else count


def as_planes(a: Any, n: int) -> Any:
    """``(*, *spatial)`` as ``(planes, *spatial)``."""
    if not a.flags.c_contiguous:
        from flambeau_kernels.cpu.shapes.layout import planar

        a = planar(a)
    return a.reshape(prod(a.shape[: a.ndim - n]), *a.shape[a.ndim - n :])


def restored(made: Any, a: Any, n: int, keeps_order: bool = True) -> Any:
    """Planes in the shape that `a` had before it was pooled, and if `keeps_order` in its order in memory."""
    made = made.reshape(*a.shape[: a.ndim - n], *made.shape[1:])
    if a.flags.c_contiguous or not keeps_order:
        return made
    from flambeau_kernels.cpu.shapes.layout import alike

    return alike(made, a)


def _pooled_shape(input: Any, windows: Windows) -> tuple[int, ...]:
    return (*input.shape[: input.ndim - len(windows)], *(w.count for w in windows))


# -- means ---------------------------------------------------------------------------------------------------


@primitive(
    surface=0, linear_in=("input",), memory=CHANNELS_OF_IMAGES, samples="of nn.functional.avg_pool2d", public_name="avg_pool",
    batch_rule=folded,
    cuda="windows.window_mean",
)
def window_mean(input, windows, include_padding, divisor):
    """The sum of each window over `divisor`, or over the number of elements it has."""


window_mean.shown_by("titled[TITLES[len(windows)]]", TITLES=titles_of("AvgPool{}DBackward0"))
window_mean.shown_as(
    hides="windows", kernel_size=_asked(0), stride=_asked(1), padding=_asked(2), ceil_mode=_asked(4),
    count_include_pad="include_padding", divisor_override="divisor",
)  # fmt: skip


window_mean.in_pieces(lambda asked: batches_of(len(asked["windows"]), 1, 1))


def _divisor(windows: Windows, include_padding: bool, divisor: Any, kind: np.dtype) -> Any:
    from flambeau_kernels.cpu.pool import window_counts

    if divisor is not None:
        return kind.type(divisor)
    counts = window_counts(windows, include_padding)
    return (
        kind.type(counts.flat[0]) if counts.size and (counts == counts.flat[0]).all() else counts.astype(kind)
    )


def wide(a: Any) -> Any:
    from flambeau_kernels.cpu.conv import widened

    return widened(a)[0]


@window_mean.kernel
def mean_over(x, windows, include_padding, divisor):
    from flambeau_kernels.cpu.pool import window_means, window_sum

    n = len(windows)
    made = window_means(as_planes(x, n), windows, include_padding, divisor, False)
    if made is not None:
        return restored(made, x, n, n < 3)  # as PyTorch
    made = window_sum(wide(as_planes(x, n)), windows)
    over = _divisor(windows, include_padding, divisor, made.dtype)
    if made.dtype.kind == "i":
        made = np.trunc(made / over).astype(x.dtype)
    else:
        made /= over
    return restored(made.astype(x.dtype, copy=False), x, n, n < 3)  # as PyTorch


@window_mean.shape
def _window_mean_shape(input, windows, include_padding, divisor):
    return _pooled_shape(input, windows), input.dtype


@window_mean.vjp
def _window_mean_vjp(grad, input, windows, include_padding, divisor):
    return depends_on(spread_mean(grad, windows, include_padding, divisor), input)


@window_mean.vjp_on_arrays
def _window_mean_raw(grad, windows, include_padding, divisor):
    return spread_over(grad, windows, include_padding, divisor)


@primitive(
    surface=0, linear_in=("grad",), memory=CHANNELS_OF_IMAGES, samples="of nn.functional.avg_pool2d", batch_rule=folded,
    cuda="windows.spread_mean",
)
def spread_mean(grad, windows, include_padding, divisor):
    """The transpose of `window_mean`."""


spread_mean.in_pieces(lambda asked: batches_of(len(asked["windows"]), 1, 1))


@spread_mean.kernel
def spread_over(grad, windows, include_padding, divisor):
    from flambeau_kernels.cpu.pool import window_means, window_spread

    n = len(windows)
    made = window_means(as_planes(grad, n), windows, include_padding, divisor, True)
    if made is not None:
        return restored(made, grad, n)
    planes = wide(as_planes(grad, n))
    made = window_spread(planes / _divisor(windows, include_padding, divisor, planes.dtype), windows)
    return restored(made.astype(grad.dtype, copy=False), grad, n)


@spread_mean.shape
def _spread_mean_shape(grad, windows, include_padding, divisor):
    return (*grad.shape[: grad.ndim - len(windows)], *(w.size for w in windows)), grad.dtype


@spread_mean.vjp
def _spread_mean_vjp(grad, windows, include_padding, divisor):
    return window_mean(grad, windows, include_padding, divisor)


def _avg_pool(
    op: str,
    n: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Any,
) -> Tensor:
    check_input(op, input, n, "mean")
    divisor = _checked_divisor(op, divisor)
    windows = _mean_windows(op, input, kernel_size, stride, padding, ceil_mode, n)
    return window_mean(input, windows, bool(count_include_pad), divisor)


def _checked_divisor(op: str, divisor: Any) -> int | None:
    """`divisor_override`. Raises: TypeError for what is no integer, RuntimeError for 0."""
    if divisor is None:
        return None
    divisor = need_int(op, "divisor_override", divisor)
    if divisor == 0:
        raise RuntimeError(f"{op}: divisor must be not zero")
    return divisor


def _mean_windows(op: str, input: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, n: int) -> Windows:
    """`_windows` of means: over three dimensions a window is no larger than the input, however much padding there is."""
    windows = _windows(op, input, kernel, stride, padding, 1, ceil_mode, n)
    sizes, kernels = [w.size for w in windows], [w.counted[0] if w.counted else w.kernel for w in windows]
    if n == 3 and any(k > size for k, size in zip(kernels, sizes, strict=True)):
        raise RuntimeError(
            f"input image (T: {sizes[0]} H: {sizes[1]} W: {sizes[2]}) smaller than kernel size (kT: {kernels[0]} kH: {kernels[1]} "
            f"kW: {kernels[2]}): {op} takes windows that fit into the input\n{describe(input=input)}"
        )
    return windows


def _planned_mean(
    op: str, n: int, input: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any = None
) -> Plan | None:
    """The plan of `_avg_pool`."""
    from flambeau_kernels.cpu.pool import planned_means

    check_input(op, input, n, "mean")
    divisor = _checked_divisor(op, divisor)
    windows, include = _mean_windows(op, input, kernel, stride, padding, ceil_mode, n), bool(include)
    run = planned_means(as_planes(input._array, n), windows, include, divisor, _pooled_shape(input, windows))
    if run is None:
        return None
    return Plan(run, window_mean, lambda _, x: (x, windows, include, divisor))


@composite(
    surface=FUNCTION, aliases=("nn.functional.avg_pool1d",), operator="avg_pool1d",
    samples="x(2, 3, 7), 3; x(2, 7), 2, 2, 1, True, False",
)
def avg_pool1d(
    input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, ceil_mode=False,
    count_include_pad=True
):
    """The mean over windows of the last dimension: ``(N, C, L) -> (N, C, L')``, or without N.

    ``L' = (L + 2 * padding - kernel_size) // stride + 1``, the quotient rounded up with `ceil_mode`.

    Args:
        kernel_size: elements in a window.
        stride: from one window to the next; `kernel_size` by default.
        padding: zeros on both sides, at most half a window.
        ceil_mode: let a last window stick out at the end, provided it starts inside; what sticks out does not
            count.
        count_include_pad: whether padding counts as zeros in the mean.
    Raises: RuntimeError for sizes that do not fit, or another rank.

    >>> F.avg_pool1d(fb.tensor([[1.0, 3.0, 5.0, 7.0, 9.0]]), 2, ceil_mode=True)
    tensor([[2., 6., 9.]])
    """
    return _avg_pool("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@composite(
    namespace="nn.functional", surface=FUNCTION | OUT, numpy_names=True,
    samples="x(2, 3, 5, 5), 2; x(3, 5, 6), (3, 2), 2, (1, 0), True, False; x(1, 2, 4, 4), 2, divisor_override=3",
    exact_out=True,
)
def avg_pool2d(
    input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, ceil_mode=False,
    count_include_pad=True, divisor_override: int | None = None
):
    """The mean over windows of the last two dimensions: ``(N, C, H, W) -> (N, C, H', W')``, or without N.

    Args:
        divisor_override: divides the sum of every window, in place of the number of its elements; not 0.
    The others as for `avg_pool1d`, ints or pairs.
    """
    return _avg_pool(
        "avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@composite(
    namespace="nn.functional", surface=FUNCTION | OUT, numpy_names=True, autocast=("float32", None),
    samples="x(1, 2, 4, 4, 3), 2; x(2, 4, 4, 3), 2, 1, 1, False, False, 5",
)
def avg_pool3d(
    input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, ceil_mode=False,
    count_include_pad=True, divisor_override: int | None = None
):
    """The mean over windows of the last three dimensions: ``(N, C, D, H, W) -> (N, C, D', H', W')``.

    N may be left out.
    Args:
        divisor_override: divides the sum of every window, in place of the number of its elements; not 0.
    The others as for `avg_pool1d`, ints or triples.
    """
    return _avg_pool(
        "avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


for _n, _op in enumerate((avg_pool1d, avg_pool2d, avg_pool3d), 1):
    _op.plan(partial(_planned_mean, _op.name, _n), by="shape")


def running_mean(input: Tensor, kernel: Ints) -> Tensor:
    """Means over windows of the last dimensions at stride 1, without padding; integers round towards zero."""
    from flambeau_kernels.cpu.pool import Window

    n = len(kernel)
    windows = tuple(
        Window(size, k, 1, 0, 1, size - k + 1) for size, k in zip(input.shape[-n:], kernel, strict=True)
    )
    return window_mean(input, windows, True, None)


# -- norms ---------------------------------------------------------------------------------------------------


def _lp_pool(
    op: str, n: int, input: Any, norm_type: Any, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    """``(sum of x ** p) ** (1 / p)`` over windows; the gradient is 0 where the sum is not positive."""
    from ..pointwise.activation import relu

    check_rank(op, input, n)
    if not isinstance(norm_type, (Tensor, complex)):  # of a complex power the mean is refused
        need_number(op, "norm_type", norm_type)
        if isinf(norm_type):
            pooled = (max_pool1d, max_pool2d, max_pool3d)[n - 1]
            sign = 1 if norm_type > 0 else -1  # the least magnitude is the most of their negatives
            return pooled(input.abs() * sign, kernel_size, stride, ceil_mode=ceil_mode) * sign
    powers = input**norm_type
    check_input(op, powers, n, "mean")
    kernel = as_ints(op, "kernel_size", kernel_size, n)
    total = window_mean(powers, _mean_windows(op, powers, kernel, stride, 0, ceil_mode, n), True, None)
    # A Tensor or a number of numpy's may be 0: their root is of infinite order.
    if isinstance(norm_type, (int, float)) and not isinstance(norm_type, np.number) and norm_type == 0:
        raise ZeroDivisionError(f"{op}: norm_type is {norm_type}, and the root of that order is taken")
    return (total.sign() * relu(total.abs()) * prod(kernel)) ** (1.0 / norm_type)


@composite(namespace="nn.functional", samples="p(2, 3, 7), 2, 3; p(2, 3, 7), 3.0, 2, ceil_mode=True")
def lp_pool1d(input, norm_type: int | float, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, ceil_mode=False):
    """``sum(x ** p) ** (1 / p)`` over windows: ``(N, C, L) -> (N, C, L')``, or without N.

    No absolute values are taken: an odd p lets signs through, and a negative sum has no real root.

    Args:
        norm_type: the p. ``1`` gives sums, ``inf`` the largest magnitude, ``-inf`` the least.
        kernel_size, stride, ceil_mode: as for `avg_pool1d`.

    >>> F.lp_pool1d(fb.tensor([[3.0, 4.0, 6.0, 8.0]]), 2, 2)
    tensor([[ 5., 10.]])
    """
    if isinstance(kernel_size, (tuple, list)):
        raise TypeError(f"lp_pool1d(): argument 'kernel_size' must be int, not {type(kernel_size).__name__}")
    return _lp_pool("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


@composite(namespace="nn.functional", samples="p(2, 3, 5, 5), 2, 2")
def lp_pool2d(input, norm_type: int | float, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, ceil_mode=False):
    """``sum(x ** p) ** (1 / p)`` over windows: ``(N, C, H, W) -> (N, C, H', W')``.

    N may be left out. Arguments as for `lp_pool1d`, ints or pairs.
    """
    return _lp_pool("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


@composite(namespace="nn.functional", samples="p(1, 2, 4, 4, 3), 2, 2")
def lp_pool3d(input, norm_type: int | float, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, ceil_mode=False):
    """``sum(x ** p) ** (1 / p)`` over windows: ``(N, C, D, H, W) -> (N, C, D', H', W')``.

    N may be left out. Arguments as for `lp_pool1d`, ints or triples.
    """
    return _lp_pool("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)


# -- maxima --------------------------------------------------------------------------------------------------


class Kept:
    """Where the maxima were, left by the kernel for the way back when `wanted`."""

    __slots__ = ("wanted", "indices")

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.indices: Any = None


@primitive(
    surface=0, memory=CHANNELS, samples="of nn.functional.max_pool2d", public_name="max_pool", batch_rule=folded, cuda="windows.window_max",
)
def window_max(input, windows, keep):
    """The maximum of each window."""


class Drawn(tuple[Any, ...]):
    """The `DrawnRanges` of each pooled dimension, whose starts are those of each plane."""

    __slots__ = ()


_MAX_CLASS = "titled[OF.get(windows.__class__, OF_RANGES)[len(windows)]]"
_MAX_TITLES = {
    "OF": {AskedFor: titles_of("MaxPool{}DWithIndicesBackward0"), Drawn: titles_of("FractionalMaxPool{}DBackward0")},
    "OF_RANGES": titles_of("AdaptiveMaxPool{}DBackward0"),
}
_OF_MAXIMA = {"kernel_size": _asked(0), "stride": _asked(1), "padding": _asked(2), "dilation": _asked(3), "ceil_mode": _asked(4)}
window_max.shown_by(_MAX_CLASS, **_MAX_TITLES)
window_max.shown_as(
    hides="windows", result1=lambda saved: None if saved["keep"].indices is None else wrap(saved["keep"].indices)
)
window_max.shown_for(*_MAX_TITLES["OF"][AskedFor], **_OF_MAXIMA)


window_max.in_pieces(lambda asked: _pieces_of_maxima(asked["windows"], 1))


def _pieces_of_maxima(windows: Windows, results: int) -> Any:
    """By images and channels, unless each plane has windows of its own."""
    return [] if windows.__class__ is Drawn else batches_of(len(windows), 1, results)


def _max_with_indices(x: Any, windows: Windows) -> tuple[Any, Any]:
    """Values and indices; `windows` are regular ones, or ranges."""
    from flambeau_kernels.cpu import pool as kernels

    n = len(windows)
    regular = isinstance(windows[0], kernels.Window)
    values, at = (kernels.max_at if regular else kernels.max_of_ranges)(as_planes(x, n), windows)
    return restored(values, x, n), restored(at, x, n)


@window_max.kernel
def _window_max(x, windows, keep):
    from flambeau_kernels.cpu import pool as kernels

    if keep.wanted or not isinstance(windows[0], kernels.Window):
        values, keep.indices = _max_with_indices(x, windows)
        return values
    return restored(kernels.max_values(as_planes(x, len(windows)), windows), x, len(windows))


@window_max.shape
def _window_max_shape(input, windows, keep):
    return _pooled_shape(input, windows), input.dtype


@window_max.vjp
def _window_max_vjp(grad, input, windows, keep):
    kept = None if _dispatch.is_seen(input) else keep.indices
    at = wrap(kept) if kept is not None else window_max_with_indices(input.detach(), windows)[1]
    return put_plane(grad, at, input, len(windows))


@window_max.vjp_on_arrays
def _window_max_raw(grad, input, windows, keep):
    at = keep.indices if keep.indices is not None else _max_with_indices(input, windows)[1]
    return _put_plane(grad, at, input, len(windows))


@primitive(
    surface=0, memory=CHANNELS, samples="of nn.functional.max_pool2d_with_indices", public_name="max_pool", batch_rule=folded,
    cuda="windows.max_with_indices",
)
def window_max_with_indices(input, windows):
    """The maximum of each window, and its index in the plane of the pooled dimensions."""


window_max_with_indices.shown_by(_MAX_CLASS, **_MAX_TITLES)
window_max_with_indices.shown_as(hides="windows", result1="out1")
window_max_with_indices.shown_for(*_MAX_TITLES["OF"][AskedFor], **_OF_MAXIMA)


window_max_with_indices.in_pieces(lambda asked: _pieces_of_maxima(asked["windows"], 2))


window_max_with_indices.kernel(_max_with_indices)


@window_max_with_indices.shape
def _window_max_with_indices_shape(input, windows):
    shape = _pooled_shape(input, windows)
    return [(shape, input.dtype), (shape, dtypes.int64)]


@window_max_with_indices.vjp
def _window_max_with_indices_vjp(grad, input, out1, windows):
    return put_plane(grad[0], out1, input, len(windows))


@primitive(
    surface=0, tensors=("grad", "indices", "input"), memory=CHANNELS, ordering=("input",),
    samples="of nn.functional.max_pool2d_with_indices",
    cuda="windows.put_plane",
)
def put_plane(grad, indices, input, n):
    """Zeros shaped as `input` with `grad` added at `indices` of the plane of its last `n` dimensions."""


put_plane.in_pieces(lambda asked: batches_of(asked["n"], 3, 1))


@put_plane.kernel
def _put_plane(grad, at, x, n):
    from flambeau_kernels.cpu.pool import put_plane as kernel

    planes, size = prod(x.shape[: x.ndim - n]), prod(x.shape[x.ndim - n :])
    count = prod(grad.shape[grad.ndim - n :])
    made = kernel(as_planes(grad, n).reshape(planes, count), as_planes(at, n).reshape(planes, count), size, True)
    return restored(made.reshape(planes, *x.shape[x.ndim - n :]), x, n)


@put_plane.shape
def _put_plane_shape(grad, indices, input, n):
    return input.shape, grad.dtype


@put_plane.vjp
def _put_plane_vjp(grad, indices, n):
    return take_plane(grad, indices, n), None, None


@primitive(surface=0, tensors=("input", "indices"), samples="of nn.functional.max_pool2d_with_indices", cuda="windows.take_plane")
def take_plane(input, indices, n):
    """Elements `indices` of the plane of the last `n` dimensions."""


take_plane.in_pieces(lambda asked: batches_of(asked["n"], 2, 1))


@take_plane.kernel
def _take_plane(x, at, n):
    from flambeau_kernels.cpu.pool import take_plane as kernel

    planes, size = prod(x.shape[: x.ndim - n]), prod(x.shape[x.ndim - n :])
    return kernel(x.reshape(planes, size), at.reshape(planes, prod(at.shape[at.ndim - n :]))).reshape(
        at.shape
    )


@take_plane.shape
def _take_plane_shape(input, indices, n):
    return indices.shape, input.dtype


@take_plane.vjp
def _take_plane_vjp(grad, indices, input, n):
    return put_plane(grad, indices, input, n), None


def largest_in(input: Tensor, windows: Windows, return_indices: bool) -> Any:
    if return_indices:
        return window_max_with_indices(input, windows)
    return window_max(input, windows, Kept(input._node is not None and _state.grad_enabled()))


def _max_pool(
    op: str,
    n: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    check_input(op, input, n, "order")
    return largest_in(
        input, _windows(op, input, kernel_size, stride, padding, dilation, ceil_mode, n), return_indices
    )


def _planned_max(
    op: str, n: int, input: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: bool
) -> Plan | None:
    """The plan of `_max_pool`."""
    check_input(op, input, n, "order")
    return plan_of_maxima(input, _windows(op, input, kernel, stride, padding, dilation, ceil_mode, n), indices)


def plan_of_maxima(input: Tensor, windows: Windows, indices: bool) -> Plan | None:
    """The plan of `largest_in`."""
    from flambeau_kernels.cpu.pool import Window, planned_maxima, planned_ranges

    planes, shape = as_planes(input._array, len(windows)), _pooled_shape(input, windows)
    if isinstance(windows[0], Window):
        runs = planned_maxima(planes, windows, shape)
    else:
        run = planned_ranges(planes, windows, shape)
        runs = run and ((lambda a: run(a)[0]), run)
    if runs is None:
        return None
    values, with_places = runs

    def arguments(places: Any, input: Tensor) -> tuple[Any, ...]:
        keep = Kept(True)
        keep.indices = places
        return input, windows, keep

    return Plan(with_places) if indices else Plan(values, window_max, arguments, with_places)


@composite(
    namespace="nn.functional", operator="max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode)",
    samples="d(2, 3, 7), 3; d(2, 7), 2, 2, 1, 1, True",
)
def max_pool1d(
    input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, dilation=1, ceil_mode=False,
    return_indices=False
):
    """The maximum over windows, nan above all: ``(N, C, L) -> (N, C, L')``, or without N.

    ``L' = (L + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1``, the quotient rounded up with
    `ceil_mode`.

    Args:
        kernel_size: elements in a window.
        stride: from one window to the next; `kernel_size` by default.
        padding: at most half a window on both sides; it never is the maximum.
        dilation: from one element of a window to the next.
        ceil_mode: let a last window stick out at the end, provided it starts inside.
        return_indices: return ``(values, indices)``; an index is the place of the maximum, the first of
            several, in its row.
    Raises: RuntimeError for sizes that do not fit, or another rank.

    >>> F.max_pool1d(fb.tensor([[1.0, 5.0, 2.0, 4.0]]), 2, return_indices=True)
    (tensor([[5., 4.]]), tensor([[1, 3]]))
    """
    return _max_pool(
        "max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


@composite(
    namespace="nn.functional", operator="max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)",
    samples="d(2, 3, 5, 5), 2; d(3, 5, 6), (3, 2), 2, (1, 0), 1, True; d(1, 2, 6, 6), 2, return_indices=True",
)
def max_pool2d(
    input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, dilation=1, ceil_mode=False,
    return_indices=False
):
    """The maximum over windows of the last two dimensions: ``(N, C, H, W) -> (N, C, H', W')``, or without N.

    Arguments as for `max_pool1d`, ints or pairs. Indices count through the plane: ``row * W + column``.
    """
    return _max_pool(
        "max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


@composite(
    namespace="nn.functional", operator="max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode)", autocast=("float32", None),
    samples="d(1, 2, 4, 4, 3), 2; d(2, 4, 4, 3), 2, 1, 1",
)
def max_pool3d(
    input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, dilation=1, ceil_mode=False,
    return_indices=False
):
    """The maximum over windows of the last three dimensions: ``(N, C, D, H, W) -> (N, C, D', H', W')``.

    N may be left out. Arguments as for `max_pool1d`, ints or triples. Indices count through the volume in
    row-major order.
    """
    return _max_pool(
        "max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


for _n, _op in enumerate((max_pool1d, max_pool2d, max_pool3d), 1):
    _op.plan(partial(_planned_max, _op.name, _n), by="shape")


_SAMPLES = {1: "d(2, 3, 7), 3", 2: "d(2, 3, 5, 5), 2", 3: "d(1, 2, 4, 4, 3), 2"}


def _with_indices(n: int) -> Any:
    def pool(input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, dilation=1, ceil_mode=False):
        return _max_pool(f"max_pool{n}d", n, input, kernel_size, stride, padding, dilation, ceil_mode, True)

    pool.__name__ = f"max_pool{n}d_with_indices"
    pool.__doc__ = f"`max_pool{n}d` as ``(values, indices)``. Arguments as for `nn.functional.max_pool{n}d`."
    if n == 1:
        return composite(surface=FUNCTION, aliases=("nn.functional.max_pool1d_with_indices",), samples=_SAMPLES[n])(pool)
    return composite(namespace="nn.functional", samples=_SAMPLES[n])(pool)


max_pool1d_with_indices = _with_indices(1)
max_pool2d_with_indices = _with_indices(2)
max_pool3d_with_indices = _with_indices(3)


def _top_level(n: int) -> Any:
    def pool(input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, dilation=1, ceil_mode=False):
        return _max_pool(f"max_pool{n}d", n, input, kernel_size, stride, padding, dilation, ceil_mode, False)

    pool.__name__ = f"max_pool{n}d"
    pool.__doc__ = f"The maximum over windows, without indices. Arguments as for `nn.functional.max_pool{n}d`."
    return composite(surface=FUNCTION, autocast=("float32", None) if n == 3 else None, samples=_SAMPLES[n])(pool)


for _n in (1, 2, 3):
    _top_level(_n)


# -- unpooling -----------------------------------------------------------------------------------------------


@primitive(
    surface=0, tensors=("input", "indices"), memory=CHANNELS_OF_IMAGES, ordering=("input",),
    samples="of nn.functional.max_unpool2d",
    public_name="max_unpool",
)
def unpool(input, indices, sizes):
    """Zeros with last dimensions `sizes` and `input` at `indices` of their plane."""


unpool.shown_by("titled[TITLES[len(sizes)]]", TITLES=titles_of("MaxUnpool{}DBackward0"))
unpool.shown_as(hides="sizes")


unpool.in_pieces(lambda asked: batches_of(len(asked["sizes"]), 2, 1))


@unpool.kernel
def _unpool(x, at, sizes):
    from flambeau_kernels.cpu.pool import put_plane as kernel

    n = len(sizes)
    planes, count = prod(x.shape[: x.ndim - n]), prod(x.shape[x.ndim - n :])
    made = kernel(x.reshape(planes, count), at.reshape(planes, count), prod(sizes), False)
    return made.reshape(*x.shape[: x.ndim - n], *sizes)


@unpool.shape
def _unpool_shape(input, indices, sizes):
    return (*input.shape[: input.ndim - len(sizes)], *sizes), input.dtype


@unpool.vjp
def _unpool_vjp(grad, indices, sizes):
    return take_plane(grad, indices, len(sizes)), None


@unpool.jvp
def _unpool_jvp(args, tangents, out):
    # Of equal indices the last wins, in the tangent as in the value.
    return unpool(tangents[0], *args[1:])


def _max_unpool(
    op: str, n: int, input: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    if _state.DETERMINISTIC:
        from ..._settings import alert_not_deterministic

        alert_not_deterministic(f"max_unpooling{max(n, 2)}d_forward_out")
    kernel = as_ints(op, "kernel_size", kernel_size, n)
    stride = kernel if stride is None else as_ints(op, "stride", stride, n)
    padding = as_ints(op, "padding", padding, n)
    if indices.dtype is not dtypes.int64:
        raise RuntimeError(f"{op}: elements in indices should be type int64 but got: {indices.dtype}")
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"{op}: Input to {op} should be a {n + 1}d or {n + 2}d Tensor, but got {input.ndim} dimensions"
        )
    if tuple(indices.shape) != tuple(input.shape):
        raise RuntimeError(
            f"{op}: Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got "
            f"indices tensor with shape: {list(indices.shape)}\n{describe(input=input, indices=indices)}"
        )
    least = tuple(
        (size - 1) * s + k - 2 * p
        for size, k, s, p in zip(input.shape[-n:], kernel, stride, padding, strict=True)
    )
    sizes = least if output_size is None else _unpooled_size(op, n, output_size, least, stride)
    if min(sizes) < 0:
        raise RuntimeError(
            f"{op}: kernel_size {kernel}, stride {stride} and padding {padding} give an output of size {sizes}, which must not be "
            "negative"
        )
    if not indices._lacks_values and indices.is_cpu and indices.numel():
        low, high = (int(x) for x in OPS["aminmax"].function(indices))
        if low < 0 or high >= prod(sizes):
            raise RuntimeError(
                f"{op}: Found an invalid max index: {low if low < 0 else high} (output volumes are of size "
                f"{sizes})"
            )
    return unpool(input, indices, sizes)


def _unpooled_size(op: str, n: int, output_size: Any, least: Ints, stride: Ints) -> Ints:
    sizes = tuple(output_size)
    if len(sizes) == n + 2:
        sizes = sizes[2:]
    if len(sizes) != n:
        raise ValueError(
            f"{op}: output_size should be a sequence containing {n} or {n + 2} elements, but it has a "
            f"length of '{len(sizes)}'"
        )
    for at, (m, low, s) in enumerate(zip(sizes, least, stride, strict=True)):
        if not low - s < m < low + s:
            raise ValueError(
                f'{op}: invalid output_size "{sizes}" (dim {at} must be between {low - s} and {low + s})'
            )
    return tuple(int(m) for m in sizes)


@composite(namespace="nn.functional", samples="x(2, 3, 2), fb.tensor([1, 2]).expand(2, 3, 2), 2")
def max_unpool1d(
    input, indices, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0,
    output_size: Sequence[int] | None = None
):
    """Each maximum of a `max_pool1d` back at its place, zeros elsewhere: ``(N, C, L') -> (N, C, L)``, or without N.

    Args:
        input, indices: what `max_pool1d` returned with `return_indices`.
        kernel_size, stride, padding: those of the pooling.
        output_size: the size before pooling, where several give the same; ``(L' - 1) * stride - 2 * padding +
            kernel_size`` by default.
    Raises: ValueError for an `output_size` that could not have been; RuntimeError for an index outside.

    >>> F.max_unpool1d(fb.tensor([[5.0, 4.0]]), fb.tensor([[1, 3]]), 2)
    tensor([[0., 5., 0., 4.]])
    """
    return _max_unpool("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


max_unpool1d.in_pieces(batches_of(1, 2, 1))


@composite(
    namespace="nn.functional", autocast=("float32", None),
    samples="x(2, 3, 2, 2), fb.tensor([[0, 2], [9, 15]]).expand(2, 3, 2, 2), 2",
)
def max_unpool2d(
    input, indices, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0,
    output_size: Sequence[int] | None = None
):
    """Each maximum of a `max_pool2d` back at its place, zeros elsewhere: ``(N, C, H', W') -> (N, C, H, W)``.

    N may be left out. Arguments as for `max_unpool1d`, ints or pairs.
    """
    return _max_unpool("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


max_unpool2d.in_pieces(batches_of(2, 2, 1))


@composite(
    namespace="nn.functional", autocast=("float32", None),
    samples="x(1, 2, 1, 2, 2), fb.tensor([[[0, 2], [9, 31]]]).expand(1, 2, 1, 2, 2), 2",
)
def max_unpool3d(
    input, indices, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0,
    output_size: Sequence[int] | None = None
):
    """Each maximum of a `max_pool3d` back at its place, zeros elsewhere: ``(N, C, D', H', W') -> (N, C, D, H, W)``.

    N may be left out. Arguments as for `max_unpool1d`, ints or triples.
    """
    return _max_unpool("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)


max_unpool3d.in_pieces(batches_of(3, 2, 1))
