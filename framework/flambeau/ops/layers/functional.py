"""Activations and dropout as `nn.functional` has them: with an ``inplace`` flag, and with forms named ``relu_``.

Nothing is computed here: the formulas are in `pointwise/activation.py`, the random numbers come from the default generator.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.arithmetic import TIMES
from flambeau_kernels.cpu import random as draws

from ... import _state, dtypes
from ..._interpreters import innermost_batch
from ..._warn import warn
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor
from .._spec import FUNCTION, OPS, Op, composite, primitive
from .._spec.names import keep
from .._spec.writing import cannot_be_cast
from ..creation.create import empty_like
from ..creation.ranges import arange
from ..pointwise import activation as act

F = "nn.functional"


@cache
def _inplace(op: Op) -> Any:
    from .. import _entry

    return _entry.make_inplace(op)


def _apply(op: Op, inplace: bool, input: Any, *parameters: Any) -> Tensor:
    if inplace:
        return _inplace(op)(input, *parameters)
    return op.function(input, *parameters)


_relu, _silu = act.relu.function, act.silu.function


@composite(namespace=F, samples="x(2, 3)", finishes_products=True, names=keep, scripted_as="relu")
def relu(input, inplace=False):
    """``max(input, 0)``, elementwise."""
    return _inplace(act.relu)(input) if inplace else _relu(input)


@composite(namespace=F, numpy_names=True, samples="x(2, 3)")
def relu_(input):
    """In-place form of `relu`."""
    return _inplace(act.relu)(input)


@composite(namespace=F, samples="x(2, 3)", scripted_as="relu6")
def relu6(input, inplace=False):
    """``min(max(input, 0), 6)``, elementwise."""
    return _apply(act.hardtanh, inplace, input, 0, 6)


@composite(namespace=F, samples="x(2, 3), 0.2", scripted_as="leaky_relu")
def leaky_relu(input, negative_slope=0.01, inplace=False):
    """`input` where positive, ``negative_slope * input`` elsewhere; floating dtypes only.

    Source: Maas, Hannun and Ng 2013, "Rectifier Nonlinearities Improve Neural Network Acoustic Models".
    """
    return _apply(act.leaky_relu, inplace, input, negative_slope)


@composite(namespace=F, numpy_names=True, samples="x(2, 3), 0.2")
def leaky_relu_(input, negative_slope=0.01):
    """In-place form of `leaky_relu`."""
    return _apply(act.leaky_relu, True, input, negative_slope)


@composite(namespace=F, samples="x(2, 3), 0.7", scripted_as="elu")
def elu(input, alpha=1.0, inplace=False):
    """`input` where positive, ``alpha * (exp(input) - 1)`` elsewhere; floating dtypes only.

    Source: Clevert, Unterthiner and Hochreiter 2015, "Fast and Accurate Deep Network Learning by Exponential
        Linear Units".
    """
    return _apply(act.elu, inplace, input, alpha, 1.0, 1.0)


@composite(namespace=F, numpy_names=True, samples="x(2, 3), 0.7")
def elu_(input, alpha=1.0):
    """In-place form of `elu`."""
    return _apply(act.elu, True, input, alpha, 1.0, 1.0)


@composite(namespace=F, samples="x(2, 3)", scripted_as="selu")
def selu(input, inplace=False):
    """`elu` with the scale and alpha that keep mean 0 and variance 1 (Klambauer et al. 2017)."""
    return _apply(act.selu, inplace, input)


@composite(namespace=F, numpy_names=True, samples="x(2, 3)")
def selu_(input):
    """In-place form of `selu`."""
    return _apply(act.selu, True, input)


@composite(namespace=F, samples="x(2, 3), 0.7", scripted_as="celu")
def celu(input, alpha=1.0, inplace=False):
    """``max(0, input) + min(0, alpha * (exp(input / alpha) - 1))``."""
    return _apply(act.celu, inplace, input, alpha)


@composite(namespace=F, numpy_names=True, samples="x(2, 3), 0.7")
def celu_(input, alpha=1.0):
    """In-place form of `celu`."""
    return _apply(act.celu, True, input, alpha)


@composite(namespace=F, samples="x(2, 3)", finishes_products=True, scripted_as="silu")
def silu(input, inplace=False):
    """``input * sigmoid(input)``, also called swish; floating dtypes only.

    Source: Elfwing, Uchibe and Doya 2017, "Sigmoid-Weighted Linear Units".
    """
    return _inplace(act.silu)(input) if inplace else _silu(input)


@composite(namespace=F, samples="x(2, 3)", scripted_as="mish")
def mish(input, inplace=False):
    """``input * tanh(log(1 + exp(input)))``; floating dtypes only.

    Source: Misra 2019, "Mish: A Self Regularized Non-Monotonic Activation Function".
    """
    return _apply(act.mish, inplace, input)


@composite(namespace=F, samples="x(2, 3)", elements="mapped", scripted_as="hardswish")
def hardswish(input, inplace=False):
    """0 up to -3, `input` from 3 on, and ``input * (input + 3) / 6`` between; floating dtypes only.

    Source: Howard et al. 2019, "Searching for MobileNetV3".
    """
    return _apply(act.hardswish, inplace, input)


@composite(namespace=F, samples="x(2, 3)", scripted_as="hardsigmoid")
def hardsigmoid(input, inplace=False):
    """0 up to -3, 1 from 3 on, and ``input / 6 + 1 / 2`` between."""
    return _apply(act.hardsigmoid, inplace, input)


def _check_hardtanh(input: Tensor, min_val: float, max_val: float) -> None:
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val cannot be greater than max_val, got min_val={min_val} and max_val={max_val}")
    if input.dtype is dtypes.bool:
        raise NotImplementedError("hardtanh: Bool inputs not supported; convert the input with .to(dtype) first")
    if input.dtype.category == dtypes.INTEGER and not input.dtype.is_signed and min_val < 0:
        raise RuntimeError(f"hardtanh: cannot do hardtanh on an unsigned type with negative limits, got min_val={min_val}")


@composite(namespace=F, samples="x(2, 3), -0.5, 0.7")
def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """`input` limited to ``[min_val, max_val]``. Raises: ValueError if ``min_val > max_val``."""
    _check_hardtanh(input, min_val, max_val)
    return _apply(act.hardtanh, inplace, input, min_val, max_val)


@composite(namespace=F, numpy_names=True, samples="x(2, 3), -0.5, 0.7")
def hardtanh_(input, min_val=-1.0, max_val=1.0):
    """In-place form of `hardtanh`, which takes bounds in the wrong order too."""
    return _apply(act.hardtanh, True, input, min_val, max_val)


@composite(namespace=F, samples="x(2, 3), 0.1, -2.0", elements="mapped", scripted_as="threshold")
def threshold(input, threshold, value, inplace=False):
    """`input` where it exceeds `threshold`, `value` elsewhere; see `relu`, which has 0 for both."""
    return _apply(act.threshold, inplace, input, threshold, value)


@composite(namespace=F, numpy_names=True, samples="x(2, 3), 0.1, -2.0")
def threshold_(input, threshold, value):
    """In-place form of `threshold`."""
    return _apply(act.threshold, True, input, threshold, value)


def _forward(composition: Any, op: Op, *after: Any) -> None:
    """Let recorders ask for `op` where `composition`, whose last parameter is ``inplace``, is not in place; `after` follows its others."""
    composition.forwards(to=lambda input, *given: None if given[-1] else (op, (input, *given[:-1], *after)))


for _composition, _op, _after in (
    (relu, act.relu, ()), (relu6, act.hardtanh, (0, 6)), (leaky_relu, act.leaky_relu, ()), (elu, act.elu, (1.0, 1.0)), (selu, act.selu, ()),
    (celu, act.celu, ()), (silu, act.silu, ()), (mish, act.mish, ()), (hardswish, act.hardswish, ()), (hardsigmoid, act.hardsigmoid, ()),
):  # fmt: skip
    _forward(_composition, _op, *_after)


# -- softmax -------------------------------------------------------------------------------------------------------------


def _implicit_dim(name: str, dim: Any, ndim: int) -> int:
    """The dimension softmax takes when none is given, which it warns about."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        UserWarning,
        stacklevel=4,
    )
    return 0 if ndim in (0, 1, 3) else 1


