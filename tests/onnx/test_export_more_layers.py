"""Layers and losses of several inputs, with an open batch: those of `flambeau.nn` that the shapes of one input do not cover."""

from __future__ import annotations

import pytest

import comparing_onnx  # pyright: ignore[reportMissingImports]
import flambeau as fb
import flambeau.nn.functional as F
from comparing_onnx import agree, exported
from flambeau import nn
from flambeau.export import Dim


class Run(nn.Module):
    """A function with a layer."""

    def __init__(self, run, layer=None):
        super().__init__()
        self.run, self.layer = run, layer

    def forward(self, *inputs):
        return self.run(*inputs) if self.layer is None else self.run(self.layer, *inputs)


def words(*shape):
    return fb.randint(0, 5, shape)


def unpooled(n):
    pool, unpool = getattr(nn, f"MaxPool{n}d")(2, return_indices=True), getattr(nn, f"MaxUnpool{n}d")(2)
    return Run(lambda x: unpool(*pool(x)))


r = fb.randn
LAYERS = {
    "Bilinear": (lambda: nn.Bilinear(3, 4, 5), lambda n: (r(n, 3), r(n, 4))),
    "Embedding": (lambda: nn.Embedding(5, 3, padding_idx=0), lambda n: (words(n, 2),)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(5, 3), lambda n: (words(n, 2),)),
    "EmbeddingBag of sums": (lambda: nn.EmbeddingBag(5, 3, mode="sum"), lambda n: (words(n, 2),)),
    "EmbeddingBag of maxima": (lambda: nn.EmbeddingBag(5, 3, mode="max", padding_idx=1), lambda n: (words(n, 2),)),
    "EmbeddingBag with padding": (lambda: nn.EmbeddingBag(5, 3, padding_idx=-4), lambda n: (words(n, 3),)),
    "EmbeddingBag with weights": (
        lambda: Run(lambda m, x, w: m(x, per_sample_weights=w), nn.EmbeddingBag(5, 3, mode="sum")), lambda n: (words(n, 2), r(n, 2))
    ),
    "EmbeddingBag at offsets": (lambda: nn.EmbeddingBag(5, 3), lambda n: (words(6), fb.tensor([0, 2, 2] + [4] * (n - 3)))),
    "EmbeddingBag of maxima at offsets": (
        lambda: nn.EmbeddingBag(5, 3, mode="max", padding_idx=1, include_last_offset=True),
        lambda n: (words(6), fb.tensor([0, 2, 2] + [6] * (n - 3))),
    ),
    "CosineSimilarity": (nn.CosineSimilarity, lambda n: (r(n, 3), r(n, 3))),
    "PairwiseDistance": (nn.PairwiseDistance, lambda n: (r(n, 3), r(n, 3))),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(6, 2, batch_first=True), lambda n: (r(n, 3, 6), r(n, 5, 6), r(n, 5, 6))),
    "MultiheadAttention with a mask": (
        lambda: Run(lambda m, x, k: m(x, x, x, key_padding_mask=k), nn.MultiheadAttention(6, 2, batch_first=True)),
        lambda n: (r(n, 3, 6), r(n, 3) > 3),
    ),
    "MultiheadAttention with more keys": (
        lambda: nn.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True),
        lambda n: (r(n, 3, 6), r(n, 5, 6), r(n, 5, 6)),
    ),
    "Transformer": (lambda: nn.Transformer(6, 2, 1, 1, 12, batch_first=True), lambda n: (r(n, 3, 6), r(n, 5, 6))),
    "MaxUnpool1d": (lambda: unpooled(1), lambda n: (r(n, 2, 4),)),
    "MaxUnpool2d": (lambda: unpooled(2), lambda n: (r(n, 2, 4, 4),)),
    "MaxUnpool3d": (lambda: unpooled(3), lambda n: (r(n, 2, 4, 4, 4),)),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(3, return_indices=True), lambda n: (r(n, 2, 5),)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d((3, 2), return_indices=True), lambda n: (r(n, 2, 5, 7),)),
    "AdaptiveMaxPool3d": (lambda: nn.AdaptiveMaxPool3d(3), lambda n: (r(n, 2, 5, 5, 5),)),
    "AdaptiveAvgPool2d of some sizes": (lambda: nn.AdaptiveAvgPool2d((None, 3)), lambda n: (r(n, 2, 5, 5),)),
    "AdaptiveAvgPool3d": (lambda: nn.AdaptiveAvgPool3d(3), lambda n: (r(n, 2, 5, 5, 5),)),
    "LPPool3d": (lambda: nn.LPPool3d(2, 2), lambda n: (r(n, 2, 5, 5, 5),)),
    "MaxPool2d with dilation": (lambda: nn.MaxPool2d(2, 2, 1, 2, ceil_mode=True), lambda n: (r(n, 2, 7, 7),)),
    "AvgPool2d over the edge": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True), lambda n: (r(n, 2, 6, 6),)),
    "Conv2d with circular padding": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), lambda n: (r(n, 2, 4, 4),)),
    "ReflectionPad3d": (lambda: nn.ReflectionPad3d(1), lambda n: (r(n, 2, 4, 4, 4),)),
    "Upsample by cubes": (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), lambda n: (r(n, 2, 4, 4),)),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), lambda n: (r(n, 4),)),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), lambda n: (r(n, 4),)),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: Run(lambda m, x: m.log_prob(x), nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6], div_value=1.5)), lambda n: (r(n, 4),)
    ),
    "cumprod": (lambda: Run(lambda x: (x.cumprod(1), x.cumprod(0), x.cumprod(-1, dtype=fb.float64))), lambda n: (r(n, 4, 3),)),
    "inner": (lambda: Run(lambda x: (fb.inner(x, x), fb.inner(x, fb.ones(4)), fb.inner(x, fb.ones(2, 3, 4)))), lambda n: (r(n, 4),)),
    "CrossEntropyLoss": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), lambda n: (r(n, 5), words(n))),
    "CrossEntropyLoss of probabilities": (nn.CrossEntropyLoss, lambda n: (r(n, 5), r(n, 5).softmax(1))),
    "CrossEntropyLoss of images": (nn.CrossEntropyLoss, lambda n: (r(n, 5, 3), words(n, 3))),
    "MultiMarginLoss": (nn.MultiMarginLoss, lambda n: (r(n, 5), words(n))),
    "MultiMarginLoss of squares": (lambda: nn.MultiMarginLoss(p=2, weight=fb.rand(5)), lambda n: (r(n, 5), words(n))),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss, lambda n: (r(n, 5), words(n, 5) - 1)),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, lambda n: (r(n, 4), r(n, 4).sign().clamp(0, 1))),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss, lambda n: (r(n, 5), r(n, 5), r(n).sign())),
    "TripletMarginLoss": (nn.TripletMarginWithDistanceLoss, lambda n: (r(n, 5), r(n, 5), r(n, 5))),
    "GaussianNLLLoss": (nn.GaussianNLLLoss, lambda n: (r(n, 5), r(n, 5), r(n, 5).abs())),
    "MarginRankingLoss": (nn.MarginRankingLoss, lambda n: (r(n), r(n), r(n).sign())),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_give_what_they_give_here(name):
    make, inputs = LAYERS[name]
    fb.manual_seed(0)
    model, example, other = make().eval(), inputs(3), inputs(5)
    batch = Dim.AUTO if "offsets" in name else Dim("batch")
    shapes = tuple(None if x.shape == y.shape else {0: batch} for x, y in zip(example, other, strict=True))
    program = exported(model, *example, dynamic_shapes=(shapes,) if isinstance(model, Run) else shapes)

    agree(model, program, *other, tolerance=2e-5)


