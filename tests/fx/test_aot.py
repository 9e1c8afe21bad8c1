"""Functions and their derivatives compiled ahead give what they give by themselves, from graphs without writes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau._decomp import get_decompositions
from flambeau._functorch.compile import (
    aot_function,
    aot_module,
    aot_module_simplified,
    debug_compile,
    default_decompositions,
    default_partition,
    get_aot_compilation_context,
    get_aot_graph_name,
    get_graph_being_compiled,
    make_boxed_compiler,
    make_boxed_func,
    memory_efficient_fusion,
    min_cut_rematerialization_partition,
    nop,
    ts_compile,
)
from flambeau.fx.experimental.proxy_tensor import make_fx

F = fb.nn.functional
PARTITIONS = (default_partition, min_cut_rematerialization_partition)


def numbers(*shape: int, seed: int = 0) -> Any:
    return fb.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def chain(x: Any, w: Any) -> Any:
    b = fb.sin(x @ w)
    return fb.relu(b * 2).cos().sum(), b


def normalized(x: Any, w: Any) -> Any:
    h = F.layer_norm(F.gelu(x @ w), (3,))
    return F.softmax(h, -1).pow(2).mean()


def with_writes(x: Any, w: Any) -> Any:
    h = x @ w
    h[0].mul_(2)
    h[:, 1] = w.sum()
    return {"loss": F.log_softmax(h, 1)[:, 0].sum(), "h": h}


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda f: f.__name__[:7])
@pytest.mark.parametrize("program", [chain, normalized, with_writes], ids=lambda f: f.__name__)
def test_gradients_are_those_of_the_program(program: Any, partition: Any) -> None:
    graphs: list[Any] = []

    def compiler(gm: Any, inputs: Any) -> Any:
        assert len([n for n in gm.graph.nodes if n.op == "placeholder"]) == len(inputs)
        graphs.append(gm)
        return gm

    f = aot_function(program, compiler, partition_fn=partition)
    for seed in range(2):
        answers = []
        for run in (f, program):
            x, w = numbers(4, 3, seed=seed).requires_grad_(), numbers(3, 3, seed=seed + 5).requires_grad_()
            results = fb.utils._pytree.tree_leaves(run(x, w))
            sum((r * (i + 1)).sum() for i, r in enumerate(results)).backward()
            answers.append([*results, x.grad, w.grad])
        for ours, plain in zip(*answers, strict=True):
            np.testing.assert_allclose(ours.detach().numpy(), plain.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert len(graphs) == 2
    assert not [n for gm in graphs for n in gm.graph.nodes if getattr(n.target, "_opname", str(n.target)).endswith("_")]


def test_the_cut_of_least_weight_keeps_less() -> None:
    kept = {}

    def program(x: Any) -> Any:
        for _ in range(5):
            x = (x * 2).sin().exp()
        return x.sum()

    for partition in PARTITIONS:
        f = aot_function(program, lambda gm, _, p=partition: kept.setdefault(p, gm), nop, partition_fn=partition)
        f(numbers(10, 10).requires_grad_()).backward()
    counts = [len(kept[p].graph.find_nodes(op="output")[0].args[0]) - 1 for p in PARTITIONS]
    assert counts[0] >= 10
    assert counts[1] == 1


def test_graphs_have_the_inputs_that_pytorchs_have(oracle: Any) -> None:
    import functorch.compile as theirs

    def names(torch: Any, aot: Any, partition: Any, boxed: Any) -> Any:
        seen: list[Any] = []

        def keep(gm: Any, _: Any) -> Any:
            nodes = list(gm.graph.nodes)
            seen.append(([n.name for n in nodes if n.name.startswith(("primals", "tangents"))], len(nodes[-1].args[0])))
            return boxed(gm)

        x = torch.ones(2, 3, requires_grad=True)
        aot(lambda x, y: (x.sin() * y).sum(), keep, keep, partition_fn=partition)(x, torch.ones(3)).backward()
        return seen

    ours = names(fb, aot_function, default_partition, make_boxed_func)
    assert sorted(ours) == sorted(names(oracle, theirs.aot_function, theirs.default_partition, theirs.make_boxed_func))


def test_modules_train_as_they_do_by_themselves() -> None:
    fb.manual_seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(3, 4), fb.nn.BatchNorm1d(4), fb.nn.ReLU(), fb.nn.Linear(4, 2))
    plain = copy.deepcopy(model)
    answers = []
    for net, owner in ((aot_module(model, nop), model), (plain, plain)):
        optimizer = fb.optim.SGD(owner.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            net(numbers(5, 3, seed=step)).pow(2).sum().backward()
            optimizer.step()
        answers.append(owner.state_dict())
    for name, value in answers[0].items():
        np.testing.assert_allclose(value.numpy(), answers[1][name].numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_what_is_written_to_inputs_is_written() -> None:
    def program(x: Any, y: Any) -> Any:
        x.add_(1)
        return x * y, x

    f = aot_function(program, nop)
    x, y = fb.ones(2), fb.ones(2, requires_grad=True)
    product, same = f(x, y)
    product.sum().backward()

    assert x.tolist() == y.grad.tolist() == [2.0, 2.0]
    assert same is x


def test_other_values_and_shapes_have_graphs_of_their_own() -> None:
    made: list[Any] = []
    f = aot_function(lambda d, n: {"out": d["a"] * n}, lambda gm, _: made.append(gm) or gm)

    for n in (3, 4, 3):
        assert f({"a": fb.ones(2)}, n)["out"].tolist() == [n, n]
    assert len(made) == 2
    assert f({"a": fb.ones(1, 3)}, 3)["out"].shape == (1, 3)
    assert len(made) == 3


def test_compilers_may_take_lists_and_decompositions() -> None:
    targets: list[str] = []

    def compiler(gm: Any, _: Any) -> Any:
        targets.extend(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
        return gm

    x = numbers(3, 3).requires_grad_()
    f = aot_function(lambda x: F.silu(x).sum(), make_boxed_compiler(compiler), decompositions=get_decompositions([fb.ops.aten.silu]))
    f(x).backward()
    assert "aten.sigmoid.default" in targets
    assert "aten.silu.default" not in targets
    assert make_boxed_func(lambda a, b: a + b)([1, 2]) == 3


def test_backends_have_modules_compiled_at_once() -> None:
    class Pair(fb.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = fb.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return (self.line(x), x.sum())

    module, x = Pair(), numbers(4, 3)
    f = aot_module_simplified(module, (x,), nop)
    ours = f(x)
    ours[0].sum().backward()
    assert fb.equal(ours[0], module(x)[0])
    assert module.line.weight.grad is not None
    with pytest.raises(RuntimeError, match="tuple outputs"):
        aot_module_simplified(fb.nn.Linear(3, 2), (x,), nop)


def test_functions_keep_little_for_their_derivative() -> None:
    x = numbers(5).requires_grad_()
    memory_efficient_fusion(lambda x: x.sin().exp().cos().sum())(x).backward()
    found, x.grad = x.grad, None
    x.sin().exp().cos().sum().backward()
    np.testing.assert_allclose(found.numpy(), x.grad.numpy(), rtol=1e-6)


def test_a_compiler_can_ask_which_graph_it_compiles() -> None:
    seen: list[Any] = []

    def compiler(gm: Any, _: Any) -> Any:
        seen.append((get_aot_compilation_context(), get_aot_graph_name(), get_graph_being_compiled()))
        return gm

    before = get_aot_compilation_context()[2]
    f = aot_function(lambda x: x.sin().sum(), compiler)
    f(fb.zeros(2, requires_grad=True))
    f(fb.zeros(2))
    parts = [context[0][0].partition("_") for context, _, _ in seen]
    assert [part for _, _, part in parts] == ["forward", "backward", "inference"]
    assert parts[0][0] == parts[1][0] != parts[2][0]
    for i, (context, name, other) in enumerate(seen):
        assert context[1:] == ("model", before + i)
        assert name == other == f"model__{context[0][0]}_{before + i}"
    assert get_aot_compilation_context() == ([], "model", before + 3)
    assert get_graph_being_compiled() == f"model___{before + 3}"


def test_no_graph_is_being_compiled_after_a_compiler_has_failed() -> None:
    def compiler(gm: Any, _: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        aot_function(lambda x: x * 2, compiler)(fb.ones(2))
    assert get_aot_compilation_context()[0] == []


@pytest.mark.parametrize("fn", [lambda x: F.threshold(x, 0.0, 0.0), F.hardswish, F.hardsigmoid, lambda x: x.clamp(0, 1)])
def test_derivatives_with_a_constant_of_zero_are_recorded(fn: Any) -> None:
    x, y = (numbers(5).requires_grad_() for _ in range(2))
    aot_function(fn, nop)(x).sum().backward()
    fn(y).sum().backward()
    assert x.grad.tolist() == y.grad.tolist()


def test_default_decompositions_take_apart_what_pytorchs_do(oracle: Any) -> None:
    import functorch.compile as theirs

    def seen(torch: Any, aot: Any, table: Any, boxed: Any, name: str) -> list[str]:
        found: list[str] = []

        def keep(gm: Any, _: Any) -> Any:
            found[:] = found or [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
            return boxed(gm)

        x = torch.linspace(-2, 2, 5).requires_grad_()
        aot(getattr(torch.nn.functional, name), keep, keep, decompositions=table)(x).sum().backward()
        return found

    for name in ("leaky_relu", "elu", "hardtanh", "silu", "gelu"):
        ours = seen(fb, aot_function, default_decompositions, make_boxed_func, name)
        assert ours == seen(oracle, theirs.aot_function, theirs.default_decompositions, theirs.make_boxed_func, name)
    assert {str(op) for op in default_decompositions} <= {str(op) for op in theirs.default_decompositions}


@pytest.mark.parametrize("compiler", [ts_compile, debug_compile])
def test_graphs_are_scripted(compiler: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[Any] = []
    f = aot_function(lambda x: (x.sin() * 2).sum(), lambda gm, inputs: made.append(compiler(gm, inputs)) or made[-1])
    x, plain = numbers(5).requires_grad_(), numbers(5).requires_grad_()
    f(x).backward()
    (plain.sin() * 2).sum().backward()

    assert fb.equal(x.grad, plain.grad)
    assert len(made) == 2
    assert ("class Repro(torch.nn.Module):" in capsys.readouterr().out) is (compiler is debug_compile)


@pytest.mark.parametrize("make", [
    lambda: fb.nn.GELU(), lambda: fb.nn.LogSoftmax(-1), lambda: fb.nn.Softmax(-1), lambda: fb.nn.LeakyReLU(),
    lambda: fb.nn.Sequential(fb.nn.Linear(6, 8), fb.nn.GELU(), fb.nn.Linear(8, 3)),
], ids=["gelu", "log_softmax", "softmax", "leaky_relu", "mlp"])  # fmt: skip
def test_compiled_gradients_have_eagers_bits(make: Any) -> None:
    model = make()
    plain, answers = copy.deepcopy(model), []
    for net, owner in ((aot_module(model, nop), model), (plain, plain)):
        x = numbers(5, 6).requires_grad_()
        net(x).pow(2).sum().backward()
        answers.append([x.grad, *[p.grad for p in owner.parameters()]])

    assert all(fb.equal(ours, eager) for ours, eager in zip(*answers, strict=True))


CAPTURING = {
    "factor": lambda x, v, w: x * v,
    "product": lambda x, v, w: (x @ w).tanh() @ w.T,
    "linear": lambda x, v, w: F.linear(x, w, v),
    "layer_norm": lambda x, v, w: F.layer_norm(x, (3,), v),
    "batch_norm": lambda x, v, w: F.batch_norm(x, v, v),
}


@pytest.mark.parametrize("name", CAPTURING)
def test_gradients_through_captured_tensors(name: str) -> None:
    v, w = fb.rand(3) + 0.5, fb.rand(3, 3)
    f = aot_function(lambda x: CAPTURING[name](x, v, w), nop)
    for _ in range(2):
        one = fb.rand(4, 3, requires_grad=True)
        other = one.detach().clone().requires_grad_()
        f(one).square().sum().backward()
        CAPTURING[name](other, v, w).square().sum().backward()
        fb.testing.assert_close(one.grad, other.grad)
        w += 1                                        # what is captured is read in each call


def test_gradients_that_arrive_in_other_strides_than_results_have() -> None:
    attention = fb.nn.MultiheadAttention(8, 2, batch_first=True)
    f = aot_function(lambda x: attention(x, x, x)[0], nop)
    x = fb.randn(2, 5, 8, requires_grad=True)
    f(x).mT.contiguous().cos().sum().backward()
    found, x.grad = x.grad, None
    attention(x, x, x)[0].cos().sum().backward()
    fb.testing.assert_close(found, x.grad)


@pytest.mark.parametrize("f", [
    lambda x: F.glu(x, 0), lambda x: F.glu(x), lambda x: fb.linalg.qr(x)[1], lambda x: fb.linalg.svdvals(x),
    lambda x: F.multi_margin_loss(x, fb.tensor([1, 0, 2, 3])), lambda x: F.multilabel_margin_loss(x, fb.tensor([[0, 2, -1, 1]] * 4)),
    lambda x: F.gaussian_nll_loss(x, x.detach() * 2, x.exp()), lambda x: F.binary_cross_entropy(x.sigmoid(), x.detach().square().tanh()),
    lambda x: 1 / x.prod(0) + x.cumprod(0),
], ids=["glu_0", "glu", "qr", "svdvals", "multi_margin", "multilabel_margin", "gaussian_nll", "binary_entropy", "products"])  # fmt: skip
def test_gradients_of_operations_that_check_values_or_give_several_are_recorded(f: Any) -> None:
    x, plain = numbers(4, 4).requires_grad_(), numbers(4, 4).requires_grad_()
    for partition in (default_partition, min_cut_rematerialization_partition):
        x.grad = plain.grad = None
        aot_function(f, nop, partition_fn=partition)(x).square().sum().backward()
        f(plain).square().sum().backward()
        assert fb.equal(x.grad, plain.grad)


def test_writes_through_narrow_views_are_functionalized() -> None:
    def program(x: Any) -> Any:
        y = x.clone()
        y.narrow(1, 1, 2).mul_(3)
        y.narrow(0, -1, 1).add_(1)
        return y

    x = numbers(3, 4)
    graph = make_fx(fb.func.functionalize(program))(x)
    assert not [n for n in graph.graph.nodes if str(n.target).endswith(("_.Tensor", "_.Scalar"))]
    assert fb.equal(graph(x), program(x))


WITH_RESIDUALS = {
    "cross_entropy": lambda x, at: F.cross_entropy(x, at),
    "cross_entropy_without_some": lambda x, at: F.cross_entropy(x, at, ignore_index=1, reduction="sum"),
    "nll_loss_of_images": lambda x, at: F.nll_loss(x.reshape(2, 3, 3, 2).log_softmax(1), at.reshape(2, 3, 1).expand(2, 3, 2)),
    "max_pool2d": lambda x, at: F.max_pool2d(x[None], 2).square().sum(),
}


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("program", WITH_RESIDUALS)
def test_gradients_that_read_what_kernels_kept_are_recorded_to_the_last_bit(program: str, kind: str) -> None:
    def loss(x: Any) -> Any:
        return WITH_RESIDUALS[program](x, fb.tensor([0, 2, 1, 2, 0, 1]))

    def slope(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return fb.autograd.grad(loss(x), x)[0]

    first, x = (numbers(6, 6, seed=seed).to(getattr(fb, kind)) for seed in (0, 1))
    f = aot_function(loss, nop)
    f(first.clone().requires_grad_()).backward()
    ahead = x.clone().requires_grad_()
    f(ahead).backward()
    wanted = slope(x).numpy().tobytes()
    assert ahead.grad.numpy().tobytes() == wanted
    assert make_fx(slope)(first)(x).numpy().tobytes() == wanted
    assert make_fx(fb.func.grad(loss))(first)(x).numpy().tobytes() == wanted


def by_parameters(module: Any) -> Any:
    return lambda x, *parameters: fb.func.functional_call(module, dict(zip(dict(module.named_parameters()), parameters, strict=True)), (x,))


def attention(x: Any) -> Any:
    return F.scaled_dot_product_attention(x, x.flip(0), x * 2, is_causal=True)


def attention_by_mask(x: Any, mask: Any) -> Any:
    return F.scaled_dot_product_attention(x, x.flip(0), x * 2, mask)


def attention_of_transposed(x: Any) -> Any:
    parts = x.transpose(1, 2)
    return F.scaled_dot_product_attention(parts, parts, parts).transpose(1, 2).reshape(2, -1)


def of_network(module: Any) -> tuple[Any, ...]:
    """A recurrent network's output and last state as one sum, of its input and parameters."""
    run = by_parameters(module)

    def program(*given: Any) -> Any:
        output, last = run(*given)
        return output.square().sum() + sum(x.sin().sum() for x in (last if isinstance(last, tuple) else (last,)))

    return program, (5, 3, 4), *[tuple(p.shape) for p in module.parameters()]


