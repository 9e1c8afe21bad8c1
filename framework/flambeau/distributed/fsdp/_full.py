"""`FullyShardedDataParallel`: a wrapper around a module that keeps an equal piece of its flattened parameters in each process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import flambeau as fb

from ...nn.modules.module import Module
from .. import distributed_c10d as c10d
from ..device_mesh import DeviceMesh
from ..tensor import DTensor, Shard
from . import _full_states
from ._flat import FlatHandle
from ._fully_shard import _State
from ._group import ParameterGroup
from ._settings import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from ._shards import gather
from .wrap import wrap_inside

__all__ = ["FullyShardedDataParallel"]

_PREFIX = "_fsdp_wrapped_module."
_CONFIGS = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}
_HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


class _Ranks:
    """The groups of a strategy, as a mesh: replicas, if there are any, and those the pieces are divided among."""

    def __init__(self, strategy: ShardingStrategy, group: Any, mesh: DeviceMesh | None) -> None:
        if mesh is not None:
            groups = mesh.get_all_groups()
        elif isinstance(group, tuple):
            groups = [group[1], group[0]]             # given as those that shard, and those that replicate
        else:
            groups = [c10d._default() if group is None else group]
        if strategy in _HYBRID:
            if len(groups) == 1:                      # one machine: it shards, and there are no other machines
                alone, _ = c10d.new_subgroups_by_enumeration([[rank] for rank in range(c10d.get_world_size())])
                groups = [alone, groups[0]]
        elif strategy is ShardingStrategy.NO_SHARD:
            groups = [groups[-1], None]
        else:
            groups = groups[-1:]
        self.groups = groups
        self.ndim = len(groups)

    def size(self, dim: int | None = None) -> int:
        sizes = [1 if g is None else g.size() for g in self.groups]
        return sizes[dim] if dim is not None else sizes[0] * (sizes[1] if self.ndim == 2 else 1)

    def get_group(self, dim: int) -> Any:
        return self.groups[dim]

    def get_local_rank(self, dim: int) -> int:
        group = self.groups[dim]
        return 0 if group is None else group.rank()


class FullyShardedDataParallel(Module):
    """A module whose parameters, gradients and optimizer states are spread over processes: each has an equal piece of them, flattened.

    Args:
        module: wrapped; its parameters become pieces, so make optimizers afterwards.
        process_group: the processes; a pair of those that shard and those that replicate for the hybrid strategies. All by default.
        sharding_strategy: what is sharded; everything by default.
        cpu_offload: pieces on the CPU, where they are anyway.
        auto_wrap_policy: which modules inside are wrapped on their own, see `flambeau.distributed.fsdp.wrap`.
        backward_prefetch: when the parameters that backward needs next are asked for; None: when they are needed.
        mixed_precision: the dtypes to compute and reduce in.
        ignored_modules, ignored_states: modules, or modules and parameters, that stay as they are.
        param_init_fn: ``fn(module)`` fills the parameters of a module on the meta device; `reset_parameters` by default.
        device_id: taken for compatibility; None or the CPU.
        sync_module_states: give all processes the parameters and buffers of rank 0 first.
        forward_prefetch: ask for the parameters of the next module in forward, in the order of the last one.
        limit_all_gathers: taken for compatibility.
        use_orig_params: keep the module's own parameters, which are views into the piece between uses.
        device_mesh: the processes, in place of `process_group`.
    Raises: ValueError for settings that exclude each other, or parameters that cannot be flattened together.
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        if ignored_modules is not None and ignored_states is not None:
            raise ValueError("Cannot pass both ignored_modules and ignored_states at the same time. Please just pass ignored_states.")
        if process_group is not None and device_mesh is not None:
            raise ValueError("Cannot pass both process_group and device_mesh at the same time. Please just pass only one of them.")
        strategy = ShardingStrategy.FULL_SHARD if sharding_strategy is None else sharding_strategy
        precision = MixedPrecision() if mixed_precision is None else mixed_precision
        ignored = _ignored(ignored_modules or (), ignored_states or ())
        _materialize(module, param_init_fn, ignored)
        ranks = _Ranks(strategy, process_group, device_mesh)
        if sync_module_states:
            _send_from_first(module, ranks, ignored)
        if auto_wrap_policy is not None:
            shared = {
                "process_group": process_group, "sharding_strategy": sharding_strategy, "cpu_offload": cpu_offload,
                "backward_prefetch": backward_prefetch, "mixed_precision": mixed_precision, "forward_prefetch": forward_prefetch,
                "use_orig_params": use_orig_params, "device_mesh": device_mesh,
            }  # fmt: skip
            plain = {id(m) for m in ignored_modules or ()}
            states = list(ignored_states or ()) + list(ignored_modules or ())
            wrap_inside(
                module, auto_wrap_policy, ignored | plain,
                lambda inner, own: FullyShardedDataParallel(inner, **{**shared, "ignored_states": states or None, **own}),
            )  # fmt: skip
        self.sharding_strategy, self.backward_prefetch, self.forward_prefetch = strategy, backward_prefetch, forward_prefetch
        self.mixed_precision, self.process_group = precision, ranks.groups[-1] or ranks.groups[0]
        self.cpu_offload, self._use_orig_params, self._ranks = cpu_offload or CPUOffload(), use_orig_params, ranks
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config: StateDictConfig = FullStateDictConfig()
        self._optim_state_dict_config: OptimStateDictConfig = FullOptimStateDictConfig()
        self._summoned, self._is_loading = False, False
        self._loading: Any = None
        self._modules["_fsdp_wrapped_module"] = module
        if precision.buffer_dtype is not None:
            for inner in module.modules():
                for key, buffer in inner._buffers.items():
                    if buffer is not None and buffer.is_floating_point():
                        inner._buffers[key] = buffer.to(precision.buffer_dtype)
        named = _named_parameters(module, ignored)
        self._handle: FlatHandle | None = None
        if named:
            at, count = ranks.get_local_rank(ranks.ndim - 1), ranks.size(ranks.ndim - 1)
            self._handle = FlatHandle(named, at, count, use_orig_params, module)
            if precision.keep_low_precision_grads:
                self._handle.gradient_dtype = precision.reduce_dtype or precision.param_dtype or self._handle.dtype
        policy = MixedPrecisionPolicy(precision.param_dtype, precision.reduce_dtype, None, precision.cast_forward_inputs)
        reshards = strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)
        group = ParameterGroup([] if self._handle is None else [self._handle], ranks, reshards, policy)
        group.asked = True
        self._fsdp_state = _State((self,), group, policy)
        if backward_prefetch is None:
            self._fsdp_state.backward_prefetch = []
        self._register_load_state_dict_pre_hook(self._before_loading)
        self.register_load_state_dict_post_hook(_after_loading)

    # -- forward and backward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the wrapped module gives, computed with the whole parameters."""
        state = self._fsdp_state
        if state.root is None:
            state._become_root()
        casts = self.mixed_precision
        if state.root is state and casts.cast_root_forward_inputs and casts.param_dtype is not None and not casts.cast_forward_inputs:
            args, kwargs = _full_states.cast((args, kwargs), casts.param_dtype)
        args, kwargs = state.enter(self, args, kwargs)
        return state.leave(self, self._fsdp_wrapped_module(*args, **kwargs))

    @property
    def module(self) -> Module:
        """The wrapped module."""
        return self._fsdp_wrapped_module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_fsdp_wrapped_module":
                raise
            return getattr(self._fsdp_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._fsdp_wrapped_module[key]  # type: ignore[index]

    def check_is_root(self) -> bool:
        """Whether this is the outermost; before the first forward, the first that is asked is."""
        if self._fsdp_state.root is None:
            self._fsdp_state._become_root()
        return self._fsdp_state.root is self._fsdp_state

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The wrappers in `module`, itself as well; with `root_only` those that are in no other."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        if root_only:
            inside = {id(inner) for m in found for inner in m.modules() if inner is not m}
            found = [m for m in found if id(m) not in inside]
        return found

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A region in which gradients add up in this process; the first backward after it reduces them."""
        groups = [m._fsdp_state.group for m in self.fsdp_modules(self)]
        before = [group.reduces for group in groups]
        for group in groups:
            group.reduces = False
        try:
            yield
        finally:
            for group, reduces in zip(groups, before, strict=True):
                group.reduces = reduces

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Scale all gradients so that their norm over all processes, that of one vector, is at most `max_norm`; returns the norm before.

        Args:
            norm_type: the order of the norm; inf for the largest.
        """
        if not self.check_is_root():
            raise RuntimeError("`clip_grad_norm_()` should only be called on the root FSDP instance")
        return _full_states.clip(self, float(max_norm), float(norm_type))

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Let `hook` combine gradients: ``hook(state, gradient, piece)`` fills the piece of this process from the whole flat gradient;
        ``hook(state, gradient)`` changes it in place where nothing is sharded.

        Raises: AssertionError unless this is the outermost wrapper, or for a second hook.
        """
        if not self.check_is_root():
            raise AssertionError("register_comm_hook can only be called on a root instance.")
        for m in self.fsdp_modules(self):
            if m._fsdp_state.group.comm_hook is not None:
                raise AssertionError("A communication hook is already registered")
            m._fsdp_state.group.comm_hook = lambda *given: hook(state, *given)

    def apply(self, fn: Callable[[Module], None]) -> Any:
        """Call ``fn(module)`` for all modules inside and this one, with whole parameters, whose changes are kept."""
        if self._summoned:
            return super().apply(fn)
        with self.summon_full_params(self):
            return super().apply(fn)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Names and parameters; in `summon_full_params` the names are those of the module without wrappers."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield (name.replace(_PREFIX, "") if self._summoned else name), parameter

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Names and buffers; in `summon_full_params` the names are those of the module without wrappers."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield (name.replace(_PREFIX, "") if self._summoned else name), buffer

    # -- whole parameters

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module, recurse: bool = True, writeback: bool = True, rank0_only: bool = False, offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:  # fmt: skip
        """A region in which the modules have whole parameters.

        Args:
            recurse: also in wrappers inside of `module`.
            writeback: keep what the program stores in them.
            rank0_only: taken for compatibility: all processes have them here; excludes `writeback`.
            offload_to_cpu: they are there anyway.
            with_grads: with whole gradients; needs `use_orig_params`.
        Raises: NotImplementedError, ValueError for settings that exclude each other; AssertionError during forward or backward.
        """
        if writeback and rank0_only:
            raise NotImplementedError("writeback=True and rank0_only=True is not supported")
        if with_grads and offload_to_cpu:
            raise NotImplementedError("with_grads=True and offload_to_cpu=True is not supported")
        found = FullyShardedDataParallel.fsdp_modules(module) if recurse else [module]
        units = [m for m in found if isinstance(m, FullyShardedDataParallel) and not m._summoned]
        for m in units:
            if m._fsdp_state.group.in_backward or m._fsdp_state.left:
                raise AssertionError("Cannot manually unshard parameters during forward/backward")
            if with_grads and not m._use_orig_params:
                raise NotImplementedError("with_grads=True requires use_orig_params=True")
        shown, wholes = [], contextlib.ExitStack()
        for m in units:
            m._summoned = True
            if m._handle is not None:
                handle, group = m._handle, m._fsdp_state.group
                handle.collect_gradients()
                wholes.enter_context(group.exactly())
                gradients = None
                if with_grads and handle.sharded.grad is not None:
                    with fb.no_grad():
                        gradients = gather([handle.sharded.grad], [handle.layout], group.group, handle.sharded.grad.dtype).wait()[0]
                shown.append((handle, handle.show_parameters(gradients)))
        try:
            yield
        finally:
            if writeback:
                with fb.no_grad():
                    for handle, parameters in shown:
                        handle.store(parameters)
            wholes.close()
            for handle, _ in shown:
                if handle.keeps_originals and handle.sharded.grad is not None:
                    handle._show_gradients()
            for m in units:
                m._summoned = False

    # -- state dicts

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and buffers by their names without wrappers: whole, in pieces that are DTensors, or as flat pieces, as
        `set_state_dict_type` says.
        """
        kind, config, inner = self._state_dict_type, self._state_dict_config, self._fsdp_wrapped_module
        if kind is StateDictType.LOCAL_STATE_DICT:
            if self._use_orig_params:
                raise RuntimeError("Local state_dict is not supported when use_orig_params=True: take a full or a sharded one")
            return inner.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        if self._summoned:
            return inner.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        before = set() if destination is None else set(destination)
        with self.summon_full_params(self, writeback=False):
            made = inner.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
            for name in [n for n in made if n not in before]:
                value = made[name]
                if isinstance(value, fb.Tensor):
                    made[name] = value.detach().clone() if kind is StateDictType.FULL_STATE_DICT else self._in_pieces(value.detach())
        if getattr(config, "rank0_only", False) and c10d.get_rank() != 0:
            for name in [n for n in made if n not in before]:
                del made[name]
        return made

    def _in_pieces(self, value: Any) -> Any:
        """`value`, the same on all ranks, as a DTensor divided along its first dimension."""
        from ._shards import Layout

        if not value.ndim or isinstance(value, DTensor):
            return value.clone()
        mesh = self._shard_mesh()
        local = Layout(tuple(value.shape), 0, mesh.size()).piece(value, mesh.get_local_rank())
        return DTensor._of(local, mesh, (Shard(0),), tuple(value.shape), value.contiguous().stride())

    def _shard_mesh(self) -> DeviceMesh:
        found = self.__dict__.get("_pieces_mesh")
        if found is None:
            found = self.__dict__["_pieces_mesh"] = DeviceMesh.from_group(self.process_group, "cpu")
        return found

    def _before_loading(self, state_dict: Any, prefix: str, *_: Any) -> None:
        if self._state_dict_type is not StateDictType.LOCAL_STATE_DICT and not self._summoned:
            self._loading = contextlib.ExitStack()
            self._loading.enter_context(self.summon_full_params(self))
        for name in [n for n in state_dict if n.startswith(prefix)]:
            if not name.startswith(prefix + _PREFIX):
                value = state_dict.pop(name)
                state_dict[prefix + _PREFIX + name[len(prefix) :]] = value.full_tensor() if isinstance(value, DTensor) else value

    @staticmethod
    def set_state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:  # fmt: skip
        """Set the kind of state dicts of all wrappers in `module`.

        Args:
            state_dict_config, optim_state_dict_config: their settings, of the classes of the kind.
        Returns: what was set before.
        Raises: RuntimeError for settings of another kind.
        """
        of_models, of_optimizers = _CONFIGS[state_dict_type]
        config = of_models() if state_dict_config is None else state_dict_config
        optim = of_optimizers() if optim_state_dict_config is None else optim_state_dict_config
        for given, wanted in ((config, of_models), (optim, of_optimizers)):
            if type(given) is not wanted:
                raise RuntimeError(f"Expected state_dict_config of type {wanted} but got {type(given)}")
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for m in FullyShardedDataParallel.fsdp_modules(module):
            m._state_dict_type, m._state_dict_config, m._optim_state_dict_config = state_dict_type, config, optim
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """The kind and settings of state dicts of the wrappers in `module`. Raises: AssertionError if they differ."""
        found = [
            StateDictSettings(m._state_dict_type, m._state_dict_config, m._optim_state_dict_config)
            for m in FullyShardedDataParallel.fsdp_modules(module)
        ] or [StateDictSettings(StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig())]
        if any(other != found[0] for other in found):
            raise AssertionError(f"All FSDP modules must have the same state dict settings, got {found}")
        return found[0]

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:  # fmt: skip
        """A region with another kind of state dicts; arguments as for `set_state_dict_type`."""
        cls = FullyShardedDataParallel
        before = cls.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            cls.set_state_dict_type(module, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config)

    # -- states of optimizers

    @staticmethod
    def optim_state_dict(model: Module, optim: Any, optim_state_dict: Any = None, group: Any = None) -> dict[str, Any]:
        """The states of `optim` by the names of parameters, whole or in pieces, as `set_state_dict_type` says.

        Args:
            model: with the wrappers whose parameters `optim` steps.
            optim_state_dict: what ``optim.state_dict()`` gave; now, by default.
            group: taken for compatibility.
        """
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        config = settings.optim_state_dict_config
        made = _full_states.by_names(model, optim, optim_state_dict or optim.state_dict(), settings.state_dict_type)
        return {} if getattr(config, "rank0_only", False) and c10d.get_rank() != 0 else made

    @staticmethod
    def optim_state_dict_to_load(
        model: Module, optim: Any, optim_state_dict: dict[str, Any], is_named_optimizer: bool = False, load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """What `optim` can load of what `optim_state_dict` gave, also with other processes or without any.

        Args:
            model, optim, group: as there.
            optim_state_dict: on all ranks; of rank 0 if it was made with ``rank0_only``.
            is_named_optimizer: taken for compatibility.
            load_directly: load it as well.
        """
        config = FullyShardedDataParallel.get_state_dict_type(model).optim_state_dict_config
        if getattr(config, "rank0_only", False):
            optim_state_dict = _full_states.from_first(optim_state_dict)
        made = _full_states.to_pieces(model, optim, optim_state_dict)
        if load_directly:
            optim.load_state_dict(made)
        return made

    @staticmethod
    def full_optim_state_dict(
        model: Module, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: Any = None
    ) -> dict[str, Any]:
        """The whole states of `optim` by the names of parameters; with `rank0_only` nothing on other ranks. Others as for
        `optim_state_dict`.
        """
        made = _full_states.by_names(model, optim, optim.state_dict(), StateDictType.FULL_STATE_DICT)
        return {} if rank0_only and c10d.get_rank() != 0 else made

    @staticmethod
    def sharded_optim_state_dict(model: Module, optim: Any, group: Any = None) -> dict[str, Any]:
        """The states of `optim` by the names of parameters, as DTensors; arguments as for `optim_state_dict`."""
        return _full_states.by_names(model, optim, optim.state_dict(), StateDictType.SHARDED_STATE_DICT)

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any], model: Module, optim_input: Any = None, optim: Any = None
    ) -> dict[str, Any]:
        """What `optim` can load of whole states that all ranks have; see `optim_state_dict_to_load`."""
        return _full_states.to_pieces(model, _full_states.optimizer_of(model, optim_input, optim), full_optim_state_dict)

    @staticmethod
    def flatten_sharded_optim_state_dict(sharded_optim_state_dict: dict[str, Any], model: Module, optim: Any) -> dict[str, Any]:
        """What `optim` can load of states in pieces; see `optim_state_dict_to_load`."""
        return _full_states.to_pieces(model, optim, sharded_optim_state_dict)

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any] | None, model: Module, optim_input: Any = None, optim: Any = None, group: Any = None
    ) -> dict[str, Any]:
        """What `optim` can load of whole states that rank 0 has; see `optim_state_dict_to_load`."""
        found = _full_states.from_first(full_optim_state_dict)
        return _full_states.to_pieces(model, _full_states.optimizer_of(model, optim_input, optim), found)

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: dict[str, Any], optim_state_key_type: OptimStateKeyType, model: Module, optim_input: Any = None, optim: Any = None
    ) -> dict[str, Any]:
        """States by the numbers of parameters in place of their names, or the other way round, for a `model` without wrappers."""
        return _full_states.rekeyed(optim_state_dict, optim_state_key_type is OptimStateKeyType.PARAM_NAME, model, optim_input, optim)


