"""Quantization of exported programs: operators, annotations, observers, and what is left in their place."""

from __future__ import annotations

import copy
import io

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.ao.quantization import (
    FakeQuantize,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    allow_exported_model_train_eval,
    disable_observer,
    move_exported_model_to_eval,
    move_exported_model_to_train,
)
from flambeau.ao.quantization.fx import _decomposed  # noqa: F401  # defines the operators
from flambeau.ao.quantization.pt2e.export_utils import model_is_exported
from flambeau.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from flambeau.ao.quantization.quantizer import (
    ComposableQuantizer,
    DerivedQuantizationSpec,
    EmbeddingQuantizer,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)

aten = fb.ops.aten
ops = fb.ops.quantized_decomposed
INT8 = -128, 127, fb.int8


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.second, self.last = nn.Conv2d(4, 4, 1), nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x)
        x = fb.relu(x + self.second(x))
        return self.last(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def program_of(module, *args):
    return fb.export.export_for_training(module, args).module()


def named(model, word):
    return [n for n in model.graph.nodes if n.op == "call_function" and word in str(n.target)]


def globally(**settings):
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**settings))


# -- operators ---------------------------------------------------------------------------------------------------------------


CALLS = {
    "per tensor": lambda q, t, x: q.quantize_per_tensor(x, 0.05, 3, -128, 127, t.int8),
    "per tensor, uint8": lambda q, t, x: q.quantize_per_tensor(x, 0.03, 7, 0, 200, t.uint8),
    "per tensor, tensors": lambda q, t, x: q.quantize_per_tensor.tensor(x, t.tensor(0.05), t.tensor(3), -128, 127, t.int8),
    "back": lambda q, t, x: q.dequantize_per_tensor((x * 20).to(t.int8), 0.05, 3, -128, 127, t.int8),
    "back, halves": lambda q, t, x: q.dequantize_per_tensor((x * 20).to(t.int8), 0.05, 3, -128, 127, t.int8, out_dtype=t.float16),
    "per channel": lambda q, t, x: q.quantize_per_channel(x, t.tensor([0.05, 0.1]), t.tensor([0, 1]), 0, -128, 127, t.int8),
    "per channel, back": lambda q, t, x: q.dequantize_per_channel(
        (x * 20).to(t.int8), t.tensor([0.05, 0.1]), t.tensor([0, 1]), 0, -128, 127, t.int8, out_dtype=t.bfloat16
    ),
    "range": lambda q, t, x: q.choose_qparams.tensor(x, -128, 127, 1e-5, t.int8),
    "range around 0": lambda q, t, x: q.choose_qparams_symmetric.tensor(x, -8, 7, 1e-5, t.int8),
    "tokens": lambda q, t, x: q.choose_qparams_per_token_asymmetric(x, t.int8),
    "tokens around 0": lambda q, t, x: q.choose_qparams_per_token(x, t.int8),
    "groups": lambda q, t, x: q.quantize_per_channel_group(x, t.full((2, 2), 0.5), t.zeros(2, 2), -8, 7, t.int8, 2),
    "fake": lambda q, t, x: q.fake_quant_per_channel(x, t.tensor([0.05, 0.1]), t.tensor([0, 1]), 0, -128, 127),
}  # fmt: skip
NUMBERS = [[-1.5, 0.3, 2.7, 0.02], [0.1, -4.0, 1.0, 0.0]]


