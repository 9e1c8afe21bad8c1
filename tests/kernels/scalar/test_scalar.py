"""The elementary functions: accuracy against mpmath, special values against C's conventions, vector code on
targets.
"""
from __future__ import annotations

import math
import platform
import re
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special

import flambeau as fb
import flambeau_kernels
import make_accuracy_page as accuracy
import make_coefficients
from flambeau_kernels import engine
from flambeau_kernels.engine.launching import loops
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.scalar import coefficients, functions
from flambeau_kernels.scalar.symbols import KINDS
from flambeau_kernels.scalar.words import READING

pytestmark = pytest.mark.skipif(engine.available() is not None,
                                reason=f"no compiled tier: {engine.available()}")

# Largest error allowed, in ulp, for float32 and float64; None: no compiled code. The measured values are 0.1
# to 0.3 lower on thousands of samples; the table is printed by `python .ci/make_accuracy_page.py`.
LIMITS = {
    "exp": (1.0, 1.0), "exp2": (1.0, 1.0), "expm1": (1.7, 1.7), "sigmoid": (2.0, 2.0), "sinh": (1.5, 1.6),
    "cosh": (1.3, 1.3), "tanh": (1.2, 1.4), "log": (1.0, 1.0), "log2": (0.55, 0.55), "log10": (0.55, 0.55),
    "log1p": (0.55, 1.3), "log1p_exp": (0.8, 2.2), "sin": (0.6, 0.9), "cos": (0.6, 0.9), "tan": (0.7, 2.0), "asin": (0.55, 1.8),
    "acos": (0.55, 1.3), "atan": (0.55, 2.2), "asinh": (0.55, 2.0), "acosh": (0.55, 2.0), "atanh": (0.55,
                                                                                                    1.9),
    "erf": (1.1, 1.3), "erfc": (0.55, 4.5), "erfinv": (1.0, 4.0), "ndtr": (9.0, 5.0), "normal_density": (9.0, 5.0),
    "lgamma": (1.5, 5.5), "digamma": (0.6, 6.0),
    "trigamma": (0.55, 4.0), "tetragamma": (0.55, 6.5), "polygamma": (0.55, 4.5), "special_zeta": (0.55, 4.0),
    "special_erfcx": (0.55, 5.0), "special_log_ndtr": (0.55, 5.0),
    "special_ndtri": (0.8, 4.5), "special_i0": (0.55, 3.5), "special_i0e": (0.55, 3.0), "special_i1": (0.55, 3.5),
    "special_i1e": (0.55, 3.0), "special_modified_bessel_k0": (0.55, 5.5), "special_modified_bessel_k1": (0.55, 5.0),
    "special_scaled_modified_bessel_k0": (0.55, 9.5), "special_scaled_modified_bessel_k1": (0.55, 4.0),
    "special_bessel_j0": (0.55, 4.0), "special_bessel_j1": (0.55, 5.5), "special_bessel_y0": (0.55, 8.0),
    "special_bessel_y1": (0.55, 12.0), "special_spherical_bessel_j0": (0.55, 1.2),
    "special_airy_ai": (0.55, 10.0),
    "pow": (0.55, 1.0), "atan2": (0.55, 2.2), "hypot": (0.55, 0.55), "igamma": (0.55, 7.0), "igammac": (0.55, 90.0),
}  # fmt: skip
PAIRWISE = ("pow", "atan2", "hypot", "special_zeta", "igamma", "igammac")
TABLED = [(word, dtype) for word, limits in LIMITS.items()
          for dtype, limit in zip(("float32", "float64"), limits, strict=True) if limit is not None]


@pytest.mark.parametrize(("word", "dtype"), TABLED)
def test_error_is_within_the_published_bound(word, dtype):
    limit = LIMITS[word][dtype == "float64"]
    for arguments in accuracy.samples(word, dtype):
        worst, where = accuracy.worst_ulp(word, arguments, 150)
        assert worst <= limit, f"{worst:.2f} ulp at {where}"


def test_every_function_has_a_bound():
    for dtype in ("float32", "float64"):
        assert set(functions.table(KINDS[dtype])) == {word for word, kind in TABLED if kind == dtype}


def test_coefficients_are_what_the_fits_give():
    for name, values in make_coefficients.rows().items():
        np.testing.assert_allclose(coefficients.COEFFICIENTS[name], values, rtol=1e-14, err_msg=name)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e4, -1e4,
           1e30, -1e30]
