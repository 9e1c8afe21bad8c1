"""TorchScript: functions and modules that are compiled to graphs of typed values, saved without Python, and run from there.

`script` compiles (`_compile.py`), `trace` records what runs (`_trace.py`), `save` and `load` write and read PyTorch's archives
(`_archive.py`). A graph runs as a function of Python that calls our operators (`_run.py`).
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

from .._jit_internal import _overload, _overload_method, export, ignore, is_scripting, unused
from .._on_demand import names_on_demand
from ..futures import Future
from ._modules import RecursiveScriptModule, ScriptFunction, ScriptModule, TopLevelTracedModule
from ._run import Error
from ._script import Attribute, script, script_method
from ._trace import TracerWarning, TracingCheckError, is_tracing, script_if_tracing, trace, trace_module

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction", "ScriptModule",
    "ScriptWarning", "TopLevelTracedModule", "TracingCheckError", "_overload",
    "_overload_method", "TracerWarning", "annotate", "enable_onednn_fusion", "export", "fork", "freeze",
    "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load", "onednn_fusion_enabled",
    "optimize_for_inference", "optimized_execution", "save", "script", "script_if_tracing", "script_method",
    "set_fusion_strategy", "strict_fusion", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

class ScriptWarning(Warning):
    """Something in a script has no effect."""


class CompilationUnit:
    """A group of functions that are compiled from the text `lang`, by their names."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self._scripts: dict[str, ScriptFunction] = {}
        if lang is not None:
            self.define(lang)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Compile more functions. Raises: RuntimeError for text that cannot be a script."""
        from ._text import functions_of

        self._scripts |= {name: ScriptFunction(f) for name, f in functions_of(lang, self._scripts).items()}

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("_scripts", {}).get(name)
        if found is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{name}'")
        return found


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


_fork, _wait = fork, wait

_onednn_fusion = False
_fusion_strategy: list[tuple[str, int]] = [("STATIC", 2), ("DYNAMIC", 10)]


def enable_onednn_fusion(enabled: bool) -> None:
    """Ask for fusion by oneDNN inside scripts; the wish is kept and changes nothing: scripts run kernels of our own."""
    global _onednn_fusion
    _onednn_fusion = bool(enabled)


def onednn_fusion_enabled() -> bool:
    """What `enable_onednn_fusion` was told last."""
    return _onednn_fusion


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Say how often scripts may specialise on shapes: pairs of "STATIC" or "DYNAMIC" and a depth.

    Returns: what was set before. Raises: ValueError for another word.
    """
    global _fusion_strategy
    for kind, _ in strategy:
        if kind not in ("STATIC", "DYNAMIC"):
            raise ValueError(f"FusionBehavior only supported 'STATIC' or 'DYNAMIC', got: {kind}")
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
    """A context in which PyTorch optimizes scripts or not. It changes nothing: scripts run kernels of our own."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """A context in which scripts are fused by the compiler `name`, "fuser0" to "fuser3". It changes nothing.

    Raises: RuntimeError for another name.
    """
    if name not in ("fuser0", "fuser1", "fuser2", "fuser3"):
        raise RuntimeError(f"jit.fuser: name must be 'fuser0' to 'fuser3', got {name!r}")
    yield


def freeze(mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True) -> Any:
    """A scripted module in evaluation whose parameters, buffers and attributes are constants of its graph, without calls.

    Args:
        mod: what `script` or `trace` made, after `eval()`.
        preserved_attrs: attributes and methods that stay.
        optimize_numerics: accepted; branches whose conditions are constants are decided either way.
    Raises: RuntimeError for what is no script module, or is in training.
    """
    from ._frozen import frozen_module

    return frozen_module(mod, tuple(preserved_attrs or ()))


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """`mod`, frozen if it is not yet. Its kernels are those that eager calls run.

    Raises: RuntimeError for what is no script module.
    """
    from ._frozen import frozen_module, is_frozen

    return mod if is_frozen(mod) else frozen_module(mod.eval(), tuple(other_methods or ()))


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a scripted or traced module or function to a file that `load` reads, and PyTorch.

    Args:
        m: what `script` or `trace` made.
        f: a path, or a file opened for writing bytes.
        _extra_files: more files for the archive, text or bytes by name.
    """
    m.save(f, _extra_files=_extra_files)


def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, _restore_shapes: bool = False) -> Any:
    """The module or function of an archive that `save` wrote, here or in PyTorch. Nothing that it holds is run as Python.

    Args:
        f: a path, or a file opened for reading bytes.
        map_location: where the tensors go, as for `flambeau.load`.
        _extra_files: names of more files, whose content is put in as bytes, none for a file that is not there.
    Raises: ValueError for a path that is not there; RuntimeError for a file that is no such archive.
    """
    from ._archive import load as read

    return read(f, map_location, _extra_files)


# Takes the place of its namesake from `__future__`.
importlib.import_module(".annotations", __name__)


__getattr__, __dir__ = names_on_demand(__name__, modules=("frontend",))