AS_ONE_NODE = {
    "batch": (by_parameters(fb.nn.BatchNorm2d(4, track_running_stats=False)), (3, 4, 5, 5), (4,), (4,)),
    "batch_by_running": (lambda x, w, b: F.batch_norm(x, b.detach(), w.detach().exp(), w, b), (3, 4, 5, 5), (4,), (4,)),
    "batch_of_channels_last": (
        lambda x, w, b: F.batch_norm(x.contiguous(memory_format=fb.channels_last), None, None, w, b, True).sin(), (3, 4, 5, 5), (4,), (4,),
    ),
    "group": (by_parameters(fb.nn.GroupNorm(2, 4)), (3, 4, 5, 5), (4,), (4,)),
    "group_alone": (lambda x: F.group_norm(x, 2), (3, 4, 5)),
    "instance": (by_parameters(fb.nn.InstanceNorm1d(4, affine=True)), (3, 4, 9), (4,), (4,)),
    "layer": (by_parameters(fb.nn.LayerNorm((3, 7))), (5, 3, 7), (3, 7), (3, 7)),
    "rms": (by_parameters(fb.nn.RMSNorm(33)), (5, 33), (33,)),
    "attention": (attention, (2, 3, 33, 8)),
    "lstm": of_network(fb.nn.LSTM(4, 6, 2, bidirectional=True)),
    "lstm_without_biases": of_network(fb.nn.LSTM(4, 6, bias=False)),
    "gru": of_network(fb.nn.GRU(4, 6)),
    "rnn": of_network(fb.nn.RNN(4, 6, nonlinearity="relu")),
    "attention_by_mask": (attention_by_mask, (2, 3, 33, 8), (33, 33)),
    "attention_of_transposed": (attention_of_transposed, (2, 9, 3, 8)),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("program", AS_ONE_NODE)
def test_gradients_of_layers_are_recorded_to_the_last_bit(program: str, kind: str) -> None:
    if program == "batch_of_channels_last" and fb.kernels.backend() == "numpy":
        pytest.skip("numpy adds up in the order of memory, and plain gradients of a sum arrive row by row")
    if program in ("lstm", "lstm_without_biases", "gru", "rnn") and fb.kernels.backend() == "numpy":
        pytest.skip("there networks are composed of steps, whose gradients graphs add in an order of their own")
    f, *shapes = AS_ONE_NODE[program]

    def loss(*args: Any) -> Any:
        return (f(*args) * 0.7).square().sum()

    def slopes(*args: Any) -> Any:
        own = [x.detach().requires_grad_() for x in args]
        return fb.autograd.grad(loss(*own), own)

    def ahead(*args: Any) -> Any:
        own = [x.detach().requires_grad_() for x in args]
        compiled(*own).backward()
        return [x.grad for x in own]

    compiled = aot_function(loss, nop)
    first, given = ([numbers(*shape, seed=seed + i).to(getattr(fb, kind)) for i, shape in enumerate(shapes)] for seed in (0, 9))
    wanted = [g.numpy().tobytes() for g in slopes(*given)]
    recorded, of_transform = (make_fx(g)(*first) for g in (slopes, fb.func.grad(loss, tuple(range(len(shapes))))))
    ahead(*first)
    assert [n for n in recorded.graph.nodes if str(n.target).startswith(("prims", "torch.ops.prims")) and "_backward" in str(n.target)]
    for run in (ahead, recorded, of_transform):
        assert [g.numpy().tobytes() for g in run(*given)] == wanted
    with fb.inference_mode():
        assert [g.numpy().tobytes() for g in recorded(*[x.clone() for x in given])] == wanted


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("make", [fb.nn.LSTMCell, fb.nn.GRUCell, fb.nn.RNNCell])
def test_gradients_of_cells_are_recorded_to_the_last_bit(make: Any, kind: str) -> None:
    cell = make(4, 6).to(getattr(fb, kind))
    run, parameters = by_parameters(cell), [p.detach() for p in cell.parameters()]

    def slopes(*given: Any) -> Any:
        own = [x.detach().requires_grad_() for x in given]
        made = run(*own)
        return fb.autograd.grad((made[0] * made[1]).sum() if isinstance(made, tuple) else made.sin().sum(), own)

    given = [numbers(5, 4).to(getattr(fb, kind)), *parameters]
    for mode in ("real", "fake"):
        found = make_fx(slopes, tracing_mode=mode)(*given)(*given)
        assert [g.numpy().tobytes() for g in found] == [g.numpy().tobytes() for g in slopes(*given)]


def test_a_recorded_gradient_of_a_normalization_has_derivatives_of_its_own() -> None:
    whole = fb.ops.prims.normalize_groups_backward.default
    given = [numbers(2, 4, 3, seed=seed).double().requires_grad_() for seed in (0, 1)]
    assert fb.autograd.gradcheck(lambda g, x: whole(g, x, 2)[0], given)


@pytest.mark.parametrize("drop", ["dropout", "alpha_dropout", "dropout1d", "feature_alpha_dropout"])
def test_dropout_in_training_drops_what_it_does_eagerly(drop: str) -> None:
    function = getattr(fb.nn.functional, drop)
    x, y = (fb.arange(24.0).reshape(2, 3, 4).requires_grad_() for _ in range(2))

    fb.manual_seed(1)
    found = aot_function(lambda t: function(t.sin(), 0.3, training=True), lambda graph, inputs: graph)(x)
    found.sum().backward()
    fb.manual_seed(1)
    expected = function(y.sin(), 0.3, training=True)
    expected.sum().backward()
    assert found.equal(expected)
    assert x.grad.equal(y.grad)


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16], ids=str)
@pytest.mark.parametrize("f", [
    lambda x, w: (x * w).sigmoid() * w + x, lambda x, w: fb.nn.functional.gelu(x * w), lambda x, w: x / (w.abs() + 1),
    lambda x, w: (x.abs() + 1).log() * w, lambda x, w: fb.nn.functional.silu(x * w) * x[0], lambda x, w: (x**3).tanh() * w,
    lambda x, w: fb.nn.functional.elu(x * w) * w.mean(),
], ids=["sigmoid", "gelu", "div", "log", "silu", "pow", "elu"])  # fmt: skip
def test_gradients_of_halves_in_graphs_are_rounded_as_those_of_eager(f: Any, dtype: Any) -> None:
    x, w, g = (fb.randn(37, 41).to(dtype) for _ in range(3))
    x.requires_grad_()
    w.requires_grad_()
    expected = fb.autograd.grad(f(x, w), (x, w), g)
    found = fb.autograd.grad(aot_function(f, nop)(x, w), (x, w), g)
    again = fb.autograd.grad(f(x, w), (x, w), g, create_graph=True)

    assert all(fb.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert all(fb.equal(a, b) for a, b in zip(again, expected, strict=True))


@pytest.mark.parametrize("exponent", [2, 3])
def test_gradients_of_squares_and_cubes_have_the_bits_of_eager_ones(exponent):
    x = fb.randn(50, 40, requires_grad=True)
    (x**exponent).backward(fb.linspace(-1, 1, 2000).view(50, 40))
    again = x.detach().clone().requires_grad_()
    aot_function(lambda x: x**exponent, nop)(again).backward(fb.linspace(-1, 1, 2000).view(50, 40))

    assert fb.equal(x.grad, again.grad)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.float16], ids=str)