@composite(namespace=F, samples="x(2, 3), 1; x(2, 3, 4), 0", elements="along", names=keep)
def softmax(input, dim: int | None = None, _stacklevel=3, dtype: dtypes.dtype | None = None):
    """``exp(input)`` over its sum along `dim`; `input` is converted to `dtype` first.

    Give `dim`: without it a dimension is guessed from the number of them, with a warning.
    """
    return act.softmax.function(input, _implicit_dim("softmax", dim, input.ndim), dtype)


@softmax.forwards
def _softmax_along(input, dim, stacklevel, dtype):
    return act.softmax_along.answer(input, dim) if dtype is None and dim is not None else None


@composite(namespace=F, samples="x(2, 3), 1; x(2, 3, 4), 0", elements="along", names=keep)
def log_softmax(input, dim: int | None = None, _stacklevel=3, dtype: dtypes.dtype | None = None):
    """``log(softmax(input))`` along `dim`, without overflow; `input` is converted to `dtype` first.

    Give `dim`: without it a dimension is guessed from the number of them, with a warning.
    """
    return act.log_softmax.function(input, _implicit_dim("log_softmax", dim, input.ndim), dtype)


@log_softmax.forwards
def _log_softmax_along(input, dim, stacklevel, dtype):
    return act.log_softmax_along.answer(input, dim) if dtype is None and dim is not None else None


