"""Forward mode: tensors that carry a tangent along.

Inside a level every op computes, beside its value, the directional derivative along the tangents of its operands.
Elementwise ops use their partials, linear ops and views are applied to the tangent, and every other op that has a vjp gets
its jvp from it: the vjp is linear in the incoming gradient, so the vjp of that map is the jvp.

`dual_level` offers one level at a time, as PyTorch does; `func.jvp` opens levels inside each other. A tangent is kept with
the tensor under its level, so a tensor may carry one for each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import _state, dtypes
from .._interpreters import DECOMPOSE, UNTOUCHED, Interpreter, unrecorded
from .._kinds import KindArray
from ..ops import _dispatch
from ..ops._spec.writing import keep_for_histories
from ..tensor import Tensor, ndarray, wrap

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]

_local = _state.local


_NUMBERS = frozenset((int, float, bool, str))


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns."""

    primal: Tensor
    tangent: Tensor | None


class ForwardLevel(Interpreter):
    """One level of forward mode: the interpreter that carries the tangents of this level through ops."""

    kind = "jvp"

    def tangent_of(self, x: Any) -> Tensor | None:
        if not isinstance(x, Tensor):
            return None
        tangents = x.__dict__.get("_tangents")
        own = None if tangents is None else tangents.get(self)
        link = x._view_of
        if link is None or tangents is not None and self in tangents and own is None:
            return own
        whole = link[0].__dict__.get("_tangents", {}).get(self)
        if whole is None or own is not None and _innermost(own)._storage is _innermost(whole)._storage:
            return own
        return self._part_of_base(x, whole)           # the base has got another one since

    def _part_of_base(self, x: Tensor, whole: Tensor) -> Tensor | None:
        """The tangent of the view `x`, in that of its base; None where it lies around the base."""
        from ..ops._spec import Region

        region = Region.of(x, x._view_of[0])
        low, high = region.view.ends
        if low < 0 or high > region.base.ends[1]:
            return None
        before = _state.set_grad(True)
        try:
            with _dispatch.below(self):
                tangent = region.seen_in(whole, whole.storage_offset())
        finally:
            _state.set_grad(before)
        self.set_tangent(x, tangent)
        return tangent

    def set_tangent(self, x: Tensor, tangent: Tensor | None) -> None:
        tangents = x.__dict__.setdefault("_tangents", {})  # pyright: ignore[reportAttributeAccessIssue]  # an instance's
        if tangent is None:
            tangents.pop(self, None)
        else:
            tangents[self] = tangent

    def primal_of(self, x: Any) -> Any:
        """`x` without the tangent of this level: same memory, same history."""
        if self.tangent_of(x) is None:
            return x
        made = alias(x)
        rest = {level: t for level, t in x.__dict__["_tangents"].items() if level is not self}
        if made._view_of is not None:
            rest[self] = None                         # nor its part of the tangent of its base
        if rest:
            made.__dict__["_tangents"] = rest  # pyright: ignore[reportIndexIssue]  # an instance's
        return made

    def dual(self, primal: Tensor, tangent: Tensor | None) -> Tensor:
        """`primal` with `tangent` attached, as another tensor over the same memory and history.

        What is written in place goes to both, so `tangent` is another one than was given where it does not lie in memory as `primal`
        does, or is the same for all examples that `primal` is a batch of.
        """
        if tangent is None:
            return primal
        made = alias(primal)
        tangent = laid_out_as(primal, batched_as(primal, tangent))
        made.__dict__["_tangents"] = {**primal.__dict__.get("_tangents", {}), self: tangent}  # pyright: ignore[reportIndexIssue]  # an instance's
        return made

    def quick(self, op: Any, *args: Any) -> Any:
        """What `run` gives for a scalar formula that has no rule of its own; of plain tensors with one tangent at most, and numbers."""
        if op.kind != "elementwise" or op.vjps or not op.differentiable or _local.forward_off:
            return None
        primals: list[Any] = []
        tangents: list[Any] = []
        for x in args:
            tangent = None
            if x.__class__ is Tensor:
                if x._array.dtype.char not in "fd":
                    return None
                found = x.__dict__.get("_tangents")
                if x._view_of is not None and "_tangents" in x._view_of[0].__dict__:
                    tangent, found = self.tangent_of(x), x.__dict__.get("_tangents")
                elif found:
                    tangent = found.get(self)
                if found:
                    if tangent is None or len(found) > 1:
                        return None
                    x = alias(x)
            elif x is not None and x.__class__ not in _NUMBERS:
                return None
            primals.append(x)
            tangents.append(tangent)
        for moved in tangents:
            if moved is not None:
                break
        else:
            return None
        calls = _local.calls
        stack = calls.interpreters
        calls.interpreters = outside = stack[:-1]
        try:
            result = _dispatch.interpret(op, tuple(primals)) if outside else op.enter(*primals)
            found = with_own_memory(op.jvp(primals, tangents, result), tangents)
        finally:
            calls.interpreters = stack
        return self._with_tangents(result, (found,))

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        """Carry tangents through `op`; UNTOUCHED where no operand has one, or while that is switched off."""
        if _local.forward_off or not self.touches(args):
            return UNTOUCHED if out is None else NotImplemented
        viewed = op.kind == "view" or op.inplace_view is not None
        if op.kind == "composite" and op.name != "detach" and not (inplace and viewed):
            return DECOMPOSE
        if out is not None and not inplace:
            raise RuntimeError(f"{op.name}: out= does not support forward mode; assign the result instead")
        if inplace and viewed:
            return self._change_shape(op, args)
        begin = _state.next_seq() if inplace else 0
        primals, tangents, result = self._through(op, args, inplace)
        recording = _local.grad
        found = self.tangents_of_results(op, primals, tangents, result)
        if not viewed:
            found = [with_own_memory(t, tangents) for t in found]
        _state.set_grad(recording)
        if inplace:
            return self._store(op, out, result, found, begin)  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out
        for r in result if isinstance(result, tuple) else (result,):
            if r._view_of is not None and r._view_of[0] is primals[0]:
                r._view_of = (args[0], *r._view_of[1:])  # in-place operations renew the history of the tensor users hold
        return self._with_tangents(result, found, viewed)

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _local.forward_off or operator.is_composition or not self.touches((*args, *kwargs.values())):
            return NotImplemented
        raise NotImplementedError(
            f"{operator.name}: forward mode is not built for operators of torch.library, whose formulas are for backward; use an "
            "autograd.Function with jvp"
        )

    def touches(self, args: Any) -> bool:
        """Whether an operand has a tangent of this level."""
        for x in args:
            if isinstance(x, (list, tuple)):
                if any(self.tangent_of(y) is not None for y in x):
                    return True
            elif isinstance(x, Tensor) and (self in x.__dict__.get("_tangents", ()) or x._view_of) and self.tangent_of(x) is not None:
                return True
        return False

    def run_each(self, op: Any, args: tuple[Any, ...]) -> Any:
        """A composition that could not be taken apart, differentiated as one op."""
        if _local.forward_off or not self.touches(args):
            return NotImplemented
        primals, tangents, result = self._through(op, args)
        return self._with_tangents(result, through_vjp(op, primals, tangents, result))

    def _through(self, op: Any, args: Any, inplace: bool = False) -> tuple[Any, Any, Any]:
        """The operands without tangents, their tangents, and the result."""
        primals = _map(self.primal_of, args)
        if inplace and _reaches_around(args[0]):
            primals = (_as_part_of_base(primals[0], args[0]), *primals[1:])
        return primals, _map(self.tangent_of, args), _below(op, primals)

    def _with_tangents(self, result: Any, tangents: Any, viewed: bool = False) -> Any:
        for r, t in zip(result if isinstance(result, tuple) else (result,), tangents, strict=True):
            if t is not None and r.dtype.category >= dtypes.FLOATING:
                t = as_dtype_of(t, r)
                self.set_tangent(r, t if viewed else laid_out_as(r, t))
        return result

    def _change_shape(self, op: Any, args: Any) -> Tensor:
        """The in-place form of a view changes the shape of target and tangent."""
        target = args[0]
        tangent = self.tangent_of(target)
        self.set_tangent(target, None)
        _below(op, args, inplace=True)
        if tangent is not None:
            self.set_tangent(target, _below(op, (tangent, *args[1:]), inplace=True))
        return target

    def _store(self, op: Any, target: Tensor, result: Tensor, tangents: Any, begin: int) -> Tensor:
        """Store `result` and its tangent, whose histories began at `begin`, in `target` and its tangent."""
        from ..ops._spec import OPS, check_inplace

        check_inplace(op, target, result)
        kept = self._tangent_in_place(target, tangents[0])
        for overwritten in (target, kept):
            if overwritten is not None:
                keep_for_histories(begin, overwritten, [result, *tangents])
        self.set_tangent(target, None)
        _below(OPS["Tensor.overwrite"], (target, result), inplace=True)
        tangent = tangents[0]
        if kept is not None:
            kept.copy_(tangent) if tangent is not None else kept.zero_()
        if kept is None and tangent is not None:
            kept = laid_out_as(target, as_dtype_of(tangent, target))
        self.set_tangent(target, kept)
        return target

    def _tangent_in_place(self, target: Tensor, stored: Tensor | None) -> Tensor | None:
        """The tangent that an in-place operation writes `stored` into: that of `target`, or its part of its base's; None if there is none.

        While a transform inside records, nodes may have saved tangents of which their operands, whose versions are looked at, say nothing.
        So it is another one then, and nothing is written over.
        """
        from ..ops._spec import Region
        from ..ops.creation.create import zeros_like

        link, tangent = target._view_of, self.tangent_of(target)
        base_tangent = None if link is None else self.tangent_of(link[0])
        if link is None or tangent is not None and base_tangent is None:
            return None if tangent is None or _local.transforms or shares_places(tangent) else tangent
        if tangent is not None and not _local.transforms:
            return None if shares_places(tangent) else tangent
        base = link[0]
        if base_tangent is None:
            base_tangent = batched_as(stored, zeros_like(base.detach()))
        else:
            base_tangent = base_tangent.clone()
        if base_tangent.stride() != base.stride():
            base_tangent, _ = Region.of(base, base).in_tensor(base_tangent)
        self.set_tangent(base, base_tangent)
        return Region.of(target, base).seen_in(base_tangent, base_tangent.storage_offset())

    def _tangent_of_storage(self, x: Tensor, tangent: Tensor, result: Tensor) -> Tensor:
        """The tangent of `result`, a view of the storage of `x`, in that of the base of both; zero where there is none."""
        from ..ops._spec import Region

        base = x if x._view_of is None else x._view_of[0]
        base_tangent = self.tangent_of(base)
        if base_tangent is None:
            base, base_tangent = x, tangent
        region = Region.of(result, base)
        low, high = region.view.ends
        if low < 0 or high > region.base.ends[1]:
            return region.in_tensor(base_tangent)[1]
        return region.seen_in(base_tangent, base_tangent.storage_offset())

    def tangents_of_results(self, op: Any, args: Any, tangents: Any, result: Any) -> list[Tensor | None]:
        """One tangent per result of `op`."""
        if op.name == "detach":
            return [unrecorded(t) if t is not None and _local.keeps_tangents else None for t in tangents[:1]]
        if op.kind == "elementwise":
            if not op.differentiable:
                return [None]
            if not op.vjps or not any(isinstance(a, Tensor) and a.dtype.is_complex for a in args):
                return [op.jvp(args, tangents, result)]
            return through_vjp(op, args, tangents, result)  # a vjp need not be its own transpose for complex values
        if op.kind == "view":
            if op.shows_storage:
                return [self._tangent_of_storage(args[0], tangents[0], result)]
            moved = _below(op, (tangents[0], *args[1:]))
            return list(moved) if isinstance(moved, tuple) else [moved]
        if getattr(op, "jvp_rule", None) is not None:
            made = op.jvp_rule(args, tangents, result)
            return list(made) if isinstance(made, (tuple, list)) else [made]
        return through_vjp(op, args, tangents, result)


