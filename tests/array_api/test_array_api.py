"""The array API standard 2024.12: names and signatures against its list, dtypes against its table, values against numpy's namespace.

`signatures.txt` is the standard's list of functions, constants and dtypes: https://data-apis.org/array-api/2024.12/API_specification/
"""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path

import numpy as np
import pytest

import flambeau as fb

xp = fb.ones(1).__array_namespace__()
LISTED = (Path(__file__).parent / "signatures.txt").read_text(encoding="utf-8").splitlines()

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
NUMERIC = INTEGERS + FLOATS + COMPLEX
DTYPES = ("bool", *NUMERIC)
# Numbers where functions have cases of their own.
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-30, 3e38)

BY_KIND = {
    NUMERIC: "negative positive square",
    DTYPES[1:11]: "abs ceil floor round sign trunc isfinite isinf isnan",
    FLOATS: "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal signbit sin sinh sqrt tan tanh",
    COMPLEX: "abs acos asin atan conj cos cosh exp expm1 imag isfinite isinf isnan log log10 log1p log2 real round sin sinh sqrt tan tanh",
    ("bool", *INTEGERS): "bitwise_invert",
    ("bool",): "logical_not",
}
PAIRS_BY_KIND = {
    NUMERIC: "add equal multiply not_equal subtract",
    INTEGERS + FLOATS: "floor_divide greater greater_equal less less_equal maximum minimum remainder",
    FLOATS: "atan2 copysign divide hypot logaddexp nextafter pow",
    COMPLEX: "divide",
    ("bool", *INTEGERS): "bitwise_and bitwise_or bitwise_xor",
    INTEGERS: "bitwise_left_shift bitwise_right_shift",
    ("bool",): "logical_and logical_or logical_xor",
}
UNARY = [(name, dtype) for dtypes, names in BY_KIND.items() for name in names.split() for dtype in dtypes]
BINARY = [(name, dtype) for dtypes, names in PAIRS_BY_KIND.items() for name in names.split() for dtype in dtypes]


def draw(shape, dtype, seed=0, *, positive=False):
    """An array with numbers of both signs where `dtype` has such, and none twice as far from zero as it can hold."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        return rng.integers(1 if positive else 0 if dtype[0] == "u" else -4, 6, shape).astype(dtype)
    real = rng.standard_normal(shape) * 2
    return (np.abs(real) + 0.1 if positive else real + 1j * rng.standard_normal(shape) if dtype in COMPLEX else real).astype(dtype)


def agree(ours, theirs, rtol=1e-5):
    """Whether tensors are numpy's arrays: shapes, dtypes, values; also of tuples of them."""
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            agree(one, other, rtol)
        return
    theirs = np.asarray(theirs)
    assert tuple(ours.shape) == theirs.shape
    assert str(ours.dtype) == f"torch.{theirs.dtype}"
    np.testing.assert_allclose(ours.resolve_conj().numpy(), theirs, rtol=rtol, atol=rtol)


def both(function, *arrays, rtol=1e-5, **settings):
    """`function`, a dotted name, of the arrays in both namespaces, compared."""

    def of(namespace, convert):
        for part in function.split("."):
            namespace = getattr(namespace, part)
        return namespace(*[convert(a) if isinstance(a, (np.ndarray, np.generic)) else a for a in arrays], **settings)

    with np.errstate(all="ignore"):
        agree(of(xp, lambda a: xp.asarray(np.array(a))), of(np, lambda a: a), rtol)


def test_names_and_signatures_are_the_standards():
    found = []
    for home in ("", "linalg.", "fft."):
        namespace = getattr(xp, home[:-1]) if home else xp
        for name in sorted(namespace.__all__):
            value = getattr(namespace, name)
            if name[:2] == "__" or inspect.ismodule(value):
                continue
            text = ""
            if inspect.isfunction(value):
                parameters = [p.replace(annotation=p.empty) for p in inspect.signature(value).parameters.values()]
                text = str(inspect.Signature(parameters))
            found.append(home + name + text)

    assert found == LISTED


def test_the_namespace_is_that_of_the_version_asked_for():
    x = fb.ones(2)

    assert x.__array_namespace__(api_version="2022.12") is xp
    assert xp.__array_api_version__ == "2024.12"
    with pytest.raises(ValueError, match=r"'2031\.12'"):
        x.__array_namespace__(api_version="2031.12")


