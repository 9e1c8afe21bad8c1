"""The way back from maxima of windows to where they were, with zeros elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.cpu.indexing.scatter import has_negative

from ... import _state, dtypes
from ...tensor import Tensor
from .._spec import CHANNELS_OF_IMAGES, OPS, composite, describe, primitive
from .._spec.pieces import batches_of
from .._spec.plans import Plan
from .conv import as_ints
from .pool_maxima import take_plane
from .pool_windows import Ints, titles_of


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
    from flambeau_kernels.cpu.pool import unpool as kernels

    n = len(sizes)
    if kernels.takes(x, at, n, prod(sizes)):
        return kernels.put(x, at, sizes)
    planes, count = prod(x.shape[: x.ndim - n]), prod(x.shape[x.ndim - n :])
    made = kernel(x.reshape(planes, count), at.reshape(planes, count), prod(sizes), False)
    return made.reshape(*x.shape[: x.ndim - n], *sizes)


@unpool.shape
def _unpool_shape(input, indices, sizes):
    return (*input.shape[: input.ndim - len(sizes)], *sizes), input.dtype


@unpool.vjp(indices=None)
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
    sizes = _unpooled(op, n, input, indices, kernel_size, stride, padding, output_size)
    if not indices._lacks_values and indices.is_cpu and indices.numel():
        low, high = (int(x) for x in OPS["aminmax"].function(indices))
        if low < 0 or high >= prod(sizes):
            raise RuntimeError(
                f"{op}: Found an invalid max index: {low if low < 0 else high} (output volumes are of size "
                f"{sizes})"
            )
    return unpool(input, indices, sizes)


def _unpooled(op: str, n: int, input: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any) -> Ints:
    """The last dimensions of the result. Raises: RuntimeError, ValueError for arguments that do not go together."""
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
    return sizes


def _plan(op: str, n: int, input: Any, indices: Any, *settings: Any) -> Plan | None:
    """Elements in host memory, whose places are checked where they are used."""
    from flambeau_kernels.cpu.pool import unpool as kernels

    sizes, shape = _unpooled(op, n, input, indices, *settings), input._array.shape
    count, size, made_shape = prod(shape[-n:]), prod(sizes), (*shape[:-n], *sizes)
    planes = prod(shape[:-n])
    if not planes * count or not size:
        return None
    arguments = lambda _, x, at: (x, at, sizes)  # noqa: E731
    in_rows = input._array.flags.c_contiguous and indices._array.flags.c_contiguous
    if not (in_rows or n == 2 and kernels.are_last(input._array, indices._array, n)):
        return None                                   # the order of memory of the result is another
    if kernels.takes(input._array, indices._array, n, size):
        put = kernels.planned(input._array, indices._array, sizes)

        def run_checked(x: Any, at: Any) -> Any:
            made, are_inside = (None, False) if _state.DETERMINISTIC else put(x, at)
            return made if are_inside else None

        return Plan(run_checked, unpool, arguments)
    if not in_rows:
        return None
    plane = np.arange(planes)[:, None]

    def run(x: Any, at: Any) -> Any:
        if _state.DETERMINISTIC or has_negative(at):
            return None
        made = np.zeros((planes, size), x.dtype)
        try:
            made[plane, at.reshape(planes, count)] = x.reshape(planes, count)
        except IndexError:                            # outside of its plane
            return None
        return made.reshape(made_shape)

    return Plan(run, unpool, arguments)


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
max_unpool1d.plan(partial(_plan, "max_unpool1d", 1), by="strides", tensors=("input", "indices"))


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
max_unpool2d.plan(partial(_plan, "max_unpool2d", 2), by="strides", tensors=("input", "indices"))


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
max_unpool3d.plan(partial(_plan, "max_unpool3d", 3), by="strides", tensors=("input", "indices"))
