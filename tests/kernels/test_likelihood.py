"""Cross entropy of rows, compiled and by numpy, against its formula in float64; and as the public function."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import flambeau as fb
import flambeau.nn.functional as F
from flambeau_kernels.cpu import likelihood_rows, losses
from flambeau_kernels.engine import llvm, pool

needs_compiler = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")
CASES = [(weighted, smoothing, reduction) for weighted in (False, True) for smoothing in (0.0, 0.1)
         for reduction in ("mean", "sum", "none")]  # fmt: skip


def given(rows, classes, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    scores = (rng.normal(size=(rows, classes)) * 3).astype(dtype)
    target = rng.integers(0, classes, rows)
    return scores, target, rng.uniform(0.5, 2, classes).astype(dtype)


def by_formula(scores, target, weight, smoothing, reduction, ignored=-100):
    """Loss and its gradient (of its sum, for 'none')."""
    scores = scores.astype(np.float64)
    rows, classes = scores.shape
    counts = target != ignored
    chosen = np.where(counts, target, 0)
    share = np.full((rows, classes), smoothing / classes)
    share[np.arange(rows), chosen] += 1 - smoothing
    share *= weight * counts[:, None]
    total = (weight[chosen] * counts).sum() if reduction == "mean" else 1.0
    loss = -(share * special.log_softmax(scores, 1)).sum(1) / total
    slope = (special.softmax(scores, 1) * share.sum(1, keepdims=True) - share) / total
    return (loss if reduction == "none" else loss.sum()), slope


@pytest.mark.parametrize(("weighted", "smoothing", "reduction"), CASES)
@pytest.mark.parametrize("shape", [(9, 40), (40, 3), (5, 1000)])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_cross_entropy_and_its_gradient(shape, ignored, weighted, smoothing, reduction):
    scores, target, weight = given(*shape)
    target[1] = ignored
    x = fb.tensor(scores, requires_grad=True)
    w = fb.tensor(weight) if weighted else None

    made = F.cross_entropy(x, fb.tensor(target), w, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing)
    made.sum().backward()

    loss, slope = by_formula(scores, target, weight if weighted else np.ones(shape[1]), smoothing, reduction, ignored)
    np.testing.assert_allclose(made.detach().numpy(), loss, rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), slope, atol=1e-13)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_float32(reduction):
    scores, target, weight = given(20, 30, np.float32)
    x = fb.tensor(scores, requires_grad=True)

    made = F.cross_entropy(x, fb.tensor(target), fb.tensor(weight), reduction=reduction)
    made.sum().backward()

    loss, slope = by_formula(scores, target, weight.astype(float), 0.0, reduction)
    np.testing.assert_allclose(made.detach().numpy(), loss, rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), slope, atol=1e-6)


def test_second_derivatives():
    scores, target, weight = given(20, 10)
    target[3] = -100

    def loss(x):
        return F.cross_entropy(x, fb.tensor(target), fb.tensor(weight), label_smoothing=0.1)

    assert fb.autograd.gradgradcheck(loss, (fb.tensor(scores, requires_grad=True),))


def test_scores_may_be_overwritten_before_the_backward_pass():
    scores, target, _ = given(20, 10)
    x = fb.tensor(scores, requires_grad=True)
    y = x * 1
    loss = F.cross_entropy(y, fb.tensor(target))
    y.mul_(2)
    loss.backward()

    np.testing.assert_allclose(x.grad.numpy(), by_formula(scores, target, np.ones(10), 0, "mean")[1], atol=1e-13)


def test_nothing_that_counts_is_nan_and_a_class_that_does_not_exist_is_refused():
    scores, _, _ = given(20, 10)

    assert F.cross_entropy(fb.tensor(scores), fb.full((20,), -100)).isnan()
    with pytest.raises(IndexError, match="Target 10"):
        F.cross_entropy(fb.tensor(scores), fb.full((20,), 10))


@needs_compiler
def test_compiled_rows_in_float32_and_for_any_number_of_threads():
    scores, target, weight = given(300, 1001, np.float32)
    target[::7] = -1
    scales = np.linspace(0, 1, 300, dtype=np.float32)
    before = pool.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            loss, shifted, inverse = likelihood_rows.forward(scores, target, weight, 0.1, True)
            found.append((loss, likelihood_rows.backward(shifted, target, weight, 0.1, inverse, scales)))
    finally:
        pool.set_num_threads(before)

    expected, slope = by_formula(scores, target, weight.astype(float), 0.1, "none", -1)
    np.testing.assert_allclose(found[0][0], expected, rtol=1e-5)
    np.testing.assert_allclose(found[0][1], slope * scales[:, None], atol=1e-6)
    assert all(a.tobytes() == b.tobytes() for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_classes_that_count():
    target = np.array([0, 3, 2])

    assert losses.classes_that_count(target, 4, -100) is target
    assert losses.classes_that_count(target, 4, 3).tolist() == [0, -1, 2]
    assert losses.classes_that_count(np.array([0, -100]), 4, -100).tolist() == [0, -1]
    assert losses.classes_that_count(np.array([0, -1]), 4, -100) is None
    assert losses.classes_that_count(np.array([0, 4]), 4, -100) is None
