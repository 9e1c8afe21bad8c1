"""States of optimizers of wrapped models, by names of parameters and back; norms of gradients."""

from __future__ import annotations

import copy
import math
from typing import Any

import flambeau as fb

from ...utils import _pytree as pytree
from .. import distributed_c10d as c10d
from ..tensor import DTensor
from ._settings import StateDictType
from ._shards import gather

__all__ = ["by_names", "cast", "clip", "from_first", "optimizer_of", "rekeyed", "to_pieces"]

_PREFIX = "_fsdp_wrapped_module."


def cast(values: Any, dtype: Any) -> Any:
    """`values` with floating tensors in `dtype`."""
    return pytree.tree_map(lambda x: x.to(dtype) if isinstance(x, fb.Tensor) and x.is_floating_point() else x, values)


def from_first(value: Any) -> Any:
    """What rank 0 has."""
    held = [value if c10d.get_rank() == 0 else None]
    c10d.broadcast_object_list(held, src=0)
    return held[0]


def _units(model: Any) -> list[tuple[str, Any]]:
    """The wrappers with parameters, each with the name before those of its parameters."""
    from ._full import FullyShardedDataParallel

    found = []
    for name, module in model.named_modules():
        if isinstance(module, FullyShardedDataParallel) and module._handle is not None:
            clean = f"{name}.".replace(_PREFIX, "") if name else ""
            found.append((clean, module))
    return found


def _numbers(optim: Any) -> dict[int, int]:
    """The number of each parameter in the state dict of `optim`, by identity."""
    parameters = [p for group in optim.param_groups for p in group["params"]]
    return {id(p): at for at, p in enumerate(parameters)}


def _others(model: Any, optim: Any, units: list[tuple[str, Any]]) -> dict[int, str]:
    """The names of parameters that no wrapper has, by their number."""
    numbers = _numbers(optim)
    taken = {id(u._handle.sharded) for _, u in units} | {id(part.parameter) for _, u in units for part in u._handle.parts}
    return {
        numbers[id(p)]: name.replace(_PREFIX, "")
        for name, p in model.named_parameters()
        if id(p) in numbers and id(p) not in taken
    }


def by_names(model: Any, optim: Any, states: dict[str, Any], kind: StateDictType) -> dict[str, Any]:
    """The state dict `states` of `optim` with whole tensors, or DTensors, by the names of parameters."""
    if kind is StateDictType.LOCAL_STATE_DICT:
        return states
    units, numbers = _units(model), _numbers(optim)
    made: dict[str, Any] = {}
    names: dict[int, list[str]] = {}                  # of the parameters behind each number
    for prefix, unit in units:
        handle = unit._handle
        pieces = _flat_pieces(handle, states["state"], numbers)
        for part in handle.parts:
            number = numbers.get(id(part.parameter) if handle.keeps_originals else id(handle.sharded))
            if number is not None:
                names.setdefault(number, []).append(f"{prefix}{part.name}")
        for key, piece in pieces.items():
            full = gather([piece], [handle.layout], unit._fsdp_state.group.group, piece.dtype).wait()[0] if piece.ndim else piece
            for part in handle.parts:
                value = full[part.begin : part.end].view(part.shape).clone() if piece.ndim else piece.clone()
                if kind is StateDictType.SHARDED_STATE_DICT and piece.ndim:
                    value = unit._in_pieces(value)
                made.setdefault(f"{prefix}{part.name}", {})[key] = value
    for number, name in _others(model, optim, units).items():
        names[number] = [name]
        if number in states["state"]:
            made[name] = dict(states["state"][number])
    groups = []
    for group in states["param_groups"]:
        listed = [name for number in group["params"] for name in names.get(number, [])]
        groups.append({**copy.deepcopy({k: v for k, v in group.items() if k != "params"}), "params": listed})
    return {"state": made, "param_groups": groups}


def _flat_pieces(handle: Any, states: dict[int, Any], numbers: dict[int, int]) -> dict[str, Any]:
    """The states of a flat parameter: vectors of the size of its piece, and numbers."""
    if not handle.keeps_originals:
        return dict(states.get(numbers.get(id(handle.sharded), -1), {}))
    found: dict[str, Any] = {}
    for part in handle.parts:
        own = states.get(numbers.get(id(part.parameter), -1), {})
        begin, end = handle.within(part)
        for key, value in own.items():
            if not isinstance(value, fb.Tensor) or not value.ndim:
                found[key] = value if isinstance(value, fb.Tensor) else fb.tensor(float(value))
                continue
            flat = found.get(key)
            if flat is None:
                flat = found[key] = value.new_zeros(handle.layout.step)
            flat[begin:end].copy_(value.reshape(-1))
    return found


