"""Calls with their arguments by name, and functions as Python's operators."""

from __future__ import annotations

import operator
from typing import Any

import pytest

import flambeau as fb
from flambeau.fx.experimental.normalize import NormalizeArgs, NormalizeOperators


class Net(fb.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = fb.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = fb.nn.functional.dropout(self.layer(x), 0.3, False)
        z = fb.cat((y, y.relu()), 1)
        return fb.flatten(z * 2, 1), fb.add(z, z, alpha=2), fb.sum(z, 0)


@pytest.mark.parametrize("by_keyword", [True, False])
def test_calls_have_their_arguments_by_name_and_compute_the_same(by_keyword: bool) -> None:
    module, x = Net(), fb.randn(2, 4)
    made = NormalizeArgs(fb.fx.symbolic_trace(module), by_keyword).transform()
    calls = {node.name: node for node in made.graph.nodes}

    assert all(fb.equal(a, b) for a, b in zip(made(x), module(x), strict=True))
    assert set(calls["flatten"].kwargs) == ({"input", "start_dim", "end_dim"} if by_keyword else {"end_dim"})
    assert list(calls["layer"].kwargs) == (["input"] if by_keyword else [])
    assert calls["relu"].op == "call_method"
    assert len(calls["relu"].args) == 1
    assert len(calls["mul"].args) == 2                # Python's operator


def test_functions_of_two_operands_become_operators() -> None:
    def f(x: Any) -> Any:
        return fb.add(x, x), fb.add(x, x, alpha=2), fb.sub(x, other=x), fb.floor_divide(x, 2), fb.lt(x, 1)

    made = NormalizeOperators(fb.fx.symbolic_trace(f)).transform()
    targets = [node.target for node in made.graph.nodes if node.op == "call_function"]
    assert targets == [operator.add, fb.add, fb.sub, operator.floordiv, operator.lt]
    x = fb.randn(3)
    assert all(fb.equal(a, b) for a, b in zip(made(x), f(x), strict=True))


@pytest.mark.oracle
def test_the_operators_are_those_of_pytorch(oracle: Any) -> None:
    from torch.fx.experimental import normalize

    theirs = {getattr(function, "__name__", ""): sign for function, sign in normalize.NormalizeOperators.binary_magic_method_remap.items()}
    ours = {function.__name__: sign for function, sign in NormalizeOperators.binary_magic_method_remap.items()}
    assert ours == theirs
