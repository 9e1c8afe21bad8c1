"""Models that are traced, prepared, shown data and converted, beside PyTorch's."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

import flambeau as fb
from flambeau.ao import quantization as ours
from flambeau.ao.quantization import backend_config as ours_backend
from flambeau.ao.quantization import quantize_fx as ours_fx
from flambeau.ao.quantization.fx import custom_config as ours_custom

X4 = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
IMAGES = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def sides():
    """The two packages, each with its `quantize_fx` and `quantization`."""
    torch = pytest.importorskip("torch")
    return (fb, ours_fx, ours), (torch, pytest.importorskip("torch.ao.quantization.quantize_fx"), torch.ao.quantization)


def model_of(m, forward):
    """A model with one layer of each kind and the same parameters in either package; `forward` says what it computes."""
    nn = m.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn, self.relu, self.pool = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
            self.bn3 = nn.BatchNorm2d(3)
            self.lin, self.seq = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            self.elu, self.ln, self.hs, self.drop, self.sig, self.tanh = (
                nn.ELU(), nn.LayerNorm(4), nn.Hardswish(), nn.Dropout(), nn.Sigmoid(), nn.Tanh()
            )  # fmt: skip
            self.norm1, self.inorm, self.w = nn.BatchNorm1d(4), nn.InstanceNorm2d(4, affine=True), nn.Parameter(m.ones(5, 4))

        def forward(self, x):
            return forward(m, self, x)

    made = Model()
    rng = np.random.default_rng(2)
    with m.no_grad():
        for parameter in made.parameters():
            parameter.copy_(m.tensor(rng.normal(size=tuple(parameter.shape)).astype(np.float32)))
        for buffer in made.buffers():
            if buffer.is_floating_point():
                buffer.copy_(m.tensor((rng.random(tuple(buffer.shape)) + 0.5).astype(np.float32)))
    return made


PROGRAMS = {
    "linear": (lambda m, s, x: s.lin(x), X4),
    "joined": (lambda m, s, x: s.relu(s.bn(s.conv(x))), IMAGES),
    "normalized": (lambda m, s, x: s.bn(s.conv(x)), IMAGES),
    "normalized linear": (lambda m, s, x: s.norm1(s.lin(x)), X4),
    "norm and relu": (lambda m, s, x: m.nn.functional.relu(s.bn3(x)), IMAGES),
    "pool": (lambda m, s, x: s.conv(s.pool(x)), IMAGES),
    "sequential": (lambda m, s, x: s.seq(x), X4),
    "own scales": (lambda m, s, x: s.ln(s.elu(s.drop(s.hs(s.lin(x))))), X4),
    "instance norm": (lambda m, s, x: s.inorm(s.conv(x)), IMAGES),
    "functions": (lambda m, s, x: m.nn.functional.hardswish(m.nn.functional.elu(m.nn.functional.leaky_relu(s.lin(x)))), X4),
    "layer norm": (lambda m, s, x: m.nn.functional.layer_norm(s.lin(x), (4,)), X4),
    "ranges": (lambda m, s, x: s.tanh(s.lin(s.sig(x))), X4),
    "sum": (lambda m, s, x: m.nn.functional.relu(s.lin(x) + s.seq(x)), X4),
    "product": (lambda m, s, x: s.relu(m.mul(s.lin(x), s.seq(x))), X4),
    "number": (lambda m, s, x: m.nn.functional.relu(s.lin(x) + 1) * 2, X4),
    "called twice": (lambda m, s, x: s.lin(s.lin(x) - 1), X4),
    "matmul": (lambda m, s, x: m.matmul(s.lin(x), s.seq(x).t()), X4),
    "cat": (lambda m, s, x: m.cat([s.lin(x), x], 1), X4),
    "function with weight": (lambda m, s, x: m.nn.functional.relu(m.nn.functional.linear(x, s.w)), X4),
    "keyword": (lambda m, s, x: m.nn.functional.linear(x, weight=s.w, bias=None), X4),
    "size": (lambda m, s, x: s.conv(x).reshape(x.size(0), -1), IMAGES),
    "no kernel": (lambda m, s, x: m.nn.functional.softmax(s.lin(x), 1), X4),
    "pooled": (lambda m, s, x: m.nn.functional.adaptive_avg_pool2d(s.conv(x), (1, 1)).flatten(1), IMAGES),
    "tree": (lambda m, s, x: (s.lin(x), {"a": s.seq(x)}), X4),
}  # fmt: skip
# PyTorch's own conversion fails there: it asks for arguments that the call leaves out.
FAILS_THERE = {("keyword", "static"), ("keyword", "training"), ("keyword", "dynamic")}


def leaves(value):
    """The arrays of a nested result."""
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (list, tuple)) else [value.detach().numpy()]


def flow(m, fx, q, forward, data, way):
    """The observers that a model gets, and what the converted one gives."""
    model, x = model_of(m, forward), m.tensor(data)
    if way == "training":
        made = fx.prepare_qat_fx(model.train(), q.get_default_qat_qconfig_mapping("x86"), (x,))
    else:
        dynamic = q.QConfigMapping().set_global(q.default_dynamic_qconfig)
        made = fx.prepare_fx(model.eval(), dynamic if way == "dynamic" else q.get_default_qconfig_mapping("qnnpack"), (x,))
    observed = [node.name for node in made.graph.nodes if node.name.startswith("activation_post_process")]
    made(x)
    made.eval()
    convert = fx.convert_to_reference_fx if way == "reference" else fx.convert_fx
    return observed, leaves(convert(made)(x))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("way", ["static", "reference", "training", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_converted_models_are_observed_as_pytorchs_and_give_its_results(sides, name, way, monkeypatch):
    if (name, way) in FAILS_THERE:
        pytest.skip("PyTorch does not convert it")
    if way == "static":
        # The mapping "qnnpack" asks for integers of all 8 bits. PyTorch's usual engine adds products of those up in 16 bits on processors
        # without VNNI: it gave -1.96 where its reference model, and this engine, give -3.16.
        monkeypatch.setattr(sides[1][0].backends.quantized, "engine", "qnnpack")
    forward, data = PROGRAMS[name]
    (seen, mine), (seen_there, theirs) = (flow(*side, forward, data, way) for side in sides)
    assert seen == seen_there
    for a, b in zip(mine, theirs, strict=True):
        # Ranges of histograms differ by some percent, and a step of a layer's results is a 255th of their range.
        np.testing.assert_allclose(a, b, rtol=0, atol=0.08 * np.abs(b).max())


@pytest.mark.parametrize("name", PROGRAMS)
def test_integers_give_what_the_reference_model_means(name):
    forward, data = PROGRAMS[name]
    mapping = ours.get_default_qconfig_mapping("qnnpack")
    prepared = ours_fx.prepare_fx(model_of(fb, forward).eval(), mapping, (fb.tensor(data),))
    prepared(fb.tensor(data))
    meant = leaves(ours_fx.convert_to_reference_fx(copy.deepcopy(prepared))(fb.tensor(data)))
    made = leaves(ours_fx.convert_fx(prepared)(fb.tensor(data)))
    for a, b in zip(made, meant, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0.02 * np.abs(b).max())


def test_usual_layers_become_layers_on_integers():
    model = fb.nn.Sequential(fb.nn.Conv2d(3, 4, 3), fb.nn.BatchNorm2d(4), fb.nn.ReLU(), fb.nn.Flatten(), fb.nn.Linear(144, 2)).eval()
    prepared = ours_fx.prepare_fx(model, ours.get_default_qconfig_mapping("x86"), (fb.tensor(IMAGES),))
    prepared(fb.tensor(IMAGES))
    made = ours_fx.convert_fx(prepared)
    assert next(type(m) for m in made.children()) is fb.ao.nn.intrinsic.quantized.ConvReLU2d
    assert "observer" not in made.code
    assert not any(ours.observer._is_activation_post_process(m) for m in made.modules())


@pytest.mark.parametrize(("set_up", "quantized"), [
    (lambda m: m.set_module_name("seq", None), [False, True]),
    (lambda m: m.set_module_name_regex("se.*", None), [False, True]),
    (lambda m: m.set_object_type(fb.nn.Linear, None), [False, False]),
    (lambda m: m.set_object_type(fb.nn.Linear, None).set_module_name("lin", ours.default_qconfig), [False, True]),
    (lambda m: m.set_module_name_object_type_order("", fb.nn.Linear, 0, None), [True, False]),
])  # fmt: skip
def test_what_says_more_about_a_layer_counts(set_up, quantized):
    model = model_of(fb, lambda m, s, x: s.lin(s.seq(x))).eval()
    mapping = set_up(ours.get_default_qconfig_mapping("x86"))
    prepared = ours_fx.prepare_fx(model, mapping, (fb.tensor(X4),))
    prepared(fb.tensor(X4))
    made = ours_fx.convert_fx(prepared)
    assert [isinstance(m, fb.ao.nn.quantized.Linear) for m in (getattr(made.seq, "0"), made.lin)] == quantized


def test_embeddings_and_recurrent_layers_are_quantized_by_their_weights():
    model = fb.nn.Sequential(fb.nn.Embedding(10, 4)).eval()
    mapping = ours.QConfigMapping().set_object_type(fb.nn.Embedding, ours.float_qparams_weight_only_qconfig)
    at = fb.tensor([1, 7])
    made = ours_fx.convert_fx(ours_fx.prepare_fx(copy.deepcopy(model), mapping, (at,)))
    assert isinstance(getattr(made, "0"), fb.ao.nn.quantized.Embedding)
    np.testing.assert_allclose(made(at).numpy(), model(at).detach().numpy(), atol=0.02)

    class Recurrent(fb.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = fb.nn.LSTM(4, 4)

        def forward(self, x):
            return self.lstm(x)[0]

    recurrent, x = Recurrent().eval(), fb.randn(3, 2, 4)
    mapping = ours.QConfigMapping().set_global(ours.default_dynamic_qconfig)
    made = ours_fx.convert_fx(ours_fx.prepare_fx(copy.deepcopy(recurrent), mapping, (x,)))
    assert isinstance(made.lstm, fb.ao.nn.quantized.dynamic.LSTM)
    np.testing.assert_allclose(made(x).numpy(), recurrent(x).detach().numpy(), atol=0.05)


class Own(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = fb.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


class OwnObserved(fb.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return self.linear(x)

    @classmethod
    def from_float(cls, module):
        made = cls(module.linear)
        made.qconfig = module.qconfig
        return made


class OwnQuantized(OwnObserved):
    @classmethod
    def from_observed(cls, observed):
        observed.linear.activation_post_process = observed.activation_post_process
        return cls(fb.ao.nn.quantized.Linear.from_float(observed.linear))


def test_a_module_of_the_program_is_observed_and_quantized_by_its_own_classes():
    model, x = fb.nn.Sequential(Own(), fb.nn.Linear(4, 2)).eval(), fb.tensor(X4)
    expected = model(x).detach().numpy()
    prepared = ours_fx.prepare_fx(
        model, ours.QConfigMapping().set_global(ours.default_qconfig), (x,),
        prepare_custom_config={"float_to_observed_custom_module_class": {"static": {Own: OwnObserved}}},
    )  # fmt: skip
    assert isinstance(getattr(prepared, "0"), OwnObserved)
    prepared(x)
    made = ours_fx.convert_fx(
        prepared, convert_custom_config={"observed_to_quantized_custom_module_class": {"static": {OwnObserved: OwnQuantized}}}
    )
    assert isinstance(getattr(made, "0"), OwnQuantized)
    np.testing.assert_allclose(made(x).numpy(), expected, atol=0.06 * np.abs(expected).max())


def test_parts_of_a_module_of_the_program_have_its_qconfig_or_their_own():
    config = {"float_to_observed_custom_module_class": {"static": {Own: OwnObserved}}}
    mapping = ours.QConfigMapping().set_object_type(Own, ours.default_qconfig)

    def of_linear(mapping):
        made = ours_fx.prepare_fx(fb.nn.Sequential(Own()).eval(), mapping, (fb.tensor(X4),), prepare_custom_config=config)
        return getattr(made, "0").linear.qconfig

    assert of_linear(mapping).weight().dtype is fb.qint8
    assert of_linear(mapping.set_object_type(fb.nn.Linear, None)) is None
    assert of_linear(mapping.set_module_name("0.linear", ours.float16_dynamic_qconfig)).weight().dtype is fb.float16


def test_modules_that_cannot_be_traced_stay_and_standalone_ones_are_prepared_on_their_own():
    class Branching(fb.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    config = ours_custom.PrepareCustomConfig().set_non_traceable_module_classes([Branching])
    config.set_standalone_module_name("1", None, (fb.tensor(X4),), None, None)
    model, x = fb.nn.Sequential(Branching(), Own(), fb.nn.Linear(4, 2)).eval(), fb.tensor(X4)
    with pytest.raises(fb.fx.proxy.TraceError):
        ours_fx.prepare_fx(copy.deepcopy(model), ours.get_default_qconfig_mapping(), (x,))
    expected = model(x).detach().numpy()
    prepared = ours_fx.prepare_fx(model, ours.get_default_qconfig_mapping("qnnpack"), (x,), prepare_custom_config=config)
    prepared(x)
    made = ours_fx.convert_fx(prepared)
    assert isinstance(getattr(made, "0"), Branching)
    assert isinstance(getattr(made, "1").linear, fb.ao.nn.quantized.Linear)
    np.testing.assert_allclose(made(x).numpy(), expected, atol=0.06 * np.abs(expected).max())


def test_arguments_and_results_may_stay_quantized_and_attributes_are_kept():
    model = fb.nn.Sequential(fb.nn.Linear(4, 4)).eval()
    model.tag = "mine"
    config = ours_custom.PrepareCustomConfig().set_input_quantized_indexes([0]).set_output_quantized_indexes([0])
    config.set_preserved_attributes(["tag"])
    prepared = ours_fx.prepare_fx(model, ours.get_default_qconfig_mapping(), (fb.tensor(X4),), prepare_custom_config=config)
    assert prepared.tag == "mine"
    prepared(fb.tensor(X4))
    made = ours_fx.convert_fx(prepared, convert_custom_config={"preserved_attributes": ["tag"]})
    result = made(fb.quantize_per_tensor(fb.tensor(X4), 0.02, 128, fb.quint8))
    assert made.tag == "mine"
    assert result.is_quantized
    assert not hasattr(made, "_input_scale_0")


def test_state_is_saved_and_loaded():
    model, x = fb.nn.Sequential(fb.nn.Linear(4, 4), fb.nn.ReLU()).eval(), fb.tensor(X4)
    blank = copy.deepcopy(model)
    prepared = ours_fx.prepare_fx(model, {"": ours.default_qconfig}, (x,))
    prepared(x)
    made = ours_fx.convert_fx(prepared)
    held = io.BytesIO()
    fb.save(made.state_dict(), held)
    held.seek(0)
    with pytest.warns(UserWarning, match="must run observer"):
        other = ours_fx.convert_fx(ours_fx.prepare_fx(blank, {"": ours.default_qconfig}, (x,)))
    other.load_state_dict(fb.load(held))
    assert fb.equal(made(x), other(x))


def test_joined_models_give_what_they_gave():
    model, x = model_of(fb, lambda m, s, x: s.relu(s.bn(s.conv(x)))).eval(), fb.tensor(IMAGES)
    expected = model(x)
    made = ours_fx.fuse_fx(model, fuse_custom_config={"preserved_attributes": ["lin"]})
    assert isinstance(made.conv, fb.ao.nn.intrinsic.ConvReLU2d)
    assert hasattr(made, "lin")
    assert not hasattr(made, "bn")
    np.testing.assert_allclose(made(x).detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-4)


def test_a_backend_of_ones_own_says_what_is_quantized():
    only = ours_backend.BackendConfig("mine").set_backend_pattern_config(
        ours_backend.BackendPatternConfig(fb.nn.Linear)
        .add_dtype_config(ours_backend.DTypeConfig(fb.quint8, fb.quint8, fb.qint8, fb.float))
        .set_root_module(fb.nn.Linear)
        .set_reference_quantized_module(fb.ao.nn.quantized.reference.Linear)
    )
    assert ours_backend.BackendConfig.from_dict(only.to_dict()).to_dict() == only.to_dict()
    model = model_of(fb, lambda m, s, x: s.elu(s.lin(x))).eval()
    prepared = ours_fx.prepare_fx(model, ours.get_default_qconfig_mapping(), (fb.tensor(X4),), backend_config=only)
    prepared(fb.tensor(X4))
    made = ours_fx.convert_fx(prepared)
    assert type(made.elu) is fb.nn.ELU
    assert isinstance(made.lin, fb.ao.nn.quantized.Linear)


def test_configs_are_dictionaries_and_back():
    config = ours_custom.PrepareCustomConfig().set_float_to_observed_mapping(fb.nn.Linear, Own)
    assert config.to_dict() == {"float_to_observed_custom_module_class": {"static": {fb.nn.Linear: Own}}}
    assert ours_custom.PrepareCustomConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()
    for kind in (ours_custom.PrepareCustomConfig, ours_custom.ConvertCustomConfig, ours_custom.FuseCustomConfig):
        assert kind().to_dict() == {}
        assert kind.from_dict({"preserved_attributes": ["a"]}).preserved_attributes == ["a"]
    with pytest.raises(ValueError, match="way of quantization"):
        ours_custom.PrepareCustomConfig.from_dict({"float_to_observed_custom_module_class": {"sometimes": {}}})
    with pytest.raises(ValueError, match="dtype_configs"):
        ours_backend.BackendPatternConfig.from_dict({"dtype_configs": [3]})
    with pytest.raises(ValueError, match="configs"):
        ours_backend.BackendConfig.from_dict({"configs": [3]})


def test_what_is_not_prepared_is_not_converted():
    with pytest.raises(ValueError, match="GraphModule"):
        ours_fx.convert_fx(fb.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="qconfig_mapping"):
        ours_fx.prepare_fx(fb.nn.Linear(2, 2), None, ())
    with pytest.raises(NotImplementedError, match="_equalization_config"):
        ours_fx.prepare_fx(fb.nn.Linear(2, 2), {}, (), _equalization_config={})


def test_scales_that_are_found_when_it_runs(sides):
    """`quantize_per_tensor_dynamic` beside PyTorch's."""
    for reduce_range in (False, True):
        for kind in ("quint8", "qint8"):
            here, there = (m.quantize_per_tensor_dynamic(m.tensor(X4), getattr(m, kind), reduce_range) for m, _, _ in sides)
            assert np.array_equal(here.int_repr().numpy(), there.int_repr().numpy())
            assert (here.q_scale(), here.q_zero_point()) == (there.q_scale(), there.q_zero_point())
    with pytest.raises(RuntimeError, match="not supported"):
        fb.quantize_per_tensor_dynamic(fb.ones(2), fb.qint32, False)


def test_what_follows_in_a_pattern_of_ones_own_is_no_relu():
    """A pattern of a function and a sigmoid has no kernel: it stays what the reference model means."""
    backend = ours_backend.BackendConfig("mine").set_backend_pattern_config(
        ours_backend.BackendPatternConfig((fb.nn.functional.linear, fb.sigmoid))
        .add_dtype_config(ours_backend.DTypeConfig(fb.quint8, fb.quint8, fb.qint8, fb.float))
        ._set_input_type_to_index({"weight": 1, "bias": 2})
    )
    model = model_of(fb, lambda m, s, x: m.sigmoid(m.nn.functional.linear(x, s.w))).eval()
    mapping = ours.QConfigMapping().set_global(ours.default_qconfig)
    prepared = ours_fx.prepare_fx(copy.deepcopy(model), mapping, (fb.tensor(X4),), backend_config=backend)
    prepared(fb.tensor(X4))
    made = ours_fx.convert_fx(prepared)(fb.tensor(X4))
    np.testing.assert_allclose(made.numpy(), model(fb.tensor(X4)).detach().numpy(), atol=0.02)