def test_tensors_move_by_the_standards_method():
    assert fb.ones(2).to_device("meta").device.type == "meta"
    with pytest.raises(ValueError, match="stream"):
        fb.ones(2).to_device("cpu", stream=1)


def test_the_inspection_interface_tells_what_there_is():
    info = xp.__array_namespace_info__()

    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.default_device() in info.devices()
    assert info.default_dtypes() == {
        "real floating": fb.float32, "complex floating": fb.complex64, "integral": fb.int64, "indexing": fb.int64,
    }  # fmt: skip
    assert tuple(info.dtypes()) == DTYPES
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", *COMPLEX}


@pytest.mark.parametrize(("first", "second"), list(itertools.product(DTYPES, DTYPES)))
def test_promotion_is_the_standards_also_of_tensors_without_dimensions(first, second):
    a, b = xp.ones((2,), dtype=getattr(xp, first)), xp.ones((), dtype=getattr(xp, second))
    kinds = ["integral" if d in INTEGERS else "bool" if d == "bool" else "number" for d in (first, second)]
    if kinds[0] != kinds[1]:
        assert not xp.can_cast(a, b.dtype)  # the standard leaves open what such pairs give
        return
    expected = np.result_type(np.dtype(first), np.dtype(second))
    if expected == np.float64 and kinds[0] == "integral":
        with pytest.raises(TypeError, match=f"no integer dtype holds both torch.{first} and torch.{second}"):
            xp.result_type(a, b)
        return

    assert str(xp.result_type(a, b.dtype)) == f"torch.{expected}"
    assert xp.can_cast(a.dtype, b.dtype) == (expected == np.dtype(second))
    made = xp.where(xp.asarray([True, False]), a, b)
    assert str(made.dtype) == f"torch.{expected}"
    assert xp.concat([a, b], axis=None).dtype == made.dtype


@pytest.mark.parametrize(
    ("dtype", "number"), [("int8", 3), ("float32", 2.5), ("float32", 1), ("complex64", 1.5), ("uint64", 2), ("bool", True)]
)
def test_pythons_numbers_take_the_dtype_of_the_tensor(dtype, number):
    x = xp.asarray(draw((3,), dtype))

    assert xp.equal(x, number).dtype is fb.bool
    assert xp.where(xp.asarray(True), number, x).dtype is x.dtype
    if dtype != "bool":
        assert xp.multiply(number, x).dtype is x.dtype
    with pytest.raises(TypeError, match="one argument must be a tensor"):
        xp.equal(number, number)


@pytest.mark.parametrize(("name", "dtype"), UNARY)
def test_functions_of_one_tensor_have_numpys_values(name, dtype):
    for shape in ((), (0,), (3, 4)):
        both(name, draw(shape, dtype))
    if dtype in FLOATS:
        both(name, np.array(SPECIAL, dtype))


@pytest.mark.parametrize(("name", "dtype"), BINARY)
def test_functions_of_two_tensors_have_numpys_values(name, dtype):
    avoids_zero = name in ("floor_divide", "remainder", "divide", "bitwise_left_shift", "bitwise_right_shift")
    x, y = draw((3, 1), dtype, positive=name == "pow"), draw((4,), dtype, 1, positive=avoids_zero)

    both(name, x, y)
    both(name, x, y[0].reshape(()))
    if dtype in FLOATS and name != "floor_divide":  # where the standard allows several results
        both(name, *(a.astype(dtype).ravel() for a in np.meshgrid(SPECIAL, SPECIAL)))


def test_zeros_of_remainders_have_the_sign_of_the_divisor():
    found = xp.remainder(xp.asarray([-1.0, 1.0, -0.0, 2.0]), xp.asarray([1.0, -1.0, 3.0, -2.0]))

    assert xp.signbit(found).tolist() == [False, True, False, True]


def test_the_sign_of_nan_is_nan():
    assert xp.isnan(xp.sign(xp.asarray([xp.nan, 1.0]))).tolist() == [True, False]


