"""A sample of all kinds of kernels at usual and special values: what `test_processors.py` runs for several processors.

    FLAMBEAU_CPU=x86-64-v2 python tests/kernels/backends/processor_sample.py results.npz
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import flambeau as fb

F = fb.nn.functional

ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1e-39, 1e-30, -1e-30, 0.5, -0.5, 2.0, 3.5, -7.0, 20.0, -20.0,
       88.0, -88.0, 104.0, -104.0, 700.0, -746.0, 1e5, -1e5, 1e10, 3e38, -3e38]  # fmt: skip
FUNCTIONS = ["exp", "expm1", "log", "log1p", "erf", "erfc", "erfinv", "sigmoid", "tanh", "sin", "tan", "asinh", "lgamma", "sqrt",
             "rsqrt", "logit"]  # fmt: skip
ACTIVATIONS = ["gelu", "mish", "softplus"]
PAIRWISE = ["maximum", "atan2", "pow", "fmod", "logaddexp"]
FEW = ["exp", "erf", "gelu", "pow"]
DRAWS = {
    "rand": lambda dtype: fb.rand(5000, dtype=dtype),
    "randn": lambda dtype: fb.randn(5000, dtype=dtype),
    "exponential": lambda dtype: fb.empty(5000, dtype=dtype).exponential_(),
    "poisson": lambda dtype: fb.poisson(fb.full((500,), 20.0, dtype=dtype)),
}


def odd(dtype: Any, *shape: int) -> Any:
    """Special values among usual ones, at every place of a vector."""
    rng = np.random.default_rng(0)
    return fb.tensor(np.where(rng.random(shape) < 0.5, np.resize(np.array(ODD), shape), rng.normal(size=shape) * 3), dtype=dtype)


def usual(*shape: int, mean: float = 0.0) -> Any:
    return fb.tensor(np.random.default_rng(1).normal(size=shape) + mean, dtype=fb.float32)


def elementwise() -> Iterator[tuple[str, Any]]:
    for dtype in (fb.float32, fb.float64):
        x, y = odd(dtype, 5000), odd(dtype, 5000).flip(0)
        for name in FUNCTIONS:
            if dtype is fb.float32 or name in FEW:
                yield f"{name} {dtype}", getattr(fb, name)(x)
        for name in ACTIVATIONS:
            if dtype is fb.float32 or name in FEW:
                yield f"{name} {dtype}", getattr(F, name)(x)
        for name in PAIRWISE:
            if dtype is fb.float32 or name in FEW:
                yield f"{name} {dtype}", getattr(fb, name)(x, y)
    x = odd(fb.float32, 5000)
    yield "gelu_tanh", F.gelu(x, approximate="tanh")
    yield "clamp", x.clamp(-1, 2)
    leaf = x.clone().requires_grad_()
    F.gelu(leaf).sum().backward()
    yield "gelu_gradient", leaf.grad


def conversions() -> Iterator[tuple[str, Any]]:
    x = odd(fb.float64, 5000) * 1.2345678
    for dtype in (fb.float32, fb.float16, fb.bfloat16):
        half = x.float().to(dtype)
        yield f"to_{dtype}", half.float()
        yield f"exp_{dtype}", half.exp().float()
    for dtype in (fb.int64, fb.int32, fb.uint8, fb.bool):
        yield f"to_{dtype}", usual(5000, mean=3).mul(20).to(dtype)
    n = usual(5000).mul(1000).to(fb.int32)
    m = n.flip(0).abs() + 1
    yield from (("int_div", n // m), ("int_rem", n % m), ("gcd", fb.gcd(n, m)), ("shift", n << (m % 20)))


def draws() -> Iterator[tuple[str, Any]]:
    fb.manual_seed(3)
    for dtype in (fb.float32, fb.float64):
        for name, draw in DRAWS.items():
            yield f"{name} {dtype}", draw(dtype)
    yield "randint", fb.randint(0, 1000, (5000,))
    yield "randperm", fb.randperm(2000)


def along() -> Iterator[tuple[str, Any]]:
    special = odd(fb.float32, 70, 100).clamp(-100, 100)  # so that sums lose no more than they should
    special[5, 7], special[6, :], special[7, 3] = np.inf, -np.inf, np.nan
    special[:5] = usual(5, 100)
    special[:, :5] = usual(70, 5)
    for kind, x in (("usual", usual(70, 100)), ("far", usual(70, 100, mean=1000.0)), ("special", special)):
        for dim in (0, 1):
            for name in ("sum", "amax", "var", "logsumexp", "nansum", "softmax", "cumsum", "argmax"):
                yield f"{name}_{kind}_{dim}", getattr(x, name)(dim)
            yield f"norm_{kind}_{dim}", fb.linalg.vector_norm(x, 3, dim)
        yield f"sort_{kind}", x.sort(1, stable=True)[1]
        yield f"layer_norm_{kind}", F.layer_norm(x, (100,))
        yield f"rms_norm_{kind}", F.rms_norm(x, (100,))
        yield f"batch_norm_{kind}", F.batch_norm(x, None, None, training=True)
        yield f"group_norm_{kind}", F.group_norm(x.reshape(7, 10, 100), 2)
        yield f"mean_pool_{kind}", F.adaptive_avg_pool1d(x, 1)
        leaf = x.clone().requires_grad_()
        (F.layer_norm(leaf, (100,)) * usual(70, 100)).sum().backward()
        yield f"layer_norm_gradient_{kind}", leaf.grad


def products() -> Iterator[tuple[str, Any]]:
    a, b = usual(70, 90), usual(90, 80)
    a[3, 5], b[7, 9] = np.inf, np.nan
    image, filters = usual(2, 8, 20, 20), usual(16, 8, 3, 3)
    image[1, 2, 3, 4] = np.inf
    q = usual(2, 4, 40, 16)
    yield from (("mm", a @ b), ("bmm", fb.bmm(q[0], q[1].mT)), ("mm_bfloat16", (a.bfloat16() @ b.bfloat16()).float()),
                ("linear", F.linear(a, b.mT.contiguous(), b[0])), ("conv", F.conv2d(image, filters)),
                ("attention", F.scaled_dot_product_attention(q, q, q)))  # fmt: skip


def spectra() -> Iterator[tuple[str, Any]]:
    for n in (40, 150):
        symmetric = usual(n, n) + usual(n, n).mT
        values, vectors = fb.linalg.eigh(symmetric)
        yield from ((f"eigh_{n}", values), (f"eigh_again_{n}", vectors @ fb.diag(values) @ vectors.mT))
        yield f"eigvalsh_{n}", fb.linalg.eigvalsh(symmetric)
        u, values, vh = fb.linalg.svd(usual(n, n))
        yield from ((f"svd_{n}", values), (f"svd_again_{n}", u @ fb.diag(values) @ vh))


# The first ones are to have the same bits on all processors.
SAME_BITS = (elementwise, conversions, draws)
FAMILIES = (*SAME_BITS, along, products, spectra)


if __name__ == "__main__":
    np.savez(sys.argv[1], **{f"{family.__name__} {name}": made.detach().numpy() for family in FAMILIES for name, made in family()})
