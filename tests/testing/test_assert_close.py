"""`assert_close` and `make_tensor` beside PyTorch's: the same verdict and the same words."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

NAN, INF = float("nan"), float("inf")
CASES = [
    lambda lib, t, check: check(t([1.0, 2.0, 3.0]), t([1.0, 2.1, 3.5])),
    lambda lib, t, check: check(t(1.0), t(2.0)),
    lambda lib, t, check: check(1.0, 2.0),
    lambda lib, t, check: check(1, 1.0),
    lambda lib, t, check: check(1, 1.0, check_dtype=False),
    lambda lib, t, check: check(t([1, 2]), t([1, 3])),
    lambda lib, t, check: check(t([1.0]), t([1.0], dtype=lib.float64)),
    lambda lib, t, check: check(t([1.0]), t([[1.0]])),
    lambda lib, t, check: check([1.0, 2.0], [1.0, 3.0]),
    lambda lib, t, check: check({"a": t([1.0])}, {"b": t([1.0])}),
    lambda lib, t, check: check({"a": [t([1.0]), 3]}, {"a": [t([1.0]), 4]}),
    lambda lib, t, check: check([1], [1, 2]),
    lambda lib, t, check: check((1, 2), [1, 2]),
    lambda lib, t, check: check(t([1.0]), 1.0),
    lambda lib, t, check: check("a", "a"),
    lambda lib, t, check: check(t([NAN]), t([NAN])),
    lambda lib, t, check: check(t([NAN]), t([NAN]), equal_nan=True),
    lambda lib, t, check: check(t([1.0]), t([1.1]), rtol=1),
    lambda lib, t, check: check(t([1.0]), t([1.1]), msg="mine"),
    lambda lib, t, check: check(t([1.0]), t([1.1]), msg=lambda text: "head\n" + text),
    lambda lib, t, check: check(None, None),
    lambda lib, t, check: check(None, 1),
    lambda lib, t, check: check(True, False),
    lambda lib, t, check: check(t([[1.0, 2.0], [3.0, 4.0]]), t([[1.0, 2.0], [3.0, 9.0]])),
    lambda lib, t, check: check(t([True, False]), t([True, True])),
    lambda lib, t, check: check(t([1.0, 2.0]), t([1.0, 2.0]).requires_grad_()),
    lambda lib, t, check: check(np.array([1.0, 2.0]), np.array([1.0, 3.0])),
    lambda lib, t, check: check(np.float32(1.0), np.float32(2.0)),
    lambda lib, t, check: check(lib.zeros(2, 3), lib.zeros(3, 2).T, check_stride=True),
    lambda lib, t, check: check(t(1 + 1j), t(2 + 1j)),
    lambda lib, t, check: check(1 + 1j, 2 + 1j),
    lambda lib, t, check: check(t([1.0]), [1.0]),
    lambda lib, t, check: check(t([1.0, INF]), t([1.0, 0.0])),
    lambda lib, t, check: check(t([1.0, INF]), t([1.0, INF])),
    lambda lib, t, check: check(lib.zeros(1, device="meta"), lib.zeros(1)),
    lambda lib, t, check: check(t([1.0, 2.0]), t([1.0, 2.5]), rtol=0, atol=0.1),
    lambda lib, t, check: check(t([]), t([])),
    lambda lib, t, check: check(t([1, 2]), t([1.0, 2.0]), check_dtype=False),
    lambda lib, t, check: check(t([2.0]), t([0.0])),
    lambda lib, t, check: check(t([255], dtype=lib.uint8), t([0], dtype=lib.uint8)),
    lambda lib, t, check: check(lib.nn.Parameter(t([1.0])), t([1.0])),
    lambda lib, t, check: check(lib.nn.Parameter(t([1.0])), t([1.0]), allow_subclasses=False),
    lambda lib, t, check: check(5, 0),
    lambda lib, t, check: check({"a": {"b": [t([1.0])]}}, {"a": {"b": [t([2.0])]}}),
]


@pytest.mark.oracle
@pytest.mark.parametrize("number", range(len(CASES)))
def test_verdicts_and_words_are_pytorchs(oracle, number):
    told = []
    for lib in (oracle, fb):
        try:
            CASES[number](lib, lib.tensor, lib.testing.assert_close)
            told.append(None)
        except (AssertionError, ValueError, TypeError) as error:
            told.append((type(error), str(error).replace("flambeau.tensor.Tensor", "torch.Tensor").replace("flambeau", "torch")))

    assert told[1] == told[0]


MADE = [
    {"dtype": "float32"},
    {"dtype": "int64"},
    {"dtype": "uint8"},
    {"dtype": "bool"},
    {"dtype": "complex64"},
    {"dtype": "bfloat16"},
    {"dtype": "float64", "requires_grad": True},
    {"dtype": "float32", "low": -1, "high": 1},
    {"dtype": "int8", "low": -3, "high": 3},
    {"dtype": "uint8", "low": -3, "high": 400},
    {"dtype": "float32", "noncontiguous": True},
    {"dtype": "int64", "exclude_zero": True},
]


@pytest.mark.oracle
@pytest.mark.parametrize("options", MADE, ids=str)
def test_random_tensors_of_the_same_seed_are_pytorchs(oracle, options):
    made = []
    for lib in (oracle, fb):
        lib.manual_seed(0)
        tensor = lib.testing.make_tensor((2, 3), device="cpu", **{**options, "dtype": getattr(lib, options["dtype"])})
        made.append((tensor.detach().tolist(), tensor.stride(), tensor.requires_grad))

    assert made[1] == made[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": 3, "high": 1}, "3 >= 1"),
        ({"low": NAN}, "NaN"),
        ({"dtype": fb.int32, "requires_grad": True}, "int32"),
        ({"noncontiguous": True, "memory_format": fb.channels_last}, "mutually exclusive"),
    ],
    ids=["bounds", "nan", "grad", "order"],
)
def test_inputs_that_cannot_be_made_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fb.testing.make_tensor((2,), device="cpu", **{"dtype": fb.float32, **options})


def test_allclose_is_deprecated_and_still_compares():
    with pytest.warns(FutureWarning, match="assert_close"):
        fb.testing.assert_allclose(fb.tensor([1.0]), [1.0])
    with pytest.warns(FutureWarning, match="assert_close"), pytest.raises(AssertionError, match="not close"):
        fb.testing.assert_allclose(fb.tensor([1.0]), [2.0])