@composite(namespace=F, samples="x(2, 3), 1", elements="along")
def softmin(input, dim: int | None = None, _stacklevel=3, dtype: dtypes.dtype | None = None):
    """``softmax(-input)`` along `dim`; `input` is converted to `dtype` first."""
    return act.softmax.function(-input, _implicit_dim("softmin", dim, input.ndim), dtype)


@composite(namespace=F, samples="x(2, 3); x(2, 3), 0.5, True", random=True)
def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample from the Gumbel-softmax distribution: ``softmax((logits + gumbel noise) / tau)`` along `dim`.

    Args:
        hard: return the one-hot vector of the largest entry, with the gradient of the soft sample.
        eps: has no effect.
    Source: Jang, Gu and Poole 2016, "Categorical Reparameterization with Gumbel-Softmax".
    """
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.")
    gumbel = -logits.detach().new_empty(logits.shape).exponential_().log()
    soft = act.softmax.function((logits + gumbel) / tau, dim)
    if not hard:
        return soft
    at = soft.max(dim, keepdim=True)[1]
    if soft.ndim:                                     # of a number the only place is the largest
        places = arange(soft.shape[dim], device=soft.device).reshape([-1 if d == dim % soft.ndim else 1 for d in range(soft.ndim)])
    else:
        places = at
    one_hot = (at == places).to(soft.dtype)
    return one_hot - soft.detach() + soft


# -- randomness ----------------------------------------------------------------------------------------------------------


def stream() -> Any:
    """The default generator's stream of random numbers."""
    return _generator()._stream


@cache
def _generator() -> Any:
    from ...random import default_generator

    return default_generator


def _noise(input: Tensor, shape: tuple[int, ...] | None, p: float) -> Tensor:
    """0 with probability `p`, else 1, in the dtype of `input`: of `shape`, or if None of its shape and memory order."""
    if not dtypes.FLOATING <= input.dtype.category < dtypes.COMPLEX:
        raise RuntimeError(f"dropout: {cannot_be_cast(dtypes.float32, input.dtype)}; use a floating dtype")
    plain = input.detach()
    if _state.IN_FORCE and plain.__class__ is Tensor and (level := innermost_batch()) is not None:
        # The noise of examples that share the input, as where forward mode has a batch of tangents, is drawn for all at once.
        drawn = level.drawn(lambda lead: plain.new_empty((*lead, *(plain.shape if shape is None else shape))).bernoulli_(1 - p))
        if drawn is not None:
            return drawn
    # Numbers are drawn in the order of memory, which noise of a shape of its own does not have from the input, even if it is its shape.
    empty = empty_like(plain) if shape is None else plain.new_empty(shape)
    return empty.bernoulli_(1 - p)


def _product(input: Tensor, noise: Tensor, inplace: bool) -> Tensor:
    return input.mul_(noise) if inplace else input * noise


