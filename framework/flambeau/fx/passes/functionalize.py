"""A graph without writes: each in-place operation becomes one that gives a new tensor, which later reads take in its place."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ... import _aten, _ops
from ..._aten import Tag
from ..._symbolic import SymBool, SymFloat, SymInt
from ...tensor import Tensor
from ...utils import _pytree as pytree
from ...utils._python_dispatch import OpOverload as Primitive
from ...utils._python_dispatch import overload_of
from .._names import name_of_operator
from ..experimental._numbers import has_symbols
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg
from .shape_prop import _extract_tensor_metadata

__all__ = ["functionalize_graph"]

_OUT_OF_REACH = ("apply_", "map_", "map2_", "resize_", "resize_as_", "set_")


def functionalize_graph(
    gm: GraphModule, args: tuple[Any, ...], *, views: bool = False, written: list[int] | None = None,
    stand_in: Callable[[Tensor], Tensor] | None = None,
) -> GraphModule:  # fmt: skip
    """`gm`, a graph of `make_fx`, without in-place operations; what it writes to its inputs and attributes is copied there in the end.

    Args:
        args: values to run the graph on, leaf by leaf, by which shapes and dtypes are found. They are not written to.
        views: replace views as well, by operators that copy.
        written: takes the indices of inputs that are written to. What they become is not copied then, but given before all results.
        stand_in: gives what the graph is run on in the place of a tensor among its attributes.
    Raises: NotImplementedError for writes that no operator without writes stands for.
    """
    return _Functional(gm, views, written, stand_in).run(args)


class _Memory:
    """What views share: the node of its value, and how often it has been written to."""

    def __init__(self, node: Node) -> None:
        self.node, self.writes = node, 0


@dataclass(frozen=True)
class _Step:
    """A view of the tensor before it; of the part `index` where the operator gives several."""

    target: Any
    args: tuple[Any, ...]                             # without the source, which is the first
    kwargs: dict[str, Any]
    index: int | None = None


class _Place:
    """A tensor of the program: the memory it looks at, by which views, and the node that has had its value."""

    def __init__(self, memory: _Memory, steps: tuple[_Step, ...] = (), node: Node | None = None) -> None:
        self.memory, self.steps = memory, steps
        self.node, self.at = node, memory.writes if node is not None else -1


@dataclass(frozen=True)
class _Parts:
    """Several views of `source` by one operator, before one of them is taken."""

    source: _Place
    step: _Step


class _Functional:
    def __init__(self, gm: GraphModule, views: bool, written: list[int] | None, stand_in: Any) -> None:
        self.gm, self.views, self.written, self.stand_in = gm, views, written, stand_in
        self.graph = Graph()
        self.values: dict[Node, Any] = {}
        self.env: dict[Node, Any] = {}
        self.held: list[tuple[Node, _Place]] = []      # inputs and attributes
        self.calls: dict[str, Any] = {}                   # what is known of the node that is taken over: the module calls it is part of

    def run(self, args: tuple[Any, ...]) -> GraphModule:
        given = iter(args)
        for node in self.gm.graph.nodes:
            if node.op == "output":
                self.calls = {}
                result = self._argument(node.args[0])
                if self.written is not None:
                    inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
                    changed = [(held, place) for held, place in self.held if place.memory.writes and held.op == "placeholder"]
                    self.written[:] = [inputs.index(held) for held, _ in changed]
                    result = (*[place.memory.node for _, place in changed], *result)  # type: ignore[misc]  # of a flat function
                for held, place in self.held:
                    if place.memory.writes and (self.written is None or held.op == "get_attr"):
                        self._emit("call_function", _operator("copy_", "default"), (held, place.memory.node), {}, compute=False)
                self.graph.output(result)
                break
            self.calls = node.meta
            self.env[node] = self._held(node, given) if node.op in ("placeholder", "get_attr") else self._called(node)
        made = GraphModule(self.gm, self.graph, type(self.gm).__name__)
        made.graph._codegen = self.gm.graph._codegen
        made.recompile()
        return made

    def _held(self, node: Node, given: Any) -> Any:
        copied = self.graph.node_copy(node)
        value = next(given) if node.op == "placeholder" else _attribute(self.gm, node.target)
        if node.op == "get_attr" and self.stand_in is not None and isinstance(value, Tensor):
            value = self.stand_in(value)
        self.values[copied] = value
        if not isinstance(value, Tensor):
            return copied
        place = _Place(_Memory(copied), (), copied)
        self.held.append((copied, place))
        return place

    # -- nodes of the new graph

    def _emit(self, op: str, target: Any, args: Any, kwargs: Any, compute: bool = True) -> Node:
        node = self.graph.create_node(op, target, tuple(args), dict(kwargs), name_of_operator(target))
        if "nn_module_stack" in self.calls:
            node.meta["nn_module_stack"] = self.calls["nn_module_stack"]
        if compute:
            args, kwargs = map_arg((tuple(args), dict(kwargs)), self.values.__getitem__)  # type: ignore[arg-type]
            # Sizes that values decide are those of this run alone: what records the graph afterwards makes its own.
            with _no_new_sizes(args, kwargs):
                value = getattr(args[0], target)(*args[1:], **kwargs) if op == "call_method" else target(*args, **kwargs)
            self.values[node] = value
            if isinstance(value, (SymInt, SymFloat, SymBool)):
                node.meta["val"] = value
            if isinstance(value, Tensor):
                fake = hasattr(value, "fake_mode")
                node.meta["tensor_meta"] = _extract_tensor_metadata(value, not (fake and has_symbols(value._array)))
                if fake:
                    node.meta["val"] = value
        return node

    def _argument(self, value: Any) -> Any:
        return map_arg(value, lambda n: self._current(self.env[n]))

    def _current(self, found: Any) -> Any:
        """The node that has the present value of a tensor."""
        if isinstance(found, _Parts):
            raise NotImplementedError(f"functionalize: the result of {found.step.target} is used as a whole; take its parts by index")
        if not isinstance(found, _Place):
            return found
        if found.node is None or found.at != found.memory.writes:
            found.node = self._sources(found)[-1]
            found.at = found.memory.writes
        return found.node

    def _sources(self, place: _Place) -> list[Node]:
        """Nodes of the memory's value and of each view on the way to `place`."""
        nodes = [place.memory.node]
        for step in place.steps:
            nodes.append(self._viewed(step, nodes[-1]))
        return nodes

    def _viewed(self, step: _Step, source: Node) -> Node:
        target = _copying(step.target) if self.views else step.target
        made = self._emit("call_function", target, (source, *step.args), step.kwargs)
        return made if step.index is None else self._emit("call_function", operator.getitem, (made, step.index), {})

    # -- nodes of the old one

    def _called(self, node: Node) -> Any:
        target = node.target
        if node.op == "call_method":
            if target in _OUT_OF_REACH:
                raise NotImplementedError(f"functionalize: Tensor.{target} is not built without writing; leave it out")
            # Methods that write are operators of the same name. Those that only read stand for themselves.
            operator_ = self._overload(target, node.args, node.kwargs) if target.endswith("_") else None
            return self._fresh(node) if operator_ is None else self._written(node, operator_, node.args, node.kwargs)
        if target is operator.getitem:
            return self._taken(node)
        if isinstance(target, Primitive):
            if target.inplace or target.out:
                return self._written_primitive(node, target)
            return self._view(node) if target.op.kind == "view" else self._fresh(node)
        if isinstance(target, _ops.OpOverload):
            schema = target._schema
            if target._opname == "batch_norm" and all(isinstance(x, Node) for x in node.args[3:5]) and not node.kwargs:
                return self._batch_norm(node)
            if Tag.inplace_view in target.tags and target._opname not in _OUT_OF_REACH:
                return self._turned(node, target)
            if any(a.is_write for a in schema.arguments):
                return self._written(node, target, node.args, node.kwargs)
            if any(r.alias_info is not None for r in schema.returns) and isinstance(node.args[0], Node):
                return self._view(node)
        return self._fresh(node)

    def _fresh(self, node: Node) -> Any:
        args, kwargs = self._argument(node.args), self._argument(node.kwargs)
        assert node.op in ("call_function", "call_method"), node.op
        made = self._emit(node.op, node.target, args, kwargs)
        made.meta.update({k: v for k, v in node.meta.items() if k not in ("tensor_meta", "val")})
        return self._new(made)

    def _new(self, node: Node) -> Any:
        return _Place(_Memory(node), (), node) if isinstance(self.values[node], Tensor) else node

    def _view(self, node: Node) -> Any:
        source = self.env[node.args[0]]  # type: ignore[index]  # views have their source first
        step = _Step(node.target, self._argument(node.args[1:]), self._argument(node.kwargs))
        if any(r.type.kind == "List" for r in getattr(node.target, "_schema", _NO_SCHEMA).returns):
            return _Parts(source, step)
        made = _Place(source.memory, (*source.steps, step))
        # Views of what is up to date are made where the program makes them, as it may be the only time that is needed.
        made.node, made.at = self._viewed(step, self._current(source)), source.memory.writes
        return made

    def _taken(self, node: Node) -> Any:
        source, index = self.env[node.args[0]], node.args[1]  # type: ignore[index]
        if isinstance(source, _Parts):
            step = _Step(source.step.target, source.step.args, source.step.kwargs, index)  # type: ignore[arg-type]
            return _Place(source.source.memory, (*source.source.steps, step))
        if isinstance(source, (list, tuple)):          # places that an operator has written to
            return source[index]  # type: ignore[index]
        return self._new(self._emit("call_function", operator.getitem, (source, index), {}))

    def _turned(self, node: Node, target: Any) -> Any:
        """A tensor that looks elsewhere from now on, under all its names."""
        place = self.env[node.args[0]]  # type: ignore[index]
        step = _Step(_functional(target), self._argument(node.args[1:]), self._argument(node.kwargs))
        place.node, place.at = self._viewed(step, self._current(place)), place.memory.writes
        place.steps = (*place.steps, step)
        return place

    # -- writes

    def _written(self, node: Node, target: Any, args: Any, kwargs: Any) -> Any:
        arguments = target._schema.arguments
        given = dict(zip([a.name for a in arguments if not a.kwarg_only], args, strict=False)) | dict(kwargs)
        outs = [self.env[given[a.name]] for a in arguments if a.is_write and isinstance(given.get(a.name), Node)]
        if len(outs) != sum(a.is_write for a in arguments):
            raise NotImplementedError(f"functionalize: {target} writes to several tensors in a list, which is not built without writing")
        functional = _functional(target)
        args = _with_defaults_of(target, functional, args, kwargs)
        if target._opname.endswith("_"):
            new = self._emit("call_function", functional, self._argument(args), self._argument(kwargs))
        else:
            names = {a.name for a in arguments if a.is_write}
            read = {k: v for k, v in kwargs.items() if k not in names}
            new = self._emit("call_function", functional, self._argument(args), self._argument(read))
        return self._store(node, outs, new)

    def _batch_norm(self, node: Node) -> Any:
        """A batch normalization, which in training writes to its running statistics, though its schema does not say so."""
        input, weight, bias, mean, var, training, *numbers, _ = self._argument(node.args)
        if not training:
            target = _operator("_native_batch_norm_legit_no_training", "default")
            new = self._emit("call_function", target, (input, weight, bias, mean, var, *numbers), {})
            return self._new(self._emit("call_function", operator.getitem, (new, 0), {}))
        target = _operator("_native_batch_norm_legit_functional", "default")
        new = self._emit("call_function", target, (input, weight, bias, mean, var, True, *numbers), {})
        made = self._new(self._emit("call_function", operator.getitem, (new, 0), {}))
        for part, running in ((3, node.args[3]), (4, node.args[4])):
            self._write(node, self.env[running], self._emit("call_function", operator.getitem, (new, part), {}))  # type: ignore[index]
        return made

    def _written_primitive(self, node: Node, target: Primitive) -> Any:
        functional = overload_of(target.op, False, False)
        kwargs = {k: v for k, v in node.kwargs.items() if k != "out"}
        out = node.kwargs.get("out") if target.out else node.args[0]
        outs = [self.env[n] for n in (out if isinstance(out, (list, tuple)) else [out])]  # type: ignore[index]
        return self._store(node, outs, self._emit("call_function", functional, self._argument(node.args), self._argument(kwargs)))

    def _store(self, node: Node, outs: list[_Place], new: Node) -> Any:
        if len(outs) == 1:
            self._write(node, outs[0], new)
            return outs[0]
        for i, place in enumerate(outs):
            self._write(node, place, self._emit("call_function", operator.getitem, (new, i), {}))
        return outs

    def _write(self, node: Node, place: _Place, new: Node) -> None:
        old, value = self.values[self._current(place)], self.values[new]
        if value.dtype != old.dtype:
            new = self._emit("call_function", _operator("_to_copy", "default"), (new,), {"dtype": old.dtype})
        if value.shape != old.shape and place.steps:
            raise NotImplementedError(f"functionalize: {node.target} gives its out, a view, another shape; give an out of that shape")
        sources = self._sources(place)[:-1]
        for step, source in zip(reversed(place.steps), reversed(sources), strict=True):
            new = self._inverse(step, source, new)
        place.memory.node = new
        place.memory.writes += 1

    def _inverse(self, step: _Step, source: Node, new: Node) -> Node:
        """The value of `source` once the view `step` of it has the value `new`."""
        if isinstance(step.target, Primitive):
            found = self._undone(step.target.op, step, source, new)
        elif step.index is not None:
            found = self._undone_part(step, source, new)
        else:
            ops = _aten.ops_of(step.target._opname) or [_aten.op_named(step.target._opname)]
            found = next((known for op in ops if op is not None and (known := self._undone(op, step, source, new)) is not None), None)
        if found is None:
            raise NotImplementedError(
                f"functionalize: a write through the view {step.target} is not built; write to its source, or to a copy"
            )
        return found.node

    def _undone(self, op: Any, step: _Step, source: Node, new: Node) -> _Known | None:
        """What the declaration of `op` says; None if it says nothing."""
        if op.undo_rule is None:
            return None
        parameters = step.target._schema.arguments[1:]
        given = dict(zip([a.name for a in parameters], step.args, strict=False)) | step.kwargs
        return op.undo_rule(_Known(self, new), _Known(self, source), *[given.get(a.name, a.default_value) for a in parameters])

    def _undone_part(self, step: _Step, source: Node, new: Node) -> _Known:
        index = step.index or 0
        names = [a.name for a in step.target._schema.arguments]
        given = dict(zip(names[1:], step.args, strict=False)) | step.kwargs
        dim = given.get("dim", 0)
        value, whole = self.values[source], _Known(self, source)
        parts = step.target(value, *step.args, **step.kwargs)
        if parts[index].ndim < value.ndim:
            return whole.select_scatter(_Known(self, new), dim, index)
        start = sum(p.shape[dim] for p in parts[:index])
        return whole.slice_scatter(_Known(self, new), dim, start, start + parts[index].shape[dim])

    def _overload(self, name: str, args: Any, kwargs: Any) -> Any:
        """The operator `name` that takes such arguments; None if there is none."""

        def valued(node: Node) -> Any:
            found = self.env.get(node, node)              # of the old graph or of the new one
            return self.values[self._current(found) if isinstance(found, _Place) else found]

        args, kwargs = map_arg((tuple(args), dict(kwargs)), valued)  # type: ignore[arg-type]
        packet = getattr(_ops.ops.aten, name, None)
        for overload in () if packet is None else packet.overloads():
            names = [a.name for a in getattr(packet, overload)._schema.arguments if not a.kwarg_only]
            call = _aten.call_of(name, dict(zip(names, args, strict=False)) | kwargs) if len(args) <= len(names) else None
            if call is not None:
                return call.overload
        return None


