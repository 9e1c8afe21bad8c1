"""Kernels of the CUDA tier: the formulas and reductions, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import flambeau_kernels as kernels
from flambeau_kernels import Formula
from flambeau_kernels.cpu.reductions.reduce import Reduction, reduce_by_numpy
from flambeau_kernels.cuda import launch, reduce
from flambeau_kernels.vocabulary import cos, fmod, gcd, igamma, igammac, isnan, sin, tan, where

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def run(xp: Any, fn: Any, *operands: Any, compute: Any = FLOAT32, out: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel and the reference make of `operands`."""
    formula, compute = Formula(fn), np.dtype(compute)
    shape = np.broadcast_shapes(*map(np.shape, operands))
    made, expected = xp.empty(shape, out or compute), np.empty(shape, out or compute)
    on_device = tuple(xp.asarray(a) if isinstance(a, np.ndarray) else a for a in operands)
    launch.launch(formula, on_device, (made,), compute)
    kernels.reference_launch(formula, operands, (expected,), compute)
    return made.get(), expected


def line(x: Any, y: Any) -> Any:
    return x * 2 + y


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128])
def test_floating_operands_give_the_bits_of_the_reference(xp: Any, dtype: Any) -> None:
    r = np.random.default_rng(0)
    x, y = (r.standard_normal((7, 33)).astype(dtype) for _ in range(2))

    made, expected = run(xp, line, x, y, compute=dtype)

    assert made.dtype == expected.dtype
    assert (made == expected).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64])
def test_integers_wrap_as_on_the_cpu(xp: Any, dtype: Any) -> None:
    x = np.arange(-300, 300).astype(dtype)

    made, expected = run(xp, line, x, x[::-1].copy(), compute=dtype)

    assert (made == expected).all()


def test_truth_values(xp: Any) -> None:
    x = np.array([0.0, 1.0, np.nan, -2.0], np.float32)

    made, _ = run(xp, lambda x: x > 0, x, out=np.bool_)

    assert made.tolist() == [False, True, False, False]


@pytest.mark.parametrize("number", [3.5, np.float64(3.5), np.array(3.5), 7])
def test_numbers_are_arguments_of_the_kernel(xp: Any, number: Any) -> None:
    made, expected = run(xp, line, np.arange(1000, dtype=FLOAT32), number)

    assert (made == expected).all()


def test_layouts_transposed_strided_broadcast_and_empty(xp: Any) -> None:
    base = np.arange(2 * 5 * 6, dtype=FLOAT32).reshape(2, 5, 6)
    for view in (lambda a: a.transpose(2, 0, 1), lambda a: a[:, ::2, 1:], lambda a: a[:, :1], lambda a: a[:0]):
        a = view(xp.asarray(base))
        b = xp.asarray(np.arange(a.shape[-1], dtype=FLOAT32))
        out = xp.empty(a.shape, FLOAT32)

        launch.launch(Formula(line), (a, b), (out,), FLOAT32)

        assert (out.get() == view(base) * 2 + np.arange(a.shape[-1])).all()


def test_an_output_may_be_an_input_and_strided(xp: Any) -> None:
    a = xp.asarray(np.arange(40, dtype=FLOAT32).reshape(5, 8))

    launch.launch(Formula(line), (a[:, ::2], a[:, ::2]), (a[:, ::2],), FLOAT32)

    expected = np.arange(40, dtype=FLOAT32).reshape(5, 8)
    expected[:, ::2] *= 3
    assert (a.get() == expected).all()


def test_several_outputs(xp: Any) -> None:
    a = xp.asarray(np.arange(10, dtype=FLOAT32))
    up, down = xp.empty(10, FLOAT32), xp.empty(10, FLOAT64)

    launch.launch(Formula(lambda x: (x + 1, x - 1)), (a,), (up, down), FLOAT32)

    assert (up.get() == np.arange(1, 11)).all()
    assert (down.get() == np.arange(-1, 9)).all()