@pytest.mark.parametrize("name", CALLS)
def test_operators_give_what_pytorch_gives(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.ao.quantization.fx._decomposed")
    found, wanted = (CALLS[name](t.ops.quantized_decomposed, t, t.tensor(NUMBERS)) for t in (fb, torch))
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        assert str(a.dtype) == str(b.dtype)
        assert a.tolist() == b.tolist()


def test_operators_refuse_what_does_not_fit():
    x = fb.tensor(NUMBERS)
    with pytest.raises(AssertionError, match="quant_max_upper_bound: 127 quant_max: 200"):
        ops.quantize_per_tensor(x, 0.05, 3, -127, 200, fb.int8)
    with pytest.raises(AssertionError, match=r"dtype torch.float32, but got dtype: torch.float64"):
        ops.quantize_per_tensor(x.double(), 0.05, 3, *INT8)
    with pytest.raises(AssertionError, match=r"dtype: torch.int8, but got torch.int32"):
        ops.dequantize_per_tensor(x.int(), 0.05, 3, *INT8)
    with pytest.raises(AssertionError, match="axis to be < 2"):
        ops.quantize_per_channel(x, fb.ones(2), fb.zeros(2), 5, *INT8)
    with pytest.raises(AssertionError, match="one element, but received : 2"):
        ops.quantize_per_tensor.tensor(x, fb.ones(2), fb.tensor(0), *INT8)


# -- after training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"is_per_channel": True}])
def test_a_network_is_quantized(settings):
    fb.manual_seed(0)
    net, x = Net(), fb.randn(8, 3, 8, 8)
    net(x)                                            # running statistics
    net.eval()
    wanted = net(x).detach()
    model = prepare_pt2e(program_of(net, x), globally(**settings))
    assert not named(model, "batch_norm")
    observed = model(x).detach()
    assert fb.allclose(observed, wanted, atol=1e-6)
    model = convert_pt2e(model)
    made = model(x).detach()
    # Of 8 bits in each of five layers: some percent of the largest result.
    assert 0 < (made - wanted).abs().max() < 0.04 * wanted.abs().max()
    frozen = [v for k, v in model.state_dict().items() if k.startswith("_frozen_param")]
    assert len(frozen) == 3
    assert all(v.dtype is fb.int8 for v in frozen)
    assert "second.weight" not in model.state_dict()
    assert "second.bias" in model.state_dict()
    # The result of the first layer, that of its pooling and both operands of what reads it have one scale.
    pooled = named(model, "max_pool2d")[0]
    scales = {pooled.args[0].args[1], *(user.args[1] for user in pooled.users)}
    assert len(scales) == 1
    again = copy.deepcopy(model)
    assert fb.equal(again(x), made)
    buffer = io.BytesIO()
    fb.export.save(fb.export.export(model, (x,)), buffer)
    buffer.seek(0)
    assert fb.equal(fb.export.load(buffer).module()(x), made)


def test_scales_are_found_anew_in_each_call():
    layer, x = nn.Linear(6, 3).eval(), fb.randn(5, 6)
    model = prepare_pt2e(program_of(layer, x), globally(is_dynamic=True))
    model(x)                                          # the weight is seen
    model = convert_pt2e(model)
    assert len(named(model, "choose_qparams")) == 1
    for scale in (1.0, 100.0):
        given = x * scale
        low, high = given.min().clamp(max=0), given.max().clamp(min=0)
        step = (high - low) / 255
        error = (model(given) - layer(given)).abs().max()
        assert error < step * layer.weight.abs().sum(1).max() + 0.01 * scale


def test_weights_stay_floats_where_asked():
    layer, x = nn.Linear(6, 3).eval(), fb.randn(5, 6)
    model = prepare_pt2e(program_of(layer, x), globally())
    model(x)
    model = convert_pt2e(model, fold_quantize=False)
    assert len(named(model, "quantized_decomposed.quantize")) == 3
    assert "weight" in model.state_dict()


def test_settings_for_operators_classes_and_names():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Conv1d(5, 5, 1))

        def forward(self, x):
            return self.b(self.a(x))

    config = get_symmetric_quantization_config()

    def quantized(quantizer):
        model = program_of(Two().eval(), fb.ones(2, 5, 4))
        quantizer.annotate(model)
        return [n.name for n in model.graph.nodes if (said := n.meta.get("quantization_annotation")) and said.input_qspec_map]

    assert quantized(XNNPACKQuantizer().set_global(config)) == ["linear", "linear_1", "conv1d"]
    assert quantized(XNNPACKQuantizer().set_operator_type(aten.linear.default, config)) == ["linear", "linear_1"]
    assert quantized(XNNPACKQuantizer().set_module_type(nn.Conv1d, config)) == ["conv1d"]
    assert quantized(XNNPACKQuantizer().set_module_name("b.0", config)) == ["linear_1"]
    assert quantized(XNNPACKQuantizer().set_global(config).set_module_name("b", None)) == ["linear"]
    assert quantized(XNNPACKQuantizer().set_global(config).set_filter_function(lambda n: n.name != "conv1d")) == ["linear", "linear_1"]


