"""Debug levels, what is logged at each, and where ranks listen."""

from __future__ import annotations

import pytest

import flambeau.distributed as dist


def test_debug_levels_are_pytorchs(oracle, monkeypatch):
    from torch import distributed as theirs

    levels = getattr(theirs, "DebugLevel").__members__  # noqa: B009  # which its package does not list
    assert [(m.name, m.value) for m in dist.DebugLevel] == [(n, m.value) for n, m in levels.items()]
    before = dist.get_debug_level()
    try:
        dist.set_debug_level(dist.DebugLevel.INFO)
        assert dist.get_debug_level() is dist.DebugLevel.INFO
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")
        dist.set_debug_level_from_env()
        assert dist.get_debug_level() is dist.DebugLevel.DETAIL
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "loud")
        for module in (dist, theirs):
            with pytest.raises(ValueError, match="must be OFF, INFO, or DETAIL"):
                module.set_debug_level_from_env()
            with pytest.raises(TypeError):
                module.set_debug_level(1)
    finally:
        dist.set_debug_level(before)


@pytest.mark.parametrize("level", ["OFF", "INFO", "DETAIL"])
def test_training_tells_what_its_debug_level_says(ranks, level):
    out = ranks("debug_programs.training", 2, TORCH_DISTRIBUTED_DEBUG=level, TORCH_CPP_LOG_LEVEL="INFO").out[1]
    assert ("[Rank 1]: DDP Initialized with:" in out and "total_parameter_size_bytes: 440" in out) is (level != "OFF")
    assert out.count("[Rank 1 / 2] Training TwoLinLayerNet unused_parameter_size=0") == (10 if level == "DETAIL" else 0)
    assert ("Avg backward comm. time:" in out) is (level == "DETAIL")


def test_ranks_listen_at_the_interface_that_the_environment_names(ranks):
    ranks("debug_programs.interface", 2, FLAMBEAU_SHARED_MEMORY="0")


def test_an_interface_without_an_address_is_refused_by_name(ranks):
    ranks("debug_programs.unknown_interface", 1)
