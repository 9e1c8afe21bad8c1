"""Recurrent layers as whole ops against their composition of steps, and what a layer has to go on doing around them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import flambeau as fb
from flambeau import _state, nn
from flambeau.nn.utils import rnn as packing
from flambeau.ops._spec import OPS
from flambeau_kernels.cpu import recurrent as kernels
from flambeau_kernels.cpu import tier

KINDS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 3})]
needs_compiler = pytest.mark.skipif(not tier.compiles(), reason="nothing is compiled here")


def layer(kind, options, dtype=fb.float64, **more):
    fb.manual_seed(0)
    return getattr(nn, kind)(4, 6, **options, **more, dtype=dtype)


def parts(state):
    return state if isinstance(state, tuple) else (state,)


def results(net, x, sizes=None):
    """Outputs, states and the gradients of parameters and input, of a loss that every output takes part in."""
    net = copy.deepcopy(net)
    x = x.detach().clone().requires_grad_()
    given = x if sizes is None else packing.pack_padded_sequence(x, sizes, enforce_sorted=False)
    out, state = net(given)
    data = out if sizes is None else out.data
    loss = (data * fb.arange(data.numel()).reshape(data.shape).sin()).sum() + sum((s * s).sum() for s in parts(state))
    loss.backward()
    return [data, *parts(state), x.grad, *(p.grad for p in net.parameters())]


def agree(a, b, tolerance=1e-12):
    for one, other in zip(a, b, strict=True):
        np.testing.assert_allclose(one.detach().double().numpy(), other.detach().double().numpy(), rtol=tolerance, atol=tolerance)


def by_steps(monkeypatch):
    monkeypatch.setattr(kernels, "fits", lambda *_: False)


@pytest.mark.parametrize("more", [
    {}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}, {"bias": False},
], ids=str)  # fmt: skip
@pytest.mark.parametrize(("kind", "options"), KINDS, ids=str)
def test_a_layer_is_its_steps(kind, options, more, monkeypatch):
    net = layer(kind, options, **more)
    x = fb.randn(5, 3, 4, dtype=fb.float64)
    whole = results(net, x)

    by_steps(monkeypatch)

    agree(whole, results(net, x))


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=str)
def test_a_layer_over_packed_sequences_is_its_steps(kind, options, monkeypatch):
    net = layer(kind, options, num_layers=2, bidirectional=True)
    x = fb.randn(5, 4, 4, dtype=fb.float64)
    sizes = fb.tensor([2, 5, 1, 4])
    whole = results(net, x, sizes)

    by_steps(monkeypatch)

    agree(whole, results(net, x, sizes))


@needs_compiler
@pytest.mark.parametrize(("kind", "options"), KINDS[:4], ids=str)
def test_a_layer_is_one_op(kind, options):
    out, _ = layer(kind, options)(fb.randn(5, 3, 4, dtype=fb.float64))

    assert out.grad_fn.name().startswith("RecurrentLayer")


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=str)
def test_first_and_second_derivatives(kind, options):
    net = layer(kind, options)
    x = fb.randn(3, 2, 4, dtype=fb.float64, requires_grad=True)

    def run(x, *weights):
        out, state = fb.func.functional_call(net, dict(zip(names, weights, strict=True)), (x,))
        return (out, *parts(state))

    names = [n for n, _ in net.named_parameters()]
    weights = tuple(p.detach().clone().requires_grad_() for p in net.parameters())
    assert fb.autograd.gradcheck(run, (x, *weights), fast_mode=True)
    assert fb.autograd.gradgradcheck(run, (x, *weights), fast_mode=True)


def test_gradient_of_a_state_the_input_was_computed_from():
    net = layer("LSTM", {})
    h = fb.randn(1, 3, 6, dtype=fb.float64, requires_grad=True)
    c = fb.zeros(1, 3, 6, dtype=fb.float64)
    found = []
    for again in (False, True):
        out, _ = net(h[0, :, :4].expand(5, 3, 4), (h, c))
        found += fb.autograd.grad(out.sin().sum(), h, create_graph=again)

    agree(found[:1], found[1:])


@pytest.mark.parametrize(("kind", "options"), KINDS[:4], ids=str)
def test_transforms_see_the_steps(kind, options):
    net = layer(kind, options)
    xs = fb.randn(2, 5, 3, 4, dtype=fb.float64)

    stacked = fb.vmap(lambda x: net(x)[0])(xs)
    value, tangent = fb.func.jvp(lambda x: net(x)[0], (xs[0],), (xs[1],))
    step = 1e-6 * xs[1]

    agree([stacked], [fb.stack([net(x)[0] for x in xs])])
    agree([value], [net(xs[0])[0]])
    agree([tangent], [(net(xs[0] + step)[0] - net(xs[0] - step)[0]) / 2e-6], 1e-6)


def test_results_may_be_overwritten_before_the_gradient():
    net = layer("LSTM", {})
    x = fb.randn(5, 3, 4, dtype=fb.float64, requires_grad=True)
    (expected,) = fb.autograd.grad((net(x)[0] * 2).sum(), x)
    out = net(x)[0]
    out.mul_(2)
    (found,) = fb.autograd.grad(out.sum(), x)

    agree([found], [expected])


def test_a_graph_that_is_kept_gives_the_same_again():
    net = layer("GRU", {})
    x = fb.randn(5, 3, 4, dtype=fb.float64, requires_grad=True)
    loss = net(x)[0].sin().sum()
    (first,) = fb.autograd.grad(loss, x, retain_graph=True)
    (second,) = fb.autograd.grad(loss, x)

    assert first.equal(second)


def test_only_states_are_used():
    net = layer("LSTM", {}, num_layers=2)
    x = fb.randn(5, 3, 4, dtype=fb.float64, requires_grad=True)

    def run(x):
        return net(x)[1]

    assert fb.autograd.gradcheck(run, (x,))


def test_dropout_between_layers_follows_the_seed():
    net = layer("LSTM", {}, num_layers=2, dropout=0.5)
    x = fb.randn(5, 3, 4, dtype=fb.float64)
    drawn = []
    for seed in (1, 1, 2):
        fb.manual_seed(seed)
        drawn.append(net(x)[0])

    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_half_types_are_rounded_results_of_single_precision(kind, dtype):
    net = layer(kind, {}, dtype)
    x = fb.randn(5, 3, 4, dtype=dtype)

    out = net(x)[0]

    assert out.dtype is dtype
    agree([out], [net.float()(x.float())[0]], 4 * fb.finfo(dtype).eps)


@pytest.mark.parametrize(("kind", "lowered"), [("RNN", fb.bfloat16), ("GRU", fb.float32), ("LSTM", fb.bfloat16)])
def test_autocast(kind, lowered, monkeypatch):
    net = layer(kind, {}, fb.float32)
    x = fb.randn(5, 3, 4, requires_grad=True)
    exact, state = net(x)
    (expected,) = fb.autograd.grad(exact.sum(), x)

    for inside in (True, False):                      # the gradient may be asked for in the region or behind it
        with fb.autocast("cpu", dtype=fb.bfloat16):
            out, last = net(x)
            if inside:
                (found,) = fb.autograd.grad(out.sum(), x)
        if not inside:
            (found,) = fb.autograd.grad(out.sum(), x)
        assert {s.dtype for s in (out, *parts(last))} == {lowered}
        agree([out, *parts(last), found], [exact, *parts(state), expected], 8 * fb.finfo(fb.bfloat16).eps)

    by_steps(monkeypatch)
    with fb.autocast("cpu", dtype=fb.bfloat16):
        out, last = net(x)
    assert {s.dtype for s in (out, *parts(last))} == {lowered}


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=str)
def test_layers_on_meta_know_their_shapes(kind, options):
    net = layer(kind, options, bidirectional=True).to("meta")
    out, _ = net(fb.empty(5, 3, 4, dtype=fb.float64, device="meta"))

    assert out.device.type == "meta"
    assert out.shape == (5, 3, 2 * (options.get("proj_size") or 6))


def test_operands_that_do_not_fit_are_refused():
    net = layer("GRU", {})
    with pytest.raises(ValueError, match=r"float32.*float64"):
        net(fb.randn(5, 3, 4))
    with pytest.raises(RuntimeError, match="hidden size"):
        net(fb.randn(5, 3, 4, dtype=fb.float64), fb.zeros(1, 2, 6, dtype=fb.float64))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kind", "options"), KINDS[:4], ids=str)
def test_a_cell_is_one_step_of_its_layer(kind, options, bias, monkeypatch):
    net = layer(kind, options, bias=bias)
    cell = getattr(nn, f"{kind}Cell")(4, 6, bias=bias, **options, dtype=fb.float64)
    cell.load_state_dict({name.removesuffix("_l0"): w for name, w in net.state_dict().items()})

    def run():
        x = fb.linspace(-1, 1, 12, dtype=fb.float64).reshape(3, 4).requires_grad_()
        h = fb.linspace(-1, 1, 18, dtype=fb.float64).reshape(3, 6).requires_grad_()
        state = (h, h * 2) if kind == "LSTM" else h
        made = parts(cell(x, state))
        return [*made, *fb.autograd.grad(sum((s * s.cos()).sum() for s in made), [x, h, *cell.parameters()])]

    whole = run()
    _, last = net(fb.linspace(-1, 1, 12, dtype=fb.float64).reshape(1, 3, 4))

    agree(parts(cell(fb.linspace(-1, 1, 12, dtype=fb.float64).reshape(3, 4))), [s[0] for s in parts(last)])
    by_steps(monkeypatch)
    agree(whole, run())


# -- sizes that do not go together -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([2, 1], "add up to the 5 rows.*add up to 3"),
        ([4, 4], "add up to the 5 rows.*add up to 8"),
        ([5, -1], "-1 at step 1"),
        ([2, 3], "3 at step 1 after 2"),
        ([3, 1 << 40], "must not grow"),
        ([5, 5, 5, 5, 5], "add up to 25"),
    ],
)
def test_packed_sequences_whose_batch_sizes_are_wrong_are_refused(kind, bidirectional, sizes, words):
    layer = getattr(fb.nn, kind)(3, 17, bidirectional=bidirectional)
    packed = fb.nn.utils.rnn.PackedSequence(fb.randn(5, 3), fb.tensor(sizes))

    with pytest.raises(RuntimeError, match=words):
        layer(packed)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("sizes", [[1 << 40], [1 << 62], [-5], [(1 << 63) - 1, 1]])
def test_packed_sequences_of_impossible_batches_are_refused_before_a_state_is_made(kind, sizes):
    packed = fb.nn.utils.rnn.PackedSequence(fb.randn(5, 3), fb.tensor(sizes))

    with pytest.raises(RuntimeError):
        getattr(fb.nn, kind)(3, 4)(packed)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_steps_that_no_sequence_has_may_end_packed_sequences(kind):
    fb.manual_seed(0)
    layer, data = getattr(fb.nn, kind)(3, 4), fb.randn(5, 3)

    (made, *_), last = layer(fb.nn.utils.rnn.PackedSequence(data, fb.tensor([3, 2, 0])))
    (expected, *_), other = layer(fb.nn.utils.rnn.PackedSequence(data, fb.tensor([3, 2])))

    assert fb.equal(made, expected)
    assert all(map(fb.equal, last, other)) if kind == "LSTM" else fb.equal(last, other)


WIDTHS = [
    *(("weight_hh", shape) for shape in ((0, 3), (0, -2), (1, 0))),
    *(("weight_ih", shape) for shape in ((0, 2), (3, 0), (-1, 0))),
]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize(("name", "by"), WIDTHS)
@pytest.mark.parametrize("in_place", [False, True])
def test_recurrent_weights_replaced_by_others_of_another_width_are_refused(kind, name, by, in_place):
    cell = kind.endswith("Cell")
    layer = getattr(fb.nn, kind)(3, 4)
    name += "" if cell else "_l0"
    old = getattr(layer, name)
    new = fb.randn(*(n + k for n, k in zip(old.shape, by, strict=True)))
    x = fb.randn(2, 3) if cell else fb.randn(5, 2, 3)
    layer(x)
    if in_place:
        old.data = new
    else:
        setattr(layer, name, fb.nn.Parameter(new))

    with pytest.raises(RuntimeError, match=r"do not go together(.|\n)*weight_hh"):
        layer(x)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_weights_replaced_between_forward_and_backward_do_not_change_the_gradient(kind):
    layer, x = getattr(fb.nn, kind)(3, 4), fb.randn(5, 2, 3)
    made, _ = layer(x)
    expected = fb.autograd.grad(made.sum(), layer.weight_ih_l0, retain_graph=True)[0]
    layer.weight_hh_l0.data = fb.randn(layer.weight_hh_l0.shape[0], 9)

    assert fb.equal(fb.autograd.grad(made.sum(), layer.weight_ih_l0)[0], expected)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("name", ["bias_ih_l0", "bias_hh_l0"])
def test_recurrent_biases_of_another_length_are_refused(kind, name):
    layer = getattr(fb.nn, kind)(3, 4)
    setattr(layer, name, fb.nn.Parameter(fb.randn(5)))

    with pytest.raises(RuntimeError, match=r"bias \(5,\) does not expand"):
        layer(fb.randn(5, 2, 3))


@pytest.mark.parametrize("kind", ["GRU", "RNN", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("name", ["bias_ih", "bias_hh"])
@pytest.mark.parametrize("value", ["one number", "none"])
def test_a_bias_of_one_number_or_none_counts_for_all_gates(kind, name, value, oracle):
    cell = kind.endswith("Cell")
    if value == "none" and not cell:
        pytest.skip("PyTorch wants both biases of a layer")
    made = []
    for lib in (fb, oracle):
        lib.manual_seed(0)
        layer = getattr(lib.nn, kind)(3, 4)
        setattr(layer, name + "_l0" * (not cell), None if value == "none" else lib.nn.Parameter(lib.ones(1)))
        x = lib.ones(2, 3) if cell else lib.ones(5, 2, 3)
        out = layer(x) if cell else layer(x)[0]
        out.sum().backward()
        made.append([out.detach().numpy(), *(p.grad.numpy() for p in layer.parameters())])

    for ours, theirs in zip(*made, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("mode", "x", ValueError), ("num_layers", 3, RuntimeError), ("bidirectional", True, RuntimeError)],
)
def test_recurrent_layers_whose_attributes_changed_are_refused(name, value, error):
    layer = fb.nn.LSTM(3, 4)
    setattr(layer, name, value)

    with pytest.raises(error):
        layer(fb.randn(5, 2, 3))


def test_a_layer_of_sizes_that_do_not_fit_is_refused_and_writes_nowhere() -> None:
    layer = OPS["recurrent_layer"].function
    given = [fb.ones(4, 2, 3), fb.ones(2, 5), fb.ones(20, 3), fb.ones(20, 5), fb.ones(2, 5), fb.ones(20), fb.ones(20)]
    assert layer(*given)[0].shape == (4, 2, 5)
    for at, shape in ((1, (3, 5)), (2, (20, 4)), (3, (20, 6)), (4, (2, 4)), (5, (19,))):
        wrong = [*given[:at], fb.ones(shape), *given[at + 1 :]]
        with pytest.raises(RuntimeError, match="recurrent_layer: "):
            layer(*wrong)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
def test_steps_of_an_lstm_in_two_operations_agree_with_those_that_are_composed(dtype, monkeypatch):
    m = nn.LSTM(5, 7, proj_size=3, num_layers=2).to(dtype)
    x = fb.randn(6, 4, 5, dtype=dtype, requires_grad=True)

    def run():
        output, (h, c) = m(x)
        loss = (output * output).sum() + h.sum() + (c * c).sum()
        first = fb.autograd.grad(loss, [x, *m.parameters()], create_graph=True)
        second = fb.autograd.grad(sum((g * g).sum() for g in first), [x, *m.parameters()])
        return output, [*first, *second]

    output, gradients = run()
    monkeypatch.setattr(_state, "INTERPRETED", True)
    expected, composed = run()

    assert fb.equal(output, expected)
    for made, wanted in zip(gradients, composed, strict=True):
        fb.testing.assert_close(made, wanted, rtol=100 * fb.finfo(dtype).eps, atol=100 * fb.finfo(dtype).eps)
