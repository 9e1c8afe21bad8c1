"""State dicts of models and optimizers that do not show how a model is spread: by the names that the plain model has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import flambeau as fb
from flambeau import nn
from flambeau.optim import Optimizer

from ...utils import _pytree as pytree
from .. import distributed_c10d as dist
from .staging import copied

__all__ = [
    "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
    "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip

# What wrappers put into names: compile, activation checkpointing, FullyShardedDataParallel; others are looked for by their class.
_WRAPPED = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}
_STATE, _GROUPS, _PARAMS = "state", "param_groups", "params"


@dataclass
class StateDictOptions:
    """How state dicts are given and taken.

    Attributes:
        full_state_dict: give whole tensors, not pieces; plain models have no others. All ranks that have pieces ask together.
        cpu_offload: give copies on the CPU; with `full_state_dict`, to rank 0 alone, and an empty dict to the others.
        ignore_frozen_params: leave parameters out that require no gradient.
        keep_submodule_prefixes: for `submodules`: name what is in them as the whole model does.
        strict: as in `Module.load_state_dict`.
        broadcast_from_rank0: take what rank 0 was given on all ranks; needs `full_state_dict`.
        flatten_optimizer_state_dict: give the optimizer's state as one dict of names.
        dsd_fqn_modifiers: the method of a module that names its parts in another way; none is looked for here.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _checked(name: str, options: StateDictOptions | None) -> StateDictOptions:
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError(f"{name}: full_state_dict must be True when broadcast_from_rank0 is True.")
    return options


# -- names ---------------------------------------------------------------------------------------------------------------


def _plain_names(model: nn.Module) -> Callable[[str], str]:
    """What turns a name of `model` into that which the model has unwrapped."""
    wrappers = {path for path, part in model.named_modules() if _is_wrapper(part)}

    def plain(name: str) -> str:
        kept: list[str] = []
        path = ""
        for part in name.split("."):
            if not (part == "module" and path in wrappers) and part not in _WRAPPED:
                kept.append(part)
            path = f"{path}.{part}" if path else part
        return ".".join(kept)

    return plain


def _is_wrapper(part: nn.Module) -> bool:
    from flambeau.nn.parallel import DataParallel, DistributedDataParallel

    return isinstance(part, (DistributedDataParallel, DataParallel))


def _names_of(model: nn.Module) -> dict[int, str]:
    """The plain name of each parameter, by its id. A parameter that several modules share has its first name."""
    plain = _plain_names(model)
    return {id(p): plain(name) for name, p in model.named_parameters()}


# -- pieces --------------------------------------------------------------------------------------------------------------


def _is_flattened(model: nn.Module) -> bool:
    """Whether `FullyShardedDataParallel` has flattened parameters of `model`."""
    from ..fsdp import FullyShardedDataParallel

    return any(isinstance(part, FullyShardedDataParallel) for part in model.modules())


@contextlib.contextmanager
def _gathered_or_not(model: nn.Module, full: bool) -> Iterator[None]:
    """State dicts of wrapped modules have whole tensors, or pieces; those of other modules have what their parameters are."""
    from ..fsdp import FullyShardedDataParallel, StateDictType

    if not _is_flattened(model):
        yield
        return
    kind = StateDictType.FULL_STATE_DICT if full else StateDictType.SHARDED_STATE_DICT
    with FullyShardedDataParallel.state_dict_type(model, kind):
        yield


def _gathered(value: Any) -> Any:
    """`value` with whole tensors in the place of spread ones; all ranks call it alike."""
    from ..tensor import DTensor

    return pytree.tree_map(lambda x: x.full_tensor() if isinstance(x, DTensor) else x, value)


def _spread_like(value: Any, target: Any) -> Any:
    """`value`, whole or spread, in the pieces that `target` has; as it is if `target` is whole, or of another shape."""
    from ..tensor import DTensor, Replicate
    from ..tensor._redistribute import redistributed

    if not isinstance(target, DTensor) or not isinstance(value, fb.Tensor) or value.shape != target.shape:
        return value
    mesh, placements = target.device_mesh, target.placements
    if isinstance(value, DTensor):
        if (value.device_mesh, value.placements) == (mesh, placements):
            return value
        value = value.full_tensor()
    local = redistributed(value.detach(), tuple(target.shape), mesh, (Replicate(),) * mesh.ndim, placements)
    return DTensor._of(local, mesh, placements, tuple(target.shape), target.stride())


