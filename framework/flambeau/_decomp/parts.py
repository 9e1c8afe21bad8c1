"""What PyTorch takes apart before programs that record see it, and is one operator here: asked for where a table has one of the parts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _aten, _ops
from .table import core_aten_decompositions, decomposition_table

__all__ = ["BY_ONE", "linear_by", "parts_of"]

_ops_: Any = _ops.ops.aten


@functools.cache
def parts_of(operator: Any) -> Callable[..., Any] | None:
    """A function of the arguments of `operator` that calls its parts; None if it is none that PyTorch takes apart."""
    if not isinstance(operator, _ops.OpOverload) or operator.namespace != "aten":
        return None
    name, ending = operator._opname, operator._overloadname
    if not _aten.is_composition(name, ending):
        return None
    return _WRITTEN.get(f"{name}.{ending}") or core_aten_decompositions().get(operator) or decomposition_table.get(operator)


def linear_by(turn: Callable[[Any], Any]) -> Callable[..., Any]:
    """`linear` as a product of matrices, of which ``turn(weight)`` is the second; NotImplemented for a vector of weights."""

    def linear(input: Any, weight: Any, bias: Any = None) -> Any:
        if weight.ndim != 2:
            return NotImplemented
        turned = turn(weight)
        rows = input if input.ndim == 2 else input.reshape([-1, weight.shape[1]])  # which may have been transposed
        made = _ops_.mm.default(rows, turned) if bias is None else _ops_.addmm.default(bias, rows, turned)
        return made if input.ndim == 2 else _ops_.view.default(made, [*input.shape[:-1], weight.shape[0]])

    return linear


def _batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Any:  # fmt: skip
    return _ops_.native_batch_norm.default(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def _instance_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Any:  # fmt: skip
    if running_mean is not None or running_var is not None:
        return NotImplemented
    n, c, *sizes = input.shape
    tiled = [None if x is None else x.repeat(n) for x in (weight, bias)]
    made = _ops_.native_batch_norm.default(input.reshape([1, n * c, *sizes]), *tiled, None, None, use_input_stats, momentum, eps)[0]
    return _ops_.view.default(made, [n, c, *sizes])


def _dropout(input: Any, p: float, train: bool) -> Any:
    if not train or p in (0, 1):
        return NotImplemented
    kept = _ops_.bernoulli_.float(_ops_.empty_like.default(input), 1 - p)
    return _ops_.mul.Tensor(input, _ops_.div_.Scalar(kept, 1 - p))


# Compositions of one operator.
BY_ONE: dict[str, Callable[..., Any]] = {
    "square.default": lambda self: _ops_.pow.Tensor_Scalar(self, 2),
    "celu.default": lambda self, alpha=1.0: _ops_.elu.default(self, alpha, 1.0, 1.0 / alpha),
    "selu.default": lambda self: _ops_.elu.default(self, 1.6732632423543772, 1.0507009873554805),
}


_WRITTEN: dict[str, Callable[..., Any]] = {
    "linear.default": linear_by(_ops_.t.default),
    "batch_norm.default": _batch_norm,
    "instance_norm.default": _instance_norm,
    "dropout.default": _dropout,
    **BY_ONE,
}
