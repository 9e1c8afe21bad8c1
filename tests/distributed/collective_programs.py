"""What the ranks of `test_collectives.py` run; an assertion that fails ends the rank with a status that is not 0."""

from __future__ import annotations

import hashlib
import os
import time
from datetime import timedelta

import flambeau as fb
import flambeau.distributed as dist
from flambeau.distributed._board import BLOCK
from flambeau.distributed.device_mesh import _mesh_resources

DTYPES = (
    fb.float32,
    fb.float64,
    fb.float16,
    fb.bfloat16,
    fb.int8,
    fb.uint8,
    fb.int16,
    fb.int32,
    fb.int64,
    fb.complex64,
    fb.complex128,
)


def same(tensor, expected):
    assert tensor.dtype == expected.dtype and tensor.shape == expected.shape, (tensor, expected)
    assert fb.equal(tensor, expected), (tensor, expected)


def everything():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    assert dist.is_initialized()
    assert dist.get_backend() == "gloo"
    reductions(rank, size)
    same_bits(rank, size)
    movements(rank, size)
    point_to_point(rank, size)
    asynchronous(rank, size)
    objects(rank, size)
    groups(rank, size)
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=5))
    entries = dist.ledger()
    assert len(entries) > 100
    assert entries[-1]["op"] == "monitored_barrier"
    assert __file__ in entries[-1]["site"]
    dist.destroy_process_group()
    assert not dist.is_initialized()


