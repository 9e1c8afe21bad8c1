"""Spectral normalization through a forward pre-hook. Superseded by `parametrizations.spectral_norm`."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .. import functional as F
from ..parameter import Parameter

__all__ = [
    "SpectralNorm",
    "SpectralNormLoadStateDictPreHook",
    "SpectralNormStateDictHook",
    "spectral_norm",
    "remove_spectral_norm",
]

Tensor = fb.Tensor


class SpectralNorm:
    """The pre-hook: puts ``weight / sigma`` at `name` before every forward, sigma being the largest singular
    value, estimated by the power method from vectors u and v that are kept from call to call."""

    # Version 1 saves u and v; before, v was not saved.
    _version: int = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: n_power_iterations must be > 0, got {n_power_iterations}")
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """(size of `dim`, all others)."""
        return weight.movedim(self.dim, 0).reshape(weight.size(self.dim), -1)

    def _normalize(self, vector: Tensor) -> Tensor:
        return F.normalize(vector, dim=0, eps=self.eps)

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Tensor:
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with fb.no_grad():
                for _ in range(self.n_power_iterations):
                    # In place, so that replicas that share the buffers see it.
                    v.copy_(self._normalize(fb.mv(matrix.t(), u)))
                    u.copy_(self._normalize(fb.mv(matrix, v)))
                # Copies, so that a second forward before backward does not overwrite what backward needs.
                u, v = u.clone(), v.clone()
        return weight / fb.dot(u, fb.mv(matrix, v))

    def remove(self, module: Any) -> None:
        with fb.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        delattr(module, self.name)
        for suffix in ("_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def _solve_v_and_rescale(self, matrix: Tensor, u: Tensor, target_sigma: Tensor) -> Tensor:
        """The v with ``u = normalize(matrix @ v)`` and ``u @ matrix @ v = target_sigma``."""
        v = fb.linalg.pinv(matrix.t() @ matrix) @ (matrix.t() @ u)
        return v * (target_sigma / fb.dot(u, fb.mv(matrix, v)))

    @staticmethod
    def apply(module: Any, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        if any(isinstance(h, SpectralNorm) and h.name == name for h in module._forward_pre_hooks.values()):
            raise RuntimeError(f"spectral_norm is applied to {name!r} already")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"spectral_norm: {name!r} is None")
        with fb.no_grad():
            rows, columns = hook.reshape_weight_to_matrix(weight).size()
            u = hook._normalize(weight.new_empty(rows).normal_(0, 1))
            v = hook._normalize(weight.new_empty(columns).normal_(0, 1))
        del module._parameters[name]
        module.register_parameter(name + "_orig", weight)
        # A plain attribute, not a buffer: it is computed anew before every forward.
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(SpectralNormStateDictHook(hook))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(hook))
        return hook


class SpectralNormLoadStateDictPreHook:
    """Computes v from the saved weight where an older state_dict lacks it."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        fn = self.fn
        version = local_metadata.get("spectral_norm", {}).get(fn.name + ".version", None)
        if version is not None and version >= 1:
            return
        base = prefix + fn.name
        if version is None and (
            base + "_v" in state_dict
            or not all(base + suffix in state_dict for suffix in ("_orig", "_u", ""))
        ):
            return  # complete, or not an older state_dict either: loading will say
        with fb.no_grad():
            original = state_dict[base + "_orig"]
            sigma = (original / state_dict.pop(base)).mean()
            matrix = fn.reshape_weight_to_matrix(original)
            state_dict[base + "_v"] = fn._solve_v_and_rescale(matrix, state_dict[base + "_u"], sigma)


class SpectralNormStateDictHook:
    """Writes the version beside the saved state."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Any, state_dict: Any, prefix: str, local_metadata: dict[str, Any]) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in versions:
            raise RuntimeError(f"spectral_norm: two hooks for {self.fn.name!r} in one module")
        versions[key] = self.fn._version


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Any:
    """Divide a parameter by its largest singular value, so that the layer stretches nothing.

    Args:
        name: of the parameter.
        n_power_iterations: steps of the power method per forward, in training.
        eps: least length that the method divides its vectors by.
        dim: dimension of the output features; 0, but 1 for transposed convolutions.
    Returns: `module`.
    Source: Miyato et al. 2018, "Spectral normalization for generative adversarial networks".
    """
    if dim is None:
        dim = output_dim(module)
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def output_dim(module: Any) -> int:
    """The dimension of the weight that counts output features."""
    from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Undo `spectral_norm`, keeping the present weight.

    Raises: ValueError if it is not applied. Returns `module`.
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of {name!r} not found in {module}")
    for hooks, kind in (
        (module._state_dict_hooks, SpectralNormStateDictHook),
        (module._load_state_dict_pre_hooks, SpectralNormLoadStateDictPreHook),
    ):
        for key, hook in hooks.items():
            hook = getattr(hook, "hook", hook)
            if isinstance(hook, kind) and hook.fn.name == name:
                del hooks[key]
                break
    return module
