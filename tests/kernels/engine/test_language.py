"""The kernel language: what each construct means, checked against Python or numpy on the same values."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import pathlib
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.engine.language import (
    bitcast,
    brief,
    broadcast,
    flags,
    float32,
    float64,
    independent,
    int32,
    int64,
    kernel,
    lane_sum,
    load,
    local,
    lower,
    multiply_add,
    outlined,
    pointer,
    repeated,
    rolled,
    run,
    shuffle,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.vocabulary import exp, fma, maximum, where

pytestmark = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")

SCALE = 3


@kernel
def collatz(chunk, start, steps):
    n = start[chunk]
    count = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        elif n > 1000000:
            count = -1
            break
        else:
            n = SCALE * n + 1
        count += 1
    steps[chunk] = count


def test_loops_and_branches_on_every_chunk():
    start = np.arange(1, 200)
    steps = np.empty_like(start)

    collatz.run(len(start), start, steps)

    def count(n):
        return 0 if n == 1 else 1 + count(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert steps.tolist() == [count(n) for n in start.tolist()]


def row_maximum(x, n, kind):
    """The largest of `n` elements; nan if there is one."""
    top = kind(-float("inf"))
    for i in range(n):
        top = maximum(top, x[i])
    return top


@kernel
def softmax_rows(chunk, x, out, n, *, TEMPERATURE=None):
    kind = widened(x)
    row, to = x + chunk * n, out + chunk * n
    top = row_maximum(row, n, kind)
    total = kind(0)
    with flags("reassoc"):
        for i in range(n):
            e = exp((row[i] - top) * TEMPERATURE)
            to[i] = e
            total += e
    for i in independent(range(n)):
        to[i] = to[i] / total


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_rows_of_every_floating_dtype(dtype):
    x = np.random.default_rng(0).normal(size=(7, 37)).astype(dtype)
    out = np.empty_like(x)

    softmax_rows.run(len(x), x, out, x.shape[1], TEMPERATURE=2.0)

    e = np.exp((x.astype(float) - x.astype(float).max(1, keepdims=True)) * 2.0)
    # The result is rounded once on the way out and once more when it is read back to be scaled.
    tolerance = 3 * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(out.astype(float), e / e.sum(1, keepdims=True), rtol=tolerance, atol=tolerance / 100)


@kernel
def dot(chunk, a, b, out, n):
    kind = vector(float32, 8)
    acc = local(kind, 2)
    for k in unroll(range(2)):
        acc[k] = broadcast(float32(0), 8)
    i = 0
    while i + 16 <= n:
        for k in unroll(range(2)):
            acc[k] = fma(load(a, i + 8 * k, 8), load(b, i + 8 * k, 8), acc[k])
        i += 16
    total = lane_sum(acc[0] + acc[1])
    while i < n:
        total += a[i] * b[i]
        i += 1
    out[0] = total


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 1000])
def test_vectors(n):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, n)).astype(np.float32)
    out = np.empty(1, np.float32)

    dot.run(1, a, b, out, n)

    assert out[0] == pytest.approx(a.astype(float) @ b.astype(float), rel=1e-5, abs=1e-5)


@kernel
def sums_of_products(chunk, a, b, c, out):
    store(out, 0, multiply_add(load(a, 0, 8), load(b, 0, 8), load(c, 0, 8)))
    store(out, 8, multiply_add(2.0, load(b, 0, 8), load(c, 0, 8)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_added_by_one_instruction_or_two(dtype):
    a, b, c = np.random.default_rng(3).normal(size=(3, 8)).astype(dtype)
    out = np.empty(16, dtype)

    sums_of_products.run(1, a, b, c, out)

    exact = np.concatenate([x * b.astype(np.longdouble) + c for x in (a.astype(np.longdouble), np.longdouble(2))])
    once, twice = exact.astype(dtype), np.concatenate([a * b + c, 2 * b + c])
    np.testing.assert_array_equal(out, once if "+fma" in llvm.machine().features.split(",") else twice)


@kernel
def first_lanes(chunk, x, out, n):
    a = load(x, 0, 4, n)
    store(out, 0, a)
    store(out + 4, 0, a + 1.0, n)
    b = load(x, 4, 4)
    b = where((b > 14.0) & (b < 16.0) | (b == 17.0), b, b + 100.0)
    store(out + 8, 0, shuffle(a, b, (0, 4, 1, 5)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("n", [-1, 0, 1, 3, 4, 9])
def test_the_first_lanes_of_a_vector_and_lanes_of_two(dtype, n):
    wide = np.float64 if dtype == np.float64 else np.float32
    x, out = np.arange(10, 18).astype(dtype), np.full(12, -1, wide)

    first_lanes.run(1, x, out, n)

    n = min(max(n, 0), 4)
    head = [10, 11, 12, 13][:n] + [0] * (4 - n)
    assert out.tolist() == [*head, *[h + 1 for h in head[:n]], *[-1] * (4 - n), head[0], 114, head[1], 15]


@kernel
def constructs(chunk, x, whole, out, factor, n):
    out[0] = where(n > 2, x[0], x[1]) * float64(factor)
    out[1] = 1.0 if n > 2 and x[n - 1] > 0 or n == 77 else -1.0
    out[2] = float64(bitcast(float32(1), int32))
    whole[0] = int64(x[2]) + (n << 3)
    q = x + 1
    out[3] = q[0]
    v = load(x, 0, 4) * 2.0
    store(out + 4, 0, where(v > 3.0, v, -v))
    again = pointer(int64(x), float64)
    out[8] = again[3]
    out[9] = min(x[0], x[1], 5.0)
    out[10] = -x[1]


def test_constructs():
    x = np.array([1.5, 2.5, -3.75, 4.0])
    whole, out = np.zeros(1, np.int64), np.zeros(11)

    constructs.run(1, x, whole, out, 0.5, 4)

    assert whole.tolist() == [-3 + 32]
    assert out.tolist() == [0.75, 1.0, float(0x3F800000), 2.5, -3.0, 5.0, 7.5, 8.0, 4.0, 1.5, -2.5]


@kernel
def scaled_row(row, x, out, width, factor):
    for j in range(width):
        out[row * width + j] = factor * x[row * width + j]


@kernel
def two_rows(chunk, x, out, code, width):
    given = local(int64, 4)
    given[0] = int64(x)
    given[1] = int64(out)
    given[2] = width
    given[3] = bitcast(float64(chunk + 2), int64)
    for row in rolled(range(2 * chunk, 2 * chunk + 2)):
        run(code[0], row, given)


def test_a_kernel_runs_another_one_at_its_address():
    x, out = np.arange(12.0).reshape(4, 3), np.zeros((4, 3))
    code = np.array([scaled_row.address((x.dtype, x.dtype, int, float), {})], np.int64)

    two_rows.run(2, x, out, code, 3)

    np.testing.assert_array_equal(out, x * [[2], [2], [3], [3]])
    assert scaled_row.address((x.dtype, x.dtype, int, float), {}) == code[0]
    with pytest.raises(TypeError, match="4 arguments wanted, 3 given"):
        scaled_row.address((x.dtype, x.dtype, int), {})


@kernel
def c_library(chunk, x, out, n):
    for i in range(n):
        out[i] = math.log1p(x[i]) * math.floor(math.pow(x[i], 2.0)) + math.sin(math.sqrt(x[i]))


def test_functions_of_math_are_the_c_librarys_to_the_last_bit():
    x = np.random.default_rng(0).random(300) * 9
    out = np.empty_like(x)

    c_library.run(1, x, out, len(x))

    assert out.tolist() == [math.log1p(v) * math.floor(math.pow(v, 2.0)) + math.sin(math.sqrt(v)) for v in x.tolist()]


def test_booleans_are_truth_values():
    @kernel
    def flip(chunk, x, out, n):
        for i in range(n):
            out[i] = not x[i]

    x = np.array([True, False, True])
    out = np.zeros(3, bool)

    flip.run(1, x, out, 3)

    assert out.tolist() == [False, True, False]


@kernel
def keeps_its_kind(chunk, x):
    a = x[0]
    a = 1 + chunk
    x[0] = a


@kernel
def early_return(chunk, x):
    if x[0] > 0:
        return
    x[0] = 1.0


@kernel
def two_indices(chunk, x):
    x[0, chunk] = 1.0


@kernel
def unknown_name(chunk, x):
    x[0] = undefined  # noqa: F821  # pyright: ignore[reportUndefinedVariable]  # what the test is about


@pytest.mark.parametrize(("broken", "words"), [(keeps_its_kind, "a is float32 and cannot hold int64"),
                                               (early_return, "return stands at the end of a function; .* under an `if`"),
                                               (two_indices, r"one index, as in x\[row \* width \+ column\], and 2 are given"),
                                               (unknown_name, "undefined is not defined")])
def test_what_is_not_in_the_language_is_refused_with_file_and_line(broken, words):
    with pytest.raises(TypeError, match=rf"test_language\.py:\d+, in kernel code {broken.name}: .*{words}"):
        broken.run(1, np.zeros(1, np.float32))


@kernel
def count_up(chunk, by, to):
    to[chunk] = to[chunk] + by


def test_a_wrong_number_of_arguments_is_refused():
    with pytest.raises(TypeError, match="5 arguments wanted, 1 given"):
        constructs.run(1, np.zeros(1))


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (None, TypeError, "NoneType"),
        ("3", TypeError, "str"),
        (1 << 70, OverflowError, r"too (large|big)"),
        (np.ones(3), TypeError, "integer"),
    ],
)
def test_arguments_that_are_no_numbers_are_refused_before_a_kernel_runs(given, kind, words):
    untouched = np.zeros(2, np.int64)
    form = count_up.form((int, untouched.dtype), {})

    with pytest.raises(kind, match=words):
        form(1, False, given, untouched)
    assert not untouched.any()


@pytest.mark.parametrize("given", [None, 3, [1, 2], "array", 2.5])
def test_what_is_no_array_is_refused_before_a_kernel_follows_it(given):
    with pytest.raises(TypeError, match="array"):
        count_up.form((int, np.dtype(np.int64)), {})(1, False, 1, given)


def test_a_form_counts_its_arguments():
    form = count_up.form((int, np.dtype(np.int64)), {})

    with pytest.raises(TypeError, match="number of arguments"):
        form(1, False, 1)


def test_a_second_process_reads_the_object_from_disk(tmp_path):
    program = ("import numpy as np\nfrom flambeau_kernels.engine.machine_code import llvm\n"
               "from tests.kernels.engine.test_language import dot\nout = np.empty(1, 'f4')\n"
               "dot.run(1, np.ones(3, 'f4'), np.ones(3, 'f4'), out, 3)\nprint(out[0], llvm.counts['compiled'])")
    root = pathlib.Path(__file__).parents[3]
    environment = {**os.environ, "FLAMBEAU_CACHE": str(tmp_path),
                   "PYTHONPATH": os.pathsep.join(map(str, (root, root / "kernels")))}
    said = [subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True,
                           check=True).stdout.split() for _ in range(2)]

    assert said[0][0] == said[1][0] == "3.0"
    assert int(said[0][1]) > 0
    assert said[1][1] == "0"


@kernel
def chained(chunk, x, n):
    for i in repeated(range(1, n), 4):
        x[i] = x[i] * 3 + x[i - 1]


@kernel
def scaled_briefly(chunk, x, out, n, *, TIMES, NEVER):
    for i in brief(range(n), TIMES):
        out[i] = x[i] * 2
    while not NEVER and n < 0:
        out[0] = 7
    while NEVER and n > 0:
        out[0] = 7


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8])
@pytest.mark.parametrize("times", [1, 4])
def test_brief_loops_write_what_they_are_told_and_nothing_beyond(dtype, times):
    x = np.arange(40).astype(dtype)
    for n in (0, 1, 7, 16, 33, 40):
        out = np.full(40, 99, dtype)

        scaled_briefly.run(1, x, out, n, TIMES=times, NEVER=False)

        assert np.array_equal(out, np.where(np.arange(40) < n, 2 * x, np.full(40, 99, dtype)))


@kernel(in_vectors=True)
def copied_in_vectors(chunk, x, y, n, *, N):
    for i in rolled(range(0, n, N)):
        store(y, i, load(x, i, N, n - i), n - i)


@pytest.mark.parametrize(("register_bits", "plain"), [(128, 1), (256, 1), (512, 0)])
def test_stores_of_whole_vectors_have_no_mask_where_masks_are_slow(register_bits, plain):
    types = {"x": "float32", "y": "float32", "n": int}

    text = lower.module_text(copied_in_vectors.function, "f", types, {"N": 8}, False, False, register_bits)

    assert len(re.findall(r"^ *call void @llvm.masked.store", text, re.M)) == (register_bits > 128)
    assert len(re.findall(r"^ *store <8 x float>.* align 1$", text.partition("@body")[2], re.M)) == plain


@kernel(in_vectors=True)
def copied_in_sixteens(chunk, x, y, n):
    for i in rolled(range(0, n, 16)):
        store(y, i, load(x, i, 16, n - i), n - i)


FEW = [(128, "float32", 0), (256, "float16", 0), (256, "float32", 1), (512, "float16", 1)]


@pytest.mark.parametrize(("register_bits", "dtype", "masked"), FEW)
def test_first_elements_are_moved_by_one_function_where_no_instruction_does(register_bits, dtype, masked):
    text = lower.module_text(copied_in_sixteens.function, "f", {"x": dtype, "y": dtype, "n": int}, {}, False, False, register_bits)

    assert len(re.findall(r"^ *%.* = call .*@llvm.masked.load", text, re.M)) == masked
    assert len(re.findall(r"^define internal .*@first_16_", text, re.M)) == 1 - masked


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_first_elements_before_memory_that_cannot_be_read(dtype):
    size = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * size)
    held = np.frombuffer(memory, np.uint8)
    start = held.__array_interface__["data"][0]
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    assert protect(start + size, size, 0) == 0
    try:
        for n in (1, 7, 15, 16, 21, 32):
            x = held[:size].view(dtype)[size // np.dtype(dtype).itemsize - n :]
            x[...] = np.arange(n)
            y = np.full(40, -1, dtype)
            copied_in_sixteens.run(1, x, y, n)

            assert y.tolist() == [*range(n), *[-1] * (40 - n)]
    finally:
        protect(start + size, size, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 15, 16, 23])
def test_stores_of_the_first_elements_write_these_alone(n):
    x, y = np.arange(24, dtype=np.float32), np.full(24, -1, np.float32)

    copied_in_vectors.run(1, x, y, n, N=8)

    assert y.tolist() == [*range(n), *[-1] * (24 - n)]


def test_repeated_loops_have_copies_of_their_body():
    text = lower.module_text(chained.function, "f", {"x": "int64", "n": int}, {}, False, True, 256)
    once = text.replace("llvm.loop.unroll.count", "llvm.loop.unused")
    assembly, assembly_once = (llvm.machine().emit_assembly(t, llvm.LOOPS) for t in (text, once))

    for n in range(1, 12):
        x = np.arange(n)
        expected = x.tolist()
        for i in range(1, n):
            expected[i] = expected[i] * 3 + expected[i - 1]
        chained.run(1, x, n)
        assert x.tolist() == expected
    assert len(assembly.splitlines()) > len(assembly_once.splitlines()) + 10


def add_to_row(x, row, n, SIGN, more):
    for i in rolled(range(n)):
        x[row * n + i] += SIGN * (more + x[row * n + i] * 0)


@kernel
def with_functions_outlined(chunk, x, y, n):
    for row in rolled(range(0, 4, 2)):
        outlined(add_to_row)(x, row, n, 1.0, 10.0)
        outlined(add_to_row)(x, row + 1, n, -1.0, 10.0)
    outlined(add_to_row)(y, chunk, n, 1, 2)


def test_functions_outlined_are_made_once_for_kinds_and_constants():
    x, y = np.zeros((4, 3)), np.zeros((1, 3), np.int64)

    text = lower.module_text(with_functions_outlined.function, "f", {"x": "float64", "y": "int64", "n": int}, {}, False, True, 256)
    with_functions_outlined.run(1, x, y, 3)

    assert x.tolist() == [[10.0] * 3, [-10.0] * 3] * 2
    assert y.tolist() == [[2] * 3]
    assert text.count("define internal void @outlined") == 3


def squares(x):
    x[0] = x[0] * x[0]
    return x[0]


@kernel
def takes_a_result_from_outlined(chunk, x):
    outlined(squares)(x)


def test_a_function_apart_has_no_result():
    with pytest.raises(TypeError, match="squares has a result"):
        takes_a_result_from_outlined.run(1, np.ones(1))


@kernel
def through_vectors(chunk, x, out, n):
    for i in range(0, n, 8):
        v = load(x, i, 8, n - i)
        store(out, i, v * 1.5, n - i)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_vectors_of_half_types_are_rounded_to_nearest_even(dtype):
    x = np.random.default_rng(3).normal(size=101).astype(dtype)
    x[:3] = np.nan, np.inf, -np.inf
    out = np.zeros(102, dtype)

    through_vectors.run(1, x, out, 101)

    np.testing.assert_array_equal(out[:101].astype(float), (x.astype(np.float32) * np.float32(1.5)).astype(dtype).astype(float))
    assert out[101] == 0


@kernel
def smallest_of_few(chunk, x, out, n):
    v = load(x, 0, 8, n, 100.0)
    store(out, 0, v)


def test_lanes_beyond_the_first_hold_the_number_given():
    out = np.zeros(8, np.float32)

    smallest_of_few.run(1, np.arange(3, dtype=np.float16), out, 3)

    assert out.tolist() == [0, 1, 2] + [100] * 5
