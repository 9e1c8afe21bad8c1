"""Every kernel becomes PTX without a device, and NVIDIA's assembler accepts it where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import numpy as np
import pytest

from flambeau.ops import _derive
from flambeau.ops._spec import OPS, ElementwiseOp
from flambeau_kernels import Formula
from flambeau_kernels.cuda import launch, program, ptx, reduce, simulator
from flambeau_kernels.scalar.symbols import Unsupported
from flambeau_kernels.vocabulary import exp, maximum, sin

FLOAT32, FLOAT64, INT64, B1 = (np.dtype(t) for t in (np.float32, np.float64, np.int64, np.bool_))


def assemble(text: str, capability: str = "sm_80") -> None:
    """Raises: AssertionError with what ptxas says against `text`. Skips the test where there is no ptxas."""
    if shutil.which("ptxas") is None:
        pytest.skip("ptxas is not installed: PTX was made, but not assembled")
    done = subprocess.run(["ptxas", f"-arch={capability}", "-o", "/dev/null", "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000] + text


def programs_of(op: ElementwiseOp, dtype: Any) -> program.Program | None:
    a = simulator.ndarray((4, 6), dtype)
    try:
        return launch.planned_kernel(op.formula, (a,) * len(op.params), (a,), np.dtype(dtype))
    except Unsupported:
        return None


def elementwise_ops() -> list[ElementwiseOp]:
    _derive.load_all()
    return list({op.qualified: op for op in OPS.values() if isinstance(op, ElementwiseOp)}.values())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_every_formula_becomes_ptx_that_assembles(dtype: str) -> None:
    """One module of all kernels: the assembler takes long to start."""
    found = [(op, made) for op in elementwise_ops() if (made := programs_of(op, dtype)) is not None]
    assert len(found) > (60 if dtype == "int64" else 100)
    for at, (op, made) in enumerate(found):
        text = ptx.compile_ptx(program.device_text(made))
        assert f".entry {made.symbol}(" in text, op
        assert "libm" not in text
        if at % 8 == 0:
            assemble(text)


def test_arithmetic_is_rounded_as_written() -> None:
    """No fused multiply-adds that the formula does not ask for, and divisions that round to nearest."""
    a = simulator.ndarray(8, FLOAT32)
    made = launch.planned_kernel(Formula(lambda x, y: (x * y + x) / y, "mixed"), (a, a), (a,), FLOAT32)
    text = ptx.compile_ptx(program.device_text(made))

    for instruction in ("mul.rn.f32", "add.rn.f32", "div.rn.f32"):
        assert instruction in text
    assert "fma" not in text


def test_loads_are_whole_and_global() -> None:
    a = simulator.ndarray(8, FLOAT32)
    text = ptx.compile_ptx(program.device_text(launch.planned_kernel(Formula(lambda x: x + x, "twice"), (a,), (a,), FLOAT32)))

    assert "ld.global.b32" in text
    assert "st.global.b32" in text
    assert ".b8" not in text


FOLDS = [
    (reduce.extreme_fold(True, FLOAT32), FLOAT32, (FLOAT32, INT64)), (reduce.argument_fold(False, FLOAT64), FLOAT64, (INT64,)),
    (reduce.variance_fold(FLOAT32, 1.0), FLOAT32, (FLOAT32,)), (reduce.extreme_fold(True, B1), B1, (B1, INT64)),
]  # fmt: skip


@pytest.mark.parametrize(("fold", "dtype", "results"), FOLDS, ids=["max", "argmin", "var", "max of bools"])
@pytest.mark.parametrize("shape", [(300_000,), (40, 50)])
def test_reductions_assemble_and_wait_at_barriers(
    fold: Any, dtype: Any, results: Any, shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAMBEAU_CUDA_SIMULATOR", "1")
    monkeypatch.setattr(reduce, "_kernels", {})
    reduce.fold(fold, simulator.module().ones(shape, dtype), (0,), False, dtype, results)

    assert len(reduce._kernels) == (2 if len(shape) == 1 else 1)
    for kernel in reduce._kernels.values():
        text = ptx.compile_ptx(program.device_text(kernel.program))
        assert text.count("bar.sync") == len(kernel.program.phases) - 1
        assemble(text)


def test_code_is_made_for_the_newest_capability_that_fits() -> None:
    assert ptx.target_for((8, 7)) == (8, 6)
    assert ptx.target_for((12, 0)) == (9, 0)
    with pytest.raises(RuntimeError, match=r"7\.5 or newer, this one has 7\.0"):
        ptx.target_for((7, 0))


@pytest.mark.parametrize("capability", ptx.CAPABILITIES)
def test_every_capability_compiles(capability: tuple[int, int]) -> None:
    a = simulator.ndarray(8, FLOAT32)
    made = launch.planned_kernel(Formula(lambda x: maximum(exp(x), sin(x)), "several"), (a,), (a,), FLOAT32)

    text = ptx.compile_ptx(program.device_text(made), capability)

    assert ".target sm_{}{}".format(*capability) in text
    assemble(text, "sm_{}{}".format(*capability))


def test_the_ptx_of_a_formula_is_printed_when_asked_for(fresh_python: Any) -> None:
    program = "import sys, flambeau as fb; sys.stderr = sys.stdout; fb.ones(4, device='cuda').exp(); fb.ones(5, device='cuda').exp()"

    said = fresh_python("-c", program, FLAMBEAU_CUDA_SIMULATOR="1", FLAMBEAU_SHOW_KERNELS="exp")

    assert said.count(".visible .entry exp_float32(") == 1
