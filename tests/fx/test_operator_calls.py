"""Operators that programs and graphs call: errors for wrong arguments, those that take functions, and arguments by name."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fb
from flambeau._subclasses.fake_tensor import FakeTensor
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.fx.operator_schemas import normalize_function

aten, higher_order = fb.ops.aten, fb.ops.higher_order
X = fb.ones(2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: aten.add.Tensor("a", X), "aten::add() Expected a value of type 'Tensor' for argument 'self' but instead found type 'str'"),
        (lambda: aten.add.Tensor(), "aten::add() is missing value for argument 'self'"),
        (lambda: aten.add.Tensor(X, X, foo=1), "Unknown keyword argument 'foo' for operator 'aten::add'"),
        (lambda: aten.add("a", X), "failed to match any schema"),
        (lambda: aten.view.default(X, [1.5]), "for argument 'size'"),
        (lambda: aten.mm.default(X, 3), "for argument 'mat2'"),
        (lambda: aten.relu.default(3), "for argument 'self'"),
        (lambda: aten.cat.default(X), "for argument 'tensors'"),
    ],
    ids=["type", "missing", "unknown", "packet", "list", "tensor", "number", "tensors"],
)  # fmt: skip
def test_wrong_arguments_of_operators_name_the_argument(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        call()
    assert message in str(caught.value)


def test_operators_that_take_functions() -> None:
    pred = fb.tensor(True)
    (made,) = higher_order.cond(pred, lambda a: (a + 1,), lambda a: (a - 1,), (X,))
    assert fb.equal(made, X + 1)
    assert higher_order.while_loop(lambda i: (i < 3,), lambda i: (i + 1,), (fb.tensor(0),), ())[0].item() == 3
    assert fb.equal(higher_order.tag_activation_checkpoint(fb.sin, X, use_reentrant=False), X.sin())
    assert str(higher_order.cond) == higher_order.cond.name() == "cond"
    assert copy.deepcopy(higher_order.cond) is pickle.loads(pickle.dumps(higher_order.cond)) is higher_order.cond
    assert {"cond", "while_loop"} <= set(dir(higher_order))
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = higher_order.nothing_here
    with pytest.raises(NotImplementedError, match="mine"):
        type(higher_order.cond)("mine")


def test_graphs_call_them() -> None:
    graph = make_fx(lambda x: fb.cond(x.sum() > 0, fb.sin, fb.cos, (x,)))(X)
    assert higher_order.cond in [n.target for n in graph.graph.nodes]
    assert "torch.ops.higher_order.cond(gt, true_graph_0, false_graph_0, (x_1,))" in graph.code
    assert fb.equal(pickle.loads(pickle.dumps(graph))(-X), (-X).cos())


def test_arguments_of_operators_by_name() -> None:
    assert normalize_function(aten.add.Tensor, (1, 2), {"alpha": 3}) == ((1, 2), {"alpha": 3})
    assert normalize_function(aten.sum.dim_IntList, (1, [0]), normalize_to_only_use_kwargs=True) == (
        (), {"input": 1, "dim": [0], "keepdim": False, "dtype": None},
    )  # fmt: skip
    assert normalize_function(aten.mm.default, (1,)) is None


def test_recordings_of_real_tensors_note_what_values_look_like() -> None:
    graph = make_fx(lambda x: x.sum(0).expand(3, 2))(X)
    found = [n.meta["val"] for n in graph.graph.nodes if n.op != "output"]
    assert all(isinstance(x, FakeTensor) for x in found)
    assert [tuple(x.shape) for x in found] == [(2, 2), (2,), (3, 2)]
    assert found[-1].stride() == (0, 1)
