"""What the ranks of `test_sharded.py` run: networks whose parameters are spread by `fully_shard`, beside whole ones."""

from __future__ import annotations

import copy
import os

import flambeau as fb
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    OptimStateKeyType,
    ShardingStrategy,
    StateDictType,
    fully_shard,
    register_fsdp_forward_method,
)
from flambeau.distributed.fsdp import FullyShardedDataParallel as Wrapper
from flambeau.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    enable_wrap,
    size_based_auto_wrap_policy,
    wrap,
)
from flambeau.distributed.tensor import DTensor, Replicate, Shard, parallel
from flambeau.utils.checkpoint import checkpoint

F = nn.functional
_BY_NUMBER = OptimStateKeyType.PARAM_ID
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Block(nn.Module):
    """Sizes that no number of ranks divides."""

    def __init__(self, width: int, again: bool = False) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 3 * width + 1), nn.Linear(3 * width + 1, width)
        self.again = again

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x + (checkpoint(self.inner, x, use_reentrant=False) if self.again else self.inner(x))

    def inner(self, x: fb.Tensor) -> fb.Tensor:
        return self.down(F.gelu(self.up(self.norm(x))))


class Network(nn.Module):
    def __init__(self, width: int = 7, again: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.blocks = nn.ModuleList([Block(width, again) for _ in range(3)])
        self.head = nn.Linear(width, 11, bias=False)
        self.head.weight = self.embedding.weight      # a parameter that is used in two places

    def forward(self, tokens: fb.Tensor) -> fb.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _begin() -> None:
    if not dist.is_initialized():
        dist.init_process_group("gloo")


def _pair(again: bool = False, **settings: object) -> tuple[nn.Module, nn.Module]:
    """A whole network, and the same one spread."""
    fb.manual_seed(0)
    whole = Network(again=again)
    spread = copy.deepcopy(whole)
    for block in spread.blocks:
        fully_shard(block, **settings)  # type: ignore[arg-type]
    fully_shard(spread, **settings)  # type: ignore[arg-type]
    return whole, spread


def _tokens(step: int) -> fb.Tensor:
    return fb.randint(0, 11, (2 * SIZE, 5), generator=fb.Generator().manual_seed(step))


def _mine(tokens: fb.Tensor) -> fb.Tensor:
    return tokens[RANK * 2 : RANK * 2 + 2]


def _loss(network: nn.Module, tokens: fb.Tensor) -> fb.Tensor:
    return F.cross_entropy(network(tokens).flatten(0, 1), tokens.flatten())


def _assert_equal(whole: nn.Module, spread: nn.Module, room: float = 1e-6) -> None:
    theirs = dict(spread.named_parameters())
    for name, parameter in whole.named_parameters():
        assert isinstance(theirs[name], DTensor), name
        fb.testing.assert_close(theirs[name].full_tensor(), parameter.detach(), rtol=0, atol=room)


def _train(whole: nn.Module, spread: nn.Module, steps: int = 5, room: float = 1e-6) -> None:
    first, second = fb.optim.AdamW(whole.parameters(), lr=1e-2), fb.optim.AdamW(spread.parameters(), lr=1e-2)
    for step in range(steps):
        tokens = _tokens(step)
        for network, optimizer, seen in ((whole, first, tokens), (spread, second, _mine(tokens))):
            optimizer.zero_grad()
            _loss(network, seen).backward()
            norm = nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()
        assert isinstance(norm, DTensor)
    _assert_equal(whole, spread, room)


def training() -> None:
    """Every way to reshard ends with the parameters of one process; the modules have pieces again after backward."""
    _begin()
    ways: list[dict[str, object]] = [{}, {"reshard_after_forward": False}, {"reshard_after_forward": True, "again": True}]
    if SIZE == 4:
        ways = [
            {"reshard_after_forward": 2}, {"mesh": dist.init_device_mesh("cpu", (2, 2))}, {"offload_policy": CPUOffloadPolicy()},
            {"shard_placement_fn": lambda p: Shard(1) if p.ndim == 2 and p.shape[1] % SIZE == 0 else None},
        ]  # fmt: skip
    for way in ways:
        whole, spread = _pair(**way)  # type: ignore[arg-type]
        assert type(spread).__name__ == "FSDPNetwork" and isinstance(spread, (FSDPModule, Network))
        assert all(p._local_tensor.numel() < p.numel() for p in spread.parameters())  # type: ignore[attr-defined]
        _train(whole, spread)
    try:
        copy.deepcopy(spread)
        raise SystemExit("a copy was made")
    except AssertionError as error:
        assert "deepcopy" in str(error)


def accumulation() -> None:
    """Gradients add up without communication, in the dtype of the reduction; replicas may wait longer."""
    _begin()
    mesh = dist.init_device_mesh("cpu", (2, SIZE // 2)) if SIZE == 4 else None
    whole, spread = _pair(mesh=mesh)
    for step in range(3):
        tokens = _tokens(step)
        _loss(whole, tokens).backward()
        if mesh is None:
            spread.set_requires_gradient_sync(step == 2)
            spread.set_reshard_after_backward(step == 2)
        else:
            spread.set_requires_all_reduce(step == 2)
        _loss(spread, _mine(tokens)).backward()
        assert mesh is not None or step == 2 or all(p.grad is None for p in spread.parameters() if isinstance(p, DTensor))
    for mine, theirs in zip(whole.parameters(), spread.parameters(), strict=True):
        fb.testing.assert_close(theirs.grad.full_tensor(), mine.grad, rtol=0, atol=2e-6)  # type: ignore[union-attr]


def precision() -> None:
    """Modules compute in bfloat16, gradients are reduced and kept in float32, results are what is asked for."""
    _begin()
    policy = MixedPrecisionPolicy(param_dtype=fb.bfloat16, reduce_dtype=fb.float32)
    outer = MixedPrecisionPolicy(param_dtype=fb.bfloat16, reduce_dtype=fb.float32, output_dtype=fb.float32)
    fb.manual_seed(0)
    whole = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    spread = copy.deepcopy(whole)
    seen: list[object] = []
    spread[0].register_forward_hook(lambda m, args, out: seen.append((m.weight.dtype, args[0].dtype, out.dtype)))
    fully_shard(spread[0], mp_policy=policy)
    fully_shard(spread, mp_policy=outer)
    x = fb.randn(4 * SIZE, 6)
    whole = whole.bfloat16()
    whole(x.bfloat16()).float().square().mean().backward()
    out = spread(x[RANK * 4 : RANK * 4 + 4])
    assert out.dtype is fb.float32 and seen == [(fb.bfloat16, fb.bfloat16, fb.bfloat16)], (out.dtype, seen)
    out.square().mean().backward()
    for mine, theirs in zip(whole.parameters(), spread.parameters(), strict=True):
        assert theirs.dtype is theirs.grad.dtype is fb.float32  # type: ignore[union-attr]
        fb.testing.assert_close(theirs.grad.full_tensor(), mine.grad.float(), rtol=3e-2, atol=3e-3)  # type: ignore[union-attr]


def states() -> None:
    """State dicts hold pieces, go from one network to another and through checkpoints; methods beside forward gather too."""
    import flambeau.distributed.checkpoint as dcp

    _begin()
    whole, spread = _pair()
    _train(whole, spread, 2)
    _, other = _pair()
    for block in other.blocks:
        block.reshard()
    held = spread.state_dict()
    assert all(isinstance(value, DTensor) for value in held.values())
    folder = os.path.join(os.environ["FOLDER"], "saved")
    dcp.save({"model": held}, checkpoint_id=folder)
    wanted = {"model": other.state_dict()}
    dcp.load(wanted, checkpoint_id=folder)
    other.load_state_dict(wanted["model"])
    _assert_equal(whole, other)
    handle = other.blocks[0].unshard(async_op=True)
    assert isinstance(other.blocks[0].up.weight, DTensor)
    handle.wait()
    assert not isinstance(other.blocks[0].up.weight, DTensor) and other.blocks[0].up.weight.shape == (22, 7)
    other.blocks[0].reshard()
    other.set_modules_to_forward_prefetch([other.blocks[0]])
    other.blocks[0].set_modules_to_forward_prefetch([other.blocks[1], other.blocks[2]])
    other.blocks[2].set_modules_to_backward_prefetch([other.blocks[1], other.blocks[0]])
    _train(whole, other, 1, 1e-2)
    x = fb.randn(3, 7)
    register_fsdp_forward_method(other.blocks[1], "inner")
    with fb.no_grad():
        before = [p.full_tensor() for p in other.blocks[1].parameters()]
        made = other.blocks[1].inner(x)
        plain = Block(7)
        for p, value in zip(plain.parameters(), before, strict=True):
            p.copy_(value)
        fb.testing.assert_close(made, plain.inner(x))
    assert isinstance(other.blocks[1].up.weight, DTensor)


def memory() -> None:
    """Whole parameters are let go of after each block, in forward and in backward, although its nodes have saved them."""
    import numpy as np

    _begin()
    width, count = 256, 6
    fb.manual_seed(0)
    blocks = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(count)])
    one = width * width * 4
    for block in blocks:
        fully_shard(block)
    fully_shard(blocks)
    most: list[int] = []

    def look(*_: object) -> None:
        whole = [m[0].weight for m in blocks]
        most.append(sum(w._array.nbytes for w in whole if not isinstance(w, DTensor)))

    for block in blocks:
        block[0].register_forward_hook(look)
        block[0].register_full_backward_hook(look)
    x = fb.randn(8, width, requires_grad=True)
    out = blocks(x)
    kept = {id(p) for m in blocks for p in (m[0].weight,)}
    assert len(kept) == count and all(isinstance(m[0].weight, DTensor) for m in blocks)
    out.sum().backward()
    # One is used, the next one is on its way; more are never whole at once.
    assert max(most) <= 2 * one and isinstance(most[0], int) and np.isfinite(max(most)), most
    assert all(isinstance(m[0].weight, DTensor) and m[0].weight.grad is not None for m in blocks)


def refusals() -> None:
    """What cannot be spread is said so."""
    _begin()
    for make, kind, words in (
        (lambda: fully_shard(nn.ModuleList([nn.Linear(2, 2)])), ValueError, "containers that do not implement forward"),
        (lambda: fully_shard(nn.Linear(2, 2), reshard_after_forward=3), ValueError, "should be a factor of"),
        (lambda: fully_shard(fully_shard(nn.Linear(2, 2))), AssertionError, "already been applied"),
        (lambda: fully_shard(nn.Linear(3, 3), shard_placement_fn=lambda p: Shard(p.ndim - 1) if p.ndim == 2 else None),
         NotImplementedError, "uneven sharding on dim 1"),
    ):  # fmt: skip
        try:
            make()
        except kind as error:
            assert words in str(error), error
        else:
            raise SystemExit(f"nothing was said: {words}")


def at_once() -> None:
    """The shorter programs one after the other, because ranks take long to start."""
    for program in (accumulation, precision, memory, refusals, wrapping, failures):
        program()


def wrapped() -> None:
    """Every strategy of the wrapper ends with the parameters and optimizer states of one process, which load into others."""
    _begin()
    ways: list[dict[str, object]] = [{}, {"use_orig_params": True}]
    if os.environ.get("WAYS") == "more":
        ways = [
            {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "use_orig_params": True},
            {"sharding_strategy": ShardingStrategy.NO_SHARD}, {"sharding_strategy": ShardingStrategy.HYBRID_SHARD},
        ]  # fmt: skip
    for way in ways:
        fb.manual_seed(0)
        whole = Network()
        spread = Wrapper(copy.deepcopy(whole), auto_wrap_policy=ModuleWrapPolicy({Block}), **way)  # type: ignore[arg-type]
        first, second = fb.optim.AdamW(whole.parameters(), lr=1e-2), fb.optim.AdamW(spread.parameters(), lr=1e-2)
        for step in range(3):
            tokens = _tokens(step)
            first.zero_grad(), second.zero_grad()
            _loss(whole, tokens).backward()
            _loss(spread, _mine(tokens)).backward()
            norms = nn.utils.clip_grad_norm_(whole.parameters(), 0.5), spread.clip_grad_norm_(0.5)
            fb.testing.assert_close(norms[0], norms[1], rtol=1e-5, atol=1e-5)
            first.step(), second.step()
        wanted, held = whole.state_dict(), spread.state_dict()
        assert list(held) == list(wanted)
        states, names = Wrapper.optim_state_dict(spread, second), [name for name, _ in whole.named_parameters()]
        for name, value in wanted.items():
            fb.testing.assert_close(held[name], value, rtol=0, atol=1e-6)
        for at, name in enumerate(names):
            for key, value in first.state_dict()["state"][at].items():
                fb.testing.assert_close(states["state"][name][key], value, rtol=0, atol=1e-6)
        fb.manual_seed(5)
        other = Wrapper(Network(), auto_wrap_policy=ModuleWrapPolicy({Block}), **way)  # type: ignore[arg-type]
        third = fb.optim.AdamW(other.parameters(), lr=1e-2)
        with Wrapper.state_dict_type(spread, StateDictType.SHARDED_STATE_DICT):
            pieces = spread.state_dict()
            assert all(isinstance(value, DTensor) for value in pieces.values())
        with Wrapper.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
            assert not any(other.load_state_dict(pieces))
        third.load_state_dict(Wrapper.optim_state_dict_to_load(other, third, states))
        for network, optimizer in ((spread, second), (other, third)):
            optimizer.zero_grad()
            _loss(network, _mine(_tokens(7))).backward()
            optimizer.step()
        held, again = spread.state_dict(), other.state_dict()
        assert all(fb.equal(held[name], again[name]) for name in held)
        plain = Network()
        plain.load_state_dict(held)
        numbered = Wrapper.rekey_optim_state_dict(Wrapper.full_optim_state_dict(spread, second, rank0_only=False), _BY_NUMBER, plain)
        fb.optim.AdamW(plain.parameters()).load_state_dict(numbered)
        with Wrapper.summon_full_params(spread):
            assert [name for name, _ in spread.named_parameters()] == names
            for parameter in spread.parameters():
                parameter.data.fill_(0.5)
        config = FullStateDictConfig(rank0_only=True), FullOptimStateDictConfig(rank0_only=True)
        with Wrapper.state_dict_type(spread, StateDictType.FULL_STATE_DICT, *config):
            held = spread.state_dict()
        assert bool(held) == (RANK == 0) and all((value == 0.5).all() for value in held.values())


def wrapping() -> None:
    """Policies say what is wrapped; accumulation, dtypes, hooks, meta parameters and refusals of the wrapper."""
    from functools import partial

    _begin()

    def count(network: nn.Module) -> int:
        return len(Wrapper.fsdp_modules(network))

    assert count(Wrapper(Network(), auto_wrap_policy=partial(size_based_auto_wrap_policy, min_num_params=300))) == 4
    assert count(Wrapper(Network(), auto_wrap_policy=CustomPolicy(lambda m: isinstance(m, nn.Linear)))) >= 6
    with enable_wrap(wrapper_cls=Wrapper, use_orig_params=True):
        assert isinstance(wrap(nn.Linear(2, 2)), Wrapper)
    assert not isinstance(wrap(nn.Linear(2, 2)), Wrapper)

    fb.manual_seed(RANK)
    spread = Wrapper(nn.Linear(3, 2), sync_module_states=True)
    x = fb.randn(4 * SIZE, 3, generator=fb.Generator().manual_seed(3))
    whole = nn.Linear(3, 2)
    whole.load_state_dict(spread.state_dict())
    for step in range(2):
        with spread.no_sync() if step == 0 else Wrapper.state_dict_type(spread, StateDictType.FULL_STATE_DICT):
            spread(x[RANK * 4 : RANK * 4 + 4]).square().mean().backward()
        whole(x).square().mean().backward()
    flat = fb.cat([p.grad.reshape(-1) for p in whole.parameters()])  # type: ignore[union-attr]
    mine = next(spread.parameters()).grad
    length = mine.numel()  # type: ignore[union-attr]
    fb.testing.assert_close(mine, flat[RANK * length : (RANK + 1) * length])

    for options in ({}, {"sharding_strategy": ShardingStrategy.NO_SHARD}, {"use_orig_params": True}):
        plain = nn.Linear(3, 2)
        with fb.no_grad():
            for p in plain.parameters():
                p.copy_(fb.arange(p.numel()).reshape(p.shape) / 3)
        exact = {name: p.detach().clone() for name, p in plain.named_parameters()}
        low = Wrapper(plain, mixed_precision=MixedPrecision(param_dtype=fb.bfloat16, reduce_dtype=fb.float32), **options)
        assert low(fb.ones(2, 3)).dtype is fb.bfloat16
        with Wrapper.summon_full_params(low):        # kept afterwards, as they were
            assert [p.dtype for p in low.parameters()] == [fb.float32] * 2
        low(fb.ones(2, 3)).float().sum().backward()
        found = low.state_dict()
        assert {name: v.dtype for name, v in found.items()} == {"weight": fb.float32, "bias": fb.float32}
        assert all(fb.equal(found[name], exact[name]) for name in exact), (options, found, exact)
        low.load_state_dict(exact)
        assert fb.equal(low.state_dict()["weight"], exact["weight"])
    for own in (False, True):
        kept = MixedPrecision(reduce_dtype=fb.bfloat16, keep_low_precision_grads=True)
        low = Wrapper(nn.Linear(3, 2), mixed_precision=kept, use_orig_params=own)
        low(fb.ones(2, 3)).sum().backward()
        grads = [p.grad for p in low.parameters() if p.grad is not None]
        assert {p.dtype for p in low.parameters()} == {fb.float32} and {g.dtype for g in grads} == {fb.bfloat16}
        total = fb.stack([g.float().square().sum() for g in grads]).sum()
        dist.all_reduce(total)
        assert total.item() == 2 * 2.0**2 * 4          # 8 gradients of the sum over two examples, each 2
        assert abs(low.clip_grad_norm_(0.1).item() - 32**0.5) < 0.05
        assert {p.grad.dtype for p in low.parameters() if p.grad is not None} == {fb.bfloat16}
    half = Wrapper(nn.Linear(3, 2), mixed_precision=MixedPrecision(param_dtype=fb.bfloat16, reduce_dtype=fb.float32))
    out = half(x)
    out.float().sum().backward()
    assert out.dtype is fb.bfloat16 and next(half.parameters()).grad.dtype is fb.float32  # type: ignore[union-attr]

    given: list[tuple[int, ...]] = []

    def hook(state: object, gradient: fb.Tensor, piece: fb.Tensor) -> None:
        given.append((gradient.numel(), piece.numel()))
        dist.reduce_scatter_tensor(piece, gradient)

    spread = Wrapper(nn.Linear(3, 2))
    spread.register_comm_hook(None, hook)
    spread(x).sum().backward()
    assert given == [(8, 8 // SIZE)]

    made = Wrapper(nn.Linear(3, 2, device="meta"), param_init_fn=lambda m: m.to_empty(device="cpu").reset_parameters())
    assert made(x).shape == (4 * SIZE, 2) and made.check_is_root() and made.in_features == 3
    for make, kind, words in (
        (lambda: Wrapper(nn.Linear(2, 2), ignored_modules=[], ignored_states=[]), ValueError, "Cannot pass both"),
        (lambda: Wrapper.set_state_dict_type(made, StateDictType.LOCAL_STATE_DICT, FullStateDictConfig()),
         RuntimeError, "Expected state_dict_config"),
        (lambda: Wrapper.summon_full_params(made, rank0_only=True).__enter__(), NotImplementedError, "rank0_only=True"),
        (lambda: Wrapper(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())), ValueError, "uniform dtype"),
    ):  # fmt: skip
        try:
            make()
        except kind as error:
            assert words in str(error), error
        else:
            raise SystemExit(f"nothing was said: {words}")


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 16), nn.Linear(16, 6)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x + self.down(F.gelu(self.up(x)))


def two_dimensions() -> None:
    """Layers that are divided for tensor parallelism are divided again: pieces of pieces, as those of one process in the end."""
    import flambeau.distributed.checkpoint as dcp

    _begin()
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "layers"))
    at = mesh["data"].get_local_rank()
    fb.manual_seed(0)
    whole = nn.Sequential(Pair(), Pair(), nn.Linear(6, 5))
    spread = copy.deepcopy(whole)
    for pair in spread[:2]:
        parallel.parallelize_module(pair, mesh["layers"], {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()})
        fully_shard(pair, mesh=mesh["data"])
    fully_shard(spread[2], mesh=mesh["data"])
    fully_shard(spread, mesh=mesh["data"])
    assert spread[0].up.weight._local_tensor.shape == (4, 6) and spread[0].down.weight._local_tensor.shape == (3, 8)
    assert spread[0].down.bias.placements == (Shard(0), Replicate())
    first, second = fb.optim.AdamW(whole.parameters(), lr=1e-2), fb.optim.AdamW(spread.parameters(), lr=1e-2)
    for step in range(4):
        x = fb.randn(8, 6, generator=fb.Generator().manual_seed(step))
        first.zero_grad(), second.zero_grad()
        whole(x).square().mean().backward()
        spread(x[at * 4 : at * 4 + 4]).square().mean().backward()
        first.step(), second.step()
    _assert_equal(whole, spread)
    folder = os.path.join(os.environ["FOLDER"], "both")
    dcp.save(spread.state_dict(), checkpoint_id=folder)
    held = {name: fb.zeros_like(value) for name, value in whole.state_dict().items()}
    dcp.load(held, checkpoint_id=folder)
    for name, value in whole.state_dict().items():
        fb.testing.assert_close(held[name], value, rtol=0, atol=1e-6)


