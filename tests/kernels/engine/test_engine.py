"""The compiled tier against the numpy tier, which reads the same formulas."""
from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import flambeau_kernels
from flambeau_kernels import engine, vocabulary
from flambeau_kernels.engine.launching import loops, plan
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import where

pytestmark = pytest.mark.skipif(engine.available() is not None,
                                reason=f"no compiled tier: {engine.available()}")
# Not a multiple of any vector, above the tier's threshold.
N = 5000
COMPILE_TIMES = Path(__file__).resolve().parents[3] / "bench" / "compile_times.py"


def lerp(input, end, weight):
    step = end - input
    return where(weight < 0.5, input + weight * step, end - step * (1 - weight))


LERP = Formula(lerp)


def both_tiers(formula, inputs, dtypes, compute, shape=None):
    """Results of the compiled and the numpy tier; fails if the compiled tier does not take the launch."""
    compute = np.dtype(compute)
    shape = shape or np.broadcast_shapes(*(np.shape(x) for x in inputs))
    fast, slow = (tuple(np.zeros(shape, d) for d in dtypes) for _ in range(2))
    assert engine.launch(formula, inputs, fast, compute), engine.explain(formula, inputs, fast, compute)
    flambeau_kernels.reference_launch(formula, inputs, slow, compute)
    return fast, slow


def assert_tiers_agree(function, inputs, out="float32", compute="float32", shape=None):
    """To the bit: no reassociation, no contraction, one rounding per operation."""
    (fast,), (slow,) = both_tiers(Formula(function), inputs, (out,), compute, shape)
    np.testing.assert_array_equal(fast, slow)


def normal(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("inputs", [
    pytest.param((normal(N), normal(N, seed=1), normal(N, seed=2)), id="contiguous"),
    pytest.param((normal(N), normal(N, seed=1), 0.25), id="scalar"),
    pytest.param((2.0, normal(N, seed=1), np.float32(0.7)), id="scalars"),
    pytest.param((normal(70, 80), normal(80), normal(70, 1)), id="row and column"),
    pytest.param((normal(80, 70).T, normal(80), normal(70, 1)), id="transposed"),
    pytest.param((normal(3000, 4), normal(4), normal(3000, 1)), id="narrow rows"),
    pytest.param((normal(40, 30, 40, 10)[::2, ::3, ::2, ::5], normal(10, 20, 2), 0.9), id="steps"),
    pytest.param((normal(10, 20, 30).transpose(2, 0, 1), normal(10, 1), 0.1), id="permuted"),
    pytest.param((normal(300, 500).T, normal(300), normal(500, 1)), id="tiles"),
    pytest.param((normal(7, 90, 110).transpose(0, 2, 1), normal(90), normal(110, 1)), id="many tiles"),
    pytest.param((normal(N)[::-1], normal(N), 0.1), id="reversed"),
    pytest.param((np.broadcast_to(normal(1, 50, 1), (11, 50, 13)), normal(13), 0.1), id="expanded"),
])
def test_every_layout_gives_the_numpy_tiers_bits(inputs):
    assert_tiers_agree(lerp, inputs)


def test_output_in_any_layout_is_filled():
    inputs = (normal(40, 50, 6), normal(6), 0.3)
    wanted = np.empty((40, 50, 6), np.float32)
    flambeau_kernels.reference_launch(LERP, inputs, (wanted,), np.dtype("float32"))
    permuted = np.zeros((6, 40, 50), np.float32).transpose(1, 2, 0)
    for out in (permuted, np.zeros((80, 50, 18), np.float32)[::2, :, ::3]):
        assert engine.launch(LERP, inputs, (out,), np.dtype("float32"))
        np.testing.assert_array_equal(out, wanted)


def test_in_place_on_either_argument_with_several_results():
    formula = Formula(lambda p, v: (p - 0.1 * (0.9 * v + p), 0.9 * v + p), name="momentum")
    p, v = normal(N), normal(N, seed=1)
    wanted = tuple(np.empty(N, np.float32) for _ in range(2))
    flambeau_kernels.reference_launch(formula, (p, v), wanted, np.dtype("float32"))

    assert engine.launch(formula, (p, v), (p, v), np.dtype("float32"))

    np.testing.assert_array_equal(p, wanted[0])
    np.testing.assert_array_equal(v, wanted[1])


STORED = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
          "float32",
          "float64", ml_dtypes.bfloat16]


