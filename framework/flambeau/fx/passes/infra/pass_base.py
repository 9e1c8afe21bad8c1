"""The base class of passes over GraphModules."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from ....nn import Module
from ...graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """What a pass gives: the module, and whether it is another than before."""

    graph_module: Module
    modified: bool


class PassBase(abc.ABC):
    """A pass: `call` does the work, `requires` and `ensures` check the module before and after it."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Do the pass."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027  # may be left as it is
        """Check that the pass may be done; raise if not."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Check what the pass promises; raise if it does not hold."""


def checked(result: Any, name: str) -> PassResult:
    """`result` if it is a PassResult. Raises: TypeError otherwise."""
    if not isinstance(result, PassResult):
        raise TypeError(f"The result of the pass {name} should be type PassResult. Please wrap it with pass_result_wrapper()")
    return result
