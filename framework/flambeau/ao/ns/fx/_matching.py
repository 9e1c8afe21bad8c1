"""Which operations of a traced model are which of its quantized one."""

from __future__ import annotations

import difflib
import operator
import re
from dataclasses import dataclass
from typing import Any

from ....fx import GraphModule, Node
from ....nn import Module
from ...quantization.observer import _is_activation_post_process

__all__ = ["Operation", "Pair", "family_of", "matched", "target_type"]

# Nodes that bring values in and out, and to and from integers.
_STEPS = ("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic", "dequantize", "to", "size", "getattr", "getitem")
# What joined and quantized layers add to the name of the layer.
_ADDED = re.compile(r"(?<=add|mul|ear)(_scalar)?_?relu$|(?<=add|mul)_scalar$|(?<=linear)bn1d$|(bn)?relu(?=\dd$)|bn(?=\dd$)|_")


@dataclass
class Operation:
    """One operation of a model.

    Args:
        node: where it begins.
        end: where its result is: a ReLU that belongs to it, or `node`.
        family: the same for an operation and what takes its place.
    """

    node: Node
    end: Node
    family: str


@dataclass
class Pair:
    """The same operation in two models."""

    a: Operation
    b: Operation


def module_of(model: Module, node: Node) -> Any:
    """The module that `node` calls, or None."""
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None


def family_of(model: Module, node: Node) -> str | None:
    """A name that an operation and what takes its place share; None for nodes that compute nothing."""
    module = module_of(model, node)
    if module is not None:
        if _is_activation_post_process(module) or hasattr(module, "is_ns_logger"):
            return None
        name = type(module).__name__
    elif node.op == "call_function":
        name = getattr(node.target, "__name__", "")
    else:
        name = str(node.target) if node.op == "call_method" else ""
    if not name or name in _STEPS:
        return None
    return _ADDED.sub("", re.sub("^bn", "batchnorm", name.lower()))


def _has_relu(model: Module, operation: Operation) -> bool:
    module = module_of(model, operation.node)
    name = type(module).__name__ if module is not None else getattr(operation.node.target, "__name__", "")
    return "relu" in name.lower() or operation.node.kwargs.get("relu") is True


def operations_of(model: GraphModule) -> list[Operation]:
    """The operations of a traced model, in the order in which they run."""
    found = ((node, family_of(model, node)) for node in model.graph.nodes)
    return [Operation(node, node, family) for node, family in found if family is not None]


def _take_relu(model: GraphModule, operation: Operation) -> None:
    """Let a ReLU that alone takes the result belong to the operation."""
    users = list(operation.node.users)
    if len(users) == 1 and family_of(model, users[0]) == "relu":
        operation.end = users[0]


def matched(a: GraphModule, b: GraphModule) -> list[Pair]:
    """The operations that both models have, in order, the longest parts that agree first."""
    here, there = operations_of(a), operations_of(b)
    blocks = difflib.SequenceMatcher(None, [o.family for o in here], [o.family for o in there], autojunk=False).get_matching_blocks()
    pairs = [Pair(here[m.a + i], there[m.b + i]) for m in blocks for i in range(m.size)]
    for pair in pairs:
        if _has_relu(a, pair.a) is not _has_relu(b, pair.b):
            _take_relu(*((a, pair.a) if _has_relu(b, pair.b) else (b, pair.b)))
    return pairs


def target_type(model: Module, node: Node) -> str:
    """The dotted name of what `node` calls."""
    module = module_of(model, node)
    kind: Any = node.target if module is None else type(module)
    if isinstance(kind, str):
        return kind
    home = getattr(kind, "__module__", "").replace("flambeau", "torch", 1)
    return f"{'operator' if kind in vars(operator).values() else home}.{getattr(kind, '__qualname__', kind)}"
