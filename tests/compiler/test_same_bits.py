"""What has kernels of its own beside its operations gives the same bits within compiled functions, from the first call on."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau.nn import functional as F
from flambeau.nn.attention.flex_attention import flex_attention
from flambeau_kernels.cpu import tier
from fused_programs import same


def scored(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score * 0.5 + query - key


def clipped(x: fb.Tensor) -> list[Any]:
    parameters = [fb.nn.Parameter(x[k] * k) for k in range(4)]
    for p in parameters:
        p.grad = (p * 2.0).detach() + 0.1
    norm = fb.nn.utils.clip_grad_norm_(parameters, 0.7)
    fb.nn.utils.clip_grad_value_(parameters[:1], 0.01)
    return [norm, *[p.grad for p in parameters]]


def linear_cross_entropy(x: fb.Tensor) -> Any:
    fb.manual_seed(1)
    loss = fb.nn.LinearCrossEntropyLoss(64, 300)
    return loss(x.reshape(-1, 64).repeat(300, 1), fb.arange(x.numel() // 64 * 300) % 300)


def module(make: Any) -> Any:
    def run(x: fb.Tensor) -> Any:
        fb.manual_seed(1)
        net = make()
        return net(x * 1.5), net

    return run


FUNCTIONS: dict[str, Any] = {
    "LSTM": module(lambda: fb.nn.LSTM(64, 100, 2, batch_first=True)),
    "LSTM with a projection": module(lambda: fb.nn.LSTM(64, 100, proj_size=7)),
    "GRU": module(lambda: fb.nn.GRU(64, 32, bidirectional=True)),
    "RNN": module(lambda: fb.nn.RNN(64, 32, nonlinearity="relu")),
    "LSTM cell": lambda x: module(lambda: fb.nn.LSTMCell(64, 32))(x[0]),
    "transformer": module(lambda: fb.nn.TransformerEncoderLayer(64, 4, 256, 0.0, batch_first=True)),
    "transformer in evaluation": module(lambda: fb.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True).eval()),
    "attention": module(lambda: (lambda m: lambda x: m(x, x, x, need_weights=False)[0])(fb.nn.MultiheadAttention(64, 4))),
    "flex attention": lambda x: flex_attention(x.view(4, 4, -1, 16), (x * 2.0).view(4, 4, -1, 16), (x * 3.0).view(4, 4, -1, 16), scored),
    "cross entropy": lambda x: F.cross_entropy((x * 2.0).reshape(-1, 64), fb.arange(x.numel() // 64) % 64, label_smoothing=0.1),
    "linear cross entropy": linear_cross_entropy,
    "batch norm": module(lambda: fb.nn.BatchNorm1d(40)),
    "clipped gradients": clipped,
    "convolution": lambda x: F.conv2d((x + 1.0)[:, None], fb.ones(8, 1, 3, 3) * 0.3).relu() * 2.0,
    "embedding": lambda x: F.embedding(fb.arange(60) % 40, (x * 2.0).reshape(-1, 64)).sum(0) + F.normalize(x, dim=-1).sum((0, 1)),
    "group norm": lambda x: F.group_norm((x * 2.0).transpose(1, 2), 4).relu(),
    "pooling": lambda x: F.max_pool1d((x * 2.0).transpose(1, 2), 3) * 0.5,
}  # fmt: skip


def tensors_of(found: Any) -> list[fb.Tensor]:
    if isinstance(found, fb.Tensor):
        return [found]
    if isinstance(found, fb.nn.Module):
        return [*found.parameters(), *found.buffers()]
    return [t for one in found for t in tensors_of(one)] if isinstance(found, (tuple, list)) else []


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_and_eager_have_the_same_bits(name: str, gradients: bool, mode: str) -> None:
    fb.manual_seed(0)
    f, x = FUNCTIONS[name], fb.randn(4, 40, 64, requires_grad=gradients)
    compiled = fb.compile(f, mode=mode)

    def results(run: Any) -> list[Any]:
        x.grad = None
        with fb.set_grad_enabled(gradients):
            made = tensors_of(run(x))
        recorded = [t for t in made if t.grad_fn is not None]
        if recorded:
            fb.autograd.backward([(t * t).sum() for t in recorded])
        return [*made, x.grad, *[t.grad for t in made if t.is_leaf]]

    expected = results(f)
    for _ in range(4):
        made = results(compiled)

        assert len(made) == len(expected)
        assert all(same(a, b) for a, b in zip(made, expected, strict=True))


@pytest.mark.skipif(not tier.compiles(), reason="nothing is compiled here")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_recurrent_layers_run_their_kernel_in_compiled_functions(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.ops.layers import recurrent

    monkeypatch.setattr(recurrent, "_by_steps", None)
    net, x = fb.nn.LSTM(8, 16), fb.randn(5, 3, 8)
    compiled = fb.compile(lambda x: net(x * 2.0)[0] + 1.0, mode=mode)
    with fb.no_grad():
        for _ in range(5):
            assert same(compiled(x), net(x * 2.0)[0] + 1.0)


@pytest.mark.parametrize("loss", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy"])
def test_losses_of_few_elements_are_not_taken_apart(loss: str) -> None:
    """Too small to be recorded, `mse_loss` came as its parts, though another operation answers for it outside."""
    fb.manual_seed(1)
    a, b = fb.randn(24, 4) * 3, fb.rand(24, 4)
    run = getattr(F, loss)

    for k in range(1, 41):
        assert fb.equal(fb.compile(run)(a * k, b), run(a * k, b))
