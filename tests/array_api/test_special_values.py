"""Special values of functions, as the array API standard 2024.12 lists them with each: signs of zeros, infinities and nans.

The lists are the standard's: https://data-apis.org/array-api/2024.12/API_specification/elementwise_functions.html
"""

from __future__ import annotations

import cmath
import itertools
import math

import pytest

import flambeau as fb

xp = fb.array_api
inf, nan, pi = math.inf, math.nan, math.pi
FINITE = (1.0, 0.25, 3.5)  # stand for "a positive finite number"
NUMBERS = (-inf, -2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.5, inf)
REAL_DTYPES = ("float32", "float64")
COMPLEX_DTYPES = ("complex64", "complex128")


class AnySign:
    """A zero or an infinity whose sign the standard leaves open."""

    def __init__(self, size):
        self.size = size


def real_agrees(ours, listed):
    if isinstance(listed, AnySign):
        return abs(ours) == listed.size
    if math.isnan(listed):
        return math.isnan(ours)
    if listed == 0 or math.isinf(listed):
        return ours == listed and math.copysign(1, ours) == math.copysign(1, listed)
    return math.isclose(ours, listed, rel_tol=2e-6)


def complex_agrees(ours, listed):
    return real_agrees(ours.real, listed[0]) and real_agrees(ours.imag, listed[1])


UNARY = {
    "abs": [(nan, nan), (-0.0, 0.0), (-inf, inf), (inf, inf)],
    "acos": [(nan, nan), (1.5, nan), (inf, nan), (-1.5, nan), (-inf, nan), (1.0, 0.0)],
    "acosh": [(nan, nan), (0.5, nan), (-inf, nan), (1.0, 0.0), (inf, inf)],
    "asin": [(nan, nan), (1.5, nan), (-1.5, nan), (inf, nan), (0.0, 0.0), (-0.0, -0.0)],
    "asinh": [(nan, nan), (0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf)],
    "atan": [(nan, nan), (0.0, 0.0), (-0.0, -0.0), (inf, pi / 2), (-inf, -pi / 2)],
    "atanh": [(nan, nan), (-1.5, nan), (1.5, nan), (-inf, nan), (inf, nan), (-1.0, -inf), (1.0, inf), (0.0, 0.0), (-0.0, -0.0)],
    "ceil": [(inf, inf), (-inf, -inf), (0.0, 0.0), (-0.0, -0.0), (nan, nan), (-0.5, -0.0), (3.0, 3.0)],
    "cos": [(nan, nan), (0.0, 1.0), (-0.0, 1.0), (inf, nan), (-inf, nan)],
    "cosh": [(nan, nan), (0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, inf)],
    "exp": [(nan, nan), (0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0)],
    "expm1": [(nan, nan), (0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -1.0)],
    "floor": [(inf, inf), (-inf, -inf), (0.0, 0.0), (-0.0, -0.0), (nan, nan), (-3.0, -3.0), (0.5, 0.0)],
    "log": [(nan, nan), (-1.0, nan), (-inf, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)],
    "log1p": [(nan, nan), (-1.5, nan), (-inf, nan), (-1.0, -inf), (-0.0, -0.0), (0.0, 0.0), (inf, inf)],
    "log2": [(nan, nan), (-1.0, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)],
    "log10": [(nan, nan), (-1.0, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)],
    "reciprocal": [(nan, nan), (inf, 0.0), (-inf, -0.0), (0.0, inf), (-0.0, -inf)],
    "round": [(inf, inf), (-inf, -inf), (0.0, 0.0), (-0.0, -0.0), (nan, nan), (0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0),
             (-2.5, -2.0)],
    "sign": [(nan, nan), (-2.5, -1.0), (-inf, -1.0), (0.0, AnySign(0.0)), (-0.0, AnySign(0.0)), (2.5, 1.0), (inf, 1.0)],
    "sin": [(nan, nan), (0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan)],
    "sinh": [(nan, nan), (0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf)],
    "sqrt": [(nan, nan), (-1.0, nan), (-inf, nan), (0.0, 0.0), (-0.0, -0.0), (inf, inf)],
    "square": [(nan, nan), (-0.0, 0.0), (inf, inf), (-inf, inf)],
    "tan": [(nan, nan), (0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan)],
    "tanh": [(nan, nan), (0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0)],
    "trunc": [(inf, inf), (-inf, -inf), (0.0, 0.0), (-0.0, -0.0), (nan, nan), (-0.5, -0.0), (0.5, 0.0)],
    "negative": [(0.0, -0.0), (-0.0, 0.0), (inf, -inf), (nan, nan)],
    "positive": [(-0.0, -0.0), (nan, nan)],
}  # fmt: skip

