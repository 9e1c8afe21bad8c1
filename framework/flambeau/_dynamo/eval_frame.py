"""The wrappers that `compile` returns: they look as PyTorch's."""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

from ..compiler import _backends, _functions
from ..nn.modules.module import Module

__all__ = ["OptimizedModule", "is_dynamo_supported", "is_inductor_supported", "optimized"]


def is_dynamo_supported() -> bool:
    """Whether functions can be compiled: yes."""
    return True


def is_inductor_supported() -> bool:
    """Whether functions can be compiled by inductor: no."""
    return False


class OptimizedModule(Module):
    """A module behind `compile`: it shares parameters, mode and attributes with `_orig_mod`, the module that it runs.

    Its `state_dict` has the original's keys with the prefix ``_orig_mod.``.
    """

    def __init__(self, mod: Module, dynamo_ctx: Any = None) -> None:
        super().__init__()
        self._modules["_orig_mod"] = mod
        self.__dict__["dynamo_ctx"] = dynamo_ctx      # attributes are the original's

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the original gives."""
        return (self.__dict__.get("_compiled") or self._function())(args, kwargs)

    def _function(self) -> _functions.Function:
        compiled = self.__dict__.get("_compiled")
        if compiled is None:
            backend, fullgraph = self.__dict__.get("dynamo_ctx") or (_backends.chosen("inductor", None, None), False)
            compiled = self.__dict__["_compiled"] = _functions.Function(self._modules["_orig_mod"], backend, fullgraph)
        return compiled

    @property
    def training(self) -> bool:  # type: ignore[override]  # an attribute of Module, here of the original
        """The mode of the original."""
        return self._modules["_orig_mod"].training  # type: ignore[union-attr]

    @training.setter
    def training(self, mode: bool) -> None:  # type: ignore
        original = self.__dict__.get("_modules", {}).get("_orig_mod")
        if original is not None:
            original.training = mode

    def __getattr__(self, name: str) -> Any:
        original = self.__dict__["_modules"]["_orig_mod"]
        if name == "explain" and not hasattr(original, name):
            return self._function().explain
        return original if name == "_orig_mod" else getattr(original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        original = self.__dict__.get("_modules", {}).get("_orig_mod")
        if original is None or name in self.__dict__ or isinstance(getattr(type(self), name, None), property):
            super().__setattr__(name, value)
        elif name == "_orig_mod":
            self._function()                              # calls stay those of the module that was compiled, as in PyTorch
            super().__setattr__(name, value)
        else:
            setattr(original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._modules["_orig_mod"], name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._modules["_orig_mod"])})

    def __reduce__(self) -> Any:
        return OptimizedModule, (self._modules["_orig_mod"],)


def optimized(fn: Any, backend: _backends.Backend, fullgraph: bool) -> Any:
    """`fn`, a module or function, in its wrapper; a class as it is."""
    if isinstance(fn, Module):
        return OptimizedModule(fn, (backend, fullgraph))
    if isinstance(fn, type):
        return fn
    inner = getattr(fn, "_torchdynamo_orig_callable", None)  # of what was compiled before, or shall not be
    if inner is not None:
        fn = MethodType(inner, fn.__self__) if isinstance(fn, MethodType) else inner
    function = _functions.Function(fn, backend, fullgraph)
    call = function.__call__                              # Python looks for it in every call of an object

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    def aot_compile(example_inputs: Any) -> Any:
        """The function as a program of its own, see `_dynamo.aot_compile`, for arguments like the `example_inputs`, args and kwargs."""
        from . import aot_compile as ahead

        return ahead.aot_compile(fn, fullgraph, example_inputs)

    wrapper.explain = function.explain  # type: ignore[attr-defined]
    wrapper.aot_compile = aot_compile  # type: ignore[attr-defined]
    wrapper._torchdynamo_orig_callable = fn  # type: ignore[attr-defined]
    wrapper._torchdynamo_inline = fn  # type: ignore[attr-defined]
    return wrapper
