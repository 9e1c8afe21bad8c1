"""Padding, resampling and rearrangement of images."""

from __future__ import annotations

import functools
import math
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.cpu.layout import is_ordered_last

from .. import _state, dtypes
from .._arrays import MetaArray
from .._symbolic import SymInt
from .._warn import warn
from ..devices import contiguous_format
from ..tensor import Tensor, wrap
from . import pool_adaptive
from ._batching import folded, leading
from ._spec import CHANNELS, FUNCTION, check_room, composite, describe, need_int, primitive
from ._spec.pieces import batches_of
from ._spec.plans import Plan, moves
from .conv import as_ints

Pairs = tuple[tuple[int, int], ...]


# -- padding -------------------------------------------------------------------------------------------------


def _pairs(op: str, input: Tensor, pad: Any) -> Pairs:  # PyTorch's name
    """`pad`, given from the last dimension backwards, as ``(before, after)`` from the first padded
    dimension on."""
    amounts = [need_int(op, "pad", p) for p in (pad.tolist() if isinstance(pad, Tensor) else pad)]
    if len(amounts) % 2:
        raise RuntimeError(f"{op}: Length of pad must be even but instead it equals {len(amounts)}")
    if len(amounts) > 2 * input.ndim:
        raise RuntimeError(
            f"{op}: Length of pad should be no more than twice the number of dimensions of the input. "
            f"pad has {len(amounts)} numbers while the input has {input.ndim} dimensions"
        )
    pairs = tuple(zip(amounts[0::2], amounts[1::2], strict=True))[::-1]
    for at, (a, b) in enumerate(pairs, input.ndim - len(pairs)):
        if input.shape[at] + a + b < 0:
            raise RuntimeError(
                f"{op}: The input size {input.shape[at]}, plus negative padding {a} and {b}, resulted in a "
                f"negative output size, "
                f"which is invalid. Check dimension {at} of your input"
            )
    return pairs


@composite(surface=FUNCTION, samples="x(2, 3), (1, 2); x(2, 3, 4), (1, 0, 0, 2), 1.5")
def constant_pad_nd(input, pad, value=0):
    """`input` with `value` around it; `pad` is as for `nn.functional.pad`."""
    return pad_constant(input, _pairs("constant_pad_nd", input, pad), value)


@primitive(
    surface=0, linear_in=(), memory=CHANNELS, samples="of nn.functional.pad", public_name="pad", batch_rule=leading,
    cuda="moves.pad_constant",
)
def pad_constant(input, pairs, value):
    """`input` with ``(before, after)`` elements of `value` around its last dimensions."""


@pad_constant.in_pieces
def _pad_constant_pieces(asked):
    first = asked.operands[0].ndim - len(asked["pairs"])
    kept = [*range(first), *[first + i for i, pair in enumerate(asked["pairs"]) if tuple(pair) == (0, 0)]]
    return [asked.way(dict.fromkeys(range(len(asked.operands)), d), d) for d in kept]


@pad_constant.kernel
def _pad_constant(x, pairs, value):
    from flambeau_kernels.cpu.layout import alike, planar
    from flambeau_kernels.cpu.pad import pad_constant as kernel

    return alike(kernel(planar(x), pairs, value), x)


@pad_constant.shape
def _pad_constant_shape(input, pairs, value):
    return _padded_shape(input, pairs), input.dtype


def _padded_shape(input: Tensor, pairs: Pairs) -> tuple[int, ...]:
    lead = input.ndim - len(pairs)
    return (*input.shape[:lead], *(n + a + b for n, (a, b) in zip(input.shape[lead:], pairs, strict=True)))


@pad_constant.vjp
def _pad_constant_vjp(grad, pairs):
    return pad_constant(grad, tuple((-a, -b) for a, b in pairs), 0)


@pad_constant.raw(memory=CHANNELS)
def _pad_constant_raw(grad, pairs):
    from flambeau_kernels.cpu.pad import pad_constant as kernel

    return kernel(grad, tuple((-a, -b) for a, b in pairs), 0)


@primitive(surface=0, linear_in=("input",), memory=CHANNELS, samples="of nn.functional.pad", public_name="pad", batch_rule=leading)
def pad_mode(input, pairs, mode):
    """`input` padded from its own elements: 'reflect', 'replicate' or 'circular'."""


pad_mode.in_pieces(lambda asked: batches_of(len(asked["pairs"]), 1, 1))


@pad_mode.kernel
def _pad_mode(x, pairs, mode):
    from flambeau_kernels.cpu.layout import alike, planar
    from flambeau_kernels.cpu.pad import pad_mode as kernel

    return alike(kernel(planar(x), pairs, mode), x)


