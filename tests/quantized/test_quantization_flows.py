"""Whole models through the flows of eager quantization, beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.ao import quantization as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.ao.quantization")
pytest.importorskip("torch.ao.nn.quantized")
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

X = np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)


def network(m, q):
    """A small convolutional network with a residual sum, in either package."""

    class Network(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = q.QuantStub(), q.DeQuantStub()
            self.conv, self.bn, self.relu = m.nn.Conv2d(3, 6, 3, padding=1), m.nn.BatchNorm2d(6), m.nn.ReLU()
            self.again, self.again_bn = m.nn.Conv2d(6, 6, 1), m.nn.BatchNorm2d(6)
            self.sum = m.ao.nn.quantized.FloatFunctional()
            self.pool, self.drop = m.nn.MaxPool2d(2), m.nn.Dropout(0.0)
            self.fc = m.nn.Linear(96, 5)

        def forward(self, x):
            x = self.relu(self.bn(self.conv(self.quant(x))))
            x = self.sum.add(x, self.again_bn(self.again(x)))
            return self.dequant(self.fc(self.drop(self.pool(x).flatten(1))))

    return Network()


FUSED = [["conv", "bn", "relu"], ["again", "again_bn"]]


def twins():
    """The network with the same parameters here and in PyTorch, its statistics not those at the start."""
    torch.manual_seed(0)
    other, mine = network(torch, theirs), network(fb, ours)
    other.train()
    for i in range(3):
        other(torch.from_numpy(X * (1 + i)))
    mine.load_state_dict({name: fb.from_numpy(np.array(t)) for name, t in other.state_dict().items()})
    return (fb, ours, mine), (torch, theirs, other)


def shown(model):
    """The classes of all modules by name, but of those that keep weights, which PyTorch does in its own way."""
    own = ("_packed_params", "_all_weight_values")
    return [(n, module._get_name()) for n, module in model.named_modules() if not any(word in n for word in own)]


@pytest.mark.parametrize("config", ["default_qconfig", "default_per_channel_qconfig", "x86"])
def test_static_quantization_gives_pytorchs_model(config):
    results = []
    for m, q, model in twins():
        model.eval().qconfig = q.get_default_qconfig(config) if config == "x86" else getattr(q, config)
        seen = q.prepare(q.fuse_modules(model, FUSED))
        before = shown(seen)
        for i in range(2):
            seen(m.from_numpy(X * (1 + i / 4)))
        made = q.convert(seen)
        results.append((before, shown(made), list(made.state_dict()), made(m.from_numpy(X)).detach().numpy(), made.fc.scale))

    (mine, other) = results
    assert mine[:3] == other[:3]
    assert mine[4] == pytest.approx(other[4], rel=1e-5 if config != "x86" else 0.05)
    near = np.abs(mine[3] - other[3]) <= other[4] * (1.5 if config != "x86" else 6)
    assert near.mean() > 0.97


@pytest.mark.parametrize("version", [0, 1])
def test_training_with_fake_quantization_takes_pytorchs_steps(version):
    results = []
    for m, q, model in twins():
        model.train().qconfig = q.get_default_qat_qconfig("x86", version)
        seen = q.prepare_qat(q.fuse_modules_qat(model, FUSED))
        optimizer = m.optim.SGD(seen.parameters(), lr=0.05)
        losses = []
        for step in range(6):
            if step == 3:
                seen.apply(m.ao.nn.intrinsic.qat.freeze_bn_stats)
            if step == 4:
                seen.apply(q.disable_observer)
            optimizer.zero_grad()
            loss = (seen(m.from_numpy(X)) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        made = q.convert(seen.eval())
        results.append((losses, shown(seen), list(seen.state_dict()), shown(made), made(m.from_numpy(X)).detach().numpy(), made.fc.scale))

    mine, other = results
    np.testing.assert_allclose(mine[0], other[0], rtol=2e-3)
    assert mine[1:4] == other[1:4]
    assert np.abs(mine[4] - other[4]).mean() < other[5]


def test_training_with_fake_quantization_brings_the_loss_down():
    fb.manual_seed(0)
    model = network(fb, ours).train()
    model.qconfig = ours.get_default_qat_qconfig("x86")
    seen = ours.prepare_qat(ours.fuse_modules_qat(model, FUSED))
    target = fb.arange(8) % 5
    optimizer = fb.optim.Adam(seen.parameters(), lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        fb.nn.functional.cross_entropy(seen(fb.from_numpy(X)), target).backward()
        optimizer.step()

    made = ours.convert(seen.eval())

    assert (made(fb.from_numpy(X)).argmax(1) == target).float().mean().item() == 1


@pytest.mark.parametrize("spec", ["classes", "names", "qconfigs", "nothing"])
def test_dynamic_quantization_takes_layers_as_pytorch_does(spec):
    shapes = []
    for m, q in ((fb, ours), (torch, theirs)):
        model = m.nn.Sequential(m.nn.Linear(4, 4), m.nn.Sequential(m.nn.Linear(4, 3), m.nn.ReLU()), m.nn.LSTM(3, 2), m.nn.Embedding(3, 2))
        given = {
            "classes": {m.nn.Linear}, "names": {"1.0"}, "nothing": None,
            "qconfigs": {m.nn.Linear: q.per_channel_dynamic_qconfig, "1": None},
        }[spec]  # fmt: skip
        shapes.append(shown(q.quantize_dynamic(model, given)))

    assert shapes[0] == shapes[1]


def test_modules_without_a_qconfig_stay_dense():
    model = fb.nn.Sequential(fb.nn.Linear(2, 2), fb.nn.Linear(2, 2)).eval()
    model.qconfig = ours.default_qconfig
    model[1].qconfig = None

    seen = ours.prepare(model)
    seen(fb.ones(1, 2))

    assert [type(m).__module__.split(".")[1] for m in ours.convert(seen)] == ["ao", "nn"]
    with pytest.warns(UserWarning, match="None of the submodule got qconfig"):
        ours.prepare(fb.nn.Sequential(fb.nn.Linear(1, 1)))


def test_hooks_go_over_to_what_takes_a_modules_place():
    calls = []
    model = fb.nn.Sequential(ours.QuantStub(), fb.nn.Linear(2, 2), fb.nn.ReLU()).eval()
    model[1].register_forward_pre_hook(lambda *_: calls.append("before"))
    model[2].register_forward_hook(lambda *_: calls.append("after"))
    model.qconfig = ours.default_qconfig
    seen = ours.prepare(ours.fuse_modules(model, ["1", "2"]))
    seen(fb.ones(1, 2))
    made = ours.convert(seen)
    calls.clear()

    made(fb.ones(1, 2))

    assert calls == ["before", "after"]


def test_modules_of_a_program_are_observed_and_quantized_by_their_own_classes():
    class Plain(fb.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = fb.nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x)

    class Observed(Plain):
        @classmethod
        def from_float(cls, mod):
            made = cls()
            made.linear, made.qconfig = mod.linear, mod.qconfig
            return made

    class Quantized(Plain):
        @classmethod
        def from_observed(cls, mod):
            made = cls()
            mod.linear.activation_post_process = mod.activation_post_process
            made.linear = fb.ao.nn.quantized.Linear.from_float(mod.linear)
            return made

    model = fb.nn.Sequential(ours.QuantStub(), Plain(), ours.DeQuantStub()).eval()
    model.qconfig = ours.default_qconfig
    seen = ours.prepare(model, prepare_custom_config_dict={"float_to_observed_custom_module_class": {Plain: Observed}})
    x = fb.from_numpy(X[0, 0, :, :3].copy())
    seen(x)
    made = ours.convert(seen, convert_custom_config_dict={"observed_to_quantized_custom_module_class": {Observed: Quantized}})

    assert [type(m) for m in (seen[1], made[1])] == [Observed, Quantized]
    assert (made(x) - model(x)).abs().max().item() < 0.1


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: ours.fuse_modules(fb.nn.Sequential(fb.nn.Conv2d(1, 1, 1), fb.nn.BatchNorm2d(1)), ["0", "1"]), AssertionError, "for eval!"),
        (lambda: ours.fuse_modules(fb.nn.Sequential(fb.nn.ReLU(), fb.nn.ReLU()).eval(), ["0", "1"]), AssertionError, "did not find fuser"),
        (lambda: ours.prepare_qat(fb.nn.Sequential().eval()), AssertionError, "only works on models in training mode"),
        (lambda: ours.quantize_dynamic(fb.nn.Sequential(), dtype=fb.int8), ValueError, "Provide full qconfig"),
        (lambda: ours.get_static_quant_module_class(fb.nn.ReLU), AssertionError, "does not have a corresponding"),
        (lambda: ours.get_quantized_operator("sing"), AssertionError, "does not have corresponding"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()
