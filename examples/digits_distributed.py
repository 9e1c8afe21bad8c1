"""The network of digits.py, trained by several processes: by the launcher, by mpiexec, or by Ray.

    python -m flambeau.distributed.run --standalone --nproc-per-node 2 examples/digits_distributed.py
    mpiexec -n 2 python examples/digits_distributed.py --backend mpi     # with the extra mpi
    python examples/digits_distributed.py --ray 2                        # with the extra ray
    python examples/digits_distributed.py                                # one process

With `--way fsdp` parameters, gradients and states of the optimizer lie in pieces; without it each process has all of them (DDP).
All processes draw the same batch and take their part of it, so the losses are those of one process, to rounding.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from digits import DECAY, DigitNet, augment, load_scans

import flambeau as torch
import flambeau.distributed as dist
from flambeau.distributed.fsdp import fully_shard

nn = torch.nn
F = torch.nn.functional


def spread(model: nn.Module, way: str) -> nn.Module:
    """`model` for the processes of the job: statistics of batches are taken over all of them."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    fully_shard(model.classify)
    return fully_shard(model)


def mean(value: torch.Tensor) -> float:
    """The mean over all processes."""
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def train(options: argparse.Namespace) -> list[float]:
    """Train as a rank of a job; the loss of each epoch."""
    if "RANK" not in os.environ and options.backend != "mpi":
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group(options.backend)
    torch.manual_seed(options.seed)
    rank, size = dist.get_rank(), dist.get_world_size()
    model = spread(DigitNet(), options.way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    generator = torch.Generator().manual_seed(options.seed)
    train_x, train_y, test_x, test_y = load_scans()
    losses = []
    for epoch in range(options.epochs):
        order = torch.randperm(len(train_x), generator=generator)
        # Whole batches alone: means of equal parts are the mean of the whole.
        batches = order[: len(order) // options.batch_size * options.batch_size].split(options.batch_size)
        model.train()
        total = 0.0
        for step, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = options.lr * min(1.0, 0.1 + 0.9 * (epoch + step / len(batches))) * DECAY**epoch
            scans = augment(train_x[batch], generator)
            x, y = (whole.chunk(size)[rank] for whole in (scans, train_y[batch]))
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += mean(loss)
        model.eval()
        with torch.no_grad():
            accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
        losses.append(total / len(batches))
        if rank == 0:
            print(f"epoch {epoch + 1:3d}  loss {losses[-1]:.6f}  accuracy {accuracy:.4f}", flush=True)
    dist.destroy_process_group()
    return losses


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with several processes.")
    parser.add_argument("--way", choices=("ddp", "fsdp"), default="ddp", help="what each process has: all, or a piece (ddp)")
    parser.add_argument("--backend", default="gloo", help="the engine: gloo, or mpi under mpiexec (gloo)")
    parser.add_argument("--ray", type=int, default=0, metavar="N", help="start N processes by Ray")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training scans (10)")
    parser.add_argument("--batch-size", type=int, default=64, help="scans per step, of all processes (64)")
    parser.add_argument("--lr", type=float, default=5e-3, help="highest learning rate (0.005)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and augmentation (0)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> Any:
    options = parse(arguments)
    if not options.ray:
        return train(options)
    from flambeau.distributed.ray import launch

    # Ray's processes find digits.py as this one does.
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    losses = launch(_rank, here, options, workers=options.ray, environment={"PYTHONPATH": path})[0]
    print("losses of the epochs:", ", ".join(f"{loss:.6f}" for loss in losses))
    return losses


def _rank(here: str, options: argparse.Namespace) -> list[float]:
    import sys

    sys.path.insert(0, here)
    from digits_distributed import train as found

    return found(options)


if __name__ == "__main__":
    main()
