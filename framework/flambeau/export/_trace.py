"""Recording a module as an exported program."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Collection, Iterator
from typing import Any

from .. import _state
from .._dynamo.exc import UserError
from ..nn import Module
from ..nn.utils.stateless import _home, _reparametrize_module
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._calls import Call, Calls, real_path
from ._open_sizes import OpenSizes
from ._unlifted import Guard, Relation
from .dynamic_shapes import _UNBOUNDED, AdditionalInputs, bound_inputs, sizes_of_inputs
from .exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

_KINDS = {"p": InputKind.PARAMETER, "b": InputKind.BUFFER, "c": InputKind.CONSTANT_TENSOR}


def export(
    mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (), prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:  # fmt: skip
    """The operators that `mod` runs on example inputs, with its state, as a program that needs no Python of `mod`.

    Args:
        mod: the module. Its parameters and buffers are inputs of the graph; what it writes to buffers, the graph writes.
        args, kwargs: example inputs: Tensors in nested lists, tuples and dicts, and constants, for which alone the program holds.
        dynamic_shapes: which sizes are open, in a structure like the inputs': by name of parameter a dict from dimensions to `Dim`,
            or a list with one for each; `Dim.AUTO` leaves a size open where the program allows it. All others are constants.
        strict: accepted; the module runs as Python either way.
        preserve_module_call_signature: paths of modules that `unflatten` calls as `mod` does: others can take their places there.
        prefer_deferred_runtime_asserts_over_guards: accepted; what a program takes for granted of sizes is checked in each call.
    Raises: ValueError for what is no Module; UserError (``torch._dynamo.exc``) for inputs and sizes that do not fit, and where the
        program is for one size of a dimension that was to be open; GuardOnDataDependentSymNode if Python asks for a value.

    >>> program = fb.export.export(fb.nn.ReLU(), (fb.ones(2, 3),), dynamic_shapes=({0: fb.export.Dim("batch")},))
    >>> program.module()(-fb.ones(5, 3)).sum()
    tensor(0.)
    """
    kwargs, named, dynamic_shapes = examined(mod, args, kwargs, dynamic_shapes)
    sizes = sizes_of_inputs(named, dynamic_shapes)
    return _Exporter(mod, args, kwargs, named, sizes, preserve_module_call_signature).program()


def examined(mod: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The keyword arguments, all arguments by the names of parameters, and the open sizes that were asked for. Raises: as `export`."""
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    kwargs = dict(kwargs or {})
    if isinstance(dynamic_shapes, AdditionalInputs):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    return kwargs, bound_inputs(mod.forward, args, kwargs), dynamic_shapes


def export_for_training(
    mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = True,
    preserve_module_call_signature: tuple[str, ...] = (),
) -> ExportedProgram:  # fmt: skip
    """`export`, whose programs can be trained; programs of operators without writes are what `run_decompositions` gives.

    The arguments and errors are those of `export`.

    >>> program = fb.export.export_for_training(fb.nn.Linear(2, 1), (fb.ones(3, 2),))
    >>> program.module()(fb.ones(3, 2)).requires_grad
    True
    """
    return export(
        mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict, preserve_module_call_signature=preserve_module_call_signature
    )


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    before, _state.local.exporting = _state.local.exporting, True
    try:
        with _no_history():
            yield
    finally:
        _state.local.exporting = before


@contextlib.contextmanager
def _no_history() -> Iterator[None]:
    """A region in which no history is recorded: compositions are operators as a whole there. The program may ask for it or not."""
    before = _state.hold_history(True)
    try:
        yield
    finally:
        _state.hold_history(before)


