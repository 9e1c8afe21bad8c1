"""What the ranks of `test_spread.py` run: tensors and networks spread over a mesh, beside whole ones."""

from __future__ import annotations

import os

import numpy as np
import pytest

import flambeau as fb
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, parallel
from flambeau.distributed.tensor import zeros as spread_zeros
from flambeau.distributed.tensor.experimental import implicit_replication

F = nn.functional
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

# Programs of `x` and `y` (6, 4), `b` (2, 6, 4), `w` (5, 4), `v` (5,), `i` (6,) places in 4 rows.
OPERATIONS = """
x + y
x * 2 + 1
x * y - x / 3
x @ y.t()
x.t() @ y
b @ y.t()
F.linear(b, w, v)
F.linear(x, w)
x.sum()
x.sum(0)
x.sum(1, keepdim=True)
x.mean()
x.mean(1)
x.amax(0)
x.var(1)
F.softmax(x, 1)
F.softmax(x, 0)
F.log_softmax(x, -1)
F.gelu(x)
F.relu(x)
x.exp()
x.t()
b.transpose(0, 1)
b.permute(2, 0, 1)
b.reshape(12, 4)
b.reshape(2, 24)
x.reshape(2, 3, 4)
x.unsqueeze(0)
x[2]
x[:, 1]
x[1:5]
torch.cat([x, y])
torch.cat([x, y], 1)
torch.stack([x, y])
F.layer_norm(x, (4,), y[0], y[1])
F.embedding(i, x)
torch.where(x > 0, x, y)
x.clamp(-0.5, 0.5)
b.cumsum(1)
x.std()
x.norm()
x.argmax(1)
x.to(torch.float64)
F.scaled_dot_product_attention(b[:, None], b[:, None], b[:, None])
F.cross_entropy(x, i)
x.sort(0)[0]
x.tril()
x.max(1)[0]
x.argmax()
x.squeeze().cumprod(0)
x.prod(1)
x.amax()
(x > 0).all(0)
(x * x).sum(0, keepdim=True).sqrt() + x
x[i, 1:]
x.index_select(1, i[:2])
x.gather(1, i[:, None])
x.roll(1, 1)
F.pad(x, (1, 2))
F.avg_pool1d(b, 2)
F.max_pool1d(b, 2)
F.conv1d(b, w[None, :3, :1].expand(2, 3, 1).repeat(1, 2, 1))
F.one_hot(i, 5)
F.binary_cross_entropy(x.sigmoid(), y.sigmoid())
F.nll_loss(F.log_softmax(x, 1), i, reduction="sum")
F.group_norm(b, 3)
F.batch_norm(b, None, None, training=True)
F.rms_norm(x, (4,), y[0])
F.dropout(x, 0.5)
torch.linalg.det(b[:, :4])
torch.linalg.eigvalsh(x.t() @ x)
torch.fft.rfft(b, dim=1).abs()
torch.einsum("bij,kj->bik", b, w)
torch.quantile(x, 0.5)
torch.cov(x)
x.where(x > 0, y).logsumexp(0)
x.median()
"""


