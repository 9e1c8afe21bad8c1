"""Traces: what a function or module ran on an example, run again on other inputs; beside PyTorch's where that is installed."""

from __future__ import annotations

import re
import warnings

import pytest

import flambeau as fb
from flambeau import jit, nn
from flambeau.utils._pytree import tree_leaves


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 5), nn.Dropout(0.5))


def test_a_traced_network_takes_batches_of_other_sizes():
    model = network().eval()

    traced = jit.trace(model, fb.randn(2, 3, 8, 8))
    x = fb.randn(5, 3, 8, 8)

    assert isinstance(traced, jit.ScriptModule)
    assert isinstance(traced, jit.TopLevelTracedModule)
    assert traced(x).equal(model(x))


@pytest.mark.parametrize(("kind", "settings"), [("LSTM", {"num_layers": 2, "bidirectional": True}), ("GRU", {"bias": False}), ("RNN", {})])
def test_traced_recurrent_networks_take_sequences_of_other_lengths(kind, settings):
    model = getattr(nn, kind)(4, 5, batch_first=True, **settings)

    traced = jit.trace(model, fb.randn(2, 3, 4))

    for batch, length in ((2, 3), (2, 7), (5, 1)):
        x = fb.randn(batch, length, 4)
        assert all(a.equal(b) for a, b in zip(tree_leaves(traced(x)), tree_leaves(model(x)), strict=True))
    assert f"torch.{kind.lower()}" in traced.code


def test_a_trace_finds_the_functions_of_its_operators_once(monkeypatch):
    model = network().eval()
    traced = jit.trace(model, fb.randn(2, 3, 8, 8))
    x = fb.randn(5, 3, 8, 8)
    expected = model(x)

    monkeypatch.setattr(fb._ops.OpOverload, "__call__", None)

    assert traced(x).equal(expected)


def test_a_traced_network_has_the_parameters_of_its_source():
    model = network().eval()
    traced = jit.trace(model, fb.randn(2, 3, 8, 8))
    x = fb.randn(2, 3, 8, 8)

    assert list(traced.state_dict()) == list(model.state_dict())
    with fb.no_grad():
        model[0].weight.mul_(2)
    assert traced(x).equal(model(x))
    traced(x).sum().backward()
    assert model[4].bias.grad.tolist() == [2.0] * 5
    traced.load_state_dict({name: fb.zeros_like(x) for name, x in model.state_dict().items()})
    assert not model[4].weight.any()


def test_parameters_that_are_replaced_in_a_trace_are_used():
    traced = jit.trace(nn.Linear(2, 2), fb.ones(1, 2)).double()

    assert traced(fb.ones(1, 2, dtype=fb.float64)).dtype is fb.float64


def test_a_trace_keeps_the_mode_of_its_example():
    model = network().eval()
    traced = jit.trace(model, fb.randn(2, 3, 8, 8))
    before = model[1].running_mean.clone()

    traced.train()(fb.randn(2, 3, 8, 8))

    assert model[1].running_mean.equal(before)


def test_a_trace_in_training_draws_and_keeps_statistics_as_its_source():
    model = network()
    traced = jit.trace(model, fb.randn(2, 3, 8, 8))
    x = fb.randn(4, 3, 8, 8)
    start = {name: value.clone() for name, value in model.state_dict().items()}

    fb.manual_seed(1)
    expected = model(x)
    after = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(start)
    fb.manual_seed(1)

    assert traced(x).equal(expected)
    assert all(after[name].equal(value) for name, value in model.state_dict().items())


def test_tracing_leaves_random_numbers_and_statistics_as_they_were():
    model = network()
    before, state = model[1].running_mean.clone(), fb.get_rng_state()

    jit.trace(model, fb.ones(2, 3, 8, 8))

    assert model[1].running_mean.equal(before)
    assert fb.get_rng_state().equal(state)


def test_what_is_computed_of_sizes_is_computed_anew():
    traced = jit.trace(lambda x: x.reshape(x.size(0), -1).sum(1) * x.shape[-1], fb.ones(2, 3, 4))

    assert traced(fb.ones(3, 2, 5)).tolist() == [50.0] * 3


def test_values_that_the_program_asks_for_are_constants_and_are_warned_of():
    def step(x):
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.warns(jit.TracerWarning, match="constants of the trace"):
        traced = jit.trace(step, fb.ones(2))

    assert traced(-fb.ones(3)).tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("step", "asked"),
    [
        (lambda x: x + 1 if x.shape[0] == 5 else x, "input0.size()[0] != 5"),
        (lambda x: x + 1 if x.shape[0] > 3 else x, "input0.size()[0] > 3"),
        (lambda x: sum(x[i] for i in range(x.size(0))), "input0.size()[0] == 4"),
    ],
)
def test_what_the_program_decides_by_sizes_is_warned_of_at_its_line(step, asked):
    with pytest.warns(jit.TracerWarning, match=re.escape(f"not {asked}")) as found:
        traced = jit.trace(step, fb.ones(4, 2))

    assert {warning.filename for warning in found} == {__file__}
    assert traced(fb.ones(4, 2)).equal(step(fb.ones(4, 2)))