def to_pieces(model: Any, optim: Any, states: dict[str, Any]) -> dict[str, Any]:
    """States by the names of parameters as the pieces that `optim` loads."""
    units, numbers = _units(model), _numbers(optim)
    given, made = states["state"], {}
    number_of: dict[str, int] = {}
    with fb.no_grad():
        for prefix, unit in units:
            handle = unit._handle
            keys = sorted({key for part in handle.parts for key in given.get(f"{prefix}{part.name}", {})})
            for part in handle.parts:
                number_of[f"{prefix}{part.name}"] = numbers[id(part.parameter) if handle.keeps_originals else id(handle.sharded)]
            for key in keys:
                values = [given.get(f"{prefix}{part.name}", {}).get(key) for part in handle.parts]
                values = [v.full_tensor() if isinstance(v, DTensor) else v for v in values]
                first = next(v for v in values if v is not None)
                if not isinstance(first, fb.Tensor) or not first.ndim and any(math.prod(p.shape) != 1 for p in handle.parts):
                    for part in handle.parts:
                        made.setdefault(number_of[f"{prefix}{part.name}"], {})[key] = copy.deepcopy(first)
                    continue
                flat = first.new_zeros(handle.layout.shape)
                for part, value in zip(handle.parts, values, strict=True):
                    if value is not None:
                        flat[part.begin : part.end].copy_(value.reshape(-1))
                piece = handle.layout.piece(flat, handle.at)
                if not handle.keeps_originals:
                    made.setdefault(numbers[id(handle.sharded)], {})[key] = piece
                    continue
                for part in handle.parts:
                    begin, end = handle.within(part)
                    made.setdefault(numbers[id(part.parameter)], {})[key] = piece[begin:end].clone()
        for number, name in _others(model, optim, units).items():
            number_of[name] = number
            if name in given:
                made[number] = {k: v.full_tensor() if isinstance(v, DTensor) else copy.deepcopy(v) for k, v in given[name].items()}
    groups = []
    for now in optim.state_dict()["param_groups"]:
        mine = set(now["params"])
        theirs = next((g for g in states["param_groups"] if any(number_of.get(n) in mine for n in g["params"])), {})
        groups.append({**now, **copy.deepcopy({k: v for k, v in theirs.items() if k != "params"}), "params": now["params"]})
    return {"state": made, "param_groups": groups}


def optimizer_of(model: Any, given: Any, optim: Any) -> Any:
    """`optim`, or a stand-in with the groups of parameters that one would be made of."""
    if optim is not None:
        return optim
    parameters = list(model.parameters()) if given is None else list(given)
    return fb.optim.SGD(parameters, lr=1.0)


def rekeyed(states: dict[str, Any], to_names: bool, model: Any, given: Any, optim: Any) -> dict[str, Any]:
    """`states` with names in place of numbers, or numbers in place of names, for a model without wrappers."""
    name_of = {id(p): name for name, p in model.named_parameters()}
    if optim is not None:
        listed = [p for group in optim.param_groups for p in group["params"]]
    else:
        groups = list(model.parameters()) if given is None else list(given)
        listed = [p for g in groups for p in (g["params"] if isinstance(g, dict) else [g])]
    names = [name_of[id(p)] for p in listed]
    change: dict[Any, Any] = dict(enumerate(names)) if to_names else {name: at for at, name in enumerate(names)}
    groups = [{**g, "params": sorted(change[p] for p in g["params"])} for g in states["param_groups"]]
    return {"state": {change[key]: value for key, value in states["state"].items()}, "param_groups": groups}


def clip(root: Any, most: float, order: float) -> Any:
    """Scale the gradients of all pieces; returns the norm of all together."""
    units = _units(root)
    with fb.no_grad():
        in_shards, alike = [], []                         # gradients in pieces, and those that all ranks have alike
        taken = set()
        for _, unit in units:
            handle = unit._handle
            handle.collect_gradients()
            taken |= {id(handle.sharded), *(id(part.parameter) for part in handle.parts)}
            if handle.sharded.grad is not None:
                (in_shards if handle.layout.count > 1 else alike).append((handle.sharded.grad, unit))
        alike += [(p.grad, None) for p in root.parameters() if id(p) not in taken and p.grad is not None]

        def norm(grads: list[Any]) -> Any:
            found = [fb.linalg.vector_norm(g.float(), order) for g, _ in grads] or [fb.zeros(())]
            return fb.linalg.vector_norm(fb.stack(found), order)

        local, same = norm(in_shards), norm(alike)
        if in_shards:
            group = in_shards[0][1]._fsdp_state.group.group
            if math.isinf(order):
                c10d.all_reduce(local, op=c10d.ReduceOp.MAX, group=group)
            else:
                local = local**order
                c10d.all_reduce(local, group=group)
                local = local ** (1.0 / order)
        total = fb.maximum(local, same) if math.isinf(order) else (local**order + same**order) ** (1.0 / order)
        factor = (most / (total + 1e-6)).clamp(max=1.0)
        for grad, _ in (*in_shards, *alike):
            grad.mul_(factor.to(grad.dtype))
        if in_shards or alike:
            dtype = (in_shards or alike)[0][0].dtype
            for grad, _ in (*in_shards, *alike):
                dtype = fb.promote_types(dtype, grad.dtype)
            total = total.to(dtype)
    return total