class _Exporter:
    """One run of `export`: the state, the inputs, and how they are called in the graph."""

    def __init__(
        self, mod: Module, args: Any, kwargs: Any, named: dict[str, Any], sizes: dict[int, dict[int, Any]], kept: Collection[str] = (),
        error: type[Exception] = UserError,
    ) -> None:  # fmt: skip
        self.mod, self.args, self.kwargs = mod, args, kwargs
        self.calls = Calls(mod, kept)
        self.leaves, self.in_spec = pytree.tree_flatten((args, kwargs))
        self.state: dict[str, tuple[str, Tensor]] = {}    # by path: the letter of its kind, and the value
        # A parameter of several names is an input under each, of which the last is read.
        for letter, found in (("p", mod.named_parameters(remove_duplicate=False)), ("b", mod.named_buffers(remove_duplicate=False))):
            for path, value in found:
                self.state[path] = letter, value
        self.plain_paths = {id(value): path for path, value in _plain_tensors(mod)}
        self.leaf_names, sources = _names_of_leaves(mod, args, kwargs)
        self.tensors = [i for i, x in enumerate(self.leaves) if isinstance(x, Tensor)]
        seen: set[int] = set()
        for i in self.tensors:                        # what is given several times is an input each time
            x = self.leaves[i]
            if id(x) in seen:
                self.leaves[i] = x.detach().clone()
                sizes = sizes | {id(self.leaves[i]): sizes[id(x)]} if id(x) in sizes else sizes
            seen.add(id(x))
        self.open = OpenSizes(
            [self.leaves[i] for i in self.tensors], [self.leaf_names[i] for i in self.tensors], sizes, [sources[i] for i in self.tensors],
            error,
        )  # fmt: skip

    def program(self) -> ExportedProgram:
        from ..fx.experimental import proxy_tensor

        values = [value for _, value in self.state.values()]
        inputs = [self.leaves[i] for i in self.tensors]
        contexts = [_context(x, self.open.of(x)) for x in (*values, *inputs)]
        gm = proxy_tensor.record_symbolically(self._flat, (*values, *inputs), None, contexts, True)
        env = gm.shape_env
        fakes = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"][len(values) :]
        bounds = self.open.bounds(env, fakes)
        constants = self._name_nodes(gm)
        relations = self.open.relations(env, fakes, self.tensors)
        specs, guards = self._inputs(gm, bounds, constants)
        output = next(node for node in gm.graph.nodes if node.op == "output")
        results = [_argument(r) for r in output.args[0]]
        signature = ExportGraphSignature(specs, [OutputSpec(OutputKind.USER_OUTPUT, r, None) for r in results])
        call = ModuleCallSignature([], [], self.in_spec, self.out_spec, self._forward_names())
        kept = {name: self._signature_of(name, each) for name, each in self.calls.signatures.items()}
        paths = dict.fromkeys([*(path for path, _ in self.mod.named_modules() if path), *kept])
        modules = [ModuleCallEntry("", call), *(ModuleCallEntry(path, kept.get(path)) for path in paths)]
        state = {path: value for path, (_, value) in self.state.items() if path not in self._left_out()}
        shown = [guard.shown_sizes for guard in guards if guard.shape is not None]
        program = ExportedProgram(gm, gm.graph, signature, state, _ranges(env, fakes, shown), modules, (self.args, self.kwargs), constants)
        program._buffers_left_out = {path: self.state[path][1] for path in self._left_out() if path in self.state}
        program._guards = [*guards, *relations]
        return program

    def _flat(self, *tensors: Any) -> Any:
        """The module on Tensors alone: its state, then those among the inputs."""
        from ..fx.experimental import proxy_tensor

        count = len(self.state)
        self.open.relate(tensors[count:])
        leaves = list(self.leaves)
        for i, x in zip(self.tensors, tensors[count:], strict=True):
            leaves[i] = x
        args, kwargs = pytree.tree_unflatten(leaves, self.in_spec)
        # What the module keeps under other names is the same Tensor.
        given = dict(zip(self.state, tensors[:count], strict=True))
        # Running the graph records its history again.
        recorder = proxy_tensor.recording()
        with _reparametrize_module(self.mod, given, tie_weights=True), self.calls.watched(recorder), _exporting():
            with _attributes_kept(self.mod):
                result = self.mod(*args, **kwargs)
            for path, value in given.items():
                registry, name = _home(self.mod, path)
                if isinstance(registry[name], Tensor) and registry[name] is not value:
                    value.copy_(registry[name])       # what has been assigned to a buffer is its new value
        found, self.out_spec = pytree.tree_flatten(result)
        for x in found:
            if not isinstance(x, (Tensor, int, float, bool, str, type(None))) and not hasattr(x, "node"):
                raise UserError(f"export: results must be Tensors and constants in lists, tuples and dicts, got {type(x).__name__}")
        return tuple(found)

    def _signature_of(self, name: str, call: Call) -> ModuleCallSignature:
        module = self.mod.get_submodule(real_path(name))
        given = list(inspect.signature(module.forward).parameters)
        positional, keywords = call.in_spec.children_specs
        names = [*given[: positional.num_children], *keywords.context]
        return ModuleCallSignature(
            list(map(_argument, call.inputs)), list(map(_argument, call.outputs)), call.in_spec, call.out_spec, names
        )

    # -- names

    def _left_out(self) -> set[str]:
        """Paths of the buffers that no state dict holds."""
        kept = set(self.mod.state_dict())
        return {path for path, (letter, _) in self.state.items() if letter == "b" and path not in kept}

    def _forward_names(self) -> list[str]:
        return [*(name for name, _ in _names_of_arguments(self.mod, len(self.args))), *self.kwargs]

    def _name_nodes(self, gm: Any) -> dict[str, Tensor]:
        """Name the inputs of the graph, and make inputs of the constants it refers to. Returns these by name."""
        from .._subclasses import FakeTensorMode

        holders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        names = [f"{letter}_{path.replace('.', '_')}" for path, (letter, _) in self.state.items()]
        for node, name in zip(holders, [*names, *(self.leaf_names[i] for i in self.tensors)], strict=True):
            taken = any(other is not node and other.name == name for other in gm.graph.nodes)
            node.name = node.target = gm.graph._graph_namespace.create_name(name, None) if taken else name
        constants: dict[str, Tensor] = {}
        first_input = holders[len(self.state)] if len(holders) > len(self.state) else None
        placed: dict[str, Any] = {}
        for node in list(gm.graph.nodes):
            if node.op != "get_attr" or not isinstance(value := getattr(gm, node.target), Tensor):
                continue
            name = self.plain_paths.get(id(value), f"lifted_tensor_{len(constants)}")
            if name not in placed:
                constants[name] = value
                with gm.graph.inserting_before(first_input or next(iter(gm.graph.nodes))):
                    placed[name] = gm.graph.placeholder(f"c_{name.replace('.', '_')}")
                mode = next((n.meta["val"].fake_mode for n in holders if hasattr(n.meta.get("val"), "fake_mode")), None)
                placed[name].meta["val"] = FakeTensorMode().from_tensor(value) if mode is None else mode.from_tensor(value)
            node.replace_all_uses_with(placed[name])
            gm.graph.erase_node(node)
        gm.recompile()
        return constants

    def _inputs(self, gm: Any, bounds: Any, constants: dict[str, Tensor]) -> tuple[list[InputSpec], list[Any]]:
        """What the inputs are, with the constants among those of the user, and the checks of these."""
        holders = iter([node for node in gm.graph.nodes if node.op == "placeholder"])
        specs = []
        for path, (letter, _) in self.state.items():
            persistent = None if letter == "p" else path not in self._left_out()
            specs.append(InputSpec(_KINDS[letter], TensorArgument(next(holders).name), path, persistent))
        specs += [InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(next(holders).name), name) for name in constants]
        guards: list[Any] = []
        anchor = None
        for i, leaf in enumerate(self.leaves):
            name = self.leaf_names[i]
            if isinstance(leaf, Tensor):
                anchor = next(holders)
                specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(anchor.name), None))
                open_sizes = bounds[self.tensors.index(i)]
                guards.append(Guard(i, name, None, tuple(leaf.shape), leaf.dtype, open_sizes, self.open.hinted(leaf)))
            else:
                # A constant is an input that nothing reads.
                after = anchor if anchor is not None else _last_holder(gm.graph)
                with gm.graph.inserting_after(after) if after is not None else gm.graph.inserting_before(next(iter(gm.graph.nodes))):
                    anchor = gm.graph.placeholder(name)
                specs.append(InputSpec(InputKind.USER_INPUT, ConstantArgument(anchor.name, leaf), None))
                guards.append(Guard(i, name, leaf))
        gm.recompile()
        return specs, guards