@pytest.fixture
def by_runtime(monkeypatch):
    """onnxruntime alone runs the model: ONNX's evaluator does less than the operator says."""
    runtime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(comparing_onnx, "reference", lambda model: runtime.InferenceSession(model, providers=["CPUExecutionProvider"]))


@pytest.mark.usefixtures("by_runtime")
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_is_one_node(mode, padding_mode, align_corners):
    model = Run(lambda x, g: F.grid_sample(x, g, mode, padding_mode, align_corners))
    x, grid = r(3, 2, 4, 4), r(3, 3, 3, 2)
    for opset in (18, 20):
        program = exported(model, x, grid, opset_version=opset)
        assert [node.op_type for node in program.model_proto.graph.node] == ["GridSample"]
        agree(model, program, x, grid, tolerance=2e-5)


@pytest.mark.usefixtures("by_runtime")
def test_what_runtimes_alone_know():
    volume = Run(lambda x, g: F.grid_sample(x, g, align_corners=False))
    x, grid = r(2, 2, 4, 4, 4), r(2, 3, 3, 3, 3)
    agree(volume, exported(volume, x, grid, opset_version=20), x, grid)
    with pytest.raises(fb.onnx.OnnxExporterError, match="needs opset_version 20"):
        exported(volume, x, grid)
    transposed, x = nn.ConvTranspose2d(4, 4, 3, 2, 1, 1, groups=2, dilation=2), r(2, 4, 4, 4)
    agree(transposed, exported(transposed, x), x)


@pytest.mark.usefixtures("by_runtime")
@pytest.mark.parametrize("opset", [17, 19, 20, 21, 22, 23])
@pytest.mark.parametrize("name", ["EmbeddingBag with padding", "MaxUnpool2d", "AdaptiveMaxPool2d", "Transformer", "cumprod"])
def test_layers_by_version(name, opset):
    make, inputs = LAYERS[name]
    fb.manual_seed(0)
    model, example = make().eval(), inputs(3)

    agree(model, exported(model, *example, opset_version=opset), *example, tolerance=2e-5)