def test_what_operators_ask_of_sizes_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced = jit.trace(fb.nn.Linear(4, 4), fb.ones(3, 4))

    assert [tuple(traced(fb.ones(n, 4)).shape) for n in (1, 4)] == [(1, 4), (4, 4)]


def test_what_python_decides_by_the_inputs_is_found_by_the_check():
    calls = []

    def changing(x):
        calls.append(1)
        return x * len(calls)

    with pytest.warns(jit.TracerWarning, match="Output nr 1. of the traced function does not match"):
        jit.trace(changing, fb.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jit.trace(changing, fb.ones(2), check_trace=False)


def test_results_keep_their_structure():
    traced = jit.trace(lambda x, ys: (x + ys[0], (x * ys[1], x)), (fb.ones(2), [fb.ones(2), fb.ones(2) * 3]))

    first, (second, third) = traced(fb.zeros(3), [fb.ones(3), fb.ones(3)])

    assert (first.tolist(), second.tolist(), third.tolist()) == ([1.0] * 3, [0.0] * 3, [0.0] * 3)


@pytest.mark.parametrize("made", [lambda x: {"a": x}, lambda x: [x], lambda x: (x, [x])])
def test_lists_and_dicts_are_results_of_traces_that_are_not_strict(made):
    with pytest.raises(RuntimeError, match="at the output of the tracer might cause the trace to be incorrect"):
        jit.trace(made, fb.ones(2))

    again = jit.trace(made, fb.ones(2), strict=False)(fb.zeros(3))

    assert type(again) is type(made(fb.ones(2)))


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: jit.trace(lambda x, n: x * n, (fb.ones(2), 3)), RuntimeError, "of type 'int' cannot be traced"),
        (lambda: jit.trace(lambda x: 3, fb.ones(2)), RuntimeError, "a result of type 'int' cannot be traced"),
        (lambda: jit.trace(fb.relu), RuntimeError, "example_inputs must be given"),
        (lambda: jit.trace(fb.relu, fb.ones(2), example_kwarg_inputs={"input": fb.ones(2)}), RuntimeError, "exclude each other"),
        (lambda: jit.trace(fb.relu, fb.ones(2))(fb.ones(2, 2)), RuntimeError, "takes 1-dimensional tensors"),
        (lambda: jit.trace(fb.relu, fb.ones(2))(fb.ones(2), fb.ones(2)), RuntimeError, "structure of the example"),
        (lambda: jit.trace(fb.relu, fb.ones(2))(2), RuntimeError, "takes Tensors, got int"),
        (lambda: jit.trace_module(fb.relu, {"forward": fb.ones(2)}), AttributeError, "expected torch.nn.Module"),
        (lambda: jit.trace_module(nn.ReLU(), fb.ones(2)), AttributeError, "must be a dictionary"),
        (lambda: jit.trace_module(nn.ReLU(), {"backward": fb.ones(2)}), AttributeError, "backward"),
    ],
)
def test_what_cannot_be_traced_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_arguments_may_be_given_by_name():
    def scaled(x, *, factor):
        return x * factor

    traced = jit.trace(scaled, example_kwarg_inputs={"x": fb.ones(2), "factor": fb.ones(2)})

    assert traced(x=fb.ones(2), factor=fb.ones(2) * 3).tolist() == [3.0, 3.0]


def test_several_methods_of_a_module_are_traced():
    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(fb.eye(2) * 2)

        def forward(self, x):
            return self.decode(self.encode(x))

        def encode(self, x):
            return x @ self.weight

        def decode(self, x):
            return x @ self.weight.inverse()

    traced = jit.trace_module(Coder(), {"forward": fb.ones(1, 2), "encode": fb.ones(1, 2)})

    assert traced(fb.ones(3, 2)).tolist() == [[1.0, 1.0]] * 3
    assert traced.encode(fb.ones(3, 2)).tolist() == [[2.0, 2.0]] * 3


def test_a_program_can_ask_whether_it_is_traced():
    seen = []

    def asks(x):
        seen.append((jit.is_tracing(), fb._C._get_tracing_state() is not None))
        return x + 1

    jit.trace(asks, fb.ones(2), check_trace=False)
    asks(fb.ones(2))

    assert seen == [(True, True), (False, False)]


def test_the_operations_of_a_trace_can_be_read():
    assert "torch.relu" in jit.trace(nn.ReLU(), fb.ones(2)).code
    assert "torch.relu" in jit.trace(fb.relu, fb.ones(2)).code
    assert "(0): Linear(original_name=Linear)" in repr(jit.trace(nn.Sequential(nn.Linear(1, 1)), fb.ones(1, 1)))


