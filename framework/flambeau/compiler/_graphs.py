"""Graphs of recorded paths, and the programs that backends make of them."""

from __future__ import annotations

import copy
import operator
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from .. import fx
from ..autograd import tape
from ..fx.node import map_arg
from ..nn import Module
from ..ops._dispatch import public_function
from ..ops._spec.base import FUNCTION
from ..tensor import Tensor
from . import _explain, _sizes
from ._backends import Backend
from ._calls import GRAD_MODE, Called
from ._deferred import become
from ._operations import meta_of
from ._refs import read_by
from ._steps import Constant, Step

_SIGNS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "true_divide": operator.truediv, "div": operator.truediv,
          "matmul": operator.matmul}  # fmt: skip
_INDEXED = ("input", "key")                           # parameters of what ``input[key]`` calls


class Compiled:
    """A program that is a callable of a backend: it takes the inputs and gives the values that are asked for.

    `given` are its arguments: numbers of inputs, and numbers that are passed as they are, each in a `Constant`.
    """

    chains = ()
    seconds = 0.0
    bytes_at_most = None

    def __init__(self, graph: fx.GraphModule, call: Callable[..., Any], given: list[Any], wanted: tuple[int, ...]) -> None:
        self.graph, self.call, self.given, self.wanted = graph, call, given, wanted
        self.calls = 0

    def __call__(self, inputs: list[Tensor], made: dict[int, Any]) -> None:
        self.calls += 1
        results = self.call(*[inputs[at] if at.__class__ is int else at.value for at in self.given])
        if isinstance(results, Tensor):
            results = (results,)
        if len(results) != len(self.wanted):
            raise RuntimeError(f"compile: the backend's function gave {len(results)} results for a graph with {len(self.wanted)}")
        taken: dict[int, Any] = {}
        for number, result in zip(self.wanted, results, strict=True):
            become(made[number], result)
            taken[id(result)] = made[number]
        for one in made.values():                     # views of a result are views of what has taken its place
            if one._view_of is not None and id(one._view_of[0]) in taken:
                one._view_of = (taken[id(one._view_of[0])], *one._view_of[1:])


