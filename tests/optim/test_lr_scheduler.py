"""Schedules: closed forms, the oracle's rates for any sequence of calls, checkpoints, refusals."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import flambeau as fb
from flambeau.optim import lr_scheduler, swa_utils


def optimizer_of(T, kind="SGD", lr=0.1):
    groups = [{"params": [T.nn.Parameter(T.ones(2))]}, {"params": [T.nn.Parameter(T.ones(2))], "lr": 0.5}]
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(T.optim, kind)(groups, lr=lr, **options)


SCHEDULERS = {
    "StepLR": lambda L, o, **k: L.StepLR(o, 2, 0.5, **k),
    "MultiStepLR": lambda L, o, **k: L.MultiStepLR(o, [5, 2, 5], gamma=0.3, **k),
    "ConstantLR": lambda L, o, **k: L.ConstantLR(o, 0.25, 3, **k),
    "LinearLR": lambda L, o, **k: L.LinearLR(o, 0.2, 0.9, 4, **k),
    "ExponentialLR": lambda L, o, **k: L.ExponentialLR(o, 0.8, **k),
    "PolynomialLR": lambda L, o, **k: L.PolynomialLR(o, 6, 2.0, **k),
    "CosineAnnealingLR": lambda L, o, **k: L.CosineAnnealingLR(o, 4, 0.01, **k),
    "CosineAnnealingWarmRestarts": lambda L, o, **k: L.CosineAnnealingWarmRestarts(o, 2, 2, 0.01, **k),
    "CyclicLR": lambda L, o, **k: L.CyclicLR(o, 0.01, 0.2, 3, 2, **k),
    "CyclicLR-triangular2": lambda L, o, **k: L.CyclicLR(o, [0.01, 0.1], 0.2, 2, mode="triangular2", **k),
    "CyclicLR-exp_range": lambda L, o, **k: L.CyclicLR(o, 0.01, 0.2, 2, mode="exp_range", gamma=0.9, **k),
    "CyclicLR-own": lambda L, o, **k: L.CyclicLR(
        o, 0.01, 0.2, 2, scale_fn=lambda x: 0.5**x, scale_mode="iterations", cycle_momentum=False, **k
    ),
    "OneCycleLR": lambda L, o, **k: L.OneCycleLR(o, [0.5, 0.4], 14, **k),
    "OneCycleLR-three": lambda L, o, **k: L.OneCycleLR(
        o, 0.5, epochs=2, steps_per_epoch=7, three_phase=True, anneal_strategy="linear", **k
    ),
    "LambdaLR": lambda L, o, **k: L.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (1 + e)], **k),
    "MultiplicativeLR": lambda L, o, **k: L.MultiplicativeLR(o, lambda e: 0.95 - e / 100, **k),
}
COMPOUND = {
    "ChainedScheduler": lambda L, o: L.ChainedScheduler([L.ExponentialLR(o, 0.9), L.StepLR(o, 3)]),
    "SequentialLR": lambda L, o: L.SequentialLR(
        o, [L.ConstantLR(o, 0.1, 3), L.CosineAnnealingLR(o, 5), L.ExponentialLR(o, 0.9)], milestones=[4, 9]
    ),
    "SequentialLR-restarts": lambda L, o: L.SequentialLR(
        o, [L.LinearLR(o, 0.1, total_iters=3), L.CosineAnnealingWarmRestarts(o, 3)], milestones=[3]
    ),
    "SequentialLR-function": lambda L, o: L.SequentialLR(
        o, [L.LambdaLR(o, lambda e: 0.5 + e / 10), L.MultiplicativeLR(o, lambda e: 0.9)], milestones=[2]
    ),
}
ALL = {**SCHEDULERS, **COMPOUND}
PER_GROUP = ("OneCycleLR", "CyclicLR-triangular2", "LambdaLR")  # given one value for each of two groups


def rates(optimizer):
    def momentum(group):
        return group["betas"][0] if "betas" in group else group["momentum"]

    return [(float(g["lr"]), float(momentum(g))) for g in optimizer.param_groups]


def trace(T, make, kind="SGD", steps=13, lr=0.1):
    optimizer = optimizer_of(T, kind, lr)
    scheduler = make(T.optim.lr_scheduler, optimizer)
    seen = [rates(optimizer)]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        seen.append(rates(optimizer))
        seen.append([(float(r), 0.0) for r in scheduler.get_last_lr()])
    return np.array(seen)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", ALL)
def test_rates_are_the_oracles(name, kind, oracle):
    np.testing.assert_allclose(trace(fb, ALL[name], kind), trace(oracle, ALL[name], kind), 1e-12, 1e-15)


@pytest.mark.parametrize("name", [n for n in ALL if n not in PER_GROUP])
def test_rates_held_in_tensors_stay_in_them(name, oracle):
    results = []
    for T in (fb, oracle):
        rate = T.tensor(0.1, dtype=T.float64)
        optimizer = T.optim.SGD([T.nn.Parameter(T.ones(2))], lr=rate, momentum=0.9)
        scheduler = ALL[name](T.optim.lr_scheduler, optimizer)
        seen = []
        for _ in range(6):
            optimizer.step()
            scheduler.step()
            assert optimizer.param_groups[0]["lr"] is rate
            seen.append(float(rate))
        results.append(seen)

    np.testing.assert_allclose(*results, 1e-9, 1e-12)


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_stepping_to_an_epoch_gives_the_oracles_rates(name, oracle):
    def run(T):
        optimizer = optimizer_of(T)
        scheduler = SCHEDULERS[name](T.optim.lr_scheduler, optimizer)
        optimizer.step()
        seen = []
        for epoch in (3, 1, 5, 2, 9):
            scheduler.step(epoch)
            seen.append(rates(optimizer))
        return np.array(seen)

    np.testing.assert_allclose(run(fb), run(oracle), 1e-12, 1e-15)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_resuming_with_last_epoch_gives_the_oracles_rates(name, oracle):
    def run(T):
        first, second = optimizer_of(T), optimizer_of(T)
        scheduler = SCHEDULERS[name](T.optim.lr_scheduler, first)
        for _ in range(3):
            first.step()
            scheduler.step()
        second.load_state_dict(first.state_dict())
        again = SCHEDULERS[name](T.optim.lr_scheduler, second, last_epoch=2)
        return [again.get_last_lr(), again.base_lrs, [again.last_epoch] * 2]

    np.testing.assert_allclose(run(fb), run(oracle), 1e-12)


@pytest.mark.parametrize("name", ALL)
def test_state_dict_continues_the_schedule(name):
    first, second = optimizer_of(fb), optimizer_of(fb)
    scheduler, other = ALL[name](lr_scheduler, first), ALL[name](lr_scheduler, second)
    for _ in range(3):
        first.step()
        scheduler.step()
    second.load_state_dict(first.state_dict())
    other.load_state_dict(scheduler.state_dict())

    for o, s in ((first, scheduler), (second, other)):
        o.step()
        s.step()

    assert rates(first) == rates(second)


def test_warm_restarts_accept_fractions_of_epochs(oracle):
    def run(T, mult):
        optimizer = optimizer_of(T)
        scheduler = T.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, mult)
        seen = []
        for epoch in (0.5, 1.5, 2.9, 3, 3.5, 8.9, 9.1, 20.0, 4, 2):
            scheduler.step(epoch)
            seen.append((*rates(optimizer)[0], scheduler.T_cur, scheduler.T_i, scheduler.last_epoch))
        return np.array(seen)

    for mult in (1, 2):
        np.testing.assert_allclose(run(fb, mult), run(oracle, mult), 1e-12)


def constant_then_steps(L, o):
    return L.SequentialLR(o, [L.ConstantLR(o, 0.5, 2), L.StepLR(o, 2)], milestones=[2])


def first_rates(make, steps):
    optimizer = optimizer_of(fb)
    scheduler = make(lr_scheduler, optimizer)
    seen = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        seen.append(optimizer.param_groups[0]["lr"])
    return seen


@pytest.mark.parametrize("milestone", [1, 3])
def test_a_sequence_inside_a_sequence_runs_as_it_would_alone(milestone):
    # The oracle skips an epoch of an inner sequence that comes first, and raises for one that comes later.
    alone = first_rates(constant_then_steps, 6)

    def comes_first(L, o):
        return L.SequentialLR(o, [constant_then_steps(L, o), L.ExponentialLR(o, 0.9)], milestones=[6])

    def comes_later(L, o):
        return L.SequentialLR(o, [L.ExponentialLR(o, 0.9), constant_then_steps(L, o)], milestones=[milestone])

    assert first_rates(comes_first, 5) == pytest.approx(alone[:6])
    assert first_rates(comes_later, milestone + 6)[milestone:] == pytest.approx(alone)


METRICS = (1, 0.99, 1.0, 1.1, 1.2, 1.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, float("nan"), 1)


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1, "factor": 0.5},
        {"patience": 1, "factor": 0.5, "cooldown": 2, "min_lr": [0.03, 0.4]},
        {"mode": "max", "patience": 0, "threshold": 0.1, "threshold_mode": "abs"},
        {"mode": "max", "patience": 0, "threshold": 0.1, "eps": 0.02},
        {"patience": 0, "threshold": 0.1, "threshold_mode": "abs"},
    ],
)
def test_plateau_reductions_are_the_oracles(options, oracle):
    def run(T):
        optimizer = optimizer_of(T)
        scheduler = T.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        seen = []
        for metric in METRICS:
            scheduler.step(T.tensor(metric))
            seen.append(
                [r for r, _ in rates(optimizer)] + [scheduler.cooldown_counter, scheduler.num_bad_epochs]
            )
        return np.array(seen)

    np.testing.assert_allclose(run(fb), run(oracle), 1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"anneal_strategy": "linear"}, {"anneal_epochs": 0}, {"anneal_epochs": 3}]
)
def test_swa_rates_are_the_oracles(options, oracle):
    def run(T, S):
        optimizer = optimizer_of(T)
        scheduler = S.SWALR(optimizer, [0.05, 0.06], **options)
        seen = [rates(optimizer)]
        for _ in range(6):
            optimizer.step()
            scheduler.step()
            seen.append(rates(optimizer))
        return np.array(seen)

    from torch.optim import swa_utils as reference

    np.testing.assert_allclose(run(fb, swa_utils), run(oracle, reference), 1e-12)


def test_cosine_annealing_follows_its_closed_form():
    optimizer = optimizer_of(fb)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=7, eta_min=0.01)
    for epoch in range(1, 30):
        optimizer.step()
        scheduler.step()
        expected = 0.01 + 0.09 * (1 + math.cos(math.pi * epoch / 7)) / 2

        assert scheduler.get_last_lr()[0] == pytest.approx(expected, rel=1e-9)


def test_warns_when_stepped_before_the_optimizer():
    scheduler = lr_scheduler.StepLR(optimizer_of(fb), 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()


def test_does_not_warn_in_the_right_order():
    optimizer = optimizer_of(fb)
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
        scheduler.step()


def test_get_lr_outside_a_step_warns():
    with pytest.warns(UserWarning, match="get_last_lr"):
        lr_scheduler.StepLR(optimizer_of(fb), 1).get_lr()


class Factor:
    def __init__(self, value):
        self.value = value

    def __call__(self, epoch):
        return self.value


def test_callable_objects_are_saved_by_their_attributes():
    saved = lr_scheduler.LambdaLR(optimizer_of(fb), [Factor(0.5), lambda e: 1.0]).state_dict()
    scheduler = lr_scheduler.LambdaLR(optimizer_of(fb), [Factor(0.1), lambda e: 1.0])

    scheduler.load_state_dict(saved)

    assert saved["lr_lambdas"] == [{"value": 0.5}, None]
    assert scheduler.lr_lambdas[0].value == 0.5


def plain(**options):
    return fb.optim.SGD([fb.nn.Parameter(fb.ones(1))], lr=0.1, **options)


L = lr_scheduler


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: L.StepLR(3, 1), TypeError, "int is not an Optimizer"),
        (lambda: L.StepLR(plain(), 1, last_epoch=3), KeyError, "initial_lr"),
        (lambda: L.LRScheduler(plain()), NotImplementedError, "get_lr"),
        (lambda: L.LambdaLR(plain(), [abs, abs]), ValueError, "1 lr_lambdas.*got 2"),
        (lambda: L.ConstantLR(plain(), 2), ValueError, "got 2"),
        (lambda: L.LinearLR(plain(), 0), ValueError, "got 0"),
        (lambda: L.LinearLR(plain(), 0.5, 2), ValueError, "got 2"),
        (lambda: L.CosineAnnealingWarmRestarts(plain(), 2.5), ValueError, "2.5"),
        (lambda: L.CosineAnnealingWarmRestarts(plain(), 1, 0), ValueError, "T_mult"),
        (lambda: L.CosineAnnealingWarmRestarts(plain(), 1).step(-1), ValueError, "-1"),
        (lambda: L.OneCycleLR(plain(), 1), ValueError, "total_steps OR"),
        (lambda: L.OneCycleLR(plain(), 1, total_steps=1.5), ValueError, "1.5"),
        (lambda: L.OneCycleLR(plain(), 1, epochs=1, steps_per_epoch=-1), ValueError, "steps_per_epoch.*-1"),
        (lambda: L.OneCycleLR(plain(momentum=0.9), 1, 3, pct_start=2), ValueError, "pct_start.*2"),
        (lambda: L.OneCycleLR(plain(momentum=0.9), 1, 3, anneal_strategy="x"), ValueError, "x"),
        (lambda: L.OneCycleLR(plain(momentum=0.9), [1, 2], 3), ValueError, "2 values"),
        (lambda: L.CyclicLR(plain(momentum=0.9), 0.1, 1, mode="x"), ValueError, "'x'"),
        (lambda: L.CyclicLR(fb.optim.Adagrad([fb.ones(1)]), 0.1, 1), ValueError, "momentum or beta1"),
        (lambda: L.SequentialLR(plain(), [], []), ValueError, "at least one"),
        (lambda: L.ChainedScheduler([]), ValueError, "at least one"),
        (
            lambda: L.ChainedScheduler([L.StepLR(plain(), 1), L.StepLR(plain(), 1)]),
            ValueError,
            r"schedulers\[1\]",
        ),
        (lambda: L.ReduceLROnPlateau(plain(), factor=1.0), ValueError, "got 1.0"),
        (lambda: L.ReduceLROnPlateau(plain(), mode="x"), ValueError, "x"),
        (lambda: L.ReduceLROnPlateau(plain(), min_lr=[1, 2]), ValueError, "2 values"),
        (lambda: swa_utils.SWALR(plain(), 0.1, anneal_strategy="x"), ValueError, "x"),
        (lambda: swa_utils.SWALR(plain(), 0.1, anneal_epochs=1.5), ValueError, "1.5"),
    ],
)
def test_refuses(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_schedulers_of_one_optimizer_that_need_a_metric_cannot_be_combined():
    optimizer = plain()
    with pytest.raises(ValueError, match="ReduceLROnPlateau"):
        L.SequentialLR(optimizer, [L.StepLR(optimizer, 1), L.ReduceLROnPlateau(optimizer)], [1])


def test_one_cycle_refuses_to_go_on_after_its_end():
    optimizer = plain(momentum=0.9)
    scheduler = L.OneCycleLR(optimizer, 1, 3)
    for _ in range(3):
        optimizer.step()
        scheduler.step()

    with pytest.raises(ValueError, match=r"step 4 times.*3"):
        scheduler.step()
