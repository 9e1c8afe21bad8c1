"""Which operators `run_decompositions` keeps: those that a table says nothing of, compositions among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _aten, _ops
from .._decomp.layers import instance_norm
from ..fx.experimental.proxy_tensor import kept_whole
from ..tensor import Tensor
from .decomp_utils import CustomDecompTable

__all__ = ["with_kept"]

_AT: Any = _ops.ops.aten


def with_kept(table: dict[Any, Any], program: Any) -> dict[Any, Any]:
    """`table`, and for operators that it lacks functions that keep them in the graph.

    Those are the operators of the default table, and those that `program` calls and PyTorch does not take apart either. What the program
    leaves to the default is taken apart by the functions below, where there are some.
    """
    called = {node.target for node in program.graph.nodes if node.op == "call_function" and _is_of_pytorch(node.target)}
    made = {getattr(_AT, name).default for name in _OF_PARTS}
    default = CustomDecompTable().materialize()
    kept = {op: kept_whole(op) for op in (*default, *called, *made) if op not in table}
    return kept | table | {op: f for op, f in _APART.items() if table.get(op) is default.get(op)}


def _is_of_pytorch(target: Any) -> bool:
    """Whether `target` is an operator of PyTorch that is no composition, and neither writes nor gives views."""
    if not isinstance(target, _ops.OpOverload) or target.namespace != "aten" or _aten.is_composition(target._opname, target._overloadname):
        return False
    schema = target._schema
    return not any(a.alias_info is not None for a in (*schema.arguments, *schema.returns))


def _batch_norm(*args: Any) -> Any:
    """Which writes to statistics that `functionalize` knows of; without statistics it is made of others."""
    return NotImplemented if args[3] is None else kept_whole(_AT.batch_norm.default)(*args)


def _instance_norm(
    input: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, by_input: bool, momentum: float, eps: float, cudnn: bool
) -> Any:
    """The batch norm of one image whose channels are those of all images, where it has running statistics."""
    if mean is None:
        return instance_norm(input, weight, bias, mean, variance, by_input, momentum, eps, cudnn)
    n, channels = input.shape[:2]
    each = [None if x is None else x.repeat(n) for x in (weight, bias, mean, variance)]
    channels_of_all = input.reshape(1, n * channels, *input.shape[2:])
    made = kept_whole(_AT.batch_norm.default)(channels_of_all, *each, by_input, momentum, eps, cudnn)
    if by_input:
        for running, found in zip((mean, variance), each[2:], strict=True):
            running.copy_(found.view(n, channels).mean(0))
    return made.view(input.shape)


def _dropout(input: Tensor, p: float, train: bool) -> Any:
    return kept_whole(_AT.native_dropout.default)(input, p, train)[0] if train and p else _AT.clone.default(input)


def _rrelu(input: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Any:
    if not training:
        return NotImplemented
    noise = _AT.empty_like.default(input)
    return kept_whole(_AT.rrelu_with_noise_functional.default)(input, noise, lower, upper, True, generator)[0]


def _adaptive_max_pool1d(input: Tensor, output_size: Any) -> Any:
    made = kept_whole(_AT.adaptive_max_pool2d.default)(input.unsqueeze(-2), [1, *output_size])
    return tuple(x.squeeze(-2) for x in made)


# Operators that the functions here, and `functionalize`, make.
_OF_PARTS = ("_native_batch_norm_legit_functional", "native_dropout", "rrelu_with_noise_functional", "adaptive_max_pool2d")

_APART: dict[Any, Callable[..., Any]] = {
    _AT.batch_norm.default: _batch_norm,
    _AT.instance_norm.default: _instance_norm,
    _AT.dropout.default: _dropout,
    _AT.rrelu.default: _rrelu,
    _AT.adaptive_max_pool1d.default: _adaptive_max_pool1d,
}
