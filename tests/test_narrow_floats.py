"""Floats of few bits are reached, and left, by way of float32, as in PyTorch, whatever numpy and ml_dtypes do at once."""

import numpy as np
import pytest

import flambeau as fb
import flambeau.nn.functional as F

# Next to a float32 that lies between two halves, on the side of the upper one: rounded once it goes up, rounded twice to the even one.
TWICE = {fb.bfloat16: 1 + 2.0**-8 + 2.0**-40, fb.float16: 1 + 2.0**-11 + 2.0**-40}
MAKERS = {
    "to": lambda n, d, v: fb.full((n,), v, dtype=fb.float64).to(d),
    "to, transposed": lambda n, d, v: fb.full((n, 2), v, dtype=fb.float64).t().to(d),
    "copy_": lambda n, d, v: fb.zeros(n, dtype=d).copy_(fb.full((n,), v, dtype=fb.float64)),
    "setitem": lambda n, d, v: _stored(fb.zeros(n, dtype=d), v),
    "fill_": lambda n, d, v: fb.empty(n, dtype=d).fill_(v),
    "full": lambda n, d, v: fb.full((n,), v, dtype=d),
    "tensor": lambda n, d, v: fb.tensor([v] * n, dtype=d),
    "scalar": lambda n, d, v: fb.tensor(v, dtype=d),
    "where": lambda n, d, v: fb.where(fb.ones(n, dtype=d) > 0, v, fb.ones(n, dtype=d)),
    "masked_fill_": lambda n, d, v: fb.ones(n, dtype=d).masked_fill_(fb.ones(n, dtype=fb.bool), v),
    "pad": lambda n, d, v: F.pad(fb.ones(n, dtype=d), (1, 1), value=v),
    "linspace": lambda n, d, v: fb.linspace(v, v, n, dtype=d),
    "arange": lambda n, d, v: fb.arange(v, v + 0.5, 1, dtype=d),
    "add_": lambda n, d, v: fb.zeros(n, dtype=d).add_(fb.full((n,), v, dtype=fb.float64)),
}


def _stored(x, value):
    x[:] = fb.full(x.shape, value, dtype=fb.float64)
    return x


@pytest.mark.parametrize("n", [1, 3, 5000])
@pytest.mark.parametrize("dtype", TWICE, ids=str)
@pytest.mark.parametrize("name", MAKERS)
def test_numbers_of_64_bits_become_halves_by_way_of_float32(name, dtype, n):
    for _ in range(3):                                # numpy answers first, a kernel later
        made = MAKERS[name](n, dtype, TWICE[dtype])

        assert made.dtype is dtype
        assert made.float().flatten().tolist() == [1.0] * made.numel()


LOWEST = -(2**31)
INTEGERS = {  # of nan, inf, -inf, -3, 300, 1e30, as PyTorch has them
    "bfloat16": [LOWEST, LOWEST, LOWEST, -3, 300, LOWEST],
    "float8_e4m3fn": [LOWEST, 448, -448, -3, 288, 448],
    "float8_e5m2": [LOWEST, LOWEST, LOWEST, -3, 320, LOWEST],
    "float8_e4m3fnuz": [0, 0, 0, -3, 0, 0],
    "float8_e5m2fnuz": [0, 0, 0, -3, 320, 0],
    "float8_e8m0fnu": [0, 0, 0, 4, 256, LOWEST],
}


@pytest.mark.parametrize("name", INTEGERS)
def test_what_no_integer_stands_for_becomes_what_pytorch_makes_of_it(name):
    numbers = fb.tensor([np.nan, np.inf, -np.inf, -3.0, 300.0, 1e30]).to(getattr(fb, name))

    assert numbers.to(fb.int32).tolist() == INTEGERS[name]
    assert numbers[3].to(fb.uint8).item() == INTEGERS[name][3] % 256
