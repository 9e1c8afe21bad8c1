"""Layers and whole models, with an open batch."""

from __future__ import annotations

import pytest

import flambeau as fb
import flambeau.nn.functional as F
from comparing_onnx import agree, exported  # pyright: ignore[reportMissingImports]
from flambeau import nn
from flambeau.export import Dim

SHAPES = {
    (4,): """
        Linear(4, 3); Linear(4, 3, bias=False); Identity(); ReLU(); ReLU6(); ELU(); SELU(); CELU(); GELU(); SiLU(); Mish(); Sigmoid()
        Tanh(); Softplus(); Softsign(); LeakyReLU(); PReLU(); RReLU(); Hardtanh(); Hardswish(); Hardsigmoid(); LogSigmoid(); Tanhshrink()
        Softshrink(); Hardshrink(); Threshold(0.1, 2); Softmax(1); LogSoftmax(1); Softmin(1); GLU(); Dropout(); AlphaDropout()
        BatchNorm1d(4); LayerNorm(4); RMSNorm(4); GroupNorm(2, 4); Flatten(); Unflatten(1, (2, 2))
    """,
    (4, 6): """
        Conv1d(4, 3, 3); Conv1d(4, 3, 3, padding="same"); ConvTranspose1d(4, 3, 3, 2); MaxPool1d(2); AvgPool1d(3, 1, 1)
        AdaptiveAvgPool1d(1); AdaptiveAvgPool1d(4); AdaptiveMaxPool1d(3); LPPool1d(2, 2); InstanceNorm1d(4); BatchNorm1d(4)
        LayerNorm((4, 6)); ReflectionPad1d(2); ReplicationPad1d(1); ConstantPad1d(1, 2.0); ZeroPad1d(1); CircularPad1d(1)
        Upsample(scale_factor=2); Upsample(scale_factor=2, mode="linear"); Dropout1d(); LSTM(6, 5, batch_first=True)
        GRU(6, 5, batch_first=True); RNN(6, 5, batch_first=True); LSTM(6, 5, 2, bidirectional=True, batch_first=True)
        TransformerEncoderLayer(6, 2, 8, batch_first=True)
    """,
    (4, 6, 6): """
        Conv2d(4, 3, 3); Conv2d(4, 4, 3, 2, 1, groups=4); Conv2d(4, 3, 3, dilation=2, bias=False); ConvTranspose2d(4, 3, 3, 2, 1, 1)
        MaxPool2d(2); MaxPool2d(3, 2, 1); MaxPool2d(2, return_indices=True); AvgPool2d(2); AvgPool2d(3, 2, 1, count_include_pad=False)
        AvgPool2d(2, divisor_override=3); AdaptiveAvgPool2d(1); AdaptiveAvgPool2d((4, 3)); LPPool2d(2, 2); BatchNorm2d(4)
        BatchNorm2d(4, affine=False); BatchNorm2d(4, track_running_stats=False); InstanceNorm2d(4); InstanceNorm2d(4, affine=True)
        GroupNorm(2, 4); LayerNorm((6, 6)); LocalResponseNorm(3); PixelShuffle(2); PixelUnshuffle(2); ChannelShuffle(2)
        ReflectionPad2d(1); ReplicationPad2d((1, 2, 0, 1)); ZeroPad2d(1); CircularPad2d(1); Upsample(scale_factor=2)
        Upsample(size=(9, 7), mode="bilinear"); Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        UpsamplingNearest2d(scale_factor=2); UpsamplingBilinear2d(scale_factor=2); Unfold(2, padding=1); Dropout2d(); Softmax2d()
    """,
    (8, 12): """
        Fold((4, 5), 2)
    """,
    (4, 4, 4, 4): """
        Conv3d(4, 3, 3); ConvTranspose3d(4, 3, 2); MaxPool3d(2); AvgPool3d(2); AdaptiveAvgPool3d(1); BatchNorm3d(4); InstanceNorm3d(4)
        Upsample(scale_factor=2); Upsample(scale_factor=2, mode="trilinear"); ReplicationPad3d(1); ConstantPad3d(1, 3.0)
    """,
}  # fmt: skip
LAYERS = [(shape, each) for shape, text in SHAPES.items() for line in text.strip().splitlines() for each in line.strip().split("; ")]


