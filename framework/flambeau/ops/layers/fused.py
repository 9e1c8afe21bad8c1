"""Layers in one pass: a matrix product and what follows it, for evaluation."""

from __future__ import annotations

import functools
import math
from typing import Any

from flambeau_kernels import Formula
from flambeau_kernels.cpu.products import matmul as kernel

from ... import _state, dtypes
from ..._arrays import ndarray
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor, wrap
from .. import _index
from .._dispatch import overriding_classes
from .._spec import OPS, composite
from ..linear_algebra.linear import linear
from ..pointwise import activation as act

# Of a result, from which a pass of its own over it costs more than asking for this one.
SMALLEST = 1 << 14
_HALVES = (dtypes.bfloat16.numpy, dtypes.float16.numpy)


@composite(surface=0, samples="x(2, 3), x(4, 3), x(4), 'relu'; x(2, 3), x(4, 3), x(4), None, x(2, 4)")
def linear_activation(input, weight, bias=None, activation=None, residual=None, spread=False):
    """``residual + f(input @ weight.T + bias)`` over the last dimension: ``(*, in), (out, in), (out), (*, out) -> (*, out)``.

    Where no gradient is recorded, large results are finished row by row while they are in the cache. They have the bits of
    `linear`, the activation and the sum one after the other.

    Args:
        activation: ``f``, the name of an op that `finishes_products`; None for the identity.
        residual: what the result is added to, if anything.
        spread: for a result that only another product reads: its rows may have gaps between them, which makes that one faster.
    """
    made = _in_one_pass(input, weight, bias, activation, residual, spread)
    if made is not None:
        return made
    made = linear.function(input, weight, bias)
    if activation is not None:
        made = _activation(activation).function(made)
    return made if residual is None else residual + made


def _in_one_pass(input: Tensor, weight: Tensor, bias: Any, activation: str | None, residual: Any, spread: bool) -> Tensor | None:
    """The result where arrays are all there is to it: CPU tensors of one floating dtype, and nobody watches; else None."""
    if activation is None and residual is None or not _state.left_alone() or overriding_classes((input, weight, bias, residual)):
        return None
    operands = [x for x in (input, weight, bias, residual) if x is not None]
    if _state.grad_enabled() and any(x._node is not None for x in operands):
        return None
    a, w = input._array, weight._array
    d = a.dtype
    if not (d is FLOAT32 or d is FLOAT64 or d in _HALVES) or any(type(x._array) is not ndarray or x._array.dtype != d for x in operands):
        return None
    if w.ndim != 2 or not a.ndim or a.shape[-1] != w.shape[1] or bias is not None and bias._array.shape != w.shape[:1]:
        return None
    shape = (*a.shape[:-1], w.shape[0])
    if math.prod(shape) < SMALLEST or residual is not None and residual._array.shape != shape:
        return None
    rows = a.reshape(-1, w.shape[1])
    beside = None if residual is None else residual._array.reshape(-1, w.shape[0])
    then = _formula(activation, residual is not None)
    made = kernel.matmul_then(rows, w.T, then, bias=None if bias is None else bias._array, beside=beside, spread=spread)
    return wrap(made.reshape(shape))


def _activation(name: str) -> Any:
    return OPS[name if name in _index.FAMILY else f"nn.functional.{name}"]


@functools.cache
def _formula(activation: str | None, added: bool) -> Formula:
    """What is done to a product's elements."""
    if activation is None:
        return Formula(_added)
    op = _activation(activation)
    if op is act.gelu:
        op = act.gelu_exact
    if not added:
        return kernel.RECTIFIED if op is act.relu else op.formula
    function = op.formula.fn
    return Formula(lambda made, beside: beside + function(made), f"{op.name}_added")


def _added(made: Any, beside: Any) -> Any:
    return beside + made
