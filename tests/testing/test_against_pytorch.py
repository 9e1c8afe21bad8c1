"""`assert_close` says what PyTorch's says, word for word, and `make_tensor` draws the same numbers."""

from __future__ import annotations

import collections
import warnings

import numpy as np
import pytest

import flambeau as fb

CLOSE = """
1e-9, 1e-10, rtol=0, atol=0
1.0, 2.0
1, 2
1, 2.0
1, 2.0, check_dtype=False
True, False
None, 3
"a", "b"
[1, 2], [1]
[1, [2, 3]], [1, [2, 4]]
{"a": 1}, {"b": 1}
{"a": T(1.0)}, {"a": T(2.0)}
OrderedDict(a=1), {"a": 1}
T([1.0, 2.0]), T([1.0, 2.5])
T(1.0), T(2.0)
T([1.0]), T([1.0, 2.0])
T([1.0]), T([1.0], dtype=torch.float64)
T([1.0]), T([1.1], dtype=torch.float64), check_dtype=False
T([1.0]), T([1.0], device="meta")
T([1.0]), torch.empty(1, device="meta"), check_device=False
torch.ones(2, 3), torch.ones(3, 2).t(), check_stride=True
T([1, 2]), T([1, 5])
T([True, False]), T([True, True])
T([1j]), T([2j])
T([nan]), T([nan])
T([nan]), T([nan]), equal_nan=True
T([inf]), T([-inf])
T([inf]), T([1.0])
np.array([1.0]), np.array([2.0])
np.array([1.0]), T([1.0])
torch.nn.Parameter(T([1.0])), T([1.0]), allow_subclasses=False
torch.nn.Parameter(T([1.0])), T([1.0])
1.0, 1.0, rtol=1
1.0, 2.0, msg="said so"
1.0, 2.0, msg=lambda said: "before\\n" + said
[1.0], [2.0], msg=lambda said: "before\\n" + said
T([1], dtype=torch.uint8), T([255], dtype=torch.uint8)
T([1.0, 3.0]).bfloat16(), T([1.5, 3.0]).bfloat16()
torch.arange(6.0).reshape(2, 3), torch.zeros(2, 3)
T(1), T(3)
torch.ones(0), torch.ones(0)
[T(1.0), T(2.0)], [T(1.0), T(3.0)]
(1,), [1]
{1}, {1}
np.float32(1), np.float32(2)
np.float64(1), 1.0
np.bool_(True), np.bool_(False)
1j, 2j
T([1.0], requires_grad=True), T([1.0])
T([1, 2]), T([1, 5]), rtol=0.5, atol=3
T([1]), T([1.0]), check_dtype=False
range(3), [0, 1, 2]
inf, 1.0
nan, nan
"""


def said(lib, arguments):
    scope = {"torch": lib, "T": lib.tensor, "np": np, "inf": float("inf"), "nan": float("nan"), "OrderedDict": collections.OrderedDict}
    try:
        eval(f"torch.testing.assert_close({arguments})", scope)
    except Exception as error:  # of every type: that is the result
        return type(error).__name__, str(error).replace("<class 'flambeau", "<class 'torch")
    return "close"


@pytest.mark.oracle
@pytest.mark.parametrize("arguments", CLOSE.strip().split("\n"))
def test_assert_close_says_what_pytorch_says(arguments, oracle):
    ours, theirs = said(fb, arguments), said(oracle, arguments)

    assert ours == theirs


MADE = """
dtype=torch.float32
dtype=torch.int8
dtype=torch.uint8
dtype=torch.bool
dtype=torch.complex64
dtype=torch.bfloat16
dtype=torch.float16, low=0, high=1
dtype=torch.int32, low=3, high=4
dtype=torch.float64, noncontiguous=True
dtype=torch.int64, exclude_zero=True, low=0, high=2
dtype=torch.float32, memory_format=torch.channels_last
dtype=torch.float32, requires_grad=True
dtype=torch.float32, low=1, high=1
dtype=torch.int32, low=1, high=1
dtype=torch.int32, requires_grad=True
dtype=torch.float32, low=nan
dtype=torch.float32, low=-inf, high=inf
dtype=torch.float64, low=-inf
dtype=torch.float32, noncontiguous=True, memory_format=torch.contiguous_format
dtype=torch.uint8, low=-5, high=300
dtype=torch.int8, low=200, high=300
dtype=torch.float32, low=10
"""


def made(lib, arguments):
    lib.manual_seed(0)
    scope = {"torch": lib, "inf": float("inf"), "nan": float("nan")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = eval(f"torch.testing.make_tensor(2, 3, 2, 2, device='cpu', {arguments})", scope)
        except Exception as error:  # of every type: that is the result
            return type(error).__name__, str(error)
    return found.detach().flatten().tolist(), found.stride(), found.requires_grad, str(found.dtype)


@pytest.mark.oracle
@pytest.mark.parametrize("arguments", MADE.strip().split("\n"))
def test_make_tensor_draws_what_pytorch_draws(arguments, oracle):
    assert made(fb, arguments) == made(oracle, arguments)
