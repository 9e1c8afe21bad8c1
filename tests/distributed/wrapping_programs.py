"""What the ranks of `test_wrapping.py` run: scaled training, tensors of several processes, and states of spread optimizers."""

from __future__ import annotations

import os

import flambeau as fb
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed import checkpoint, utils
from flambeau.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from flambeau.distributed.checkpoint.state_dict import get_optimizer_state_dict
from flambeau.distributed.fsdp import fully_shard
from flambeau.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from flambeau.distributed.tensor import DTensor

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def scaled():
    """One rank's gradient is infinite in the first step: both skip it, and both take the second."""
    dist.init_process_group("gloo")
    scaler = ShardedGradScaler("cpu", init_scale=4.0)
    part = nn.Parameter(fb.ones(2, dtype=fb.float16))
    optimizer = fb.optim.SGD([part], lr=0.25)
    for step, factor in enumerate((fb.inf if RANK == 0 else 1.0, 1.0)):
        optimizer.zero_grad()
        scaler.scale((part.float() * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert part.tolist() == ([1.0, 1.0] if step == 0 else [0.75, 0.75])
        assert scaler.get_scale() == 2.0
    dist.destroy_process_group()


def alike():
    """States are those of one rank but for the ignored, and shapes that differ are named on all."""
    dist.init_process_group("gloo")
    group = dist.group.WORLD
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    for value in (*model.parameters(), *model.buffers()):
        value.data.fill_(RANK + 1)
    utils._sync_module_states(model, group, 1 << 20, 1, {"0.bias"})
    assert all(bool((value == 2).all()) for name, value in model.state_dict().items() if name != "0.bias")
    assert bool((model[0].bias == RANK + 1).all())

    utils._verify_param_shape_across_processes(group, list(model.parameters()))
    try:
        utils._verify_param_shape_across_processes(group, [fb.ones(2), fb.ones(3 + RANK)])
    except RuntimeError as error:
        assert "parameter 1 is (4,) there and (3,) in rank 0" in str(error)
    else:
        raise AssertionError("shapes that differ were taken")
    dist.destroy_process_group()


def optimizer_states():
    """States of spread parameters come back as spread as they are, and full ones where parameters are not."""
    dist.init_process_group("gloo")
    fb.manual_seed(0)
    mesh = dist.init_device_mesh("cpu", (SIZE,))
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    fully_shard(model, mesh=mesh)
    optimizer = fb.optim.Adam(model.parameters(), lr=0.125)
    model(fb.ones(3, 4)).sum().backward()
    optimizer.step()
    saved = get_optimizer_state_dict(model, optimizer)
    checkpoint.save({"model": model.state_dict(), "optim": saved}, checkpoint_id=os.environ["FOLDER"] + "/saved")

    reader = checkpoint.FileSystemReader(os.environ["FOLDER"] + "/saved")
    found = load_sharded_optimizer_state_dict(model.state_dict(), "optim", reader)
    assert list(found) == ["optim"]
    assert found["optim"]["param_groups"][0]["lr"] == 0.125
    for name, states in saved["state"].items():
        for key, value in states.items():
            loaded = found["optim"]["state"][name][key]
            assert isinstance(loaded, DTensor) == isinstance(value, DTensor), (name, key)
            local = (loaded.to_local(), value.to_local()) if isinstance(value, DTensor) else (loaded, value)
            assert fb.equal(*local), (name, key)

    full = load_sharded_optimizer_state_dict({}, "optim", reader)["optim"]["state"]["0.weight"]["exp_avg"]
    assert fb.equal(full, saved["state"]["0.weight"]["exp_avg"].full_tensor())
    dist.destroy_process_group()
