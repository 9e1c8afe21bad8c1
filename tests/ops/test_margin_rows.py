"""Losses of margins of many rows, which are found in one pass, against formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

F = fb.nn.functional
SHAPES = [(3, 4), (256, 100), (1000, 33), (7, 5000), (64, 16)]


def scores(n, c, dtype=np.float32):
    return np.random.default_rng(n).standard_normal((n, c)).astype(dtype)


def reduced(losses, reduction):
    return {"none": losses, "sum": losses.sum(), "mean": losses.mean()}[reduction]


def of_targets(x, target, p, margin):
    over = np.maximum(margin - x[np.arange(len(x)), target][:, None] + x, 0) ** p
    over[np.arange(len(x)), target] = 0
    return over.sum(1) / x.shape[1]


def of_labels(x, labels):
    losses = []
    for row, listed in zip(x, labels, strict=True):
        own = listed[: np.argmax(listed < 0)] if (listed < 0).any() else listed
        others = np.setdiff1d(np.arange(len(row)), own)
        losses.append(np.maximum(1 - row[own][:, None] + row[others], 0).sum() / len(row))
    return np.array(losses)


def some_labels(n, c):
    rng = np.random.default_rng(c)
    labels = np.full((n, c), -1)
    for row in labels:
        count = rng.integers(min(10, c) + 1)
        row[:count] = rng.choice(c, count, replace=False)
        row[count:] = -1
    if c <= 100:
        labels[0] = np.arange(c)                      # all of them: no other class is left
    labels[-1, 0] = -1                                # none
    return labels


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_margins_of_targets(shape, dtype, reduction):
    x, target = scores(*shape, dtype), np.random.default_rng(1).integers(0, shape[1], shape[0])
    for p in (1, 2):
        for margin in (1.0, 0.3):
            expected = reduced(of_targets(x.astype(np.float64), target, p, margin), reduction)
            made = F.multi_margin_loss(fb.tensor(x), fb.tensor(target), p, margin, reduction=reduction)

            assert np.allclose(made.numpy(), expected, rtol=2e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_margins_of_labels(shape, dtype, reduction):
    x, labels = scores(*shape, dtype), some_labels(*shape)
    expected = reduced(of_labels(x.astype(np.float64), labels), reduction)

    made = F.multilabel_margin_loss(fb.tensor(x), fb.tensor(labels), reduction=reduction)

    assert np.allclose(made.numpy(), expected, rtol=2e-5 if dtype is np.float32 else 1e-12)
    recorded = F.multilabel_margin_loss(fb.tensor(x).requires_grad_(), fb.tensor(labels), reduction=reduction)
    assert np.allclose(recorded.detach().numpy(), expected, rtol=2e-5 if dtype is np.float32 else 1e-12)


def test_what_is_nan_is_not_over_a_margin():
    x, target, labels = scores(256, 100), np.arange(256) % 100, some_labels(256, 100)
    x[3, 5] = np.nan
    of_numbers = np.where(np.isnan(x), -np.inf, x)

    made = F.multi_margin_loss(fb.tensor(x), fb.tensor(target), reduction="none")
    assert np.allclose(made.numpy()[3], of_targets(of_numbers[3:4], target[3:4], 1, 1.0), rtol=1e-5)
    labels[3, :3] = [1, 2, -1]
    made = F.multilabel_margin_loss(fb.tensor(x), fb.tensor(labels), reduction="none")
    assert np.allclose(made.numpy()[3], of_labels(of_numbers[3:4], labels[3:4]), rtol=1e-5)


def test_classes_that_are_none_are_refused():
    x = fb.tensor(scores(256, 100))
    for odd in (-2, 100):
        labels = some_labels(256, 100)
        labels[200, -1] = odd
        with pytest.raises(RuntimeError, match="out of range"):
            F.multilabel_margin_loss(x, fb.tensor(labels))
        with pytest.raises(RuntimeError, match="out of range"):
            F.multi_margin_loss(x, fb.tensor(labels[:, -1]))
