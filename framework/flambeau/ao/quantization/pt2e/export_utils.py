"""Exported programs as modules: whether a module is one, and its modes of training and evaluation."""

from __future__ import annotations

import types
from typing import Any

import flambeau as fb

from ....fx import GraphModule
from ....nn import Module

__all__ = ["allow_exported_model_train_eval", "model_is_exported", "move_exported_model_to_eval", "move_exported_model_to_train"]

_aten: Any = fb.ops.aten
# By operator the place of the argument that says whether the model is trained.
_MODES = {
    _aten.dropout.default: 2, _aten.dropout_.default: 2, _aten.feature_dropout.default: 2, _aten.alpha_dropout.default: 2,
    _aten.batch_norm.default: 5,
}  # fmt: skip


def model_is_exported(m: Module) -> bool:
    """Whether `m` is the module of an exported program, or one that was made of it: a graph whose values are known."""
    return isinstance(m, GraphModule) and any("val" in node.meta for node in m.graph.nodes)


def _set_mode(model: GraphModule, training: bool, before: str) -> GraphModule:
    if not model_is_exported(model):
        raise AssertionError(f"{before}: expected the module of an exported program, got {type(model).__name__}")
    for node in model.graph.nodes:
        at = _MODES.get(node.target) if node.op == "call_function" else None
        if at is not None and node.args[at] is not training:
            node.update_arg(at, training)
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
