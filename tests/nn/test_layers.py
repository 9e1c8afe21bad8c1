"""Every layer against the oracle: printed form, state for the same seed, and results in both modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements
from flambeau import nn

pytestmark = pytest.mark.oracle

FLOAT, INDEX = "float", "index"

# Class, arguments, keyword arguments, shapes of the inputs (an index input holds 0, 1 and 2).
LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], list[tuple[Any, ...]]]] = [
    ("Identity", (7,), {"x": 1}, [(2, 3)]),
    ("Linear", (3, 4), {}, [(2, 3)]),
    ("Linear", (3, 4), {"bias": False}, [(3,)]),
    ("Bilinear", (3, 4, 5), {}, [(2, 3), (2, 4)]),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, [(2, 4, 9)]),
    ("Conv2d", (4, 6, (3, 2)), {"padding": "same", "dilation": 2}, [(2, 4, 7, 6)]),
    ("Conv2d", (4, 6, 3), {"padding": 1, "padding_mode": "reflect", "bias": False}, [(2, 4, 7, 6)]),
    ("Conv2d", (4, 6, 3), {"padding": "same", "padding_mode": "circular"}, [(2, 4, 7, 6)]),
    ("Conv3d", (2, 3, 2), {}, [(1, 2, 3, 4, 3)]),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, [(2, 4, 5)]),
    ("ConvTranspose2d", (4, 6, 3), {"groups": 2, "dilation": 2, "padding": 1}, [(2, 4, 5, 4)]),
    ("ConvTranspose3d", (2, 3, 2), {"bias": False}, [(1, 2, 3, 2, 2)]),
    ("BatchNorm1d", (3,), {}, [(4, 3)]),
    ("BatchNorm2d", (3,), {"momentum": None, "affine": False}, [(4, 3, 2, 2)]),
    ("BatchNorm3d", (3,), {"track_running_stats": False, "bias": False}, [(2, 3, 2, 2, 2)]),
    ("InstanceNorm1d", (3,), {}, [(2, 3, 5)]),
    ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, [(2, 3, 4, 4)]),
    ("LayerNorm", ((3, 4),), {}, [(2, 3, 4)]),
    ("LayerNorm", (4,), {"bias": False, "eps": 0.1}, [(2, 4)]),
    ("GroupNorm", (2, 4), {}, [(2, 4, 3)]),
    ("RMSNorm", (4,), {}, [(2, 4)]),
    ("LocalResponseNorm", (2,), {}, [(2, 5, 3)]),
    ("CrossMapLRN2d", (4,), {"alpha": 0.5}, [(2, 7, 2, 2)]),
    ("Embedding", (5, 3), {"padding_idx": -1, "max_norm": 1.0}, [(INDEX, 4)]),
    ("EmbeddingBag", (5, 3), {"mode": "sum"}, [(INDEX, 2, 4)]),
    ("Dropout", (0.3,), {}, [(4, 5)]),
    ("Dropout2d", (), {}, [(2, 3, 2, 2)]),
    ("AlphaDropout", (0.2,), {}, [(4, 5)]),
    ("MaxPool2d", (2,), {"stride": 1, "padding": 1, "ceil_mode": True}, [(1, 2, 5, 5)]),
    ("AvgPool1d", (3,), {"count_include_pad": False}, [(1, 2, 9)]),
    ("AvgPool2d", (2,), {"divisor_override": 3}, [(1, 2, 5, 5)]),
    ("LPPool1d", (2, 3), {}, [(1, 2, 9)]),
    ("AdaptiveAvgPool2d", ((3, None),), {}, [(1, 2, 5, 4)]),
    ("AdaptiveMaxPool1d", (3,), {}, [(1, 2, 7)]),
    ("ReflectionPad1d", (2,), {}, [(1, 2, 5)]),
    ("ReplicationPad2d", ((1, 2, 0, 1),), {}, [(1, 2, 3, 3)]),
    ("ConstantPad1d", (2, 3.5), {}, [(1, 2, 3)]),
    ("ZeroPad2d", (1,), {}, [(1, 2, 3, 3)]),
    ("CircularPad1d", (2,), {}, [(1, 2, 5)]),
    ("ReLU", (), {"inplace": True}, [(2, 3)]),
    ("ReLU6", (), {}, [(2, 3)]),
    ("Hardtanh", (-0.5, 0.5), {}, [(2, 3)]),
    ("ELU", (0.7,), {}, [(2, 3)]),
    ("CELU", (0.7,), {}, [(2, 3)]),
    ("SELU", (), {}, [(2, 3)]),
    ("GELU", (), {"approximate": "tanh"}, [(2, 3)]),
    ("GLU", (), {}, [(2, 4)]),
    ("SiLU", (), {}, [(2, 3)]),
    ("Mish", (), {}, [(2, 3)]),
    ("Sigmoid", (), {}, [(2, 3)]),
    ("Tanh", (), {}, [(2, 3)]),
    ("LogSigmoid", (), {}, [(2, 3)]),
    ("Hardsigmoid", (), {}, [(2, 3)]),
    ("Hardswish", (), {}, [(2, 3)]),
    ("Hardshrink", (), {}, [(2, 3)]),
    ("Softshrink", (0.2,), {}, [(2, 3)]),
    ("Softplus", (2.0,), {}, [(2, 3)]),
    ("Softsign", (), {}, [(2, 3)]),
    ("Tanhshrink", (), {}, [(2, 3)]),
    ("LeakyReLU", (0.2,), {"inplace": True}, [(2, 3)]),
    ("Threshold", (0.1, 20), {}, [(2, 3)]),
    ("RReLU", (), {}, [(2, 3)]),
    ("PReLU", (3,), {}, [(2, 3)]),
    ("Softmax", (1,), {}, [(2, 3)]),
    ("Softmin", (-1,), {}, [(2, 3)]),
    ("LogSoftmax", (0,), {}, [(2, 3)]),
    ("Softmax2d", (), {}, [(2, 3, 2, 2)]),
    ("PixelShuffle", (2,), {}, [(1, 8, 2, 2)]),
    ("PixelUnshuffle", (2,), {}, [(1, 2, 4, 4)]),
    ("ChannelShuffle", (2,), {}, [(1, 4, 2, 2)]),
    ("Upsample", (), {"scale_factor": 2, "mode": "nearest"}, [(1, 2, 3, 3)]),
    ("UpsamplingBilinear2d", ((5, 4),), {}, [(1, 2, 3, 3)]),
    ("Fold", ((4, 5), 2), {}, [(1, 8, 12)]),
    ("Unfold", (2,), {"stride": 2}, [(1, 2, 4, 5)]),
    ("Flatten", (), {}, [(2, 3, 4)]),
    ("Unflatten", (1, (2, 3)), {}, [(2, 6)]),
    ("CosineSimilarity", (), {}, [(2, 3), (2, 3)]),
    ("PairwiseDistance", (3.0,), {"keepdim": True}, [(2, 3), (2, 3)]),
    ("L1Loss", (), {}, [(2, 3), (2, 3)]),
    ("MSELoss", (), {"reduction": "sum"}, [(2, 3), (2, 3)]),
    ("HuberLoss", (), {"delta": 0.5}, [(2, 3), (2, 3)]),
    ("CrossEntropyLoss", (), {"label_smoothing": 0.1}, [(4, 3), (INDEX, 4)]),
    ("KLDivLoss", (), {"reduction": "batchmean", "log_target": True}, [(2, 3), (2, 3)]),
    ("BCEWithLogitsLoss", (), {}, [(2, 3), (2, 3)]),
    ("TripletMarginLoss", (), {}, [(2, 3), (2, 3), (2, 3)]),
    ("RNN", (3, 4), {"nonlinearity": "relu"}, [(5, 2, 3)]),
    ("GRU", (3, 4, 2), {"batch_first": True, "bias": False}, [(2, 5, 3)]),
    ("LSTM", (3, 4), {"num_layers": 2, "bidirectional": True, "proj_size": 2, "dropout": 0.5}, [(5, 2, 3)]),
    ("RNNCell", (3, 4), {"nonlinearity": "relu", "bias": False}, [(2, 3)]),
    ("LSTMCell", (3, 4), {}, [(3,)]),
    ("GRUCell", (3, 4), {}, [(2, 3)]),
    ("MultiheadAttention", (4, 2), {}, [(5, 2, 4)] * 3),
    (
        "MultiheadAttention",
        (4, 2),
        {"kdim": 3, "vdim": 5, "add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
        [(2, 5, 4), (2, 6, 3), (2, 6, 5)],
    ),
    ("TransformerEncoderLayer", (4, 2, 8), {"norm_first": True, "activation": "gelu"}, [(5, 2, 4)]),
    ("TransformerDecoderLayer", (4, 2, 8), {"batch_first": True, "bias": False}, [(2, 5, 4), (2, 3, 4)]),
    (
        "Transformer",
        (4, 2, 1, 2, 8),
        {"batch_first": True, "dropout": 0.0},
        [(2, 5, 4), (2, 3, 4)],
    ),
    ("AdaptiveLogSoftmaxWithLoss", (8, 9, [1, 2, 5]), {"head_bias": True, "div_value": 2.0}, [(6, 8), (INDEX, 6)]),
]
IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(LAYERS)]


def make_both(oracle: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    made = []
    for package in (fb, oracle):
        package.manual_seed(0)
        made.append(getattr(package.nn, name)(*args, **kwargs))
    return made[0], made[1]


def inputs(shapes: list[tuple[Any, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 3, shape[1:]) if shape[0] is INDEX else rng.normal(size=shape).astype(np.float32)
        for shape in shapes
    ]


def flat(value: Any) -> list[np.ndarray]:
    if value is None:
        return []
    if isinstance(value, (tuple, list)):
        return [array for part in value for array in flat(part)]
    return [value.detach().numpy()]


@pytest.mark.parametrize(("name", "args", "kwargs", "shapes"), LAYERS, ids=IDS)
def test_a_layer_prints_and_starts_like_the_oracles(oracle, name, args, kwargs, shapes):
    ours, theirs = make_both(oracle, name, args, kwargs)

    assert repr(ours) == repr(theirs)
    expected = theirs.state_dict()
    assert list(ours.state_dict()) == list(expected)
    for key, value in ours.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), expected[key].numpy(), err_msg=key)


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("name", "args", "kwargs", "shapes"), LAYERS, ids=IDS)
def test_a_layer_computes_like_the_oracles(oracle, name, args, kwargs, shapes, training):
    ours, theirs = make_both(oracle, name, args, kwargs)
    arrays = inputs(shapes)
    ours.train(training)
    theirs.train(training)

    results = []
    for package, layer in ((fb, ours), (oracle, theirs)):
        package.manual_seed(1)
        results.append(flat(layer(*(package.tensor(array) for array in arrays))))

    for got, expected in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
    for key, value in ours.state_dict().items():
        np.testing.assert_allclose(value.numpy(), theirs.state_dict()[key].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_cross_map_lrn_has_pytorchs_gradient(size):
    # The derivative of the forward, but for the windows, which PyTorch takes one channel lower.
    alpha, beta, k, channels = 0.3, 0.6, 1.2, 7
    x = fb.linspace(0.5, 1.5, channels, dtype=fb.float64).view(1, channels, 1, 1).requires_grad_()
    y = nn.CrossMapLRN2d(size, alpha, beta, k)(x)
    values, out = x.detach().flatten().numpy(), y.detach().flatten().numpy()
    scale = (out / values) ** (-1 / beta)
    lowest = (size + 1) // 2
    below = [sum((out / scale)[max(c - lowest, 0) : c + size - lowest]) for c in range(channels)]

    y.sum().backward()

    expected = scale**-beta - 2 * alpha * beta / size * values * np.array(below)
    np.testing.assert_allclose(x.grad.flatten().numpy(), expected, rtol=1e-12)


def test_sync_batch_norm_of_one_process_is_batch_norm():
    x = fb.arange(24.0).view(2, 3, 4)
    plain = nn.BatchNorm1d(3)
    shared = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))

    assert fb.equal(shared(x), plain(x))
    assert fb.equal(shared[0].running_var, plain.running_var)
    assert fb.equal(shared.eval()(x), plain.eval()(x))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_computes_the_same_whichever_dimension_is_first(training, need_weights):
    fb.manual_seed(0)
    sequence_first = fb.nn.MultiheadAttention(8, 2, add_bias_kv=True)
    batch_first = fb.nn.MultiheadAttention(8, 2, add_bias_kv=True, batch_first=True)
    batch_first.load_state_dict(sequence_first.state_dict())
    query, key, mask = fb.randn(5, 3, 8), fb.randn(6, 3, 8), fb.randn(5, 6)

    made = []
    for layer, q, k in ((sequence_first, query, key), (batch_first, query.transpose(0, 1), key.transpose(0, 1))):
        layer.train(training)
        made.append(layer(q, k, k, attn_mask=mask, need_weights=need_weights))
    (expected, weights), (got, got_weights) = made

    np.testing.assert_allclose(got.transpose(0, 1).detach().numpy(), expected.detach().numpy(), rtol=1e-6, atol=1e-6)
    assert got.is_contiguous() is not training
    if need_weights:
        np.testing.assert_allclose(got_weights.detach().numpy(), weights.detach().numpy(), rtol=1e-6, atol=1e-6)


def _without_sequences(lib: Any, layer: str) -> Any:
    if layer == "MultiheadAttention":
        attention = lib.nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)
        return lambda x: attention(x, x, x)
    if layer == "TransformerEncoderLayer":
        return lib.nn.TransformerEncoderLayer(8, 2, 16)
    if layer == "TransformerDecoderLayer":
        decoder = lib.nn.TransformerDecoderLayer(8, 2, 16)
        return lambda x: decoder(x, lib.zeros(5, 0, 8))
    transformer = lib.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    return lambda x: transformer(x.transpose(0, 1), lib.zeros(0, 5, 8))


@pytest.mark.parametrize("layer", ["MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"])
def test_attention_takes_batches_without_sequences(layer: str, oracle: Any) -> None:
    shapes = []
    for lib in (fb, oracle):
        x = lib.zeros(3, 0, 8, requires_grad=True)
        made = _without_sequences(lib, layer)(x)
        made = made if isinstance(made, tuple) else (made,)
        made[0].sum().backward()
        shapes.append([tuple(t.shape) for t in (*made, x.grad)])

    assert shapes[0] == shapes[1]


def test_cross_map_normalization_refuses_integers_first(oracle: Any) -> None:
    programs = """
    torch.nn.CrossMapLRN2d(3)(torch.ones(1, 3, 2, 2, dtype=torch.int16))
    torch.nn.CrossMapLRN2d(3, beta=None)(torch.ones(1, 3, 2, 2, dtype=torch.int16))
    torch.nn.CrossMapLRN2d(3, beta=None)(torch.ones(1, 3, 2, 2))
    torch.nn.CrossMapLRN2d(3)(torch.ones(1, 3, 2, 2, dtype=torch.bool))
    torch.nn.CrossMapLRN2d(3)(torch.ones(1, 3, 2, 2, dtype=torch.float16))
    """

    assert not disagreements(oracle, programs)


def test_a_batch_norm_whose_statistics_were_taken_away_says_which_are_missing():
    layer = nn.BatchNorm1d(3)
    layer.running_var = None

    with pytest.raises(RuntimeError, match="track_running_stats is set, but running_var is None"):
        layer.reset_parameters()
