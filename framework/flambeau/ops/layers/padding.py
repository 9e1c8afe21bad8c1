"""Padding: constants, reflections and repetitions of the edge around the last dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

from flambeau_kernels.cpu.shapes.order import is_last

from ..._symbolic import SymFloat, SymInt
from ...dtypes import FLOATING
from ...tensor import Tensor
from .._batching import leading
from .._spec import CHANNELS, FUNCTION, composite, describe, need_sizes, primitive
from .._spec.pieces import batches_of
from .._spec.plans import Plan, moves

Pairs = tuple[tuple[int, int], ...]


def _pairs(op: str, input: Tensor, pad: Any) -> Pairs:  # PyTorch's name
    """`pad`, given from the last dimension backwards, as ``(before, after)`` from the first padded dimension on."""
    amounts = need_sizes(op, "pad", pad)
    if len(amounts) % 2:
        raise RuntimeError(f"{op}: Padding length must be divisible by 2, got {len(amounts)}")
    if len(amounts) > 2 * input.ndim:
        raise RuntimeError(
            f"{op}: Padding length should be less than or equal to two times the input dimension but got padding length {len(amounts)} "
            f"and input of dimension {input.ndim}"
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
def constant_pad_nd(input, pad: Sequence[int], value=0):
    """`input` with `value` around it; `pad` is as for `nn.functional.pad`."""
    return pad_constant(input, _pairs("constant_pad_nd", input, pad), value)


@primitive(
    surface=0, linear_in=(), memory=CHANNELS, samples="of nn.functional.pad", public_name="pad", batch_rule=leading,
    cuda="moves.pad_constant", deferrable=True,
)
def pad_constant(input, pairs, value):
    """`input` with ``(before, after)`` elements of `value` around its last dimensions."""


# From the last dimension to the first, as `pad` takes them.
def _sides(saved: Any) -> tuple[int, ...]:
    """What nodes show of the pairs of sizes: the last dimension's first, as programs give them."""
    return tuple([n for pair in reversed(saved["pairs"]) for n in pair])


pad_constant.shown_as("ConstantPadNdBackward0", hides="pairs", pad=_sides)


@pad_constant.in_pieces
def _pad_constant_pieces(asked):
    first = asked.operands[0].ndim - len(asked["pairs"])
    kept = [*range(first), *[first + i for i, pair in enumerate(asked["pairs"]) if tuple(pair) == (0, 0)]]
    return [asked.way(dict.fromkeys(range(len(asked.operands)), d), d) for d in kept]


@pad_constant.kernel
def _pad_constant(x, pairs, value):
    from flambeau_kernels.cpu.shapes.layout import alike, planar
    from flambeau_kernels.cpu.shapes.pad import pad_constant as kernel
    from flambeau_kernels.cpu.shapes.pad import pad_images

    return pad_images(x, pairs, "constant", value) if _are_images(x, pairs) else alike(kernel(planar(x), pairs, value), x)


def _are_images(x: Any, pairs: Pairs) -> bool:
    """Whether channels lie last in memory and are not padded."""
    return is_last(x) and len(pairs) <= x.ndim - 2


@pad_constant.shape
def _pad_constant_shape(input, pairs, value):
    return _padded_shape(input, pairs), input.dtype


def _padded_shape(input: Tensor, pairs: Pairs) -> tuple[int, ...]:
    lead = input.ndim - len(pairs)
    return (*input.shape[:lead], *(n + a + b for n, (a, b) in zip(input.shape[lead:], pairs, strict=True)))


@pad_constant.vjp
def _pad_constant_vjp(grad, pairs):
    return pad_constant(grad, tuple((-a, -b) for a, b in pairs), 0)


@pad_constant.vjp_on_arrays(memory=CHANNELS)
def _pad_constant_vjp_on_arrays(grad, pairs):
    from flambeau_kernels.cpu.shapes.pad import pad_constant as kernel
    from flambeau_kernels.cpu.shapes.pad import pad_images

    cut = tuple((-a, -b) for a, b in pairs)
    return pad_images(grad, cut, "constant") if _are_images(grad, pairs) else kernel(grad, cut, 0)


@primitive(
    surface=0, linear_in=("input",), memory=CHANNELS, samples="of nn.functional.pad", public_name="pad", batch_rule=leading,
    deferrable=True,
)
def pad_mode(input, pairs, mode):
    """`input` padded from its own elements: 'reflect', 'replicate' or 'circular'."""


_KINDS = {"reflect": "Reflection", "replicate": "Replication", "circular": "Circular"}
pad_mode.shown_by(
    "titled[TITLES[mode][len(pairs)]]", TITLES={mode: [f"{kind}Pad{n}DBackward0" for n in range(4)] for mode, kind in _KINDS.items()}
)
pad_mode.shown_as(hides="pairs mode", padding=_sides)


