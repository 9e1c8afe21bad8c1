"""Resampling: images of another size, by neighbours, lines, cubics and areas."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ..._symbolic import SymInt
from ..._warn import warn
from ...tensor import Tensor
from .._batching import folded
from .._spec import CHANNELS, AskedFor, composite, primitive
from .._spec.pieces import batches_of
from .._spec.plans import Plan, moves
from ..layers import pool_adaptive


class _Sizes(NamedTuple):
    """What stands for an `AxisMap` where sizes are symbols: from how many elements to how many, and what the map depends on besides."""

    size: Any
    count: Any
    factor: Any
    mode: str
    align: bool
    antialias: bool


@primitive(
    surface=0, linear_in=("input",), memory=CHANNELS, samples="of nn.functional.interpolate", public_name="interpolate", batch_rule=folded,
)
def resample(input, maps, transposed):
    """One `AxisMap` applied along each of the last dimensions, or its transpose."""


resample.shown_by("titled[maps.asked[0]] if maps.__class__ is AskedFor else Node", AskedFor=AskedFor)


def _factor(place: int) -> Any:
    """A factor that a node shows, or None."""
    return lambda saved: None if saved["maps"].asked[2] is None else saved["maps"].asked[2][place]


# Parameters have names of their own for each number of dimensions.
_FACTORS = {1: {"scales": _factor(-1)}, 2: {"scales_h": _factor(-2), "scales_w": _factor(-1)}}
_FACTORS[3] = {"scales_d": _factor(-3), **_FACTORS[2]}
resample.keeps_to_show("input_shape")
for _n, _modes in enumerate((["Linear1D"], ["Bilinear2D", "Bicubic2D", "Bilinear2DAa", "Bicubic2DAa"], ["Trilinear3D"]), 1):
    resample.shown_for(
        *(f"Upsample{mode}Backward0" for mode in (f"Nearest{_n}D", f"NearestExact{_n}D", *_modes)), hides="maps transposed",
        output_size=lambda saved: saved["maps"].asked[1], **_FACTORS[_n],
    )  # fmt: skip
    resample.shown_for(*(f"Upsample{mode}Backward0" for mode in _modes), align_corners=lambda saved: saved["maps"].asked[3])


resample.in_pieces(lambda asked: batches_of(len(asked["maps"]), 1, 1))


@resample.kernel
def _resample(x, maps, transposed):
    from flambeau_kernels.cpu.images.resample import apply_maps, maps_of_channels
    from flambeau_kernels.cpu.shapes.layout import alike, planar

    if maps[0].__class__ is _Sizes:                   # of a graph, which has the sizes by now
        kind = dtypes.float64 if x.dtype.name in ("float64", "uint8") else dtypes.float32
        maps = tuple([_axis_map(*m, kind) for m in maps])
    made = maps_of_channels(x, maps, transposed)
    if made is not None:
        return made
    n = len(maps)
    planes = planar(x).reshape(prod(x.shape[: x.ndim - n]), *x.shape[x.ndim - n :])
    made = apply_maps(planes, maps, transposed)
    return alike(made.reshape(*x.shape[: x.ndim - n], *made.shape[1:]), x)


@resample.shape
def _resample_shape(input, maps, transposed):
    sizes = tuple(m.size if transposed else m.count for m in maps)
    return (*input.shape[: input.ndim - len(maps)], *sizes), input.dtype


@resample.vjp
def _resample_vjp(grad, maps, transposed):
    return resample(grad, maps, not transposed)


@resample.vjp_on_arrays
def _resample_vjp_on_arrays(grad, maps, transposed):
    return _resample(grad, maps, not transposed)


_LINEAR = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}


def _output_size(op: str, input: Tensor, size: Any, scale_factor: Any, only_numbers: bool = False) -> tuple[tuple[Any, ...], Any]:
    """The output extents, and the scale factors if they were given: `only_numbers`, or tensors of them too."""
    n = input.ndim - 2
    if size is not None and scale_factor is not None:
        raise ValueError(
            f"{op}: only one of size or scale_factor should be defined, got size={size}, "
            f"scale_factor={scale_factor}"
        )
    if size is None and scale_factor is None:
        raise ValueError(f"{op}: either size or scale_factor should be defined")
    name, given = ("size", size) if size is not None else ("scale_factor", scale_factor)
    if isinstance(given, Tensor):
        if given.ndim > 1:
            raise TypeError(f"{op}(): argument '{name}' must be a number or a tuple of them, not a Tensor of shape {tuple(given.shape)}")
        given = given.tolist()
    each: tuple[Any, ...]
    if isinstance(given, (tuple, list)):
        if len(given) != n:
            raise ValueError(
                f"{op}: Input and {name} must have the same number of spatial dimensions, but got input "
                f"with spatial dimensions of "
                f"{list(input.shape[2:])} and {name} of {given}"
            )
        each = tuple(given)
    else:
        each = (given,) * n
    if size is not None:
        each = tuple([index(x) if hasattr(x, "__index__") and x.__class__ not in (bool, SymInt) else x for x in each])
        for x in each:
            if isinstance(x, (float, bool)):
                raise TypeError(f"{op}(): argument 'size' must be int or tuple of ints, not {x!r}")
        if any(x > _MOST for x in each):
            raise TypeError(f"{op}(): argument 'size' has {each}: Overflow when unpacking long long, sizes are below 2**63")
        return tuple(x if x.__class__ is SymInt else int(x) for x in each), None  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out
    for x in (scale_factor, *(scale_factor if isinstance(scale_factor, (tuple, list)) else ()), *each):
        if isinstance(x, (complex, str)) or only_numbers and isinstance(x, Tensor):
            raise TypeError(f"{op}(): argument 'scale_factor' must be a number or tuple of numbers, not {scale_factor!r}")
    factors = tuple(float(x) for x in each)  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out
    for f in factors:
        if not abs(f) < _MOST / max(*input.shape[2:], 1, 1):
            raise RuntimeError(f"{op}: value cannot be converted to type int64_t without overflow: scale_factor {f}")
    return tuple(math.floor(n * f) for n, f in zip(input.shape[2:], factors, strict=True)), factors


_MOST = (1 << 63) - 1


@composite(
    namespace="nn.functional",
    samples=(
        "x(1, 2, 4), 7; x(1, 2, 3, 4), scale_factor=2, mode='bilinear', align_corners=True; x(1, 2, 4, 4), (6, 3), mode='bicubic'; "
        "x(1, 1, 3, 2, 4), 4, mode='trilinear'; x(1, 2, 6, 6), 3, mode='bilinear', antialias=True; x(1, 2, 5), 3, mode='area'"
    ),
)
def interpolate(
    input,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode="nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | int | None = None,
    antialias=False,
):
    """``(N, C, *spatial)`` resampled to `size`, or by `scale_factor`.

    Args:
        size: an int, or one per spatial dimension; or
        scale_factor: a number, or one per spatial dimension; sizes are rounded down.
        mode: 'nearest', 'nearest-exact', 'area', 'linear' (3-d input), 'bilinear', 'bicubic' (4-d),
            'trilinear' (5-d).
        align_corners: for the last four: whether the centres of the corner elements, rather than their outer
            edges, coincide.
        recompute_scale_factor: use the ratio of the sizes rather than the given factor.
        antialias: for 'bilinear' and 'bicubic': average over what an output element covers.
    Raises: ValueError, NotImplementedError, RuntimeError for settings that do not go together.

    >>> x = fb.tensor([[[1.0, 2.0]]])
    >>> F.interpolate(x, size=4), F.interpolate(x, size=4, mode="linear")
    (tensor([[[1., 1., 2., 2.]]]), tensor([[[1.0000, 1.2500, 1.7500, 2.0000]]]))
    """
    sizes, factors = _checked_sizes(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    if mode == "area":
        return _area(input, sizes)
    name = mode if not antialias else f"{mode}, antialias"
    align = () if mode in ("nearest", "nearest-exact") else (bool(align_corners),)
    return UPSAMPLES[name, len(sizes)].function(input, tuple(sizes), *align, *(factors or ()))


def _upsampled(input: Tensor, output_size: Any, factors: Any, mode: str, align: bool = False, antialias: bool = False) -> Tensor:
    """`interpolate` as an operator: every size is given, and the factors that coordinates are scaled by, or None for the sizes' ratios.

    Overloads that PyTorch calls ``vec`` have all factors in a list, from which sizes follow where they are None.
    """
    if isinstance(factors[0], (list, tuple)):
        factors = factors[0]
    factors = None if factors[0] is None else tuple(factors)
    if output_size is None:
        output_size, factors = _output_size("interpolate", input, None, factors)
    return resample(input, _maps_of(input, output_size, factors, mode, align, antialias), False)


def _signatures(mode: str, antialias: bool) -> dict[tuple[bool, int], Any]:
    """Functions with the parameters of the operators: with corners to align or without, of so many dimensions."""

    def nearest1(input, output_size: int | Sequence[int] | None, scales: float | None = None):
        return _upsampled(input, output_size, (scales,), mode)

    def nearest2(input, output_size: int | Sequence[int] | None, scales_h: float | None = None, scales_w: float | None = None):
        return _upsampled(input, output_size, (scales_h, scales_w), mode)

    def nearest3(
        input, output_size: int | Sequence[int] | None, scales_d: float | None = None, scales_h: float | None = None,
        scales_w: float | None = None
    ):
        return _upsampled(input, output_size, (scales_d, scales_h, scales_w), mode)

    def linear1(input, output_size: int | Sequence[int] | None, align_corners: bool, scales: float | None = None):
        return _upsampled(input, output_size, (scales,), mode, align_corners)

    def linear2(
        input, output_size: int | Sequence[int] | None, align_corners: bool, scales_h: float | None = None,
        scales_w: float | None = None
    ):
        return _upsampled(input, output_size, (scales_h, scales_w), mode, align_corners, antialias)

    def linear3(
        input, output_size: int | Sequence[int] | None, align_corners: bool, scales_d: float | None = None,
        scales_h: float | None = None, scales_w: float | None = None
    ):
        return _upsampled(input, output_size, (scales_d, scales_h, scales_w), mode, align_corners)

    plain = {(False, n): f for n, f in enumerate((nearest1, nearest2, nearest3), 1)}
    return {**plain, **{(True, n): f for n, f in enumerate((linear1, linear2, linear3), 1)}}


def _upsample_operator(name: str, mode: str, n: int, antialias: bool = False) -> Any:
    """The operator that `interpolate` of one mode is to PyTorch."""
    made: Any = _signatures(mode, antialias)[mode not in ("nearest", "nearest-exact"), n]
    made.__name__ = name
    made.__doc__ = f"`input` resampled along {n} dimensions; see `nn.functional.interpolate` with mode '{mode}'."
    return composite(surface=0, samples="of nn.functional.interpolate")(made)


UPSAMPLES = {
    **{("nearest", n): _upsample_operator(f"upsample_nearest{n}d", "nearest", n) for n in (1, 2, 3)},
    **{("nearest-exact", n): _upsample_operator(f"_upsample_nearest_exact{n}d", "nearest-exact", n) for n in (1, 2, 3)},
    ("linear", 1): _upsample_operator("upsample_linear1d", "linear", 1),
    ("bilinear", 2): _upsample_operator("upsample_bilinear2d", "bilinear", 2),
    ("bicubic", 2): _upsample_operator("upsample_bicubic2d", "bicubic", 2),
    ("trilinear", 3): _upsample_operator("upsample_trilinear3d", "trilinear", 3),
    ("bilinear, antialias", 2): _upsample_operator("_upsample_bilinear2d_aa", "bilinear", 2, True),
    ("bicubic, antialias", 2): _upsample_operator("_upsample_bicubic2d_aa", "bicubic", 2, True),
}


def _checked_sizes(
    input: Any, size: Any, scale_factor: Any, mode: str, align_corners: Any, recompute: Any, antialias: bool
) -> tuple[tuple[int, ...], Any]:
    """The output extents and scale factors of `interpolate`. Raises: as it does."""
    if not isinstance(input, Tensor):
        raise TypeError(f"interpolate(): argument 'input' must be Tensor, not {type(input).__name__}")
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError(
            f"interpolate: align_corners goes with linear, bilinear, bicubic and trilinear, not with "
            f"mode='{mode}'"
        )
    # PyTorch computes sizes here for these alone, before it looks at the rest.
    if not recompute and mode != "area":
        _check_antialias(input, mode, antialias)
    sizes, factors = _output_size("interpolate", input, size, scale_factor, not recompute and mode != "area")
    _check_antialias(input, mode, antialias)
    if recompute:
        if size is not None:
            raise ValueError("interpolate: recompute_scale_factor is not meaningful with an explicit size")
        factors = None
    if (
        mode not in ("nearest", "nearest-exact", "area", *_LINEAR)
        or not 3 <= input.ndim <= 5
        or _LINEAR.get(mode, input.ndim) != input.ndim
    ):
        raise NotImplementedError(
            f"interpolate: Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for "
            f"the modes: nearest | linear | "
            f"bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    return sizes, factors


def _check_antialias(input: Tensor, mode: str, antialias: bool) -> None:
    if antialias and not (mode in ("bilinear", "bicubic") and input.ndim == 4):
        raise ValueError(
            "interpolate: Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D "
            "tensor as input"
        )


@interpolate.plan(by="shape")
def _planned_interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias):
    from flambeau_kernels.cpu.images.resample import planned_maps
    from flambeau_kernels.cpu.shapes.order import is_last

    sizes, factors = _checked_sizes(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    if mode == "area":
        return pool_adaptive.planned_area(input, sizes)
    maps, a = _maps_of(input, sizes, factors, mode, bool(align_corners), antialias), input._array
    if is_last(a):
        return None
    copying = moves(resample, input, maps, False) if mode in ("nearest", "nearest-exact") else None
    if copying is not None:
        run = copying.run
    else:
        run = planned_maps(a.reshape(-1, *a.shape[2:]), maps, False, (*a.shape[:2], *sizes))
    return run and Plan(run, resample, lambda _, x: (x, maps, False))


def _area(input: Tensor, sizes: tuple[int, ...]) -> Tensor:
    return getattr(pool_adaptive, f"adaptive_avg_pool{len(sizes)}d")(input, sizes)


def _maps_of(input: Tensor, sizes: Any, factors: Any, mode: str, align: bool, antialias: bool) -> tuple[Any, ...]:
    """How `interpolate` maps each axis. Raises: for sizes and dtypes that have no elements or no such maps."""
    extents = tuple(input.shape[2:])
    if any(n < 1 for n in sizes) or 0 in extents or (input.shape[1] == 0):
        raise RuntimeError(
            f"interpolate: Input and output sizes should be greater than 0, but got input "
            f"{tuple(input.shape)} and output {tuple(sizes)}"
        )
    if input.is_complex() or (not input.is_floating_point() and input.dtype is not dtypes.uint8):
        raise NotImplementedError(
            f'"interpolate" not implemented for {input.dtype}; convert the input with .to(dtype) first'
        )
    if any(n.__class__ is SymInt for n in (*extents, *sizes)):
        each = zip(extents, sizes, factors or (None,) * len(sizes), strict=True)
        parts = [_Sizes(n, m, factor, mode, align, antialias) for n, m, factor in each]
        return AskedFor.of(parts, _title(mode, len(sizes), antialias), sizes, factors, align)
    made = _maps_between if max(sizes) <= _MOST_KEPT else _maps_between.__wrapped__
    return made(extents, tuple(sizes), factors, mode, align, antialias, input.dtype)


_MOST_KEPT = 1 << 16                                  # elements along an axis whose map is kept


@functools.lru_cache(maxsize=64)
def _maps_between(extents: Any, sizes: Any, factors: Any, mode: str, align: bool, antialias: bool, dtype: Any) -> AskedFor:
    """The map of each axis, with the title of nodes, sizes, factors and whether corners are aligned."""
    each = _axis_map if max(sizes) <= _MOST_KEPT else _axis_map.__wrapped__
    maps = [
        each(n, m, None if factors is None else factors[at], mode, align, antialias, dtype)
        for at, (n, m) in enumerate(zip(extents, sizes, strict=True))
    ]
    return AskedFor.of(maps, _title(mode, len(maps), antialias), sizes, factors, align)


def _title(mode: str, n: int, antialias: bool) -> str:
    """What nodes of a resampling of `n` dimensions are called."""
    kind = {"nearest": "Nearest", "nearest-exact": "NearestExact"}.get(mode) or mode.title()
    return f"Upsample{kind}{n}D{'Aa' if antialias else ''}Backward0"


@functools.lru_cache(maxsize=64)  # tables are as costly as a small image
def _axis_map(n: int, m: int, factor: Any, mode: str, align: bool, antialias: bool, dtype: Any) -> Any:
    from flambeau_kernels.cpu.images import resample as kernels

    kind = np.float64 if dtype in (dtypes.float64, dtypes.uint8) else np.float32
    ratio = 1.0 / factor if factor is not None and factor > 0 else n / m
    if mode in ("nearest", "nearest-exact"):
        return kernels.nearest_map(
            n, m, ratio if factor is not None else kind(n) / kind(m), mode == "nearest-exact", kind  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out
        )
    scale = (n - 1) / (m - 1) if align and m > 1 else 0.0 if align else ratio
    if antialias:
        return kernels.antialias_map(n, m, scale, mode == "bicubic", np.float64)
    if mode == "bicubic":
        return kernels.cubic_map(n, m, scale, align, kind)
    return kernels.linear_map(n, m, scale, align, kind)


def _warn_of_upsample(name: str) -> None:
    warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")


@composite(namespace="nn.functional", samples="x(1, 2, 4), 7")
def upsample(
    input, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None, mode="nearest",
    align_corners: bool | None = None
):
    """The older name of `interpolate`; arguments as there."""
    _warn_of_upsample("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite(namespace="nn.functional", samples="x(1, 2, 3, 4), scale_factor=2")
def upsample_nearest(input, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None):
    """`interpolate` with mode 'nearest'; `size` and `scale_factor` as there."""
    _warn_of_upsample("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


@composite(namespace="nn.functional", samples="x(1, 2, 3, 4), (5, 6)")
def upsample_bilinear(input, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None):
    """`interpolate` with mode 'bilinear' and aligned corners; `size` and `scale_factor` as there."""
    _warn_of_upsample("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)