def _reaches_around(x: Tensor) -> bool:
    """Whether `x`, a tensor with a history, may lie around the view that it is a view of, as `as_strided` views of the storage do."""
    link = x._view_of if x._node is not None else None
    while link is not None:
        if link[1].shows_storage and link[3] is not None:
            return True
        link = link[3]
    return False


def _as_part_of_base(primal: Tensor, target: Tensor) -> Tensor:
    """`primal` of the view `target`, which is written, with the history of that part of the base, and not of the view between the two."""
    from ..ops._spec import Region

    base = target._view_of[0]
    if primal.__class__ is not Tensor or base._node is None:
        return primal
    made = alias(primal)
    vars(made).update(vars(primal))
    made._node = Region.of(target, base).node(base)
    return made


def shares_places(x: Tensor) -> bool:
    """Whether elements of `x` share a place in memory because it was expanded, so that it cannot be written."""
    return any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))


def with_own_memory(tangent: Any, given: Any) -> Any:
    """`tangent` of a result with memory of its own, which what is written in place to that of an operand must not reach."""
    if tangent is None:
        return None
    inside = _innermost(tangent)
    for t in given:
        for x in t if isinstance(t, list) else (t,):
            if x is not None and _share_memory(_innermost(x), inside):
                return tangent.clone()
    return tangent


