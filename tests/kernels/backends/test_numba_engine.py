"""The numba engine: the bits of the llvm engine where operations are exact, its kernels on disk, and when it takes over."""

from __future__ import annotations

import functools
import importlib
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau_kernels as kernels
from flambeau_kernels import Formula, engines
from flambeau_kernels.engine.language import (
    broadcast,
    float32,
    int64,
    interpret,
    kernel,
    lane_sum,
    load,
    local,
    store,
    unroll,
)
from flambeau_kernels.engine.launching import loops
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool
from flambeau_kernels.vocabulary import (
    abs,
    exp,
    floor,
    gcd,
    isnan,
    log,
    maximum,
    nextafter,
    remainder,
    sigmoid,
    sqrt,
    tanh,
    where,
)

pytest.importorskip("numba")
numba_loops = importlib.import_module("flambeau_kernels.numba_engine.loops")
pytestmark = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")


@pytest.fixture(autouse=True)
def restored_backend() -> Any:
    before = kernels.backend()
    yield
    kernels.set_backend(before)


def launched(backend: str, formula: Formula, inputs: tuple[Any, ...], out: np.ndarray, compute: Any) -> np.ndarray:
    kernels.set_backend(backend)
    kernels.launch(formula, inputs, (out,), np.dtype(compute))
    return out


EXACT = Formula(lambda x, y: where(x > y, x * y + sqrt(abs(x)), maximum(x, y) - x / y), "exact")
WHOLE = Formula(lambda x, y: where(x > y, x * 3 - y, (x & y) | (x ^ 5)), "whole")
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 6e-8, 65000.0, 1.0])


def operands(layout: str, dtype: Any) -> tuple[Any, Any, np.ndarray]:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((37, 61)) * 50).astype(dtype)
    y = (rng.standard_normal((37, 61)) * 50).astype(dtype)
    if np.dtype(dtype).kind not in "iub":
        x.reshape(-1)[: SPECIAL.size] = SPECIAL.astype(dtype)
        y.reshape(-1)[1 : SPECIAL.size + 1] = SPECIAL.astype(dtype)
    out = np.zeros_like(x)
    return {
        "contiguous": lambda: (x, y, out),
        "number": lambda: (x, y[0, 0], out),
        "row": lambda: (x, y[:, :1], out),
        "transposed": lambda: (x.T, y.T.copy(), np.zeros_like(x.T.copy())),
        "every second": lambda: (x[:, ::2], y[:, ::2], out[:, ::2]),
        "in place": lambda: (x, y, x),
    }[layout]()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16, "int32", "uint8", "int64"], ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "number", "row", "transposed", "every second", "in place"])
def test_exact_formulas_have_the_bits_of_the_llvm_engine(layout: str, dtype: Any) -> None:
    formula = WHOLE if np.dtype(dtype).kind in "iu" else EXACT
    made = {}
    for backend in ("llvm", "numba"):
        x, y, out = operands(layout, dtype)
        made[backend] = launched(backend, formula, (x, y), out, dtype).copy()

    assert made["numba"].tobytes() == made["llvm"].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "formula"), [
    ("exp", lambda x: exp(x)), ("log", lambda x: log(abs(x))), ("sigmoid", lambda x: x * sigmoid(x)), ("tanh", lambda x: tanh(x)),
])  # fmt: skip
def test_functions_have_the_values_of_the_llvm_engine(name: str, formula: Any, dtype: str) -> None:
    x = np.concatenate([SPECIAL, np.linspace(-80, 80, 5001)]).astype(dtype)
    wanted, made = (launched(b, Formula(formula, name), (x,), np.zeros_like(x), dtype) for b in ("llvm", "numba"))

    np.testing.assert_array_max_ulp(made, wanted, maxulp=1)


