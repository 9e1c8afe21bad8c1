"""Convolutions: one primitive for both directions, the gradient of its weight, and the public forms."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ... import dtypes
from ..._symbolic import SymInt
from ...tensor import Tensor
from .._batching import run
from .._spec import CHANNELS, FUNCTION, OPS, check_room, composite, describe, need_int, primitive
from .._spec.plans import Plan

Ints = tuple[int, ...]


def as_sizes(op: str, name: str, value: Any, n: int) -> Ints:
    """`as_ints`, which leaves symbolic ints as they are."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(given) in (1, n) and any(x.__class__ is SymInt for x in given):
        made = tuple([x if x.__class__ is SymInt else as_ints(op, name, x, 1)[0] for x in given])
        return made * (n // len(made))
    return as_ints(op, name, value, n)


def as_ints(op: str, name: str, value: Any, n: int) -> Ints:
    """`value`, an int or a sequence of 1 or `n` of them, as a tuple of `n`. Raises: RuntimeError, TypeError otherwise."""
    if value.__class__ is int and -_MOST <= value <= _MOST:
        return (value,) * n
    if value.__class__ is tuple and len(value) == n and all(x.__class__ is int and -_MOST <= x <= _MOST for x in value):
        return value
    made = _as_ints(op, name, value, n)
    if any(not -_MOST <= x <= _MOST for x in made):
        kind = TypeError if isinstance(value, (tuple, list)) else ValueError  # as PyTorch
        raise kind(f"{op}(): argument '{name}' must be below 2**63: Overflow when unpacking long long")
    return made


_MOST = (1 << 63) - 1


def _as_ints(op: str, name: str, value: Any, n: int) -> Ints:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return (int(value),) * n
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_floating_point() and not value.is_complex():
        return (int(value.item()),) * n
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{op}(): argument '{name}' must be tuple of ints, not {type(value).__name__}")
    for x in value:
        if isinstance(x, (float, str, bool)) or x is None or isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex()):
            raise TypeError(f"{op}(): argument '{name}' must be tuple of ints, but it holds {x!r}")
    if len(value) == 1:
        return (int(value[0]),) * n
    if len(value) != n:
        raise RuntimeError(
            f"{op}: {name} must be one int or {n} of them, one for each spatial dimension; got {tuple(value)}"
        )
    return tuple(int(x) for x in value)


def conjugate(x: Tensor) -> Tensor:
    return x.conj() if x.is_complex() else x


def _conj(a: Any) -> Any:
    return a.conj() if a.dtype.kind == "c" else a


# -- the primitive -------------------------------------------------------------------------------------------


# What was found right is right again for the same shapes, dtypes and settings: looking it up takes a tenth of checking.
_found_right: dict[Any, Any] = {}
_MOST_FOUND = 1024
_INTS = frozenset((int,))


