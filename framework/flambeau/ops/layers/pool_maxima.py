"""Maxima over windows of the last dimensions, where they were, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from flambeau_kernels.cpu.shapes.order import is_last, is_ordered_last

from ... import _state, dtypes
from ...tensor import Tensor
from .. import _dispatch
from .._batching import folded
from .._spec import CHANNELS, FUNCTION, AskedFor, composite, primitive
from .._spec.pieces import batches_of
from .._spec.plans import Plan
from .pool_windows import Windows, as_planes, asked_for, check_input, pooled_shape, restored, titles_of, windows_of


@primitive(
    surface=0, keeps=True, memory=CHANNELS, samples="of nn.functional.max_pool2d", public_name="max_pool", batch_rule=folded,
    cuda="windows.window_max",
)
def window_max(input, windows, keep):
    """The maximum of each window; what is kept is where it was, where `keep` asks for it."""


_MAX_CLASS = "titled[OF.get(windows.__class__, OF_RANGES)[len(windows)]]"
_MAX_TITLES = {
    "OF": {AskedFor: titles_of("MaxPool{}DWithIndicesBackward0")},
    "OF_RANGES": titles_of("AdaptiveMaxPool{}DBackward0"),
}
_OF_MAXIMA = {"kernel_size": asked_for(0), "stride": asked_for(1), "padding": asked_for(2), "dilation": asked_for(3),
              "ceil_mode": asked_for(4)}  # fmt: skip
window_max.shown_by(_MAX_CLASS, **_MAX_TITLES)
window_max.shown_as(hides="windows", result1="kept")
window_max.shown_for(*_MAX_TITLES["OF"][AskedFor], **_OF_MAXIMA)


window_max.in_pieces(lambda asked: batches_of(len(asked["windows"]), 1, 1))


def _max_with_indices(x: Any, windows: Windows) -> tuple[Any, Any]:
    """Values and indices; `windows` are regular ones, or ranges."""
    from flambeau_kernels.cpu import pool as kernels
    from flambeau_kernels.cpu.pool import channels_last

    n = len(windows)
    if channels_last.pays(x, windows):
        return channels_last.maxima(x, tuple(windows), True)
    regular = isinstance(windows[0], kernels.Window)
    values, at = (kernels.max_at if regular else kernels.max_of_ranges)(as_planes(x, n), windows)
    return restored(values, x, n), restored(at, x, n)


@window_max.kernel
def _window_max(x, windows, keep):
    from flambeau_kernels.cpu import pool as kernels
    from flambeau_kernels.cpu.pool import channels_last

    if keep or not isinstance(windows[0], kernels.Window):
        return _max_with_indices(x, windows)
    if channels_last.pays(x, windows):
        return channels_last.maxima(x, tuple(windows), False)
    return restored(kernels.max_values(as_planes(x, len(windows)), windows), x, len(windows)), None


@window_max.shape
def _window_max_shape(input, windows, keep):
    return pooled_shape(input, windows), input.dtype


@window_max.vjp
def _window_max_vjp(grad, input, windows, kept):
    at = window_max_with_indices(input.detach(), windows)[1] if kept is None or _dispatch.is_seen(input) else kept
    return put_plane(grad, at, input, len(windows))


@window_max.vjp_on_arrays
def _window_max_vjp_on_arrays(grad, input, windows, kept):
    at = _max_with_indices(input, windows)[1] if kept is None else kept
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


window_max_with_indices.in_pieces(lambda asked: batches_of(len(asked["windows"]), 1, 2))


window_max_with_indices.kernel(_max_with_indices)


@window_max_with_indices.shape
def _window_max_with_indices_shape(input, windows):
    shape = pooled_shape(input, windows)
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
    from flambeau_kernels.cpu.pool import channels_last
    from flambeau_kernels.cpu.pool import put_plane as kernel

    if is_last(at) and is_ordered_last(x) and channels_last.is_of_channels(grad, n):
        return channels_last.put(grad, at, x.shape[x.ndim - n :])
    planes, size = prod(x.shape[: x.ndim - n]), prod(x.shape[x.ndim - n :])
    count = prod(grad.shape[grad.ndim - n :])
    made = kernel(as_planes(grad, n).reshape(planes, count), as_planes(at, n).reshape(planes, count), size, True)
    return restored(made.reshape(planes, *x.shape[x.ndim - n :]), x, n)


@put_plane.shape
def _put_plane_shape(grad, indices, input, n):
    return input.shape, grad.dtype


@put_plane.vjp(indices=None, input=None)
def _put_plane_vjp(grad, indices, n):
    return take_plane(grad, indices, n), None, None


@primitive(surface=0, tensors=("input", "indices"), samples="of nn.functional.max_pool2d_with_indices", cuda="windows.take_plane")
def take_plane(input, indices, n):
    """Elements `indices` of the plane of the last `n` dimensions."""


take_plane.in_pieces(lambda asked: batches_of(asked["n"], 2, 1))


@take_plane.kernel
def _take_plane(x, at, n):
    from flambeau_kernels.cpu.pool import take_plane as kernel
    from flambeau_kernels.cpu.pool import unpool as kernels

    planes, size = prod(x.shape[: x.ndim - n]), prod(x.shape[x.ndim - n :])
    if kernels.takes(x, at, n, size):
        return kernels.take(x, at, n)
    return kernel(x.reshape(planes, size), at.reshape(planes, prod(at.shape[at.ndim - n :]))).reshape(
        at.shape
    )


@take_plane.shape
def _take_plane_shape(input, indices, n):
    return indices.shape, input.dtype


@take_plane.vjp(indices=None)
def _take_plane_vjp(grad, indices, input, n):
    return put_plane(grad, indices, input, n), None


def largest_in(input: Tensor, windows: Windows, return_indices: bool) -> Any:
    if return_indices:
        return window_max_with_indices(input, windows)
    return window_max(input, windows, input._node is not None and _state.grad_enabled())


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
        input, windows_of(op, input, kernel_size, stride, padding, dilation, ceil_mode, n), return_indices
    )


def _planned_max(
    op: str, n: int, input: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: bool
) -> Plan | None:
    """The plan of `_max_pool`."""
    check_input(op, input, n, "order")
    return plan_of_maxima(input, windows_of(op, input, kernel, stride, padding, dilation, ceil_mode, n), indices)


def plan_of_maxima(input: Tensor, windows: Windows, indices: bool) -> Plan | None:
    """The plan of `largest_in`."""
    from flambeau_kernels.cpu.pool import Window, planned_maxima, planned_ranges

    planes, shape = as_planes(input._array, len(windows)), pooled_shape(input, windows)
    if isinstance(windows[0], Window):
        runs = planned_maxima(planes, windows, shape)
    else:
        run = planned_ranges(planes, windows, shape)
        runs = run and ((lambda a: run(a)[0]), run)
    if runs is None:
        return None
    values, with_places = runs

    return Plan(with_places) if indices else Plan(values, window_max, lambda _, input: (input, windows, True), with_places)


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
    if return_indices:
        return max_pool2d_with_indices.function(input, kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, False)


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
    if return_indices:
        return max_pool3d_with_indices.function(input, kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, False)


for _n, _op in enumerate((max_pool1d, max_pool2d, max_pool3d), 1):
    _op.plan(partial(_planned_max, _op.name, _n), by="shape")


_SAMPLES = {1: "d(2, 3, 7), 3", 2: "d(2, 3, 5, 5), 2", 3: "d(1, 2, 4, 4, 3), 2"}


def _with_indices(n: int) -> Any:
    def pool(input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, dilation=1, ceil_mode=False):
        return _max_pool(f"max_pool{n}d", n, input, kernel_size, stride, padding, dilation, ceil_mode, True)

    pool.__name__ = f"max_pool{n}d_with_indices"
    pool.__doc__ = f"`max_pool{n}d` as ``(values, indices)``. Arguments as for `nn.functional.max_pool{n}d`."
    if n == 1:
        made = composite(surface=FUNCTION, aliases=("nn.functional.max_pool1d_with_indices",), samples=_SAMPLES[n])(pool)
    else:
        made = composite(namespace="nn.functional", samples=_SAMPLES[n])(pool)
    made.plan(lambda *args: _planned_max(f"max_pool{n}d", n, *args, indices=True), by="shape")
    return made


max_pool1d_with_indices = _with_indices(1)
max_pool2d_with_indices = _with_indices(2)
max_pool3d_with_indices = _with_indices(3)


def _top_level(n: int) -> Any:
    def pool(input, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding=0, dilation=1, ceil_mode=False):
        return _max_pool(f"max_pool{n}d", n, input, kernel_size, stride, padding, dilation, ceil_mode, False)

    pool.__name__ = f"max_pool{n}d"
    pool.__doc__ = f"The maximum over windows, without indices. Arguments as for `nn.functional.max_pool{n}d`."
    made = composite(surface=FUNCTION, autocast=("float32", None) if n == 3 else None, samples=_SAMPLES[n])(pool)
    made.plan(lambda *args: _planned_max(f"max_pool{n}d", n, *args, indices=False), by="shape")
    return made


for _n in (1, 2, 3):
    _top_level(_n)