@pytest.mark.parametrize("out", STORED, ids=str)
@pytest.mark.parametrize("stored", STORED, ids=str)
def test_every_stored_dtype_is_converted(stored, out):
    x = np.random.default_rng(0).integers(0, 100, N).astype(stored)
    assert_tiers_agree(lambda a, b: a + b, (x, np.arange(N) % 20), out, "float32")


@pytest.mark.parametrize("half", ["float16", ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_half_types_round_to_nearest_even_once(half):
    every = np.arange(1 << 16, dtype=np.uint16).view(half)
    with np.errstate(all="ignore"):
        (fast,), (slow,) = both_tiers(Formula(lambda a, b: a * b), (every, every[::-1].copy()), (half,),
                                      "float32")
    nan = np.isnan(slow.astype("float32"))
    np.testing.assert_array_equal(np.isnan(fast.astype("float32")), nan)
    np.testing.assert_array_equal(fast.view("uint16")[~nan], slow.view("uint16")[~nan])


@pytest.mark.parametrize("shape", [(N + 1,), (N,), (71, 81), (2501, 2), (2500, 3)], ids=str)
def test_bfloat16_of_even_and_odd_rows_is_right_to_the_last_element(shape):
    x, y = (normal(shape[0], shape[-1] + 1, seed=s).astype(ml_dtypes.bfloat16)[:, 1:] for s in range(2))  # rows apart, of odd addresses
    if len(shape) == 1:
        x, y = (np.concatenate([a.ravel()[:1], a.ravel()])[1:][: shape[0]] for a in (x, y))
    out = np.full((*x.shape[:-1], x.shape[-1] + 2), 7, ml_dtypes.bfloat16)
    weight = np.float32(0.3)

    assert engine.launch(LERP, (x, y, weight), (out[..., 1:-1],), np.dtype("float32"))

    wanted = np.empty(x.shape, ml_dtypes.bfloat16)
    flambeau_kernels.reference_launch(LERP, (x, y, weight), (wanted,), np.dtype("float32"))
    np.testing.assert_array_equal(out[..., 1:-1].view("uint16"), wanted.view("uint16"))
    assert (out[..., [0, -1]] == 7).all()


EXTREMES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 3.5, 1e-45, -1e-40, 3e38, -3e38, np.inf, -np.inf,
                     np.nan, 7.0])
PAIRS = tuple(np.tile(a.ravel(), 20).astype("float32") for a in np.meshgrid(EXTREMES, EXTREMES))


EXPRESSIONS = [
    "copysign(a, b)", "fmod(a, b)", "remainder(a, b)", "floor_divide(a, b)", "minimum(a, b)", "maximum(a, b)",
    "fmin(a, b)", "fmax(a, b)", "nextafter(a, b)", "where(a, b, a)", "a / b", "-abs(a)", "sign(a)",
    "nearbyint(a)", "a**2", "a**0.5", "a**-1", "sqrt(a)", "a % b", "a // b", "floor(a) + ceil(b) - trunc(a)",
    "where(isnan(a), 1, where(isinf(b), 2, 3))", "where(isfinite(a) & signbit(b), a, -b)",
    "logical_and(a, b) * b", "logical_xor(a, b) | logical_or(a, b) | logical_not(a)",
    "(a < b) + (a >= b) * 2.0", "where(~(a == b), 1.0, 0.5) * (a != b)", "rsqrt(a) + (a <= b)",
]  # fmt: skip