class _Known:
    """A node of the new graph as a tensor: its operators make nodes, and what it says of itself is said of the node's value."""

    def __init__(self, owner: _Functional, node: Node) -> None:
        self._owner, self.node = owner, node
        value = owner.values[node]
        self.shape, self.ndim, self.dtype = value.shape, value.ndim, value.dtype
        self.dim, self.numel, self.is_contiguous = value.dim, value.numel, value.is_contiguous

    def __getattr__(self, name: str) -> Any:
        def called(*args: Any, **kwargs: Any) -> _Known:
            owner = self._owner
            nodes = [a.node if isinstance(a, _Known) else a for a in args]
            target = owner._overload(name, (self.node, *nodes), kwargs)
            if target is None:
                raise NotImplementedError(f"functionalize: no operator {name} takes {args}")
            given, named = target._schema.without_defaults((self.node, *nodes), kwargs)
            return _Known(owner, owner._emit("call_function", _copying(target) if owner.views else target, given, named))

        return called

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return getattr(args[0], func.__name__)(*args[1:], **(kwargs or {}))


def _no_new_sizes(args: Any, kwargs: Any) -> contextlib.AbstractContextManager[None]:
    """A region whose sizes that values decide nothing is to show."""
    leaves = pytree.tree_leaves((args, kwargs))
    found = (x.fake_mode.shape_env for x in leaves if hasattr(x, "fake_mode") and x.fake_mode.shape_env is not None)
    env = next(found, None)
    return contextlib.nullcontext() if env is None else env.ignore_fresh_unbacked_symbols()


