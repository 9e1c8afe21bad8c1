"""Recurrent layers and cells, forwards and backwards, and the memory that their gradients need.

    cd bench && asv run --python=same --quick --bench recurrent
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import numpy as np

# Steps, batch, inputs, hidden units.
SIZES: dict[str, tuple[int, int, int, int]] = {
    "one sequence": (64, 1, 256, 256),
    "few sequences": (64, 16, 256, 256),
    "many short ones": (20, 128, 64, 128),
    "wide": (16, 16, 1024, 1024),
    "tiny": (5, 2, 8, 16),
    "one step": (1, 16, 256, 256),
}
KINDS = ["RNN", "GRU", "LSTM"]


def load(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise NotImplementedError(f"{package} is not installed here") from error  # asv skips the benchmark


class Recurrent:
    """Seconds of a layer over a batch of sequences, of its gradients, and of one step of its cell; bytes at the peak."""

    params: ClassVar[Any] = [["flambeau", "torch"], KINDS, list(SIZES)]
    param_names: ClassVar[Any] = ["package", "kind", "size"]

    def setup(self, package: str, kind: str, size: str) -> None:
        T = load(package)
        steps, batch, inputs, hidden = SIZES[size]
        rng = np.random.default_rng(0)
        layer = getattr(T.nn, kind)(inputs, hidden)
        cell = getattr(T.nn, kind + "Cell")(inputs, hidden)
        x = T.from_numpy(rng.standard_normal((steps, batch, inputs), dtype=np.float32))
        leaf = x.clone().requires_grad_()

        def forward() -> None:
            with T.no_grad():
                layer(x)

        def backward() -> None:
            layer.zero_grad()
            leaf.grad = None
            layer(leaf)[0].sum().backward()

        def step() -> None:
            with T.no_grad():
                cell(x[0])

        self.forward, self.backward, self.step = forward, backward, step
        for call in (forward, backward, step):
            call()

    def time_forward(self, *_: str) -> None:
        self.forward()

    def time_with_gradients(self, *_: str) -> None:
        self.backward()

    def time_cell(self, *_: str) -> None:
        self.step()

    def peakmem_with_gradients(self, *_: str) -> None:
        self.backward()
