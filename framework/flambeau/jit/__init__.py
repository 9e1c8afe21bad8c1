"""TorchScript's names. Decorators and questions work; scripts themselves are not built, so functions run as Python.

`script` returns what it is given, since eager execution gives a script's results; `trace` records what runs. Whatever needs a script's
graph (`save`, `ScriptModule.graph`) raises NotImplementedError.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

from .. import _missing
from .._jit_internal import _overload, _overload_method, export, ignore, is_scripting, unused
from .._on_demand import names_on_demand
from ..futures import Future
from ._modules import RecursiveScriptModule, ScriptFunction, ScriptModule, TopLevelTracedModule
from ._trace import TracerWarning, is_tracing, script_if_tracing, trace, trace_module

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction", "ScriptModule",
    "ScriptWarning", "TopLevelTracedModule", "_overload",
    "_overload_method", "TracerWarning", "annotate", "enable_onednn_fusion", "export", "fork", "freeze",
    "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load", "onednn_fusion_enabled",
    "optimize_for_inference", "optimized_execution", "save", "script", "script_if_tracing", "script_method",
    "set_fusion_strategy", "strict_fusion", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

_RUN_IT = "functions and modules run eagerly, so call them as they are"


class Error(RuntimeError):
    """An error inside a script."""


class ScriptWarning(Warning):
    """Something in a script has no effect."""


class Attribute(NamedTuple):
    """A value with the type that a script gives it: ``self.x = jit.Attribute(0.1, float)``."""

    value: Any
    type: Any


class CompilationUnit:
    """A group of scripts made from source. Not built: making one raises NotImplementedError."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        if lang is not None:
            raise _missing.not_built("jit.CompilationUnit", "write the functions in Python")

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.CompilationUnit", "write the functions in Python")


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """`obj`, a function, module or class, as it is: its calls run eagerly, which gives the results of a script.

    Args:
        obj: what to script.
        optimize, example_inputs: accepted; nothing is compiled, and types are what the arguments have.
    Raises: RuntimeError if `obj` is nothing that can be scripted.
    """
    if not builtins.isinstance(obj, (list, dict)) and not callable(obj):
        raise RuntimeError(f"jit.script: obj must be a function, Module, class, list or dict, got {type(obj).__name__}")
    _missing.note_eager("jit.script")
    return obj


def script_method(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, a method of a `ScriptModule`, as it is; see `script`."""
    _missing.note_eager("jit.script_method")
    return fn


_script_if_tracing = script_if_tracing  # torchvision's decorator of functions with control flow


def interface(obj: Any) -> Any:
    """Mark the class `obj` as a list of methods that others have. Returns: `obj`. Raises: RuntimeError for no class."""
    if not builtins.isinstance(obj, type):
        raise RuntimeError(f"jit.interface: obj must be a class, got {obj!r}")
    obj.__torch_script_interface__ = True  # type: ignore[attr-defined]
    return obj


def annotate(the_type: Any, the_value: Any) -> Any:
    """`the_value`, whose type in a script would be `the_type`."""
    return the_value


def _unwrap_optional(x: Any) -> Any:
    """`x`, which a script is told not to be None. Raises: AssertionError if it is."""
    if x is None:
        raise AssertionError("Unwrapping null optional")
    return x


def isinstance(obj: Any, target_type: Any) -> bool:  # PyTorch's name
    """Whether `obj` is of `target_type`, which may be parametrized (``list[int]``) or a tuple of types.

    An empty container has no element to tell its type by: that is warned of and counts as the type asked for.
    """
    kinds = target_type if builtins.isinstance(target_type, tuple) else (target_type,)
    return any(_is_of(obj, kind) for kind in kinds)


def _is_of(obj: Any, kind: Any) -> bool:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_is_of(obj, arg) for arg in args)
    if origin is None:
        return obj is None if kind is None else builtins.isinstance(obj, kind)
    if not builtins.isinstance(obj, origin):
        return False
    if origin is tuple:
        return len(obj) == len(args) and all(map(_is_of, obj, args))
    if not obj:
        warnings.warn(f"jit.isinstance: an empty {origin.__name__} is taken to be {kind}", stacklevel=4)
        return True
    if origin is dict:
        return all(_is_of(key, args[0]) and _is_of(value, args[1]) for key, value in obj.items())
    return all(_is_of(item, args[0]) for item in obj)


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """A future for ``func(*args, **kwargs)``, which outside of scripts is computed at once.

    Raises: what `func` raises.
    """
    future: Future[Any] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[Any]) -> Any:
    """The value of a future that `fork` returned."""
    return future.wait()


_onednn_fusion = False
_fusion_strategy: list[tuple[str, int]] = [("STATIC", 2), ("DYNAMIC", 10)]


def enable_onednn_fusion(enabled: bool) -> None:
    """Ask for fusion by oneDNN inside scripts; the wish is kept, and there are no scripts to fuse."""
    global _onednn_fusion
    _onednn_fusion = bool(enabled)


def onednn_fusion_enabled() -> bool:
    """What `enable_onednn_fusion` was told last."""
    return _onednn_fusion


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Say how often scripts may specialise on shapes: pairs of "STATIC" or "DYNAMIC" and a depth.

    Returns: what was set before. Raises: RuntimeError for another word.
    """
    global _fusion_strategy
    for kind, _ in strategy:
        if kind not in ("STATIC", "DYNAMIC"):
            raise RuntimeError(f"jit.set_fusion_strategy: a strategy is 'STATIC' or 'DYNAMIC', got {kind!r}")
    before, _fusion_strategy = _fusion_strategy, list(strategy)
    return before


class strict_fusion:  # PyTorch's name
    """A context whose operations a script has to fuse into one kernel; outside of scripts it asks for nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A context in which scripts are optimized or not; there are no scripts."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """A context in which scripts are fused by the compiler `name`, "fuser0" to "fuser3"; there are no scripts.

    Raises: RuntimeError for another name.
    """
    if name not in ("fuser0", "fuser1", "fuser2", "fuser3"):
        raise RuntimeError(f"jit.fuser: name must be 'fuser0' to 'fuser3', got {name!r}")
    yield


def freeze(mod: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("jit.freeze", _RUN_IT)


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("jit.optimize_for_inference", _RUN_IT)


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("jit.save", "save the parameters by save(m.state_dict(), f)")


def load(
    f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, _restore_shapes: bool = False
) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("jit.load", "build the module in Python and load its parameters by load_state_dict")


# Takes the place of its namesake from `__future__`.
importlib.import_module(".annotations", __name__)


__getattr__, __dir__ = names_on_demand(__name__, modules=("frontend",))
