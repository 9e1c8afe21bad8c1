"""Programs of `distributed` that are started by `multiprocessing.spawn`."""

from __future__ import annotations

import sys

import pytest

import flambeau as fb
import flambeau.distributed as dist
import flambeau.multiprocessing as mp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux only")


def add_up(rank, path, seen):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    x = fb.full((3,), rank + 1.0)
    dist.all_reduce(x)
    seen[rank] = x
    dist.destroy_process_group()


def test_ranks_that_are_spawned_form_a_group(tmp_path):
    seen = fb.zeros(2, 3).share_memory_()
    mp.spawn(add_up, args=(str(tmp_path / "group"), seen), nprocs=2)

    assert seen.tolist() == [[3.0] * 3] * 2
