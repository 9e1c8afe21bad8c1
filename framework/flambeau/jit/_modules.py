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


class TracedModule(ScriptModule):
    """A part of a traced module: parameters, buffers and parts by their names. What it runs is recorded in the whole."""

    def __init__(self, source: Module) -> None:
        super().__init__()
        self.training = source.training
        self.original_name = type(source).__name__
        for kind in ("_parameters", "_buffers"):
            getattr(self, kind).update(getattr(source, kind))
        self._non_persistent_buffers_set.update(source._non_persistent_buffers_set)
        for name, part in source._modules.items():
            self._modules[name] = None if part is None else TracedModule(part)

    def _get_name(self) -> str:
        return self.original_name

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.TracedModule.forward", "call the traced module as a whole")


class TopLevelTracedModule(TracedModule):
    """What `trace` makes of a module: its parameters, buffers and parts, and the operations that it ran on the example.

    `graph`, `inlined_graph` and `save` raise NotImplementedError.
    """

    def __init__(self, source: Module) -> None:
        super().__init__(source)
        self.__dict__["_programs"] = {}               # what was recorded of each method, by its name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the recorded operations give for arguments like those of the example."""
        return self._programs["forward"].run(self, args, kwargs)

    @property
    def code(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  # traces have it
        """The recorded operations, as Python."""
        return self._programs["forward"].code


class ScriptFunction:
    """What scripting or tracing a function makes. Here `script` returns the function itself, and `trace` what is of this class.

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
