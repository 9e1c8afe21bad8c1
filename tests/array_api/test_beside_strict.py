"""The array API's namespace beside `array_api_strict`, which has the standard's names, dtypes and refusals over numpy's arrays.

Where the standard leaves open what happens, the two need not agree, and what is drawn here avoids it: integers beside floating numbers,
uint64 beside signed integers, bounds and casts that do not fit, powers of zero to a complex number, products of infinite complex numbers.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as fb

hypothesis = pytest.importorskip("hypothesis")
strict = pytest.importorskip("array_api_strict")

from hypothesis import given, settings  # noqa: E402  both packages are tests' own, and may be absent
from hypothesis import strategies as st  # noqa: E402
from hypothesis.extra import numpy as arrays_of  # noqa: E402

xp = fb.array_api
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
NUMERIC = INTEGERS + FLOATS + COMPLEX
REAL = INTEGERS + FLOATS
DTYPES = ("bool", *NUMERIC)
SIGNED_AND_UNSIGNED = [pair for pair in itertools.product(INTEGERS, INTEGERS) if np.result_type(*pair).kind in "iu"]

FLOATING = "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 sin sinh sqrt tan tanh"
UNARY = {
    **dict.fromkeys(FLOATING.split(), FLOATS),
    **dict.fromkeys(["abs", "ceil", "floor", "trunc", "sign", "round", "positive", "negative", "square"], REAL),
    **dict.fromkeys(["isfinite", "isinf", "isnan"], REAL),
    **dict.fromkeys(["reciprocal", "signbit"], FLOATS),
    **dict.fromkeys(["conj", "imag", "real"], COMPLEX),
    "bitwise_invert": ("bool", *INTEGERS),
    "logical_not": ("bool",),
}
BINARY = {
    **dict.fromkeys(["add", "subtract", "multiply"], NUMERIC),
    **dict.fromkeys(["equal", "not_equal"], DTYPES),
    **dict.fromkeys(["less", "less_equal", "greater", "greater_equal", "maximum", "minimum"], REAL),
    **dict.fromkeys(["atan2", "copysign", "divide", "hypot", "logaddexp", "nextafter", "pow"], FLOATS),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], ("bool", *INTEGERS)),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], ("bool",)),
}
few = settings(deadline=None, max_examples=25, derandomize=True, database=None)


def numbers(dtype):
    """Any number of `dtype`; of complex ones finite parts, for what infinite ones give in products is left open."""
    if dtype in FLOATS:
        # Where numbers below the smallest normal one are counted as zero by the processor, the two sides may differ in them.
        return st.floats(width=np.dtype(dtype).itemsize * 8, allow_subnormal=False)
    if dtype in COMPLEX:
        parts = st.floats(-1e3, 1e3, width=32, allow_subnormal=False)
        return st.builds(complex, parts, parts)
    return arrays_of.from_dtype(np.dtype(dtype))


def small(dtype):
    """Numbers with which sums and products do not depend on an order."""
    if dtype == "bool":
        return st.booleans()
    whole = st.integers(0 if dtype[0] == "u" else -3, 3)
    return st.builds(complex, whole, whole) if dtype in COMPLEX else whole


def arrays(dtype, shape, of=numbers):
    return arrays_of.arrays(np.dtype(dtype), shape, elements=of(dtype))


shapes = arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
solid = arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


def plain(value):
    return value.resolve_conj().numpy() if isinstance(value, fb.Tensor) else np.asarray(value)


def agree(ours, theirs, signs=True):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            agree(one, other, signs)
        return
    if not hasattr(theirs, "__array_namespace__"):
        assert ours == theirs
        return
    ours, theirs = plain(ours), plain(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if theirs.dtype.kind in "fc":
        precision = 1e-5 if theirs.dtype.itemsize <= 4 * (1 + (theirs.dtype.kind == "c")) else 1e-12
        np.testing.assert_allclose(ours, theirs, rtol=precision, atol=precision)
        for one, other in ((ours.real, theirs.real), (ours.imag, theirs.imag)):
            zero = (one == 0) & (other == 0)
            assert not signs or (np.signbit(one) == np.signbit(other))[zero].all()
    else:
        np.testing.assert_array_equal(ours, theirs)


def both(name, *arguments, signs=True, **named):
    """The function of that dotted name of both namespaces, of the same numbers; without `signs` either sign of a zero will do."""
    answers = []
    for namespace, dtypes in ((xp, fb), (strict, strict)):

        def own(value, namespace=namespace, dtypes=dtypes):
            if isinstance(value, np.ndarray):
                return namespace.asarray(value.copy())
            if isinstance(value, np.dtype):
                return getattr(dtypes, value.name)
            return [own(v) for v in value] if isinstance(value, list) else value

        function = namespace
        for part in name.split("."):
            function = getattr(function, part)
        with np.errstate(all="ignore"):
            answers.append(function(*map(own, arguments), **{k: own(v) for k, v in named.items()}))
    agree(*answers, signs)


def test_all_names_of_2024_12_are_there():
    strict.set_array_api_strict_flags(api_version="2024.12")
    own = {"ArrayAPIStrictFlags", "Device", "ModuleType", "get_array_api_strict_flags", "reset_array_api_strict_flags"}
    own |= {"set_array_api_strict_flags", "broadcast_shapes", "isin"}  # the last two are the standard's of 2025
    names = {name for name in dir(strict) if name[0] != "_"} - own

    assert names - set(dir(xp)) == set()
    for extension in ("linalg", "fft"):
        assert set(getattr(strict, extension).__all__) - set(dir(getattr(xp, extension))) == set()


@pytest.mark.parametrize("name", UNARY)
@few
@given(data=st.data())
def test_functions_of_one_tensor(name, data):
    dtype = data.draw(st.sampled_from(UNARY[name]))

    both(name, data.draw(arrays(dtype, shapes)))


@pytest.mark.parametrize("name", BINARY)
@few
@given(data=st.data())
def test_functions_of_two_tensors_broadcast_and_promote(name, data):
    dtypes = BINARY[name]
    told = {*SIGNED_AND_UNSIGNED, *itertools.product(FLOATS + COMPLEX, repeat=2), ("bool", "bool")}
    pairs = [pair for pair in itertools.product(dtypes, dtypes) if pair in told]
    first, second = data.draw(st.sampled_from(pairs))
    drawn = data.draw(arrays_of.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))

    both(name, data.draw(arrays(first, drawn.input_shapes[0])), data.draw(arrays(second, drawn.input_shapes[1])))


@pytest.mark.parametrize("name", BINARY)
@few
@given(data=st.data())
def test_functions_of_a_tensor_and_a_python_number(name, data):
    dtype = data.draw(st.sampled_from(BINARY[name]))
    x, number = data.draw(arrays(dtype, shapes)), data.draw(small(dtype))
    if name == "copysign" or (name == "atan2" and number == 0):
        number = float(number)

    both(name, x, number)
    both(name, number, x)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "count_nonzero"])
@few
@given(data=st.data())
def test_reductions_over_any_axes(name, data):
    kinds = DTYPES if name in ("all", "any", "count_nonzero") else FLOATS if name in ("mean", "std", "var") else NUMERIC[:10]
    dtype = data.draw(st.sampled_from(kinds))
    x = data.draw(arrays(dtype, solid, small))
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1) | arrays_of.valid_tuple_axes(x.ndim))

    both(name, x, axis=axis, keepdims=data.draw(st.booleans()))


@pytest.mark.parametrize("name", ["argmax", "argmin", "sort", "argsort", "flip", "unstack", "diff", "cumulative_sum", "cumulative_prod"])
@few
@given(data=st.data())
def test_functions_along_one_axis(name, data):
    dtype = data.draw(st.sampled_from(REAL))
    x = data.draw(arrays(dtype, solid, small))
    named = {"axis": data.draw(st.integers(-x.ndim, x.ndim - 1))}
    if name in ("sort", "argsort"):
        named["descending"] = data.draw(st.booleans())
    if name[:10] == "cumulative":
        named["include_initial"] = data.draw(st.booleans())
    if name == "diff":
        named["n"] = data.draw(st.integers(0, 3))
        named["prepend"] = data.draw(st.none() | st.just(x))

    both(name, x, **named)


@few
@given(data=st.data())
def test_elements_are_taken_by_indices(data):
    x = data.draw(arrays(data.draw(st.sampled_from(DTYPES)), solid))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    indices = st.integers(-x.shape[axis], x.shape[axis] - 1)
    along = list(x.shape)
    along[axis] = data.draw(st.integers(1, 4))

    both("take", x, data.draw(arrays_of.arrays(np.int64, st.integers(0, 4), elements=indices)), axis=axis)
    both("take_along_axis", x, data.draw(arrays_of.arrays(np.int64, tuple(along), elements=indices)), axis=axis)
    both("nonzero", x)
    both("repeat", x, data.draw(st.integers(0, 3)), axis=axis)
    both("roll", x, data.draw(st.integers(-5, 5)), axis=axis)


@few
@given(data=st.data())
def test_searches_in_sorted_tensors(data):
    dtype = data.draw(st.sampled_from(REAL))
    x, values = data.draw(arrays(dtype, (5,), small)), data.draw(arrays(dtype, solid, small))
    side = data.draw(st.sampled_from(["left", "right"]))

    both("searchsorted", np.sort(x), values, side=side)
    both("searchsorted", x, values, side=side, sorter=np.argsort(x))


@few
@given(data=st.data())
def test_sets_are_in_order(data):
    x = data.draw(arrays(data.draw(st.sampled_from(("bool", *REAL))), shapes, small))

    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        both(name, x)


@few
@given(data=st.data())
def test_shapes_are_changed(data):
    x = data.draw(arrays(data.draw(st.sampled_from(DTYPES)), solid))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))

    both("expand_dims", x, axis=axis)
    both("concat", [x, x], axis=data.draw(st.none() | st.just(axis)))
    both("stack", [x, x], axis=axis)
    both("moveaxis", x, axis, 0)
    both("permute_dims", x, tuple(data.draw(st.permutations(range(x.ndim)))))
    both("tile", x, tuple(data.draw(st.lists(st.integers(0, 2), max_size=4))))
    both("reshape", x, (-1,))
    both("broadcast_to", x, (2, *x.shape))
    both("flip", x)
    if x.ndim > 1:
        for name in ("tril", "triu"):
            both(name, x, k=data.draw(st.integers(-3, 3)))
        both("matrix_transpose", x)


@few
@given(data=st.data())
def test_bounds_of_clip_are_numbers_or_tensors(data):
    dtype = data.draw(st.sampled_from(REAL))
    x = data.draw(arrays(dtype, shapes))
    low, high = sorted(data.draw(st.tuples(small(dtype), small(dtype))))

    both("clip", x, data.draw(st.none() | st.just(low)), high)
    both("clip", x, np.full(x.shape, low, dtype), np.full((), high, dtype))


@few
@given(data=st.data())
def test_casts_and_facts_of_dtypes(data):
    first, second = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from(DTYPES))
    x = data.draw(arrays(first, shapes, small))
    if not (first in COMPLEX and second not in COMPLEX) and not (first[0] != "u" and second[0] == "u"):
        both("astype", x, np.dtype(second))
    both("can_cast", np.dtype(first), np.dtype(second))
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"):
        both("isdtype", np.dtype(first), kind)


@pytest.mark.parametrize("dtype", NUMERIC)
@few
@given(data=st.data())
def test_products(dtype, data):
    n, k, m = (data.draw(st.integers(1, 4)) for _ in range(3))
    a, b = data.draw(arrays(dtype, (2, n, k), small)), data.draw(arrays(dtype, (k, m), small))

    both("matmul", a, b, signs=False)
    both("matmul", a, b[:, 0], signs=False)
    both("tensordot", a, b, axes=1, signs=False)
    both("tensordot", a, b, axes=0, signs=False)
    both("tensordot", a, b, axes=((2,), (0,)), signs=False)
    both("vecdot", a, b[:, 0], signs=False)
    both("vecdot", a, a[0], axis=-2, signs=False)
    both("linalg.outer", b[:, 0], b[0])
    both("linalg.trace", a, offset=data.draw(st.integers(-3, 3)), signs=False)
    both("linalg.diagonal", a, offset=data.draw(st.integers(-3, 3)))


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@few
@given(data=st.data())
def test_norms_and_transforms(dtype, data):
    x = data.draw(arrays(dtype, solid, small))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    norm = data.draw(st.sampled_from(["backward", "ortho", "forward"]))
    settings = {"axis": axis, "n": data.draw(st.none() | st.integers(2, 6)), "norm": norm}

    for name in ("rfft", "ihfft") if dtype in FLOATS else ("fft", "ifft", "hfft", "irfft"):
        if name in ("hfft", "irfft") and settings["n"] is None and x.shape[axis] < 2:
            continue  # no number of points
        ours, theirs = (getattr(m.fft, name)(m.asarray(x.copy()), **settings) for m in (xp, strict))
        assert plain(ours).dtype == plain(theirs).dtype
        np.testing.assert_allclose(plain(ours), plain(theirs), rtol=1e-4, atol=1e-4)
    both("fft.fftshift", x, axes=axis)
    both("fft.ifftshift", x)
    for order in (0, 1, 2, 3, np.inf, -np.inf):
        both("linalg.vector_norm", x, ord=order, axis=data.draw(st.none() | st.just(axis)), keepdims=data.draw(st.booleans()))


@few
@given(data=st.data())
def test_vectors_of_three_are_multiplied_also_where_one_has_fewer_dimensions(data):
    dtype = data.draw(st.sampled_from(INTEGERS[:4] + FLOATS + COMPLEX))
    drawn = data.draw(arrays_of.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3))

    both("linalg.cross", *(data.draw(arrays(dtype, (*shape, 3), small)) for shape in drawn.input_shapes), signs=False)


def test_complex_sums_have_nan_in_no_part_that_has_it_in_no_operand():
    parts = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan])
    values = np.array([complex(a, b) for a in parts for b in parts])

    for dtype in COMPLEX:
        x = values.astype(dtype)
        with np.errstate(all="ignore"):
            both("add", x[:, None], x)
            both("subtract", x[:, None], x)
            both("add", x, 1 + 2j)
            both("subtract", 1 + 2j, parts.astype(dtype.replace("complex64", "float32").replace("complex128", "float64")))


def test_a_bound_that_the_dtype_does_not_hold_bounds_nothing():
    for dtype in ("uint8", "uint64"):
        x = xp.asarray([0, 5, 255], dtype=getattr(xp, dtype))
        assert xp.clip(x, -1).tolist() == [0, 5, 255]
        assert xp.clip(x, -1, 2).tolist() == [0, 2, 2]
