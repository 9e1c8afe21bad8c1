"""Softmax, losses, normalization and attention, forwards and backwards, and the memory that attention needs.

    cd bench && asv run --python=same --quick --bench layers
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


# Shape of the input, and a call of it with a weight and a bias for its channels and classes for its rows.
LAYERS: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "softmax of rows": ((4096, 1024), lambda F, x, w, b, y: F.softmax(x, -1)),
    "softmax of columns": ((8, 64, 4096), lambda F, x, w, b, y: F.softmax(x, 1)),
    "softmax of short rows": ((4096, 10), lambda F, x, w, b, y: F.softmax(x, -1)),
    "cross_entropy": ((512, 32000), lambda F, x, w, b, y: F.cross_entropy(x, y)),
    "cross_entropy of few": ((32, 10), lambda F, x, w, b, y: F.cross_entropy(x, y)),
    "mse_loss": ((1000, 1000), lambda F, x, w, b, y: F.mse_loss(x, x.detach() + 1)),
    "layer_norm": ((4096, 768), lambda F, x, w, b, y: F.layer_norm(x, (768,), w, b)),
    "rms_norm": ((4096, 768), lambda F, x, w, b, y: F.rms_norm(x, (768,), w)),
    "batch_norm": ((16, 64, 56, 56), lambda F, x, w, b, y: F.batch_norm(x, None, None, w, b, training=True)),
    "batch_norm of rows": ((1024, 256), lambda F, x, w, b, y: F.batch_norm(x, None, None, w, b, training=True)),
    "group_norm": ((8, 128, 32, 32), lambda F, x, w, b, y: F.group_norm(x, 32, w, b)),
    "instance_norm": ((8, 64, 32, 32), lambda F, x, w, b, y: F.instance_norm(x, None, None, w, b)),
}
# Batch, heads, heads of keys, queries, keys, width, and what is hidden.
ATTENTIONS: dict[str, tuple[tuple[int, ...], str]] = {
    "causal 128": ((4, 8, 8, 128, 128, 64), "causal"),
    "causal 1024": ((4, 8, 8, 1024, 1024, 64), "causal"),
    "all 512": ((4, 8, 8, 512, 512, 64), ""),
    "masked 512": ((4, 8, 8, 512, 512, 64), "mask"),
    "grouped 512": ((2, 16, 4, 512, 512, 128), "causal"),
    "odd sizes": ((2, 6, 6, 197, 197, 40), ""),
}


def load(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise NotImplementedError(f"{package} is not installed here") from error  # asv skips the benchmark


class Layer:
    """Seconds of one call, and of one with gradients of input, weight and bias."""

    params: ClassVar[Any] = [["flambeau", "torch"], list(LAYERS)]
    param_names: ClassVar[Any] = ["package", "layer"]

    def setup(self, package: str, name: str) -> None:
        T = load(package)
        shape, call = LAYERS[name]
        channels = shape[-1] if name in ("layer_norm", "rms_norm") else shape[1]
        arrays = normal(*shape), normal(channels, seed=1), normal(channels, seed=2)
        classes = T.from_numpy(np.random.default_rng(0).integers(0, shape[1], shape[0]))
        plain = [T.from_numpy(a) for a in arrays]
        leaves = [p.clone().requires_grad_() for p in plain]
        self.forward = lambda: call(T.nn.functional, *plain, classes)

        def step() -> None:
            for leaf in leaves:
                leaf.grad = None
            call(T.nn.functional, *leaves, classes).sum().backward()

        self.step = step
        self.forward()
        self.step()

    def time_forward(self, package: str, name: str) -> None:
        self.forward()

    def time_with_gradients(self, package: str, name: str) -> None:
        self.step()


class Attention:
    """Seconds and memory of scaled_dot_product_attention, and with the gradients of query, key and value."""

    params: ClassVar[Any] = [["flambeau", "torch"], list(ATTENTIONS)]
    param_names: ClassVar[Any] = ["package", "attention"]

    def setup(self, package: str, name: str) -> None:
        T = load(package)
        (batch, heads, groups, queries, keys, width), hidden = ATTENTIONS[name]
        shapes = (batch, heads, queries, width), (batch, groups, keys, width), (batch, groups, keys, width)
        plain = [T.from_numpy(normal(*s, seed=i)) for i, s in enumerate(shapes)]
        leaves = [p.clone().requires_grad_() for p in plain]
        options: dict[str, Any] = {"is_causal": hidden == "causal", "enable_gqa": groups != heads}
        if hidden == "mask":
            options["attn_mask"] = T.from_numpy(normal(queries, keys, seed=9) > -0.5)
        call = T.nn.functional.scaled_dot_product_attention
        self.forward = lambda: call(*plain, **options)

        def step() -> None:
            for leaf in leaves:
                leaf.grad = None
            call(*leaves, **options).sum().backward()

        self.step = step
        self.forward()
        self.step()

    def time_forward(self, package: str, name: str) -> None:
        self.forward()

    def time_with_gradients(self, package: str, name: str) -> None:
        self.step()

    def peakmem_with_gradients(self, package: str, name: str) -> None:
        self.step()


class Encoder:
    """Seconds and memory of a transformer encoder layer in evaluation: batch 8, 128 positions, 256 features, 1024 hidden."""

    params: ClassVar[Any] = [["flambeau", "torch"], ["relu", "gelu"]]
    param_names: ClassVar[Any] = ["package", "activation"]

    def setup(self, package: str, activation: str) -> None:
        T = load(package)
        layer = T.nn.TransformerEncoderLayer(256, 8, 1024, activation=activation, batch_first=True).eval()
        x = T.from_numpy(normal(8, 128, 256))

        def forward() -> None:
            with T.no_grad():
                layer(x)

        self.forward = forward
        self.forward()

    def time_evaluation(self, package: str, activation: str) -> None:
        self.forward()

    def peakmem_evaluation(self, package: str, activation: str) -> None:
        self.forward()
