"""Images: rearrangement of pixels and channels, and windows as columns."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.cpu.shapes.order import is_ordered_last

from ...devices import contiguous_format
from ...tensor import Tensor
from .._batching import folded
from .._spec import FUNCTION, composite, describe, need_int, primitive
from .._spec.plans import Plan, moves
from ..layers.conv import as_ints, as_sizes

# -- rearrangement -------------------------------------------------------------------------------------------


class Rearrangement(NamedTuple):
    """How elements come to other places: dimensions are put in order, split, put in order, copied, joined, and put in order again."""

    before: tuple[int, ...]                           # no dimensions: as they are
    split: tuple[int, ...]
    order: tuple[int, ...]
    joined: tuple[int, ...]
    after: tuple[int, ...]

    def of_tensor(self, input: Tensor) -> Tensor:
        split = (input.permute(self.before) if self.before else input).reshape(self.split)
        joined = split.permute(self.order).clone(memory_format=contiguous_format).reshape(self.joined)
        return joined.permute(self.after) if self.after else joined

    def planned(self, a: np.ndarray) -> Plan | None:
        """The plan for arrays like `a`, whose dimensions can be split without a copy."""
        from flambeau_kernels.cpu.shapes import permuted

        split = (a.transpose(self.before) if self.before else a).reshape(self.split)
        if not np.may_share_memory(split, a):
            return None
        copy, joined, after, dtype = permuted.planned(split.transpose(self.order)), self.joined, self.after, a.dtype

        def run(a: np.ndarray) -> np.ndarray:
            out = np.empty(joined, dtype)
            copy(a, out)
            return out.transpose(after) if after else out

        return Plan(run)


def _planned(op: Any, rearrangement: Any, input: Any, *args: Any) -> Plan | None:
    """Few elements are moved one by one, others by the loops that `rearrangement` of the arguments comes to."""
    from flambeau_kernels.cpu.shapes import permuted

    a = input._array
    moved = moves(op, input, *args) if a.flags.c_contiguous else None
    if moved is not None or not permuted.takes(a):
        return moved
    op.run(input, *args)                              # which has the checks
    return rearrangement(input, *args).planned(a)


def _pixels_shuffled(input: Tensor, r: int) -> Rearrangement:
    *lead, c, h, w = input.shape
    b = len(lead)
    if is_ordered_last(input._array) and b == 1:
        joined = (*lead, h * r, w * r, c // (r * r))
        return Rearrangement((0, 2, 3, 1), (*lead, h, w, c // (r * r), r, r), (0, 1, 4, 2, 5, 3), joined, (0, 3, 1, 2))
    order = (*range(b), b, b + 3, b + 1, b + 4, b + 2)
    return Rearrangement((), (*lead, c // (r * r), r, r, h, w), order, (*lead, c // (r * r), h * r, w * r), ())


def _pixels_unshuffled(input: Tensor, r: int) -> Rearrangement:
    *lead, c, h, w = input.shape
    b = len(lead)
    if is_ordered_last(input._array) and b == 1:
        joined = (*lead, h // r, w // r, c * r * r)
        return Rearrangement((0, 2, 3, 1), (*lead, h // r, r, w // r, r, c), (0, 1, 3, 5, 2, 4), joined, (0, 3, 1, 2))
    order = (*range(b), b, b + 2, b + 4, b + 1, b + 3)
    return Rearrangement((), (*lead, c, h // r, r, w // r, r), order, (*lead, c * r * r, h // r, w // r), ())


def _channels_shuffled(input: Tensor, groups: int) -> Rearrangement:
    n, c, *space = input.shape
    ndim = input.ndim
    if is_ordered_last(input._array):
        order = (*range(ndim - 1), ndim, ndim - 1)
        split = (n, *space, groups, c // groups)
        return Rearrangement((0, *range(2, ndim), 1), split, order, (n, *space, c), (0, ndim - 1, *range(1, ndim - 1)))
    order = (0, 2, 1, *range(3, ndim + 1))
    return Rearrangement((), (n, groups, c // groups, *space), order, tuple(input.shape), ())


@composite(surface=FUNCTION, aliases=("nn.functional.pixel_shuffle",), samples="x(1, 8, 2, 3), 2")
def pixel_shuffle(input, upscale_factor: int):
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
    if r * r >= 1 << 63:
        raise ValueError(f"pixel_shuffle: upscale factor is too large, (upscale_factor)^2 overflowed: upscale_factor={r}")
    c = input.shape[-3]
    if c % (r * r):
        raise RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
            f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}"
        )
    return _pixels_shuffled(input, r).of_tensor(input)


pixel_shuffle.result_shown_as("PixelShuffleBackward0")


@composite(surface=FUNCTION, aliases=("nn.functional.pixel_unshuffle",), samples="x(1, 2, 4, 6), 2")
def pixel_unshuffle(input, downscale_factor: int):
    """Pixels become channels: ``(*, C, H * r, W * r) -> (*, C * r * r, H, W)`` with r the `downscale_factor`."""
    r = need_int("pixel_unshuffle", "downscale_factor", downscale_factor)
    if input.ndim < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.ndim} "
            f"dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    h, w = input.shape[-2:]
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but {h} x {w} "
            f"is not divisible by {r}"
        )
    if input.numel() == 0:
        return input.clone()
    return _pixels_unshuffled(input, r).of_tensor(input)


pixel_unshuffle.result_shown_as("PixelUnshuffleBackward0")


@composite(
    surface=FUNCTION,
    aliases=(
        "native_channel_shuffle",
        "nn.functional.channel_shuffle",
        "nn.functional.native_channel_shuffle",
    ),
    samples="x(1, 6, 2), 3",
)
def channel_shuffle(input, groups: int):
    """``(N, C, *)`` with its channels dealt out of `groups` groups in turn; `groups` divides C.

    Source: Zhang et al. 2017, "ShuffleNet".

    >>> F.channel_shuffle(fb.arange(4).reshape(1, 4, 1), 2).flatten()
    tensor([0, 2, 1, 3])
    """
    if input.ndim < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}"
        )
    need_int("channel_shuffle", "groups", groups)
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups: {groups}"
        )
    c = input.shape[1]
    if c % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups."
        )
    if input.numel() == 0:
        return input.clone()
    return _channels_shuffled(input, groups).of_tensor(input)


channel_shuffle.result_shown_as("ChannelShuffleBackward0")


for _op, _how in ((pixel_shuffle, _pixels_shuffled), (pixel_unshuffle, _pixels_unshuffled), (channel_shuffle, _channels_shuffled)):
    _op.plan(functools.partial(_planned, _op, _how), by="strides")


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


gather_columns.shown_as(
    "Im2ColBackward0", hides="input_shape", kernel_size="kernel",
    self_sym_argsize_minus_1=lambda saved: saved["input_shape"][-1], self_sym_argsize_minus_2=lambda saved: saved["input_shape"][-2],
)  # fmt: skip


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


@gather_columns.vjp_on_arrays
def _gather_columns_vjp_on_arrays(grad, input_shape, kernel, dilation, padding, stride):
    return (_fold_columns(grad, tuple(input_shape[2:]), kernel, dilation, padding, stride),)


@gather_columns.vjp
def _gather_columns_vjp(grad, input_shape, kernel, dilation, padding, stride):
    return fold_columns(grad, tuple(input_shape[2:]), kernel, dilation, padding, stride)


@primitive(
    surface=0, linear_in=("input",), samples="of nn.functional.fold", public_name="fold", batch_rule=folded, cuda="windows.fold_columns",
)
def fold_columns(input, extents, kernel, dilation, padding, stride):
    """Columns ``(N, C * KH * KW, L)`` added up where they came from in ``(N, C, *extents)``."""


fold_columns.shown_as("Col2ImBackward0", kernel_size="kernel")


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


@fold_columns.vjp_on_arrays
def _fold_columns_vjp_on_arrays(grad, kernel, dilation, padding, stride):
    return (_gather_columns(grad, kernel, dilation, padding, stride),)


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
def unfold(input, kernel_size: int | Sequence[int], dilation=1, padding=0, stride=1):
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


@composite(
    namespace="nn.functional", operator="col2im(input, output_size, kernel_size, dilation, padding, stride)",
    samples="x(1, 8, 12), (4, 5), 2; x(1, 4, 9), (5, 5), 2, 1, 1, 2",
)
def fold(input, output_size: int | Sequence[int], kernel_size: int | Sequence[int], dilation=1, padding=0, stride=1):
    """Columns added up where `unfold` took them from: ``(N, C * KH * KW, L) -> (N, C, *output_size)``, or without N.

    It is the transpose of `unfold`, not its inverse: an element is multiplied by the number of windows that see it.

    Args:
        output_size: an int or a pair (H, W).
        kernel_size, dilation, padding, stride: as for `unfold`.
    """
    settings = _settings_of_fold(input, output_size, kernel_size, dilation, padding, stride)
    x = input if input.ndim == 3 else input.unsqueeze(0)
    made = fold_columns(x, *settings)
    return made if input.ndim == 3 else made.squeeze(0)


def _settings_of_fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> tuple[Any, ...]:
    """The arguments of `fold_columns` behind its operand. Raises: RuntimeError, TypeError for others than go together."""
    kernel, dilation, padding, stride = _columns_settings("fold", kernel_size, dilation, padding, stride)
    extents = as_sizes("fold", "output_size", output_size, 2)
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
    return extents, kernel, dilation, padding, stride


@fold.plan(by="shape")
def _fold_planned(input, *settings):
    a, found = input._array, _settings_of_fold(input, *settings)
    if a.dtype.char not in "fd" or not a.size:
        return None
    if a.ndim == 3:
        return Plan(lambda a: _fold_columns(a, *found), fold_columns, lambda _, x: (x, *found))
    return Plan(lambda a: _fold_columns(a[None], *found)[0])
