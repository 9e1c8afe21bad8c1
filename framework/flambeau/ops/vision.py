"""Padding, resampling and rearrangement of images."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from ._spec import FUNCTION, composite, describe, primitive

Pairs = tuple[tuple[int, int], ...]


# -- padding ---------------------------------------------------------------------------------------------------------------


def _pairs(op: str, input: Tensor, pad: Any) -> Pairs:  # noqa: A002  # PyTorch's name
    """`pad`, given from the last dimension backwards, as ``(before, after)`` from the first padded dimension on."""
    amounts = [int(p) for p in (pad.tolist() if isinstance(pad, Tensor) else pad)]
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
                f"{op}: The input size {input.shape[at]}, plus negative padding {a} and {b}, resulted in a negative output size, "
                f"which is invalid. Check dimension {at} of your input"
            )
    return pairs


@composite(surface=FUNCTION)
def constant_pad_nd(input, pad, value=0):
    """`input` with `value` around it; `pad` lists amounts before and after, from the last dimension backwards."""
    return pad_constant(input, _pairs("constant_pad_nd", input, pad), value)


@primitive(surface=0, linear_in=())
def pad_constant(input, pairs, value):
    """`input` with ``(before, after)`` elements of `value` around its last dimensions."""


@pad_constant.kernel
def _pad_constant(x, pairs, value):
    from flambeau_kernels.cpu.pad import pad_constant as kernel

    return kernel(x, pairs, value)


@pad_constant.shape
def _pad_constant_shape(input, pairs, value):
    return _padded_shape(input, pairs), input.dtype


def _padded_shape(input: Tensor, pairs: Pairs) -> tuple[int, ...]:  # noqa: A002
    lead = input.ndim - len(pairs)
    return (*input.shape[:lead], *(n + a + b for n, (a, b) in zip(input.shape[lead:], pairs, strict=True)))


@pad_constant.vjp
def _pad_constant_vjp(grad, pairs):
    return pad_constant(grad, tuple((-a, -b) for a, b in pairs), 0)


@pad_constant.raw
def _pad_constant_raw(grad, pairs):
    from flambeau_kernels.cpu.pad import pad_constant as kernel

    return kernel(grad, tuple((-a, -b) for a, b in pairs), 0)


@primitive(surface=0, linear_in=("input",))
def pad_mode(input, pairs, mode):
    """`input` padded from its own elements: 'reflect', 'replicate' or 'circular'."""


@pad_mode.kernel
def _pad_mode(x, pairs, mode):
    from flambeau_kernels.cpu.pad import pad_mode as kernel

    return kernel(x, pairs, mode)


@pad_mode.shape
def _pad_mode_shape(input, pairs, mode):
    return _padded_shape(input, pairs), input.dtype


@pad_mode.vjp
def _pad_mode_vjp(grad, input, pairs, mode):
    return fold_pad(grad, input, pairs, mode)


@pad_mode.raw
def _pad_mode_raw(grad, input, pairs, mode):
    return _fold_pad(grad, input, pairs, mode)


# The transposes of linear ops take `input` for its shape; being an operand it also makes the result require grad where
# `input` does, as PyTorch's do.


@primitive(surface=0, tensors=("grad", "input"))
def fold_pad(grad, input, pairs, mode):
    """The transpose of `pad_mode` of `input`."""


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


@composite(namespace="nn.functional")
def pad(input, pad, mode="constant", value=None):
    """`input` with elements around it; `pad` lists amounts before and after, from the last dimension backwards.

    Args:
        mode: 'constant' (`value`, 0 by default; negative amounts cut), 'reflect' (mirrored, without the edge itself),
            'replicate' (the edge) or 'circular' (wrapped around).
    Raises: RuntimeError, ValueError, NotImplementedError for amounts or dimensions the mode does not go with.
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"pad(): argument 'input' must be Tensor, not {type(input).__name__}")
    pairs = _pairs("pad", input, pad)
    if mode == "constant":
        return pad_constant(input, pairs, 0 if value is None else value)
    if value is not None and value != 0:
        raise ValueError(f"pad: Padding mode \"{mode}\" doesn't take in value argument, got {value!r}")
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"pad: Unrecognised padding mode {mode}; there are constant, reflect, replicate and circular")
    n = len(pairs)
    if not (1 <= n <= 3 and input.ndim in (n + 1, n + 2)):
        raise NotImplementedError(
            f"pad: mode '{mode}' pads the last 1, 2 or 3 dimensions of inputs with 1 or 2 more; got {2 * n} amounts for an input "
            f"with {input.ndim} dimensions"
        )
    for at, (a, b) in enumerate(pairs, input.ndim - n):
        _check_reach(mode, input, at, a, b)
    return pad_mode(input, pairs, mode)


def _check_reach(mode: str, input: Tensor, dim: int, a: int, b: int) -> None:  # noqa: A002
    size = input.shape[dim]
    if mode == "reflect" and max(a, b) >= size:
        raise RuntimeError(
            f"pad: Padding size should be less than the corresponding input dimension, but got: padding ({a}, {b}) at dimension {dim}\n"
            f"{describe(input=input)}"
        )
    if mode == "circular" and max(a, b) > size:
        raise RuntimeError(
            f"pad: Padding value causes wrapping around more than once: padding ({a}, {b}) at dimension {dim}\n{describe(input=input)}"
        )
    if size + a + b <= 0 or (size == 0):
        raise RuntimeError(
            f"pad: Expected the padded dimension {dim} to have elements: size {size}, padding ({a}, {b})\n{describe(input=input)}"
        )
