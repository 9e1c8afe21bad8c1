"""Exported programs as modules again: one for each module that was called, with the operators of its calls."""

from __future__ import annotations

import abc
import operator
from typing import Any

from ..fx import Graph, Interpreter
from ..nn import Module
from ..nn.parameter import Parameter
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._calls import real_path
from .exported_program import ExportedProgram, ModuleCallSignature, flat_inputs
from .graph_signature import ConstantArgument, InputKind, OutputKind

__all__ = ["FlatArgsAdapter", "InterpreterModule", "InterpreterModuleDispatcher", "UnflattenedModule", "unflatten"]


class FlatArgsAdapter(abc.ABC):
    """Says how inputs of another structure become those that a program was exported with."""

    @abc.abstractmethod
    def adapt(
        self, target_spec: Any, input_spec: Any, input_args: list[Any], metadata: dict[str, Any] | None = None, obj: Any = None
    ) -> list[Any]:
        """The leaves of `target_spec` for the leaves `input_args` of `input_spec`."""


class InterpreterModule(Module):
    """A module that runs a graph node by node.

    Args:
        graph: its placeholders are the inputs, in order and by name.
        ty: the name of the class of the module that the graph was recorded of.
    """

    def __init__(self, graph: Graph, ty: str | None = None) -> None:
        super().__init__()
        self.graph, self._ty = graph, ty
        self._signature: ModuleCallSignature | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The graph's result for these inputs; where the signature is kept, for those of the module it was recorded of."""
        if self._signature is not None:
            args, kwargs = tuple(flat_inputs(self._signature.in_spec, args, kwargs)), {}
        names = [node.target for node in self.graph.nodes if node.op == "placeholder"]
        given = dict(zip(names, args, strict=False)) | kwargs
        if len(args) > len(names) or set(given) != set(names):
            raise TypeError(f"InterpreterModule: takes {', '.join(names)}; got {len(args)} inputs and {sorted(kwargs)} by name")
        found = Interpreter(self, graph=self.graph).run(*[given[name] for name in names], enable_io_processing=False)
        return found if self._signature is None else pytree.tree_unflatten(found, self._signature.out_spec)

    def type_name(self) -> str | None:
        """The name of the class of the module that the graph was recorded of."""
        return self._ty


class InterpreterModuleDispatcher(Module):
    """A module for several calls of one: the first call runs the first of `call_modules`, and after the last it begins again.

    Args:
        attrs: paths of what the modules share.
        call_modules: an `InterpreterModule` for each call.
    """

    def __init__(self, attrs: set[str], call_modules: list[InterpreterModule]) -> None:
        super().__init__()
        if not call_modules:
            raise ValueError("InterpreterModuleDispatcher: there must be a module for one call at least")
        for name in sorted(attrs):
            if "." not in name and hasattr(call_modules[0], name):
                setattr(self, name, getattr(call_modules[0], name))
        self._call_modules, self._turn = call_modules, 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module whose turn it is makes of these inputs."""
        module = self._call_modules[self._turn]
        self._turn = (self._turn + 1) % len(self._call_modules)
        return module(*args, **kwargs)

    def call_modules(self) -> list[InterpreterModule]:
        """The modules of the calls."""
        return self._call_modules


class UnflattenedModule(Module):
    """What `unflatten` makes: the modules of the program under their paths, with parameters and buffers of their own."""

    def __init__(self, export_module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> None:
        super().__init__()
        self.graph_signature, self.module_call_graph = export_module.graph_signature, export_module.module_call_graph
        self.flat_args_adapter, self.check_input_constraints = flat_args_adapter, True
        self._guards = export_module._guards
        self.graph = _Unflattener(export_module, self).graph()
        self._written = [(s.kind, s.target) for s in self.graph_signature.output_specs if s.kind is not OutputKind.USER_OUTPUT]
        self._inputs = [s.arg.name for s in self.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module that was exported gives for these inputs. Raises: AssertionError where the graph does not hold for them."""
        signature = self.module_call_graph[0].signature
        assert signature is not None
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != signature.in_spec and self.flat_args_adapter is not None:
            leaves = self.flat_args_adapter.adapt(target_spec=signature.in_spec, input_spec=spec, input_args=leaves)
        else:
            leaves = flat_inputs(signature.in_spec, args, kwargs)
        if self.check_input_constraints:
            for guard in self._guards:
                guard.check(leaves)
        results = list(Interpreter(self, graph=self.graph).run(*leaves, enable_io_processing=False))
        by_name = dict(zip(self._inputs, leaves, strict=True))
        for (kind, target), value in zip(self._written, results, strict=False):
            target_tensor = by_name[target] if kind is OutputKind.USER_INPUT_MUTATION else operator.attrgetter(str(target))(self)
            target_tensor.copy_(value)
        return pytree.tree_unflatten(results[len(self._written) :], signature.out_spec)


