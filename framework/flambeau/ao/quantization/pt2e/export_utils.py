"""Exported programs as modules: whether a module is one, and its modes of training and evaluation."""

from __future__ import annotations

import types
from typing import Any

from ....fx import GraphModule, Node
from ....nn import Module

__all__ = ["allow_exported_model_train_eval", "model_is_exported", "move_exported_model_to_eval", "move_exported_model_to_train"]


def _argument_of_mode(node: Node) -> tuple[int, str] | None:
    """The place and the name of the argument that says whether the model is trained, where the operator has one."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    places = {} if schema is None else {a.name: at for at, a in enumerate(schema.arguments)}
    if "running_mean" in places and node.args[places["running_mean"]] is None:
        return None                                   # which keeps no statistics, and takes those of the batch always
    return next(((places[name], name) for name in ("train", "training") if name in places), None)


def model_is_exported(m: Module) -> bool:
    """Whether `m` is the module of an exported program, or one that was made of it: a graph whose values are known."""
    return isinstance(m, GraphModule) and any("val" in node.meta for node in m.graph.nodes)


def _set_mode(model: GraphModule, training: bool, before: str) -> GraphModule:
    if not model_is_exported(model):
        raise AssertionError(f"{before}: expected the module of an exported program, got {type(model).__name__}")
    for node in model.graph.nodes:
        argument = _argument_of_mode(node)
        if argument is None:
            continue
        at, name = argument
        if at < len(node.args):
            node.update_arg(at, training)
        else:                                         # it was left at its default
            node.update_kwarg(name, training)
    model.recompile()
    for module in model.modules():
        module.training = training
    return model


def move_exported_model_to_eval(model: GraphModule) -> GraphModule:
    """Dropouts and batch norms of the program as in evaluation."""
    return _set_mode(model, False, "move_exported_model_to_eval")


def move_exported_model_to_train(model: GraphModule) -> GraphModule:
    """Dropouts and batch norms of the program as in training."""
    return _set_mode(model, True, "move_exported_model_to_train")


def allow_exported_model_train_eval(model: GraphModule) -> GraphModule:
    """Let ``model.train()`` and ``model.eval()`` set dropouts and batch norms of the program, and nothing else."""

    def train(self: Any, mode: bool = True) -> Any:
        return _set_mode(self, mode, "train")

    def evaluate(self: Any) -> Any:
        return _set_mode(self, False, "eval")

    model.train = types.MethodType(train, model)  # type: ignore[method-assign]
    model.eval = types.MethodType(evaluate, model)  # type: ignore[method-assign]
    return model


# As PyTorch calls them in this module.
_allow_exported_model_train_eval = allow_exported_model_train_eval
_move_exported_model_to_eval, _move_exported_model_to_train = move_exported_model_to_eval, move_exported_model_to_train
