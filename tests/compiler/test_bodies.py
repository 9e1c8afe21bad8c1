"""Branches of `cond` and what `checkpoint` computes again: graphs within the graphs that backends are given."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fb
from flambeau._dynamo.backends.common import aot_autograd
from flambeau._functorch.partitioners import default_partition
from flambeau._inductor.compile_fx import compile_fx
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.utils.checkpoint import CheckpointPolicy, checkpoint

nn = fb.nn


class Net:
    """What programs read of the surroundings."""

    def __init__(self) -> None:
        fb.manual_seed(0)
        self.linear, self.norm, self.dropout = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.weight = fb.randn(4, requires_grad=True)

    def state(self) -> list[Any]:
        """Gradients and buffers."""
        given = *self.linear.parameters(), *self.norm.parameters(), self.weight
        return [None if p.grad is None else p.grad.tolist() for p in given] + [x.tolist() for x in self.norm.buffers()]


def again(f: Any, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(f, *args, use_reentrant=False, **kwargs)


def chosen(x: Any, yes: Any, no: Any) -> Any:
    return fb.cond(x.sum() > 0, yes, no, (x,))


def within(context: Any, f: Callable[[], Any]) -> Any:
    with context:
        return f()


def counting(net: Net, x: Any) -> Any:
    calls: list[int] = []
    y = again(lambda a: calls.append(1) or net.linear(a), x)
    return y.sum() * len(calls)


def writing(net: Net, x: Any) -> Any:
    y = x * 2
    return (again(lambda a: a.add_(1) * net.weight, y) + y).sum()


def no_hooks(t: Any) -> Any:
    return t


PROGRAMS: dict[str, Callable[[Net, Any], Any]] = {
    "checkpoint": lambda n, x: again(lambda a: n.linear(a).relu(), x).sum(),
    "nested": lambda n, x: again(lambda a: again(lambda b: (b * n.weight).sin(), n.linear(a)) * 2, x).sum(),
    "dropout": lambda n, x: again(lambda a: n.dropout(n.linear(a)), x).sum(),
    "random": lambda n, x: again(lambda a: n.linear(a) * fb.rand(4), x).sum() + fb.rand(()),
    "batch norm": lambda n, x: again(lambda a: n.norm(n.linear(a)).sin(), x).sum(),
    "several results": lambda n, x: sum(y.sum() for y in again(lambda a: (n.linear(a), {"k": a * 2}["k"]), x)),
    "constants": lambda n, x: again(lambda a: (n.linear(a), 3), x)[0].sum() * again(lambda a: (n.linear(a), 3, None), x)[1],
    "an argument": lambda n, x: again(lambda a: (n.linear(a), a), x)[1].sum(),
    "an effect": counting,
    "a write to its own": lambda n, x: again(lambda a: n.linear(a).relu_().add_(1), x).sum(),
    "a write to an argument": writing,
    "a value": lambda n, x: again(lambda a: n.linear(a) * float(a.sum()), x).sum(),
    "keywords": lambda n, x: again(lambda a, *, k: n.linear(a) * k, x, k=n.weight).sum(),
    "views": lambda n, x: again(lambda a: a.t()[1:], x * 1).sum(),
    "no argument": lambda n, x: again(lambda: n.linear(x)).sum(),
    "twice": lambda n, x: (again(lambda a: n.linear(a).sin(), x) + again(lambda a: n.linear(a).sin(), x * 2)).sum(),
    "closures": lambda n, x: (lambda y, z: again(lambda a: (a * y + z).sin(), x).sum())(x * 2, n.weight.cos()),
    "literals": lambda n, x: again(lambda a: n.linear(a) + fb.arange(4) + fb.tensor([1.0, 2, 3, 4]), x).sum(),
    "no_grad": lambda n, x: (within(fb.no_grad(), lambda: again(n.linear, x)) * n.weight).sum(),
    "reentrant": lambda n, x: checkpoint(lambda a: n.linear(a).relu(), x, use_reentrant=True).sum(),
    "hooks": lambda n, x: within(fb.autograd.graph.saved_tensors_hooks(no_hooks, no_hooks), lambda: again(n.linear, x).sum()),
    "autocast": lambda n, x: within(fb.autocast("cpu"), lambda: again(lambda a: n.linear(a).sin(), x).float().sum()),
    "vmap": lambda n, x: fb.vmap(lambda row: again(lambda a: n.linear(a).sin(), row))(x).sum(),
    "jvp": lambda n, x: fb.func.jvp(lambda a: again(lambda b: (b * n.weight).sin(), a), (x,), (x.cos(),))[1].sum(),
    "cond": lambda n, x: chosen(x, lambda a: n.linear(a).sin(), lambda a: a * n.weight).sum(),
    "cond in cond": lambda n, x: chosen(x, lambda a: chosen(a[0], lambda b: b * n.weight, lambda b: b - n.weight).sin() + a, fb.sin).sum(),
    "cond in checkpoint": lambda n, x: again(lambda a: chosen(n.linear(a), lambda b: b * n.weight, lambda b: (b - 1).sin()), x).sum(),
    "checkpoint in cond": lambda n, x: chosen(x, lambda a: again(lambda b: n.linear(b).sin(), a), lambda a: a * 1).sum(),
    "cond of a bool": lambda n, x: fb.cond(True, lambda a: a * 2, lambda a: a * n.weight, (x,)).sum(),
    "other shapes": lambda n, x: chosen(x, lambda a: a * 2, lambda a: a[:1] * n.weight).sum(),
    "vmap of cond": lambda n, x: fb.vmap(lambda row: chosen(row, lambda a: a.sin(), lambda a: a * 2))(x).sum(),
    "jvp of cond": lambda n, x: fb.func.jvp(lambda a: chosen(a, fb.sin, fb.cos), (x,), (x.cos(),))[1].sum(),
}
WHOLE = set(PROGRAMS) - {
    "a write to an argument", "reentrant", "hooks", "autocast", "vmap", "jvp", "other shapes", "vmap of cond", "jvp of cond", "a value",
}  # fmt: skip


def outcome(f: Callable[[Net, Any], Any], compile: Callable[[Any], Any]) -> list[Any]:
    net = Net()
    run = compile(lambda x: f(net, x))
    made: list[Any] = []
    for sign in (1, -1, 1):
        x = (fb.rand(3, 4) * sign).requires_grad_()
        try:
            y = run(x)
            y.backward()
            made.append((y.tolist(), None if x.grad is None else x.grad.tolist(), fb.rand(1).item()))
        except RuntimeError as error:                 # checkpoint refuses writes, and cond branches that differ
            made.append(str(error)[:80])
    return made + net.state()


def keep(graph: Any, examples: Any) -> Any:
    return graph.forward


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_bodies_give_what_they_give_without_a_compiler(name: str) -> None:
    graphs: list[Any] = []

    def own(graph: Any, examples: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    expected = outcome(PROGRAMS[name], lambda f: f)
    for backend in (own, aot_autograd(fw_compiler=keep, bw_compiler=keep), compile_fx):
        assert outcome(PROGRAMS[name], lambda f, backend=backend: fb.compile(f, backend=backend)) == expected
    if name in WHOLE:
        assert len(graphs) == 1


def names_of(graph: Any) -> list[str]:
    return [getattr(n.target, "__name__", n.target) for n in graph.graph.nodes if n.op in ("call_function", "call_method", "get_attr")]


def test_a_body_is_a_module_of_the_graph() -> None:
    net, graphs = Net(), []

    def own(graph: Any, examples: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    fb.compile(lambda x: PROGRAMS["checkpoint in cond"](net, x), backend=own, fullgraph=True)(fb.ones(2, 4))
    (graph,) = graphs
    assert names_of(graph) == ["sum", "gt", "cond_true_0", "cond_false_0", "cond", "getitem", "sum"]
    assert names_of(graph.cond_true_0) == ["wrap_body_0", "tag_activation_checkpoint", "getitem"]
    assert names_of(graph.cond_true_0.wrap_body_0) == ["linear", "sin"]
    assert "class cond_true_0(torch.nn.Module):" in graph.print_readable(print_output=False)


def test_what_a_checkpoint_computes_is_not_kept_for_the_derivative() -> None:
    kept: dict[str, list[Any]] = {}
    for name, wrap in (("checkpoint", again), ("plain", lambda f, x: f(x))):
        net = Net()

        def forward(graph: Any, examples: Any, name: str = name) -> Any:
            kept[name] = graph.graph.find_nodes(op="output")[0].args[0][1:]
            return graph.forward

        f = fb.compile(lambda x, net=net, wrap=wrap: wrap(lambda a: net.dropout(net.linear(a).sin().exp()), x).sum(),
                       backend=aot_autograd(fw_compiler=forward, bw_compiler=keep))  # fmt: skip
        f(fb.ones(2, 4, requires_grad=True)).backward()
    assert [n.op if n.op == "placeholder" else n.name for n in kept["checkpoint"]].count("placeholder") == 3
    assert [n.name for n in kept["checkpoint"] if n.op != "placeholder"] == ["bernoulli"]    # which would be drawn anew
    assert "linear" in [n.name for n in kept["plain"]]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_records_derivatives_of_choices(mode: str) -> None:
    w = fb.tensor([2.0, 3.0], requires_grad=True)

    def f(x: Any, w: Any) -> Any:
        y = fb.cond(x.sum() > 0, lambda a: ((a * w).sin(), a.int()), lambda a: (a * a + w, a.int()), (x,))[0]
        (first,) = fb.autograd.grad(y.sum(), [x], create_graph=True)
        return fb.autograd.grad((first * first).sum(), [x, w], allow_unused=True)

    x = fb.tensor([1.0, 2.0], requires_grad=True)
    graph = make_fx(f, tracing_mode=mode)(x, w)
    assert names_of(graph).count("cond") == 3
    for sign in (1, -1):
        x = (fb.tensor([1.0, 2.0]) * sign).requires_grad_()
        for made, expected in zip(graph(x, w), f(x, w), strict=True):
            assert fb.equal(made, fb.zeros(2) if expected is None else expected)


def flat(n: Net, x: Any) -> Any:
    return again(lambda a: n.linear(a).relu().reshape(a.shape[0] * 4), x).sum()


SIZED: dict[str, tuple[Callable[[Net, Any, Any], Any], int]] = {  # programs, and how many graphs all sizes need
    "a number in a checkpoint": (lambda n, x, y: flat(n, x) * y.sum(), 2),
    "one body for two sizes": (lambda n, x, y: flat(n, x) + flat(n, y), 2),
    "nested": (lambda n, x, y: again(lambda a, b: flat(n, a) + flat(n, b).sin(), x, y), 2),
    "cond": (lambda n, x, y: chosen(x, lambda a: n.linear(a).sin(), lambda a: a * n.weight).sum() + y.sum(), 2),
    "cond in checkpoint": (lambda n, x, y: again(lambda a: chosen(a, n.linear, fb.sin).reshape(-1), x).sum() + y.sum(), 2),
    "a number in cond": (lambda n, x, y: chosen(x, lambda a: a.reshape(a.shape[0] * 4), lambda a: a.flatten() * 2).sum() + y.sum(), 99),
}


@pytest.mark.parametrize("name", SIZED)
def test_one_graph_is_for_many_sizes(name: str) -> None:
    f, most = SIZED[name]
    pytest.importorskip("sympy")
    made: list[Any] = []

    def own(graph: Any, examples: Any) -> Any:
        made.append(graph)
        return graph.forward

    sizes = [(2, 3), (4, 4), (5, 3), (6, 7), (7, 7), (3, 6)]
    for backend in (own, aot_autograd(fw_compiler=keep, bw_compiler=keep), compile_fx):
        net = Net()
        compiled = fb.compile(lambda x, y, net=net: f(net, x, y), backend=backend)
        for a, b in sizes:
            x, y = (fb.rand(n, 4, requires_grad=True) for n in (a, b))
            given = *net.linear.parameters(), x, y
            results = [run(x, y) for run in (compiled, lambda x, y, net=net: f(net, x, y))]
            grads = [fb.autograd.grad(r, given, allow_unused=True, materialize_grads=True) for r in results]
            assert fb.equal(*results)
            assert all(fb.equal(g, h) for g, h in zip(*grads, strict=True))
    assert len(made) <= most


def test_random_numbers_that_come_with_others_are_kept_too() -> None:
    aten, again_ = fb.ops.aten, {"recompute": CheckpointPolicy.MUST_RECOMPUTE, "ac_graph_id": 1}
    graph = fb.fx.Graph()
    x, grad = graph.placeholder("primals_1"), graph.placeholder("tangents_1")
    both = graph.call_function(aten.native_dropout.default, (x, 0.5, True))
    value, mask = (graph.call_function(operator.getitem, (both, k)) for k in range(2))
    made = graph.call_function(aten.sin.default, (value,))
    for node in (both, value, mask, made):
        node.meta.update(again_)
    back = graph.call_function(aten.mul.Tensor, (grad, graph.call_function(aten.cos.default, (value,))))
    graph.output([made, graph.call_function(aten.mul.Tensor, (back, mask))])

    forward, backward = default_partition(fb.fx.GraphModule(nn.Module(), graph), [], num_fwd_outputs=1)

    assert [n.target for n in forward.graph.nodes].count(aten.native_dropout.default) == 1
    assert aten.native_dropout.default not in [n.target for n in backward.graph.nodes]
    values = forward(fb.ones(8))
    kept = dict(zip([n.name for n in forward.graph.find_nodes(op="output")[0].args[0][1:]], values[1:], strict=True))
    assert fb.equal(*backward(*values[1:], fb.ones(8)), kept["getitem"].cos() * kept["getitem_1"])
