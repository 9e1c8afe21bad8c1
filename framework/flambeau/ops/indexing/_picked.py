"""What ops share that pick elements along a dimension and say where they were: their gradient.

Their results are ``(values, indices)``. The gradient of the values goes back to where they came from.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensor import Tensor
from .._spec import PrimitiveOp


def need_tensor(name: str, input: Any) -> None:
    """Raise TypeError unless `input` of the op `name` is a Tensor."""
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(input).__name__}")


def put_along(grad: Tensor, at: Tensor, shape: Any, dim: int, keepdim: bool) -> Tensor:
    """`grad` put at the indices `at` along `dim` of zeros of `shape`."""
    if not shape:
        return grad
    if not keepdim:
        grad, at = grad.unsqueeze(dim), at.unsqueeze(dim)
    return grad.new_zeros(shape).scatter(dim, at, grad)


def _put_along(grad: np.ndarray, at: np.ndarray, shape: Any, dim: int, keepdim: bool) -> np.ndarray:
    """`put_along` on arrays."""
    made = np.zeros(shape, grad.dtype)
    if not shape:
        made[...] = grad
    elif len(shape) == 1:
        made[at] = grad
    else:
        if not keepdim:
            around = list(shape)
            around[dim] = 1
            grad, at = grad.reshape(around), at.reshape(around)
        places: list[Any] = [np.arange(n).reshape([n if d == k else 1 for k in range(len(shape))]) for d, n in enumerate(at.shape)]
        places[dim] = at
        made[tuple(places)] = grad
    return made


def _vjp_reduced(grad, out1, input_shape, dim, keepdim):
    return (put_along(grad[0], out1, input_shape, dim, keepdim),)


def _raw_reduced(grad, out1, input_shape, dim, keepdim):
    return (_put_along(grad, out1, input_shape, dim, keepdim),)


def _vjp_along(grad, out1, input_shape, dim):
    return (put_along(grad[0], out1, input_shape, dim, True),)


def _raw_along(grad, out1, input_shape, dim):
    return (_put_along(grad, out1, input_shape, dim, True),)


def values_and_indices(op: PrimitiveOp) -> None:
    """Give `op`, of one input with ``(values, indices)`` along a parameter `dim`, its rules of differentiation."""
    reduced = "keepdim" in op.params
    op.vjp(_vjp_reduced if reduced else _vjp_along)
    op.vjp_on_arrays(_raw_reduced if reduced else _raw_along, only_first=True)


