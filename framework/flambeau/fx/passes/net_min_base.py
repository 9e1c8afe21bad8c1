"""Finding the nodes of a graph that two ways of running it disagree about: the base of backends' minimizers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ..graph_module import GraphModule
from ..node import Node, map_arg
from .shape_prop import ShapeProp
from .split_utils import split_by_tags
from .splitter_base import generate_inputs_for_submodules
from .tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    Names,
    NodeList,
    NodeSet,
    TensorOrTensors,
    Tensors,
)

__all__ = ["FxNetMinimizerBadModuleError", "FxNetMinimizerResultMismatchError", "FxNetMinimizerRunFuncError"]


class FxNetMinimizerBadModuleError(Exception):
    """A part of the module cannot be made."""


class FxNetMinimizerRunFuncError(Exception):
    """One of both ways could not run a part."""


class FxNetMinimizerResultMismatchError(Exception):
    """Both ways gave different results."""


@dataclass
class _MinimizerSettingBase:
    """How a minimizer searches.

    Args:
        accumulate_error: the second way takes its own results as inputs of later parts, instead of those of the first way.
        traverse_method: ``sequential`` runs nodes one by one, ``binary`` halves, ``accumulate`` all nodes up to each,
            ``block`` finds the block that matters by halving from both ends, ``skip`` what is between nodes that are named,
            ``defined`` all nodes asked for at once.
        find_all: go on behind the first node found (``sequential`` and ``binary``).
        return_intermediate: for minimizers that derive from this one.
        all_outputs: compare all that a part gives to others, not what is looked at alone.
    """

    accumulate_error: bool = False
    traverse_method: str = "sequential"
    find_all: bool = False
    return_intermediate: bool = False
    all_outputs: bool = False

    def __str__(self) -> str:
        return "FX Minimizer Settings:\n" + "".join(f"\t{name}: {value}\n" for name, value in asdict(self).items())


class _MinimizerBase:
    """Runs parts of a module in two ways, `run_a` and `run_b`, and finds the nodes for which the results differ.

    Args:
        module: its nodes get tags.
        sample_input: inputs of `module`.
        compare_fn: of both results and the names of the nodes they are from: gives a number, and whether they agree.
        settings: see `_MinimizerSettingBase`.
        module_exporter: of inputs, part and name: called for each part about which both ways disagree.
        exclusion_fn: of a list of nodes, which it may shorten, and two places: called before nodes are run.
    """

    def __init__(
        self,
        module: GraphModule,
        sample_input: Tensors,
        compare_fn: Callable[[TensorOrTensors, TensorOrTensors, Names], tuple[float, bool]],
        settings: _MinimizerSettingBase,
        module_exporter: Callable[[Tensors, GraphModule, str], None] | None = None,
        exclusion_fn: Callable[[NodeList, int, int], None] | None = None,
    ) -> None:
        if not isinstance(module, GraphModule):
            raise AssertionError(f"minimizer: module must be a GraphModule, got {type(module).__name__}")
        self.module, self.sample_input, self.compare_fn, self.settings = module, sample_input, compare_fn, settings
        self.module_exporter, self.exclusion_fn = module_exporter, exclusion_fn
        self.results: dict[Any, Any] = {}
        self.reports: list[list[str]] = []
        self.iteration = 0
        self.run_shape_prop()
        called = {node for node in module.graph.nodes if node.op in CALLABLE_NODE_OPS}
        self.fusions = FxNetAccFusionsFinder(module, called)()
        placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        self.a_outputs: dict[str, Any] = dict(zip(placeholders, sample_input, strict=False))
        self.b_outputs = dict(self.a_outputs)

    def run_shape_prop(self) -> None:
        """Tell nodes the shapes of their values."""
        ShapeProp(self.module).propagate(*self.sample_input)

    def run_a(self, mod: GraphModule, inputs: Tensors, report_idx: int = -1) -> TensorOrTensors:
        """The first way to run a part. Derived classes write it."""
        raise RuntimeError("run_a() is not implemented.")

    def run_b(self, mod: GraphModule, inputs: Tensors, report_idx: int = -1) -> TensorOrTensors:
        """The second way to run a part. Derived classes write it."""
        raise RuntimeError("run_b() is not implemented.")

    # -- one part --------------------------------------------------------------------------------------------------------

    def _store_outputs(self, a_result: TensorOrTensors, b_result: TensorOrTensors, submodule: GraphModule) -> None:
        """Keep results by the names of their nodes, as inputs of later parts."""
        given = submodule.graph.output_node().args[0]
        if isinstance(given, Node):
            self.a_outputs[given.name], self.b_outputs[given.name] = a_result, b_result
            return
        for node, a, b in zip(given, a_result, b_result, strict=True):  # type: ignore[arg-type]
            self.a_outputs[node.name], self.b_outputs[node.name] = a, b

    def _get_submod_inputs(self, main_module: GraphModule, submod_path: str) -> tuple[Tensors, Tensors]:
        """Inputs of a part in both ways: results that are known, else what the whole module hands to it."""
        submodule = getattr(main_module, submod_path)
        names = [node.name for node in submodule.graph.nodes if node.op == "placeholder"]
        if not self.settings.accumulate_error or not all(name in self.a_outputs and name in self.b_outputs for name in names):
            given = generate_inputs_for_submodules(main_module, self.sample_input, [submod_path])[submod_path]
            return given, given
        return tuple(self.a_outputs[n] for n in names), tuple(self.b_outputs[n] for n in names)  # type: ignore[return-value]

    def _tag_nodes(self, selected_nodes: NodeSet) -> None:
        """Tag nodes: ``minimize`` those selected, ``main_0`` what comes before, ``main_1`` the rest."""
        after: NodeSet = set()
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                continue
            if node in selected_nodes:
                node.tag = "minimize"  # type: ignore[attr-defined]
                if any(used in after for used in node.all_input_nodes):
                    raise FxNetMinimizerBadModuleError(f"{node} needs nodes that need others of {selected_nodes}; choose those too")
            elif any(getattr(used, "tag", None) == "minimize" or used in after for used in node.all_input_nodes):
                node.tag = "main_1"  # type: ignore[attr-defined]
                after.add(node)
            else:
                node.tag = "main_0"  # type: ignore[attr-defined]

    def _build_submodule(self, nodes: NodeSet) -> tuple[GraphModule, str]:
        """The module with `nodes` in a submodule of their own, and that one's name.

        Raises: FxNetMinimizerBadModuleError if other nodes lie between them.
        """
        for node in self.module.graph.nodes:
            if hasattr(node, "tag"):
                del node.tag  # type: ignore[attr-defined]
        self._tag_nodes(nodes)
        made = split_by_tags(self.module, ["main_0", "minimize", "main_1"])
        if not hasattr(made, "minimize"):
            raise FxNetMinimizerBadModuleError(f"No node of {nodes} calls something, so there is no part to run")
        return made, "minimize"

    def _report(self, index: int = -1) -> list[str]:
        """The lines of the current step, or of the step `index`."""
        if not self.reports:
            self.reports.append([])
            self.iteration = 1
        return self.reports[index if index >= 0 else self.iteration - 1]

    def _begin(self, *lines: str) -> list[str]:
        self.iteration += 1
        self.reports.append(list(lines))
        return self.reports[-1]

    def _run_and_compare(self, split_module: GraphModule, submod_name: str, output_names: Names, report_idx: int = -1) -> None:
        """Run a part in both ways and compare what `output_names` give, or all that it gives.

        Raises: FxNetMinimizerRunFuncError, from what a way raised; FxNetMinimizerResultMismatchError.
        """
        submodule = getattr(split_module, submod_name)
        report = self._report()
        report.append("Run and compare ...")
        a_inputs, b_inputs = self._get_submod_inputs(split_module, submod_name)  # which may run the module, with all that the part gives
        if output_names and not self.settings.all_outputs:
            self._give_only(submodule, output_names)
        try:
            a_result = self.run_a(submodule, a_inputs, report_idx)
            b_result = self.run_b(submodule, b_inputs, report_idx)
        except Exception as e:
            # Whatever a way raises is what is searched for.
            report.append(f"Exception raised when running {submod_name}: {e}")
            raise FxNetMinimizerRunFuncError(f"Exception raised when running {submod_name}: {e}") from e
        self._store_outputs(a_result, b_result, submodule)
        accuracy, agree = self.compare_fn(a_result, b_result, output_names)
        given = map_arg(submodule.graph.output_node().args[0], lambda node: node.name)
        key = tuple(output_names) or (tuple(given) if isinstance(given, (tuple, list)) else given,)
        self.results[key] = accuracy
        report.append(f"Numerical accuracy = {accuracy}")
        if agree:
            return
        if self.module_exporter is not None:
            name = key[0] if isinstance(key[0], str) else key[0][0]
            self.module_exporter(a_inputs, submodule, f"{name}_cpu")
            self.module_exporter(b_inputs, submodule, f"{name}_acc")
        report.append(f"Result mismatch for {key}")
        raise FxNetMinimizerResultMismatchError(f"Result mismatch for {key}")

    def _give_only(self, submodule: GraphModule, names: Names) -> None:
        nodes = [node for node in submodule.graph.nodes if node.name in names and node.op in CALLABLE_NODE_OPS]
        if not nodes:
            raise FxNetMinimizerBadModuleError(f"The part has no node of {names}")
        output = submodule.graph.output_node()
        submodule.graph.erase_node(output)
        submodule.graph.output(nodes[0] if len(nodes) == 1 else tuple(nodes))
        submodule.graph.lint()
        submodule.recompile()

    def _differs(self, nodes: NodeList, output_names: Names, report_idx: int = -1) -> str | None:
        """How both ways disagree about `nodes`: a run error, a numeric error, or None."""
        chosen = {other for node in nodes for other in self.fusions.get(node, {node})}
        made, name = self._build_submodule(chosen)
        try:
            self._run_and_compare(made, name, output_names, report_idx)
        except FxNetMinimizerRunFuncError:
            return "run error"
        except FxNetMinimizerResultMismatchError:
            return "numeric error"
        return None

    # -- searches --------------------------------------------------------------------------------------------------------

    def _excluded(self, nodes: NodeList, start: int = -1, end: int = -1) -> bool:
        """Whether `exclusion_fn` leaves none of `nodes`."""
        if self.exclusion_fn is None:
            return False
        self.exclusion_fn(nodes, start, end)
        return not nodes

    def _binary_search_impl(self, all_nodes: NodeList, start_idx: int, end_idx: int) -> NodeSet:
        nodes = all_nodes[start_idx:end_idx]
        report = self._begin(f"Binary search iteration {self.iteration + 1}")
        last = end_idx - 1
        report.append(
            f"From node index {start_idx}:{all_nodes[start_idx]} to {last}:{all_nodes[last]}. "
            f"Size of the interested node list is {len(nodes)}"
        )
        if self._excluded(nodes, start_idx, end_idx):
            report.append("All nodes are excluded.")
            return set()
        found = self._differs(nodes, [nodes[-1].name])
        if found is None:
            report.append("No discrepancy found.")
            return set()
        if len(nodes) == 1:
            report.append(f"This is the last node in the sub-module. Search in the current branch is successful with culprit = {nodes[0]}.")
            return set(nodes)
        report.append("Proceed to split and lower the halves of the current sub-module individually.")
        middle = start_idx + (end_idx - start_idx) // 2
        culprits = self._binary_search_impl(all_nodes, start_idx, middle)
        if not culprits or self.settings.find_all:
            culprits = culprits | self._binary_search_impl(all_nodes, middle, end_idx)
        return culprits

    def _binary_traverse(self, nodes: NodeList) -> NodeSet:
        return self._binary_search_impl(nodes, 0, len(nodes)) if nodes else set()

    def _sequential_traverse(self, nodes: NodeList) -> NodeSet:
        culprits: NodeSet = set()
        for node in nodes:
            if self._excluded([node]):
                continue
            report = self._begin(f"Sequential traverse iteration {self.iteration + 1}.", f"Visit node: {node.name}")
            found = self._differs([node], [node.name])
            if found is not None:
                report.append(f"Found culprit from {found}: {node}")
                culprits.add(node)
                if not self.settings.find_all:
                    break
        return culprits

    def _block_traverse_impl(self, nodes: NodeList, start_idx: int, end_idx: int, find_last_node: bool) -> int | None:
        """The place of the first node up to which both ways disagree, or of the last from which on they do; None for neither."""
        which, best = "last" if find_last_node else "first", None
        while start_idx <= end_idx:
            middle = start_idx + (end_idx - start_idx) // 2
            part = nodes[: middle + 1] if find_last_node else nodes[middle:]
            ends = f"{part[0]} to {part[-1]}"
            report = self._begin(
                "=" * 30,
                f"Block search iteration {self.iteration + 1}",
                f"Search for {which} node in culprits",
                f"From node index {start_idx}:{nodes[start_idx]} to {end_idx}:{nodes[end_idx]}.",
                f"Subgraph constructed by {ends}",
                f"Targeting node: {nodes[middle]}",
                f"Size of the interested node list is {end_idx - start_idx + 1}",
            )
            found = not self._excluded(part, start_idx, end_idx)
            found = found and self._differs(part, [part[-1].name], self.iteration) is not None
            if found:
                best = middle
            report.append(f"Culprits {'' if found else 'not '}found from node {ends}.")
            if found == find_last_node:
                end_idx = middle - 1
            else:
                start_idx = middle + 1
        return best

    def _block_traverse(self, nodes: NodeList, find_last_node: bool | None) -> NodeSet:
        start, end = 0, len(nodes) - 1
        if not nodes:
            return set()
        if find_last_node is not False:
            report = self._begin(f"Block search from {nodes[0]} to {nodes[-1]}", "*" * 50, "Start searching for last node in culprit")
            found = self._block_traverse_impl(nodes, start, end, True)
            if found is None:
                report.append("No culprits found")
                return set()
            end = found
            report += ["Finish Pass 1", f"Find end_idx = {end}:{nodes[end]}"]
        if find_last_node is not True:
            report = self._begin("Start searching for first node in culprit", "*" * 50)
            # Errors that later nodes carry on show behind the last culprit too, so the first one is looked for up to there.
            found = self._block_traverse_impl(nodes, start, end, False)
            if found is None:
                report.append("No culprits found")
                return set()
            start = found
            report += ["Finish Pass 2", f"Find start_idx = {start}:{nodes[start]}"]
        self._begin(f"Finish searching, found minimum block ({nodes[start]},{nodes[end]})")
        return set(nodes[start : end + 1])

    def _defined_traverse(self, nodes: NodeList) -> NodeSet:
        if not nodes or self._excluded(nodes):
            return set()
        report = self._begin(f"Defined graph from {nodes[0]} to {nodes[-1]}")
        if self._differs(nodes, [nodes[-1].name]) is None:
            return set()
        report.append(f"Found culprit {set(nodes)}")
        return set(nodes)

    def _accumulate_traverse(self, nodes: NodeList) -> NodeSet:
        if self.settings.find_all:
            print("'Find All' mode is not supported in accumulate traversal.")
            return set()
        gathered: NodeList = []
        for node in nodes:
            report = self._begin(f"Accumulate traverse iteration {self.iteration + 1}.", f"Add node: {node.name}")
            gathered.append(node)
            if self._differs(gathered, [node.name]) is not None:
                report.append(f"Found culprit {node}")
                return {node}
        return set()

    def _skip_traverse_impl(self, all_nodes: NodeList, start_idx: int, end_idx: int) -> NodeSet:
        nodes = all_nodes[start_idx:end_idx]
        if not nodes or self._excluded(nodes, start_idx, end_idx):
            return set()
        report = self._begin(
            f" Nodes block {self.iteration + 1}.",
            f"From node index {start_idx} to {end_idx - 1}. Size of the interested node list is {len(nodes)}",
        )
        found = self._differs(nodes, [])
        if found is None:
            report.append("No discrepancy found.")
            return set()
        report.append(f"Found culprit from {found}: {set(nodes)}")
        return set(nodes)

    def _skip_traverse(self, all_nodes: NodeList, skip_nodes: list[str]) -> NodeSet:
        """What is found in any of the blocks between the nodes that are skipped."""
        culprits: NodeSet = set()
        start = 0
        for i, node in enumerate(all_nodes):
            if node.name in skip_nodes:
                culprits |= self._skip_traverse_impl(all_nodes, start, i)
                start = i + 1
        return culprits | self._skip_traverse_impl(all_nodes, start, len(all_nodes))

    def _collect_nodes(self, start: str | None, end: str | None) -> NodeList:
        """The nodes that call something, from that of the name `start` to that of the name `end`, both included."""
        nodes: NodeList = []
        inside = start is None
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                continue
            inside = inside or node.name == start
            if inside:
                nodes.append(node)
                if node.name == end:
                    break
        return nodes

    def run_nodes(self, start: str | None = None, end: str | None = None) -> None:
        """Run the nodes from `start` to `end` as one part in both ways, and print what comes of it."""
        nodes = self._collect_nodes(start, end)
        made, name = self._build_submodule({other for node in nodes for other in self.fusions.get(node, {node})})
        try:
            self._run_and_compare(made, name, [])
        except (FxNetMinimizerRunFuncError, FxNetMinimizerResultMismatchError) as e:
            print(e)

    def print_report(self, report: list[str]) -> None:
        """Print the lines of one step."""
        for i, line in enumerate(report):
            print(line if i == 0 else f" . {line}")

    def print_reports(self) -> None:
        """Print the lines of all steps."""
        for report in self.reports:
            self.print_report(report)

    def minimize(
        self,
        start: str | None = None,
        end: str | None = None,
        skip_nodes: list[str] | None = None,
        find_last_node: bool | None = None,
    ) -> NodeSet:
        """The nodes about which both ways disagree, by the search that the settings name; its steps are printed.

        Args:
            start, end: names of the first and last node to look at; None for those of the graph.
            skip_nodes: for ``skip``.
            find_last_node: for ``block``: True looks for the last node of the block alone, False for the first alone.
        Raises: RuntimeError for a search that there is not, and ``skip`` without `skip_nodes`.
        """
        print(self.settings)
        print(self.module.graph)
        nodes = self._collect_nodes(start, end)
        method = self.settings.traverse_method
        searches: dict[str, Callable[[], NodeSet]] = {
            "sequential": lambda: self._sequential_traverse(nodes),
            "binary": lambda: self._binary_traverse(nodes),
            "accumulate": lambda: self._accumulate_traverse(nodes),
            "block": lambda: self._block_traverse(nodes, find_last_node),
            "defined": lambda: self._defined_traverse(nodes),
            "skip": lambda: self._skip_traverse(nodes, skip_nodes or []),
        }
        if method not in searches:
            raise RuntimeError(f"Unknown traverse method {method}!")
        if method == "skip" and skip_nodes is None:
            raise RuntimeError("'skip_nodes' can't be None when 'traverse_method' is 'skip'.")
        before = len(self.reports)
        try:
            return searches[method]()
        finally:
            for report in self.reports[before:]:
                self.print_report(report)
