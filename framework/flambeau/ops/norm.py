"""Normalization layers as functions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import flambeau_kernels as kernels

from .. import _state, dtypes
from .._arrays import MetaArray
from ..dtypes import FLOAT32, FLOAT64
from ..tensor import Tensor, bump, wrap
from ._batching import as_channels, run, scaled, unfolded
from ._spec import (
    CHANNELS,
    CHANNELS_OF_DENSE,
    EXACTLY,
    FUNCTION,
    OPS,
    OUT,
    InRows,
    check_room,
    composite,
    describe,
    need_number,
    primitive,
)
from ._spec.memory import in_memory_order
from ._spec.plans import Plan

Moments = Any  # flambeau_kernels.cpu.norm.Moments


def _moments() -> Moments:
    from flambeau_kernels.cpu.norm import Moments

    return Moments()


@primitive(surface=0, tensors=("value", "other"), samples="of where", cuda="rows.depends_on")
def depends_on(value, other):
    """`value`, which requires grad also where `other` does, though it does not depend on it.

    PyTorch computes the gradients of a layer's operands in one function, so each of them counts as depending
    on all.
    """


depends_on.in_pieces("...,?->...")


@depends_on.kernel
def _link(value, other):
    return value


depends_on.shape(lambda value, other: (value.shape, value.dtype, value._array.strides))


@depends_on.vjp
def _link_vjp(grad):
    return grad, None


def check_floating(op: str, **operands: Any) -> None:
    """Raise RuntimeError unless the operands are real floating, alike, or float32 parameters beside half
    inputs."""
    input = operands["input"]  # the public name
    d = input._array.dtype
    if (d is FLOAT32 or d is FLOAT64) and all([x is None or x._array.dtype is d for x in operands.values()]):  # noqa: C419  # sooner than a generator
        return
    if input.dtype.category != dtypes.FLOATING:
        raise RuntimeError(
            f'"{op}" not implemented for {input.dtype}; convert the input with .to(dtype) first'
        )
    half = input.dtype in (dtypes.float16, dtypes.bfloat16)
    for x in operands.values():
        if x is not None and x.dtype is not input.dtype and not (half and x.dtype is dtypes.float32):
            raise RuntimeError(
                f"{op}: expected operands of one dtype, or float32 parameters beside half "
                f"inputs\n{describe(**operands)}"
            )


def _like(value: Tensor, parameter: Tensor | None) -> Tensor:
    return value if parameter is None or value.dtype is parameter.dtype else value.to(parameter.dtype)


def _cast(a: Any, dtype: np.dtype) -> Any:
    return a if a is None or a.dtype == dtype else a.astype(dtype)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (dtypes.float16, dtypes.bfloat16) else x


# -- layer and root mean square ------------------------------------------------------------------------------


def _trailing(op: str, input: Any, normalized_shape: Any, **parameters: Any) -> tuple[int, ...]:
    """`normalized_shape` as a tuple. Raises: RuntimeError unless input ends in it and parameters have it."""
    shape = (
        (int(normalized_shape),)
        if isinstance(normalized_shape, int)
        else tuple(int(n) for n in normalized_shape)
    )
    if not shape:
        raise RuntimeError(
            f"{op}: Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            f"element, but got normalized_shape = {list(shape)}"
        )
    for name, p in parameters.items():
        if p is not None and p._array.shape != shape:
            raise RuntimeError(
                f"{op}: Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(p.shape)} and normalized_shape = {list(shape)}"
            )
    if input._array.shape[-len(shape) :] != shape:
        raise RuntimeError(
            f"{op}: Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {str(list(shape))[1:-1]}], but got input of size{list(input.shape)}"
        )
    return shape


def _check_layer(input, normalized_shape, weight, bias, eps, keep):
    shape = _trailing("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    check_floating("layer_norm", input=input, weight=weight, bias=bias)
    return input, shape, weight, bias, eps, keep or _moments()


@primitive(
    surface=0, tensors=("input", "weight", "bias"), check=_check_layer, autocast=(None, "float32"),
    samples="of nn.functional.layer_norm",
    public_name="layer_norm",
    cuda="rows.normalize_trailing",
)
def normalize_trailing(input, normalized_shape, weight=None, bias=None, eps=1e-5, keep=None):
    """`layer_norm`; `keep` receives the moments it found."""


@normalize_trailing.in_pieces
def _normalize_trailing_pieces(asked):
    row = "_" * len(asked["normalized_shape"])
    return f"...{row},{row},{row}->...{row}"


def _as_rows(x: Any, rows: int, columns: int) -> Any:
    """`x` as a matrix; transposed images are copied in squares, which a reshape would walk column by column."""
    if x.__class__ is np.ndarray and not x.flags.c_contiguous and x.strides[-1] != x.itemsize:
        made = np.empty(x.shape, x.dtype)
        kernels.store(made, x)
        x = made
    return x.reshape(rows, columns)


@normalize_trailing.kernel
def _normalize_trailing(x, shape, weight, bias, eps, keep):
    from flambeau_kernels.cpu.norm import row_normalize

    w, b = (None if p is None else p.reshape(-1) for p in (weight, bias))
    rows = _as_rows(x, prod(x.shape[: x.ndim - len(shape)]), prod(shape))
    return row_normalize(rows, w, b, eps, keep).reshape(x.shape)


@normalize_trailing.shape
def _normalize_trailing_shape(input, normalized_shape, weight, bias, eps, keep):
    return input.shape, input.dtype


def _dims_of(x: Tensor, shape: Any) -> list[int]:
    return list(range(x.ndim - len(shape), x.ndim))


@normalize_trailing.vjp
def _normalize_trailing_vjp(grad, input, normalized_shape, weight, bias, eps):
    dims = _dims_of(input, normalized_shape)
    lead = [d for d in range(input.ndim) if d not in dims]
    to_input, unit = _standardize_vjp(grad, input, weight, dims, eps)
    return (
        lambda: to_input.to(input.dtype),
        lambda: _like(_sum_over(_wide(grad) * unit, lead), weight),
        lambda: depends_on(_like(_sum_over(_wide(grad), lead), bias), input),
    )


def _sum_over(x: Tensor, dims: list[int]) -> Tensor:
    return x.sum(dims) if dims else x


def _standardize_vjp(
    grad: Tensor, input: Tensor, weight: Tensor | None, dims: Any, eps: float
) -> tuple[Tensor, Tensor]:
    """Gradient of the standardized input, and the standardized input itself, as differentiable
    expressions."""
    x = _wide(input)
    centred = x - x.mean(dims, True)
    inverse = ((centred * centred).mean(dims, True) + eps).rsqrt()
    unit = centred * inverse
    g = _wide(grad) if weight is None else _wide(grad) * _wide(weight)
    return inverse * (g - g.mean(dims, True) - unit * (g * unit).mean(dims, True)), unit


def _rows_of(input: Tensor, shape: tuple[int, ...], eps: float, centred: bool, parameters: dict[str, Any]) -> Any:
    """How normalizing over the last dimensions, which are `shape`, works by rows."""
    kind = input.dtype
    given = tuple(name for name, p in parameters.items() if p is not None)
    if (kind is not dtypes.float32 and kind is not dtypes.float64) or any(parameters[name].dtype is not kind for name in given):
        return None
    from flambeau_kernels.cpu.row_programs import Normal

    def stage(name: Any, to: Any, moments: Any) -> Any:
        weight, bias = (name(p) if p in given else None for p in ("weight", "bias"))
        return Normal(centred, float(eps), weight, bias, name("input"), to, moments)

    def receive(args: Any, moments: Any) -> None:
        keep = args[-1]
        keep.mean, keep.variance, keep.inverse = moments

    return InRows(tuple(range(input.ndim - len(shape), input.ndim)), stage, given, 3, receive)


@normalize_trailing.by_rows
def _normalize_trailing_rows(input, normalized_shape, weight, bias, eps, keep):
    _, shape, *_ = _check_layer(input, normalized_shape, weight, bias, eps, keep)
    return _rows_of(input, shape, eps, True, {"weight": weight, "bias": bias})


@normalize_trailing.raw
def _normalize_trailing_raw(
    grad, input, weight, bias, normalized_shape, keep, needs_input, needs_weight, needs_bias
):
    from flambeau_kernels.cpu.norm import row_backward

    d = prod(normalized_shape)
    rows = prod(input.shape[: input.ndim - len(normalized_shape)])
    w = None if weight is None else weight.reshape(-1)
    to_input, to_weight, to_bias = row_backward(
        _as_rows(grad, rows, d), _as_rows(input, rows, d), w, keep, (needs_input, needs_weight, needs_bias)
    )
    return (
        None if to_input is None else _cast(to_input, input.dtype).reshape(input.shape),
        None if to_weight is None else _cast(to_weight, weight.dtype).reshape(normalized_shape),
        None if to_bias is None else _cast(to_bias, bias.dtype).reshape(normalized_shape),
    )


@normalize_trailing.batch
def _normalize_trailing_batch(level: Any, op: Any, args: Any) -> Any:
    x, shape, weight, bias, *rest = args
    if not level.has(weight) and not level.has(bias):
        return level.wrap(run(op, level.front(x), shape, weight, bias, *rest))
    return scaled(level, run(op, level.full(x), shape, None, None, *rest), weight, bias)


@composite(
    namespace="nn.functional", operator="layer_norm", whole=True,
    samples="x(2, 3, 4), (4,), x(4), x(4); x(2, 3, 4), (3, 4)",
)
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Standardize each slice over the last dimensions, then times `weight`, plus `bias`: the shape of `input`.

    ``(input - mean) / sqrt(var + eps) * weight + bias`` with the biased variance. Half inputs are computed on
    in float32.

    Args:
        normalized_shape: the last dimensions, which each slice has: an int or a sequence.
        weight, bias: of `normalized_shape`, or None; float32 is also right beside half inputs.
        eps: added to the variance, in the unit of `input` squared.
    Raises: RuntimeError for shapes or dtypes that do not fit.
    Source: Ba, Kiros and Hinton 2016, "Layer Normalization".

    >>> F.layer_norm(fb.tensor([[1.0, 3.0], [10.0, 20.0]]), (2,))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """
    return normalize_trailing(input, normalized_shape, weight, bias, eps)


