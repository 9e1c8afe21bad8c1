"""Choices and repetitions are nodes of ONNX with graphs of their own."""

from __future__ import annotations

import pytest

import flambeau as fb
from comparing_onnx import agree, exported  # pyright: ignore[reportMissingImports]
from flambeau import nn
from flambeau._higher_order_ops import associative_scan, map, scan, while_loop
from flambeau.export import Dim


class Layered(nn.Module):
    """A module with a layer and a Tensor that functions close over."""

    def __init__(self, run):
        super().__init__()
        self.layer, self.shift, self.run = nn.Linear(4, 4), fb.ones(4), run

    def forward(self, x):
        return self.run(self, x)


def nested(m, x):
    def turn(x):
        return fb.cond(x[0, 0] > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    def grow(x):
        return while_loop(lambda y: y.abs().sum() < 100, lambda y: (turn(y) * 2,), (x,))[0]

    return fb.cond(x.sum() > 0, turn, grow, (x,)), x.relu()


def nested_scan(m, x):
    def step(carry, part):
        return {"a": carry["a"] + m.layer(part)}, (carry["a"] * 2, part.sum())

    return scan(step, {"a": fb.zeros(4)}, x, reverse=True)


MODELS = {
    "cond": (lambda m, x: fb.cond(x.sum() > 0, lambda x: m.layer(x) + m.shift, lambda x: x * 2, (x,)), {"If"}),
    "while_loop": (lambda m, x: while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, m.layer(y)), (fb.tensor(0), x)), {"Loop"}),
    "while_loop that does not begin": (lambda m, x: while_loop(lambda y: y.sum() > 1e9, lambda y: (y * 2,), (x,)), {"Loop"}),
    "scan": (lambda m, x: scan(lambda c, y: (c + m.layer(y), c * 2), fb.zeros(4), x), {"Scan"}),
    "scan from the end": (nested_scan, {"Scan"}),
    "scan of columns": (lambda m, x: scan(lambda c, y: (c + y.sum(), y.exp()), fb.zeros(()), x, dim=1), {"Scan"}),
    "map": (lambda m, x: map(lambda y: m.layer(y).relu(), x), {"Scan"}),
    "associative_scan": (lambda m, x: associative_scan(lambda a, b: a * b + a, x, 0, combine_mode="generic"), {"Scan"}),
    "associative_scan from the end": (lambda m, x: associative_scan(fb.add, x, 1, True, combine_mode="generic"), {"Scan"}),
    "nested": (nested, {"If"}),
}


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_control_flow_gives_what_it_gives_here(name, optimize):
    run, kinds = MODELS[name]
    fb.manual_seed(0)
    model = Layered(run)
    program = exported(model, fb.randn(3, 4), dynamic_shapes=({0: Dim("rows")},), optimize=optimize)

    for sign in (1, -1):                              # so that both branches are taken
        agree(model, program, sign * fb.rand(5, 4))
    assert kinds <= {node.op_type for node in program.model_proto.graph.node}


def test_a_choice_by_what_is_known_is_made_in_the_export():
    program = exported(lambda x: fb.cond(x.shape[0] == 3, lambda x: x + 1, lambda x: x - 1, (x,)), fb.zeros(3))

    assert [node.op_type for node in program.model_proto.graph.node] == ["Add"]


def test_optimizing_merges_what_graphs_inside_read():
    def model(x):
        a, b = x.exp(), x.exp()
        return fb.cond(x.sum() > 0, lambda x: x + a, lambda x: x + b, (x,))

    program = exported(model, fb.randn(3))

    assert [node.op_type for node in program.model_proto.graph.node].count("Exp") == 1
    agree(model, program, fb.ones(3))
    agree(model, program, -fb.ones(3))
