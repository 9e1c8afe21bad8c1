"""Sampling at a grid: images looked up at points between their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..._arrays import MetaArray
from ..._symbolic import as_size
from ..._warn import warn
from ...tensor import Tensor
from .. import _dispatch
from .._spec import FUNCTION, check_room, composite, describe, gradients_of, primitive
from .._spec.plans import Plan
from ..creation.shared_memory import from_numpy

_CORNERS = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True "
    "if the old behavior is desired. See the documentation of grid_sample for details."
)


@composite(
    namespace="nn.functional",
    samples="x(1, 2, 3), (1, 2, 3, 4), align_corners=False; x(1, 3, 4), (1, 2, 2, 3, 2), align_corners=True",
)
def affine_grid(theta, size: Sequence[int], align_corners: bool | None = None):
    """The points that affine maps send the elements of an image to, for `grid_sample`: ``(N, 2, 3) -> (N, H, W, 2)``.

    Args:
        theta: ``(N, 2, 3)``; or ``(N, 3, 4)`` for volumes, which gives ``(N, D, H, W, 3)``.
        size: of the images, (N, C, H, W) or (N, C, D, H, W).
        align_corners: whether -1 and 1 are the centres of the outermost elements, rather than the outer edges.
    """
    if align_corners is None:
        warn(_CORNERS)
    return affine_grid_generator.function(theta, size, bool(align_corners))


@primitive(surface=0, samples="x(1, 2, 3), (3, 4), False", public_name="affine_grid_generator")
def base_points(like, extents, align_corners):
    """The positions of an image's elements, x first, then a one: ``(positions, n + 1)``, of the dtype and device of `like`."""


base_points.not_differentiable = "its result is places"


@base_points.kernel
def _base_points(like, extents, align_corners):
    from flambeau_kernels.cpu.images.base_grid import base_grid

    return base_grid(tuple(extents), align_corners, like.dtype).copy()


@base_points.shape
def _base_points_shape(like, extents, align_corners):
    return (prod(extents), len(extents) + 1), like.dtype


@composite(surface=FUNCTION, reads_parts=True, samples="x(1, 2, 3), (1, 2, 3, 4), False")
def affine_grid_generator(theta, size: Sequence[int], align_corners: bool):
    """`nn.functional.affine_grid` with `theta`, `size` and `align_corners` all given."""
    if not theta.is_floating_point():
        raise ValueError(f"affine_grid: Expected theta to have floating point type, but got {theta.dtype}")
    sizes = tuple(as_size(n) for n in size)
    n = len(sizes) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got "
            f"size {sizes}"
        )
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (n, n + 1):
        raise ValueError(
            f"affine_grid: Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size "
            f"{sizes}. Got {tuple(theta.shape)}."
        )
    if min(sizes) <= 0:
        raise ValueError(f"affine_grid: Expected non-zero, positive output size. Got {sizes}")
    if theta.shape[0] != sizes[0]:
        raise RuntimeError(
            f"affine_grid: theta holds {theta.shape[0]} maps, size asks for a batch of {sizes[0]}"
        )
    is_recorded = _dispatch.stands_for_others()       # where other devices have the points as a constant of the graph
    check_room("affine_grid", (sizes[0], *sizes[2:], n + 1), theta._array.itemsize, not is_recorded and theta._lacks_values)
    if is_recorded and (theta.is_cpu or theta.is_meta):  # a graph makes them anew, for the sizes that it gets
        points = base_points(theta.detach().new_empty(()), sizes[2:], bool(align_corners))
    elif type(theta._array) is MetaArray and not is_recorded:
        points = theta.detach().new_empty((prod(sizes[2:]), n + 1))
    else:
        from flambeau_kernels.cpu.images.base_grid import base_grid

        kind = theta.dtype.numpy if theta.is_cpu else np.dtype(np.float32)
        points = from_numpy(base_grid(sizes[2:], bool(align_corners), kind))
    made = points.to(theta.device, theta.dtype).expand(sizes[0], *points.shape) @ theta.transpose(1, 2)
    return made.view(sizes[0], *sizes[2:], n)


