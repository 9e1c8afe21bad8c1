"""Batch normalization: over all of a channel, by the batch's moments or running ones."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.quiet import quietly

from ... import _state
from ...tensor import Tensor, wrap
from .. import _dispatch
from .._batching import as_channels
from .._spec import CHANNELS, CHANNELS_OF_DENSE, FUNCTION, OUT, ROWS, composite, describe, primitive, whole_gradients
from .._spec.memory import in_memory_order
from .._spec.plans import Plan
from .norm import (
    _cast,
    _like,
    _standardize_vjp,
    _wide,
    check_floating,
    depends_on,
    dtype_of_moments,
    dtype_of_statistics,
    shown_moment,
)


def _per_channel(op: str, channels: int, **parameters: Any) -> None:
    for name, p in parameters.items():
        if p is not None and p.shape != (channels,):
            raise RuntimeError(
                f"{op}: {name} should contain {channels} elements not {p.numel()}; it has one for each channel\n{describe(**parameters)}"
            )


def _check_channels(input, weight, bias, eps):
    if input.ndim < 2:
        raise IndexError(
            f"batch_norm: input must have a batch and a channel dimension, it has {input.ndim} dimensions"
        )
    _per_channel("batch_norm", input.shape[1], weight=weight, bias=bias)
    check_floating("batch_norm", input=input, weight=weight, bias=bias)


@primitive(
    surface=0, tensors=("input", "weight", "bias"), keeps=True, check=_check_channels, memory=CHANNELS_OF_DENSE, ordering=("input",),
    samples="of nn.functional.batch_norm",
    public_name="batch_norm",
    cuda="rows.normalize_channels",
)
def normalize_channels(input, weight=None, bias=None, eps=1e-5):
    """Batch normalization by the statistics of the batch; what is kept are the moments of channels."""


def _shown_running(place: int) -> Any:
    """Running statistics that a node shows, which were moved towards those of its batch."""
    return lambda saved: None if saved["kept"] is None or saved["kept"].running[place] is None else wrap(saved["kept"].running[place])


normalize_channels.shown_as(
    "NativeBatchNormBackward0", hides="bias_dtype", input="input", training=lambda saved: True,
    running_mean=_shown_running(0), running_var=_shown_running(1),
    result1=shown_moment("mean", lambda saved: -1), result2=shown_moment("inverse", lambda saved: -1),
)  # fmt: skip


normalize_channels.in_pieces("_c*,c,c->_c*")


@normalize_channels.kernel
def _normalize_channels(x, weight, bias, eps):
    from flambeau_kernels.cpu.norm import channel_normalize

    return channel_normalize(x, None, weight, bias, eps)


@normalize_channels.shape
def _normalize_channels_shape(input, weight, bias, eps):
    return input.shape, input.dtype


def _along_channels(p: Tensor | None, x: Tensor) -> Tensor | None:
    return None if p is None else p.reshape(1, -1, *(1,) * (x.ndim - 2))


@normalize_channels.vjp
def _normalize_channels_vjp(grad, input, weight, bias_dtype, eps):
    if _dispatch.takes_gradients_whole():
        return normalize_channels_backward(grad, input, weight, bias_dtype, eps)
    dims = [0, *range(2, input.ndim)]
    to_input, unit = _standardize_vjp(grad, input, _along_channels(weight, input), dims, eps)
    return (
        lambda: to_input.to(input.dtype),
        lambda: _like((_wide(grad) * unit).sum(dims), weight),
        lambda: depends_on(_wide(grad).sum(dims).to(bias_dtype), input),
    )


@normalize_channels.vjp_on_arrays
def _normalize_channels_vjp_on_arrays(grad, input, weight, bias_dtype, kept, needs_input, needs_weight, needs_bias):
    return _channels_backward(
        grad, input, weight, bias_dtype, kept.mean, kept.inverse, None, (needs_input, needs_weight, needs_bias)
    )


@normalize_channels.batch
def _normalize_channels_batch(level: Any, op: Any, args: Any) -> Any:
    return as_channels(level, op, args[0], args[1:3], args[3:])


def bias_like(input: Tensor, dtype: Any) -> Tensor | None:
    """A bias of channels, for gradients that do not read it."""
    return None if dtype is None else input.new_zeros(input.shape[1], dtype=dtype)


@composite(surface=0, one_node=True, samples="x(3, 2, 4), x(3, 2, 4), x(2)")
def normalize_channels_backward(grad, input, weight=None, bias_dtype=None, eps=1e-5):
    """The gradients of `normalize_channels` by input, weight and bias, of those that are there."""
    return whole_gradients(
        lambda *given: normalize_channels(*given, eps), lambda: _normalize_channels_vjp(grad, input, weight, bias_dtype, eps),
        grad, (input, weight, bias_like(input, bias_dtype)), (True, weight is not None, bias_dtype is not None),
    )  # fmt: skip


def _channels_backward(
    grad: Any,
    x: Any,
    weight: Any,
    bias_dtype: Any,
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
        None if to_bias is None else _cast(to_bias, bias_dtype.numpy),
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


normalize_by_running.shown_as(
    "NativeBatchNormBackward0", hides="bias_dtype", input="input", running_mean="mean", running_var="variance",
    training=lambda saved: False, result1=lambda saved: saved["mean"].new_empty(0), result2=lambda saved: saved["mean"].new_empty(0),
)  # fmt: skip


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


@normalize_by_running.vjp(mean=None, variance=None)
def _normalize_by_running_vjp(grad, input, mean, variance, weight, bias_dtype, eps):
    if _dispatch.takes_gradients_whole():
        to_input, to_weight, to_bias = normalize_by_running_backward(grad, input, mean, variance, weight, bias_dtype, eps)
        return to_input, None, None, to_weight, to_bias
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
        lambda: depends_on(_wide(grad).sum(dims).to(bias_dtype), input),
    )


@composite(surface=0, one_node=True, samples="x(3, 2, 4), x(3, 2, 4), x(2), k(2), x(2)")
def normalize_by_running_backward(grad, input, mean, variance, weight=None, bias_dtype=None, eps=1e-5):
    """The gradients of `normalize_by_running` by input, weight and bias, of those that are there."""
    to_input, _, _, to_weight, to_bias = whole_gradients(
        lambda *given: normalize_by_running(*given, eps),
        lambda: _normalize_by_running_vjp(grad, input, mean, variance, weight, bias_dtype, eps),
        grad, (input, mean, variance, weight, bias_like(input, bias_dtype)),
        (True, False, False, weight is not None, bias_dtype is not None),
    )  # fmt: skip
    return to_input, to_weight, to_bias


@normalize_by_running.vjp_on_arrays
def _normalize_by_running_vjp_on_arrays(
    grad, input, mean, variance, weight, bias_dtype, eps, needs_input, needs_weight, needs_bias
):
    given = _given(mean, variance, eps)
    wants = (needs_input, needs_weight, needs_bias)
    to_input, to_weight, to_bias = _channels_backward(
        grad, input, weight, bias_dtype, *given, None, wants, constant=True
    )
    return to_input, None, None, to_weight, to_bias


@normalize_by_running.batch
def _normalize_by_running_batch(level: Any, op: Any, args: Any) -> Any:
    return as_channels(level, op, args[0], args[1:5], args[5:])


def _check_tracked(input, weight, bias, running_mean, running_var, momentum, eps):
    _check_channels(input, weight, bias, eps)
    _per_channel("batch_norm", input.shape[1], running_mean=running_mean, running_var=running_var)


@primitive(
    surface=0, tensors=("input", "weight", "bias", "running_mean", "running_var"), keeps=True, check=_check_tracked,
    memory=(CHANNELS_OF_DENSE, ROWS, ROWS, ROWS, ROWS), ordering=("input",),
    samples="of nn.functional.batch_norm",
    public_name="batch_norm",
    cuda="rows.normalize_channels_tracked",
)
def normalize_channels_tracked(input, weight=None, bias=None, running_mean=None, running_var=None, momentum=0.1, eps=1e-5):
    """``(out, mean, inverse, running_mean, running_var)``: `normalize_channels`, the mean and 1 / deviation of each channel, and running
    statistics moved towards those of the batch, of which those that are None come out empty."""


normalize_channels_tracked.recorded_as(
    normalize_channels, lambda input, weight, bias, running_mean, running_var, momentum, eps: (input, weight, bias, eps)
)
normalize_channels_tracked.in_pieces(lambda asked: [])


@normalize_channels_tracked.kernel
def _normalize_channels_tracked(x, weight, bias, running_mean, running_var, momentum, eps):
    from flambeau_kernels.cpu.norm import channels_tracked

    return channels_tracked(_normalize_channels(x, weight, bias, eps), x, (running_mean, running_var), momentum)


@normalize_channels_tracked.shape
def _normalize_channels_tracked_shape(input, weight, bias, running_mean, running_var, momentum, eps):
    wide, channels = dtype_of_moments(input), input.shape[1:2]
    running = [((0,), wide) if r is None else (r.shape, r.dtype) for r in (running_mean, running_var)]
    return [(input.shape, input.dtype), (channels, wide), (channels, wide), *running]


def store_tracked(running: tuple[Any, Any], found: Any) -> None:
    """Store in the `running` mean and variance, where they are given, what was `found`, without a history."""
    before = _state.set_grad(False)
    try:
        for statistic, moved in zip(running, found, strict=True):
            if statistic is not None:
                statistic.copy_(moved)
    finally:
        _state.set_grad(before)


def update_each_running(
    input: Tensor, running_mean: Any, running_var: Any, momentum: float, count: int, of_images: bool = False
) -> None:
    """Move running statistics of a `vmap`, which every example has of its own: those of an ensemble of models, say.

    Args:
        count: of how many numbers each moment is.
        of_images: whether they are means over the images of moments of single ones, as in instance norm.
    """
    if running_mean is None and running_var is None:
        return
    if not all(running is None or hasattr(running, "_bdim") for running in (running_mean, running_var)):
        raise RuntimeError(
            "vmap: running_mean and running_var cannot be updated by a batch of examples that share them; give each its own, leave them "
            "out, or call the layer in eval mode (func.replace_all_batch_norm_modules_ takes them out of a module)"
        )
    if count == 0:
        return
    before = _state.set_grad(False)
    try:
        dims = [*range(2, input.ndim)] if of_images else [0, *range(2, input.ndim)]
        for running, moment in ((running_mean, Tensor.mean), (running_var, Tensor.var)):
            if running is not None:
                # Moments of halves are taken in the wider dtype that running statistics may have.
                found = moment(input.detach().to(running.dtype), dims)
                running.lerp_(found.mean(0) if of_images else found, float(momentum))
    finally:
        _state.set_grad(before)


def _check_momentum(name: str, momentum: Any) -> None:
    if isinstance(momentum, Tensor) and (momentum.ndim or momentum.requires_grad):
        raise TypeError(f"{name}(): argument 'momentum' must be float, not Tensor")
    if not hasattr(momentum, "__float__"):
        raise TypeError(
            f"{name}(): argument 'momentum' must be float, not {type(momentum).__name__}; for the plain average over "
            "all batches so far, which the module takes momentum=None for, give 1 / (number of batches)"
        )


def _batch_norm(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Tensor:
    _check_momentum("batch_norm", momentum)
    if input.ndim == 1 and input.numel() == 0:
        return input.clone()
    if not training:
        return _batch_norm_by_running(input, running_mean, running_var, weight, bias, eps)
    if running_mean is None and running_var is None or _state.INTERPRETED and hasattr(input, "_bdim"):
        if input.ndim >= 2:
            _per_channel("batch_norm", input.shape[1], running_mean=running_mean, running_var=running_var)
        out = normalize_channels(input, weight, bias, eps)
        update_each_running(input, running_mean, running_var, momentum, input.numel() // max(input.shape[1], 1))
        return out
    return _tracking(input, running_mean, running_var, weight, bias, momentum, eps)[0]


def _batch_norm_by_running(input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, eps: float) -> Tensor:
    if running_mean is None or running_var is None:
        raise RuntimeError(
            "batch_norm: Expected running_mean and running_var to be defined when training=False"
        )
    return normalize_by_running(input, running_mean, running_var, weight, bias, eps)


def _tracking(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalization that moves running statistics, and the mean and 1 / deviation of each channel."""
    out, mean, inverse, *moved = normalize_channels_tracked(input, weight, bias, running_mean, running_var, float(momentum), eps)
    store_tracked((running_mean, running_var), moved)
    return out, mean, inverse


