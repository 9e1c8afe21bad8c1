"""Pooling into a wanted size: adaptive windows, and fractional ones whose places are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.cpu.shapes.order import is_last

from ... import dtypes
from ...tensor import Tensor
from .._batching import folded
from .._spec import CHANNELS_OF_IMAGES, FUNCTION, OUT, check_room, composite, describe, primitive
from .._spec.pieces import batches_of
from .._spec.plans import Plan
from .conv import as_ints, as_sizes
from .norm import depends_on
from .pool_maxima import largest_in, plan_of_maxima, put_plane
from .pool_means import mean_over, spread_over, wide
from .pool_windows import Ints, as_planes, check_input, restored, titles_of

# -- adaptive ------------------------------------------------------------------------------------------------


def _sizes(op: str, input: Any, output_size: Any, n: int, what: str, channels_free: bool = False) -> Ints:
    if isinstance(output_size, (tuple, list)):
        if isinstance(input, Tensor) and n > 1 and input.ndim <= len(output_size):
            raise ValueError(
                f"{op}: Input dimension should be at least {len(output_size) + 1}, one more than "
                f"output_size has; it is {input.ndim}"
            )
        check_input(op, input, n, what, channels_free)
        if len(output_size) not in (1, n):
            raise RuntimeError(f"{op}: output_size must be {n} ints, or one, got {tuple(output_size)}")
        given = tuple(output_size) if len(output_size) == n else (output_size[0],) * n
    else:
        check_input(op, input, n, what, channels_free)
        given = (output_size,) * n
    sizes = as_sizes(
        op,
        "output_size",
        tuple(have if m is None else m for m, have in zip(given, input.shape[-n:], strict=True)),
        n,
    )
    if min(sizes) < 0:
        raise RuntimeError(
            f"{op}: elements of output_size must be greater than or equal to 0 but received {sizes}"
        )
    check_room(op, (*(max(m, 1) for m in input.shape[: input.ndim - n]), *sizes), input._array.itemsize, input._lacks_values)
    return sizes


@primitive(
    surface=0, linear_in=("input",), memory=CHANNELS_OF_IMAGES, samples="of nn.functional.adaptive_avg_pool2d",
    public_name="adaptive_avg_pool",
    batch_rule=folded,
    cuda="windows.adaptive_mean",
)
def adaptive_mean(input, sizes):
    """The mean over `sizes` ranges along each of the last dimensions."""


adaptive_mean.shown_by("titled[TITLES[len(sizes)]]", TITLES=titles_of("AdaptiveAvgPool{}DBackward0"))
adaptive_mean.shown_as(hides="sizes input_shape")


adaptive_mean.in_pieces(lambda asked: batches_of(len(asked["sizes"]), 1, 1))


def _ranges(extents: Ints, sizes: Ints) -> Any:
    from flambeau_kernels.cpu.pool import Ranges

    return tuple(Ranges(extent, size) for extent, size in zip(extents, sizes, strict=True))


@adaptive_mean.kernel
def _adaptive_mean(x, sizes):
    from flambeau_kernels.cpu import pool as kernels
    from flambeau_kernels.cpu.pool import channels_last

    n = len(sizes)
    if 0 in sizes:                                    # nothing to find, however large the others are
        return np.zeros((*x.shape[: x.ndim - n], *sizes), x.dtype)
    if prod(sizes) == 1 and x.size and x.ndim == n + 2 and is_last(x):
        return restored(kernels.image_means(x).reshape(-1, *sizes), x, n, n < 3)
    if n == 2 and prod(sizes) > 1:
        ranges = _ranges(x.shape[x.ndim - n :], sizes)
        if channels_last.pays(x, ranges):
            return channels_last.means(x, ranges, False, None)
    planes = as_planes(x, n)
    if prod(sizes) == 1:
        made = kernels.plane_means(planes.reshape(len(planes), prod(planes.shape[1:])))
        return restored(made.reshape(len(planes), *sizes), x, n, n < 3)  # as PyTorch
    windows = kernels.even_windows(planes.shape[1:], sizes)
    if windows is not None:
        return mean_over(x, windows, False, None)
    return restored(kernels.adaptive_mean(planes, sizes), x, n, n < 3)  # as PyTorch


@adaptive_mean.shape
def _adaptive_mean_shape(input, sizes):
    return (*input.shape[: input.ndim - len(sizes)], *sizes), input.dtype


@adaptive_mean.vjp
def _adaptive_mean_vjp(grad, input, sizes):
    return depends_on(adaptive_spread(grad, tuple(input.shape[input.ndim - len(sizes) :])), input)


@adaptive_mean.vjp_on_arrays
def _adaptive_mean_vjp_on_arrays(grad, input_shape, sizes):
    return _adaptive_spread(grad, input_shape[len(input_shape) - len(sizes) :])


@primitive(
    surface=0, linear_in=("grad",), memory=CHANNELS_OF_IMAGES, samples="of nn.functional.adaptive_avg_pool2d", batch_rule=folded,
    cuda="windows.adaptive_spread",
)
def adaptive_spread(grad, sizes):
    """The transpose of `adaptive_mean` of an input with last dimensions `sizes`."""


adaptive_spread.in_pieces(lambda asked: batches_of(len(asked["sizes"]), 1, 1))


@adaptive_spread.kernel
def _adaptive_spread(grad, sizes):
    from flambeau_kernels.cpu.pool import adaptive_spread as kernel
    from flambeau_kernels.cpu.pool import channels_last, even_windows

    n = len(sizes)
    if not grad.size:
        return np.zeros((*grad.shape[: grad.ndim - n], *sizes), grad.dtype)
    counts = grad.shape[grad.ndim - n :]
    if n == 2 and prod(counts) > 1:
        ranges = _ranges(sizes, counts)
        if channels_last.pays(grad, ranges):
            return channels_last.spread(grad, ranges, tuple(sizes), False, None)
    windows = even_windows(tuple(sizes), counts)
    if windows is not None and prod(counts) > 1:
        return spread_over(grad, windows, False, None)
    planes = wide(as_planes(grad, n))
    if planes[0:1].size == 1:
        made = np.repeat(planes.reshape(-1) / planes.dtype.type(prod(sizes)), prod(sizes)).reshape(
            len(planes), *sizes
        )
    else:
        made = kernel(planes, sizes)
    return restored(made.astype(grad.dtype, copy=False), grad, n)


@adaptive_spread.shape
def _adaptive_spread_shape(grad, sizes):
    return (*grad.shape[: grad.ndim - len(sizes)], *sizes), grad.dtype


@adaptive_spread.vjp
def _adaptive_spread_vjp(grad, grad_shape, sizes):
    return adaptive_mean(grad, tuple(grad_shape[len(grad_shape) - len(sizes) :]))


def _planned_adaptive_mean(op: str, n: int, input: Any, output_size: Any) -> Plan | None:
    """The plan of the op."""
    from flambeau_kernels.cpu import pool as kernels

    if not input.numel():                             # what may lack elements, the op itself says
        return None
    sizes = _sizes(op, input, output_size, n, "floating")
    if 0 in sizes:
        return None
    if not input._array.flags.c_contiguous:
        return _planned_image_means(input._array, n, sizes)
    planes, shape = as_planes(input._array, n), (*input.shape[: input.ndim - n], *sizes)
    windows = None if prod(sizes) == 1 else kernels.even_windows(planes.shape[1:], sizes)
    if windows is None:
        run = kernels.planned_adaptive_mean(planes, sizes, shape)
    else:
        run = kernels.planned_means(planes, windows, False, None, shape)
    if run is None:
        return None
    return Plan(run, adaptive_mean, lambda _, x: (x, sizes))


def _planned_image_means(a: Any, n: int, sizes: Ints) -> Plan | None:
    """The plan of the mean of all of each channel, where channels lie last in memory; None for anything else."""
    from flambeau_kernels.cpu import pool as kernels

    if prod(sizes) > 1 or a.ndim != n + 2 or n == 3 or not is_last(a):
        return None
    images, channels = a.shape[:2]
    last = (images, *sizes, channels)

    def run(a: Any) -> Any:
        return np.moveaxis(kernels.image_means(a).reshape(last), -1, 1)

    return Plan(run, adaptive_mean, lambda _, x: (x, sizes))


_LAST = {1: (-1,), 2: (-2, -1), 3: (-3, -2, -1)}


def _is_mean_of_nothing(input: Any, output_size: Any, n: int) -> bool:
    """Whether there is one window over all of an input without elements; PyTorch takes its mean then, of any sizes."""
    sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,)
    if not isinstance(input, Tensor) or input._array.size or input.ndim not in (n + 1, n + 2) or len(sizes) not in (1, n):
        return False
    return all(m.__class__ is int and m == 1 for m in sizes)


@composite(
    surface=FUNCTION | OUT, aliases=("nn.functional.adaptive_avg_pool1d",), operator="adaptive_avg_pool1d",
    samples="x(2, 3, 7), 3",
)
def adaptive_avg_pool1d(input, output_size: int | Sequence[int]):
    """Means over `output_size` ranges, as even as possible: ``(N, C, L) -> (N, C, output_size)``.

    Range i goes from ``floor(i * L / output_size)`` to ``ceil((i + 1) * L / output_size)``, so neighbours may share
    elements. N may be left out. Raises: RuntimeError for a negative size or another rank.

    >>> F.adaptive_avg_pool1d(fb.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]]), 2)
    tensor([[2., 4.]])
    """
    if _is_mean_of_nothing(input, output_size, 1):
        return input.mean(dim=_LAST[1], keepdim=True)
    return adaptive_mean(input, _sizes("adaptive_avg_pool1d", input, output_size, 1, "floating", True))


@composite(
    namespace="nn.functional", operator="adaptive_avg_pool2d",
    samples="x(2, 3, 5, 4), (2, 3); x(3, 5, 4), (None, 2)", read_in_python=("output_size",),
)
def adaptive_avg_pool2d(input, output_size: int | Sequence[int]):
    """Means over a grid of `output_size` ranges: ``(N, C, H, W) -> (N, C, *output_size)``, or without N.

    Args:
        output_size: an int or a pair; None keeps the size of its dimension. Ranges as for `adaptive_avg_pool1d`.
    """
    if _is_mean_of_nothing(input, output_size, 2):
        return input.mean(dim=_LAST[2], keepdim=True)
    return adaptive_mean(input, _sizes("adaptive_avg_pool2d", input, output_size, 2, "floating", True))


@composite(operator="_adaptive_avg_pool2d", surface=0, samples="x(2, 3, 5, 4), (2, 3)")
def _adaptive_avg_pool2d(input, output_size: Sequence[int]):
    """`adaptive_avg_pool2d`, as programs of core operators have it."""
    return adaptive_mean(input, _sizes("adaptive_avg_pool2d", input, output_size, 2, "floating", True))


@composite(
    namespace="nn.functional", operator="adaptive_avg_pool3d", autocast=("float32", None), samples="x(1, 2, 4, 3, 5), 2",
    read_in_python=("output_size",),
)
def adaptive_avg_pool3d(input, output_size: int | Sequence[int]):
    """Means over a grid of `output_size` ranges: ``(N, C, D, H, W) -> (N, C, *output_size)``, or without N.

    Args:
        output_size: an int or a triple; None keeps the size of its dimension. Ranges as for `adaptive_avg_pool1d`.
    """
    if _is_mean_of_nothing(input, output_size, 3):
        return input.mean(dim=_LAST[3], keepdim=True)
    return adaptive_mean(input, _sizes("adaptive_avg_pool3d", input, output_size, 3, "floating"))


@composite(operator="_adaptive_avg_pool3d", surface=0, samples="x(2, 3, 5, 4, 3), (2, 3, 2)")
def _adaptive_avg_pool3d(input, output_size: Sequence[int]):
    """`adaptive_avg_pool3d`, as programs of core operators have it."""
    return adaptive_mean(input, _sizes("adaptive_avg_pool3d", input, output_size, 3, "floating", True))


def planned_area(input: Tensor, sizes: Ints) -> Plan | None:
    """The plan of means over `sizes` ranges along all dimensions but the first two."""
    return _planned_adaptive_mean("adaptive_avg_pool", len(sizes), input, sizes)


for _n, _op in enumerate((adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d), 1):
    _op.plan(partial(_planned_adaptive_mean, _op.name, _n), by="strides")


def _windows_of_ranges(input: Tensor, sizes: Ints) -> Any:
    """The windows that `sizes` ranges along the last dimensions are, regular ones where the ranges are equally long."""
    from flambeau_kernels.cpu.pool import even_windows

    extents = tuple(input.shape[-len(sizes) :])
    return even_windows(extents, sizes) or _ranges(extents, sizes)


def _adaptive_max(op: str, n: int, input: Any, output_size: Any, return_indices: bool) -> Any:
    sizes = _sizes(op, input, output_size, n, "floating")
    if 0 in sizes and any(sizes):                     # nothing to find, however large the others are
        made = _adaptive_max(op, n, input, (0,) * n, return_indices)
        shape = (*input.shape[: input.ndim - n], *sizes)
        return tuple(x.reshape(shape) for x in made) if return_indices else made.reshape(shape)
    if n == 3:
        input = input.contiguous()                    # as the result of volumes is, unlike that of `max_pool3d`
    return largest_in(input, _windows_of_ranges(input, sizes), return_indices)


@composite(namespace="nn.functional", samples="d(2, 3, 7), 3; d(2, 3, 7), 3, True")
def adaptive_max_pool1d(input, output_size: int | Sequence[int], return_indices=False):
    """Maxima over `output_size` ranges: ``(N, C, L) -> (N, C, output_size)``, or without N.

    Ranges as for `adaptive_avg_pool1d`. With `return_indices`, ``(values, indices)`` as for `max_pool1d`.
    """
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


# The operators of aten return indices always: `_aten.py` has them.
@composite(namespace="nn.functional", operator="", samples="d(2, 3, 5, 4), (2, 3)", read_in_python=("output_size",))
def adaptive_max_pool2d(input, output_size: int | Sequence[int], return_indices=False):
    """Maxima over a grid of `output_size` ranges: ``(N, C, H, W) -> (N, C, *output_size)``, or without N.

    Args:
        output_size: as for `adaptive_avg_pool2d`.
        return_indices: return ``(values, indices)``, indices counting through the plane.
    """
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


@composite(
    namespace="nn.functional", operator="", autocast=("float32", None), samples="d(1, 2, 4, 3, 5), 2", read_in_python=("output_size",),
)
def adaptive_max_pool3d(input, output_size: int | Sequence[int], return_indices=False):
    """Maxima over a grid of `output_size` ranges: ``(N, C, D, H, W) -> (N, C, *output_size)``, or without N.

    Args:
        output_size: as for `adaptive_avg_pool3d`.
        return_indices: return ``(values, indices)``, indices counting through the volume.
    """
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


def _planned_adaptive_max(op: str, n: int, input: Any, output_size: Any, return_indices: bool) -> Plan | None:
    """The plan of `_adaptive_max`."""
    if n == 3 and not input.is_contiguous():
        return None
    sizes = _sizes(op, input, output_size, n, "floating")
    return plan_of_maxima(input, _windows_of_ranges(input, sizes), return_indices) if all(sizes) else None


def _with_sizes(name: str, run: Any, input: Any, output_size: Any) -> Any:
    """The operator, of a size for each dimension."""
    n = int(name[-2])
    sizes = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size] * n
    return run(name, input, [input.shape[d - n] if size is None else size for d, size in enumerate(sizes)])


def _with_indices(name: str, run: Any, input: Any, output_size: Any, return_indices: bool) -> Any:
    """The operator, which returns indices always, of a size for each dimension."""
    made = _with_sizes(name, run, input, output_size)
    return tuple(made) if return_indices else made[0]


for _op in (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d):
    _op.exported(partial(_with_indices, _op.name))
for _op in (adaptive_avg_pool2d, adaptive_avg_pool3d):
    _op.exported(partial(_with_sizes, _op.name))

for _n, _op in enumerate((adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d), 1):
    _op.plan(partial(_planned_adaptive_max, _op.name, _n), by="shape")


@composite(surface=FUNCTION, samples="d(2, 3, 7), 3")
def adaptive_max_pool1d__(input, output_size: int | Sequence[int]):
    """`nn.functional.adaptive_max_pool1d` and the indices of the maxima."""
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, True)


# -- fractional ----------------------------------------------------------------------------------------------


def _starts(op: str, samples: Any, size: int, count: int, kernel: int) -> Any:
    """Where the windows along one axis begin, ``(planes, count)``: steps of one of two lengths in pseudorandom order.

    Args:
        samples: a number for each plane, in [0, 1).
    Source: Graham 2014, "Fractional Max-Pooling", section 2.
    """
    starts = np.full((len(samples), count), size - kernel)
    if count > 1:
        alpha = (size - kernel) / (count - 1)
        first = samples[:, None]
        starts[:, :-1] = np.trunc((np.arange(count - 1) + first) * alpha) - np.trunc(first * alpha)
    # PyTorch takes numbers outside [0, 1), as long as every window lies inside, and counts in int32.
    outside = ((starts < 0) | (starts > size - kernel)).any(1) | (np.abs(samples) * size >= 1 << 31)
    if outside.any():
        u = samples[outside.argmax()]
        raise RuntimeError(f"{op}: _random_samples must lie in [0, 1): {u} puts a window outside the input")
    return starts


@primitive(surface=0, tensors=("input", "samples"), samples="of nn.functional.fractional_max_pool2d", public_name="max_pool")
def fractional_maxima(input, samples, kernel, sizes):
    """The maxima over `sizes` windows of the sizes `kernel`, and their indices; `samples` ``(N, C, n)`` say where windows begin."""


fractional_maxima.in_pieces(lambda asked: [])
fractional_maxima.shown_by("titled[TITLES[len(kernel)]]", TITLES=titles_of("FractionalMaxPool{}DBackward0"))
fractional_maxima.shown_as(hides="kernel", result1="out1")


@fractional_maxima.kernel
def _fractional_maxima(x, samples, kernel, sizes):
    from flambeau_kernels.cpu.pool import DrawnRanges, max_of_ranges

    n = len(kernel)
    op = f"fractional_max_pool{n}d"
    samples = samples.astype(np.float64)
    if not np.isfinite(samples).all():
        raise RuntimeError(f"{op}: _random_samples must be finite, better in [0, 1), got {samples.min()} to {samples.max()}")
    images, channels, *extents = (1, *x.shape)[-n - 2 :]
    # Those of images are given from the last dimension backwards, those of volumes are not.
    given = samples[:images, :channels, :: -1 if n == 2 else 1].reshape(-1, n)
    drawn = [
        DrawnRanges(_starts(op, given[:, d], size, m, k), k) for d, (size, m, k) in enumerate(zip(extents, sizes, kernel, strict=True))
    ]
    values, at = max_of_ranges(as_planes(x, n), drawn)
    return restored(values, x, n), restored(at, x, n)


@fractional_maxima.exported
def _as_fractional_max_pool(run, input, samples, kernel, sizes):
    return run(f"fractional_max_pool{len(sizes)}d", input, list(kernel), list(sizes), samples)


@fractional_maxima.shape
def _fractional_maxima_shape(input, samples, kernel, sizes):
    shape = (*input.shape[: input.ndim - len(sizes)], *sizes)
    return [(shape, input.dtype), (shape, dtypes.int64)]


@fractional_maxima.vjp(samples=None)
def _fractional_maxima_vjp(grad, input, out1, kernel):
    return put_plane(grad[0], out1, input, len(kernel)), None


def _fractional_max(op: str, n: int, input: Any, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any) -> Any:
    """Maxima and their indices."""
    if output_size is None and output_ratio is None:
        raise ValueError(f"{op} requires specifying either an output_size or an output_ratio")
    check_input(op, input, n, "order")
    extents = tuple(input.shape[-n:])
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
        if len(ratios) != n:
            raise IndexError(f"{op}: output_ratio must be a number or {n} of them, got {output_ratio}")
        output_size = tuple(int(size * r) for size, r in zip(extents, ratios, strict=True))
    kernel, sizes = as_ints(op, "kernel_size", kernel_size, n), as_ints(op, "output_size", output_size, n)
    for size, k, m in zip(extents, kernel, sizes, strict=True):
        if m + k - 1 > size or k < 1 or m < 1:
            raise RuntimeError(
                f"{op}: {m} windows of {k} do not fit into {size} elements\n{describe(input=input)}"
            )
    wanted = (*(1, *input.shape)[-n - 2 : -n], n)
    if samples is None:
        from ..sampling.random import rand

        samples = rand(*wanted, dtype=input.dtype if input.dtype.is_floating_point else None, device=input.device)
    if samples.ndim != 3 or samples.shape[0] < wanted[0] or samples.shape[1] < wanted[1] or samples.shape[2] != n:
        raise RuntimeError(f"{op}: Expect _random_samples of shape {wanted}, got {tuple(samples.shape)}")
    return fractional_maxima(input.contiguous(), samples, kernel, sizes)


@composite(
    namespace="nn.functional", autocast=("float32", None), samples="d(1, 2, 5, 5), 2, 3, _random_samples=k(1, 2, 2) / 4", random=True,
    read_in_python=("output_size", "output_ratio"),
)
def fractional_max_pool2d(
    input, kernel_size: int | Sequence[int], output_size: int | Sequence[int] | None = None, output_ratio=None,
    return_indices=False, _random_samples=None
):
    """Maxima over windows whose starts are drawn at random, so that sizes need not shrink by a whole number.

    ``(N, C, H, W) -> (N, C, *output_size)``, or without N. The default generator draws the starts.

    Args:
        kernel_size: an int or a pair.
        output_size: how many windows, an int or a pair; or
        output_ratio: their number as a fraction of H and W, between 0 and 1.
        return_indices: return ``(values, indices)``, as for `max_pool2d`.
    Raises: ValueError without either of the two.
    Source: Graham 2014, "Fractional Max-Pooling".
    """
    made = _fractional_max("fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, _random_samples)
    return made if return_indices else made[0]


@composite(
    namespace="nn.functional", autocast=("float32", None), samples="d(1, 1, 5, 5, 5), 2, 3, _random_samples=k(1, 1, 3) / 4", random=True,
    read_in_python=("output_size", "output_ratio"),
)
def fractional_max_pool3d(
    input, kernel_size: int | Sequence[int], output_size: int | Sequence[int] | None = None, output_ratio=None,
    return_indices=False, _random_samples=None
):
    """Maxima over windows with random starts: ``(N, C, D, H, W) -> (N, C, *output_size)``.

    N may be left out. Arguments as for `fractional_max_pool2d`, ints or triples.
    """
    made = _fractional_max("fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, _random_samples)
    return made if return_indices else made[0]


def _fractional_with_indices(n: int) -> Any:
    def pool(
        input, kernel_size: int | Sequence[int], output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None, return_indices=False, _random_samples=None
    ):
        return _fractional_max(f"fractional_max_pool{n}d", n, input, kernel_size, output_size, output_ratio, _random_samples)

    pool.__name__ = f"fractional_max_pool{n}d_with_indices"
    pool.__doc__ = f"`fractional_max_pool{n}d` as ``(values, indices)``. Arguments as for `fractional_max_pool{n}d`."
    samples = f"d(1, 1{', 5' * n}), 2, 3, _random_samples=k(1, 1, {n}) / 4"
    return composite(namespace="nn.functional", samples=samples, random=True)(pool)


fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = (
    _fractional_with_indices(n) for n in (2, 3)
)
