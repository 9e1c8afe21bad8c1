"""Forward mode: tensors that carry a tangent along.

Inside `dual_level` every op computes, beside its value, the directional derivative along the tangents of its operands.
Elementwise ops use their partials, linear ops and views are applied to the tangent, and every other op that has a vjp gets
its jvp from it: the vjp is linear in the incoming gradient, so the vjp of that map is the jvp.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _state, dtypes
from ..tensor import Tensor, wrap

_level = -1


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Start a level of forward mode; only one may be active. Raises: RuntimeError when one is."""
    global _level
    if _level >= 0:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    from ..ops import _slow

    _level = 0
    _slow.interpreters.append(interpret)
    _state.add_slow(1)
    return _level


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level; tensors made in it lose their tangents."""
    global _level
    if _level < 0 or level not in (None, _level):
        raise RuntimeError(f"Trying to exit a forward AD level that was not the last one entered: {level}")
    from ..ops import _slow

    _level = -1
    _slow.interpreters.remove(interpret)
    _state.add_slow(-1)


class dual_level:
    """Context manager for a level of forward mode."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *_: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """`tensor` with `tangent` attached.

    Raises: RuntimeError outside a level; ValueError for a tensor that is neither floating nor complex.
    """
    if _level < 0:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.")
    for name, x in (("tensor", tensor), ("tangent", tangent)):
        if x.dtype.category < dtypes.FLOATING:
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {x.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError(f"Expected tangent to have the shape of the tensor, {tuple(tensor.shape)}, but got {tuple(tangent.shape)}")
    made = wrap(tensor._a, tensor._n)
    made._v = tensor._v
    set_tangent(made, tangent)
    return made


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and tangent of `tensor`; the tangent is None where nothing was attached."""
    if _level < 0:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(primal_of(tensor), tangent_of(tensor))


class set_forward_grad:  # noqa: N801  # a context manager named as PyTorch's
    """Whether tangents are carried, as a context manager."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        _state.local.forward_off = not self.mode

    def __exit__(self, *_: object) -> None:
        _state.local.forward_off = False


# -- carrying ------------------------------------------------------------------------------------------------------------


def tangent_of(x: Any) -> Tensor | None:
    return x.__dict__.get("_tangent") if isinstance(x, Tensor) else None


def set_tangent(x: Tensor, tangent: Tensor | None) -> None:
    if tangent is None:
        x.__dict__.pop("_tangent", None)
    else:
        x.__dict__["_tangent"] = tangent


def primal_of(x: Any) -> Any:
    """`x` without its tangent: same memory, same history."""
    if not isinstance(x, Tensor) or "_tangent" not in x.__dict__:
        return x
    made = wrap(x._a, x._n)
    made._v = x._v
    return made


def _map(fn: Any, args: Any) -> Any:
    return tuple([fn(y) for y in x] if isinstance(x, (list, tuple)) and x and isinstance(x[0], Tensor) else fn(x) for x in args)


def interpret(op: Any, args: tuple[Any, ...], out: Any) -> Any:
    """The interpreter that carries tangents through `op`; NotImplemented where no operand has one."""
    if op.kind == "composite" and not getattr(op, "inplace_view", None) and out is None:
        return NotImplemented
    tangents = _map(tangent_of, args)
    if not any(isinstance(t, list) and any(y is not None for y in t) or isinstance(t, Tensor) for t in tangents):
        return NotImplemented
    if out is not None and out is not args[0]:
        raise RuntimeError(f"{op.name}: out= does not support forward mode; assign the result instead")
    if op.kind == "composite" or (out is not None and op.kind == "view"):
        return _in_place_of_composite(op, args)
    primals = _map(primal_of, args)
    before = _state.local.grad
    result = op.run(*primals)
    found = tangents_of_results(op, primals, tangents, result)
    _state.set_grad(before)
    if out is not None:
        return _store(op, out, result, found)
    for r, t in zip(result if isinstance(result, tuple) else (result,), found, strict=True):
        if t is not None and r.dtype.category >= dtypes.FLOATING:
            set_tangent(r, t if t.dtype is r.dtype else t.to(r.dtype))
    return result


def _in_place_of_composite(op: Any, args: Any) -> Any:
    target = args[0]
    if op.kind == "view" or op.inplace_view is not None:
        tangent = tangent_of(target)
        set_tangent(target, None)
        op.run_inplace(target, *args[1:])
        if tangent is not None:
            copy = tangent.clone()
            set_tangent(target, op.run_inplace(copy, *args[1:]))
        return target
    made = op.run(*args)
    return _store(op, target, primal_of(made), [tangent_of(made)])


def _store(op: Any, target: Tensor, result: Tensor, tangents: Any) -> Tensor:
    from ..ops._spec import OPS, check_inplace

    check_inplace(op, target, result)
    set_tangent(target, None)
    OPS["Tensor.overwrite"].run_inplace(target, result)
    set_tangent(target, tangents[0])
    return target


def tangents_of_results(op: Any, args: Any, tangents: Any, result: Any) -> list[Tensor | None]:
    """One tangent per result of `op`."""
    if op.kind == "elementwise":
        if not op.differentiable:
            return [None]
        if not op.vjps or not any(isinstance(a, Tensor) and a.dtype.is_complex for a in args):
            return [op.jvp(args, tangents, result)]
        return through_vjp(op, args, tangents, result)  # a vjp need not be its own transpose for complex values
    if op.kind == "view" and op.name != "as_strided":
        moved = op.run(tangents[0], *args[1:])
        return list(moved) if isinstance(moved, tuple) else [moved]
    if getattr(op, "jvp_rule", None) is not None:
        made = op.jvp_rule(args, tangents, result)
        return list(made) if isinstance(made, (tuple, list)) else [made]
    return through_vjp(op, args, tangents, result)


def through_vjp(op: Any, args: Any, tangents: Any, result: Any) -> list[Tensor | None]:
    """The jvp as the vjp of the vjp, which is linear in the gradient it is given."""
    from . import grad as gradient

    _state.set_grad(True)
    starts: list[Tensor] = []
    along: list[Tensor] = []

    def start(x: Any, t: Any) -> Any:
        if t is None:
            return x
        made = x.view(x.shape) if x._n is not None else x.detach().requires_grad_(True)
        starts.append(made)
        along.append(t)
        return made

    fresh = []
    for x, t in zip(args, tangents, strict=True):
        fresh.append([start(y, s) for y, s in zip(x, t, strict=True)] if isinstance(t, list) else start(x, t))
    again = op.run(*fresh)
    results = again if isinstance(again, tuple) else (again,)
    found: list[Tensor | None] = []
    for r in results:
        if r._n is None:
            found.append(None)
            continue
        probe = r.detach().clone().requires_grad_(True)
        grads = gradient(r, starts, probe, create_graph=True, allow_unused=True, materialize_grads=True)
        used = [(g, t) for g, t in zip(grads, along, strict=True) if g._n is not None]
        if not used:
            found.append(r.detach() * 0)
            continue
        (made,) = gradient([g for g, _ in used], probe, [t.to(g.dtype) if t.dtype is not g.dtype else t for g, t in used],
                           create_graph=True, allow_unused=True, materialize_grads=True)  # fmt: skip
        found.append(made)
    return found