def test_tables_of_embeddings_beside_another_quantizer():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, at):
            return self.last(self.table(at))

    net, at = Both().eval(), fb.tensor([[1, 8], [0, 3]])
    model = prepare_pt2e(program_of(net, at), ComposableQuantizer([EmbeddingQuantizer(), globally()]))
    model(at)
    model = convert_pt2e(model)
    assert len(named(model, "dequantize_per_channel")) == 1
    assert len(named(model, "dequantize_per_tensor")) >= 2
    assert (model(at) - net(at)).abs().max() < 0.05
    with pytest.raises(RuntimeError, match="has changed annotations on node embedding"):
        ComposableQuantizer([EmbeddingQuantizer(), _Twice()]).annotate(program_of(net, at))


class _Twice(Quantizer):
    """Annotates what is annotated already."""

    def annotate(self, model):
        for node in named(model, "embedding"):
            node.meta["quantization_annotation"] = QuantizationAnnotation(_annotated=True)
        return model

    def validate(self, model):
        pass


# -- quantizers of one's own -------------------------------------------------------------------------------------------------


class _Own(Quantizer):
    def __init__(self, annotate) -> None:
        super().__init__()
        self.say = annotate

    def annotate(self, model):
        for node in model.graph.nodes:
            if node.op == "call_function":
                self.say(node)
        return model

    def validate(self, model):
        assert all("quantization_annotation" in n.meta for n in model.graph.nodes if n.op == "call_function")


def _spec(dtype=fb.int8, low=-128, high=127, observer=MinMaxObserver, **more):
    return QuantizationSpec(dtype, observer.with_args(eps=2**-12), low, high, fb.per_tensor_affine, **more)


def test_known_and_derived_scales():
    def say(node):
        x, weight, bias = node.args

        def of_bias(observers):
            (a, _), (b, _) = (o.calculate_qparams() for o in observers)
            return a * b, fb.tensor([0])

        derived = DerivedQuantizationSpec([(x, node), (weight, node)], of_bias, fb.int32, -(2**31), 2**31 - 1, fb.per_tensor_symmetric)
        known = FixedQParamsQuantizationSpec(fb.uint8, 1 / 16, 128, 0, 255, fb.per_tensor_affine)
        node.meta["quantization_annotation"] = QuantizationAnnotation({x: _spec(), weight: _spec(), bias: derived}, known)

    layer, x = nn.Linear(3, 2).eval(), fb.tensor([[1.0, -1.0, 0.5]])
    model = prepare_pt2e(program_of(layer, x), _Own(say))
    model(x)
    model = convert_pt2e(model, fold_quantize=False)
    made = named(model, "quantized_decomposed.quantize")
    steps = {"input" if n.args[0].op == "placeholder" else n.args[0].name: n.args[1:] for n in made}
    assert steps["linear"] == (1 / 16, 128, 0, 255, fb.uint8)
    scale, zero, *_, dtype = steps["bias"]
    assert scale == pytest.approx(steps["input"][0] * steps["weight"][0])
    assert zero == 0
    assert dtype is fb.int32


