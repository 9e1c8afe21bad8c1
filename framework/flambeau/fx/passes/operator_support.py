"""Which nodes a backend can run."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..node import Node
from .shape_prop import TensorMetadata
from .tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]

Submodules = Mapping[str, Any]
IsNodeSupported = Callable[[Submodules, Node], bool]


class OperatorSupportBase(abc.ABC):
    """Says of nodes whether they can be run."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Submodules, node: Node) -> bool:
        """Whether `node` can be run; `submodules` has the modules of its graph by path."""


class OperatorSupport(OperatorSupportBase):
    """Says so by a table.

    Args:
        support_dict: name of a target, such as ``torch.relu`` or ``_operator.add``, to None, which takes all dtypes, or to
            the dtypes of each positional argument and of each keyword argument.
    """

    _support_dict: Mapping[str, Any]

    def __init__(self, support_dict: Mapping[str, Any] | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Submodules, node: Node) -> bool:
        """Whether the table has the target of `node` with the dtypes of its arguments."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        supported = self._support_dict[target]
        if supported is None:
            return True
        positional, by_name = supported
        for i, dtypes in enumerate(positional):
            if len(node.args) <= i or isinstance(node.args[i], Node) and _dtype(node.args[i]) not in dtypes:
                return False
        return all(
            name in node.kwargs and (not isinstance(node.kwargs[name], Node) or _dtype(node.kwargs[name]) in dtypes)
            for name, dtypes in by_name.items()
        )


def _dtype(node: Any) -> Any:
    meta = node.meta.get("tensor_meta")
    return meta.dtype if isinstance(meta, TensorMetadata) else getattr(node.meta.get("val"), "dtype", None)


class _Function(OperatorSupportBase):
    def __init__(self, fn: IsNodeSupported) -> None:
        self.fn = fn

    def is_node_supported(self, submodules: Submodules, node: Node) -> bool:
        return self.fn(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """What a function of submodules and node says."""
    return _Function(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """What all of them say."""
    return _Function(lambda submodules, node: all(s.is_node_supported(submodules, node) for s in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """What one of them says."""
    return _Function(lambda submodules, node: any(s.is_node_supported(submodules, node) for s in op_support))


class OpSupports:
    """Frequent cases."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """Not nodes with an input of `dtype`."""

        def supported(submodules: Submodules, node: Node) -> bool:
            for arg in node.all_input_nodes:
                found = _dtype(arg)
                if found is not None and found == dtype:
                    return False
            return True

        return create_op_support(supported)

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: Sequence[str] | set[str]) -> OperatorSupportBase:
        """Not nodes of these names."""
        return create_op_support(lambda submodules, node: node.name not in disallow_set)
