"""Random numbers on CUDA: the Philox stream, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau_kernels.cpu.random.philox import PhiloxStream

pytestmark = pytest.mark.usefixtures("xp")


def fresh(seed: int = 5) -> fb.Generator:
    return fb.Generator("cuda").manual_seed(seed)


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float32, fb.float64])
def test_uniform_and_normal_numbers_are_the_streams(dtype: fb.dtype) -> None:
    stream, generator = PhiloxStream(5), fresh()

    for draw, reference in (("uniform_", stream.uniform), ("normal_", stream.normal)):
        made = getattr(fb.empty(33, 3, dtype=dtype, device="cuda"), draw)(generator=generator)
        expected = reference(np.empty((33, 3), made._array.dtype))
        stream.advance()
        wide = made.cpu().double().numpy()
        assert np.allclose(wide, expected.astype(np.float64), rtol=2e-3 if dtype.itemsize == 2 else 1e-6)


def test_the_same_seed_gives_the_same_numbers_and_draws_differ() -> None:
    fb.manual_seed(3)
    first, second = fb.rand(50, device="cuda"), fb.rand(50, device="cuda")
    fb.manual_seed(3)
    again = fb.rand(50, device="cuda")

    assert fb.equal(first, again)
    assert not fb.equal(first, second)
    assert fb.cuda.initial_seed() == 3


def test_the_cpu_stream_is_left_alone() -> None:
    fb.manual_seed(0)
    expected = fb.rand(3)
    fb.manual_seed(0)
    fb.rand(10, device="cuda")

    assert fb.equal(fb.rand(3), expected)


@pytest.mark.parametrize(
    ("draw", "mean", "std"),
    [
        (lambda: fb.rand(20_000, device="cuda"), 0.5, 12**-0.5),
        (lambda: fb.randn(20_000, device="cuda"), 0, 1),
        (lambda: fb.randint(-3, 4, (20_000,), device="cuda").float(), 0, 2),
        (lambda: fb.empty(20_000, device="cuda").exponential_(2.0), 0.5, 0.5),
        (lambda: fb.empty(20_000, device="cuda").bernoulli_(0.25), 0.25, 0.1875**0.5),
        (lambda: fb.bernoulli(fb.full((20_000,), 0.25, device="cuda")), 0.25, 0.1875**0.5),
        (lambda: fb.empty(20_000, device="cuda").geometric_(0.5), 2, 2**0.5),
        (lambda: fb.nn.functional.dropout(fb.ones(20_000, device="cuda"), 0.2), 1, 0.5),
    ],
)
def test_distributions(draw: Any, mean: float, std: float) -> None:
    made = draw()

    assert made.device.type == "cuda"
    assert abs(made.mean().item() - mean) < 6 * std / 20_000**0.5
    assert made.std().item() == pytest.approx(std, rel=0.05)


def test_dropout_drops_alike_forwards_and_backwards() -> None:
    x = fb.ones(1000, device="cuda", requires_grad=True)

    y = fb.nn.functional.dropout(x, 0.5)
    y.sum().backward()

    assert fb.equal(x.grad, y.detach())
    assert set(y.tolist()) == {0.0, 2.0}


def test_a_generator_of_the_cpu_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        fb.rand(3, device="cuda", generator=fb.Generator())


def test_what_is_not_drawn_says_so() -> None:
    with pytest.raises(NotImplementedError, match="multinomial: not built for device cuda"):
        fb.multinomial(fb.ones(3, device="cuda"), 2)
    with pytest.raises(NotImplementedError, match="poisson: not built for device cuda"):
        fb.poisson(fb.ones(3, device="cuda"))
