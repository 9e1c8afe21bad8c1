"""Splitting a GraphModule into what a backend runs and what it does not: the base of backends' splitters."""

from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...nn import Module
from ...tensor import Tensor
from ...utils import _pytree as pytree
from ..graph_module import GraphModule
from ..node import Node, map_arg
from .operator_support import OperatorSupportBase
from .shape_prop import ShapeProp
from .split_utils import split_by_tags
from .tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    NodeList,
    NodeSet,
    get_node_target,
    is_node_output_tensor,
)

__all__ = [
    "FxNetAccNodesFinder", "FxNetSplitterInternalError", "NodeEvent", "NodeEventTracker", "SplitResult", "Subgraph",
    "generate_inputs_for_submodules",
]  # fmt: skip


class _SplitterSettingBase:
    """What a splitter is told. Options of the program's command line, such as ``--min-acc-module-size 3``, come first.

    Args:
        min_acc_module_size: parts of the backend with fewer nodes go to the rest.
        skip_fusion: split also between nodes that hand on something else than tensors.
        allow_non_tensor: the backend may take and give something else than tensors.
        max_acc_splits: how many parts the backend may get; -1 for any number.
        move_non_tensor_nodes_on_boundary: what gives no tensor, and is used by the next part alone, goes there.
    """

    def __init__(
        self,
        min_acc_module_size: int = 1,
        skip_fusion: bool = False,
        allow_non_tensor: bool = False,
        max_acc_splits: int = -1,
        move_non_tensor_nodes_on_boundary: bool = False,
    ) -> None:
        given = _command_line()
        size = given.min_acc_module_size
        self.min_acc_module_size = min_acc_module_size if size is None else size
        self.skip_fusion = skip_fusion or given.skip_fusion
        self.allow_non_tensor = allow_non_tensor or given.allow_non_tensor
        self.max_acc_splits = max_acc_splits
        self.move_non_tensor_nodes_on_boundary = move_non_tensor_nodes_on_boundary or given.move_non_tensor_nodes_on_boundary


def _command_line() -> Any:
    import argparse

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--min-acc-module-size", "--min_acc_module_size", type=int)
    for name in ("skip-fusion", "allow-non-tensor", "move-non-tensor-nodes-on-boundary"):
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", action="store_true")
    return parser.parse_known_args()[0]


class NodeEvent:
    """Something that was decided about a node, because of another one (`dep`) or not."""

    def __init__(self, source: Node, desc: str, dep: Node | None = None) -> None:
        self.source, self.desc, self.dep = source, desc, dep

    def to_str(self) -> str:
        """One line: the node, what was decided, and the other node, or ``#``."""
        return f"{self.source.name}: {self.desc} {'#' if self.dep is None else self.dep.name}"


class NodeEventTracker:
    """All decisions of a search, by node.

    Args:
        tracker_mode: a number, for the program's own use.
        dump_prefix: path that the names of `dump`'s file begin with.
    """

    def __init__(self, tracker_mode: int, dump_prefix: str) -> None:
        self.tracker_mode, self.dump_prefix = tracker_mode, dump_prefix
        self.events: list[NodeEvent] = []
        self.node_events: dict[str, list[int]] = {}
        self.writer: Callable[[str], object] = print

    def add(self, node: Node, desc: str, dep: Node | None = None) -> None:
        """Note that `desc` was decided about `node`."""
        self.node_events.setdefault(node.name, []).append(len(self.events))
        self.events.append(NodeEvent(node, desc, dep))

    def print_node(
        self, node_name: str, recursive: bool = False, tab: str = "", writer: Callable[[str], object] | None = None
    ) -> None:
        """Write what was decided about a node; with `recursive`, also about the nodes it was decided for."""
        write = writer or self.writer
        for i in self.node_events.get(node_name, ()):
            event = self.events[i]
            write(tab + event.to_str())
            if recursive and event.dep is not None:
                self.print_node(event.dep.name, True, f"| {tab}", writer)

    def to_dict(self) -> dict[str, list[str]]:
        """The lines of each node."""
        return {name: [self.events[i].to_str() for i in places] for name, places in self.node_events.items()}

    def print_all(self, writer: Callable[[str], object] | None = None) -> None:
        """Write what was decided about all nodes."""
        write = writer or self.writer
        for name in self.node_events:
            write(f"Node: {name}:")
            self.print_node(name, False, "  ", writer)

    def dump(self) -> None:
        """Write what was decided about all nodes to the file ``<dump_prefix>_all.txt``."""
        with open(f"{self.dump_prefix}_all.txt", "w", encoding="utf-8") as file:
            self.print_all(lambda line: file.write(f"{line}\n"))