class _NO_SCHEMA:
    returns: tuple[Any, ...] = ()


def _attribute(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner


def _operator(name: str, overload: str) -> Any:
    return getattr(getattr(_ops.ops.aten, name), overload)


def _functional(target: Any) -> Any:
    """The operator that gives what `target` writes. Raises: NotImplementedError if there is none."""
    space, name = getattr(_ops.ops, target.namespace), target._opname
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments if not a.is_out]
    names = [name[:-1], f"{name[:-1]}_functional"] if name.endswith("_") else [name]
    for found in [getattr(space, n) for n in names if hasattr(space, n)]:
        for overload in found.overloads():
            candidate = getattr(found, overload)
            arguments = candidate._schema.arguments
            if not any(a.is_write for a in arguments) and [(a.name, str(a.type)) for a in arguments] == wanted:
                return candidate
    raise NotImplementedError(f"functionalize: {target} has no operator that gives its result without writing")


def _with_defaults_of(target: Any, functional: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """`args` of a call of `target`, with those of its defaults that `functional` has none for: the probability of `bernoulli_`."""
    defaults = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
    made = [*args]
    for a in functional._schema.arguments[len(made) :]:
        if a.kwarg_only or a.has_default_value() or a.name in kwargs or a.name not in defaults:
            break
        made.append(defaults[a.name])
    return tuple(made)


def _copying(target: Any) -> Any:
    """The operator that copies what the view `target` shows."""
    name = f"{getattr(target, '_opname', '')}_copy"
    if isinstance(target, _ops.OpOverload) and name in _copies() and target._overloadname in getattr(_ops.ops.aten, name).overloads():
        return getattr(getattr(_ops.ops.aten, name), target._overloadname)
    return target


def _copies() -> set[str]:
    return {name for name in dir(_ops.ops.aten) if name.endswith("_copy")}