@pad_mode.shape
def _pad_mode_shape(input, pairs, mode):
    return _padded_shape(input, pairs), input.dtype


@pad_mode.vjp
def _pad_mode_vjp(grad, input, pairs, mode):
    return fold_pad(grad, input, pairs, mode)


@pad_mode.raw(memory=CHANNELS)
def _pad_mode_raw(grad, input, pairs, mode):
    return _fold_pad(grad, input, pairs, mode)


# The transposes of linear ops take `input` for its shape; being an operand it also makes the result require
# grad where `input` does, as PyTorch's do.


@primitive(surface=0, tensors=("grad", "input"), memory=CHANNELS, ordering=("grad",), samples="of nn.functional.pad")
def fold_pad(grad, input, pairs, mode):
    """The transpose of `pad_mode` of `input`."""


fold_pad.in_pieces(lambda asked: batches_of(len(asked["pairs"]), 2, 1))


@fold_pad.kernel
def _fold_pad(grad, x, pairs, mode):
    from flambeau_kernels.cpu.pad import fold_pad as kernel

    return kernel(grad, x.shape[x.ndim - len(pairs) :], pairs, mode)


@fold_pad.shape
def _fold_pad_shape(grad, input, pairs, mode):
    return input.shape, grad.dtype


@fold_pad.vjp
def _fold_pad_vjp(grad, pairs, mode):
    return pad_mode(grad, pairs, mode), None


@composite(
    namespace="nn.functional", operator="constant_pad_nd(input, pad, value)",
    samples=(
        "x(2, 3), (1, 2), value=1.5; x(2, 3, 4), (2, 1), 'reflect'; x(1, 2, 3, 4), (1, 0, 2, 1), 'replicate'; "
        "x(2, 3, 4), (1, 3), 'circular'"
    ),
)
def pad(input, pad, mode="constant", value=None):
    """`input` with elements around it, in the unit of `input`.

    Args:
        pad: amounts ``(before, after)`` of the last dimension, then of the one before it, and so on.
        mode: 'constant' (`value`, 0 by default; negative amounts cut), 'reflect' (mirrored, without the edge
            itself),
            'replicate' (the edge) or 'circular' (wrapped around). The last three pad the last 1, 2 or 3
            dimensions of
            ``(C, *)`` or ``(N, C, *)``.
        value: for 'constant' only.
    Raises: RuntimeError, ValueError, NotImplementedError for amounts or dimensions the mode does not go with.

    >>> x = fb.tensor([[1.0, 2.0, 3.0]])
    >>> F.pad(x, (1, 1))
    tensor([[0., 1., 2., 3., 0.]])
    >>> F.pad(x, (1, 1), mode="reflect")
    tensor([[2., 1., 2., 3., 2.]])
    """
    pairs = _checked_pairs(input, pad, mode, value)
    if mode == "constant":
        return pad_constant(input, pairs, 0 if value is None else value)
    if mode == "circular":
        return pad_mode(input.contiguous(), pairs, mode)
    return _PADS[mode, len(pairs)].function(input, tuple(pad))


def _pad_operator(name: str, mode: str, n: int) -> Any:
    """The operator that `pad` of one mode is to PyTorch."""

    def padded(input, padding):
        return pad_mode(input, _checked_pairs(input, padding, mode, None), mode)

    padded.__name__ = f"{name}_pad{n}d"
    padded.__doc__ = f"`input` padded in {n} dimensions; see `nn.functional.pad` with mode '{mode}'."
    return composite(surface=0, samples="of nn.functional.pad")(padded)


_PADS = {
    (mode, n): _pad_operator(name, mode, n) for name, mode in (("reflection", "reflect"), ("replication", "replicate")) for n in (1, 2, 3)
}


def _checked_pairs(input: Any, pad: Any, mode: str, value: Any) -> Pairs:
    """What `pad` adds to each dimension. Raises: as `pad` does."""
    if not isinstance(input, Tensor):
        raise TypeError(f"pad(): argument 'input' must be Tensor, not {type(input).__name__}")
    pairs = _pairs("pad", input, pad)
    if mode == "constant":
        if isinstance(value, Tensor) and value.ndim:
            raise TypeError(f"pad(): argument 'value' must be float, not Tensor of shape {tuple(value.shape)}")
        return pairs
    if value is not None and value != 0:
        raise RuntimeError(f'pad: Padding mode "{mode}" doesn\'t take in value argument, got {value!r}')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(
            f"pad: Unrecognised padding mode {mode}; there are constant, reflect, replicate and circular"
        )
    n = len(pairs)
    if not (1 <= n <= 3 and input.ndim in (n + 1, n + 2)):
        raise NotImplementedError(
            f"pad: mode '{mode}' pads the last 1, 2 or 3 dimensions of inputs with 1 or 2 more; got {2 * n} "
            f"amounts for an input "
            f"with {input.ndim} dimensions"
        )
    if mode != "circular" and 0 in input.shape[-n - 1 :]:
        raise RuntimeError(
            f"pad: Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
            f"input, but got: {list(input.shape)}"
        )
    for at, (a, b) in enumerate(pairs, input.ndim - n):
        _check_reach(mode, input, at, a, b)
    return pairs