@pytest.mark.parametrize("dtype", NUMERIC)
def test_sums_and_products_widen_integers(dtype):
    x = draw((3, 4, 5), dtype)

    for name, axis, keepdims in itertools.product(("sum", "prod"), (None, 0, (0, 2), ()), (False, True)):
        both(name, x, axis=axis, keepdims=keepdims)
    for name, initial in itertools.product(("cumulative_sum", "cumulative_prod"), (False, True)):
        both(name, x, axis=1, include_initial=initial)
    both("linalg.trace", x, offset=1)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_statistics_sorts_and_searches_have_numpys_values(dtype):
    x = draw((3, 4, 5), dtype)

    for axis, keepdims in itertools.product((None, -1, (0, 2), ()), (False, True)):
        for name in ("max", "min", "all", "any", "count_nonzero"):
            both(name, x, axis=axis, keepdims=keepdims)
        if dtype in FLOATS:
            both("mean", x, axis=axis, keepdims=keepdims)
            for name in ("var", "std") if axis != () else ():
                both(name, x, axis=axis, keepdims=keepdims, correction=0.5)
    for name, axis in itertools.product(("argmax", "argmin"), (None, 1)):
        both(name, x, axis=axis)
    both("sort", x, axis=0)
    both("argsort", x, axis=-1, stable=True)
    both("searchsorted", np.sort(draw((9,), dtype)), draw((2, 3), dtype, 1), side="right")
    both("diff", x, n=2, axis=0)
    both("nonzero", x)
    both("take", x, np.array([0, 2, -1]), axis=1)
    both("take_along_axis", x, np.array([[[0], [1], [-1], [2]]] * 3), axis=-1)
    both("clip", x, 0, 2)
    both("clip", x, draw((5,), dtype, 2), None)


