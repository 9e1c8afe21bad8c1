"""Filling tensors that are there."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np

from flambeau_kernels.cpu.creation import fill as kernel

from ... import _state
from ..._arrays import HeldArray, MetaArray, ndarray
from ..._kinds import KindArray
from ..._state import interpreted
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor, bump, wrap
from .. import _dispatch
from .._makers import refusing
from .._parameters import input_of
from .._spec import FUNCTION, METHOD, NUMPY_NAMES, composite
from .._spec.writing import refuse_read_only
from ._options import _fits_plainly, scalar_of_dtype

MARKED = _state.MARKED
_state.share(globals(), "MARKED")  # keeps it as it is there
next_seq = _state.next_seq


@composite(surface=FUNCTION | METHOD, samples="x(2, 3), 1.5; x(2, 3), x()")
def fill(input, value):
    """A tensor like `input` filled with `value`."""
    return input.clone().fill_(value)


@fill.plan(tensors=("input",), rows=True)
def _planned_fill(a, value):
    if not _fits_plainly(value, a.dtype):
        return None
    made = np.empty(a.shape, a.dtype)
    kernel.refill(made, value)
    return made


@composite(surface=0, operator="copy(input, src)", samples="x(2, 3), x(3)")
def copy(input, src):
    """The values of `src` in a tensor like `input`, which is only asked for its shape, dtype and strides."""
    return input.clone().copy_(src)


copy.on_lists(store=lambda tensor, src, non_blocking=False: tensor.copy_(src, non_blocking))


@composite(surface=0, operator="zero(input)", samples="x(2, 3)")
def zero(input):
    """Zeros in a tensor like `input`."""
    return input.clone().zero_()


zero.on_lists(store=lambda tensor: tensor.zero_())


def _written_directly(self: Tensor) -> bool:
    """Whether filling `self` needs neither recording nor a check."""
    a = self._array
    if a.__class__ is not ndarray or not a.flags.writeable or _state.IN_FORCE and interpreted():
        return False
    if _state.MARKED and self._storage[0].__class__ is not int:
        return False
    return self._node is None and (self._view_of is None or self._view_of[0]._node is None) or not _state.grad_enabled()


def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to `value`, a number or 0-d tensor."""
    # Where the class answers ops, what was recorded of the elements is forgotten by `copy_`.
    no_history = self._node is None or type(self)._answerer is None or not _state.grad_enabled()
    if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray and no_history:
        made = _dispatch.made("fill_", {"self": self, "value": value})
        if made is not None:
            return made
    a = self._array
    if a.__class__ is ndarray and _fits_plainly(value, a.dtype) and _written_directly(self):
        kernel.refill(a, value)
        bump(self)
        return self
    if isinstance(a, KindArray):
        return a.answer(fill, (self, value), self, True)
    refuse_read_only("fill_", a)
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
        return self.copy_(value.expand(self._array.shape))  # so that it may be an element of `self`
    if _written_directly(self):
        kernel.refill(self._array, scalar_of_dtype(value, self._array.dtype, self._array.size))
        bump(self)
        return self
    kind = self.dtype.numpy
    once = self                                       # what lies at one place is written once
    for d, (n, step) in enumerate(zip(self._array.shape, self._array.strides, strict=True)):
        if step == 0 and n > 1:
            once = once.narrow(d, 0, 1)
    if _dispatch.is_seen():                           # which is told where the number comes from
        from .create import full

        once.copy_(full((), value, dtype=self.dtype, device=self.device))
    elif self._lacks_values:
        once.copy_(wrap(MetaArray((), kind)))
    else:
        once.copy_(wrap(np.full((), scalar_of_dtype(value, kind, once._array.size), kind)))
    return self


def zero_(self: Tensor) -> Tensor:
    """Set every element to 0."""
    a = self._array
    if a.__class__ is ndarray and self._node is self._view_of is None and not (_state.IN_FORCE or MARKED) and kernel.refilled(a, 0.0):
        record = self._storage
        record[0] += 1
        record[1] = next_seq()
        return self
    if _written_directly(self):
        kernel.refill(a, 0.0 if a.dtype is FLOAT32 or a.dtype is FLOAT64 else 0)
        bump(self)
        return self
    no_history = self._node is None or type(self)._answerer is None or not _state.grad_enabled()
    if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray and no_history:
        made = _dispatch.made("zero_", {"self": self})
        if made is not None:
            return made
    if isinstance(self._array, KindArray):
        return self._array.answer(zero, (self,), self, True)
    refuse_read_only("zero_", a)
    return fill_(self, 0)


Tensor.fill_, Tensor.zero_ = fill_, zero_  # type: ignore[attr-defined]


def _by_method(method: Any) -> Any:
    """A method of Tensor as a function, which recorders of methods see too."""

    @wraps(method)
    def call(input: Any = ..., *args: Any, **named: Any) -> Any:
        if "self" in named:                           # the operator's name of it
            input = named.pop("self")
        elif input is ...:
            input = input_of(method.__name__, input, {n: named.pop(n) for n in NUMPY_NAMES["input"] if n in named})
        return getattr(input, method.__name__)(*args, **named)

    return refusing(call)


FUNCTIONS = {"fill_": _by_method(fill_), "zero_": _by_method(zero_)}
