"""`fully_shard`: parameters, gradients and states of optimizers of a module spread over processes, the module changed in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb
from flambeau import _state

from ...autograd.engine import queue_callback
from ...nn.modules.module import Module
from ...tensor import Tensor
from ...utils import _pytree as pytree
from .. import distributed_c10d as c10d
from ..device_mesh import DeviceMesh, init_device_mesh
from ..tensor import DTensor, Shard
from ._group import ParameterGroup, ShardedParameter, SpreadParameter
from ._settings import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]


class _State:
    """What `fully_shard` keeps of one call: the modules, their group of parameters, and its place among others."""

    def __init__(self, modules: tuple[Module, ...], group: ParameterGroup, policy: MixedPrecisionPolicy) -> None:
        self.modules, self.group, self.policy = modules, group, policy
        self.root: _State | None = None               # known from the first forward on
        self.states: list[_State] = []                # of the root: all, itself the first
        self.order: list[_State] = []                 # of the root: in which the last forward ended
        self.is_last_backward = True
        self.forward_prefetch: list[_State] = []
        self.backward_prefetch: list[_State] | None = None
        self.running: set[int] = set()                # modules of this call whose forward has begun
        self.left: set[int] = set()                   # and those it has not ended of
        self.depth = 0

    # -- forward

    def enter(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if self.root is None:
            self._become_root()
        if self.group.in_backward:
            if _state.local.backward.nested:                   # a checkpointed region computes its forward again
                return args, kwargs
            assert self.root is not None
            self.root._give_up()
        if id(module) in self.running:                # its last forward raised
            assert self.root is not None
            self.root._give_up()
        self.running.add(id(module))
        if not self.left:
            self.left = {id(m) for m in self.modules}
            self.group.before_forward()
            for state in self.forward_prefetch:
                state.group.unshard(async_op=True)
        dtype = self.policy.param_dtype
        if dtype is not None and self.policy.cast_forward_inputs:
            args, kwargs = pytree.tree_map(lambda x: _cast(x, dtype), (args, kwargs))
        return args, kwargs

    def leave(self, module: Module, output: Any) -> Any:
        dtype = self.policy.output_dtype
        if self.group.in_backward:
            return output if dtype is None else pytree.tree_map(lambda x: _cast(x, dtype), output)
        self.left.discard(id(module))
        self.running.discard(id(module))
        tensors = [x for x in pytree.tree_leaves(output) if isinstance(x, Tensor) and x.requires_grad]
        for x in tensors:
            x.register_hook(self._before_backward)
        if not self.left:
            self.group.after_forward(tensors)
            assert self.root is not None
            self.root.order.append(self)
        return output if dtype is None else pytree.tree_map(lambda x: _cast(x, dtype), output)

    def _become_root(self) -> None:
        """The first whose forward runs is the root; what other calls have changed in its modules belongs to it."""
        found: dict[int, _State] = {id(self): self}
        for outer in self.modules:
            for module in outer.modules():
                state = getattr(module, "_fsdp_state", None)
                if state is not None:
                    found.setdefault(id(state), state)
        self.states = list(found.values())
        for state in self.states:
            if state.root is not None and state is not self and state.root is not self:
                raise RuntimeError(
                    f"FSDP state has already been lazily initialized for {type(state.modules[0]).__name__}: FSDP requires running forward "
                    "through the root module first"
                )
            state.root = self
        # What the root has itself is used again at once in backward.
        if self.group.reshard_after_forward is True and not self.group.asked:
            self.group.reshard_after_forward = False
        names = {id(m): name for outer in self.modules for name, m in outer.named_modules()}
        for state in self.states:
            for p in state.group.parameters:
                if not p.places:
                    continue
                module, key = p.places[0]
                prefix = names.get(id(module), "")
                p.name = f"{prefix}.{key}" if prefix else key

    # -- backward

    def _before_backward(self, grad: Any) -> None:
        if self.group.in_backward:
            return
        root = self.root
        assert root is not None
        if not any(state.group.in_backward for state in root.states):
            queue_callback(root._end_of_backward)
        self.group.before_backward()
        if self.backward_prefetch is not None:
            following = self.backward_prefetch
        else:
            at = next((i for i in range(len(root.order) - 1, -1, -1) if root.order[i] is self), 0)
            following = root.order[at - 1 : at] if at else []
        for state in following:
            if not state.group.in_backward and state.group.unshards_in_backward:
                state.group.unshard(async_op=True)

    def _give_up(self) -> None:
        """Begin anew after a forward or a backward that failed: its gradients are lost, the modules have their pieces."""
        for state in self.states:
            state.group.give_up()
            state.left.clear()
            state.running.clear()
        self.order.clear()

    def _end_of_backward(self) -> None:
        for state in reversed(self.states):
            group = state.group
            # One that no gradient came through has gathered nothing, and may have gradients that wait.
            if group.in_backward:
                group.end_of_backward()
            elif group.pending is not None:
                group.reshard()
        self.order.clear()


def _cast(value: Any, dtype: Any) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


class UnshardHandle:
    """The parameters of a module on their way; `wait` before they are used."""

    def __init__(self, group: ParameterGroup | None) -> None:
        self._group = group

    def wait(self) -> None:
        """Let the module have the whole parameters."""
        if self._group is not None:
            self._group.wait()
            self._group = None


class FSDPModule:
    """What `fully_shard` makes of a module: its class is this one and the class it had."""

    _fsdp_state: _State

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A module of the class there was: containers make others of their own class, such as slices, which are not sharded."""
        original = cls.__mro__[2]
        made = original.__new__(original, *args, **kwargs)
        made.__init__(*args, **kwargs)
        return made

    def _all_states(self, recurse: bool = True) -> list[_State]:
        modules = self.modules() if recurse else [self]  # type: ignore[attr-defined]
        found = [m._fsdp_state for m in modules if isinstance(m, FSDPModule)]
        return list({id(state): state for state in found}.values())

    def reshard(self) -> None:
        """Let go of the whole parameters of this module, not of those in it; it has its pieces again."""
        self._fsdp_state.group.reshard()

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather the parameters of this module, not of those in it.

        Args:
            async_op: return a handle at once; forward waits by itself.
        """
        group = self._fsdp_state.group
        group.unshard(async_op)
        handle = UnshardHandle(group)
        if async_op:
            return handle
        handle.wait()
        return None

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Say whether the next backward is the last of several; nothing waits between them here, so nothing else follows."""
        self._fsdp_state.is_last_backward = is_last_backward

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients; those it does not are added up in this process.

        Args:
            recurse: also in the modules inside.
        """
        for state in self._all_states(recurse):
            state.group.reduces = state.group.reduces_replicas = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether gradients are also reduced over replicas, on a mesh of two dimensions; `recurse` as above."""
        for state in self._all_states(recurse):
            state.group.reduces_replicas = requires_all_reduce

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether the whole parameters are let go of after backward; `recurse` as above."""
        for state in self._all_states(recurse):
            state.group.reshards_after_backward = reshard_after_backward

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether they are let go of after forward; `recurse` as above."""
        for state in self._all_states(recurse):
            state.group.reshard_after_forward, state.group.asked = reshard_after_forward, True

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """The modules whose parameters are asked for when this one's are there in forward."""
        self._fsdp_state.forward_prefetch = _states_of("set_modules_to_forward_prefetch", modules)

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """The modules whose parameters are asked for when backward comes to this one; by default, the one before it."""
        self._fsdp_state.backward_prefetch = _states_of("set_modules_to_backward_prefetch", modules)

    def set_all_reduce_hook(self, hook: Callable[[Any], None], *, stream: Any = None) -> None:
        """Call ``hook(reduced)`` with the flat mean of the gradients of each reduction, which it may change.

        Args:
            stream: taken for compatibility.
        """
        self._fsdp_state.group.hook = hook

    def set_post_optim_event(self, event: Any) -> None:
        """Taken for compatibility: gathering waits for no stream on the CPU."""

    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        """What sums of gradients are divided by, in place of the number of processes."""
        self._fsdp_state.group.divide_factor = factor

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether backward gathers the parameters before it comes to the module; it does anyway when it reads them."""
        self._fsdp_state.group.unshards_in_backward = unshard_in_backward


def _states_of(name: str, modules: list[FSDPModule]) -> list[_State]:
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueError(f"{name}: expects modules that fully_shard has changed, got {type(module).__name__}")
    return [module._fsdp_state for module in modules]


_classes: dict[type, type] = {}


def _refuses_copies(self: Any, memo: Any) -> Any:
    raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")


def _class_of(cls: type) -> type:
    if cls not in _classes:
        _classes[cls] = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__deepcopy__": _refuses_copies})
    return _classes[cls]


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Any], Shard | None] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Any] | None = None,
) -> Any:
    """Spread the parameters of a module over processes: each keeps a piece, and they are gathered when the module runs.

    One call makes one group, of the parameters that no call for a module inside has taken: they are gathered in one collective before
    forward and again in backward, and their gradients are reduced in one. So call it for the layers first, then for what is around them.
    Modules have DTensors for parameters, which optimizers step, and `state_dict` has.

    Args:
        module: changed in place; or a list of modules that form a group together. Its class becomes ``FSDP<class>``.
        mesh: of one dimension, the processes to divide by; of two, replicas and the processes to divide by. All processes by default.
        reshard_after_forward: let go of the whole parameters after forward; a number of processes, a divisor of those there are, that
            hold the pieces then. True by default, but not for the outermost module, whose parameters backward needs at once.
        shard_placement_fn: ``fn(parameter)`` gives the Shard that a parameter is cut by; along its first dimension by default.
        mp_policy: the dtypes to compute and reduce in.
        offload_policy: pieces on the CPU, where they are anyway.
        ignored_params: parameters that stay as they are.
    Raises: ValueError for containers without forward, for a mesh of more dimensions, for a number that does not divide.
    """
    modules = tuple(module) if isinstance(module, (list, tuple)) else (module,)
    for one in modules:
        if isinstance(one, (fb.nn.ModuleList, fb.nn.ModuleDict)):
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {one}")
        if getattr(one, "_fsdp_state", None) is not None:
            raise AssertionError(f"fully_shard has already been applied to this {type(one).__name__}")
    if offload_policy is not None and not isinstance(offload_policy, OffloadPolicy):
        raise TypeError(f"fully_shard: offload_policy must be an OffloadPolicy or CPUOffloadPolicy, got {type(offload_policy).__name__}")
    assert CPUOffloadPolicy is not None
    if mesh is None:
        mesh = init_device_mesh("cpu", (c10d.get_world_size(),))
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    policy = MixedPrecisionPolicy() if mp_policy is None else mp_policy
    parameters = _parameters(modules, mesh, shard_placement_fn, ignored_params or set())
    group = ParameterGroup(parameters, mesh, True if reshard_after_forward is None else reshard_after_forward, policy)
    group.asked = reshard_after_forward is not None
    state = _State(modules, group, policy)
    for p in parameters:
        p.show(p.sharded)
    for one in modules:
        one._fsdp_state = state
        one.__class__ = _class_of(type(one))
        one.register_forward_pre_hook(state.enter, prepend=True, with_kwargs=True)
        one.register_forward_hook(lambda m, args, output, state=state: state.leave(m, output))
        one.register_state_dict_pre_hook(lambda m, *args, state=state: state.group.show_pieces())
        one.register_load_state_dict_pre_hook(lambda m, *args, state=state: state.group.show_pieces())
    return module


def _parameters(modules: tuple[Module, ...], mesh: DeviceMesh, placed: Any, ignored: set[Any]) -> list[ShardedParameter]:
    """The parameters of `modules` that no other call has, each with all places it is at."""
    ignored_ids = {id(p) for p in ignored}
    found: dict[int, tuple[str, Any, list[tuple[Any, str]]]] = {}
    for outer in modules:
        for prefix, module in outer.named_modules():
            if module is not outer and getattr(module, "_fsdp_state", None) is not None:
                continue
            for key, parameter in module._parameters.items():
                if parameter is None or id(parameter) in ignored_ids or _is_taken(parameter):
                    continue
                name = f"{prefix}.{key}" if prefix else key
                found.setdefault(id(parameter), (name, parameter, []))[2].append((module, key))
    made = []
    for name, parameter, places in found.values():
        if not parameter.ndim:
            raise ValueError(f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1.")
        given = placed(parameter) if placed is not None else None
        if given is not None and not isinstance(given, Shard):
            raise AssertionError(f"Expected Shard or None from shard_placement_fn for {name}, got {given}")
        dim = 0 if given is None else given.dim % parameter.ndim
        made.append((SpreadParameter if isinstance(parameter, DTensor) else ShardedParameter)(name, places, parameter, mesh, dim))
    return made


def _is_taken(parameter: Any) -> bool:
    return getattr(parameter, "_is_piece", False)


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Treat the method as `forward`: parameters are gathered before it and let go of after it.

    Args:
        module: one that `fully_shard` has changed; nothing happens to others.
        method_name: its method.
    Raises: ValueError if it has no such method.
    """
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module).__name__} does not have a method {method_name}")
    method, state = getattr(module, method_name), module._fsdp_state

    def gathered(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = state.enter(module, args, kwargs)  # type: ignore[arg-type]
        return state.leave(module, method(*args, **kwargs))  # type: ignore[arg-type]

    gathered.__name__ = method_name
    setattr(module, method_name, gathered)
