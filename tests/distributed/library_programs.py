"""What the ranks of `test_library_engines.py` run: engines whose elements a library moves."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import collective_programs as programs
import nccl_stand_in

import flambeau as fb
import flambeau.distributed as dist


def nccl():
    nccl_stand_in.install()
    dist.init_process_group("nccl", timeout=timedelta(seconds=20), device_id="cuda:0")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "nccl"
    assert dist.is_nccl_available()
    with fb.device("cuda"):
        programs.reductions(rank, size)
        programs.same_bits(rank, size)
        programs.movements(rank, size)
        programs.point_to_point(rank, size)
        programs.asynchronous(rank, size)
    wanted = {"allReduce", "reduce", "broadcast", "allGather", "reduceScatter", "send", "recv"}
    assert wanted <= set(nccl_stand_in.calls), wanted - set(nccl_stand_in.calls)
    count = len(nccl_stand_in.calls)
    programs.objects(rank, size)
    x = fb.ones(2)
    dist.all_reduce(x)
    programs.same(x, fb.full((2,), float(size)))
    assert len(nccl_stand_in.calls) == count  # tensors of the CPU go another way
    layer = fb.nn.Linear(3, 2).cuda()
    fb.nn.parallel.DistributedDataParallel(layer)(fb.ones(4, 3, device="cuda") * (rank + 1)).sum().backward()
    programs.same(layer.weight.grad.cpu(), fb.full((2, 3), 2.0 * (size + 1)))
    assert dist.distributed_c10d.get_backend_config() == "cpu:gloo,cuda:nccl"
    dist.barrier()
    dist.destroy_process_group()
    assert nccl_stand_in.calls[-1] == "destroy"


def nccl_differs():
    nccl_stand_in.install()
    dist.init_process_group("nccl", timeout=timedelta(seconds=20))
    rank = dist.get_rank()
    try:
        dist.all_reduce(fb.ones(2 + rank, device="cuda"))
    except dist.DistBackendError as error:
        assert "ranks called different things" in str(error)
    else:
        raise AssertionError("shapes differ, and nothing was raised")
    dist.all_reduce(fb.ones(2, device="cuda"))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        dist.all_reduce(fb.ones(2, device="cuda"))
    except dist.DistBackendError as error:
        assert "rank 1 is gone" in str(error)
    else:
        raise AssertionError("a rank is gone, and nothing was raised")
    assert time.monotonic() - begin < 5
    while "abort" not in nccl_stand_in.calls and time.monotonic() - begin < 5:
        time.sleep(0.01)
    assert "abort" in nccl_stand_in.calls


def ucc():
    """The collectives of MPI, with UCC or without: which of both MPI takes for them is its own affair."""
    from flambeau.distributed import _ucc

    _ucc.why_not = lambda: ""
    dist.init_process_group("ucc", timeout=timedelta(seconds=20))
    rank, size = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "ucc"
    programs.reductions(rank, size)
    programs.same_bits(rank, size)
    programs.movements(rank, size)
    programs.point_to_point(rank, size)
    programs.asynchronous(rank, size)
    programs.objects(rank, size)
    group = dist.new_group([0, 1])
    x = fb.ones(2)
    dist.all_reduce(x, group=group)
    programs.same(x, fb.full((2,), 2.0))
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