def reductions(rank, size):
    for dtype in DTYPES:
        for shape in ((), (3,), (2, 5), (0,), (40000,)):
            x = fb.ones(shape, dtype=dtype) * (rank + 1)
            dist.all_reduce(x)
            same(x, fb.ones(shape, dtype=dtype) * (size * (size + 1) // 2))
    x = fb.tensor([rank + 1, -rank, 6 - rank])
    for op, expected in (
        (dist.ReduceOp.PRODUCT, [24 if size == 4 else 2, 0, 360 if size == 4 else 30]),
        (dist.ReduceOp.MIN, [1, 1 - size, 7 - size]),
        (dist.ReduceOp.MAX, [size, 0, 6]),
    ):
        y = x.clone()
        dist.all_reduce(y, op)
        same(y, fb.tensor(expected))
    bits = {
        dist.ReduceOp.BAND: lambda a, b: a & b,
        dist.ReduceOp.BOR: lambda a, b: a | b,
        dist.ReduceOp.BXOR: lambda a, b: a ^ b,
    }
    for op, combine in bits.items():
        y = fb.tensor([rank + 5, 12])
        dist.all_reduce(y, op)
        expected = [5, 12]
        for other in range(1, size):
            expected = [combine(expected[0], other + 5), combine(expected[1], 12)]
        same(y, fb.tensor(expected))
    y = fb.tensor([float(rank), 1.0])
    dist.all_reduce(y, dist.ReduceOp.AVG)
    same(y, fb.tensor([(size - 1) / 2, 1.0]))
    y = fb.tensor([-1 - rank])
    dist.all_reduce(y, dist.ReduceOp.AVG)
    same(y, fb.tensor([int(-(size * (size + 1) // 2) / size)]))
    y = fb.ones(2)
    dist.all_reduce(y, dist._make_nccl_premul_sum(0.5))
    same(y, fb.ones(2) * size / 2)
    y = fb.tensor([True, rank == 0, False])
    dist.all_reduce(y, dist.ReduceOp.BAND)
    same(y, fb.tensor([True, False, False]))
    for op, tensor, kind in (
        (dist.ReduceOp.BAND, fb.ones(2), RuntimeError),
        (dist.ReduceOp.MAX, fb.ones(2, dtype=fb.complex64), ValueError),
        (dist.ReduceOp.AVG, fb.tensor([True]), RuntimeError),
        ("sum", fb.ones(2), TypeError),
    ):
        try:
            dist.all_reduce(tensor, op)
        except kind:
            continue
        raise AssertionError(op)
    x = fb.full((3,), float(rank))
    dist.reduce(x, dst=size - 1)
    same(x, fb.full((3,), size * (size - 1) / 2 if rank == size - 1 else float(rank)))
    # A tensor with strides is written where it lies.
    base = fb.zeros(4, 6)
    dist.all_reduce(base[:, 1::2].add_(rank + 1))
    assert base[:, ::2].sum() == 0
    assert bool((base[:, 1::2] == size * (size + 1) // 2).all())
    before = base._version
    dist.all_reduce(base)
    assert base._version > before
    tensors = [fb.ones(2) * rank, fb.ones(3, 2)]
    dist.all_reduce_coalesced(tensors)
    same(tensors[0], fb.ones(2) * (size * (size - 1) // 2))
    same(tensors[1], fb.ones(3, 2) * size)


def same_bits(rank, size):
    for count in (1000, 100_003):
        with fb.device("cpu"):
            parts = [fb.randn(count, generator=fb.Generator().manual_seed(other)) for other in range(size)]
        parts = [part.to(fb.get_default_device()) for part in parts]
        x = parts[rank].clone()
        expected = parts[0]
        for part in parts[1:]:
            expected = expected + part
        time.sleep(0.01 * ((rank * 7) % 3))  # ranks come in another order
        dist.all_reduce(x)
        same(x, expected)
        digests = [None] * size
        dist.all_gather_object(digests, hashlib.sha256(x.cpu().numpy().tobytes()).hexdigest())
        assert len(set(digests)) == 1


def movements(rank, size):
    for count in (3, 50_000):
        x = fb.arange(count) + 1000 * rank
        others = [fb.arange(count) + 1000 * other for other in range(size)]
        y = x.clone()
        dist.broadcast(y, src=size - 1)
        same(y, others[-1])
        outputs = [fb.zeros(count, dtype=fb.int64) for _ in range(size)]
        dist.all_gather(outputs, x)
        for output, expected in zip(outputs, others, strict=True):
            same(output, expected)
        flat = fb.zeros(size * count, dtype=fb.int64)
        dist.all_gather_into_tensor(flat, x)
        same(flat, fb.cat(others))
        stacked = fb.zeros(size, count, dtype=fb.int64)
        dist.all_gather_into_tensor(stacked, x)
        same(stacked, fb.stack(others))
        # The own part may lie in the output.
        flat.zero_()
        flat[rank * count : (rank + 1) * count] = x
        dist.all_gather_into_tensor(flat, flat[rank * count : (rank + 1) * count])
        same(flat, fb.cat(others))
        outputs = [fb.zeros(count, dtype=fb.int64) for _ in range(size)] if rank == 1 else None
        dist.gather(x, outputs, dst=1)
        if rank == 1:
            assert outputs is not None
            for output, expected in zip(outputs, others, strict=True):
                same(output, expected)
        y = fb.zeros(count, dtype=fb.int64)
        dist.scatter(y, [part + 7 for part in others] if rank == 0 else None, src=0)
        same(y, x + 7)
        total = sum(range(size)) * 1000 + size * fb.arange(count)
        dist.reduce_scatter(y, [x + 100 * other for other in range(size)])
        same(y, total + size * 100 * rank)
        dist.reduce_scatter_tensor(y, fb.cat([x + 100 * other for other in range(size)]))
        same(y, total + size * 100 * rank)
        outputs = [fb.zeros(count, dtype=fb.int64) for _ in range(size)]
        dist.all_to_all(outputs, [x + other for other in range(size)])
        for other, output in enumerate(outputs):
            same(output, others[other] + rank)
    # Sizes that differ.
    outputs = [fb.zeros(other + 1) for other in range(size)]
    dist.all_gather(outputs, fb.full((rank + 1,), float(rank)))
    for other, output in enumerate(outputs):
        same(output, fb.full((other + 1,), float(other)))
    source = fb.arange(size * 2 + 1.0) + 100 * rank
    splits = [2] * (size - 1) + [3]
    mine = [splits[rank]] * size
    received = fb.zeros(sum(mine))
    dist.all_to_all_single(received, source, mine, splits)
    start = 2 * rank
    same(received, fb.cat([fb.arange(size * 2 + 1.0)[start : start + splits[rank]] + 100 * other for other in range(size)]))
    even = fb.zeros(size)
    dist.all_to_all_single(even, fb.arange(float(size)) + 10 * rank)
    same(even, fb.arange(float(size)) * 10 + rank)


def point_to_point(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (1, 300_000):
        got = fb.zeros(count)
        request = dist.irecv(got, left)
        dist.send(fb.full((count,), float(rank)), right)
        request.wait()
        assert request.is_completed()
        same(got, fb.full((count,), float(left)))
    # Tags choose, whatever the order.
    first, second = fb.zeros(2), fb.zeros(2)
    dist.isend(fb.ones(2), right, tag=1).wait()
    dist.isend(fb.ones(2) * 2, right, tag=2).wait()
    assert dist.recv(second, left, tag=2) == left
    assert dist.recv(first, tag=1) == left
    same(first, fb.ones(2))
    same(second, fb.ones(2) * 2)
    got = fb.zeros(3)
    operations = [dist.P2POp(dist.isend, fb.full((3,), float(rank)), right), dist.P2POp(dist.irecv, got, left)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    same(got, fb.full((3,), float(left)))


def asynchronous(rank, size):
    tensors = [fb.full((4,), float(at + rank)) for at in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    direct = fb.ones(2)
    dist.all_reduce(direct)  # waits for its turn
    same(direct, fb.full((2,), float(size)))
    seen = []
    for at, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
        work.get_future().then(lambda future: seen.append(future.value()[0]))
        work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        same(tensor, fb.full((4,), float(at * size + size * (size - 1) // 2)))
    assert len(seen) == 20
    assert seen[3] is tensors[3]


def objects(rank, size):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "t": fb.arange(rank + 1), "x": (1.5, None, "é", b"\0")})
    assert [item["rank"] for item in found] == list(range(size))
    assert found[-1]["t"].tolist() == list(range(size))
    listed = [1, "two", [3]] if rank == 1 else [None] * 3
    dist.broadcast_object_list(listed, src=1)
    assert listed == [1, "two", [3]]
    out = [None]
    dist.scatter_object_list(out, [{"for": other} for other in range(size)] if rank == 0 else None, src=0)
    assert out == [{"for": rank}]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object("abc"[:rank], gathered, dst=0)
    assert rank or gathered == ["abc"[:other] for other in range(size)]
    if rank == 0:
        dist.send_object_list(["x", 2], dst=1)
    if rank == 1:
        got = [None, None]
        assert dist.recv_object_list(got, src=0) == 0
        assert got == ["x", 2]
    try:
        dist.all_gather_object(found, object())
    except TypeError as error:
        assert "allow_pickle" in str(error)
    else:
        raise AssertionError("an object that is no data was sent")
    dist.allow_pickle(True)
    dist.all_gather_object(found, timedelta(seconds=rank))
    assert found == [timedelta(seconds=other) for other in range(size)]
    dist.allow_pickle(False)


def groups(rank, size):
    pair = dist.new_group([0, 1])
    last = dist.new_group([size - 1])
    if rank < 2:
        x = fb.ones(2) * (rank + 1)
        dist.all_reduce(x, group=pair)
        same(x, fb.ones(2) * 3)
        assert dist.get_rank(pair) == rank
        assert dist.get_world_size(pair) == 2
        assert dist.get_process_group_ranks(pair) == [0, 1]
    else:
        assert pair == dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(pair) == -1
    if rank == size - 1:
        assert dist.get_global_rank(last, 0) == size - 1
        assert dist.get_group_rank(last, size - 1) == 0
    half, every = dist.new_subgroups(size // 2)
    assert len(every) == 2
    x = fb.full((50_000,), float(rank))
    dist.all_reduce(x, group=half)
    members = dist.get_process_group_ranks(half)
    same(x, fb.full((50_000,), float(sum(members))))
    y = fb.full((2,), float(rank))
    dist.broadcast(y, group=half, group_src=size // 2 - 1)
    same(y, fb.full((2,), float(members[-1])))
    split = dist.split_group(split_ranks=[list(range(size))])
    dist.barrier(split)
    dist.destroy_process_group(split)
    try:
        dist.barrier(split)
    except (ValueError, RuntimeError):
        pass
    else:
        raise AssertionError("a destroyed group answered")


def mesh():
    dist.init_process_group()
    rank = dist.get_rank()
    found = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert found.get_coordinate() == [rank // 2, rank % 2]
    assert found.get_local_rank("tp") == rank % 2 and found.get_local_rank(0) == rank // 2
    for dim, expected in (("dp", rank % 2 * 2 + 2), ("tp", rank // 2 * 4 + 1)):
        x = fb.tensor([float(rank)])
        dist.all_reduce(x, group=found.get_group(dim))
        assert x.item() == expected
        assert found[dim].get_group() is found.get_group(dim) and found[dim].size() == 2
    with found:
        assert _mesh_resources.get_current_mesh() is found and _mesh_resources.mesh_stack == [found]
    assert _mesh_resources.get_root_mesh(found["tp"]) is found and _mesh_resources.num_hosts("cpu") == 4
    try:
        _mesh_resources.get_current_mesh()
    except RuntimeError as error:
        assert "No device mesh is currently active" in str(error)
    else:
        raise AssertionError("there is no mesh any more")
    again = dist.DeviceMesh.from_group(found.get_all_groups(), "cpu", found.mesh, mesh_dim_names=("dp", "tp"))
    assert again == found and hash(again) == hash(found) and repr(found) == "DeviceMesh((dp=2, tp=2))"
    dist.destroy_process_group()


def blocks():
    """Tensors around the sizes where all_reduce changes its way, and calls whose description needs a message of its own."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    other = dist.new_group()
    for dtype in (fb.float32, fb.float16, fb.bfloat16, fb.int8, fb.complex128):
        block = BLOCK // dtype.itemsize
        large = (block - 1, block, 2 * block + 5) if dtype in (fb.float32, fb.bfloat16) else ()
        for count in (8191, 8192, 8193, *large):
            given = [((fb.arange(count) * (at + 3)) % 101 - 50).to(dtype) for at in range(size)]
            total = given[0].to(fb.float32) if dtype.itemsize == 2 else given[0].clone()
            for one in given[1:]:
                total = total + one
            x, y = given[rank].clone(), given[rank].clone()
            work = dist.all_reduce(y, group=other, async_op=True)
            dist.all_reduce(x)
            work.wait()
            same(x, total.to(dtype))
            same(y, total.to(dtype))
    columns = fb.ones(3, 20_000).t() * (rank + 1)
    dist.all_reduce(columns, dist.ReduceOp.AVG)
    same(columns, fb.full((20_000, 3), (size + 1) / 2))
    many = [fb.full((2,), float(rank + at)) for at in range(4000)]
    dist.all_reduce_coalesced(many)
    same(many[3999], fb.full((2,), float(sum(range(size)) + 3999 * size)))
    dist.all_reduce(many[0])
    same(many[0], fb.full((2,), float(sum(range(size)) * size)))
    dist.destroy_process_group()


def over_sockets():
    everything()


def by_file():
    folder, rank, size = os.environ["FOLDER"], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    x = fb.ones(2)
    dist.all_reduce(x)
    same(x, fb.ones(2) * size)
    dist.destroy_process_group()
    store = dist.FileStore(f"{folder}/another", size)
    for _ in range(2):  # the same store again, after the job has ended
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        dist.barrier()
        dist.destroy_process_group()
    address = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}?rank={rank}&world_size={size}"
    dist.init_process_group(init_method=address)
    dist.barrier()
    dist.destroy_process_group()
