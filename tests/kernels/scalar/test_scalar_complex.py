"""Functions of complex numbers: accuracy against mpmath, the numpy tier's special values, vector code on the targets."""
from __future__ import annotations

import platform
import re

import mpmath as mp
import numpy as np
import pytest
from tests.kernels.scalar.test_scalar import TARGETS, target_machine

import accuracy_of_complex as measured
import flambeau_kernels
import make_accuracy_page as accuracy
from flambeau_kernels import engine
from flambeau_kernels.engine.launching import loops
from flambeau_kernels.scalar.words import READING

pytestmark = pytest.mark.skipif(engine.available() is not None, reason=f"no compiled tier: {engine.available()}")

DTYPES = ("complex64", "complex128")
REAL = ("abs", "angle")
# Largest distance from the exact result allowed, in units of its size, where it is not (0.8, 3.0).
LIMITS = {"rsqrt": (2.5, 2.8), "sigmoid": (3.5, 7.0), "exp2": (4.0, 4.0), "tan": (0.8, 3.5), "tanh": (0.8, 3.5), "expm1": (1.6, 2.5)}
FUNCTIONS = [(word, dtype) for word in measured.WORDS for dtype in DTYPES]


def launched(word: str, *arguments: np.ndarray) -> np.ndarray:
    dtype = arguments[0].dtype
    out = np.empty(arguments[0].shape, measured.PARTS[dtype.name] if word in REAL else dtype)
    assert engine.launch(accuracy.formula(word), arguments, (out,), dtype)
    return out


def by_numpy(word: str, *arguments: np.ndarray) -> np.ndarray:
    dtype = arguments[0].dtype
    out = np.empty(arguments[0].shape, measured.PARTS[dtype.name] if word in REAL else dtype)
    flambeau_kernels.reference_launch(accuracy.formula(word), arguments, (out,), dtype)
    return out


@pytest.mark.parametrize(("word", "dtype"), FUNCTIONS)
def test_error_is_within_the_published_bound(word, dtype):
    limit = LIMITS.get(word, (0.8, 3.0))[dtype == "complex128"]
    for z in measured.samples(word, dtype):
        worst, where = measured.worst_ulp(word, z, 60)
        assert worst <= limit, f"{worst:.2f} ulp at {where}"


PARTS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -30.0, 700.0, -700.0, 1e30, -1e30, np.inf, -np.inf, np.nan]


@pytest.mark.skipif(platform.system() != "Linux", reason="numpy's special values are those of the C library")
@pytest.mark.parametrize(("word", "dtype"), FUNCTIONS)
def test_zeros_infinities_and_nan_are_those_of_the_numpy_tier(word, dtype):
    z = np.resize(np.array([complex(a, b) for a in PARTS for b in PARTS]).astype(dtype), 4500)
    got, wanted = launched(word, z), by_numpy(word, z)
    if word not in REAL:
        # Of a number with a finite size, the error of either part is counted in units of that size.
        with np.errstate(all="ignore"):
            near = np.abs(got - wanted) <= 1e3 * np.finfo(dtype).eps * np.abs(wanted)
        sized = np.isfinite(got) & np.isfinite(wanted) & near
        got, wanted = got[~sized], wanted[~sized]
    for part in (np.real, np.imag):
        np.testing.assert_allclose(part(got), part(wanted), rtol=1e3 * np.finfo(dtype).eps)
        zero = part(wanted) == 0
        np.testing.assert_array_equal(np.signbit(part(got)[zero]), np.signbit(part(wanted)[zero]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_branch_cuts_follow_the_sign_of_zero(dtype):
    above = np.resize(np.array([-3 + 0j, -2 + 0j], dtype), 4500)
    below = np.conj(above)
    for word in ("log", "sqrt", "acos", "acosh", "asin"):
        one, two = launched(word, above), launched(word, below)
        np.testing.assert_array_equal(one, np.conj(two))
        assert np.all(one != two)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_near_the_ends_of_the_range_do_not_overflow_on_the_way(dtype):
    info = np.finfo(dtype)
    big, small = float(info.max) / 4, float(info.tiny) * 8
    z = np.resize(np.array([complex(big, big), complex(small, small), complex(-big, small)], dtype), 4500)
    with mp.workdps(400):
        for word in ("sqrt", "log", "asinh", "acosh", "atanh", "abs"):
            exact = [measured.exact(word)(mp.mpc(complex(x))) for x in z[:3]]
            np.testing.assert_allclose(launched(word, z)[:3], [complex(x) for x in exact], rtol=8 * info.eps, err_msg=word)


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_are_exact_to_the_size_of_their_logarithm(dtype):
    rng = np.random.default_rng(0)
    x, y = ((rng.uniform(-3, 3, 4500) + 1j * rng.uniform(-3, 3, 4500)).astype(dtype) for _ in range(2))
    got = launched("pow", x, y)
    with mp.workdps(40):
        exact = [complex(mp.mpc(complex(a)) ** mp.mpc(complex(b))) for a, b in zip(x[:200], y[:200], strict=True)]
    assert np.max(np.abs(got[:200] - exact) / np.abs(exact)) <= 10 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_of_zero_and_infinity_are_pytorch_s(dtype):
    # (base, exponent, result), as PyTorch has them.
    rows = [(0, 0, 1), (0, 2, 0), (0, -1, complex(np.inf, np.nan)), (0, 1j, complex(np.nan, np.nan)), (3, 0, 1),
            (complex(np.inf, 0), -1, 0), (complex(0.5, 0), complex(np.inf, np.inf), 0)]
    x, y, wanted = (np.resize(np.array([complex(v) for v in column]).astype(dtype), 4500) for column in zip(*rows, strict=True))
    x[::7], y[::7] = 2, 3
    wanted[::7] = 8
    got = launched("pow", x, y)
    np.testing.assert_allclose(got.real, wanted.real, rtol=1e-5)
    np.testing.assert_allclose(got.imag, wanted.imag, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("word", "dtype"), [row for row in FUNCTIONS if row[0] not in ("sign", *REAL)])
def test_code_is_vector_code(word, dtype, target):
    triple, cpu, packed = TARGETS[target]
    operand = loops.Operand(dtype, "c")
    kernel = loops.kernel(word, accuracy.formula(word).bind(READING), (operand,), (operand,), dtype, scales=target == "avx512")

    assembly = target_machine(triple, cpu).emit_assembly(kernel.text)

    assert len(re.findall(packed, assembly)) >= 3
    called = set(re.findall(r"^\t(?:callq\t|bl\t|movabsq\t\$)([a-z]\w*)", assembly, re.MULTILINE))
    assert called <= {"sin", "cos", "sincos"}         # only the careful loop's
