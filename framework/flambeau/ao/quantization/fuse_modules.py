"""Join layers of a model that follow each other, by their names."""

from __future__ import annotations

import copy
from typing import Any

from ...nn import Identity, Module
from .fuser_method_mappings import get_fuser_method

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]


def fuse_known_modules(mod_list: list[Any], is_qat: bool, additional_fuser_method_mapping: dict[Any, Any] | None = None) -> list[Any]:
    """`mod_list` with one joined layer in front, and an `Identity` in place of each other.

    Hooks that run before the first layer, and after the last, go over to the joined one.
    """
    fused = get_fuser_method([type(m) for m in mod_list], additional_fuser_method_mapping)(is_qat, *mod_list)
    for hook in mod_list[0]._forward_pre_hooks.values():
        fused.register_forward_pre_hook(hook)
    mod_list[0]._forward_pre_hooks.clear()
    for hook in mod_list[-1]._forward_hooks.values():
        fused.register_forward_hook(hook)
    mod_list[-1]._forward_hooks.clear()
    rest: list[Any] = []
    for _ in mod_list[1:]:
        identity = Identity()
        identity.training = mod_list[0].training
        rest.append(identity)
    return [fused, *rest]


def _fuse(model: Module, groups: Any, is_qat: bool, inplace: bool, fuser: Any, config: dict[str, Any] | None) -> Module:
    additional = (config or {}).get("additional_fuser_method_mapping", {})
    if not inplace:
        model = copy.deepcopy(model)
    for names in [groups] if all(isinstance(name, str) for name in groups) else groups:
        found = [model.get_submodule(name) for name in names]
        made = fuser(found, is_qat, additional)
        for name, module in zip(names, made, strict=True):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, module)
    return model


def fuse_modules(
    model: Module, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: dict[str, Any] | None = None,
) -> Module:  # fmt: skip
    """Join layers that follow each other, for quantization after training.

    Joined are convolutions, linear layers and normalizations with what follows: ``(conv, bn)``, ``(conv, bn, relu)``, ``(conv, relu)``,
    ``(linear, bn)``, ``(linear, relu)``, ``(bn, relu)``. Normalizations are folded into the weights.

    Args:
        model: in evaluation mode.
        modules_to_fuse: a list of names that follow each other, or a list of such lists.
        inplace: change `model` itself.
        fuser_func: makes the list of new layers of a list of layers.
        fuse_custom_config_dict: ``{"additional_fuser_method_mapping": {(classes): function}}``.
    Returns: the model; the first layer of each list is the joined one, the others are `Identity`.
    Raises: AssertionError for layers in training mode, and for sequences that nothing joins.

    >>> model = fb.nn.Sequential(fb.nn.Conv2d(1, 2, 3), fb.nn.BatchNorm2d(2), fb.nn.ReLU()).eval()
    >>> type(fb.ao.quantization.fuse_modules(model, ["0", "1", "2"])[0]).__name__
    'ConvReLU2d'
    """
    return _fuse(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: Module, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: dict[str, Any] | None = None,
) -> Module:  # fmt: skip
    """`fuse_modules` for quantization aware training: normalizations stay, beside the layer they follow."""
    return _fuse(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
