"""Cross entropy of rows, compiled and by numpy, against its formula in float64; and as the public function."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import special

import flambeau as fb
import flambeau.nn.functional as F
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau_kernels.cpu.losses import cross_entropy_rows
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool

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
            loss, shifted, logarithms, chosen, _ = cross_entropy_rows.forward(
                scores, target, weight, 0.1, -1, cross_entropy_rows.NONE, True)
            mean, *_ = cross_entropy_rows.forward(scores, target, weight, 0.1, -1, cross_entropy_rows.MEAN, False)
            found.append((loss, cross_entropy_rows.backward(shifted, chosen, weight, 0.1, logarithms, scales, 1.0), mean))
    finally:
        pool.set_num_threads(before)

    expected, slope = by_formula(scores, target, weight.astype(float), 0.1, "none", -1)
    np.testing.assert_allclose(found[0][0], expected, rtol=1e-5)
    np.testing.assert_allclose(found[0][1], slope * scales[:, None], atol=1e-6)
    np.testing.assert_allclose(found[0][2], expected.sum() / weight[target[target >= 0]].sum(), rtol=1e-6)
    assert all(a.tobytes() == b.tobytes() for other in found[1:] for a, b in zip(found[0], other, strict=True))


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 5, 3), (3, 4, 2, 2)])
def test_picked_likelihoods_are_those_of_the_formula(dtype, reduction, shape):
    rng = np.random.default_rng(0)
    several = shape[:1] + shape[2:] if len(shape) > 1 else ()
    classes = shape[1] if len(shape) > 1 else shape[0]
    x, target, weight = rng.normal(size=shape).astype(dtype), rng.integers(0, classes, several), rng.random(classes).astype(dtype)
    for ignored, w in itertools.product((-100, 1), (None, weight)):
        wide = x if len(shape) > 1 else x[None]
        each = -np.take_along_axis(wide, target.reshape(-1, 1) if len(shape) < 3 else target[:, None], 1).reshape(several)
        weights = np.where(target == ignored, 0, 1 if w is None else w[target])
        expected = {"none": each * weights, "sum": (each * weights).sum(), "mean": (each * weights).sum() / weights.sum()}

        made, kept = cross_entropy_rows.picked(x, target, w, ignored, reduction, True)

        np.testing.assert_allclose(made, expected[reduction], rtol=1e-6)
        np.testing.assert_allclose(kept[1], weights, rtol=1e-6)
        assert cross_entropy_rows.picked(x, target, w, ignored, reduction, False)[0].tobytes() == made.tobytes()


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(600, 10), (5000, 64), (3000, 40), (4, 20, 1000), (40, 20000)])
def test_picked_likelihoods_of_many_targets_are_added_up_as_those_of_cross_entropy(dtype, shape):
    """A part of as many rows as `CHUNK` holds scores, one after the other in float64; then the parts."""
    rng = np.random.default_rng(1)
    x, target = rng.normal(size=shape).astype(dtype), rng.integers(0, shape[1], shape[:1] + shape[2:])
    each = -np.take_along_axis(x, target[:, None], 1).reshape(-1).astype(np.float64)
    per = cross_entropy_rows.CHUNK // shape[1]
    parts = [np.add.accumulate(each[at : at + per])[-1] for at in range(0, each.size, per)]
    expected = np.add.accumulate(parts)[-1]
    before = pool.get_num_threads()
    try:
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            total, kept = cross_entropy_rows.picked(x, target, None, -100, "sum", True)
            mean, _ = cross_entropy_rows.picked(x, target, None, -100, "mean", False)

            assert total == dtype(expected)
            assert mean == dtype(expected / each.size)
            assert (kept[0] == target).all()
    finally:
        pool.set_num_threads(before)


@needs_compiler
def test_picked_likelihoods_refuse_what_is_not_theirs():
    x, target = np.zeros((3, 4)), np.array([0, 1, 2])

    assert cross_entropy_rows.picked(x, np.array([0, 4, 1]), None, -100, "mean", False) is None
    assert cross_entropy_rows.picked(x, np.array([0, -1, 1]), None, -100, "mean", False) is None
    assert cross_entropy_rows.picked(x, target[:2], None, -100, "mean", False) is None
    assert cross_entropy_rows.picked(x.T, target, None, -100, "mean", False) is None
    assert cross_entropy_rows.picked(x, target.astype(np.int32), None, -100, "mean", False) is None
    assert cross_entropy_rows.picked(x, target, np.ones(3), -100, "mean", False) is None


class Seen(TorchDispatchMode):
    """Looks at operators, so that what a function is made of runs."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(5, 10), (64, 10), (9, 1000), (300, 17), (5000, 3), (3, 17, 5, 5), (10, 20, 20, 20)])
def test_cross_entropy_has_the_bits_of_its_parts_under_dispatch_modes(shape, reduction, dtype):
    fb.manual_seed(0)
    kind = getattr(fb, dtype)
    scores, target, weight = fb.randn(shape, dtype=kind), fb.randint(0, shape[1], shape[:1] + shape[2:]), fb.rand(shape[1], dtype=kind)

    def bits(weight, ignored):
        x = scores.clone().requires_grad_()
        loss = F.cross_entropy(x, target, weight, reduction=reduction, ignore_index=ignored)
        (loss * fb.arange(1, 1 + loss.numel(), dtype=kind).reshape(loss.shape)).sum().backward()
        return loss.detach().numpy().tobytes(), x.grad.numpy().tobytes()

    for given in itertools.product((None, weight), (-100, 1)):
        plain = bits(*given)
        with Seen():
            assert bits(*given) == plain


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", [(3, 4), (40, 33), (7, 5003)])
def test_gradients_of_softmax_have_the_same_bits_under_dispatch_modes(name, shape):
    scores, grad = fb.randn(shape, generator=fb.Generator().manual_seed(0)), fb.linspace(-1, 1, shape[0] * shape[1]).reshape(shape)

    def bits():
        x = scores.clone().requires_grad_()
        getattr(F, name)(x, 1).backward(grad)
        return x.grad.numpy().tobytes()

    plain = bits()
    with Seen():
        assert bits() == plain


def test_log_softmax_of_a_number_has_a_gradient():
    x = fb.tensor(3.0, requires_grad=True)
    x.log_softmax(-1).backward()

    assert x.grad.item() == 0.0
