"""What scripting makes: functions and modules that run graphs, and say what is in them."""

from __future__ import annotations

import inspect
import io
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import _missing
from .._files.torch_pickler import _name
from ..nn.modules.module import Module
from ._ir import Function, Graph
from ._run import bound_arguments, fits, given, run
from ._types import text_of

__all__ = ["Attribute", "RecursiveScriptModule", "ScriptFunction", "ScriptMethod", "ScriptModule", "TopLevelTracedModule", "TracedModule"]

_UNPACKAGED = _name("torch.jit._script", "unpackage_script_module")


class _Tracing(threading.local):
    state: Any = None
    in_script = False                                 # whether the trace is inside a script, which decides for itself


_tracing = _Tracing()  # the trace under way in this thread


class _WithGraph:
    """What has a compiled function, and tells what is in it."""

    _function: Function

    @property
    def graph(self) -> Graph:
        """Its graph, with calls as they are."""
        return self._function.graph

    @property
    def inlined_graph(self) -> Graph:
        """Its graph with what it calls in place."""
        from ._passes import inlined

        return inlined(self._function.graph)

    @property
    def code(self) -> str:
        """The graph as Python that scripts can be compiled from."""
        return self.code_with_constants[0]

    @property
    def code_with_constants(self) -> tuple[str, Any]:
        """`code`, and the tensors that it calls ``CONSTANTS.c0`` and so on."""
        from ._print import code_of

        return code_of(self._function)

    @property
    def schema(self) -> str:
        """Its signature."""
        return self._function.schema_text()


