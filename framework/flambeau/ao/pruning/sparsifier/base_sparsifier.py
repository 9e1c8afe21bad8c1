"""What sparsifiers share: which tensors they mask, and how masks come and go."""

from __future__ import annotations

import abc
import copy
from collections import defaultdict
from typing import Any

import flambeau as fb

from ....nn import Linear, Module
from ....nn.utils import parametrize
from .utils import FakeSparsity, get_arg_info_from_tensor_fqn, module_contains_param, module_to_fqn, swap_module

__all__ = ["BaseSparsifier"]

SUPPORTED_MODULES = {Linear}
KEYS_NOT_IN_STATE_DICT = ["module", "module_fqn", "tensor_name"]


class BaseSparsifier(abc.ABC):
    """Masks tensors of a model. A class of it says by `update_mask` which elements are 0.

    Args:
        defaults: settings of every tensor, for those that its configuration does not give.
    Attributes: `groups`, a dict for each tensor; `state`, by the tensors' names; `enable_mask_update`, whether `step` does anything.
    """

    def __init__(self, defaults: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.defaults: dict[str, Any] = defaults or {}
        self.state: dict[str, dict[str, Any]] = defaultdict(dict)
        self.groups: list[dict[str, Any]] = []
        self.enable_mask_update = True
        self.model: Any = None
        self.config: list[dict[str, Any]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "groups": self.groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.groups):
            text += f"\n\tGroup {i}\n\t    module: {group['module']}\n"
            text += "".join(f"\t    {key}: {group[key]}\n" for key in sorted(group) if key != "module")
        return text + ")"

    def state_dict(self) -> dict[str, Any]:
        """The masks, and the settings of each tensor."""
        groups = [{key: value for key, value in group.items() if key not in KEYS_NOT_IN_STATE_DICT} for group in self.groups]
        return {"state": self.state, "groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Take over what `state_dict` gave.

        Args:
            strict: raise RuntimeError for a tensor that the model has not.
        """
        state, groups = state_dict["state"], copy.deepcopy(state_dict["groups"])
        for name, held in state.items():
            given = get_arg_info_from_tensor_fqn(self.model, name)
            module, tensor_name = given["module"], given["tensor_name"]
            if strict and module is None:
                raise RuntimeError(f"Error loading {name} into the model")
            found = next(
                (p for p in getattr(module.parametrizations, tensor_name) if isinstance(p, FakeSparsity))
                if parametrize.is_parametrized(module, tensor_name) else iter(()), None,
            )  # fmt: skip
            if found is None:
                found = FakeSparsity(fb.ones_like(getattr(module, tensor_name)))
                parametrize.register_parametrization(module, tensor_name, found)
            if held.get("mask") is not None:
                found.mask = held["mask"]
        for group in groups:
            group.update(get_arg_info_from_tensor_fqn(self.model, group["tensor_fqn"]))
        self.__setstate__({"state": state, "groups": groups})

    def make_config_from_model(self, model: Module, SUPPORTED_MODULES: Any = SUPPORTED_MODULES) -> None:
        """Let the configuration be the weights of all linear layers of `model`, or of other classes."""
        self.config = [
            {"tensor_fqn": f"{name}.weight" if (name := module_to_fqn(model, module)) else "weight"}
            for module in model.modules()
            if type(module) in SUPPORTED_MODULES
        ]

    def prepare(self, model: Module, config: list[dict[str, Any]] | None) -> None:
        """Put masks of ones before tensors of `model`.

        Args:
            config: for each tensor a dict with its name, "tensor_fqn", and settings; all linear layers' weights by default.
        Raises: AssertionError for a dict without a name.
        """
        self.model = model
        self.config = config if config is not None else []
        if config is None:
            self.make_config_from_model(model)
        for given in self.config:
            if not isinstance(given, dict):
                raise AssertionError(
                    "config elements should be dicts not modules i.e.:[{`tensor_fqn`: `foo.bar.weight`}, {`tensor_fqn`: ... }, ...]"
                )
            group: dict[str, Any] = {**copy.deepcopy(self.defaults), **given}
            name = group.get("tensor_fqn")
            if name is None:
                raise AssertionError(
                    "tensor_fqn is a required argument in the sparsity config which replaces previous `module` and [module]`fqn` arguments"
                )
            found = get_arg_info_from_tensor_fqn(model, name)
            for key, value in found.items():
                if key in group and group[key] != value:
                    raise AssertionError(f"Given both `{key}` and `tensor_fqn` in the config, it is expected them to agree!")
            group.update(found)
            self.groups.append(group)
        self._prepare()

    def _prepare(self, *args: Any, **kwargs: Any) -> None:
        for group in self.groups:
            module, tensor_name = group["module"], group["tensor_name"]
            made = group.get("parametrization", FakeSparsity)
            mask = group.get("mask", fb.ones_like(getattr(module, tensor_name)).detach())
            self.state[group["tensor_fqn"]]["mask"] = mask
            parametrize.register_parametrization(module, tensor_name, made(mask))

    def squash_mask(
        self, params_to_keep: tuple[str, ...] | None = None, params_to_keep_per_layer: dict[str, tuple[str, ...]] | None = None,
        *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Multiply tensors by their masks for good, and take the masks out.

        Args:
            params_to_keep: settings that each module keeps in a dict, its attribute `sparse_params`.
            params_to_keep_per_layer: the same by the names of modules.
        Raises: KeyError for a setting that there is not.
        """
        for group in self.groups:
            module, tensor_name = group["module"], group["tensor_name"]
            parametrize.remove_parametrizations(module, tensor_name, leave_parametrized=True)
            kept = {key: group[key] for key in params_to_keep or ()}
            of_layer = (params_to_keep_per_layer or {}).get(group["module_fqn"])
            kept.update({key: group[key] for key in of_layer or ()})
            if kept:
                module.sparse_params = kept

    def convert(
        self, module: Module, mapping: dict[Any, Any] | None = None, inplace: bool = False, parameterization: Any = FakeSparsity
    ) -> Any:
        """Put other modules in the place of pruned ones, made by ``from_dense`` of the classes of `mapping`.

        Raises: NotImplementedError without a `mapping`.
        """
        if mapping is None:
            raise NotImplementedError("Need to auto generate mapping ")
        if not inplace:
            module = copy.deepcopy(module)
        for name, child in list(module.named_children()):
            swapped = swap_module(child, mapping) if module_contains_param(child, parameterization) else self.convert(child, mapping, True)
            module._modules[name] = swapped
        return module

    def step(self, use_path: bool = True) -> None:
        """Choose anew which elements are 0, where `enable_mask_update` is set."""
        if not self.enable_mask_update:
            return
        with fb.no_grad():
            for group in self.groups:
                self.update_mask(**group)

    @abc.abstractmethod
    def update_mask(self, module: Module, tensor_name: str, **kwargs: Any) -> None:
        """Set the mask of a tensor, ``module.parametrizations[tensor_name][0].mask``; `kwargs` are its settings."""
