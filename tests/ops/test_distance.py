"""Distances, similarities and the bilinear form against scipy and numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial import distance

import flambeau as fb
import flambeau.nn.functional as F

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(6, 4)), RNG.normal(size=(5, 4))
ORDERS = [(0, "hamming"), (1, "cityblock"), (2, "euclidean"), (np.inf, "chebyshev"), (3, "minkowski")]


@pytest.mark.parametrize(("p", "metric"), ORDERS)
def test_distances_of_all_pairs_agree_with_scipy(p: float, metric: str) -> None:
    extra = {"p": 3} if metric == "minkowski" else {}
    scale = A.shape[1] if metric == "hamming" else 1  # a share of entries there, a number of them here

    np.testing.assert_allclose(fb.cdist(fb.tensor(A), fb.tensor(B), p).numpy(), scale * distance.cdist(A, B, metric, **extra))
    np.testing.assert_allclose(F.pdist(fb.tensor(A), p).numpy(), scale * distance.pdist(A, metric, **extra))


@pytest.mark.parametrize(("p", "metric"), [(1, "cityblock"), (2, "euclidean")])
@pytest.mark.parametrize("shape", [(2, 1), (7, 17), (70, 40), (6, 2100)])
def test_distances_of_pairs_of_rows_of_any_length_agree_with_scipy(shape: tuple[int, int], p: int, metric: str) -> None:
    rows = np.random.default_rng(0).normal(size=shape)

    np.testing.assert_allclose(F.pdist(fb.tensor(rows), p).numpy(), distance.pdist(rows, metric), rtol=1e-13)
    found = F.pdist(fb.tensor(rows.astype("float32")), p).numpy()
    np.testing.assert_allclose(found, distance.pdist(rows.astype("float32"), metric), rtol=1e-6)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_gradients_of_distances_of_pairs_are_those_of_all_distances(p: float) -> None:
    one, other = (fb.tensor(A, requires_grad=True) for _ in range(2))
    weights = fb.linspace(1, 2, len(A) * (len(A) - 1) // 2, dtype=fb.float64)
    first, second = fb.triu_indices(len(A), len(A), 1)
    (F.pdist(one, p) * weights).sum().backward()
    (fb.cdist(other, other, p)[first, second] * weights).sum().backward()

    np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=1e-12, atol=1e-13)


def test_many_rows_go_by_way_of_a_product_and_agree() -> None:
    x, y = RNG.normal(size=(40, 3)) + 100, RNG.normal(size=(30, 3)) + 100

    np.testing.assert_allclose(fb.cdist(fb.tensor(x), fb.tensor(y)).numpy(), distance.cdist(x, y), rtol=1e-9)


def test_the_distance_to_itself_is_zero_with_gradient_zero() -> None:
    x = fb.tensor(A, requires_grad=True)
    made = fb.cdist(x, x.detach())
    made.diagonal().sum().backward()

    assert not made.detach().diagonal().any()
    assert not x.grad.any()


def test_pairwise_distance_adds_eps_to_the_difference() -> None:
    made = F.pairwise_distance(fb.tensor(A[:5]), fb.tensor(B), p=1, eps=0.5, keepdim=True)

    np.testing.assert_allclose(made.numpy(), np.abs(A[:5] - B + 0.5).sum(1, keepdims=True))


def test_cosine_similarity_is_one_less_the_cosine_distance() -> None:
    made = F.cosine_similarity(fb.tensor(A)[:, None], fb.tensor(B)[None], dim=-1)

    np.testing.assert_allclose(made.numpy(), 1 - distance.cdist(A, B, "cosine"))
    assert F.cosine_similarity(fb.zeros(3), fb.ones(3), 0).item() == 0


def test_bilinear_is_a_form_for_each_output() -> None:
    weight, bias = RNG.normal(size=(3, 4, 2)), RNG.normal(size=3)
    x, y = RNG.normal(size=(2, 5, 4)), RNG.normal(size=(2, 5, 2))
    made = F.bilinear(*(fb.tensor(t) for t in (x, y, weight, bias)))

    np.testing.assert_allclose(made.numpy(), np.einsum("abi,oij,abj->abo", x, weight, y) + bias)


SHAPES = [(30, 40, 1), (30, 40, 3), (27, 90, 17), (70, 33, 64), (1, 130, 5), (130, 1, 66), (30, 40, 300)]


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "exact"), [("float32", 6e-7), ("float64", 1e-13)])
def test_distances_of_rows_of_any_length_and_their_gradients_are_those_of_differences(dtype, exact, shape, p) -> None:
    m, n, d = shape
    rng = np.random.default_rng(3)
    x, y, weights = (rng.normal(size=s).astype(dtype) for s in ((m, d), (n, d), (m, n)))
    given = [fb.tensor(a, requires_grad=True) for a in (x, y)]
    made = fb.cdist(*given, p, compute_mode="donot_use_mm_for_euclid_dist")
    made.backward(fb.tensor(weights))
    wide = [fb.tensor(a, dtype=fb.float64, requires_grad=True) for a in (x, y)]
    difference = wide[0][:, None] - wide[1][None]
    expected = difference.abs().sum(-1) if p == 1 else (difference**2).sum(-1).sqrt() if p == 2 else difference.abs().amax(-1)
    (expected * fb.tensor(weights)).sum().backward()

    np.testing.assert_allclose(made.detach().numpy(), expected.detach().numpy(), rtol=exact)
    for one, other in zip(given, wide, strict=True):
        np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=exact, atol=exact * other.grad.abs().max().item())


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("shape", [(2, 1), (7, 17), (70, 40), (130, 3)], ids=str)
def test_gradients_of_pairs_of_rows_of_any_length_are_those_of_differences(shape, p) -> None:
    rows = np.random.default_rng(0).normal(size=shape)
    weights = fb.linspace(1, 2, len(rows) * (len(rows) - 1) // 2, dtype=fb.float64)
    for dtype, exact in ((fb.float64, 1e-12), (fb.float32, 1e-6)):
        one, other = fb.tensor(rows, dtype=dtype, requires_grad=True), fb.tensor(rows, dtype=dtype).double().requires_grad_()
        (F.pdist(one, p) * weights.to(dtype)).sum().backward()
        first, second = fb.triu_indices(len(rows), len(rows), 1)
        difference = other[first] - other[second]
        size = difference.abs().sum(-1) if p == 1 else (difference**2).sum(-1).sqrt() if p == 2 else difference.abs().amax(-1)
        (size * weights).sum().backward()

        np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=exact, atol=exact * other.grad.abs().max().item())


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_batches_of_rows_broadcast_and_need_not_be_contiguous(p) -> None:
    x, y = RNG.normal(size=(3, 1, 30, 4)), RNG.normal(size=(2, 4, 28))
    one, other = fb.tensor(x, requires_grad=True), fb.tensor(y, requires_grad=True)
    made = fb.cdist(one, other.mT, p)
    made.sum().backward()
    parts = [[fb.tensor(x[i, 0], requires_grad=True), fb.tensor(y[j], requires_grad=True)] for i in range(3) for j in range(2)]
    for k, (a, b) in enumerate(parts):
        found = fb.cdist(a, b.mT, p)
        found.sum().backward()
        np.testing.assert_allclose(made[k // 2, k % 2].detach().numpy(), found.detach().numpy(), rtol=1e-12)

    assert made.shape == (3, 2, 30, 28)
    np.testing.assert_allclose(one.grad[1, 0].numpy(), (parts[2][0].grad + parts[3][0].grad).numpy(), rtol=1e-10)
    np.testing.assert_allclose(other.grad[1].numpy(), sum(parts[k][1].grad for k in (1, 3, 5)).numpy(), rtol=1e-10)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_distances_of_no_rows_and_of_rows_without_elements(p) -> None:
    for shapes in (((0, 3), (4, 3)), ((4, 3), (0, 3)), ((4, 0), (30, 0)), ((0, 30, 2), (0, 4, 2))):
        x, y = (fb.ones(s, requires_grad=True) for s in shapes)
        made = fb.cdist(x, y, p)
        made.sum().backward()

        assert made.shape == (*x.shape[:-1], y.shape[-2])
        assert not made.any()
        assert x.grad.shape == x.shape
    assert F.pdist(fb.ones(1, 3), p).shape == (0,)
    assert not F.pdist(fb.ones(40, 0), p).any()


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_distances_and_gradients_have_the_same_bits_on_any_number_of_threads(p) -> None:
    x, y = fb.randn(3, 90, 70), fb.randn(3, 300, 70)
    before, made = fb.get_num_threads(), []
    for threads in (1, 2, 5):
        fb.set_num_threads(threads)
        a, b, c = (t.clone().requires_grad_() for t in (x, y, y[0]))
        found, pairs = fb.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist"), F.pdist(c, p)
        (found.sin().sum() + pairs.sin().sum()).backward()
        made.append([t.detach().numpy().tobytes() for t in (found, pairs, a.grad, b.grad, c.grad)])
    fb.set_num_threads(before)

    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("rows", [4, 30])
def test_second_derivatives_of_distances_are_differences_of_first_ones(rows, p) -> None:
    x, y = (fb.tensor(RNG.normal(size=(rows, 2)), requires_grad=True) for _ in range(2))

    assert fb.autograd.gradgradcheck(lambda a, b: fb.cdist(a, b, p)[:3, :3], (x, y))


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_distances_to_nan_are_nan(p) -> None:
    x, y = fb.randn(30, 5), fb.randn(40, 5)
    x[3, 2] = fb.nan
    made = fb.cdist(x, y, p)

    assert made[3].isnan().all()
    assert made.isnan().sum() == 40
    assert F.pdist(x, p).isnan().sum() == 29
