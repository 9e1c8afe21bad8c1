"""What `numba.cuda` compiles: in numba's own simulator, and as PTX where numba has its toolkit, for which no device is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flambeau_kernels import Formula
from flambeau_kernels.engine.language import broadcast, float32, local, store
from flambeau_kernels.engine.launching import loops
from flambeau_kernels.numba_engine import device, device_words
from flambeau_kernels.scalar.symbols import Unsupported
from flambeau_kernels.scalar.words import READING
from flambeau_kernels.vocabulary import exp, gcd, maximum, remainder, sin, where

numba = pytest.importorskip("numba")
HERE = Path(__file__).resolve().parent
SIMULATED = {"FLAMBEAU_BACKEND": "numba", "NUMBA_ENABLE_CUDASIM": "1", "FLAMBEAU_CUDA_SIMULATOR": "1"}


def kernel_of(formula: Any, dtype: str, compute: str | None = None, access: str = "www") -> device.Kernel:
    operands = (loops.Operand(dtype, "g"),) * 2
    return device.formula_kernel("tested", Formula(formula).bind(READING), operands, operands[:1], compute or dtype, 2, access)


def test_programs_over_tensors_of_cuda_run_in_the_simulator(fresh_python: Any) -> None:
    said = fresh_python("-W", "ignore", str(HERE / "numba_programs.py"), **SIMULATED)

    assert said.splitlines()[-1] == "passed"


def test_the_simulator_runs_what_numba_is_given(fresh_python: Any) -> None:
    program = """
import sys
sys.stderr = sys.stdout
import flambeau as fb
x = fb.arange(6.0, device="cuda").reshape(2, 3)
print((x.t() * 2 + fb.ones(2, device="cuda")).tolist())
"""
    said = fresh_python("-W", "ignore", "-c", program, FLAMBEAU_SHOW_KERNELS="mul", **SIMULATED)

    assert "# numba.cuda, mul" in said
    assert "for i in range(cuda.grid(1), n, cuda.gridsize(1)):" in said
    assert said.splitlines()[-1] == "[[1.0, 7.0], [3.0, 9.0], [5.0, 11.0]]"


def test_the_tests_of_formulas_on_cuda_pass_in_the_simulator(fresh_python: Any) -> None:
    said = fresh_python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "test_kernels.py"), "-k", "simulator", **SIMULATED)

    assert " passed" in said.splitlines()[-1]
    assert "failed" not in said.splitlines()[-1]


def test_a_backend_that_numba_cannot_serve_a_device_with_keeps_our_own_kernels(fresh_python: Any) -> None:
    program = """
