"""Reference recurrent layers, convolutions quantized when they run, and what QConfigs are asked: against PyTorch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as fb

torch = pytest.importorskip("torch")
warnings.filterwarnings("ignore")
pytestmark = pytest.mark.filterwarnings("ignore")

Q = {"scale": 0.02, "zero_point": 100}


def qparams(lib, **more):
    return {"qscheme": lib.per_tensor_affine, "dtype": lib.quint8, **Q, **more}


def copied(ours, theirs):
    """`ours` with the parameters of `theirs`."""
    ours.load_state_dict({name: fb.tensor(t.detach().numpy()) for name, t in theirs.state_dict().items()})
    return ours


def as_numpy(result):
    return [as_numpy(r) for r in result] if isinstance(result, (tuple, list)) else result.detach().numpy()


def assert_close(ours, theirs):
    ours, theirs = as_numpy(ours), as_numpy(theirs)
    for a, b in zip(ours, theirs, strict=True) if isinstance(ours, list) else [(ours, theirs)]:
        if isinstance(a, list):
            assert_close_lists(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def assert_close_lists(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_reference_cells_compute_with_the_numbers_of_quantized_weights(name):
    made = []
    theirs = getattr(torch.nn, name)(3, 4)
    ours = copied(getattr(fb.nn, name)(3, 4), theirs)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    for lib, cell in ((fb, ours), (torch, theirs)):
        told = {"weight_ih": qparams(lib), "weight_hh": qparams(lib), "is_decomposed": False}
        cell = getattr(lib.ao.nn.quantized.reference, name).from_float(cell, told)
        made.append((list(cell.state_dict()), repr(cell), cell.get_weight_ih().detach().numpy().tolist(), cell(lib.tensor(x))))

    assert made[0][:3] == made[1][:3]
    assert_close(made[0][3], made[1][3])
    with pytest.raises(AssertionError, match="to be 3"):
        getattr(fb.ao.nn.quantized.reference, name)(3, 4, weight_qparams_dict={"weight_ih": qparams(fb)})


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_reference_layers_compute_with_the_numbers_of_quantized_weights(name):
    made = []
    theirs = getattr(torch.nn, name)(3, 4, 2, bidirectional=True)
    ours = copied(getattr(fb.nn, name)(3, 4, 2, bidirectional=True), theirs)
    x = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)
    for lib, layer in ((fb, ours), (torch, theirs)):
        told = {n: qparams(lib) for n in dict(layer.named_parameters()) if "weight" in n}
        room = lib.ao.nn.quantized.reference.modules.rnn if lib is torch else lib.ao.nn.quantized.reference._rnn
        layer = getattr(room, name).from_float(layer, {**told, "is_decomposed": False})
        out, state = layer(lib.tensor(x))
        made.append((sorted(layer.state_dict()), repr(layer), list(layer.get_quantized_weight_bias_dict()), [out, *state]))

    assert made[0][:3] == made[1][:3]
    assert_close(made[0][3], made[1][3])


@pytest.mark.parametrize("reduce_range", [True, False])
@pytest.mark.parametrize(
    ("name", "sizes", "options"),
    [
        ("Conv1d", (9,), {"stride": 2, "padding": 1}),
        ("Conv2d", (9, 8), {"padding": 1, "groups": 2}),
        ("Conv3d", (5, 6, 7), {"dilation": 2}),
        ("ConvTranspose1d", (6,), {"stride": 2, "output_padding": 1}),
        ("ConvTranspose2d", (5, 6), {"padding": 1}),
        ("ConvTranspose3d", (3, 4, 3), {"bias": False}),
    ],
)
def test_convolutions_of_dense_inputs_quantize_them(name, sizes, options, reduce_range, monkeypatch):
    # PyTorch 2.13 gives other numbers than its own dense layers for transposed ones of several channels with 2 and 3 sizes.
    channels = (1, 1) if name in ("ConvTranspose2d", "ConvTranspose3d") else (4, 6)
    theirs = getattr(torch.nn, name)(*channels, 3, **options)
    # PyTorch's usual engine adds two products of integers of all 8 bits up in 16 bits on processors without VNNI. The other one has no
    # volumes, for which one product of each two is 0 then.
    if not reduce_range and name.endswith("3d"):
        theirs.weight.detach().mul_(torch.arange(channels[0])[:, None, None, None] + torch.arange(27).view(3, 3, 3) + 1 & 1)
    elif not reduce_range:
        monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")
    ours = copied(getattr(fb.nn, name)(*channels, 3, **options), theirs)
    x = np.random.default_rng(0).standard_normal((2, channels[0], *sizes)).astype(np.float32)
    made = []
    for lib, layer in ((fb, ours), (torch, theirs)):
        layer.qconfig = lib.ao.quantization.default_dynamic_qconfig
        layer = getattr(lib.ao.nn.quantized.dynamic, name).from_float(layer)
        made.append((list(layer.state_dict()), repr(layer), layer(lib.tensor(x), reduce_range)))
        with pytest.raises(ValueError, match=r"Input shape must be `\(N, C, "):
            layer(lib.ones(3))

    assert made[0][:2] == made[1][:2]
    assert_close(made[0][2], made[1][2])


def test_convert_makes_reference_layers():
    made = []
    for lib in (fb, torch):
        q = lib.ao.quantization
        model = lib.nn.Sequential(q.QuantStub(), lib.nn.Linear(2, 2), lib.nn.Conv1d(1, 1, 1), q.DeQuantStub()).eval()
        model.qconfig = q.get_default_qconfig("x86")
        seen = q.prepare(model)
        seen[1](seen[0](lib.ones(1, 2)))
        found = q.convert(seen, is_reference=True)
        made.append(([type(m).__name__ for m in found], repr(found[1]), str(found[1].weight_dtype)))

    assert made[0] == [made[1][0], made[1][1], made[1][2].replace("torch", "flambeau")] or made[0] == made[1]


QCONFIGS = """
    default_qconfig default_dynamic_qconfig float16_dynamic_qconfig float_qparams_weight_only_qconfig float16_static_qconfig
    default_qat_qconfig
