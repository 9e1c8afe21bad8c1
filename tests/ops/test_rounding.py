"""Rounding of every float16."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "frac"])
def test_every_half_is_rounded_as_the_same_float32_with_its_sign(name: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[~np.isnan(halves)]

    made = getattr(fb, name)(fb.tensor(halves)).numpy()

    expected = getattr(fb, name)(fb.tensor(halves.astype("f"))).numpy().astype(np.float16)
    np.testing.assert_array_equal(made.view(np.uint16)[~np.isnan(expected)], expected.view(np.uint16)[~np.isnan(expected)])
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))


@pytest.mark.parametrize("dtype", [fb.bfloat16, fb.float16])
@pytest.mark.parametrize("factors", [(1, 1), (2.0, 0.3), (1, -1)])
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("addmm", [(8, 9), (8, 16), (16, 9)]), ("addmm", [(90,), (65, 300), (300, 90)]), ("baddbmm", [(3, 1, 9), (3, 8, 16), (3, 16, 9)]),
        ("addmv", [(40,), (40, 70), (70,)]), ("addmv", [(), (40, 70), (70,)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_history", [False, True])
def test_sums_with_products_of_halves_are_rounded_once(
    name: str, shapes: list[tuple[int, ...]], factors: tuple[float, float], dtype: fb.dtype, has_history: bool
) -> None:
    fb.manual_seed(0)
    c, a, b = (fb.randn(shape).to(dtype).requires_grad_(has_history) for shape in shapes)
    beta, alpha = factors

    made = getattr(fb, name)(c, a, b, beta=beta, alpha=alpha)

    exact = (beta * c.double() + alpha * (a.double() @ b.double())).to(dtype)
    assert (made.dtype, made.shape) == (dtype, exact.shape)
    assert (made != exact).sum() <= made.numel() // 200  # sums in float32 may end at the other side of a half
    if has_history:
        made.sum().backward()
        ones = fb.ones_like(made).double()
        grad = ones.unsqueeze(-1) * b.double() if name == "addmv" else ones @ b.double().mT
        assert fb.allclose(a.grad.double(), alpha * grad, rtol=1e-2, atol=1e-2)
        assert fb.allclose(c.grad.double(), (beta * ones).sum_to_size(c.shape), rtol=1e-2)