PREDICATES = {
    "isfinite": [(inf, False), (-inf, False), (nan, False), (-0.0, True), (1.0, True)],
    "isinf": [(inf, True), (-inf, True), (nan, False), (1.0, False)],
    "isnan": [(inf, False), (-inf, False), (nan, True), (1.0, False)],
    "signbit": [(inf, False), (-inf, True), (0.0, False), (-0.0, True), (1.0, False), (-1.0, True), (math.copysign(nan, 1.0), False),
                (math.copysign(nan, -1.0), True)],
}  # fmt: skip


def sums():
    yield from ((a, b, nan) for a, b in with_a_nan())
    yield from [(inf, -inf, nan), (-inf, inf, nan), (inf, inf, inf), (-inf, -inf, -inf), (-0.0, -0.0, -0.0), (-0.0, 0.0, 0.0),
                (0.0, -0.0, 0.0), (0.0, 0.0, 0.0), (2.5, -2.5, 0.0)]  # fmt: skip
    for x in FINITE:
        yield from [
            (inf, x, inf),
            (-inf, x, -inf),
            (x, inf, inf),
            (x, -inf, -inf),
            (0.0, x, x),
            (-0.0, x, x),
            (x, 0.0, x),
            (x, -0.0, x),
        ]


def with_a_nan():
    yield from ((nan, x) for x in (*NUMBERS, nan))
    yield from ((x, nan) for x in NUMBERS)


def signed(a, b, size):
    """`size` with the sign that a product or quotient of `a` and `b` has."""
    return math.copysign(size, math.copysign(1, a) * math.copysign(1, b))


def products():
    yield from ((a, b, nan) for a, b in with_a_nan())
    for a, b in itertools.product(NUMBERS, NUMBERS):
        if {abs(a), abs(b)} == {0.0, inf}:
            yield a, b, nan
        elif inf in (abs(a), abs(b)):
            yield a, b, signed(a, b, inf)
        elif 0.0 in (abs(a), abs(b)):
            yield a, b, signed(a, b, 0.0)


def quotients():
    yield from ((a, b, nan) for a, b in with_a_nan())
    for a, b in itertools.product(NUMBERS, NUMBERS):
        if abs(a) == abs(b) and abs(a) in (0.0, inf):
            yield a, b, nan
        elif abs(a) == inf or b == 0:
            yield a, b, signed(a, b, inf)
        elif a == 0 or abs(b) == inf:
            yield a, b, signed(a, b, 0.0)


def floored_quotients():
    yield from ((a, b, nan) for a, b in with_a_nan())
    for a, b in itertools.product(NUMBERS, NUMBERS):
        if abs(a) == abs(b) and abs(a) in (0.0, inf):
            yield a, b, nan
        elif abs(a) == inf:
            continue  # infinities by the list of quotients, or nan as Python has: the standard allows both
        elif b == 0:
            yield a, b, signed(a, b, inf)
        elif a == 0:
            yield a, b, signed(a, b, 0.0)
        elif abs(b) == inf:
            yield a, b, AnySign(0.0) if (a > 0) == (b > 0) else -1.0


def remainders():
    yield from ((a, b, nan) for a, b in with_a_nan())
    yield from ((a, b, nan) for a in (inf, -inf) for b in NUMBERS)
    yield from ((a, b, nan) for a in NUMBERS for b in (0.0, -0.0))
    for zero in (0.0, -0.0):
        yield from [(zero, 2.5, 0.0), (zero, -2.5, -0.0)]
    for x in FINITE:
        yield from [
            (x, inf, x),
            (x, -inf, -inf),
            (-x, inf, inf),
            (-x, -inf, -x),
            (x, x, 0.0),
            (-x, x, 0.0),
            (x, -x, -0.0),
        ]