def test_descending_sorts_keep_the_order_of_equals():
    x = xp.asarray([1, 2, 1, 2])

    assert xp.argsort(x, descending=True).tolist() == [1, 3, 0, 2]
    assert xp.sort(x, descending=True).tolist() == [2, 2, 1, 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sets_have_values_positions_and_counts(dtype):
    x = draw((3, 4, 5), dtype)

    for array in (x, x[:0], x[0, 0, 0]):
        for name in ("unique_all", "unique_counts", "unique_inverse"):
            both(name, array)
        agree(xp.unique_values(xp.asarray(np.array(array))), np.unique(array))  # in order, which the standard leaves open


def test_every_nan_is_distinct_in_sets():
    values, counts = xp.unique_counts(xp.asarray([xp.nan, 1.0, xp.nan, 1.0]))

    assert values.shape == (3,)
    assert counts.tolist() == [2, 1, 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_change_as_numpys_do(dtype):
    x = draw((3, 4, 5), dtype)

    for name, settings in (("flip", {}), ("flip", {"axis": (0, -1)}), ("roll", {"shift": 2}), ("roll", {"shift": (1, -2), "axis": (0, 1)}),
                           ("roll", {"shift": 1, "axis": (0, 1)}), ("expand_dims", {"axis": -2}), ("unstack", {"axis": 1}),
                           ("tril", {"k": -1}), ("triu", {"k": 2}), ("linalg.diagonal", {"offset": 1})):  # fmt: skip
        both(name, x, **settings)
    both("moveaxis", x, (0, 1), (2, 0))
    both("permute_dims", x, (2, 0, 1))
    both("matrix_transpose", x)
    both("tile", x, (2, 1, 1, 2))
    both("repeat", x, np.array([1, 0, 2]), axis=0)
    both("repeat", x, 2)
    both("reshape", x, (4, -1))
    both("squeeze", x[:1], 0)
    both("broadcast_arrays", x[:, :1, :1], x[0])
    both("meshgrid", x[0, 0], x[0, :, 0])
    for k in (-1, 0, 2, 9):
        agree(xp.eye(3, 5, k=k, dtype=getattr(xp, dtype)), np.eye(3, 5, k, dtype))


def test_making_tensors():
    assert xp.arange(5, 0, 1).tolist() == []
    assert xp.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert xp.arange(3.0).dtype is fb.float32
    assert xp.linspace(0, 6, 3, endpoint=False).tolist() == [0.0, 2.0, 4.0]
    assert xp.linspace(0, 6, 0).shape == (0,)
    assert xp.full(3, True).dtype is fb.bool
    assert xp.zeros(()).shape == ()
    x = xp.ones(2)
    assert xp.asarray(x, copy=False) is x
    assert xp.asarray(x, copy=True).data_ptr() != x.data_ptr()
    assert xp.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]


def test_what_the_standard_forbids_raises():
    x = xp.ones((2, 3))

    with pytest.raises(ValueError, match="copy=False"):
        xp.reshape(x.mT, (6,), copy=False)
    with pytest.raises(ValueError, match="not of size 1"):
        xp.squeeze(x, 0)
    with pytest.raises(ValueError, match="axis is needed"):
        xp.cumulative_sum(x)
    with pytest.raises(ValueError, match="no dimension"):
        xp.nonzero(xp.asarray(1))
    with pytest.raises(TypeError, match="real"):
        xp.astype(xp.asarray(1j), xp.float32)
    with pytest.raises(ValueError, match="unknown kind 'reals'"):
        xp.isdtype(xp.float32, "reals")


def test_facts_of_dtypes():
    largest = (2 - 2.0**-23) * 2.0**127
    assert xp.finfo(xp.complex64) == xp.finfo(xp.ones(1)) == (32, 2.0**-23, largest, -largest, 2.0**-126, fb.float32)
    assert xp.iinfo(xp.uint64) == (64, 2**64 - 1, 0, fb.uint64)
    assert xp.isdtype(xp.int8, ("bool", "signed integer"))
    assert not xp.isdtype(xp.uint8, "signed integer")


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
def test_linear_algebra_has_numpys_values(dtype):
    x = draw((2, 4, 4), dtype)
    definite = x @ np.conj(x.mT) + np.eye(4, dtype=dtype) * 2

    for name in ("det", "inv", "slogdet", "eigvalsh", "svdvals", "matrix_rank", "pinv", "cholesky"):
        both(f"linalg.{name}", definite, rtol=1e-3)
    both("linalg.matrix_power", definite, -2, rtol=1e-3)
    for ord_, keepdims in itertools.product(("fro", "nuc", 1, -2, np.inf), (False, True)):
        both("linalg.matrix_norm", x, ord=ord_, keepdims=keepdims, rtol=1e-4)
    for ord_, axis in itertools.product((0, 1, 3, np.inf, -np.inf), (None, -1, (0, 2))):
        both("linalg.vector_norm", x, ord=ord_, axis=axis, rtol=1e-4)
    both("linalg.solve", definite, x[0], rtol=1e-3)
    both("linalg.solve", definite, x[0, 0], rtol=1e-3)
    both("linalg.cross", x[0, :, :3], x[1, :1, :3])
    both("linalg.outer", x[0, 0], x[1, 0, :3])
    both("vecdot", x, x[0], axis=-2, rtol=1e-4)
    both("matmul", x, x[0, 0], rtol=1e-4)
    both("tensordot", x, x, axes=((0, 1), (0, 2)), rtol=1e-4)
    for name in ("qr", "svd"):
        parts = getattr(xp.linalg, name)(xp.asarray(x[:, :3]))
        shapes = [tuple(p.shape) for p in parts]
        assert shapes == [p.shape for p in getattr(np.linalg, name)(x[:, :3])]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_products_of_integers_keep_their_dtype(dtype):
    x = draw((3, 3), dtype)

    both("matmul", x, x)
    both("vecdot", x, x)
    both("tensordot", x, x)
    both("linalg.matrix_power", x, 2)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
def test_fourier_transforms_have_numpys_values(dtype):
    x = draw((2, 3, 4), dtype)

    for norm in ("backward", "ortho", "forward"):
        for name in ("fft", "ifft", "irfft", "hfft", *(("rfft", "ihfft") if dtype in FLOATS else ())):
            both(f"fft.{name}", x, n=5, axis=1, norm=norm, rtol=1e-4)
        for name in ("fftn", "ifftn", "irfftn", *(("rfftn",) if dtype in FLOATS else ())):
            both(f"fft.{name}", x, s=(3, 5), axes=(0, 1), norm=norm, rtol=1e-4)
    both("fft.fftshift", x, axes=(0,))
    both("fft.ifftshift", x)
    for name in ("fftfreq", "rfftfreq"):
        agree(getattr(xp.fft, name)(5, d=0.5, dtype=xp.float64), getattr(np.fft, name)(5, 0.5))


def test_gradients_pass():
    x = fb.ones(2, 2, requires_grad=True)

    xp.sum(xp.linalg.solve(x + xp.eye(2), xp.multiply(x, 2.0))).backward()

    assert x.grad is not None