def test_every_second_element_but_the_last_one_of_a_row_is_read_as_half_of_a_pair() -> None:
    operands = (loops.Operand("float32", "d"),), (loops.Operand("float32", "c"),)
    text = numba_loops.function(loops.kernel("doubled", lambda x: x + x, *operands, "float32"))

    assert text.lines.count("load i64, ptr %a0") == 1
    assert text.lines.count("load float, ptr %a0") == 1
    assert "for i in range(n0 - 1):\n            element(" in text.text
    assert "for i in range(max(n0 - 1, 0), n0):\n            last(" in text.text


def test_rare_arguments_are_computed_apart_as_by_the_llvm_engine() -> None:
    x = np.linspace(-9, 9, 3000).astype(np.float32)
    x[1700], x[5] = 1e30, np.inf
    rest = Formula(lambda a, b: remainder(a, b), "rest")
    wanted, made = (launched(b, rest, (x, 0.7), np.zeros_like(x), "float32") for b in ("llvm", "numba"))

    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_results_may_take_the_place_of_operands(dtype: str) -> None:
    both = Formula(lambda x, y: (y * 2, x - y), "both")
    turned = Formula(lambda x: x * 1j if dtype == "complex64" else -x, "turned")
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 3002)).view("complex128" if dtype == "complex64" else "float64").astype(dtype)
    x, y, z = a.copy(), b.copy(), a.copy()
    kernels.set_backend("numba")

    kernels.launch(both, (x, y), (x, y), np.dtype(dtype))
    kernels.launch(turned, (z,), (z,), np.dtype(dtype))

    np.testing.assert_array_equal(x, b * 2)
    np.testing.assert_array_equal(y, a - b)
    np.testing.assert_array_equal(z, a * 1j if dtype == "complex64" else -a)


def test_routines_with_loops_of_their_own_are_linked() -> None:
    a = np.arange(1, 3001)
    divisor = Formula(lambda x, y: gcd(x, y), "divisor")

    made = launched("numba", divisor, (a, 360), np.zeros_like(a), "int64")

    np.testing.assert_array_equal(made, np.gcd(a, 360))


def test_truth_values_and_complex_numbers() -> None:
    x = np.linspace(-2, 2, 3000).astype(np.float32)
    x[7] = np.nan
    truth = launched("numba", Formula(lambda a: isnan(a) | (a > floor(a)), "truth"), (x,), np.zeros(x.shape, bool), "float32")
    z = (x + 1j * x[::-1]).astype(np.complex64)
    product = launched("numba", Formula(lambda a, b: a * b + 2j, "product"), (z, z[:1]), np.zeros_like(z), "complex64")
    wanted = launched("llvm", Formula(lambda a, b: a * b + 2j, "product"), (z, z[:1]), np.zeros_like(z), "complex64")

    np.testing.assert_array_equal(truth, np.isnan(x) | (x > np.floor(x)))
    np.testing.assert_array_equal(product, wanted)


@kernel
def control_flow(chunk, x, counts, out, n, scale):
    memory = local(float32, 8)
    for k in unroll(range(8)):
        memory[k] = 0.0
    found = 0
    i = 0
    while True:
        if i >= n:
            break
        value = x[chunk * n + i]
        i += 1
        if value < 0 and i % 3 == 0 or value > 2:
            continue
        memory[i % 8] = memory[i % 8] + (value if value > 1 else -value)
        for j in range(i, i + 3):
            if j % 5 == 4:
                break
            found += 1
    total = 0.0
    for k in range(7, -1, -1):
        total = total + memory[k] * scale
    counts[chunk] = found
    out[chunk] = total


def test_loops_conditions_and_variables_mean_what_python_means_by_them() -> None:
    n = 501
    x = np.random.default_rng(1).standard_normal((5, n)).astype(np.float32)
    counts, out = np.zeros((2, 5), np.int64), np.zeros((2, 5))
    kernels.set_backend("numba")

    control_flow.run(5, x, counts[0], out[0], n, 0.5)

    given = {"x": x, "counts": counts[1], "out": out[1], "n": n, "scale": 0.5}
    interpret.run(control_flow.function, 5, given, {})
    np.testing.assert_array_equal(counts[0], counts[1])
    np.testing.assert_array_equal(out[0], out[1])