@pad.plan(by="shape")
def _planned_pad(input, pad, mode, value):
    from flambeau_kernels.cpu.layout import is_last
    from flambeau_kernels.cpu.pad import planned_constant, planned_mode

    pairs = _checked_pairs(input, pad, mode, value)
    if is_last(input._array) or value.__class__ is int and not -1 << 63 <= value < 1 << 63:
        return None
    if mode == "constant":
        value = 0 if value is None else value
        run = planned_constant(input._array, pairs, value)
        return run and Plan(
            run, lambda a: (run(a), None), lambda made, _, x: pad_constant.history(made, None, x, pairs, value)
        )
    run = planned_mode(input._array, pairs, mode)
    plan = moves(pad_mode, input, pairs, mode) if run is None else Plan(run)
    return plan and Plan(
        plan.run, lambda a: (plan.run(a), None), lambda made, _, x: pad_mode.history(made, None, x, pairs, mode)
    )


def _check_reach(mode: str, input: Tensor, dim: int, a: int, b: int) -> None:
    size = input.shape[dim]
    if mode == "reflect" and max(a, b) >= size:
        raise RuntimeError(
            f"pad: Padding size should be less than the corresponding input dimension, but got: padding "
            f"({a}, {b}) at dimension {dim}\n"
            f"{describe(input=input)}"
        )
    if mode == "circular" and max(a, b) > size:
        raise RuntimeError(
            f"pad: Padding value causes wrapping around more than once: padding ({a}, {b}) at dimension "
            f"{dim}\n{describe(input=input)}"
        )
    if mode == "circular" and size + min(a, 0) + min(b, 0) <= 0:
        raise RuntimeError(
            f"pad: padding ({a}, {b}) cuts all of dimension {dim} off, and leaves nothing to wrap around\n{describe(input=input)}"
        )
    if size + a + b <= 0 or (size == 0):
        raise RuntimeError(
            f"pad: Expected the padded dimension {dim} to have elements: size {size}, padding ({a}, "
            f"{b})\n{describe(input=input)}"
        )


# -- interpolation -------------------------------------------------------------------------------------------


class _Sizes(NamedTuple):
    """What stands for an `AxisMap` where sizes are symbols: from how many elements to how many."""

    size: Any
    count: Any


@primitive(
    surface=0, linear_in=("input",), memory=CHANNELS, samples="of nn.functional.interpolate", public_name="interpolate", batch_rule=folded,
)
def resample(input, maps, transposed):
    """One `AxisMap` applied along each of the last dimensions, or its transpose."""


resample.in_pieces(lambda asked: batches_of(len(asked["maps"]), 1, 1))


@resample.kernel
def _resample(x, maps, transposed):
    from flambeau_kernels.cpu.layout import alike, planar
    from flambeau_kernels.cpu.resample import apply_maps

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


@resample.raw
def _resample_raw(grad, maps, transposed):
    return _resample(grad, maps, not transposed)


_LINEAR = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}


def _output_size(op: str, input: Tensor, size: Any, scale_factor: Any) -> tuple[tuple[Any, ...], Any]:
    """The output extents, and the scale factors if they were given."""
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
        for x in each:
            if isinstance(x, (float, bool)):
                raise TypeError(f"{op}(): argument 'size' must be int or tuple of ints, not {x!r}")
        if any(x > _MOST for x in each):
            raise TypeError(f"{op}(): argument 'size' has {each}: Overflow when unpacking long long, sizes are below 2**63")
        return tuple(x if x.__class__ is SymInt else int(x) for x in each), None  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out
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
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
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
    return _UPSAMPLES[name, len(sizes)].function(input, tuple(sizes), *align, *(factors or ()))


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

    def nearest1(input, output_size, scales=None):
        return _upsampled(input, output_size, (scales,), mode)

    def nearest2(input, output_size, scales_h=None, scales_w=None):
        return _upsampled(input, output_size, (scales_h, scales_w), mode)

    def nearest3(input, output_size, scales_d=None, scales_h=None, scales_w=None):
        return _upsampled(input, output_size, (scales_d, scales_h, scales_w), mode)

    def linear1(input, output_size, align_corners, scales=None):
        return _upsampled(input, output_size, (scales,), mode, align_corners)

    def linear2(input, output_size, align_corners, scales_h=None, scales_w=None):
        return _upsampled(input, output_size, (scales_h, scales_w), mode, align_corners, antialias)

    def linear3(input, output_size, align_corners, scales_d=None, scales_h=None, scales_w=None):
        return _upsampled(input, output_size, (scales_d, scales_h, scales_w), mode, align_corners)

    plain = {(False, n): f for n, f in enumerate((nearest1, nearest2, nearest3), 1)}
    return {**plain, **{(True, n): f for n, f in enumerate((linear1, linear2, linear3), 1)}}