@pytest.mark.parametrize("exponent", [-2, -1, -0.5, 0.5, 1.5, 2.5, 4])
def test_gradients_of_powers_have_the_bits_of_eager_ones(exponent: float, dtype: Any) -> None:
    x, g = fb.rand(50, 40).add(0.1).to(dtype).requires_grad_(), fb.linspace(-1, 1, 2000).view(50, 40).to(dtype)
    (expected,) = fb.autograd.grad(x**exponent, x, g)
    (found,) = fb.autograd.grad(aot_function(lambda x: x**exponent, nop)(x), x, g)
    (again,) = fb.autograd.grad(x**exponent, x, g, create_graph=True)

    assert fb.equal(found, expected)
    assert fb.equal(again, expected)


@pytest.mark.parametrize("exponent", [-1, 0.5, 1.5, 4])
def test_powers_by_numbers_have_second_derivatives(exponent: float) -> None:
    x = fb.rand(5).add(0.5).double().requires_grad_()
    assert fb.autograd.gradgradcheck(lambda x: x**exponent, x)
    assert (x**exponent).grad_fn.name() == "PowBackward0"
    assert (x**exponent).grad_fn._saved_exponent == exponent


def test_a_bias_adds_up_rows_in_one_order_however_its_gradient_lies() -> None:
    x, weight = numbers(10, 4, 16).requires_grad_(), numbers(32, 16).requires_grad_()
    bias, g = numbers(32).requires_grad_(), numbers(4, 10, 32, seed=1)
    (once,) = fb.autograd.grad(F.linear(x, weight, bias), bias, g.transpose(0, 1))
    (twice,) = fb.autograd.grad(F.linear(x, weight, bias), bias, g.transpose(0, 1).contiguous())
    compiled = aot_function(lambda *given: F.linear(*given).transpose(0, 1), nop)
    (found,) = fb.autograd.grad(compiled(x, weight, bias), bias, g)

    assert fb.equal(once, twice)
    assert fb.equal(once, found)
    assert fb.allclose(once.double(), g.double().sum((0, 1)), atol=1e-5)


