"""`export`: the graph of a whole function, with symbols for sizes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import _missing
from ..nn import Module
from ..nn.parameter import Parameter
from ..tensor import Tensor
from ..utils import _pytree as pytree

__all__ = ["ExportResult", "export"]


class ExportResult(NamedTuple):
    """What `export` gives: the graph, and the guards that inputs have to satisfy."""

    graph_module: Any
    guards: Any


def export(
    f: Callable[..., Any], *extra_args: Any, aten_graph: bool = False, pre_dispatch: bool = False, decomposition_table: Any = None,
    tracing_mode: str = "symbolic", dynamic_shapes: Any = None, specialize_float: bool = True, assume_static_by_default: bool = False,
    same_signature: bool = True, disable_constraint_solver: bool = False, prefer_deferred_runtime_asserts_over_guards: bool = False,
    _log_export_usage: bool = True, constraints: Any = None, **extra_kwargs: Any,
) -> Any:  # fmt: skip
    """A function of example inputs that gives the graph of `f` and its guards, an `ExportResult`.

    Args:
        f: a function or Module.
        extra_args, extra_kwargs: example inputs; given here, the result is returned at once, as it was of old.
        aten_graph: record operators; else the graph has the functions that the program calls, for inputs of these sizes, and parameters
            are its attributes.
        decomposition_table: functions that are recorded in the place of operators.
        tracing_mode: ``symbolic`` makes symbols of sizes, ``fake`` takes them for numbers, ``real`` computes.
        assume_static_by_default: make symbols of those sizes alone that `mark_dynamic` or `dynamic_shapes` name.
        dynamic_shapes: which sizes are symbols and how they are related, as in `torch.export.export`; with ``tracing_mode="fake"``
            no others are. Needs `aten_graph`.
        pre_dispatch, specialize_float, same_signature, disable_constraint_solver, prefer_deferred_runtime_asserts_over_guards,
            constraints: must be as they are by default, beside `aten_graph`.
    Raises: Unsupported if Python asks for a value and, without `aten_graph`, for operations that write in place or draw random
        numbers; NotImplementedError for what is not built; ConstraintViolationError if the graph does not hold for all sizes that
        `mark_dynamic` and `dynamic_shapes` name; UserError for `dynamic_shapes` that do not fit the inputs.

    >>> fb._dynamo.export(lambda x: x.sin() + 1, aten_graph=True)(fb.ones(3)).graph_module(fb.zeros(5)).shape
    torch.Size([5])
    """
    asked = {
        "pre_dispatch": pre_dispatch, "constraints": constraints is not None,
        "specialize_float": not specialize_float, "same_signature": not same_signature,
        "disable_constraint_solver": disable_constraint_solver,
        "prefer_deferred_runtime_asserts_over_guards": prefer_deferred_runtime_asserts_over_guards,
    }  # fmt: skip
    for name, given in asked.items():
        if given:
            raise _missing.not_built(f"_dynamo.export({name}=...)", "leave it as it is by default")

    def inner(*args: Any, **kwargs: Any) -> ExportResult:
        if not aten_graph:
            if dynamic_shapes:
                raise _missing.not_built("_dynamo.export(aten_graph=False, dynamic_shapes=...)", "give aten_graph=True, which has symbols")
            return _exported_functions(f, args, kwargs)
        return _exported(f, args, kwargs, tracing_mode, decomposition_table, assume_static_by_default, dynamic_shapes)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def _exported_functions(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportResult:
    """The graph of the functions that `f` calls."""
    from .. import fx
    from ..compiler import _functions, _graphs
    from ..compiler._asking import refuse
    from ..compiler._programs import Program
    from ..compiler._recorder import Event, Recorder
    from ..compiler._steps import Step
    from ..fx._codegen import _PyTreeCodeGen, _PyTreeInfo
    from . import exc

    if any(getattr(x, "_dynamo_dynamic_indices", None) for x in pytree.tree_leaves((args, kwargs))):
        what = "_dynamo.export(aten_graph=False) of sizes that mark_dynamic names"
        raise _missing.not_built(what, "give aten_graph=True, which has symbols")
    recorder = Recorder(
        Step(None, [], (), None), lambda step, wanted, _: Program(step, wanted, False), True, refuse, tells=True,
        is_transparent=False,
    )
    result = _functions._recorded(recorder, f, args, kwargs)
    parts, out_spec = pytree.tree_flatten(result)
    story = recorder.story
    if not recorder.is_full_story or any(isinstance(one, Event) for one in story):
        ended = recorder.breaks[0] if recorder.breaks else "what it does first, a write or random numbers,"
        raise exc.Unsupported(f"export: the function is not one graph: {ended} ended the first one; give aten_graph=True, which records it")
    segment: Any = story[0] if story else (None, [], [])
    program, inputs, made = segment
    leaves, in_spec = pytree.tree_flatten([*args, *kwargs.values()])
    graph, root = fx.Graph(), Module()
    placed: dict[int, Any] = {}                       # nodes of inputs, by identity
    for at, leaf in enumerate(leaves):
        node = graph.placeholder(f"arg{at}")
        node.meta["example_value"] = leaf
        placed.setdefault(id(leaf) if isinstance(leaf, Tensor) else -1 - at, node)
    owned = [*f.named_parameters(), *f.named_buffers()] if isinstance(f, Module) else []
    names = {id(value): f"L__fn___{name.replace('.', '___')}" for name, value in owned}
    nodes: dict[int, Any] = {}
    for at, tensor in enumerate(inputs):
        if id(tensor) not in placed:
            name = names.get(id(tensor), f"_tensor_constant{at}")
            if isinstance(tensor, Parameter):
                root.register_parameter(name, tensor)
            else:
                root.register_buffer(name, tensor)
            placed[id(tensor)] = graph.get_attr(name)
        nodes[-1 - at] = placed[id(tensor)]
    if program is not None:
        _graphs.write_steps(graph, program.steps, nodes, {number for number, _ in made})
    numbers = {id(ref()): number for number, ref in made}
    results = [nodes[numbers[id(part)]] if id(part) in numbers else placed.get(id(part), part) for part in parts]
    graph.output(results)
    target = f.forward if isinstance(f, Module) else f
    signature = list(inspect.signature(target).parameters)
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo([*signature[: len(args)], *kwargs], in_spec, out_spec)))
    return ExportResult(fx.GraphModule(root, graph), [])


def _exported(
    f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: str, table: Any, static: bool, shapes: Any
) -> ExportResult:
    from ..export._open_sizes import OpenSizes
    from ..export.dynamic_shapes import AdditionalInputs, bound_inputs, sizes_of_inputs
    from ..fx.experimental import proxy_tensor
    from ..fx.experimental.symbolic_shapes import ConstraintViolationError

    target = f.forward if isinstance(f, Module) else f
    signature = inspect.signature(target)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.args
    if bound.kwargs:
        raise _missing.not_built("_dynamo.export", "of functions with keyword-only parameters; make them positional")
    if isinstance(shapes, AdditionalInputs):
        shapes = shapes.dynamic_shapes(f, args, kwargs)
    if shapes and mode == "real":
        raise _missing.not_built('_dynamo.export(tracing_mode="real", dynamic_shapes=...)', "give another tracing_mode")
    if mode != "symbolic" and not shapes:
        gm = proxy_tensor.make_fx(f, table, mode, _allow_non_fake_inputs=True)(*given)
        return ExportResult(gm, [])
    named = bound_inputs(target, args, kwargs)
    names = {id(leaf): name for name, value in named.items() for leaf in pytree.tree_leaves(value)}
    leaves = pytree.tree_leaves(given)
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    declared = sizes_of_inputs(named, shapes or None)
    sizes = OpenSizes(tensors, [names.get(id(x), "a default") for x in tensors], declared, error=ConstraintViolationError)
    contexts = [_context(x, static or mode == "fake", sizes) if isinstance(x, Tensor) else None for x in leaves]

    @functools.wraps(target)
    def related(*fakes: Any) -> Any:
        sizes.relate([x for x in pytree.tree_leaves(fakes) if isinstance(x, Tensor)])
        return f(*fakes)

    gm = proxy_tensor.record_symbolically(related, given, table, contexts, allow_non_fake_inputs=True)
    env = gm.shape_env
    fakes = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    _check_claims(env, fakes, contexts)
    sizes.bounds(env, [fake for fake, x in zip(fakes, leaves, strict=True) if isinstance(x, Tensor)])
    return ExportResult(gm, list(env.guards))


def _context(x: Tensor, static: bool, declared: Any) -> Any:
    """Which sizes of `x` are symbols, as `mark_dynamic`, `mark_static` and `dynamic_shapes` say."""
    from ..fx.experimental.symbolic_shapes import (
        DimDynamic,
        RelaxedUnspecConstraint,
        StatelessSymbolicContext,
    )

    wanted = set(getattr(x, "_dynamo_dynamic_indices", ()))
    wished = set(getattr(x, "_dynamo_weak_dynamic_indices", ()))
    fixed = set(getattr(x, "_dynamo_static_indices", ())) | declared.closed(x)
    sizes, claims = [], []
    for d in range(x.ndim):
        claims.append(RelaxedUnspecConstraint(False) if d in wanted else None)
        usual = DimDynamic.STATIC if d in fixed or static and d not in wished else DimDynamic.DUCK
        sizes.append(DimDynamic.DYNAMIC if d in wanted or d in declared.of(x) else usual)
    return StatelessSymbolicContext(sizes, constraint_sizes=claims)


def _check_claims(env: Any, fakes: list[Any], contexts: list[Any]) -> None:
    from ..fx.experimental.symbolic_shapes import ConstraintViolationError

    for at, (fake, context) in enumerate(zip(fakes, contexts, strict=True)):
        for d, claim in enumerate(() if context is None else context.constraint_sizes):
            n = fake.shape[d]
            if claim is not None and (isinstance(n, int) or env.replace(n.node._expr).is_number):
                raise ConstraintViolationError(
                    f"export: dimension {d} of input {at} was marked as dynamic, but the graph is for size {int(n)} alone:\n"
                    f"{env.format_guards(verbose=True)}"
                )