@kernel
def of_vectors(chunk, x, out, n):
    total = broadcast(float32(0.0), 8)
    i = int64(0)
    while i + 8 <= n:
        total = total + load(x, i, 8)
        i += 8
    store(out, 0, total)
    out[8] = lane_sum(total)


def test_vectors_are_variables() -> None:
    x = np.arange(80, dtype=np.float32)
    out = np.zeros(9, np.float32)
    kernels.set_backend("numba")

    of_vectors.run(1, x, out, 80)

    np.testing.assert_array_equal(out[:8], x.reshape(10, 8).sum(0))
    assert out[8] == x.sum()


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = np.random.default_rng(2).standard_normal(1 << 18).astype(np.float32)
    formula, threads = Formula(lambda a: exp(a) + a, "threads"), pool.get_num_threads()
    try:
        pool.set_num_threads(1)
        alone = launched("numba", formula, (x,), np.zeros_like(x), "float32")
        pool.set_num_threads(3)
        together = launched("numba", formula, (x,), np.zeros_like(x), "float32")
    finally:
        pool.set_num_threads(threads)

    assert alone.tobytes() == together.tobytes()


_TWICE = """
import numpy as np, sys
import flambeau as fb
from flambeau_kernels.engine.machine_code import llvm
x = fb.arange(3000.0).reshape(50, 60)
made = (x.exp() / 2).amax(1), x.cumsum(0)
print(llvm.counts["compiled"], llvm.counts["loaded"], made[1][-1, -1].item())
"""


def test_a_second_process_compiles_nothing(tmp_path: Any, fresh_python: Any) -> None:
    first, second = (fresh_python("-c", _TWICE, FLAMBEAU_BACKEND="numba", FLAMBEAU_CACHE=str(tmp_path)).split() for _ in range(2))

    assert int(first[0]) > 0
    assert second == ["0", *first[1:]]


_EXP = """
import flambeau as fb
from flambeau_kernels.engine.machine_code import llvm
x = fb.arange(3000.0)
before = llvm.counts["compiled"]
made = x.exp()
print(llvm.counts["compiled"] - before, made[1].item())
"""
E = "2.7182817459106445"


def _planted(path: Path, how: str) -> None:
    if how == "garbage":
        path.write_bytes(b"\x80\x04garbage")
    elif how == "half":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "fifo":
        path.unlink()
        os.mkfifo(path, 0o600)
    elif how == "link":
        path.symlink_to(path.rename(path.with_suffix(".elsewhere")))
    else:
        os.chown(path, 65534, 65534)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners, modes and pipes here")
@pytest.mark.parametrize(("kind", "how"), [
    ("nbi", "garbage"), ("nbc", "half"), ("nbi", "fifo"), ("nbc", "link"), ("nbc", "of another"),
])  # fmt: skip
def test_what_numba_did_not_write_is_not_unpickled(tmp_path: Any, fresh_python: Any, kind: str, how: str) -> None:
    if how == "of another" and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    run = functools.partial(fresh_python, "-c", _EXP, FLAMBEAU_BACKEND="numba", FLAMBEAU_CACHE=str(tmp_path))
    assert int(run().split()[0]) > 0
    files = list((tmp_path / "numba" / "__pycache__").glob(f"*.{kind}"))
    assert files
    for file in files:
        _planted(file, how)

    assert run().split() == [str(len(files)), E]      # compiled anew, and kept
    assert run().split() == ["0", E]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no modes here")