def failures() -> None:
    """After a forward or a backward that raises, training goes on as if it had not been."""
    _begin()
    for wrapped in (False, True):
        whole, spread = _pair()
        if wrapped:
            spread = Wrapper(copy.deepcopy(whole), auto_wrap_policy=ModuleWrapPolicy({Block}))

        def fail(*_: object) -> None:
            raise KeyError("on purpose")

        for raised_in in ("forward", "backward"):
            block = spread.blocks[1]
            if raised_in == "forward":
                handle = block.register_forward_pre_hook(fail)
            else:
                handle = block.register_full_backward_hook(fail)
            try:
                _loss(spread, _mine(_tokens(0))).backward()
            except KeyError:
                handle.remove()
            else:
                raise SystemExit(f"nothing was raised in {raised_in}")
            spread.zero_grad()
        if wrapped:
            _loss(whole, _tokens(1)).backward()
            _loss(spread, _mine(_tokens(1))).backward()
            norms = nn.utils.clip_grad_norm_(whole.parameters(), 0.5), spread.clip_grad_norm_(0.5)
            fb.testing.assert_close(norms[0], norms[1], rtol=1e-5, atol=1e-5)
        else:
            for module in spread.modules():           # the optimizer that is made next is to have the pieces
                if isinstance(module, FSDPModule):
                    module.reshard()
            _train(whole, spread, 2)
