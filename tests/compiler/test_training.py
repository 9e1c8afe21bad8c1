"""Networks of five kinds train to the same parameters compiled, as a module and as a whole step, as they do without."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.compiler import _backward, _programs, _recorder

F = nn.functional
STEPS = 20


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in self.attend(self.first(x)).split(width, 2)
        )
        weights = (q @ k.mT) / math.sqrt(q.shape[-1])
        mask = fb.ones(length, length, dtype=fb.bool).tril()
        mixed = F.softmax(weights.masked_fill(~mask, -math.inf), -1) @ v
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        h = self.up(self.second(x))
        h = 0.5 * h * (1.0 + fb.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * fb.pow(h, 3.0))))
        return x + F.dropout(self.down(h), 0.1, self.training)


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(16, 32), nn.Embedding(16, 32)
        self.blocks = nn.ModuleList([Block(32, 4) for _ in range(2)])
        self.head = nn.Linear(32, 16)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        h = self.tokens(x) + self.places(fb.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(h).flatten(0, 1)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width) for _ in range(2)])

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        h = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(h)) + x)


class Recurrent(nn.Module):
    """An LSTM whose cell is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.hidden = nn.Linear(8, 4 * 64), nn.Linear(64, 4 * 64)
        self.head = nn.Linear(64, 4)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        h = c = fb.zeros(x.shape[0], 64)
        for t in range(x.shape[1]):
            i, f, g, o = (self.input(x[:, t]) + self.hidden(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.head(h)


class Denoiser(nn.Module):
    """A U-Net of one step down that is told the time."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.down, self.up = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1), nn.ConvTranspose2d(16, 8, 2, 2)
        self.time, self.norm, self.leave = nn.Linear(8, 16), nn.GroupNorm(4, 16), nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: fb.Tensor, t: fb.Tensor) -> fb.Tensor:
        angles = t[:, None] * fb.arange(4).exp2()
        e = self.time(fb.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        first = self.enter(x)
        first = first * first.sigmoid()
        h = self.norm(self.down(first)) * (1 + e) + e
        return self.leave(fb.cat([self.up(h * h.sigmoid()), first], 1))


class GraphNetwork(nn.Module):
    """Messages along edges, added up at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update, self.head = nn.Linear(17, 32), nn.Linear(40, 8), nn.Linear(8, 3)

    def forward(self, x: fb.Tensor, edges: fb.Tensor) -> fb.Tensor:
        for _ in range(2):
            a, b = x[edges[0]], x[edges[1]]
            sent = self.message(fb.cat([a, b, ((a - b) ** 2).sum(1, keepdim=True)], 1))
            sent = sent * (sent * 1.702).sigmoid() + 0.1 * sent.tanh()
            x = x + self.update(fb.cat([x, fb.zeros(len(x), 32).index_add(0, edges[1], sent)], 1))
        return self.head(x)


def gpt() -> tuple[Any, Callable[[Any], fb.Tensor]]:
    x, y = fb.randint(16, (4, 16)), fb.randint(16, (64,))
    return GPT(), lambda model: F.cross_entropy(model(x), y)


def resnet() -> tuple[Any, Callable[[Any], fb.Tensor]]:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Residual(8), nn.MaxPool2d(2), Residual(8), nn.Flatten(), nn.Linear(128, 5))
    x, y = fb.randn(4, 3, 8, 8), fb.randint(5, (4,))
    return model, lambda model: F.cross_entropy(model(x), y)


def lstm() -> tuple[Any, Callable[[Any], fb.Tensor]]:
    x, y = fb.randn(32, 5, 8), fb.randn(32, 4)
    return Recurrent(), lambda model: F.smooth_l1_loss(model(x), y)


def diffusion() -> tuple[Any, Callable[[Any], fb.Tensor]]:
    x = fb.randn(4, 1, 16, 16)

    def loss(model: Any) -> fb.Tensor:
        t, noise = fb.rand(4), fb.randn(4, 1, 16, 16)
        kept = (t * (math.pi / 2)).cos()[:, None, None, None]
        return F.mse_loss(model(x * kept + noise * (1 - kept * kept).sqrt(), t), noise)

    return Denoiser(), loss


def graph_network() -> tuple[Any, Callable[[Any], fb.Tensor]]:
    x, edges, y = fb.randn(40, 8), fb.randint(40, (2, 160)), fb.randint(3, (40,))
    return GraphNetwork(), lambda model: F.cross_entropy(model(x, edges), y)


@pytest.mark.parametrize("what", ["module", "step"])
@pytest.mark.parametrize("make", [gpt, resnet, lstm, diffusion, graph_network])
def test_twenty_steps_of_training_give_the_same_parameters(make: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recorder, "RECORDED_FROM", 1024)
    monkeypatch.setattr(_programs, "FUSED_FROM", 1024)
    monkeypatch.setattr(_programs, "WORTH", 0)
    fused: list[bool] = []
    run = _backward.Group.run
    monkeypatch.setattr(_backward.Group, "run", lambda *args: fused.append(run(*args)) or fused[-1])

    def train(compiled: bool) -> list[Any]:
        fb.manual_seed(0)
        model, loss = make()
        optimizer = fb.optim.AdamW(model.parameters(), 1e-2)
        called = fb.compile(model) if compiled and what == "module" else model

        def step() -> Any:
            optimizer.zero_grad()
            value = loss(called)
            value.backward()
            optimizer.step()
            return value

        taken = fb.compile(step) if compiled and what == "step" else step
        losses = [taken().item() for _ in range(STEPS)]
        return [losses, *[p.detach().numpy().tobytes() for p in model.parameters()], *[b.numpy().tobytes() for b in model.buffers()]]

    expected = train(False)
    assert math.isfinite(expected[0][-1])
    assert expected[0][-1] < expected[0][0]
    assert train(True) == expected
    assert True in fused