def _upsample_operator(name: str, mode: str, n: int, antialias: bool = False) -> Any:
    """The operator that `interpolate` of one mode is to PyTorch."""
    made: Any = _signatures(mode, antialias)[mode not in ("nearest", "nearest-exact"), n]
    made.__name__ = name
    made.__doc__ = f"`input` resampled along {n} dimensions; see `nn.functional.interpolate` with mode '{mode}'."
    return composite(surface=0, samples="of nn.functional.interpolate")(made)


_UPSAMPLES = {
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
    if input.ndim < 3:
        raise ValueError(f"interpolate: expected (N, C, spatial...), got {input.ndim} dimensions")
    sizes, factors = _output_size("interpolate", input, size, scale_factor)
    if recompute:
        if size is not None:
            raise ValueError("interpolate: recompute_scale_factor is not meaningful with an explicit size")
        factors = None
    if antialias and not (mode in ("bilinear", "bicubic") and input.ndim == 4):
        raise ValueError(
            "interpolate: Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D "
            "tensor as input"
        )
    if (
        mode not in ("nearest", "nearest-exact", "area", *_LINEAR)
        or input.ndim > 5
        or _LINEAR.get(mode, input.ndim) != input.ndim
    ):
        raise NotImplementedError(
            f"interpolate: Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for "
            f"the modes: nearest | linear | "
            f"bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    return sizes, factors


@interpolate.plan(by="shape")
def _planned_interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias):
    from flambeau_kernels.cpu.layout import is_last
    from flambeau_kernels.cpu.resample import planned_maps

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
    return run and Plan(run, lambda a: (run(a), None), lambda made, _, x: resample.history(made, None, x, maps, False))


def _area(input: Tensor, sizes: tuple[int, ...]) -> Tensor:
    return (pool_adaptive.adaptive_avg_pool1d, pool_adaptive.adaptive_avg_pool2d, pool_adaptive.adaptive_avg_pool3d)[len(sizes) - 1](
        input, sizes
    )


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
        if not _state.grad_enabled() or input._node is None:
            return tuple([_Sizes(n, m) for n, m in zip(extents, sizes, strict=True)])
        extents, sizes = tuple(map(int, extents)), tuple(map(int, sizes))  # a derivative records the map, which is of known sizes
    each = _axis_map if max(sizes) <= _MOST_KEPT else _axis_map.__wrapped__
    return tuple(
        each(n, m, None if factors is None else factors[at], mode, align, antialias, input.dtype)
        for at, (n, m) in enumerate(zip(extents, sizes, strict=True))
    )


_MOST_KEPT = 1 << 16                                  # elements along an axis whose map is kept


@functools.lru_cache(maxsize=64)  # tables are as costly as a small image
def _axis_map(n: int, m: int, factor: Any, mode: str, align: bool, antialias: bool, dtype: Any) -> Any:
    from flambeau_kernels.cpu import resample as kernels

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
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """The older name of `interpolate`; arguments as there."""
    _warn_of_upsample("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite(namespace="nn.functional", samples="x(1, 2, 3, 4), scale_factor=2")
def upsample_nearest(input, size=None, scale_factor=None):
    """`interpolate` with mode 'nearest'; `size` and `scale_factor` as there."""
    _warn_of_upsample("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


@composite(namespace="nn.functional", samples="x(1, 2, 3, 4), (5, 6)")
def upsample_bilinear(input, size=None, scale_factor=None):
    """`interpolate` with mode 'bilinear' and aligned corners; `size` and `scale_factor` as there."""
    _warn_of_upsample("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)


# -- sampling at a grid --------------------------------------------------------------------------------------


_CORNERS = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True "
    "if the old behavior is desired. See the documentation of grid_sample for details."
)


@composite(
    namespace="nn.functional",
    samples="x(1, 2, 3), (1, 2, 3, 4), align_corners=False; x(1, 3, 4), (1, 2, 2, 3, 2), align_corners=True",
)
def affine_grid(theta, size, align_corners=None):
    """The points that affine maps send the elements of an image to, for `grid_sample`: ``(N, 2, 3) -> (N, H, W, 2)``.

    Args:
        theta: ``(N, 2, 3)``; or ``(N, 3, 4)`` for volumes, which gives ``(N, D, H, W, 3)``.
        size: of the images, (N, C, H, W) or (N, C, D, H, W).
        align_corners: whether -1 and 1 are the centres of the outermost elements, rather than the outer
            edges.
    """
    if align_corners is None:
        warn(_CORNERS)
    if not theta.is_floating_point():
        raise ValueError(f"affine_grid: Expected theta to have floating point type, but got {theta.dtype}")
    sizes = tuple(int(n) for n in size)
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
    check_room("affine_grid", (sizes[0], *sizes[2:], n + 1), theta._array.itemsize, theta._lacks_values)
    if type(theta._array) is MetaArray:
        points = theta.detach().new_empty((prod(sizes[2:]), n + 1))
    else:
        kind = theta.dtype.numpy if theta.is_cpu else np.dtype(np.float32)
        points = wrap(_base_grid(sizes[2:], bool(align_corners), kind))
    made = points.to(theta.device, theta.dtype).expand(sizes[0], *points.shape) @ theta.transpose(1, 2)
    return made.view(sizes[0], *sizes[2:], n)


def _base_grid(extents: tuple[int, ...], align: bool, dtype: Any) -> Any:
    """Homogeneous coordinates of every position, x first: ``(positions, n + 1)``."""
    wide = np.float32 if dtype.itemsize <= 2 else dtype
    axes = []
    for m in extents:
        line = np.linspace(-1, 1, m, dtype=wide) if m > 1 else np.zeros(1, wide)
        axes.append(line if align else (line * ((m - 1) / m)).astype(wide))
    mesh = np.meshgrid(*axes, indexing="ij")
    return np.stack([*(c.reshape(-1) for c in reversed(mesh)), np.ones(mesh[0].size, wide)], -1).astype(dtype)


@composite(surface=FUNCTION, samples="x(1, 2, 3), (1, 2, 3, 4), False")
def affine_grid_generator(theta, size, align_corners):
    """`nn.functional.affine_grid` with `theta`, `size` and `align_corners` all given."""
    return affine_grid(theta, size, align_corners)


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
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Images looked up at given points: ``(N, C, H, W), (N, H', W', 2) -> (N, C, H', W')``; 3-d likewise.

    Args:
        grid: points, the column first, -1 and 1 being the edges of the image.
        mode: 'bilinear' (also for 3-d input), 'nearest' or 'bicubic' (2-d only).
        padding_mode: outside are 'zeros', the 'border' element, or the mirror image ('reflection').
        align_corners: whether -1 and 1 are the centres of the outermost elements, rather than the outer
            edges.
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
    return _grid_sample("grid_sample", input, grid, mode, padding_mode, bool(align_corners))


grid_sample.in_pieces("nc*,n*->nc*")


@grid_sample.plan(by="shape", tensors=("input", "grid"))
def _planned_grid_sample(input, grid, mode, padding_mode, align_corners):
    """Images of one float dtype, by compiled loops whose results are those of the fallback to the last bit."""
    if align_corners is None:
        return None
    _check_grid("grid_sample", input, grid, mode)
    a, points = input._array, grid._array
    if a.ndim != 4 or a.dtype.char not in "fd" or not a.size or not points.size or a.shape[2] * a.shape[3] >= 1 << 31:
        return None
    if mode not in _MODES or padding_mode not in ("zeros", "border"):
        return None
    from flambeau_kernels.cpu import grid_rows

    how = _MODES[mode], _PADDINGS[padding_mode], bool(align_corners)
    run = grid_rows.planned(a.shape, points.shape, a.dtype, *how)
    if not grid_rows.with_gradients(a.shape, points.shape, a.dtype, how[0]):
        return Plan(run)
    return Plan(
        run,
        lambda x, grid: (grid_rows.looked_up(x, grid, *how), None),
        lambda made, _, x, grid: looked_up.history(made, None, x, grid, *how),
    )


@primitive(surface=0, tensors=("input", "grid"), samples="of nn.functional.grid_sample")
def looked_up(input, grid, mode, padding, align):
    """`nn.functional.grid_sample` of images, the modes by number."""


looked_up.in_pieces("nc*,n*->nc*")


looked_up.node_class.title = "GridSampler2DBackward0"


@looked_up.kernel
def _looked_up(x, grid, mode, padding, align):
    from flambeau_kernels.cpu import grid_rows

    return grid_rows.looked_up(np.ascontiguousarray(x), np.ascontiguousarray(grid), mode, padding, align)


@looked_up.shape
def _looked_up_shape(input, grid, mode, padding, align):
    return (*input.shape[:2], *grid.shape[1:3]), input.dtype


@looked_up.vjp
def _looked_up_vjp(grad, input, grid, mode, padding, align):
    """By the composition, which differentiates again."""
    from .. import _state
    from ..autograd import enable_grad
    from ..autograd import grad as gradient

    again = _state.grad_enabled()
    with enable_grad():
        image, points = (x if again and x._node is not None else x.detach().requires_grad_() for x in (input, grid))
        made = _by_number("grid_sample", image, points, mode, padding, align)
    return tuple(gradient(made, (image, points), grad, create_graph=again))


@looked_up.raw
def _looked_up_raw(grad, input, grid, mode, padding, align, needs_input, needs_grid):
    from flambeau_kernels.cpu import grid_rows

    return grid_rows.gradients(grad, input, grid, mode, padding, align, needs_input, needs_grid)


def _by_number(
    op: str, input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    modes, paddings = ({v: k for k, v in table.items()} for table in (_MODES, _PADDINGS))
    if interpolation_mode not in modes or padding_mode not in paddings:
        raise RuntimeError(
            f"{op}: no interpolation_mode {interpolation_mode} or no padding_mode {padding_mode}; each is "
            f"0, 1 or 2"
        )
    return _grid_sample(
        op, input, grid, modes[interpolation_mode], paddings[padding_mode], bool(align_corners)
    )


@composite(surface=FUNCTION, samples="x(1, 2, 4, 3), x(1, 2, 3, 2, low=-0.9, high=0.9), 0, 0, False")
def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """`nn.functional.grid_sample` with modes by number, of images or volumes.

    Args:
        interpolation_mode: 0 'bilinear', 1 'nearest', 2 'bicubic'.
        padding_mode: 0 'zeros', 1 'border', 2 'reflection'.
        grid, align_corners: as for `nn.functional.grid_sample`.
    """
    return _by_number("grid_sampler", input, grid, interpolation_mode, padding_mode, align_corners)


grid_sampler.in_pieces("nc*,n*->nc*")


@composite(surface=FUNCTION, samples="x(1, 2, 4, 3), x(1, 2, 3, 2, low=-0.9, high=0.9), 0, 0, False")
def grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners):
    """`nn.functional.grid_sample` of images with modes by number; see `grid_sampler`."""
    return _by_number("grid_sampler_2d", input, grid, interpolation_mode, padding_mode, align_corners)


grid_sampler_2d.in_pieces("nc*,n*->nc*")


@composite(surface=FUNCTION, samples="x(1, 1, 3, 4, 3), x(1, 2, 2, 1, 3, low=-0.9, high=0.9), 0, 0, True")
def grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners):
    """`nn.functional.grid_sample` of volumes with modes by number; see `grid_sampler`."""
    return _by_number("grid_sampler_3d", input, grid, interpolation_mode, padding_mode, align_corners)


grid_sampler_3d.in_pieces("nc*,n*->nc*")


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
    if not grid.shape[0]:
        return input.new_zeros((0, input.shape[1], *grid.shape[1:-1]))
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
    from .norm import depends_on

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
    from .pool import take_plane

    if planes._lacks_values:
        shape = (*planes.shape[:2], places[0].shape[-1])
        return take_plane(planes, planes.detach().new_empty(shape, dtype=dtypes.int64), 1)
    flat = np.zeros((1,), np.int64)
    valid: Any = True
    for x, size in zip(places, extents, strict=True):
        a = x.detach()._array
        ok = (a >= 0) & (a <= size - 1)
        valid = ok & valid
        flat = flat * size + np.where(ok, a, 0).astype(np.int64)
    shape = (*planes.shape[:2], flat.shape[-1])
    taken = take_plane(planes, wrap(np.ascontiguousarray(np.broadcast_to(flat[:, None], shape))), 1)
    if valid.all():
        return taken
    return taken.masked_fill(wrap(~valid[:, None]), 0)


# -- rearrangement -------------------------------------------------------------------------------------------


@composite(surface=FUNCTION, aliases=("nn.functional.pixel_shuffle",), samples="x(1, 8, 2, 3), 2")
def pixel_shuffle(input, upscale_factor):
    """Channels become pixels: ``(*, C * r * r, H, W) -> (*, C, H * r, W * r)`` with r the `upscale_factor`.

    Raises: RuntimeError unless r * r divides the channels.
    Source: Shi et al. 2016, "Real-Time Single Image and Video Super-Resolution".

    >>> F.pixel_shuffle(fb.arange(4.0).reshape(4, 1, 1), 2)
    tensor([[[0., 1.],
             [2., 3.]]])
    """
    r = need_int("pixel_shuffle", "upscale_factor", upscale_factor)
    if input.ndim < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.ndim} "
            f"dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
            f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}"
        )
    split = input.reshape(*lead, c // (r * r), r, r, h, w)
    b = len(lead)
    return (
        split.permute(*range(b), b, b + 3, b + 1, b + 4, b + 2)
        .clone(memory_format=contiguous_format)
        .reshape(*lead, c // (r * r), h * r, w * r)
    )


@composite(surface=FUNCTION, aliases=("nn.functional.pixel_unshuffle",), samples="x(1, 2, 4, 6), 2")
def pixel_unshuffle(input, downscale_factor):
    """Pixels become channels: ``(*, C, H * r, W * r) -> (*, C * r * r, H, W)`` with r the `downscale_factor`."""
    r = downscale_factor
    if input.ndim < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.ndim} "
            f"dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but {h} x {w} "
            f"is not divisible by {r}"
        )
    if input.numel() == 0:
        return input.clone()
    split = input.reshape(*lead, c, h // r, r, w // r, r)
    if is_ordered_last(input._array) and input.ndim == 4:
        last = split.permute(0, 2, 4, 1, 3, 5).clone(memory_format=contiguous_format)
        return last.reshape(*lead, h // r, w // r, c * r * r).permute(0, 3, 1, 2)
    b = len(lead)
    return (
        split.permute(*range(b), b, b + 2, b + 4, b + 1, b + 3)
        .clone(memory_format=contiguous_format)
        .reshape(*lead, c * r * r, h // r, w // r)
    )


@composite(
    surface=FUNCTION,
    aliases=(
        "native_channel_shuffle",
        "nn.functional.channel_shuffle",
        "nn.functional.native_channel_shuffle",
    ),
    samples="x(1, 6, 2), 3",
)
def channel_shuffle(input, groups):
    """``(N, C, *)`` with its channels dealt out of `groups` groups in turn; `groups` divides C.

    Source: Zhang et al. 2017, "ShuffleNet".

    >>> F.channel_shuffle(fb.arange(4).reshape(1, 4, 1), 2).flatten()
    tensor([0, 2, 1, 3])
    """
    if input.ndim < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}"
        )
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups: {groups}"
        )
    n, c = input.shape[:2]
    if c % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups."
        )
    if input.numel() == 0:
        return input.clone()
    if is_ordered_last(input._array):
        space, ndim = input.shape[2:], input.ndim
        split = input.reshape(n, groups, c // groups, *space).permute(0, *range(3, ndim + 1), 2, 1)
        last = split.clone(memory_format=contiguous_format).reshape(n, *space, c)
        return last.permute(0, ndim - 1, *range(1, ndim - 1))
    split = input.reshape(n, groups, c // groups, *input.shape[2:]).transpose(1, 2)
    return split.clone(memory_format=contiguous_format).reshape(input.shape)


for _op in (pixel_shuffle, pixel_unshuffle, channel_shuffle):
    _op.plan(functools.partial(moves, _op), by="shape")


# -- windows as columns --------------------------------------------------------------------------------------


def _columns_settings(op: str, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    made = []
    for name, value, least in (
        ("kernel_size", kernel_size, 1),
        ("dilation", dilation, 1),
        ("padding", padding, 0),
        ("stride", stride, 1),
    ):
        numbers = as_ints(op, name, value, 2)
        if min(numbers) < least:
            raise RuntimeError(
                f"{op}: {name} should be {'greater than zero' if least else 'non-negative'}, but got "
                f"{numbers}"
            )
        made.append(numbers)
    return made


@primitive(
    surface=0, linear_in=("input",), samples="of nn.functional.unfold", public_name="unfold", batch_rule=folded,
    cuda="windows.gather_columns",
)
def gather_columns(input, kernel, dilation, padding, stride):
    """Windows of ``(N, C, H, W)`` as columns ``(N, C * KH * KW, L)``."""


gather_columns.in_pieces("n_*->n__")


@gather_columns.kernel
def _gather_columns(x, kernel, dilation, padding, stride):
    from flambeau_kernels.cpu.conv import gather_windows

    made = gather_windows(x, kernel, stride, padding, dilation)
    return made.reshape(x.shape[0], x.shape[1] * prod(kernel), prod(made.shape[4:]))


@gather_columns.shape
def _gather_columns_shape(input, kernel, dilation, padding, stride):
    positions = _positions(input.shape[2:], kernel, dilation, padding, stride)
    return (input.shape[0], input.shape[1] * prod(kernel), prod(positions)), input.dtype


@gather_columns.vjp
def _gather_columns_vjp(grad, input_shape, kernel, dilation, padding, stride):
    return fold_columns(grad, tuple(input_shape[2:]), kernel, dilation, padding, stride)


@primitive(
    surface=0, linear_in=("input",), samples="of nn.functional.fold", public_name="fold", batch_rule=folded, cuda="windows.fold_columns",
)
def fold_columns(input, extents, kernel, dilation, padding, stride):
    """Columns ``(N, C * KH * KW, L)`` added up where they came from in ``(N, C, *extents)``."""


fold_columns.in_pieces("n__->n_*")


@fold_columns.kernel
def _fold_columns(x, extents, kernel, dilation, padding, stride):
    from flambeau_kernels.cpu.conv import fold_windows, widened

    positions = _positions(extents, kernel, dilation, padding, stride)
    (wide,) = widened(x)
    windows = wide.reshape(x.shape[0], x.shape[1] // prod(kernel), *kernel, *positions)
    made = fold_windows(windows, tuple(extents), stride, padding, dilation)
    return np.ascontiguousarray(made.astype(x.dtype, copy=False))


@fold_columns.shape
def _fold_columns_shape(input, extents, kernel, dilation, padding, stride):
    return (input.shape[0], input.shape[1] // prod(kernel), *extents), input.dtype


@fold_columns.vjp
def _fold_columns_vjp(grad, kernel, dilation, padding, stride):
    return gather_columns(grad, kernel, dilation, padding, stride)


def _positions(extents: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> tuple[int, ...]:
    from flambeau_kernels.cpu.conv import output_size

    return tuple(
        output_size(n, k, s, p, p, d)
        for n, k, s, p, d in zip(extents, kernel, stride, padding, dilation, strict=True)
    )


@composite(
    namespace="nn.functional", operator="im2col(input, kernel_size, dilation, padding, stride)",
    samples="x(1, 2, 4, 5), 2; x(1, 2, 5, 5), (2, 3), 2, 1, 2",
)
def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """All windows of an image as columns: ``(N, C, H, W) -> (N, C * KH * KW, L)``, or without N; L windows.

    Args:
        kernel_size, dilation, padding, stride: of the windows, ints or pairs; as for `conv2d`.
    A convolution is a product of its weights with these columns.

    >>> F.unfold(fb.arange(4.0).reshape(1, 2, 2), kernel_size=(1, 2))
    tensor([[0., 2.],
            [1., 3.]])
    """
    kernel, dilation, padding, stride = _columns_settings("unfold", kernel_size, dilation, padding, stride)
    if input.ndim not in (3, 4) or 0 in input.shape[-3:]:
        raise RuntimeError(
            f"unfold: Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(input.shape)}"
        )
    positions = _positions(input.shape[-2:], kernel, dilation, padding, stride)
    if min(positions) < 1:
        raise RuntimeError(
            f"unfold: no window fits: kernel_size {kernel}, dilation {dilation}, padding {padding}, output "
            f"{positions}\n{describe(input=input)}"
        )
    x = input if input.ndim == 4 else input.unsqueeze(0)
    made = gather_columns(x, kernel, dilation, padding, stride)
    return made if input.ndim == 4 else made.squeeze(0)


unfold.plan(functools.partial(moves, unfold), by="shape")


@composite(namespace="nn.functional", samples="x(1, 8, 12), (4, 5), 2; x(1, 4, 9), (5, 5), 2, 1, 1, 2")
def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns added up where `unfold` took them from: ``(N, C * KH * KW, L) -> (N, C, *output_size)``, or without N.

    It is the transpose of `unfold`, not its inverse: an element is multiplied by the number of windows that
    see it.

    Args:
        output_size: an int or a pair (H, W).
        kernel_size, dilation, padding, stride: as for `unfold`.
    """
    kernel, dilation, padding, stride = _columns_settings("fold", kernel_size, dilation, padding, stride)
    extents = as_ints("fold", "output_size", output_size, 2)
    if input.ndim not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError(
            f"fold: Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero "
            f"dimensions for input, but got: {list(input.shape)}"
        )
    if input.shape[-2] % prod(kernel):
        raise RuntimeError(
            f"fold: Expected size of input's dimension 1 to be divisible by the product of kernel_size "
            f"{kernel}, but got input.size(1)={input.shape[-2]}"
        )
    positions = _positions(extents, kernel, dilation, padding, stride)
    if min(positions) < 1 or prod(positions) != input.shape[-1]:
        raise RuntimeError(
            f"fold: Given output_size={extents}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, stride={stride}, expected size of "
            f"input's dimension 2 to match the calculated number of sliding blocks {positions[0]} * "
            f"{positions[1]}, but got {input.shape[-1]}"
        )
    x = input if input.ndim == 3 else input.unsqueeze(0)
    made = fold_columns(x, extents, kernel, dilation, padding, stride)
    return made if input.ndim == 3 else made.squeeze(0)
