"""Connectionist temporal classification."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.cpu.losses import ctc as kernels

from ... import dtypes
from ...tensor import Tensor, wrap
from .. import _dispatch
from .._spec import composite, need_bools, need_int, primitive
from ..creation.from_values import tensor
from .loss import reduced, reduction_of

F = "nn.functional"


@primitive(
    surface=0, tensors=("log_probs", "targets", "input_lengths", "target_lengths"), keeps=True, samples="of nn.functional.ctc_loss",
    public_name="ctc_loss",
)  # fmt: skip
def ctc(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    """The loss of each sample: ``(T, N, C) -> (N)``; targets are ``(N, S)``, or all samples' one after the other."""


ctc.shown_as(
    "CtcLossBackward0", result0=lambda saved: wrap(saved["kept"][0][-1]),
    input_lengths=lambda saved: tuple(saved["input_lengths"].tolist()),
    target_lengths=lambda saved: tuple(saved["target_lengths"].tolist()),
)  # fmt: skip


@ctc.kernel
def _ctc(logs, targets, input_lengths, target_lengths, blank, zero_infinity):
    looked_at = _looked_at(logs, targets, input_lengths, target_lengths, blank)
    loss, kept = kernels.ctc(logs, *looked_at, blank)
    return loss.copy(), (kept, *looked_at[1:])        # the rule of the gradient reads the loss among what is kept


@ctc.shape
def _ctc_shape(log_probs, *_):
    return log_probs.shape[1:2], log_probs.dtype


@ctc.vjp(targets=None, input_lengths=None, target_lengths=None)
def _ctc_vjp(grad, log_probs, targets, input_lengths, target_lengths, kept, blank, zero_infinity):
    kept = None if _dispatch.is_seen(log_probs) else kept
    return ctc_gradient.function(grad, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, kept), None, None, None


@ctc.vjp_on_arrays
def _ctc_vjp_on_arrays(grad, log_probs, kept, zero_infinity):
    alphas, inputs, lengths = kept
    return kernels.ctc_grad(grad, log_probs, inputs, lengths, alphas, zero_infinity), None, None, None


@primitive(
    surface=0, tensors=("grad", "log_probs", "targets", "input_lengths", "target_lengths"), samples="of nn.functional.ctc_loss",
    public_name="ctc_loss",
)  # fmt: skip
def ctc_gradient(grad, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, kept=None):
    """The gradient of `ctc` at the scores; without what its kernel has `kept`, the loss is computed once more."""


@ctc_gradient.kernel
def _ctc_gradient(grad, logs, targets, input_lengths, target_lengths, blank, zero_infinity, kept):
    if kept is None:
        kept = _ctc(logs, targets, input_lengths, target_lengths, blank, zero_infinity)[1]
    alphas, inputs, lengths = kept
    return kernels.ctc_grad(grad, logs, inputs, lengths, alphas, zero_infinity)


@ctc_gradient.shape
def _ctc_gradient_shape(grad, log_probs, *_):
    return log_probs.shape, log_probs.dtype


@ctc_gradient.vjp
def _ctc_gradient_vjp(grad):
    raise NotImplementedError("ctc_loss: its second derivative is not implemented, as in PyTorch; differentiate it once only")


