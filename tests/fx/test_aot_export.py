"""Graphs of operators that are made to be taken elsewhere, and what their inputs and results are."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau._functorch.aot_autograd import aot_export_joint_simple, aot_export_module


def net(framework: Any) -> Any:
    """A module with parameters, and a buffer that it writes to."""

    class Net(framework.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = framework.nn.Linear(3, 2)
            self.register_buffer("count", framework.ones(2))

        def forward(self, x: Any, scale: Any = None) -> Any:
            self.count.add_(1)
            y = self.layer(x) * self.count * (1 if scale is None else scale)
            return y.sin().sum(), y.detach()

    return Net()


def test_the_graph_of_a_module_gives_what_the_module_gives_and_writes_to_nothing() -> None:
    module, x = net(fb), fb.randn(4, 3)
    graph, signature = aot_export_module(module, (x,), trace_joint=False)
    assert module.count.tolist() == [1, 1]
    found = graph(*module.parameters(), *module.buffers(), x)
    expected = module(x)

    assert fb.equal(found[0], module.count)
    assert all(fb.equal(a, b) for a, b in zip(found[1:], expected, strict=True))
    assert signature.buffers_to_mutate == {graph.graph.find_nodes(op="output")[0].args[0][0].name: "count"}
    assert list(signature.inputs_to_parameters.values()) == ["layer.weight", "layer.bias"]
    assert signature.backward_signature is None


def test_the_joint_graph_gives_the_gradients_of_the_loss() -> None:
    module, x = net(fb), fb.randn(4, 3, requires_grad=True)
    graph, signature = aot_export_module(module, (x,), trace_joint=True, output_loss_index=0, kwargs={"scale": fb.tensor(2.0)})
    found = graph(*module.parameters(), *module.buffers(), x, fb.tensor(2.0))
    module(x, fb.tensor(2.0))[0].backward()
    backward = signature.backward_signature

    assert all(fb.equal(a, p.grad) for a, p in zip(found[3:], [*module.parameters(), x], strict=True))
    assert list(backward.gradients_to_parameters.values()) == ["layer.weight", "layer.bias"]
    assert list(backward.gradients_to_user_inputs.values()) == [signature.user_inputs[0]]
    assert backward.loss_output == signature.user_outputs[0]


class _Writes(fb.nn.Module):
    def forward(self, x: Any) -> Any:
        x.mul_(2)
        return (x + 1,)


def test_new_values_of_inputs_come_first() -> None:
    graph, signature = aot_export_module(_Writes(), (fb.ones(2),), trace_joint=False)
    x = fb.ones(2)

    assert [y.tolist() for y in graph(x)] == [[2, 2], [3, 3]]
    assert x.tolist() == [1, 1]
    assert list(signature.user_inputs_to_mutate.values()) == signature.user_inputs


@pytest.mark.parametrize(("given", "error"), [
    ({"trace_joint": True}, "name it by output_loss_index"),
    ({"trace_joint": True, "output_loss_index": 1}, "result 0 requires grad and is not the loss"),
])  # fmt: skip
def test_a_joint_graph_needs_a_loss(given: Any, error: str) -> None:
    with pytest.raises(RuntimeError, match=error):
        aot_export_module(net(fb), (fb.ones(4, 3),), **given)


def test_what_is_no_tuple_is_refused() -> None:
    with pytest.raises(RuntimeError, match="must return a tuple"):
        aot_export_module(fb.nn.Linear(2, 2), (fb.ones(2),), trace_joint=False)


@pytest.mark.oracle
@pytest.mark.parametrize("joint", [False, True])
def test_signatures_are_pytorchs(joint: bool, oracle: Any) -> None:
    from torch._functorch import aot_autograd

    loss = 0 if joint else None
    _, theirs = aot_autograd.aot_export_module(net(oracle), (oracle.ones(4, 3),), trace_joint=joint, output_loss_index=loss)
    _, ours = aot_export_module(net(fb), (fb.ones(4, 3),), trace_joint=joint, output_loss_index=loss)

    for name in ("parameters", "buffers", "user_inputs", "inputs_to_parameters", "inputs_to_buffers"):
        assert getattr(ours, name) == getattr(theirs, name)
    for name in ("buffers_to_mutate", "parameters_to_mutate", "user_inputs_to_mutate"):  # by names of nodes, which are ours
        assert list(getattr(ours, name).values()) == list(getattr(theirs, name).values())
    assert ours.in_spec.num_leaves == theirs.in_spec.num_leaves
    assert ours.out_spec.num_leaves == theirs.out_spec.num_leaves
    if joint:
        assert list(ours.backward_signature.gradients_to_parameters.values()) == ["layer.weight", "layer.bias"]


def simple(x: Any, w: Any) -> Any:
    return (x @ w).sin(), w * 2


def test_a_simple_joint_graph_takes_inputs_and_gradients_of_results() -> None:
    x, w = fb.randn(2, 3), fb.randn(3, 3, requires_grad=True)
    graph = aot_export_joint_simple(simple, (x, w), trace_joint=True)
    tangents = [fb.randn(2, 3), fb.randn(3, 3)]
    first, second, none, gradient = graph([x, w], tangents)
    expected = simple(x, w)

    assert none is None
    assert fb.equal(first, expected[0])
    assert fb.equal(second, expected[1])
    assert fb.equal(gradient, fb.autograd.grad(expected, w, tangents)[0])


def test_a_simple_graph_without_gradients_takes_the_inputs() -> None:
    x, w = fb.randn(2, 3), fb.randn(3, 3)
    graph = aot_export_joint_simple(simple, (x, w), trace_joint=False)
    assert all(fb.equal(a, b) for a, b in zip(graph(x, w), simple(x, w), strict=True))


@pytest.mark.oracle
def test_what_is_not_simple_is_refused_as_in_pytorch(oracle: Any) -> None:
    from torch._functorch import aot_autograd

    cases = [lambda x: (x.mul_(2),), lambda x: x * 2, lambda x: (x,), lambda x: (x.view(-1),)]
    for function in cases:
        with pytest.raises(RuntimeError, match="aot_export_joint_simple"):
            aot_autograd.aot_export_joint_simple(function, (oracle.ones(2),), trace_joint=False)
        with pytest.raises(RuntimeError, match="aot_export_joint_simple"):
            aot_export_joint_simple(function, (fb.ones(2),), trace_joint=False)
    with pytest.raises(RuntimeError, match="container"):
        aot_export_joint_simple(lambda d: (d["a"] * 2,), ({"a": fb.ones(2)},), trace_joint=False)


@pytest.mark.oracle
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_batch_normalizations_are_pytorchs_operators_and_give_new_statistics(training: bool, joint: bool, oracle: Any) -> None:
    from torch._functorch.aot_autograd import aot_export_module as theirs

    def made(T: Any, export: Any) -> tuple[list[Any], list[str]]:
        class Net(T.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm = T.nn.BatchNorm1d(3)

            def forward(self, x: Any) -> Any:
                return (self.norm(x).sum(),)

        graph, signature = export(Net().train(training), (T.ones(4, 3),), trace_joint=joint, output_loss_index=0 if joint else None)
        names = [str(node.target) for node in graph.graph.nodes if "batch_norm_legit" in str(node.target)]
        return list(signature.buffers_to_mutate.values()), names

    assert made(fb, aot_export_module) == made(oracle, theirs)


def test_graphs_with_open_sizes_run_at_others() -> None:
    class Product(fb.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return (fb.nn.functional.linear(x, y.t()).reshape(-1) + x.size(0),)

    for pre_dispatch in (False, True):
        graph, _ = aot_export_module(
            Product(), (fb.ones(4, 3), fb.ones(3, 5)), trace_joint=False, pre_dispatch=pre_dispatch, dynamic_shapes=True
        )
        x, y = fb.randn(6, 2), fb.randn(2, 7)

        assert graph(x, y)[0].equal(Product()(x, y)[0])
    with pytest.raises(RuntimeError, match="pre_dispatch"):
        aot_export_module(Product(), (fb.ones(4, 3), fb.ones(3, 5)), trace_joint=True, output_loss_index=0, pre_dispatch=True)