@pytest.mark.parametrize(
    ("formula", "fn"), [(lambda x: sin(x), np.sin), (lambda x: cos(x), np.cos), (lambda x: tan(x), np.tan)], ids=["sin", "cos", "tan"]
)
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_huge_angles(xp: Any, formula: Any, fn: Any, dtype: Any) -> None:
    r = np.random.default_rng(0)
    top = 38 if dtype == FLOAT32 else 300
    x = (r.standard_normal(2000) * 10.0 ** r.integers(0, top, 2000)).astype(dtype)
    x[:3] = 2.0**100, -(2.0**100), 5e8

    made, _ = run(xp, formula, x, compute=dtype)

    expected = fn(x.astype(FLOAT64))
    ulp = np.abs(made - expected) / np.spacing(np.abs(expected).astype(dtype))
    assert ulp.max() <= (1 if dtype == FLOAT32 else 2)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_fmod_is_exact(xp: Any, dtype: Any) -> None:
    r = np.random.default_rng(0)
    top = 30 if dtype == FLOAT32 else 200
    x, y = ((r.standard_normal(2000) * 10.0 ** r.integers(-top, top, 2000)).astype(dtype) for _ in range(2))
    x[:6] = 5.5, -5.5, np.inf, 1.0, np.nan, 0.0
    y[:6] = 2.0, 2.0, 2.0, np.inf, 2.0, 0.0

    made, expected = run(xp, lambda x, y: fmod(x, y), x, y, compute=dtype)

    assert np.array_equal(made, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_incomplete_gamma_functions(xp: Any, dtype: Any) -> None:
    r = np.random.default_rng(0)
    a = np.exp(r.uniform(-3, 5, 2000)).astype(dtype)
    x = (a * np.exp(r.normal(0, 0.5, 2000))).astype(dtype)

    lower, upper = (lambda a, x: igamma(a, x)), (lambda a, x: igammac(a, x))
    for formula, wanted in ((lower, scipy.special.gammainc), (upper, scipy.special.gammaincc)):
        made, _ = run(xp, formula, a, x, compute=dtype)
        np.testing.assert_allclose(made, wanted(a, x), rtol=1e-6 if dtype == FLOAT32 else 1e-12, atol=1e-300)


def test_what_has_no_code_says_so(xp: Any) -> None:
    out = xp.empty(3, FLOAT32)
    with pytest.raises(NotImplementedError, match="divisor: no kernel for CUDA"):
        launch.launch(Formula(lambda x: gcd(x, x), "divisor"), (xp.ones(3, FLOAT32),), (out,), FLOAT32)


# -- reductions ----------------------------------------------------------------------------------------------------------

SHAPES = [((5, 7, 9), (1,)), ((5, 7, 9), (0, 2)), ((300, 4), (0,)), ((3, 20_000), (1,)), ((100_000,), (0,)), ((20_000, 3), (0,)), ((), ())]


def total(x: Any, count: Any) -> Any:
    return x / count


def number(x: Any) -> Any:
    return where(isnan(x), 0, x)


RULES = {
    "sum": Reduction("sum", "add"), "mean": Reduction("mean", "add", None, total), "known": Reduction("known", "add", number),
    "largest": Reduction("largest", "max"), "smallest": Reduction("smallest", "min"),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_reductions(xp: Any, rule: str, shape: Any, axes: Any) -> None:
    a = np.random.default_rng(0).standard_normal(shape)
    for dtype in (FLOAT32, FLOAT64):
        x = np.asarray(a, dtype)
        for keepdim in (False, True):
            made = reduce.reduce(RULES[rule], xp.asarray(x), axes, keepdim, dtype, dtype).get()
            expected = reduce_by_numpy(RULES[rule], x.astype(FLOAT64), axes, keepdim, FLOAT64, FLOAT64)
            assert made.shape == expected.shape
            assert np.allclose(made, expected, rtol=1e-5 if dtype == FLOAT32 else 1e-12, atol=1e-4 if dtype == FLOAT32 else 1e-10)


def test_nan_wins_and_comes_first(xp: Any) -> None:
    a = np.array([[1.0, np.nan, 9.0, np.nan], [4.0, 7.0, 7.0, -np.inf]], np.float32)
    values, places = reduce.fold(reduce.extreme_fold(True, FLOAT32), xp.asarray(a), (1,), False, FLOAT32, (FLOAT32, np.dtype(np.int64)))

    assert np.array_equal(values.get(), [np.nan, 7.0], equal_nan=True)
    assert places.get().tolist() == [1, 1]


@pytest.mark.parametrize("length", [10, 1000, 300_000])
def test_ties_go_to_the_first(xp: Any, length: int) -> None:
    a = np.random.default_rng(0).integers(0, 5, (2, length)).astype(np.int32)
    for largest, fn in ((True, np.argmax), (False, np.argmin)):
        (places,) = reduce.fold(reduce.argument_fold(largest, a.dtype), xp.asarray(a), (1,), False, a.dtype, (np.dtype(np.int64),))
        assert (places.get() == fn(a, 1)).all()


@pytest.mark.parametrize(("shape", "axes"), SHAPES[:-1])
def test_variance_far_from_zero(xp: Any, shape: Any, axes: Any) -> None:
    a = (np.random.default_rng(0).standard_normal(shape) + 1000).astype(FLOAT32)

    (made,) = reduce.fold(reduce.variance_fold(FLOAT32, 1), xp.asarray(a), axes, False, FLOAT32, (FLOAT32,))

    assert np.allclose(made.get(), a.astype(FLOAT64).var(axes, ddof=1), rtol=1e-3)


def test_an_empty_reduction_is_the_identity(xp: Any) -> None:
    made = reduce.reduce(RULES["sum"], xp.empty((0, 3), FLOAT32), (0,), False, FLOAT32, FLOAT32)

    assert made.get().tolist() == [0, 0, 0]


def test_the_cut_depends_on_shapes_and_covers_everything() -> None:
    for results in (1, 3, 100, 100_000):
        for length in (1, 5, 100, 1000, 1_000_000):
            for pattern in ("rows", "columns"):
                found = reduce.cut(results, length, pattern)
                assert found == reduce.cut(results, length, pattern)
                assert found.pieces * found.per_piece >= length
                assert 256 % found.lanes == 0