def _plan_of_rows(input: Tensor, shape: tuple[int, ...], eps: float, centred: bool, weight: Any, bias: Any, record: Any) -> Plan | None:
    """The plan of normalizing over the last dimensions, which are `shape`."""
    from flambeau_kernels.cpu.norm import Moments, planned_rows

    a, d = input._array, prod(shape)
    parameters = (weight, bias)
    if any(p is not None and p.dtype is not input.dtype for p in parameters) or not a.size:
        return None
    run = planned_rows(a.size // d, d, a.dtype, a.shape, float(eps), centred, *(p is not None for p in parameters))
    if run is None:
        return None

    def result(a: Any, weight: Any, bias: Any = None) -> Any:
        return run(a, weight, bias)[0]

    def taped(a: Any, weight: Any, bias: Any = None) -> Any:
        keep = Moments()
        out, keep.mean, keep.variance, keep.inverse = run(a, weight, bias)
        return out, keep

    return Plan(result, taped, record)


@layer_norm.plan(by="shape", tensors=("input", "weight", "bias"))
def _planned_layer_norm(input, normalized_shape, weight, bias, eps):
    _, shape, weight, bias, eps, _ = _check_layer(input, normalized_shape, weight, bias, eps, None)

    def record(made: Tensor, keep: Any, input: Tensor, weight: Any, bias: Any) -> None:
        normalize_trailing.history(made, None, input, shape, weight, bias, eps, keep)

    return _plan_of_rows(input, shape, eps, True, weight, bias, record)


@composite(surface=FUNCTION, samples="x(2, 3, 4), (4,), x(4), x(4)")
def layer_norm__(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    """`nn.functional.layer_norm` of the same arguments; `cudnn_enable` chooses among CUDA kernels only.

    See `nn.functional.layer_norm`.
    """
    return normalize_trailing(input, normalized_shape, weight, bias, eps)


def _statistics(input: Tensor, dims: list[int], keepdim: bool, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / deviation over `dims`, differentiable."""
    x = _wide(input)
    mean = x.mean(dims, True)
    inverse = (((x - mean) ** 2).mean(dims, True) + eps).rsqrt()
    return (mean, inverse) if keepdim else (mean.squeeze(dims), inverse.squeeze(dims))


def _kind_of_statistics(input: Tensor, weight: Tensor | None) -> Any:
    """float32 where half inputs have float32 parameters, else the dtype of the input."""
    return input.dtype if weight is None else weight.dtype


@composite(surface=FUNCTION | OUT, samples="x(2, 3, 4), (4,), x(4), x(4), 1e-5")
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """``(out, mean, rstd)``: `layer_norm`, and the mean and 1 / deviation of each slice, its dimensions kept as size 1.

    Arguments as for `nn.functional.layer_norm`.
    """
    out = normalize_trailing(input, normalized_shape, weight, bias, eps)
    mean, inverse = _statistics(input, _dims_of(input, normalized_shape), True, eps)
    kind = _kind_of_statistics(input, weight)
    return out, mean.detach().to(kind), inverse.detach().to(kind)


def _check_rms(input, normalized_shape, weight, eps, keep):
    shape = _trailing("rms_norm", input, normalized_shape, weight=weight)
    if eps is None:
        wide = dtypes.float32 if input.dtype in (dtypes.float16, dtypes.bfloat16) else input.dtype
        eps = dtypes.finfo(wide).eps
    return input, shape, weight, eps, keep or _moments()


@primitive(
    surface=0, tensors=("input", "weight"), check=_check_rms, autocast=(None, "float32"), memory=CHANNELS, ordering=("input",),
    samples="of rms_norm",
    public_name="rms_norm",
    cuda="rows.scale_trailing",
)
def scale_trailing(input, normalized_shape, weight=None, eps=None, keep=None):
    """`rms_norm`; `keep` receives the root mean squares."""


@scale_trailing.in_pieces
def _scale_trailing_pieces(asked):
    row = "_" * len(asked["normalized_shape"])
    return f"...{row},{row}->...{row}"


@scale_trailing.kernel
def _scale_trailing(x, shape, weight, eps, keep):
    from flambeau_kernels.cpu.norm import row_normalize

    w = None if weight is None else weight.reshape(-1)
    rows = _as_rows(x, prod(x.shape[: x.ndim - len(shape)]), prod(shape))
    return row_normalize(rows, w, None, eps, keep, centred=False).reshape(x.shape)


@scale_trailing.shape
def _scale_trailing_shape(input, normalized_shape, weight, eps, keep):
    return input.shape, input.dtype


@scale_trailing.vjp
def _scale_trailing_vjp(grad, input, normalized_shape, weight, eps):
    dims = _dims_of(input, normalized_shape)
    x = _wide(input)
    inverse = ((x * x).mean(dims, True) + eps).rsqrt()
    unit = x * inverse
    g = _wide(grad) if weight is None else _wide(grad) * _wide(weight)
    return (
        lambda: (inverse * (g - unit * (g * unit).mean(dims, True))).to(input.dtype),
        lambda: _like(_sum_over(_wide(grad) * unit, [d for d in range(input.ndim) if d not in dims]), weight),
    )


@scale_trailing.by_rows
def _scale_trailing_rows(input, normalized_shape, weight, eps, keep):
    _, shape, _, eps, _ = _check_rms(input, normalized_shape, weight, eps, keep)
    return _rows_of(input, shape, eps, False, {"weight": weight})


@scale_trailing.raw
def _scale_trailing_raw(grad, input, weight, normalized_shape, keep, needs_input, needs_weight):
    from flambeau_kernels.cpu.norm import row_backward

    d = prod(normalized_shape)
    rows = prod(input.shape[: input.ndim - len(normalized_shape)])
    w = None if weight is None else weight.reshape(-1)
    to_input, to_weight, _ = row_backward(
        _as_rows(grad, rows, d),
        _as_rows(input, rows, d),
        w,
        keep,
        (needs_input, needs_weight, False),
        centred=False,
    )
    return (
        None if to_input is None else in_memory_order(to_input.reshape(input.shape), CHANNELS, [input]),
        None if to_weight is None else _cast(to_weight, weight.dtype).reshape(normalized_shape),
    )


@scale_trailing.batch
def _scale_trailing_batch(level: Any, op: Any, args: Any) -> Any:
    x, shape, weight, *rest = args
    if not level.has(weight):
        return level.wrap(run(op, level.front(x), shape, weight, *rest))
    return scaled(level, run(op, level.full(x), shape, None, *rest), weight, None)


@composite(
    surface=FUNCTION, aliases=("nn.functional.rms_norm",), operator="rms_norm", whole=True,
    samples="x(2, 3, 4), (4,), x(4); x(2, 3, 4), (3, 4), None, 1e-3",
)
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Divide each slice over the last dimensions by its root mean square, then times `weight`.

    Args:
        normalized_shape: the last dimensions, which each slice has: an int or a sequence.
        weight: of `normalized_shape`, or None.
        eps: added to the mean square; the machine epsilon of the dtype computed in by default.
    Raises: RuntimeError for shapes that do not fit; NotImplementedError for integers.
    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".

    >>> F.rms_norm(fb.tensor([[3.0, 4.0]]), (2,))
    tensor([[0.8485, 1.1314]])
    """
    if input.is_complex() or input.dtype.category < dtypes.FLOATING:
        return _rms_of_other(input, normalized_shape, weight, eps)
    kind = input.dtype
    if weight is not None and weight.dtype is not kind:
        made = scale_trailing(input, normalized_shape, None, eps)
        _trailing("rms_norm", input, normalized_shape, weight=weight)
        return made * weight
    return scale_trailing(input, normalized_shape, weight, eps)


@rms_norm.plan(by="shape", tensors=("input", "weight"))
def _planned_rms_norm(input, normalized_shape, weight, eps):
    check_floating("rms_norm", input=input, weight=weight)
    _, shape, weight, eps, _ = _check_rms(input, normalized_shape, weight, eps, None)

    def record(made: Tensor, keep: Any, input: Tensor, weight: Any) -> None:
        scale_trailing.history(made, None, input, shape, weight, eps, keep)

    return _plan_of_rows(input, shape, eps, False, weight, None, record)


def _rms_of_other(input: Tensor, normalized_shape: Any, weight: Tensor | None, eps: Any) -> Tensor:
    if not input.is_complex():
        raise NotImplementedError(
            f'"rms_norm" not implemented for {input.dtype}; convert the input with .to(dtype) first'
        )
    dims = _dims_of(input, _trailing("rms_norm", input, normalized_shape, weight=weight))
    eps = dtypes.finfo(input.dtype).eps if eps is None else eps
    made = input * ((input * input).mean(dims, True) + eps).rsqrt()
    return made if weight is None else made * weight


# -- batch ---------------------------------------------------------------------------------------------------


def _per_channel(op: str, channels: int, **parameters: Any) -> None:
    for name, p in parameters.items():
        if p is not None and p.shape != (channels,):
            raise RuntimeError(
                f"{op}: {name} should contain {channels} elements, one for each channel, not "
                f"{p.numel()}\n{describe(**parameters)}"
            )


def _check_channels(input, weight, bias, eps, keep):
    if input.ndim < 2:
        raise IndexError(
            f"batch_norm: input must have a batch and a channel dimension, it has {input.ndim} dimensions"
        )
    _per_channel("batch_norm", input.shape[1], weight=weight, bias=bias)
    check_floating("batch_norm", input=input, weight=weight, bias=bias)
    return input, weight, bias, eps, keep or _moments()


@primitive(
    surface=0, tensors=("input", "weight", "bias"), check=_check_channels, memory=CHANNELS_OF_DENSE, ordering=("input",),
    samples="of nn.functional.batch_norm",
    public_name="batch_norm",
    cuda="rows.normalize_channels",
)
def normalize_channels(input, weight=None, bias=None, eps=1e-5, keep=None):
    """Batch normalization by the statistics of the batch; `keep` receives them."""


normalize_channels.in_pieces("_c*,c,c->_c*")


@normalize_channels.kernel
def _normalize_channels(x, weight, bias, eps, keep):
    from flambeau_kernels.cpu.norm import channel_normalize

    return channel_normalize(x, None, weight, bias, eps, keep)


@normalize_channels.shape
def _normalize_channels_shape(input, weight, bias, eps, keep):
    return input.shape, input.dtype


def _along_channels(p: Tensor | None, x: Tensor) -> Tensor | None:
    return None if p is None else p.reshape(1, -1, *(1,) * (x.ndim - 2))


@normalize_channels.vjp
def _normalize_channels_vjp(grad, input, weight, bias, eps):
    dims = [0, *range(2, input.ndim)]
    to_input, unit = _standardize_vjp(grad, input, _along_channels(weight, input), dims, eps)
    return (
        lambda: to_input.to(input.dtype),
        lambda: _like((_wide(grad) * unit).sum(dims), weight),
        lambda: depends_on(_like(_wide(grad).sum(dims), bias), input),
    )


@normalize_channels.raw
def _normalize_channels_raw(grad, input, weight, bias, keep, needs_input, needs_weight, needs_bias):
    return _channels_backward(
        grad, input, weight, bias, keep.mean, keep.inverse, None, (needs_input, needs_weight, needs_bias)
    )


@normalize_channels.batch
def _normalize_channels_batch(level: Any, op: Any, args: Any) -> Any:
    return as_channels(level, op, args[0], args[1:3], args[3:])


def _channels_backward(
    grad: Any,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    inverse: Any,
    groups: Any,
    wants: Any,
    constant: bool = False,
) -> Any:
    from flambeau_kernels.cpu.norm import channel_backward

    to_input, to_weight, to_bias = channel_backward(grad, x, mean, inverse, weight, groups, wants, constant)
    return (
        None if to_input is None else in_memory_order(to_input, CHANNELS_OF_DENSE if groups is None else CHANNELS, [x]),
        None if to_weight is None else _cast(to_weight, weight.dtype),
        None if to_bias is None else _cast(to_bias, bias.dtype),
    )


def _check_by_running(input, mean, variance, weight, bias, eps):
    if input.ndim < 2:
        raise IndexError(
            f"batch_norm: input must have a batch and a channel dimension, it has {input.ndim} dimensions"
        )
    _per_channel(
        "batch_norm", input.shape[1], running_mean=mean, running_var=variance, weight=weight, bias=bias
    )
    check_floating(
        "batch_norm", input=input, running_mean=mean, running_var=variance, weight=weight, bias=bias
    )


@primitive(
    surface=0, tensors=("input", "mean", "variance", "weight", "bias"), check=_check_by_running, memory=CHANNELS_OF_DENSE,
    ordering=("input",),
    samples="of nn.functional.batch_norm",
    public_name="batch_norm",
    cuda="rows.normalize_by_running",
)  # fmt: skip
def normalize_by_running(input, mean, variance, weight=None, bias=None, eps=1e-5):
    """Batch normalization by given statistics."""


normalize_by_running.in_pieces("nc*,c,c,c,c->nc*")


def _given(mean: Any, variance: Any, eps: float) -> tuple[Any, Any]:
    kind = np.dtype(np.float64) if variance.dtype == np.float64 else np.dtype(np.float32)
    return mean.astype(kind, copy=False)[None, :], (
        1 / np.sqrt(variance.astype(kind, copy=False) + kind.type(eps))
    )[None, :]


@normalize_by_running.kernel
def _normalize_by_running(x, mean, variance, weight, bias, eps):
    from flambeau_kernels.cpu.norm import channel_normalize_given

    return channel_normalize_given(x, *_given(mean, variance, eps), weight, bias)


@normalize_by_running.shape
def _normalize_by_running_shape(input, mean, variance, weight, bias, eps):
    return input.shape, input.dtype


@normalize_by_running.vjp
def _normalize_by_running_vjp(grad, input, mean, variance, weight, bias, eps):
    dims = [0, *range(2, input.ndim)]
    inverse = _along_channels((_wide(variance) + eps).rsqrt(), input)
    scale = inverse if weight is None else inverse * _along_channels(_wide(weight), input)

    def unit():
        return (_wide(input) - _along_channels(_wide(mean), input)) * inverse

    return (
        lambda: depends_on((_wide(grad) * scale).to(input.dtype), input),
        None,
        None,
        lambda: _like((_wide(grad) * unit()).sum(dims), weight),
        lambda: depends_on(_like(_wide(grad).sum(dims), bias), input),
    )


@normalize_by_running.raw
def _normalize_by_running_raw(
    grad, input, mean, variance, weight, bias, eps, needs_input, needs_weight, needs_bias
):
    given = _given(mean, variance, eps)
    wants = (needs_input, needs_weight, needs_bias)
    to_input, to_weight, to_bias = _channels_backward(
        grad, input, weight, bias, *given, None, wants, constant=True
    )
    return to_input, None, None, to_weight, to_bias


@normalize_by_running.batch
def _normalize_by_running_batch(level: Any, op: Any, args: Any) -> Any:
    return as_channels(level, op, args[0], args[1:5], args[5:])


def _update_running(
    input: Tensor, running_mean: Any, running_var: Any, keep: Moments, momentum: float, count: int
) -> None:
    """Move running statistics towards those of the batch; the variance by its unbiased estimate."""
    if _state.INTERPRETED and hasattr(input, "_bdim"):
        raise RuntimeError(
            "vmap: running_mean and running_var cannot be updated by a batch of examples that share them; leave them out, "
            "or call the layer in eval mode (func.replace_all_batch_norm_modules_ takes them out of a module)"
        )
    if keep.mean is None or count == 0:
        return
    momentum = float(momentum)
    unbiased = keep.variance * (count / (count - 1)) if count > 1 else keep.variance * np.nan
    for running, found in ((running_mean, keep.mean), (running_var, unbiased)):
        if running is not None:
            a = running._array
            wide = a.astype(found.dtype, copy=False)
            a[...] = (wide + momentum * (found.reshape(-1) - wide)).astype(a.dtype)
            bump(running)


def _check_momentum(name: str, momentum: Any) -> None:
    if isinstance(momentum, Tensor) and (momentum.ndim or momentum.requires_grad):
        raise TypeError(f"{name}(): argument 'momentum' must be float, not Tensor")
    if not hasattr(momentum, "__float__"):
        raise TypeError(
            f"{name}(): argument 'momentum' must be float, not {type(momentum).__name__}; for the plain average over "
            "all batches so far, which the module takes momentum=None for, give 1 / (number of batches)"
        )


def _batch_norm(
    input: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
    keep: Moments,
) -> Tensor:
    _check_momentum("batch_norm", momentum)
    if input.ndim == 1 and input.numel() == 0:
        return input.clone()
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError(
            "batch_norm: Expected running_mean and running_var to be defined when training=False"
        )
    if not training:
        return normalize_by_running(input, running_mean, running_var, weight, bias, eps)
    if input.ndim >= 2:
        _per_channel("batch_norm", input.shape[1], running_mean=running_mean, running_var=running_var)
    out = normalize_channels(input, weight, bias, eps, keep)
    if running_mean is not None or running_var is not None:
        _update_running(input, running_mean, running_var, keep, momentum, input.numel() // max(input.shape[1], 1))
    return out


@composite(
    namespace="nn.functional",
    operator="batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)", whole=True,
    samples="x(3, 2, 4), k(2) * 0, k(2), x(2), x(2), True; x(3, 2, 2, 2), k(2), k(2), x(2), x(2); x(3, 2), None, None, training=True",
)
def batch_norm(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
):
    """Standardize each channel of ``(N, C, *)``, then times `weight`, plus `bias`: the shape of `input`.

    Args:
        running_mean, running_var: ``(C,)``, or None in training.
        weight, bias: ``(C,)``, or None.
        training: standardize by the mean and biased variance of this batch, and move the running ones towards
            its mean and
            unbiased variance, in place; otherwise standardize by the running ones.
        momentum: how far they move: ``running += momentum * (batch - running)``.
        eps: added to the variance, in the unit of `input` squared.
    Raises: ValueError in training for a single value per channel or an `eps` that is not positive;
        RuntimeError for
        operands that do not fit.
    Source: Ioffe and Szegedy 2015, "Batch Normalization".

    >>> F.batch_norm(fb.tensor([[1.0], [3.0]]), None, None, training=True)
    tensor([[-1.0000],
            [ 1.0000]])
    """
    _check_batch(input, training, eps)
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps, _moments())


@batch_norm.in_pieces
def _batch_norm_pieces(asked):
    return "_c*,c,c,c,c->_c*" if asked["training"] else "nc*,c,c,c,c->nc*"


def _check_batch(input: Tensor, training: bool, eps: float) -> None:
    if training and input.ndim and input.shape[0] * prod(input.shape[2:]) == 1:
        raise ValueError(
            f"batch_norm: Expected more than 1 value per channel when training, got input size "
            f"{tuple(input.shape)}"
        )
    if eps < 0 or (training and eps == 0):
        raise ValueError(
            f"batch_norm: eps must be {'positive during training' if training else 'non-negative'}, but got "
            f"{eps}"
        )


@batch_norm.plan(by="shape", tensors=("input", "running_mean", "running_var", "weight", "bias"), optional=("running_mean", "running_var"))
def _planned_batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps):
    from flambeau_kernels.cpu.norm import planned_channels, planned_given

    _check_batch(input, training, eps)
    _check_momentum("batch_norm", momentum)
    a = input._array
    wa, ba = (None if p is None else p._array for p in (weight, bias))
    if not training:
        _check_by_running(input, running_mean, running_var, weight, bias, eps)
        run = planned_given(a, running_mean._array, running_var._array, wa, ba, eps)
        return run and Plan(
            run, lambda *arrays: (run(*arrays), None),
            lambda made, _, *tensors: normalize_by_running.history(made, None, *tensors, eps),
        )  # fmt: skip
    _check_channels(input, weight, bias, eps, None)
    _per_channel("batch_norm", input.shape[1], running_mean=running_mean, running_var=running_var)
    run = planned_channels(a, None, wa, ba, eps)
    if run is None or any(r is not None and r.dtype is not input.dtype for r in (running_mean, running_var)):
        return None
    count = a.size // a.shape[1]
    unbias, momentum = a.dtype.type(count / (count - 1)), a.dtype.type(momentum)

    def normalized(a: Any, mean: Any, variance: Any, weight: Any, bias: Any) -> Any:
        made = run(a, weight, bias)
        if mean is not None:
            _move(mean, made[1].reshape(-1), momentum)
        if variance is not None:
            _move(variance, (made[2] * unbias).reshape(-1), momentum)
        return made

    def taped(*arrays: Any) -> Any:
        keep = _moments()
        out, keep.mean, keep.variance, keep.inverse = normalized(*arrays)
        return out, keep

    def record(made: Tensor, keep: Any, input: Tensor, _mean: Any, _var: Any, weight: Any, bias: Any) -> None:
        normalize_channels.history(made, None, input, weight, bias, eps, keep)

    def after(_input: Tensor, *tensors: Any) -> None:
        for running in tensors[:2]:
            if running is not None:
                bump(running)

    return Plan(lambda *arrays: normalized(*arrays)[0], taped, record, after)


def _move(running: Any, found: Any, momentum: Any) -> None:
    """Move running statistics towards those found."""
    step = found - running
    step *= momentum
    running += step


@composite(
    surface=FUNCTION, whole=True,
    operator="batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)",
    samples="x(3, 2, 4), x(2), x(2), k(2), k(2), True, 0.1, 1e-5, False; x(3, 2), None, None, k(2), k(2), False, 0.1, 1e-5, False",
)
def batch_norm__(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled):
    """`nn.functional.batch_norm` with its arguments in another order.

    `cudnn_enabled` chooses among CUDA kernels only. Arguments as for `nn.functional.batch_norm`.
    """
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps, _moments())


@composite(
    surface=FUNCTION | OUT, whole=True,
    operator="native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)",
    samples="x(3, 2, 4), x(2), x(2), k(2), k(2), True, 0.1, 1e-5",
)
def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """``(out, mean, rstd)``: `batch_norm`, and in training the mean and 1 / deviation of each channel.

    Outside training the two are empty. Arguments as for `nn.functional.batch_norm`.
    """
    keep = _moments()
    out = _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps, keep)
    kind = _kind_of_statistics(input, running_mean if weight is None else weight)
    if not training:
        return out, wrap(np.empty(0, kind.numpy)), wrap(np.empty(0, kind.numpy))
    if keep.mean is None:
        return out, *(wrap(MetaArray((input.shape[1],), kind.numpy)) for _ in range(2))
    # Copies: the rule of the gradient reads those that were kept.
    return out, wrap(np.array(keep.mean[0], kind.numpy)), wrap(np.array(keep.inverse[0], kind.numpy))


