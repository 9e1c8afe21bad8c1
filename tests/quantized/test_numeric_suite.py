"""Models beside their quantized ones."""

from __future__ import annotations

import copy

import pytest

import flambeau as fb
from flambeau.ao import quantization as ours
from flambeau.ao.ns import _numeric_suite as suite
from flambeau.ao.ns.fx import utils

X = fb.randn(2, 1, 4, 4, generator=fb.Generator().manual_seed(1))


class Net(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = ours.QuantStub(), ours.DeQuantStub()
        self.conv, self.relu, self.deep = fb.nn.Conv2d(1, 2, 3), fb.nn.ReLU(), fb.nn.Sequential(fb.nn.Linear(8, 3))
        self.sum = fb.ao.nn.quantized.FloatFunctional()

    def forward(self, x):
        x = self.deep(self.relu(self.conv(self.quant(x))).flatten(1))
        return self.dequant(self.sum.add(x, x))


@pytest.fixture
def models():
    fb.manual_seed(0)
    model = Net().eval()
    model.qconfig = ours.default_qconfig
    dense = ours.fuse_modules(model, ["conv", "relu"])
    seen = ours.prepare(dense)
    seen(X)
    return dense, ours.convert(seen)


def test_weights_are_paired_by_the_names_of_the_quantized_model(models):
    dense, quantized = models

    pairs = suite.compare_weights(dense.state_dict(), quantized.state_dict())

    assert list(pairs) == ["conv.weight", "deep.0._packed_params._packed_params"]
    for pair in pairs.values():
        assert pair["quantized"].dtype is fb.qint8
        assert utils.compute_sqnr(pair["float"], pair["quantized"]) > 30


def test_results_of_modules_are_paired(models):
    pairs = suite.compare_model_outputs(*models, X)

    assert list(pairs) == ["quant.stats", "conv.stats", "deep.0.stats", "sum.stats"]
    assert all(utils.compute_sqnr(p["float"][-1], p["quantized"][-1]) > 15 for p in pairs.values())


def test_a_shadow_gets_what_the_quantized_module_gets(models):
    dense, quantized = models
    before = quantized(X)
    classes = [fb.nn.Linear, fb.ao.nn.intrinsic.ConvReLU2d, fb.ao.nn.quantized.FloatFunctional]

    pairs = suite.compare_model_stub(dense, quantized, classes, X)

    assert list(pairs) == ["conv.stats", "deep.0.stats", "sum.stats"]
    assert all(utils.compute_cosine_similarity(p["float"], p["quantized"])[0] > 0.98 for p in pairs.values())
    assert type(quantized.conv) is suite.Shadow
    assert fb.equal(quantized(X), before)


@pytest.mark.parametrize("name", ["add", "mul", "add_relu", "cat", "add_scalar", "mul_scalar"])
def test_a_shadow_has_the_operations_of_a_functional(name):
    q, f = fb.ao.nn.quantized.QFunctional(), fb.ao.nn.quantized.FloatFunctional()
    q.scale = 0.05
    shadow = suite.Shadow(q, f, suite.ShadowLogger)
    x = fb.quantize_per_tensor(fb.rand(6), 0.01, 0, fb.quint8)
    args = {"cat": ([x, x], 0), "add_scalar": (x, 0.5), "mul_scalar": (x, 2.0)}.get(name, (x, x))

    made = getattr(shadow, name)(*args)

    assert fb.equal(made, getattr(q, name)(*args))
    assert fb.allclose(shadow.logger.stats["float"][0], shadow.logger.stats["quantized"][0].dequantize(), atol=0.026)


@pytest.mark.parametrize("name", ["compute_sqnr", "compute_normalized_l2_error", "compute_cosine_similarity"])
def test_measures_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torch.ao.ns.fx.utils")
    x, y = fb.randn(3, 4), fb.randn(3, 4)
    others = [torch.from_numpy(copy.deepcopy(t.numpy())) for t in (x, y)]

    got, want = getattr(utils, name)(x, y), getattr(theirs, name)(*others)

    assert got.shape == want.shape
    assert fb.allclose(got, fb.from_numpy(want.numpy()))
    assert isinstance(getattr(utils, name)([x, y], (y, x)), list)
