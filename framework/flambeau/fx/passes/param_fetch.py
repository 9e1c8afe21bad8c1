"""Attributes of modules, kept at the nodes that call them."""

from __future__ import annotations

from typing import Any

from ...nn import Module
from ..graph_module import GraphModule

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]


def default_matching(name: str, target_version: int) -> str:
    """The name of an attribute in any version: `name`."""
    return name


# Name of a class -> version of its state, attributes that are wanted, and how they are called in other versions.
module_fetch_book: dict[str, tuple[int, list[str], Any]] = {
    "Linear": (1, ["weight", "bias"], default_matching),
    "Conv2d": (1, ["weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"], default_matching),
    "BatchNorm2d": (2, ["weight", "bias", "running_mean", "running_var", "eps"], default_matching),
    "AdaptiveAvgPool2d": (1, [], default_matching),
    "MaxPool2d": (1, ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"], default_matching),
    "ReLU": (1, ["inplace"], default_matching),
}


def extract_attrs_for_lowering(mod: Module) -> dict[str, Any]:
    """The class of a module, and the attributes that say what it computes.

    Raises: RuntimeError for a class that is not in `module_fetch_book`.
    """
    cls = type(mod)
    found: dict[str, Any] = {"name": f"{cls.__module__.replace('flambeau.', 'torch.', 1)}.{cls.__name__}"}
    if cls.__name__ not in module_fetch_book:
        raise RuntimeError(f"{cls.__name__} is not in the module_fetch_book yet, please add it to the module_fetch_book first")
    version, names, matching = module_fetch_book[cls.__name__]
    found.update({name: getattr(mod, matching(name, version)) for name in names})
    return found


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Note in ``node.attrs_for_lowering`` what the module is that a node calls; in GraphModules inside, at their nodes."""
    modules = dict(fx_module.named_modules())
    for node in fx_module.graph.nodes:
        if node.op != "call_module":
            continue
        called = modules[node.target]
        if isinstance(called, GraphModule):
            lift_lowering_attrs_to_nodes(called)
        else:
            node.attrs_for_lowering = extract_attrs_for_lowering(called)  # pyright: ignore[reportAttributeAccessIssue]  # a note
