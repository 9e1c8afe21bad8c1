"""Cutting a graph of a function and its derivative in two: what the first part keeps for the second."""

from __future__ import annotations

import math
import operator
from typing import Any

from .._aten import costly_names, random_names
from ..compiler._cut import Flow
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.node import Node
from ..utils.checkpoint import CheckpointPolicy

__all__ = ["default_partition", "draw_graph", "min_cut_rematerialization_partition"]


def _parts(joint: GraphModule, count: int) -> tuple[list[Any], list[Any], list[Node]]:
    """The results of the function, its derivatives, and the nodes that what comes back from the results has no say in."""
    results = list(joint.graph.find_nodes(op="output")[0].args[0])
    later: set[Node] = set()
    first = []
    for node in joint.graph.nodes:
        if node.op == "placeholder" and _is_tangent(node) or any(n in later for n in node.all_input_nodes):
            later.add(node)
        elif node.op != "output":
            first.append(node)
    return results[:count], results[count:], first


def _is_tangent(node: Node) -> bool:
    return str(node.target).startswith("tangents")


def _extract(joint: GraphModule, inputs: list[Node], outputs: list[Any], writes: list[Node], name: str) -> GraphModule:
    """The part of `joint` that computes `outputs` of `inputs`, and makes these `writes`."""
    graph, env = Graph(), {}
    for node in inputs:
        env[node] = graph.placeholder(node.name)
        env[node].meta = dict(node.meta)
    wanted, stack = set(), [*writes, *[x for x in outputs if isinstance(x, Node)]]
    while stack:
        node = stack.pop()
        if node not in env and node not in wanted:
            wanted.add(node)
            stack.extend(node.all_input_nodes)
    for node in joint.graph.nodes:
        if node in wanted:
            if node.op == "placeholder":
                raise RuntimeError(f"partition: {name} needs the input {node.name}, which it is not given")
            env[node] = graph.node_copy(node, env.__getitem__)
    graph.output(tuple([env[x] if isinstance(x, Node) else x for x in outputs]))
    return GraphModule(joint, graph, name)


def _cut(joint: GraphModule, count: int, saved: list[Node]) -> tuple[GraphModule, GraphModule]:
    results, derivatives, first = _parts(joint, count)
    before = set(first)
    writes = [n for n in joint.graph.nodes if _writes(n)]
    inputs = [n for n in joint.graph.nodes if n.op == "placeholder"]
    forward = _extract(joint, [n for n in inputs if not _is_tangent(n)], [*results, *saved], [n for n in writes if n in before], "forward")
    given = [*saved, *[n for n in inputs if _is_tangent(n)]]
    backward = _extract(joint, given, derivatives, [n for n in writes if n not in before], "backward")
    return forward, backward


def _writes(node: Node) -> bool:
    return node.op == "call_function" and node.is_impure(impure_random=False)


def _lost(nodes: list[Node]) -> set[Node]:
    """The inputs that are written to after the function has run, and the views of them: their values are gone then."""
    found: set[Node] = set()
    for node in nodes:
        if "written" in node.meta or node.args and node.args[0] in found and _is_view(node):
            found.add(node)
    return found


