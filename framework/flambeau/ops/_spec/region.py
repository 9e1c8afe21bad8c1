"""Where a view lies in its base: enough to find the same place in the base's gradient.

A view is not taken again by the operations that made it: shape and strides of both may have changed in place since, and a
gradient has strides of its own. A `Region` holds the geometry of both instead, at the time it is made, and is applied to a
copy of the gradient that is laid out as the base was.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import _arrays, _state
from ..._arrays import ndarray
from ...autograd.making import new_node
from ...autograd.tape import Node
from ...tensor import Tensor, wrap


class Geometry(NamedTuple):
    """Where the elements of a strided tensor lie in its storage, counted in elements."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    offset: int

    @property
    def ends(self) -> tuple[int, int]:
        """The places of the first element and after the last; the same where there is none."""
        if 0 in self.shape:
            return self.offset, self.offset
        return self.offset, self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.steps, strict=True))

    @property
    def is_non_overlapping(self) -> bool:
        """Whether each element has a place of its own, as far as steps alone tell."""
        reach = 0
        for s, n in sorted((s, n) for s, n in zip(self.steps, self.shape, strict=True) if n > 1):
            if s <= reach:
                return False
            reach += (n - 1) * s
        return True


class Region(NamedTuple):
    """A view in its base.

    `base` begins at 0, `view` counts in the same elements: halves of complex ones where one of the two is complex and the
    other is not, which `pairs` says (of base and view).
    """

    base: Geometry
    view: Geometry
    pairs: tuple[bool, bool]
    dtypes: tuple[np.dtype, np.dtype]

    @staticmethod
    def of(view: Tensor, base: Tensor) -> Region:
        """Where `view` lies in `base` now."""
        v, b = view._array, base._array
        kinds = v.dtype.kind == "c", b.dtype.kind == "c"
        pairs = (kinds[1], kinds[0]) if kinds[0] is not kinds[1] else (False, False)
        step = min(v.itemsize, b.itemsize)
        if not v.size:
            start = 0
        elif v.__class__ is ndarray is b.__class__ and view._storage is base._storage:
            start = (_arrays.address(v) - _arrays.address(b)) // step
        else:
            start = (view.storage_offset() * v.itemsize - base.storage_offset() * b.itemsize) // step
        shape, steps = v.shape, view.stride()
        if pairs[1]:
            shape, steps = (*shape, 2), (*(2 * s for s in steps), 1)
        plain = _arrays.plain_dtype
        return Region(Geometry(b.shape, base.stride(), 0), Geometry(shape, steps, start), pairs, (plain(b.dtype), plain(v.dtype)))

    @property
    def places(self) -> tuple[int, int]:
        """How much memory holds base and view, and where in it the base begins, in elements of the base."""
        per = 2 if self.pairs[0] else 1
        low, high = self.view.ends
        first = max(0, -(low // per))
        return first + max(self.base.ends[1], -(-high // per)), first

    def in_array(self, grad: ndarray) -> tuple[ndarray, ndarray]:
        """A copy of `grad`, an array like the base, laid out as the base was, and the region in it."""
        count, first = self.places
        dtype, own = self.dtypes
        step = dtype.itemsize
        memory = (np.empty if count == grad.size else np.zeros)(count * step, np.uint8)
        base_grad = _arrays.restride(np.empty(0, dtype), self.base.shape, tuple(s * step for s in self.base.steps), first * step, memory)
        base_grad[...] = grad
        shape, steps, start = self.view
        if self.pairs[1]:
            shape, steps = shape[:-1], steps[:-1]
        unit = own.itemsize // 2 if self.pairs[1] else own.itemsize
        region = _arrays.restride(np.empty(0, own), shape, tuple(s * unit for s in steps), first * step + start * unit, memory)
        return base_grad, region

    def in_tensor(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """`in_array` on Tensors, whose history goes on where that is recorded."""
        count, first = self.places
        if count == self.base.ends[1]:
            base_grad = grad.new_empty_strided(self.base.shape, self.base.steps)
        else:
            base_grad = grad.new_zeros((count,)).as_strided(self.base.shape, self.base.steps, first)
        base_grad.copy_(grad)
        return base_grad, self.seen_in(base_grad, first)

    def seen_in(self, base_grad: Tensor, first: int) -> Tensor:
        """The region as a view of `base_grad`, which is laid out as the base and begins at place `first` of its storage."""
        from ..shapes.parts import view_as_complex, view_as_real

        if self.pairs[0]:
            base_grad, first = view_as_real.function(base_grad), 2 * first
        elif self.pairs[1]:
            return view_as_complex.function(base_grad.as_strided(self.view.shape, self.view.steps, first + self.view.offset))
        return base_grad.as_strided(self.view.shape, self.view.steps, first + self.view.offset)

    def node(self, base: Tensor) -> Node:
        """The history of the view, made anew from that of `base`."""
        if True in self.pairs:
            alias = wrap(base._array, base._node)
            before = _state.set_grad(True)
            try:
                return self.seen_in(alias, alias.storage_offset())._node
            finally:
                _state.set_grad(before)
        from .base import OPS

        op: Any = OPS["as_strided"]
        return new_node(op.node_class, (base._node,), (self.base, *self.view))
