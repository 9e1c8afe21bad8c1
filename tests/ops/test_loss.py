"""Losses against closed forms and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

import flambeau as fb
import flambeau.nn.functional as F

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 3))
P, T = RNG.uniform(0.1, 0.9, (4, 3)), RNG.uniform(0, 1, (4, 3))
CLASSES = np.array([2, 0, 1, 1])


def all_reductions(fn, expected: np.ndarray) -> None:
    """`fn` of a reduction gives `expected`, its sum and its mean."""
    np.testing.assert_allclose(fn("none").numpy(), expected, rtol=1e-9)
    np.testing.assert_allclose(fn("sum").item(), expected.sum(), rtol=1e-9)
    np.testing.assert_allclose(fn("mean").item(), expected.mean(), rtol=1e-9)


def test_differences() -> None:
    a, b, e = fb.tensor(A), fb.tensor(B), np.abs(A - B)

    all_reductions(lambda r: F.l1_loss(a, b, reduction=r), e)
    all_reductions(lambda r: F.mse_loss(a, b, reduction=r), e**2)
    all_reductions(lambda r: F.smooth_l1_loss(a, b, reduction=r, beta=0.5), np.where(e < 0.5, e**2, e - 0.25))
    all_reductions(lambda r: F.huber_loss(a, b, reduction=r, delta=0.7), special.huber(0.7, e))


def test_a_weighted_mean_divides_by_the_weights() -> None:
    weight = fb.tensor([[1.0, 0.0, 3.0]], dtype=fb.float64)
    expected = ((A - B) ** 2 * [1, 0, 3]).sum() / 16

    assert F.mse_loss(fb.tensor(A), fb.tensor(B), weight=weight).item() == pytest.approx(expected)


def test_the_gradient_of_mse_loss_is_twice_the_difference_over_n() -> None:
    a, b = fb.tensor(A, requires_grad=True), fb.tensor(B, requires_grad=True)
    F.mse_loss(a, b).backward()

    np.testing.assert_allclose(a.grad.numpy(), 2 * (A - B) / 12)
    np.testing.assert_allclose(b.grad.numpy(), -2 * (A - B) / 12)


def test_a_target_of_another_shape_is_warned_about() -> None:
    with pytest.warns(UserWarning, match=r"target size .*\[3\]\)\) that is different to the input size .*\[4, 3\]"):
        F.l1_loss(fb.tensor(A), fb.tensor(B[0]))


def test_likelihoods() -> None:
    counts = np.array([[0.0, 1, 2], [3, 0, 5], [1, 1, 4], [2, 2, 0]])
    rate = np.exp(A)
    pmf = -stats.poisson.logpmf(counts, rate) - special.gammaln(counts + 1)
    all_reductions(lambda r: F.poisson_nll_loss(fb.tensor(A), fb.tensor(counts), reduction=r), pmf)
    all_reductions(
        lambda r: F.gaussian_nll_loss(fb.tensor(A), fb.tensor(B), fb.tensor(P), full=True, reduction=r),
        -stats.norm.logpdf(B, A, np.sqrt(P)),
    )


def test_kl_div_is_the_relative_entropy() -> None:
    p, q = T / T.sum(1, keepdims=True), P / P.sum(1, keepdims=True)
    divergence = F.kl_div(fb.tensor(np.log(q)), fb.tensor(p), reduction="batchmean").item()
    logs = F.kl_div(fb.tensor(np.log(q)), fb.tensor(np.log(p)), reduction="batchmean", log_target=True).item()

    assert divergence == pytest.approx(stats.entropy(p, q, axis=1).mean())
    assert logs == pytest.approx(divergence)


def test_binary_cross_entropy_of_probabilities_and_of_logits() -> None:
    expected = -(T * np.log(P) + (1 - T) * np.log(1 - P))

    all_reductions(lambda r: F.binary_cross_entropy(fb.tensor(P), fb.tensor(T), reduction=r), expected)
    all_reductions(lambda r: F.binary_cross_entropy_with_logits(fb.tensor(special.logit(P)), fb.tensor(T), reduction=r), expected)


def test_binary_cross_entropy_stays_finite() -> None:
    x = fb.tensor([0.0, 1.0])

    assert F.binary_cross_entropy(x, 1 - x, reduction="none").tolist() == [100, 100]
    assert F.binary_cross_entropy_with_logits(fb.tensor([-1e4]), fb.tensor([1.0])).item() == 1e4
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.binary_cross_entropy(fb.tensor([1.5]), fb.tensor([1.0]))


def test_pos_weight_counts_positive_targets_more_often() -> None:
    x, t = fb.tensor([0.3, 0.3]), fb.tensor([1.0, 0.0])
    plain = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    weighted = F.binary_cross_entropy_with_logits(x, t, reduction="none", pos_weight=fb.tensor(3.0))

    assert weighted.tolist() == pytest.approx([3 * plain[0].item(), plain[1].item()])


def test_soft_margin_losses() -> None:
    sign = np.sign(B)
    all_reductions(lambda r: F.soft_margin_loss(fb.tensor(A), fb.tensor(sign), reduction=r), np.log1p(np.exp(-sign * A)))
    expected = -(special.log_expit(A) * (B > 0) + special.log_expit(-A) * (B <= 0)).mean(1)
    all_reductions(lambda r: F.multilabel_soft_margin_loss(fb.tensor(A), fb.tensor((B > 0) * 1.0), reduction=r), expected)


# -- classes -------------------------------------------------------------------------------------------------------------


def test_cross_entropy_is_the_log_likelihood_of_softmax() -> None:
    expected = -special.log_softmax(A, 1)[np.arange(4), CLASSES]
    target = fb.tensor(CLASSES)

    all_reductions(lambda r: F.cross_entropy(fb.tensor(A), target, reduction=r), expected)
    all_reductions(lambda r: F.nll_loss(fb.tensor(special.log_softmax(A, 1)), target, reduction=r), expected)


def test_the_gradient_of_cross_entropy_is_softmax_less_the_target() -> None:
    expected = (special.softmax(A, 1) - np.eye(3)[CLASSES]) / 4
    for ignore_index in (-100, 7):  # the plan, and the general path
        x = fb.tensor(A, requires_grad=True)
        F.cross_entropy(x, fb.tensor(CLASSES), ignore_index=ignore_index).backward()
        np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-12)


def test_the_second_derivative_of_cross_entropy_is_softmaxs_jacobian() -> None:
    x = fb.tensor(A[:1], requires_grad=True)
    (first,) = fb.autograd.grad(F.cross_entropy(x, fb.tensor([1])), x, create_graph=True)
    (second,) = fb.autograd.grad(first[0, 2], x)
    p = special.softmax(A[0])

    np.testing.assert_allclose(second[0].numpy(), p[2] * (np.eye(3)[2] - p), atol=1e-12)


def test_ignored_targets_do_not_count() -> None:
    x = fb.tensor(A)
    some = F.cross_entropy(x, fb.tensor([2, -100, 1, -100]))

    assert some.item() == pytest.approx(F.cross_entropy(x[fb.tensor([0, 2])], fb.tensor([2, 1])).item())
    assert F.cross_entropy(x, fb.tensor([2, 1, 1, 0]), ignore_index=1).item() == pytest.approx(
        F.cross_entropy(x[fb.tensor([0, 3])], fb.tensor([2, 0])).item()
    )
    assert math.isnan(F.cross_entropy(x, fb.full((4,), -100)).item())


def test_class_weights_weigh_losses_and_divide_their_mean() -> None:
    weight = np.array([1.0, 2.0, 5.0])
    losses = -special.log_softmax(A, 1)[np.arange(4), CLASSES] * weight[CLASSES]
    made = F.cross_entropy(fb.tensor(A), fb.tensor(CLASSES), weight=fb.tensor(weight))

    assert made.item() == pytest.approx(losses.sum() / weight[CLASSES].sum())


def test_label_smoothing_mixes_in_the_even_distribution() -> None:
    soft = np.eye(3)[CLASSES] * 0.7 + 0.1
    expected = -(special.log_softmax(A, 1) * soft).sum(1).mean()

    assert F.cross_entropy(fb.tensor(A), fb.tensor(CLASSES), label_smoothing=0.3).item() == pytest.approx(expected)
    assert F.cross_entropy(fb.tensor(A), fb.tensor(soft)).item() == pytest.approx(expected)


def test_scores_may_have_further_dimensions() -> None:
    scores, target = RNG.normal(size=(2, 3, 4)), RNG.integers(0, 3, (2, 4))
    expected = -np.take_along_axis(special.log_softmax(scores, 1), target[:, None], 1)[:, 0]

    all_reductions(lambda r: F.cross_entropy(fb.tensor(scores), fb.tensor(target), reduction=r), expected)


def test_wrong_classes_and_shapes_are_refused() -> None:
    x = fb.tensor(A)
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        F.cross_entropy(x, fb.tensor([0, 1, 2, 3]))
    with pytest.raises(ValueError, match=r"batch_size \(4\) to match target batch_size \(2\)"):
        F.nll_loss(x, fb.tensor([0, 1]))
    with pytest.raises(ValueError, match="nothing is not a valid value for reduction"):
        F.nll_loss(x, fb.tensor(CLASSES), reduction="nothing")


# -- margins -------------------------------------------------------------------------------------------------------------


def test_hinge_and_ranking() -> None:
    sign = np.where(B > 0, 1.0, -1.0)
    a, s = fb.tensor(A), fb.tensor(sign)
    all_reductions(lambda r: F.hinge_embedding_loss(a, s, reduction=r), np.where(sign == 1, A, np.maximum(0, 1 - A)))
    all_reductions(
        lambda r: F.margin_ranking_loss(a, fb.tensor(B), s, margin=0.2, reduction=r), np.maximum(0, -sign * (A - B) + 0.2)
    )


def test_multi_margin_loss_by_its_definition() -> None:
    expected = np.array(
        [sum(max(0, 0.5 - A[n, y] + A[n, j]) ** 2 for j in range(3) if j != y) / 3 for n, y in enumerate(CLASSES)]
    )

    all_reductions(lambda r: F.multi_margin_loss(fb.tensor(A), fb.tensor(CLASSES), p=2, margin=0.5, reduction=r), expected)


def test_multilabel_margin_loss_by_its_definition() -> None:
    labels = [[2, -1, 0], [0, 1, -1], [-1, 2, 2], [1, -1, -1]]
    expected = []
    for x, row in zip(A, labels, strict=True):
        own = row[: row.index(-1)]
        expected.append(sum(max(0, 1 - (x[y] - x[i])) for y in own for i in range(3) if i not in own) / 3)

    all_reductions(lambda r: F.multilabel_margin_loss(fb.tensor(A), fb.tensor(labels), reduction=r), np.array(expected))


@pytest.mark.parametrize("count", [3, 60])
def test_multilabel_margin_loss_of_rows_without_classes_is_nothing(count: int) -> None:
    x = fb.ones(2, count, requires_grad=True)

    F.multilabel_margin_loss(x, fb.full((2, count), -1), reduction="sum").backward()

    assert fb.equal(x.grad, fb.zeros(2, count))


def test_multilabel_margin_loss_of_many_classes_of_which_few_are_listed() -> None:
    numbers = np.random.default_rng(0)
    x, labels = numbers.normal(size=(5, 60)), np.full((5, 60), -1)
    for row, many in zip(labels, (0, 3, 1, 7, 2), strict=True):
        row[:many] = numbers.permutation(60)[:many]
    expected = []
    for scores, row in zip(x, labels, strict=True):
        own = [y for y in row if y >= 0]
        expected.append(sum(max(0, 1 - scores[y] + scores[i]) for y in own for i in range(60) if i not in own) / 60)

    made = F.multilabel_margin_loss(fb.tensor(x), fb.tensor(labels), reduction="none")

    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-12)


def test_embeddings_at_a_distance() -> None:
    a, b, target = fb.tensor(A), fb.tensor(B), fb.tensor([1.0, -1.0, 1.0, -1.0])
    cosine = (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)
    expected = np.where([True, False] * 2, 1 - cosine, np.maximum(0, cosine + 0.4))
    all_reductions(lambda r: F.cosine_embedding_loss(a, b, target, margin=-0.4, reduction=r), expected)

    near, far = np.linalg.norm(A - B + 1e-6, axis=1), np.linalg.norm(A - P + 1e-6, axis=1)
    all_reductions(lambda r: F.triplet_margin_loss(a, b, fb.tensor(P), reduction=r), np.maximum(0, near - far + 1))
    all_reductions(
        lambda r: F.triplet_margin_with_distance_loss(
            a, b, fb.tensor(P), distance_function=lambda x, y: (x - y).abs().sum(1), margin=2.0, reduction=r
        ),
        np.maximum(0, np.abs(A - B).sum(1) - np.abs(A - P).sum(1) + 2),
    )


# -- connectionist temporal classification -------------------------------------------------------------------------------


def likelihood_by_enumeration(logs: np.ndarray, target: list[int], blank: int) -> float:
    """The probability of every alignment that reads as `target`, added up one by one."""
    from itertools import groupby, product

    total = 0.0
    for path in product(range(logs.shape[1]), repeat=logs.shape[0]):
        if [label for label, _ in groupby(path) if label != blank] == target:
            total += math.exp(sum(logs[t, label] for t, label in enumerate(path)))
    return total


@pytest.mark.parametrize("target", [[1], [1, 1], [2, 1], []])
def test_ctc_loss_adds_up_every_alignment(target: list[int]) -> None:
    logs = special.log_softmax(RNG.normal(size=(5, 3)), 1)
    made = F.ctc_loss(fb.tensor(logs), fb.tensor(target, dtype=fb.int64), (5,), (len(target),), reduction="sum")

    assert made.item() == pytest.approx(-math.log(likelihood_by_enumeration(logs, target, 0)))


def test_the_gradient_of_ctc_loss_is_that_of_its_scores() -> None:
    scores = RNG.normal(size=(5, 2, 3))

    def loss(x: fb.Tensor) -> fb.Tensor:
        return F.ctc_loss(x.log_softmax(2), fb.tensor([[1, 1], [2, 1]]), fb.tensor([5, 4]), fb.tensor([2, 1]), reduction="sum")

    x = fb.tensor(scores, requires_grad=True)
    loss(x).backward()
    for at in ((0, 0, 1), (3, 1, 2), (4, 1, 0), (2, 0, 0)):
        step = np.zeros_like(scores)
        step[at] = 1e-5
        slope = (loss(fb.tensor(scores + step)).item() - loss(fb.tensor(scores - step)).item()) / 2e-5
        assert x.grad[at].item() == pytest.approx(slope, abs=1e-7)


def test_an_impossible_alignment_is_infinite_or_nothing() -> None:
    logs = fb.zeros(2, 1, 3).log_softmax(2).requires_grad_()

    assert F.ctc_loss(logs, fb.tensor([[1, 1]]), (2,), (2,)).item() == math.inf
    made = F.ctc_loss(logs, fb.tensor([[1, 1]]), (2,), (2,), zero_infinity=True)
    made.backward()
    assert made.item() == 0
    assert not logs.grad.any()


def test_the_mean_squared_error_of_many_elements_is_found_without_their_differences() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 300, 341)).astype(np.float32)
    x, y = fb.tensor(a, requires_grad=True), fb.tensor(b, requires_grad=True)
    loss = F.mse_loss(x, y)
    loss.backward()

    difference = a.astype(float) - b
    assert loss.item() == pytest.approx((difference**2).mean(), rel=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), 2 * difference / a.size, rtol=1e-4, atol=1e-10)
    np.testing.assert_allclose(y.grad.numpy(), -2 * difference / a.size, rtol=1e-4, atol=1e-10)


@pytest.mark.parametrize("blank", [0.5, True, None, "0"])
def test_a_blank_that_is_no_integer_is_refused_by_name(blank: object) -> None:
    with pytest.raises(TypeError, match=r"ctc_loss.*'blank' \(position 5\) must be int"):
        fb.nn.functional.ctc_loss(fb.zeros(7, 1, 2), fb.ones(1, 1, dtype=fb.int64), fb.tensor([7]), fb.tensor([1]), blank)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_hinge_of_one_distance_alone_is_found(reduction):
    assert F.hinge_embedding_loss(fb.tensor(0.25), fb.tensor(-1.0), reduction=reduction).item() == 0.75


HALF, SINGLE, DOUBLE = fb.float16, fb.float32, fb.float64


def test_losses_of_two_dtypes_are_returned_in_that_of_the_operand_pytorch_takes() -> None:
    def kinds(fn, first, second, shape=(2, 3), other=(2, 3), **more):
        return fn(fb.full(shape, 0.5, dtype=first), fb.full(other, 0.5, dtype=second), **more).dtype

    for fn in (F.huber_loss, F.soft_margin_loss):
        assert kinds(fn, HALF, DOUBLE) is HALF
        assert kinds(fn, DOUBLE, HALF) is DOUBLE
    assert kinds(F.binary_cross_entropy_with_logits, DOUBLE, SINGLE) is SINGLE
    assert kinds(F.multilabel_soft_margin_loss, DOUBLE, SINGLE) is DOUBLE
    weight = fb.ones(3, dtype=DOUBLE)
    for fn in (F.binary_cross_entropy, F.binary_cross_entropy_with_logits):
        assert kinds(fn, SINGLE, SINGLE, weight=weight) is SINGLE
    assert kinds(F.binary_cross_entropy_with_logits, HALF, HALF, pos_weight=weight) is HALF


@pytest.mark.filterwarnings("ignore:.*Using a target size")
def test_a_target_of_no_dimensions_counts_for_the_dtype_of_a_loss() -> None:
    for fn in (F.l1_loss, F.mse_loss, F.smooth_l1_loss):
        made = fn(fb.zeros(2, 3), fb.tensor(0.1, dtype=DOUBLE), reduction="none")
        assert made.dtype is DOUBLE
        assert made.shape == (2, 3)
    assert F.mse_loss(fb.zeros(2, 3), fb.tensor(0.1, dtype=DOUBLE)).item() == pytest.approx(0.01, abs=1e-15)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_losses_that_have_the_dtype_of_an_operand_refuse_integers_there(reduction, dtype):
    scores, whole = fb.tensor([0.5, -1.0]), fb.tensor([1, 0], dtype=getattr(fb, dtype))

    with pytest.raises(RuntimeError):
        F.binary_cross_entropy_with_logits(scores, whole, reduction=reduction)
    with pytest.raises(RuntimeError):
        F.binary_cross_entropy_with_logits(scores, whole, reduction=reduction, pos_weight=fb.ones(2))
    with pytest.raises(RuntimeError):
        F.soft_margin_loss(whole, scores, reduction=reduction)


def test_multilabel_soft_margin_sums_over_the_classes_of_the_scores():
    loss = F.multilabel_soft_margin_loss(fb.tensor([[0.5]]), fb.ones(3, 1, 5, 4), reduction="none")

    assert loss.shape == (3, 5, 4)
    assert abs(loss - F.binary_cross_entropy_with_logits(fb.tensor(0.5), fb.tensor(1.0))).max() < 1e-6
