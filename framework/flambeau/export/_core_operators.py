"""Operators as PyTorch's core operators, beside the decompositions that all tables have: those that exported programs keep whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _ops
from .._decomp.parts import BY_ONE, linear_by

__all__ = ["of_core_operators"]

_aten: Any = _ops.ops.aten


def _transpose(self: Any, dim0: int, dim1: int) -> Any:
    order = list(range(self.ndim))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return _aten.permute.default(self, order)


def _narrow(self: Any, dim: int, start: Any, length: Any) -> Any:
    return _aten.slice.Tensor(self, dim, start, start + length)


def _squeeze(self: Any) -> Any:
    return _aten.squeeze.dims(self, [d for d, n in enumerate(self.shape) if n == 1])


def _all(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    wrong = _aten.logical_not.default(self)
    return _aten.logical_not.default(_aten.any.default(wrong) if dim is None else _aten.any.dim(wrong, dim, keepdim))


def _std(self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _aten.sqrt.default(_aten.var.correction(self, dim, correction=correction, keepdim=keepdim))


def _var_mean(self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dims = list(range(self.ndim)) if dim is None else dim
    return _aten.var.correction(self, dim, correction=correction, keepdim=keepdim), _aten.mean.dim(self, dims, keepdim)


def _std_mean(self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    variance, mean = _var_mean(self, dim, correction=correction, keepdim=keepdim)
    return _aten.sqrt.default(variance), mean


# By name: what an operator is made of. One that gives NotImplemented leaves the operator as it is.
_BY_NAME: dict[str, Callable[..., Any]] = {
    "linear.default": linear_by(lambda weight: _aten.permute.default(weight, [1, 0])),
    **BY_ONE,
    "transpose.int": _transpose,
    "narrow.default": _narrow,
    "squeeze.default": _squeeze,
    "all.default": _all,
    "all.dim": _all,
    "std.correction": _std,
    "var_mean.correction": _var_mean,
    "std_mean.correction": _std_mean,
    "true_divide.Tensor": lambda self, other: _aten.div.Tensor(self, other),
    "clamp_min.default": lambda self, min: _aten.clamp.default(self, min),
    "count_nonzero.default": lambda self, dim=None: _aten.sum.dim_IntList(_aten.ne.Scalar(self, 0), [] if dim is None else [dim]),
}


def of_core_operators() -> dict[Any, Callable[..., Any]]:
    """The functions by operator."""
    made = {}
    for name, fn in _BY_NAME.items():
        packet, overload = name.split(".")
        made[getattr(getattr(_aten, packet), overload)] = fn
    return made
