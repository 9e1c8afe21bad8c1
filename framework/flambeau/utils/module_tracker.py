"""Which modules are running right now, forward or backward."""

from __future__ import annotations

import weakref
from typing import Any

import flambeau as fb
from flambeau.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """While it is entered, `parents` holds the qualified names of the modules that are running.

    Attributes:
        parents: the names, with ``'Global'`` always among them. A module that is called by itself has its class's name.
        is_bw: whether a backward pass is running; it stays True after one until the next module runs.
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self.is_bw = False
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []

    def _name(self, module: Any) -> str:
        if module not in self._names:
            top = type(module).__name__
            self._names[module] = top
            for name, inner in module.named_modules():
                if inner not in self._names:
                    self._names[inner] = f"{top}.{name}"
        return self._names[module]

    def __enter__(self) -> ModuleTracker:
        self._handles = [
            register_module_forward_pre_hook(self._begins),
            register_module_forward_hook(self._ends, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _begins(self, module: Any, arguments: Any) -> None:
        name = self._name(module)
        self.is_bw = False
        self.parents.add(name)
        # The gradients of its arguments are the last thing that a module's backward pass makes.
        asking = [t for t in arguments if isinstance(t, fb.Tensor) and t.requires_grad]
        if fb.is_grad_enabled() and asking:
            fb.autograd.graph.register_multi_grad_hook(asking, lambda grads: self._backward_ends(name))

    def _ends(self, module: Any, arguments: Any, result: Any) -> None:
        name = self._name(module)
        self.parents.discard(name)
        asking = [t for t in _tensors(result) if t.requires_grad]
        if fb.is_grad_enabled() and asking:
            fb.autograd.graph.register_multi_grad_hook(asking, lambda grad: self._backward_begins(name), mode="any")

    def _backward_begins(self, name: str) -> None:
        self.is_bw = True
        self.parents.add(name)

    def _backward_ends(self, name: str) -> None:
        self.is_bw = True
        self.parents.discard(name)


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, fb.Tensor):
        return [value]
    return [t for part in value for t in _tensors(part)] if isinstance(value, (tuple, list)) else []