def test_a_folder_of_numba_that_others_may_write_to_is_told_once_and_not_used(tmp_path: Any, fresh_python: Any) -> None:
    run = functools.partial(fresh_python, "-c", f"import sys; sys.stderr = sys.stdout\n{_EXP}\nx.sin()",
                            FLAMBEAU_BACKEND="numba", FLAMBEAU_CACHE=str(tmp_path))  # fmt: skip
    run()
    (tmp_path / "numba").chmod(0o777)
    said = run()

    assert said.count("kept in memory only") == 1
    assert f"chmod go-w {tmp_path / 'numba'}" in said
    assert f"1 {E}" in said


def test_without_a_cache_it_works_in_memory(fresh_python: Any) -> None:
    compiled, loaded, last = fresh_python("-c", _TWICE, FLAMBEAU_BACKEND="numba", FLAMBEAU_CACHE="off").split()

    assert int(compiled) > 0
    assert loaded == compiled
    assert float(last) == sum(range(59, 3000, 60))


def test_explain_and_show_kernels_say_what_numba_compiled(fresh_python: Any) -> None:
    program = """
import flambeau as fb, sys
sys.stderr = sys.stdout
print(fb.kernels.explain("exp", fb.ones(3000)))
print(fb.kernels.explain("cumsum", fb.ones(300, 40), 0))
"""
    said = fresh_python("-c", program, FLAMBEAU_BACKEND="numba", FLAMBEAU_CACHE="off", FLAMBEAU_SHOW_KERNELS="exp")

    assert "compiled tier, by numba" in said
    assert "def exp_float32(pointers, n0, n1, strides):" in said
    assert "cumsum(float32 (300, 40), 0): compiled tier, by numba" in said


_BROKEN = """
import numpy as np
import flambeau as fb
from flambeau_kernels import engines
from flambeau_kernels.engine.launching import loops
from flambeau_kernels.scalar import symbols

text = loops.kernel
# As if this processor's instruction for the square root were another one's.
def wrong(*args, **kwargs):
    made = text(*args, **kwargs)
    return made if made.symbol != "self_test_float32" else loops.Kernel(made.symbol, BROKEN, made.cost, made.bodies)
loops.kernel = wrong
x = fb.arange(3000.0)
y = (x.exp() * 0 + x).nan_to_num(0, 0, 0).sum()
print(engines.chosen().name, engines.taken_over(), fb.kernels.backend())
print(fb.kernels.explain("exp", x).splitlines()[0])
print((x.sqrt() == fb.tensor(np.sqrt(x.numpy()))).all().item())
fb.kernels.set_backend("numpy")
fb.kernels.set_backend("llvm")
print(engines.chosen().name)
"""


@pytest.mark.parametrize(("broken", "says"), [
    ("made.text.replace('fdiv', 'fmul')", "numbers are wrong"), ("made.text.replace('ret void', 'no such word')", "LLVM IR parsing error"),
])  # fmt: skip
def test_numba_takes_over_where_the_llvm_engine_fails_its_self_test(broken: str, says: str, fresh_python: Any) -> None:
    said = fresh_python("-c", _BROKEN.replace("BROKEN", broken), FLAMBEAU_BACKEND="llvm")

    assert said.startswith("numba the self-test of the llvm engine failed")
    assert says in said
    assert "compiled tier, by numba, as the self-test of the llvm engine failed" in said
    assert said.split()[-2:] == ["True", "numba"]


