"""Traces: the operations that a function or module runs on example inputs, as a module that runs them again.

A trace is recorded by `fx.experimental.proxy_tensor` on fake tensors whose sizes are symbols, so what the program computes of
sizes is computed anew for other sizes. A program that asks for values of what it computes is recorded on the example inputs
themselves: the values, and the sizes, then are constants of the trace, and a `TracerWarning` says so.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .. import _aten
from .._ops import OpOverload, ops
from .._symbolic import SymInt
from ..fx import Node
from ..fx.immutable_collections import immutable_list
from ..nn.modules.module import Module
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._modules import ScriptFunction, TopLevelTracedModule, TracedModule
from ._modules import _tracing as _local

__all__ = ["TopLevelTracedModule", "TracedModule", "TracerWarning", "is_tracing", "script_if_tracing", "trace", "trace_module"]


class TracerWarning(Warning):
    """A trace may not hold for other inputs."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Silence warnings of this class that come from the framework's own modules: there are none."""


class TracingCheckError(Exception):
    """A trace does not compute what was traced."""


def state() -> Any:
    """The trace under way in this thread."""
    return _local.state


def is_tracing() -> bool:
    """Whether this code runs inside `trace`."""
    return _local.state is not None


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    from .._C import TracingState

    before, _local.state = _local.state, TracingState()
    try:
        yield
    finally:
        _local.state = before


