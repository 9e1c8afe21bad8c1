"""`nextafter` of all values of the half types, called as often as kernels need to take over."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb

KINDS = {fb.float16: np.float16, fb.bfloat16: ml_dtypes.bfloat16}


def tensor_of(values: np.ndarray, dtype: fb.dtype) -> fb.Tensor:
    return fb.from_numpy(values.view(np.uint16).copy()).view(dtype)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("target", [0.0, np.inf, -np.inf, 1.0, -3.0, np.nan])
def test_every_half_has_its_neighbour(dtype: fb.dtype, target: float) -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(KINDS[dtype])
    there = np.full_like(values, target)
    with np.errstate(all="ignore"):
        wanted = np.where(values == there, there, np.nextafter(values, there))  # of two equal values the second, as in C
    x, to = tensor_of(values, dtype), tensor_of(there, dtype)
    made = [fb.nextafter(x, to) for _ in range(6)]
    made += [fb.nextafter(x, to, out=fb.empty_like(x)), x.clone().nextafter_(to), fb.compile(fb.nextafter)(x, to)]
    places = ~np.isnan(wanted.astype(np.float32))
    for each in made:
        assert (each.view(fb.uint16).numpy() == wanted.view(np.uint16))[places].all()
        assert each.isnan().numpy()[~places].all()


def test_a_fused_chain_has_the_bits_of_its_parts() -> None:
    def chain(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return fb.nextafter(x * 2, y).exp() + 1

    x, y = fb.randn(300, 300).bfloat16(), fb.randn(300, 300).bfloat16()
    wanted, compiled = chain(x, y), fb.compile(chain)
    for _ in range(8):
        assert fb.equal(compiled(x, y), wanted)
        assert fb.equal(chain(x, y), wanted)


def test_gradients_stop_where_both_are_equal() -> None:
    x = fb.tensor([1.0, 2.0], dtype=fb.bfloat16, requires_grad=True)
    made = fb.nextafter(x, fb.tensor([1.0, 3.0], dtype=fb.bfloat16))
    assert type(made.grad_fn).__name__ == "NextafterBackward0"
    made.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]
