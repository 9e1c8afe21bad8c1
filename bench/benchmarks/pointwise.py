"""Elementwise formulas and optimizer steps: time, and peak memory of what allocates."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

CALLS: dict[str, Callable[..., Any]] = {
    "add": lambda fb, x, y: x + y,
    "chain": lambda fb, x, y: (x * y + x) * 0.5 - y,
    "exp": lambda fb, x, y: fb.exp(x),
    "gelu": lambda fb, x, y: fb.nn.functional.gelu(x),
    "where": lambda fb, x, y: fb.where(x > 0, x, y),
    "to_bfloat16": lambda fb, x, y: x.to(fb.bfloat16),
    "permuted_copy": lambda fb, x, y: x.view(8, -1).t().contiguous(),
    "add_in_place": lambda fb, x, y: x.add_(y, alpha=1e-9),
}


class Pointwise:
    params = (sorted(CALLS), (1_000, 100_000, 16_000_000))
    param_names = ("call", "elements")

    def setup(self, call: str, elements: int) -> None:
        self.fb = importlib.import_module("flambeau")  # here, because asv imports this file without it
        self.x, self.y = self.fb.randn(elements), self.fb.randn(elements)
        self.run = CALLS[call]
        self.run(self.fb, self.x, self.y)

    def time_call(self, call: str, elements: int) -> None:
        self.run(self.fb, self.x, self.y)

    def peakmem_call(self, call: str, elements: int) -> None:
        self.run(self.fb, self.x, self.y)


class Optimizers:
    params = (("SGD", "Adam", "AdamW"), ((100, 16), (4, 2_500_000)))
    param_names = ("optimizer", "parameters")

    def setup(self, optimizer: str, parameters: tuple[int, int]) -> None:
        fb = importlib.import_module("flambeau")
        count, size = parameters
        values = [fb.randn(size, requires_grad=True) for _ in range(count)]
        for p in values:
            p.grad = fb.randn(size)
        self.optimizer = getattr(fb.optim, optimizer)(values, lr=1e-3)
        self.optimizer.step()

    def time_step(self, optimizer: str, parameters: tuple[int, int]) -> None:
        self.optimizer.step()