BY_SCIPY: dict[str, Any] = {"erf": scipy.special.erf, "erfc": scipy.special.erfc, "erfinv": scipy.special.erfinv,
            "ndtr": scipy.special.ndtr, "normal_density": lambda x: np.exp(-0.5 * x.astype("f8") ** 2) / math.sqrt(2 * math.pi),
            "lgamma": scipy.special.gammaln, "sigmoid": scipy.special.expit, "log1p_exp": lambda x: np.logaddexp(0, x),
            "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
            "atanh": np.arctanh, "pow": np.power, "atan2": np.arctan2}  # fmt: skip


def launched(word, *arguments):
    result = accuracy.evaluate(word, arguments)
    assert result is not None
    return result


@pytest.mark.parametrize(("word", "dtype"), [row for row in TABLED if row[0] not in (*PAIRWISE, "digamma")
                                               and not row[0].startswith(("special_", "tri", "tetra", "polygamma"))])
def test_special_values_of_one_argument(word, dtype):
    info = np.finfo(dtype)
    values = [*SPECIAL, info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal,
              -info.smallest_subnormal]
    x = np.resize(np.array(values, dtype), 4500)
    with np.errstate(all="ignore"):
        wanted = BY_SCIPY.get(word, getattr(np, word, None))(x)

    got = launched(word, x)

    if word == "lgamma":
        wanted[x == -np.inf] = np.inf                 # as C and PyTorch have it; scipy has -inf
        wanted[abs(x) == info.smallest_subnormal] = -np.log(info.smallest_subnormal)  # where scipy has inf
    np.testing.assert_allclose(got, wanted, rtol=4 * info.eps, atol=0)
    zero = (wanted == 0) & (word != "erfinv")         # scipy drops the sign of erfinv(-0.0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(wanted[zero]))


@pytest.mark.parametrize(("word", "dtype"), [row for row in TABLED if row[0].startswith(("special_", "tri", "tetra", "polygamma"))
                                               and row[0] not in PAIRWISE])
def test_special_functions_agree_with_the_numpy_tier_at_the_ends_and_poles(word, dtype):
    info = np.finfo(dtype)
    values = [0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 8.0, 80.0, np.inf, -np.inf, np.nan, info.max, 1e-30]
    if not word.startswith(("tri", "tetra", "polygamma")):         # which scipy has below 0 for whole numbers only
        values += [-0.5, -1.0, -2.0, -8.0, -80.0, info.min, info.tiny, -info.tiny]
    x = np.resize(np.array(values, dtype), 4500)
    out = np.empty_like(x)
    flambeau_kernels.reference_launch(accuracy.formula(word), (x,), (out,), out.dtype)

    got = launched(word, x)

    if word in ("special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1"):
        out[abs(x) == info.max] = got[abs(x) == info.max]           # scipy reduces no such argument
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, out, rtol=200 * info.eps, atol=4 * info.eps)
    zero = out == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(out[zero]))


def test_lgamma_and_its_derivatives_below_zero():
    x = np.resize(np.array([-0.5, -1.5, -2.5, -7.5, -8.5, -30.5, -1.0, -9.0, -1e20]), 4500)
    wanted = [float(mp.re(mp.loggamma(v))) for v in x[:6]] + [np.inf] * 3
    np.testing.assert_allclose(launched("lgamma", x)[:9], wanted, rtol=1e-14, atol=1e-15)
    wanted = [float(mp.digamma(v)) for v in x[:6]] + [np.nan] * 3
    np.testing.assert_allclose(launched("digamma", x)[:9], wanted, rtol=1e-13)
    wanted = [float(mp.polygamma(1, v)) for v in x[:6]] + [np.inf] * 3
    np.testing.assert_allclose(launched("trigamma", x)[:9], wanted, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("word", ["pow", "atan2", "hypot"])
def test_special_values_of_two_arguments(word, dtype):
    info = np.finfo(dtype)
    values = np.array([*SPECIAL, info.max, info.tiny, -info.smallest_subnormal], dtype)
    x, y = (np.resize(v.ravel(), 4500) for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        wanted = BY_SCIPY.get(word, getattr(np, word, None))(x, y)

    got = launched(word, x, y)

    np.testing.assert_allclose(got, wanted, rtol=4 * info.eps, atol=0)
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(wanted[zero]))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="for x86-64 with AVX2")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("word", ["exp", "exp2", "sinh", "pow", "erfc", "sin"])
def test_code_for_avx2_gives_the_same_bits(word, dtype, monkeypatch):
    arguments = accuracy.samples(word, dtype)[1]
    here = launched(word, *arguments)
    if not llvm.machine().scales:
        pytest.skip("this machine has no AVX-512 to compare with")
    other = llvm.Machine(cpu="x86-64-v3", features="")
    monkeypatch.setattr(llvm, "_machine_or_reason", lambda: other)
    monkeypatch.setattr(llvm, "_addresses", {})       # the same text is other code there

    np.testing.assert_array_equal(launched(word, *arguments), here)