def _last_holder(graph: Any) -> Any:
    holders = [node for node in graph.nodes if node.op == "placeholder"]
    return holders[-1] if holders else None


def _plain_tensors(mod: Module) -> list[tuple[str, Tensor]]:
    """Tensors that modules hold as plain attributes, with their paths."""
    found = []
    for path, part in mod.named_modules():
        found += [(f"{path}.{name}" if path else name, x) for name, x in vars(part).items() if isinstance(x, Tensor)]
    return found


@contextlib.contextmanager
def _attributes_kept(mod: Module) -> Iterator[None]:
    """A region after which plain attributes of modules are the Tensors that they were; a warning names those that were assigned."""
    parts = [(path, part, {name: x for name, x in vars(part).items() if isinstance(x, Tensor)}) for path, part in mod.named_modules()]
    try:
        yield
    finally:
        assigned = []
        for path, part, before in parts:
            now = {name: x for name, x in vars(part).items() if isinstance(x, Tensor)}
            for name in [*before, *(name for name in now if name not in before)]:
                if now.get(name) is before.get(name):
                    continue
                assigned.append(f"self.{path}.{name}" if path else f"self.{name}")
                if name in before:
                    vars(part)[name] = before[name]
                else:
                    del vars(part)[name]
        if assigned:
            which = f"attributes {', '.join(assigned)} were" if len(assigned) > 1 else f"attribute {assigned[0]} was"
            warnings.warn(
                f"The tensor {which} assigned during export. Such attributes must be registered as buffers using the `register_buffer` API "
                "(https://pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_buffer).",
                stacklevel=2,
            )


