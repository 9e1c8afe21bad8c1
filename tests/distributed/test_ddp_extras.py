"""Compressed gradients, averaged models and divided optimizers train as plain ones, and as PyTorch's."""

from __future__ import annotations

import pickle

import pytest

import flambeau as fb
import flambeau.distributed as dist
from flambeau.distributed._fake import FakeStore
from flambeau.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook
from flambeau.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from flambeau.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from flambeau.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from flambeau.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer, as_functional_optim


def test_two_processes_divide_optimizers_compress_gradients_and_train_as_one(ranks):
    ranks("ddp_extra_programs.two", 2, limit=300)


def test_two_processes_compute_in_one_dtype_and_exchange_gradients_in_another(ranks):
    ranks("ddp_extra_programs.mixed_alone", 2)


def test_four_processes_divide_optimizers_and_average_in_groups_that_grow(ranks):
    ranks("ddp_extra_programs.four", 4, limit=300)


@pytest.fixture
def eight():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield fb.nn.Linear(2, 2)
    dist.destroy_process_group()


def test_divided_optimizers_refuse_what_cannot_be(eight):
    adam = fb.optim.Adam
    with pytest.raises(ValueError, match="empty parameter list"):
        ZeroRedundancyOptimizer([], adam)
    with pytest.raises(ValueError, match=r"torch.FloatTensor and torch.DoubleTensor"):
        ZeroRedundancyOptimizer([fb.ones(2), fb.ones(2, dtype=fb.float64)], adam)
    with pytest.raises(TypeError, match="iterable of Tensors or dicts"):
        ZeroRedundancyOptimizer([3], adam)
    with pytest.raises(TypeError, match=r"but got torch.FloatTensor"):
        ZeroRedundancyOptimizer(fb.ones(3), adam)
    with pytest.raises(RuntimeError, match="has not been consolidated"):
        ZeroRedundancyOptimizer(eight.parameters(), adam).state_dict()
    late = ZeroRedundancyOptimizer(eight.parameters(), adam, overlap_with_ddp=True)
    with pytest.raises(RuntimeError, match="fully initialized"):
        late.state_dict()
    with pytest.warns(UserWarning, match="should not be included"):
        assert late.step() is None
    with pytest.raises(NotImplementedError, match="one group"):
        late.add_param_group({"params": [fb.ones(1)]})
    with pytest.raises(ValueError, match="overlap_with_ddp=True"):
        ddp_zero_hook.hook_with_zero_step(print, None, ZeroRedundancyOptimizer(eight.parameters(), adam))


def test_averagers_refuse_what_cannot_be(eight):
    with pytest.raises(ValueError, match="``period`` must be a positive"):
        PeriodicModelAverager(0)
    with pytest.raises(ValueError, match="``warmup_steps`` must be a non-negative"):
        PeriodicModelAverager(2, -1)
    with pytest.warns(UserWarning, match="period of 1"):
        PeriodicModelAverager(1)
    for given, text in (
        (None, "must not be empty"),
        ({2: 4, 4: 2}, "must grow"),
        ({2: 4}, "must be equal to the size"),
        ({2: 3, 3: 8}, "must be divisible"),
        ({0: 2, 4: 8}, "minimum period"),
    ):
        with pytest.raises(ValueError, match=text):
            HierarchicalModelAverager(given)
    optimizer = fb.optim.SGD(eight.parameters(), lr=0.1)
    averaged = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(2))
    with pytest.warns(UserWarning, match="does not contain a step counter"):
        averaged.load_state_dict(optimizer.state_dict())


def test_the_state_of_power_sgd_is_saved_without_its_group(eight):
    with pytest.raises(ValueError, match="2 or more"):
        PowerSGDState(None, start_powerSGD_iter=1)
    state = PowerSGDState(dist.new_group([0, 1]), 3, start_powerSGD_iter=5)
    state.iter, state.error_dict[0] = 4, fb.ones(2)

    loaded = pickle.loads(pickle.dumps(state))

    assert loaded.process_group is dist.group.WORLD
    assert (loaded.iter, loaded.matrix_approximation_rank, loaded.error_dict[0].tolist()) == (4, 3, [1.0, 1.0])
    assert loaded.rng.randint(1000) == state.rng.randint(1000)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Rprop"])
def test_functional_optimizers_step_by_the_gradients_they_are_given(kind):
    layer, other = fb.nn.Linear(3, 2), fb.nn.Linear(3, 2)
    other.load_state_dict(layer.state_dict())
    plain = getattr(fb.optim, kind)(layer.parameters(), lr=0.05)
    functional = as_functional_optim(getattr(fb.optim, kind), lr=0.05)
    for step in range(3):
        for parameter, twin in zip(layer.parameters(), other.parameters(), strict=True):
            parameter.grad = fb.full_like(parameter, 0.5 - step)
            functional.step_param(twin, fb.full_like(twin, 0.5 - step))
        plain.step()

    assert all(fb.equal(a, b) for a, b in zip(layer.parameters(), other.parameters(), strict=True))
    assert other.weight.grad is None


def test_optimizers_without_a_functional_form_are_named():
    with pytest.raises(ValueError, match=r"LBFGS.*functional counterpart"):
        as_functional_optim(fb.optim.LBFGS)