def test_digamma_at_poles_and_infinities():
    x = np.resize(np.array([0.0, -0.0, -1.0, -5.0, np.inf, -np.inf, np.nan], "float32"), 4500)
    wanted = [-np.inf, np.inf, np.nan, np.nan, np.inf, np.nan, np.nan]
    np.testing.assert_array_equal(launched("digamma", x)[:7], np.array(wanted, "float32"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_do_not_depend_on_a_rare_neighbour(dtype):
    x = np.linspace(-50, 50, 6001).astype(dtype)
    alone = launched("sin", x)
    x[3000] = 1e30
    beside = launched("sin", x)

    assert np.isclose(beside[3000], np.sin(x[3000]), rtol=1e-6)
    np.testing.assert_array_equal(np.delete(alone, 3000), np.delete(beside, 3000))


def test_subnormal_results_are_rounded_once():
    x = np.linspace(-103.9, -87.4, 5000).astype("float32")
    exact = np.exp(x.astype("float64"))
    assert np.max(np.abs(launched("exp", x) - exact)) <= 0.51 * np.finfo("float32").smallest_subnormal * 2


TARGETS = {
    "avx2": ("x86_64-unknown-linux-gnu", "x86-64-v3", r"\bv(fmadd|fnmadd|mul|add)\w*p[sd]\b.*%ymm"),
    "avx512": ("x86_64-unknown-linux-gnu", "znver4", r"\bv(fmadd|fnmadd|mul|add)\w*p[sd]\b.*%zmm"),
    "neon": ("aarch64-unknown-linux-gnu", "neoverse-n1", r"\bf(mla|mls|mul|add)\tv\d+\.(4s|2d)"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("word", "dtype"), TABLED)
def test_code_is_vector_code(word, dtype, target):
    triple, cpu, packed = TARGETS[target]
    machine = target_machine(triple, cpu)
    operand = loops.Operand(dtype, "c")
    count = 2 if word in PAIRWISE else 1
    kernel = loops.kernel(word, accuracy.formula(word).bind(READING), (operand,) * count, (operand,), dtype,
                          scales=target == "avx512")

    assembly = machine.emit_assembly(kernel.text)

    assert len(re.findall(packed, assembly)) >= 3
    # Only the careful loop of the circular functions calls the C library.
    called = set(re.findall(r"^\t(?:callq\t|bl\t|movabsq\t\$)([a-z]\w*)", assembly, re.MULTILINE))
    allowed = {"sin", "cos", "sincos"} if re.search("bessel_[jy]|airy", word) and "modified" not in word else {word, word + "f"}
    # Ours are called before the loop (the factorial of a constant order) or in the careful one; the last results of a row are copied.
    called = {name for name in called if not name.startswith("flambeau_") and name != "memcpy"}
    assert called <= (allowed if allowed & {"sin", "cos", "tan"} else set())


_machines: dict[str, llvm.Machine] = {}


def target_machine(triple, cpu):
    if cpu not in _machines:
        _machines[cpu] = llvm.Machine(triple, cpu, "")
    return _machines[cpu]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("decades", [1, 3, 20, 37])
def test_remainders_are_exact(dtype, decades):
    r = np.random.default_rng(decades)

    def values():
        spread = 10.0 ** r.integers(-decades, decades, 20_000)
        odd = np.resize(np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-44, 1e-39, 3e38, 1, -1, 0.5], dtype), 2_000)
        return r.permutation(np.concatenate([(r.normal(size=20_000) * spread).astype(dtype), odd]))

    a, b = values(), values()
    whole = r.random(len(a)) < 0.3                    # quotients that are whole numbers, or all but
    with np.errstate(all="ignore"):
        a = np.where(whole, (b * r.integers(0, 60, len(b))).astype(dtype), a)
        expected = np.fmod(a, b)
    made = fb.fmod(fb.from_numpy(a), fb.from_numpy(b)).numpy()
    same = (made == expected) & (np.signbit(made) == np.signbit(expected)) | (made != made) & (expected != expected)
    assert same.all(), (a[~same][:3], b[~same][:3], made[~same][:3], expected[~same][:3])