class FxNetAccNodesFinder:
    """Finds the nodes that a backend runs. Calling it gives their set.

    Args:
        module: after `ShapeProp`.
        operator_support: says which nodes the backend supports.
        allow_non_tensor: else nodes that would take something else than tensors from the rest, or give it to the rest, belong there.
    """

    def __init__(self, module: GraphModule, operator_support: OperatorSupportBase, allow_non_tensor: bool) -> None:
        self.module, self.operator_support, self.allow_non_tensor = module, operator_support, allow_non_tensor
        self.acc_nodes: NodeSet = set()
        self.tracker = NodeEventTracker(0, "")

    def reduce_acc_nodes_non_tensor_input_helper(self, cpu_worklist: NodeList) -> None:
        """Give the rest what takes something else than tensors from `cpu_worklist`, and what follows from it."""
        waiting = list(cpu_worklist)
        while waiting:
            node = waiting.pop(0)
            for user in node.users:
                if user in self.acc_nodes:
                    self.acc_nodes.discard(user)
                    self.tracker.add(user, "acc_del|non_tensor_input_from_cpu", node)
                    if not is_node_output_tensor(user):
                        waiting.append(user)

    def reduce_acc_nodes_non_tensor_input(self) -> None:
        """Give the rest what takes something else than tensors from it."""
        self.reduce_acc_nodes_non_tensor_input_helper(
            [
                node
                for node in self.module.graph.nodes
                if node.op in CALLABLE_NODE_OPS and node not in self.acc_nodes and not is_node_output_tensor(node)
            ]
        )

    def reduce_acc_nodes_non_tensor_output(self) -> None:
        """Give the rest what gives it something else than tensors, until nothing of the kind is left."""
        while True:
            given: NodeList = []
            for node in self.module.graph.nodes:
                if node in self.acc_nodes and not is_node_output_tensor(node):
                    outside = next((user for user in node.users if user not in self.acc_nodes), None)
                    if outside is not None:
                        given.append(node)
                        self.tracker.add(node, "acc_del|non_tensor_output_to_cpu", outside)
            if not given:
                return
            self.acc_nodes -= set(given)
            self.reduce_acc_nodes_non_tensor_input_helper(given)

    def __call__(self) -> NodeSet:
        submodules = dict(self.module.named_modules())
        for node in self.module.graph.nodes:
            if node.op in CALLABLE_NODE_OPS and self.operator_support.is_node_supported(submodules, node):
                self.acc_nodes.add(node)
                self.tracker.add(node, "init_acc|callable_and_operator_supported")
        if not self.allow_non_tensor:
            self.reduce_acc_nodes_non_tensor_input()
            self.reduce_acc_nodes_non_tensor_output()
        return self.acc_nodes


class FxNetSplitterInternalError(Exception):
    """A graph could not be split."""


@dataclass
class Subgraph:
    """Nodes of one part; `is_acc` says whether the backend runs it."""

    is_acc: bool
    nodes: NodeList
    device_ordinal: int | None = None


class SplitResult(NamedTuple):
    """What a splitter gives: the module, the inputs of each of its submodules, and how names begin of those of the rest."""

    split_module: GraphModule
    submodule_inputs: dict[str, Any]
    non_acc_submodule_prefix: str


