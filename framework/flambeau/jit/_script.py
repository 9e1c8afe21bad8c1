"""`script`, and what is written beside it in programs."""

from __future__ import annotations

import os
import types
import warnings
from collections.abc import Callable
from typing import Any

from .. import _missing
from ._modules import Attribute, RecursiveScriptModule, ScriptFunction, ScriptModule, TopLevelTracedModule

__all__ = ["Attribute", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "script", "script_method", "unpackage_script_module"]


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """Compile a function, a module or a class.

    Args:
        obj: what to script. Of a module, `forward` is compiled and what it calls, and methods marked by `jit.export`.
        optimize: deprecated; it changes nothing.
        example_inputs: accepted; parameters without annotations are Tensors.
    Returns: a `ScriptFunction`, a `RecursiveScriptModule` with the parameters and buffers of the module, or the class. With
        ``PYTORCH_JIT=0`` in the environment, `obj` itself.
    Raises: TypeError for what has no source; jit.frontend.UnsupportedNodeError and NotSupportedError for parts of Python that scripts
        lack; RuntimeError for names and types that do not fit. The message shows the place. What is not built for scripts of our own
        functions and modules is said in a warning, and `obj` runs as Python then.

    >>> @fb.jit.script
    ... def clipped(x, most: float):
    ...     return x.clamp(max=most) if x.dim() > 0 else x
    >>> clipped(fb.tensor([1.0, 3.0]), 2.0)
    tensor([1., 2.])
    """
    if os.environ.get("PYTORCH_JIT", "1") == "0" or isinstance(obj, (ScriptFunction, RecursiveScriptModule, TopLevelTracedModule)):
        return obj
    if not isinstance(obj, (list, dict)) and not callable(obj):
        raise TypeError(f"jit.script: obj must be a function, Module, class, list or dict, got {type(obj).__name__}")
    if isinstance(obj, (list, dict)):
        return obj
    from ..nn.modules.module import Module

    try:
        if isinstance(obj, Module):
            from ._python_modules import scripted

            return scripted(obj)
        from . import _python

        if isinstance(obj, type):
            _python.class_type(obj)
            return obj
        if isinstance(obj, types.MethodType):
            raise RuntimeError(f"jit.script: {obj!r} is a method; script its module, or a function")
        if isinstance(obj, types.BuiltinFunctionType):
            raise TypeError(f"jit.script: {obj!r} is a built-in function, which has no source; call it in a function")
        return ScriptFunction(_python.function_of(obj), obj)
    except NotImplementedError as error:
        _missing.note_eager("jit.script")
        warnings.warn(f"jit.script: {getattr(obj, '__name__', type(obj).__name__)} runs as Python: {error}", stacklevel=2)
        return obj


def script_method(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark `fn`, a method of a `ScriptModule`, as one that is compiled with it. Returns: `fn`."""
    fn._is_script_method = True  # type: ignore[attr-defined]
    return fn


def unpackage_script_module(importer: Any, script_module_id: str) -> Any:
    """The script that a pickle in a package refers to; what `package.PackageImporter` calls.

    Args:
        importer: the `PackageImporter` that loads the pickle.
        script_module_id: the number of the script in the package.
    Raises: RuntimeError if the package has no such script.
    """
    return importer._script(script_module_id)
