"""Matrix products of arrays: every dtype, stride and size, the same bits on any number of threads."""

from __future__ import annotations

import functools
import itertools
import math
import os
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels
from flambeau_kernels.cpu.gemm import blas
from flambeau_kernels.cpu.products import matmul as product
from flambeau_kernels.engine import get_num_threads, set_num_threads
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.vocabulary import sigmoid, where

DTYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "int8": np.int8,
          "uint8": np.uint8, "int16": np.int16, "int32": np.int32, "int64": np.int64, "complex64": np.complex64,
          "complex128": np.complex128}  # fmt: skip
# Rounding of one operation; halves are rounded only once, at the end.
EPSILON = {"float32": 6e-8, "float64": 1.1e-16, "bfloat16": 4e-3, "float16": 4.9e-4, "complex64": 1.2e-7, "complex128": 2.2e-16}
SIZES = [(1, 1, 9001), (1, 300, 700), (300, 1, 701), (5, 3, 7), (33, 47, 801), (64, 65, 66), (130, 100, 401), (3, 2000, 50), (17, 33, 1),
         (29, 512, 385)]  # fmt: skip

compiled = pytest.mark.skipif(
    llvm.available() is not None or flambeau_kernels.backend() == "numpy", reason="needs the compiled tier"
)


@pytest.fixture(autouse=True)
def as_before():
    threads = get_num_threads()
    yield
    set_num_threads(threads)
    product.set_invariant(False)


def random(shape, dtype, transposed=False, seed=0):
    rng = np.random.default_rng(seed + sum(shape))
    stored = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
    if np.dtype(dtype).kind in "iu":
        made = rng.integers(0, 100, stored).astype(dtype)
    else:
        made = rng.standard_normal(stored)
        made = (made + 1j * rng.standard_normal(stored) if np.dtype(dtype).kind == "c" else made).astype(dtype)
    return made.swapaxes(-1, -2) if transposed else made


def assert_is_product(got: Any, a: Any, b: Any, bias: Any = 0.0) -> None:
    """`got` is ``a @ b + bias`` up to rounding: of each of the k additions, and of the result to its dtype."""
    name = got.dtype.name
    if got.dtype.kind in "iu":
        want = (a.astype(np.int64) @ b.astype(np.int64) + np.asarray(bias).astype(np.int64)).astype(got.dtype)
        np.testing.assert_array_equal(got, want)
        return
    wide: Any = np.complex128 if got.dtype.kind == "c" else np.float64
    x, y, z = a.astype(wide), b.astype(wide), np.asarray(bias).astype(wide)
    want, size = x @ y + z, abs(x) @ abs(y) + abs(z)
    added = EPSILON["float32" if name in ("bfloat16", "float16") else name] * (a.shape[-1] + 2) * size
    rounded = EPSILON[name] * abs(want) if name in ("bfloat16", "float16") else 0
    assert got.shape == want.shape
    assert (abs(got.astype(wide) - want) <= added + rounded + 1e-30).all()


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("name", DTYPES)
def test_every_size_and_transposition(name, invariant):
    product.set_invariant(invariant)
    for (m, n, k), ta, tb in itertools.product(SIZES, (False, True), (False, True)):
        a, b = random((m, k), DTYPES[name], ta), random((k, n), DTYPES[name], tb)

        assert_is_product(product.matmul(a, b), a, b)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "int32", "complex64"])
def test_strides_that_are_contiguous_along_nothing(name):
    a = random((80, 210), DTYPES[name])[::2, ::3]
    b = random((140, 400), DTYPES[name])[::2, ::4]
    reversed_ = random((70, 100), DTYPES[name])[::-1, ::-1]
    repeated = np.broadcast_to(random((1, 100), DTYPES[name]), (70, 100))

    for right in (b, reversed_, repeated):
        assert_is_product(product.matmul(a, right), a, right)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int64", "complex128"])
def test_batches_broadcast(name):
    a, b = random((3, 1, 40, 30), DTYPES[name]), random((1, 5, 30, 50), DTYPES[name], True)
    c = random((30, 50), DTYPES[name])

    assert_is_product(product.matmul(a, b), a, b)
    assert_is_product(product.matmul(a, c), a, c)


