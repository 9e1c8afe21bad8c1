"""What `setup_context` of an operator computes is part of what is recorded with its derivative."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau._dynamo.backends.common import aot_autograd
from flambeau.fx.experimental.proxy_tensor import make_fx


@fb.library.custom_op("recorded_setup::sine", mutates_args=())
def sine(x: fb.Tensor) -> fb.Tensor:
    return x.sin()


@sine.register_fake
def _(x: Any) -> Any:
    return fb.empty_like(x)


def setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0].cos(), output)


def backward(ctx: Any, grad: Any) -> Any:
    slope, result = ctx.saved_tensors
    return grad * slope + 0 * result


sine.register_autograd(backward, setup_context=setup)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(mode: str) -> None:
    def f(x: Any) -> Any:
        return fb.autograd.grad(sine(x).sum(), x)[0]

    graph = make_fx(f, tracing_mode=mode)(fb.ones(3, requires_grad=True))

    names = [n.name for n in graph.graph.nodes if n.op == "call_function"]
    assert names[:2] == ["sine", "cos"]
    assert names.count("sine") == 1
    x = fb.tensor([0.5, 1.0, 2.0], requires_grad=True)
    assert fb.equal(graph(x), x.cos())


def test_opcheck() -> None:
    assert set(fb.library.opcheck(sine, (fb.ones(3, requires_grad=True),)).values()) == {"SUCCESS"}


def test_backends_of_aot_autograd() -> None:
    second: list[Any] = []

    def keep(graph: Any, examples: Any) -> Any:
        second.append(graph)
        return graph.forward

    compiled = fb.compile(lambda x: sine(x) * 2, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep))
    x = fb.tensor([0.5, 1.0], requires_grad=True)
    compiled(x).sum().backward()

    assert fb.equal(x.grad, 2 * x.cos())
    assert "recorded_setup.sine" in str([n.target for n in second[0].graph.nodes])
