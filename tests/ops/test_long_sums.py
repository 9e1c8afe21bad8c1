"""Sums over many elements keep the digits of float32: against PyTorch in float64, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

torch = pytest.importorskip("torch")

EPS = 2.0**-24
# Shapes whose sums are long, and those of the parameters that follow the input.
CASES = {
    "layer_norm": (lambda F, x, w, b: F.layer_norm(x, x.shape[1:], w, b), (1, 3_000_000), (3_000_000,), (3_000_000,)),
    "layer_norm of many rows": (lambda F, x, w, b: F.layer_norm(x, x.shape[1:], w, b), (200_000, 8), (8,), (8,)),
    "rms_norm": (lambda F, x, w: F.rms_norm(x, x.shape[1:], w), (2, 1_000_000), (1_000_000,)),
    "group_norm": (lambda F, x, w, b: F.group_norm(x, 1, w, b), (1, 2, 1_000_000), (2,), (2,)),
    "instance_norm": (lambda F, x, w, b: F.instance_norm(x, None, None, w, b), (1, 2, 1_000_000), (2,), (2,)),
    "batch_norm": (lambda F, x, w, b: F.batch_norm(x, None, None, w, b, True), (2, 2, 600_000), (2,), (2,)),
    "batch_norm of many rows": (lambda F, x, w, b: F.batch_norm(x, None, None, w, b, True), (500_000, 3), (3,), (3,)),
    "softmax": (lambda F, x: F.softmax(x, 1), (2, 1_000_000)),
    "softmax of columns": (lambda F, x: F.softmax(x, 0), (600_000, 3)),
    "log_softmax": (lambda F, x: F.log_softmax(x, 1), (2, 1_000_000)),
    "log_softmax of columns": (lambda F, x: F.log_softmax(x, 0), (600_000, 3)),
    "cross_entropy": (lambda F, x: F.cross_entropy(x, x.argmax(1)), (2, 1_000_000)),
    "adaptive_avg_pool1d": (lambda F, x: F.adaptive_avg_pool1d(x, 1), (2, 1_000_000)),
    "adaptive_avg_pool2d": (lambda F, x: F.adaptive_avg_pool2d(x, 1), (2, 1000, 1000)),
    "linear": (lambda F, x, w, b: F.linear(x, w, b), (100_000, 8), (8, 8), (8,)),
    "conv1d": (lambda F, x, b: F.conv1d(x, x.new_ones(2, 2, 1), b), (1, 2, 500_000), (2,)),
    "added bias": (lambda F, x, b: x + b, (500_000, 3), (3,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_long_sums_keep_the_digits(name):
    function, *shapes = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [(rng.normal(size=shape) + 0.5).astype(np.float32) for shape in shapes]

    def run(library, dtype):
        operands = [library.tensor(a).to(dtype).requires_grad_() for a in arrays]
        out = function(library.nn.functional, *operands)
        grad = np.random.default_rng(1).normal(size=tuple(out.shape))
        out.backward(library.tensor(grad.astype(np.float32)).to(dtype))
        return [t.detach().numpy().astype(np.float64) for t in (out, *(t.grad for t in operands))]

    for made, exact, what in zip(run(fb, fb.float32), run(torch, torch.float64), ("result", "input", "weight", "bias"), strict=False):
        # Gradients of weights that are differences of large sums keep the digits of these.
        size = max(abs(exact).max(), np.sqrt(arrays[0].size) if what in ("weight", "bias") else 0)
        assert abs(made - exact).max() <= 16 * EPS * size, f"{what}: {abs(made - exact).max() / size / EPS:.0f} units"


@pytest.mark.parametrize("shape", [(4, 500), (2, 100_000), (300, 64)])
def test_a_large_mean_costs_layer_norm_no_digits_forward_or_backward(shape):
    x = (np.random.default_rng(0).normal(size=shape) + 1000).astype(np.float32)
    g = np.random.default_rng(1).normal(size=shape).astype(np.float32)

    def run(library, dtype):
        t = library.tensor(x).to(dtype).requires_grad_()
        out = library.nn.functional.layer_norm(t, shape[1:])
        out.backward(library.tensor(g).to(dtype))
        return out.detach().numpy(), t.grad.numpy()

    for made, exact in zip(run(fb, fb.float32), run(torch, torch.float64), strict=True):
        # The mean itself is rounded, by 3e-5.
        assert abs(made - exact).max() <= 2e-4
