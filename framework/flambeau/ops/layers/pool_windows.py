"""What is pooled over: windows of the last dimensions, planes of them, and the shape that is left."""

from __future__ import annotations

from math import prod
from typing import Any

from ... import dtypes
from ...tensor import Tensor
from .._spec import AskedFor, describe, need_bools
from .conv import as_ints

Ints = tuple[int, ...]
Windows = Any  # a tuple of flambeau_kernels.cpu.pool.Window, one for each pooled dimension


def titles_of(name: str) -> tuple[str, ...]:
    """The names of nodes by the number of pooled dimensions, which stands in `name`."""
    return tuple([name.format(n) for n in range(4)])


def asked_for(place: int) -> Any:
    """What nodes show of the windows that they have saved: kernel_size, stride, padding, dilation, ceil_mode."""
    return lambda saved: saved["windows"].asked[place] if saved["windows"].__class__ is AskedFor else None


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
    """Raise unless `input` has `n` dimensions to pool, channels, and perhaps a batch, and a dtype with order or means."""
    check_rank(op, input, n)
    needed = input.shape[-n - 1 :] if (what == "order" or input.ndim == n + 2) and not channels_free else input.shape[-n:]
    if 0 in needed:
        raise RuntimeError(
            f"{op}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for input, "
            f"but got:{list(input.shape)}; it must have non-zero size in all but the batch dimension\n"
            f"{describe(input=input)}"
        )
    refused = input.is_complex() or input.dtype is dtypes.bool or input.is_floating_point() and input.dtype not in dtypes.COMPUTED
    if what == "mean":
        refused = refused or (input.dtype.category < dtypes.FLOATING and input.dtype is not dtypes.int64)
    elif what == "floating":
        refused = refused or input.dtype.category < dtypes.FLOATING
    if refused:
        raise NotImplementedError(
            f'"{op}" not implemented for {input.dtype}; convert the input with .to(dtype) first'
        )


def windows_of(
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


def pooled_shape(input: Any, windows: Windows) -> tuple[int, ...]:
    return (*input.shape[: input.ndim - len(windows)], *(w.count for w in windows))
