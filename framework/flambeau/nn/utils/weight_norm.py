"""Weight normalization through a forward pre-hook. Superseded by `parametrizations.weight_norm`."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fb

from ...tensor import wrap_dim
from ..parameter import Parameter, UninitializedParameter

__all__ = ["WeightNorm", "weight_norm", "remove_weight_norm"]

Tensor = fb.Tensor


def _norm_except(v: Tensor, dim: int) -> Tensor:
    """The 2-norm over all dimensions but `dim`, which keep size 1; over all, as a scalar, for -1."""
    if dim == -1:
        return fb.linalg.vector_norm(v)
    kept = wrap_dim(dim, v.dim())
    dims = tuple(d for d in range(v.dim()) if d != kept)
    return fb.linalg.vector_norm(v, dim=dims, keepdim=True) if dims else v.abs()


class WeightNorm:
    """The pre-hook: puts ``g * v / |v|`` at `name` before every forward. `dim` keeps norms apart; -1 for one norm."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Tensor:
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / _norm_except(v, self.dim))

    @staticmethod
    def apply(module: Any, name: str, dim: int | None) -> WeightNorm:
        if any(isinstance(h, WeightNorm) and h.name == name for h in module._forward_pre_hooks.values()):
            raise RuntimeError(f"weight_norm is applied to {name!r} already")
        weight = getattr(module, name)
        if isinstance(weight, UninitializedParameter):
            raise ValueError(f"weight_norm: {name!r} is uninitialised; call the lazy module once first")
        hook = WeightNorm(name, dim)
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(_norm_except(weight, hook.dim).data))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Any) -> None:
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"], module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Learn the length and the direction of a parameter apart, as ``{name}_g`` and ``{name}_v``.

    Deprecated in favour of `parametrizations.weight_norm`.
    Args:
        dim: lengths are taken for each index of this dimension; None for one length.
    Returns: `module`.
    Source: Salimans & Kingma 2016, "Weight normalization".
    """
    warnings.warn(
        "nn.utils.weight_norm is deprecated; use nn.utils.parametrizations.weight_norm",
        FutureWarning,
        stacklevel=2,
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Undo `weight_norm`, keeping the present weight.

    Raises: ValueError if it is not applied. Returns `module`.
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of {name!r} not found in {module}")