def _drop(input: Tensor, p: float, train: bool, inplace: bool, shape: tuple[int, ...] | None = None) -> Tensor:
    """Zero elements with probability `p` and divide the others by ``1 - p``; `shape` says which share their fate."""
    if not isinstance(input, Tensor):
        raise TypeError(f"dropout(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        return _product(input, input.detach().new_zeros(()), inplace)
    return _product(input, _noise(input, shape, p).div_(1 - p), inplace)


# Klambauer et al. 2017: what a unit dropped by alpha dropout is set to is the limit of selu, -scale * alpha.
ALPHA_DROP = 1.7580993408473766


def _alpha_drop(input: Tensor, p: float, train: bool, inplace: bool, shape: tuple[int, ...] | None = None) -> Tensor:
    """Set elements to the limit of selu with probability `p`, then scale and shift all to keep mean and variance."""
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        return _product(input, input.detach().new_zeros(()), inplace)
    noise = _noise(input, shape, p)
    scale = 1 / ((ALPHA_DROP * ALPHA_DROP * p + 1) * (1 - p)) ** 0.5
    shift = noise.sub(1).mul_(ALPHA_DROP * scale).add_(ALPHA_DROP * scale * p)
    noise.mul_(scale)
    return input.mul_(noise).add_(shift) if inplace else input * noise + shift


def _channels(input: Tensor) -> tuple[int, ...]:
    """The shape of noise that whole channels share. Raises: RuntimeError below two dimensions."""
    if input.ndim < 2:
        raise RuntimeError(f"Feature dropout requires at least 2 dimensions in the input, got shape {tuple(input.shape)}")
    return (*input.shape[:2], *(1,) * (input.ndim - 2))


def _check_p(p: float, kind: type[Exception] = ValueError) -> None:
    if not 0.0 <= p <= 1.0:
        raise kind(f"dropout probability has to be between 0 and 1, but got {p}")


@composite(
    namespace=F, operator="dropout(input, p, training)", reads_parts=True, samples="x(2, 3), 0.3; x(2, 3), 0.3, False",
    random=("training", "p"),
    elements="mapped", names=keep,
)
def dropout(input, p=0.5, training=True, inplace=False):
    """Zero each element with probability `p` and divide the others by ``1 - p``; outside training `input` itself.

    Args:
        p: probability of dropping an element.
        training: whether anything is dropped. Not known from any module: pass ``self.training``.
    Raises: ValueError unless ``0 <= p <= 1``.
    Source: Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".

    >>> F.dropout(fb.ones(3), p=0.5, training=False)
    tensor([1., 1., 1.])
    """
    _check_p(p)
    return _drop(input, p, training, inplace)


@dropout.forwards
def _multiplied_by_mask(input, p, training, inplace=False):
    """In training, of host tensors in C order: `_drop` without its questions."""
    a: Any = getattr(input, "_array", None)
    if a.__class__ is not np.ndarray or training is not True or inplace is not False or p.__class__ is not float or not 0 < p < 1:
        return None
    dtype = a.dtype
    if not a.size or (dtype is not FLOAT32 and dtype is not FLOAT64) or not a.flags.c_contiguous:
        return None
    kept = 1 / (1 - p) if dtype is FLOAT64 else _scale(p)
    noise = draws.coins(stream(), a.shape, a, 1 - p)
    if noise is None:
        noise = draws.bernoulli(stream(), np.empty(a.shape, dtype), 1 - p, kept)
    else:
        TIMES.into(noise, kept)
    return input * hot_calls.over(noise)


@lru_cache(64)
def _scale(p: float) -> float:
    """What is kept is multiplied by this, in float32."""
    return float(np.float32(1) / np.float32(1 - p))


@composite(namespace=F, samples="x(2, 3), 0.3, True", random=("training", "p"), elements="mapped", scripted_as="alpha_dropout")
def alpha_dropout(input: Tensor, p=0.5, training: bool = False, inplace=False):
    """Dropout that keeps mean 0 and variance 1, for networks of `selu` units.

    Args:
        p: probability of dropping an element, which then takes the limit of `selu` at minus infinity.
        training: whether anything is dropped; False by default, unlike `nn.functional.dropout`.
    Raises: ValueError unless ``0 <= p <= 1``.
    Source: Klambauer et al. 2017, "Self-Normalizing Neural Networks".
    """
    _check_p(p)
    return _alpha_drop(input, p, training, inplace)


def _feature_forms(name: str, doc: str, drop: Any, training: bool, samples: str, **facts: Any) -> None:
    def form(input: Tensor, p=0.5, training: bool = training, inplace=False):
        _check_p(p)
        return drop(input, p, training, inplace)

    form.__name__ = name
    form.__doc__ = doc
    composite(namespace=F, samples=samples, random=("training", "p"), elements="mapped", **facts)(form)


def _dropout1d(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input of shape {tuple(input.shape)}: "
            "dropout1d drops channels of inputs (C, L) or (N, C, L)"
        )
    batched = input if input.ndim == 3 else input.unsqueeze(0)
    result = _drop(batched, p, training, inplace, _channels(batched))
    if inplace:
        return input
    return result if input.ndim == 3 else result.squeeze(0)


def _dropout2d(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if input.ndim not in (3, 4):
        _warn_dims("dropout2d", input.ndim, 2)
    if input.ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d; it is read as (N, C, L), where C is the channel dim. "
            "Use dropout1d for that, or add a batch dimension for (C, H, W).",
            stacklevel=5,
        )
    return _drop(input, p, training, inplace, _channels(input))


def _dropout3d(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if input.ndim not in (4, 5):
        _warn_dims("dropout3d", input.ndim, 3)
    batched = input if input.ndim == 5 else input.unsqueeze(0)
    result = _drop(batched, p, training, inplace, _channels(batched))
    if inplace:
        return input
    return result if input.ndim == 5 else result.squeeze(0)


def _warn_dims(name: str, ndim: int, spatial: int) -> None:
    warnings.warn(
        f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in an error in a future release. "
        f"To retain the behavior and silence this warning, please use dropout instead. Note that {name} exists to provide "
        f"channel-wise dropout on inputs with {spatial} spatial dimensions, a channel dimension, and an optional batch dimension.",
        stacklevel=6,
    )


_feature_forms("dropout1d", "Zero whole channels of ``(N, C, L)`` or ``(C, L)`` with probability `p`, if `training`.", _dropout1d, True,
               "x(2, 3, 4), 0.3")  # fmt: skip
_feature_forms("dropout2d", "Zero whole channels of ``(N, C, H, W)`` with probability `p`, if `training`.", _dropout2d, True,
               "x(2, 3, 2, 2), 0.3")  # fmt: skip
_feature_forms("dropout3d", "Zero whole channels of ``(N, C, D, H, W)`` with probability `p`, if `training`.", _dropout3d, True,
               "x(2, 3, 2, 2, 1), 0.3")  # fmt: skip
_feature_forms(
    "feature_alpha_dropout", "`alpha_dropout` of whole channels: each is dropped with probability `p`, if `training`.",
    lambda input, p, training, inplace: _by_channel(_alpha_drop)(input, p, training, inplace), False,
    "x(2, 3, 2), 0.3, True", scripted_as="feature_alpha_dropout",
)  # fmt: skip


def _package_forms(name: str, doc: str, drop: Any) -> None:
    """``torch.<name>(input, p, train)`` and its in-place form."""

    def form(input, p: float, train: bool):
        _check_p(p, RuntimeError)
        return drop(input, p, train, False)

    def form_(input, p: float, train: bool):
        _check_p(p, RuntimeError)
        return drop(input, p, train, True)

    form.__name__, form_.__name__ = name, f"{name}_"
    form.__doc__, form_.__doc__ = doc, f"In-place form of `{name}`: each has probability `p`, if `train`."
    for fn in (form, form_):
        composite(surface=FUNCTION, samples="x(2, 3, 2), 0.3, True", random=("train", "p"), elements="mapped")(fn)


def _by_channel(drop: Any) -> Any:
    return lambda input, p, train, inplace: drop(input, p, train, inplace, _channels(input) if train and p else None)


_package_forms("dropout", "Zero elements with probability `p` and divide the others by ``1 - p``, if `train`.", _drop)
OPS["dropout"].forwards(_multiplied_by_mask)  # pyright: ignore[reportAttributeAccessIssue]  # a composite
_package_forms("alpha_dropout", "Dropout with probability `p` that keeps mean 0 and variance 1, if `train`.", _alpha_drop)
_package_forms("feature_dropout", "Zero whole channels with probability `p` if `train`.", _by_channel(_drop))
_package_forms("feature_alpha_dropout", "`alpha_dropout` of whole channels with probability `p`, if `train`.", _by_channel(_alpha_drop))


def _stream_of(generator: Any) -> Any:
    from ...random import stream_of

    return stream_of(generator)


@primitive(surface=0, samples="x(2, 3), 0.1, 0.4", random=True)
def rrelu_slopes(input, lower, upper, generator=None):
    """What `rrelu` multiplies by in training: 1 where `input` is positive, elsewhere a slope drawn from ``[lower, upper]``."""


@rrelu_slopes.plan(discrete=True)
@rrelu_slopes.kernel
def _rrelu_slopes(a, lower, upper, generator):
    flat = np.ones(a.size, a.dtype)
    negative = np.flatnonzero(~(a.reshape(-1) > 0))
    source = stream() if generator is None else _stream_of(generator)
    drawn = draws.uniform(source, np.empty(negative.size, np.float64), lower, upper)
    flat[negative] = drawn.astype(np.float32, copy=False) if a.dtype.itemsize < 4 else drawn
    return flat.reshape(a.shape)


@rrelu_slopes.shape
def _rrelu_slopes_shape(input, lower, upper, generator):
    return input.shape, input.dtype


rrelu_slopes.not_differentiable = "slopes are drawn; the product with them has the derivative"


def rrelu_with_slopes(
    input: Tensor, lower: float, upper: float, training: bool, inplace: bool, generator: Any = None
) -> tuple[Tensor, Any]:  # fmt: skip
    """The result of `rrelu`, and what it multiplied by in training, else None."""
    if lower > upper:
        raise RuntimeError(f"rrelu: Lower bound should be less than or equal to the upper bound, got lower={lower}, upper={upper}")
    if not inplace:
        input = input.contiguous()                    # the result is row-major, unlike those of the other activations
    if not training:
        return _apply(act.leaky_relu, inplace, input, (lower + upper) / 2), None
    with_tape = _state.set_grad(False)                # slopes are constants
    try:
        slopes = rrelu_slopes.function(input, lower, upper, generator)
    finally:
        _state.set_grad(with_tape)
    return _apply(act.rrelu_with_noise, inplace, input, slopes), slopes


def _rrelu(input: Tensor, lower: float, upper: float, training: bool, inplace: bool) -> Tensor:
    return rrelu_with_slopes(input, lower, upper, training, inplace)[0]


@composite(namespace=F, samples="x(2, 3); x(2, 3), 0.1, 0.4, True", random=("training",), scripted_as="rrelu")
def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """`input` where positive, else its product with a slope: drawn from ``[lower, upper]``, or their mean.

    Args:
        training: draw a slope for each element; otherwise take the mean.
    Source: Xu et al. 2015, "Empirical evaluation of rectified activations in convolutional network".
    """
    return _rrelu(input, lower, upper, training, inplace)


@composite(namespace=F, numpy_names=True, samples="x(2, 3); x(2, 3), 0.1, 0.4, True", random=("training",))
def rrelu_(input, lower=1.0 / 8, upper=1.0 / 3, training=False):
    """In-place form of `rrelu`."""
    return _rrelu(input, lower, upper, training, True)


def _package_rrelu() -> None:
    def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False):
        """`input` where positive, else its product with a slope: drawn from ``[lower, upper]``, or their mean.

        It is drawn if `training`; see `nn.functional.rrelu`.
        """
        return _rrelu(input, lower, upper, training, False)

    def rrelu_(input, lower=1.0 / 8, upper=1.0 / 3, training=False):
        """In-place form of `rrelu`."""
        return _rrelu(input, lower, upper, training, True)

    for fn in (rrelu, rrelu_):
        composite(samples="x(2, 3); x(2, 3), 0.1, 0.4, True", random=("training",))(fn)


_package_rrelu()
