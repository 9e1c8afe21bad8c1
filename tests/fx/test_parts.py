"""Operators that PyTorch takes apart before it records them are taken apart where a table of decompositions has one of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fb
from flambeau.fx.experimental.proxy_tensor import make_fx

F, aten = fb.nn.functional, fb.ops.aten


def images(n: int) -> Any:
    return fb.linspace(-1, 1, n * 3 * 16, dtype=fb.float64).sin().reshape(n, 3, 4, 4)


CALLS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "linear": (aten.addmm.default, lambda x: F.linear(x, fb.eye(4, dtype=x.dtype), fb.ones(4, dtype=x.dtype))),
    "linear without bias": (aten.mm.default, lambda x: F.linear(x, fb.eye(4, dtype=x.dtype))),
    "matmul": (aten.bmm.default, lambda x: x[0] @ x[0].mT),
    "layer_norm": (aten.native_layer_norm.default, lambda x: F.layer_norm(x, (4,))),
    "group_norm": (aten.native_group_norm.default, lambda x: F.group_norm(x, 3)),
    "batch_norm": (aten.native_batch_norm.default, lambda x: F.batch_norm(x, None, None, training=True)),
    "instance_norm": (aten.native_batch_norm.default, lambda x: F.instance_norm(x)),
    "cross_entropy": (aten._log_softmax.default, lambda x: F.cross_entropy(x, fb.zeros(x.shape[0], 4, 4, dtype=fb.int64))),
    "attention": (aten.bmm.default, lambda x: F.scaled_dot_product_attention(x, x, x)),
    "max_pool2d": (aten.max_pool2d_with_indices.default, lambda x: F.max_pool2d(x, 2)),
    "adaptive_avg_pool2d": (aten.mean.dim, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "rms_norm": (aten.rsqrt.default, lambda x: F.rms_norm(x, (4,))),
    "square": (aten.pow.Tensor_Scalar, lambda x: x.square()),
    "selu": (aten.elu.default, F.selu),
    "a module in a derivative": (aten.addmm.default, lambda x: fb.func.grad(lambda y: fb.nn.Linear(4, 2).double()(y).sum())(x)),
}


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", CALLS)
def test_tables_are_asked_for_parts(name: str, mode: str) -> None:
    part, f = CALLS[name]
    asked: list[Any] = []

    def decompose(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        return NotImplemented

    if name.endswith("derivative"):
        fb.manual_seed(0)
    graph = make_fx(f, {part: decompose}, mode, True)(images(2))

    assert asked
    assert part in [n.target for n in graph.graph.nodes]
    if name.endswith("derivative"):                   # of numbers that each run draws
        return
    assert fb.allclose(graph(images(2)), f(images(2)))
    if mode == "symbolic":
        assert fb.allclose(graph(images(5)), f(images(5)))


def test_what_no_table_asks_for_stays_one_operator() -> None:
    def f(x: Any) -> Any:
        return F.linear(F.layer_norm(x, (4,)), fb.eye(4, dtype=x.dtype))

    graph = make_fx(f, {aten.sin.default: fb.cos})(images(1))

    assert [n.target for n in graph.graph.nodes if n.op == "call_function"].count(aten.linear.default) == 1
    assert aten.native_layer_norm.default not in [n.target for n in graph.graph.nodes]


def test_asking_for_parts_draws_nothing() -> None:
    def f(x: Any) -> Any:
        return F.dropout(x, 0.5)

    x = images(1)
    fb.manual_seed(0)
    expected = make_fx(f)(x), fb.rand(3)
    fb.manual_seed(0)
    graph = make_fx(f, {aten.addmm.default: None})(x)

    assert fb.equal(fb.rand(3), expected[1])
    assert graph.code == expected[0].code
