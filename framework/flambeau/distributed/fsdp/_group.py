"""The parameters of one call of `fully_shard`: gathered together before they are used, reduced together after backward.

Between uses the modules have the pieces, DTensors that optimizers step. Before forward the whole parameters, tensors as they were, take
their places; after it they are let go. What the nodes of the forward saved of their memory is replaced by where it lay, so that the
memory is free; backward gathers the parameters again when the first of these nodes runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import flambeau as fb
from flambeau import _arrays, _state

from ...autograd import graph
from ...autograd.tape import Node, OutputNode
from ...nn.parameter import Parameter
from ...tensor import Tensor
from .. import distributed_c10d as c10d
from ..tensor import DTensor, Replicate, Shard
from ..tensor.placement_types import Placement, _StridedShard
from ._shards import Layout, Pending, gather, reduce_scatter

__all__ = ["ParameterGroup", "ShardedParameter", "SpreadParameter"]


class ShardedParameter:
    """One parameter: the piece of this rank, and while it is used the whole."""

    def __init__(self, name: str, places: list[tuple[Any, str]], unsharded: Any, mesh: Any, dim: int) -> None:
        self.name, self.places = name, places
        self.mesh, self.at = mesh, mesh.get_local_rank(mesh.ndim - 1)
        self.dtype = self.gradient_dtype = unsharded.dtype
        self.layout = Layout(tuple(unsharded.shape), dim, mesh.size(mesh.ndim - 1))
        if dim and self.layout.shape[dim] % self.layout.count:
            raise NotImplementedError(
                f"FSDP does not support uneven sharding on dim {dim}: {name} has shape {self.layout.shape}, and the mesh "
                f"{self.layout.count} pieces"
            )
        self.placements: tuple[Placement, ...] = (*[Replicate()] * (mesh.ndim - 1), Shard(dim))
        self.sharded = self._piece(unsharded)
        self.attributes = dict(unsharded.__dict__)
        self.sharded.__dict__.update({k: v for k, v in self.attributes.items() if not k.startswith("_")})
        self.unsharded: Any = None                        # the Parameter that modules have while it is used
        self.held: Any = None                         # gradients that were not reduced yet, in the dtype of the reduction
        self.after_forward: Any = None                # a larger piece, kept between forward and backward

    def _piece(self, unsharded: Any) -> Any:
        local = self.layout.piece(unsharded, self.at)
        made = Parameter(self.spread(local), unsharded.requires_grad)
        made._is_piece = True
        return made

    def spread(self, local: Any) -> Any:
        """The DTensor whose piece on this rank is `local`."""
        step, strides = 1, []
        for n in reversed(self.layout.shape):
            strides.append(step)
            step *= n
        return DTensor._of(local, self.mesh, self.placements, self.layout.shape, tuple(reversed(strides)))

    def local(self) -> Any:
        """The piece, without history."""
        return self.sharded._local_tensor.detach()

    def show(self, parameter: Any) -> None:
        """Let the modules have `parameter`."""
        for module, key in self.places:
            module._parameters[key] = parameter

    def unsharded_of(self, values: Any) -> Any:
        """The Parameter that modules have while it is used."""
        made = Parameter(values, self.sharded.requires_grad)
        made.__dict__.update(self.attributes)
        return made

    def values(self) -> Any:
        """The values of the whole parameter, those of this process."""
        return self.unsharded.detach()

    def fill(self, values: Any) -> None:
        """Give the whole parameter other values; its gradient stays."""
        grad, self.unsharded.grad = self.unsharded.grad, None
        self.unsharded.data = values
        self.unsharded.grad = grad

    def take_gradient(self) -> Any:
        """The gradient of the whole parameter, which it has no longer; None if there is none."""
        if self.unsharded is None or self.unsharded.grad is None:
            return None
        grad, self.unsharded.grad = self.unsharded.grad.detach(), None
        return grad

    def use(self) -> None:
        """Let the modules have the whole parameter for a forward."""
        self.show(self.unsharded)

    def add_gradient(self, piece: Any) -> None:
        """Add `piece` to the gradient of the piece."""
        self.take()
        if self.sharded.grad is None:
            self.sharded.grad = self.spread(piece)
        else:
            self.sharded.grad._local_tensor.add_(piece)

    def take(self) -> None:
        """Take over what programs have put in the place of the piece since."""
        module, key = self.places[0]
        found = module._parameters[key]
        if found is self.sharded or found is self.unsharded or found is None:
            return
        if not isinstance(found, DTensor) or tuple(found.shape) != self.layout.shape:
            raise RuntimeError(
                f"fully_shard: {self.name} was replaced by a {type(found).__name__} of shape {tuple(found.shape)}; it must stay a DTensor "
                f"of shape {self.layout.shape}: distribute it over {self.mesh} first"
            )
        self.sharded = found
        self.show(found)


class SpreadParameter(ShardedParameter):
    """A parameter that is spread over another dimension of the mesh already, for tensor parallelism: its piece is divided again."""

    def __init__(self, name: str, places: list[tuple[Any, str]], unsharded: Any, mesh: Any, dim: int) -> None:
        inner = unsharded.device_mesh
        root = mesh._root()
        names: tuple[str, ...] = mesh.mesh_dim_names or ()
        theirs: tuple[str, ...] = inner.mesh_dim_names or ()
        if root is mesh or inner._root() is not root or not names or set(names) & set(theirs):
            raise NotImplementedError(
                f"fully_shard: {name} is spread over {inner}, and {mesh} is not another part of the same mesh; slice both out of one "
                "mesh by names of its dimensions"
            )
        self.inner, self.inner_placements = inner, unsharded.placements
        self.shape, self.strides = tuple(unsharded.shape), tuple(unsharded.stride())
        parts = [n for n, own in zip(theirs, unsharded.placements, strict=True) if isinstance(own, Shard) and own.dim == dim]
        divided = math.prod(inner.size(theirs.index(n)) for n in parts)
        here: Placement = _StridedShard(dim, divided) if parts else Shard(dim)
        by_name = {**dict.fromkeys(names, Replicate()), names[-1]: here, **dict(zip(theirs, unsharded.placements, strict=True))}
        together = tuple(n for n in root.mesh_dim_names if n in by_name)
        self.root, self.both = root[together], tuple(by_name[n] for n in together)
        self.needs_grad = unsharded.requires_grad
        super().__init__(name, places, unsharded._local_tensor.detach(), mesh, dim)
        self.sharded.requires_grad_(self.needs_grad)
        self.attributes = {}

    def spread(self, local: Any) -> Any:
        return DTensor._of(local, self.root, self.both, self.shape, self.strides)

    def unsharded_of(self, values: Any) -> Any:
        return Parameter(DTensor._of(values, self.inner, self.inner_placements, self.shape, self.strides), self.needs_grad)

    def values(self) -> Any:
        return self.unsharded._local_tensor.detach()

    def fill(self, values: Any) -> None:
        # What nodes have saved of it is its attributes, so they let go of the values and have them again.
        self.unsharded._local_tensor = values

    def take_gradient(self) -> Any:
        grad = super().take_gradient()
        return None if grad is None else grad._local_as(self.inner_placements)


class ParameterGroup:
    """Parameters that are gathered in one collective, and whose gradients are reduced in one."""

    def __init__(self, parameters: list[ShardedParameter], mesh: Any, reshard_after_forward: bool | int, policy: Any) -> None:
        self.parameters, self.mesh, self.policy = parameters, mesh, policy
        self.group = mesh.get_group(mesh.ndim - 1)
        self.size = mesh.size(mesh.ndim - 1)
        self.replicas = mesh.get_group(0) if mesh.ndim == 2 else None
        self.reshard_after_forward = reshard_after_forward
        self.smaller: Any = None                      # the group that holds all pieces after forward, if it is not everyone
        self.smaller_size = 0
        if reshard_after_forward is not True and reshard_after_forward is not False:
            self._divide(int(reshard_after_forward))
        self.asked = False                            # whether the program has said when to reshard
        self.is_unsharded = False
        self.in_backward = False
        self.reduces, self.reduces_replicas = True, True
        self.reshards_after_backward, self.unshards_in_backward = True, True
        self.divide_factor: float | None = None
        self.hook: Any = None
        self.comm_hook: Any = None                    # what reduces gradients in place of the collectives
        self.pending: Pending | None = None
        self.partial: Any = None                      # reduced over pieces, not over replicas yet
        self.waiting: set[int] = set()                # parameters whose gradients are expected
        self.begun = 0                                # when the forward began, in the order of nodes

    def _divide(self, size: int) -> None:
        if size == self.size:
            self.reshard_after_forward = True
            return
        if self.size % size or not 1 < size < self.size:
            factors = [n for n in range(2, self.size) if self.size % n == 0]
            raise ValueError(
                f"If passing reshard_after_forward as an int, it should be a factor of {self.size}, not {size}; it may be one of {factors}"
            )
        ranks = c10d.get_process_group_ranks(self.group)
        everyone: list[Any] = [None] * c10d.get_world_size()
        c10d.all_gather_object(everyone, ranks)
        lines = sorted({tuple(line[i : i + size]) for line in everyone for i in range(0, len(line), size)})
        self.smaller, _ = c10d.new_subgroups_by_enumeration([list(line) for line in lines])
        self.smaller_size = size

    # -- whole parameters

    def unshard(self, async_op: bool = False) -> None:
        """Gather the parameters; with `async_op`, begin to."""
        if self.is_unsharded or not self.parameters or self.pending is not None:
            return
        dtype = self.policy.param_dtype or self.parameters[0].dtype
        with fb.no_grad():
            if self.parameters[0].after_forward is not None:
                layouts = [p.layout._replace(count=self.smaller_size) for p in self.parameters]
                pieces = [p.after_forward for p in self.parameters]
                self.pending = gather(pieces, layouts, self.smaller, dtype, async_op)
            else:
                for p in self.parameters:
                    p.take()
                layouts = [p.layout for p in self.parameters]
                self.pending = gather([p.local() for p in self.parameters], layouts, self.group, dtype, async_op)

    def wait(self) -> None:
        """Let the modules have the whole parameters, gathered before or now."""
        if self.is_unsharded or not self.parameters:
            return
        self.unshard()
        assert self.pending is not None
        with fb.no_grad():
            all_unsharded, self.pending = self.pending.wait(), None
            for p, values in zip(self.parameters, all_unsharded, strict=True):
                if p.unsharded is None:
                    p.unsharded = p.unsharded_of(values)
                    if p.unsharded.requires_grad:
                        p.unsharded.register_post_accumulate_grad_hook(self._arrived)
                else:
                    p.fill(values)
                p.after_forward = None
                p.show(p.unsharded)
        self.is_unsharded = True

    @contextlib.contextmanager
    def exactly(self) -> Iterator[None]:
        """A region in which modules have the whole parameters in the dtype that they are kept in, whatever forward computes in."""
        dtype = self.policy.param_dtype
        lower = [] if dtype is None else [p for p in self.parameters if p.dtype != dtype]
        if lower:
            self.reshard()
        all_unsharded = [p.unsharded for p in lower]
        for p in lower:
            p.unsharded = None
        policy = self.policy
        self.policy = dataclasses.replace(policy, param_dtype=None)
        try:
            self.wait()
        finally:
            self.policy = policy
        try:
            yield
        finally:
            self.reshard()
            for p, unsharded in zip(lower, all_unsharded, strict=True):
                p.unsharded = unsharded

    def reshard(self) -> None:
        """Let go of the whole parameters; the modules have the pieces."""
        if self.pending is not None:
            self.pending.wait()
            self.pending = None
        for p in self.parameters:
            p.after_forward = None
            p.show(p.sharded)
        self._let_go()

    def show_pieces(self) -> None:
        """Let the modules have the pieces, for state dicts; between forward and backward the whole parameters come back by themselves."""
        if self.is_unsharded:
            self.reshard()

    def _let_go(self) -> None:
        self.is_unsharded = False
        for p in self.parameters:
            if p.unsharded is not None:
                grad = p.take_gradient()
                p.fill(_nothing(p.unsharded))
                if grad is not None:
                    p.held = grad if p.held is None else p.held + grad

    def _keep_part(self) -> None:
        """Keep the piece that this rank has among fewer ranks."""
        at = c10d.get_group_rank(self.smaller, c10d.get_rank())
        for p in self.parameters:
            p.after_forward = p.layout._replace(count=self.smaller_size).piece(p.values(), at)
            p.show(p.sharded)
        self._let_go()

    # -- forward

    def before_forward(self) -> None:
        self.wait()
        for p in self.parameters:                     # their gradients are complete when all that this forward records has run
            if p.unsharded._node is not None:
                p.unsharded._node.seq = _state.next_seq()
            p.use()
        self.begun = _state.next_seq()

    def after_forward(self, outputs: list[Any]) -> None:
        if self.reshard_after_forward is False or not self.parameters:
            return
        memory = {_place(p.unsharded): p for p in self.parameters if p.unsharded.numel() and not isinstance(p.unsharded, DTensor)}
        _put_away_parameters(self, outputs, memory)
        if self.reshard_after_forward is True:
            self.reshard()
        else:
            self._keep_part()

    # -- backward

    def before_backward(self) -> None:
        self.in_backward = True
        self.waiting = {id(p.unsharded) for p in self.parameters if p.unsharded is not None and p.unsharded.requires_grad}
        if self.unshards_in_backward:
            self.wait()

    def _arrived(self, parameter: Any) -> None:
        self.waiting.discard(id(parameter))
        if not self.waiting and self.in_backward:
            self.after_backward()

    def after_backward(self) -> None:
        """Reduce what gradients there are, and let go of the whole parameters."""
        self.waiting = set()
        with fb.no_grad():
            if self.reduces:
                self._reduce()
            else:
                self._hold()
            if self.reshards_after_backward and self.is_unsharded:
                self.reshard()

    def _hold(self) -> None:
        dtype = self.policy.reduce_dtype or self.policy.param_dtype
        for p in self.parameters:
            grad = p.take_gradient()
            if grad is not None:
                grad = grad if dtype is None else grad.to(dtype)
                p.held = grad if p.held is None else p.held + grad

    def _reduce(self) -> None:
        ready = []
        for p in self.parameters:
            grad = p.take_gradient()
            if p.held is not None:
                grad = p.held if grad is None else p.held + grad.to(p.held.dtype)
                p.held = None
            if grad is not None:
                ready.append((p, grad))
        if not ready:
            return
        dtype = self.policy.reduce_dtype or self.policy.param_dtype or ready[0][1].dtype
        if self.comm_hook is not None:
            self._reduce_by_hook(ready)
            return
        layouts = [p.layout for p, _ in ready]
        flat = reduce_scatter([grad for _, grad in ready], layouts, self.group, dtype)
        if self.replicas is not None:
            if self.partial is not None:
                flat = flat + self.partial
                self.partial = None
            if not self.reduces_replicas:
                self.partial = flat
                return
            c10d.all_reduce(flat, group=self.replicas)
        flat = flat / (self.divide_factor or self.mesh.size())
        if self.hook is not None:
            self.hook(flat)
        begin = 0
        for p, _ in ready:
            piece = p.layout.take(flat[begin : begin + p.layout.padded], p.at).to(p.gradient_dtype)
            begin += p.layout.padded
            p.add_gradient(piece)

    def _reduce_by_hook(self, ready: list[tuple[ShardedParameter, Any]]) -> None:
        for p, grad in ready:
            if p.layout.count == 1:
                self.comm_hook(grad)
                p.add_gradient(grad.to(p.gradient_dtype))
            else:
                piece = fb.empty(p.layout.step, dtype=grad.dtype, device=grad.device)
                self.comm_hook(grad, piece)
                p.add_gradient(piece.to(p.gradient_dtype))

    @contextlib.contextmanager
    def weights_backward(self) -> Iterator[None]:
        """A region in which the gradients of weights are computed that a backward to inputs has left."""
        self.wait()
        yield
        self.after_backward()

    def give_up(self) -> None:
        """Forget a backward that failed."""
        self.in_backward, self.waiting, self.partial = False, set(), None
        for p in self.parameters:
            p.take_gradient()
        self.reshard()
        for p in self.parameters:
            p.held = None

    def end_of_backward(self) -> None:
        if self.in_backward:
            self.after_backward()
            self.in_backward = False

    # -- what nodes saved

    def unpack(self, handle: tuple[Any, tuple[int, ...], tuple[int, ...], int]) -> Any:
        p, shape, stride, offset = handle
        self.wait()
        return p.unsharded.detach().as_strided(shape, stride, offset)


def _nothing(like: Any) -> Any:
    return fb.empty(0, dtype=like.dtype, device=like.device)


def _place(tensor: Any) -> tuple[int, int]:
    """Where the first element lies: in which memory, and at which byte of it. All memory of the CPU counts as one."""
    a = tensor._array
    return (id(_arrays.root_of(a)), a.offset) if tensor.is_meta else (0, _arrays.address(a))


def _put_away_parameters(group: ParameterGroup, outputs: list[Any], memory: dict[tuple[int, int], ShardedParameter]) -> None:
    """Replace what the nodes of the last forward saved of whole parameters by where it lay in them."""
    bounds = [(where, begin, begin + p.unsharded._array.nbytes, p) for (where, begin), p in memory.items()]

    def pack(tensor: Any) -> Any:
        a = tensor._array
        lies_in, place = _place(tensor)
        for where, begin, end, p in bounds:
            if where == lies_in and begin <= place < end and a.dtype == p.unsharded._array.dtype:
                offset = (place - begin) // a.itemsize
                return p, tuple(a.shape), tuple(s // a.itemsize for s in a.strides), offset
        return graph.KEEP

    seen: set[Any] = set()
    stack: list[Node] = [t._node for t in outputs if isinstance(t, Tensor) and t._node is not None]
    while stack:
        node = stack.pop()
        if node is None or node in seen or node.seq < group.begun:
            continue
        seen.add(node)
        stack += node.parents
        if node.parents and type(node) is not OutputNode and type(node.saved) is tuple:
            graph.put_away(node, pack, group.unpack)

