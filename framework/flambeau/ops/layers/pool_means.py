"""Means over windows of the last dimensions, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...tensor import Tensor
from .._batching import folded
from .._spec import CHANNELS_OF_IMAGES, FUNCTION, OUT, composite, describe, need_int, primitive
from .._spec.pieces import batches_of
from .._spec.plans import Plan
from .norm import depends_on
from .pool_windows import Ints, Windows, as_planes, asked_for, check_input, pooled_shape, restored, titles_of, windows_of


@primitive(
    surface=0, linear_in=("input",), memory=CHANNELS_OF_IMAGES, samples="of nn.functional.avg_pool2d", public_name="avg_pool",
    batch_rule=folded,
    cuda="windows.window_mean",
)
def window_mean(input, windows, include_padding, divisor):
    """The sum of each window over `divisor`, or over the number of elements it has."""


window_mean.shown_by("titled[TITLES[len(windows)]]", TITLES=titles_of("AvgPool{}DBackward0"))
window_mean.shown_as(
    hides="windows", kernel_size=asked_for(0), stride=asked_for(1), padding=asked_for(2), ceil_mode=asked_for(4),
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
    from flambeau_kernels.cpu.pool import channels_last, window_means, window_sum

    n = len(windows)
    if n == 2 and channels_last.pays(x, windows):
        return channels_last.means(x, tuple(windows), include_padding, divisor)
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
    return pooled_shape(input, windows), input.dtype


@window_mean.vjp
def _window_mean_vjp(grad, input, windows, include_padding, divisor):
    return depends_on(spread_mean(grad, windows, include_padding, divisor), input)


@window_mean.vjp_on_arrays
def _window_mean_vjp_on_arrays(grad, windows, include_padding, divisor):
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
    from flambeau_kernels.cpu.pool import channels_last, window_means, window_spread

    n = len(windows)
    if n == 2 and channels_last.pays(grad, windows):
        return channels_last.spread(grad, tuple(windows), tuple(w.size for w in windows), include_padding, divisor)
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
    windows = windows_of_means(op, input, kernel_size, stride, padding, ceil_mode, n)
    return window_mean(input, windows, bool(count_include_pad), divisor)


def _checked_divisor(op: str, divisor: Any) -> int | None:
    """`divisor_override`. Raises: TypeError for what is no integer, RuntimeError for 0."""
    if divisor is None:
        return None
    divisor = need_int(op, "divisor_override", divisor)
    if divisor == 0:
        raise RuntimeError(f"{op}: divisor must be not zero")
    return divisor


def windows_of_means(op: str, input: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, n: int) -> Windows:
    """`windows_of` of means: over three dimensions a window is no larger than the input, however much padding there is."""
    windows = windows_of(op, input, kernel, stride, padding, 1, ceil_mode, n)
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
    windows, include = windows_of_means(op, input, kernel, stride, padding, ceil_mode, n), bool(include)
    run = planned_means(as_planes(input._array, n), windows, include, divisor, pooled_shape(input, windows))
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
        ceil_mode: let a last window stick out at the end, provided it starts inside; what sticks out does not count.
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
