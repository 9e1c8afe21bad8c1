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
from ...tensor import Tensor
from .. import _index
from .._dispatch import overriding_classes
from .._spec import OPS, composite, primitive
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
    if _fits_one_pass(input, weight, bias, activation, residual):
        return product_finished.function(input, weight, bias, activation, residual, spread)
    made = linear.function(input, weight, bias)
    if activation is not None:
        made = _activation(activation).function(made)
    return made if residual is None else residual + made


def _fits_one_pass(input: Tensor, weight: Tensor, bias: Any, activation: str | None, residual: Any) -> bool:
    """Whether the result is large, of CPU tensors of one floating dtype, and nobody watches."""
    if activation is None and residual is None or not _state.left_alone() or overriding_classes((input, weight, bias, residual)):
        return False
    operands = [x for x in (input, weight, bias, residual) if x is not None]
    if _state.grad_enabled() and any(x._node is not None for x in operands):
        return False
    d = input._array.dtype
    if not (d is FLOAT32 or d is FLOAT64 or d in _HALVES) or any(type(x._array) is not ndarray or x._array.dtype != d for x in operands):
        return False
    given, rows = input._array.shape, weight._array.shape
    if len(rows) != 2 or not given or given[-1] != rows[1] or bias is not None and bias._array.shape != rows[:1]:
        return False
    shape = (*given[:-1], rows[0])
    return math.prod(shape) >= SMALLEST and (residual is None or residual._array.shape == shape)


@primitive(
    surface=0, tensors=("input", "weight", "bias", "residual"),
    samples="x(2, 3), x(4, 3), x(4), 'relu'; x(2, 3), x(4, 3), None, None, x(2, 4)",
)  # fmt: skip
def product_finished(input, weight, bias=None, activation=None, residual=None, spread=False):
    """`linear_activation` in one pass."""


product_finished.in_pieces("..._,n_,n,...n->...n")
product_finished.not_differentiable = "it runs where no gradient is recorded"


@product_finished.plan
@product_finished.kernel
def _product_finished(a, w, bias, activation, residual, spread):
    rows = a.reshape(-1, w.shape[1])
    beside = None if residual is None else residual.reshape(-1, w.shape[0])
    made = kernel.matmul_then(rows, w.T, _formula(activation, residual is not None), bias=bias, beside=beside, spread=spread)
    return made.reshape(*a.shape[:-1], w.shape[0])


@product_finished.shape
def _product_finished_shape(input, weight, *_):
    return (*input.shape[:-1], weight.shape[0]), input.dtype


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
