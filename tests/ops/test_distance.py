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
