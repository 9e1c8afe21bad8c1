"""vmap of layers, losses, stores by index and factorizations: the batch equals single calls, and runs at once."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.func.batching import VmapLevel

F = fb.nn.functional
BATCH = 3


def numbers(*shape, seed=0):
    return fb.tensor(np.random.default_rng(seed).normal(size=shape))


def classes(*shape):
    return fb.tensor(np.random.default_rng(7).integers(0, 4, shape))


def stored(x, key, value):
    made = x.clone()
    made[key] = value
    return made


def positive(x):
    return x @ x.mT + fb.eye(x.shape[-1], dtype=x.dtype)


IMAGES, MATRICES, VECTORS = (2, 4, 6, 6), (4, 4), (4,)
CASES = {
    "max pool": (lambda x: F.max_pool2d(x, 2), IMAGES),
    "max pool of one image": (lambda x: F.max_pool2d(x, 2), IMAGES[1:]),
    "max pool with indices": (lambda x: F.max_pool2d(x, 2, return_indices=True)[0], IMAGES),
    "average pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGES),
    "average pool of sequences": (lambda x: F.avg_pool1d(x, 2), IMAGES[1:]),
    "adaptive average pool": (lambda x: F.adaptive_avg_pool2d(x, 4), IMAGES),
    "adaptive max pool": (lambda x: F.adaptive_max_pool2d(x, 2), IMAGES),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), IMAGES),
    "bilinear": (lambda x: F.interpolate(x, size=(4, 9), mode="bilinear"), IMAGES),
    "unfold": (lambda x: F.unfold(x, 2), IMAGES),
    "pad": (lambda x: F.pad(x, (1, 0, 2, 1), value=3.0), IMAGES),
    "reflect": (lambda x: F.pad(x, (1, 2, 1, 0), mode="reflect"), IMAGES),
    "layer norm": (lambda x: F.layer_norm(x, (6,), x.new_ones(6) * 2, x.new_ones(6)), IMAGES),
    "layer norm with weights of its own": (lambda x, w: F.layer_norm(x, (4,), w, w), MATRICES, VECTORS),
    "rms norm with weights of its own": (lambda x, w: F.rms_norm(x, (4,), w), MATRICES, VECTORS),
    "group norm": (lambda x: F.group_norm(x, 2), IMAGES),
    "instance norm": (lambda x: F.instance_norm(x), IMAGES),
    "batch norm in training": (lambda x: F.batch_norm(x, None, None, training=True), IMAGES),
    "batch norm": (lambda x: F.batch_norm(x, x.new_ones(4), x.new_ones(4) * 2), IMAGES),
    "batch norm with weights of its own": (lambda x, w: F.batch_norm(x, w, w**2, w, w), IMAGES, VECTORS),
    "norm": (lambda x: x.norm(), MATRICES),
    "norm along": (lambda x: fb.linalg.vector_norm(x, 3, dim=-1, keepdim=True), MATRICES),
    "normalize": (lambda x: F.normalize(x, dim=0), MATRICES),
    "cosine similarity": (lambda x, y: F.cosine_similarity(x, y), MATRICES, MATRICES),
    "distance": (lambda x, y: fb.cdist(x, y), MATRICES, MATRICES),
    "median": (lambda x: x.median(), MATRICES),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k), IMAGES, IMAGES),
    "attention with a mask": (lambda q, m: F.scaled_dot_product_attention(q, q, q, m), IMAGES, (6, 6)),
    "cross entropy": (lambda x: F.cross_entropy(x, classes(5)), (5, 4)),
    "cross entropy of one row": (lambda x: F.cross_entropy(x, classes()), VECTORS),
    "cross entropy, weighted": (lambda x: F.cross_entropy(x, classes(5), x.new_ones(4) * 2, ignore_index=1), (5, 4)),
    "cross entropy of images": (lambda x: F.cross_entropy(x, classes(2, 6, 6), reduction="sum"), IMAGES),
    "inverse": (lambda x: fb.linalg.inv(positive(x)), MATRICES),
    "determinant": (lambda x: fb.linalg.det(x), MATRICES),
    "slogdet": (lambda x: fb.linalg.slogdet(x)[1], MATRICES),
    "cholesky": (lambda x: fb.linalg.cholesky(positive(x)), MATRICES),
    "solve": (lambda x, b: fb.linalg.solve(positive(x), b), MATRICES, VECTORS),
    "solve several": (lambda x, b: fb.linalg.solve(positive(x), b), MATRICES, (4, 2)),
    "singular values": (lambda x: fb.linalg.svdvals(x), MATRICES),
    "matrix exponential": (lambda x: fb.linalg.matrix_exp(x), MATRICES),
    "pinv": (lambda x: fb.linalg.pinv(x), MATRICES),
    "store a row": (lambda x, v: stored(x, 1, v), MATRICES, VECTORS),
    "store rows": (lambda x, v: stored(x, [0, 2], v), MATRICES, VECTORS),
    "store columns": (lambda x, v: stored(x, (slice(None), fb.tensor([3, 1])), v[:2]), MATRICES, VECTORS),
    "store elements": (lambda x, v: stored(x, (fb.tensor([0, 2]), fb.tensor([1, 1])), v[:2]), MATRICES, VECTORS),
    "store between": (lambda x, v: stored(x, (slice(None), fb.tensor([[0, 3]])), v[:, None, None, None]), (4, 4, 2), VECTORS),
    "store at both ends": (lambda x, v: stored(x, (fb.tensor([0]), slice(None), fb.tensor([1])), v), (3, 4, 2), VECTORS),
    "accumulate": (lambda x, v: x.index_put((fb.tensor([1, 1]),), v, accumulate=True), MATRICES, VECTORS),
    "index_add": (lambda x, v: x.index_add(1, fb.tensor([0, 0]), v, alpha=2.0), MATRICES, (4, 2)),
    "index_copy": (lambda x, v: x.index_copy(0, fb.tensor([2]), v[None]), MATRICES, VECTORS),
    "index_fill": (lambda x: x.index_fill(1, fb.tensor([2]), 5.0), MATRICES),
    "select_scatter": (lambda x, v: x.select_scatter(v, 1, 2), MATRICES, VECTORS),
    "slice_scatter": (lambda x, v: x.slice_scatter(v, 0, 1, 3), MATRICES, (2, 4)),
    "diagonal_scatter": (lambda x, v: x.diagonal_scatter(v), MATRICES, VECTORS),
    "masked_fill": (lambda x: x.masked_fill(x > 0, x.sum()), MATRICES),
    "embedding by tables of its own": (lambda w: F.embedding(classes(2, 3), w), MATRICES),
}


def examples(shapes):
    return [numbers(BATCH, *shape, seed=i) for i, shape in enumerate(shapes)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """One example after another is not what is tested here."""

    def loop(level, op, *_):
        raise AssertionError(f"{op.qualified} ran on one example after another")

    monkeypatch.setattr(VmapLevel, "loop", loop)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_equals_single_calls(name):
    f, *shapes = CASES[name]
    args = examples(shapes)

    found = fb.vmap(f)(*args)

    for i in range(BATCH):
        np.testing.assert_allclose(found[i].numpy(), f(*(x[i] for x in args)).numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_a_batch_equal_those_of_single_calls(name):
    f, *shapes = CASES[name]
    args = examples(shapes)
    at = tuple(range(len(args)))
    weighted = lambda *xs: (f(*xs) * f(*xs).detach().cos()).sum()  # noqa: E731  # one formula, used twice

    found = fb.vmap(fb.func.grad(weighted, at))(*args)

    for i in range(BATCH):
        for one, batch in zip(fb.func.grad(weighted, at)(*(x[i] for x in args)), found, strict=True):
            np.testing.assert_allclose(batch[i].numpy(), one.numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if len(case) == 3])
@pytest.mark.parametrize("alone", [0, 1])
def test_one_operand_may_be_shared_by_all_examples(name, alone):
    f, *shapes = CASES[name]
    args = examples(shapes)
    args[alone] = args[alone][0]
    dims = tuple(None if i == alone else 0 for i in range(2))
    if name.startswith("store") and alone == 0:
        pytest.skip("a batch cannot be stored in one example")

    found = fb.vmap(f, in_dims=dims)(*args)

    for i in range(BATCH):
        single = f(*(x if i_ == alone else x[i] for i_, x in enumerate(args)))
        np.testing.assert_allclose(found[i].numpy(), single.numpy(), rtol=1e-9, atol=1e-11)


def test_classes_and_indices_may_be_batched_too():
    scores, target, table = numbers(BATCH, 5, 4), classes(BATCH, 5), numbers(BATCH, 4, 2)

    losses = fb.vmap(F.cross_entropy)(scores, target)
    rows = fb.vmap(F.embedding)(target, table)
    places = fb.vmap(fb.searchsorted)(numbers(BATCH, 6).sort(1)[0], scores)
    coded = fb.vmap(lambda t: F.one_hot(t, 4))(target)

    assert losses.tolist() == pytest.approx([F.cross_entropy(scores[i], target[i]).item() for i in range(BATCH)])
    assert rows.tolist() == [F.embedding(target[i], table[i]).tolist() for i in range(BATCH)]
    assert places.tolist() == [fb.searchsorted(numbers(BATCH, 6).sort(1)[0][i], scores[i]).tolist() for i in range(BATCH)]
    assert coded.tolist() == F.one_hot(target, 4).tolist()


def test_running_statistics_that_all_examples_share_cannot_be_updated():
    with pytest.raises(RuntimeError, match="running_mean"):
        fb.vmap(lambda x: F.batch_norm(x, fb.zeros(4).double(), fb.ones(4).double(), training=True))(numbers(BATCH, *IMAGES))


@pytest.mark.parametrize("norm", [F.batch_norm, F.instance_norm])
def test_models_of_an_ensemble_move_running_statistics_of_their_own(norm):
    images, mean, var = numbers(BATCH, *IMAGES), numbers(BATCH, 4), numbers(BATCH, 4).abs()
    how = {"training": True} if norm is F.batch_norm else {}
    each_mean, each_var = mean.clone(), var.clone()
    apart = fb.stack([norm(x, m, v, momentum=0.3, **how) for x, m, v in zip(images, each_mean, each_var, strict=True)])

    together = fb.vmap(lambda x, m, v: norm(x, m, v, momentum=0.3, **how))(images, mean, var)

    np.testing.assert_allclose(together.numpy(), apart.numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(mean.numpy(), each_mean.numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(var.numpy(), each_var.numpy(), rtol=1e-9, atol=1e-11)


def test_dropout_that_drops_nothing_draws_nothing_in_vmap():
    x = numbers(BATCH, 2, 3, 4)
    drops = (F.dropout, F.alpha_dropout, F.dropout1d, F.feature_alpha_dropout, fb.dropout)

    for drop in drops:
        assert fb.vmap(lambda a, drop=drop: drop(a, 0.0, True))(x).tolist() == x.tolist()