def test_tensors_of_one_matrix_each_time_moved_by_a_permutation():
    q, k = random((2, 30, 4, 32), np.float32), random((2, 40, 4, 32), np.float32, seed=1)
    a, b = q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1)

    assert_is_product(product.matmul(a, b), a, b)


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(100, 70, 900), (1, 3000, 400), (3000, 1, 400), (1, 1, 9000), (3, 4, 5)])
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "complex64"])
def test_bias_is_added_to_rows_or_columns(name, m, n, k, invariant):
    product.set_invariant(invariant)
    a, b = random((m, k), DTYPES[name]), random((k, n), DTYPES[name], True)
    for shape in ((n,), (1, n), (m, 1)):
        bias = random(shape, DTYPES[name], seed=5)

        assert_is_product(product.matmul(a, b, bias=bias), a, b, bias)


@pytest.mark.parametrize(("m", "n", "k"), [(100, 70, 900), (1, 3000, 400), (3000, 1, 400), (3, 4, 5)])
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "int8", "int32", "complex64"])
def test_products_are_added_to_what_is_there(name, m, n, k):
    a, b, c = random((m, k), DTYPES[name]), random((k, n), DTYPES[name]), random((m, n), DTYPES[name], seed=2)
    out = c.copy()

    assert product.matmul(a, b, out, accumulate=True) is out
    assert_is_product(out, a, b, c)


@pytest.mark.parametrize("order", ["rows", "columns", "neither"])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "complex64"])
def test_results_go_where_they_are_asked_to(name, order):
    a, b = random((60, 90), DTYPES[name]), random((90, 70), DTYPES[name])
    whole = np.zeros((140, 140), DTYPES[name])
    out = {"rows": whole[:60, :70], "columns": whole[:70, :60].T, "neither": whole[:120:2, ::2]}[order]

    product.matmul(a, b, out)

    assert_is_product(out, a, b)
    out[...] = 0
    assert not whole.any()                             # nothing beside it was written


def test_halves_can_be_summed_into_float32():
    a, b = random((60, 900), np.float16), random((900, 70), np.float16)
    out = np.empty((60, 70), np.float32)

    product.matmul(a, b, out)

    assert_is_product(out, a.astype(np.float32), b.astype(np.float32))


@pytest.mark.parametrize("shapes", [((0, 4), (4, 3)), ((4, 0), (0, 3)), ((2, 3, 0), (2, 0, 5)), ((0, 3, 4), (4, 5))])
def test_empty_operands(shapes):
    a, b = (np.ones(shape, np.float32) for shape in shapes)

    assert_is_product(product.matmul(a, b), a, b)
    np.testing.assert_array_equal(product.matmul(a, b, bias=np.ones(b.shape[-1], np.float32)), a @ b + 1)


def test_sizes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="a has 3 columns, b has 4 rows"):
        product.matmul(np.ones((2, 3)), np.ones((4, 5)))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(("m", "n", "k", "batch"), [
    (200, 150, 900, ()), (70, 64, 64, (20,)), (1, 4000, 300, ()), (4000, 1, 300, ()), (1, 1, 50000, ())])  # fmt: skip
def test_the_same_bits_on_any_number_of_threads(name, m, n, k, batch):
    a, b = random((*batch, m, k), DTYPES[name]), random((*batch, k, n), DTYPES[name])
    made = []
    for threads in (1, 2, 4):
        set_num_threads(threads)
        made += [product.matmul(a, b).tobytes() for _ in range(3)]

    assert set(made) == {made[0]}


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("batch", [(16,), (3, 5), (2, 1, 7), (4, 1)])
def test_matrices_that_meet_the_same_one_have_the_bits_of_one_product(name, batch, monkeypatch):
    """A batch with one matrix for all is multiplied as one of more rows, where its matrices and the results lie one below the other."""
    m, k, n = 37, 401, 150
    b, bias, column = (random(shape, DTYPES[name], seed=1) for shape in ((k, n), (n,), (m, 1)))
    a = random((*batch, m, k), DTYPES[name])
    turned = np.ascontiguousarray(a.swapaxes(-2, -3)).swapaxes(-2, -3)         # rows of other matrices lie between those of one
    plans = []
    found = product.plan_for
    monkeypatch.setattr(product, "plan_for", lambda *args, **settings: plans.append(found(*args, **settings)) or plans[-1])
    product._plans.clear()
    for x in (a, turned, a[..., ::2, :]):
        for added in (None, bias, bias[None], column[: x.shape[-2]]):
            got = product.matmul(x, b, bias=added)
            one_by_one = np.stack([product.matmul(each, b, bias=added) for each in x.reshape(-1, *x.shape[-2:])])

            assert_is_product(got, x, b, 0.0 if added is None else added)
            if product.has_microkernels():
                assert got.tobytes() == one_by_one.tobytes()
    accumulated = product.matmul(a, b, np.ones((*batch, m, n), DTYPES[name]), accumulate=True)
    assert_is_product(accumulated, a, b, np.ones(1))
    if product.has_microkernels():
        from flambeau_kernels.cpu.gemm import driver

        rows, dims = {int(plan[driver.M]) for plan, _ in plans}, {int(plan[driver.DIMS]) for plan, _ in plans}
        assert math.prod(batch) * m in rows
        assert min(dims) == 0 < max(dims)


