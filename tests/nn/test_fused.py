"""Feed-forward networks of transformer layers in one pass: the same bits, and nobody who watches is passed over."""

from __future__ import annotations

import itertools
import math

import pytest

import flambeau as fb
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.ops import _derive
from flambeau.ops._spec import OPS
from flambeau.ops.layers import fused
from flambeau.ops.layers.fused import linear_activation
from flambeau_kernels.engine.machine_code import llvm


@pytest.fixture(autouse=True)
def seed():
    fb.manual_seed(0)


def encoder(**kwargs):
    return nn.TransformerEncoderLayer(64, 4, 256, **kwargs).eval(), (fb.randn(80, 4, 64, dtype=kwargs.get("dtype")),)


def decoder(**kwargs):
    tensors = (fb.randn(80, 4, 64, dtype=kwargs.get("dtype")), fb.randn(20, 4, 64, dtype=kwargs.get("dtype")))
    return nn.TransformerDecoderLayer(64, 4, 256, **kwargs).eval(), tensors


@pytest.fixture
def count(monkeypatch):
    """How many products were finished in one pass; the op falls back without a word."""
    if fb.kernels.backend() == "numpy" or llvm.available() is not None:
        pytest.skip("nothing is compiled here, so nothing is fused")
    calls = []
    original = fused._fits_one_pass
    monkeypatch.setattr(fused, "_fits_one_pass", lambda *args: calls.append(original(*args)) or calls[-1])
    return lambda: sum(calls)


@pytest.mark.parametrize("make", [encoder, decoder])
@pytest.mark.parametrize("activation", ["relu", "gelu", F.silu, fb.tanh, fb.sigmoid], ids=["relu", "gelu", "silu", "tanh", "sigmoid"])
def test_layers_have_the_bits_they_have_with_gradients(make, activation, count):
    for norm_first, bias, dtype in itertools.product((False, True), (False, True), (fb.float32, fb.float64, fb.bfloat16)):
        layer, inputs = make(activation=activation, norm_first=norm_first, bias=bias, dtype=dtype)
        want, before = layer(*inputs), count()
        with fb.no_grad():
            got = layer(*inputs)

        assert count() == before + 2
        assert fb.equal(got, want.detach())


def test_layers_in_training_drop(count):
    layer, inputs = encoder(dropout=0.5)
    with fb.no_grad():
        first, second = layer.train()(*inputs), layer(*inputs)

    assert count() == 0
    assert not fb.equal(first, second)


def test_hooks_on_parts_are_called(count):
    for name in ("linear1", "linear2", "dropout", "dropout2"):
        layer, inputs = encoder()
        seen = []
        layer.get_submodule(name).register_forward_hook(lambda module, args, output, seen=seen: seen.append(output))
        with fb.no_grad():
            layer(*inputs)

        assert len(seen) == 1
    assert count() == 0


def test_global_hooks_are_called_for_every_part():
    layer, inputs = encoder()
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: seen.append(type(module).__name__))
    try:
        with fb.no_grad():
            layer(*inputs)
    finally:
        handle.remove()

    assert seen.count("Linear") == 2


def test_what_takes_the_place_of_a_part_is_used():
    class Doubled(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    class Own(nn.TransformerEncoderLayer):
        def _ff_block(self, x):
            return fb.zeros_like(x)

    layer, inputs = encoder(norm_first=True, bias=False)
    layer.linear2 = Doubled(256, 64, bias=False).eval()
    own = Own(64, 4, 256, norm_first=True).eval()
    attended = own.norm1(inputs[0])
    with fb.no_grad():
        got, of_own = layer(*inputs), own(*inputs)
        attended = inputs[0] + own.self_attn(*3 * (own.norm1(inputs[0]),), need_weights=False)[0]

    assert fb.equal(got, layer(*inputs).detach())
    assert fb.equal(of_own, attended)


def test_function_transforms_and_modes_see_through():
    layer, (x,) = encoder(activation="gelu", norm_first=True, dtype=fb.float64)
    with fb.no_grad():
        want = layer(x)
        mapped = fb.vmap(layer, in_dims=1, out_dims=1)(x)
        _, tangent = fb.func.jvp(layer, (x,), (fb.ones_like(x),))

    assert fb.allclose(mapped, want, rtol=0, atol=1e-12)
    step = 1e-5
    with fb.no_grad():
        difference = (layer(x + step) - layer(x - step)) / (2 * step)
    assert fb.allclose(tangent, difference, rtol=0, atol=1e-7)


def test_errors_name_the_layer():
    layer, inputs = encoder()
    layer.linear2.weight = nn.Parameter(fb.ones(64, 200))

    with fb.no_grad(), pytest.raises(RuntimeError, match=r"256.*200") as caught:
        layer(*inputs)

    assert "in linear2: Linear" in "\n".join(caught.value.__notes__)


def finishing_products():
    _derive.load_all()
    return sorted({op.name for op in OPS.values() if op.finishes_products})


@pytest.mark.parametrize("activation", [None, *finishing_products()])
def test_linear_activation_is_its_parts(activation, count):
    x, weight, bias, residual = fb.randn(3, 60, 50), fb.randn(110, 50), fb.randn(110), fb.randn(3, 60, 110)
    residual[0, 0, 0], x[1, 1, 1] = math.nan, math.inf
    names = {None: lambda t: t, "gelu_tanh": lambda t: F.gelu(t, approximate="tanh")}
    function = names.get(activation) or getattr(F, activation)
    for beside in (None, residual, residual.transpose(0, 1).contiguous().transpose(0, 1)):
        want = function(F.linear(x, weight, bias))
        want = want if beside is None else beside + want

        got = linear_activation.function(x, weight, bias, activation, beside)

        assert fb.allclose(got, want, rtol=0, atol=0, equal_nan=True)
    assert count() == (2 if activation is None else 3)


def test_linear_activation_has_derivatives(count):
    x, weight, bias = (fb.randn(*shape, dtype=fb.float64, requires_grad=True) for shape in ((130, 3), (130, 3), (130,)))
    residual = fb.randn(130, 130, dtype=fb.float64, requires_grad=True)

    got = fb.autograd.grad(linear_activation.function(x, weight, bias, "gelu", residual).sum(), (x, weight, bias, residual))
    want = fb.autograd.grad((residual + F.gelu(F.linear(x, weight, bias))).sum(), (x, weight, bias, residual))

    assert count() == 0
    for a, b in zip(got, want, strict=True):
        assert fb.equal(a, b)