def _check_convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    settings = (stride, padding, dilation, output_padding)
    # Only of ints, because 1 and 1.0 are the same key; and what meta tensors may do, memory may not hold.
    if not input._lacks_values and all(s.__class__ is tuple for s in settings) and _INTS.issuperset(map(type, sum(settings, (groups,)))):
        a, w, b = input._array, weight._array, None if bias is None else bias._array
        key = (a.shape, a.dtype, w.shape, w.dtype, None if b is None else (b.shape, b.dtype), settings, transposed, groups)
        settled = _found_right.get(key)
        if settled is not None:
            return input, weight, bias, *settled
        checked = _check_anew(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        if len(_found_right) >= _MOST_FOUND:
            _found_right.clear()
        _found_right[key] = checked[3:]
        return checked
    return _check_anew(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _check_anew(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    from ..linear_algebra.products import _same_dtypes

    n = weight.ndim - 2
    operands = {"input": input, "weight": weight} | ({} if bias is None else {"bias": bias})
    if n < 1 or input.ndim != n + 2:
        raise RuntimeError(
            f"convolution: input must have {n + 2} dimensions to go with this weight, it has "
            f"{input.ndim}\n{describe(**operands)}"
        )
    _same_dtypes("convolution", **operands)
    if input.dtype in (dtypes.bool, dtypes.complex32):
        raise RuntimeError(
            f'"convolution" not implemented for {input.dtype}; convert the operands with .to(dtype) first'
        )
    if input.is_floating_point() and input.dtype not in dtypes.COMPUTED:
        raise NotImplementedError(f'"convolution" not implemented for {input.dtype}; convert the operands with .to(dtype) first')
    stride, padding, dilation, output_padding = (
        as_ints("convolution", name, value, n)
        for name, value in (
            ("stride", stride),
            ("padding", padding),
            ("dilation", dilation),
            ("output_padding", output_padding),
        )
    )
    groups = need_int("convolution", "groups", groups)
    _check_settings(stride, padding, dilation, output_padding, transposed, groups)
    _check_channels(input, weight, bias, transposed, groups, operands)
    _check_extent(input, weight, stride, padding, dilation, transposed, output_padding, operands)
    steps = zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding, strict=True)
    stride, dilation = zip(*[_nearest_steps(*each, transposed) for each in steps], strict=True)
    return input, weight, bias, stride, padding, dilation, bool(transposed), output_padding, groups


def _check_settings(
    stride: Ints, padding: Ints, dilation: Ints, output_padding: Ints, transposed: bool, groups: int
) -> None:
    if groups <= 0:
        raise RuntimeError(f"convolution: non-positive groups is not supported: groups must be positive, got {groups}")
    if min(stride) <= 0:
        raise RuntimeError(f"convolution: non-positive stride is not supported, got {stride}")
    if min(dilation) <= 0:
        raise RuntimeError(f"convolution: dilation should be greater than zero, got {dilation}")
    if min(padding) < 0 or min(output_padding) < 0:
        raise RuntimeError(
            f"convolution: negative padding is not supported, got padding {padding}, output_padding "
            f"{output_padding}"
        )
    if transposed and any(
        o >= s and o >= d for o, s, d in zip(output_padding, stride, dilation, strict=True)
    ):
        raise RuntimeError(
            f"convolution: output padding must be smaller than either stride or dilation, but got "
            f"output_padding {output_padding}, "
            f"stride {stride}, dilation {dilation}"
        )


def _nearest_steps(n: int, k: int, s: int, p: int, d: int, extra: int, transposed: bool) -> tuple[int, int]:
    """Stride and dilation that mean the same and lead nowhere far: a lone window has no next one, nor a lone tap."""
    if transposed:
        return min(s, extra + 1) if n == 1 else s, min(d, extra + 1) if k == 1 else d
    return min(s, n + 2 * p - d * (k - 1)), 1 if k == 1 else d


def _check_channels(input: Any, weight: Any, bias: Any, transposed: bool, groups: int, operands: Any) -> None:
    expects = weight.shape[0] if transposed else weight.shape[1] * groups
    if weight.shape[0] % groups or weight.shape[0] < groups:
        raise RuntimeError(
            f"convolution: Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight "
            f"of size {list(weight.shape)} instead; that dimension must be divisible by groups\n{describe(**operands)}"
        )
    way = "transposed=1" if transposed else f"groups={groups}"
    if input.shape[1] != expects:
        raise RuntimeError(
            f"convolution: Given {way}, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have {expects} channels, "
            f"but got {input.shape[1]} channels instead\n{describe(**operands)}"
        )
    makes = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and (bias.ndim != 1 or bias.shape[0] != makes):
        way = "transposed=1, " if transposed else ""
        raise RuntimeError(
            f"convolution: Given {way}weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {makes} elements, "
            f"but got bias of size {list(bias.shape)} instead\n{describe(**operands)}"
        )


def _text(sizes: Any) -> str:
    """Sizes as PyTorch writes them: ``2 x 3``."""
    return " x ".join(map(str, sizes))


def _check_extent(
    input: Any,
    weight: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    extra: Ints,
    operands: Any,
) -> None:
    kernel, spatial = tuple(weight.shape[2:]), tuple(input.shape[2:])
    if 0 in kernel:
        raise RuntimeError(f"convolution: kernel size must be positive\n{describe(**operands)}")
    if transposed:
        made = transposed_size(spatial, kernel, stride, padding, dilation, extra)
        if min(made) < 1 or (0 in spatial):
            raise RuntimeError(
                f"convolution: Given input size per channel: ({_text(spatial)}). Calculated output size per channel: ({_text(made)}). "
                f"Output size is too small\n{describe(**operands)}"
            )
        check_room("convolution", (input.shape[0], weight.shape[1], *made), input._array.itemsize, input._lacks_values)
        return
    for n, k, p, d in zip(spatial, kernel, padding, dilation, strict=True):
        if n + 2 * p < d * (k - 1) + 1:
            padded = [n + 2 * p for n, p in zip(spatial, padding, strict=True)]
            spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
            raise RuntimeError(
                f"convolution: Calculated padded input size per channel: ({_text(padded)}). Kernel size: ({_text(spans)}). "
                f"Kernel size can't be greater than actual input size\n{describe(**operands)}"
            )
    check_room(
        "convolution", (*input.shape[:2], *(n + 2 * p for n, p in zip(spatial, padding, strict=True))),
        input._array.itemsize, input._lacks_values,
    )


def transposed_size(
    spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, extra: Ints
) -> Ints:
    """Spatial extent of a transposed convolution."""
    return tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, k, s, p, d, e in zip(spatial, kernel, stride, padding, dilation, extra, strict=True)
    )


@primitive(
    tensors=("input", "weight", "bias"), check=_check_convolution, autocast=(None, "lower"), memory=CHANNELS, ordering=("input", "weight"),
    samples=(
        "x(1, 2, 6), x(3, 2, 3), x(3); x(1, 2, 5, 5), x(2, 2, 3, 3), x(2), (2, 1), (1, 0), (1, 1); "
        "x(1, 4, 5), x(4, 1, 3), None, 1, 0, 1, True, 0, 4"
    ),
    cuda="windows.convolution", costly=True,
)
def convolution(
    input, weight, bias=None, stride=1, padding=0, dilation=1, transposed=False, output_padding=0, groups=1
):
    """Cross-correlation over any spatial dimensions, or its transpose; under `conv1d` to `conv_transpose3d` call.

    Args:
        input: ``(N, C, *spatial)``.
        weight: ``(O, C / groups, *kernel)``; `transposed`, ``(C, O / groups, *kernel)``.
        bias: ``(O,)``, added to each output channel, or None.
        stride, padding, dilation, output_padding: an int, or one per spatial dimension; see `conv1d` and
            `conv_transpose1d`.
        transposed: compute the transpose of the linear map instead.
    Returns: ``(N, O, *)``.
    Raises: RuntimeError for channels, dtypes or extents that do not fit.
    """


convolution.shown_as(
    "ConvolutionBackward0", hides="bias_shape", input="input",
    bias_sym_sizes_opt=lambda saved: (0,) if saved["bias_shape"] is None else tuple(saved["bias_shape"]),
)  # fmt: skip
convolution.keeps_to_show("output_padding", "bias_shape")


@convolution.in_pieces
def _convolution_pieces(asked):
    weight = "co*" if asked["transposed"] else "oc*"
    return f"nc*,{weight},+o->no*" if asked["groups"] == 1 else "n_*,__*,_->n_*"


@convolution.kernel
def _convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups):
    from flambeau_kernels.cpu import conv as kernels
    from flambeau_kernels.cpu.shapes.layout import alike

    if transposed:
        spatial = transposed_size(x.shape[2:], w.shape[2:], stride, padding, dilation, output_padding)
        made = kernels.convolve_input(x, w, spatial, stride, padding, dilation, groups, b)
    else:
        made = kernels.convolve(x, w, stride, padding, dilation, groups, b)
    return alike(made, x, w)


