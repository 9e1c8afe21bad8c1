"""A program for numba's simulator of CUDA, see `test_numba_device.py`: operations and kernels of its own, over tensors of 'cuda'."""

import numpy as np
import pytest
from numba import cuda

import flambeau as fb
from flambeau.kernels.words import exp, float32, local, unroll


@fb.kernels.elementwise
def damped(x, y, *, by=0.5):
    return exp(-x * by) * y


@fb.kernels.loop(mutates_args=("out", "counts"))
def chunked(row, x, out, counts, width, scale, *, KEEP=4):
    here = x + row * width
    best = local(float32, KEEP)
    for k in unroll(range(KEEP)):
        best[k] = 0.0
    found = 0
    for j in range(width):
        value = here[j]
        if value < 0 and j % 3 == 0 or value > 2:
            continue
        best[j % KEEP] = best[j % KEEP] + (value if value > 0 else -value)
        found += 1
    total = 0.0
    k = 0
    while k < KEEP:
        total = total + best[k] * scale
        k += 1
    out[row] = total
    counts[row] = found


def formulas() -> None:
    x, y = fb.randn(3, 4), fb.randn(4)
    near = {"rtol": 1e-6, "atol": 1e-6}
    for made, wanted in (
        (damped(x.cuda(), y.cuda()), damped(x, y)), (x.cuda().t() + 1, x.t() + 1), (fb.sigmoid(x.cuda()), fb.sigmoid(x)),
        (x.cuda().to(fb.bfloat16) * 2, x.to(fb.bfloat16) * 2), ((x > 0).cuda() & True, (x > 0) & True),
    ):  # fmt: skip
        fb.testing.assert_close(made.cpu(), wanted, **near)
    z = x.cuda().requires_grad_()
    (grad,) = fb.autograd.grad(damped(z, y.cuda()).sum(), z)
    fb.testing.assert_close(grad.cpu(), -0.5 * damped(x, y), **near)


def loops() -> None:
    for dtype in (fb.float32, fb.float64, fb.float16, fb.bfloat16):
        x = (fb.randn(5, 37, dtype=fb.float64) * 2).to(dtype)
        wanted = fb.zeros(5, dtype=fb.float64), fb.zeros(5, dtype=fb.int64)
        if dtype is fb.float64:                       # the memory of the call holds float32
            x = x.float()
        chunked(5, x, *wanted, 37, 0.5)
        made = fb.zeros(5, dtype=fb.float64, device="cuda"), fb.zeros(5, dtype=fb.int64, device="cuda")
        chunked(5, x.cuda(), *made, 37, 0.5)
        assert made[0].cpu().tolist() == wanted[0].tolist()
        assert made[1].cpu().tolist() == wanted[1].tolist()
    out = fb.zeros(5, dtype=fb.float64)
    for call, error, said in (
        (lambda: chunked(5, x.cuda(), out, made[1], 37, 0.5), RuntimeError, "'out' is on the CPU"),
        (lambda: chunked(5, made[0], made[0], made[1], 1, 0.5), RuntimeError, "shares memory"),
    ):
        with pytest.raises(error, match=said):
            call()


@cuda.jit
def stencil(x, out):
    i = cuda.grid(1)  # pyright: ignore[reportCallIssue]  # numba's own description of it
    if 0 < i < x.size - 1:
        out[i] = x[i - 1] - 2 * x[i] + x[i + 1]


wrapped = fb.library.wrap_numba(stencil, mutates_args=("out",))


@fb.library.numba_op("numba_programs::curvature")
def curvature(x: fb.Tensor) -> fb.Tensor:
    out = fb.zeros_like(x)
    wrapped[1, 8](x, out)
    return out


curvature.register_autograd(lambda ctx, grad: curvature(grad))


def functions_of_the_program() -> None:
    x = fb.tensor([0.0, 1.0, 4.0, 9.0, 16.0])
    assert curvature(x).tolist() == [0.0, 2.0, 2.0, 2.0, 0.0]
    assert x.cuda().__cuda_array_interface__["data"][0] != 0
    assert np.dtype(x.cuda().__cuda_array_interface__["typestr"]) == np.float32


formulas()
loops()
functions_of_the_program()
print("passed")
