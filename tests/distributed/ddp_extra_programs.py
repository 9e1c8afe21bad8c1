"""What the ranks of `test_ddp_extras.py` run: compressed gradients, averaged models, divided optimizers."""

from __future__ import annotations

import copy
import os
from collections import OrderedDict
from datetime import timedelta

import numpy as np
from training_programs import batch, my_part, network

import flambeau as fb
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed.algorithms import Join
from flambeau.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    ddp_zero_hook,
    register_ddp_comm_hook,
)
from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks as default
from flambeau.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from flambeau.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from flambeau.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from flambeau.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from flambeau.distributed.fsdp import MixedPrecision
from flambeau.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from flambeau.nn.parallel import DistributedDataParallel

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def two():
    dist.init_process_group("gloo", timeout=timedelta(seconds=240))
    zero()
    power_sgd()
    averages()
    delayed()
    dist.destroy_process_group()


def mixed_alone():
    dist.init_process_group("gloo")
    mixed()
    dist.destroy_process_group()


class Seen(nn.Module):
    """A layer between normalization and a tied layer, which notes the dtypes that it meets."""

    def __init__(self):
        super().__init__()
        self.norm, self.one, self.two = nn.BatchNorm1d(6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.register_buffer("scale", fb.full((6,), 1.001))

    def forward(self, x, times=1):
        self.met = [x.dtype, self.one.weight.dtype, self.norm.running_mean.dtype, self.scale.dtype]
        assert self.one.weight is self.two.weight
        return self.two(self.one(self.norm(x))) * self.scale.to(x.dtype) * times


def mixed():
    """Computed in bfloat16 and exchanged in float32; parameters and gradients stay what they are."""
    fb.manual_seed(3)
    plain = Seen()
    precision = MixedPrecision(fb.bfloat16, fb.float32, fb.float32)
    ddp = DistributedDataParallel(copy.deepcopy(plain), mixed_precision=precision)
    parts = [fb.tensor(batch(0)[0][at * 4 : at * 4 + 4]) for at in range(SIZE)]
    out = ddp(parts[RANK], times=fb.ones(()))
    assert ddp.module.met == [fb.bfloat16, fb.bfloat16, fb.float32, fb.float32] and out.dtype == fb.bfloat16
    out.float().square().sum().backward()
    grads = {}
    for x in parts:  # each rank's part, by hand
        low = copy.deepcopy(plain)
        params = {name: p.to(fb.bfloat16) for name, p in low.named_parameters()}
        found = fb.func.functional_call(low, params, (x.to(fb.bfloat16),))
        found.float().square().sum().backward()
        for name, p in low.named_parameters():
            grads[name] = grads.get(name, 0) + p.grad / SIZE
    for name, p in ddp.module.named_parameters():
        assert p.dtype == p.grad.dtype == fb.float32
        assert fb.equal(p.grad, grads[name]), name
    assert not fb.equal(ddp.module.norm.running_mean, plain.norm.running_mean)
    ddp.eval()
    ddp.module(parts[RANK])
    assert ddp.module.met[0] == fb.float32  # the module itself is as it was

    low = DistributedDataParallel(nn.Linear(2, 2), mixed_precision=MixedPrecision(None, fb.float16, fb.float16))
    low.module.weight.register_hook(lambda grad: fb.full_like(grad, 2049.0))
    low(fb.ones(1, 2)).sum().backward()
    assert fb.equal(low.module.weight.grad, fb.full((2, 2), 2048.0))  # 2049 is no float16
    try:
        DistributedDataParallel(nn.Linear(2, 2), mixed_precision=fb.float16)
    except TypeError as error:
        assert "param_dtype" in str(error)
    else:
        raise AssertionError("a dtype was taken for a policy")


def four():
    dist.init_process_group("gloo", timeout=timedelta(seconds=240))
    hierarchy()
    groups()
    more_ranks_than_parameters()
    uneven()
    dist.destroy_process_group()


def flat(model):
    return np.concatenate([parameter.detach().numpy().reshape(-1) for parameter in model.parameters()])


def same_everywhere(array):
    every = [None] * SIZE
    dist.all_gather_object(every, array.tobytes())
    assert len(set(every)) == 1


# PowerSGD


def wide(lib):
    model = lib.nn.Sequential(lib.nn.Linear(24, 20), lib.nn.Tanh(), lib.nn.Linear(20, 24), lib.nn.Tanh(), lib.nn.Linear(24, 20))
    numbers = np.random.default_rng(11)
    with lib.no_grad():
        for parameter in model.parameters():
            parameter.copy_(lib.tensor(numbers.normal(0, 0.3, tuple(parameter.shape)).astype(np.float32)))
    return model


def rows(lib, step, part):
    numbers = np.random.default_rng(500 + step)
    return tuple(lib.tensor(numbers.normal(size=(4, size)).astype(np.float32)[part]) for size in (24, 20))


def descend(lib, model, steps, part, lr=0.1):
    optimizer = lib.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        x, y = rows(lib, step, part)
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    return flat(model)


def power_sgd():
    part = slice(RANK * 4 // SIZE, (RANK + 1) * 4 // SIZE)
    expected = descend(fb, wide(fb), 6, slice(None))
    # Four rows make matrices of rank four, which products of four columns hold whole.
    for kwargs in ({}, {"batch_tensors_with_same_shape": True}, {"warm_start": False}, {"orthogonalization_epsilon": 1e-8}):
        model = DistributedDataParallel(wide(fb))
        state = power.PowerSGDState(None, 4, start_powerSGD_iter=2, min_compression_rate=1, **kwargs)
        model.register_comm_hook(state, power.powerSGD_hook)
        found = descend(fb, model, 6, part)
        assert np.abs(found - expected).max() < 1e-4, (kwargs, np.abs(found - expected).max())
        same_everywhere(found)
        rate, before, after = state.compression_stats()
        assert before > after > 0 and rate == before / after and state.iter == 6
    # With one column it is an approximation, and what is lost is kept for the next iteration.
    for hook in (power.powerSGD_hook, power.batched_powerSGD_hook):
        model = DistributedDataParallel(wide(fb))
        state = power.PowerSGDState(None, 1, start_powerSGD_iter=2)
        model.register_comm_hook(state, hook)
        found = descend(fb, model, 2, part)
        assert np.abs(found - descend(fb, wide(fb), 2, slice(None))).max() < 1e-6
        x, y = rows(fb, 2, part)
        local = wide(fb)
        local.load_state_dict(model.module.state_dict())
        ((local(x) - y) ** 2).mean().backward()
        model.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        sent = fb.cat([p.grad.reshape(-1) for p in reversed(list(model.parameters()))])
        mine = fb.cat([p.grad.reshape(-1) for p in reversed(list(local.parameters()))])
        assert fb.allclose(state.error_dict[0], mine - sent, atol=1e-6)
        assert state.error_dict[0].abs().max() > 1e-4
    half = DistributedDataParallel(wide(fb))
    half.register_comm_hook(
        power.PowerSGDState(None, 4, start_powerSGD_iter=2, min_compression_rate=1),
        default.fp16_compress_wrapper(power.powerSGD_hook),
    )
    assert np.abs(descend(fb, half, 4, part) - descend(fb, wide(fb), 4, slice(None))).max() < 1e-2
    plain = DistributedDataParallel(wide(fb))
    register_ddp_comm_hook(DDPCommHookType.POWER_SGD_RANK2, plain)
    assert np.abs(descend(fb, plain, 2, part) - descend(fb, wide(fb), 2, slice(None))).max() < 1e-6
    best_of_two_columns(part)


def best_of_two_columns(part):
    """With gradients that stay the same, warm starts lead to the best matrices of rank two there are."""
    model = DistributedDataParallel(wide(fb))
    state = power.PowerSGDState(None, 2, start_powerSGD_iter=2, min_compression_rate=1, use_error_feedback=False)
    model.register_comm_hook(state, power.powerSGD_hook)
    plain = wide(fb)
    for target, rows_of, repeats in ((plain, slice(None), 1), (model, part, 60)):
        for _ in range(repeats):
            x, y = rows(fb, 0, rows_of)
            target.zero_grad()
            ((target(x) - y) ** 2).mean().backward()
    for compressed, whole in zip(model.parameters(), plain.parameters(), strict=True):
        if whole.dim() == 2:
            u, values, v = np.linalg.svd(whole.grad.numpy())
            best = (u[:, :2] * values[:2]) @ v[:2]
            assert np.abs(compressed.grad.numpy() - best).max() < 1e-5, (values, np.abs(compressed.grad.numpy() - best).max())


# Averages


def local_sgd(lib, hook, state, optimizer, averager, wrap, here, alone):
    found = []
    for gradients in (True, False):
        model = wrap(network(lib))
        model.register_comm_hook(state(None, alone, 3, gradients), hook)
        stepping = optimizer(lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), averager(4, warmup_steps=3))
        for step in range(10):
            x, y = (lib.tensor(array[here]) for array in batch(step))
            stepping.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            stepping.step()
            found.append(flat(model))
        assert stepping.state_dict()["step"] == 10
    return np.stack(found)


def averages():
    model = network(fb)
    optimizer = PostLocalSGDOptimizer(fb.optim.SGD(model.parameters(), lr=0.1), PeriodicModelAverager(2))
    optimizer.averager.step = 7
    other = PostLocalSGDOptimizer(fb.optim.SGD(model.parameters(), lr=0.3), PeriodicModelAverager(2))
    other.load_state_dict(optimizer.state_dict())
    assert other.averager.step == 7 and other.param_groups[0]["lr"] == 0.1


def hierarchy():
    layer = nn.Linear(1, 1, bias=False)
    averager = HierarchicalModelAverager(OrderedDict([(2, 2), (4, 4)]), warmup_steps=3)
    found = []
    for _ in range(9):
        with fb.no_grad():
            layer.weight.fill_(float(RANK))
        layer.weight.grad = fb.zeros(1, 1)
        averager.average_parameters(layer.parameters())
        found.append(layer.weight.item())
    pair = (RANK // 2) * 2 + 0.5
    assert found == [RANK, RANK, RANK, RANK, 1.5, RANK, pair, RANK, 1.5], found


# Divided optimizers


def learn(model, optimizer, steps, part, first=0, scheduler=None):
    for step in range(first, first + steps):
        x, y = (fb.tensor(array[part]) for array in batch(step))
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return flat(model)


def zero():
    part = my_part()
    for kind, kwargs in ((fb.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (fb.optim.AdamW, {"lr": 0.01})):
        for view in (False, True):
            plain, mine = (DistributedDataParallel(network(fb)) for _ in range(2))
            whole = kind(plain.parameters(), **kwargs)
            shared = ZeroRedundancyOptimizer(mine.parameters(), kind, parameters_as_bucket_view=view, **kwargs)
            decays = [fb.optim.lr_scheduler.StepLR(x, 2, 0.5) for x in (whole, shared)]
            expected = learn(plain, whole, 5, part, scheduler=decays[0])
            found = learn(mine, shared, 5, part, scheduler=decays[1])
            assert (found == expected).all(), (kind, view)
            held = sum(p.numel() for group in shared.optim.param_groups for p in group["params"])
            assert 0 < held < sum(p.numel() for p in mine.parameters())
            for to in (0, SIZE - 1):
                shared.consolidate_state_dict(to)
                if to == RANK:
                    same_states(shared.state_dict(), whole.state_dict())
                else:
                    try:
                        shared.state_dict()
                    except RuntimeError as error:
                        assert "consolidate_state_dict" in str(error)
                    else:
                        raise AssertionError("nothing was raised")
            # A plain state goes into a divided optimizer, which trains on as the plain one does.
            again = DistributedDataParallel(network(fb))
            again.load_state_dict(plain.state_dict())
            resumed = ZeroRedundancyOptimizer(again.parameters(), kind, **kwargs)
            resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
            assert (learn(again, resumed, 3, part, 5) == learn(plain, whole, 3, part, 5)).all()
    overlap(part)


def same_states(found, expected):
    assert found["param_groups"] == expected["param_groups"]
    assert list(found["state"]) == list(expected["state"])
    for at, state in expected["state"].items():
        for name, value in state.items():
            other = found["state"][at][name]
            assert fb.equal(other, value) if isinstance(value, fb.Tensor) else other == value, (at, name)


def groups():
    plain, mine = (DistributedDataParallel(network(fb)) for _ in range(2))
    parts = [[{"params": model.module[0].parameters(), "lr": 0.5}, {"params": model.module[2].parameters()}] for model in (plain, mine)]
    whole = fb.optim.SGD(parts[0], lr=0.1)
    shared = ZeroRedundancyOptimizer(parts[1], fb.optim.SGD, lr=0.1)
    learn(plain, whole, 2, my_part())
    learn(mine, shared, 2, my_part())
    for model, optimizer in ((plain, whole), (mine, shared)):
        optimizer.add_param_group({"params": list(model.module[4].parameters()), "momentum": 0.5})
    assert (learn(plain, whole, 3, my_part()) == learn(mine, shared, 3, my_part())).all()
    shared.consolidate_state_dict()
    if RANK == 0:
        same_states(shared.state_dict(), whole.state_dict())


def more_ranks_than_parameters():
    layer, other = nn.Linear(3, 1, bias=False), nn.Linear(3, 1, bias=False)
    other.load_state_dict(layer.state_dict())
    for model in (layer, other):
        dist.broadcast(model.weight.detach(), 0)
        model.weight.grad = fb.ones(1, 3)
    ZeroRedundancyOptimizer(layer.parameters(), fb.optim.Adam, lr=0.1).step()
    fb.optim.Adam(other.parameters(), lr=0.1).step()
    assert fb.equal(layer.weight, other.weight)


def overlap(part):
    for make in (ddp_zero_hook.hook_with_zero_step, ddp_zero_hook.hook_with_zero_step_interleaved):
        for shard in (False, True):
            plain, mine = (DistributedDataParallel(network(fb), bucket_cap_mb=0.0005) for _ in range(2))
            whole = fb.optim.Adam(plain.parameters(), lr=0.01)
            shared = ZeroRedundancyOptimizer(mine.parameters(), fb.optim.Adam, overlap_with_ddp=True, lr=0.01)
            mine.register_comm_hook(None, make(default.allreduce_hook, mine, shared, shard))
            try:
                shared.consolidate_state_dict()
            except RuntimeError as error:
                assert "fully initialized" in str(error)
            else:
                raise AssertionError("nothing was raised")
            before = flat(mine)
            for step in range(6):
                x, y = (fb.tensor(array[part]) for array in batch(step))
                mine.zero_grad()
                ((mine(x) - y) ** 2).mean().backward()
                if step < 2:
                    assert (flat(mine) == before).all()
            expected = learn(plain, whole, 4, part, 2)
            assert np.abs(flat(mine) - expected).max() < 1e-6, np.abs(flat(mine) - expected).max()
            same_everywhere(flat(mine))
            assert all(p.grad is not None for p in mine.parameters())
            shared.consolidate_state_dict()
            if RANK == 0:
                assert len(shared.state_dict()["state"]) == len(list(mine.parameters()))


def uneven():
    for whole in (True, False):
        model = DistributedDataParallel(network(fb))
        optimizer = ZeroRedundancyOptimizer(model.parameters(), fb.optim.SGD, lr=0.1)
        with Join([model, optimizer], divide_by_initial_world_size=whole):
            for step in range(3 + RANK):
                x, y = (fb.tensor(array) for array in batch(step))
                optimizer.zero_grad()
                ((model(x) - y) ** 2).mean().backward()
                optimizer.step()
        # The mean counts the ranks that have run out with zeros, or not at all.
        alone = network(fb)
        plain = fb.optim.SGD(alone.parameters(), lr=0.1)
        for step in range(3 + SIZE - 1):
            share = sum(step < 3 + rank for rank in range(SIZE)) / SIZE if whole else 1.0
            x, y = (fb.tensor(array) for array in batch(step))
            plain.zero_grad()
            (((alone(x) - y) ** 2).mean() * share).backward()
            plain.step()
        assert np.abs(flat(model) - flat(alone)).max() < 1e-6, whole
        same_everywhere(flat(model))
        model(x).sum().backward()
        assert model._divisor == SIZE


def delayed():
    """Parameters that wait for another are exchanged with it, and a mesh stands for its group: the gradients are those of plain DDP."""
    fb.manual_seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(3, 4), fb.nn.Tanh(), fb.nn.Linear(4, 2))
    x = fb.randn(4, 3) + RANK
    plain = fb.nn.parallel.DistributedDataParallel(copy.deepcopy(model))
    first = dict(model.named_parameters())
    late = [(name, first[name]) for name in ("2.weight", "2.bias")]
    mesh = dist.init_device_mesh("cpu", (SIZE,))
    waits = fb.nn.parallel.DistributedDataParallel(
        model, device_mesh=mesh, delay_all_reduce_named_params=late, param_to_hook_all_reduce=first["0.weight"]
    )
    for _ in range(2):
        for wrapped in (plain, waits):
            wrapped.zero_grad()
            wrapped(x).square().mean().backward()
        for (name, mine), other in zip(waits.named_parameters(), plain.parameters(), strict=True):
            fb.testing.assert_close(mine.grad, other.grad, rtol=1e-6, atol=1e-7, msg=name)
    for arguments, kind, words in (
        ({"delay_all_reduce_named_params": late}, ValueError, "given together"),
        ({"device_mesh": mesh, "process_group": mesh.get_group()}, RuntimeError, "both process_group and device_mesh"),
    ):
        try:
            fb.nn.parallel.DistributedDataParallel(copy.deepcopy(model), **arguments)
        except kind as error:
            assert words in str(error)
        else:
            raise AssertionError(words)


def beside(lib):
    """Parameters after each step of local SGD, by Flambeau or PyTorch."""
    if lib is fb:
        alone, _ = dist.new_subgroups(1)
        kinds = post_localSGD_hook, PostLocalSGDState, PostLocalSGDOptimizer, PeriodicModelAverager, DistributedDataParallel
    else:
        from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager as Averager
        from torch.distributed.optim import PostLocalSGDOptimizer as Stepping

        alone, _ = lib.distributed.new_subgroups(1)
        kinds = post.post_localSGD_hook, post.PostLocalSGDState, Stepping, Averager, lib.nn.parallel.DistributedDataParallel
    return local_sgd(lib, *kinds, my_part(), alone)
