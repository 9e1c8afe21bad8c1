"""Modules of `torch.ao.nn`, beside PyTorch's: the same integers, or the next ones where a result lies between two."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

import flambeau as fb
import flambeau.ao.nn.quantized.functional as our_functions
from flambeau.ao import quantization as ours
from flambeau.ao.nn import quantizable as our_quantizable
from flambeau.ao.nn import quantized as our_modules
from flambeau.ao.nn.quantized import dynamic as our_dynamic

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.ao.quantization")
their_modules = pytest.importorskip("torch.ao.nn.quantized")
their_dynamic = pytest.importorskip("torch.ao.nn.quantized.dynamic")
their_functions = pytest.importorskip("torch.ao.nn.quantized.functional")
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

BOTH = ((fb, ours, our_modules, our_functions), (torch, theirs, their_modules, their_functions))


def numbers(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def quantized(m, x, scale=0.05, zero=100, dtype="quint8"):
    return m.quantize_per_tensor(m.from_numpy(x), scale, zero, getattr(m, dtype))


def same_integers(got, want, apart=1):
    """At most one step apart, and nearly everywhere the same."""
    a, b = got.int_repr().numpy().astype(int), want.int_repr().numpy().astype(int)
    assert (got.q_scale(), got.q_zero_point()) == pytest.approx((want.q_scale(), want.q_zero_point()))
    assert a.shape == b.shape
    assert np.abs(a - b).max(initial=0) <= apart
    assert (a != b).mean() <= 0.02


FUNCTIONS = {
    "linear": lambda m, f: f.linear(
        quantized(m, numbers((5, 8))), quantized(m, numbers((3, 8), 1), 0.02, 0, "qint8"), m.from_numpy(numbers(3, 2)), 0.1, 90
    ),
    "conv1d": lambda m, f: f.conv1d(
        quantized(m, numbers((2, 4, 9))), quantized(m, numbers((6, 2, 3), 1), 0.02, 0, "qint8"), m.from_numpy(numbers(6, 2)), 2, 1, 1, 2,
        scale=0.1, zero_point=80,
    ),
    "conv2d": lambda m, f: f.conv2d(
        quantized(m, numbers((2, 3, 7, 6))), quantized(m, numbers((4, 3, 3, 3), 1), 0.02, 0, "qint8"), m.from_numpy(numbers(4, 2)), 1, 1,
        scale=0.15, zero_point=120,
    ),
    "conv3d": lambda m, f: f.conv3d(
        quantized(m, numbers((1, 2, 4, 4, 4))), quantized(m, numbers((3, 2, 2, 2, 2), 1), 0.02, 0, "qint8"), m.from_numpy(numbers(3, 2)),
        scale=0.15, zero_point=120,
    ),
    "avg_pool2d": lambda m, f: f.avg_pool2d(quantized(m, numbers((2, 3, 6, 6))), 2),
    "adaptive_avg_pool2d": lambda m, f: f.adaptive_avg_pool2d(quantized(m, numbers((2, 3, 6, 6))), (2, 3)),
    "adaptive_avg_pool3d": lambda m, f: f.adaptive_avg_pool3d(quantized(m, numbers((2, 3, 4, 6, 6))), 2),
    "avg_pool3d": lambda m, f: f.avg_pool3d(quantized(m, numbers((2, 3, 4, 6, 6))), 2),
    "max_pool1d": lambda m, f: f.max_pool1d(quantized(m, numbers((2, 3, 6))), 2),
    "max_pool2d": lambda m, f: f.max_pool2d(quantized(m, numbers((2, 3, 6, 6))), 3, 2, 1),
    "interpolate": lambda m, f: f.interpolate(quantized(m, numbers((2, 3, 4, 4))), scale_factor=2.0, mode="nearest"),
    "hardswish": lambda m, f: f.hardswish(quantized(m, 3 * numbers((40,))), 0.04, 30),
    "elu": lambda m, f: f.elu(quantized(m, 3 * numbers((40,))), 0.04, 40, 0.7),
    "celu": lambda m, f: f.celu(quantized(m, 3 * numbers((40,))), 0.04, 40, 0.7),
    "leaky_relu": lambda m, f: f.leaky_relu(quantized(m, 3 * numbers((40,))), 0.2, scale=0.04, zero_point=40),
    "leaky_relu in place": lambda m, f: f.leaky_relu(quantized(m, 3 * numbers((40,))), 0.2, True),
    "hardtanh": lambda m, f: f.hardtanh(quantized(m, 3 * numbers((40,))), -1.0, 2.0),
    "hardsigmoid": lambda m, f: f.hardsigmoid(quantized(m, 3 * numbers((40,)))),
    "clamp": lambda m, f: f.clamp(quantized(m, 3 * numbers((40,))), -1.0, 2.0),
    "threshold": lambda m, f: f.threshold(quantized(m, 3 * numbers((40,))), 0.5, -1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_pytorchs_integers(name):
    got, want = (FUNCTIONS[name](m, f) for m, _, _, f in BOTH)

    same_integers(got, want)


def test_sums_of_many_products_are_exact():
    x = np.full((1, 4096), 255, np.uint8)
    q = fb.quantize_per_tensor(fb.from_numpy(x.astype(np.float32)), 1.0, 0, fb.quint8)
    w = fb.quantize_per_tensor(fb.full((1, 4096), 127.0), 1.0, 0, fb.qint8)

    made = our_functions.linear(q, w, None, 255 * 127 * 4096 / 200, 3)

    assert made.int_repr().item() == 203


LAYERS = {
    "Linear": ((5, 8), lambda n: n.Linear(8, 3)),
    "Conv1d": ((2, 4, 9), lambda n: n.Conv1d(4, 6, 3, stride=2, groups=2)),
    "Conv2d": ((2, 4, 7, 7), lambda n: n.Conv2d(4, 6, 3, padding=1, bias=False)),
    "Conv3d": ((1, 2, 4, 4, 4), lambda n: n.Conv3d(2, 3, 2)),
    "ConvTranspose2d": ((1, 4, 5, 5), lambda n: n.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1)),
    "BatchNorm2d": ((2, 4, 5, 5), lambda n: n.BatchNorm2d(4)),
    "LayerNorm": ((2, 8), lambda n: n.LayerNorm(8)),
    "GroupNorm": ((2, 8, 4), lambda n: n.GroupNorm(2, 8)),
    "InstanceNorm2d": ((2, 3, 6, 6), lambda n: n.InstanceNorm2d(3, affine=True)),
    "ELU": ((2, 9), lambda n: n.ELU()),
    "Hardswish": ((2, 9), lambda n: n.Hardswish()),
    "LeakyReLU": ((2, 9), lambda n: n.LeakyReLU()),
    "ReLU6": ((2, 9), lambda n: n.ReLU6()),
}


def pair(make, x, config):
    """A module with the same parameters, and the numbers `x`, here and in PyTorch: quantized, with stubs around it."""
    made = [m.nn.Sequential(q.QuantStub(), make(m.nn), q.DeQuantStub()).eval() for m, q, *_ in BOTH]
    given = {name: fb.from_numpy(np.array(t.detach().numpy())) for name, t in made[1].state_dict().items()}
    made[0].load_state_dict(given)
    done = []
    for (m, q, *_), model in zip(BOTH, made, strict=True):
        model.qconfig = config(q)
        seen = q.prepare(model)
        for scale in (1.0, 1.3):
            seen(m.from_numpy(x * scale))
        done.append(q.convert(seen))
    return done


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_converted_layers_compute_as_pytorchs(name, channels):
    if channels and "Transpose" in name:
        pytest.skip("a transposed convolution has one scale")
    shape, make = LAYERS[name]
    x = numbers(shape, 5)
    torch.manual_seed(1)
    mine, other = pair(make, x, lambda q: q.default_per_channel_qconfig if channels else q.default_qconfig)

    got, want = mine(fb.from_numpy(x)), other(torch.from_numpy(x))
    step = float(getattr(other[1], "scale", 0.05))
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), atol=step * 1.01)
    assert (np.abs(got.numpy() - want.detach().numpy()) > step / 2).mean() <= 0.05
    assert [module._get_name() for module in mine] == [module._get_name() for module in other]
    assert list(mine.state_dict()) == list(other.state_dict())


def test_a_prelu_keeps_what_is_above_zero():
    x = numbers((2, 9), 5)
    mine, other = pair(lambda n: n.PReLU(), x, lambda q: q.QConfig(activation=q.default_observer, weight=q.MinMaxObserver))

    got, want = mine(fb.from_numpy(x)).numpy(), other(torch.from_numpy(x)).detach().numpy()

    np.testing.assert_allclose(got, np.where(x > 0, x, x / 4), atol=0.03)
    np.testing.assert_allclose(got[x < 0], want[x < 0], atol=0.03)  # PyTorch's divides what is above zero too


def test_states_of_embeddings_are_saved_and_loaded():
    made, blank = (ours.quantize_dynamic(fb.nn.Sequential(fb.nn.Embedding(7, 3)), dtype=fb.quint8) for _ in range(2))
    kept = io.BytesIO()
    fb.save(made.state_dict(), kept)
    kept.seek(0)

    blank.load_state_dict(fb.load(kept))

    assert fb.equal(blank(fb.arange(7)), made(fb.arange(7)))


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "ConvTranspose2d", "BatchNorm2d", "LayerNorm"])
def test_states_of_quantized_layers_are_saved_and_loaded(name):
    shape, make = LAYERS[name]
    x = numbers(shape, 5)
    mine, _ = pair(make, x, lambda q: q.default_qconfig)
    blank, _ = pair(make, 0.3 * x, lambda q: q.default_qconfig)
    kept = io.BytesIO()
    fb.save(mine.state_dict(), kept)
    kept.seek(0)

    blank.load_state_dict(fb.load(kept))

    assert fb.equal(blank(fb.from_numpy(x)), mine(fb.from_numpy(x)))
    with pytest.raises(RuntimeError, match="Missing key"):
        blank.load_state_dict({})


OPERATIONS = {
    "add": lambda f, x, y: f.add(x, y),
    "mul": lambda f, x, y: f.mul(x, y),
    "add_relu": lambda f, x, y: f.add_relu(x, y),
    "cat": lambda f, x, y: f.cat([x, y], 1),
    "matmul": lambda f, x, y: f.matmul(x, y),
    **{f"add_scalar {c}": lambda f, x, y, c=c: f.add_scalar(x, c) for c in (0.5, -0.5, 20.0, -20.0, 0.0)},
    **{f"mul_scalar {c}": lambda f, x, y, c=c: f.mul_scalar(x, c) for c in (0.5, -0.5, 0.0)},
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_as_modules_give_pytorchs_integers(name):
    results = []
    for m, _, n, _ in BOTH:
        f = n.QFunctional()
        f.scale, f.zero_point = 0.07, 120
        x, y = quantized(m, numbers((4, 4))), quantized(m, numbers((4, 4), 1), 0.04, 128)
        results.append(OPERATIONS[name](f, x, y))

    same_integers(*results)


@pytest.mark.parametrize("name", ["Linear", "LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("dtype", ["qint8", "float16"])
def test_dynamic_layers_compute_as_pytorchs(name, dtype):
    if dtype == "float16" and name.endswith("Cell"):
        pytest.skip("PyTorch cannot compute it here")
    given = {"LSTM": {"num_layers": 2, "bidirectional": True}, "GRU": {"batch_first": True}}.get(name, {})
    torch.manual_seed(2)
    other = torch.nn.Sequential(getattr(torch.nn, name)(6, 5, **given))
    mine = fb.nn.Sequential(getattr(fb.nn, name)(6, 5, **given))
    mine.load_state_dict({k: fb.from_numpy(v.numpy()) for k, v in other.state_dict().items()})
    x = numbers((3, 6) if name.endswith("Cell") or name == "Linear" else (3, 4, 6), 4)

    got = ours.quantize_dynamic(mine, dtype=getattr(fb, dtype))[0](fb.from_numpy(x))
    want = theirs.quantize_dynamic(other, dtype=getattr(torch, dtype))[0](torch.from_numpy(x))

    def parts(value):
        return [p for v in value for p in parts(v)] if isinstance(value, tuple) else [value.detach().numpy()]

    for a, b in zip(parts(got), parts(want), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-2 if dtype == "qint8" else 2e-3)
        assert np.abs(a - b).mean() < 4e-3


def test_dynamic_layers_take_sequences_of_different_lengths():
    layer = ours.quantize_dynamic(fb.nn.Sequential(fb.nn.LSTM(3, 4, bidirectional=True)))[0]
    long, short = fb.randn(5, 3), fb.randn(2, 3)
    packed = fb.nn.utils.rnn.pack_sequence([short, long], enforce_sorted=False)

    out, (h, _) = layer(packed)

    padded, lengths = fb.nn.utils.rnn.pad_packed_sequence(out)
    assert lengths.tolist() == [2, 5]
    assert fb.equal(padded[2:, 0], fb.zeros(3, 8))
    assert fb.allclose(h[1, 0], padded[0, 0, 4:])
    assert fb.allclose(h[0, 1], padded[4, 1, :4])


@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_embeddings_give_pytorchs_numbers(name):
    torch.manual_seed(4)
    other = torch.nn.Sequential(getattr(torch.nn, name)(20, 6, **({"mode": "sum"} if name.endswith("Bag") else {})))
    mine = fb.nn.Sequential(getattr(fb.nn, name)(20, 6, **({"mode": "sum"} if name.endswith("Bag") else {})))
    mine.load_state_dict({k: fb.from_numpy(v.numpy()) for k, v in other.state_dict().items()})
    at = np.array([[3, 5, 7], [1, 1, 0]])
    args = (at,) if name == "Embedding" else (at.reshape(-1), np.array([0, 4]))

    got = ours.quantize_dynamic(mine, dtype=fb.quint8)[0](*map(fb.from_numpy, args))
    want = theirs.quantize_dynamic(other, dtype=torch.quint8)[0](*map(torch.from_numpy, args))

    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-5)


@pytest.mark.parametrize("given", [{}, {"num_layers": 2}, {"bidirectional": True}, {"batch_first": True}])
def test_a_quantizable_lstm_is_an_lstm(given):
    plain = fb.nn.LSTM(4, 5, **given).eval()
    plain.qconfig = ours.default_qconfig
    made = our_quantizable.LSTM.from_float(plain)
    x = fb.from_numpy(numbers((3, 3, 4)))

    (a, (ah, ac)), (b, (bh, bc)) = made(x), plain(x)

    for got, want in ((a, b), (ah, bh), (ac, bc)):
        assert fb.allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("given", [{}, {"batch_first": True}, {"kdim": 3, "vdim": 5}])
def test_a_quantizable_attention_is_an_attention(given):
    plain = fb.nn.MultiheadAttention(8, 2, **given).eval()
    plain.qconfig = ours.default_qconfig
    made = our_quantizable.MultiheadAttention.from_float(plain)
    q, k, v = (fb.from_numpy(numbers((4, 4, n), i)) for i, n in enumerate((8, given.get("kdim", 8), given.get("vdim", 8))))
    mask = fb.ones(4, 4, dtype=fb.bool).triu(1)

    for a, b in zip(made(q, k, v, attn_mask=mask), plain(q, k, v, attn_mask=mask), strict=True):
        assert fb.allclose(a, b, atol=1e-6)
    for a, b in zip(made.dequantize()(q, k, v), plain(q, k, v), strict=True):
        assert fb.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("name", ["LSTM", "MultiheadAttention"])
def test_quantized_lstm_and_attention_are_near_the_dense_ones(name):
    x = fb.from_numpy(numbers((6, 3, 8)))
    plain = fb.nn.LSTM(8, 8) if name == "LSTM" else fb.nn.MultiheadAttention(8, 2)

    class Model(fb.nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.inner, self.dequant = ours.QuantStub(), copy.deepcopy(plain), ours.DeQuantStub()

        def forward(self, x):
            x = self.quant(x)
            return self.dequant(self.inner(x)[0] if name == "LSTM" else self.inner(x, x, x)[0])

    model = Model().eval()
    model.qconfig = ours.default_qconfig
    seen = ours.prepare(model)
    seen(x)
    made = ours.convert(seen)

    assert type(made.inner).__name__ == name
    assert made.inner._get_name() == f"Quantized{name}"
    want = plain.eval()(x)[0] if name == "LSTM" else plain.eval()(x, x, x)[0]
    assert (made(x) - want).abs().mean().item() < 0.03


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: our_modules.Linear(2, 2)(fb.ones(1, 2)), NotImplementedError, "Could not run 'quantized::linear'"),
        (lambda: our_functions.conv2d(fb.ones(1, 1, 3, 3), fb.ones(1, 1, 1, 1), None), NotImplementedError, "quantized::conv2d"),
        (lambda: our_modules.Conv2d(1, 1, 1)(quantized(fb, numbers((1, 3, 3)))), ValueError, r"Input shape must be `\(N, C, H, W\)`"),
        (lambda: our_modules.Conv2d(1, 1, 1, padding_mode="circular"), NotImplementedError, "circular"),
        (lambda: our_modules.Linear.from_float(fb.nn.ReLU()), AssertionError, "needs an observed Linear"),
        (lambda: our_modules.FloatFunctional()(fb.ones(1)), RuntimeError, "not intended to use the 'forward'"),
        (lambda: our_modules.Embedding(3, 2, dtype=fb.quint4x2), NotImplementedError, "quint4x2"),
        (lambda: our_dynamic.LSTM(3, 2)(fb.ones(3, 1, 4)), RuntimeError, "Expected 3, got 4"),
        (lambda: our_dynamic.LSTMCell(3, 2)(fb.ones(3, 4)), RuntimeError, "inconsistent input_size: got 4, expected 3"),
        (lambda: our_dynamic.Linear(2, 2, dtype=fb.qint32), RuntimeError, "Unsupported dtype"),
        (lambda: fb.ao.nn.qat.Linear(2, 2), AssertionError, "qconfig must be provided"),
        (lambda: fb.ao.nn.intrinsic.ConvReLU2d(fb.nn.Linear(1, 1), fb.nn.ReLU()), AssertionError, "Incorrect types for input modules"),
        (lambda: fb.ao.nn.qat.dynamic.Linear(2, 2, qconfig=ours.default_qat_qconfig), ValueError, "memoryless"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()