def generate_inputs_for_submodules(
    model: Module, inputs: Sequence[Any], target_submodules: Iterable[str], deepcopy: bool = False
) -> dict[str, Any]:
    """What submodules receive when `model` runs on `inputs`.

    Args:
        target_submodules: their paths; those that `model` does not have or not call are left out.
        deepcopy: give copies, for a model that writes into what it passes on.
    """
    wanted, received, handles = set(target_submodules), {}, []

    def note(name: str) -> Callable[[Module, Any], None]:
        def hook(module: Module, given: Any) -> None:
            received[name] = copy.deepcopy(given) if deepcopy else given

        return hook

    for name, module in model.named_modules():
        if name in wanted:
            handles.append(module.register_forward_pre_hook(note(name)))
    try:
        model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return received


class _SplitterBase:
    """Splits a GraphModule into submodules for a backend (``_run_on_acc_0``) and for the rest (``_run_on_cpu_1``), in turn.

    A backend's splitter derives from it, and says how a part is lowered (`_lower_model_to_backend`) and what hinders it
    (`_find_culprit`), both for `split_preview`.

    Args:
        module: its nodes get a `tag` and what `ShapeProp` finds.
        sample_input: inputs of `module`.
        operator_support: says which nodes the backend supports.
        settings: see `_SplitterSettingBase`.
        non_acc_submodule_name: how names of the rest's submodules begin.
        return_tuple: submodules return a tuple of a single result too.
        nodes_finder: finds the nodes of the backend, instead of `FxNetAccNodesFinder`.
    """

    PCIe_BW = 100 * 2**30                              # bytes a second, for the bound that `split_preview` states

    def __init__(
        self,
        module: GraphModule,
        sample_input: Sequence[Any],
        operator_support: OperatorSupportBase,
        settings: _SplitterSettingBase,
        non_acc_submodule_name: str = "_run_on_cpu_",
        return_tuple: bool = False,
        nodes_finder: FxNetAccNodesFinder | None = None,
    ) -> None:
        if not isinstance(module, GraphModule):
            raise AssertionError(f"splitter: module must be a GraphModule, got {type(module).__name__}")
        ShapeProp(module).propagate(*sample_input)
        self.module, self.sample_input, self.operator_support, self.settings = module, sample_input, operator_support, settings
        self.non_acc_submodule_name, self._return_tuple = non_acc_submodule_name, return_tuple
        self.acc_nodes = (nodes_finder or FxNetAccNodesFinder(module, operator_support, settings.allow_non_tensor))()
        self.fusions = {} if settings.skip_fusion else FxNetAccFusionsFinder(module, self.acc_nodes)()
        self.deps = self.find_deps()
        self.update_deps_for_fusions()
        self.tags: list[str] = []
        self._node_submodule_map: dict[str, str] = {}

    def _called(self) -> Iterator[Node]:
        return (node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS)

    def get_node_submodule_map(self) -> dict[str, str]:
        """Name of the submodule of each node, by the node's name."""
        return self._node_submodule_map

    # -- what depends on what --------------------------------------------------------------------------------------------

    def find_deps(self) -> dict[Node, NodeSet]:
        """The nodes that call something of which each node takes the values."""
        deps: dict[Node, NodeSet] = defaultdict(set)
        for node in self._called():
            for used in node.all_input_nodes:
                if used.op in CALLABLE_NODE_OPS:
                    deps[node].add(used)
        return deps

    def update_deps_for_fusions(self) -> None:
        """Let each node of a fusion depend on what the others depend on, so that all are ready at the same time."""
        self._merge_overlapping_fusions()
        for node, group in self.fusions.items():
            for member in group:
                self.deps[node].update(self.deps[member] - group)

    def _merge_overlapping_fusions(self) -> None:
        for node in list(self.fusions):
            group = self.fusions[node]
            for member in list(group):
                other = self.fusions.get(member, group)
                if other is not group:
                    group |= other
                    for moved in other:
                        self.fusions[moved] = group
            self.fusions[node] = group

    def find_reverse_deps(self, tag_id: int | None = None) -> dict[Node, NodeSet]:
        """The nodes that take the value of each node; with `tag_id`, those in parts of a lower number alone."""
        users: dict[Node, NodeSet] = defaultdict(set)
        for node in self._called():
            for user in node.users:
                if user.op in CALLABLE_NODE_OPS and (tag_id is None or self._number_of(user) < tag_id):
                    users[node].add(user)
        return users

    def _number_of(self, node: Node) -> int:
        return int(_tag_of(node).rpartition("_")[2])

    def update_reverse_deps_for_fusions(self, deps: dict[Node, NodeSet]) -> None:
        """Let what takes the value of one node of a fusion take that of all of them."""
        for node, group in self.fusions.items():
            for member in group:
                deps[node].update(deps[member] - group)

    def find_parent_nodes_of_subgraph(self, tag: str) -> NodeSet:
        """The nodes outside the part `tag` of which it takes values."""
        return {
            used
            for node in self._called()
            if _tag_of(node) == tag
            for used in node.all_input_nodes
            if used.op in CALLABLE_NODE_OPS and _tag_of(used) != tag
        }

    def extend_acc_subgraph(self, tag: str) -> None:
        """Move nodes of the backend into the part `tag` that nothing before it uses, going back from its inputs."""
        users = self.find_reverse_deps(tag_id=int(tag.rpartition("_")[2]))
        self.update_reverse_deps_for_fusions(users)
        waiting = [self.fusions.get(node, {node}) for node in self.find_parent_nodes_of_subgraph(tag)]
        while waiting:
            group = waiting.pop()
            inside = all(node in self.acc_nodes and all(_tag_of(u) == tag for u in users[node] - group) for node in group)
            if not inside or all(_tag_of(node) == tag for node in group):
                continue
            for node in group:
                node.tag = tag  # type: ignore[attr-defined]
                self._node_submodule_map[node.name] = tag
            waiting.extend(self.fusions.get(node, {node}) for node in self.find_parent_nodes_of_subgraph(tag))

    # -- parts -----------------------------------------------------------------------------------------------------------

    def starter_nodes(self) -> tuple[NodeSet, NodeSet]:
        """The nodes that depend on no others: of the rest, and of the backend."""
        ready = {node for node in self._called() if not self.deps[node]}
        return ready - self.acc_nodes, ready & self.acc_nodes

    def put_nodes_into_subgraphs(self) -> list[Subgraph]:
        """The parts, in turn for the rest and for the backend; each has all nodes that are ready by then.

        Raises: FxNetSplitterInternalError if nodes depend on each other in a circle.
        """
        left, done = list(self._called()), set()
        place = {node: i for i, node in enumerate(left)}
        is_acc = not self.starter_nodes()[0]
        parts: list[Subgraph] = []
        while left:
            taken: NodeList = []
            ready = True
            while ready:
                ready = [n for n in left if (n in self.acc_nodes) == is_acc and self.deps[n] <= done]
                for node in ready:
                    left.remove(node)
                done.update(ready)
                taken += ready
            if not taken:
                raise FxNetSplitterInternalError(f"Subgraph can't be empty: none of {left} is ready")
            parts.append(Subgraph(is_acc, sorted(taken, key=place.__getitem__)))
            is_acc = not is_acc
        return parts

    def remove_small_acc_subgraphs(self, subgraphs: list[Subgraph]) -> list[Subgraph]:
        """Give the rest those parts of the backend that have fewer nodes than the settings ask for."""
        kept: list[Subgraph] = []
        for part in subgraphs:
            size = len(part.nodes)
            if part.is_acc and size < self.settings.min_acc_module_size:
                print(f"Eliminating acc subgraph because it's smaller than the threshold: {size} < {self.settings.min_acc_module_size}")
                part = Subgraph(False, part.nodes)
            if kept and not part.is_acc and not kept[-1].is_acc:
                kept[-1].nodes.extend(part.nodes)
            else:
                kept.append(Subgraph(part.is_acc, list(part.nodes), part.device_ordinal))
        return kept

    def _move_non_tensor_nodes(self, subgraphs: list[Subgraph]) -> list[Subgraph]:
        """Give the next part what is no tensor and is not used before it."""
        moved = [Subgraph(part.is_acc, list(part.nodes), part.device_ordinal) for part in subgraphs]
        for part, following in itertools.pairwise(moved):
            if not part.is_acc:
                continue
            for node in reversed(list(part.nodes)):
                users = set(node.users)
                if not is_node_output_tensor(node) and users & set(following.nodes) and not users & set(part.nodes):
                    part.nodes.remove(node)
                    following.nodes.insert(0, node)
        return self.remove_small_acc_subgraphs([part for part in moved if part.nodes])

    def tag(self, subgraphs: list[Subgraph]) -> None:
        """Give the nodes of each part its name, as their `tag`.

        Raises: FxNetSplitterInternalError for nodes that have a tag.
        """
        self.tags = []
        for part in subgraphs:
            tag = f"{'_run_on_acc_' if part.is_acc else self.non_acc_submodule_name}{len(self.tags)}"
            self.tags.append(tag)
            for node in part.nodes:
                if hasattr(node, "tag"):
                    raise FxNetSplitterInternalError(f"Node {node} was already tagged")
                node.tag = tag  # type: ignore[attr-defined]
                self._node_submodule_map[node.name] = tag

    def split(self, remove_tag: bool = False) -> GraphModule:
        """The module in parts, by the tags that its nodes have; `remove_tag` takes these away."""
        made = split_by_tags(self.module, self.tags, return_tuple=self._return_tuple)
        if remove_tag:
            for node in self.module.graph.nodes:
                if hasattr(node, "tag"):
                    del node.tag  # type: ignore[attr-defined]
        return made

    def _parts(self) -> tuple[list[Subgraph], list[Subgraph]]:
        """All parts, and those that are left after small ones are gone."""
        found = self.put_nodes_into_subgraphs()
        left = self.remove_small_acc_subgraphs(found)
        if self.settings.move_non_tensor_nodes_on_boundary:
            left = self._move_non_tensor_nodes(left)
        return found, left

    def __call__(self) -> GraphModule:
        """The module in parts; its nodes are tagged.

        Raises: ValueError if the backend would get more parts than the settings allow.
        """
        _, parts = self._parts()
        number = sum(part.is_acc for part in parts)
        print(f"Got {number} acc subgraphs and {len(parts) - number} non-acc subgraphs")
        if 0 < self.settings.max_acc_splits < number:
            raise ValueError(
                f"Cannot fulfill max_acc_splits limit. The backend would get {number} parts, max_acc_splits is "
                f"{self.settings.max_acc_splits}; let it support more operators, or raise min_acc_module_size."
            )
        self.tag(parts)
        return self.split()

    def generate_split_results(self) -> SplitResult:
        """As a call of the splitter, with the inputs of each part for the sample."""
        made = self()
        inputs = generate_inputs_for_submodules(made, self.sample_input, [name for name, _ in made.named_children()])
        return SplitResult(made, inputs, self.non_acc_submodule_name)

    # -- what would become of a module -----------------------------------------------------------------------------------

    def _lower_model_to_backend(self, mod: GraphModule, inputs: Any) -> Module:
        """A module that runs `mod` on the backend; here `mod` itself."""
        return mod

    def _find_culprit(self, mod: GraphModule, inputs: Any) -> str:
        """What hinders that `mod` is lowered, as text."""
        return "Unable to find a culprit because _find_culprit() function is not implemented."

    def _draw_graph_based_on_node_support(self, mod: GraphModule, supported_nodes: NodeList) -> None:
        """Write the graph as ``node_support.dot``, supported nodes in another colour."""
        from .graph_drawer import FxGraphDrawer

        class Drawer(FxGraphDrawer):
            def _color(self, gm: GraphModule, node: Node) -> str:
                return "PaleGreen" if node in supported_nodes else "LightGray"

        Drawer(mod, "node_support", ignore_getattr=True).get_dot_graph().write_raw("node_support.dot")

    def node_support_preview(self, dump_graph: bool = False) -> str:
        """Prints, and gives, which kinds of nodes the backend supports, with the dtypes of their operands.

        Args:
            dump_graph: also write the graph to ``node_support.dot``.
        """
        submodules = dict(self.module.named_modules())
        supported: list[Node] = []
        kinds: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
        for node in self._called():
            answer = self.operator_support.is_node_supported(submodules, node)
            if answer:
                supported.append(node)
            kind = str(_dtypes_of(node))
            listed = kinds[answer].setdefault(get_node_target(submodules, node), [])
            if kind not in listed:
                listed.append(kind)
        if dump_graph:
            self._draw_graph_based_on_node_support(self.module, supported)
        text = ""
        for title, answer in (("Supported", True), ("Unsupported", False)):
            text += f"\n{title} node types in the model:\n"
            text += "".join(f"{target}: {kind}\n" for target, listed in kinds[answer].items() for kind in listed)
        print(text)
        return text

    def split_preview(self, dump_graph: bool = False) -> str:
        """Prints, and gives, how the module would be split, and whether each part of the backend can be lowered and runs.

        Args:
            dump_graph: also write the split module to ``preview.dot``.
        """
        found, parts = self._parts()
        text = ""
        for when, listed in (("Before", found), ("After", parts)):
            number = sum(part.is_acc for part in listed)
            text += (
                f"{when} removing small acc subgraphs, total {len(listed)} subgraphs are created: {number} acc subgraphs and "
                f"{len(listed) - number} cpu subgraphs.\n"
            )
        self.tag(parts)
        made = self.split(remove_tag=True)
        if dump_graph:
            from .graph_drawer import FxGraphDrawer

            drawn = FxGraphDrawer(made, "split module").get_dot_graph()
            drawn.write_raw("preview.dot")
        for tag, part in zip(self.tags, parts, strict=True):
            text += f"{tag}: {len(part.nodes)} node(s)\n"
        text += "\n"
        slowest, bottleneck = float(self.PCIe_BW), ""
        inputs = generate_inputs_for_submodules(made, self.sample_input, self.tags)
        for tag, part in zip(self.tags, parts, strict=True):
            if not part.is_acc:
                continue
            report, bound = self._preview_of(tag, getattr(made, tag), inputs[tag])
            text += report
            if bound < slowest:
                slowest, bottleneck = bound, tag
        rate = slowest if bottleneck else self.PCIe_BW
        text += f"Theoretical max qps (bounds by PCIe bandwidth) for this model is {rate}, bottleneck is submodule {bottleneck}."
        print(text)
        return text

    def _preview_of(self, tag: str, part: GraphModule, inputs: Any) -> tuple[str, float]:
        text = f"Processing acc submodule {tag}\nChecking inputs...\n"
        sizes = [_bytes_of(value) for value in inputs]
        text += "Input size is not a tensor, this might cause problems during lowering!\n" * sizes.count(None)
        text += "Checking outputs...\n"
        results = [_bytes_of(value) for value in pytree.tree_leaves(part(*inputs))]
        text += "Output size is not a tensor, this might cause problems during lowering!\n" * results.count(None)
        taken, given = sum(size or 0 for size in sizes), sum(size or 0 for size in results)
        bound = self.PCIe_BW / max(taken, given, 1)
        text += (
            f"Total input size in bytes is {taken}, total output size in bytes is {given}, theoretical max qps (bounds by PCIe "
            f"bandwidth) for this submodule is {bound}.\n"
        )
        try:
            self._lower_model_to_backend(part, inputs)(*inputs)
        except RuntimeError:                           # what backends raise for what they cannot lower: reported, not hidden
            return f"{text}Run into an error during lowering!\n{self._find_culprit(part, inputs)}\n", bound
        return f"{text}Lowering and running succeed!\n\n", bound


def _tag_of(node: Node) -> str:
    return node.tag  # type: ignore[attr-defined]


def _bytes_of(value: Any) -> int | None:
    return value.numel() * value.element_size() if isinstance(value, Tensor) else None


def _dtypes_of(node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def dtype(arg: Any) -> Any:
        found: list[Any] = []
        map_arg(arg, lambda used: found.append(getattr(used.meta.get("tensor_meta"), "dtype", None)))
        return found[0] if found else None

    positional = tuple(d for d in map(dtype, node.args) if d is not None)
    return positional, {name: d for name, d in ((k, dtype(v)) for k, v in node.kwargs.items()) if d is not None}

