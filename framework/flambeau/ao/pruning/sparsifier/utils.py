"""Modules and tensors by their names in a model, and the module that multiplies by a mask."""

from __future__ import annotations

from itertools import chain
from typing import Any

from ....nn import Module
from ....nn.utils.parametrize import type_before_parametrizations
from ....tensor import Tensor

__all__ = ["FakeSparsity", "fqn_to_module", "get_arg_info_from_tensor_fqn", "module_contains_param", "module_to_fqn", "swap_module"]


class FakeSparsity(Module):
    """A parametrization: the weight times `mask`. The mask is no part of `state_dict`; sparsifiers keep it.

    Args:
        mask: numbers, or bools, of the weight's shape.
    """

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """``mask * x``. Raises: AssertionError for another shape."""
        if self.mask.shape != x.shape:
            raise AssertionError(f"mask shape ({self.mask.shape}) must match x shape ({x.shape})")
        return self.mask * x

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Nothing."""
        return {}


def module_contains_param(module: Module, parametrization: Any) -> bool:
    """Whether a tensor of `module` has a parametrization of this class."""
    lists = getattr(module, "parametrizations", {})
    return any(isinstance(each, parametrization) for each in chain.from_iterable(lists.values() if lists else ()))


def fqn_to_module(model: Module | None, path: str) -> Module | None:
    """The module of `model` that has the dotted name `path`, `model` itself for an empty one; None where there is none."""
    if path != "":
        for name in path.split("."):
            model = getattr(model, name, None)
    return model


def module_to_fqn(model: Module, module: Module, prefix: str = "") -> str | None:
    """The dotted name of `module` within `model`, the first; None where it is not there.

    Args:
        prefix: comes before it.
    """
    for name, found in model.named_modules():
        if found is module:
            return f"{prefix}.{name}".strip(".") if prefix else name
    return None


def get_arg_info_from_tensor_fqn(model: Module, tensor_fqn: str) -> dict[str, Any]:
    """The parts of the dotted name of a tensor: "module_fqn", "module" (None where there is none), "tensor_name" and "tensor_fqn"."""
    module_fqn, _, tensor_name = tensor_fqn.rpartition(".")
    return {
        "module_fqn": module_fqn, "module": fqn_to_module(model, module_fqn), "tensor_name": tensor_name, "tensor_fqn": tensor_fqn,
    }  # fmt: skip


def swap_module(mod: Module, mapping: dict[Any, Any]) -> Module:
    """The module that takes the place of `mod`, made by ``from_dense`` of the class that `mapping` has for it, with its hooks.

    `mod` itself where it is not pruned, or there is no such class.
    """
    kind = type_before_parametrizations(mod)
    if kind not in mapping or not module_contains_param(mod, FakeSparsity):
        return mod
    made = mapping[kind].from_dense(mod)
    for hook in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    for hook in mod._forward_hooks.values():
        made.register_forward_hook(hook)
    devices = {t.device for t in chain(mod.parameters(), mod.buffers())}
    if len(devices) > 1:
        raise AssertionError(f"swap_module only works with cpu or single-device CUDA modules, but got devices {devices}")
    return made.to(devices.pop()) if devices else made