class _Part:
    """A module call that is being written: its graph, and what nodes of the program are in it."""

    def __init__(self, name: str, home: Module, graph: Graph) -> None:
        self.name, self.home, self.graph = name, home, graph
        self.env: dict[Any, Any] = {}
        self.inputs: list[Any] = []


class _Unflattener:
    """One run of `unflatten` for the module `root`."""

    def __init__(self, program: ExportedProgram, root: UnflattenedModule) -> None:
        self.program, self.root = program, root
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        holders = [node for node in program.graph.nodes if node.op == "placeholder"]
        self.state = {node: specs[node.name] for node in holders if specs[node.name].kind is not InputKind.USER_INPUT}
        self.users = [node for node in holders if specs[node.name].kind is InputKind.USER_INPUT]
        self.signatures = {e.fqn: e.signature for e in program.module_call_graph if e.fqn and e.signature is not None}
        self.by_name = {node.name: node for node in program.graph.nodes}
        self.values: dict[int, Any] = {}                  # copies of state, one for each tensor
        self.made: dict[str, list[tuple[str, InterpreterModule]]] = {}  # by path: calls of a module that differ

    def graph(self) -> Graph:
        part = _Part("", self.root, Graph())
        for node in self.users:
            part.env[node] = part.graph.placeholder(node.name)
        for spec in self.state.values():                  # under its path, whether a graph reads it or not
            self._place(self.root, str(spec.target), spec)
        nodes = [node for node in self.program.graph.nodes if node.op not in ("placeholder", "output")]
        self._write(part, nodes, 1)
        output = next(node for node in self.program.graph.nodes if node.op == "output")
        part.graph.output(tuple(self._there(part, r) if hasattr(r, "graph") else r for r in output.args[0]))
        return part.graph

    def _write(self, part: _Part, nodes: list[Any], depth: int) -> None:
        """Write `nodes` into the graph of `part`, with a call for each run of those that are part of a deeper one."""
        at = 0
        while at < len(nodes):
            name = _call_at(nodes[at], depth)
            if name is None:
                self._copy(part, nodes[at])
                at += 1
                continue
            end = at
            while end < len(nodes) and _call_at(nodes[end], depth) == name:
                end += 1
            self._call(part, name, nodes[at:end], depth)
            at = end

    def _copy(self, part: _Part, node: Any) -> None:
        if node.op == "get_attr":                         # the graph of a branch, or of what is repeated
            setattr(part.home, node.target, getattr(self.program.graph_module, node.target))
        part.env[node] = part.graph.node_copy(node, lambda n: self._there(part, n))

    def _there(self, part: _Part, node: Any) -> Any:
        """The node of `part`'s graph that stands for `node` of the program."""
        found = part.env.get(node)
        if found is not None:
            return found
        spec, path = self.state.get(node), real_path(part.name)
        if spec is not None and (not path or str(spec.target).startswith(path + ".")):
            target = str(spec.target)[len(path) + 1 if path else 0 :]
            self._place(part.home, target, spec)
            made = part.graph.get_attr(target)
        else:
            if part.name in self.signatures:
                raise NotImplementedError(
                    f"export.unflatten: {part.name} reads {node.name}, which is none of the inputs that it was called with, and its "
                    "signature is kept"
                )
            first = next((n for n in part.graph.nodes if n.op != "placeholder"), None)
            with part.graph.inserting_before(first) if first is not None else part.graph.inserting_after(None):
                made = part.graph.placeholder(node.name)
            part.inputs.append(node)
        part.env[node] = made
        return made

    def _place(self, home: Module, target: str, spec: Any) -> None:
        """Register the value of `spec` under `target` in `home`."""
        *path, name = target.split(".")
        for each in path:
            if each not in home._modules:
                home.add_module(each, Module())
            home = home._modules[each]  # type: ignore[assignment]
        if hasattr(home, name):
            return
        value = self.program._value_of(spec)
        copied = self.values.get(id(value))
        if copied is None:
            fresh = value.detach().clone() if isinstance(value, Tensor) else value
            copied = Parameter(fresh, value.requires_grad) if spec.kind is InputKind.PARAMETER else fresh
            self.values[id(value)] = copied
        if spec.kind is InputKind.PARAMETER:
            home.register_parameter(name, copied)
        elif spec.kind is InputKind.BUFFER:
            home.register_buffer(name, copied, persistent=bool(spec.persistent))
        else:
            setattr(home, name, copied)

    def _call(self, part: _Part, name: str, nodes: list[Any], depth: int) -> None:
        """Write `nodes` as a module of their own, and its call into the graph of `part`."""
        signature = self.signatures.get(name)
        ours = set(nodes)
        kind = list(nodes[0].meta["nn_module_stack"].values())[depth][1]
        module = InterpreterModule(Graph(), kind)
        made = _Part(name, module, module.graph)
        if signature is None:
            results = [node for node in nodes if any(user not in ours for user in node.users)]
        else:
            results = [self._argument(argument) for argument in signature.outputs]
            for argument in signature.inputs:
                held = made.graph.placeholder(argument.name or f"constant_{len(made.inputs)}")
                made.inputs.append(self._argument(argument))
                if not isinstance(argument, ConstantArgument):
                    made.env[self.by_name[argument.name]] = held
        self._write(made, nodes, depth + 1)
        inner = [self._there(made, r) if hasattr(r, "graph") else r for r in results]
        made.graph.output(inner[0] if signature is None and len(inner) == 1 else inner)
        module._signature = signature
        target = self._settled(part, name, module)
        given: Any = [self._there(part, x) if hasattr(x, "graph") else x for x in made.inputs]
        if signature is None:
            call = part.graph.call_module(target, tuple(given))
            places = [[i] for i in range(len(results))] if len(results) > 1 else [[]]
        else:
            args, kwargs = pytree.tree_unflatten(given, signature.in_spec)
            call = part.graph.call_module(target, args, kwargs)
            paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(results, signature.out_spec))
            places = [[getattr(key, "key", getattr(key, "idx", None)) for key in path] for path, _ in paths]
        for result, keys in zip(results, places, strict=False):
            if not hasattr(result, "graph"):
                continue
            found = call
            for key in keys:
                found = part.graph.call_function(operator.getitem, (found, key))
            part.env[result] = found

    def _argument(self, argument: Any) -> Any:
        return argument.value if isinstance(argument, ConstantArgument) else self.by_name[argument.name]

    def _settled(self, part: _Part, name: str, module: InterpreterModule) -> str:
        """Where `module` is in the home of `part`: with one of the same graph, else under the name of its call."""
        within = name[len(part.name) + 1 if part.name else 0 :]
        path = real_path(within)
        known = self.made.setdefault(f"{part.name}/{path}", [])
        if module._signature is not None and known:       # one module for all calls, which another can take the place of
            first = known[0][1]
            modules = first.call_modules() if isinstance(first, InterpreterModuleDispatcher) else [first]
            attrs = {*first._parameters, *first._buffers}
            known[0] = path, InterpreterModuleDispatcher(attrs, [*modules, module])  # type: ignore[assignment]
            _set_submodule(part.home, path, known[0][1])
            return path
        for target, other in known:
            if _shape_of(other.graph) == _shape_of(module.graph):
                return target
        target = path if not known else within
        known.append((target, module))
        _set_submodule(part.home, target, module)
        return target


