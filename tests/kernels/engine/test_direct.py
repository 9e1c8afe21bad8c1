"""Formulas called without a plan: what they answer, what they refuse, and that answers are those of the general way."""

from __future__ import annotations

import itertools
import sys

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau import _arrays
from flambeau.ops import _derive
from flambeau.ops._spec import OPS, ElementwiseOp
from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import where

pytestmark = pytest.mark.skipif(not compiles(), reason="nothing can be compiled here")

N = 70_001


def array(dtype, seed=0, shape=(N,)):
    values = np.random.default_rng(seed).normal(size=shape) * 40
    return values.astype(dtype)


def specialised(fn, inputs, result, compute):
    """A formula that has run on `inputs` once."""
    formula = Formula(fn)
    shape = next(a.shape for a in inputs if isinstance(a, np.ndarray))
    out, compute = np.empty(shape, result), np.dtype(compute)
    kernels.launch(formula, inputs, (out,), compute)
    kernels.specialise(formula, inputs, out, compute)
    return formula, out


CASES = {
    "two arrays": (lambda a, b: a * b - a, (array("float32"), array("float32", 1)), "float32", "float32"),
    "a float": (lambda a, b: a * b - a, (array("float64"), 1.7), "float64", "float64"),
    "an integer": (lambda a, b: a * b - a, (array("int64"), 1_000_003), "int64", "int64"),
    "a number first": (lambda a, b: a * b - a, (0.3, array("float32")), "float32", "float32"),
    "halves": (lambda a, b: a * b - a, (array(ml_dtypes.bfloat16), array(ml_dtypes.bfloat16, 1)), ml_dtypes.bfloat16, "float32"),
    "mixed": (lambda a, b: a * b - a, (array("int32"), array("float64")), "float64", "float64"),
    "a truth": (lambda a, b: a > b, (array("float32"), array("float32", 1)), "bool", "float32"),
    "three": (lambda a, b, c: a * b - c, (array("float32"), 2.5, array("float32", 1)), "float32", "float32"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_that_of_a_launch_with_any_number_of_threads(case):
    fn, inputs, result, compute = CASES[case]
    formula, out = specialised(fn, inputs, result, compute)
    before = fb.get_num_threads()
    try:
        for threads in (1, 2, 4):
            fb.set_num_threads(threads)
            made = formula.direct(*inputs)
            assert made.dtype == out.dtype
            np.testing.assert_array_equal(made.view(np.uint8), out.view(np.uint8))
    finally:
        fb.set_num_threads(before)


def test_shapes_are_kept_and_sizes_need_not_be_those_it_was_taught_with():
    formula, _ = specialised(lambda a, b: a - b, (array("float32"), array("float32", 1)), "float32", "float32")
    for shape in [(300,), (257, 3, 100), (1, 1_000_003), (2, 500_000)]:
        a, b = array("float32", 2, shape), array("float32", 3, shape)
        np.testing.assert_array_equal(formula.direct(a, b), a - b)


def test_what_it_was_not_taught_is_refused():
    formula, _ = specialised(lambda a, b: a - b, (array("int64"), 3), "int64", "int64")
    a = array("int64")
    assert formula.direct(a, 5) is not None
    refused = [(a,), (a, 5, 5), (a, a), (a, 5.0), (a, True), (a, 1 << 60), (a, -(1 << 70)), (a, "5"), (a, np.int64(5)), (5, a),
               (a.astype("int32"), 5), (a[:0], 5), (a.view(type("Sub", (np.ndarray,), {})), 5), (fb.from_numpy(a), 5), ()]  # fmt: skip
    assert [args for args in refused if formula.direct(*args) is not None] == []
    two, _ = specialised(lambda a, b: a - b, (a, a), "int64", "int64")
    assert two.direct(a, a[1:]) is two.direct(a[:70_000], a[:70_000].reshape(7, -1)) is None


def shapes_that_broadcast(r):
    """Two arrays of up to four dimensions, with strides of all sorts."""
    shape = tuple(r.integers(1, 5, r.integers(0, 5)))

    def one():
        lengths = [n if r.random() < 0.8 else 1 for n in shape[r.integers(0, len(shape) + 1) if r.random() < 0.4 else 0 :]]
        a = r.standard_normal([2 * n for n in lengths]).astype("float32")
        a = np.asarray(a[tuple(slice(0, 2 * n, 2) if r.random() < 0.3 else slice(0, n) for n in lengths)])
        kind = r.integers(0, 4)
        return np.ascontiguousarray(a) if kind == 0 and a.ndim else np.asfortranarray(a) if kind == 1 else a

    return one(), one()


def test_small_operands_of_any_strides_are_broadcast():
    formula, _ = specialised(lambda a, b: a * b + a, (array("float32", 0, (4, 4)), array("float32", 1, (4,))), "float32", "float32")
    out = np.empty((4, 2), "float32")
    kernels.specialise(formula, (array("float32", 0, (4, 4))[:, ::2],) * 2, out, np.dtype("float32"))
    r, taken = np.random.default_rng(0), 0
    for _ in range(4000):
        a, b = shapes_that_broadcast(r)
        expected = a * b + a
        made = formula.direct(a, b)
        if made is not None:
            taken += 1
            laid_out = _arrays.empty_like_layout(expected.shape, a.dtype, [a, b])
            assert made.shape == expected.shape
            assert all(s == t for s, t, n in zip(made.strides, laid_out.strides, made.shape, strict=True) if n > 1)
            np.testing.assert_array_equal(made, expected)
        target = a.copy(order="K")
        written = formula.direct_(target, b)
        if written is not None:
            assert written is target
            np.testing.assert_array_equal(target, expected)
        else:
            np.testing.assert_array_equal(target, a)
        assert (written is None) or target.shape == expected.shape
    assert taken > 3500


def test_a_column_and_a_row_of_several_hundred_elements_are_answered():
    """They took 25 us in Python in each call, three times as long as the loop."""
    column, row = array("float32", 0, (500, 1)), array("float32", 1, (1, 500))
    formula, out = Formula(lambda a, b: a - b), np.empty((500, 500), "float32")
    kernels.specialise(formula, (column, row), out, out.dtype)

    assert formula.direct(column, row).tobytes() == (column - row).tobytes()
    column, row = array("float32", 0, (2000, 1)), array("float32", 1, (1, 2000))
    assert formula.direct(column, row).tobytes() == (column - row).tobytes()


def learned(formula, operands, compute):
    """The result in C order of `operands` of any shapes, of which `formula` has been told."""
    out = np.empty(np.broadcast_shapes(*(a.shape for a in operands)), compute)
    kernels.launch(formula, operands, (out,), out.dtype)
    kernels.specialise(formula, operands, out, out.dtype)
    return out


def test_what_each_column_has_on_other_cache_lines_is_packed_up_to_a_size():
    def crossing(n):
        return array("float32", 0, (n, 1)), np.ones((n, 2 * n), "float32")[:, ::2].T

    formula = Formula(lambda a, b: a - b)
    out = learned(formula, crossing(500), "float32")

    assert formula.direct(*crossing(500)).tobytes() == out.tobytes()
    assert formula.direct(*crossing(2000)) is None


# Which of three operands are one value in all of a row; the others are contiguous.
def test_empty_operands_are_refused_also_where_full_ones_are_packed():
    """Their tiles were cut by a length of 0, which ended the process."""
    formula = Formula(lambda a, b: a - b)
    learned(formula, (array("float32", 0, (8, 9, 10)), array("float32", 1, (8, 10, 9)).transpose(0, 2, 1)), "float32")
    empty = np.ones((5, 3, 4), "float32").transpose(0, 2, 1)[:, :0]

    assert formula.direct(np.ones((1, 4, 3), "float32")[:, :0], empty) is None


@pytest.mark.parametrize("n", [3, 100, 129, 5000, 70000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_operands_of_one_value_a_row_are_answered_whichever_they_are(dtype, n):
    formula = Formula((lambda a, b, c: where(a, b, c)) if dtype == "bool" else (lambda a, b, c: where(a < b, a, b) + c))
    compute = "float32" if dtype == "bool" else dtype
    answered, kinds = 0, set()
    for at, shapes in enumerate(itertools.product([(2, n), (), (2, 1), (n,)], repeat=3)):
        operands = tuple(np.asarray(array(dtype if k == 0 else compute, at + k, shape)) for k, shape in enumerate(shapes))
        if any(a.dtype != compute for a in operands) and len({a.ndim > 0 for a in operands}) > 1:
            continue
        out = learned(formula, operands, compute)
        made = formula.direct(*operands)
        assert made is None or (made.shape, made.tobytes()) == (out.shape, out.tobytes())
        kinds.add(tuple(shape[-1:] == (n,) for shape in shapes))
        answered += made is not None
        assert made is not None or len(kinds) > 3     # there are loops for the first two kinds beside that for rows
    assert answered > 20


def test_the_order_of_the_result_in_memory_says_what_a_row_is():
    x = array("float32", 0, (2, 40, 6, 5)).transpose(0, 3, 1, 2)
    for other in (array("float32", 1, (5, 1, 1)), array("float32", 2, (2, 1, 1, 1))):
        expected, formula = x * other, Formula(lambda a, b: a * b)
        kernels.launch(formula, (x, other), (expected,), expected.dtype)
        kernels.specialise(formula, (x, other), expected, expected.dtype)
        made, written = formula.direct(x, other), x.copy(order="K")
        assert made.strides == expected.strides == x.strides
        assert np.array_equal(made, expected)
        assert formula.direct_(written, other) is written
        assert np.array_equal(written, expected)


@pytest.mark.parametrize("n", [5, 128, 3000])
def test_a_column_of_a_matrix_is_answered_once_it_was_seen(n):
    column = array("float32", shape=(n, 2))[:, 1:]
    other = array("float32", 1, (n, 1))
    formula, out = specialised(lambda a, b: a * b - a, (column, other), "float32", "float32")

    assert formula.direct(column, other).tobytes() == out.tobytes()
    assert formula.direct(other, column).tobytes() == (other * column - other).tobytes()


def test_what_overlaps_in_part_is_not_written():
    formula, _ = specialised(lambda a, b: a + b, (array("float32", 0, (4, 4)), array("float32", 1, (4,))), "float32", "float32")
    kernels.specialise(formula, (array("float32", 0, (4, 4))[:, ::2],) * 2, np.empty((4, 2), "float32"), np.dtype("float32"))
    a = np.arange(64, dtype="float32").reshape(8, 8)
    assert formula.direct_(a[:, ::2], a[:, ::2]) is not None
    before = a.copy()
    once = np.lib.stride_tricks.as_strided(a, (4, 4), (0, 4))
    rows = np.lib.stride_tricks.as_strided(a, (4, 4), (8, 4))
    frozen = a[:, ::2]
    frozen.flags.writeable = False
    for target, other in [(a, a[0]), (a[:, :4], a[:, 4:]), (a[1:, ::2], a[:-1, ::2]), (a[:4, :4].T, a[:4, :4]), (once, a[7, :4]),
                          (rows, a[7, :4]), (frozen, a[7, :4]), (a[0], a)]:  # fmt: skip
        assert formula.direct_(target, other) is None
    np.testing.assert_array_equal(a, before)
    assert formula.direct_(a[:4], a[7]) is not None


def test_dtypes_are_promoted_only_where_all_have_dimensions_or_none():
    formula, _ = specialised(lambda a, b: a + b, (array("float32", 0, (4, 4)), array("float64", 0, (4, 4))), "float64", "float64")
    kernels.specialise(formula, (array("float32", 0, (4, 4)), array("float64", 0, (4,))), np.empty((4, 4)), np.dtype("float64"))
    a = array("float32", 0, (4, 4))
    assert formula.direct(a, array("float64", 0, (4,))).dtype == "float64"
    assert formula.direct(a, np.array(2.0)) is formula.direct(np.array(1, "float32"), np.ones(3)) is None
    assert formula.direct(np.array(1, "float32"), np.array(2.0)) == 3


def test_in_place_it_refuses_what_must_not_be_written_and_overlaps():
    formula, _ = specialised(lambda a, b: a - b, (array("float32"), array("float32")), "float32", "float32")
    a, b = array("float32"), array("float32", 1)
    expected = a - b
    assert formula.direct_(a, b) is a
    np.testing.assert_array_equal(a, expected)
    assert formula.direct_(a, a) is a
    assert not a.any()
    assert formula.direct_(b[1:], b[:-1]) is formula.direct_(b[:-1], b[1:]) is None
    a.flags.writeable = False
    assert formula.direct_(a, b) is None
    greater, _ = specialised(lambda a, b: a > b, (b, b), "bool", "float32")
    assert greater.direct_(b, b) is None              # the result has another dtype


def test_references_are_counted():
    formula, _ = specialised(lambda a, b: a - b, (array("float32"), array("float32")), "float32", "float32")
    a, b = array("float32"), array("float32", 1)
    counted = (a, b, a.dtype)
    before = [sys.getrefcount(x) for x in counted]
    for _ in range(100):
        formula.direct(a, b)
        formula.direct_(a, b)
        assert formula.direct(a, None) is None
    # A wrong count is off by a hundred; the collector may free other arrays meanwhile, which have the dtype too.
    assert all(abs(sys.getrefcount(x) - n) < 50 for x, n in zip(counted, before, strict=True))
    assert sys.getrefcount(formula.direct(a, b)) <= 2


def test_another_backend_forgets():
    formula, _ = specialised(lambda a, b: a - b, (array("float32"), 1.0), "float32", "float32")
    a, builtin, before = array("float32"), formula.direct, kernels.backend()
    assert builtin(a, 1.0) is not None
    try:
        kernels.set_backend("numpy")
        assert formula.direct(a, 1.0) is builtin(a, 1.0) is None
    finally:
        kernels.set_backend(before)


PROGRAMS = {
    "add": lambda x, y, c: x + y, "sub with alpha": lambda x, y, c: fb.sub(x, y, alpha=2), "scaled": lambda x, y, c: x * 3,
    "divided": lambda x, y, c: x / 7, "subtracted from": lambda x, y, c: 2 - x, "greater": lambda x, y, c: x > y,
    "where": lambda x, y, c: fb.where(c, x, y), "maximum": lambda x, y, c: fb.maximum(x, y),
    "clamped": lambda x, y, c: x.clamp(-1, 2), "relu": lambda x, y, c: x.relu(), "to float64": lambda x, y, c: x.to(fb.float64),
    "to bfloat16": lambda x, y, c: x.to(fb.bfloat16), "lerp": lambda x, y, c: fb.lerp(x, y, 0.25) if x.is_floating_point() else x,
    "added in place": lambda x, y, c: x.clone().add_(y), "gelu": lambda x, y, c: fb.nn.functional.gelu(x) if x.is_floating_point() else x,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("op", PROGRAMS)
def test_later_calls_of_ops_give_what_the_first_one_gave(op, dtype):
    d = getattr(fb, dtype)
    x, y = (fb.from_numpy(np.abs(array("float32", seed))).to(d) for seed in (0, 1))
    c = fb.from_numpy(array("float32", 2) > 0)
    kernels.forget_plans()
    first, *later = [PROGRAMS[op](x, y, c) for _ in range(3)]
    for made in later:
        assert made.dtype is first.dtype
        np.testing.assert_array_equal(made.to(fb.float64).numpy(), first.to(fb.float64).numpy())


def test_gradients_of_later_calls():
    x = fb.from_numpy(array("float32")).requires_grad_()
    y = fb.from_numpy(array("float32", 1)).bfloat16().requires_grad_()
    for _ in range(3):
        z = fb.where(x > 0, x * y, fb.nn.functional.gelu(x) + 2 * x)
        gx, gy = fb.autograd.grad(z.sum(), (x, y))
        assert gx.dtype is fb.float32
        assert gy.dtype is fb.bfloat16
    expected = np.where(x.detach().numpy() > 0, x.detach().numpy(), 0)
    np.testing.assert_allclose(gy.float().numpy(), expected, rtol=1e-2)


def test_the_default_dtype_is_asked_again():
    x = fb.arange(N)
    try:
        for d in (fb.float32, fb.float64, fb.float32):
            fb.set_default_dtype(d)
            assert [(x / 3).dtype, (x * 0.5).dtype] * 2 == [d] * 4
    finally:
        fb.set_default_dtype(fb.float32)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "bfloat16", "float16", "bool", "complex64", "complex128"])
def test_filling_large_arrays(dtype):
    x = fb.ones(70_001, dtype=getattr(fb, dtype))
    places = np.arange(70_001)
    x[1:].fill_(0)
    np.testing.assert_array_equal(x._array != 0, places == 0)
    x.fill_(1)
    x[::2].zero_()
    np.testing.assert_array_equal(x._array.astype(np.complex128), places % 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["maximum", "minimum", "clamp"])
def test_larger_and_smaller_keep_nan_and_choose_among_zeros_as_numpy_does(op, dtype):
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], dtype)
    a, b = (np.tile(g.reshape(-1), 2000) for g in np.meshgrid(values, values))
    x, y = fb.from_numpy(a), fb.from_numpy(b)
    made = (x.clamp(y, y.flip(0)) if op == "clamp" else getattr(fb, op)(x, y)).numpy()
    wanted = np.minimum(np.maximum(a, b), b[::-1]) if op == "clamp" else getattr(np, op)(a, b)
    np.testing.assert_array_equal(made, wanted)
    if op != "clamp":
        kept = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(made[kept]), np.signbit(wanted[kept]))


