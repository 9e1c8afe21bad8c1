"""Exported programs have the operators that programs call, also those that PyTorch takes apart before dispatch modes see them."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.nn import functional as F

X, ROWS, SEQ = (2, 3, 8, 8), (4, 5), (2, 3, 8)


class Called(nn.Module):
    """Runs a function, with a module of it among the parts."""

    def __init__(self, fn) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def exported(fn, *args):
    program = fb.export.export(Called(fn), args)
    return program, [str(n.target) for n in program.graph.nodes if n.op == "call_function" and "getitem" not in str(n.target)]


# What PyTorch 2.13 shows for each.
CASES = {
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3), [SEQ], ["aten.conv1d.default"]),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3), [X], ["aten.conv2d.default"]),
    "Conv2d, padding same": (lambda: nn.Conv2d(3, 4, 3, padding="same"), [X], ["aten.conv2d.padding"]),
    "Conv2d, reflected": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), [X], ["aten.pad.default", "aten.conv2d.default"]),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3), [X], ["aten.conv_transpose2d.input"]),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), [X], ["aten.adaptive_max_pool2d.default"]),
    "AdaptiveMaxPool3d": (lambda: nn.AdaptiveMaxPool3d((2, None, 1)), [X], ["aten.adaptive_max_pool3d.default"]),
    "Bilinear": (lambda: nn.Bilinear(5, 5, 2), [ROWS, ROWS], ["aten.bilinear.default"]),
    "Softmax": (lambda: nn.Softmax(1), [ROWS], ["aten.softmax.int"]),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), [ROWS], ["aten.log_softmax.int"]),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="sum"), [ROWS, ROWS], ["aten.kl_div.default"]),
    "Flatten": (nn.Flatten, [X], ["aten.flatten.using_ints"]),
    "ZeroPad2d": (lambda: nn.ZeroPad2d(1), [X], ["aten.pad.default"]),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(1), [X], ["aten.pad.default"]),
    "matmul": (lambda: lambda a: a @ a.t(), [ROWS], ["aten.t.default", "aten.matmul.default"]),
    "einsum": (lambda: lambda a: fb.einsum("ij,kj->ik", a, a), [ROWS], ["aten.einsum.default"]),
    "chunk": (lambda: lambda a: a.chunk(2, 1), [ROWS], ["aten.chunk.default"]),
    "contiguous": (lambda: lambda a: a.permute(0, 2, 3, 1).contiguous(), [X], ["aten.permute.default", "aten.contiguous.default"]),
    "reshape": (lambda: lambda a: a.expand(2, 4, 5).reshape(-1), [ROWS], ["aten.expand.default", "aten.reshape.default"]),
    "unflatten": (lambda: lambda a: a.flatten(1).unflatten(1, (3, 64)), [X], ["aten.flatten.using_ints", "aten.unflatten.int"]),
    "std": (lambda: lambda a: a.std(1), [ROWS], ["aten.std.dim"]),
    "grid_sample": (
        lambda: lambda a, g: F.grid_sample(a, g, align_corners=False), [X, (2, 4, 4, 2)], ["aten.grid_sampler.default"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_programs_have_the_operators_that_they_call(name):
    make, shapes, wanted = CASES[name]
    fb.manual_seed(0)
    fn, args = make(), [fb.rand(shape) for shape in shapes]
    program, found = exported(fn, *args)
    assert found == wanted
    result, own = program.module()(*args), fn(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (result, own)), strict=True):
        assert fb.equal(a, b)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings_are_one_operator(mode):
    bags = nn.EmbeddingBag(6, 3, mode=mode, padding_idx=1)
    at = fb.tensor([[1, 2, 3], [4, 1, 5]])
    program, found = exported(bags, at)
    assert found == ["aten.arange.start_step", "aten.reshape.default", "aten.embedding_bag.padding_idx"]
    other = fb.tensor([[5, 5, 1], [1, 1, 1]])
    assert fb.equal(program.module()(other), bags(other))
    offsets = fb.tensor([0, 4])
    program, found = exported(bags, at.flatten(), offsets)
    assert found == ["aten.embedding_bag.padding_idx"]
    assert fb.equal(program.module()(other.flatten(), fb.tensor([0, 2])), bags(other.flatten(), fb.tensor([0, 2])))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_one_operator(reduction, smoothing):
    loss = nn.CrossEntropyLoss(fb.tensor([1.0, 2.0, 0.5, 1.0, 1.0]), reduction=reduction, label_smoothing=smoothing, ignore_index=2)
    scores, classes = fb.randn(4, 5), fb.tensor([1, 2, 0, 4])
    program, found = exported(loss, scores, classes)
    assert found == ["aten.cross_entropy_loss.default"]
    assert fb.equal(program.module()(scores, classes), loss(scores, classes))


def test_dispatch_modes_see_the_parts_still():
    from flambeau.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Seeing():
        F.conv2d(fb.rand(X), fb.rand(4, 3, 3, 3))
    assert "aten.convolution.default" in seen
    assert "aten.conv2d.default" not in seen


def test_programs_that_draw_are_taken_apart():
    x = fb.ones(2000)
    program = fb.export.export(nn.Dropout(0.25), (x,)).run_decompositions().module()
    made = program(x)
    assert 0.2 < (made == 0).float().mean() < 0.3
    assert made.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert not fb.equal(program(x), made)


@pytest.mark.parametrize(
    ("fn", "arg", "other"),
    [
        (lambda at: F.one_hot(at, 4), fb.tensor([1, 3]), fb.tensor([0, 2])),
        (nn.EmbeddingBag(6, 3, mode="max"), fb.tensor([[1, 2]]), fb.tensor([[5, 0]])),
        (nn.TransformerEncoderLayer(8, 2, 16, 0.0), fb.rand(3, 8), fb.rand(3, 8) - 1),
        (nn.CrossEntropyLoss(label_smoothing=0.1), fb.rand(4, 5), None),
    ],
    ids=["one_hot", "EmbeddingBag", "TransformerEncoderLayer", "CrossEntropyLoss"],
)  # fmt: skip
def test_programs_taken_apart_compute_the_same(fn, arg, other):
    args, others = ((arg,), (other,)) if other is not None else ((arg, fb.tensor([0, 4, 2, 2])), (-arg, fb.tensor([3, 3, 1, 0])))
    program = fb.export.export(Called(fn), args).run_decompositions().module()
    assert fb.allclose(program(*others), fn(*others), atol=1e-6)
