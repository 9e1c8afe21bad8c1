"""How much code kernels are, where once they took longer than 100 milliseconds to compile."""

from __future__ import annotations

from typing import Any

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
    """zeta in float64 was 33,500 bytes in 150 ms, half of them powers of single numbers."""
    made = sizes(fresh_python, "x = fb.rand(1000, dtype=fb.float64) + 1.5; fb.special.zeta(x, x)")

    assert made["zeta_float64"] < 24_000


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
