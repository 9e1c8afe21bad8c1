"""Limiting gradients, by their common norm or value by value."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from types import GeneratorType
from typing import Any

import numpy as np

import flambeau as fb
from flambeau_kernels.cpu.tier import compiles

from ... import _state
from ...tensor import bump, wrap

Tensor = fb.Tensor
_FROM = 4096  # elements from which one pass over all tensors pays

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _as_list(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all the tensors as if they were one vector.

    Args:
        norm_type: p of the p-norm; may be ``inf``.
        foreach: accepted for PyTorch's signature; the result does not depend on it.
    Returns: a 0-dimensional tensor, on the device of the first.
    Raises: RuntimeError if it is nan or infinite and `error_if_nonfinite`.
    """
    tensors = _as_list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return fb.tensor(0.0)
    pieces = _pieces(tensors) if norm_type == 2.0 else None
    if pieces is not None:
        total = wrap(pieces.norm())
    else:
        with fb.no_grad():
            device = tensors[0].device
            norms = fb.stack([fb.linalg.vector_norm(t, norm_type).to(device) for t in tensors])
            total = fb.linalg.vector_norm(norms, norm_type)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(
            f"the total {norm_type}-norm of the gradients is {float(total)}, so they cannot be clipped; "
            "pass error_if_nonfinite=False to scale by it anyway"
        )
    return total


def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scale the parameters' gradients in place by ``max_norm / total_norm``, if that is below 1.

    `parameters` and `foreach` are as for `clip_grad_norm_`.
    """
    max_norm = float(max_norm)
    grads = [p.grad for p in _as_list(parameters) if p.grad is not None]
    with fb.no_grad():
        # 1e-6 keeps a norm of zero harmless. Scaling by a clamped factor, rather than asking whether it is
        # below 1, spares a wait for the device.
        factor = fb.clamp(max_norm / (total_norm + 1e-6), max=1.0)
        if _scaled_at_once(grads, factor):
            return
        for grad in grads:
            grad.mul_(factor.to(grad.device))


def _scaled_at_once(grads: list[Tensor], factor: Tensor) -> bool:
    """Whether the gradients were multiplied by `factor` in one pass over their memory, or 1 left them as they are."""
    pieces = _pieces(grads)
    if pieces is None or type(factor) is not Tensor or factor._array.dtype is not pieces.dtype or factor._array.ndim:
        return False
    if any(g._node is not None or not g._array.flags.writeable for g in grads):
        return False
    by = factor.item()
    if by != 1.0:
        pieces.scale(by)
    for grad in grads:
        bump(grad)
    return True


def _pieces(tensors: list[Tensor]) -> Any:
    """The memory of `tensors` for one pass over all of it; None where each is better handled on its own."""
    if not tensors or not compiles() or not _state.left_alone():
        return None
    arrays, count, dtype = [], 0, tensors[0]._array.dtype
    for tensor in tensors:
        a = tensor._array
        if type(tensor) is not Tensor or type(a) is not np.ndarray or a.dtype is not dtype:
            return None
        arrays.append(a)
        count += a.size
    if count < _FROM:
        return None
    from flambeau_kernels.cpu.reductions import norm_of_many

    return norm_of_many.pieces(arrays) if dtype in norm_of_many.DTYPES else None


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the parameters' gradients in place so that their common norm is at most `max_norm`.

    Args:
        parameters: those without a gradient do not count.
        norm_type: p of the p-norm; may be ``inf``.
        foreach: accepted for PyTorch's signature; the result does not depend on it.
    Returns: the norm before.
    Raises: RuntimeError if it is nan or infinite and `error_if_nonfinite`.

    >>> w = nn.Parameter(fb.zeros(2))
    >>> w.grad = fb.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_norm_([w], max_norm=1.0), w.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    lazy = isinstance(parameters, GeneratorType)
    parameters = _as_list(parameters)
    if lazy and not parameters:
        warnings.warn("clip_grad_norm_: there are no parameters; was the generator used before?", stacklevel=2)
    grads = [p.grad for p in parameters if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """Deprecated name of `clip_grad_norm_`."""
    warnings.warn("clip_grad_norm is deprecated; use clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(*args, **kwargs)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of the parameters' gradients to ``[-clip_value, clip_value]``, in place.

    `parameters` and `foreach` are as for `clip_grad_norm_`.
    """
    clip_value = float(clip_value)
    with fb.no_grad():
        for param in _as_list(parameters):
            grad = param.grad
            if grad is not None and not _clamped(grad, clip_value):
                grad.clamp_(min=-clip_value, max=clip_value)


def _clamped(grad: Tensor, most: float) -> bool:
    """Whether the few elements of `grad` were clamped as they lie; anything unusual is left to `clamp_`."""
    if not _state.left_alone():
        return False
    a = grad._array
    if type(grad) is not Tensor or type(a) is not np.ndarray or grad._node is not None or grad._view_of is not None:
        return False
    if a.dtype not in _REALS or a.size >= _FROM or not a.flags.carray or not most >= 0:
        return False
    np.maximum(a, -most, out=a)
    np.minimum(a, most, out=a)
    bump(grad)
    return True


_REALS = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