class Many:
    """What a backend has made of the graph of a path, for all paths that it is right for: see `_sizes`.

    `given` are the graph's arguments: numbers of inputs, and of `symbols`, each in a `Constant`.
    """

    def __init__(
        self, form: _sizes.Form, symbols: _sizes.Symbols | None, graph: fx.GraphModule, call: Callable[..., Any], given: list[Any],
        wanted: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.form, self.symbols, self.graph, self.call, self.given, self.wanted = form, symbols, graph, call, given, wanted

    def of(self, form: _sizes.Form) -> Compiled | None:
        """The program of a path with the same key; None if it needs another graph."""
        values = _sizes.values_of(form, self.symbols, self.form)
        if values is None:
            return None
        given = [at if at.__class__ is int else Constant(values[at.value]) for at in self.given]
        return Compiled(self.graph, self.call, given, self.wanted)


def compiled(
    step: Step, wanted: tuple[int, ...], inputs: list[Tensor], names: Any, backend: Backend, form: _sizes.Form,
    symbols: _sizes.Symbols | None,
) -> Many:  # fmt: skip
    """The path that ends in `step`, and has the `form`, as `backend` compiles it, with `symbols` as inputs.

    Raises: `BackendCompilerFailed` when it raises, or gives what cannot be called.
    """
    from .._dynamo import config, exc, utils

    graph, given = graph_of(step, wanted, inputs, names, form, symbols)
    examples = [inputs[at] if at.__class__ is int else symbols.values[at.value] for at in given]  # type: ignore[union-attr]
    shown = [inputs[at] if at.__class__ is int else symbols.numbers[at.value] for at in given]  # type: ignore[union-attr]
    if _explain.shows_graphs():
        _explain.tell_graph(names.title, graph)
    utils.counters["stats"]["unique_graphs"] += 1
    utils.counters["stats"]["calls_captured"] += sum("call" in node.op for node in graph.graph.nodes)
    original = copy.deepcopy(graph) if config.repro_after is not None else graph  # backends change what they are given
    try:
        call = backend.maker(graph, examples)  # type: ignore[misc]  # one without a function is not asked for graphs
        if not callable(call):
            raise TypeError(f"the backend must return a function, not {type(call).__name__}")
    except Exception as error:
        script = _shown_by(original, shown, backend, error, runs=False)
        raise exc.BackendCompilerFailed(backend.name, error, script) from error
    if config.repro_after is not None:
        call = _showing_failures(call, original, backend)
        if config.repro_level >= 4:
            _check_accuracy(original, shown, backend)
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta.get("example_value")
        if isinstance(value, Tensor):                 # whose memory lives no longer than the first call needs it
            node.meta["example_value"] = meta_of(value)
    return Many(form, symbols, graph, call, given, wanted)


def as_it_is(step: Step, wanted: tuple[int, ...], inputs: list[Tensor], form: _sizes.Form) -> Compiled:
    """What computes the path without a backend."""
    graph, given = graph_of(step, wanted, inputs, None, form)
    return Compiled(graph, graph.forward, given, wanted)


def _showing_failures(call: Callable[..., Any], graph: fx.GraphModule, backend: Backend) -> Callable[..., Any]:
    """`call`, which a backend has made of `graph`; where it raises, a script is written that shows it."""

    def run(*inputs: Any) -> Any:
        try:
            return call(*inputs)
        except Exception as error:
            from .._dynamo import exc

            shown = _shown_by(graph, list(inputs), backend, error, runs=True)
            raise exc.BackendCompilerFailed(backend.name, error, shown) from error

    return run


def _shown_by(graph: fx.GraphModule, examples: list[Tensor], backend: Backend, error: Exception, *, runs: bool) -> str:
    """Where a script lies that shows the error, if `config.repro_after` asks for one; `runs` says that calling what was made raised it."""
    from .._dynamo import config, debug_utils

    if config.repro_after is None:
        return ""
    if config.repro_level < 2:
        path = debug_utils.write_repro(graph, examples, backend.name, f"{type(error).__name__}: {error}")
    else:
        path = debug_utils.minified(graph, examples, backend.maker, backend.name, error, runs)  # type: ignore[arg-type]
    return f"\nA script that shows it is {path}"


def _check_accuracy(graph: fx.GraphModule, examples: list[Tensor], backend: Backend) -> None:
    """Raise AccuracyError if what the backend makes of the graph computes other numbers, BackendCompilerFailed if it raises."""
    from .._dynamo import debug_utils, exc

    maker: Any = backend.maker
    try:
        fails = debug_utils.backend_accuracy_fails(graph, examples, maker)
    except Exception as error:
        raise exc.BackendCompilerFailed(backend.name, error, _shown_by(graph, examples, backend, error, runs=True)) from error
    if fails:
        path = debug_utils.minified(graph, examples, maker, backend.name, None)
        raise debug_utils.AccuracyError(f"backend={backend.name!r} computes other numbers than the graph. A script that shows it is {path}")


def graph_of_looks(step: Step, wanted: tuple[int, ...]) -> tuple[fx.GraphModule, list[Tensor]]:
    """The path that ends in `step` as a module, and meta tensors of the looks of its inputs."""
    looks: dict[int, Any] = {}

    def look(a: Any, ref: Any) -> None:
        if ref.__class__ is int:
            looks.setdefault(-1 - ref, a)
        elif ref.__class__ is not Constant:
            for x, r in zip(a, ref, strict=True):
                look(x, r)

    for one in step.path():
        for a, ref in zip(one.looks, one.refs, strict=True):
            look(a, ref)
    graph, used = graph_of(step, wanted, looks, None)
    return graph, [looks[at] for at in used]


def graph_of(
    step: Step, wanted: tuple[int, ...], inputs: Any, names: Any, form: _sizes.Form | None = None, symbols: _sizes.Symbols | None = None
) -> tuple[fx.GraphModule, list[Any]]:
    """The path that ends in `step` as a module, and its arguments: numbers of the inputs that it reads and, in Constants, of `symbols`."""
    graph = fx.Graph()
    root = graph.owning_module = Module()             # which modules of bodies are added to
    steps = step.path()
    used = sorted({at for one in steps for at in _inputs_of(one.refs)})
    nodes: dict[int, Any] = {}
    given: list[Any] = []
    waiting = {} if symbols is None or form is None else symbols.before(form)
    numbers: dict[int, Any] = {}                      # nodes of symbols

    def put(at: int | None) -> None:
        for index in waiting.get(at, ()):
            value = symbols.values[index]  # type: ignore[union-attr]  # without them nothing waits
            node = numbers[index] = graph.placeholder(str(value), type_expr=type(value))
            node.meta["example_value"] = value
            given.append(Constant(index))

    for at in used:
        put(at)
        node = nodes[-1 - at] = graph.placeholder(names is not None and names.of(inputs[at]) or f"l_input_{at}_")
        node.meta["example_value"] = inputs[at]
        given.append(at)
    put(None)
    constants = {} if symbols is None or form is None else symbols.constants(form, steps, numbers)
    write_steps(graph, steps, nodes, set(wanted), constants)
    modes = [one.looks[0] for one in steps if one.op is GRAD_MODE]
    if modes and form is not None and modes[-1] is not form.key[0][0]:
        GRAD_MODE.node(graph, [form.key[0][0]])       # what comes after the graph has the mode in which it was called
    graph.output(tuple([nodes[value] for value in wanted]))
    return fx.GraphModule(root, graph), given


def body_of(
    step: Step, wanted: tuple[int, ...], places: tuple[int, ...], count: int, constants: Any = None, numbers: Sequence[Any] = ()
) -> fx.GraphModule:
    """A graph within a graph: a module with `count` parameters, of which the path's inputs are those at `places`.

    Further parameters stand for nodes of `numbers` of the graph around it in `constants`, see `write_steps`.
    """
    graph = fx.Graph()
    root = graph.owning_module = Module()
    parameters = [graph.placeholder(f"arg{k}_1") for k in range(count)]
    nodes: dict[int, Any] = {-1 - number: parameters[at] for number, at in enumerate(places)}
    own = {node: graph.placeholder(node.name, type_expr=node.type) for node in numbers}
    for node, inner in own.items():
        inner.meta["example_value"] = node.meta["example_value"]
    constants = constants and {at: map_arg(value, own.__getitem__) for at, value in constants.items()}
    steps = step.path()
    write_steps(graph, steps, nodes, set(wanted), constants)
    graph.output(tuple([nodes[value] for value in wanted]))
    return fx.GraphModule(root, graph)


def write_steps(
    graph: fx.Graph, steps: list[Step], nodes: dict[int, Any], wanted: set[int], constants: dict[int, Any] | None = None
) -> None:
    """Add the calls of `steps` to `graph`.

    Args:
        nodes: by number, the nodes of inputs (below zero); those of values are added.
        wanted: values that are read beside what steps read.
        constants: by the identity of Constants, arguments in their place; by that of steps with bodies, the same for these.
    """

    def argument(ref: Any) -> Any:
        if ref.__class__ is Constant:
            return ref.value if constants is None else constants.get(id(ref), ref.value)
        return nodes[ref] if ref.__class__ is int else type(ref)([argument(r) for r in ref])

    for one in steps:
        called = [argument(ref) for ref in one.refs]
        if isinstance(one.op, Called):
            within = constants and constants.get(id(one))
            node = one.op.node(graph, called, *([within] if within else []))
        else:
            node = _node(graph, one, called)
        if one.where is not None:
            node.stack_trace = "".join(traceback.format_list([tape.frame_summary(one.where)])).rstrip()
        if not one.results:                           # it writes, or sets a mode
            continue
        if one.several is None:
            node.meta["example_value"] = one.results[0]
            nodes[one.first] = node
            continue
        node.meta["example_value"] = one.several(one.results)
        read = {ref for later in steps for ref in read_by(later.refs)} | wanted
        for i, result in enumerate(one.results):
            if one.first + i in read:
                part = nodes[one.first + i] = graph.call_function(operator.getitem, (node, i))
                part.meta["example_value"] = result


def _inputs_of(refs: Any) -> list[int]:
    found = []
    for ref in refs:
        if ref.__class__ is int:
            if ref < 0:
                found.append(-1 - ref)
        elif ref.__class__ is not Constant:
            found += _inputs_of(ref)
    return found


def _node(graph: fx.Graph, step: Step, args: list[Any]) -> Any:
    """The call of a step, without arguments that have their defaults."""
    op = step.op
    given, kwargs = written_arguments(op, args)
    if op.params == _INDEXED:
        return graph.call_function(operator.getitem, tuple(given))
    if not kwargs and len(given) == 2 and op.name in _SIGNS:
        return graph.call_function(_SIGNS[op.name], tuple(given))
    if op.name == "to_copy":                          # no name of a public function
        x, kind, place, format = args
        options = {"device": place, "memory_format": format, "copy": kind is None or kind is step.looks[0].dtype or None}
        return graph.call_method("to", (x,) if kind is None else (x, kind), {k: v for k, v in options.items() if v is not None})
    if op.surface & FUNCTION or not hasattr(Tensor, op.name):
        return graph.call_function(public_function(op), tuple(given), kwargs)
    return graph.call_method(op.name, tuple(given), kwargs)


def written_arguments(op: Any, args: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call of `op`, one for each parameter, as a program writes them: without those that have their defaults."""
    count = len(op.positional)
    given = args[:count]
    kwargs = {name: value for name, value in zip(op.keyword_only, args[count:], strict=True) if not is_default(op, name, value)}
    while given and op.positional[len(given) - 1] in op.defaults and is_default(op, op.positional[len(given) - 1], given[-1]):
        given.pop()
    return given, kwargs


def is_default(op: Any, name: str, value: Any) -> bool:
    """Whether the parameter has this value where it is not given."""
    if name not in op.defaults:
        return False
    default = op.defaults[name]
    return value is default or value.__class__ in (bool, int, float, str) and value.__class__ is default.__class__ and value == default