def powers():
    yield from ((x, nan, nan) for x in NUMBERS if x != 1)
    yield from ((x, zero, 1.0) for x in (*NUMBERS, nan) for zero in (0.0, -0.0))
    yield from ((nan, y, nan) for y in NUMBERS if y != 0)
    for x in (2.5, -2.5):
        yield from [(x, inf, inf), (x, -inf, 0.0)]
    for x in (0.5, -0.5):
        yield from [(x, inf, 0.0), (x, -inf, inf)]
    for y in (inf, -inf):
        yield from [(1.0, y, 1.0), (-1.0, y, 1.0)]
    yield from ((1.0, y, 1.0) for y in NUMBERS)
    yield from [(inf, 0.5, inf), (inf, -0.5, 0.0), (-inf, 3.0, -inf), (-inf, 2.0, inf), (-inf, 2.5, inf), (-inf, -3.0, -0.0),
             (-inf, -2.0, 0.0),
                (0.0, 2.5, 0.0), (0.0, -2.5, inf), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, 2.5, 0.0), (-0.0, -3.0, -inf),
             (-0.0, -2.0, inf),
                (-0.0, -2.5, inf), (-2.5, 0.5, nan), (-0.5, -2.5, nan)]  # fmt: skip


def angles():
    yield from ((a, b, nan) for a, b in with_a_nan())
    for y in FINITE:
        yield from [
            (y, 0.0, pi / 2),
            (y, -0.0, pi / 2),
            (-y, 0.0, -pi / 2),
            (-y, -0.0, -pi / 2),
            (0.0, y, 0.0),
            (-0.0, y, -0.0),
        ]
        yield from [
            (0.0, -y, pi),
            (-0.0, -y, -pi),
            (y, inf, 0.0),
            (y, -inf, pi),
            (-y, inf, -0.0),
            (-y, -inf, -pi),
        ]
        yield from [(inf, y, pi / 2), (-inf, y, -pi / 2), (inf, -y, pi / 2), (-inf, -y, -pi / 2)]
    yield from [(0.0, 0.0, 0.0), (0.0, -0.0, pi), (-0.0, 0.0, -0.0), (-0.0, -0.0, -pi), (inf, inf, pi / 4), (inf, -inf, 3 * pi / 4),
                (-inf, inf, -pi / 4), (-inf, -inf, -3 * pi / 4)]  # fmt: skip


def lengths():
    yield from ((a, b, inf) for a in (inf, -inf) for b in (*NUMBERS, nan))
    yield from ((a, b, inf) for a in (*NUMBERS, nan) for b in (inf, -inf))
    yield from ((a, b, abs(b)) for a in (0.0, -0.0) for b in NUMBERS)
    yield from ((a, nan, nan) for a in NUMBERS if abs(a) != inf)
    yield from ((nan, b, nan) for b in (*NUMBERS, nan) if abs(b) != inf)


def with_signs():
    for a, b in itertools.product((*NUMBERS, nan), (*NUMBERS, nan, -nan)):
        yield a, b, math.copysign(a, b)


def neighbours():
    yield from ((a, b, nan) for a, b in with_a_nan())
    yield from ((a, a, a) for a in NUMBERS)
    yield from [(0.0, -0.0, -0.0), (-0.0, 0.0, 0.0)]


def sums_of_exponentials():
    yield from ((a, b, nan) for a, b in with_a_nan())
    yield from [
        (inf, 1.0, inf),
        (inf, inf, inf),
        (inf, -inf, inf),
        (1.0, inf, inf),
        (-inf, inf, inf),
        (-inf, 1.0, 1.0),
        (-inf, -inf, -inf),
    ]


def extremes(largest):
    def cases():
        yield from ((a, b, nan) for a, b in with_a_nan())
        yield from (
            (a, b, AnySign(0.0) if a == b == 0 else largest(a, b))
            for a, b in itertools.product(NUMBERS, NUMBERS)
        )

    return cases


BINARY = {
    "add": sums,
    "subtract": lambda: ((a, -b, c) for a, b, c in sums()),
    "multiply": products,
    "divide": quotients,
    "floor_divide": floored_quotients,
    "remainder": remainders,
    "pow": powers,
    "atan2": angles,
    "hypot": lengths,
    "copysign": with_signs,
    "nextafter": neighbours,
    "logaddexp": sums_of_exponentials,
    "maximum": extremes(max),
    "minimum": extremes(min),
}

