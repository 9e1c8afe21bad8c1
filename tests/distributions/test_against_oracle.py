"""Every distribution beside PyTorch's: properties, densities, samples of the same seed, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
from distributions.cases import cases

OURS = cases(fb)
ALL = [(name, number) for name, found in OURS.items() for number in range(len(found))]
PROPERTIES = ("mean", "mode", "variance", "stddev", "probs", "logits", "covariance_matrix", "precision_matrix", "scale_tril")
# PyTorch takes every Wishart sample for a singular one, draws it anew and returns the second: without corrections samples are the
# same. The last mode of its Kumaraswamy is nan where the density has a largest value.
AS_DRAWN = {"Wishart": {"max_try_correction": 0}}
OWN_PROPERTIES = {("Kumaraswamy", "mode")}


def same(theirs: Any, ours: Any, tolerance: float) -> None:
    assert str(theirs.dtype).removeprefix("torch.") == str(ours.dtype).removeprefix("torch.").removeprefix("flambeau.")
    theirs, ours = theirs.detach().numpy(), ours.detach().numpy()
    assert theirs.shape == ours.shape
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def answers(call: Any, *libs: Any) -> list[Any]:
    """What `call` gives for each library, the name of its exception where it raises."""
    found = []
    for lib in libs:
        try:
            found.append(call(lib))
        except (NotImplementedError, AttributeError, RuntimeError, ValueError) as error:
            found.append(type(error).__name__)
    return found


def compare(call: Any, oracle: Any, tolerance: float = 1e-5) -> None:
    theirs, ours = answers(call, oracle, fb)
    if isinstance(theirs, str) or isinstance(ours, str):
        assert theirs == ours
    else:
        same(theirs, ours, tolerance)


class Maker:
    """The same distribution of either library, with parameters that ask for gradients."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number

    def __call__(self, lib: Any) -> tuple[Any, list[Any]]:
        given = cases(lib)[self.name][self.number]
        asked = [v.requires_grad_() for v in given.values() if hasattr(v, "requires_grad_") and v.is_floating_point()]
        return getattr(lib.distributions, self.name)(**given), asked


@pytest.fixture
def made(request) -> Maker:
    return Maker(*request.param)


every = pytest.mark.parametrize("made", ALL, ids=lambda case: f"{case[0]}-{case[1]}", indirect=True)
# PyTorch says so of every Wishart sample.
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:Singular sample")]


@every
def test_properties(oracle, made):
    theirs, ours = made(oracle)[0], made(fb)[0]

    assert repr(ours) == repr(theirs)
    assert (ours.batch_shape, ours.event_shape) == (tuple(theirs.batch_shape), tuple(theirs.event_shape))
    assert (ours.has_rsample, ours.has_enumerate_support) == (theirs.has_rsample, theirs.has_enumerate_support)
    for name in PROPERTIES:
        if (made.name, name) not in OWN_PROPERTIES:
            # Two terms of a continuous Bernoulli's variance cancel: PyTorch's is 1.2e-5 from the true value in float32.
            tolerance = 5e-5 if made.name == "ContinuousBernoulli" else 1e-5
            compare(lambda lib, name=name: getattr(made(lib)[0], name), oracle, tolerance)
    compare(lambda lib: made(lib)[0].entropy(), oracle, 1e-4)
    compare(lambda lib: made(lib)[0].enumerate_support(), oracle)


@every
def test_samples_of_the_same_seed(oracle, made):
    for shape in ((), (2, 3)):
        for method in ("sample", "rsample"):

            def draw(lib, method=method, shape=shape):
                lib.manual_seed(3)
                distribution = made(lib)[0]
                if method == "sample" and made.name in AS_DRAWN:
                    with lib.no_grad():
                        return distribution.rsample(shape, **AS_DRAWN[made.name])
                return getattr(distribution, method)(shape, **AS_DRAWN.get(made.name, {}))

            compare(draw, oracle, 1e-4)


@every
def test_gradients_of_samples(oracle, made):
    if not made(fb)[0].has_rsample:
        pytest.skip("samples without gradients")

    def slopes(lib):
        distribution, asked = made(lib)
        lib.manual_seed(3)
        drawn = distribution.rsample((3,), **AS_DRAWN.get(made.name, {}))
        weights = lib.arange(drawn.numel(), dtype=drawn.dtype).view(drawn.shape) + 1
        found = lib.autograd.grad((drawn * weights).sum(), asked, allow_unused=True) if asked else []
        return lib.cat([g.flatten() for g in found if g is not None] or [lib.zeros(1)])

    compare(slopes, oracle, 2e-3)  # PyTorch's implicit derivatives are approximations of three digits


