"""Calls in one form: `NormalizeArgs` gives arguments by keyword, `NormalizeOperators` uses Python's operators."""

from __future__ import annotations

import operator
from typing import Any

from ...ops._dispatch import public_function
from ...ops._spec.base import OPS
from ..graph_module import GraphModule
from ..interpreter import Transformer
from ..operator_schemas import normalize_function, normalize_module

__all__ = ["NormalizeArgs", "NormalizeOperators"]


class NormalizeArgs(Transformer):
    """Makes a GraphModule in which calls of functions and modules of the package have their arguments by name, defaults too.

    Args:
        module: the GraphModule.
        normalize_to_only_use_kwargs: give all arguments by keyword; else those that were given in order stay so.

    Calls of methods, of Python's operators and of other functions stay as they are.

    >>> from flambeau.fx.experimental.normalize import NormalizeArgs
    >>> print(NormalizeArgs(fb.fx.symbolic_trace(lambda x: fb.flatten(x, 1))).transform().code.strip())
    def forward(self, x):
        flatten = torch.flatten(input = x, start_dim = 1, end_dim = -1);  x = None
        return flatten
    """

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a function in the new graph."""
        found = normalize_function(target, args, kwargs, normalize_to_only_use_kwargs=self.normalize_to_only_use_kwargs)
        return super().call_function(target, *(found or (args, kwargs)))

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a submodule in the new graph."""
        found = normalize_module(self.module, target, args, kwargs, normalize_to_only_use_kwargs=self.normalize_to_only_use_kwargs)
        return super().call_module(target, *(found or (args, kwargs)))


_SIGNS = {
    "add": operator.add, "mul": operator.mul, "sub": operator.sub, "div": operator.truediv, "floor_divide": operator.floordiv,
    "remainder": operator.mod, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge,
}  # fmt: skip


class NormalizeOperators(Transformer):
    """Makes a GraphModule in which functions of two operands that stand for an operator of Python's are that operator.

    >>> from flambeau.fx.experimental.normalize import NormalizeOperators
    >>> print(NormalizeOperators(fb.fx.symbolic_trace(lambda x: fb.add(x, 1))).transform().code.strip())
    def forward(self, x):
        add = x + 1;  x = None
        return add
    """

    binary_magic_method_remap: dict[Any, Any] = {public_function(OPS[name]): sign for name, sign in _SIGNS.items()}

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a function in the new graph."""
        sign = self.binary_magic_method_remap.get(target)
        if sign is not None and len(args) == 2 and not kwargs:
            target = sign
        return super().call_function(target, args, kwargs)
