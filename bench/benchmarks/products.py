"""Matrix products from 32 to 1024, transposed, thin, batched and in half precision, on all cores.

    cd bench && asv run --python=same --quick --bench products
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .overhead import Step, framework, normal


def mm(rows: int, inner: int, columns: int, dtype: str = "float32", turned: bool = False) -> Callable[[Any], Step]:
    def make(T: Any) -> Step:
        a = T.from_numpy(normal(rows, inner)).to(getattr(T, dtype))
        b = T.from_numpy(normal(columns, inner) if turned else normal(inner, columns)).to(getattr(T, dtype))
        b = b.t() if turned else b
        return lambda: a @ b

    return make


def bmm(count: int, rows: int, inner: int, columns: int) -> Callable[[Any], Step]:
    def make(T: Any) -> Step:
        a, b = T.from_numpy(normal(count, rows, inner)), T.from_numpy(normal(count, inner, columns))
        return lambda: T.bmm(a, b)

    return make


def linear(T: Any) -> Step:
    x, weight, bias = (T.from_numpy(normal(*shape)) for shape in ((256, 1024), (1024, 1024), (1024,)))
    return lambda: T.nn.functional.linear(x, weight, bias)


def attention_scores(T: Any) -> Step:
    q, k = (T.from_numpy(normal(8, 128, 8, 64, seed=s)) for s in range(2))
    return lambda: T.einsum("bthd,bshd->bhts", q, k)


PRODUCTS = {
    **{f"mm_{n}": mm(n, n, n) for n in (32, 64, 128, 256, 512, 1024)},
    "mm_1024_turned": mm(1024, 1024, 1024, turned=True),
    "mm_8x1024x1024_turned": mm(8, 1024, 1024, turned=True),
    "mm_16x4096x4096": mm(16, 4096, 4096),
    "mv_1024": mm(1024, 1024, 1),
    "mm_512_float64": mm(512, 512, 512, "float64"),
    "mm_512_bfloat16": mm(512, 512, 512, "bfloat16"),
    "bmm_96x64x64": bmm(96, 64, 64, 64),
    "bmm_8x32x32": bmm(8, 32, 32, 32),
    "linear_256x1024": linear,
    "attention_scores": attention_scores,
}


class Product:
    """One product."""

    param_names = ("product", "framework")
    params = (list(PRODUCTS), ["flambeau", "torch"])

    def setup(self, product: str, package: str) -> None:
        self.step = PRODUCTS[product](framework(package))
        self.step()

    def time_product(self, product: str, package: str) -> None:
        self.step()
