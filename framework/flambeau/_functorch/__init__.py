"""Graphs of a function and of its derivative, made before it runs: what PyTorch has as ``functorch.compile``.

The package stands for ``functorch`` too, whose transforms are those of `flambeau.func`.
"""

from __future__ import annotations

from .._on_demand import names_on_demand

_HOMES = {
    ".stateless": (
        "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "make_functional", "make_functional_with_buffers",
    ),
    "..func": ("functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp", "vmap"),
    "..fx.experimental.proxy_tensor": ("make_fx",),
}  # fmt: skip


__getattr__, __dir__ = names_on_demand(__name__, _HOMES, modules=("aot_autograd", "config"))
