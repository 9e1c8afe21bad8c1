"""Functions of the elements that a mask selects, beside PyTorch's and beside the same of the elements picked out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as fb
from flambeau import masked

NAMES = ("sum", "prod", "amax", "amin", "argmax", "argmin", "mean", "median", "norm", "var", "std", "logsumexp")
X = np.array([[1.5, -2.0, 3.0], [4.0, 0.5, -6.0]], np.float32)
M = np.array([[True, False, True], [False, True, True]])
PLAIN = {
    "sum": lambda x: x.sum(), "prod": lambda x: x.prod(), "amax": lambda x: x.amax(), "amin": lambda x: x.amin(),
    "mean": lambda x: x.mean(),
    "median": lambda x: x.median(), "norm": lambda x: x.norm(), "var": lambda x: x.var(), "std": lambda x: x.std(),
    "logsumexp": lambda x: x.logsumexp(0),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_row_is_reduced_as_its_elements_that_count(name):
    x, m = fb.from_numpy(X), fb.from_numpy(M)
    given = {"dim": 1, "mask": m}

    got = getattr(masked, name)(x, **given)

    assert fb.allclose(got, fb.stack([PLAIN[name](row[keep]) for row, keep in zip(x, m, strict=True)]))


CASES = list(itertools.product(NAMES, (0, 1, None, (), (0, 1)), (False, True), ("f", "i")))


@pytest.mark.parametrize(("name", "dim", "keepdim", "kind"), CASES)
def test_reductions_are_pytorchs(name, dim, keepdim, kind):
    torch = pytest.importorskip("torch")
    if name in ("argmax", "argmin", "median") and (dim is None and name == "median" or isinstance(dim, tuple)):
        pytest.skip("one dimension is reduced")
    x = X if kind == "f" else X.astype(np.int64)
    given = {"dim": dim, "keepdim": keepdim}

    def run(lib, convert):
        try:
            return getattr(lib.masked, name)(convert(x), mask=convert(M), **given)
        except (ValueError, RuntimeError) as error:
            return type(error)

    expected, got = run(torch, torch.from_numpy), run(fb, fb.from_numpy)

    if isinstance(expected, type):
        assert issubclass(got, expected)
    else:
        assert str(got.dtype) == str(expected.dtype)
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin", "cumsum", "cumprod"])
@pytest.mark.parametrize("mask", [M, M[0], None, np.zeros((2, 3), bool)])
def test_functions_along_a_dimension_are_pytorchs(name, mask):
    torch = pytest.importorskip("torch")

    expected = getattr(torch.masked, name)(torch.from_numpy(X), 1, mask=None if mask is None else torch.from_numpy(mask))
    got = getattr(masked, name)(fb.from_numpy(X), 1, mask=None if mask is None else fb.from_numpy(mask))

    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("order", [0.0, 1.0, 2.0, float("inf"), float("-inf")])
def test_normalize_is_pytorchs(order):
    torch = pytest.importorskip("torch")

    expected = torch.masked.normalize(torch.from_numpy(X), order, 1, mask=torch.from_numpy(M))

    np.testing.assert_allclose(masked.normalize(fb.from_numpy(X), order, 1, mask=fb.from_numpy(M)).numpy(), expected.numpy(), rtol=1e-6)


def test_logaddexp_leaves_out_what_its_masks_do():
    x, m = fb.from_numpy(X), fb.from_numpy(M)

    assert fb.equal(masked.logaddexp(x, x * 2, input_mask=m), fb.where(m, fb.logaddexp(x, x * 2), x * 2))
    assert masked.logaddexp(x, x, input_mask=~m, other_mask=~m)[m].tolist() == [float("-inf")] * 4


def test_a_mask_that_selects_nothing_gives_the_number_that_changes_no_other():
    x, none = fb.ones(2, 3), fb.zeros(2, 3, dtype=fb.bool)

    assert masked.sum(x, 1, mask=none).tolist() == [0.0, 0.0]
    assert masked.prod(x, 1, mask=none).tolist() == [1.0, 1.0]
    assert masked.amax(x, 1, mask=none).tolist() == [float("-inf")] * 2
    assert masked.amin(x.long(), 1, mask=none).tolist() == [2**63 - 1] * 2
    assert masked.mean(x, 1, mask=none).isnan().all()


def test_gradients_reach_the_elements_that_count():
    x = fb.tensor([[1.0, 2.0, 3.0]], requires_grad=True)

    masked.mean(x, 1, mask=fb.tensor([True, False, True])).sum().backward()

    assert x.grad.tolist() == [[0.5, 0.0, 0.5]]


def test_masks_of_inputs_and_results_are_pytorchs():
    torch = pytest.importorskip("torch")

    def answers(mod, functions):
        x, m = mod.from_numpy(X), mod.from_numpy(M)
        yield functions._input_mask(x, mask=m[0])
        for name, args in (("sum", (1,)), ("cumsum", (1,)), ("norm", (2, 0)), ("mean", (None,)), ("median", (0,))):
            for keepdim in (False, True):
                yield functions._output_mask(getattr(functions, name), x, *args, mask=m, keepdim=keepdim)

    for ours, theirs in zip(answers(fb, masked), answers(torch, pytest.importorskip("torch.masked")), strict=True):
        assert ours.numpy().tolist() == theirs.numpy().tolist()
    with pytest.raises(ValueError, match="_input_mask requires explicit mask"):
        masked._input_mask(fb.ones(2))


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda x: masked.sum(x, 5), IndexError, "Dimension out of range"),
        (lambda x: masked.sum(x, (0, 0)), RuntimeError, "appears multiple times"),
        (lambda x: masked.sum(x, mask=fb.ones(1, 2, 3).bool()), IndexError, "broadcastable mask"),
        (lambda x: masked.sum(x, mask=fb.ones(4).bool()), RuntimeError, "must match the existing size"),
        (lambda x: masked.sum(x, mask=[True]), TypeError, "mask must be a Tensor"),
        (lambda x: masked.sum([1.0]), TypeError, "input must be a Tensor"),
        (lambda x: masked.mean(x.long()), ValueError, "Could not infer output dtype"),
        (lambda x: masked.amax(x > 0, mask=x > 0), NotImplementedError, "identity of amax on torch.bool"),
        (lambda x: masked.amax(x + 1j, mask=x > 0), TypeError, "no order"),
        (lambda x: masked.median(x.long(), 1, mask=x > 9), ValueError, "fully masked out rows"),
        (lambda x: masked.var(x, 1, True, correction=1), AssertionError, "Only one of unbiased and correction"),
        (lambda x: masked.var(x > 0, 1), RuntimeError, "bool"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call(fb.ones(2, 3))
