"""The classes of scripts: modules that run eagerly, and whose graphs are not built."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _missing
from ..nn.modules.module import Module

_PARTS = ("the module runs eagerly and its Python source is the only program it has",)


class ScriptModule(Module):
    """A module written as a script: its methods, marked by `script_method` or not, run eagerly.

    `graph`, `inlined_graph`, `code`, `code_with_constants` and `save` raise NotImplementedError.
    """

    @property
    def graph(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.ScriptModule.graph", *_PARTS)

    @property
    def inlined_graph(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.ScriptModule.inlined_graph", *_PARTS)

    @property
    def code(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.ScriptModule.code", *_PARTS)

    @property
    def code_with_constants(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.ScriptModule.code_with_constants", *_PARTS)

    def save(self, f: Any, **kwargs: Any) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.ScriptModule.save", "save the parameters by save(m.state_dict(), f)")


class RecursiveScriptModule(ScriptModule):
    """What scripting a module makes in PyTorch. Here `script` returns the module itself, and nothing is of this class."""


class TopLevelTracedModule(ScriptModule):
    """What tracing a module makes in PyTorch. Traces are not built, and nothing is of this class."""


class ScriptFunction:
    """What scripting a function makes in PyTorch. Here `script` returns the function itself, and nothing is of this class.

    Raises: NotImplementedError when made.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _missing.not_built("jit.ScriptFunction", "call the Python function")

    def save(self, f: Any, _extra_files: Any = None) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.ScriptFunction.save", "keep the Python function")

    def save_to_buffer(self, _extra_files: Any = None) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.ScriptFunction.save_to_buffer", "keep the Python function")

    def get_debug_state(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.ScriptFunction.get_debug_state", "call the Python function")