@compiled
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "complex64"])
def test_deterministic_products_do_not_depend_on_the_other_rows(name):
    dtype = getattr(fb, name)
    made = np.complex64 if name == "complex64" else np.float64
    x, weight = (fb.from_numpy(random(shape, made)).to(dtype) for shape in ((300, 500), (500, 90)))
    fb.use_deterministic_algorithms(True)
    try:
        whole = x @ weight
        for rows in (1, 2, 7, 64):
            part = x[:rows] @ weight
            assert (part == whole[:rows]).all()
            assert (x[:rows].unsqueeze(0).expand(2, rows, 500) @ weight == whole[:rows]).all()
        for columns in (1, 3, 40):
            assert (x @ weight[:, :columns] == whole[:, :columns]).all()
        assert (fb.mv(x, weight[:, 4]) == whole[:, 4]).all()
        assert (x.contiguous()[5] @ weight == whole[5]).all()
    finally:
        fb.use_deterministic_algorithms(False)


def test_without_determinism_small_products_use_the_small_functions_again():
    a = fb.ones(4, 4)
    fb.use_deterministic_algorithms(True)
    fb.use_deterministic_algorithms(False)

    assert (a @ a == 4).all()
    assert flambeau_kernels.hot_calls.matmul(a._array, a._array) is not None