@composite(
    namespace="nn.functional",
    operator="batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)",
    samples="x(3, 2, 4), k(2) * 0, k(2), x(2), x(2), True; x(3, 2, 2, 2), k(2), k(2), x(2), x(2); x(3, 2), None, None, training=True",
    scripted_as="batch_norm",
)
def batch_norm(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
):
    """Standardize each channel of ``(N, C, *)``, then times `weight`, plus `bias`: the shape of `input`.

    Args:
        running_mean, running_var: ``(C,)``, or None in training.
        weight, bias: ``(C,)``, or None.
        training: standardize by the mean and biased variance of this batch, and move the running ones towards its
            mean and unbiased variance, in place; otherwise standardize by the running ones.
        momentum: how far they move: ``running += momentum * (batch - running)``.
        eps: added to the variance, in the unit of `input` squared.
    Raises: ValueError in training for a single value per channel or an `eps` that is not positive; RuntimeError for
        operands that do not fit.
    Source: Ioffe and Szegedy 2015, "Batch Normalization".

    >>> F.batch_norm(fb.tensor([[1.0], [3.0]]), None, None, training=True)
    tensor([[-1.0000],
            [ 1.0000]])
    """
    _check_batch(input, running_mean, running_var, training, eps)
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@batch_norm.in_pieces
def _batch_norm_pieces(asked):
    return "_c*,c,c,c,c->_c*" if asked["training"] else "nc*,c,c,c,c->nc*"