def _share_memory(x: Tensor, y: Tensor) -> bool:
    """Whether what is written to `x` may be seen in `y`; rules on arrays may have given them storages of their own over one array."""
    if x is y or x._storage is not None and x._storage is y._storage:
        return True
    a, b = x._array, y._array
    return a.__class__ is ndarray and b.__class__ is ndarray and np.may_share_memory(a, b)


def _innermost(x: Any) -> Any:
    """The tensor in whose memory a batch of a `vmap` is; others themselves."""
    while x.__class__ is not Tensor and hasattr(x, "_bdim"):
        x = x._value
    return x


def alias(x: Tensor) -> Tensor:
    """Another plain tensor over the memory and history of `x`, without tangents."""
    copied = getattr(x, "_aliased", None)
    if copied is not None:
        return copied()
    made = wrap(x._array, x._node)
    made._storage, made._view_of = x._storage, x._view_of
    return made


def _below(op: Any, args: tuple[Any, ...], inplace: bool = False) -> Any:
    return _dispatch.interpret(op, args, args[0] if inplace else None, inplace)


def _map(fn: Any, args: Any) -> Any:
    return tuple([fn(y) for y in x] if isinstance(x, (list, tuple)) and x and isinstance(x[0], Tensor) else fn(x) for x in args)


