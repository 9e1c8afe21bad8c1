"""Groups of nodes that a backend can run, as large as they can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...graph_module import GraphModule
from ...node import Node
from ..operator_support import OperatorSupportBase
from ..tools_common import get_acc_ops_name as name_in_tables
from ..utils.fuser_utils import fuse_by_partitions

__all__ = ["CapabilityBasedPartitioner", "Partition"]


class Partition:
    """Nodes that go together."""

    def __init__(
        self, id: int | None = None, nodes: Iterable[Node] | None = None, node_orders: Iterable[int] | None = None
    ) -> None:
        self.id = id
        self.nodes: dict[Node, int | None] = {}
        given = list(nodes or ())
        orders: list[int | None] = list(node_orders) if node_orders is not None else [None] * len(given)
        self.nodes.update(zip(given, orders, strict=True))

    def __repr__(self) -> str:
        return str(list(self.nodes))

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Take `node` in."""
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        """Take `node` out."""
        del self.nodes[node]

    def size(self) -> int:
        """How many nodes it has."""
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Finds groups of nodes that are supported, without circles between them.

    Args:
        graph_module: whose nodes are grouped.
        operator_support: says which are supported.
        allows_single_node_partition: a group may be one node.
        non_compute_ops: names of functions that are no reason for a group of their own.
        allowed_single_node_partition_ops: names of functions that may be alone.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = non_compute_ops or []
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(dict(self.graph_module.named_modules()), node)

    def propose_partitions(self) -> list[Partition]:
        """The groups, those of later nodes first."""
        calls = [n for n in self.graph_module.graph.nodes if n.op in ("call_function", "call_method", "call_module", "get_attr")]
        partition_of: dict[Node, Partition] = {}
        made: list[Partition] = []
        for node in reversed(calls):
            if node.op == "get_attr" or not self._is_node_supported(node):
                continue
            own = Partition(len(made), [node])
            made.append(own)
            partition_of[node] = own
            for user in node.users:
                other = partition_of.get(user)
                if other is not None and other is not own and not _makes_circle(own, other, partition_of):
                    own = _merged(own, other, partition_of)
        found = [p for p in made if p.nodes]
        return [p for p in found if self.allows_single_node_partition or self._is_worth_it(p)]

    def _is_worth_it(self, partition: Partition) -> bool:
        computing = [n for n in partition.nodes if not _is_one_of(n, self.non_compute_ops)]
        if len(computing) > 1:
            return True
        return any(_is_one_of(n, self.allowed_single_node_partition_ops) for n in computing)

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Put each group into a submodule of the graph module."""
        return fuse_by_partitions(self.graph_module, [list(p.nodes) for p in partitions], prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Take out of the groups what computes nothing at their beginnings and ends."""
        for partition in partitions:
            changed = True
            while changed:
                changed = False
                for node in list(partition.nodes):
                    if not _is_one_of(node, self.non_compute_ops):
                        continue
                    begins = not any(n in partition.nodes for n in node.all_input_nodes)
                    ends = not any(n in partition.nodes for n in node.users)
                    if begins or ends:
                        partition.remove_node(node)
                        changed = True

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Find groups, and put each into a submodule."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)


def _is_one_of(node: Node, names: Sequence[str]) -> bool:
    return node.op == "call_function" and name_in_tables(node.target) in names


def _merged(own: Partition, other: Partition, partition_of: dict[Node, Partition]) -> Partition:
    """Both in the one that was made first."""
    keeps, goes = (own, other) if (own.id or 0) < (other.id or 0) else (other, own)
    for node in goes.nodes:
        keeps.add_node(node)
        partition_of[node] = keeps
    goes.nodes = {}
    return keeps


def _makes_circle(own: Partition, other: Partition, partition_of: dict[Node, Partition]) -> bool:
    """Whether a path would lead out of both together and back, groups being one node each."""
    inside: set[Any] = {*own.nodes, *other.nodes}
    reached: list[Node] = [user for node in inside for user in node.users if user not in inside]
    seen: set[Node] = set()
    while reached:
        node = reached.pop()
        if node in inside:
            return True
        if node in seen:
            continue
        group = partition_of.get(node)
        members = [node] if group is None else list(group.nodes)
        seen.update(members)
        for member in members:
            reached.extend(member.users)
    return False
