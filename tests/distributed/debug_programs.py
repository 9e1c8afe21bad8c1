"""What the ranks of `test_debug.py` run: training at each debug level, and listening at a named interface."""

from __future__ import annotations

import os

import pytest

import flambeau as fb
import flambeau.distributed as dist
from flambeau import nn


class TwoLinLayerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(10, 10, bias=False), nn.Linear(10, 1, bias=False)

    def forward(self, x):
        return self.a(x), self.b(x)


def training():
    dist.init_process_group("gloo")
    assert dist.get_debug_level() is dist.DebugLevel[os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()]
    model = nn.parallel.DistributedDataParallel(TwoLinLayerNet())
    for _ in range(12):
        a, b = model(fb.randn(20, 10))
        (a.sum() + b.sum()).backward()
    facts = model._get_ddp_logging_data()
    names = ("iteration", "total_parameter_size_bytes", "dtypes", "num_parameter_tensors")
    assert [facts[name] for name in names] == [12, 440, "float", 2]
    assert min(facts[f"avg_{what}_time"] for what in ("forward_compute", "backward_compute", "backward_comm")) > 0
    assert facts["avg_backward_compute_comm_overlap_time"] <= facts["avg_backward_comm_time"] <= facts["avg_backward_compute_time"]
    dist.destroy_process_group()


def interface():
    os.environ["GLOO_SOCKET_IFNAME"] = "lo,lo"
    dist.init_process_group("gloo")
    x = fb.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [2.0, 2.0]
    dist.destroy_process_group()


def unknown_interface():
    os.environ["GLOO_SOCKET_IFNAME"] = "no_such_one"
    with pytest.raises(ValueError, match=r"'no_such_one' has no IPv4 address.*there are .*lo"):
        dist.init_process_group("gloo")
