"""GraphModule: a Module whose `forward` is generated from a Graph."""

from __future__ import annotations

import contextlib
import copy
import itertools
import linecache
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..nn import Module, Parameter
from ..tensor import Tensor
from ._codegen import PythonCode, _PyTreeCodeGen, import_text_of
from .graph import Graph

__all__ = ["GraphModule", "reduce_graph_module"]

_numbers = itertools.count()


def _exec_with_source(src: str, globals_: dict[str, Any]) -> str:
    """Run `src`, which debuggers and tracebacks find as a file of its own; returns the name of that file."""
    file = f"<eval_with_key>.{next(_numbers)}"
    # Linecache drops entries with a time of change whose file is gone; None keeps this one.
    linecache.cache[file] = (len(src), None, src.splitlines(True), file)
    exec(compile(src, file, "exec"), globals_)  # our own text
    return file


def _forward_from_src(src: str, globals_: dict[str, Any]) -> Callable[..., Any]:
    names = dict(globals_)
    # `wrap`, which the text may call, takes the names of the module that calls it.
    file = _exec_with_source(src, names)
    forward = names.pop("forward")
    # A process that traces again and again would keep all the texts.
    weakref.finalize(forward.__code__, linecache.cache.pop, file, None).atexit = False
    return forward


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Give `to_module` what is at the dotted path `target` of `from_module`, with Modules on the way where there are none."""
    *prefix, field = target.split(".")
    for item in prefix:
        below = getattr(from_module, item)
        inner = getattr(to_module, item, None)
        if below is inner:
            return  # all of it is there
        if inner is None:
            inner = Module()
            setattr(to_module, item, inner)
        from_module, to_module = below, inner
    value = getattr(from_module, field)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(field, value)
    else:
        setattr(to_module, field, value)


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Put `value` at the dotted path `target` of `to_module`."""
    *prefix, field = target.split(".")
    for item in prefix:
        inner = getattr(to_module, item, None)
        if inner is None:
            inner = Module()
            setattr(to_module, item, inner)
        to_module = inner
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(field, value)
    else:
        setattr(to_module, field, value)