import flambeau as fb
from flambeau_kernels.numba_engine import device
print(device.why_none())
print(fb.arange(3.0, device="cuda").exp().sum().item() > 11)
@fb.kernels.elementwise
def twice(x): return 2 * x
"""
    said = fresh_python("-c", program, FLAMBEAU_BACKEND="numba", FLAMBEAU_CUDA_SIMULATOR="1", NUMBA_ENABLE_CUDASIM="0").splitlines()

    assert "only the first is set" in said[0]
    assert said[1] == "True"


def test_products_are_written_so_that_nothing_contracts_them() -> None:
    text = kernel_of(lambda x, y: x * y + y, "float32").text

    assert "libdevice.fmul_rn(x0, x1)" in text


@pytest.mark.parametrize(("line", "said"), [
    ("%v1 = sdiv i64 %a, 3", ["v1_q = a // np.int64(3)", "if v1_q < 0 and v1_q * np.int64(3) != a:", "    v1_q += 1",
                              "v1 = np.int64(v1_q)"]),
    ("%v1 = lshr i32 %a, 4294967295", ["v1 = np.int32(np.uint32(a) >> np.uint32(np.int32(-1)))"]),
    ("%v2.re = fadd contract float %x, 0x3FF0000000000000", ["v2_re = x + np.float32(1.0)"]),
    ("%v1 = select i1 %c, half %a, half %b", ["v1 = a if c else b"]),
    ("%v1 = call i32 @llvm.abs.i32(i32 %a, i1 false)", ["v1 = np.int32(-a) if a < 0 else a"]),
    ("%v1 = fcmp ult double %a, 0x7FF0000000000000", ["v1 = not (a >= np.float64(np.inf))"]),
])  # fmt: skip
def test_instructions_are_lines_of_python(line: str, said: list[str]) -> None:
    assert device_words.statement(line) == said


def test_what_devices_have_no_function_of_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="call"):
        kernel_of(lambda x, y: gcd(x, y), "int64")


def of_vectors(chunk, x, out):
    store(out, chunk * 4, broadcast(x[chunk], 4))


def of_two_arrays(chunk, x, out):
    place = x
    if chunk > 1:
        place = out
    out[chunk] = place[chunk]


@pytest.mark.parametrize(("function", "said"), [(of_vectors, "vectors on a device"), (of_two_arrays, "points into one array")])
def test_what_kernels_of_a_device_cannot_say_is_refused(function: Any, said: str) -> None:
    from flambeau_kernels.engine.language.lower_code import NotInLanguage
    from flambeau_kernels.numba_engine import device_kernels

    with pytest.raises(NotInLanguage, match=said):
        device_kernels.device_kernel(function, {"x": "float32", "out": "float32"}, {})


def test_numbers_are_rounded_once_by_the_simulators_fma() -> None:
    r = np.random.default_rng(0)
    a, b, c = r.standard_normal((3, 3000)).astype(np.float32)
    made = [device_words._fma(np.float32, *n) for n in zip(a, b, c, strict=True)]

    # In float64 the product is exact, so only a sum that lies half way between two float32 is rounded otherwise.
    assert (np.array(made) == (a.astype(np.float64) * b + c).astype(np.float32)).mean() > 0.999
    assert device_words._fma(np.float32, np.float32(1 + 2**-23), np.float32(1 - 2**-23), np.float32(-1)) == np.float32(-(2.0**-46))


def swirl(chunk, x, out, n, scale):
    memory = local(float32, 4)
    memory[0] = scale_of(scale)
    for j in range(n):
        out[chunk * n + j] = x[chunk * n + j] * memory[0]


def scale_of(scale):
    return float32(exp(scale))


# -- PTX -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def toolkit() -> None:
    """numba finds the compiler of CUDA: where CUDA_HOME is set, or a device is there. See docs/cuda.md."""
    from numba import types

    try:
        device.Kernel("nothing", "nothing", "def nothing(n):\n    pass\n").ptx(types.void(types.int64))
    except Exception as error:
        if type(error).__name__ not in ("NvvmSupportError", "CudaSupportError"):
            raise
        pytest.skip(f"numba has no toolkit to write PTX with ({type(error).__name__})")


@pytest.mark.usefixtures("toolkit")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"])
def test_kernels_become_ptx_without_a_device(dtype: str) -> None:
    from numba import types

    def real(x: Any, y: Any) -> Any:
        return where(x > y, exp(x) * y + sin(x), maximum(x, remainder(y, x)))

    def whole(x: Any, y: Any) -> Any:
        return where(x > y, x // y + (x % y), (x & y) << (y & 3))

    half = dtype in ("float16", "bfloat16")
    kernel = kernel_of(whole if "int" in dtype else real, dtype, "float32" if half else dtype)
    element = types.Array(getattr(types, str(device.Memory(0, 1, loops.Operand(dtype, "g").llvm).dtype)), 1, "C")
    ptx = kernel.ptx(types.void(types.int64, element, element, element))

    assert ".visible .entry" in ptx


@pytest.mark.usefixtures("toolkit")
def test_ptx_rounds_products_before_it_adds() -> None:
    from numba import types

    element = types.Array(types.float32, 1, "C")
    ptx = kernel_of(lambda x, y: x * y + y, "float32").ptx(types.void(types.int64, element, element, element))

    assert "mul.rn.f32" in ptx
    assert "fma.rn.f32" not in ptx


@pytest.mark.usefixtures("toolkit")
def test_kernels_of_the_kernel_language_become_ptx() -> None:
    from numba import types

    from flambeau_kernels.numba_engine import device_kernels

    kernel = device_kernels.device_kernel(swirl, {"x": "float16", "out": "float16", "n": int, "scale": float}, {})
    element = types.Array(types.int16, 1, "C")
    ptx = kernel.ptx(types.void(types.int64, element, element, types.int64, types.float64))

    assert ".visible .entry" in ptx