def test_a_bias_of_more_dimensions_keeps_them() -> None:
    bias = fb.zeros(10, 8, requires_grad=True)
    F.linear(numbers(4, 10, 16), numbers(8, 16), bias).sum().backward()

    assert fb.equal(bias.grad, fb.full((10, 8), 4.0))


def test_running_statistics_are_results_of_graphs_that_write_to_nothing() -> None:
    graphs: list[Any] = []
    net = fb.nn.Sequential(fb.nn.Conv2d(2, 3, 1), fb.nn.BatchNorm2d(3)).train()
    again, x = copy.deepcopy(net), numbers(2, 2, 4, 4)
    compiled = aot_module(net, lambda graph, inputs: graphs.append(graph) or graph)
    for _ in range(2):
        compiled(x).square().sum().backward()
        again(x).square().sum().backward()

    names = [node.target._opname for node in graphs[0].graph.nodes if hasattr(node.target, "_opname")]
    assert "_native_batch_norm_legit_functional" in names
    assert "batch_norm" not in names
    assert all(fb.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True))
    assert all(fb.equal(a.grad, b.grad) for a, b in zip(net.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_smoothed_cross_entropies_have_the_bits_of_eager_ones(reduction: str, weighted: bool) -> None:
    x, target = numbers(64, 100).requires_grad_(), fb.arange(64) % 100
    weight = numbers(100, seed=1).exp() if weighted else None

    def loss(x: Any, target: Any) -> Any:
        return F.cross_entropy(x, target, weight, ignore_index=3, reduction=reduction, label_smoothing=0.1)

    expected, found = loss(x, target), aot_function(loss, nop)(x, target)
    g = fb.linspace(0.5, 1.5, expected.numel()).view(expected.shape)
    assert fb.equal(found, expected)
    assert fb.equal(fb.autograd.grad(found, x, g)[0], fb.autograd.grad(expected, x, g)[0])


def test_the_gradient_of_a_smoothed_cross_entropy_has_derivatives_of_its_own() -> None:
    x, target = numbers(3, 4).double().requires_grad_(), fb.tensor([0, 2, 1])
    whole = fb.ops.prims.smooth_cross_entropy.default
    assert fb.autograd.gradcheck(lambda x: whole(x, target, None, 2, "mean", 0.2), x)
    assert fb.autograd.gradgradcheck(lambda x: whole(x, target, None, 2, "none", 0.2), x)
