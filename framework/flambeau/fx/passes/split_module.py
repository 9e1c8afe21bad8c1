"""Splitting a GraphModule into submodules."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ...nn import Module
from ..graph import Graph
from ..graph_module import GraphModule, _find
from ..node import Node, map_arg

__all__ = ["Partition", "split_module", "split_module_simple"]


class Partition:
    """One submodule in the making."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.submod_name = f"submod_{name}"
        self.node_names: list[str] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.dependencies: dict[str, None] = {}
        self.dependents: dict[str, None] = {}
        self.graph = Graph()
        self.environment: dict[Node, Node] = {}
        self.targets: dict[str, Any] = {}

    def __repr__(self) -> str:
        return (
            f"name: {self.name},\n nodes: {self.node_names},\n inputs: {[n.name for n in self.inputs]},\n outputs: "
            f"{[n.name for n in self.outputs]},\n partitions depended on: {list(self.dependencies)},\n partition dependents: "
            f"{list(self.dependents)}"
        )


def split_module_simple(
    m: GraphModule, node_to_partition: dict[Node, int], *, partition_affix: str | None = None
) -> GraphModule:
    """`split_module` by a dict of node to number."""
    return split_module(m, m, node_to_partition.__getitem__, partition_affix=partition_affix)


def split_module(
    m: GraphModule,
    root_m: Module | None,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
) -> GraphModule:
    """A GraphModule that calls submodules ``submod_0``, ``submod_1`` ..., each with the nodes of one number.

    Args:
        m: is split; stays as it is.
        root_m: where modules, parameters and buffers are taken from; `m` if None.
        split_callback: the number, or name, of a node that calls something.
        qualname_map: receives for each name in the new module the name in `m`.
        keep_original_order: call submodules in the order in which their first nodes come.
        keep_original_node_name: nodes keep their names, which else are made anew.
        keep_original_input_name: inputs of submodules are called as the values outside; else ``arg_0``, ``arg_1`` ...
        partition_affix: goes into the names of submodules: ``submod_affix_0``.
    Raises: RuntimeError if two submodules would need each other.

    >>> gm = fb.fx.symbolic_trace(lambda x: fb.relu(fb.neg(x) + 1))
    >>> split = fb.fx.passes.split_module.split_module(gm, gm, lambda node: int(node.target is fb.relu))
    >>> print(split.code.strip())
    def forward(self, x):
        submod_0 = self.submod_0(x);  x = None
        submod_1 = self.submod_1(submod_0);  submod_0 = None
        return submod_1
    """
    splitter = _Splitter(m, m if root_m is None else root_m, split_callback, partition_affix)
    splitter.assign()
    order = splitter.order(bool(keep_original_order))
    return splitter.build(order, qualname_map, bool(keep_original_node_name), keep_original_input_name)


class _Splitter:
    def __init__(self, m: GraphModule, root: Module, callback: Callable[[Node], Any], affix: str | None) -> None:
        self.m, self.root, self.callback, self.affix = m, root, callback, affix
        self.partitions: dict[str, Partition] = {}
        self.partition_of: dict[Node, Partition] = {}

    def assign(self) -> None:
        """Ask for each node where it goes, and note what goes from one partition to another."""
        for node in self.m.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            name = str(self.callback(node))
            if self.affix is not None:
                name = f"{self.affix}_{name}"
            partition = self.partitions.setdefault(name, Partition(name))
            partition.node_names.append(node.name)
            self.partition_of[node] = partition
        for node in self.m.graph.nodes:
            for used in node.all_input_nodes:
                self._note(used, node)

    def _note(self, used: Node, user: Node) -> None:
        source, target = self.partition_of.get(used), self.partition_of.get(user)
        if source is target:
            return
        if source is not None:
            source.outputs.setdefault(used)
        if target is not None:
            target.inputs.setdefault(used)
        if source is not None and target is not None:
            target.dependencies.setdefault(source.name)
            source.dependents.setdefault(target.name)

    def order(self, keep: bool) -> list[Partition]:
        """The partitions, each after those that it depends on."""
        left, done = dict(self.partitions), []
        finished: set[str] = set()
        if keep:
            for name, partition in left.items():
                if not set(partition.dependencies) <= finished:
                    missing = [d for d in partition.dependencies if d not in finished]
                    raise RuntimeError(f"split_module: submodule {name} needs {missing}, which come after it in the original order")
                finished.add(name)
            return list(left.values())
        ready = [p for p in left.values() if not p.dependencies]
        while ready:
            partition = ready.pop()  # as PyTorch: of those that may come, the last that was found
            done.append(partition)
            finished.add(partition.name)
            for name in partition.dependents:
                below = left[name]
                if below not in done and below not in ready and set(below.dependencies) <= finished:
                    ready.append(below)
        if len(done) != len(left):
            raise RuntimeError("cycle exists between partitions!")
        return done

    def build(self, order: list[Partition], names: Any, keep_names: bool, keep_input_names: bool) -> GraphModule:
        for partition in order:
            self._make_inputs(partition, keep_input_names)
        for node in self.m.graph.nodes:
            if node in self.partition_of:
                self._copy(node, self.partition_of[node], names, keep_names)
        graph = Graph()
        env: dict[Node, Any] = {}
        attributes: dict[str, Any] = {}
        for node in self.m.graph.nodes:
            if node.op == "placeholder":
                default = () if not node.args else (node.args[0],)
                env[node] = graph.create_node("placeholder", node.target, default, type_expr=node.type)
                env[node].meta = node.meta.copy()
        for node in self.m.graph.nodes:
            if node.op == "get_attr":
                env[node] = graph.get_attr(node.target)
                env[node].meta = node.meta.copy()
                attributes[node.target] = _find(self.root, node.target)
        for partition in order:
            self._call(partition, graph, env, attributes)
        for node in self.m.graph.nodes:
            if node.op == "output":
                graph.output(map_arg(node.args[0], env.__getitem__)).meta = node.meta.copy()
        made = GraphModule(attributes, graph)
        made.meta = self.m.meta.copy()
        return made

    def _make_inputs(self, partition: Partition, keep_names: bool) -> None:
        for i, used in enumerate(partition.inputs):
            made = partition.graph.placeholder(used.name if keep_names else f"arg_{i}", type_expr=used.type)
            made.meta = used.meta.copy()
            partition.environment[used] = made

    def _copy(self, node: Node, partition: Partition, names: Any, keep_names: bool) -> None:
        environment = partition.environment
        args, kwargs = map_arg(node.args, environment.__getitem__), map_arg(node.kwargs, environment.__getitem__)
        target = node.target
        if node.op == "call_module":
            target = node.target.replace(".", "_")
            partition.targets[target] = _find(self.root, node.target)
            if names is not None:
                names[f"{partition.submod_name}.{target}"] = node.target
        made = partition.graph.create_node(
            node.op, target, args, dict(kwargs), node.name if keep_names else None, node.type
        )
        made.meta = node.meta.copy()
        environment[node] = made

    def _call(self, partition: Partition, graph: Graph, env: dict[Node, Any], attributes: dict[str, Any]) -> None:
        results = [partition.environment[n] for n in partition.outputs]
        if results:
            partition.graph.output(results[0] if len(results) == 1 else tuple(results))
        else:
            partition.graph.output(())
        attributes[partition.submod_name] = GraphModule(partition.targets, partition.graph)
        call = graph.call_module(partition.submod_name, tuple(env[n] for n in partition.inputs))
        for i, output in enumerate(partition.outputs):
            if len(partition.outputs) == 1:
                env[output] = call
            else:
                env[output] = graph.call_function(operator.getitem, (call, i))
