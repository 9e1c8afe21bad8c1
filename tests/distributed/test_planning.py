"""`distributed.plan`: memory, messages and time of a step on any number of ranks, without them."""

from __future__ import annotations

import pytest

import flambeau as fb
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed.fsdp import fully_shard
from flambeau.distributed.planning import Machine, measure
from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from flambeau_kernels import memory


def in_both_ways(model, mesh):
    for layer in model:
        parallelize_module(layer, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(layer, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


@pytest.mark.parametrize(("size", "ways"), [(1, ""), (2, ""), (4, "both"), (8, "both")])
def test_what_real_ranks_use_and_send_is_what_was_planned(ranks, size, ways):
    try:
        memory.statistics()
    except RuntimeError:
        pytest.skip("the allocator does not count here")

    ranks("planning_programs.as_planned", size, limit=60 if size < 8 else 180, WAYS=ways)


def test_a_step_of_a_hundred_thousand_ranks_is_planned_in_one_process():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 800, device="meta"), nn.GELU(), nn.Linear(800, 64, device="meta"))])

    found = dist.plan(model, {"dp": 12_500, "tp": 8}, fb.empty(8, 64), parallelize=in_both_ways, rank=99_999)

    assert not dist.is_initialized()
    by_group = {(t.op, t.group): t for t in found.collectives}
    assert by_group["all_reduce", "tp"].ranks == 8
    assert by_group["all_gather_into_tensor", "dp"].ranks == 12_500
    # The last rank has no row of the first weight (100 rows of its 8th for 12,500 ranks), nor of any other.
    assert found.parameters == 0
    assert dist.plan(model, {"dp": 12_500, "tp": 8}, fb.empty(8, 64), parallelize=in_both_ways).parameters > 0


def test_products_messages_and_constants_make_the_time():
    model, x = nn.Linear(100, 50, bias=False, device="meta"), fb.empty(10, 100)
    machine = Machine(flops=1e3, memory_bandwidth=1e30, call=0.0, link_bandwidth=1e4, latency=2.0)

    found = dist.plan(model, 4, x, machine=machine)

    assert found.flops == 2 * (2 * 10 * 100 * 50)
    assert found.computing == pytest.approx(200.0)
    (exchange,) = found.collectives
    assert (exchange.op, exchange.group, exchange.ranks, exchange.calls) == ("all_reduce", "all ranks", 4, 1)
    assert exchange.bytes == 4 * 5000
    assert exchange.sent == 30_000                     # 2 (n - 1) / n of them
    assert found.communicating == pytest.approx(2 * 2.0 + 3.0)
    assert found.seconds == pytest.approx((200.0, 207.0))
    assert "all_reduce" in str(found)


def test_a_program_that_is_in_a_job_stays_in_it_and_its_model_stays_what_it_is():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group, model = dist.group.WORLD, nn.Linear(3, 2)
        weight = model.weight.detach().clone()
        dist.plan(model, 8, fb.ones(4, 3))
        with pytest.raises(ValueError, match=r"rank 8 .*\[0, 8\)"):
            dist.plan(model, 8, fb.ones(4, 3), rank=8)
        with pytest.raises(RuntimeError, match="5 features"):
            dist.plan(model, 8, fb.ones(4, 5))

        assert dist.group.WORLD is group
        assert fb.equal(model.weight, weight)
        assert model.weight.grad is None
    finally:
        dist.destroy_process_group()


def test_constants_are_measured():
    found = measure(seconds=0.05)

    assert found.flops > 1e8
    assert found.memory_bandwidth > 1e8
    assert 0 < found.call < 1e-2
    assert found.latency == Machine().latency
