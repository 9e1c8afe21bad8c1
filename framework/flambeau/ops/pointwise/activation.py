"""Activations: elementwise nonlinearities, and softmax with its relatives.

The forms of `nn.functional` that take ``inplace=`` are in `layers/functional.py`; here are the formulas behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau_kernels.cpu.reductions import moments
from flambeau_kernels.cpu.reductions import softmax as softmax_kernels
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags
from flambeau_kernels.vocabulary import (
    exp,
    expm1,
    log1p_exp,
    maximum,
    minimum,
    ndtr,
    normal_density,
    sigmoid,
    tanh,
    where,
)

from ... import dtypes
from ..._arrays import MetaArray
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor, wrap_dim
from .._batching import along
from .._promote import like_input, only, refuse
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    METHOD,
    OUT,
    aligned,
    composite,
    describe,
    elementwise,
    looks_at,
    number_is,
    primitive,
    reduced_shape,
    spread_dims,
    wrap_dims,
)
from .._spec.in_rows import InRows
from .._spec.names import keep, reduces
from .._spec.plans import Plan

_new = object.__new__

F = "nn.functional"
SQRT_TWO_OVER_PI = 0.7978845608028654
# Klambauer et al. 2017, "Self-Normalizing Neural Networks": the fixed point of mean 0 and variance 1.
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805

real_input = refuse("bool", "complex")(like_input)
floating_input = only("floating")(like_input)
inexact_input = only("floating", "complex")(like_input)


# -- rectifiers ----------------------------------------------------------------------------------------------------------


@elementwise(
    surface=FUNCTION | METHOD | INPLACE,
    dtype=real_input,
    vjp={"input": lambda grad, out: where(out <= 0, 0, grad)},  # of nan it is grad
    quantized="as_operand", finishes_products=True,
)
def relu(input):
    """``max(input, 0)``, elementwise; the derivative at 0 is 0. Raises: RuntimeError for bool and complex."""
    return where(input < 0, 0, input)  # nan and -0.0 stay


@elementwise(
    surface=0,
    dtype=floating_input,
    vjp={"input": lambda grad, input, slope: where(input > 0, grad, grad * slope)},
    quantized="as_operand", operator="leaky_relu(input, slope)",
)
def leaky_relu(input, slope):
    """`input` where positive, ``slope * input`` elsewhere."""
    return where(input > 0, input, input * slope)


leaky_relu.shown_as("LeakyReluBackward0", negative_slope="slope")


@elementwise(
    surface=0,
    dtype=floating_input,
    vjp={
        "input": lambda grad, input, weight: where(input > 0, grad, grad * weight),
        "weight": lambda grad, input: where(input > 0, 0, grad * input),
    },
    title="PreluKernelBackward0",
    operator="_prelu_kernel(input, weight)",
)
def prelu_kernel(input, weight):
    """`input` where positive, ``weight * input`` elsewhere, `weight` being of a shape that broadcasts."""
    return where(input > 0, input, input * weight)


@composite(
    surface=FUNCTION | METHOD, aliases=("nn.functional.prelu",), autocast=("lower", None),
    samples="x(2, 3, 4), x(3); x(5), x(1)",
    elements="mapped",
)
def prelu(input, weight):
    """`input` where positive, ``weight * input`` elsewhere.

    Args:
        weight: one slope for all, or one per channel (dimension 1 of `input`).
    Raises: RuntimeError for another number of slopes, for a weight of two or more dimensions or of another dtype.
    """
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if weight.dtype is not input.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported\n{describe(input=input, weight=weight)}")
    slopes = weight.numel()
    if slopes != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if input.ndim == 0:
            raise RuntimeError("prelu: Not allow zero-dim input tensor. Give one slope, not several")
        if channels != slopes:
            raise RuntimeError(
                f"prelu: Mismatch of parameter numbers and input channel size. Found parameter numbers = {slopes} and channel size = "
                f"{channels}.\n"
                f"{describe(input=input, weight=weight)}"
            )
    if weight.ndim == 1:
        weight = weight.reshape(_shape_of_slopes(input.ndim, slopes))
    return prelu_kernel.function(input, weight)


def _shape_of_slopes(ndim: int, slopes: int) -> tuple[int, ...]:
    """The shape in which a vector of `slopes` broadcasts with the channels of an input of `ndim` dimensions."""
    return () if ndim == 0 else (1,) if ndim == 1 else (slopes,) + (1,) * (ndim - 2)


@prelu.plan(by="shape", tensors=("input", "weight"))
def _planned_prelu(input, weight):
    slopes = weight.numel()
    if weight.ndim != 1 or weight.dtype is not input.dtype or slopes != 1 and (input.ndim < 2 or input.shape[1] != slopes):
        return None
    shape = _shape_of_slopes(input.ndim, slopes)
    return Plan(lambda a, weight: prelu_kernel.formula.direct(a, weight.reshape(shape)))


@elementwise(
    surface=0,
    dtype=floating_input,
    vjp={
        "input": lambda grad, input, alpha, scale, input_scale: where(
            input > 0, grad * scale, grad * (scale * alpha * input_scale * exp(minimum(input, 0) * input_scale))
        )
    },
    samples="x(2, 3), 0.7, 1.0, 1.0",
)
def elu(input, alpha, scale, input_scale):
    """``scale * input`` where positive, ``scale * alpha * (exp(input_scale * input) - 1)`` elsewhere."""
    return where(input > 0, input * scale, expm1(minimum(input, 0) * input_scale) * (alpha * scale))


def _as_given(name: str) -> Any:
    """A factor that nodes show: what layers do not ask for is the integer 1."""
    return lambda saved: 1 if saved[name] == 1 else saved[name]


elu.shown_as(scale=_as_given("scale"), input_scale=_as_given("input_scale"))


@elementwise(
    surface=FUNCTION | INPLACE,
    dtype=floating_input,
    vjp={
        "input": lambda grad, input: where(
            input > 0, grad * SELU_SCALE, grad * (SELU_SCALE * SELU_ALPHA * exp(minimum(input, 0)))
        )
    },
)
def selu(input):
    """``scale * (max(0, input) + min(0, alpha * (exp(input) - 1)))``, which keeps mean 0 and variance 1.

    The constants are scale 1.0507 and alpha 1.6733. Floating dtypes only. Source: Klambauer et al. 2017,
    "Self-Normalizing Neural Networks".
    """
    return where(input > 0, input * SELU_SCALE, expm1(minimum(input, 0)) * (SELU_SCALE * SELU_ALPHA))


selu.shown_as("EluBackward0", alpha=lambda saved: SELU_ALPHA, scale=lambda saved: SELU_SCALE, input_scale=lambda saved: 1)


@elementwise(
    surface=FUNCTION | INPLACE,
    dtype=floating_input,
    check=number_is("alpha", "alpha != 0", "celu: ZeroDivisionError: alpha cannot be 0 for CELU"),
    vjp={"input": lambda grad, input, alpha: where(input > 0, grad, grad * exp(minimum(input, 0) / alpha))},
)
def celu(input, alpha=1.0):
    """``max(0, input) + min(0, alpha * (exp(input / alpha) - 1))``; floating dtypes only.

    Raises: RuntimeError for ``alpha == 0``.
    Source: Barron 2017, "Continuously Differentiable Exponential Linear Units".
    """
    return where(input > 0, input, expm1(minimum(input, 0) / alpha) * alpha)


@looks_at("range")
def _check_fits_input(op: Any, input: Any, *numbers: Any) -> None:
    """Raise RuntimeError for a number that the dtype of `input` cannot hold."""
    for x in numbers:
        if not isinstance(x, Tensor):
            dtypes.check_number(x, input.dtype)


@elementwise(
    surface=FUNCTION | INPLACE,
    dtype=real_input,
    check=_check_fits_input,
    vjp={"input": lambda grad, input, threshold: where(input <= threshold, 0, grad)},
)
def threshold(input, threshold, value):
    """`input` where it exceeds `threshold`, `value` elsewhere; the derivative at `threshold` is 0."""
    return where(input <= threshold, value, input)


@elementwise(
    surface=0,
    dtype=real_input,
    check=_check_fits_input,
    vjp={"input": lambda grad, input, min_val, max_val: where((input > min_val) & (input < max_val), grad, 0)},
    quantized="as_operand",
)
def hardtanh(input, min_val, max_val):
    """`input` limited to ``[min_val, max_val]``; the derivative at either end is 0."""
    return minimum(maximum(input, min_val), max_val)


@elementwise(
    surface=0, dtype=floating_input, vjp={"input": lambda grad, input, noise: grad * noise}, title="RreluWithNoiseBackward0",
    public_name="rrelu", operator="mul(input, noise)",
)
def rrelu_with_noise(input, noise):
    """``input * noise``, `noise` being 1 where `input` is positive and a slope elsewhere."""
    return input * noise


# -- smooth and piecewise functions --------------------------------------------------------------------------------------


def _gelu_slope(input):
    return ndtr(input) + input * normal_density(input)


@elementwise(
    surface=0, dtype=floating_input, partials={"input": lambda input: _gelu_slope(input)}, title="GeluBackward0", operator="gelu(input)",
    public_name="gelu",
)
def gelu_exact(input):
    """``input`` times the standard normal's cumulative distribution."""
    return input * ndtr(input)