def function_of(expression):
    scope = dict(vars(vocabulary))
    exec(f"def function(a, b):\n    return {expression}", scope)
    return scope["function"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_words_and_operators_on_special_values(expression):
    assert_tiers_agree(function_of(expression), PAIRS)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("expression", [
    "a + b", "a - b", "a * b", "a // b", "a % b", "a & b", "a | b", "a ^ b", "~a", "-a", "abs(a)",
    "a << (b & 7)", "a >> (b & 7)", "minimum(a, b)", "maximum(a, b)", "sign(a)", "a**3",
    "where(a > b, a, b + 1)", "fmod(a, b)",
])  # fmt: skip
def test_integer_arithmetic_wraps_and_division_by_zero_is_zero(expression, dtype):
    info = np.iinfo(dtype)
    edge = np.array([info.min, info.min + 1, 0, 1, 2, 3, 7, info.max, info.max - 1, 100], dtype)
    edge = np.concatenate([edge, (-edge).astype(dtype)])
    a, b = (np.tile(m.ravel(), 20) for m in np.meshgrid(edge, edge))
    assert_tiers_agree(function_of(expression), (a, b), dtype, dtype)


def test_shifts_beyond_the_width_shift_everything_out():
    a, count = np.tile(np.array([-5, 5, 1 << 30], "int32"), 2000), np.tile(np.array([31, 32, 40, -1],
                                                                                    "int32"), 1500)
    assert_tiers_agree(lambda a, b: a << b, (a, count), "int32", "int32")
    assert_tiers_agree(lambda a, b: a >> b, (a, count), "int32", "int32")


def test_truth_values_compute_as_numpys():
    a, b = normal(N) > 0, normal(N, seed=1) > 0
    assert_tiers_agree(lambda a, b: (a & b) | (~a ^ b), (a, b), "bool", "bool")
    assert_tiers_agree(lambda a, b: a + b, (a, b), "bool", "bool")
    assert_tiers_agree(lambda a, b: where(a, 3, 4) + b, (a, b), "int64", "bool")


def test_closures_helpers_and_constants_are_followed():
    alpha = 0.3

    def helper(x):
        return x * alpha + np.float32(2)

    assert_tiers_agree(lambda x: helper(x) - 2 * helper(-x), (normal(N),))


@pytest.mark.parametrize(("function", "dtype", "reason"), [
    (lambda x: x if x > 0 else -x, "float32", "branches"),
    (lambda x: np.sqrt(x), "float32", "plain arithmetic"),
    (lambda x: x * 2j, "float32", "complex"),
    (lambda x: abs(x) < x, "complex64", "order of complex numbers"),
    (lambda x: x % 2, "complex64", "remainder of complex numbers"),
    (lambda x: x + 300, "int8", "300"),
])
def test_what_cannot_be_compiled_is_left_to_numpy_with_its_reason(function, dtype, reason):
    x, out = np.ones(N, dtype), np.zeros(N, dtype)

    assert not engine.launch(Formula(function, "f"), (x,), (out,), np.dtype(dtype))
    assert reason in engine.explain(Formula(function, "f"), (x,), (out,), np.dtype(dtype))
    assert not out.any()


def test_small_arrays_and_foreign_bytes_stay_on_numpy():
    for x in (np.ones(10, "float32"), np.ones(N, ">f4"), np.ones((0, 5), "float32")):
        assert not engine.launch(LERP, (x, 1.0, 0.5), (np.zeros_like(x),), np.dtype("float32"))


def test_a_cheap_ufunc_stays_on_numpy_until_threads_help():
    formula = Formula(lambda a, b: a + b, "add", np.add)
    rows = (("float32", 6000, False), ("float32", 40000, True), ("float16", 6000, True))
    for dtype, elements, taken in rows:
        x = np.ones(elements, dtype)
        assert engine.launch(formula, (x, x), (np.empty_like(x),), np.dtype(dtype)) is taken


def test_new_shapes_reuse_the_kernel(monkeypatch):
    formula = Formula(lerp)
    assert engine.launch(formula, (normal(N), 1.0, 0.5), (np.empty(N, "float32"),), np.dtype("float32"))
    monkeypatch.setattr(loops, "kernel", None)        # tracing again would fail

    for shape in ((N + 1,), (60, 70), (11, 12, 13)):
        x, out = normal(*shape), np.empty(shape, "float32")
        assert engine.launch(formula, (x, 1.0, 0.5), (out,), np.dtype("float32"))
        np.testing.assert_allclose(out, (x + 1) / 2, rtol=1e-6, atol=1e-7)


def test_readonly_output_is_not_written():
    out = np.zeros(N, "float32")
    out.flags.writeable = False
    assert not engine.launch(LERP, (normal(N), 1.0, 0.5), (out,), np.dtype("float32"))
    assert not out.any()


def test_tier_choice_ignores_values():
    wild = np.full(N, np.nan, "float32")
    assert engine.launch(LERP, (wild, 1.0, 0.5), (np.zeros_like(wild),), np.dtype("float32"))


def test_chunks_depend_on_shape_only_and_cover_everything(monkeypatch):
    x, out = normal(301, 3001), np.zeros((301, 3001), "float32")
    wanted = np.empty_like(out)
    flambeau_kernels.reference_launch(LERP, (x, 1.0, 0.5), (wanted,), np.dtype("float32"))
    before = engine.get_num_threads()
    try:
        for threads in (1, 2, 5):
            engine.set_num_threads(threads)
            out[...] = 0
            assert engine.launch(Formula(lerp), (x, 1.0, 0.5), (out,), np.dtype("float32"))
            np.testing.assert_array_equal(out, wanted)
    finally:
        engine.set_num_threads(before)


@pytest.mark.parametrize(("rows", "columns"), [(1, 10**5), (1, 10**7), (10**7, 1), (7, 10**6), (10**5, 33),
                                               (999, 4097)])
def test_grains_are_within_the_shape(rows, columns):
    row_grain, column_grain = plan.grains(rows, columns, 0.3)

    assert 1 <= row_grain <= rows
    assert 1 <= column_grain <= columns
    assert row_grain == 1 or column_grain == columns


def test_merging_makes_one_dimension_of_contiguous_arrays():
    a = np.empty((4, 5, 6), "float32")
    assert plan.layout(a.shape, [a, a], [a]).dims == ((120, (4, 4, 4)),)
    assert plan.layout(a.shape, [a[:1, :1, :1]], [a]).access == "sc"
    assert len(plan.layout(a.shape, [a[:, :1]], [a]).dims) == 3


def test_several_python_threads_launch_at_once():
    x = normal(1 << 18)
    wanted = np.empty_like(x)
    flambeau_kernels.reference_launch(LERP, (x, 1.0, 0.5), (wanted,), np.dtype("float32"))
    results = [np.zeros_like(x) for _ in range(4)]

    def work(out):
        for _ in range(20):
            assert engine.launch(LERP, (x, 1.0, 0.5), (out,), np.dtype("float32"))

    threads = [threading.Thread(target=work, args=(out,)) for out in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for out in results:
        np.testing.assert_array_equal(out, wanted)


def test_set_num_threads_checks_its_argument():
    with pytest.raises(RuntimeError, match=r"positive.*0"):
        engine.set_num_threads(0)
    with pytest.raises(TypeError, match="float"):
        engine.set_num_threads(1.5)


def run_python(code, **environment):
    import os

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment})
    assert done.returncode == 0, done.stderr
    return done


