"""How much code kernels are, where once they took longer than 100 milliseconds to compile."""

from __future__ import annotations

import os
import platform
from typing import Any

import pytest

SIZES = """
import flambeau as fb
from flambeau_kernels.engine.machine_code import llvm
{}
print({{c.name: c.object_bytes for c in llvm.compiled}})
"""


def sizes(fresh_python: Any, program: str) -> dict[str, int]:
    """Bytes of the object of each kernel that `program` compiles."""
    return eval(fresh_python("-c", SIZES.format(program), FLAMBEAU_CACHE="off", FLAMBEAU_BACKEND="llvm"))


def test_long_formulas_have_no_second_loop_for_elements_that_fill_no_vector(fresh_python: Any) -> None:
    """zeta in float64 took 150 ms, half of them for powers of single numbers."""
    made = counts(fresh_python, "x = fb.rand(1000, dtype=fb.float64) + 1.5; fb.special.zeta(x, x)")

    assert made["zeta_float64"] < 1350


def test_both_directions_of_ctc_loss_take_one_step_in_time(fresh_python: Any) -> None:
    """The gradient's kernel was 13,500 bytes in 130 ms, the loss's 12,000 in 100 ms."""
    program = """
scores = fb.randn(30, 2, 9).log_softmax(2).requires_grad_()
args = fb.randint(1, 9, (2, 5)), fb.full((2,), 30), fb.full((2,), 5)
fb.nn.functional.ctc_loss(scores, *args).backward()
"""
    made = sizes(fresh_python, program)

    assert made["kernel_forward"] < 9_000
    assert made["kernel_backward"] < 9_000
    assert "kernel_one_step" in made


def test_runs_of_cummax_are_looked_through_by_one_copy_of_the_search(fresh_python: Any) -> None:
    """A kernel searched eight runs at once, each by code of its own: 7,500 bytes in 140 ms."""
    made = sizes(fresh_python, "fb.randn(64, 1000).cummax(1); fb.randn(1, 100_000).cummax(1)")

    assert made["kernel_row_extremes"] < 5_000
    assert made["kernel_row_extremes_together"] < 5_000


def test_a_program_of_few_calls_compiles_no_builtins_around_formulas(fresh_python: Any) -> None:
    """A large array of ones took four of them, the gradient of a mean these and what lays operands out: 200 milliseconds."""
    made = sizes(fresh_python, "x = fb.ones(400, 500).requires_grad_(); ((x.t().contiguous() + 1).mean() + (x * 2).mean()).backward()")

    assert "fill_float32" in made
    assert not {"kernel_lay_out", "flambeau_direct", "flambeau_direct_", "flambeau_enter", "flambeau_enter_"} & made.keys()


# Instructions that LLVM's optimisation leaves, of which a processor takes 70 to 120 milliseconds for a thousand.
MOST = 1100
# Kernels that are longer, and how long the longest of their forms is on any processor. No number here is to grow.
LONGER = {
    "kernel_triangular_sides": 1600,
    "zeta_float64": 1350, "polygamma_of_float64": 1370, "polygamma_of_grad_input_float64": 1390,
    "tetragamma_grad_input_float64": 1300,
    # Written as it shall run, so that it is hardly optimised.
    "gemm_float32_float32": 2200, "gemm_float64_float64": 2200, "gemm_bfloat16_float32": 2200, "gemm_bfloat16_bfloat16": 2200,
}  # fmt: skip

COUNTS = """
import flambeau as fb
from flambeau_kernels.engine.machine_code import llvm
llvm.watch = True
{}
made = {{}}
for c in llvm.compiled:
    made[c.name] = max(c.instructions, made.get(c.name, 0))
print(made)
"""

# What calls the longest kernels of each kind.
LONGEST = """
F, special = fb.nn.functional, fb.special
for dtype in (fb.float32, fb.float64):
    x = (fb.rand(600, dtype=dtype) + 1.5).requires_grad_()
    fb.autograd.grad(special.zeta(x.detach(), x.detach()) + special.polygamma(3, x) + special.polygamma(1, x), x, fb.ones_like(x))
    x = x.detach()
    fb.rand(403, 600, dtype=dtype).logsumexp(0)
    special.airy_ai(x), special.bessel_y0(x), special.shifted_chebyshev_polynomial_w(x, x)
for dtype in (fb.complex64, fb.complex128):
    z = fb.complex(x, x).to(dtype).requires_grad_()
    fb.autograd.grad(z**z + fb.acosh(z) + fb.sinc(z) + fb.logaddexp(z, z), z, fb.ones_like(z))
for dtype in (fb.float32, fb.bfloat16):
    q = fb.rand(1, 2, 40, 20).to(dtype).requires_grad_()
    F.scaled_dot_product_attention(q, q, q).sum().backward()
    for _ in range(300):
        fb.softmax(q[0, 0], 0), fb.log_softmax(q[0, 0], 0)
image, grid = fb.rand(1, 2, 9, 9).requires_grad_(), (fb.rand(1, 4, 4, 2) - 0.5).requires_grad_()
F.grid_sample(image, grid, mode="bicubic", align_corners=False).sum().backward()
volume, grid = fb.rand(1, 2, 5, 5, 5).requires_grad_(), (fb.rand(1, 3, 3, 3, 3) - 0.5).requires_grad_()
for mode in ("bilinear", "nearest"):
    F.grid_sample(volume, grid, mode=mode, padding_mode="reflection", align_corners=False).sum().backward()
a = fb.rand(9, 20, 20) + 20 * fb.eye(20)
fb.linalg.qr(a), fb.linalg.solve_triangular(a, a, upper=True), fb.linalg.solve_triangular(a, a, upper=False, left=False)
"""