class ScriptFunction(_WithGraph):
    """A compiled function: calls run its graph.

    Args:
        function: what is compiled.
        of: the function of Python that it was compiled from.
    """

    def __init__(self, function: Function, of: Any = None) -> None:
        self._function = self._script_function = function
        self.name = function.short_name
        self.__name__ = getattr(of, "__name__", function.short_name)
        self.__doc__ = getattr(of, "__doc__", None)
        self.__module__ = getattr(of, "__module__", __name__)
        self._torchdynamo_inline = of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = bound_arguments(self._function, args, kwargs)
        if _tracing.state is not None and self._decides():
            from ._traced import recorded

            return recorded(self, given)
        return run(self._function, given)

    def _decides(self) -> bool:
        """Whether there are branches or loops in it, which a trace keeps as a call."""
        graph = self.inlined_graph
        return graph.findNode("prim::If") is not None or graph.findNode("prim::Loop") is not None

    @property
    def qualified_name(self) -> str:
        """``__torch__.package.name``."""
        return self._function.name

    def save(self, f: Any, _extra_files: Any = None) -> None:
        """Write an archive that `jit.load` reads, and PyTorch."""
        from ._archive import save

        save(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        """The bytes that `save` writes."""
        return _saved(self, _extra_files)

    def get_debug_state(self) -> Any:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("jit.ScriptFunction.get_debug_state", "print the graph")

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction object at {id(self):#x}>"


def _saved(of: Any, extra: Any) -> bytes:
    buffer = io.BytesIO()
    of.save(buffer, _extra_files=extra)
    return buffer.getvalue()


class ScriptMethod(_WithGraph):
    """A compiled method of a module."""

    def __init__(self, owner: Any, function: Function) -> None:
        self.owner, self._function = owner, function
        self.name = self.__name__ = function.short_name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._function
        return run(function, bound_arguments(function, (self.owner, *args), kwargs))


class Attribute(NamedTuple):
    """A value with the type that a script gives it: ``self.x = jit.Attribute(0.1, float)``."""

    value: Any
    type: Any


class ScriptModule(Module):
    """A module whose methods are scripts. A subclass runs as Python; `jit.script` of it, `graph`, `code` and `save` compile it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Attribute):
            self.__dict__.setdefault("_attribute_types", {})[name] = value.type
            value = value.value
        super().__setattr__(name, value)

    def _as_script(self) -> Any:
        from ._python_modules import scripted

        return scripted(self)

    @property
    def graph(self) -> Graph:
        """The graph of `forward`."""
        return self._as_script().forward.graph

    @property
    def inlined_graph(self) -> Graph:
        """The graph of `forward` with what it calls in place."""
        return self._as_script().forward.inlined_graph

    @property
    def code(self) -> str:
        """The code of `forward`."""
        return self._as_script().forward.code

    @property
    def code_with_constants(self) -> tuple[str, Any]:
        """The code of `forward`, and its tensors."""
        return self._as_script().forward.code_with_constants

    def save(self, f: Any, **kwargs: Any) -> None:
        """Write an archive that `jit.load` reads, and PyTorch."""
        from ._archive import save

        save(self._as_script(), f, kwargs.get("_extra_files"))

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        """The bytes that `save` writes."""
        return _saved(self, _extra_files)

    def __reduce_package__(self, exporter: Any) -> Any:
        """How `package.PackageExporter` writes it: beside the pickle that refers to it, and its code with that of other scripts."""
        return _UNPACKAGED, (exporter._scripts.add(self._as_script()),)


class RecursiveScriptModule(ScriptModule):
    """A module that runs graphs: parameters, buffers and parts by their names, attributes with types, and compiled methods.

    Args:
        kind: its type, which has the methods.
    """

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.__dict__["_script_type"] = kind
        self.__dict__["original_name"] = kind.name.rpartition(".")[2]

    def _as_script(self) -> Any:
        return self

    def _method(self, name: str) -> Function | None:
        kind = self.__dict__["_script_type"]
        found = kind.methods.get(name)
        if found is None and kind.compiler is not None and name.isidentifier():
            found = kind.compiler.method(kind, name) if name in kind.__dict__.get("compiled", ()) else None
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self.__dict__.get("_script_type")
        if kind is not None and name in kind.constants:
            raise RuntimeError(f"Can't set constant '{name}' which has value:{kind.constants[name]}")
        wanted = None if kind is None else kind.attributes.get(name)
        if wanted is not None and name in self.__dict__ and not fits(value := given(value, wanted), wanted):
            raise RuntimeError(
                f"Could not cast attribute '{name}' to type {text_of(wanted)}: Unable to cast Python instance of type {type(value)} to it"
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        kind = self.__dict__.get("_script_type")
        if kind is not None and name not in self.__dict__.get("_parameters", ()) and name not in self.__dict__.get("_modules", ()):
            function = kind.methods.get(name)
            if function is not None:
                return ScriptMethod(self, function)
            if name in kind.constants:
                return kind.constants[name]
            found = inspect.getattr_static(kind.python_class, name, None)
            if isinstance(found, property) and found.fget is not None:
                return found.fget(self)
            left = kind.__dict__.get("left_to_python", {}).get(name)
            if left is not None:
                return left.__get__(self)
        return super().__getattr__(name)

    @property
    def forward(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # a compiled method has more than a function
        """The compiled `forward`."""
        function = self._script_type.methods.get("forward")
        if function is None:
            raise AttributeError(f"'{self.original_name}' object has no attribute 'forward'")
        return ScriptMethod(self, function)

    def _get_name(self) -> str:
        return "RecursiveScriptModule"

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        if self.original_name == "ModuleDict":
            return iter(self._modules)
        return iter(self._modules.values())

    def __getitem__(self, key: Any) -> Any:
        return list(self._modules.values())[key] if isinstance(key, (int, slice)) else self._modules[key]

    def items(self) -> Any:
        """Names and modules of a scripted ModuleDict."""
        return self._modules.items()

    def keys(self) -> Any:
        """Names of a scripted ModuleDict."""
        return self._modules.keys()

    def values(self) -> Any:
        """Modules of a scripted ModuleDict."""
        return self._modules.values()

    def __contains__(self, key: Any) -> bool:
        return key in self._modules

    def __copy__(self) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        import copy

        if id(self) not in memo:
            made = memo[id(self)] = type(self).__new__(type(self))
            for name, value in self.__dict__.items():
                made.__dict__[name] = value if name == "_script_type" else copy.deepcopy(value, memo)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError(
            f"Tried to serialize object {self._script_type.name} which does not have a __getstate__ method defined! Use jit.save instead"
        )

    def define(self, src: str) -> None:
        """Compile the functions of the text `src` as methods."""
        from ._python_modules import define

        define(self, src)


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
    """What `trace` makes of a module: its parameters, buffers and parts, and the operations that it ran on the example."""

    def __init__(self, source: Module) -> None:
        super().__init__(source)
        self.__dict__["_programs"] = {}               # what was recorded of each method, by its name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the recorded operations give for arguments like those of the example."""
        return self._programs["forward"].run(self, args, kwargs)

    def _as_script(self) -> Any:
        from ._traced import script_of_trace

        return script_of_trace(self)


