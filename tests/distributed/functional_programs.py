"""What the ranks of `test_tensor.py` run: collectives that return new tensors."""

from __future__ import annotations

import os

import flambeau as fb
import flambeau.distributed as dist
import flambeau.distributed._functional_collectives as functional
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.tensor import Replicate, Shard
from flambeau.distributed.tensor._utils import compute_local_shape_and_global_offset

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
# Of four ranks on a mesh of two by two: shapes and places of the pieces, as PyTorch gives them.
PIECES = [
    (((2, 3), (0, 0)), ((3, 2), (0, 0)), ((1, 3), (0, 0)), ((3,), (0,))),
    (((2, 3), (2, 0)), ((3, 1), (0, 2)), ((1, 3), (0, 0)), ((2,), (3,))),
    (((2, 3), (4, 0)), ((2, 2), (3, 0)), ((0, 3), (1, 0)), ((3,), (0,))),
    (((1, 3), (6, 0)), ((2, 1), (3, 2)), ((0, 3), (1, 0)), ((2,), (3,))),
]


def two() -> None:
    dist.init_process_group("gloo")
    group = dist.group.WORLD
    mine = fb.arange(4.0).reshape(2, 2) + 10 * RANK
    x = mine.clone().requires_grad_()
    assert functional.wait_tensor(functional.all_reduce(mine, "sum", group)).tolist() == [[10, 12], [14, 16]]
    assert functional.all_reduce(mine, "avg", group).tolist() == [[5, 6], [7, 8]]
    assert functional.broadcast(mine, 1, group).tolist() == [[10, 11], [12, 13]]
    assert functional.all_gather_tensor(mine, 1, group).tolist() == [[0, 1, 10, 11], [2, 3, 12, 13]]
    assert functional.reduce_scatter_tensor(mine, "sum", 1, group).tolist() == [[[10], [14]], [[12], [16]]][RANK]
    exchanged = functional.all_to_all_single(mine, None, None, init_device_mesh("cpu", (2,)))
    assert exchanged.tolist() == [[[0, 1], [10, 11]], [[2, 3], [12, 13]]][RANK]
    functional.all_gather_tensor_autograd(x, 0, group).mul(RANK + 1).sum().backward()
    assert x.grad.tolist() == [[3, 3], [3, 3]]
    try:
        functional.all_reduce(mine, "median", group)
    except ValueError as error:
        assert "Unsupported reduceOp 'median'" in str(error)
    else:
        raise AssertionError("nothing was raised")
    dist.destroy_process_group()


def pieces() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2))
    found = (
        compute_local_shape_and_global_offset((7, 3), mesh, [Shard(0), Shard(0)]),
        compute_local_shape_and_global_offset((5, 3), mesh, [Shard(0), Shard(1)]),
        compute_local_shape_and_global_offset((1, 3), mesh, [Shard(0), Replicate()]),
        compute_local_shape_and_global_offset((5,), mesh, [Replicate(), Shard(-1)]),
    )
    assert found == PIECES[RANK], found
    dist.destroy_process_group()