def _settled_ops():
    _derive.load_all()
    found = {id(op): op for op in OPS.values() if isinstance(op, ElementwiseOp) and op.formula.exact and len(op.params) <= 4}
    return sorted(found.values(), key=lambda op: op.qualified)


def _values(dtype, seed):
    d, r = np.dtype(dtype), np.random.default_rng(seed)
    if d.kind == "b":
        return r.random(300) < 0.5
    if d.kind in "iu":
        info = np.iinfo(d)
        ends = [max(info.min, -9), info.max, info.min, 1, 2, info.max // 2]
        return np.concatenate([r.integers(max(info.min, -9), 9, 294), ends]).astype(d)
    usual = r.normal(size=240) * 10.0 ** r.integers(-6, 6, 240)
    odd = np.resize([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 1e30, -1e30, np.inf, -np.inf, np.nan, 3e-39, 1.0, -1.0], 60)
    with np.errstate(over="ignore"):
        return r.permutation(np.concatenate([usual, odd])).astype(d)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", _settled_ops(), ids=lambda op: op.qualified)
def test_formulas_that_are_said_to_have_one_answer_have_the_bits_of_the_numpy_tier(op, dtype):
    # The number of earlier calls decides which tier takes small operands of these.
    d = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    arrays = tuple(_values(d, seed) for seed in range(len(op.params)))
    if op.check_looks_at == "integers" and d.kind in "biu":
        pytest.skip("integers are checked for zeros first")
    if dtype == "bool" and op.name in ("neg", "sub", "interpolate_between"):
        pytest.skip("refused for truth values")
    if "shift" in op.name:
        arrays = (arrays[0], np.clip(arrays[1], 0, 5))
    try:
        compute, result = op.dtype_rule(op, tuple(fb.empty(2, dtype=getattr(fb, dtype)) for _ in op.positional))
    except (TypeError, RuntimeError, NotImplementedError):
        pytest.skip("not defined for this dtype")
    formula = Formula(op.formula.fn, op.name)
    assert kernels.has_one_answer(formula, compute.numpy)
    expected, out = np.empty(300, result.numpy), np.empty(300, result.numpy)
    kernels.reference_launch(formula, arrays, (expected,), compute.numpy)
    kernels.specialise(formula, arrays, out, compute.numpy)
    made = formula.direct(*arrays)
    if made is None:
        pytest.skip("the numpy tier computes it")
    assert made.dtype == expected.dtype
    same = made.view(np.uint8).reshape(300, -1) == expected.view(np.uint8).reshape(300, -1)
    wrong = ~same.all(1) & ~((made != made) & (expected != expected))
    assert not wrong.any(), [tuple(a[wrong][:3] for a in arrays), made[wrong][:3], expected[wrong][:3]]


def test_numbers_beyond_int64_do_not_make_later_negative_ones_unsigned():
    x = fb.ones(4)
    before = [(x + -2).tolist(), (x * -2).tolist(), (x <= -2).tolist()]

    for _ in range(3000):                             # until a builtin answers
        x + (1 << 63), x * (1 << 63), x <= (1 << 63)

    assert [(x + -2).tolist(), (x * -2).tolist(), (x <= -2).tolist()] == before == [[-1.0] * 4, [-2.0] * 4, [False] * 4]


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint64"])
def test_a_formula_learned_with_a_number_beyond_int64_computes_with_signed_ones(dtype):
    a = np.arange(5).astype(dtype)
    formula, _ = specialised(lambda a, k: a + k, (a, (1 << 63) + 5), dtype, dtype)

    found = formula.direct(a, 7)
    assert found is None or (found == a + np.array(7, dtype)).all()
    negative = formula.direct(a, -2)
    assert negative is None or (negative == a - np.array(2, dtype)).all()
