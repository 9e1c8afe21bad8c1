"""How tensors print. Fixed texts; then random arrays and options against PyTorch where installed."""
from __future__ import annotations

import types
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flambeau import _printing as printing

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="compares with PyTorch")

# dtypes numpy lacks: the integer type of the same bits, to hand the same numbers to both sides
AS_BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
UNMARKED = ("float32", "int64", "bool", "complex64")
INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def default_options():
    with printing.printoptions(profile="default"):
        yield


def text(values, dtype=np.float32, **options):
    array = np.array(values, dtype)
    name = array.dtype.name
    with printing.printoptions(**options):
        return printing.tensor_text(array, [] if name in UNMARKED else [f"dtype=torch.{name}"])


class Tensor:
    """What `tensor_repr` reads of a tensor."""

    def __init__(self, array, device="cpu", requires_grad=False, grad_fn=None):
        self._array, self.shape, self.dtype = array, array.shape, f"torch.{array.dtype.name}"
        self.device = types.SimpleNamespace(type=device)
        self.is_meta = device == "meta"
        self.requires_grad = requires_grad or grad_fn is not None
        self.grad_fn = grad_fn and types.SimpleNamespace(name=lambda: grad_fn)


Tensor.__module__ = "flambeau.tensor"


@pytest.mark.parametrize(("values", "expected"), [
    (3.0, "tensor(3.)"),
    (-0.0, "tensor(-0.)"),
    (3.14159, "tensor(3.1416)"),
    ([1, 2], "tensor([1., 2.])"),
    ([-0.0, 1.5], "tensor([-0.0000, 1.5000])"),
    ([0, 0], "tensor([0., 0.])"),
    ([NAN, INF, -0.0], "tensor([nan, inf, -0.])"),
    ([1.5, NAN, INF, -INF], "tensor([1.5000,    nan,    inf,   -inf])"),
    ([1e10], "tensor([1.0000e+10])"),
    ([1e8], "tensor([100000000.])"),
    ([9.9e-5], "tensor([9.9000e-05])"),
    ([1001, 1], "tensor([1.0010e+03, 1.0000e+00])"),
    ([100.0, 0.1], "tensor([100.0000,   0.1000])"),
    ([], "tensor([])"),
])
def test_float_notation_follows_the_range_of_the_numbers(values, expected):
    assert text(values) == expected


@pytest.mark.parametrize(("values", "dtype", "expected"), [
    ([True, False], np.bool_, "tensor([ True, False])"),
    ([1, -200], np.int64, "tensor([   1, -200])"),
    ([2**64 - 1], np.uint64, "tensor([18446744073709551615], dtype=torch.uint64)"),
    ([1.5], np.float64, "tensor([1.5000], dtype=torch.float64)"),
    ([3e38, 1e-3], ml_dtypes.bfloat16, "tensor([3.0041e+38, 9.9945e-04], dtype=torch.bfloat16)"),
    ([1.5, 2], ml_dtypes.float8_e5m2, "tensor([1.5000, 2.0000], dtype=torch.float8_e5m2)"),
    ([1 + 2j, 3.5 - 1j], np.complex64, "tensor([1.0000+2.j, 3.5000-1.j])"),
    ([complex(0, INF)], np.complex64, "tensor([0.+infj])"),
    ([1j, complex(2, 1e9)], np.complex64, "tensor([0.+1.0000e+00j, 2.+1.0000e+09j])"),
])
def test_each_kind_of_dtype(values, dtype, expected):
    assert text(values, dtype) == expected


def test_matrices_of_a_stack_are_separated_by_empty_lines():
    assert text(np.zeros((2, 2, 1, 2))) == (
        "tensor([[[[0., 0.]],\n\n         [[0., 0.]]],\n\n\n        [[[0., 0.]],\n\n         [[0., 0.]]]])"
    )


def test_more_elements_than_the_threshold_are_summarised():
    assert text(np.arange(1001), np.int64) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    assert text(np.arange(100).reshape(10, 10), np.int64, threshold=5, edgeitems=1) == (
        "tensor([[ 0,  ...,  9],\n        ...,\n        [90,  ..., 99]])"
    )


def test_lines_break_before_the_width():
    assert text(np.arange(20), np.int64, linewidth=30) == (
        "tensor([ 0,  1,  2,  3,  4,\n         5,  6,  7,  8,  9,\n        10, 11, 12, 13, 14,\n"
        "        15, 16, 17, 18, 19])"
    )
    assert text([0.5, 0.25], np.float64, linewidth=40) == (
        "tensor([0.5000, 0.2500],\n       dtype=torch.float64)"
    )


@pytest.mark.parametrize(("tensor", "expected"), [
    (Tensor(np.ones(3, "f4"), requires_grad=True), "tensor([1., 1., 1.], requires_grad=True)"),
    (Tensor(np.ones(1, "f4"), grad_fn="AddBackward0"), "tensor([1.], grad_fn=<AddBackward0>)"),
    (Tensor(np.ones(1, "f4"), grad_fn="torch::autograd::CopySlices"), "tensor([1.], grad_fn=<CopySlices>)"),
    (Tensor(np.empty((2, 0), "i8")), "tensor([], size=(2, 0), dtype=torch.int64)"),
    (Tensor(np.empty(0, "f4")), "tensor([])"),
])
def test_what_the_numbers_do_not_show_follows_them(tensor, expected):
    assert printing.tensor_repr(tensor) == expected


