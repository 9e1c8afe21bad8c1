"""Transforms and constraints: inverses, Jacobians against autograd, registries, caching."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau as fb
from flambeau import distributions as D
from flambeau.distributions import constraints, transforms

NUMBERS = [
    transforms.ExpTransform(),
    transforms.PowerTransform(fb.tensor(2.5)),
    transforms.SigmoidTransform(),
    transforms.SoftplusTransform(),
    transforms.TanhTransform(),
    transforms.AffineTransform(1.0, -2.0),
    transforms.CumulativeDistributionTransform(D.Normal(0.0, 1.0)),
    transforms.ComposeTransform([transforms.AffineTransform(0.5, 2.0), transforms.SigmoidTransform()]),
    transforms.ExpTransform().inv,
]


@pytest.mark.parametrize("transform", NUMBERS, ids=lambda t: repr(t).split("\n")[0])
def test_maps_of_numbers_invert_and_know_their_slope(transform):
    x = fb.tensor([0.1, 0.7, 1.5], dtype=fb.float64, requires_grad=True)
    y = transform(x)
    (slope,) = fb.autograd.grad(y.sum(), x, retain_graph=True)

    assert fb.allclose(transform.inv(y), x)
    assert fb.allclose(transform.log_abs_det_jacobian(x, y), slope.abs().log())
    assert fb.allclose(transform.inv.log_abs_det_jacobian(y, x), -slope.abs().log())
    assert transform.inv.inv is transform
    assert bool((slope.sign() == transform.sign).all())


@pytest.mark.parametrize(
    ("transform", "shape", "size"),
    [
        (transforms.StickBreakingTransform(), (4,), 4),
        (transforms.CorrCholeskyTransform(), (6,), 6),
    ],
    ids=["stick", "correlation"],
)
def test_maps_of_vectors_know_their_determinant(transform, shape, size):
    x = fb.randn(shape, dtype=fb.float64)
    y = transform(x)
    jacobian = fb.autograd.functional.jacobian(transform, x)
    if isinstance(transform, transforms.CorrCholeskyTransform):
        jacobian = D.utils.tril_matrix_to_vec(jacobian.permute(2, 0, 1), -1)  # the entries that are free
    else:
        jacobian = jacobian[:size]

    assert bool(transform.codomain.check(y))
    assert fb.allclose(transform.inv(y), x, atol=1e-6)
    assert fb.allclose(transform.log_abs_det_jacobian(x, y), fb.linalg.slogdet(jacobian).logabsdet)
    assert transform.forward_shape(x.shape) == y.shape
    assert transform.inverse_shape(y.shape) == x.shape


def test_matrices_from_unconstrained_ones():
    x = fb.randn(3, 3)

    assert bool(constraints.lower_cholesky.check(transforms.LowerCholeskyTransform()(x)))
    assert bool(constraints.positive_definite.check(transforms.PositiveDefiniteTransform()(x)))


def test_registries_reach_what_they_are_asked_for():
    for constraint in (
        constraints.real,
        constraints.positive,
        constraints.greater_than(2.0),
        constraints.greater_than_eq(-1.0),
        constraints.less_than(-3.0),
        constraints.interval(-2.0, 5.0),
        constraints.half_open_interval(0.0, 1.0),
        constraints.unit_interval,
        constraints.simplex,
        constraints.corr_cholesky,
        constraints.real_vector,
        constraints.independent(constraints.positive, 1),
    ):
        for registry in (D.biject_to, D.transform_to):
            x = fb.randn(6)
            transform = registry(constraint)
            y = transform(x)

            assert constraint.check(y).all(), constraint
            if transform.bijective:
                assert fb.allclose(transform.inv(y), x, atol=1e-4), constraint


def test_a_registered_constraint_is_found():
    class Even(constraints.Constraint):
        pass

    registry = D.constraint_registry.ConstraintRegistry()
    registry.register(Even(), lambda constraint: transforms.ExpTransform())

    assert registry(Even()) == transforms.ExpTransform()
    with pytest.raises(TypeError, match="Constraint"):
        registry.register(int, lambda constraint: None)


def test_a_cache_gives_back_the_very_argument():
    transform = transforms.TanhTransform(cache_size=1)
    x = fb.tensor([20.0])
    y = transform(x)

    assert transform.inv(y) is x
    assert transforms.TanhTransform().inv(y).isinf().all()


def test_several_maps_side_by_side():
    stacked = transforms.StackTransform([transforms.ExpTransform(), transforms.identity_transform], dim=1)
    joined = transforms.CatTransform([transforms.ExpTransform(), transforms.identity_transform], dim=0, lengths=[1, 2])
    x = fb.rand(3, 2)

    assert fb.equal(stacked(x), fb.stack([x[:, 0].exp(), x[:, 1]], 1))
    assert fb.allclose(stacked.inv(stacked(x)), x)
    assert fb.equal(joined(x), fb.cat([x[:1].exp(), x[1:]]))
    assert fb.allclose(joined.log_abs_det_jacobian(x, joined(x)), fb.cat([x[:1], fb.zeros(2, 2)]))


def test_transforms_are_copied_and_pickled():
    for transform in NUMBERS[:6]:
        transform.inv  # noqa: B018 - makes the reference between both
        assert fb.equal(copy.deepcopy(transform)(fb.ones(2)), transform(fb.ones(2)))
        assert fb.equal(pickle.loads(pickle.dumps(transform))(fb.ones(2)), transform(fb.ones(2)))


def test_a_transformed_distribution_joins_and_widens_dimensions():
    base = D.Normal(fb.zeros(4), 1.0)
    made = D.TransformedDistribution(base, [transforms.AffineTransform(fb.zeros(3, 4), 2.0), transforms.StickBreakingTransform()])

    assert (made.batch_shape, made.event_shape) == ((3,), (5,))
    assert made.sample((2,)).shape == (2, 3, 5)
    assert made.log_prob(made.sample((2,))).shape == (2, 3)


def test_one_hot_simplex_and_counts_are_checked():
    assert constraints.one_hot.check(fb.tensor([[0, 1, 0], [1, 1, 0]])).tolist() == [True, False]
    assert constraints.simplex.check(fb.tensor([[0.5, 0.5], [0.9, 0.2]])).tolist() == [True, False]
    assert constraints.multinomial(3).check(fb.tensor([[1, 2], [2, 2]])).tolist() == [True, False]
    assert constraints.symmetric.check(fb.tensor([[1.0, 2.0], [3.0, 1.0]])).item() is False
    assert constraints.positive_semidefinite.check(fb.eye(2)).item() is True
    assert constraints.square.check(fb.zeros(5, 2, 3)).tolist() == [False] * 5
    assert constraints.cat([constraints.positive, constraints.real], 0, [1, 2]).check(fb.tensor([-1.0, -1, -1])).tolist() == [
        False,
        True,
        True,
    ]  # fmt: skip


def test_triangles_go_to_vectors_and_back():
    x = fb.randn(2, 4, 4).tril(-1)

    assert fb.equal(D.utils.vec_to_tril_matrix(D.utils.tril_matrix_to_vec(x, -1), -1), x)
    with pytest.raises(ValueError, match="7"):
        D.utils.vec_to_tril_matrix(fb.zeros(7))


@pytest.mark.parametrize("made", [D.LogNormal(0.0, 1.0, validate_args=True), D.Weibull(1.0, 2.0, validate_args=True),
                                  D.InverseGamma(2.0, 1.0, validate_args=True)], ids=lambda d: type(d).__name__)  # fmt: skip
def test_the_lower_end_of_a_support_has_probability_zero(made: D.Distribution) -> None:
    assert made.cdf(fb.tensor(0.0)).item() == 0.0
    with pytest.raises(ValueError, match="within the support"):
        made.log_prob(fb.tensor(0.0))
    with pytest.raises(ValueError, match="within the support"):
        made.cdf(fb.tensor(fb.nan))
