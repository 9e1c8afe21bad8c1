"""What ops share that pick elements along a dimension and say where they were: their gradient, and their short way.

Their results are ``(values, indices)``. The gradient of the values goes back to where they came from.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from .. import _state
from ..autograd import tape
from ..tensor import Tensor, wrap
from ._spec import PrimitiveOp

_new = object.__new__


def unrecorded(input: Any) -> bool:
    """Whether `input` is a Tensor that operations of this thread do not record a history for."""
    return isinstance(input, Tensor) and (input._node is None or not (_state.GRAD or _state.local.grad))


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


def picks(op: PrimitiveOp) -> None:
    """Give `op`, of one input with ``(values, indices)`` along a parameter `dim`, its rules of differentiation."""
    reduced = "keepdim" in op.params
    op.vjp(_vjp_reduced if reduced else _vjp_along)
    op.raw(_raw_reduced if reduced else _raw_along, only_first=True)


def picked(op: PrimitiveOp, found: tuple[np.ndarray, np.ndarray], input: Tensor, dim: int, keepdim: bool = True) -> Any:
    """The named result of `op` for what a kernel has found, with the history that the general way records."""
    values, places = wrap(found[0]), wrap(found[1])
    if input._node is not None and (_state.GRAD or _state.local.grad):
        shape = input._array.shape
        node = _new(op.node_class)
        node.seq = _state.next_seq()
        node.where = tape.users_place()
        node.parents = (input._node,)
        node.hooks = None
        node.shape = 2
        dim %= len(shape)
        if len(op.saved_names) == 3:
            node.saved, node.versions = (found[1], shape, dim), (places._storage, None, None)
        else:
            node.saved, node.versions = (found[1], shape, dim, keepdim), (places._storage, None, None, None)
        output = values._node = _new(tape.OutputNode)
        output.seq, output.parents, output.hooks, output.index = _state.next_seq(), (node,), None, 0
        there = found[0].shape
        node.__dict__ = {"outputs": [weakref.ref(output), None], "metas": [(there, found[0].dtype), (there, found[1].dtype)]}
    kind = op.return_type
    return op.named((values, places)) if kind is None else tuple.__new__(kind, (values, places))


def recorded_plainly(op: Any, array: np.ndarray, input: Tensor, *saved: Any) -> Tensor:
    """The result of a kernel, with the history of an op of `input` that keeps `saved`, which are no arrays."""
    made = wrap(array)
    if input._node is not None and (_state.GRAD or _state.local.grad):
        node = made._node = _new(op.node_class)
        node.seq, node.parents, node.hooks, node.shape = _state.next_seq(), (input._node,), None, 0
        node.saved, node.versions = saved, ()
    return made
