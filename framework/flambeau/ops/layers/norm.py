"""Normalization layers as functions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

import flambeau_kernels as kernels

from ... import dtypes
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor, wrap
from .. import _dispatch
from .._batching import run, scaled
from .._spec import CHANNELS, EXACTLY, FUNCTION, OPS, OUT, composite, describe, primitive, whole_gradients
from .._spec.in_rows import InRows
from .._spec.memory import in_memory_order
from .._spec.plans import Plan
from .._spec.shapes import need_int, need_sizes


@primitive(surface=0, tensors=("value", "other"), samples="of where", cuda="rows.depends_on")
def depends_on(value, other):
    """`value`, which requires grad also where `other` does, though it does not depend on it.

    PyTorch computes the gradients of a layer's operands in one function, so each of them counts as depending on all.
    """


depends_on.in_pieces("...,?->...")


@depends_on.kernel
def _unchanged(value, other):
    return value


depends_on.shape(lambda value, other: (value.shape, value.dtype, value._array.strides))


@depends_on.vjp
def _depends_on_vjp(grad):
    return grad, None


def check_floating(op: str, **operands: Any) -> None:
    """Raise RuntimeError unless the operands are real floating, alike, or float32 parameters beside half inputs.

    Raises: NotImplementedError for float8.
    """
    input = operands["input"]  # the public name
    d = input._array.dtype
    if (d is FLOAT32 or d is FLOAT64) and all([x is None or x._array.dtype is d for x in operands.values()]):  # noqa: C419  # sooner than a generator
        return
    if input.dtype.category != dtypes.FLOATING:
        raise RuntimeError(
            f'"{op}" not implemented for {input.dtype}; convert the input with .to(dtype) first'
        )
    if input.dtype not in dtypes.COMPUTED:
        raise NotImplementedError(f'"{op}" not implemented for {input.dtype}; convert the input with .to(dtype) first')
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


def dtype_of_moments(x: Tensor) -> Any:
    """The dtype that kernels find moments in."""
    return dtypes.float32 if x.dtype in (dtypes.float16, dtypes.bfloat16) else x.dtype


def shown_moment(name: str, shape: Any = None) -> Any:
    """What nodes show of the moments that a kernel has found: the one of that `name`, in ``shape(saved)``; None where none did."""

    def shown(saved: Any) -> Any:
        if saved["kept"] is None:
            return None
        moment = getattr(saved["kept"], name)
        return wrap(moment if shape is None else moment.reshape(shape(saved)))

    return shown


# -- layer and root mean square ------------------------------------------------------------------------------


def _trailing(op: str, input: Any, normalized_shape: Any, **parameters: Any) -> tuple[int, ...]:
    """`normalized_shape` as a tuple. Raises: RuntimeError unless input ends in it and parameters have it."""
    shape = need_sizes(op, "normalized_shape", normalized_shape)
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


def _check_layer(input, normalized_shape, weight, bias, eps):
    shape = _trailing("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    check_floating("layer_norm", input=input, weight=weight, bias=bias)
    return input, shape, weight, bias, eps


@primitive(
    surface=0, tensors=("input", "weight", "bias"), keeps=True, check=_check_layer, autocast=(None, "float32"),
    samples="of nn.functional.layer_norm",
    public_name="layer_norm",
    cuda="rows.normalize_trailing",
)
def normalize_trailing(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """`layer_norm`; what is kept are the moments of rows."""


normalize_trailing.shown_as(
    "NativeLayerNormBackward0", hides="eps", input="input", normalized_shape="normalized_shape",
    result1=shown_moment("mean", lambda saved: _of_each_row(saved)), result2=shown_moment("inverse", lambda saved: _of_each_row(saved)),
)  # fmt: skip


def _of_each_row(saved: Any) -> tuple[int, ...]:
    """The shape of what there is one of for each row: the normalized dimensions have size 1."""
    return _with_ones(saved["input"].shape, saved["normalized_shape"])


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
def _normalize_trailing(x, shape, weight, bias, eps):
    from flambeau_kernels.cpu.norm import row_normalize

    w, b = (None if p is None else p.reshape(-1) for p in (weight, bias))
    rows = _as_rows(x, prod(x.shape[: x.ndim - len(shape)]), prod(shape))
    out, moments = row_normalize(rows, w, b, eps)
    return out.reshape(x.shape), moments


@normalize_trailing.shape
def _normalize_trailing_shape(input, normalized_shape, weight, bias, eps):
    return input.shape, input.dtype


def _dims_of(x: Tensor, shape: Any) -> list[int]:
    return list(range(x.ndim - len(shape), x.ndim))


@normalize_trailing.vjp
def _normalize_trailing_vjp(grad, input, normalized_shape, weight, bias, eps):
    if _dispatch.takes_gradients_whole():
        return normalize_trailing_backward(grad, input, normalized_shape, weight, bias, eps)
    dims = _dims_of(input, normalized_shape)
    lead = [d for d in range(input.ndim) if d not in dims]
    to_input, unit = _standardize_vjp(grad, input, weight, dims, eps)
    return (
        lambda: to_input.to(input.dtype),
        lambda: _like(_sum_over(_wide(grad) * unit, lead), weight),
        lambda: depends_on(_like(_sum_over(_wide(grad), lead), bias), input),
    )


@composite(surface=0, one_node=True, samples="x(2, 3, 4), x(2, 3, 4), (4,), x(4), x(4)")
def normalize_trailing_backward(grad, input, normalized_shape: Sequence[int], weight=None, bias=None, eps=1e-5):
    """The gradients of `normalize_trailing` by input, weight and bias, of those that are there."""
    return whole_gradients(
        lambda input, *parameters: normalize_trailing(input, normalized_shape, *parameters, eps),
        lambda: _normalize_trailing_vjp(grad, input, normalized_shape, weight, bias, eps),
        grad, (input, weight, bias), (True, weight is not None, bias is not None),
    )  # fmt: skip


def _sum_over(x: Tensor, dims: list[int]) -> Tensor:
    return x.sum(dims) if dims else x


def _standardize_vjp(
    grad: Tensor, input: Tensor, weight: Tensor | None, dims: Any, eps: float
) -> tuple[Tensor, Tensor]:
    """Gradient of the standardized input, and the standardized input itself, as differentiable expressions."""
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
    from flambeau_kernels.cpu.norm import Moments
    from flambeau_kernels.cpu.row_programs import Normal

    def stage(name: Any, to: Any, moments: Any) -> Any:
        weight, bias = (name(p) if p in given else None for p in ("weight", "bias"))
        return Normal(centred, float(eps), weight, bias, name("input"), to, moments)

    return InRows(tuple(range(input.ndim - len(shape), input.ndim)), stage, given, 3, Moments)


@normalize_trailing.by_rows
def _normalize_trailing_rows(input, normalized_shape, weight, bias, eps):
    _, shape, *_ = _check_layer(input, normalized_shape, weight, bias, eps)
    return _rows_of(input, shape, eps, True, {"weight": weight, "bias": bias})


@normalize_trailing.vjp_on_arrays
def _normalize_trailing_vjp_on_arrays(grad, input, weight, bias, normalized_shape, kept, needs_input, needs_weight, needs_bias):
    from flambeau_kernels.cpu.norm import row_backward

    d = prod(normalized_shape)
    rows = prod(input.shape[: input.ndim - len(normalized_shape)])
    w = None if weight is None else weight.reshape(-1)
    to_input, to_weight, to_bias = row_backward(
        _as_rows(grad, rows, d), _as_rows(input, rows, d), w, kept, (needs_input, needs_weight, needs_bias)
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
    namespace="nn.functional", operator="layer_norm",
    samples="x(2, 3, 4), (4,), x(4), x(4); x(2, 3, 4), (3, 4)", scripted_as="layer_norm",
)
def layer_norm(input, normalized_shape: Sequence[int], weight=None, bias=None, eps=1e-5):
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


def _run_of_rows(input: Tensor, shape: tuple[int, ...], eps: float, centred: bool, weight: Any, bias: Any) -> Any:
    """``run(x, weight, bias)``: the result of normalizing over the last dimensions, which are `shape`, and its moments; or None."""
    from flambeau_kernels.cpu.norm import planned_rows

    a, d = input._array, prod(shape)
    parameters = (weight, bias)
    if any(p is not None and p.dtype is not input.dtype for p in parameters) or not a.size:
        return None
    return planned_rows(a.size // d, d, a.dtype, a.shape, float(eps), centred, *(p is not None for p in parameters))


def _plan_of_rows(
    input: Tensor, shape: tuple[int, ...], eps: float, centred: bool, weight: Any, bias: Any, records: Any, arguments: Any
) -> Plan | None:
    """The plan of normalizing over the last dimensions, which are `shape`."""
    from flambeau_kernels.cpu.norm import Moments

    run = _run_of_rows(input, shape, eps, centred, weight, bias)
    if run is None:
        return None

    def result(a: Any, weight: Any, bias: Any = None) -> Any:
        return run(a, weight, bias)[0]

    def taped(a: Any, weight: Any, bias: Any = None) -> Any:
        out, *moments = run(a, weight, bias)
        return out, Moments(*moments)

    return Plan(result, records, arguments, taped)


@layer_norm.plan(by="shape", tensors=("input", "weight", "bias"))
def _planned_layer_norm(input, normalized_shape, weight, bias, eps):
    _, shape, weight, bias, eps = _check_layer(input, normalized_shape, weight, bias, eps)
    return _plan_of_rows(
        input, shape, eps, True, weight, bias, normalize_trailing, lambda kept, input, weight, bias: (input, shape, weight, bias, eps)
    )


@composite(surface=FUNCTION, samples="x(2, 3, 4), (4,), x(4), x(4)")
def layer_norm__(input, normalized_shape: Sequence[int], weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    """`nn.functional.layer_norm` of the same arguments; `cudnn_enable` chooses among CUDA kernels only.

    See `nn.functional.layer_norm`.
    """
    return normalize_trailing(input, normalized_shape, weight, bias, eps)


@layer_norm__.forwards
def _as_the_function(input, normalized_shape, weight, bias, eps, cudnn_enable):
    return layer_norm.answer(input, normalized_shape, weight, bias, eps)


def dtype_of_statistics(input: Tensor, weight: Tensor | None) -> Any:
    """float32 where half inputs have float32 parameters, else the dtype of the input."""
    return input.dtype if weight is None else weight.dtype


@primitive(
    surface=0, tensors=("input", "weight", "bias"), keeps=True, check=_check_layer, autocast=(None, "float32"),
    samples="of native_layer_norm", public_name="native_layer_norm", cuda="rows.normalize_trailing_and_moments",
)
def normalize_trailing_and_moments(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """``(out, mean, inverse)``: `normalize_trailing`, and the mean and 1 / deviation of each slice, its dimensions kept as size 1."""


normalize_trailing_and_moments.recorded_as(normalize_trailing, lambda *args: args)
normalize_trailing_and_moments.in_pieces(lambda asked: [])


def with_moments(normalized: tuple[Any, Any], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """``(out, mean, inverse)``, the last two of that `shape`, and the moments, of what was normalized: its result and its moments."""
    out, moments = normalized
    # Copies: the rule of the gradient reads the moments.
    return (out, *(found.reshape(shape).copy() for found in (moments.mean, moments.inverse))), moments


@normalize_trailing_and_moments.kernel
def _normalize_trailing_and_moments(x, shape, weight, bias, eps):
    return with_moments(_normalize_trailing(x, shape, weight, bias, eps), _with_ones(x.shape, shape))


def _with_ones(shape: Any, normalized_shape: Any) -> tuple[int, ...]:
    """`shape` with 1 for each of the dimensions that are normalized over."""
    count = len(normalized_shape)
    return (*shape[: len(shape) - count], *(1,) * count)


@normalize_trailing_and_moments.shape
def _normalize_trailing_and_moments_shape(input, normalized_shape, weight, bias, eps):
    moments = _with_ones(input.shape, normalized_shape), dtype_of_moments(input)
    return [(input.shape, input.dtype), moments, moments]


@composite(
    surface=FUNCTION | OUT, samples="x(2, 3, 4), (4,), x(4), x(4), 1e-5", costly=True,
)
def native_layer_norm(input, normalized_shape: Sequence[int], weight, bias, eps: float):
    """``(out, mean, rstd)``: `layer_norm`, and the mean and 1 / deviation of each slice, its dimensions kept as size 1.

    Arguments as for `nn.functional.layer_norm`.
    """
    out, mean, inverse = normalize_trailing_and_moments(input, normalized_shape, weight, bias, eps)
    kind = dtype_of_statistics(input, weight)
    return out, mean.to(kind), inverse.to(kind)


@native_layer_norm.plan(by="shape", tensors=("input", "weight", "bias"), optional=("weight", "bias"))
def _planned_native_layer_norm(input, normalized_shape, weight, bias, eps):
    _, shape, weight, bias, eps = _check_layer(input, normalized_shape, weight, bias, eps)
    run = _run_of_rows(input, shape, eps, True, weight, bias)
    if run is None:
        return None
    return plan_with_moments(
        run, _with_ones(input.shape, shape), input.dtype.numpy,
        normalize_trailing, lambda kept, input, weight, bias: (input, shape, weight, bias, eps), of_first=True,
    )  # fmt: skip


def plan_with_moments(run: Any, shape: tuple[int, ...], kind: np.dtype, records: Any, arguments: Any, of_first: bool) -> Plan:
    """The plan of a normalization `run` that shows the mean and 1 / deviation that it finds, in that `shape` and dtype."""
    from flambeau_kernels.cpu.norm import Moments

    def result(*arrays: Any) -> Any:
        out, mean, _, inverse = run(*arrays)
        if mean.dtype is not kind:
            mean, inverse = mean.astype(kind, copy=False), inverse.astype(kind, copy=False)
        return out, mean.reshape(shape), inverse.reshape(shape)

    def taped(*arrays: Any) -> Any:
        out, mean, variance, inverse = run(*arrays)
        # Copies: the rule of the gradient reads the moments.
        return (out, mean.reshape(shape).astype(kind), inverse.reshape(shape).astype(kind)), Moments(mean, variance, inverse)

    return Plan(result, records, arguments, taped, of_first=of_first)


def _check_rms(input, normalized_shape, weight, eps):
    shape = _trailing("rms_norm", input, normalized_shape, weight=weight)
    if eps is None:
        wide = dtypes.float32 if input.dtype in (dtypes.float16, dtypes.bfloat16) else input.dtype
        eps = dtypes.finfo(wide).eps
    return input, shape, weight, eps


@primitive(
    surface=0, tensors=("input", "weight"), keeps=True, check=_check_rms, autocast=(None, "float32"), memory=CHANNELS,
    ordering=("input",), samples="of rms_norm",
    public_name="rms_norm",
    cuda="rows.scale_trailing",
)
def scale_trailing(input, normalized_shape, weight=None, eps=None):
    """`rms_norm`; what is kept are the root mean squares of rows."""


@scale_trailing.in_pieces
def _scale_trailing_pieces(asked):
    row = "_" * len(asked["normalized_shape"])
    return f"...{row},{row}->...{row}"


@scale_trailing.kernel
def _scale_trailing(x, shape, weight, eps):
    from flambeau_kernels.cpu.norm import row_normalize

    w = None if weight is None else weight.reshape(-1)
    rows = _as_rows(x, prod(x.shape[: x.ndim - len(shape)]), prod(shape))
    out, moments = row_normalize(rows, w, None, eps, centred=False)
    return out.reshape(x.shape), moments


@scale_trailing.shape
def _scale_trailing_shape(input, normalized_shape, weight, eps):
    return input.shape, input.dtype


@scale_trailing.vjp
def _scale_trailing_vjp(grad, input, normalized_shape, weight, eps):
    if _dispatch.takes_gradients_whole():
        return scale_trailing_backward(grad, input, normalized_shape, weight, eps)
    dims = _dims_of(input, normalized_shape)
    x = _wide(input)
    inverse = ((x * x).mean(dims, True) + eps).rsqrt()
    unit = x * inverse
    g = _wide(grad) if weight is None else _wide(grad) * _wide(weight)
    return (
        lambda: ((g - unit * (g * unit).mean(dims, True)) * inverse).to(input.dtype),
        lambda: _like(_sum_over(_wide(grad) * unit, [d for d in range(input.ndim) if d not in dims]), weight),
    )


@composite(surface=0, one_node=True, samples="x(2, 3, 4), x(2, 3, 4), (4,), x(4)")
def scale_trailing_backward(grad, input, normalized_shape: Sequence[int], weight=None, eps: float | None = None):
    """The gradients of `scale_trailing` by input and weight, of those that are there."""
    return whole_gradients(
        lambda input, weight: scale_trailing(input, normalized_shape, weight, eps),
        lambda: _scale_trailing_vjp(grad, input, normalized_shape, weight, dtypes.finfo(_wide(input).dtype).eps if eps is None else eps),
        grad, (input, weight), (True, weight is not None),
    )  # fmt: skip


@scale_trailing.by_rows
def _scale_trailing_rows(input, normalized_shape, weight, eps):
    _, shape, _, eps = _check_rms(input, normalized_shape, weight, eps)
    return _rows_of(input, shape, eps, False, {"weight": weight})


@scale_trailing.vjp_on_arrays
def _scale_trailing_vjp_on_arrays(grad, input, weight, normalized_shape, kept, needs_input, needs_weight):
    from flambeau_kernels.cpu.norm import row_backward

    d = prod(normalized_shape)
    rows = prod(input.shape[: input.ndim - len(normalized_shape)])
    w = None if weight is None else weight.reshape(-1)
    to_input, to_weight, _ = row_backward(
        _as_rows(grad, rows, d), _as_rows(input, rows, d), w, kept, (needs_input, needs_weight, False), centred=False
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
    surface=FUNCTION, aliases=("nn.functional.rms_norm",), operator="rms_norm",
    reads_parts=lambda input, *_: input.dtype.is_complex,
    samples="x(2, 3, 4), (4,), x(4); x(2, 3, 4), (3, 4), None, 1e-3",
)
def rms_norm(input, normalized_shape: Sequence[int], weight=None, eps: float | None = None):
    """Divide each slice over the last dimensions by its root mean square, then times `weight`.

    Args:
        normalized_shape: the last dimensions, which each slice has: an int or a sequence.
        weight: of `normalized_shape`, or None.
        eps: added to the mean square; the machine epsilon of the dtype computed in by default.
    Returns: the dtype of `input`, whatever that of `weight`.
    Raises: RuntimeError for shapes that do not fit; NotImplementedError for integers.
    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".

    >>> F.rms_norm(fb.tensor([[3.0, 4.0]]), (2,))
    tensor([[0.8485, 1.1314]])
    """
    if input.is_complex() or input.dtype not in dtypes.COMPUTED:
        return _rms_of_other(input, normalized_shape, weight, eps)
    kind = input.dtype
    halves_by_floats = weight is not None and weight.dtype is dtypes.float32 and kind in (dtypes.float16, dtypes.bfloat16)
    if weight is None or weight.dtype is kind or halves_by_floats:
        return scale_trailing(input, normalized_shape, weight, eps)
    # Rounded to the input's dtype once, after the weight.
    made = scale_trailing(_wide(input), normalized_shape, None, eps)
    _trailing("rms_norm", input, normalized_shape, weight=weight)
    return (made * weight).to(kind)


@rms_norm.plan(by="shape", tensors=("input", "weight"))
def _planned_rms_norm(input, normalized_shape, weight, eps):
    if input.is_complex() or (weight is not None and weight.dtype is not input.dtype):
        return None
    check_floating("rms_norm", input=input, weight=weight)
    _, shape, weight, eps = _check_rms(input, normalized_shape, weight, eps)
    return _plan_of_rows(input, shape, eps, False, weight, None, scale_trailing, lambda kept, input, weight: (input, shape, weight, eps))


def _rms_of_other(input: Tensor, normalized_shape: Any, weight: Tensor | None, eps: Any) -> Tensor:
    if not input.is_complex():
        raise NotImplementedError(
            f'"rms_norm" not implemented for {input.dtype}; convert the input with .to(dtype) first'
        )
    dims = _dims_of(input, _trailing("rms_norm", input, normalized_shape, weight=weight))
    eps = dtypes.finfo(input.dtype).eps if eps is None else eps
    made = input * ((input * input).mean(dims, True) + eps).rsqrt()
    return made if weight is None else made * weight


# -- others --------------------------------------------------------------------------------------------------


@composite(namespace="nn.functional", samples="x(2, 4, 3), 3, 0.1, 0.75, 1.0; x(2, 4, 3, 2), 2")
def local_response_norm(input, size: int, alpha=1e-4, beta=0.75, k=1.0):
    """Divide each element of ``(N, C, *)`` by a power of the mean square over neighbouring channels.

    ``input / (k + alpha * mean) ** beta``, the mean of squares over `size` channels around each; channels beyond the ends
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
    size = need_int("local_response_norm", "size", size)
    from .padding import pad_constant
    from .pool_means import running_mean

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


@normalize.plan(tensors=("input",), most_by_numpy=4096)                  # up to which lengths are added up in numpy's order
def _planned_directions(a, p, dim, eps):
    from ..linear_algebra.distance import directed

    return directed(a, p, dim, eps) if p in (1, 2) and dim.__class__ is int and -a.ndim <= dim < a.ndim else None