@pytest.mark.parametrize(("shape", "layer"), LAYERS, ids=[layer for _, layer in LAYERS])
def test_layers_give_what_they_give_here(shape, layer):
    fb.manual_seed(0)
    module = eval(f"nn.{layer}", {"nn": nn}).eval()
    for name, value in module.named_buffers():
        if value.dtype.is_floating_point:             # running statistics that change something
            value.uniform_(0.5, 1.5)
        assert name
    program = exported(module, fb.randn(3, *shape), dynamic_shapes=({0: Dim("batch")},))

    agree(module, program, fb.randn(5, *shape), tolerance=2e-5)
    assert program.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


class Residual(nn.Module):
    def __init__(self, width, stride=1):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
        self.short = nn.Conv2d(width, width, 1, stride) if stride > 1 else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        y += self.short(x)
        return self.relu(y)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle, self.up = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x):
        a = F.relu(self.down(x), inplace=True)
        b = F.relu(self.middle(F.max_pool2d(a, 2)))
        b = F.interpolate(b, size=a.shape[2:], mode="bilinear", align_corners=False)
        return self.up(fb.cat([a, b], 1))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(16, 8)
        self.attention, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 11, bias=False)
        self.norm, self.wide, self.narrow = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.words(tokens) + self.places(fb.arange(n))
        hidden = fb.triu(fb.ones(n, n, dtype=fb.bool), 1)
        y = self.norm(x)
        x = x + self.attention(y, y, y, attn_mask=hidden, need_weights=False)[0]
        x = x + self.narrow(F.gelu(self.wide(self.norm(x))))
        return self.out(x)


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells, self.out = kind(4, 6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x, start=None):
        y, last = self.cells(x)
        return {"tags": self.out(y).log_softmax(-1), "last": last}


def cnn():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))


def resnet():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Residual(8), Residual(8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


BATCH, BATCH_AND_TIME = {0: Dim("batch")}, {0: Dim("batch"), 1: Dim("time", max=16)}
MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2)), fb.randn(3, 4), fb.randn(7, 4), BATCH),
    "cnn": (cnn, fb.randn(2, 3, 8, 8), fb.randn(5, 3, 8, 8), BATCH),
    "resnet": (resnet, fb.randn(2, 3, 8, 8), fb.randn(5, 3, 8, 8), BATCH),
    "convolutions of open sizes": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), Residual(8), nn.AdaptiveAvgPool2d(1)), fb.randn(2, 3, 8, 8),
                                   fb.randn(5, 3, 12, 10), {0: Dim("b"), 2: Dim("h", min=4), 3: Dim("w", min=4)}),
    "lstm": (lambda: Tagger(nn.LSTM), fb.randn(2, 5, 4), fb.randn(6, 5, 4), BATCH),
    "gru": (lambda: Tagger(nn.GRU), fb.randn(2, 5, 4), fb.randn(6, 5, 4), BATCH),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), fb.randn(2, 5, 8),
                fb.randn(3, 9, 8), BATCH_AND_TIME),
    "gpt": (GPT, fb.randint(0, 11, (2, 5)), fb.randint(0, 11, (3, 9)), BATCH_AND_TIME),
    "unet": (UNet, fb.randn(2, 3, 8, 8), fb.randn(3, 3, 8, 8), BATCH),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", MODELS)
def test_models_give_what_they_give_here_for_other_batches(name):
    make, example, other, sizes = MODELS[name]
    fb.manual_seed(1)
    model = make().eval()
    program = exported(model, example, dynamic_shapes=(sizes,))

    agree(model, program, example, tolerance=1e-4)
    agree(model, program, other, tolerance=1e-4)