def arrays():
    numbers = np.random.default_rng(3)
    shapes = {"x": (6, 4), "y": (6, 4), "b": (2, 6, 4), "w": (5, 4), "v": (5,)}
    made = {name: fb.from_numpy(numbers.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items()}
    return made | {"i": fb.from_numpy(numbers.integers(0, 4, 6))}


def start(*shape):
    dist.init_process_group("gloo")
    return init_device_mesh("cpu", shape or (SIZE,))


def layouts(mesh, ndim):
    if mesh.ndim == 1:
        return [[Replicate()], *([Shard(d)] for d in range(ndim))]
    return [[Replicate(), Shard(0)], [Shard(0), Shard(ndim - 1)], [Shard(0), Shard(0)]]


def operations():
    mesh = start(*((2, 2) if SIZE == 4 else ()))
    failures = []
    for program in filter(None, map(str.strip, OPERATIONS.splitlines())):
        for at in range(3):
            try:
                operation(mesh, program, at)
            except Exception as error:  # all are shown together; ranks stay in step
                failures.append(f"{program}, layout {at}: {type(error).__name__}: {error}")
    dist.destroy_process_group()
    assert not failures, "\n".join(failures)


def operation(mesh, program, at):
    """A program on whole and on spread operands: results and gradients."""
    whole = {k: v.clone().requires_grad_(v.is_floating_point()) for k, v in arrays().items()}
    spread = {}
    for name, value in arrays().items():
        options = layouts(mesh, value.ndim)
        made = distribute_tensor(value, mesh, options[at % len(options)])
        spread[name] = made.requires_grad_(value.is_floating_point())
    fb.manual_seed(0)
    expected = eval(program, {"torch": fb, "F": F, **whole})
    fb.manual_seed(0)
    found = eval(program, {"torch": fb, "F": F, **spread})
    assert isinstance(found, DTensor)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    fb.testing.assert_close(found.full_tensor(), expected, rtol=1e-5, atol=1e-5)
    if expected.requires_grad:
        expected.cos().sum().backward()
        found.cos().sum().backward()
        for name, value in whole.items():
            if value.grad is not None:
                grad = spread[name].grad
                assert isinstance(grad, DTensor)
                fb.testing.assert_close(grad.full_tensor(), value.grad, rtol=1e-4, atol=1e-5, msg=f"gradient of {name}")


def redistribution():
    mesh = start(*((2, 2) if SIZE == 4 else ()))
    whole = fb.arange(7 * 5).reshape(7, 5).float()      # pieces of unequal sizes
    kinds = [Replicate(), Shard(0), Shard(1)]
    every = [(p,) for p in kinds] if mesh.ndim == 1 else [(p, q) for p in kinds for q in kinds]
    for before in every:
        x = distribute_tensor(whole, mesh, before)
        assert fb.equal(x.full_tensor(), whole)
        for after in every:
            y = x.redistribute(placements=after)
            z = distribute_tensor(whole, mesh, after)
            assert y.placements == tuple(after)
            assert fb.equal(y.to_local(), z.to_local()), (before, after)
    part = DTensor.from_local(whole.clone(), mesh, [Partial()] * mesh.ndim)
    assert fb.equal(part.full_tensor(), whole * SIZE)
    for after in every:
        assert fb.equal(part.redistribute(placements=after).full_tensor(), whole * SIZE)
    leaf = whole[:2].clone().requires_grad_(True)
    spread = DTensor.from_local(leaf, mesh, [Shard(0)] + [Replicate()] * (mesh.ndim - 1))
    (spread.full_tensor() * 3).sum().backward()
    assert fb.equal(leaf.grad, fb.full((2, 5), 3.0))
    assert spread_zeros(5, 3, device_mesh=mesh, placements=[Shard(0)] * mesh.ndim).full_tensor().shape == (5, 3)
    try:
        part + whole
    except RuntimeError as error:
        assert "got mixed torch.Tensor and DTensor" in str(error)
    else:
        raise AssertionError("a plain tensor was taken")
    with implicit_replication():
        assert fb.equal((part + whole).full_tensor(), whole * (SIZE + 1))
    dist.destroy_process_group()


def stores():
    """Operations in place, into an ``out``, and functions that make tensors beside spread ones, also where histories are recorded."""
    mesh = start()
    x, y = arrays()["x"], arrays()["y"]
    for place in (Shard(0), Shard(1), Replicate()):
        wx, sx = x.clone().requires_grad_(), distribute_tensor(x, mesh, [place]).requires_grad_()
        wy, sy = y.clone(), distribute_tensor(y, mesh, [Shard(0)])
        for a, b in ((wx, wy), (sx, sy)):
            made = a * 2
            made += b                                 # residual connections
            made.mul_(b).relu_()
            other = a * 3
            other.fill_(2.0)
            (made.cos().sum() + (other * a).sum()).backward()
        fb.testing.assert_close(sx.grad.full_tensor(), wx.grad, rtol=1e-5, atol=1e-6)
        out = distribute_tensor(fb.zeros(6, 4), mesh, [Replicate()])
        assert fb.add(sx.detach(), sy, out=out) is out
        assert fb.equal(out.full_tensor(), x + y)
        with pytest.raises(RuntimeError, match="`out` is a plain tensor"):
            fb.add(sx.detach(), sy, out=fb.zeros(6, 4))
        with pytest.raises(RuntimeError, match="leaf"):
            sx.add_(1)
        rooms = sx.detach().new_empty_strided((6, 4), (4, 1)), sx.new_zeros(3), fb.full_like(sx, 2.0), fb.rand_like(sx)
        assert [type(t) for t in rooms] == [DTensor] * 4
        assert rooms[0].placements == (place,) and rooms[1].placements == (Replicate(),)
        fb.manual_seed(1)
        drawn = fb.poisson(sx.detach().abs()).full_tensor()
        fb.manual_seed(1)
        assert fb.equal(drawn, fb.poisson(x.abs()))
    norm, spread = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    for name in ("running_mean", "running_var"):
        setattr(spread, name, distribute_tensor(getattr(spread, name), mesh, [Replicate()]))
    for name, value in list(spread.named_parameters()):
        spread.register_parameter(name, nn.Parameter(distribute_tensor(value.detach(), mesh, [Replicate()])))
    spread.num_batches_tracked = None
    norm.num_batches_tracked = None
    norm.momentum = spread.momentum = 0.1
    for place in (Shard(0), Shard(1)):                # channels that are divided have their own statistics, which are put together
        given = distribute_tensor(x, mesh, [place])
        fb.testing.assert_close(spread(given).full_tensor(), norm(x), rtol=1e-5, atol=1e-6)
        fb.testing.assert_close(spread.running_var.full_tensor(), norm.running_var, rtol=1e-5, atol=1e-6)
    for call, words in (
        (lambda: distribute_tensor(fb.eye(3).to_sparse(), mesh, [Shard(0)]), "layout torch.sparse_coo"),
        (lambda: sx.detach().to_sparse(), "to_sparse.*layout torch.sparse_coo"),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match=words):
            call()
    dist.destroy_process_group()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(F.gelu(self.up(self.norm(x))))


def trained(net, steps=5):
    optimizer = fb.optim.AdamW(net.parameters(), 0.01)
    for step in range(steps):
        x = fb.from_numpy(np.random.default_rng(step).standard_normal((2, 6, 8)).astype(np.float32))
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    return [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in net.parameters()]


def parallel_training():
    mesh = start()
    fb.manual_seed(0)
    whole = Block()
    expected = trained(whole)
    for sequence in (False, True):
        fb.manual_seed(0)
        plan = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
        if sequence:
            plan = {
                "norm": parallel.SequenceParallel(), "up": parallel.ColwiseParallel(input_layouts=Shard(1)),
                "down": parallel.RowwiseParallel(output_layouts=Replicate()),
            }
        net = Block()
        if sequence:
            net.register_forward_pre_hook(lambda module, args: (args[0].chunk(SIZE, 1)[RANK],))
        parallel.parallelize_module(net, mesh, plan)
        assert net.up.weight.placements == (Shard(0),)
        assert net.down.weight.to_local().shape == (8, 16 // SIZE)
        for found, wanted in zip(trained(net), expected, strict=True):
            fb.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)
    dist.destroy_process_group()


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x):
        q, k, v = (t.reshape(*t.shape[:2], 2, 3).transpose(1, 2) for t in self.inner(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def sequences():
    """Attention of divided sequences: causal or not, with one stretch or two of each rank, more queries than keys and values."""
    from flambeau.distributed.tensor.experimental import context_parallel
    from flambeau.distributed.tensor.experimental._attention import context_parallel_unshard, set_rotate_method

    mesh = start()
    fb.manual_seed(1)
    for way, length in (("alltoall", 2 * SIZE), ("alltoall", 6 * SIZE), ("alltoall", 3 * SIZE), ("allgather", 4 * SIZE)):
        set_rotate_method(way)
        two = length % (2 * SIZE) == 0
        some = fb.rand(2, 1, length, length) < 0.6
        some[:, :, 1] = False  # a query without a key
        masks = (None, None, None, some, fb.randn(length, length, dtype=fb.float64), some[:1, 0, -1:])
        cases = ((True, fb.float64), (False, fb.float32), (True, fb.bfloat16), *[(False, fb.float64)] * 3)
        for (causal, dtype), mask in zip(cases, masks, strict=True):
            wholes = [fb.randn(2, heads, length, 5, dtype=dtype) for heads in (4, 2, 2)]
            leaves = [x.clone().requires_grad_() for x in wholes]
            wanted = F.scaled_dot_product_attention(*leaves, mask, is_causal=causal, scale=0.3, enable_gqa=True)
            slope = fb.randn(wanted.shape, dtype=dtype)
            wanted.backward(slope)

            def mine(x, two=two):
                parts = x.tensor_split(SIZE * (1 + two), -2)
                return fb.cat([parts[RANK], parts[-1 - RANK]], -2) if two else parts[RANK]

            room = {"rtol": 1e-5, "atol": 1e-5} if dtype != fb.bfloat16 else {"rtol": 2e-2, "atol": 5e-2}
            given = [x.clone() for x in wholes]
            rows = [mask.clone()] if mask is not None and mask.shape[-2] > 1 else []
            with context_parallel(mesh, buffers=[*given, *rows], buffer_seq_dims=[2, 2, 2, *[mask.dim() - 2 for mask in rows]]):
                parts = [x.detach().clone().requires_grad_() for x in given]
                made = F.scaled_dot_product_attention(*parts, *(rows or [mask]), is_causal=causal, scale=0.3, enable_gqa=True)
                made.backward(mine(slope))
            fb.testing.assert_close(made.detach(), mine(wanted.detach()), **room)
            for part, leaf in zip(parts, leaves, strict=True):
                fb.testing.assert_close(part.grad, mine(leaf.grad), **room)
            assert all(map(fb.equal, context_parallel_unshard(mesh, parts, [2, 2, 2]), wholes))
    try:
        set_rotate_method("by hand")
    except NotImplementedError as error:
        assert "by hand" in str(error), error
    else:
        raise AssertionError("an unknown way was taken")
    with context_parallel(mesh, buffers=[x := fb.randn(1, 2, 2 * SIZE, 4)], buffer_seq_dims=[2]):
        for kind, words, options in (
            (ValueError, "all 6 keys as columns", {"attn_mask": fb.ones(2, 2, dtype=fb.bool)}),
            (RuntimeError, "should not be set when is_causal", {"attn_mask": fb.ones(2, 2 * SIZE), "is_causal": True}),
            (NotImplementedError, "dropout", {"dropout_p": 0.5}),
        ):
            try:
                F.scaled_dot_product_attention(x, x, x, **options)
            except kind as error:
                assert words in str(error), error
            else:
                raise AssertionError(f"{options} was taken")


def losses():
    """Losses of scores that are divided along their classes: those of whole ones, without a score on the wire."""
    from flambeau.distributed.tensor.debug import CommDebugMode

    dist.init_process_group("gloo")
    flat, square = init_device_mesh("cpu", (SIZE,)), init_device_mesh("cpu", (SIZE // 2, 2))
    fb.manual_seed(2)
    cases = [
        (flat, (7,), [Shard(0)]), (flat, (2, 3, 5), [Shard(1)]), (square, (6, 7), [Shard(0), Shard(1)]),
        (square, (4, 7, 3), [Shard(2), Shard(1)]), (square, (6, 9), [Shard(1), Shard(1)]), (square, (6, 1), [Replicate(), Shard(1)]),
    ]  # fmt: skip
    for mesh, shape, placements in cases:
        dim = 0 if len(shape) == 1 else 1
        scores, classes = fb.randn(shape, dtype=fb.float64) * 30, shape[dim]
        rows = shape[:dim] + shape[dim + 1 :]
        target = fb.randint(0, classes, rows)
        if target.ndim:
            target.reshape(-1)[0] = -100
        for reduction, weight in (("mean", fb.rand(classes).double() + 0.1), ("none", None)):
            whole = scores.clone().requires_grad_()
            wanted = F.cross_entropy(whole, target, weight, reduction=reduction)
            (wanted * wanted).sum().backward()
            spread = distribute_tensor(scores, mesh, placements).requires_grad_()
            seen = CommDebugMode()
            with parallel.loss_parallel():
                with seen:
                    loss = F.cross_entropy(spread, target, weight, reduction=reduction)
                found = loss.full_tensor()
                (loss * loss if reduction == "none" else found * found).sum().backward()
            assert "c10d_functional.all_gather_into_tensor" not in {str(op) for op in seen.get_comm_counts()}, (shape, placements)
            fb.testing.assert_close(found.detach(), wanted.detach(), rtol=1e-9, atol=1e-9)
            assert spread.grad.placements == tuple(placements)
            fb.testing.assert_close(spread.grad.full_tensor(), whole.grad, rtol=1e-9, atol=1e-9)
    spread = distribute_tensor(fb.randn(4, 6), flat, [Shard(1)])
    with parallel.loss_parallel():
        for call, kind, words in (
            (lambda: F.cross_entropy(spread, fb.tensor([0, 1, 6, 2])), IndexError, "Target 6 is out of bounds"),
            (lambda: F.cross_entropy(spread, fb.zeros(4, dtype=fb.int64), label_smoothing=0.1), NotImplementedError, "label_smoothing"),
            (lambda: F.cross_entropy(spread, fb.rand(4, 6)), NotImplementedError, "probabilities"),
            (lambda: F.cross_entropy(spread, fb.zeros(3, dtype=fb.int64)), ValueError, r"\(3,\)"),
        ):
            with pytest.raises(kind, match=words):
                call()
    dist.destroy_process_group()


def tools():
    """Collectives counted by module, functions of pieces, rules of a program's own, divided sequences, and a stop in the debugger."""
    import contextlib
    import io
    import json
    import pdb
    import time

    from flambeau.distributed.tensor.debug import CommDebugMode, visualize_sharding
    from flambeau.distributed.tensor.experimental import context_parallel, local_map, register_sharding

    mesh = start()
    x = distribute_tensor(fb.arange(12.0).reshape(4, 3), mesh, [Shard(0)])
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        visualize_sharding(x, header="x")
    lines = [line.split() for line in shown.getvalue().splitlines()]
    assert lines == ([["x"], ["Col", "0-2"], ["-------", "-------"], ["Row", "0-1", "cpu:0"], ["Row", "2-3", "cpu:1"]] if RANK == 0 else [])

    net = Block()
    parallel.parallelize_module(net, mesh, {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()})
    seen = CommDebugMode()
    with seen:
        net(fb.randn(2, 8)).sum().backward()
        x.full_tensor()
    assert {str(op): n for op, n in seen.get_comm_counts().items()}["c10d_functional.all_gather_into_tensor"] == 1
    assert seen.get_total_counts() >= 2 and seen.get_sharding_info()["Block.up.weight"] == (Shard(0),)
    assert set(seen.get_parameter_info()["Block.down"]) == {"weight", "bias"}
    table = seen.generate_comm_debug_tracing_table(noise_level=1)
    assert "Block.down" in table and "*c10d_functional.all_reduce: 1" in table
    everything, computing = (seen.generate_comm_debug_tracing_table(noise_level=n) for n in (3, 2))
    names = ("aten.ones_like.default", "aten.view.default")
    assert all(f"**{name}\n" in everything and f"**{name}\n" not in computing for name in names), everything
    assert "**aten.mm.default" in computing
    dump = os.path.join(os.environ["FOLDER"], f"{RANK}.json")
    seen.generate_json_dump(dump, noise_level=3)
    with open(dump, encoding="utf-8") as file:
        assert json.load(file)["children"][0]["fqn"] == "Block"

    w = distribute_tensor(fb.ones(3, 5), mesh, [Replicate()])
    product = local_map(lambda a, b: a @ b, [Shard(0)], ([Shard(0)], [Replicate()]), device_mesh=mesh)
    made = product(x, w)
    assert made.placements == (Shard(0),) and fb.equal(made.full_tensor(), fb.arange(12.0).reshape(4, 3) @ fb.ones(3, 5))
    for arguments, kind, words in (
        ((x.redistribute(mesh, [Replicate()]), w), ValueError, "mismatched placements"),
        ((x,), AssertionError, "does not match the number"),
        ((x, fb.ones(3, 5)), AssertionError, "expects None placements"),
    ):  # fmt: skip
        try:
            product(*arguments)
        except kind as error:
            assert words in str(error)
        else:
            raise SystemExit(words)

    asked = []

    @register_sharding(fb.ops.aten.erfinv.default)
    def rule(spec):
        asked.append(spec.tensor_meta.shape)
        return [([Replicate()], [Replicate()])]

    assert (x / 20).erfinv().placements == (Replicate(),) and asked

    fb.manual_seed(0)
    net = Attends()
    whole, given = fb.randn(2, 4 * SIZE, 6), None
    net(whole).square().sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    wanted = net(whole).detach()
    net.zero_grad()
    given = whole.clone()
    with context_parallel(mesh, buffers=[given], buffer_seq_dims=[1]):
        assert given.shape == (2, 4, 6)
        stretches = wanted.tensor_split(2 * SIZE, 1)   # an early one and a late one
        part = net(given)
        fb.testing.assert_close(part.detach(), fb.cat([stretches[RANK], stretches[-1 - RANK]], 1), rtol=1e-5, atol=1e-6)
        before = len(dist.ledger())
        part.square().sum().backward()
        assert {entry["op"] for entry in dist.ledger()[before:]} == {"send", "recv"}
    assert fb.equal(given, whole)
    for p, grad in zip(net.parameters(), expected, strict=True):
        dist.all_reduce(p.grad)
        fb.testing.assert_close(p.grad, grad, rtol=1e-4, atol=1e-5)

    stopped = []
    pdb.Pdb.set_trace = lambda self, frame=None: (time.sleep(0.5), stopped.append(RANK))
    begin = time.monotonic()
    dist.breakpoint(rank=1)
    assert stopped == [1] * (RANK == 1) and time.monotonic() - begin > 0.2