def _after_loading(module: Any, incompatible: Any) -> None:
    for names in (incompatible.missing_keys, incompatible.unexpected_keys):
        names[:] = [name.replace(_PREFIX, "") for name in names]
    if module._loading is not None:
        module._loading.close()
        module._loading = None


def _ignored(modules: Iterable[Any], states: Iterable[Any]) -> set[int]:
    """The parameters that stay as they are, by identity."""
    found: set[int] = set()
    for one in (*modules, *states):
        if isinstance(one, FullyShardedDataParallel):
            raise ValueError("`ignored_modules` should not include FSDP modules")
        found |= {id(p) for p in one.parameters()} if isinstance(one, Module) else {id(one)}
    return found


def _named_parameters(root: Module, ignored: set[int]) -> list[tuple[str, list[tuple[Any, str]], Any]]:
    """The parameters of `root` that no wrapper inside has, each once, with all its places."""
    found: dict[int, tuple[str, list[tuple[Any, str]], Any]] = {}

    def walk(module: Module, prefix: str) -> None:
        if isinstance(module, FullyShardedDataParallel):
            return
        for key, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in ignored:
                found.setdefault(id(parameter), (f"{prefix}{key}", [], parameter))[1].append((module, key))
        for name, child in module.named_children():
            walk(child, f"{prefix}{name}.")

    walk(root, "")
    return list(found.values())


def _materialize(root: Module, fill: Callable[[Module], None] | None, ignored: set[int]) -> None:
    for module in root.modules():
        own = [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]
        if not any(t.is_meta for t in own):
            continue
        if fill is not None:
            fill(module)
            continue
        if not hasattr(module, "reset_parameters"):
            raise ValueError(
                f"Unable to call `reset_parameters()` for module on meta device: {type(module).__name__} has none; give param_init_fn"
            )
        module.to_empty(device="cpu", recurse=False)
        with fb.no_grad():
            module.reset_parameters()  # type: ignore[operator]


def _send_from_first(module: Module, ranks: _Ranks, ignored: set[int]) -> None:
    tensors = [t for t in (*module.parameters(), *module.buffers()) if id(t) not in ignored]
    for group in ranks.groups:
        if group is not None and tensors:
            group.broadcast([t.detach() for t in tensors], 0, False)
