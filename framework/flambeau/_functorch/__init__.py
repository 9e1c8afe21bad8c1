"""Graphs of a function and of its derivative, made before it runs: what PyTorch has as ``functorch.compile``.

The package stands for ``functorch`` too, whose transforms are those of `flambeau.func`.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    ".stateless": (
        "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "make_functional", "make_functional_with_buffers",
    ),
    "..func": ("functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp", "vmap"),
    "..fx.experimental.proxy_tensor": ("make_fx",),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