@every
def test_densities_and_their_gradients(oracle, made):
    oracle.manual_seed(1)
    drawn = made(oracle)[0].sample((5,)).detach()
    chances = oracle.rand(made(oracle)[0].batch_shape) * 0.8 + 0.1

    def at(lib, values):
        return lib.tensor(values.numpy())

    def slopes(lib):
        distribution, asked = made(lib)
        found = lib.autograd.grad(distribution.log_prob(at(lib, drawn)).sum(), asked, allow_unused=True) if asked else []
        return lib.cat([g.flatten() for g in found if g is not None] or [lib.zeros(1)])

    compare(lambda lib: made(lib)[0].log_prob(at(lib, drawn)), oracle, 1e-4)
    compare(lambda lib: made(lib)[0].cdf(at(lib, drawn)), oracle, 1e-4)
    compare(lambda lib: made(lib)[0].icdf(at(lib, chances)), oracle, 1e-4)
    if made.name != "Chi2":  # PyTorch's keeps a graph from its constructor, which one backward pass frees
        compare(slopes, oracle, 1e-3)


@every
def test_expansion(oracle, made):
    oracle.manual_seed(1)
    drawn = made(oracle)[0].sample((5,)).detach().unsqueeze(1)

    def expanded(lib):
        distribution = made(lib)[0]
        return distribution.expand((2, *distribution.batch_shape))

    assert expanded(fb).batch_shape == tuple(expanded(oracle).batch_shape)
    compare(lambda lib: expanded(lib).log_prob(lib.tensor(drawn.numpy())), oracle, 1e-4)
    compare(
        lambda lib: lib.distributions.Independent(expanded(lib), 1).log_prob(lib.tensor(drawn.numpy())), oracle, 1e-4
    )


def test_divergences_of_every_pair(oracle):
    """All pairs of one shape: the same value, or the same refusal."""

    def batched(lib):
        for name, found in cases(lib).items():
            for given in found:
                yield name, getattr(lib.distributions, name)(**given)

    theirs, ours = list(batched(oracle)), list(batched(fb))
    compared = 0
    for (name, p), (_, mine) in zip(theirs, ours, strict=True):
        for (other, q), (_, yours) in zip(theirs, ours, strict=True):
            if p.batch_shape != q.batch_shape:
                continue

            def call(lib, pair=((p, q), (mine, yours))):
                return lib.distributions.kl_divergence(*pair[lib is fb])

            left, right = answers(call, oracle, fb)
            if isinstance(left, str):
                assert isinstance(right, str), (name, other)
            else:
                assert not isinstance(right, str), (name, other, right)
                wanted, got = np.broadcast_arrays(left.detach().numpy(), right.detach().numpy())
                np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4, err_msg=f"{name} {other}")
                compared += 1

    assert compared > 90


MISTAKES = [
    lambda lib, D: D.Normal(lib.tensor([1.0, 2.0]), lib.tensor([1.0, -1.0])),
    lambda lib, D: D.Normal(0.0, 1.0).log_prob(3),
    lambda lib, D: D.Normal("a", 1),
    lambda lib, D: D.Bernoulli(),
    lambda lib, D: D.Bernoulli(0.5, logits=0.3),
    lambda lib, D: D.Bernoulli(lib.tensor([0.5, 0.5])).log_prob(lib.tensor([0.5, 0.5])),
    lambda lib, D: D.Dirichlet(lib.ones(3)).log_prob(lib.ones(4) / 4),
    lambda lib, D: D.Normal(lib.zeros(3), 1).log_prob(lib.zeros(4)),
    lambda lib, D: D.Categorical(lib.tensor(0.5)),
    lambda lib, D: D.Categorical(lib.tensor([0.3, -0.1])),
    lambda lib, D: D.Binomial(lib.tensor([2, 3]), lib.tensor([0.5, 0.5])).enumerate_support(),
    lambda lib, D: D.MultivariateNormal(lib.zeros(2)),
    lambda lib, D: D.MultivariateNormal(lib.tensor(0.0), lib.eye(2)),
    lambda lib, D: D.Independent(D.Normal(0.0, 1.0), 1),
    lambda lib, D: D.TransformedDistribution(D.Normal(0.0, 1.0), [3]),
    lambda lib, D: D.Uniform(1.0, 0.0),
    lambda lib, D: D.LKJCholesky(1),
    lambda lib, D: D.MixtureSameFamily(D.Categorical(lib.ones(3)), D.Normal(lib.zeros(2), 1.0)),
    lambda lib, D: D.transform_to(3),
    lambda lib, D: D.biject_to(D.constraints.dependent),
    lambda lib, D: D.transforms.ExpTransform(cache_size=3),
    lambda lib, D: D.ReshapeTransform((2,), (3,)),
    lambda lib, D: D.Geometric(lib.tensor(0.0)),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes_get_pytorchs_exception_and_words(oracle, number):
    texts = []
    for lib in (oracle, fb):
        with pytest.raises((ValueError, NotImplementedError)) as caught:
            MISTAKES[number](lib, lib.distributions)
        texts.append((type(caught.value), str(caught.value).splitlines()[0].replace("flambeau", "torch")))

    assert texts[1] == texts[0]