def test_eight_python_threads_at_once():
    jobs = [(random((90 + i, 300), np.float32), random((300, 80 + i), np.float32)) for i in range(8)]
    jobs += [(a.astype(np.complex64), b.astype(np.complex64)) for a, b in jobs]
    want = [product.matmul(a, b).tobytes() for a, b in jobs]
    wrong = []

    def work(first):
        for i in range(60):
            a, b = jobs[(first + i) % len(jobs)]
            if product.matmul(a, b).tobytes() != want[(first + i) % len(jobs)]:
                wrong.append((first, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


@compiled
def test_the_users_own_number_of_blas_threads_is_restored():
    from flambeau_kernels.cpu.gemm import blas

    if blas.one_thread is None:
        pytest.skip("numpy's BLAS is not an OpenBLAS that says how many threads it uses")
    before = blas.one_thread._get()
    a = random((200, 200), np.complex64)
    product.matmul(a, a)

    assert blas.one_thread._get() == before
    with blas.single_threaded(), blas.single_threaded():
        assert blas.one_thread._get() == 1
    assert blas.one_thread._get() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_products_work_in_a_child_after_they_were_used(fresh_python):
    program = """
import os, sys
import numpy as np
from flambeau_kernels.cpu.products.matmul import matmul
a = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
c = a.astype(np.complex64)
want = matmul(a, a).tobytes(), matmul(c, c).tobytes()
child = os.fork()
same = (matmul(a, a).tobytes(), matmul(c, c).tobytes()) == want
if not child:
    os._exit(0 if same else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or (0 if same else 4))
"""
    fresh_python("-c", program)  # fails where the status is not 0


def test_numpys_backend_compiles_nothing(monkeypatch):
    def refuse(*args):
        raise AssertionError("compiled")

    before = flambeau_kernels.backend()
    flambeau_kernels.set_backend("numpy")
    monkeypatch.setattr(llvm, "compile_symbols", refuse)
    try:
        for dtype in DTYPES.values():
            a, b = random((90, 110), dtype), random((110, 70), dtype)
            assert_is_product(product.matmul(a, b, bias=random((70,), dtype)), a, b, random((70,), dtype))
    finally:
        flambeau_kernels.set_backend(before)


@compiled
@pytest.mark.parametrize("name", ["float32", "bfloat16", "complex64", "int32"])
def test_without_a_compiler_or_known_structs_results_are_the_same(monkeypatch, name):
    from flambeau_kernels.cpu.gemm import blas, driver, tiles

    a, b = random((90, 110), DTYPES[name]), random((110, 70), DTYPES[name])
    monkeypatch.setattr(driver, "runner", lambda: driver._run_by_ctypes)
    product._plans.clear()
    assert_is_product(product.matmul(a, b), a, b)

    monkeypatch.setattr(tiles, "machine", lambda: None)
    monkeypatch.setattr(blas, "routine", lambda name: 0)
    product._plans.clear()
    try:
        assert_is_product(product.matmul(a, b), a, b)
    finally:
        product._plans.clear()


def test_matrices_with_rows_whole_pages_apart():
    for dtype, (m, n, k) in itertools.product(("float32", "float64", "bfloat16"), ((130, 1024, 1024), (1024, 130, 512), (20, 2048, 700))):
        for ta, tb in itertools.product((False, True), (False, True)):
            a, b = random((m, k), DTYPES[dtype], ta), random((k, n), DTYPES[dtype], tb)

            assert_is_product(product.matmul(a, b), a, b)


@compiled
@pytest.mark.parametrize(("triple", "cpu", "vector", "rows", "vectors"), [
    ("x86_64-unknown-linux-gnu", "haswell", 32, 6, 2), ("aarch64-unknown-linux-gnu", "neoverse-n1", 16, 6, 4),
    ("x86_64-unknown-linux-gnu", "skylake-avx512", 64, 14, 2)])  # fmt: skip
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_the_sums_of_a_tile_stay_in_registers_on_every_kind_of_processor(triple, cpu, vector, rows, vectors, name):
    from flambeau_kernels.cpu.gemm import micro, tiles, values
    from flambeau_kernels.cpu.gemm.text import METADATA

    kind = tiles.Kind(name, name, tiles.Machine(vector, rows, vectors))
    tile = micro.tile(kind, rows, vectors, loops=micro.PACKED | micro.COPYING)
    functions = (tile.text() + micro.finish(kind).text()).replace("define internal", "define")
    text = llvm.Machine(triple, cpu, "").emit_assembly(values.declarations(kind) + functions + METADATA, llvm.WRITTEN)
    loops = [loop for loop in _loops(text) if sum("fmadd" in x or "fmla" in x for x in loop) == rows * vectors]

    assert len(loops) >= 3                                # of A as it lies, packed, and with B copied; jumps may span others
    for loop in sorted(loops, key=len)[:3]:
        # Between the loads of B and of A nothing is written to the stack, and what is read there are addresses and numbers of bytes.
        stack = [x for x in loop if "(%rsp" in x or "[sp" in x]
        assert not [x for x in stack if "mm" in x or "\tq" in x or x.startswith("st") or x.endswith("(%rsp)")], stack


@compiled
@pytest.mark.parametrize(("vector", "rows", "name", "direct"), [
    (64, 14, "float32", True), (32, 6, "float32", False), (32, 6, "float64", True)])  # fmt: skip
def test_a_transposed_operand_is_packed_where_a_tile_reads_less_than_half_of_each_line(vector, rows, name, direct):
    """With AVX2 a transposed matrix of 1000 x 1000 took 28 % longer than one in rows."""
    from flambeau_kernels.cpu.gemm import block, driver, tiles

    kind = tiles.Kind(name, name, tiles.Machine(vector, rows, 2))
    size = np.dtype(name).itemsize
    turned = driver.new_plan((1000, 1000, 1000), (size, 1000 * size, 1000 * size, size, 1000 * size, size))
    in_rows = driver.new_plan((1000, 1000, 1000), (1000 * size, size, 1000 * size, size, 1000 * size, size))

    assert bool(block.direct(turned, kind) & block.A_DIRECT) == direct
    assert block.direct(in_rows, kind) & block.A_DIRECT


def _loops(assembly):
    """The runs of instructions between a label and a jump back to it."""
    lines = [x.strip() for x in assembly.splitlines()]
    labels = {x[:-1]: i for i, x in enumerate(lines) if x.endswith(":")}
    for i, x in enumerate(lines):
        parts = x.replace(",", " ").split()
        if parts and parts[-1] in labels and labels[parts[-1]] < i:
            yield lines[labels[parts[-1]] : i]


# -- products with what follows them -------------------------------------------------------------------------------------


def _swish(made):
    return made * sigmoid(made)


def _added(made, beside):
    return beside + made


def _swish_added(made, beside):
    return beside + made * sigmoid(made)


FOLLOWING = {f.__name__: flambeau_kernels.Formula(f) for f in (_swish, _added, _swish_added)}
FOLLOWING |= {"rectified": product.RECTIFIED, "rectified_too": flambeau_kernels.Formula(lambda made: where(made < 0, 0, made))}
# From less than a compiled loop takes to several blocks and several steps along k, and products with few rows and one column.
FOLLOWED = [(3, 5, 7), (40, 33, 50), (130, 257, 801), (5, 300, 512), (300, 1, 64), (256, 256, 1200)]


def followed(a, b, formula, bias, beside):
    """What `matmul_then` is to give: the product, then the formula, as two operations."""
    made = product.matmul(a, b, bias=bias)
    flambeau_kernels.launch(formula, (made,) if beside is None else (made, beside), (made,), made.dtype)
    return made


@pytest.mark.parametrize(("formula", "name"), [
    ("_added", "complex64"), ("_added", "int32"), ("rectified", "int64"),
    *itertools.product(FOLLOWING, ("float32", "float64", "bfloat16", "float16"))])  # fmt: skip
def test_product_and_formula_have_the_bits_of_one_after_the_other(formula, name):
    for m, n, k in FOLLOWED:
        a, b, bias = random((m, k), DTYPES[name]), random((k, n), DTYPES[name], transposed=True), random((n,), DTYPES[name])
        wide = random((m, n + 3), DTYPES[name], seed=1)
        for beside in (wide[:, :n].copy(), wide[:, 3:], np.asfortranarray(wide[:, :n])) if "added" in formula else (None,):
            for b_or_none in (bias, None):
                got = product.matmul_then(a, b, FOLLOWING[formula], bias=b_or_none, beside=beside)

                assert got.tobytes() == followed(a, b, FOLLOWING[formula], b_or_none, beside).tobytes()


def test_product_and_formula_are_what_float64_says():
    a, b, beside = random((200, 300), np.float32), random((300, 150), np.float32), random((200, 150), np.float32, seed=1)

    got = product.matmul_then(a, b, FOLLOWING["_swish_added"], bias=b[0], beside=beside)

    z = a.astype(np.float64) @ b.astype(np.float64) + b[0]
    np.testing.assert_allclose(got, beside + z / (1 + np.exp(-z)), rtol=1e-5, atol=2e-4)


def test_rectified_product_keeps_nan():
    a = random((100, 300), np.float32)
    a[7, 3] = np.nan

    got = product.matmul_then(a, random((300, 70), np.float32), product.RECTIFIED)

    assert np.isnan(got[7]).all()
    assert (np.delete(got, 7, 0) >= 0).all()


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_rectified_product_keeps_the_sign_of_zero(name):
    a, b = np.full((40, 300), 2.0**-14, DTYPES[name]), np.full((300, 70), -(2.0**-24) if name == "float16" else -0.0, DTYPES[name])

    got = product.matmul_then(a, b, product.RECTIFIED, bias=np.full(70, -0.0, DTYPES[name]))

    want = product.matmul(a, b, bias=np.full(70, -0.0, DTYPES[name]))
    assert np.array_equal(np.signbit(got), np.signbit(want))
    assert not got.any()


def test_product_and_formula_on_any_number_of_threads():
    a, b, beside = random((300, 500), np.float32), random((500, 400), np.float32), random((300, 400), np.float32, seed=1)
    made = []
    for threads in (1, 2, 4):
        set_num_threads(threads)
        made.append(product.matmul_then(a, b, FOLLOWING["_swish_added"], bias=b[0], beside=beside).tobytes())

    assert made[0] == made[1] == made[2]


@pytest.mark.skipif(not product.has_microkernels(), reason="products are BLAS's on this engine or processor, formulas a pass more")
@compiled
def test_product_and_formula_make_one_plan(monkeypatch):
    """No second pass over the result where our own kernels make it; that the values agree would not show one."""
    a, b, beside = random((300, 500), np.float32), random((500, 400), np.float32), random((300, 400), np.float32, seed=1)
    product._plans.clear()
    monkeypatch.setattr(flambeau_kernels, "launch", None)

    assert product.matmul_then(a, b, product.RECTIFIED).shape == (300, 400)
    assert product.matmul_then(a, b, flambeau_kernels.Formula(_swish_added), beside=beside).shape == (300, 400)


def test_product_and_formula_by_numpy_agree_with_the_compiled_ones():
    a, b, beside = random((100, 300), np.float32), random((300, 90), np.float32), random((100, 90), np.float32, seed=1)
    got = product.matmul_then(a, b, FOLLOWING["_swish_added"], beside=beside)
    before = flambeau_kernels.backend()
    flambeau_kernels.set_backend("numpy")
    try:
        want = product.matmul_then(a, b, FOLLOWING["_swish_added"], beside=beside)
    finally:
        flambeau_kernels.set_backend(before)

    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_rows_of_a_spread_result_are_not_whole_pages_apart(name):
    n = 4096 // np.dtype(DTYPES[name]).itemsize
    a, b, beside = random((70, 90), DTYPES[name]), random((90, n), DTYPES[name]), random((70, n), DTYPES[name], seed=1)
    for formula, other in ((product.RECTIFIED, None), (FOLLOWING["_swish_added"], beside)):
        got = product.matmul_then(a, b, formula, beside=other, spread=True)

        assert got.strides == (4096 + 64, got.itemsize)
        assert got.tobytes() == product.matmul_then(a, b, formula, beside=other).tobytes()
    assert product.matmul_then(a, b[:, 1:], product.RECTIFIED, spread=True).flags.c_contiguous


def test_rows_of_b_are_copied_for_tiles_below_the_first():
    """A tile of six rows searched for each row of B where it lay, and a matrix with rows whole pages apart was copied beforehand."""
    from flambeau_kernels.cpu.gemm import block, driver, tiles

    def how(rows: int, vector: int, m: int, n: int, name: str = "float32") -> int:
        kind = tiles.Kind(name, name, tiles.Machine(vector, rows, 2))
        plan = driver.new_plan((m, n, 256), (1028, kind.size, kind.size * n, kind.size, kind.size * n, kind.size))
        return block.direct(plan, kind) & (block.B_DIRECT | block.B_COPIED)

    assert how(6, 32, 512, 1000) == how(6, 32, 7, 1024) == how(14, 64, 512, 1000) == how(14, 64, 15, 1024) == block.B_COPIED
    assert how(6, 32, 6, 1024) == how(14, 64, 14, 1024) == block.B_DIRECT      # no tile below
    assert how(6, 32, 512, 1000, "int32") == 0                                 # packed beforehand
    assert how(14, 64, 512, 1000, "int32") == block.B_DIRECT


def let_few_rows_take_over(monkeypatch, price: float) -> None:
    """Have the module for products of few rows take over once calls without it have paid `price`, whatever the cache holds."""
    from flambeau_kernels.cpu.gemm import block
    from flambeau_kernels.takeover import Waiting

    waiting = functools.cache(lambda kind: Waiting(price))
    monkeypatch.setattr(block, "_waiting", waiting)
    monkeypatch.setattr(block, "is_kept", lambda symbol, facts: False)
    product.set_invariant(False)                          # forgets all plans


@pytest.mark.skipif(not product.has_microkernels(), reason="products are BLAS's on this engine or processor")
def test_the_module_for_few_rows_takes_over_once_products_without_it_have_paid_for_it(monkeypatch):
    """A program that multiplied few rows a few times compiled twice, a tenth of a second each time."""
    from flambeau_kernels.cpu.gemm import block

    asked: list[bool] = []
    compiled_as = block.block
    monkeypatch.setattr(block, "block", lambda kind, few: asked.append(few) or compiled_as(kind, few))
    let_few_rows_take_over(monkeypatch, 1.0)
    a, b = random((3, 512), np.float32), random((512, 800), np.float32, seed=1)   # in a cache: little is lost
    made = [product.matmul(a, b).tobytes() for _ in range(60)]
    assert asked == [False, True]
    assert len(set(made)) == 1
    product.matmul(a[:2], b)                              # now there is one
    assert asked == [False, True, True]


@pytest.mark.skipif(not product.has_microkernels(), reason="products are BLAS's on this engine or processor")
@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("n", [31, 64, 1000, 1033, 1024])
@pytest.mark.parametrize("taken_over", [False, True])
def test_rows_have_the_same_bits_however_many_there_are(name, n, taken_over, monkeypatch):
    """Tiles read B in place for few rows, in their own module once it has taken over, and for more from what the first of them copied."""
    let_few_rows_take_over(monkeypatch, 0 if taken_over else math.inf)
    for k in (40, 400, 801):
        a, b = random((50, k), DTYPES[name]), random((k, n), DTYPES[name], seed=1)
        bias, tall = random((n,), DTYPES[name], seed=2), np.concatenate([a] * 9)
        whole, shifted = product.matmul(tall, b), product.matmul(tall, b, bias=bias)
        for m in (2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 28, 29, 48):
            if m * k * n > product.MOST_PRODUCTS:         # and BLAS does not multiply
                assert product.matmul(a[:m], b).tobytes() == whole[:m].tobytes(), (m, k)
                assert product.matmul(a[:m], b, bias=bias).tobytes() == shifted[:m].tobytes(), (m, k)
                assert product.matmul_then(a[:m], b, product.RECTIFIED).tobytes() == np.where(whole[:m] < 0, 0, whole[:m]).tobytes()


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int8"])
def test_rows_that_lie_side_by_side_are_packed_for_several_tiles(name):
    """Each tile used to read a part of every line of a transposed A for itself."""
    for m in (1, 5, 6, 13, 47, 48, 49, 96, 151):
        for k in (1, 7, 64, 401):
            a, b = random((k, m), DTYPES[name]), random((k, 150), DTYPES[name], seed=1)
            got, expected = product.matmul(a.T, b), product.matmul(np.ascontiguousarray(a.T), b)

            close = {"float64": 1e-12, "float32": 1e-4, "float16": 1e-2, "int8": 0}[name]
            assert np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=close, atol=close), (m, k)
            # Sums of BLAS, which multiplies small matrices, may have another order where rows are columns.
            if product.has_microkernels() and m * k * 150 > product.MOST_PRODUCTS:
                assert got.tobytes() == expected.tobytes(), (m, k)


def test_a_product_is_cut_by_the_number_of_threads_and_keeps_its_bits():
    from flambeau_kernels.engine import get_num_threads, set_num_threads

    a, b, bias = (random(shape, np.float32, seed=i) for i, shape in enumerate(((515, 800), (800, 389), (389,))))
    before, found = get_num_threads(), {}
    try:
        for threads in (1, 2, 3, 8):
            set_num_threads(threads)
            assert not product._plans or not product.has_microkernels()
            made = product.matmul(a, b, bias=bias), product.matmul(b.T, a.T), product.matmul_then(a, b, product.RECTIFIED, bias=bias)
            found[threads] = [x.tobytes() for x in made]
    finally:
        set_num_threads(before)
    assert all(one == found[1] for one in found.values())


def test_an_operand_that_is_packed_is_not_packed_for_narrow_blocks():
    """2048 rows were multiplied with 32 columns at a time, so that all of A was read again 64 times."""
    tall, wide, _ = product._grid(2048, 2048, 2048, 1, 6, 16, 368, (False, True))
    assert min(tall, wide) >= 128


@pytest.mark.parametrize(("m", "n", "k"), [(256, 1024, 1024), (1024, 1024, 1024), (128, 512, 784), (16, 4096, 4096), (128, 128, 128)])
@pytest.mark.parametrize(("rows", "width"), [(14, 32), (6, 16)])
def test_two_threads_have_as_much_to_do(m, n, k, rows, width):
    """1024 columns in blocks of 192 left one thread with 576 of them, and a product took 12 % longer than half of it."""
    tall, wide, _ = product._grid(m, n, k, 1, rows, width, 352, (False, True), 6, 2)
    blocks = [(min(tall, m - i) * min(wide, n - j)) for i in range(0, m, tall) for j in range(0, n, wide)]

    most = max(sum(blocks[: len(blocks) // 2]), sum(blocks[len(blocks) // 2 :]))
    assert most <= 0.52 * m * n
    assert most <= product._longest(m, n, 1, tall, wide, 2)


@pytest.mark.parametrize(("rows", "guarded"), [(48, False), (192, True), (7000, False)])
def test_products_of_numpy_have_one_thread_of_blas_where_more_gain_little(rows, guarded, monkeypatch):
    entered = []

    class Guard:
        def __enter__(self):
            entered.append(True)

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(blas, "one_thread", Guard())
    monkeypatch.setattr(product, "_plans", {})
    before = flambeau_kernels.backend()
    flambeau_kernels.set_backend("numpy")
    try:
        made = product.matmul(np.ones((2, rows, 32), np.float32), np.ones((2, 32, 65), np.float32))
    finally:
        flambeau_kernels.set_backend(before)

    assert (made == 32).all()
    assert bool(entered) is guarded


LONG_SUMS = [(1, 1, 400_007), (4, 1, 200_003), (1, 4, 200_003), (5, 7, 50_000)]


@compiled
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize(("m", "n", "k"), LONG_SUMS)
def test_long_sums_of_few_elements_are_cut_for_threads_and_have_the_same_bits_on_any_number(name, m, n, k):
    assert product._parts_of_sums(m, n, k) > 1
    for ta, tb in itertools.product((False, True), (False, True)):
        a, b = random((m, k), DTYPES[name], ta), random((k, n), DTYPES[name], tb, seed=1)
        bias = np.arange(n, dtype=np.int32 if name == "int32" else np.float32 if name.endswith("16") else a.dtype)
        made = []
        for threads in (1, 2):
            set_num_threads(threads)
            made.append(product.matmul(a, b, bias=bias))

        np.testing.assert_array_equal(made[0], made[1])
        assert_is_product(made[0], a, b, bias)


@compiled
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "int8", "int64"])
@pytest.mark.parametrize(("m", "n", "k"), [(5000, 1, 4), (1, 5000, 4), (5000, 1, 1), (70, 90, 1), (1, 5000, 7), (30_000, 1, 8)])
def test_rows_of_a_few_elements(name, m, n, k):
    for ta, tb in itertools.product((False, True), (False, True)):
        a, b = random((m, k), DTYPES[name], ta), random((k, n), DTYPES[name], tb)
        bias = np.ones(n, np.float32 if name.endswith("16") else a.dtype)

        assert_is_product(product.matmul(a, b), a, b)
        assert_is_product(product.matmul(a, b, bias=bias), a, b, bias)
        assert_is_product(product.matmul(a, b, np.empty((m, 2 * n), a.dtype)[:, ::2]), a, b)


def test_single_products_are_never_minus_zero():
    made = product.matmul(np.full((100, 1), -1.0, np.float32), np.zeros((1, 100), np.float32))

    assert not np.signbit(made).any()


@compiled
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16"])
def test_long_dot_products_are_shared_by_threads(name):
    a, b = random((400_000, 1), DTYPES[name])[:, 0], random((400_001, 1), DTYPES[name], seed=1)[1:, 0]

    made = product.dot(a, b)

    assert made.dtype == a.dtype
    assert_is_product(made.reshape(1, 1), a[None], b[:, None])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("n", [1, 511, 512, 40_001, 300_007])
def test_inner_products_of_integers_wrap_around_as_numpys(dtype, n):
    a, b = (np.random.default_rng(k).integers(-100, 100, 2 * n).astype(dtype) for k in range(2))

    for x, y in ((a[:n], b[:n]), (a[::2], b[n:]), (a[::2], b[::-2])):
        made = product.dot(x, y)
        assert made.dtype == dtype
        assert made.shape == ()
        assert made == np.dot(x, y)
    assert fb.dot(fb.from_numpy(a), fb.from_numpy(b)).item() == np.dot(a, b)


@compiled
def test_inner_products_of_integers_are_one_call_of_a_kernel(monkeypatch):
    monkeypatch.setattr(np, "dot", None)              # which adds one product after the other

    assert product.dot(np.ones(1000, np.int8), np.ones(1000, np.int8)) == np.int8(1000 - 1024)
