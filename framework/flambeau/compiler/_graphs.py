"""Graphs of recorded paths, and the programs that backends make of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from .. import fx
from ..nn import Module
from ..ops._dispatch import public_function
from ..ops._spec.base import FUNCTION
from ..tensor import Tensor
from ._backends import Backend
from ._programs import read_by
from ._recorder import Constant, Step, become

_SIGNS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "true_divide": operator.truediv, "div": operator.truediv,
          "matmul": operator.matmul, "getitem_op": operator.getitem}  # fmt: skip


class Compiled:
    """A program that is a callable of a backend: it takes the inputs and gives the values that are asked for."""

    chains = ()

    def __init__(self, graph: fx.GraphModule, call: Callable[..., Any], used: list[int], wanted: tuple[int, ...]) -> None:
        self.graph, self.call, self.used, self.wanted = graph, call, used, wanted

    def __call__(self, inputs: list[Tensor], made: dict[int, Any]) -> None:
        results = self.call(*[inputs[at] for at in self.used])
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


def compiled(step: Step, wanted: tuple[int, ...], inputs: list[Tensor], names: Any, backend: Backend) -> Compiled:
    """The path that ends in `step` as `backend` compiles it.

    Raises: `BackendCompilerFailed` when it raises, or gives what cannot be called.
    """
    from .._dynamo import exc

    graph, used = graph_of(step, wanted, inputs, names)
    examples = [inputs[at] for at in used]
    try:
        call = backend.maker(graph, examples)  # type: ignore[misc]  # one without a function is not asked for graphs
        if not callable(call):
            raise TypeError(f"the backend must return a function, not {type(call).__name__}")
    except Exception as error:
        raise exc.BackendCompilerFailed(f"backend={backend.name!r} raised:\n{type(error).__name__}: {error}") from error
    return Compiled(graph, call, used, wanted)


def graph_of(step: Step, wanted: tuple[int, ...], inputs: list[Tensor], names: Any) -> tuple[fx.GraphModule, list[int]]:
    """The path that ends in `step` as a module of the inputs that it reads; the numbers of these."""
    graph = fx.Graph()
    steps = step.path()
    used = sorted({at for one in steps for at in _inputs_of(one.refs)})
    nodes: dict[int, Any] = {}
    for at in used:
        node = nodes[-1 - at] = graph.placeholder(names.of(inputs[at]) or f"l_input_{at}_")
        node.meta["example_value"] = inputs[at]

    def argument(ref: Any) -> Any:
        if ref.__class__ is Constant:
            return ref.value
        return nodes[ref] if ref.__class__ is int else type(ref)([argument(r) for r in ref])

    for one in steps:
        node = _node(graph, one, [argument(ref) for ref in one.refs])
        if one.several is None:
            node.meta["example_value"] = one.twins[0]
            nodes[one.first] = node
            continue
        node.meta["example_value"] = one.several(one.twins)
        read = {ref for later in steps for ref in read_by(later.refs)} | set(wanted)
        for i, twin in enumerate(one.twins):
            if one.first + i in read:
                part = nodes[one.first + i] = graph.call_function(operator.getitem, (node, i))
                part.meta["example_value"] = twin
    graph.output(tuple([nodes[value] for value in wanted]))
    return fx.GraphModule(Module(), graph), used


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
    count = len(op.positional)
    given = args[:count]
    kwargs = {
        name: value for name, value in zip(op.keyword_only, args[count:], strict=True) if not is_default(op, name, value)
    }
    while given and op.positional[len(given) - 1] in op.defaults and is_default(op, op.positional[len(given) - 1], given[-1]):
        given.pop()
    if not kwargs and len(given) == 2 and op.name in _SIGNS:
        return graph.call_function(_SIGNS[op.name], tuple(given))
    if op.surface & FUNCTION or not hasattr(Tensor, op.name):
        return graph.call_function(public_function(op), tuple(given), kwargs)
    return graph.call_method(op.name, tuple(given), kwargs)


def is_default(op: Any, name: str, value: Any) -> bool:
    """Whether the parameter has this value where it is not given."""
    if name not in op.defaults:
        return False
    default = op.defaults[name]
    return value is default or value.__class__ in (bool, int, float, str) and value.__class__ is default.__class__ and value == default