_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


@composite(
    namespace="nn.functional", autocast=("float32", None),
    samples=(
        "x(1, 2, 4, 3), x(1, 2, 3, 2, low=-0.9, high=0.9), align_corners=False; "
        "x(1, 2, 4, 3), x(1, 2, 3, 2), 'bicubic', 'border', True; "
        "x(1, 1, 3, 4, 3), x(1, 2, 2, 1, 3, low=-0.9, high=0.9), align_corners=True"
    ),
)
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners: bool | None = None):
    """Images looked up at given points: ``(N, C, H, W), (N, H', W', 2) -> (N, C, H', W')``; 3-d likewise.

    Args:
        grid: points, the column first, -1 and 1 being the edges of the image.
        mode: 'bilinear' (also for 3-d input), 'nearest' or 'bicubic' (2-d only).
        padding_mode: outside are 'zeros', the 'border' element, or the mirror image ('reflection').
        align_corners: whether -1 and 1 are the centres of the outermost elements, rather than the outer edges.
    Raises: ValueError for unknown modes; RuntimeError for operands that do not fit.

    >>> image = fb.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> F.grid_sample(image, fb.zeros(1, 1, 1, 2), align_corners=False)
    tensor([[[[2.5000]]]])
    """
    if mode not in _MODES:
        raise ValueError(
            f"grid_sample: expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ValueError(
            f"grid_sample: expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    if align_corners is None:
        warn(_CORNERS)
        return grid_sample(input, grid, mode, padding_mode, False)  # which has a plan, for row-major operands
    _check_grid("grid_sample", input, grid, mode)
    if not (input.is_contiguous() and grid.is_contiguous()):
        return grid_sample(input.contiguous(), grid.contiguous(), mode, padding_mode, align_corners)
    return _grid_sample("grid_sample", input, grid, mode, padding_mode, bool(align_corners))


grid_sample.in_pieces("nc*,n*->nc*")


@grid_sample.exported
def _grid_sample_by_numbers(run, input, grid, mode, padding_mode, align_corners):
    if mode not in _MODES or padding_mode not in _PADDINGS:
        return NotImplemented
    if align_corners is None:
        warn(_CORNERS)
    return run("grid_sampler", input, grid, _MODES[mode], _PADDINGS[padding_mode], bool(align_corners))


@grid_sample.plan(by="strides", tensors=("input", "grid"))
def _planned_grid_sample(input, grid, mode, padding_mode, align_corners):
    """Images of one float dtype, by compiled loops whose results are those of the fallback to the last bit."""
    if align_corners is None:
        return None
    _check_grid("grid_sample", input, grid, mode)
    a, points = input._array, grid._array
    if a.ndim not in (4, 5) or not a.size or not points.size or prod(a.shape[2:]) >= 1 << 31:
        return None
    if mode not in _MODES or padding_mode not in _PADDINGS:
        return None
    from flambeau_kernels.cpu.images import grid_lookups

    if not grid_lookups.has_kernel(a.dtype, _MODES[mode]) or not points.flags.c_contiguous:
        return None
    last = grid_lookups.are_channels_last(a)
    if not a.flags.c_contiguous and not (last and grid_lookups.takes_channels_last(a.dtype, _MODES[mode], prod(a.shape[1:]))):
        return None
    how = _MODES[mode], _PADDINGS[padding_mode], bool(align_corners)
    run = grid_lookups.planned(a.shape, points.shape, a.dtype, *how, last)
    if not grid_lookups.has_gradients(a.dtype):
        return Plan(run)
    return Plan(
        run, looked_up if a.ndim == 4 else looked_up_in_volume, lambda _, x, grid: (x, grid, *how),
        taped=lambda x, grid: (grid_lookups.looked_up(x, grid, *how), None),
    )


@primitive(surface=0, tensors=("input", "grid"), samples="of nn.functional.grid_sample")
def looked_up(input, grid, mode, padding, align):
    """`nn.functional.grid_sample` of images, the modes by number."""


@primitive(surface=0, tensors=("input", "grid"), samples="of nn.functional.grid_sample")
def looked_up_in_volume(input, grid, mode, padding, align):
    """`nn.functional.grid_sample` of volumes, the modes by number."""


looked_up.shown_as("GridSampler2DBackward0")
looked_up_in_volume.shown_as("GridSampler3DBackward0")


looked_up.in_pieces("nc*,n*->nc*")
looked_up_in_volume.in_pieces("nc*,n*->nc*")


@looked_up_in_volume.kernel
@looked_up.kernel
def _looked_up(x, grid, mode, padding, align):
    from flambeau_kernels.cpu.images import grid_lookups

    return grid_lookups.looked_up(np.ascontiguousarray(x), np.ascontiguousarray(grid), mode, padding, align)


@looked_up_in_volume.shape
@looked_up.shape
def _looked_up_shape(input, grid, mode, padding, align):
    return (*input.shape[:2], *grid.shape[1:-1]), input.dtype


@looked_up_in_volume.vjp
@looked_up.vjp
def _looked_up_vjp(grad, input, grid, mode, padding, align):
    """By the composition, which differentiates again."""
    sampled = lambda image, points: _by_number("grid_sample", image, points, mode, padding, align)  # noqa: E731
    return gradients_of(sampled, grad, (input, grid), (True, True))


@looked_up_in_volume.vjp_on_arrays
@looked_up.vjp_on_arrays
def _looked_up_vjp_on_arrays(grad, input, grid, mode, padding, align, needs_input, needs_grid):
    from flambeau_kernels.cpu.images import grid_lookups

    return grid_lookups.gradients(grad, input, grid, mode, padding, align, needs_input, needs_grid)


def _has_no_kernel(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> bool:
    """Whether no kernels look the images up and differentiate at once, so that the tape holds the parts of the lookup."""
    from flambeau_kernels.cpu.images import grid_lookups

    if not isinstance(input._array, np.ndarray) or not grid_lookups.has_gradients(input._array.dtype):
        return True
    modes = _names_of(interpolation_mode, padding_mode)
    return modes is None or _planned_grid_sample(input, grid, *modes, bool(align_corners)) is None


def _by_number(
    op: str, input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    modes = _names_of(interpolation_mode, padding_mode)
    if modes is None:
        raise RuntimeError(
            f"{op}: no interpolation_mode {interpolation_mode} or no padding_mode {padding_mode}; each is "
            f"0, 1 or 2"
        )
    return _grid_sample(op, input, grid, *modes, bool(align_corners))


@composite(surface=FUNCTION, samples="x(1, 2, 4, 3), x(1, 2, 3, 2, low=-0.9, high=0.9), 0, 0, False")
def grid_sampler(input, grid, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """`nn.functional.grid_sample` with modes by number, of images or volumes.

    Args:
        interpolation_mode: 0 'bilinear', 1 'nearest', 2 'bicubic'.
        padding_mode: 0 'zeros', 1 'border', 2 'reflection'.
        grid, align_corners: as for `nn.functional.grid_sample`.
    """
    return _by_number("grid_sampler", input, grid, interpolation_mode, padding_mode, align_corners)


grid_sampler.in_pieces("nc*,n*->nc*")


@composite(surface=FUNCTION, reads_parts=_has_no_kernel, samples="x(1, 2, 4, 3), x(1, 2, 3, 2, low=-0.9, high=0.9), 0, 0, False")
def grid_sampler_2d(input, grid, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """`nn.functional.grid_sample` of images with modes by number; see `grid_sampler`."""
    if input.ndim != 4:
        raise RuntimeError(f"grid_sampler(): expected 4D input and grid with same number of dimensions\n{describe(input=input, grid=grid)}")
    return _by_number("grid_sampler_2d", input, grid, interpolation_mode, padding_mode, align_corners)


grid_sampler_2d.in_pieces("nc*,n*->nc*")


@composite(surface=FUNCTION, reads_parts=_has_no_kernel, samples="x(1, 1, 3, 4, 3), x(1, 2, 2, 1, 3, low=-0.9, high=0.9), 0, 0, True")
def grid_sampler_3d(input, grid, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """`nn.functional.grid_sample` of volumes with modes by number; see `grid_sampler`."""
    if input.ndim != 5:
        raise RuntimeError(f"grid_sampler(): expected 5D input and grid with same number of dimensions\n{describe(input=input, grid=grid)}")
    return _by_number("grid_sampler_3d", input, grid, interpolation_mode, padding_mode, align_corners)


grid_sampler_3d.in_pieces("nc*,n*->nc*")


def _with_modes_by_name(input, grid, interpolation_mode, padding_mode, align_corners):
    modes = _names_of(interpolation_mode, padding_mode)
    return None if modes is None else grid_sample.answer(input, grid, *modes, bool(align_corners))


def _names_of(interpolation_mode: int, padding_mode: int) -> tuple[str, str] | None:
    """What `grid_sample` calls the modes; None for numbers that mean none."""
    mode, padding = _NAMES_OF_MODES.get(interpolation_mode), _NAMES_OF_PADDINGS.get(padding_mode)
    return None if mode is None or padding is None else (mode, padding)


_NAMES_OF_MODES, _NAMES_OF_PADDINGS = ({number: name for name, number in table.items()} for table in (_MODES, _PADDINGS))

grid_sampler.forwards(_with_modes_by_name)
grid_sampler_2d.forwards(lambda input, *how: _with_modes_by_name(input, *how) if input.ndim == 4 else None)
grid_sampler_3d.forwards(lambda input, *how: _with_modes_by_name(input, *how) if input.ndim == 5 else None)


def _check_grid(op: str, input: Tensor, grid: Tensor, mode: str) -> None:
    given = describe(input=input, grid=grid)
    n = input.ndim - 2
    if n not in (2, 3) or grid.ndim != input.ndim:
        raise RuntimeError(
            f"{op}(): expected 4D or 5D input and grid with the same number of dimensions\n{given}"
        )
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(f"{op}(): expected grid and input to have same batch size\n{given}")
    if grid.shape[-1] != n:
        raise RuntimeError(f"{op}(): expected grid to have size {n} in last dimension\n{given}")
    if 0 in input.shape[1:]:
        raise RuntimeError(f"{op}(): expected input to have non-empty spatial dimensions\n{given}")
    if n == 3 and mode == "bicubic":
        raise RuntimeError(f"{op}(): bicubic interpolation only supports 4D input\n{given}")
    if input.dtype is not grid.dtype:
        raise RuntimeError(f"{op}(): expected input and grid to have the same dtype\n{given}")
    if not input.is_floating_point():
        raise NotImplementedError(
            f'"{op}" not implemented for {input.dtype}; convert the operands with .to(dtype) first'
        )


def _grid_sample(op: str, input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    _check_grid(op, input, grid, mode)
    extents = tuple(input.shape[2:])
    n = len(extents)
    points = grid.reshape(grid.shape[0], prod(grid.shape[1:-1]), n)
    # Coordinates in elements, first spatial dimension first; (N, L) each.
    at = [_unnormalized(points.select(2, n - 1 - d), size, align) for d, size in enumerate(extents)]
    if mode != "bicubic":
        at = [_inside(x, size, padding, align) for x, size in zip(at, extents, strict=True)]
    planes = input.reshape(*input.shape[:2], prod(extents))
    taps = _taps(at, mode)
    total = None
    for corner in product(*taps):
        places = [place for place, _ in corner]
        if mode == "bicubic":
            places = [
                _inside(x, size, padding, align).round() for x, size in zip(places, extents, strict=True)
            ]
        value = _look_up(planes, places, extents)
        weight = _product([w for _, w in corner if w is not None])
        term = value if weight is None else value * weight.unsqueeze(1)
        total = term if total is None else total + term
    if mode == "nearest":
        total = stop_gradient(total, grid)
    return total.view(*input.shape[:2], *grid.shape[1:-1])


@primitive(surface=0, tensors=("value", "other"), samples="of nn.functional.grid_sample")
def stop_gradient(value, other):
    """`value`, as a function of `other` whose derivative is zero."""


stop_gradient.in_pieces("...,?->...")


@stop_gradient.kernel
def _stop_gradient(value, other):
    return value


stop_gradient.shape(lambda value, other: (value.shape, value.dtype, value._array.strides))


@stop_gradient.vjp
def _stop_gradient_vjp(grad, other):
    from ..layers.norm import depends_on

    return grad, lambda: depends_on(other.new_zeros(other.shape), other)


def _product(weights: list[Tensor]) -> Tensor | None:
    made = None
    for w in weights:
        made = w if made is None else made * w
    return made


def _unnormalized(x: Tensor, size: int, align: bool) -> Tensor:
    """From -1 .. 1 to elements."""
    return (x + 1) * ((size - 1) / 2) if align else ((x + 1) * size - 1) / 2


def _inside(x: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Coordinates outside moved to where the padding looks; the gradient of what is clipped is zero."""
    if padding == "zeros":
        return x
    if padding == "reflection":
        x = _reflected(x, 0.0, size - 1.0) if align else _reflected(x, -0.5, size - 0.5)
    x = _where_finite(x)
    low, high = x <= 0, x >= size - 1
    return x.masked_fill(low, 0.0).masked_fill(high, float(size - 1))


def _where_finite(x: Tensor) -> Tensor:
    """PyTorch looks up nan coordinates at the first element."""
    return x.masked_fill(x != x, 0.0)


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """Folded back into low .. high as often as it takes."""
    span = high - low
    if span <= 0:
        return x * 0
    off = (x - low).abs()
    times = (off.detach() / span).floor()
    rest = off - times * span
    odd = times.remainder(2) == 1
    return rest.where(~odd, span - rest) + low


def _taps(at: list[Tensor], mode: str) -> list[list[tuple[Tensor, Tensor | None]]]:
    """For each dimension the elements to look at, with their weights."""
    if mode == "nearest":
        return [[(x.detach().round(), None)] for x in at]
    taps = []
    for x in at:
        low = x.detach().floor()
        part = x - low
        if mode == "bilinear":
            taps.append([(low, 1 - part), (low + 1, part)])
        else:
            taps.append([(low + (i - 1), _cubic_weight(part, i)) for i in range(4)])
    return taps


def _cubic_weight(t: Tensor, i: int) -> Tensor:
    """Weight of neighbour `i` of four at distance t + 1, t, 1 - t, 2 - t, by Keys' kernel with a = -0.75."""
    a = -0.75
    if i in (1, 2):
        x = t if i == 1 else 1 - t
        return ((a + 2) * x - (a + 3)) * x * x + 1
    x = t + 1 if i == 0 else 2 - t
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _look_up(planes: Tensor, places: list[Tensor], extents: tuple[int, ...]) -> Tensor:
    """Elements of ``(N, C, size)`` at whole-numbered `places` ``(N, L)``, zero outside: ``(N, C, L)``."""
    from ..layers.pool_maxima import take_plane

    flat: Any = 0
    valid: Any = True
    for x, size in zip(places, extents, strict=True):
        at = x.detach()
        inside = (at >= 0) & (at <= size - 1)
        valid = inside & valid
        flat = flat * size + at.where(inside, 0).long()
    taken = take_plane(planes, flat.unsqueeze(1).expand(*planes.shape[:2], -1).contiguous(), 1)
    return taken.masked_fill(~valid.unsqueeze(1), 0)
