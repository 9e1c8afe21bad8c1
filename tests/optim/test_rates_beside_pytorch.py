"""Rates of schedulers, alone, chained and one after the other, to the bit as PyTorch's."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest

import flambeau as fb

SCHEDULERS = {
    "linear": "L.LinearLR(o, 0.1, total_iters=4)",
    "linear down": "L.LinearLR(o, start_factor=1 / 3, end_factor=0.07, total_iters=5)",
    "restarts": "L.CosineAnnealingWarmRestarts(o, 3, 2)",
    "cosine": "L.CosineAnnealingLR(o, 6, 1e-3)",
    "exponential": "L.ExponentialLR(o, 0.9)",
    "constant": "L.ConstantLR(o, 0.3, 3)",
    "step": "L.StepLR(o, 2, 0.5)",
    "milestones": "L.MultiStepLR(o, [1, 3], 0.3)",
    "polynomial": "L.PolynomialLR(o, 5, 0.8)",
    "lambda": "L.LambdaLR(o, lambda e: 0.95**e)",
    "product": "L.MultiplicativeLR(o, lambda e: 0.95)",
    "one cycle": "L.OneCycleLR(o, 1.0, 20)",
    "cycles": "L.CyclicLR(o, 0.01, 1.0, 3, cycle_momentum=False)",
}


def rates(torch: Any, schedule: str, first: float) -> list[float]:
    o = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=first)
    scheduler = eval(schedule, {"o": o, "L": torch.optim.lr_scheduler})
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(14):
            found.append(o.param_groups[0]["lr"])
            o.step()
            scheduler.step()
    return found


@pytest.mark.parametrize("first", [0.3, 1 / 3])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_rates_of_one_scheduler(oracle: Any, name: str, first: float) -> None:
    assert rates(fb, SCHEDULERS[name], first) == rates(oracle, SCHEDULERS[name], first)


def test_rates_of_schedulers_one_after_the_other(oracle: Any) -> None:
    for one, other in itertools.product(SCHEDULERS.values(), repeat=2):
        schedule = f"L.SequentialLR(o, [{one}, {other}, {SCHEDULERS['linear']}], [3, 8])"
        assert rates(fb, schedule, 0.2) == rates(oracle, schedule, 0.2), schedule


def test_rates_of_schedulers_chained(oracle: Any) -> None:
    for pair in itertools.combinations([words for name, words in SCHEDULERS.items() if "cycle" not in name], 2):
        schedule = f"L.ChainedScheduler([{', '.join(pair)}])"
        assert rates(fb, schedule, 0.3) == rates(oracle, schedule, 0.3), schedule


@pytest.mark.parametrize("name", SCHEDULERS)
def test_states_of_schedulers_cross_in_both_directions(oracle: Any, name: str) -> None:
    for source, target in ((fb, oracle), (oracle, fb)):
        made = []
        for torch in (source, target):
            o = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.3)
            made.append((o, eval(SCHEDULERS[name], {"o": o, "L": torch.optim.lr_scheduler})))
        (o, scheduler), (other_o, other) = made
        for _ in range(3):
            o.step()
            scheduler.step()
        other.load_state_dict(scheduler.state_dict())
        other_o.load_state_dict(o.state_dict())

        for _ in range(5):
            for each in (o, scheduler, other_o, other):
                each.step()
            assert other.get_last_lr() == scheduler.get_last_lr()