EVERY_OP = """
import sys
sys.path.insert(0, {path!r})
from properties.cases import cases, mapped, tensors_in

def leaf(t):
    return t.detach().clone().requires_grad_() if (t.is_floating_point() or t.is_complex()) and t.device.type == "cpu" else t

for case in cases():
    try:
        sample = mapped(leaf, case.sample())
        made = [t for t in tensors_in(case.call(sample)) if t.requires_grad]
        leaves = [t for t in tensors_in(sample.args) if t.requires_grad]
        if made:
            fb.autograd.grad(made, leaves, [fb.ones_like(t) for t in made], allow_unused=True)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):  # samples that want no history
        case.call(case.sample())
"""


def counts(fresh_python: Any, program: str) -> dict[str, int]:
    """Instructions of the longest form of each kernel that `program` compiles."""
    return eval(fresh_python("-W", "ignore", "-c", COUNTS.format(program), FLAMBEAU_CACHE="off", FLAMBEAU_BACKEND="llvm"))


def too_long(made: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in made.items() if count > LONGER.get(name, MOST)}


def test_the_longest_kernels_compile_in_about_a_tenth_of_a_second(fresh_python: Any) -> None:
    made = counts(fresh_python, LONGEST)

    longest = {"zeta_float64", "pow_complex64", "kernel_row_shares", "kernel_find_corners", "kernel_qr_rows", "kernel_attend_block_grad"}
    assert longest <= made.keys()
    assert not too_long(made)


def test_what_finds_the_neighbours_of_points_is_compiled_once_for_all_that_read_them(fresh_python: Any) -> None:
    """Volumes at points took four kernels of 108 to 140 ms for each way of padding."""
    program = """
x, grid = fb.rand(1, 2, 5, 5, 5).requires_grad_(), (fb.rand(1, 3, 3, 3, 3) - 0.5).requires_grad_()
for padding in ("zeros", "border", "reflection"):
    fb.nn.functional.grid_sample(x, grid, padding_mode=padding, align_corners=False).sum().backward()
"""
    source = SIZES.format(program).replace("{c.name: c.object_bytes for c in llvm.compiled}", "[c.name for c in llvm.compiled]")
    made = eval(fresh_python("-c", source, FLAMBEAU_CACHE="off", FLAMBEAU_BACKEND="llvm"))

    assert made.count("kernel_find_corners") == made.count("kernel_find_slopes") == 3
    assert made.count("kernel_look_up") == made.count("kernel_grad_image") == made.count("kernel_grad_points") == 1


def test_softmax_of_few_elements_has_kernels_for_rows_and_for_columns(fresh_python: Any) -> None:
    """One kernel had two copies of the exponentials, and took 100 to 135 ms."""
    made = counts(fresh_python, "x = fb.randn(6, 20); fb.softmax(x, 0), fb.softmax(x, 1)")

    assert made["kernel_shares"] < 700
    assert made["kernel_row_shares"] < 700


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for x86-64")
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
def test_the_last_elements_of_rows_are_little_of_the_code_of_sums(fresh_python: Any, cpu: str) -> None:
    """Masks of halves were written out lane by lane, 32 times in sums of columns: 23,000 bytes in 150 ms, 11,000 in 90."""
    program = "x = fb.rand(300, 500).to(fb.float16); x.sum(0), x.var(1)"
    made = eval(fresh_python("-c", SIZES.format(program), FLAMBEAU_CACHE="off", FLAMBEAU_BACKEND="llvm", FLAMBEAU_CPU=cpu))

    assert made["kernel_vector_columns"] < 12_000
    assert made["kernel_vector_rows"] < 14_000


@pytest.mark.skipif(os.environ.get("FLAMBEAU_TEST_EVERY_OP") != "1", reason="half a minute; FLAMBEAU_TEST_EVERY_OP=1 runs it")
def test_kernels_of_every_op_do(fresh_python: Any) -> None:
    made = counts(fresh_python, EVERY_OP.format(path=os.path.join(os.path.dirname(__file__), "..", "..")))

    assert len(made) > 200
    assert not too_long(made)
