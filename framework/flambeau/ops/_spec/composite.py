"""Composites: functions of other ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import _state
from ...autograd import engine
from ...tensor import Tensor
from .base import FUNCTION, OPS, Op


class CompositeOp(Op):
    """Other ops, composed; derivatives and devices follow from theirs."""

    kind = "composite"
    inplace_view: Any = None  # the view op that the in-place form is made with

    def run_inplace(self, target: Tensor, *args: Any) -> Tensor:
        if self.inplace_view is not None:
            return self.inplace_view(target, *args)
        return super().run_inplace(target, *args)

    def run(self, *args: Any) -> Any:
        count = len(self.positional)
        return self.fn(*args[:count], **dict(zip(self.keyword_only, args[count:], strict=True)))


def composite(
    surface: int = FUNCTION,
    namespace: str = "",
    aliases: tuple[str, ...] = (),
    autocast: str | None = None,
    spread: str | None = None,
) -> Callable[[Any], CompositeOp]:
    """Declare an op made of other ops; the decorated function is its definition."""

    def declare(fn: Any) -> CompositeOp:
        op = CompositeOp(fn, surface, namespace, aliases, autocast)
        op.spread = spread
        return op

    return declare


# -- update rules --------------------------------------------------------------------------------------------------------

engine._add = lambda a, b: OPS["add"].interpreted(a, b, 1) if _state.SLOW else OPS["add"].run(a, b, 1)