LAUNCH = """
import numpy as np, sys, os
from flambeau_kernels import engine, vocabulary
from flambeau_kernels.formula import Formula
x = np.arange(300000, dtype='float32'); o = np.zeros_like(x)
f = Formula(lambda a, b: a * 2 + b, name='twice')
def go():
    o[...] = 0
    taken = engine.launch(f, (x, 1.0), (o,), np.dtype('float32'))
    return taken and bool((o == x * 2 + 1).all())
"""


def test_import_loads_neither_llvmlite_nor_numba():
    run_python("import sys, flambeau_kernels, flambeau_kernels.engine\n"
               "assert not {'numba', 'llvmlite', 'scipy'} & set(sys.modules)")


def test_second_process_loads_from_the_cache(tmp_path):
    code = LAUNCH + "assert go(); print(engine.machine_code.llvm.counts['compiled'], 'numba' in sys.modules)"
    first, second = (run_python(code, FLAMBEAU_CACHE=str(tmp_path), FLAMBEAU_BACKEND="llvm").stdout.split() for _ in range(2))

    assert int(first[0]) > 0
    assert second == ["0", "False"]


def test_damaged_cache_files_are_rewritten(tmp_path):
    code = LAUNCH + "assert go(); print(engine.machine_code.llvm.counts['compiled'])"
    setting = {"FLAMBEAU_CACHE": str(tmp_path), "FLAMBEAU_BACKEND": "llvm"}
    made = int(run_python(code, **setting).stdout)
    for path in tmp_path.glob("*.o"):
        path.write_bytes(path.read_bytes()[:-20])

    assert int(run_python(code, **setting).stdout) == made
    assert int(run_python(code, **setting).stdout) == 0


def test_forked_child_computes_with_threads_of_its_own():
    run_python(LAUNCH + """
engine.set_num_threads(3)
assert go()
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if all(go() for _ in range(20)) else 1)
    assert os.waitpid(child, 0)[1] == 0
assert go()
""")


def test_thread_count_comes_from_the_environment():
    assert run_python("from flambeau_kernels import engine; print(engine.get_num_threads())",
                      FLAMBEAU_NUM_THREADS="3").stdout.strip() == "3"


def test_without_llvmlite_nothing_is_taken_and_the_reason_is_told():
    run_python("import sys\nsys.modules['llvmlite'] = None\n" + LAUNCH +
               "assert not go() and not o.any()\n"
               "assert 'llvmlite' in engine.explain(f, (x, 1.0), (o,), np.dtype('float32'))")


