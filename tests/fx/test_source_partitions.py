"""Parts of a graph by where they come from, and places that match a pattern with names."""

from __future__ import annotations

import operator
from typing import Any

import pytest

import flambeau as fb
from flambeau.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap
from flambeau.fx.passes.utils.source_matcher_utils import SourcePartition, check_subgraphs_connected, get_source_partitions


class Net(fb.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = fb.nn.Linear(3, 3), fb.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        y = fb.relu(self.first(x))
        return self.second(y) + fb.nn.functional.linear(x, self.first.weight)


def names(parts: list[SourcePartition]) -> Any:
    return [([n.name for n in p.nodes], {n.name for n in p.input_nodes}, {n.name for n in p.output_nodes}) for p in parts]


def test_parts_of_an_exported_program_are_found_by_classes_of_modules_and_names_of_functions() -> None:
    graph = fb.export.export(Net(), (fb.ones(2, 3),)).graph
    found = get_source_partitions(graph, [fb.nn.Linear, "relu"])

    assert names(found[fb.nn.Linear]) == [
        (["linear"], {"x", "p_first_weight", "p_first_bias"}, {"linear"}),
        (["linear_1"], {"relu", "p_second_weight", "p_second_bias"}, {"linear_1"}),
    ]
    assert names(found["relu"]) == [(["relu"], {"linear"}, {"relu"})]
    assert names(get_source_partitions(graph, ["linear"])["linear"])[2][0] == ["linear_2"]
    first, second = found[fb.nn.Linear]
    (relu,) = found["relu"]
    assert check_subgraphs_connected(first, relu)
    assert check_subgraphs_connected(relu, second)
    assert not check_subgraphs_connected(first, second)
    assert get_source_partitions(graph, [fb.nn.Conv2d]) == {}


def marked(framework: Any, stack: str) -> Any:
    """A graph whose nodes say where they come from."""
    graph = framework.fx.Graph()
    x = graph.placeholder("x")
    w = graph.create_node("get_attr", "w")
    a = graph.call_function(framework.sin, (x,))
    b = graph.call_function(framework.cos, (a,))
    c = graph.call_function(operator.mul, (b, w))
    d = graph.call_function(operator.add, (c, a))
    graph.output((d, b))
    for node, source in ((a, ("f", framework.nn.ReLU)), (b, ("f", framework.nn.ReLU)), (c, ("f", framework.nn.ReLU)),
                         (d, ("g", framework.nn.ReLU))):  # fmt: skip
        if stack == "source_fn_stack":
            node.meta[stack] = [("outer", framework.nn.GELU), source]
        elif stack == "nn_module_stack":
            node.meta[stack] = {"outer": ("outer", framework.nn.GELU), source[0]: source}
        else:
            node.meta[stack] = (source[0], "function.relu")
    return graph


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("filter_fn", [None, lambda node: node.name != "cos"], ids=["all", "some"])
@pytest.mark.parametrize("stack", ["source_fn_stack", "nn_module_stack", "torch_fn"])
def test_parts_are_those_of_pytorch(stack: str, filter_fn: Any, oracle: Any) -> None:
    from torch.fx.passes.utils import source_matcher_utils as theirs

    results = []
    for framework, find in ((fb, get_source_partitions), (oracle, theirs.get_source_partitions)):
        asked = ["relu"] if stack == "torch_fn" else [framework.nn.ReLU, framework.nn.GELU]
        found = find(marked(framework, stack), asked, filter_fn)
        results.append([(getattr(source, "__name__", source), names(parts)) for source, parts in found.items()])
    assert results[0] == results[1]


def test_a_match_has_nodes_by_the_names_of_the_pattern() -> None:
    def pattern(x: Any, w: Any) -> Any:
        y = fb.nn.functional.linear(x, w)
        z = fb.relu(y)
        return z, {"product": y, "active": z, "input": x}

    def program(x: Any, w: Any) -> Any:
        return fb.relu(fb.nn.functional.linear(x.sin(), w)) * 2

    graph = fb.fx.symbolic_trace(program).graph
    (match,) = SubgraphMatcherWithNameNodeMap(fb.fx.symbolic_trace(pattern)).match(graph)
    assert {name: node.name for name, node in match.name_node_map.items()} == {"product": "linear", "active": "relu", "input": "sin"}
    assert [node.name for node in match.returning_nodes] == ["relu"]
    with pytest.raises(RuntimeError, match="must be a dict"):
        SubgraphMatcherWithNameNodeMap(fb.fx.symbolic_trace(program))


class Pattern(fb.nn.Module):
    def forward(self, x: Any, w: Any) -> Any:
        y = fb.nn.functional.linear(x, w)
        return fb.relu(y), {"product": y}


class Program(fb.nn.Module):
    def forward(self, x: Any, w: Any) -> Any:
        return fb.relu(fb.nn.functional.linear(x, w)) * 2


def test_patterns_may_be_exported_programs() -> None:
    given = (fb.ones(2, 3), fb.ones(3, 3))
    matcher = SubgraphMatcherWithNameNodeMap(fb.export.export(Pattern(), given).module())
    (match,) = matcher.match(fb.export.export(Program(), given).module().graph)
    assert match.name_node_map["product"].name == "linear"
