"""Triangles, grids, sums of products and comparisons: values by hand and by numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import flambeau as fb
from flambeau.ops._spec import OPS
from flambeau.utils._python_dispatch import TorchDispatchMode

M = fb.arange(6.0).reshape(2, 3)
A, B = np.random.default_rng(0).standard_normal((2, 3, 4)), np.random.default_rng(1).standard_normal((2, 4, 3))


def t(*values):
    return fb.tensor(values)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: M.tril(), [[0, 0, 0], [3, 4, 0]]),
        (lambda: M.triu(1), [[0, 1, 2], [0, 0, 5]]),
        (lambda: fb.tril_indices(2, 3, -1), [[1], [0]]),
        (lambda: fb.triu_indices(2, 2), [[0, 0, 1], [0, 1, 1]]),
        (lambda: M.trace(), 4),
        (lambda: fb.diag(t(1, 2), 1), [[0, 1, 0], [0, 0, 2], [0, 0, 0]]),
        (lambda: fb.diag(M, 1), [1, 5]),
        (lambda: fb.diag_embed(fb.ones(2, 1)), [[[1]], [[1]]]),
        (lambda: fb.diagflat(fb.tensor([[1], [2]])), [[1, 0], [0, 2]]),
        (lambda: fb.block_diag(t(1, 2), fb.tensor([[3], [4]])), [[1, 2, 0], [0, 0, 3], [0, 0, 4]]),
        (lambda: fb.zeros(5, 2).fill_diagonal_(1, wrap=True), [[1, 0], [0, 1], [0, 0], [1, 0], [0, 1]]),
        (lambda: fb.cartesian_prod(t(1, 2), t(3, 4)), list(itertools.product([1, 2], [3, 4]))),
        (lambda: fb.combinations(t(1, 2, 3), 2), list(itertools.combinations([1, 2, 3], 2))),
        (lambda: fb.meshgrid(t(1, 2), t(3, 4, 5), indexing="xy")[0], [[1, 2]] * 3),
        (lambda: fb.kron(t(1, 2), fb.tensor([[1, 3]])), [[1, 3, 2, 6]]),
        (lambda: fb.repeat_interleave(t(7, 8), t(2, 1)), [7, 7, 8]),
        (lambda: fb.vander(t(2.0, 3.0)), [[2, 1], [3, 1]]),
        (lambda: fb.einsum("bij,bjk->bik", fb.tensor(A), fb.tensor(B)), A @ B),
        (lambda: fb.einsum("bij,bji->b", fb.tensor(A), fb.tensor(B)), np.einsum("bij,bji->b", A, B)),
        (lambda: fb.einsum("...i,...i", fb.tensor(A), fb.ones(4, dtype=fb.float64)), A.sum(-1)),
        (lambda: fb.einsum("ii->i", fb.eye(3) * 2), [2, 2, 2]),
        (lambda: fb.einsum(M, [0, 1], [1, 0]), M.numpy().T),
        (lambda: fb.tensordot(fb.tensor(A), fb.tensor(B), ([2, 0], [1, 0])), np.tensordot(A, B, ([2, 0], [1, 0]))),
        (lambda: fb.inner(M, M[0]), [5, 14]),
        (lambda: fb.cross(t(1, 0, 0), t(0, 1, 0), dim=0), [0, 0, 1]),
        (lambda: fb.cov(fb.tensor(A[0]), correction=0), np.cov(A[0], ddof=0)),
        (lambda: fb.corrcoef(fb.tensor(A[0])), np.corrcoef(A[0])),
        (lambda: fb.norm(t(3.0, 4.0)), 5),
        (lambda: fb.norm(M, p=1, dim=0), [3, 5, 7]),
        (lambda: fb.dist(t(1.0, 5.0), t(4.0, 1.0)), 5),
        (lambda: fb.renorm(fb.tensor([[3.0, 4.0], [0.0, 1.0]]), 2, 0, 1), [[0.6, 0.8], [0, 1]]),
        (lambda: fb.isclose(t(1.0, 2.0, math.inf), t(1.0 + 1e-7, 2.1, math.inf)), [True, False, True]),
        (lambda: fb.isin(t(1, 2, 3), t(3, 1)), [True, False, True]),
    ],
)
def test_values(found, expected):
    np.testing.assert_allclose(found().numpy(), expected, rtol=1e-5)


def test_whole_tensors_compare_to_python_bools():
    assert fb.equal(M, M.clone()) is True
    assert fb.equal(M, M[0]) is False
    assert fb.allclose(M, M + 1e-9) is True
    assert fb.allclose(t(math.nan), t(math.nan), equal_nan=True) is True


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: fb.einsum("ij,jk", M, M), RuntimeError, "size 2 for operand 1.*size 3"),
        (lambda: fb.einsum("i->j", M[0]), RuntimeError, "output subscript j"),
        (lambda: fb.tensordot(M, M, ([0], [1])), RuntimeError, "size 2 in dim 0"),
        (lambda: fb.cross(fb.ones(2), fb.ones(2), dim=0), RuntimeError, "must have length 3"),
        (lambda: fb.trace(M[0]), RuntimeError, "dim 1"),
        (lambda: fb.isclose(M, M.double()), RuntimeError, "float32.*float64"),
        (lambda: fb.equal(M, 3), TypeError, "int"),
        (lambda: fb.meshgrid(M, indexing="ij"), RuntimeError, r"\(2, 3\)"),
    ],
)
def test_mistakes_are_explained(call, error, said):
    with pytest.raises(error, match=said):
        call()


@pytest.mark.parametrize("dtype", [fb.uint8, fb.int16, fb.int32])
def test_sums_of_products_of_small_integers_keep_their_dtype(dtype):
    x, a, b = fb.ones(2, 2, dtype=dtype), fb.full((3, 2, 4), 5, dtype=dtype), fb.full((3, 4, 2), 5, dtype=dtype)

    result = fb.addbmm(x, a, b)

    assert (result.dtype, result.tolist()) == (dtype, [[(1 + 300) % 256 if dtype is fb.uint8 else 301] * 2] * 2)


@pytest.mark.parametrize("layout", ["row-major", "channels last", "permuted"])
def test_products_of_batches_have_the_same_bits_under_a_dispatch_mode_whatever_the_strides_are(layout):
    class Passes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    x = fb.randn(2, 4, 6, 6)
    x = {"row-major": x, "channels last": x.to(memory_format=fb.channels_last), "permuted": x.permute(0, 2, 1, 3)}[layout]
    plain = fb.einsum("bchw,bchw->bc", x, x)
    with Passes():
        seen = fb.einsum("bchw,bchw->bc", x, x)

    assert plain.tolist() == seen.tolist()
    assert plain.tolist() == fb.einsum("bchw,bchw->bc", x.contiguous(), x.contiguous()).tolist()


@pytest.mark.parametrize("dtype", [fb.int64, fb.int32, fb.uint8, fb.bfloat16, fb.float16, fb.complex64])
def test_products_of_every_dtype_are_answered_by_the_plan(dtype):
    a, b = (fb.arange(n * 40).reshape(n, 40).remainder(5).to(dtype) for n in (30, 20))

    made = OPS["mm"].answer(a, b.T), OPS["inner"].answer(a, b)

    expected = (a.real if dtype.is_complex else a).long() @ (b.real if dtype.is_complex else b).long().T
    assert all(m is not None and fb.equal(m, expected.to(dtype)) for m in made)