def trace(
    func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
    check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
    _compilation_unit: Any = None, example_kwarg_inputs: Any = None, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """What `func` runs on example inputs, as something that runs it again without Python in between.

    Args:
        func: a function or Module of Tensors, and of lists, tuples and dicts of them.
        example_inputs: a tuple of arguments, or a single Tensor. Other inputs may have other sizes, but the same number of
            dimensions: branches of the program are taken as for the example, and a `TracerWarning` names those that sizes decide.
        check_trace: run both on `check_inputs`, a list of tuples (the example by default), and warn where results differ by
            more than `check_tolerance`, relative or absolute.
        strict: refuse lists and dicts as results, whose structure would be that of the example.
        example_kwarg_inputs: a dict of arguments by name, in place of `example_inputs`.
        optimize: deprecated; it changes nothing.
    Returns: a `TopLevelTracedModule` with the parameters, buffers and submodules of a Module; a `ScriptFunction` of a function.
    Raises: RuntimeError for arguments that hold no Tensors, and for results that are none.

    >>> double = fb.jit.trace(lambda x: x.reshape(x.size(0), -1) * 2, fb.ones(2, 3))
    >>> double(fb.ones(1, 2, 2))
    Traceback (most recent call last):
    RuntimeError: jit.trace: the trace takes 2-dimensional tensors like (2, 3) for input 0, got (1, 2, 2)
    >>> double(fb.ones(1, 4))
    tensor([[2., 2., 2., 2.]])
    """
    args, kwargs = _given("jit.trace", example_inputs, example_kwarg_inputs)
    if isinstance(func, Module):
        if isinstance(func, TopLevelTracedModule):
            return func
        return _traced_module(func, {"forward": (args, kwargs)}, check_trace, check_inputs, check_tolerance, strict)
    if getattr(func, "__self__", None) is not None and isinstance(func.__self__, Module) and func.__name__ == "forward":
        return _traced_module(func.__self__, {"forward": (args, kwargs)}, check_trace, check_inputs, check_tolerance, strict)
    if not callable(func):
        raise AttributeError(f"jit.trace: func must be a function or Module, got {type(func).__name__}")
    program = _Program(func, args, kwargs, {}, strict)
    made = TracedFunction(func, program)
    if check_trace:
        given = _checked(check_inputs, args, kwargs)
        if check_inputs is not None:
            _compare_graphs(program, [_Program(func, *g, {}, strict) for g in given])
        _check(func, made, given, check_tolerance)
    return made


def trace_module(
    mod: Any, inputs: dict[str, Any], optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
    check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
    _compilation_unit: Any = None, example_inputs_is_kwarg: bool = False, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """`trace` of several methods of the Module `mod`.

    Args:
        inputs: the example inputs of each method, by its name: a tuple, a single Tensor, or a dict by name of parameter if
            `example_inputs_is_kwarg`.
        check_inputs: a list of such dicts.
    The other arguments are those of `trace`. Raises: AttributeError for what is no Module, and for methods that it has not.
    """
    if not isinstance(mod, Module):
        raise AttributeError(f"jit.trace_module: expected torch.nn.Module as the first argument, got {type(mod).__name__}")
    if not isinstance(inputs, dict):
        raise AttributeError(f"jit.trace_module: inputs must be a dictionary of (method_name, input) pairs, got {type(inputs).__name__}")
    named = example_inputs_is_kwarg
    given = {name: _given("jit.trace_module", None if named else x, x if named else None) for name, x in inputs.items()}
    return _traced_module(mod, given, check_trace, check_inputs, check_tolerance, strict)


def script_if_tracing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, which a trace calls as a script, compiled when it first does: so its branches and loops are kept."""
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not is_tracing():
            return fn(*args, **kwargs)
        from ._script import script

        return script(fn)(*args, **kwargs)

    wrapper.__original_fn = fn  # type: ignore[attr-defined]
    wrapper.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    return wrapper


# -- what is given and returned --------------------------------------------------------------------------------------------


def _given(name: str, example: Any, by_name: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of the example. Raises: RuntimeError where there are none."""
    if by_name is not None:
        if example is not None:
            raise RuntimeError(f"{name}: example_inputs and example_kwarg_inputs exclude each other; give one of them")
        if not isinstance(by_name, dict):
            raise RuntimeError(f"{name}: example_kwarg_inputs should be a dict, got {type(by_name).__name__}")
        return (), by_name
    if example is None:
        raise RuntimeError(f"{name}: example_inputs must be given: a tuple of arguments, or a Tensor")
    return tuple(example) if isinstance(example, (tuple, list)) else (example,), {}


def _leaves(what: str, values: Any) -> tuple[list[Tensor], Any]:
    """The Tensors of nested lists, tuples and dicts, and their structure. Raises: RuntimeError for anything else among them."""
    leaves, spec = pytree.tree_flatten(values)
    for x in leaves:
        if not isinstance(x, Tensor):
            raise RuntimeError(
                f"jit.trace: {what} of type '{type(x).__name__}' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, "
                "and Tuples of Tensors can be traced"
            )
    return leaves, spec


def _refuse_containers(result: Any) -> None:
    """Raise RuntimeError for lists and dicts in a result, which strict traces do not return."""
    for kind, instead in ((list, "a `tuple`"), (dict, "a `NamedTuple`")):
        if isinstance(result, kind):
            raise RuntimeError(
                f"Encountering a {kind.__name__} at the output of the tracer might cause the trace to be incorrect, this is only valid "
                "if the container structure does not change based on the module's inputs. Consider using a constant container "
                f"instead (e.g. for `{kind.__name__}`, use {instead} instead). If you absolutely need this and know the side effects, "
                "pass strict=False to trace() to allow this behavior."
            )
    if isinstance(result, tuple):
        for x in result:
            _refuse_containers(x)


# -- recording -------------------------------------------------------------------------------------------------------------


class _Program:
    """The recorded operations of one function: ``program.run(owner, *args, **kwargs)``.

    Args:
        func: what is recorded on the example `args` and `kwargs`.
        known: names of the owner's parameters and buffers by identity; the program reads them by these names.
    """

    def __init__(self, func: Any, args: Any, kwargs: Any, known: dict[int, str], strict: bool) -> None:
        self.of = func
        leaves, self.given = _leaves("an argument", (args, kwargs))
        self.shapes = [tuple(x.shape) for x in leaves]
        self.ndims = [len(shape) for shape in self.shapes]
        self.made: Any = None

        def flat(*values: Any) -> Any:
            given, named = self.given.unflatten(values)
            result = func(*given, **named)
            if strict:
                _refuse_containers(result)
            found, self.made = _leaves("a result", result)
            return tuple(found)

        flat.__name__ = getattr(func, "__name__", type(func).__name__)
        with _tracing():
            self.module = _recorded(flat, leaves)
        _count_parts(self.module.graph)
        _copy_where_needed(self.module.graph)
        self.constants: dict[str, Tensor] = {}
        for node in self.module.graph.nodes:
            if node.op == "get_attr":
                value = getattr(self.module, node.target)
                name = known.get(id(value))
                if name is None:
                    name = f"_constant{len(self.constants)}"
                    self.constants[name] = value
                node.target = name
        self.code: str = self.module.graph.python_code("self").src
        self.read, self.forward = _written(self.module.graph)
        # What calls of tensors alone need not ask: how many there are, and whether the result is one.
        (positional, named), one = _parts_of(self.given), self.made.is_leaf()
        plain = not _parts_of(named) and all(part.is_leaf() for part in _parts_of(positional))
        self.plain, self.makes_one = len(leaves) if plain else -1, one

    def operations(self) -> list[str]:
        """The recorded operations, a line each, without the values of constants."""
        nodes = [node for node in self.module.graph.nodes if node.op != "get_attr"]
        return [re.sub(r"\[num_users=\d+\] = ", "= ", str(node.format_node())) for node in nodes]

    def run(self, owner: Any, args: Any, kwargs: Any) -> Any:
        leaves: Any = args
        if kwargs or len(args) != self.plain or [x.ndim for x in args if isinstance(x, Tensor)] != self.ndims:
            leaves = self._checked_leaves(args, kwargs)
        results = self.forward(*[_read(owner, path, name) for path, name in self.read], *leaves)
        return results[0] if self.makes_one else self.made.unflatten(results)

    def _checked_leaves(self, args: Any, kwargs: Any) -> list[Tensor]:
        """The tensors of a call. Raises: RuntimeError for arguments of other structure than those of the example."""
        leaves, given = pytree.tree_flatten((args, kwargs))
        if given != self.given:
            raise RuntimeError(
                f"jit.trace: the trace takes arguments of the structure of the example: expected {self.given}, got {given}"
            )
        for at, (x, shape) in enumerate(zip(leaves, self.shapes, strict=True)):
            if not isinstance(x, Tensor):
                raise RuntimeError(f"jit.trace: the trace takes Tensors, got {type(x).__name__} for input {at}")
            if x.ndim != len(shape):
                raise RuntimeError(
                    f"jit.trace: the trace takes {len(shape)}-dimensional tensors like {shape} for input {at}, got {tuple(x.shape)}"
                )
        return leaves


def _parts_of(spec: Any) -> list[Any]:
    """The structures of the items of what has the structure `spec`."""
    return list(spec.children_specs if hasattr(spec, "children_specs") else spec.children())


def _read(owner: Any, path: tuple[str, ...], name: str) -> Any:
    """The attribute `name` of the part of a module that is at `path`; of parameters without asking all of the part's attributes."""
    try:
        for part in path:
            owner = owner._modules[part]
        return owner._parameters[name]
    except (AttributeError, KeyError):                # a buffer, a constant, or what has taken the place of a parameter
        return getattr(owner, name)


def _written(graph: Any) -> tuple[list[tuple[tuple[str, ...], str]], Callable[..., Any]]:
    """The graph as a function of what it reads of a module and of its arguments, and the paths and names of what it reads.

    Which functions the operators are is found here, not in every call.
    """
    nodes = list(graph.nodes)
    read = list(dict.fromkeys(node.target for node in nodes if node.op == "get_attr"))
    scope: dict[str, Any] = {}
    names: dict[Any, str] = {}
    given = [f"read{k}" for k in range(len(read))]
    ends: dict[Any, list[Any]] = {}                   # values by the node that is the last to take them
    taken_later: set[Any] = set()
    for node in reversed(nodes):
        for value in node.all_input_nodes:
            if value not in taken_later:
                taken_later.add(value)
                ends.setdefault(node, []).append(value)

    def text(x: Any) -> str:
        if isinstance(x, Node):
            return names[x]
        if isinstance(x, (list, tuple)) and type(x) in (list, tuple, immutable_list):
            inner = ", ".join(map(text, x))
            return f"({inner},)" if isinstance(x, tuple) and x else f"[{inner}]" if isinstance(x, list) else "()"
        if x is None or x.__class__ in (bool, int, str):
            return repr(x)
        scope[f"c{len(scope)}"] = x
        return f"c{len(scope) - 1}"

    lines: list[str] = []
    for node in nodes:
        if node.op == "get_attr":
            names[node] = given[read.index(node.target)]
        elif node.op == "placeholder":
            names[node] = f"x{len(names)}"
            given.append(names[node])
        elif node.op == "output":
            lines.append(f"    return {text(node.args[0])}")
        else:
            function, args, kwargs = _function_of(node)
            names[node], called = f"v{len(names)}", text(function)
            arguments = [*map(text, args), *[f"{key}={text(value)}" for key, value in kwargs.items()]]
            ending = [names[value] for value in ends.get(node, ()) if value.op != "get_attr"] + [names[node]] * (not node.users)
            lines.append(f"    {names[node]} = {called}({', '.join(arguments)})" + (f"; {' = '.join(ending)} = None" if ending else ""))
    source = "\n".join([f"def forward({', '.join(given)}):", *lines])
    exec(compile(source, "<flambeau trace>", "exec"), scope)  # our own text, of recorded operations
    return [(tuple(target.split(".")[:-1]), target.split(".")[-1]) for target in read], scope["forward"]


def _function_of(node: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What a node calls, and with what: the public function that an operator is, where there is one."""
    target, args, kwargs = node.target, node.args, node.kwargs
    if isinstance(target, OpOverload) and target.namespace == "aten" and target._operator is None:
        function, first, names = _aten.direct(target._opname, target._overloadname)
        if function is not None and not any(a.is_out for a in target._schema.arguments):
            return function, args[:first], {**dict(zip(names, args[first:], strict=False)), **kwargs}
    return target, args, kwargs


def _recorded(flat: Any, leaves: list[Tensor]) -> Any:
    """The graph of `flat` with symbols for sizes, or where it reads values, with those of the example for constants."""
    from .._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from ..fx.experimental import proxy_tensor, symbolic_shapes

    plain = [x.detach().requires_grad_(x.requires_grad) if x.requires_grad else x.detach() for x in leaves]
    try:
        made = proxy_tensor.record_symbolically(flat, tuple(plain), None, None, True, _sizes_of_example(), True)
    except (DataDependentOutputException, DynamicOutputShapeException, symbolic_shapes.GuardOnDataDependentSymNode) as error:
        if _local.in_script:                          # whose branches the trace keeps
            _local.in_script = False
            return proxy_tensor.record_with_values(flat, tuple(plain), True)
        warnings.warn(
            f"jit.trace: the program reads values of what it computes ({error}); they are constants of the trace, and so are sizes, "
            "which therefore might not generalize to other inputs",
            TracerWarning, stacklevel=6,
        )  # fmt: skip
        return proxy_tensor.record_with_values(flat, tuple(plain), True)
    _warn_of_sizes(made.shape_env)
    return made


def _sizes_of_example() -> Any:
    """The symbols of a trace: one for each size, also for those that are equal or 1 in the example.

    What operations ask of them is answered by the example, and nothing is concluded from it.
    """
    from ..fx.experimental.symbolic_shapes import ShapeEnv

    return ShapeEnv(specialize_zero_one=False, duck_shape=False, guards_are_facts=False)


def as_many(parts: Any, count: int) -> Any:
    """`parts`, which have to be `count` as for the example: what follows in the trace is for that many."""
    if len(parts) != count:
        raise RuntimeError(
            f"Expected {count} elements in a list but found {len(parts)}: jit.trace: the program takes a tensor apart, into as many "
            f"parts as for the example; with {len(parts)} it would go on in another way"
        )
    return parts


def _count_parts(graph: Any) -> None:
    """Have the graph count what operations give in lists, whose length sizes decide."""
    for node in list(graph.nodes):
        returns = node.target._schema.returns if isinstance(node.target, OpOverload) else ()
        if len(returns) == 1 and returns[0].type.kind == "List" and "parts" in node.meta:
            with graph.inserting_after(node):
                counted = graph.call_function(as_many, (node, node.meta["parts"]))
            node.replace_all_uses_with(counted, delete_user_cb=lambda user, of=counted: user is not of)


def _copy_where_needed(graph: Any) -> None:
    """Have the graph reshape what it views, where sizes of 1 may be what made the strides fit: with other sizes they may not."""
    for node in graph.find_nodes(op="call_function", target=ops.aten.view.default):
        value = node.args[0].meta.get("val")
        if value is not None and any(isinstance(n, SymInt) and n.node.hint == 1 for n in value.shape):
            node.target = ops.aten.reshape.default


def _warn_of_sizes(env: Any) -> None:
    """Warn, at its line, of what the program itself asked of sizes: it is as it was for the example."""
    for guard in env.guards:
        if guard.sloc.by_program:
            condition = env.written(guard.expr, {s: env.var_to_sources[s][0].name() for s in guard.expr.free_symbols})
            path, _, line = guard.sloc.maybe_user_loc.rpartition(":")
            warnings.warn_explicit(
                "jit.trace: the program asks here for a size as a number or truth of Python, which is a constant of the trace; it might "
                f"not generalize to inputs for which not {condition}",
                TracerWarning, path, int(line),
            )  # fmt: skip


# -- traced modules and functions ------------------------------------------------------------------------------------------


class _Method:
    """A method of a traced module other than `forward`."""

    def __init__(self, owner: Any, program: _Program) -> None:
        self.owner, self.program = owner, program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.program.run(self.owner, args, kwargs)


def _traced_module(mod: Module, inputs: Any, check: bool, check_inputs: Any, tolerance: float, strict: bool) -> Any:
    made = TopLevelTracedModule(mod)
    names = {id(x): name for name, x in (*mod.named_parameters(remove_duplicate=False), *mod.named_buffers(remove_duplicate=False))}
    programs: dict[str, _Program] = made._programs
    for method, (args, kwargs) in inputs.items():
        func = mod if method == "forward" else getattr(mod, method)
        program = programs[method] = _Program(func, args, kwargs, names, strict)
        for name in list(program.constants):
            made.__dict__[name] = program.constants[name]
        if method != "forward":
            made.__dict__[method] = _Method(made, program)
    if check:
        for method, (args, kwargs) in inputs.items():
            given = None if check_inputs is None else [x[method] if isinstance(x, dict) else x for x in check_inputs]
            before = [(b, b.clone()) for b in mod.buffers()]
            func, again = (mod, made) if method == "forward" else (getattr(mod, method), getattr(made, method))
            checked = _checked(given, args, kwargs)
            if given is not None:
                _compare_graphs(programs[method], [_Program(func, *g, names, strict) for g in checked])
            _check(func, again, checked, tolerance, before)
    return made


class TracedFunction(ScriptFunction):
    """A traced function."""

    def __init__(self, func: Any, program: _Program) -> None:
        self._program, self._compiled = program, None
        self.__dict__.update(program.constants)
        self.__name__ = self.name = getattr(func, "__name__", type(func).__name__)
        self.__doc__ = getattr(func, "__doc__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._program.run(self, args, kwargs)

    @property
    def _function(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]  # made when it is first asked for
        if self._compiled is None:
            from ._traced import function_of_trace

            name = self.name.replace("<lambda>", "lambda_")
            self._compiled = function_of_trace(self._program, self._program.of, f"__torch__.{name}", None)
        return self._compiled

    _script_function = _function  # pyright: ignore[reportAssignmentType]  # what scripts that call it compile a call of


# -- checking --------------------------------------------------------------------------------------------------------------


def _compare_graphs(program: _Program, others: list[_Program]) -> None:
    """Raise TracingCheckError if the program ran other operations on other inputs, whose traces `others` are."""
    first = program.operations()
    for other in others:
        found = other.operations()
        if found != first:
            diff = "".join(f"\t\t{line}\n" for line in difflib.ndiff(first, found))
            raise TracingCheckError(f"Tracing failed sanity checks!\nERROR: Graphs differed across invocations!\n\tGraph diff:\n{diff}")


def _checked(check_inputs: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """The inputs to check a trace on: positional and keyword arguments of each call."""
    if check_inputs is None:
        return [(args, kwargs)]
    return [_given("jit.trace", *((None, x) if isinstance(x, dict) else (x, None))) for x in check_inputs]


def _check(func: Any, traced: Any, inputs: Any, tolerance: float, buffers: Any = ()) -> None:
    """Warn where `func` and its trace differ; both see the same random numbers, and `buffers` are left as they were."""
    from .. import allclose, no_grad
    from ..random import fork_rng, get_rng_state, set_rng_state

    for args, kwargs in inputs:
        with fork_rng(devices=[]), no_grad():
            state = get_rng_state()
            results = []
            for run in (func, traced):
                set_rng_state(state)
                given, named = pytree.tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) else x, (args, kwargs))
                results.append(pytree.tree_leaves(run(*given, **named)))
                for buffer, value in buffers:
                    buffer.copy_(value)
        for at, (expected, got) in enumerate(zip(*results, strict=True)):
            if got.shape == expected.shape and got.dtype == expected.dtype and allclose(
                got, expected, rtol=tolerance, atol=tolerance, equal_nan=True
            ):
                continue
            warnings.warn(
                f"Output nr {at + 1}. of the traced function does not match the corresponding output of the Python function: "
                f"shape {tuple(got.shape)} and {tuple(expected.shape)}, tolerance {tolerance}. What Python decides is kept as it was "
                "for the example",
                TracerWarning, stacklevel=4,
            )  # fmt: skip