# -- models --------------------------------------------------------------------------------------------------------------


def get_model_state_dict(
    model: nn.Module, *, submodules: set[nn.Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The state dict of `model` under the names of the unwrapped model.

    Args:
        submodules: deprecated: give only what is in these.
        options: see `StateDictOptions`.
    """
    options = _checked("get_model_state_dict", options)
    plain = _plain_names(model)
    frozen = {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    skipped = {plain(name) for name in frozen} if options.ignore_frozen_params else set()
    with _gathered_or_not(model, options.full_state_dict):
        found = {plain(name): value for name, value in model.state_dict().items() if plain(name) not in skipped}
    if submodules:
        found = _only(found, [(plain(path), part) for path, part in model.named_modules() if part in submodules], options)
    return _given_out(found, options)


def _only(found: dict[str, Any], parts: list[tuple[str, nn.Module]], options: StateDictOptions) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for path, _ in parts:
        prefix = f"{path}." if path else ""
        for name, value in found.items():
            if name.startswith(prefix):
                short = name if options.keep_submodule_prefixes else name[len(prefix) :]
                if short in chosen:
                    raise RuntimeError(f"get_state_dict: two submodules have a {short!r}: leave keep_submodule_prefixes at True")
                chosen[short] = value
    return chosen


def _given_out(found: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    if options.full_state_dict:
        found = _gathered(found)
    if not options.cpu_offload:
        return found
    if options.full_state_dict and dist.is_available() and dist.is_initialized() and dist.get_rank() != 0:
        return {}
    return copied(found)


def set_model_state_dict(model: nn.Module, model_state_dict: dict[Any, Any], *, options: StateDictOptions | None = None) -> Any:
    """Load into `model` what `get_model_state_dict` gave, of it or of the model wrapped in another way.

    Args:
        model_state_dict: values by name; or, deprecated, such dicts by submodule.
        options: see `StateDictOptions`.
    Returns: missing_keys and unexpected_keys.
    Raises: RuntimeError for other names, if strict, and other shapes.
    """
    options = _checked("set_model_state_dict", options)
    given = _by_name(model, model_state_dict)
    if options.broadcast_from_rank0:
        given = _from_rank0(given)
    if not given:
        return _Keys([], [])
    plain = _plain_names(model)
    with _gathered_or_not(model, options.full_state_dict):
        mine = model.state_dict()
        own = {plain(name): name for name in mine}
        loaded = {own.get(name, name): _spread_like(value, mine.get(own.get(name, name))) for name, value in given.items()}
        found = model.load_state_dict(loaded, strict=options.strict)
    return _Keys([plain(name) for name in found.missing_keys], list(found.unexpected_keys))


def _Keys(missing: list[str], unexpected: list[str]) -> Any:
    from flambeau.nn.modules.module import _IncompatibleKeys

    return _IncompatibleKeys(missing, unexpected)


def _by_name(model: nn.Module, state_dict: dict[Any, Any]) -> dict[str, Any]:
    if not state_dict or not isinstance(next(iter(state_dict)), nn.Module):
        return state_dict
    plain = _plain_names(model)
    paths = {part: plain(path) for path, part in model.named_modules()}
    return {f"{paths[part]}.{name}" if paths[part] else name: v for part, each in state_dict.items() for name, v in each.items()}


def _from_rank0(given: Any) -> Any:
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError("StateDictOptions: broadcast_from_rank0 needs a process group: call init_process_group first")
    box = [given if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


# -- optimizers ----------------------------------------------------------------------------------------------------------


def _each(optimizers: Optimizer | Iterable[Optimizer]) -> tuple[Optimizer, ...]:
    return (optimizers,) if isinstance(optimizers, Optimizer) else tuple(optimizers)


def _with_state(optimizer: Optimizer) -> None:
    """Let an optimizer that has not stepped yet make its state: by a step of gradients 0 and rate 0, which changes no parameter."""
    if optimizer.state:
        return
    parameters = _parameters(optimizer)
    for p in parameters:
        if p.grad is not None:
            raise RuntimeError(
                "get_optimizer_state_dict and set_optimizer_state_dict make the optimizer's state where there is none, by a step "
                "without effect; some parameters have gradients: call them before backward() or after step()"
            )
    rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
    try:
        for p in parameters:
            if p.requires_grad:
                p.grad = fb.zeros_like(p)
        for group in optimizer.param_groups:
            if "lr" in group:
                group["lr"] = fb.tensor(0.0) if isinstance(group["lr"], fb.Tensor) else 0.0
        optimizer.step(closure=None)
    finally:
        for group, rate in zip([g for g in optimizer.param_groups if "lr" in g], rates, strict=True):
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)


def _groups(optimizer: Optimizer, names: dict[int, str]) -> Iterator[list[str]]:
    for group in optimizer.param_groups:
        for p in group[_PARAMS]:
            if id(p) not in names:
                raise KeyError(f"the optimizer has a parameter of shape {tuple(p.shape)} that the model has not")
        yield [names[id(p)] for p in group[_PARAMS]]


def get_optimizer_state_dict(
    model: nn.Module, optimizers: Optimizer | Iterable[Optimizer], *, submodules: set[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The state dicts of `optimizers` as one, with the names of parameters in the place of their numbers.

    Args:
        submodules: deprecated: give only what belongs to these.
        options: see `StateDictOptions`.
    Raises: KeyError for parameters that are not the model's; RuntimeError if it is called between backward() and step() before the
        first step.
    """
    options = _checked("get_optimizer_state_dict", options)
    names = _names_of(model)
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _each(optimizers):
        _with_state(optimizer)
        if _is_flattened(model):
            by_name = _of_flattened(model, optimizer, options.full_state_dict)
            state |= by_name[_STATE]
            groups += by_name[_GROUPS]
            continue
        given = optimizer.state_dict()
        for listed, group in zip(_groups(optimizer, names), given[_GROUPS], strict=True):
            for name, number in zip(listed, group[_PARAMS], strict=True):
                if number in given[_STATE]:
                    state[name] = given[_STATE][number]
            groups.append({**{k: v for k, v in group.items() if k != _PARAMS}, _PARAMS: listed})
    if submodules:
        plain = _plain_names(model)
        chosen = [(path, part) for path, part in model.named_modules() if part in submodules]
        wanted = {plain(f"{path}.{n}" if path else n) for path, part in chosen for n, _ in part.named_parameters()}
        state = {name: value for name, value in state.items() if name in wanted}
        groups = [{**group, _PARAMS: [n for n in group[_PARAMS] if n in wanted]} for group in groups]
    found: dict[str, Any] = {_STATE: state, _GROUPS: groups}
    return _given_out(_flat(found) if options.flatten_optimizer_state_dict else found, options)


def _of_flattened(model: nn.Module, optimizer: Optimizer, full: bool) -> dict[str, Any]:
    """The states of the parameters that were flattened, by their names without wrappers."""
    from ..fsdp import FullyShardedDataParallel

    with _gathered_or_not(model, full):
        return FullyShardedDataParallel.optim_state_dict(model, optimizer)


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    made = {f"{_STATE}.{name}.{key}": value for name, each in found[_STATE].items() for key, value in each.items()}
    for group in found[_GROUPS]:
        for name in group[_PARAMS]:
            made |= {f"{_GROUPS}.{name}.{key}": value for key, value in group.items() if key != _PARAMS}
    return made


def set_optimizer_state_dict(
    model: nn.Module, optimizers: Optimizer | Iterable[Optimizer], optim_state_dict: dict[str, Any], *,
    options: StateDictOptions | None = None,
) -> None:  # fmt: skip
    """Load into `optimizers` what `get_optimizer_state_dict` gave, of these or of others with the same parameters.

    Args:
        model: whose parameters they step.
        optimizers: one or several.
        optim_state_dict: as `get_optimizer_state_dict` gives it, nested or flat.
        options: see `StateDictOptions`.
    Raises: ValueError for another number of parameter groups; KeyError for parameters without a group in it.
    """
    options = _checked("set_optimizer_state_dict", options)
    if options.broadcast_from_rank0:
        optim_state_dict = _from_rank0(optim_state_dict)
    names = _names_of(model)
    for optimizer in _each(optimizers):
        _with_state(optimizer)
        if _is_flattened(model):
            _load_flattened(model, optimizer, optim_state_dict, options.full_state_dict)
            continue
        own = optimizer.state_dict()
        listed = list(_groups(optimizer, names))
        given = _nested(optim_state_dict, listed, own) if _is_flat(optim_state_dict) else optim_state_dict
        groups = [_group_for(each, given[_GROUPS], len(listed)) for each in listed]
        numbers: dict[str, int] = {}
        for each, group in zip(listed, own[_GROUPS], strict=True):
            numbers.update(zip(each, group[_PARAMS], strict=True))
        parameters = {number: p for p, number in zip(_parameters(optimizer), numbers.values(), strict=True)}
        state = {
            number: {key: _spread_like(value, parameters[number]) for key, value in given[_STATE][name].items()}
            for name, number in numbers.items()
            if name in given[_STATE]
        }
        loaded = [
            {**mine, **{k: v for k, v in theirs.items() if k != _PARAMS}, _PARAMS: mine[_PARAMS]}
            for mine, theirs in zip(own[_GROUPS], groups, strict=True)
        ]
        optimizer.load_state_dict({_STATE: state, _GROUPS: loaded})


def _parameters(optimizer: Optimizer) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group[_PARAMS]]


def _load_flattened(model: nn.Module, optimizer: Optimizer, given: dict[str, Any], full: bool) -> None:
    from ..fsdp import FullyShardedDataParallel

    if _is_flat(given):
        own = _of_flattened(model, optimizer, full)
        given = _nested(given, [group[_PARAMS] for group in own[_GROUPS]], own)
    with _gathered_or_not(model, full):
        FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, given, load_directly=True)