def _check_batch(input: Tensor, running_mean: Any, running_var: Any, training: bool, eps: float) -> None:
    if training and (running_mean is None) is not (running_var is None):
        raise ValueError("batch_norm: running_mean and running_var must either both be None or neither be None; give both or none")
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
    _check_batch(input, running_mean, running_var, training, eps)
    _check_momentum("batch_norm", momentum)
    if input.ndim < 2:                                # an empty vector comes out as it is
        return None
    if not training:
        run = _run_by_running(input, running_mean, running_var, weight, bias, eps)
        return run and Plan(run, normalize_by_running, lambda _, *tensors: (*tensors, eps))
    normalized = _run_by_batch(input, running_mean, running_var, weight, bias, momentum, eps)
    if normalized is None:
        return None
    from flambeau_kernels.cpu.norm import Moments

    def taped(*arrays: Any) -> Any:
        out, mean, variance, inverse = normalized(*arrays)
        return out, Moments(mean, variance, inverse, arrays[1:3])

    def arguments(kept: Any, input: Tensor, mean: Any, var: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
        return input, weight, bias, eps

    return Plan(lambda *arrays: normalized(*arrays)[0], normalize_channels, arguments, taped, ("running_mean", "running_var"))


def _run_by_running(input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, eps: float) -> Any:
    """``run(x, mean, variance, weight, bias)``: normalized by running statistics; or None."""
    from flambeau_kernels.cpu.norm import planned_given

    _check_by_running(input, running_mean, running_var, weight, bias, eps)
    w, b = (None if p is None else p._array for p in (weight, bias))
    return planned_given(input._array, running_mean._array, running_var._array, w, b, eps)


def _run_by_batch(input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, momentum: float, eps: float) -> Any:
    """``run(x, running mean, running variance, weight, bias)``: normalized by the moments of the batch, and these; it moves running
    statistics. Or None."""
    from flambeau_kernels.cpu.norm import planned_channels, planned_moves

    _check_channels(input, weight, bias, eps)
    _per_channel("batch_norm", input.shape[1], running_mean=running_mean, running_var=running_var)
    a = input._array
    w, b = (None if p is None else p._array for p in (weight, bias))
    run = planned_channels(a, None, w, b, eps)
    if run is None or any(r is not None and r.dtype is not input.dtype for r in (running_mean, running_var)):
        return None
    count = a.size // a.shape[1]
    if count < 2:                                     # of which no variance can be estimated
        return None
    given = (running_mean is not None, running_var is not None)
    if not any(given):
        return lambda a, mean, variance, weight, bias: run(a, weight, bias)
    move = planned_moves(a.shape[1], a.dtype, float(momentum), count, *given)

    @quietly
    def normalized(a: Any, mean: Any, variance: Any, weight: Any, bias: Any) -> Any:
        made = run(a, weight, bias)
        move(mean, variance, made[1], made[2])
        return made

    return normalized


@composite(
    surface=FUNCTION,
    operator="batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)",
    samples="x(3, 2, 4), x(2), x(2), k(2), k(2), True, 0.1, 1e-5, False; x(3, 2), None, None, k(2), k(2), False, 0.1, 1e-5, False",
)
def batch_norm__(input, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float, cudnn_enabled: bool):
    """`nn.functional.batch_norm` with its arguments in another order.

    `cudnn_enabled` chooses among CUDA kernels only. Arguments as for `nn.functional.batch_norm`.
    """
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@batch_norm__.forwards
def _as_the_function(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled):
    """Operands that `nn.functional.batch_norm` does not refuse."""
    a = input._array
    if not eps > 0 or a.ndim < 2 or a.size <= a.shape[1]:
        return None
    return batch_norm.answer(input, running_mean, running_var, weight, bias, training, momentum, eps)


@composite(
    surface=FUNCTION | OUT,
    operator="native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)",
    samples="x(3, 2, 4), x(2), x(2), k(2), k(2), True, 0.1, 1e-5", costly=True,
)
def native_batch_norm(input, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float):
    """``(out, mean, rstd)``: `batch_norm`, and in training the mean and 1 / deviation of each channel.

    Outside training the two are empty. Arguments as for `nn.functional.batch_norm`.
    """
    kind = dtype_of_statistics(input, running_mean if weight is None else weight)
    if not training or input.ndim < 2:
        out = _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        return out, *(input.new_empty(0, dtype=kind) for _ in range(2))
    _check_momentum("batch_norm", momentum)
    out, mean, inverse = _tracking(input, running_mean, running_var, weight, bias, momentum, eps)
    return out, mean.to(kind), inverse.to(kind)


@native_batch_norm.plan(
    by="shape", tensors=("input", "running_mean", "running_var", "weight", "bias"),
    optional=("weight", "bias", "running_mean", "running_var"),
)
def _planned_native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    from flambeau_kernels.cpu.norm import Moments

    _check_momentum("batch_norm", momentum)
    if input.ndim < 2:
        return None
    if not training:
        given = _run_by_running(input, running_mean, running_var, weight, bias, eps)
        return given and _plan_by_running(given, input.dtype.numpy, eps)
    normalized = _run_by_batch(input, running_mean, running_var, weight, bias, momentum, eps)
    if normalized is None:
        return None
    kind = input.dtype.numpy

    def result(*arrays: Any) -> Any:
        out, mean, _, inverse = normalized(*arrays)
        if mean.dtype is not kind:
            mean, inverse = mean.astype(kind, copy=False), inverse.astype(kind, copy=False)
        return out, mean[0], inverse[0]

    def taped(*arrays: Any) -> Any:
        out, mean, variance, inverse = normalized(*arrays)
        # Copies: the rule of the gradient reads the moments.
        return (out, mean[0].astype(kind), inverse[0].astype(kind)), Moments(mean, variance, inverse, arrays[1:3])

    def arguments(kept: Any, input: Tensor, mean: Any, var: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
        return input, weight, bias, eps

    return Plan(result, normalize_channels, arguments, taped, ("running_mean", "running_var"), of_first=True)


def _plan_by_running(run: Any, kind: np.dtype, eps: float) -> Plan:
    """The plan of a normalization `run` by running statistics, which shows no others."""

    def result(*arrays: Any) -> Any:
        return run(*arrays), np.empty(0, kind), np.empty(0, kind)

    return Plan(result, normalize_by_running, lambda _, *tensors: (*tensors, eps), of_first=True)


# Operators of PyTorch's graphs, which write to nothing.

@composite(surface=0, samples="x(3, 2, 4), x(2), x(2), k(2), k(2), True, 0.1, 1e-5", costly=True)
def _native_batch_norm_legit_functional(input, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float):
    """``(out, mean, rstd, running_mean, running_var)``: `native_batch_norm`, and what it would make of the running statistics."""
    running = running_mean.clone(), running_var.clone()
    made = native_batch_norm(input, weight, bias, *running, training, momentum, eps)
    return *made, *running


@composite(surface=0, samples="x(3, 2, 4), x(2), x(2), k(2), k(2), 0.1, 1e-5", costly=True)
def _native_batch_norm_legit_no_training(input, weight, bias, running_mean, running_var, momentum: float, eps: float):
    """`native_batch_norm` by running statistics."""
    return native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
