"""What of a graph follows from attributes alone is computed once."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau.fx.experimental import const_fold


def net(framework: Any, values: int = 1) -> Any:
    class Net(framework.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = framework.nn.Parameter(framework.ones(1, 2))
            self.b = framework.nn.Parameter(framework.full((2,), 3.0))
            self.layer = framework.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            a = self.a + self.b
            y = framework.relu(x - a)
            return (y * self.b.exp() if values == 2 else y) + self.b, a

    return Net()


@pytest.mark.parametrize("values", [1, 2])
def test_results_and_gradients_are_those_of_the_module(values: int) -> None:
    module, x = net(fb, values), fb.randn(3, 2) * 9
    folded = const_fold.split_const_subgraphs(module)
    assert not folded.has_folding_been_run
    results, expected = folded(x), module(x)

    assert folded.has_folding_been_run
    assert all(fb.equal(a, b) for a, b in zip(results, expected, strict=True))
    assert all(fb.equal(a, b) for a, b in zip(folded(x), expected, strict=True))
    once = [node.name for node in folded.const_subgraph_module.graph.nodes if node.op == "call_function"]
    assert once == ["add"]
    assert ("exp" in folded.const_subgraph_module.code) == (values == 2)
    with pytest.raises(AssertionError, match="has been computed"):
        folded.run_folding()


def test_nodes_may_be_left_where_they_are() -> None:
    folded = const_fold.split_const_subgraphs(net(fb), skip_folding_node_fn=lambda node: node.op == "call_function")
    assert folded.const_subgraph_module is None
    x = fb.randn(3, 2)
    assert fb.equal(folded(x)[0], net(fb)(x)[0])


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("values", [1, 2])
def test_what_is_folded_is_what_pytorch_folds(values: int, oracle: Any) -> None:
    from torch.fx.experimental import const_fold as theirs

    seen = []
    for framework, module in ((fb, const_fold), (oracle, theirs)):
        folded = module.split_const_subgraphs(net(framework, values))
        before = [(name, tuple(p.shape)) for name, p in folded.named_parameters() if "FOLDED" not in name]
        counts = [[node.op for node in graph.nodes].count("call_function") for graph in (folded.graph, folded.const_subgraph_module.graph)]
        results = folded(framework.arange(6.0).reshape(3, 2))
        after = sorted([(name, tuple(p.shape), p.requires_grad) for name, p in folded.named_parameters()])
        seen.append((before, counts, after, [r.tolist() for r in results], folded.fx_const_folded_attrs_name))
    assert seen[0] == seen[1]


@pytest.mark.oracle
def test_names_of_attributes_are_those_of_pytorch(oracle: Any) -> None:
    from torch.fx.experimental import const_fold as theirs

    for name in ("ab", "ab_1", "a b", "1x", "x", "x__"):
        found = []
        for framework, find in ((fb, const_fold), (oracle, theirs)):
            module = framework.nn.Module()
            module.ab = module.ab_1 = 3
            found.append(find.get_unique_attr_name_in_module(module, name))
        assert found[0] == found[1]