gelu_exact.shown_as("GeluBackward0", approximate=lambda saved: "none")


def _gelu_tanh(input):
    return tanh(SQRT_TWO_OVER_PI * (input + 0.044715 * input * input * input))


def _gelu_tanh_slope(input):
    t = _gelu_tanh(input)
    return 0.5 * (1 + t) + input * (0.5 * SQRT_TWO_OVER_PI) * (1 - t * t) * (1 + 0.134145 * input * input)


@elementwise(
    surface=0, dtype=floating_input, partials={"input": lambda input: _gelu_tanh_slope(input)}, title="GeluBackward0",
    operator="gelu(input, approximate='tanh')",
    public_name="gelu", finishes_products=True,
)
def gelu_tanh(input):
    """`gelu` with the normal's cumulative distribution approximated by a tanh."""
    return 0.5 * input * (1 + _gelu_tanh(input))


gelu_tanh.shown_as("GeluBackward0", approximate=lambda saved: "tanh")


@composite(
    surface=FUNCTION | OUT, namespace=F, numpy_names=True, overlap=EXACTLY,
    samples="x(2, 3); x(2, 3), approximate='tanh'", finishes_products=True,
)
def gelu(input, *, approximate="none"):
    """``input`` times the standard normal's cumulative distribution at `input`; floating dtypes only.

    Args:
        approximate: 'none', or 'tanh' for ``0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``.
    Returns: infinity at +infinity, and nan at -infinity, as in PyTorch.
    Raises: RuntimeError for another `approximate`.
    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".

    >>> F.gelu(fb.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    if approximate == "none":
        return gelu_exact.function(input)
    if approximate == "tanh":
        return gelu_tanh.function(input)
    raise RuntimeError(f"gelu: approximate argument must be either none or tanh. Got {approximate!r}")


_GELUS = {"none": gelu_exact, "tanh": gelu_tanh}
gelu.forwards(to=lambda input, approximate: (_GELUS[approximate], (input,)) if approximate in _GELUS else None)


def _silu_slope(input):
    s = sigmoid(input)
    return s * (1 + input * (1 - s))


@elementwise(surface=0, dtype=inexact_input, partials={"input": lambda input: _silu_slope(input)}, finishes_products=True)
def silu(input):
    """``input * sigmoid(input)``."""
    return input * sigmoid(input)


def _mish_slope(input):
    t = tanh(log1p_exp(input))
    return t + input * sigmoid(input) * (1 - t * t)


@elementwise(surface=0, dtype=floating_input, partials={"input": lambda input: _mish_slope(input)})
def mish(input):
    """``input * tanh(log(1 + exp(input)))``."""
    return input * tanh(log1p_exp(input))


@elementwise(
    surface=FUNCTION | OUT,
    namespace=F,
    dtype=floating_input,
    vjp={"input": lambda grad, input, beta, threshold: where(input * beta > threshold, grad, grad * sigmoid(input * beta))},
    numpy_names=True,
)
def softplus(input, beta=1, threshold=20):
    """``log(1 + exp(beta * input)) / beta``: a smooth relu, `input` itself where ``beta * input > threshold``.

    Args:
        beta: sharpness; the larger, the nearer to relu.
        threshold: beyond it the difference is below the rounding of float32, at the default of 20.
    Raises: RuntimeError for integers and complex.

    >>> F.softplus(fb.tensor([0.0, 1000.0]))
    tensor([6.9315e-01, 1.0000e+03])
    """
    scaled = input * beta
    return where(scaled > threshold, input, log1p_exp(minimum(scaled, threshold)) / beta)


@elementwise(
    surface=FUNCTION | OUT,
    namespace=F,
    dtype=floating_input,
    partials={"input": lambda input: sigmoid(-input)},
    title="LogSigmoidBackward0",
    numpy_names=True,
    operator="log_sigmoid(input)",
)
def logsigmoid(input):
    """``log(1 / (1 + exp(-input)))``, natural and without overflow; floating dtypes only."""
    return 0 - log1p_exp(-input)                      # which is 0, not -0, of large ones


logsigmoid.shown_as("LogSigmoidBackward0", buffer=lambda saved: saved["input"].detach().abs().neg().exp())


@elementwise(
    surface=0, dtype=floating_input, title="HardsigmoidBackward0",
    vjp={"input": lambda grad, input: where((input > -3) & (input < 3), grad * (1 / 6), 0)},
)  # fmt: skip
def hardsigmoid(input):
    """0 up to -3, 1 from 3 on, and ``input / 6 + 1 / 2`` between."""
    return minimum(maximum(input + 3, 0), 6) / 6


@elementwise(
    surface=0, dtype=floating_input, title="HardswishBackward0",
    vjp={"input": lambda grad, input: where(input <= -3, 0, where(input >= 3, grad, grad * (input / 3 + 0.5)))},
)  # fmt: skip
def hardswish(input):
    """``input`` times its `hardsigmoid`."""
    return input * minimum(maximum(input + 3, 0), 6) / 6


@elementwise(
    surface=FUNCTION | METHOD | OUT, dtype=floating_input, aliases=("nn.functional.hardshrink",),
    vjp={"input": lambda grad, input, lambd: where((input < -lambd) | (input > lambd), grad, 0)},
)  # fmt: skip
def hardshrink(input, lambd=0.5):
    """`input`, but 0 within ``[-lambd, lambd]``; floating dtypes only."""
    return where((input >= -lambd) & (input <= lambd), 0, input)


@elementwise(
    surface=FUNCTION | OUT, namespace=F, dtype=floating_input,
    check=number_is("lambd", "not lambd < 0", "softshrink: lambda must be greater or equal to 0, but found to be {}."),
    vjp={"input": lambda grad, input, lambd: where((input < -lambd) | (input > lambd), grad, 0)},
    numpy_names=True,
)  # fmt: skip
def softshrink(input, lambd=0.5):
    """`input` moved towards 0 by `lambd`, and 0 within ``[-lambd, lambd]``. Raises: RuntimeError for a negative `lambd`."""
    # nan goes through: none of the comparisons holds for it, and input * 0 keeps it.
    return where(input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0))


@composite(namespace=F, samples="x(2, 3)", elements="mapped")
def tanhshrink(input):
    """``input - tanh(input)``."""
    return input - input.tanh()


@composite(namespace=F, samples="x(2, 3)", elements="mapped")
def softsign(input):
    """``input / (1 + |input|)``, in (-1, 1); integers give the default floating dtype."""
    return input / (input.abs() + 1)


def _gate_slope(input, gate):
    s = sigmoid(gate)
    return input * s * (1 - s)


@elementwise(
    surface=0, dtype=inexact_input, samples="of nn.functional.glu", public_name="glu", title="GluBackward0",
    partials={"input": lambda gate: sigmoid(gate), "gate": lambda input, gate: _gate_slope(input, gate)},
)
def gated(input, gate):
    """``input * sigmoid(gate)``."""
    return input * sigmoid(gate)


@composite(surface=FUNCTION | OUT, namespace=F, reads_parts=True, samples="x(2, 4); x(4, 3), 0")
def glu(input, dim=-1):
    """The first half of `input` along `dim`, times the sigmoid of the second half, so that `dim` is halved.

    Raises: RuntimeError for a 0-d input and for an odd number of elements along `dim`.
    Source: Dauphin et al. 2017, "Language Modeling with Gated Convolutional Networks".
    """
    if input.dtype.category != dtypes.FLOATING:
        raise NotImplementedError(f'"glu" not implemented for {input.dtype}; convert the input with .to(dtype) first')
    if input.ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    d = wrap_dim(dim, input.ndim)
    size = input.shape[d]
    if size % 2:
        raise RuntimeError(f"glu: Halving dimension must be even, but dimension {d} is size {size}\n{describe(input=input)}")
    return gated.function(input.narrow(d, 0, size // 2), input.narrow(d, size // 2, size // 2))


# -- softmax -------------------------------------------------------------------------------------------------------------


def _check_softmax(input, dim):
    if input.dtype.category != dtypes.FLOATING:
        raise NotImplementedError(f'"softmax" not implemented for {input.dtype}; give a floating dtype=, as in dtype=torch.float32')
    return input, wrap_dim(dim, input._array.ndim)


@primitive(
    surface=0, check=_check_softmax, autocast=(None, "float32"), operator="_softmax(input, dim, False)",
    samples="x(2, 3), 1",
    public_name="softmax",
    batch_rule=along,
    cuda="rows.softmax",
)
def softmax_along(input, dim):
    """``exp(input)`` over its sum along `dim`."""


softmax_along.shown_as("SoftmaxBackward0")


softmax_along.in_pieces(along="dim")


@softmax_along.kernel
def _softmax_kernel(a, dim):
    return softmax_kernels.softmax(a, dim)


_MOST_PLANNED = (1 << 15) - 1  # elements; beyond, the calls saved do not show

softmax_along.plan(softmax_kernels.softmax, native=softmax_kernels.shares, wraps="dim", dtypes="fd", most=_MOST_PLANNED)


@softmax_along.shape
def _softmax_shape(input, dim):
    return input.shape, input.dtype


def _has_slope_kernel(grad, out):
    """Whether the gradient is that of one kernel: on the CPU, and for what stands for tensors there, so that recordings have its bits."""
    array = out._array.__class__
    return array is np.ndarray and type(out) is Tensor or array is MetaArray and not grad.is_cuda


@softmax_along.vjp
def _softmax_vjp(grad, out, dim):
    if _has_slope_kernel(grad, out):
        return (_softmax_backward_data.function(grad, out, dim, out.dtype),)
    weighted = grad * out
    return (weighted - out * weighted.sum(dim, keepdim=True) if out.ndim else weighted - out * weighted,)


def _check_slope(grad_output, output, dim, input_dtype):
    if output.dtype.category != dtypes.FLOATING or grad_output.dtype is not output.dtype or grad_output.shape != output.shape:
        raise RuntimeError(
            "softmax backward: the gradient and the result of a softmax have one shape and floating dtype, but they are "
            f"{list(grad_output.shape)} {grad_output.dtype} and {list(output.shape)} {output.dtype}"
        )
    return grad_output, output, wrap_dim(dim, output.ndim), input_dtype


def _total(x, dim):
    """The sum along `dim`, which stays; a number is its own."""
    return x.sum(dim, keepdim=True) if x.ndim else x


def _slope_shape(grad_output, output, dim, input_dtype):
    return output.shape, dtypes.float16 if input_dtype is dtypes.float16 else output.dtype


def _in_half(a, dtype):
    return a.astype(np.float16) if dtype is dtypes.float16 and a.dtype != np.float16 else a


@primitive(
    surface=0, tensors=("grad_output", "output"), check=_check_slope, samples="x(2, 3), x(2, 3), 1, fb.float64", batch_rule=along,
)
def _softmax_backward_data(grad_output, output, dim, input_dtype):
    """The gradient of the input of a softmax along `dim` from that of its result `output`; float16 if `input_dtype` is."""


_softmax_backward_data.in_pieces(along="dim")


@_softmax_backward_data.kernel
def _softmax_slope_kernel(grad, out, dim, input_dtype):
    return _in_half(softmax_kernels.softmax_grad(grad, out, dim), input_dtype)


_softmax_backward_data.shape(_slope_shape)


@_softmax_backward_data.vjp
def _softmax_slope_vjp(grad, grad_output, output, dim):
    # y = output * (grad_output - s), where s is the sum of output * grad_output
    grad = grad.to(output.dtype)
    crossed = _total(grad * output, dim)
    return output * (grad - crossed), lambda: grad * (grad_output - _total(output * grad_output, dim)) - grad_output * crossed


@softmax_along.vjp_on_arrays
def _softmax_vjp_on_arrays(grad, out, dim):
    return (softmax_kernels.softmax_grad(grad, out, dim),)


@primitive(
    surface=0, check=_check_softmax, autocast=(None, "float32"), operator="_log_softmax(input, dim, False)",
    samples="x(2, 3), 1",
    public_name="log_softmax",
    batch_rule=along,
    cuda="rows.log_softmax",
)
def log_softmax_along(input, dim):
    """``input - log(sum(exp(input)))`` along `dim`."""


log_softmax_along.shown_as("LogSoftmaxBackward0")


log_softmax_along.in_pieces(along="dim")


@log_softmax_along.kernel
def _log_softmax_kernel(a, dim):
    return softmax_kernels.log_softmax(a, dim)


log_softmax_along.plan(softmax_kernels.log_softmax, native=softmax_kernels.log_shares, wraps="dim", dtypes="fd", most=_MOST_PLANNED)


@log_softmax_along.shape
def _log_softmax_shape(input, dim):
    return input.shape, input.dtype


@log_softmax_along.vjp
def _log_softmax_vjp(grad, out, dim):
    if _has_slope_kernel(grad, out):
        return (_log_softmax_backward_data.function(grad, out, dim, out.dtype),)
    return (grad - out.exp() * _total(grad, dim),)


@log_softmax_along.vjp_on_arrays
def _log_softmax_vjp_on_arrays(grad, out, dim):
    return (softmax_kernels.log_softmax_grad(grad, out, dim),)


@primitive(
    surface=0, tensors=("grad_output", "output"), check=_check_slope, samples="x(2, 3), x(2, 3), 1, fb.float64", batch_rule=along,
)
def _log_softmax_backward_data(grad_output, output, dim, input_dtype):
    """The gradient of the input of a log_softmax along `dim` from that of its result `output`; float16 if `input_dtype` is."""


_log_softmax_backward_data.in_pieces(along="dim")


@_log_softmax_backward_data.kernel
def _log_softmax_slope_kernel(grad, out, dim, input_dtype):
    return _in_half(softmax_kernels.log_softmax_grad(grad, out, dim), input_dtype)


_log_softmax_backward_data.shape(_slope_shape)


@_log_softmax_backward_data.vjp
def _log_softmax_slope_vjp(grad, grad_output, output, dim):
    # y = grad_output - exp(output) * s, where s is the sum of grad_output
    grad = grad.to(output.dtype)
    weighted = grad * output.exp()
    return grad - _total(weighted, dim), lambda: -weighted * _total(grad_output, dim)


def _rows_of(logs: bool) -> Any:
    def rows_of(input, dim):
        ndim = input._array.ndim
        if not ndim or dim % ndim != ndim - 1 or (input.dtype is not dtypes.float32 and input.dtype is not dtypes.float64):
            return None
        from flambeau_kernels.cpu.row_programs import Shares

        return InRows((ndim - 1,), lambda name, to, moments: Shares(logs, name("input"), to))

    return rows_of


softmax_along.by_rows(_rows_of(False))
log_softmax_along.by_rows(_rows_of(True))


def _converted(name: str, input: Any, dtype: Any) -> Tensor:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(input).__name__}")
    if dtype is None or dtype is input.dtype:
        return input
    return input.to(dtypes.as_dtype(dtype, name))


@composite(
    surface=FUNCTION | METHOD | OUT, aliases=("special.softmax",), exact_out=True,
    samples="x(2, 3), 1; x(2, 3, 4), 0; x(2, 3), -1, dtype=fb.float64",
    elements="along",
    names=keep,
)
def softmax(input, dim: int, dtype: dtypes.dtype | None = None):
    """``exp(input)`` over its sum along `dim`, without overflow: positive, adding up to 1.

    Args:
        dtype: floating; `input` is converted to it first.
    Raises: RuntimeError unless the dtype is floating; IndexError when there is no dimension `dim`.

    >>> fb.softmax(fb.tensor([0.0, math.log(3.0)]), dim=0)
    tensor([0.2500, 0.7500])
    """
    return softmax_along.function(_converted("softmax", input, dtype), dim)


@composite(surface=0, reads_parts=True, samples="x(2, 3), 1", elements="along")
def _safe_softmax(input, dim: int, dtype: dtypes.dtype | None = None):
    """`softmax`, but zeros where all numbers along `dim` are -infinity."""
    nothing = (input == -float("inf")).all(dim, keepdim=True)
    return softmax.function(input, dim, dtype).masked_fill(nothing, 0)


@softmax.forwards
def _softmax_along(input, dim, dtype):
    return softmax_along.answer(input, dim) if dtype is None else None


@composite(
    surface=FUNCTION | METHOD | OUT, aliases=("special.log_softmax",), exact_out=True,
    samples="x(2, 3), 1; x(2, 3, 4), 0; x(2, 3), -1, dtype=fb.float64",
    elements="along",
    names=keep,
)
def log_softmax(input, dim: int, dtype: dtypes.dtype | None = None):
    """``log(softmax(input))`` along `dim`, without the overflow of computing it that way.

    Args:
        dtype: floating; `input` is converted to it first.
    Raises: RuntimeError unless the dtype is floating; IndexError when there is no dimension `dim`.
    """
    return log_softmax_along.function(_converted("log_softmax", input, dtype), dim)


@log_softmax.forwards
def _log_softmax_along(input, dim, dtype):
    return log_softmax_along.answer(input, dim) if dtype is None else None


@primitive(surface=0, tensors=("input",), samples="x(2, 3), (0, 1), True", public_name="logsumexp", batch_rule=along, cuda="sums.logsumexp")
def logsumexp_over(input, dims, keepdim):
    """``log(sum(exp(input)))`` over the dimensions `dims`."""


logsumexp_over.shown_as("LogsumexpBackward0", dim="dims")


logsumexp_over.in_pieces(along="dims")


@logsumexp_over.kernel
def _logsumexp_kernel(a, dims, keepdim):
    return moments.logsumexp(a, dims, keepdim)


@logsumexp_over.shape
def _logsumexp_shape(input, dims, keepdim):
    return reduced_shape(tuple(input.shape), dims, keepdim), input.dtype


logsumexp_over.plan(softmax_kernels.log_sums, dims="dims")


@logsumexp_over.vjp_on_arrays
def _logsumexp_vjp_on_arrays(grad, out, input, dims, keepdim):
    if input.dtype is not FLOAT32 and input.dtype is not FLOAT64:
        return None
    top = aligned(out, input.shape, dims, keepdim)
    token = ignore_fp_flags()
    made = np.asarray(np.exp(input - np.where(top == -np.inf, 0, top)))
    made *= aligned(grad, input.shape, dims, keepdim)
    restore_fp_flags(token)
    return (made,)


@logsumexp_over.vjp
def _logsumexp_vjp(grad, out, input, dims, keepdim):
    shape = tuple(input.shape)
    top = spread_dims(out, shape, dims, keepdim)
    if not input.is_complex():
        # Where everything is -inf nothing is to be shared: exp(-inf - 0) is the 0 wanted, exp(-inf - -inf) is nan.
        top = top.where(top != -np.inf, 0)
    return (spread_dims(grad, shape, dims, keepdim) * (input - top).exp().conj(),)


@composite(
    surface=FUNCTION | METHOD | OUT, aliases=("special.logsumexp",),
    samples="x(2, 3), 1; x(2, 3, 4), (0, 2), keepdim=True",
    elements="reduced",
    names=reduces,
)
def logsumexp(input, dim: int | Sequence[int], keepdim=False):
    """``log(sum(exp(input)))`` over `dim` (an int or several), without overflow.

    Where there is nothing to add it is -inf. Integers are converted to the default floating dtype.

    >>> fb.logsumexp(fb.tensor([1000.0, 1000.0]), dim=0)
    tensor(1000.6932)
    """
    if input.dtype.category < dtypes.FLOATING:
        input = input.to(dtypes.get_default_dtype())
    return logsumexp_over.function(input, wrap_dims("logsumexp", dim, input.ndim), keepdim)


logsumexp.forwards(logsumexp_over)