def _call_at(node: Any, depth: int) -> str | None:
    """The call at `depth` that `node` is part of."""
    calls = [name for name, _ in node.meta.get("nn_module_stack", {}).values()]
    return calls[depth] if len(calls) > depth else None


def _shape_of(graph: Graph) -> list[Any]:
    """What `graph` computes, whatever its nodes are called."""
    numbers = {node: i for i, node in enumerate(graph.nodes)}

    def plain(x: Any) -> Any:
        return pytree.tree_map(lambda a: ("node", numbers[a]) if hasattr(a, "graph") else a, x, is_leaf=lambda a: isinstance(a, slice))

    return [
        (n.op, n.target if n.op != "placeholder" else "", repr(plain(n.args)), repr(plain(dict(n.kwargs)))) for n in graph.nodes
    ]


def _set_submodule(home: Module, path: str, module: Module) -> None:
    """Put `module` at `path`, with what is there already below it."""
    *parents, name = path.split(".")
    for each in parents:
        if each not in home._modules:
            home.add_module(each, Module())
        home = home._modules[each]  # type: ignore[assignment]
    before = home._modules.get(name)
    if before is not None:
        for kind in ("_parameters", "_buffers", "_modules"):
            for key, value in getattr(before, kind).items():
                getattr(module, kind).setdefault(key, value)
        module._non_persistent_buffers_set |= before._non_persistent_buffers_set
    home.add_module(name, module)


def unflatten(module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
    """A module with the hierarchy of the one that `module` was exported from, each part of which runs the operators of its calls.

    What a part takes and gives are the values that its operators read and that others read of them; with
    ``export(preserve_module_call_signature=...)`` parts are called as the module's were, and others can take their places.

    Args:
        module: the program.
        flat_args_adapter: makes inputs of another structure those of the program.
    Raises: TypeError for what is no ExportedProgram; NotImplementedError where a part with a kept signature reads what it was not given.

    >>> net = fb.nn.Sequential(fb.nn.Linear(2, 3), fb.nn.ReLU())
    >>> parts = fb.export.unflatten(fb.export.export(net, (fb.ones(1, 2),)))
    >>> [type(part).__name__ for part in parts.children()], fb.equal(parts(fb.ones(1, 2)), net(fb.ones(1, 2)))
    (['InterpreterModule', 'InterpreterModule'], True)
    """
    if not isinstance(module, ExportedProgram):
        raise TypeError(f"unflatten(): argument 'module' must be an ExportedProgram, not {type(module).__name__}")
    return UnflattenedModule(module, flat_args_adapter)
