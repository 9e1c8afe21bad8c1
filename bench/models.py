"""Models of the sizes that people train on a processor, written once for both frameworks; `compiled.py` times them.

Each function takes a namespace, `torch` or `flambeau`, and gives a `Task` on a batch that is drawn anew for each, by the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Task(NamedTuple):
    """A model, the arguments of a call, the loss of what the call gives, and the name of its optimizer with the rate."""

    net: Any
    inputs: tuple[Any, ...]
    loss: Callable[[Any], Any]
    optimizer: str
    rate: float


def _classes(T: Any, count: int, rows: int) -> Callable[[Any], Any]:
    """The cross entropy of scores with the classes 0, 1, 2 ... again and again."""
    target = T.arange(rows) % count
    return lambda scores: T.nn.functional.cross_entropy(scores.flatten(0, -2), target)


def mlp(T: Any) -> Task:
    """784-512-512-10 on a batch of 128."""
    nn = T.nn
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return Task(net, (T.randn(128, 784),), _classes(T, 10, 128), "SGD", 1e-3)


def _basic_block(T: Any, inner: int, outer: int, stride: int) -> Any:
    nn, F = T.nn, T.nn.functional

    class BasicBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
            self.one, self.two = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
            self.around = nn.Sequential()
            if stride != 1:
                self.around = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

        def forward(self, x: Any) -> Any:
            y = F.relu(self.one(self.first(x)))
            return F.relu(self.two(self.second(y)) + self.around(x))

    return BasicBlock()


def resnet18(T: Any) -> Task:
    """Eighteen layers on 8 images of 64 x 64."""
    nn = T.nn
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_basic_block(T, width, outer, stride), _basic_block(T, outer, outer, 1)]
        width = outer
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))
    return Task(net, (T.randn(8, 3, 64, 64),), _classes(T, 100, 8), "SGD", 1e-3)


def block(T: Any, width: int, heads: int) -> Any:
    """A block of a transformer: attention to what came before, and two layers."""
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            count, length, _ = x.shape
            parts = self.project(self.first(x)).split(width, -1)
            q, k, v = (p.reshape(count, length, heads, -1).transpose(1, 2) for p in parts)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(count, length, width))
            return x + self.narrow(F.gelu(self.wide(self.second(x))))

    return Block()


def gpt2(T: Any) -> Task:
    """Four blocks of width 256 on 8 rows of 128 symbols, of which there are 4096."""
    nn = T.nn

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.symbols, self.places = nn.Embedding(4096, 256), nn.Embedding(128, 256)
            self.blocks, self.norm = nn.ModuleList([block(T, 256, 8) for _ in range(4)]), nn.LayerNorm(256)
            self.head = nn.Linear(256, 4096, bias=False)

        def forward(self, symbols: Any) -> Any:
            x = self.symbols(symbols) + self.places(places)
            for one in self.blocks:
                x = one(x)
            return self.head(self.norm(x))

    places = T.arange(128)
    return Task(GPT(), ((T.arange(1024) * 7 % 4096).reshape(8, 128),), _classes(T, 4096, 1024), "AdamW", 1e-4)


def lstm(T: Any) -> Task:
    """Two layers of 256 on 16 rows of 64 symbols, of which there are 4096."""
    nn = T.nn

    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.symbols, self.cells = nn.Embedding(4096, 256), nn.LSTM(256, 256, num_layers=2, batch_first=True)
            self.head = nn.Linear(256, 4096)

        def forward(self, symbols: Any) -> Any:
            return self.head(self.cells(self.symbols(symbols))[0])

    return Task(Language(), ((T.arange(1024) * 7 % 4096).reshape(16, 64),), _classes(T, 4096, 1024), "AdamW", 1e-4)


def vae(T: Any) -> Task:
    """784-400-20-400-784 with given noise, on a batch of 128."""
    nn, F = T.nn, T.nn.functional

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.mean, self.log = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
            self.widen, self.leave = nn.Linear(20, 400), nn.Linear(400, 784)

        def forward(self, x: Any, noise: Any) -> tuple[Any, Any, Any]:
            h = F.relu(self.enter(x))
            mean, log = self.mean(h), self.log(h)
            z = mean + noise * T.exp(0.5 * log)
            return T.sigmoid(self.leave(F.relu(self.widen(z)))), mean, log

    x = T.rand(128, 784)

    def loss(made: Any) -> Any:
        y, mean, log = made
        return (F.binary_cross_entropy(y, x, reduction="sum") - 0.5 * T.sum(1 + log - mean.pow(2) - log.exp())) / 128

    return Task(VAE(), (x, T.randn(128, 20)), loss, "AdamW", 1e-4)


def vit(T: Any) -> Task:
    """Four layers of width 192 over the 64 patches of each of 16 images."""
    nn = T.nn

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.places = nn.Conv2d(3, 192, 8, 8), nn.Parameter(T.zeros(1, 64, 192))
            how = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
            self.layers = nn.ModuleList([nn.TransformerEncoderLayer(192, 3, 768, **how) for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 100)

        def forward(self, images: Any) -> Any:
            x = self.patches(images).flatten(2).transpose(1, 2) + self.places
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x).mean(dim=1))

    return Task(ViT(), (T.randn(16, 3, 64, 64),), _classes(T, 100, 16), "AdamW", 1e-4)


MODELS: dict[str, Callable[[Any], Task]] = {"mlp": mlp, "resnet18": resnet18, "gpt2": gpt2, "lstm": lstm, "vae": vae, "vit": vit}
