"""Views: primitives whose result shares the memory of their first argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref as _ref

import numpy as np

from ... import _state
from ..._arrays import ndarray
from ...autograd.tape import Node
from ...tensor import Tensor, bump, wrap
from .base import VIEWED
from .history import register_view
from .primitive import PrimitiveNode, PrimitiveOp
from .writing import check_recorded, check_view

_new = object.__new__
_next_seq = _state.next_seq


class ViewNode(PrimitiveNode):
    """A node of one parent whose rule on arrays mostly reads a shape and plain arguments."""

    __slots__ = ()

    def raw(self, grad: Any) -> Any:
        if self.versions or grad.__class__ is not ndarray:
            return super().raw(grad)
        op = self.op
        saved = self.saved
        return op.raw_rule(*[grad if at is None else saved[at] for at in op.raw_sources])

    def add_piece(self, whole: Any, grad: Any) -> bool:
        """Add `grad` where this view lies in `whole`, which spares an array of zeros. Returns whether that was done."""
        if self.versions or whole.__class__ is not ndarray or grad.__class__ is not ndarray or whole.dtype != grad.dtype:
            return False
        piece = self.op.kernel_rule(whole, *self.saved[1:])
        np.add(piece, grad, piece)
        return True


class ViewOp(PrimitiveOp):
    """A primitive whose kernel returns a view of its first argument's memory."""

    kind = "view"
    node_base = ViewNode
    is_view = True

    def finish(self, args: Any, result: Any) -> Any:
        source = args[0]
        if isinstance(result, (tuple, list)):
            rest = args[1:]
            return tuple([self.piece(source, r, rest, i) for i, r in enumerate(result)])
        return self.of(source, result, args[1:])

    def of(self, source: Tensor, array: Any, rest: Any) -> Tensor:
        """The view of `source` whose array is `array`; `rest` are the op's other arguments."""
        made = _new(Tensor)
        made._a = array
        record = made._v = source._v
        before = source._b
        made._b = (source, self, rest, None) if before is None else (before[0], self, rest, before)
        if not (_state.GRAD or _state.local.grad):
            made._n = None
            return made
        parent = source._n
        if parent is None:
            made._n = None
        elif self.saves_plainly:
            node = made._n = _new(self.node_class)
            node.seq = _next_seq()
            node.parents = (parent,)
            node.hooks = None
            node.saved = (source._a.shape, *rest)
            node.versions = ()
            node.shape = 0
        else:
            made._n = None
            if self.vjp_rule is not None:
                self.record((made,), (source, *rest), False)
        views = record[3]
        if views is None:
            record[3] = [_ref(made)]
        elif len(views) < 32:
            views.append(_ref(made))
        else:
            register_view(made)
        return made

    def piece(self, source: Tensor, array: Any, rest: Any, index: int) -> Tensor:
        """`of` for one of several views."""
        made = wrap(array)
        made._v = source._v
        before = source._b
        part = _Part(self, index)
        made._b = (source if before is None else before[0], part, rest, before)
        if _state.GRAD or _state.local.grad:
            if source._n is not None:
                part.record(made, (source, *rest))
            register_view(made)
        return made

    def run(self, *args: Any) -> Any:
        if not isinstance(args[0], Tensor):
            raise TypeError(f"{self.said}(): argument '{self.params[0]}' must be Tensor, not {type(args[0]).__name__}")
        if self.check is not None:
            args = self.check(*args) or args
        return self.finish(args, self.kernel_rule(args[0]._a, *args[1:]))


    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        """Make `target` itself the view: its shape and strides change, its memory does not."""
        check_recorded(target)
        if target._n is not None and _state.grad_enabled():
            check_view(self, target)
        made = self.run(target, *args)
        target._a = made._a
        if made._n is not None:
            target._n = made._n
        if target._b is not None:
            target._b = made._b
            register_view(target)
        bump(target)
        return target


class _Part:
    """One of several views an op makes, as an op of its own: its history is the piece's, not the whole's."""

    __slots__ = ("whole", "index")
    refusal: str | None = (
        "It comes of an operation that returns several views, whose history could not be kept apart. Use the out-of-place form, or "
        "take the view by indexing"
    )

    def __init__(self, whole: ViewOp, index: int) -> None:
        self.whole = whole
        self.index = index

    @property
    def maker(self) -> str:
        """The name of the node that several views would share."""
        return self.whole.node_class.title

    def run(self, tensor: Tensor, *args: Any) -> Tensor:
        return (self.whole.interpreted if _state.SLOW else self.whole.run)(tensor, *args)[self.index]

    interpreted = run

    def record(self, made: Tensor, args: Any) -> None:
        node = PartNode()
        node.seq = _state.next_seq()
        node.parents = (args[0]._n,)
        node.hooks = None
        node.versions = ()
        node.saved = (self, args[1:], args[0]._a.shape)
        made._n = node


class _OnlyPart(_Part):
    """The one of several views that is looked at: writes to it may be recorded."""

    __slots__ = ()
    refusal = None


class PartNode(Node):
    """Puts the gradient of one piece back into zeros of the whole."""

    __slots__ = ()

    def name(self) -> str:
        return self.saved[0].whole.node_class.title if type(self.saved) is tuple else "PartBackward0"

    def vjp(self, grad: Tensor) -> Any:
        part, args, shape = self.saved
        whole = grad.new_zeros(shape)
        piece = part.run(whole, *args)
        if piece._b is not None:
            piece._b = (piece._b[0], _OnlyPart(part.whole, part.index), *piece._b[2:])
        piece.copy_(grad)
        return (whole,)


def view(
    surface: int = VIEWED,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    check: Any = None,
    autocast: str | None = None,
    spread: str | None = None,
) -> Callable[[Any], ViewOp]:
    """Declare an op that returns views; its kernel maps the array (and the other arguments) to views of it."""

    def declare(fn: Any) -> ViewOp:
        op = ViewOp(fn, surface, namespace, aliases, autocast, (fn.__code__.co_varnames[0],), None, None, check)
        op.spread = spread
        return op

    return declare