def test_operands_share_a_scale_where_they_are_said_to():
    class Join(nn.Module):
        def forward(self, a, b):
            return fb.cat([a, b])

    def say(node):
        a, b = node.args[0]
        first = (a, node)
        shared = SharedQuantizationSpec(first)
        node.meta["quantization_annotation"] = QuantizationAnnotation({a: _spec(), b: shared}, shared)

    a, b = fb.tensor([0.0, 1.0]), fb.tensor([-9.0, 3.0])
    model = prepare_pt2e(program_of(Join(), a, b), _Own(say))
    assert sum(n.op == "call_module" for n in model.graph.nodes) == 3
    assert not hasattr(model, "activation_post_process_1")
    model(a, b)
    model = convert_pt2e(model)
    scales = [n.args[1:3] for n in named(model, "quantized_decomposed.quantize_per_tensor")]
    assert scales == [(pytest.approx(12 / 255), 63)] * 3

    def circle(node):
        a, b = node.args[0]
        map_ = {a: SharedQuantizationSpec((b, node)), b: SharedQuantizationSpec((a, node))}
        node.meta["quantization_annotation"] = QuantizationAnnotation(map_)

    with pytest.raises(ValueError, match="share each other's scale"):
        prepare_pt2e(program_of(Join(), a, b), _Own(circle))


@pytest.mark.parametrize("implicitly", [True, False])
def test_one_value_read_twice_has_one_observer_unless_told_otherwise(implicitly):
    class Twice(nn.Module):
        def forward(self, x):
            return x.sin(), x.cos()

    same = _spec()

    def say(node):
        node.meta["quantization_annotation"] = QuantizationAnnotation({node.args[0]: same}, allow_implicit_sharing=implicitly)

    model = prepare_pt2e(program_of(Twice(), fb.ones(3)), _Own(say))
    assert hasattr(model, "activation_post_process_1") is not implicitly


def test_specs_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="quant_min 3 must be <= quant_max 2"):
        _spec(low=3, high=2)
    with pytest.raises(ValueError, match="Ch_axis is < 0"):
        _spec(ch_axis=-1)

    def say(node):
        node.meta["quantization_annotation"] = QuantizationAnnotation({node: _spec()})

    with pytest.raises(ValueError, match="which does not read it"):
        prepare_pt2e(program_of(nn.ReLU(), fb.ones(2)), _Own(say))
    with pytest.raises(AssertionError, match="expected the module of an exported program"):
        prepare_pt2e(fb.fx.symbolic_trace(nn.ReLU()), globally())  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="expected the module of an exported program"):
        convert_pt2e(nn.ReLU())  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="use_reference_representation"):
        convert_pt2e(prepare_pt2e(program_of(nn.ReLU(), fb.ones(2)), globally()), use_reference_representation=True)


# -- in training -------------------------------------------------------------------------------------------------------------


class _Trained(Quantizer):
    """Layers with fake quantizations whose scales are those of their observers."""

    def annotate(self, model):
        activation = QuantizationSpec(
            fb.int8, FakeQuantize.with_args(observer=MovingAverageMinMaxObserver), -128, 127, fb.per_tensor_affine
        )
        weight = QuantizationSpec(
            fb.int8, FakeQuantize.with_args(observer=PerChannelMinMaxObserver), -127, 127, fb.per_channel_symmetric, ch_axis=0
        )
        for node in model.graph.nodes:
            if node.target in (aten.conv2d.default, aten.linear.default):
                node.meta["quantization_annotation"] = QuantizationAnnotation({node.args[0]: activation, node.args[1]: weight})
        return model

    def validate(self, model):
        pass


@pytest.mark.parametrize("bias", [False, True])
def test_trained_layers_are_folded_as_they_were_trained(bias):
    fb.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    x, y = fb.randn(16, 3, 8, 8), fb.randint(0, 2, (16,))
    model = prepare_qat_pt2e(program_of(net.train(), x), _Trained())
    optimizer = fb.optim.SGD(model.parameters(), 0.05)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    move_exported_model_to_eval(model)
    model(x)
    model.apply(disable_observer)
    wanted = model(x).detach()
    model = convert_pt2e(model)
    assert not named(model, "batch_norm")
    assert len(named(model, "dequantize_per_channel")) == 2
    # What differs in the last bit may be rounded to the next integer.
    close = ((model(x) - wanted).abs() < 1e-5).float().mean()
    assert close > 0.8
    assert (model(x) - wanted).abs().max() < 0.05


