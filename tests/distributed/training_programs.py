"""What the ranks of `test_training.py` run: networks whose gradients are exchanged."""

from __future__ import annotations

import os
from datetime import timedelta

import numpy as np

import flambeau as fb
import flambeau.distributed as dist
import flambeau.distributed.nn.functional as collective
from flambeau import nn
from flambeau.distributed.algorithms import Join
from flambeau.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
from flambeau.nn.parallel import DistributedDataParallel

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def network(lib, features=6):
    model = lib.nn.Sequential(
        lib.nn.Linear(features, 16), lib.nn.Tanh(), lib.nn.Linear(16, 16), lib.nn.Tanh(), lib.nn.Linear(16, 3)
    )
    numbers = np.random.default_rng(7)
    with lib.no_grad():
        for parameter in model.parameters():
            parameter.copy_(lib.tensor(numbers.normal(0, 0.3, tuple(parameter.shape)).astype(np.float32)))
    return model


def batch(step, rows=8):
    numbers = np.random.default_rng(100 + step)
    return numbers.normal(size=(rows, 6)).astype(np.float32), numbers.normal(size=(rows, 3)).astype(np.float32)


def train(lib, model, part, steps=10):
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        x, y = (lib.tensor(array[part]) for array in batch(step))
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    return np.concatenate([parameter.detach().numpy().reshape(-1) for parameter in model.parameters()])


