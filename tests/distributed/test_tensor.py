"""Placements, pieces, collectives that return tensors; and what is not built says so."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau.distributed import fsdp, tensor
from flambeau.distributed.tensor import DTensor, Partial, Replicate, Shard, parallel
from flambeau.distributed.tensor.placement_types import _StridedShard


def test_placements_are_pytorchs(oracle):
    from torch.distributed import tensor as theirs
    from torch.distributed.tensor.placement_types import _StridedShard as their_strided

    pairs = [
        (Shard(1), theirs.Shard(1)), (Shard(-1), theirs.Shard(-1)), (Replicate(), theirs.Replicate()), (Partial(), theirs.Partial()),
        (Partial("avg"), theirs.Partial("avg")), (_StridedShard(0, split_factor=2), their_strided(0, split_factor=2)),
    ]  # fmt: skip
    for ours, other in pairs:
        assert (repr(ours), str(ours)) == (repr(other), str(other))
        for question in ("is_replicate", "is_partial", "is_shard"):
            assert getattr(ours, question)() == getattr(other, question)()
    assert len({Shard(0), Shard(0), Shard(1), Replicate(), Replicate(), Partial(), Partial("sum")}) == 4
    assert Shard(1).is_shard(1)
    assert not Shard(1).is_shard(0)


def test_parameters_are_spread_over_a_process_group():
    for call in (
        lambda: fsdp.fully_shard(fb.nn.Linear(1, 1)), lambda: fsdp.FullyShardedDataParallel(fb.nn.Linear(1, 1)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="make sure to call init_process_group"):
            call()


def test_spread_tensors_are_made_on_a_mesh():
    for call in (
        lambda: DTensor.from_local(fb.ones(1)), lambda: tensor.distribute_tensor(fb.ones(1)), lambda: tensor.zeros(3),
        lambda: parallel.parallelize_module(fb.nn.Linear(1, 1)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="no device mesh is active"):
            call()
    assert not isinstance(fb.ones(1), DTensor)


def test_settings_are_pytorchs(oracle):
    from torch.distributed import fsdp as theirs

    for name in ("CPUOffload", "MixedPrecisionPolicy", "FullStateDictConfig", "CPUOffloadPolicy", "FullOptimStateDictConfig"):
        assert repr(getattr(fsdp, name)()) == repr(getattr(theirs, name)())
    for name in ("ShardingStrategy", "StateDictType", "BackwardPrefetch"):
        assert [(m.name, m.value) for m in getattr(fsdp, name)] == [(m.name, m.value) for m in getattr(theirs, name)]


def test_collectives_return_new_tensors(ranks):
    ranks("functional_programs.two", 2)


def test_pieces_on_a_mesh_are_pytorchs(ranks):
    ranks("functional_programs.pieces", 4)


def test_a_placement_shows_its_dimension_as_a_property():
    import copy
    import pickle

    assert Shard.dim.__get__(Shard(2)) == 2
    assert pickle.loads(pickle.dumps(Shard(2))) == copy.deepcopy(Shard(2)) == Shard(2) != Shard(1)
    assert Shard(2).is_shard(2)