pad_mode.in_pieces(lambda asked: batches_of(len(asked["pairs"]), 1, 1))


@pad_mode.kernel
def _pad_mode(x, pairs, mode):
    from flambeau_kernels.cpu.shapes.layout import alike, planar
    from flambeau_kernels.cpu.shapes.pad import pad_images
    from flambeau_kernels.cpu.shapes.pad import pad_mode as kernel

    return pad_images(x, pairs, mode) if _are_images(x, pairs) else alike(kernel(planar(x), pairs, mode), x)


@pad_mode.shape
def _pad_mode_shape(input, pairs, mode):
    return _padded_shape(input, pairs), input.dtype


@pad_mode.vjp
def _pad_mode_vjp(grad, input, pairs, mode):
    return fold_pad(grad, input, pairs, mode)


@pad_mode.vjp_on_arrays(memory=CHANNELS)
def _pad_mode_vjp_on_arrays(grad, input, pairs, mode):
    return _fold_pad(grad, input, pairs, mode)


# The transposes of linear ops take `input` for its shape; being an operand it also makes the result require
# grad where `input` does, as PyTorch's do.


@primitive(surface=0, tensors=("grad", "input"), memory=CHANNELS, ordering=("grad",), samples="of nn.functional.pad")
def fold_pad(grad, input, pairs, mode):
    """The transpose of `pad_mode` of `input`."""


fold_pad.in_pieces(lambda asked: batches_of(len(asked["pairs"]), 2, 1))


@fold_pad.kernel
def _fold_pad(grad, x, pairs, mode):
    from flambeau_kernels.cpu.shapes.pad import fold_pad as kernel

    return kernel(grad, x.shape[x.ndim - len(pairs) :], pairs, mode)


@fold_pad.shape
def _fold_pad_shape(grad, input, pairs, mode):
    return input.shape, grad.dtype


@fold_pad.vjp(input=None)
def _fold_pad_vjp(grad, pairs, mode):
    return pad_mode(grad, pairs, mode), None


@composite(
    namespace="nn.functional", operator="constant_pad_nd(input, pad, value)",
    samples=(
        "x(2, 3), (1, 2), value=1.5; x(2, 3, 4), (2, 1), 'reflect'; x(1, 2, 3, 4), (1, 0, 2, 1), 'replicate'; "
        "x(2, 3, 4), (1, 3), 'circular'"
    ),
)
def pad(input, pad: Sequence[int], mode="constant", value=None):
    """`input` with elements around it, in the unit of `input`.

    Args:
        pad: amounts ``(before, after)`` of the last dimension, then of the one before it, and so on.
        mode: 'constant' (`value`, 0 by default; negative amounts cut), 'reflect' (mirrored, without the edge itself),
            'replicate' (the edge) or 'circular' (wrapped around). The last three pad the last 1, 2 or 3 dimensions of
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

    def padded(input, padding: int | Sequence[int]):
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
    if not isinstance(mode, str):
        raise TypeError(f"pad(): argument 'mode' (position 3) must be str, not {type(mode).__name__}")
    if value is not None and not isinstance(value, (Real, Tensor, SymInt, SymFloat)):
        raise TypeError(f"pad(): argument 'value' (position 4) must be float, not {type(value).__name__}")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 and input.dtype.category < FLOATING:
        raise RuntimeError(f"pad: value cannot be converted to type int64_t without overflow: 'value' is {value}")
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


@pad.plan(by="strides")
def _planned_pad(input, pad, mode, value):
    from flambeau_kernels.cpu.shapes.pad import planned_constant, planned_images, planned_mode

    pairs = _checked_pairs(input, pad, mode, value)
    a = input._array
    if value.__class__ is int and not -1 << 63 <= value < 1 << 63:
        return None
    if _are_images(a, pairs) and mode != "circular":
        fill = 0 if value is None else value
        run = planned_images(a, pairs, mode, fill)
        if mode == "constant":
            return run and Plan(run, pad_constant, lambda _, x: (x, pairs, fill))
        return run and Plan(run, pad_mode, lambda _, x: (x, pairs, mode))
    if not a.flags.c_contiguous:
        return None
    if mode == "constant":
        value = 0 if value is None else value
        run = planned_constant(input._array, pairs, value)
        return run and Plan(run, pad_constant, lambda _, x: (x, pairs, value))
    run = planned_mode(input._array, pairs, mode)
    plan = moves(pad_mode, input, pairs, mode) if run is None else Plan(run)
    return plan and Plan(plan.run, pad_mode, lambda _, x: (x, pairs, mode))


# Called by its own name, `pad` is a parameter.
_pad = pad

constant_pad_nd.forwards(lambda input, pad, value: _pad.answer(input, pad, "constant", value))


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