def batched_as(x: Tensor | None, tangent: Tensor) -> Tensor:
    """`tangent` with an example of its own for each one that `x` is a batch of."""
    for level in _local.calls.interpreters:
        if level.kind == "vmap" and level.holds(x) and not level.holds(tangent):
            tangent = level.repeated(tangent)
    return tangent


def laid_out_as(x: Tensor, tangent: Tensor) -> Tensor:
    """`tangent` of `x` in memory that is laid out as that of `x` is, so that whatever is a view of `x` has a counterpart in it."""
    own, given = x._array, tangent._array
    if isinstance(own, KindArray) or isinstance(given, KindArray) or own.strides == given.strides:
        return tangent
    if all(s == t or n == 1 for s, t, n in zip(own.strides, given.strides, own.shape, strict=True)) or not own.size:
        return tangent
    from ..ops._spec import Geometry

    place = Geometry(own.shape, x.stride(), 0)
    if not place.is_non_overlapping:
        return tangent
    return tangent.new_empty_strided(place.shape, place.steps).copy_(tangent)


def through_vjp(op: Any, args: Any, tangents: Any, result: Any) -> list[Tensor | None]:
    """The jvp as the vjp of the vjp, which is linear in the gradient it is given."""
    if _local.calls.interpreters:
        from ..func.transforms import jvp_through_vjp

        return jvp_through_vjp(op, args, tangents)
    from . import grad as gradient

    _state.set_grad(True)
    starts: list[Tensor] = []
    along: list[Tensor] = []

    def start(x: Any, t: Any) -> Any:
        if t is None:
            return x
        made = x.view(x.shape) if x._node is not None else unrecorded(x).requires_grad_(True)
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
        if r._node is None:
            found.append(None)
            continue
        probe = unrecorded(r).clone().requires_grad_(True)
        grads = gradient(r, starts, probe, create_graph=True, allow_unused=True, materialize_grads=True)
        used = [(g, t) for g, t in zip(grads, along, strict=True) if g._node is not None]
        if not used:
            found.append(unrecorded(r) * 0)
            continue
        (made,) = gradient([g for g, _ in used], probe, [t.to(g.dtype) if t.dtype is not g.dtype else t for g, t in used],
                           create_graph=True, allow_unused=True, materialize_grads=True)  # fmt: skip
        found.append(made)
    if not any(x._node is not None for x in _flat(args)) and not any(t._node is not None for t in along):
        found = [t if t is None else unrecorded(t) for t in found]
    return found