def _is_view(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.target is operator.getitem or schema is not None and any(r.alias_info is not None for r in schema.returns)


def default_partition(
    joint_module: GraphModule, _joint_inputs: Any, *, num_fwd_outputs: int, static_lifetime_input_indices: Any = None,
    static_lifetime_input_nodes: Any = None,
) -> tuple[GraphModule, GraphModule]:  # fmt: skip
    """The graph of the function, which gives what its derivative uses of it as well, and the graph of the derivative.

    Where nodes are of a `checkpoint`, which is to be computed again, that is `min_cut_rematerialization_partition`.

    Args:
        joint_module: a graph with inputs ``primals_i`` and ``tangents_i``, the latter for derivatives of results, and results of both.
        _joint_inputs: values to run it on; not looked at.
        num_fwd_outputs: how many of its results are the function's.
        static_lifetime_input_indices, static_lifetime_input_nodes: taken for PyTorch's sake.
    """
    results, derivatives, first = _parts(joint_module, num_fwd_outputs)
    if any(map(_is_again, first)) and not any(map(_writes, first)):
        return min_cut_rematerialization_partition(joint_module, _joint_inputs, num_fwd_outputs=num_fwd_outputs)
    # What the results need not is computed for the derivative, even where it could be computed before. A function that writes is computed
    # whole, as what is read later may be another value, and so is what reads an input that is written to after the function has run.
    known = {n for n in first if n.op == "placeholder"}
    stack = list(first) if any(map(_writes, first)) else [x for x in results if isinstance(x, Node)]
    lost = _lost(first)
    stack += [n for n in first if any(x in lost for x in n.all_input_nodes)]
    while stack:
        node = stack.pop()
        if node not in known:
            known.add(node)
            stack.extend(node.all_input_nodes)
    # A result that is a tuple is kept by its parts, whoever reads them.
    known |= {n for n in first if n.target is operator.getitem and n.args[0] in known and _has_parts(n.args[0])}
    first = [n for n in first if n in known]
    saved = [
        n for n in first
        if n.op != "get_attr" and not _has_parts(n) and (n in derivatives or any(u not in known and u.op != "output" for u in n.users))
    ]  # fmt: skip
    return _cut(joint_module, num_fwd_outputs, saved)


def _is_again(node: Node) -> bool:
    """Whether a checkpoint wants the node computed again; random numbers are kept, as other ones would be drawn."""
    if node.meta.get("recompute") is not CheckpointPolicy.MUST_RECOMPUTE:
        return False
    made_by = node.args[0] if node.target is operator.getitem else node
    return _name(made_by) not in random_names()


def _is_inner(node: Node, known: set[Node]) -> bool:
    """Whether a checkpoint wants the node computed again, and the function reads it in that checkpoint alone."""
    readers = [user for user in node.users if user in known]
    return _is_again(node) and all(_is_again(user) and user.meta["ac_graph_id"] == node.meta["ac_graph_id"] for user in readers)


def _name(node: Node) -> str:
    return getattr(node.target, "_opname", getattr(node.target, "__name__", ""))


def _has_parts(node: Node) -> bool:
    return bool(node.users) and all(u.target is operator.getitem for u in node.users)


def min_cut_rematerialization_partition(
    joint_module: GraphModule, _joint_inputs: Any, compiler: str = "inductor", *, num_fwd_outputs: int,
    static_lifetime_input_indices: Any = None,
) -> tuple[GraphModule, GraphModule]:  # fmt: skip
    """As `default_partition`, but what is cheap to compute is computed again, where that keeps fewer bytes for the derivative.

    Args:
        joint_module: a graph with inputs ``primals_i`` and ``tangents_i``, and results of the function and its derivative.
        _joint_inputs: values to run it on; not looked at.
        compiler: taken for PyTorch's sake.
        num_fwd_outputs: how many of its results are the function's.
        static_lifetime_input_indices: taken for PyTorch's sake.

    Products, convolutions, orders and random numbers are not computed twice. What is kept is a cut of least weight, in bytes, between
    the inputs and what the derivative uses.
    """
    _, derivatives, first = _parts(joint_module, num_fwd_outputs)
    if any(map(_writes, first)):                      # what is computed again would write again, or read what has been written
        return default_partition(joint_module, _joint_inputs, num_fwd_outputs=num_fwd_outputs)
    known = set(first)
    lost = _lost(first)
    flow = Flow()
    for node in first:
        if node.op == "get_attr":
            continue
        # What is lost is not kept for the derivative, unless that reads it itself; nor what a checkpoint alone reads.
        is_gone = node in lost and all(user in known for user in node.users)
        is_kept = not is_gone and (any(n in lost for n in node.all_input_nodes) or not _is_inner(node, known))
        flow.add((node, 0), (node, 1), _bytes(node) if is_kept else math.inf)
        if node.op == "placeholder" or _name(node) in random_names() or _name(node) in costly_names() and not _is_again(node):
            flow.add("start", (node, 0), math.inf)
        for user in node.users:
            if user in known:
                flow.add((node, 1), (user, 0), math.inf)
            elif user.op != "output":
                flow.add((node, 1), "end", math.inf)
        if node in derivatives:
            flow.add((node, 1), "end", math.inf)
    near = flow.cut("start", "end")
    return _cut(joint_module, num_fwd_outputs, [n for n in first if (n, 0) in near and (n, 1) not in near])


def _bytes(node: Node) -> float:
    """What keeping the result takes; inputs are there anyway, and are preferred among equals. Tuples are kept by their parts."""
    value = node.meta.get("tensor_meta")
    if value is None or not hasattr(value, "shape"):
        return math.inf if _has_parts(node) else 1.0
    size = math.prod(value.shape) * value.dtype.itemsize + 1.0
    return size * 0.5 if node.op == "placeholder" else size


def draw_graph(traced: GraphModule, fname: str, figname: str = "fx_graph", clear_meta: bool = True, **_: Any) -> None:
    """Draw `traced` into the file `fname`, whose end says the format; SVG where it has none.

    Args:
        figname: the name of the picture.
        clear_meta: leave out what nodes are known to compute.
    """
    from ..fx.passes.graph_drawer import FxGraphDrawer

    if clear_meta:
        traced = GraphModule(traced, _without_meta(traced.graph))
    base, dot, end = fname.rpartition(".")
    picture = FxGraphDrawer(traced, figname).get_main_dot_graph()
    end = end if dot else "svg"
    picture.write(f"{base if dot else fname}.{end}", end)


def _without_meta(graph: Graph) -> Graph:
    copied, env = Graph(), {}
    for node in graph.nodes:
        env[node] = copied.node_copy(node, env.__getitem__)
        env[node].meta = {}
    return copied