def test_traces_give_pytorchs_numbers():
    torch = pytest.importorskip("torch")
    ours = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2)).eval()
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.GELU(), torch.nn.Linear(4, 2)).eval()
    theirs.load_state_dict({name: torch.from_numpy(x.numpy()) for name, x in ours.state_dict().items()})
    x = fb.randn(5, 3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = torch.jit.trace(theirs, torch.ones(2, 3))(torch.from_numpy(x.numpy()))

    assert fb.allclose(jit.trace(ours, fb.ones(2, 3))(x), fb.from_numpy(expected.detach().numpy()), atol=1e-6)


def test_other_operations_on_other_inputs_are_found_by_check_inputs():
    def looped(x):
        result = x[0]
        for i in range(x.size(0)):
            result = result * x[i]
        return result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(jit.TracingCheckError, match="Graphs differed across invocations"):
            jit.trace(looped, fb.rand(3, 4), check_inputs=[(fb.rand(4, 4),)])
    jit.trace(lambda x: x[0] * x.size(0), fb.rand(3, 4), check_inputs=[(fb.rand(4, 5),), (fb.rand(6, 2),)])


def test_scripts_inside_of_traces_keep_their_branches():
    @jit.script
    def larger(x, y):
        r = x if bool(x.max() > y.max()) else y
        for i in range(x.size(0)):
            r = r + i
        return r, r * 2

    def program(x, y):
        a, b = larger(x, y)
        return a + b

    low, high = fb.zeros(3), fb.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced = jit.trace(program, (low, high))
    for args in ((low, high), (high * 5, high), (fb.rand(4), fb.rand(4))):
        assert traced(*args).equal(program(*args))
    assert "__torch__.larger" in traced.code or "larger" in traced.code
    x = fb.rand(3, requires_grad=True)
    traced(x, x * 2).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0, 6.0]


# Programs, an example, and another input: sizes that are equal, or 1, in the example are not in the other.
OTHER_SIZES = {
    "one example, many": (lambda x: x.view(x.size(0), -1), (1, 3, 2), (4, 3, 2)),
    "merged": (lambda x: x.flatten(1), (1, 4, 2), (3, 5, 6)),
    "turned": (lambda x: x.permute(0, 2, 1).reshape(x.shape[0], -1), (1, 4, 4), (3, 5, 6)),
    "a size as a number": (lambda x: x.sum(1) / x.shape[1], (4, 4), (6, 8)),
    "sizes exchanged": (lambda x: x.new_zeros(x.shape[1], x.shape[0]), (4, 4), (6, 8)),
    "larger images": (lambda x: nn.functional.interpolate(x, size=(x.shape[2] * 2, x.shape[3] * 2)), (1, 1, 4, 4), (2, 1, 6, 8)),
    "repeated": (lambda x: x.repeat(x.shape[0], 1), (1, 4), (3, 5)),
    "chosen": (lambda x: x[fb.arange(x.shape[0]), 0], (1, 4), (3, 5)),
    "broadcast": (lambda x: x + fb.ones(3, 1), (1, 4), (3, 5)),
    "halves": (lambda x: x.chunk(2)[1], (4, 4), (6, 3)),
    "as many parts": (lambda x: (x.tensor_split(3)[1], x.hsplit(2)[1], x.tensor_split((1, -1))[1]), (7, 4), (9, 8)),
    "parts of a size": (lambda x: x.split(3, 1)[1], (2, 5), (4, 6)),
    "stored": (lambda x: x.clone().index_fill_(1, fb.tensor([0]), 0.0), (4, 4), (3, 5)),
}  # fmt: skip


@pytest.mark.parametrize(("program", "example", "other"), OTHER_SIZES.values(), ids=OTHER_SIZES)
def test_sizes_that_are_equal_or_one_in_the_example_may_be_others(program, example, other):
    traced = jit.trace(program, fb.randn(example))
    x = fb.randn(other)

    fb.testing.assert_close(traced(x), program(x), rtol=0, atol=0)


@pytest.mark.parametrize("layer", [nn.MultiheadAttention(4, 2, batch_first=True), nn.MultiheadAttention(4, 2)], ids=["batch first", "last"])
def test_traced_attention_of_one_example_takes_many(layer):
    layer.eval()
    traced = jit.trace(layer, (fb.randn(1, 4, 4),) * 3)
    x = fb.randn(3, 5, 4)

    fb.testing.assert_close(traced(x, x, x), layer(x, x, x))


TAKEN_APART = {
    "rows": (lambda x: sum(x), (3, 4), (5, 4)), "unpacked": (lambda x: sum(x.unbind(1)), (4, 3), (4, 2)),
    "split": (lambda x: sum(part.mean() for part in x.split(2)), (4, 4), (6, 4)),
    "values are read": (lambda x: sum(x) * x.sum().ge(-1e9).item() * float(x.sum()), (3, 4), (5, 4)),
    "chunks": (lambda x: sum(x.chunk(2)), (4, 4), (1, 4)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::flambeau.jit.TracerWarning")
@pytest.mark.parametrize(("program", "example", "other"), TAKEN_APART.values(), ids=TAKEN_APART)
def test_a_tensor_is_taken_apart_into_as_many_parts_as_in_the_example(program, example, other, tmp_path):
    traced = jit.trace(program, fb.ones(example))
    jit.save(traced, tmp_path / "traced.pt")

    fb.testing.assert_close(traced(fb.full(example, 1.0)), program(fb.full(example, 1.0)))
    for each in (traced, jit.load(tmp_path / "traced.pt")):
        with pytest.raises(RuntimeError):
            each(fb.ones(other))