def _flat(args: Any) -> list[Tensor]:
    return [y for x in args for y in (x if isinstance(x, (list, tuple)) else (x,)) if isinstance(y, Tensor)]


# -- the public face -----------------------------------------------------------------------------------------------------


def _current() -> ForwardLevel | None:
    """The level opened by `enter_dual_level`, or None."""
    return getattr(_local, "dual_level", None)


def enter_dual_level() -> int:
    """Start a level of forward mode; only one may be active. Raises: RuntimeError when one is."""
    if _current() is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _local.dual_level = ForwardLevel()
    _dispatch.push(_local.dual_level)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level; tensors made in it lose their tangents."""
    opened = _current()
    if opened is None or level not in (None, 0):
        raise RuntimeError(f"Trying to exit a forward AD level that was not the last one entered: {level}")
    _local.dual_level = None
    _dispatch.pop(opened)


class dual_level:
    """Context manager for a level of forward mode."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *_: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """`tensor` with `tangent` attached, or a copy of it where it does not lie in memory as `tensor` does.

    In-place operations on the result write both.
    Raises: RuntimeError outside a level; ValueError for a tensor that is neither floating nor complex.
    """
    opened = _current()
    if opened is None:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.")
    for name, x in (("tensor", tensor), ("tangent", tangent)):
        if x.dtype.category < dtypes.FLOATING:
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {x.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError(f"Expected tangent to have the shape of the tensor, {tuple(tensor.shape)}, but got {tuple(tangent.shape)}")
    return opened.dual(tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and tangent of `tensor`; the tangent is None where nothing was attached."""
    opened = _current()
    if opened is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(opened.primal_of(tensor), opened.tangent_of(tensor))


class set_forward_grad:  # a context manager named as PyTorch's
    """Whether tangents are carried, as a context manager."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        _local.forward_off = not self.mode

    def __exit__(self, *_: object) -> None:
        _local.forward_off = False


_set_fwd_grad_enabled = set_forward_grad


# -- for operations that carry tangents themselves -----------------------------------------------------------------------


def innermost() -> ForwardLevel | None:
    """The innermost level in force in this thread."""
    return next((x for x in reversed(_local.calls.interpreters) if isinstance(x, ForwardLevel)), None)


def as_dtype_of(tangent: Tensor, result: Tensor) -> Tensor:
    """`tangent` in the dtype of `result`; the real part where that is real."""
    wanted = result.dtype
    if tangent.dtype.is_complex and not wanted.is_complex:
        tangent = tangent.real
    return tangent if tangent.dtype is wanted else tangent.to(wanted)


def tangent_of(x: Any) -> Tensor | None:
    level = innermost()
    return None if level is None else level.tangent_of(x)


def set_tangent(x: Tensor, tangent: Tensor | None) -> None:
    level = innermost()
    if level is not None:
        level.set_tangent(x, tangent)
