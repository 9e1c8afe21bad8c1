"""Samplers: the orders that PyTorch draws from the same seed, and where the generator is afterwards."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau.utils import data as ours

SAMPLERS = {
    "sequential": lambda d, g: d.SequentialSampler(range(5)),
    "random": lambda d, g: d.RandomSampler(range(10), generator=g),
    "random, fewer": lambda d, g: d.RandomSampler(range(10), num_samples=4, generator=g),
    "random, more": lambda d, g: d.RandomSampler(range(10), num_samples=25, generator=g),
    "random, twice": lambda d, g: d.RandomSampler(range(10), num_samples=20, generator=g),
    "replacement": lambda d, g: d.RandomSampler(range(10), replacement=True, generator=g),
    "replacement, a group": lambda d, g: d.RandomSampler(range(10), True, 32, generator=g),
    "replacement, more": lambda d, g: d.RandomSampler(range(1000), True, 70, generator=g),
    "subset": lambda d, g: d.SubsetRandomSampler([5, 6, 7, 8], generator=g),
    "weighted": lambda d, g: d.WeightedRandomSampler([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 50, generator=g),
    "weighted, once each": lambda d, g: d.WeightedRandomSampler([0.1, 0.9, 0.4, 3.0], 4, False, generator=g),
    "batches": lambda d, g: d.BatchSampler(d.RandomSampler(range(10), generator=g), 3, False),
    "whole batches": lambda d, g: d.BatchSampler(d.RandomSampler(range(10), generator=g), 3, True),
    "distributed": lambda d, g: d.DistributedSampler(range(11), 3, 1),
    "distributed, seed": lambda d, g: d.DistributedSampler(range(11), 3, 2, seed=5),
    "distributed, dropping": lambda d, g: d.DistributedSampler(range(11), 3, 0, drop_last=True),
    "distributed, in order": lambda d, g: d.DistributedSampler(range(11), 3, 2, shuffle=False),
    "distributed, small": lambda d, g: d.DistributedSampler(range(2), 5, 4),
}


@pytest.mark.oracle
@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("own_generator", [False, True], ids=["default", "generator"])
def test_orders_and_generators_agree_with_pytorch(oracle, make, own_generator):
    outcomes = []
    for framework, package in ((fb, ours), (oracle, oracle.utils.data)):
        framework.manual_seed(11)
        generator = framework.Generator().manual_seed(4) if own_generator else None
        sampler = make(package, generator)
        orders = [list(sampler), list(sampler)]
        after = framework.rand(2).tolist(), framework.rand(2, generator=generator).tolist()
        outcomes.append((orders, len(sampler), after))

    assert outcomes[0] == outcomes[1]


@pytest.mark.oracle
@pytest.mark.parametrize("taken", [0, 1, 32, 33])
def test_a_pass_left_early_has_drawn_as_much_as_pytorch(oracle, taken):
    outcomes = []
    for framework, package in ((fb, ours), (oracle, oracle.utils.data)):
        generator = framework.Generator().manual_seed(4)
        keys = iter(package.RandomSampler(range(10), True, 70, generator))
        outcomes.append(([next(keys) for _ in range(taken)], framework.rand(1, generator=generator).item()))

    assert outcomes[0] == outcomes[1]


@pytest.mark.oracle
def test_each_epoch_of_a_distributed_sampler_has_pytorchs_order(oracle):
    for epoch in range(3):
        orders = []
        for package in (ours, oracle.utils.data):
            sampler = package.DistributedSampler(range(20), 4, 1, seed=9)
            sampler.set_epoch(epoch)
            orders.append(list(sampler))

        assert orders[0] == orders[1]


def test_replicas_divide_the_dataset():
    parts = [ours.DistributedSampler(range(12), 3, rank) for rank in range(3)]

    assert sorted(key for part in parts for key in part) == list(range(12))


def test_a_random_sampler_follows_a_growing_dataset():
    dataset = [1, 2]
    sampler = ours.RandomSampler(dataset)
    dataset.append(3)

    assert sorted(sampler) == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ours.RandomSampler([]), ValueError, "num_samples=0"),
        (lambda: ours.RandomSampler([1], num_samples=1.5), ValueError, r"num_samples=1\.5"),
        (lambda: ours.RandomSampler([1], num_samples=-1), ValueError, "num_samples=-1"),
        (lambda: ours.RandomSampler([1], replacement=3), TypeError, "replacement"),
        (lambda: ours.WeightedRandomSampler([1.0], 0), ValueError, "num_samples=0"),
        (lambda: ours.WeightedRandomSampler([1.0], True), ValueError, "num_samples=True"),
        (lambda: ours.WeightedRandomSampler([1.0], 1, 3), ValueError, "replacement"),
        (lambda: ours.WeightedRandomSampler([[1.0]], 1), ValueError, r"\(1, 1\)"),
        (lambda: list(ours.WeightedRandomSampler([1.0, -1.0], 1)), RuntimeError, "multinomial|probability"),
        (lambda: list(ours.WeightedRandomSampler([1.0], 3, False)), RuntimeError, "multinomial|sample"),
        (lambda: ours.BatchSampler([1], 0, False), ValueError, "batch_size=0"),
        (lambda: ours.BatchSampler([1], True, False), ValueError, "batch_size=True"),
        (lambda: ours.BatchSampler([1], 1, 3), ValueError, "drop_last"),
        (lambda: ours.DistributedSampler([1], 2, 2), ValueError, r"\[0, 1\], got 2"),
        (lambda: ours.DistributedSampler([1], 2, -1), ValueError, "got -1"),
        (lambda: iter(ours.Sampler()), NotImplementedError, "__iter__"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
