"""L-BFGS: known minima, and the path of the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

START = [-1.2, 1.0, 0.5, 2.0, -1.0]


def rosenbrock(p):
    return ((1 - p[:-1]) ** 2 + 100 * (p[1:] - p[:-1] ** 2) ** 2).sum()


def quartic(p):
    return ((p - 0.3) ** 4).sum()


def steep(p):
    return p.exp().sum() + (p**2).sum() * 1e-3 + (-3 * p).exp().sum()


def minimize(T, function, steps, **options):
    """The parameters, and the loss at every call of the closure."""
    p = T.nn.Parameter(T.tensor(START, dtype=T.float64))
    optimizer = T.optim.LBFGS([p], **options)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = function(p)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return p, losses, optimizer.state[p]


@pytest.mark.parametrize("line_search_fn", [None, "strong_wolfe"])
def test_finds_the_minimum_of_a_quadratic(line_search_fn):
    p, _, _ = minimize(fb, lambda p: ((p - 3) ** 2).sum(), 5, line_search_fn=line_search_fn)

    np.testing.assert_allclose(p.detach().numpy(), 3.0, 1e-6)


def test_line_search_reaches_the_bottom_of_a_curved_valley():
    _, losses, _ = minimize(fb, rosenbrock, 20, line_search_fn="strong_wolfe")

    assert (
        losses[-1] < 1e-10 or abs(losses[-1] - 3.930839) < 1e-3
    )  # the global minimum, or the known local one


@pytest.mark.parametrize("max_eval", [1, 3, None])
@pytest.mark.parametrize("max_iter", [1, 4, 12])
@pytest.mark.parametrize("lr", [1, 0.1])
@pytest.mark.parametrize("line_search_fn", [None, "strong_wolfe"])
@pytest.mark.parametrize("function", [rosenbrock, quartic, steep])
def test_follows_the_oracles_path(function, line_search_fn, lr, max_iter, max_eval):
    torch = pytest.importorskip("torch")
    options = {
        "lr": lr,
        "max_iter": max_iter,
        "max_eval": max_eval,
        "history_size": 4,
        "line_search_fn": line_search_fn,
    }

    _, ours, state = minimize(fb, function, 3, **options)
    _, theirs, reference = minimize(torch, function, 3, **options)

    # Later values amplify roundings, so only the first calls are compared closely.
    assert len(ours) == len(theirs)
    np.testing.assert_allclose(ours[:8], theirs[:8], 1e-7, 1e-12)
    assert (state["func_evals"], state["n_iter"]) == (reference["func_evals"], reference["n_iter"])
    assert set(state) == set(reference)


def test_refuses_groups_and_unknown_line_searches():
    p, q = fb.nn.Parameter(fb.ones(2)), fb.nn.Parameter(fb.ones(2))
    with pytest.raises(ValueError, match="2 groups"):
        fb.optim.LBFGS([{"params": [p]}, {"params": [q]}])
    with pytest.raises(RuntimeError, match="'armijo'"):
        minimize(fb, quartic, 1, line_search_fn="armijo")