def test_the_quantizer_for_training_ends_in_integers():
    fb.manual_seed(0)
    net, x = Net(), fb.randn(8, 3, 8, 8)
    model = prepare_qat_pt2e(program_of(net.train(), x), globally(is_qat=True, is_per_channel=True))
    for _ in range(3):
        model(x).square().sum().backward()
    move_exported_model_to_eval(model)
    wanted = model(x).detach()
    model = convert_pt2e(model)
    step = named(model, "dequantize_per_tensor")[-1].args[1]
    assert (model(x) - wanted).abs().max() < 6 * step
    assert [v.dtype for k, v in model.state_dict().items() if k.startswith("_frozen_param")] == [fb.int8] * 3


class _Nothing(Quantizer):
    """Leaves everything as it is, so that folding alone is seen."""

    def annotate(self, model):
        return model

    def validate(self, model):
        pass


class Twice(nn.Module):
    """One convolution and one norm, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x):
        return self.norm(self.conv(self.norm(self.conv(x))))


FOLDED = {
    "Conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 6, 3, groups=3, bias=False), nn.BatchNorm1d(6)), (2, 3, 8), True),
    "Conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4, affine=False)), (2, 2, 3, 4, 5), True),
    "ConvTranspose2d": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 5, 2), nn.BatchNorm2d(5)), (2, 3, 4, 4), True),
    "ConvTranspose2d of groups": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 2, groups=2), nn.BatchNorm2d(6)), (2, 4, 3, 3), False),
    "Linear": (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(3)), (2, 3, 5), False),
    "one signal": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(6)), (3, 8), False),
    "called twice": (Twice, (2, 3, 4, 4), False),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDED)
def test_batch_norms_are_folded_where_the_results_stay(name):
    make, shape, folds = FOLDED[name]
    fb.manual_seed(0)
    net, x = make().eval(), fb.randn(shape)
    for part in net.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
    wanted = net(x).detach()
    model = prepare_pt2e(program_of(net, x), _Nothing())
    assert bool(named(model, "batch_norm")) is not folds
    assert fb.allclose(model(x), wanted, atol=1e-5)
    assert fb.equal(net(x), wanted)                   # the model itself is as it was


def test_known_scales_round_in_training():
    def say(node):
        node.meta["quantization_annotation"] = QuantizationAnnotation(
            {}, FixedQParamsQuantizationSpec(fb.uint8, 1 / 256, 0, 0, 255, fb.per_tensor_affine)
        )

    x = fb.tensor([0.1, 0.2, 3.0])
    model = prepare_qat_pt2e(program_of(nn.Sigmoid(), x), _Own(say))
    assert fb.equal(model(x), fb.round(x.sigmoid() * 256).clamp(0, 255) / 256)
    assert fb.equal(convert_pt2e(model)(x), fb.round(x.sigmoid() * 256).clamp(0, 255) / 256)


def test_modes_of_exported_programs():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    x = fb.randn(6, 4)
    model = program_of(net.train(), x)
    assert model_is_exported(model)
    assert not model_is_exported(net)
    move_exported_model_to_eval(model)
    assert named(model, "dropout")[0].args[2] is False
    assert named(model, "batch_norm")[0].args[5] is False
    assert fb.allclose(model(x), copy.deepcopy(net).eval()(x))
    move_exported_model_to_train(model)
    assert named(model, "dropout")[0].args[2] is True
    plain = nn.BatchNorm1d(4, track_running_stats=False)
    assert fb.allclose(move_exported_model_to_eval(program_of(plain, x))(x), plain.eval()(x))
    leaky = move_exported_model_to_train(program_of(nn.RReLU().eval(), -fb.ones(50)))
    assert leaky(-fb.ones(50)).unique().numel() > 1
    assert move_exported_model_to_eval(leaky)(-fb.ones(50)).unique().numel() == 1
    with pytest.raises(NotImplementedError):
        model.eval()
    allow_exported_model_train_eval(model)
    assert model.eval() is model
    assert named(model, "dropout")[0].args[2] is False
    assert model.train() is model
    assert named(model, "dropout")[0].args[2] is True
    assert model.training