# -- instance and group --------------------------------------------------------------------------------------


@composite(
    namespace="nn.functional",
    operator="instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)", whole=True,
    samples="x(2, 3, 4); x(2, 3, 2, 2), k(3), k(3), x(3), x(3), True",
)
def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """Standardize each channel of each image of ``(N, C, *)``, then times `weight`, plus `bias`.

    Args:
        running_mean, running_var: ``(C,)``, or None.
        weight, bias: ``(C,)``, or None.
        use_input_stats: standardize by the statistics of each image, and move the running ones towards their
            mean over the
            batch, in place; otherwise standardize by the running ones.
        momentum, eps: as for `nn.functional.batch_norm`.
    Raises: ValueError for a single value per channel of an image.
    Source: Ulyanov, Vedaldi and Lempitsky 2016, "Instance Normalization".
    """
    if use_input_stats and (input.ndim < 2 or input.ndim > 2 and prod(input.shape[2:]) == 1):
        raise ValueError(
            f"instance_norm: Expected more than 1 spatial element when training, got input size "
            f"{tuple(input.shape)}"
        )
    return _instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@composite(surface=FUNCTION, samples="x(2, 3, 4), x(3), x(3), None, None, True, 0.1, 1e-5, False")
def instance_norm__(
    input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled
):
    """`nn.functional.instance_norm` with its arguments in another order.

    `cudnn_enabled` chooses among CUDA kernels only. Arguments as for `nn.functional.instance_norm`.
    """
    return _instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def _instance_norm(
    input: Tensor,
    mean: Any,
    variance: Any,
    weight: Any,
    bias: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    _check_momentum("instance_norm", momentum)
    if not use_input_stats:
        if mean is None or variance is None:
            raise RuntimeError(
                "instance_norm: Expected running_mean and running_var to be defined when use_input_stats is "
                "false"
            )
        return normalize_by_running(input.contiguous(), mean, variance, weight, bias, eps)
    if input.ndim >= 2:
        _per_channel(
            "instance_norm", input.shape[1], running_mean=mean, running_var=variance, weight=weight, bias=bias
        )
    keep = _moments()
    out = normalize_groups(input.contiguous(), input.shape[1], weight, bias, eps, keep)  # row-major, as in PyTorch
    if (mean is not None or variance is not None) and keep.mean is not None:
        _update_running(input, mean, variance, _averaged(keep), momentum, prod(input.shape[2:]))
    return out


def _averaged(keep: Moments) -> Moments:
    """Moments ``(N, C)`` averaged over images."""
    made = _moments()
    made.mean, made.variance = keep.mean.mean(0), keep.variance.mean(0)
    return made


def _check_groups(input, num_groups, weight, bias, eps, keep):
    if input.ndim < 2:
        raise RuntimeError(
            f"group_norm: Expected at least 2 dimensions for input tensor but received {input.ndim}"
        )
    channels = input.shape[1]
    if num_groups <= 0:
        raise RuntimeError(f"group_norm: Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(
            f"group_norm: Expected number of channels in input to be divisible by num_groups, but got input "
            f"of shape {tuple(input.shape)} and num_groups={num_groups}"
        )
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None and (p.ndim != 1 or p.numel() != channels):
            raise RuntimeError(
                f"group_norm: Expected {name} to be a vector of size equal to the number of channels in "
                f"input, but got {name} of shape {tuple(p.shape)} and input of shape {tuple(input.shape)}"
            )
    need_number("group_norm", "eps", eps)
    check_room("group_norm", (input.shape[0], num_groups), input._array.itemsize)
    check_floating("group_norm", input=input, weight=weight, bias=bias)
    return input, num_groups, weight, bias, eps, keep or _moments()


@primitive(
    surface=0, tensors=("input", "weight", "bias"), check=_check_groups, autocast=(None, "float32"), memory=CHANNELS, ordering=("input",),
    samples="of nn.functional.group_norm",
    public_name="group_norm",
    cuda="rows.normalize_groups",
)
def normalize_groups(input, num_groups, weight=None, bias=None, eps=1e-5, keep=None):
    """`group_norm`; `keep` receives the moments of each group of each image."""


normalize_groups.in_pieces("n_*,_,_->n_*")


@normalize_groups.kernel
def _normalize_groups(x, groups, weight, bias, eps, keep):
    from flambeau_kernels.cpu.norm import channel_normalize

    return channel_normalize(x, groups, weight, bias, eps, keep)


@normalize_groups.shape
def _normalize_groups_shape(input, num_groups, weight, bias, eps, keep):
    return input.shape, input.dtype


@normalize_groups.vjp
def _normalize_groups_vjp(grad, input, num_groups, weight, bias, eps):
    n, c = input.shape[:2]
    split = (n, num_groups, c // num_groups, prod(input.shape[2:]))
    x, g = _wide(input).reshape(split), _wide(grad).reshape(split)
    factor = None if weight is None else _wide(weight).reshape(1, num_groups, c // num_groups, 1)
    to_input, unit = _standardize_vjp(g, x, factor, [2, 3], eps)
    return (
        lambda: to_input.reshape(input.shape).to(input.dtype),
        lambda: _like((g * unit).sum([0, 3]).reshape(c), weight),
        lambda: depends_on(_like(g.sum([0, 3]).reshape(c), bias), input),
    )


@normalize_groups.raw
def _normalize_groups_raw(grad, input, num_groups, weight, bias, keep, needs_input, needs_weight, needs_bias):
    return _channels_backward(
        grad,
        input,
        weight,
        bias,
        keep.mean,
        keep.inverse,
        num_groups,
        (needs_input, needs_weight, needs_bias),
    )


@normalize_groups.batch
def _normalize_groups_batch(level: Any, op: Any, args: Any) -> Any:
    x, groups, weight, bias, *rest = args
    if level.has(weight) or level.has(bias) or not level.size or not x.shape[0]:
        return NotImplemented
    value = level.front(x)
    return unfolded(level, run(op, value.reshape(-1, *value.shape[2:]), groups, weight, bias, *rest))


@composite(
    namespace="nn.functional", operator="group_norm", whole=True,
    samples="x(2, 4, 3), 2, x(4), x(4); x(2, 6, 2, 2), 3",
)
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Standardize each group of channels of each image of ``(N, C, *)``, then times `weight`, plus `bias`.

    Args:
        num_groups: into how many groups of neighbours the channels go; divides C.
        weight, bias: ``(C,)``, or None.
        eps: added to the variance, in the unit of `input` squared.
    Raises: RuntimeError unless `num_groups` divides C and the parameters are ``(C,)``; ValueError for a
        single value per
        group.
    Source: Wu and He 2018, "Group Normalization".
    """
    _check_several(input, num_groups)
    return normalize_groups(input, num_groups, weight, bias, eps)


def _check_several(input: Tensor, num_groups: int) -> None:
    if (
        input.ndim >= 2
        and num_groups > 0
        and input.shape[0] * input.shape[1] // num_groups * prod(input.shape[2:]) == 1
    ):
        raise ValueError(
            f"group_norm: Expected more than 1 value per channel when training, got input size "
            f"{tuple(input.shape)}"
        )


def _plan_of_groups(input: Tensor, count: int, weight: Any, bias: Any, eps: float) -> Plan | None:
    """The plan of normalizing each of `count` groups of channels of each image."""
    from flambeau_kernels.cpu.norm import planned_channels

    w, b = (None if p is None else p._array for p in (weight, bias))
    run = planned_channels(input._array, count, w, b, eps)
    if run is None:
        return None

    def taped(*arrays: Any) -> Any:
        keep = _moments()
        out, keep.mean, keep.variance, keep.inverse = run(*arrays)
        return out, keep

    def record(made: Tensor, keep: Any, input: Tensor, weight: Any, bias: Any) -> None:
        normalize_groups.history(made, None, input, count, weight, bias, eps, keep)

    return Plan(lambda *arrays: run(*arrays)[0], taped, record)


@group_norm.plan(by="shape", tensors=("input", "weight", "bias"))
def _planned_group_norm(input, num_groups, weight, bias, eps):
    _check_several(input, num_groups)
    _check_groups(input, num_groups, weight, bias, eps, None)
    return _plan_of_groups(input, num_groups, weight, bias, eps)


@composite(surface=FUNCTION, samples="x(2, 4, 3), 2, x(4), x(4)")
def group_norm__(input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    """`nn.functional.group_norm` of the same arguments; `cudnn_enabled` chooses among CUDA kernels only.

    See `nn.functional.group_norm`.
    """
    return normalize_groups(input, num_groups, weight, bias, eps)


@composite(surface=FUNCTION | OUT, samples="x(2, 4, 3), x(4), x(4), 2, 4, 3, 2, 1e-5")
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):  # PyTorch's names
    """``(out, mean, rstd)``: `group_norm`, and the mean and 1 / deviation of each group, each ``(N, group)``.

    Args:
        weight, bias, eps: as for `nn.functional.group_norm`.
        N, C, HxW: images, channels, and elements of a channel: those of `input`.
        group: number of groups.
    """
    out = normalize_groups(input, group, weight, bias, eps)
    mean, inverse = _statistics(input.reshape(N, group, C // group * HxW), [2], False, eps)
    kind = _kind_of_statistics(input, weight)
    return out, mean.to(kind), inverse.to(kind)


# -- others --------------------------------------------------------------------------------------------------


@composite(namespace="nn.functional", samples="x(2, 4, 3), 3, 0.1, 0.75, 1.0; x(2, 4, 3, 2), 2")
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divide each element of ``(N, C, *)`` by a power of the mean square over neighbouring channels.

    ``input / (k + alpha * mean) ** beta``, the mean of squares over `size` channels around each; channels
    beyond the ends
    count as 0.

    Args:
        size: how many channels.
        alpha, beta, k: as in the formula.
    Raises: ValueError for fewer than 3 dimensions.
    Source: Krizhevsky, Sutskever and Hinton 2012, "ImageNet Classification with Deep Convolutional Neural
        Networks", 3.3.
    """
    if input.ndim < 3:
        raise ValueError(
            f"local_response_norm: Expected 3D or higher dimensionality input (got {input.ndim} dimensions)"
        )
    if input.numel() == 0:
        return input
    from .pool import running_mean
    from .vision import pad_constant

    squares = (input * input).reshape(input.shape[0], input.shape[1], -1)
    before, after = size // 2, (size - 1) // 2
    everywhere = min(before, after) > input.shape[1]  # windows that hold all channels, and any number of zeros
    if everywhere:
        before = after = input.shape[1]
        alpha = alpha * (2 * before + 1) / size
    around = pad_constant(squares, ((before, after), (0, 0)), 0)
    mean = running_mean(around, (before + after + 1, 1))
    return input / (mean.reshape(input.shape) * alpha + k) ** beta


@composite(namespace="nn.functional", surface=FUNCTION | OUT, overlap=EXACTLY, samples="x(2, 3); x(2, 3, 4), 1.0, 2")
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """``input / max(norm, eps)`` with the `p`-norm over `dim`, so that vectors along `dim` have length 1.

    A zero vector stays zero.

    >>> F.normalize(fb.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    length = OPS["linalg.vector_norm"](input, p, dim, True)
    return input / length.clamp_min(eps).expand_as(input)


@normalize.plan(tensors=("input",), few=4096)                  # up to which lengths are added up in numpy's order
def _few_directed(a, p, dim, eps):
    from .distance import directed

    return directed(a, p, dim, eps) if p in (1, 2) and dim.__class__ is int and -a.ndim <= dim < a.ndim else None
