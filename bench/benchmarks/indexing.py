"""Gathers, scatters, joining, sorting, selection and random numbers over about a million elements.

Every operation is timed for Flambeau and, where it is installed, for PyTorch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

MILLION = 1_000_000
Step = Callable[[], Any]


def reals(T: Any, *shape: int) -> Any:
    return T.from_numpy(np.random.default_rng(shape).standard_normal(shape, dtype=np.float32))


def places(T: Any, *shape: int, end: int) -> Any:
    return T.from_numpy(np.random.default_rng((*shape, end)).integers(0, end, shape))


def gather(T: Any) -> Step:
    x, at = reals(T, 4096, 1024), places(T, 4096, 256, end=1024)
    return lambda: T.gather(x, 1, at)


def index_select(T: Any) -> Step:
    table, at = reals(T, 32_000, 256), places(T, 10_000, end=32_000)
    return lambda: T.index_select(table, 0, at)


def scatter_add(T: Any) -> Step:
    x, at, source = T.zeros(100_000), places(T, MILLION, end=100_000), reals(T, MILLION)
    return lambda: T.scatter_add(x, 0, at, source)


def index_add_in_place(T: Any) -> Step:
    table, at, source = reals(T, 32_000, 256), places(T, 10_000, end=32_000), reals(T, 10_000, 256)
    return lambda: table.index_add_(0, at, source)


def embedding_gradient(T: Any) -> Step:
    table, at, grad = reals(T, 32_000, 256).requires_grad_(True), places(T, 8, 128, end=32_000), reals(T, 8, 128, 256)

    def step() -> None:
        table.grad = None
        T.nn.functional.embedding(at, table).backward(grad)

    return step


def embedding(T: Any) -> Step:
    table, at = reals(T, 32_000, 256), places(T, 8, 128, end=32_000)
    return lambda: T.nn.functional.embedding(at, table)


def embedding_bag(T: Any) -> Step:
    table, at = reals(T, 32_000, 64), places(T, 1024, 20, end=32_000)
    return lambda: T.nn.functional.embedding_bag(at, table, mode="sum")


def cat(T: Any) -> Step:
    parts = [reals(T, MILLION) for _ in range(4)]
    return lambda: T.cat(parts)


def stack(T: Any) -> Step:
    samples = [reals(T, 3, 64, 64) for _ in range(64)]
    return lambda: T.stack(samples)


def masked_select(T: Any) -> Step:
    x = reals(T, MILLION)
    mask = x > 0
    return lambda: T.masked_select(x, mask)


def nonzero(T: Any) -> Step:
    mask = reals(T, 1000, 1000) > 1
    return lambda: T.nonzero(mask)


def sort(T: Any) -> Step:
    x = reals(T, MILLION)
    return lambda: T.sort(x)


def sort_rows(T: Any) -> Step:
    x = reals(T, 4096, 256)
    return lambda: T.sort(x)


def topk(T: Any) -> Step:
    x = reals(T, 64, 32_000)
    return lambda: T.topk(x, 50)


def median(T: Any) -> Step:
    x = reals(T, MILLION)
    return lambda: T.median(x)


def unique(T: Any) -> Step:
    x = places(T, MILLION, end=10_000)
    return lambda: T.unique(x)


def rand(T: Any) -> Step:
    return lambda: T.rand(MILLION)


def randn(T: Any) -> Step:
    return lambda: T.randn(MILLION)


def randperm(T: Any) -> Step:
    return lambda: T.randperm(MILLION)


STEPS = {f.__name__: f for f in (
    gather, index_select, scatter_add, index_add_in_place, embedding_gradient, embedding, embedding_bag, cat,
    stack, masked_select, nonzero, sort, sort_rows, topk,
    median, unique, rand, randn, randperm,
)}  # fmt: skip


class Indexing:
    """Time and peak memory of a step, by package and operation."""

    params = (["flambeau", "torch"], list(STEPS))
    param_names = ("package", "operation")

    def setup(self, package: str, operation: str) -> None:
        try:
            T = importlib.import_module(package)
        except ImportError:
            raise NotImplementedError(f"{package} is not installed") from None
        self.step = STEPS[operation](T)
        self.step()

    def time_step(self, package: str, operation: str) -> None:
        self.step()

    def peakmem_step(self, package: str, operation: str) -> None:
        self.step()