@convolution.shape
def _convolution_shape(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    from flambeau_kernels.cpu.conv import output_size

    kernel, spatial = weight.shape[2:], input.shape[2:]
    if transposed:
        made = transposed_size(spatial, kernel, stride, padding, dilation, output_padding)
        return (input.shape[0], weight.shape[1] * groups, *made), input.dtype
    made = tuple(
        output_size(n, k, s, p, p, d)
        for n, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True)
    )
    return (input.shape[0], weight.shape[0], *made), input.dtype


@convolution.vjp
def _convolution_vjp(grad, input, weight, stride, padding, dilation, transposed, groups):
    spatial, kernel = tuple(input.shape[2:]), tuple(weight.shape[2:])

    def to_input():
        if transposed:
            return _crop(_forward(grad, conjugate(weight), stride, padding, dilation, groups), spatial)
        return _backward(grad, conjugate(weight), spatial, stride, padding, dilation, groups)

    def to_weight():
        if transposed:
            return convolution_weight(grad, conjugate(input), kernel, stride, padding, dilation, groups)
        return convolution_weight(conjugate(input), grad, kernel, stride, padding, dilation, groups)

    return to_input, to_weight, lambda: convolution_bias(grad, input, weight)


def _forward(x: Tensor, w: Tensor, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Tensor:
    return convolution(x, w, None, stride, padding, dilation, False, (0,) * len(stride), groups)


def _backward(
    y: Tensor, w: Tensor, spatial: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    least = transposed_size(y.shape[2:], w.shape[2:], stride, padding, dilation, (0,) * len(stride))
    extra = tuple(n - m for n, m in zip(spatial, least, strict=True))
    return convolution(y, w, None, stride, padding, dilation, True, extra, groups)


def _crop(x: Tensor, spatial: Ints) -> Tensor:
    for at, n in enumerate(spatial):
        if x.shape[at + 2] != n:
            x = x.narrow(at + 2, 0, n)
    return x


@convolution.vjp_on_arrays
def _convolution_vjp_on_arrays(grad, input, weight, stride, padding, dilation, transposed, groups):
    from flambeau_kernels.cpu import conv as kernels
    from flambeau_kernels.cpu.shapes.layout import ordered_as

    settings = (stride, padding, dilation, groups)
    kernel = weight.shape[2:]
    if transposed:
        return (
            lambda: ordered_as(kernels.cropped(kernels.convolve(grad, _conj(weight), *settings), input.shape[2:]), input),
            lambda: kernels.convolve_weight(grad, _conj(input), kernel, *settings),
            lambda: kernels.channel_sum(grad),
        )
    return (
        lambda: ordered_as(kernels.convolve_input(grad, _conj(weight), input.shape[2:], *settings), input),
        lambda: kernels.convolve_weight(_conj(input), grad, kernel, *settings),
        lambda: kernels.channel_sum(grad),
    )


@convolution.batch
def _convolution_batch(level: Any, op: Any, args: Any) -> Any:
    input, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args
    n = level.size
    rest = (stride, padding, dilation, transposed, output_padding)
    if not level.has(weight) and not level.has(bias):
        x = level.front(input)
        made = run(op, x.reshape(n * x.shape[1], *x.shape[2:]), weight, bias, *rest, groups)
        return level.wrap(made.reshape(n, x.shape[1], *made.shape[1:]))
    # Examples become groups of one convolution.
    x, w = level.full(input).transpose(0, 1), level.full(weight)  # (N, B, C, ...), (B, O, C, ...)
    x = x.reshape(x.shape[0], n * x.shape[2], *x.shape[3:])
    w = w.reshape(n * w.shape[1], *w.shape[2:])
    b = None if bias is None else level.full(bias).reshape(-1)
    made = run(op, x, w, b, *rest, groups * n)
    return level.wrap(made.reshape(made.shape[0], n, -1, *made.shape[2:]), 1)


@primitive(surface=0, tensors=("grad_output", "input", "weight"), samples="of convolution", cuda="windows.convolution_bias")
def convolution_bias(grad_output, input, weight):
    """What the bias receives: the sum of ``(N, O, *)`` over all but channels.

    `input` and `weight` take no part, but as in PyTorch the result requires grad wherever one of them does.
    """


convolution_bias.in_pieces("nc*,?,?->c")


@convolution_bias.kernel
def _convolution_bias(grad, input, weight):
    from flambeau_kernels.cpu.conv import channel_sum

    return channel_sum(grad)


@convolution_bias.shape
def _convolution_bias_shape(grad_output, input, weight):
    return (grad_output.shape[1],), grad_output.dtype


@convolution_bias.vjp(input=None, weight=None)
def _convolution_bias_vjp(grad, grad_output_shape):
    return grad.reshape(-1, *(1,) * (len(grad_output_shape) - 2)).expand(grad_output_shape), None, None


@primitive(
    surface=0, tensors=("input", "grad_output"), linear_in=("input", "grad_output"), samples="of convolution",
    cuda="windows.convolution_weight",
)
def convolution_weight(input, grad_output, kernel, stride, padding, dilation, groups):
    """What the weight of a convolution of `input` receives from the gradient of its output; linear in both."""


@convolution_weight.in_pieces
def _convolution_weight_pieces(asked):
    return "nc*,no*->oc*" if asked["groups"] == 1 else "n_*,n_*->__*"


@convolution_weight.kernel
def _convolution_weight(x, y, kernel, stride, padding, dilation, groups):
    from flambeau_kernels.cpu.conv import convolve_weight

    return convolve_weight(x, y, kernel, stride, padding, dilation, groups)


@convolution_weight.shape
def _convolution_weight_shape(input, grad_output, kernel, stride, padding, dilation, groups):
    return (grad_output.shape[1], input.shape[1] // groups, *kernel), input.dtype


@convolution_weight.vjp
def _convolution_weight_vjp(grad, input, grad_output, stride, padding, dilation, groups):
    spatial, positions = tuple(input.shape[2:]), tuple(grad_output.shape[2:])
    return (
        lambda: _backward(conjugate(grad_output), grad, spatial, stride, padding, dilation, groups),
        lambda: _crop(_forward(conjugate(input), grad, stride, padding, dilation, groups), positions),
    )


# -- public forms --------------------------------------------------------------------------------------------


def _batched(op: str, input: Any, weight: Any, n: int) -> tuple[Tensor, bool]:
    """`input` with a batch dimension, and whether it had one."""
    for name, x in (("input", input), ("weight", weight)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{op}(): argument '{name}' must be Tensor, not {type(x).__name__}")
    if weight.ndim != n + 2:
        raise RuntimeError(
            f"{op}: weight must have {n + 2} dimensions, it has "
            f"{weight.ndim}\n{describe(input=input, weight=weight)}"
        )
    if input.ndim == n + 2:
        return input, True
    if input.ndim != n + 1:
        raise RuntimeError(
            f"{op}: Expected {n + 1}D (unbatched) or {n + 2}D (batched) input, but input has {input.ndim} "
            f"dimensions\n"
            f"{describe(input=input, weight=weight)}"
        )
    return input.unsqueeze(0), False


def _convolve(
    op: str, n: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    x, batched = _batched(op, input, weight, n)
    stride, dilation = as_ints(op, "stride", stride, n), as_ints(op, "dilation", dilation, n)
    if isinstance(padding, str):
        x, padding = _padding_of(op, padding, x, tuple(weight.shape[2:]), stride, dilation)
    made = convolution(
        x, weight, bias, stride, as_ints(op, "padding", padding, n), dilation, False, (0,) * n, groups
    )
    return made if batched else made.squeeze(0)


def _padding_of(
    op: str, padding: str, x: Tensor, kernel: Ints, stride: Ints, dilation: Ints
) -> tuple[Tensor, Ints]:
    """The amounts the words 'valid' and 'same' stand for; an amount that 'same' cannot halve is put on `x` at the high end."""
    if padding == "valid":
        return x, (0,) * len(kernel)
    if padding != "same":
        raise RuntimeError(f"{op}: Invalid padding string: '{padding}'; give 'valid', 'same', or numbers")
    if any(s != 1 for s in stride):
        raise RuntimeError(
            f"{op}: padding='same' is not supported for strided convolutions, stride is {stride}"
        )
    total = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    odd = [t % 2 for t in total]
    if any(odd):
        from .padding import constant_pad_nd

        x = constant_pad_nd(x, [v for o in reversed(odd) for v in (0, o)], 0)
    return x, tuple(t // 2 for t in total)


def _convolve_transposed(
    op: str,
    n: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    x, batched = _batched(op, input, weight, n)
    made = convolution(
        x, weight, bias,
        as_ints(op, "stride", stride, n), as_ints(op, "padding", padding, n),
        as_ints(op, "dilation", dilation, n),
        True, as_ints(op, "output_padding", output_padding, n), groups,
    )  # fmt: skip
    return made if batched else made.squeeze(0)


@composite(
    surface=FUNCTION, aliases=("nn.functional.conv1d",), autocast="lower",
    samples="x(2, 2, 6), x(3, 2, 3), x(3); x(2, 4, 7), x(4, 2, 3), None, 2, 1, 1, 2; x(2, 6), x(3, 2, 3), padding='same'",
)
def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Kernels slid along sequences: ``(N, C, L), (O, C / groups, K) -> (N, O, L')``, or without N.

    ``out[n, o, t] = bias[o] + sum of weight[o, c, k] * input[n, c, t * stride + k * dilation - padding]``
    over c, k,
    with ``L' = (L + 2 * padding - dilation * (K - 1) - 1) // stride + 1``. The kernel is not flipped.

    Args:
        weight: ``(O, C / groups, K)``, of the dtype of `input`.
        bias: ``(O,)``, or None.
        stride: elements from one window to the next.
        padding: zeros on both sides, or 'valid' (none), or 'same' (as many as keep the length; stride 1 only).
        dilation: elements from one tap of the kernel to the next.
        groups: number of groups of channels that do not see each other; divides C and O.
    Raises: RuntimeError for channels, dtypes or extents that do not fit.

    >>> steps = fb.tensor([[1.0, 3.0, 2.0, 5.0]])
    >>> F.conv1d(steps, fb.tensor([[[-1.0, 1.0]]]))
    tensor([[ 2., -1.,  3.]])
    """
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@composite(
    surface=FUNCTION, aliases=("nn.functional.conv2d",), autocast="lower",
    samples=(
        "x(2, 2, 5, 5), x(3, 2, 3, 3), x(3); x(1, 4, 6, 5), x(4, 2, 3, 2), None, (2, 1), (1, 0), 1, 2; "
        "x(2, 5, 5), x(3, 2, 2, 2), dilation=2"
    ),
)
def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Kernels slid over images: ``(N, C, H, W), (O, C / groups, KH, KW) -> (N, O, H', W')``, or without N.

    Arguments as for `conv1d`; stride, padding and dilation are ints or pairs, rows first.

    >>> F.conv2d(fb.ones(1, 3, 8, 8), fb.ones(4, 3, 3, 3), stride=2, padding=1).shape
    torch.Size([1, 4, 4, 4])
    """
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@composite(
    surface=FUNCTION, aliases=("nn.functional.conv3d",), autocast="lower",
    samples="x(1, 2, 4, 4, 3), x(2, 2, 2, 2, 2), x(2); x(1, 2, 4, 4, 3), x(2, 1, 3, 2, 2), None, 2, 1, 1, 2",
)
def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Kernels slid through volumes: ``(N, C, D, H, W), (O, C / groups, KD, KH, KW) -> (N, O, D', H', W')``.

    N may be left out. Arguments as for `conv1d`; stride, padding and dilation are ints or triples, depth first.
    """
    return _convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@composite(
    surface=FUNCTION, aliases=("nn.functional.conv_transpose1d",), autocast="lower",
    samples="x(2, 2, 5), x(2, 3, 3), x(3); x(1, 4, 4), x(4, 1, 3), None, 2, 1, 1, 2",
)
def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The transpose of `conv1d` as a linear map: ``(N, C, L), (C, O / groups, K) -> (N, O, L')``.

    N may be left out. Each input element adds its product with a copy of the kernel to the output, `stride`
    elements further for each step.
    ``L' = (L - 1) * stride - 2 * padding + dilation * (K - 1) + output_padding + 1``.

    Args:
        weight: ``(C, O / groups, K)``: input channels come first.
        bias: ``(O,)``, or None.
        padding: elements cut off at both ends of the output.
        output_padding: how much longer the output is at its end, less than `stride` or `dilation`: several lengths
            have the same `conv1d`, and this says which of them is meant.
        stride, dilation, groups: as for `conv1d`.
    Raises: RuntimeError for channels, dtypes or extents that do not fit.

    >>> F.conv_transpose1d(fb.tensor([[1.0, 2.0]]), fb.tensor([[[1.0, 10.0, 100.0]]]), stride=2)
    tensor([[  1.,  10., 102.,  20., 200.]])
    """
    return _convolve_transposed(
        "conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@composite(
    surface=FUNCTION, aliases=("nn.functional.conv_transpose2d",), autocast="lower",
    samples="x(1, 2, 4, 4), x(2, 3, 3, 3), x(3); x(1, 2, 4, 3), x(2, 2, 2, 3), None, 2, (0, 1), (1, 0)",
)
def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The transpose of `conv2d`: ``(N, C, H, W), (C, O / groups, KH, KW) -> (N, O, H', W')``.

    N may be left out. Arguments as for `conv_transpose1d`, ints or pairs.
    """
    return _convolve_transposed(
        "conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@composite(
    surface=FUNCTION, aliases=("nn.functional.conv_transpose3d",), autocast="lower",
    samples="x(1, 2, 3, 3, 2), x(2, 2, 2, 2, 2), x(2); x(1, 2, 2, 3, 2), x(2, 1, 2, 2, 2), None, 2",
)
def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The transpose of `conv3d`: ``(N, C, D, H, W), (C, O / groups, KD, KH, KW) -> (N, O, D', H', W')``.

    N may be left out. Arguments as for `conv_transpose1d`, ints or triples.
    """
    return _convolve_transposed(
        "conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def _planned_convolution(
    op: str, n: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int,
    transposed: bool = False, output_padding: Any = 0,
) -> Plan | None:  # fmt: skip
    """The plan of a convolution, of operands in rows or with their channels last."""
    from flambeau_kernels.cpu import conv as kernels
    from flambeau_kernels.cpu.shapes.layout import alike
    from flambeau_kernels.cpu.shapes.order import is_last

    x, batched = _batched(op, input, weight, n)
    last = [t._array for t in (x, weight) if is_last(t._array)]
    if len(last) + sum(t._array.flags.c_contiguous for t in (x, weight)) < 2 or bias is not None and not bias._array.flags.c_contiguous:
        return None
    if isinstance(padding, str):
        stride, dilation = as_ints(op, "stride", stride, n), as_ints(op, "dilation", dilation, n)
        padded, padding = _padding_of(op, padding, x, tuple(weight.shape[2:]), stride, dilation)
        if padded is not x:
            return None
    settings = _check_anew(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)[3:]
    made = _convolution_shape(x, weight, bias, *settings)[0][2:]
    run = kernels.planned(x._array, weight._array, made, *settings[:3], groups, transposed)
    if run is None:
        return None
    if last:
        return Plan(lambda x, w, b: alike(run(x, w, b), x, w), convolution, lambda _, *tensors: (*tensors, *settings)) if batched else None
    if not batched:                                   # the node is of the batch of one
        return Plan(lambda x, *rest: run(x[None], *rest)[0])
    return Plan(run, convolution, lambda _, *tensors: (*tensors, *settings))


def _planned_transposed(op, n, input, weight, bias, stride, padding, output_padding, groups, dilation):
    return _planned_convolution(op, n, input, weight, bias, stride, padding, dilation, groups, True, output_padding)


for _n, _ops in enumerate(((conv1d, conv_transpose1d), (conv2d, conv_transpose2d), (conv3d, conv_transpose3d)), 1):
    for _op, _plan in zip(_ops, (_planned_convolution, _planned_transposed), strict=True):
        _op.plan(partial(_plan, _op.name, _n), by="strides", tensors=("input", "weight", "bias"))


@composite(
    surface=FUNCTION, aliases=("nn.functional.conv_tbc",), autocast="lower",
    reads_parts=True, samples="x(5, 2, 3), x(3, 3, 2), x(2), 1",
)
def conv_tbc(input, weight, bias, pad=0):
    """`conv1d` of sequences with time first: ``(T, B, C), (K, C, O), (O,) -> (T + 2 * pad - K + 1, B, O)``.

    Args:
        weight, bias: ``(K, C, O)`` and ``(O,)``; both are needed.
        pad: zeros at both ends.
    Raises: RuntimeError for operands of other ranks or sizes.
    """
    if input.ndim != 3 or weight.ndim != 3:
        raise RuntimeError(
            f"conv_tbc: Input must have 3 dims: time, batch, in_channel; weight: kernel, in_channel, "
            f"out_channel\n{describe(input=input, weight=weight)}"
        )
    if not input.shape[0]:                            # no convolution is without a length, but the zeros have one
        input, pad = OPS["constant_pad_nd"].function(input, (0, 0, 0, 0, pad, pad)), 0
    made = convolution(
        input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, (1,), (pad,), (1,), False, (0,), 1
    )
    return made.permute(2, 0, 1)