def _names_of_arguments(mod: Module, count: int) -> list[tuple[str, str]]:
    """For each of `count` arguments a name, that of its parameter, and an expression of ``L``."""
    given = list(inspect.signature(mod.forward).parameters.values())
    names: list[tuple[str, str]] = []
    for i in range(count):
        variadic = next((at for at, p in enumerate(given[: i + 1]) if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
        if variadic is None:
            names.append((given[i].name, f"L[{given[i].name!r}]"))
        else:
            names.append((f"{given[variadic].name}_{i}", f"L[{given[variadic].name!r}][{i - variadic}]"))
    return names


def _names_of_leaves(mod: Module, args: Any, kwargs: Any) -> tuple[list[str], list[str]]:
    """For each leaf of the inputs: a name, that of its parameter and where it stands in it; and an expression of ``L``."""
    names = _names_of_arguments(mod, len(args))
    made, sources = [], []
    for (name, source), value in (*zip(names, args, strict=True), *(((key, f"L[{key!r}]"), x) for key, x in kwargs.items())):
        pairs, _ = pytree.tree_flatten_with_path(value)
        for path, _leaf in pairs:
            parts = "".join(f"_{getattr(key, 'key', getattr(key, 'idx', getattr(key, 'name', '')))}" for key in path)
            made.append("".join(c if c.isalnum() or c == "_" else "_" for c in f"{name}{parts}"))
            sources.append(f"{source}{''.join(map(str, path))}")
    return made, sources


def _context(x: Tensor, dims: Collection[int]) -> Any:
    """Symbols for the sizes of `x` along `dims`, and for no others."""
    from ..fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    return StatelessSymbolicContext([DimDynamic.DYNAMIC if d in dims else DimDynamic.STATIC for d in range(x.ndim)])


def _ranges(env: Any, fakes: Any, bounds: Any) -> dict[Any, Any]:
    """By symbol or what follows from it: the range of each open size."""
    import sympy

    from ..utils._sympy.value_ranges import ValueRanges, int_oo

    made = {}
    for fake, sizes in zip(fakes, bounds, strict=True):
        for d, (low, high) in sizes.items():
            expr = env.replace(fake.shape[d].node._expr)
            given = ValueRanges(sympy.Integer(low), int_oo if high >= _UNBOUNDED else sympy.Integer(high))
            made[expr] = made[expr] & given if expr in made else given
    for expr, numbers in env.var_to_range.items():
        if str(expr).startswith("u"):                 # a number that values decide
            made.setdefault(expr, numbers)
    return made


def _argument(r: Any) -> Any:
    from .graph_signature import SymIntArgument

    if not hasattr(r, "graph"):
        return ConstantArgument("", r)
    return TensorArgument(r.name) if isinstance(r.meta.get("val"), Tensor) or "val" not in r.meta else SymIntArgument(r.name)


def retraced(program: ExportedProgram, guards: list[Guard], relations: list[Relation]) -> ExportedProgram:
    """`program`, whose graph has been read from a file, run on fake tensors: so nodes know sizes and dtypes."""
    from .. import no_grad
    from ..fx.experimental import proxy_tensor
    from ..fx.passes.fake_tensor_prop import FakeTensorProp

    leaves = pytree.tree_leaves(program.example_inputs)
    by_leaf = {guard.at: guard for guard in guards}
    users = iter(range(len(leaves)))
    values, contexts, constants = [], [], []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            values.append(program._value_of(spec))
            contexts.append(_context(values[-1], {}))
        else:
            at = next(users)
            values.append(leaves[at])
            if isinstance(leaves[at], Tensor):
                contexts.append(_context(leaves[at], by_leaf[at].open_sizes))
        constants.append(not isinstance(values[-1], Tensor))
    mode = proxy_tensor._symbolic_mode(True)
    tensors = tuple(value for value, constant in zip(values, constants, strict=True) if not constant)
    fakes = iter(found := proxy_tensor._symbolic_arguments(mode, tensors, contexts))
    given = [value if constant else next(fakes) for value, constant in zip(values, constants, strict=True)]
    with mode, no_grad():
        FakeTensorProp(program.graph_module, mode).propagate_dont_convert_inputs(*given)
    open_sizes = [guard.shown_sizes for guard in guards if guard.shape is not None]
    inputs = found[len(found) - len(open_sizes) :] if open_sizes else ()
    program._range_constraints = _ranges(mode.shape_env, inputs, open_sizes)
    program._guards = [*guards, *relations]
    return program


def decomposed(program: ExportedProgram, table: dict[Any, Any]) -> ExportedProgram:
    """`program` by the operators that functions of `table` are made of, without writes."""
    from ..func import functionalize
    from ..fx.experimental import proxy_tensor
    from ._kept_operators import with_kept

    table = with_kept(table, program)
    signature = program.graph_signature
    holders = [node for node in program.graph.nodes if node.op == "placeholder"]
    free = [not isinstance(spec.arg, ConstantArgument) for spec in signature.input_specs]
    fakes = [node.meta["val"] for node, tensor in zip(holders, free, strict=True) if tensor]
    code = program.graph_module

    def run(*tensors: Any) -> Any:
        given = iter(tensors)
        inputs = [next(given) if tensor else s.arg.value for tensor, s in zip(free, signature.input_specs, strict=True)]
        return proxy_tensor.InCalls(code, proxy_tensor.recording().tracer).run(*inputs, enable_io_processing=False)

    with _no_history():
        gm = proxy_tensor.record_symbolically(functionalize(run), tuple(fakes), table, None, True)
    specs = [InputSpec(s.kind, s.arg, s.target, s.persistent) for s in signature.input_specs]
    made = [node for node in gm.graph.nodes if node.op == "placeholder"]
    by_node = {}
    tensors = iter(made)
    for at, (spec, tensor) in enumerate(zip(specs, free, strict=True)):
        if tensor:
            node = next(tensors)
            taken = any(other is not node and other.name == spec.arg.name for other in gm.graph.nodes)
            node.name = node.target = gm.graph._graph_namespace.create_name(spec.arg.name, None) if taken else spec.arg.name
            spec.arg = TensorArgument(node.name)
            by_node[node] = spec
        else:
            before = next((n for n in made if by_node.get(n) is None), None)
            with gm.graph.inserting_before(before or next(n for n in gm.graph.nodes if n.op != "placeholder")):
                node = gm.graph.placeholder(spec.arg.name)
            specs[at] = InputSpec(spec.kind, ConstantArgument(node.name, spec.arg.value), spec.target)
    outputs = []
    output = next(node for node in gm.graph.nodes if node.op == "output")
    news = []
    for node in list(gm.graph.nodes):
        target = node.args[0] if node.op in ("call_function", "call_method") and "copy_" in str(node.target) and node.args else None
        if target in by_node:
            spec = by_node[target]
            kind = {InputKind.BUFFER: OutputKind.BUFFER_MUTATION, InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION}.get(
                spec.kind, OutputKind.USER_INPUT_MUTATION
            )
            news.append(node.args[1])
            outputs.append(OutputSpec(kind, TensorArgument(node.args[1].name), spec.target or target.name))
            node.replace_all_uses_with(node.args[1])
            gm.graph.erase_node(node)
    results = list(output.args[0])
    output.args = ((*news, *results),)
    outputs += [OutputSpec(OutputKind.USER_OUTPUT, _argument(r), None) for r in results]
    gm.graph.eliminate_dead_code()
    gm.recompile()
    # Kept signatures are of nodes that are no longer there.
    modules = [entry if not entry.fqn else ModuleCallEntry(entry.fqn) for entry in program.module_call_graph]
    fresh = ExportedProgram(
        gm, gm.graph, ExportGraphSignature(specs, outputs), program.state_dict, program.range_constraints, modules,
        program.example_inputs, program.constants,
    )  # fmt: skip
    fresh._dialect = "ATEN"
    fresh._guards, fresh._buffers_left_out = program._guards, program._buffers_left_out
    return fresh


__all__ = ["decomposed", "export", "export_for_training", "retraced"]