# Attributes of a graph module that copies of it keep, in its `meta`: PyTorch's name, which packages with such modules import.
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class _CodeOnlyModule(Module):
    """A module that has the attributes in `body` and no others, from which a graph module of a package copies itself."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


class GraphModule(Module):
    """A Module made of a Graph. `code` is the text of its `forward`.

    After changing the graph in place call `recompile()`; assigning another `graph` does so by itself.

    Args:
        root: a Module, from which the modules, parameters and buffers that the graph names are taken; or a dict of
            dotted path to object.
        graph: the Graph.
        class_name: how the module introduces itself.
    Raises: RuntimeError if `root` is neither, or is a dict that lacks a target; AttributeError if a Module lacks one.
    """

    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        # Each has a class of its own, which has its `forward`.
        while "_is_impl" in cls.__dict__:
            cls = cls.__bases__[0]
        impl = type("GraphModuleImpl", (cls,), {"_is_impl": True, "__module__": cls.__module__})
        return super().__new__(impl)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        self.__class__.__name__ = class_name
        self._replace_hooks: list[Callable[..., Any]] = []
        self._create_node_hooks: list[Callable[..., Any]] = []
        self._erase_node_hooks: list[Callable[..., Any]] = []
        self._deepcopy_hooks: list[Callable[..., Any]] = []
        self.meta: dict[str, Any] = {}
        targets = [node.target for node in graph.nodes if node.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            if isinstance(root, GraphModule):
                self.meta.update(root.meta)
            for target in targets:
                _copy_attr(root, self, target)
        elif isinstance(root, dict):
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module") and node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                    )
            # Modules before what is inside them.
            for target in sorted(dict.fromkeys(targets), key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        self._tracer_cls = None
        if self.graph._tracer_cls and "<locals>" not in self.graph._tracer_cls.__qualname__:
            self._tracer_cls = self.graph._tracer_cls
        self._tracer_extras = self.graph._tracer_extras or {}

    @property
    def graph(self) -> Graph:
        """The Graph."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The Python text of `forward`."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    def recompile(self) -> PythonCode:
        """Generate `forward` anew from the graph, after it was changed."""
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        made = self._graph.python_code(root_module="self")
        self._code = made.src
        self._lineno_map, self._prologue_start = made._lineno_map, made._prologue_start
        cls: Any = type(self)
        cls.forward = _forward_from_src(self._code, made.globals)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            self._note_line(error)
            raise

    def _note_line(self, error: Exception) -> None:
        """Note on `error` the line of generated code that raised it, if none has been noted."""
        if getattr(error, "_fx_line_noted", False):
            return
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if code is getattr(type(self).forward, "__code__", None):
                line = linecache.getline(code.co_filename, trace.tb_lineno).strip()
                error.add_note(f"  in line {trace.tb_lineno} of the generated forward of {self._get_name()}: {line}")
                with contextlib.suppress(AttributeError):  # an exception without a dict
                    error._fx_line_noted = True  # type: ignore[attr-defined]
            trace = trace.tb_next

    # -- submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put `m` at the dotted path `target`, with empty Modules on the way where there are none.

        Returns: False, with nothing changed, if something that is no Module is on the way.
        """
        *prefix, field = target.split(".")
        found: Any = self
        for item in prefix:
            if not hasattr(found, item):
                break
            found = getattr(found, item)
            if not isinstance(found, Module):
                return False
        found = self
        for item in prefix:
            if not hasattr(found, item):
                setattr(found, item, Module())
            found = getattr(found, item)
        found.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take out the submodule at the dotted path `target`. Returns: False if there is none."""
        *prefix, field = target.split(".")
        found: Any = self
        for item in prefix:
            found = getattr(found, item, None)
            if not isinstance(found, Module):
                return False
        if not isinstance(getattr(found, field, None), Module):
            return False
        delattr(found, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out the submodules that no node calls or takes an attribute of, and that have no inner ones that are used."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = node.target.split(".")
            used.update(".".join(parts[:i]) for i in range(1, len(parts)))
            if node.op == "call_module":
                used.add(node.target)
                try:
                    used.update(f"{node.target}.{name}" for name, _ in self.get_submodule(node.target).named_modules() if name)
                except AttributeError:
                    continue  # a graph that does not fit: `lint` says so
            elif isinstance(_find(self, node.target), Module):
                used.add(node.target)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # -- copies

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made: Any = type(self).__new__(type(self))
        memo[id(self)] = made
        state = {key: value for key, value in self.__dict__.items() if key not in ("_graph", *_HOOKS)}
        made.__dict__.update(copy.deepcopy(state, memo))
        made.__dict__.update({key: list(getattr(self, key, ())) for key in _HOOKS})
        made.__class__.__name__ = type(self).__name__
        made.graph = copy.deepcopy(self._graph, memo)
        for hook in self._deepcopy_hooks:
            hook(made)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph, type(self).__name__)
        made.meta = dict(self.meta)
        return made

    def __reduce__(self) -> Any:
        return _rebuild, (_base_class(type(self)), type(self).__name__, self._pickled_state())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def _pickled_state(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for key in (*_HOOKS, "_code", "_lineno_map", "_prologue_start", "_compiled_call_impl"):
            state.pop(key, None)
        return state

    # -- text

    def __str__(self) -> str:
        return "\n".join((super().__repr__(), self._code, _HINT))

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
    ) -> str:
        """The code of this module and of the GraphModules inside it, with shapes and the program's lines where they are known.

        Args:
            print_output: print it too.
            include_stride, include_device: say of values that too.
            colored: with escape codes for a terminal.
        """
        code = self._graph.python_code(
            "self", verbose=True, include_stride=include_stride, include_device=include_device, colored=colored
        ).src.lstrip("\n")
        name = self._get_name() or "GraphModule"
        lines = [f"class {name}(torch.nn.Module):", _indented(code)]
        for child, module in self.named_children():
            if isinstance(module, GraphModule):
                inner = module.print_readable(False, include_stride, include_device, colored)
                _, _, rest = inner.partition("\n")
                lines += [_indented(f"class {child}(torch.nn.Module):\n{rest}").rstrip(), ""]
        text = "\n".join(lines)
        text = "\n".join(line if line.strip() else "" for line in text.rstrip().split("\n")) + "\n"
        if print_output:
            print(text)
        return text

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write this module as a package that ``from folder import module_name`` imports.

        Args:
            folder: made if it is not there.
            module_name: the name of the class.
        """
        from .. import save

        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        save(self.state_dict(), path / "state_dict.pt")
        lines = []
        for name, child in self.named_children():
            file = path / f"{name}.pt"
            if _says_how_to_make(child):
                lines.append(f"        setattr(self, {name!r}, torch.nn.{child!r})  # noqa")
            else:
                save(child, file)
                # A pickle, which runs code: that of whoever wrote this very file.
                lines.append("        with torch.serialization.allow_unsafe_pickle():")
                lines.append(f"            setattr(self, {name!r}, torch.load(r'{file}', weights_only=False))")
        for name, tensor in self._parameters.items():
            if tensor is not None:
                made = f"torch.nn.Parameter(torch.empty({[*tensor.shape]}, dtype={tensor.dtype}))"
                lines.append(f"        setattr(self, {name!r}, {made})")
        for name, tensor in self._buffers.items():
            if tensor is not None:
                lines.append(f"        self.register_buffer({name!r}, torch.empty({[*tensor.shape]}, dtype={tensor.dtype}))")
        python = self._graph.python_code("self")
        init = "\n".join(lines)
        text = (
            f"{import_text_of(python.globals)}\n\n\n"
            f"class {module_name}(torch.nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n{init}\n"
            f"        self.load_state_dict(torch.load(r'{path / 'state_dict.pt'}'))\n"
            f"{_indented(python.src)}\n"
        )
        (path / "module.py").write_text(text)
        (path / "__init__.py").write_text("from .module import *\n")

    # -- hooks of those who follow changes of the graph

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[..., Any]) -> Iterator[None]:
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.append(f)

    def _unregister_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._create_node_hooks.append(f)

    def _unregister_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._erase_node_hooks.append(f)

    def _unregister_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._erase_node_hooks.remove(f)

    def _register_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._deepcopy_hooks.append(f)

    def _unregister_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._deepcopy_hooks.remove(f)


_HOOKS = ("_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks")
_HINT = "# To see more debug info, please use `graph_module.print_readable()`"


def _base_class(cls: Any) -> Any:
    while "_is_impl" in cls.__dict__:
        cls = cls.__bases__[0]
    return cls


def _rebuild(cls: Any, class_name: str, state: dict[str, Any]) -> GraphModule:
    """A GraphModule from its pickle: its graph and attributes; the code is generated anew."""
    made = cls.__new__(cls)
    made.__dict__.update({key: value for key, value in state.items() if key != "_graph"})
    made.__dict__.update({key: [] for key in _HOOKS})
    made.__class__.__name__ = class_name
    made.graph = state["_graph"]
    return made


def reduce_graph_module(body: dict[str, Any], import_block: str) -> Module:
    """A GraphModule from attributes, among them the text of its `forward` in ``_code``, which is traced.

    Args:
        import_block: Python text that gives the names in the code their meaning.
    """
    from ._symbolic_trace import Tracer

    names: dict[str, Any] = {}
    linecache.cache.pop(_exec_with_source(import_block, names))
    forward = _forward_from_src(body["_code"], names)

    class CodeOnlyModule(Module):
        pass

    class KeepModules(Tracer):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    root = CodeOnlyModule()
    root.__dict__.update({key: value for key, value in body.items() if key != "_graph"})
    CodeOnlyModule.forward = forward  # type: ignore[method-assign]
    made = GraphModule(root, KeepModules().trace(root), body.get("_graphmodule_cls_name", "GraphModule"))
    for key, value in root.__dict__.items():
        made.__dict__.setdefault(key, value)
    return made


def _find(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part, None)
    return module


def _says_how_to_make(module: Module) -> bool:
    """Whether a module's repr is the call that makes it."""
    from .. import nn

    simple = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return type(module) in simple


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line.strip() else line.strip() for line in text.split("\n"))