zero_, inf_ = AnySign(0.0), AnySign(inf)
NEITHER = (nan, nan)


def turned(size, angle):
    """An infinity or a zero in the direction `angle`: "+infinity * cis(b)"."""
    return (math.copysign(size, math.cos(angle)), math.copysign(size, math.sin(angle)))


def of_finite(*rules):
    """Each rule for every number of `FINITE`."""
    return [case for b in FINITE for case in (rule(b) for rule in rules)]


# Of numbers a + bj with a sign bit of b that is 0; those of their conjugates are the conjugates.
COMPLEX = {
    "abs": [((s, b), (inf, 0.0)) for s in (inf, -inf) for b in (0.0, 1.0, inf, nan)]
    + [((a, inf), (inf, 0.0)) for a in (0.0, 1.0, -1.0, nan)]
    + [((0.0, 0.0), (0.0, 0.0)), ((-0.0, 0.0), (0.0, 0.0)), ((nan, 1.0), (nan, 0.0)), ((1.0, nan), (nan, 0.0)), (NEITHER, (nan, 0.0))],
    "acos": [((0.0, 0.0), (pi / 2, -0.0)), ((-0.0, 0.0), (pi / 2, -0.0)), ((0.0, nan), (pi / 2, nan)), ((-0.0, nan), (pi / 2, nan)),
             ((1.0, inf), (pi / 2, -inf)), ((-2.5, inf), (pi / 2, -inf)), ((1.0, nan), NEITHER), ((-inf, inf), (3 * pi / 4, -inf)),
             ((inf, inf), (pi / 4, -inf)), ((inf, nan), (nan, inf_)), ((-inf, nan), (nan, inf_)), ((nan, 1.0), NEITHER),
             ((nan, inf), (nan, -inf)),
             (NEITHER, NEITHER), *of_finite(lambda b: ((-inf, b), (pi, -inf)), lambda b: ((inf, b), (0.0, -inf)))],
    "acosh": [((0.0, 0.0), (0.0, pi / 2)), ((-0.0, 0.0), (0.0, pi / 2)), ((1.0, inf), (inf, pi / 2)), ((1.0, nan), NEITHER),
              ((-inf, inf), (inf, 3 * pi / 4)), ((inf, inf), (inf, pi / 4)), ((inf, nan), (inf, nan)), ((-inf, nan), (inf, nan)),
              ((nan, 1.0), NEITHER), ((nan, inf), (inf, nan)), (NEITHER, NEITHER),
              *of_finite(lambda b: ((-inf, b), (inf, pi)), lambda b: ((inf, b), (inf, 0.0)))],
    "asinh": [((0.0, 0.0), (0.0, 0.0)), ((1.0, nan), NEITHER), ((inf, inf), (inf, pi / 4)), ((inf, nan), (inf, nan)), ((nan, 0.0),
             (nan, 0.0)),
              ((nan, 1.0), NEITHER), ((nan, inf), (inf_, nan)), (NEITHER, NEITHER),
              *of_finite(lambda b: ((b, inf), (inf, pi / 2)), lambda b: ((inf, b), (inf, 0.0)))],
    "atanh": [((0.0, 0.0), (0.0, 0.0)), ((0.0, nan), (0.0, nan)), ((1.0, 0.0), (inf, 0.0)), ((1.0, nan), NEITHER), ((inf, inf),
             (0.0, pi / 2)),
              ((inf, nan), (0.0, nan)), ((nan, 1.0), NEITHER), ((nan, inf), (zero_, pi / 2)), (NEITHER, NEITHER),
              *of_finite(lambda b: ((b, inf), (0.0, pi / 2)), lambda b: ((inf, b), (0.0, pi / 2)))],
    "cosh": [((0.0, 0.0), (1.0, 0.0)), ((0.0, inf), (nan, zero_)), ((0.0, nan), (nan, zero_)), ((1.0, inf), NEITHER),
             ((1.0, nan), NEITHER),
             ((inf, 0.0), (inf, 0.0)), ((inf, inf), (inf_, nan)), ((inf, nan), (inf, nan)), ((nan, 0.0), (nan, zero_)),
             ((nan, 1.0), NEITHER),
             ((nan, inf), NEITHER), (NEITHER, NEITHER), *of_finite(lambda b: ((inf, b), turned(inf, b)))],
    "exp": [((0.0, 0.0), (1.0, 0.0)), ((-0.0, 0.0), (1.0, 0.0)), ((1.0, inf), NEITHER), ((1.0, nan), NEITHER), ((inf, 0.0), (inf, 0.0)),
            ((-inf, inf), (zero_, zero_)), ((inf, inf), (inf_, nan)), ((-inf, nan), (zero_, zero_)), ((inf, nan), (inf_, nan)),
            ((nan, 0.0), (nan, 0.0)), ((nan, 1.0), NEITHER), ((nan, inf), NEITHER), (NEITHER, NEITHER),
            *of_finite(lambda b: ((-inf, b), turned(0.0, b)), lambda b: ((inf, b), turned(inf, b)))],
    "expm1": [((0.0, 0.0), (0.0, 0.0)), ((-0.0, 0.0), (AnySign(0.0), 0.0)), ((1.0, inf), NEITHER), ((1.0, nan), NEITHER),
             ((inf, 0.0), (inf, 0.0)),
              ((-inf, inf), (-1.0, zero_)), ((inf, inf), (inf_, nan)), ((-inf, nan), (-1.0, zero_)), ((inf, nan), (inf_, nan)),
              ((nan, 0.0), (nan, 0.0)), ((nan, 1.0), NEITHER), ((nan, inf), NEITHER), (NEITHER, NEITHER),
              *of_finite(lambda b: ((-inf, b), (-1.0, turned(0.0, b)[1])), lambda b: ((inf, b), turned(inf, b)))],
    "log": [((-0.0, 0.0), (-inf, pi)), ((0.0, 0.0), (-inf, 0.0)), ((1.0, inf), (inf, pi / 2)), ((1.0, nan), NEITHER),
             ((-inf, inf), (inf, 3 * pi / 4)),
            ((inf, inf), (inf, pi / 4)), ((inf, nan), (inf, nan)), ((-inf, nan), (inf, nan)), ((nan, 1.0), NEITHER), ((nan, inf),
             (inf, nan)),
            (NEITHER, NEITHER), *of_finite(lambda b: ((-inf, b), (inf, pi)), lambda b: ((inf, b), (inf, 0.0)))],
    "log1p": [((-1.0, 0.0), (-inf, 0.0)), ((1.0, inf), (inf, pi / 2)), ((1.0, nan), NEITHER), ((-inf, inf), (inf, 3 * pi / 4)),
              ((inf, inf), (inf, pi / 4)), ((inf, nan), (inf, nan)), ((-inf, nan), (inf, nan)), ((nan, 1.0), NEITHER),
             ((nan, inf), (inf, nan)),
              (NEITHER, NEITHER), *of_finite(lambda b: ((-inf, b), (inf, pi)), lambda b: ((inf, b), (inf, 0.0)))],
    "sign": [((0.0, 0.0), (zero_, zero_)), ((nan, 1.0), NEITHER), ((1.0, nan), NEITHER), (NEITHER, NEITHER), ((-2.0, 0.0),
             (-1.0, zero_)),
             ((0.0, 2.0), (zero_, 1.0))],
    "sinh": [((0.0, 0.0), (0.0, 0.0)), ((0.0, inf), (zero_, nan)), ((0.0, nan), (zero_, nan)), ((1.0, inf), NEITHER),
             ((1.0, nan), NEITHER),
             ((inf, 0.0), (inf, 0.0)), ((inf, inf), (inf_, nan)), ((inf, nan), (inf_, nan)), ((nan, 0.0), (nan, 0.0)),
             ((nan, 1.0), NEITHER),
             ((nan, inf), NEITHER), (NEITHER, NEITHER), *of_finite(lambda b: ((inf, b), turned(inf, b)))],
    "sqrt": [((0.0, 0.0), (0.0, 0.0)), ((-0.0, 0.0), (0.0, 0.0)), *(((a, inf), (inf, inf)) for a in (0.0, 1.0, -1.0, inf, -inf, nan)),
             ((1.0, nan), NEITHER), ((-inf, nan), (nan, inf_)), ((inf, nan), (inf, nan)), ((nan, 1.0), NEITHER), (NEITHER, NEITHER),
             *of_finite(lambda b: ((-inf, b), (0.0, inf)), lambda b: ((inf, b), (inf, 0.0)))],
    "tanh": [((0.0, 0.0), (0.0, 0.0)), ((1.0, inf), NEITHER), ((0.0, inf), (0.0, nan)), ((1.0, nan), NEITHER), ((0.0, nan), (0.0, nan)),
             ((inf, inf), (1.0, zero_)), ((inf, nan), (1.0, zero_)), ((nan, 0.0), (nan, 0.0)), ((nan, 1.0), NEITHER),
             ((nan, inf), NEITHER),
             (NEITHER, NEITHER), *of_finite(lambda b: ((inf, b), (1.0, AnySign(0.0))))],
}  # fmt: skip
# "As if implemented by" another function of the list: of j * z, divided by j.
TURNED = {"asin": "asinh", "atan": "atanh", "sin": "sinh", "tan": "tanh"}


