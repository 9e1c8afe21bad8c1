"""Whole training steps of small models."""

from __future__ import annotations

import importlib
from typing import Any


def mlp(fb: Any) -> tuple[Any, Any, Any]:
    nn = fb.nn
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return net, fb.randn(128, 784), fb.randint(0, 10, (128,))


def cnn(fb: Any) -> tuple[Any, Any, Any]:
    nn = fb.nn
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    return net, fb.randn(32, 3, 32, 32), fb.randint(0, 10, (32,))


def encoder(fb: Any) -> tuple[Any, Any, Any]:
    nn = fb.nn
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True, activation="gelu")
    net = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(0, 1), nn.Linear(256, 100))
    return net, fb.randn(8, 128, 256), fb.randint(0, 100, (1024,))


class Training:
    params = (("mlp", "cnn", "encoder"),)
    param_names = ("model",)

    def setup(self, model: str) -> None:
        self.fb = fb = importlib.import_module("flambeau")  # here, because asv imports this file without it
        self.net, self.x, self.y = {"mlp": mlp, "cnn": cnn, "encoder": encoder}[model](fb)
        self.optimizer = fb.optim.AdamW(self.net.parameters(), 1e-3)
        self.step()

    def step(self) -> None:
        loss = self.fb.nn.functional.cross_entropy(self.net(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def time_step(self, model: str) -> None:
        self.step()

    def peakmem_step(self, model: str) -> None:
        self.step()
