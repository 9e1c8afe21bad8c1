"""What the ranks of `test_planning.py` run: a step whose bytes are counted as they are, beside the plan of it."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import flambeau as fb
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed import _ledger
from flambeau.distributed.fsdp import FullyShardedDataParallel, fully_shard
from flambeau.distributed.tensor import DTensor
from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from flambeau_kernels import memory

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
WIDTH, ROWS = 256, 192


def network() -> nn.Module:
    fb.manual_seed(0)
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(2)]
    )


def in_pieces(model: Any, mesh: Any) -> Any:
    for layer in model:
        fully_shard(layer, mesh=mesh["dp"])
    return fully_shard(model, mesh=mesh["dp"])


def divided(model: Any, mesh: Any) -> Any:
    for layer in model:
        parallelize_module(layer, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model


def both(model: Any, mesh: Any) -> Any:
    return in_pieces(divided(model, mesh), mesh)


def flat(model: Any, mesh: Any) -> Any:
    return FullyShardedDataParallel(model, param_init_fn=lambda module: None, device_mesh=mesh["dp"])


def replicated(model: Any, mesh: Any) -> Any:
    return nn.parallel.DistributedDataParallel(model)


# Name, the mesh for a number of ranks, and what is done with the module.
WAYS: list[tuple[str, Callable[[int], dict[str, int]], Callable[[Any, Any], Any]]] = [
    ("replicated", lambda n: {"dp": n}, replicated),
    ("in_pieces", lambda n: {"dp": n}, in_pieces),
    ("flat", lambda n: {"dp": n}, flat),
    ("divided", lambda n: {"tp": n}, divided),
    ("both", lambda n: {"dp": n // 2, "tp": 2}, both),
]


def _local_bytes(tensors: Any) -> int:
    return _ledger.bytes_of({id(t): t._local_tensor if isinstance(t, DTensor) else t for t in tensors}.values())


def _real(sizes: dict[str, int], parallelize: Any) -> tuple[dict[str, int], Counter[Any], int]:
    """Bytes that stay, calls with their bytes, and the peak of the allocator above what was there before."""
    gc.collect()
    before = memory.statistics()["allocated_bytes"]
    model = parallelize(network(), dist.init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes)))
    optimizer = fb.optim.AdamW(model.parameters())
    x = fb.randn(ROWS, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()

    step()
    states = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, fb.Tensor)]
    stays = {
        "parameters": _local_bytes(model.parameters()),
        "gradients": _local_bytes(p.grad for p in model.parameters() if p.grad is not None),
        "optimizer": _local_bytes(states),
    }
    del states
    heard: list[Any] = []
    memory.reset_peaks()
    _ledger.listeners.append(heard.append)
    step()
    _ledger.listeners.remove(heard.append)
    peak = memory.statistics()["peak_allocated_bytes"] - before
    calls: Counter[Any] = Counter()
    for entry in heard:
        if entry.size > 1:
            calls[entry.op, entry.size] += entry.bytes
    return stays, calls, peak


def as_planned() -> None:
    """Memory and messages of a step are those that were planned."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    for name, sizes_of, parallelize in WAYS:
        sizes = sizes_of(SIZE)
        if 0 in sizes.values() or name not in (os.environ.get("WAYS") or name):
            continue
        stays, calls, peak = _real(sizes, parallelize)
        planned = dist.plan(network(), sizes, fb.empty(ROWS, WIDTH), parallelize=parallelize, rank=RANK)
        print(f"{name:12} {SIZE} ranks: peak {peak}, planned {planned.peak} ({planned.peak / peak:.3f})")
        assert stays == {key: getattr(planned, key) for key in stays}, (name, stays, planned)
        assert calls == Counter({(t.op, t.ranks): t.bytes for t in planned.collectives}), (name, calls, planned)
        # The engine copies messages, and the allocator rounds sizes up by at most an eighth; neither is planned.
        assert 0.7 < planned.peak / peak < 1.1, (name, peak, planned)
        assert dist.get_world_size() == SIZE
    dist.destroy_process_group()