@pytest.mark.parametrize("body", ["raise ValueError('mine')", "import flambeau as fb; fb.ones(3000).exp()"])
def test_a_file_beside_the_program_that_hides_a_module_of_python_is_named_when_it_keeps_the_compiler_off(body, tmp_path):
    (tmp_path / "nt.py").write_text(body)
    (tmp_path / "program.py").write_text("import flambeau as fb; fb.ones(3000).exp()")
    run = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=True,
                         env={**os.environ, "FLAMBEAU_BACKEND": "llvm", "FLAMBEAU_CACHE": str(tmp_path / "cache")})

    assert run.stderr.count("UserWarning: llvmlite does not work here") == 1
    assert f"{tmp_path / 'nt.py'} was imported as Python's own module 'nt'" in run.stderr


def test_struct_mismatch_falls_back_to_ctypes_calls():
    run_python("from flambeau_kernels.engine.launching import native\nnative.struct_matches = lambda: False\n"
               + LAUNCH + "from flambeau_kernels.engine.launching import journal\nbefore = journal.count()\nassert go() and go()\n"
               "assert [name for name, _ in journal.since(before)][-1].startswith('loop twice')")


def test_show_kernels_prints_the_named_kernel_once():
    code = LAUNCH + "go(); go()"
    assert run_python(code, FLAMBEAU_SHOW_KERNELS="twice", FLAMBEAU_BACKEND="llvm").stderr.count("define void @twice_float32") == 1
    assert "define" not in run_python(code, FLAMBEAU_SHOW_KERNELS="other").stderr


def test_warm_up_leaves_nothing_to_compile(tmp_path):
    code = ("from flambeau_kernels import warmup\n"
            "some = [f for f in warmup.vocabulary_formulas() if f.name in ('exp', 'add', 'isnan', "
            "'lgamma')] + [warmup._formula('ldexp', 'ldexp(input, other)', True)]\n"
            "report = warmup.warm(some); print(report.compiled, report.found, report.left)")
    first = [int(n) for n in run_python(code, FLAMBEAU_CACHE=str(tmp_path)).stdout.split()]
    second = [int(n) for n in run_python(code, FLAMBEAU_CACHE=str(tmp_path)).stdout.split()]

    assert first[0] >= 12
    assert first[2] == 6                              # ldexp, with arrays and numbers
    assert second == [0, first[0], 6]


def random_view(rng, shape):
    """An array of `shape`, possibly broadcast along some axes, its axes in memory in any order, with any
    steps."""
    own = tuple(1 if rng.random() < 0.3 else n for n in shape)
    order = rng.permutation(len(own))
    steps = rng.choice([1, 1, 2], len(own))
    base = rng.standard_normal([own[axis] * steps[axis] for axis in order]).astype("float32")
    view = base.transpose(np.argsort(order))
    return view[tuple(slice(None, None, step) for step in steps)]


@pytest.mark.parametrize("seed", range(60))
def test_random_layouts_agree(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 40, rng.integers(1, 5)))
    while np.prod(shape) < 1500:
        shape = (*shape, 7)
    out = random_view(rng, shape)
    while out.shape != shape:
        out = random_view(rng, shape)
    inputs = (random_view(rng, shape), random_view(rng, shape), 0.4)
    wanted = np.empty(shape, "float32")
    flambeau_kernels.reference_launch(LERP, inputs, (wanted,), np.dtype("float32"))

    assert engine.launch(LERP, inputs, (out,), np.dtype("float32"))

    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("expression", [
    "a + b", "a - b", "a * b", "a / b", "1 / a", "2j * a - 3", "-a", "a**2", "conj(a) * b",
    "real(a) * b + imag(b)",
    "where(real(a) > 0, a, b)", "where(a == b, 1j, a)", "fma(a, b, 1j)", "abs(a)", "angle(a)", "abs(a) * b",
    "where(logical_and(a, b), a, 0)",
])  # fmt: skip
def test_complex_arithmetic(expression, dtype):
    a, b = ((normal(N, seed=s) + 1j * normal(N, seed=s + 1)).astype(dtype) for s in (0, 2))
    (fast,), (slow,) = both_tiers(Formula(function_of(expression)), (a, b), (dtype,), dtype)
    # numpy's vector code fuses some products.
    np.testing.assert_allclose(fast, slow, rtol=20 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)


