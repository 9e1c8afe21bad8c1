"""Loading a state_dict: the walk over the modules, and parameters that are swapped with what is loaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import flambeau as fb

from ..parameter import Parameter
from .module import Module, _IncompatibleKeys

Tensor = fb.Tensor


class Loading:
    """One `load_state_dict`: walks the modules and gathers what does not fit."""

    def __init__(self, state_dict: Mapping[str, Any], assign: bool) -> None:
        self.metadata = getattr(state_dict, "_metadata", None)
        # A copy, because hooks before loading edit it.
        self.state_dict: Any = OrderedDict(state_dict)
        if self.metadata is not None:
            self.state_dict._metadata = self.metadata
        self.assign = assign
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []

    def visit(self, module: Module, prefix: str, state_dict: Any = None) -> None:
        state_dict = self.state_dict if state_dict is None else state_dict
        local_metadata = {} if self.metadata is None else self.metadata.get(prefix[:-1], {})
        if self.assign:
            local_metadata["assign_to_params_buffers"] = True
        module._load_from_state_dict(state_dict, prefix, local_metadata, True, self.missing, self.unexpected, self.errors)
        # Each child gets its part, so that neither deep nor broad trees search the whole dictionary at every node.
        parts: dict[str, Any] = {}
        if module._modules:
            for key, value in state_dict.items():
                name, dot, _ = key[len(prefix) :].partition(".")
                if dot and key.startswith(prefix):
                    parts.setdefault(name, OrderedDict())[key] = value
        for name, child in module._modules.items():
            if child is not None:
                self.visit(child, f"{prefix}{name}.", parts.get(name, OrderedDict()))
        self._run_post_hooks(module)

    def _run_post_hooks(self, module: Module) -> None:
        incompatible = _IncompatibleKeys(self.missing, self.unexpected)
        for hook in module._hooks("_load_state_dict_post_hooks").values():
            if hook(module, incompatible) is not None:
                # PyTorch raises AssertionError for exactly this.
                raise AssertionError("a load_state_dict post-hook must edit incompatible_keys in place and return None")


def load_swapped(current: Tensor, given: Tensor, assign: bool) -> None:
    """Swap `current` with what its `module_load` makes of `given`."""
    new = current.module_load(given, assign=assign)
    if new is current or new is given:
        raise RuntimeError("module_load() returned one of self or other, please .detach() the result if returning one of the inputs")
    if isinstance(current, Parameter):
        new = new.requires_grad_(current.requires_grad) if isinstance(new, Parameter) else Parameter(new, current.requires_grad)
    fb.utils.swap_tensors(current, new)