def test_a_meta_tensor_shows_its_size_instead_of_numbers():
    tensor = Tensor(np.empty((2, 3), "i4"))
    tensor.is_meta, tensor.device = True, _Device("meta")

    assert printing.tensor_repr(tensor) == "tensor(..., device='meta', size=(2, 3), dtype=torch.int32)"


class _Device:
    def __init__(self, kind):
        self.type = kind

    def __str__(self):
        return self.type


def test_subclasses_print_under_their_own_name():
    class Temperatures(Tensor):
        pass

    class Frozen(Temperatures):
        _is_param = True

    Temperatures.__module__ = Frozen.__module__ = "users"

    assert printing.tensor_repr(Temperatures(np.ones(2, "f4"))) == "Temperatures([1., 1.])"
    assert printing.tensor_repr(Frozen(np.ones(2, "f4"))) == "Parameter(Frozen([1., 1.]))"


def test_a_profile_is_a_starting_point_and_sci_mode_is_set_by_every_call():
    with printing.printoptions(profile="short", precision=6):
        assert printing.get_printoptions() == {
            "precision": 6, "threshold": 1000, "edgeitems": 2, "linewidth": 80, "sci_mode": None}
        printing.set_printoptions(sci_mode=True)
        assert printing.get_printoptions()["sci_mode"] is True
        printing.set_printoptions(precision=3)
        assert printing.get_printoptions()["sci_mode"] is None


def test_options_return_after_a_with_block_that_fails():
    with pytest.raises(KeyError), printing.printoptions(precision=9):
        raise KeyError

    assert printing.get_printoptions()["precision"] == 4


# --- against PyTorch ----------------------------------------------------------------------------------------

OPTIONS = st.fixed_dictionaries({}, optional={
    "precision": st.sampled_from([0, 1, 2, 6, 10]),
    "threshold": st.sampled_from([0, 5, 20]),
    "edgeitems": st.sampled_from([0, 1, 2, 5]),
    "linewidth": st.sampled_from([1, 20, 40, 60, 81, 120]),
    "profile": st.sampled_from(["default", "short", "full", "unknown"]),
    "sci_mode": st.sampled_from([True, False, None]),
})
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=13)
BOUNDARY = st.sampled_from(
    [0.0, -0.0, 1.0, 1e-4, 9.99e-5, 1e8, 1e8 + 8, 1000, 1001, 999.5, 12, 1e30, NAN, INF, -INF])
# A few values repeated make columns whose width hangs on one element; unrestricted ones make the rest.
FLOATS = st.lists(BOUNDARY | st.floats(width=32), min_size=1, max_size=6)


@st.composite
def floating_arrays(draw):
    name = draw(st.sampled_from(["float16", "float32", "float64", *AS_BITS]))
    values = np.array(draw(FLOATS))
    array = np.resize(values, draw(SHAPES))
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")                  # narrowing to half may overflow to inf, as wanted
        return array.astype(getattr(ml_dtypes, name, name))


@st.composite
def complex_arrays(draw):
    parts = [np.resize(np.array(draw(FLOATS), "f4"), draw(st.shared(SHAPES, key="shape"))) for _ in range(2)]
    made = np.empty(parts[0].shape, draw(st.sampled_from(["complex64", "complex128"])))
    made.real, made.imag = parts
    return made


def integer_arrays():
    return st.sampled_from(["bool", "u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8"]).flatmap(
        lambda dtype: hnp.arrays(dtype, SHAPES))


def to_torch(array):
    name = array.dtype.name
    if name in AS_BITS:
        bits = torch.from_numpy(np.ascontiguousarray(array).view(AS_BITS[name]))
        return bits.view(getattr(torch, name)).reshape(array.shape)
    return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)


@needs_torch
@settings(max_examples=400, deadline=None, derandomize=True)
@given(array=floating_arrays() | integer_arrays() | complex_arrays(), options=OPTIONS,
       flags=st.sampled_from([{}, {"requires_grad": True}, {"grad_fn": "AliasBackward0"}]))
def test_texts_are_those_of_pytorch(array, options, flags):
    theirs = to_torch(array)
    if flags and not (theirs.is_floating_point() or theirs.is_complex()):
        flags = {}
    if flags:
        theirs = theirs.requires_grad_()
    if "grad_fn" in flags:
        theirs = torch.ops.aten.alias(theirs)
    torch.set_printoptions(**options)
    try:
        expected = repr(theirs)
    finally:
        torch.set_printoptions(profile="default")     # of the whole process, which other files' tests print in
    with printing.printoptions(profile="default"):
        printing.set_printoptions(**options)

        assert printing.tensor_repr(Tensor(array, **flags)) == expected