def wide(lib):
    """A network whose chain of elementwise operations is long and large enough to be a kernel of its own when it is compiled."""

    class Wide(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = lib.nn.Linear(6, 512), lib.nn.Linear(512, 3)

        def forward(self, x):
            h = self.inner(x)
            return self.outer((h * 0.5 + 1).tanh() * h.sigmoid() - h)

    model = Wide()
    numbers = np.random.default_rng(11)
    with lib.no_grad():
        for parameter in model.parameters():
            parameter.copy_(lib.tensor(numbers.normal(0, 0.3, tuple(parameter.shape)).astype(np.float32)))
    return model


def train_wide(lib, model, whole=None, steps=8):
    """As `train`, on many rows; `whole` compiles the step."""
    optimizer = lib.optim.SGD(model.parameters(), lr=0.001)

    def step(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = step if whole is None else whole(step)
    rows = 2048
    for number in range(steps):
        run(*[lib.tensor(array[RANK * rows // SIZE : (RANK + 1) * rows // SIZE]) for array in batch(number, rows)])
    return np.concatenate([parameter.detach().numpy().reshape(-1) for parameter in model.parameters()])


def train_by_hand(whole):
    """Gradients are added up by the step itself."""
    model = network(fb)
    optimizer = fb.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        return loss

    run = whole(step)
    for number in range(8):
        run(*[fb.tensor(array[my_part()]) for array in batch(number)])
    return np.concatenate([parameter.detach().numpy().reshape(-1) for parameter in model.parameters()])


def compiled():
    """Compiled, in whichever order and mode, a network on several processes ends with the bits of the one that is not compiled."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=240))
    expected = train_wide(fb, DistributedDataParallel(wide(fb)))
    recorded = fb.compile(DistributedDataParallel(wide(fb)))
    for found in (
        train_wide(fb, recorded),
        train_wide(fb, DistributedDataParallel(fb.compile(wide(fb)))),
        train_wide(fb, fb.compile(DistributedDataParallel(wide(fb)), backend="eager")),
        train_wide(fb, fb.compile(DistributedDataParallel(wide(fb)), backend=lambda graph, examples: graph.forward)),
        train_wide(fb, DistributedDataParallel(wide(fb)), whole=fb.compile),
        train_wide(fb, DistributedDataParallel(wide(fb)), whole=lambda f: fb.compile(f, mode="reduce-overhead")),
    ):
        assert found.tobytes() == expected.tobytes()
    assert any(segment.kernels for segment in recorded.explain().segments) or os.environ.get("FLAMBEAU_BACKEND") == "numpy"
    by_hand = train_by_hand(lambda step: step)
    assert train_by_hand(fb.compile).tobytes() == by_hand.tobytes()
    assert train_by_hand(lambda f: fb.compile(f, mode="reduce-overhead")).tobytes() == by_hand.tobytes()
    if RANK == 0:
        np.save(os.path.join(os.environ["FOLDER"], "ours_compiled.npy"), expected)
    dist.destroy_process_group()


def my_part():
    return slice(RANK * 8 // SIZE, (RANK + 1) * 8 // SIZE)


def everything():
    dist.init_process_group("gloo", timeout=timedelta(seconds=240))
    for kwargs in (
        {},
        {"bucket_cap_mb": 0.0005},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
    ):
        found = train(fb, DistributedDataParallel(network(fb), **kwargs), my_part())
        expected = train(fb, network(fb), slice(None))
        assert np.abs(found - expected).max() < 1e-6, (kwargs, np.abs(found - expected).max())
        every = [None] * SIZE
        dist.all_gather_object(every, found.tobytes())
        assert len(set(every)) == 1, kwargs
    if RANK == 0:
        np.save(os.path.join(os.environ["FOLDER"], "ours.npy"), found)
    accumulation()
    unused()
    buffers()
    hooks()
    uneven()
    gradients()
    synchronized()
    beside(fb, "ours")
    dist.destroy_process_group()


def accumulation():
    model = DistributedDataParallel(network(fb))
    one, two = (fb.tensor(batch(at)[0][my_part()]) for at in range(2))
    with model.no_sync():
        model(one).sum().backward()
    local = model.module[0].weight.grad.clone()
    model(two).sum().backward()
    plain = network(fb)
    for at in range(2):
        (plain(fb.tensor(batch(at)[0])).sum() / SIZE).backward()
    assert fb.allclose(model.module[0].weight.grad, plain[0].weight.grad, atol=1e-5)
    assert not fb.equal(local, model.module[0].weight.grad)


class Fork(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.never = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x, left):
        return self.left(x) if left else self.right(x)


def unused():
    model = DistributedDataParallel(Fork(), find_unused_parameters=True)
    model(fb.ones(1, 2), RANK == 0).sum().backward()
    share = 1 / SIZE
    assert fb.allclose(model.module.left.bias.grad, fb.full((2,), share))
    assert fb.allclose(model.module.right.bias.grad, fb.full((2,), 1 - share))
    assert model.module.never.weight.grad is None
    model = DistributedDataParallel(Fork())
    model(fb.ones(1, 2), True).sum().backward()
    try:
        model(fb.ones(1, 2), True)
    except RuntimeError as error:
        assert "find_unused_parameters" in str(error) and "right.weight" in str(error)
    else:
        raise AssertionError("a parameter without a gradient went unnoticed")


def buffers():
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    model.module[1].running_mean.fill_(float(RANK + 1))
    model.eval()
    model(fb.ones(3, 2))
    assert fb.equal(model.module[1].running_mean, fb.ones(2))
    keys = list(model.state_dict())
    assert keys[0] == "module.0.weight" and "module.1.running_mean" in keys


def hooks():
    for hook, close in (
        (default_hooks.allreduce_hook, 1e-6),
        (default_hooks.fp16_compress_hook, 2e-3),
        (default_hooks.bf16_compress_hook, 2e-2),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 2e-3),
    ):
        model = DistributedDataParallel(network(fb))
        model.register_comm_hook(None, hook)
        found = train(fb, model, my_part(), 3)
        assert np.abs(found - train(fb, network(fb), slice(None), 3)).max() < close, hook
    model = DistributedDataParallel(network(fb))
    model.register_comm_hook(None, debugging_hooks.noop_hook)
    model(fb.tensor(batch(0)[0][my_part()])).sum().backward()
    plain = network(fb)
    plain(fb.tensor(batch(0)[0][my_part()])).sum().backward()
    assert fb.equal(model.module[0].weight.grad, plain[0].weight.grad)


def uneven():
    model = DistributedDataParallel(network(fb))
    optimizer = fb.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step in range(3 + RANK):
            optimizer.zero_grad()
            model(fb.tensor(batch(step)[0])).sum().backward()
            optimizer.step()
    every = [None] * SIZE
    dist.all_gather_object(every, model.module[0].weight.detach())
    assert all(fb.equal(every[0], other) for other in every)
    try:
        with Join([model], throw_on_early_termination=True):
            for step in range(2 + RANK):
                model(fb.tensor(batch(step)[0])).sum().backward()
    except RuntimeError as error:
        assert "exhausted" in str(error)
    else:
        raise AssertionError("nothing was raised")


def gradients():
    x = fb.full((2,), float(RANK + 1)).requires_grad_()
    (collective.all_reduce(x) ** 2).sum().backward()
    total = SIZE * (SIZE + 1) / 2
    assert fb.allclose(x.grad, fb.full((2,), 2 * total * SIZE))
    x.grad = None
    parts = collective.all_gather(x)
    sum((at + 1.0) * part.sum() for at, part in enumerate(parts)).backward()
    assert fb.allclose(x.grad, fb.full((2,), (RANK + 1.0) * SIZE))
    x.grad = None
    (collective.broadcast(x, 1) * (RANK + 1)).sum().backward()
    assert fb.allclose(x.grad, fb.full((2,), total if RANK == 1 else 0.0))
    x.grad = None
    found = collective.reduce_scatter(fb.empty(2), [x * (at + 1) for at in range(SIZE)])
    assert fb.allclose(found, fb.full((2,), total * (RANK + 1)))
    found.sum().backward()
    assert fb.allclose(x.grad, fb.full((2,), total))
    x.grad = None
    largest = collective.reduce_scatter(fb.empty(2), [x * (at + 1) for at in range(SIZE)], dist.ReduceOp.MAX)
    assert fb.allclose(largest, fb.full((2,), SIZE * (RANK + 1.0)))
    (largest * (RANK + 1)).sum().backward()
    assert fb.allclose(x.grad, fb.full((2,), sum((at + 1.0) ** 2 for at in range(SIZE))))
    y = fb.arange(float(SIZE)).requires_grad_()
    (collective.all_to_all_single(fb.empty(SIZE), y) * (RANK + 1)).sum().backward()
    assert fb.allclose(y.grad, fb.arange(1.0, SIZE + 1))
    x.grad = None
    (collective.reduce(x, 0) * (RANK + 5)).sum().backward()
    assert fb.allclose(x.grad, fb.full((2,), 5.0))
    x.grad = None
    collective.scatter([x * (at + 1) for at in range(SIZE)], 0).sum().backward()
    assert fb.allclose(x.grad, fb.full((2,), total if RANK == 0 else 0.0))


def synchronized():
    numbers = np.random.default_rng(3)
    x, grad = numbers.normal(size=(6, 3, 4)).astype(np.float32), numbers.normal(size=(6, 3, 4)).astype(np.float32)
    part = slice(0, 2) if RANK == 0 else slice(2, 6)  # uneven
    sync = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))
    plain = nn.Sequential(nn.BatchNorm1d(3))
    mine, whole = fb.tensor(x[part]).requires_grad_(), fb.tensor(x).requires_grad_()
    out, expected = sync(mine), plain(whole)
    assert fb.allclose(out, expected[part], atol=1e-5)
    out.backward(fb.tensor(grad[part]))
    expected.backward(fb.tensor(grad))
    assert fb.allclose(mine.grad, whole.grad[part], atol=1e-5)
    dist.all_reduce(sync[0].weight.grad)
    assert fb.allclose(sync[0].weight.grad, plain[0].weight.grad, atol=1e-5)
    assert fb.allclose(sync[0].running_var, plain[0].running_var) and fb.allclose(
        sync[0].running_mean, plain[0].running_mean
    )


def beside(lib, name):
    """What else is compared with PyTorch in the same processes."""
    import ddp_extra_programs
    import pipeline_programs

    for what, program in (("averages", ddp_extra_programs), ("stages", pipeline_programs)):
        np.save(os.path.join(os.environ["FOLDER"], f"{name}_{what}{RANK}.npy"), program.beside(lib))


def oracle_wide():
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    found = train_wide(torch, torch.nn.parallel.DistributedDataParallel(wide(torch)))
    if RANK == 0:
        np.save(os.path.join(os.environ["FOLDER"], "theirs_wide.npy"), found)
    torch.distributed.destroy_process_group()


def oracle():
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(network(torch))
    found = train(torch, model, my_part())
    if RANK == 0:
        np.save(os.path.join(os.environ["FOLDER"], "theirs.npy"), found)
    beside(torch, "theirs")
    torch.distributed.destroy_process_group()