_REFUSED = """
import sys, warnings
import numpy as np
import flambeau as fb
from flambeau_kernels import engines
from flambeau_kernels.engine.machine_code import llvm

emit = llvm.Machine.emit_object
def refusing(self, text, level=llvm.EVERYTHING, record=None):
    # As if LLVM had no word for an instruction of these kernels.
    named = any(f"@{name}" in text for name in REFUSED)
    return emit(self, text.replace("ret void", "no such word") if named else text, level, record)
llvm.Machine.emit_object = refusing
if sys.argv[1:] == ["without numba"]:
    sys.modules["numba"] = None
said = []
warnings.showwarning = lambda message, *rest: said.append(str(message).partition(":")[0])
warnings.simplefilter("always")
x = fb.arange(6000.0).remainder(101).reshape(300, 20)  # so that all sums are exact
@fb.kernels.loop(mutates_args=("out",))
def twice(i, x, out):
    out[i] = x[i] * 2
"""
_KERNELS = ("kernel_twice", "kernel_row_chains", "gemm_")
_USES = """
out = fb.empty(6000)
for _ in range(3):
    twice(6000, x.flatten(), out)
    sums, product = x.cumsum(1), x @ x.t()
print((out == x.flatten() * 2).all().item(), np.array_equal(sums, x.numpy().cumsum(1)), np.array_equal(product, x.numpy() @ x.numpy().T))
print(sorted(set(said)), len(said) == len(set(said)), engines.chosen().name)
"""


def test_a_kernel_that_llvm_refuses_is_told_once_and_compiled_by_numba(tmp_path: Any, fresh_python: Any) -> None:
    program = _REFUSED.replace("REFUSED", repr(_KERNELS)) + _USES

    (tmp_path / "program.py").write_text(program)     # loops are compiled from files alone
    said = fresh_python(tmp_path / "program.py", FLAMBEAU_BACKEND="llvm", FLAMBEAU_CACHE="off", FLAMBEAU_STRICT="0").splitlines()

    assert said[0] == "True True True"
    assert said[1] == "['gemm_float32_float32', 'kernel_row_chains', 'kernel_twice'] True llvm"


@pytest.mark.parametrize(("strict", "arguments", "error"), [("1", (), "BrokenKernel"), ("0", ("without numba",), "Refused")])
def test_a_loop_that_nothing_else_compiles_is_an_error_that_names_it(strict: str, arguments: tuple[str, ...], error: str,
                                                                      tmp_path: Any, fresh_python: Any) -> None:  # fmt: skip
    program = _REFUSED.replace("REFUSED", repr(_KERNELS)) + """
try:
    twice(6000, x.flatten(), fb.empty(6000))
except Exception as error:
    print(type(error).__name__, str(error).partition(chr(10))[0], "FLAMBEAU_BACKEND=numpy" in str(error))
"""
    (tmp_path / "program.py").write_text(program)     # loops are compiled from files alone
    said = fresh_python(tmp_path / "program.py", *arguments, FLAMBEAU_BACKEND="llvm", FLAMBEAU_CACHE="off", FLAMBEAU_STRICT=strict)

    assert said.startswith(f"{error} kernel_twice: LLVM makes no code of this kernel: LLVM IR parsing error")
    assert said.split()[-1] == str(strict == "0")


def test_where_llvm_makes_no_code_at_all_numpy_computes_and_that_is_told(tmp_path: Any, fresh_python: Any) -> None:
    program = _REFUSED.replace("named =", "text = text.replace('ret ', 'nor '); named =").replace("REFUSED", "()") + """
print((x.exp() / 2).sum().isfinite().item(), fb.kernels.explain("exp", x))
print(any(name == "the self-test of the llvm engine failed" for name in said))
"""
    (tmp_path / "program.py").write_text(program)     # loops are compiled from files alone
    said = fresh_python(tmp_path / "program.py", FLAMBEAU_BACKEND="llvm", FLAMBEAU_CACHE="off", FLAMBEAU_STRICT="0")

    assert "numpy tier: the self-test of the llvm engine failed" in said
    assert "numba, which would take over, needs LLVM's code that runs kernels" in said
    assert said.split()[-1] == "True"


def test_the_self_test_passes_here() -> None:
    assert engines.taken_over() is None


def test_neighbouring_floats_are_found() -> None:
    x = np.array([1.0, -1.0, 0.0, np.inf, np.nan] * 400, np.float32)

    made = launched("numba", Formula(lambda a: nextafter(a, a * 0 + 2), "neighbour"), (x,), np.zeros_like(x), "float32")

    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(made, np.nextafter(x, x * 0 + 2))
