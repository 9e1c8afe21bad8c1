"""Initial values: what they promise, and that they are PyTorch's for the same seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau.nn import init

CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("uniform_", (3, 5), {"a": -2.0}),
    ("normal_", (3, 5), {"mean": 1.0, "std": 2.0}),
    ("trunc_normal_", (30, 5), {}),
    ("trunc_normal_", (30, 5), {"mean": 1.0, "std": 0.3, "a": 0.5, "b": 1.2}),
    ("trunc_normal_", (20,), {"a": 2.0, "b": 3.0}),
    ("trunc_normal_", (20,), {"a": -0.1, "b": 0.1}),
    ("constant_", (3,), {"val": 3.0}),
    ("ones_", (2,), {}),
    ("zeros_", (2,), {}),
    ("eye_", (3, 5), {}),
    ("dirac_", (6, 2, 3), {"groups": 3}),
    ("dirac_", (3, 16, 5, 5), {}),
    ("dirac_", (4, 3, 2, 3, 4), {}),
    ("xavier_uniform_", (3, 5, 2), {"gain": 2.0}),
    ("xavier_normal_", (3, 5), {}),
    ("kaiming_uniform_", (3, 5, 7), {"a": 0.2, "mode": "fan_out"}),
    ("kaiming_normal_", (3, 5), {"nonlinearity": "relu"}),
    ("orthogonal_", (3, 5, 2), {"gain": 2.0}),
    ("orthogonal_", (7, 5), {}),
    ("sparse_", (9, 5), {"sparsity": 0.3}),
]


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "shape", "options"), CASES)
def test_same_seed_gives_the_values_of_the_oracle(oracle, name, shape, options):
    ours, theirs = fb.empty(shape), oracle.empty(shape)
    fb.manual_seed(0)
    oracle.manual_seed(0)

    assert getattr(init, name)(ours, **options) is ours
    getattr(oracle.nn.init, name)(theirs, **options)

    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (2.0, 3.0), (-0.01, 0.01), (-math.inf, 0.0)])
def test_truncated_normal_stays_inside(bounds):
    values = init.trunc_normal_(fb.empty(500), a=bounds[0], b=bounds[1]).numpy()

    assert values.min() >= bounds[0]
    assert values.max() <= bounds[1]
    assert values.std() > 0


def test_truncated_normal_far_from_its_mean_warns():
    with pytest.warns(UserWarning, match="2 std"):
        init.trunc_normal_(fb.empty(2), mean=9.0, a=0.0, b=1.0)


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (3, 2, 4)])
def test_orthogonal_rows_or_columns_are_orthonormal(shape):
    matrix = init.orthogonal_(fb.empty(shape)).numpy().reshape(shape[0], -1)

    gram = matrix @ matrix.T if shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-6)


def test_nothing_is_recorded():
    weight = fb.empty(3, 3, requires_grad=True)

    assert init.xavier_uniform_(weight).is_leaf


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: init.eye_(fb.empty(3)), "matrix"),
        (lambda: init.dirac_(fb.empty(3, 3)), "dimensions"),
        (lambda: init.dirac_(fb.empty(3, 3, 3), groups=2), "groups"),
        (lambda: init.xavier_uniform_(fb.empty(3)), "2 dimensions"),
        (lambda: init.kaiming_uniform_(fb.empty(3, 3), mode="fan"), "fan_in"),
        (lambda: init.orthogonal_(fb.empty(3)), "2 dimensions"),
        (lambda: init.sparse_(fb.empty(3), 0.1), "matrix"),
        (lambda: init.calculate_gain("sine"), "sine"),
        (lambda: init.calculate_gain("leaky_relu", True), "number"),
    ],
)
def test_mistakes_raise(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_gains():
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)


def test_old_names_are_deprecated():
    with pytest.warns(FutureWarning, match="uniform_"):
        init.uniform(fb.empty(1))