def _group_for(names: list[str], groups: list[dict[str, Any]], count: int) -> dict[str, Any]:
    if len(groups) < count:
        raise ValueError("loaded state dict has a different number of parameter groups")
    for group in groups:
        if not names or set(names) & set(group[_PARAMS]):
            return group
    raise KeyError(f"no parameter group of the state dict has any of {', '.join(names)}")


def _is_flat(given: dict[str, Any]) -> bool:
    return _STATE not in given and _GROUPS not in given and any(key.startswith((f"{_STATE}.", f"{_GROUPS}.")) for key in given)


def _nested(flat: dict[str, Any], listed: list[list[str]], own: dict[str, Any]) -> dict[str, Any]:
    """Undo `_flat`, for parameters in the groups `listed`."""
    state: dict[str, Any] = {}
    groups = []
    for names, group in zip(listed, own[_GROUPS], strict=True):
        for name in names:
            prefix = f"{_STATE}.{name}."
            found = {key[len(prefix) :]: value for key, value in flat.items() if key.startswith(prefix)}
            found = {key: value for key, value in found.items() if "." not in key}
            if found:
                state[name] = found
        made: dict[str, Any] = {_PARAMS: names}
        for key in group:
            values = [flat[f"{_GROUPS}.{name}.{key}"] for name in names if f"{_GROUPS}.{name}.{key}" in flat]
            if values:
                made[key] = values[0]
        groups.append(made)
    return {_STATE: state, _GROUPS: groups}


# -- both ----------------------------------------------------------------------------------------------------------------


def get_state_dict(
    model: nn.Module, optimizers: Optimizer | Iterable[Optimizer], *, submodules: set[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """`get_model_state_dict` and `get_optimizer_state_dict`: both can be saved as they are."""
    optimizers = _each(optimizers)
    found = get_model_state_dict(model, submodules=submodules, options=options)
    return found, get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options) if optimizers else {}


def set_state_dict(
    model: nn.Module, optimizers: Optimizer | Iterable[Optimizer], *, model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any], options: StateDictOptions | None = None,
) -> Any:  # fmt: skip
    """`set_model_state_dict` and `set_optimizer_state_dict`.

    Args:
        model_state_dict: for the first.
        optim_state_dict: for the second.
        options: see `StateDictOptions`.
    Returns: missing_keys and unexpected_keys of the model.
    """
    optimizers = _each(optimizers)
    found = set_model_state_dict(model, model_state_dict, options=options)
    if optimizers:
        set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found
