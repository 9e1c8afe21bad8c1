"""Composites: functions of other ops."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ... import _state
from ...autograd import engine
from ...tensor import Tensor
from .base import FUNCTION, OPS, Op, Overlap


class CompositeOp(Op):
    """Other ops, composed; derivatives and devices follow from theirs."""

    kind = "composite"
    inplace_view: Any = None  # the view op that the in-place form is made with
    inplace_rule: Any = None  # ``fn(*args)``: the elementwise op whose in-place form it is, and its arguments

    def in_place(self, fn: Any) -> Any:
        """Say which op in place stores the same: ``fn(*args) -> op, args``, or None where the result is to be computed apart."""
        self.inplace_rule = fn
        return fn

    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        if self.inplace_view is not None:
            return self.inplace_view(target, *args)
        if self.inplace_rule is not None:
            found = self.inplace_rule(target, *args)
            if found is not None:
                op, given = found
                return _stored_by(op)(*given)
        return super().run_inplace(target, *args)

    def run(self, *args: Any) -> Any:
        count = len(self.positional)
        return self.fn(*args[:count], **dict(zip(self.keyword_only, args[count:], strict=True)))


@cache
def _stored_by(op: Op) -> Any:
    from .. import _derive

    return _derive.make_inplace(op)


def composite(
    surface: int = FUNCTION,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    autocast: str | None = None,
    spread: str | None = None,
    numpy_names: bool | None = None,
    overlap: Overlap = None,
) -> Callable[[Any], CompositeOp]:
    """Declare an op made of other ops; the decorated function is its definition.

    Args:
        numpy_names: whether numpy's names for parameters are taken too (see `ops/_parameters.py`). None: outside of
            `nn.functional`, most of which PyTorch has in Python.
        overlap: which operands may share memory with what is written, see `Op`.
    """

    def declare(fn: Any) -> CompositeOp:
        op = CompositeOp(fn, surface, namespace, aliases, autocast)
        op.spread = spread
        op.set_overlap(overlap)
        if numpy_names is not None:
            op.numpy_names = numpy_names
        return op

    return declare


# -- update rules --------------------------------------------------------------------------------------------------------

engine._add = lambda a, b: OPS["add"].interpreted(a, b, 1) if _state.SLOW else OPS["add"].run(a, b, 1)
