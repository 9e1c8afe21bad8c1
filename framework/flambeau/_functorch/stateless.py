"""Modules as functions of their parameters, in the form of ``functorch`` that `torch.func.functional_call` has replaced."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from .. import nn
from ..func import functional_call, stack_module_state
from ..tensor import Tensor

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "make_functional", "make_functional_with_buffers",
]  # fmt: skip

Tensors = tuple[Tensor, ...]


class FunctionalModuleWithBuffers(nn.Module):
    """A module without state: called with parameters, buffers and its arguments."""

    def __init__(self, stateless_model: nn.Module, param_names: Sequence[str], buffer_names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = tuple(param_names), tuple(buffer_names)

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """What the module gives with these values.

        Raises: ValueError for another number of parameters or buffers than the module has.
        """
        state = _named("params", self.param_names, params) | _named("buffers", self.buffer_names, buffers)
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without state that has no buffers: called with parameters and its arguments."""

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """As `FunctionalModuleWithBuffers.forward`, without buffers."""
        return super().forward(params, (), *args, **kwargs)


def _named(what: str, names: Sequence[str], values: Sequence[Tensor]) -> dict[str, Tensor]:
    if len(names) != len(values):
        raise ValueError(f"{what}: the module has {len(names)} ({', '.join(names)}), but {len(values)} were given")
    return dict(zip(names, values, strict=True))


def make_functional_with_buffers(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, Tensors, Tensors]:
    """``(function, parameters, buffers)`` of `model`, with ``function(parameters, buffers, *args)``; copies, the model stays as it is.

    Args:
        disable_autograd_tracking: whether the parameters are plain tensors, which require no gradient.
    """
    named, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    function = FunctionalModuleWithBuffers(_without_values(model), tuple(named), tuple(buffers))
    return function, _copies(named.values(), disable_autograd_tracking), tuple(b.detach().clone() for b in buffers.values())


def make_functional(model: nn.Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, Tensors]:
    """``(function, parameters)`` of a `model` without buffers, with ``function(parameters, *args)``.

    Raises: RuntimeError for a model with buffers.
    """
    if next(model.buffers(), None) is not None:
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    named = dict(model.named_parameters())
    return FunctionalModule(_without_values(model), tuple(named), ()), _copies(named.values(), disable_autograd_tracking)


def combine_state_for_ensemble(models: Sequence[nn.Module]) -> tuple[FunctionalModuleWithBuffers, Tensors, Tensors]:
    """One function of several `models` of one class, for `vmap`, and their parameters and buffers, stacked along a new first dimension.

    Raises: RuntimeError for no models; ValueError for models of different classes or some in training and some not.
    """
    params, buffers = stack_module_state(list(models))
    function = FunctionalModuleWithBuffers(_without_values(models[0]), tuple(params), tuple(buffers))
    return function, tuple(p.detach() for p in params.values()), tuple(b.detach() for b in buffers.values())


def _without_values(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).to("meta")


def _copies(parameters: Any, plain: bool) -> Tensors:
    return tuple(p.detach().clone().requires_grad_(p.requires_grad and not plain) for p in parameters)