def negated(number):
    return number if isinstance(number, AnySign) else -number


def conjugate(pair):
    return (pair[0], negated(pair[1]))


@pytest.fixture(params=["one", "many"])
def call(request):
    """A function on tensors of one element, or on one of all arguments, whose kernels may be others."""

    def of(function, dtype, *columns):
        if request.param == "many":
            return function(*(xp.asarray(list(column), dtype=dtype) for column in columns)).tolist()
        return [
            function(*(xp.asarray(x, dtype=dtype) for x in row)).item() for row in zip(*columns, strict=True)
        ]

    return of


@pytest.mark.parametrize("dtype", REAL_DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_special_numbers(name, dtype, call):
    arguments, listed = zip(*UNARY[name], strict=True)
    ours = call(getattr(xp, name), getattr(xp, dtype), arguments)

    assert [row for row in zip(arguments, ours, listed, strict=True) if not real_agrees(*row[1:])] == []


@pytest.mark.parametrize("dtype", REAL_DTYPES)
@pytest.mark.parametrize("name", PREDICATES)
def test_questions_about_special_numbers(name, dtype, call):
    arguments, listed = zip(*PREDICATES[name], strict=True)

    assert call(getattr(xp, name), getattr(xp, dtype), arguments) == list(listed)


@pytest.mark.parametrize("dtype", REAL_DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_special_numbers(name, dtype, call):
    first, second, listed = zip(*BINARY[name](), strict=True)
    ours = call(getattr(xp, name), getattr(xp, dtype), first, second)

    assert [row for row in zip(first, second, ours, listed, strict=True) if not real_agrees(*row[2:])] == []


def complex_cases(name):
    if name not in TURNED:
        return COMPLEX[name] + [
            (conjugate(z), w if name == "abs" else conjugate(w)) for z, w in COMPLEX[name]
        ]
    # f(z) = -j g(jz): with jz = (a, b), z is (b, -a), and -j (u, v) is (v, -u).
    return [((b, -a), (v, negated(u))) for (a, b), (u, v) in complex_cases(TURNED[name])]


@pytest.mark.parametrize("dtype", COMPLEX_DTYPES)
@pytest.mark.parametrize("name", [*COMPLEX, *TURNED])
def test_functions_of_special_complex_numbers(name, dtype, call):
    arguments, listed = zip(*complex_cases(name), strict=True)
    ours = call(getattr(xp, name), getattr(xp, dtype), [complex(*z) for z in arguments])

    assert [
        row
        for row in zip(arguments, ours, listed, strict=True)
        if not complex_agrees(complex(row[1]), row[2])
    ] == []


@pytest.mark.parametrize("dtype", COMPLEX_DTYPES)
@pytest.mark.parametrize("name", ["log2", "log10"])
def test_logarithms_to_other_bases_are_quotients_of_logarithms(name, dtype, call):
    arguments = [complex(*z) for z, _ in complex_cases("log")]
    natural = call(xp.log, getattr(xp, dtype), arguments)
    listed = [(w.real / math.log(int(name[3:])), w.imag / math.log(int(name[3:]))) for w in natural]
    ours = call(getattr(xp, name), getattr(xp, dtype), arguments)

    assert [row for row in zip(arguments, ours, listed, strict=True) if not complex_agrees(*row[1:])] == []


@pytest.mark.parametrize("dtype", COMPLEX_DTYPES)
def test_questions_about_special_complex_numbers(dtype, call):
    arguments = [complex(a, b) for a, b in itertools.product((*NUMBERS, nan), (*NUMBERS, nan))]

    for name, asked in (("isfinite", cmath.isfinite), ("isinf", cmath.isinf), ("isnan", cmath.isnan)):
        assert call(getattr(xp, name), getattr(xp, dtype), arguments) == [asked(z) for z in arguments]


@pytest.mark.parametrize("dtype", COMPLEX_DTYPES)
def test_complex_sums_are_by_parts_and_complex_numbers_are_rounded_by_parts(dtype, call):
    numbers = [complex(a, b) for a, b in itertools.product((inf, -0.0, 0.5, nan), (-inf, 0.0, 2.5, nan))]
    first, second = zip(*itertools.product(numbers, numbers), strict=True)
    exact = getattr(xp, dtype)

    for ours, a, b in zip(call(xp.add, exact, first, second), first, second, strict=True):
        assert complex_agrees(ours, (a.real + b.real, a.imag + b.imag)), (a, b, ours)
    for ours, a, b in zip(call(xp.subtract, exact, first, second), first, second, strict=True):
        assert complex_agrees(ours, (a.real - b.real, a.imag - b.imag)), (a, b, ours)
    for ours, z in zip(call(xp.round, exact, numbers), numbers, strict=True):
        parts = [
            math.copysign(round(part), part) if math.isfinite(part) else part for part in (z.real, z.imag)
        ]
        assert complex_agrees(ours, parts), (z, ours)


@pytest.mark.parametrize("dtype", REAL_DTYPES)
def test_statistics_of_nothing_and_of_nans(dtype):
    exact = getattr(xp, dtype)
    nothing, gap = xp.zeros(0, dtype=exact), xp.asarray([1.0, nan, 3.0], dtype=exact)

    assert (xp.sum(nothing).item(), xp.prod(nothing).item()) == (0.0, 1.0)
    assert math.isnan(xp.mean(nothing).item())
    assert all(math.isnan(f(gap).item()) for f in (xp.max, xp.min, xp.sum, xp.prod, xp.mean, xp.std, xp.var))
    for spread in (xp.std, xp.var):
        for x, correction in ((xp.ones(2, dtype=exact), 2), (xp.ones(2, dtype=exact), 3), (nothing, 0)):
            with pytest.warns(UserWarning, match="degrees of freedom"):
                assert math.isnan(spread(x, correction=correction).item())
    assert [math.isnan(x) for x in xp.cumulative_sum(gap).tolist()] == [False, True, True]
    assert [math.isnan(x) for x in xp.cumulative_prod(gap).tolist()] == [False, True, True]


@pytest.mark.parametrize("dtype", REAL_DTYPES)
def test_bounds_of_clip_that_are_nan_and_numbers_that_are(dtype):
    x = xp.asarray([nan, 1.0, inf, -inf], dtype=getattr(xp, dtype))

    clipped = xp.clip(x, 0.0, 2.0).tolist()
    assert math.isnan(clipped[0])
    assert clipped[1:] == [1.0, 2.0, 0.0]
    bound = xp.full((4,), nan, dtype=x.dtype)
    assert all(map(math.isnan, xp.clip(x, bound, 2.0).tolist()))
    assert all(map(math.isnan, xp.clip(x, 0.0, bound).tolist()))


def test_nans_are_true_and_zeros_of_both_signs_are_equal():
    x = xp.asarray([nan, 0.0, -0.0, inf])

    assert xp.astype(x, xp.bool).tolist() == [True, False, False, True]
    assert xp.all(xp.asarray([nan, -inf])).item()
    assert xp.any(xp.asarray([nan])).item()
    assert xp.equal(x, xp.asarray([nan, -0.0, 0.0, inf])).tolist() == [False, True, True, True]
    assert xp.unique_values(xp.asarray([0.0, -0.0])).tolist() == [0.0]
    assert xp.count_nonzero(x).item() == 2
