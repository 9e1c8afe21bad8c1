"""Rewrites of models that only compute: normalizations go into the layers before them, dropout is taken out."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from ...nn import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    Dropout,
    Linear,
    Module,
)
from ...nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from .._symbolic_trace import symbolic_trace
from ..graph_module import GraphModule
from ..node import Node

__all__ = ["fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

_FUSED = {
    (Conv1d, BatchNorm1d): fuse_conv_bn_eval,
    (Conv2d, BatchNorm2d): fuse_conv_bn_eval,
    (Conv3d, BatchNorm3d): fuse_conv_bn_eval,
    (Linear, BatchNorm1d): fuse_linear_bn_eval,
}


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> Module:
    """`model`, traced, with each batch normalization that follows a convolution or linear layer alone computed by that layer.

    What other values need, or is called several times, stays as it is, and so do normalizations without running statistics. Linear
    layers are taken to give ``(N, features)``.

    Args:
        inplace: whether modules of `model` itself are replaced, rather than those of a copy.
        no_trace: whether `model` is a `GraphModule`, which is taken as it is.
    Raises: AssertionError for a layer in training mode, whose statistics are those of the batch.
    """
    if not inplace:
        model = copy.deepcopy(model)
    traced: Any = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        for (layer, norm), fused in _FUSED.items():
            if not matches_module_pattern((layer, norm), node, modules):
                continue
            before = node.args[0]
            computes, normalizes = modules[before.target], modules[node.target]
            alone = len(before.users) == 1 and _is_called_once(traced, computes, modules) and _is_called_once(traced, normalizes, modules)
            if not alone or not normalizes.track_running_stats:
                continue
            replace_node_module(before, modules, fused(computes, normalizes))
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
            break
    return GraphModule(traced, traced.graph)


def _is_called_once(traced: Any, module: Module, modules: dict[str, Module]) -> bool:
    """Whether one node alone calls `module`, by whichever name, and none reads its parameters."""
    names = [name for name, found in modules.items() if found is module]
    calls = [n for n in traced.graph.nodes if n.op == "call_module" and n.target in names]
    reads = [n for n in traced.graph.nodes if n.op == "get_attr" and n.target.rpartition(".")[0] in names]
    return len(calls) == 1 and not reads


def remove_dropout(model: Module) -> Module:
    """`model`, traced, without its modules `nn.Dropout`."""
    traced = symbolic_trace(model)
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and isinstance(modules[node.target], Dropout):
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    return GraphModule(traced, traced.graph)


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Any]) -> bool:
    """Whether `node` calls a module of the second class of `pattern` on what a module of the first gives.

    Args:
        modules: those of the model by name.
    """
    if not node.args:
        return False
    for kind, found in zip(pattern, (node.args[0], node), strict=True):
        if not isinstance(found, Node) or found.op != "call_module" or type(modules.get(str(found.target))) is not kind:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Any], new_module: Module) -> None:
    """Let `new_module` be what `node` calls, in the module that holds it and in `modules`, those of the model by name."""
    target = str(node.target)
    parent, _, name = target.rpartition(".")
    modules[target] = new_module
    setattr(modules[parent], name, new_module)
