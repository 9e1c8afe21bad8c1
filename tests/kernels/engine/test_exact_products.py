"""A product by a power of two and the sum with a constant are one instruction, and have the bits of two."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau_kernels as kernels
from flambeau_kernels import Formula
from flambeau_kernels.cpu import tier
from flambeau_kernels.engine.launching import loops
from flambeau_kernels.engine.launching.loops import Operand

FACTORS = (0.5, 2.0, -4.0, 2.0**-120, 2.0**100, -(2.0**-40))
CONSTANTS = (1.0, -0.75, 3.0, 2.0**-100, 2.0**99, -1.0000001)


def numbers(dtype: type) -> np.ndarray:
    """Of every exponent and both signs, those at the edges, infinite ones, subnormal ones and nans."""
    bits = np.dtype(dtype).itemsize * 8
    kind = np.uint32 if bits == 32 else np.uint64
    drawn = np.random.default_rng(0).integers(0, 1 << bits, 1 << 16, kind)
    edge = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, edge.max, -edge.max, edge.tiny, edge.smallest_subnormal, 3 * edge.smallest_subnormal]
    small = np.arange(1, 4096).astype(kind).view(dtype)
    return np.concatenate([drawn.view(dtype), np.array(special, dtype), small, -small])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", FACTORS)
def test_bits_are_those_of_a_product_and_a_sum(factor: float, dtype: type) -> None:
    x = numbers(dtype)
    for constant in CONSTANTS:
        a, b = dtype(factor), dtype(constant)
        formula = Formula(lambda x, f=factor, c=constant: (x * f + c, x * f - c, c - x * f), "exact_product")
        found = tuple(np.empty_like(x) for _ in range(3))
        kernels.launch(formula, (x,), found, np.dtype(dtype))
        with np.errstate(all="ignore"):
            expected = x * a + b, x * a - b, b - x * a

        for made, one in zip(found, expected, strict=True):
            is_nan = np.isnan(one)
            assert np.array_equal(np.isnan(made), is_nan)
            assert made[~is_nan].tobytes() == one[~is_nan].tobytes()


def text(function: object, dtype: str = "float32") -> str:
    operand = Operand(dtype, "c")
    return loops.kernel("f", function, (operand,), (operand,), dtype).text  # type: ignore[arg-type]


@pytest.mark.skipif(not tier.compiles(), reason="nothing is compiled here")
def test_only_exact_products_are_rounded_with_the_sum() -> None:
    assert "fmuladd" in text(lambda x: x * 0.5 - 1)
    assert "fmuladd" in text(lambda x: 1 - x * 4.0, "float64")

    assert "fmuladd" not in text(lambda x: x * 1.5 + 1)          # two roundings
    assert "fmuladd" not in text(lambda x: x * 0.5 + x)          # a subnormal product may change the sum
    assert "fmuladd" not in text(lambda x: x * 0.5 + 2.0**-120)  # here too
    assert "fmuladd" not in text(lambda x: x * 2.0 + 2.0**101)   # so may an infinite one
    assert "fmuladd" not in text(lambda x: x * 2.0**-130 + 1)    # a subnormal factor
    assert "fmuladd" not in text(lambda x: x * 0.0 + 1)