def test_complex_layouts_parts_and_truth():
    a = (normal(80, 70) + 1j * normal(80, 70, seed=1)).astype("complex64")
    for inputs, out in (((a.T, np.complex64(2 - 1j)), "complex128"), ((a[:, ::2], a[:1, :1]), "complex64"),
                        ((a, 2), "float32"), ((a.real, a), "complex64")):
        (fast,), (slow,) = both_tiers(Formula(lambda a, b: a * b), inputs, (out,), "complex64")
        np.testing.assert_allclose(fast, slow, rtol=1e-5, atol=1e-6)
    a[3:9] = 0
    (fast,), (slow,) = both_tiers(Formula(lambda a, b: a), (a, 1), ("bool",), "complex64")
    np.testing.assert_array_equal(fast, slow)


def test_complex_quotients_by_zero_and_extremes():
    parts = np.array([0.0, -0.0, 1.0, -2.0, np.inf, np.nan, 1e30, 1e-30])
    values = np.stack(np.meshgrid(parts, parts), -1).astype("float32").view("complex64").ravel()
    a, b = (m.ravel() for m in np.meshgrid(values, values))
    (fast,), (slow,) = both_tiers(Formula(lambda a, b: a / b), (a, b), ("complex64",), "complex64")
    np.testing.assert_allclose(fast, slow, rtol=1e-5)


def test_every_chunk_of_a_region_runs_exactly_once():
    import ctypes

    from flambeau_kernels.engine.machine_code import llvm
    from flambeau_kernels.engine.runtime import pool

    # Adds 1 to the counter of its chunk, after some work so that several threads take part.
    text = """
define void @tally(i64 %i, ptr %counts) {
entry:
  br label %spin
spin:
  %k = phi i64 [0, %entry], [%next, %spin]
  %at = getelementptr i64, ptr %counts, i64 %i
  %old = load volatile i64, ptr %at
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, 200
  br i1 %more, label %spin, label %done
done:
  %new = add i64 %old, 1
  store volatile i64 %new, ptr %at
  ret void
}
"""
    tally = llvm.compile_ir(text, "tally")
    before = engine.get_num_threads()
    try:
        for threads in (1, 2, 4, 3, 20, 2):                # more than there are parts, and fewer again
            engine.set_num_threads(threads)
            for chunks in (500, 2, 3, 7):
                counts = np.zeros(chunks, np.int64)
                for _ in range(200):
                    pool.parallel(tally, counts.ctypes.data, counts.size)
                np.testing.assert_array_equal(counts, 200)
    finally:
        engine.set_num_threads(before)
    assert ctypes.c_int64.from_address(pool.record() + pool.LOCK).value == 0


def test_compile_times_lists_every_object_and_their_total(fresh_python):
    program = "from flambeau_kernels.engine.machine_code import llvm; from flambeau_kernels.engine.runtime import pool; pool.entry()"
    made = fresh_python(COMPILE_TIMES, "-c", program)
    lines = made.splitlines()
    assert lines[0].split()[-1] == "kernel"
    total, writing, optimising, emitting, *_ = (float(word) for word in lines[1].split()[:-1])
    assert {line.split()[-1] for line in lines[1:-1]} == {"parallel", "self_test_float32"}
    assert lines[-1].endswith(" 2 objects, 0 of them above 100 ms")
    assert total == pytest.approx(writing + optimising + emitting, abs=0.2)
    assert emitting > 0


def test_compile_times_says_which_loops_are_no_vectors(fresh_python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nfrom flambeau_kernels.engine.language import independent, kernel\n"
        "@kernel\ndef tangled(chunk, a, n):\n    for i in independent(range(n)):\n        while a[i] > 1:\n            a[i] = a[i] / 2\n"
        "tangled.run(1, np.full(9, 5.0), 9)\n"
    )
    made = fresh_python(COMPILE_TIMES, program, FLAMBEAU_BACKEND="llvm")

    assert "kernel_tangled, 1 loops in no vectors" in made


def test_compiling_prints_nothing(tmp_path):
    # Loops around calls of the C library are no vector code, about which LLVM used to complain on stderr.
    program = (
        "import flambeau as fb\nfrom flambeau.ops._spec import OPS\nfb.randn(5000), fb.randn(5000, dtype=fb.float64)\n"
        "fb.polygamma(1, fb.ones(5000))\nOPS['polygamma_of'].run(fb.ones(5000), fb.ones(5000))\n"
        "fb.zeros(100000).scatter_add(0, fb.randint(0, 100000, (400000,)), fb.ones(400000))"
    )
    done = run_python(program, FLAMBEAU_CACHE=str(tmp_path), FLAMBEAU_BACKEND="llvm")

    assert (done.stdout, done.stderr) == ("", "")
    assert list(tmp_path.iterdir())
