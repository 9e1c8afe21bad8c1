"""What `export` makes: a graph of operators whose state is among its inputs, and what its inputs and outputs are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ..nn import Module
from ..nn.parameter import Parameter
from ..tensor import Tensor
from ..utils import _pytree as pytree
from .decomp_utils import CustomDecompTable
from .graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
)

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "default_decompositions"]


@dataclasses.dataclass
class ModuleCallSignature:
    """How a module is called.

    Args:
        inputs, outputs: the nodes.
        in_spec, out_spec: the structure of inputs, ``(args, kwargs)``, and of results.
        forward_arg_names: the parameters of its forward that are given.
    """

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


@dataclasses.dataclass
class ModuleCallEntry:
    """A module of the program, by its path, and how it is called where that is kept."""

    fqn: str
    signature: ModuleCallSignature | None = None


@dataclasses.dataclass
class CallSpec:
    """The structure of inputs, ``(args, kwargs)``, and of results."""

    in_spec: Any
    out_spec: Any


def default_decompositions() -> CustomDecompTable:
    """The decompositions of operators into core operators that `ExportedProgram.run_decompositions` takes by default."""
    return CustomDecompTable()


class ExportedProgram:
    """A program from `export`: a graph, the state that it reads, and the structure of its inputs and results.

    `module()` makes something that can be called. `graph_module` and `graph` have the operators; `graph_signature` says what their
    inputs are; `state_dict` and `constants` have their values; `range_constraints` the ranges of open sizes; `example_inputs` what the
    program was exported with.

    Args:
        root: a module or dict with what the graph refers to.
        graph, graph_signature, state_dict, range_constraints, module_call_graph, example_inputs, constants: as above.
        verifiers: accepted.
    """

    def __init__(
        self, root: Any, graph: Any, graph_signature: ExportGraphSignature, state_dict: dict[str, Any], range_constraints: Any,
        module_call_graph: list[ModuleCallEntry], example_inputs: Any = None, constants: dict[str, Any] | None = None, *,
        verifiers: Any = None,
    ) -> None:  # fmt: skip
        from ..fx import GraphModule

        self._graph_module = GraphModule(root, graph)
        self._graph_signature, self._state_dict = graph_signature, state_dict
        self._range_constraints, self._module_call_graph = range_constraints, module_call_graph
        self._example_inputs, self._constants = example_inputs, constants or {}
        self._guards: list[Any] = []                  # what inputs have to be: `Guard`s, then `Relation`s
        self._dialect = "TRAINING"
        self._buffers_left_out: dict[str, Any] = {}   # values of buffers that no state dict holds
        self._report: Any = None                      # of a draft, see `draft_export`

    @property
    def graph_module(self) -> Any:
        """The graph as a module of flat inputs and results."""
        return self._graph_module

    @property
    def graph(self) -> Any:
        """The graph."""
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What inputs and outputs of the graph are."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers, by path."""
        return self._state_dict

    @property
    def range_constraints(self) -> Any:
        """By symbol: the range of an open size."""
        return self._range_constraints

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The modules of the program."""
        return self._module_call_graph

    @property
    def example_inputs(self) -> Any:
        """Arguments and keyword arguments that the program was exported with."""
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value: Any) -> None:
        self._example_inputs = value

    @property
    def constants(self) -> dict[str, Any]:
        """Tensors that are neither parameters nor buffers, by name."""
        return self._constants

    @property
    def tensor_constants(self) -> dict[str, Any]:
        """`constants`."""
        return self._constants

    @property
    def call_spec(self) -> CallSpec:
        """The structure of inputs and results."""
        signature = self._module_call_graph[0].signature
        assert signature is not None
        return CallSpec(signature.in_spec, signature.out_spec)

    @property
    def dialect(self) -> str:
        """The operators that the graph is made of."""
        return self._dialect

    def parameters(self) -> Iterator[Parameter]:
        """The parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The parameters with their paths."""
        for name in self._graph_signature.parameters:
            yield name, self._state_dict[name]

    def buffers(self) -> Iterator[Tensor]:
        """The buffers, persistent or not."""
        for _, buffer in self.named_buffers():
            yield buffer

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The buffers with their paths."""
        for name in self._graph_signature.buffers:
            yield name, self._buffers_left_out[name] if name in self._buffers_left_out else self._state_dict[name]

    def _value_of(self, spec: InputSpec) -> Any:
        """The value of an input that no user gives."""
        assert spec.target is not None
        for home in (self._state_dict, self._buffers_left_out, self._constants):
            if spec.target in home:
                return home[spec.target]
        raise KeyError(spec.target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def __str__(self) -> str:
        shown = self._graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        signature = str(self._graph_signature).replace("\n", "\n    ")
        return f"ExportedProgram:\n    {shown}\nGraph signature: {signature}\nRange constraints: {self._range_constraints}\n"

    # -- programs that run

    def module(self, check_guards: bool = True) -> Any:
        """A GraphModule with parameters and buffers of its own under their paths, called as the exported module was.

        Args:
            check_guards: whether a call raises AssertionError for inputs that the graph does not hold for.
        """
        from ..fx import Graph, GraphModule
        from ..fx.graph import _PyTreeCodeGen, _PyTreeInfo
        from ..fx.graph_module import _copy_attr
        from ._unlifted import keep_mode

        root = Module()
        graph, placed = Graph(), {}
        specs = {spec.arg.name: spec for spec in self._graph_signature.input_specs}
        user: list[Any] = []
        reads: list[tuple[Any, InputSpec]] = []
        for node in self.graph.nodes:
            if node.op == "placeholder":
                spec = specs[node.name]
                if spec.kind is InputKind.USER_INPUT:
                    placed[node] = graph.placeholder(node.name)
                    user.append(node)
                else:
                    reads.append((node, spec))
        for node, spec in reads:
            _put(root, spec, self._value_of(spec))
            placed[node] = graph.get_attr(str(spec.target))
        writes = [s for s in self._graph_signature.output_specs if s.kind is not OutputKind.USER_OUTPUT]
        targets = {spec.target: node for node, spec in reads} | {node.name: node for node in user}
        for node in self.graph.nodes:
            if node.op == "output":
                results = [placed[r] if hasattr(r, "graph") else r for r in node.args[0]]
                for spec, made in zip(writes, results, strict=False):
                    from .._ops import ops

                    graph.call_function(ops.aten.copy_.default, (placed[targets[spec.target]], made))
                graph.output(tuple(results[len(writes) :]))
            elif node.op != "placeholder":
                if node.op == "get_attr":             # the graph of a branch, or of what is repeated
                    _copy_attr(self.graph_module, root, node.target)
                placed[node] = graph.node_copy(node, placed.__getitem__)
        signature = self._module_call_graph[0].signature
        assert signature is not None
        names = signature.forward_arg_names or []
        graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, signature.in_spec, signature.out_spec)))
        made = GraphModule(root, graph)
        for _, spec in reads:
            if spec.kind is not InputKind.PARAMETER and not spec.persistent:
                path, _, name = str(spec.target).rpartition(".")
                made.get_submodule(path)._non_persistent_buffers_set.add(name)
        guards = self._guards if check_guards else []
        return keep_mode(made, signature.in_spec, guards)

    def run_decompositions(self, decomp_table: Any = None, decompose_custom_triton_ops: bool = False) -> ExportedProgram:
        """The program by core operators, without writes: new values of buffers are its first results.

        Args:
            decomp_table: functions by operator to run in their place; `default_decompositions` by default.
        """
        from ._trace import decomposed

        table = default_decompositions() if decomp_table is None else decomp_table
        return decomposed(self, table.materialize() if isinstance(table, CustomDecompTable) else dict(table))


def _put(root: Module, spec: InputSpec, value: Any) -> None:
    """Register `value` at its path in `root`."""
    assert spec.target is not None
    *path, name = spec.target.split(".")
    home = root
    for part in path:
        if part not in home._modules:
            home.add_module(part, Module())
        home = home._modules[part]  # type: ignore[assignment]
    if spec.kind is InputKind.PARAMETER:
        home.register_parameter(name, value)
    elif spec.kind is InputKind.BUFFER:
        home.register_buffer(name, value, persistent=bool(spec.persistent))
    else:
        setattr(home, name, value)


def flat_inputs(spec: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of inputs. Raises: ValueError unless they have the structure `spec`."""
    leaves, given = pytree.tree_flatten((args, kwargs))
    if given != spec:
        wanted = spec.children_specs[1].context
        if set(kwargs) != set(wanted):
            raise ValueError(f"Ran into a kwarg keyword mismatch: Got the following keywords {list(kwargs)} but expected {list(wanted)}")
        raise ValueError(
            f"Trying to flatten user inputs with exported input tree spec: \n{spec}\nbut actually got inputs with tree spec of: \n{given}."
            "\nPlease check that the inputs have the same number and type of args and kwargs as the ones you used when tracing."
        )
    return leaves