def _looked_at(logs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> tuple[Any, Any, Any]:
    """Labels ``(N, S)`` and both lengths, looked at for what is wrong."""
    steps, batch, classes = logs.shape
    inputs = _lengths("input_lengths", input_lengths, batch, steps)
    lengths = _lengths("target_lengths", target_lengths, batch, None)
    return _labels(targets, lengths, classes, blank), inputs, lengths


def _labels(targets: np.ndarray, lengths: np.ndarray, classes: int, blank: int) -> np.ndarray:
    """Targets as ``(N, S)``, with `blank` behind their ends. Raises: RuntimeError for labels that are none."""
    labels = _padded(targets, lengths)
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        inside = np.arange(labels.shape[1]) < lengths[:, None]
        if ((labels < 0) | (labels >= classes))[inside].any():
            raise RuntimeError(f"ctc_loss: labels must lie in [0, {classes}), got {labels[inside].min()} to {labels[inside].max()}")
        labels = np.where(inside, labels, blank)
    return labels


def _lengths(name: str, given: np.ndarray, batch: int, most: int | None) -> np.ndarray:
    """Lengths as an int64 array. Raises: RuntimeError for others than `batch` integers up to `most`."""
    made = given.reshape(-1).astype(np.int64)
    if made.size != batch:
        raise RuntimeError(f"ctc_loss: {name} must be of size batch_size ({batch}), got {made.size}")
    if made.size and (made.min() < 0 or most is not None and made.max() > most):
        raise RuntimeError(f"ctc_loss: Expected {name} to have values between 0 and {most}, but got {made.tolist()}")
    return made


def _as_tensor(name: str, given: Any, device: Any) -> Tensor:
    """Lengths as a tensor. Raises: TypeError, RuntimeError for what are no integers."""
    if isinstance(given, Tensor):
        if given.dtype.category != dtypes.INTEGER:
            raise RuntimeError(f"ctc_loss: {name} must be integral, got {given.dtype}")
        return given
    listed = (given,) if isinstance(given, int) else tuple(given)
    for n in listed:
        if not isinstance(n, (int, np.integer)):
            raise TypeError(f"ctc_loss(): {name} must be integers, got {n!r}")
    return tensor(listed, dtype=dtypes.int64, device=device)


def _padded(targets: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Targets as ``(N, S)``. Raises: RuntimeError where the lengths do not fit."""
    a = targets.astype(np.int64)
    most = int(lengths.max()) if lengths.size else 0
    if a.ndim == 2 and a.shape[0] == lengths.size:
        if a.shape[1] < most:
            raise RuntimeError(
                f"ctc_loss: Expected tensor to have size at least {most} at dimension 1, the longest target, but got size "
                f"{a.shape[1]} for argument #2 'targets'"
            )
        return a[:, :most]
    if a.ndim != 1:
        raise RuntimeError(
            f"ctc_loss: targets must be (N, S) or one-dimensional, got shape {tuple(targets.shape)} for {lengths.size} samples"
        )
    if a.size != lengths.sum():
        raise RuntimeError(f"ctc_loss: Expected targets of {lengths.sum()} labels in all, the sum of target_lengths, but got {a.size}")
    made = np.zeros((lengths.size, most), np.int64)
    made[np.arange(most) < lengths[:, None]] = a
    return made


@composite(
    namespace=F,
    autocast="float32",
    operator="ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)",
    reads_parts=True, samples="logs(6, 2, 4), i(3, 2, 2) + 1, (6, 5), (2, 1); logs(6, 2, 4), i(3, 3) + 1, (6, 6), (2, 1), 0, 'sum'",
    scripted_as="ctc_loss.Tensor",
)
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """The negative log likelihood of label sequences, summed over all their alignments with the input.

    Args:
        log_probs: log probabilities ``(T, N, C)``, or ``(T, C)`` for one sample.
        targets: labels ``(N, S)``, or all samples' one after the other; never `blank`.
        input_lengths, target_lengths: ``(N)``, Tensors or tuples of integers.
        reduction: 'mean' divides each sample's loss by its target length first.
        zero_infinity: make infinite losses (input shorter than target) and their gradients zero.
    Raises: RuntimeError for lengths, shapes and labels that do not go together.
    Source: Graves et al. 2006, "Connectionist Temporal Classification", ICML.
    """
    need_bools("ctc_loss", zero_infinity=zero_infinity)
    reduction, blank = reduction_of(reduction), need_int("ctc_loss", "blank", blank)
    if log_probs.dtype.name not in ("float32", "float64"):
        raise NotImplementedError(f'"ctc_loss" not implemented for {log_probs.dtype}; use float32 or float64')
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(f"ctc_loss: log_probs must be (T, N, C) or (T, C), got shape {tuple(log_probs.shape)}")
    single = log_probs.ndim == 2
    logs = log_probs.unsqueeze(1) if single else log_probs
    classes = logs.shape[2]
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: blank must be in label range, got {blank} for {classes} classes")
    rows = targets.unsqueeze(0) if single and targets.ndim == 1 else targets
    named = ("input_lengths", input_lengths), ("target_lengths", target_lengths)
    inputs, lengths = (_as_tensor(name, given, log_probs.device) for name, given in named)
    loss = ctc.function(logs, rows, inputs, lengths, blank, zero_infinity)
    if zero_infinity:
        loss = loss.where(loss != math.inf, 0)
    if single:
        loss = loss.squeeze(0)
    if reduction == "mean":
        loss = loss / lengths.reshape(loss.shape).clamp(min=1).to(loss.dtype)
    return reduced(loss, reduction)


_REDUCED = {"none": 0, "sum": 1, "mean": 2}
_MOST_LOGS = 1 << 14  # elements that one thread soon goes through


@ctc_loss.plan(tensors=("log_probs",), beside=("targets",), dtypes="fd", rows=True)
def _planned_samples(logs, labels, input_lengths, target_lengths, blank, reduction, zero_infinity):
    """A few samples ``(T, N, C)`` with padded targets, all in host memory; whatever is wrong is said above."""
    how = _REDUCED.get(reduction)
    if logs.ndim != 3 or labels.ndim != 2 or how is None or zero_infinity.__class__ is not bool:
        return None
    steps, batch, classes = logs.shape
    if not 0 < logs.size <= _MOST_LOGS or labels.size * steps > _MOST_LOGS or batch > kernels.MOST_SAMPLES or labels.shape[0] != batch:
        return None
    inputs = input_lengths._array if input_lengths.__class__ is Tensor else np.array(input_lengths)
    lengths = target_lengths._array if target_lengths.__class__ is Tensor else np.array(target_lengths)
    for a in (labels, inputs, lengths):
        if a.dtype.char != "l" or a.__class__ is not np.ndarray or not a.flags.c_contiguous:
            return None
    if inputs.shape != (batch,) or lengths.shape != (batch,) or blank.__class__ is not int or not 0 <= blank < classes:
        return None
    return kernels.losses_by_kernel(logs, labels, inputs, lengths, blank, how, zero_infinity)