"""
QUESTIONS = """
    activation_dtype weight_dtype activation_is_statically_quantized activation_is_dynamically_quantized activation_is_int8_quantized
    activation_is_int32_quantized weight_is_quantized weight_is_statically_quantized op_is_int8_dynamically_quantized
    get_qconfig_dtypes get_quant_type
"""


@pytest.mark.parametrize("qconfig", QCONFIGS.split())
def test_what_a_qconfig_is_asked(qconfig):
    found = [
        [str(getattr(lib.ao.quantization.utils, question)(getattr(lib.ao.quantization, qconfig))) for question in QUESTIONS.split()]
        for lib in (fb, torch)
    ]

    assert [a.replace("flambeau", "torch") for a in found[0]] == found[1]


@pytest.mark.parametrize("dtype", ["qint8", "quint8", "qint32", "quint4x2", "float16", "int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("reduced", [True, False])
def test_limits_of_integers(dtype, reduced):
    def limits(lib, own):
        return lib.ao.quantization.utils.calculate_qmin_qmax(-5, 10, own, getattr(lib, dtype), reduced)

    assert [limits(fb, own) for own in (True, False)] == [limits(torch, own) for own in (True, False)]


@pytest.mark.parametrize("scheme", ["per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_affine_float_qparams"])
@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127), ("quint8", 0, 15)])
@pytest.mark.parametrize("own", [True, False])
def test_scales_of_ranges(scheme, dtype, low, high, own):
    def found(lib):
        return lib.ao.quantization.utils.determine_qparams(
            lib.tensor([-1.0, 0.5, 0.0]), lib.tensor([2.0, 3.0, 0.0]), low, high, getattr(lib, dtype), lib.tensor([1e-7]), own,
            getattr(lib, scheme),
        )

    (scale, zero), (their_scale, their_zero) = found(fb), found(torch)
    assert scale.numpy().tolist() == their_scale.numpy().tolist()
    assert zero.numpy().tolist() == their_zero.numpy().tolist()
    assert (str(scale.dtype)[-7:], str(zero.dtype)[-5:]) == (str(their_scale.dtype)[-7:], str(their_zero.dtype)[-5:])


def test_examples_of_what_each_module_gets():
    found = []
    for lib in (fb, torch):
        model = lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.Sequential(lib.nn.ReLU()))
        examples = lib.ao.quantization.utils.get_fqn_to_example_inputs(model, (lib.ones(1, 2),))
        found.append({name: [tuple(a.shape) for a in args] for name, args in examples.items()})

    assert found[0] == found[1]


def test_quantization_of_scripts_says_that_it_is_not_built():
    with pytest.raises(NotImplementedError, match="quantize_fx"):
        fb.ao.quantization.quantize_dynamic_jit(None, {})
