"""Derivatives as transforms of functions: grad, vjp, jvp, jacobians, and what they are made of.

Reverse mode uses the tape: the arguments start it anew (a fresh leaf, or a fresh view where they have history), the function
runs, and the engine carries gradients back. The tape knows neither batches nor tangents, so arguments and results are first
taken apart over the levels that surround the transform (`peel`): a vmap level becomes a leading dimension, repeated where
it is missing, so that each example has gradients of its own; a forward level splits value and tangent. With nilpotent e for
each forward level a result is a sum ``Y0 + e Y1``, and the product with a cotangent ``V0 + e V1`` is
``J0' V0 + e (J1' V0 + J0' V1)``: one backward pass for each pair of parts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _state
from ..autograd._api import initial_gradient, plain_grad
from ..autograd.forward_ad import ForwardLevel, unrecorded
from ..autograd.graph import saved_as_they_were
from ..autograd.tape import Leaf
from ..ops import _dispatch
from ..ops.creation.create import ones_like, zeros, zeros_like
from ..tensor import Tensor
from ..utils._pytree import tree_flatten, tree_map
from .batching import BatchedTensor, VmapLevel
from .vmap import vmap

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]

_local = _state.local
_ONE: frozenset[Any] = frozenset()
Parts = dict[frozenset[Any], Tensor]


# -- levels --------------------------------------------------------------------------------------------------------------


def _levels() -> tuple[Any, ...]:
    """The vmap and forward levels in force, the outermost first."""
    stack = _local.calls.interpreters
    return tuple([x for x in stack if isinstance(x, (VmapLevel, ForwardLevel))]) if stack else ()


def peel(x: Tensor, mine: tuple[Any, ...], stack: tuple[Any, ...]) -> Parts:
    """`x` taken apart over the levels `mine` of `stack`; levels inside them stay, around each part.

    Returns: by sets of forward levels, the part of `x` that goes with their product; each has a leading dimension for
        every vmap level, the outermost first.
    """
    if not stack:
        return {_ONE: x}
    *outer, level = stack
    rest = tuple(outer)
    if level in mine:
        if isinstance(level, VmapLevel):
            level.repeats = level.repeats or not level.has(x)
            return peel(level.full(x), mine, rest)
        return _split(level, x, mine, rest)
    if isinstance(level, VmapLevel):
        if not level.has(x):
            return peel(x, mine, rest)
        at = sum(isinstance(v, VmapLevel) for v in rest if v in mine)
        return {m: level.wrap(v, at) for m, v in peel(level.front(x), mine, rest).items()}
    tangent = level.tangent_of(x)
    values = peel(level.primal_of(x), mine, rest)
    if tangent is not None:
        for m, t in peel(tangent, mine, rest).items():
            values[m] = level.dual(values[m] if m in values else zeros_like(t), t)
    return values


def _split(level: ForwardLevel, x: Tensor, mine: tuple[Any, ...], rest: tuple[Any, ...]) -> Parts:
    parts = peel(level.primal_of(x), mine, rest)
    tangent = level.tangent_of(x)
    if tangent is not None:
        parts.update({m | {level}: t for m, t in peel(tangent, mine, rest).items()})
    return parts


def assemble(parts: Parts, mine: tuple[Any, ...], stack: tuple[Any, ...]) -> Any:
    """The inverse of `peel`."""
    if not parts:
        return None
    if not stack:
        return parts.get(_ONE)
    *outer, level = stack
    rest = tuple(outer)
    if isinstance(level, VmapLevel):
        if level in mine:
            return level.wrap(assemble(parts, mine, rest))
        if not any(map(level.has, parts.values())):
            return assemble(parts, mine, rest)
        at = sum(isinstance(v, VmapLevel) for v in rest if v in mine)
        return level.wrap(assemble({m: level.full(v).movedim(0, at) for m, v in parts.items()}, mine, rest))
    if level in mine:
        value = assemble({m: v for m, v in parts.items() if level not in m}, mine, rest)
        tangent = assemble({m - {level}: v for m, v in parts.items() if level in m}, mine, rest)
    else:
        value = assemble({m: level.primal_of(v) for m, v in parts.items()}, mine, rest)
        tangents = {m: level.tangent_of(v) for m, v in parts.items()}
        tangent = assemble({m: t for m, t in tangents.items() if t is not None}, mine, rest)
    if value is None and tangent is not None:
        value = zeros_like(tangent)
    return value if tangent is None else level.dual(value, tangent)


# -- reverse mode --------------------------------------------------------------------------------------------------------


class _Record:
    """One run of a function with the tape started at its arguments."""

    def __init__(self, func: Any, primals: list[Tensor]) -> None:
        self.levels = _levels()
        # The run is the transform's own, so inference mode around it is left, and inference tensors may be saved in it.
        inferring = _state.set_inference(False)
        _state.local.transforms += 1
        before = _state.set_grad(True)
        self.outside = before and not inferring       # whether what surrounds the transform is recorded
        try:
            parts = [peel(x, self.levels, self.levels) for x in primals]
            self.starts = [_start(p[_ONE], self.outside) for p in parts]
            inside = [assemble({**p, _ONE: s}, self.levels, self.levels) for p, s in zip(parts, self.starts, strict=True)]
            self.result = func(*inside)
        finally:
            _state.set_grad(before)
            _state.set_inference(inferring)
            _state.local.transforms -= 1
        self.own = {s._node for s in self.starts if type(s._node) is Leaf}

    def outputs(self, results: list[Tensor]) -> None:
        """Say which results gradients will come from."""
        self.results = results
        self.parts = [peel(y, self.levels, self.levels) for y in results]
        self.connected = self.outside and any(_reaches_others(v._node, self.own) for p in self.parts for v in p.values())

    def visible(self, x: Any) -> Any:
        """A result as it looks from outside: without history, unless it depends on more than the arguments."""
        if not isinstance(x, Tensor) or x._node is None:
            return x
        if not self.connected and any(x is y for y in self.results):
            return unrecorded(x)
        if self.outside and any(_reaches_others(v._node, self.own) for v in peel(x, self.levels, self.levels).values()):
            return x
        return unrecorded(x)

    def back(self, cotangents: list[Tensor], keep: bool = True) -> list[Tensor]:
        """The product of `cotangents` with the jacobian, one tensor per argument."""
        stack = _levels()
        given = [peel(v, self.levels, stack) for v in cotangents]
        recording = _state.grad_enabled() and (self.connected or any(v._node is not None for p in given for v in p.values()))
        as_tensors = recording or len(stack) > len(self.levels)
        sums = _back(self.parts, self.starts, given, keep or self.connected, as_tensors)
        made = []
        for total, start in zip(sums, self.starts, strict=True):
            if _ONE not in total:
                total[_ONE] = zeros_like(start.detach())
            g = assemble(total, self.levels, stack)
            made.append(g if recording else unrecorded(g))
        return made


def _back(parts: list[Parts], starts: Any, given: list[Parts], keep: bool, as_tensors: bool) -> list[Parts]:
    """For each of `starts` the parts of its gradient, from the parts of results and of cotangents."""
    sums: list[Parts] = [{} for _ in starts]
    for product, (ys, vs) in _products(parts, given).items():
        for total, g in zip(sums, plain_grad(ys, starts, vs, keep, as_tensors), strict=True):
            if g is not None:
                total[product] = total[product] + g if product in total else g
    return sums


def _products(parts: list[Parts], given: list[Parts]) -> dict[frozenset[Any], tuple[list[Tensor], list[Tensor]]]:
    """Which results to go back from with which cotangents, by the product of forward levels they contribute to."""
    found: dict[frozenset[Any], tuple[list[Tensor], list[Tensor]]] = {}
    for ys, vs in zip(parts, given, strict=True):
        for m, y in ys.items():
            for k, v in vs.items():
                if y._node is not None and not m & k:
                    column = found.setdefault(m | k, ([], []))
                    column[0].append(y)
                    column[1].append(v if v.dtype is y.dtype else v.to(y.dtype))
    return found


def grad_among_levels(outputs: Any, inputs: Any, vectors: Any, keep: bool, create_graph: bool) -> list[Any]:
    """`autograd.grad` inside vmap or forward mode, of results that were recorded outside vmap.

    Raises: RuntimeError for batched results: a sum over examples is not what they ask for.
    """
    stack = _levels()
    if any(isinstance(y, BatchedTensor) for y in (*outputs, *inputs)):
        raise RuntimeError("autograd.grad inside vmap cannot differentiate batched Tensors; use func.grad or func.vjp there")
    forward = tuple(x for x in stack if isinstance(x, ForwardLevel))
    vectors = vectors if any(v is not None for v in vectors) or len(vectors) == len(outputs) else (None,) * len(outputs)
    parts = [peel(y, forward, stack) if isinstance(y, Tensor) else {_ONE: y} for y in outputs]
    if not any(m for p in parts for m in p) and not any(isinstance(v, Tensor) for v in vectors):
        return plain_grad(outputs, inputs, None, keep, create_graph)
    if any(not isinstance(y, Tensor) for y in outputs):
        return plain_grad(outputs, inputs, vectors, keep, True)
    vectors = [ones_like(y.detach()) if v is None else v for v, y in zip(vectors, outputs, strict=True)]
    for v, y in zip(vectors, outputs, strict=True):
        initial_gradient(y, v, True)
        if y._node is None:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    given = [peel(v, forward, stack) for v in vectors]
    several = sum(map(len, parts)) > len(parts) or sum(map(len, given)) > len(given)
    found = [assemble(total, forward, stack) for total in _back(parts, inputs, given, keep or several, True)]
    return found if create_graph else [g if g is None else unrecorded(g) for g in found]


def _start(x: Tensor, outside: bool) -> Tensor:
    """Where the tape begins for an argument: tied to its history only if that is recorded."""
    if outside and x._node is not None:
        return x.view_as(x)
    return unrecorded(x).requires_grad_()


def _reaches_others(node: Any, own: set[Any]) -> bool:
    """Whether the history of `node` has a leaf that is not in `own`."""
    seen = set()
    stack = [node] if node is not None else []
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if type(n) is Leaf:
            if n not in own:
                return True
            continue
        stack += [p for p in n.parents if p is not None]
    return False


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The result of `func`, and a function from a cotangent of it to cotangents of `primals`.

    Args:
        has_aux: whether `func` returns ``(result, aux)``; then aux comes as a third value.
    Raises: RuntimeError where arguments or results are not Tensors.

    >>> result, back = fb.func.vjp(lambda x: x * x, fb.tensor([1.0, 3.0]))
    >>> back(fb.ones(2))
    (tensor([2., 6.]),)
    """
    flat, spec = tree_flatten(primals)
    _check_tensors("vjp(f, *primals)", "primals", flat)
    record = _Record(lambda *xs: func(*spec.unflatten(xs)), flat)
    result, aux = _without_aux("vjp", record.result, has_aux)
    results, out_spec = tree_flatten(result)
    _check_tensors("vjp(f, *primals)", "results of f", results)
    record.outputs(results)
    one = len(primals) == 1

    def vjp_fn(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given: Any = cotangents[0] if len(cotangents) == 1 else cotangents
        if len(cotangents) == 1 and not out_spec.is_leaf() and tree_flatten(given)[1] != out_spec:
            given = cotangents
        vs, given_spec = tree_flatten(given)
        if given_spec != out_spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {given_spec}, primal output: {out_spec}"
            )
        _check_tensors("vjp_fn", "cotangents", vs)
        for v, y in zip(vs, results, strict=True):
            if v.shape != y.shape:
                raise RuntimeError(f"vjp_fn: a cotangent has shape {tuple(v.shape)}, but the result it belongs to {tuple(y.shape)}")
        grads = spec.unflatten(record.back(vs, retain_graph))
        return grads[0] if one and isinstance(primals[0], Tensor) is False else grads

    shown = out_spec.unflatten([record.visible(y) for y in results])
    return (shown, vjp_fn, tree_map(record.visible, aux)) if has_aux else (shown, vjp_fn)


def _check_tensors(where: str, what: str, values: list[Any]) -> None:
    if not values:
        raise RuntimeError(f"{where}: Expected {what} to contain at least one Tensor")
    for x in values:
        if not isinstance(x, Tensor):
            raise RuntimeError(f"{where}: Expected {what} to be Tensors, got unsupported type {type(x)}")


def _without_aux(name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{name}(f, ...): output of function f should be a tuple: (output, aux) if has_aux is True, got "
            f"{type(result)}"
        )
    return result


def _chosen(args: tuple[Any, ...], argnums: Any) -> list[int]:
    """Positions of the arguments to differentiate by. Raises: RuntimeError out of range, for repeats and other types."""
    if isinstance(argnums, bool) or not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    chosen = (argnums,) if isinstance(argnums, int) else argnums
    if not chosen:
        raise RuntimeError("argnums must be a non-empty tuple")
    for n in chosen:
        if not isinstance(n, int):
            raise RuntimeError(f"argnums must be ints, got {n!r} of {type(n)}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    positions = [n % len(args) for n in chosen]
    if len(set(positions)) != len(positions):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return positions


def _of_chosen(func: Any, args: tuple[Any, ...], kwargs: Any, positions: list[int]) -> Any:
    """`func` as a function of the chosen arguments alone."""

    def inner(*chosen: Any) -> Any:
        given = list(args)
        for at, x in zip(positions, chosen, strict=True):
            given[at] = x
        return func(*given, **kwargs)

    return inner


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of `func` and its value, a scalar Tensor.

    Args:
        argnums: position (or positions) of the arguments to differentiate by.
        has_aux: whether `func` returns ``(value, aux)``; then the second result is that pair.
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        grads, record, value, aux = _gradients(func, argnums, has_aux, args, kwargs)
        shown = record.visible(value)
        return grads, (shown, tree_map(record.visible, aux)) if has_aux else shown

    return wrapped


def _gradients(func: Any, argnums: Any, has_aux: bool, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, _Record, Any, Any]:
    """Gradients of `func`, the run that they come from, and its value and what comes beside it, with their history."""
    positions = _chosen(args, argnums)
    chosen, spec = tree_flatten(tuple([args[i] for i in positions]))
    _check_tensors("grad_and_value(f)(*args)", "the differentiated arguments", chosen)
    inner = _of_chosen(func, args, kwargs, positions)
    record = _Record(lambda *xs: inner(*spec.unflatten(xs)), chosen)
    value, aux = _without_aux("grad_and_value", record.result, has_aux)
    if not isinstance(value, Tensor):
        raise RuntimeError(f"Expected f(*args) to return a tensor, got {type(value)}")
    if value.ndim != 0:
        raise RuntimeError(
            f"Expected f(*args) to return a scalar tensor, got tensor with {value.ndim} dims. "
            "Maybe you wanted to use the vjp or jacrev APIs instead?"
        )
    if value.is_complex():
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {value.dtype}; use vjp instead")
    record.outputs([value])
    grads = spec.unflatten(record.back([ones_like(value.detach())], keep=len(record.parts[0]) > 1))
    return (grads[0] if isinstance(argnums, int) else grads), record, value, aux


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of `func`, which returns a scalar Tensor, as a function of the same arguments.

    Args:
        argnums: position (or positions) of the arguments to differentiate by.
        has_aux: whether `func` returns ``(value, aux)``; then so does the gradient.

    >>> fb.func.grad(fb.func.grad(lambda x: x**3))(fb.tensor(2.0))
    tensor(12.)
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        grads, record, _, aux = _gradients(func, argnums, has_aux, args, kwargs)
        return (grads, tree_map(record.visible, aux)) if has_aux else grads

    return wrapped


# -- forward mode --------------------------------------------------------------------------------------------------------


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """The result of `func` at `primals`, and its derivative in the direction of `tangents` (tuples alike).

    Args:
        strict: raise where a result does not depend on the primals, in place of a zero tangent.
        has_aux: whether `func` returns ``(result, aux)``; then aux comes as a third value.
    Raises: RuntimeError for structures that differ and values that are not Tensors.

    >>> fb.func.jvp(fb.sin, (fb.tensor(0.0),), (fb.tensor(2.0),))
    (tensor(0.), tensor(2.))
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to call "
            f"f(*primals). Got {type(primals)}"
        )
    flat, spec = tree_flatten(primals)
    along, along_spec = tree_flatten(tangents)
    if spec != along_spec:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python structure. Got "
            f"{spec} and {along_spec}"
        )
    _check_tensors("jvp(f, primals, tangents)", "primals", flat)
    _check_tensors("jvp(f, primals, tangents)", "tangents", along)
    for x, t in zip(flat, along, strict=True):
        if x.shape != t.shape:
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected tangent to have the shape of its primal, {tuple(x.shape)}, got "
                f"{tuple(t.shape)}"
            )
    level = ForwardLevel()
    _dispatch.push(level)
    try:
        duals = [level.dual(x, t) for x, t in zip(flat, along, strict=True)]
        result, aux = _without_aux("jvp", func(*spec.unflatten(duals)), has_aux)
    finally:
        _dispatch.pop(level)
    results, out_spec = tree_flatten(result)
    _check_tensors("jvp(f, primals, tangents)", "results of f", results)
    found = [_tangent(level, y, strict) for y in results]
    shown = out_spec.unflatten([level.primal_of(y) for y in results])
    both = (shown, out_spec.unflatten(found))
    hidden = tree_map(lambda x: level.primal_of(x) if isinstance(x, Tensor) else x, aux)
    return (*both, hidden) if has_aux else both


def _tangent(level: ForwardLevel, y: Tensor, strict: bool) -> Tensor:
    found = level.tangent_of(y)
    if found is None:
        if strict:
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
                "allowed with strict=True."
            )
        return zeros_like(y.detach())
    return found


def jvp_through_vjp(op: Any, args: Any, tangents: Any) -> list[Tensor | None]:
    """The tangents of the results of `op`, whose vjp is the only rule, where levels surround it."""
    flat, spec = tree_flatten(list(args))
    moving = [i for i, t in enumerate(_lined_up(args, tangents)) if t is not None]
    directions = [t for t in _lined_up(args, tangents) if t is not None]
    kinds: list[bool] = []

    def of_moving(*xs: Tensor) -> Any:
        given = list(flat)
        for i, x in zip(moving, xs, strict=True):
            given[i] = x
        made = _dispatch.interpret(op, tuple(spec.unflatten(given)))
        made = made if isinstance(made, tuple) else (made,)
        kinds[:] = [m.dtype.is_floating_point or m.dtype.is_complex for m in made]
        return tuple(m for m, kind in zip(made, kinds, strict=True) if kind)

    record = _Record(of_moving, [flat[i] for i in moving])
    record.outputs(list(record.result))
    transposed = _transposed(record, list(record.result))
    found = iter(transposed.back([t.to(flat[i].dtype) for i, t in zip(moving, directions, strict=True)]))
    return [next(found) if kind else None for kind in kinds]


def _transposed(record: _Record, results: list[Tensor]) -> _Record:
    """The record of going back through `record`, which is linear in the cotangents: going back through it is the jvp."""
    made = _Record(lambda *vs: tuple(record.back(list(vs))), [zeros_like(y.detach()) for y in results])
    made.own |= record.own
    made.outputs(list(made.result))
    return made


def _lined_up(args: Any, tangents: Any) -> list[Any]:
    """One tangent (or None) for each leaf of `args`."""
    lined: list[Any] = []
    for a, t in zip(args, tangents, strict=True):
        lined += t if isinstance(t, list) else [t] if isinstance(a, Tensor) or t is not None else [None] * len(tree_flatten(a)[0])
    return lined


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The result of `func` at `primals`, and its derivative there as a linear function of tangents.

    `func` runs once, however often the derivative is used.
    """
    flat, primal_spec = tree_flatten(primals)
    _check_tensors("linearize(f, *primals)", "primals", flat)
    with saved_as_they_were():                        # `func` may write over what its derivative reads
        record = _Record(lambda *xs: func(*primal_spec.unflatten(xs)), flat)
    results, spec = tree_flatten(record.result)
    _check_tensors("linearize(f, *primals)", "results of f", results)
    record.outputs(results)
    transposed = _transposed(record, results)
    result = spec.unflatten([record.visible(y) for y in results])

    def jvp_fn(*tangents: Any) -> Any:
        along, given_spec = tree_flatten(tangents)
        if given_spec != primal_spec:
            raise RuntimeError(f"Expected the tangents {given_spec} to have the same argspec as the primals {primal_spec}")
        for x, t in zip(flat, along, strict=True):
            if x.shape != t.shape or x.dtype is not t.dtype:
                raise RuntimeError(
                    f"linearize: a tangent has shape {tuple(t.shape)} and dtype {t.dtype}, its primal {tuple(x.shape)} and {x.dtype}"
                )
        return spec.unflatten(transposed.back(along))

    return result, jvp_fn


# -- jacobians -----------------------------------------------------------------------------------------------------------


def _basis(leaves: list[Tensor]) -> list[Tensor]:
    """The unit vectors of the space all `leaves` span together, one batch per leaf."""
    counts = [x.numel() for x in leaves]
    total = sum(counts)
    made = []
    start = 0
    for x, n in zip(leaves, counts, strict=True):
        rows = zeros(total, n, dtype=x.dtype, device=x.device)
        rows.diagonal(-start).fill_(1)
        made.append(rows.view(total, *x.shape))
        start += n
    return made


def _cut(x: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """The rows of `x`, one per unit vector, shaped as the leaves they belong to."""
    pieces = x.split([y.numel() for y in leaves])
    return [p.reshape(*y.shape, *x.shape[1:]) for p, y in zip(pieces, leaves, strict=True)]


def jacrev(
    func: Callable[..., Any], argnums: Any = 0, *, has_aux: bool = False, chunk_size: int | None = None, _preallocate_and_copy: bool = False
) -> Callable[..., Any]:
    """The jacobian of `func` by reverse mode: for each result and argument a tensor of shape ``(*result, *argument)``.

    Args:
        argnums: position (or positions) of the arguments to differentiate by.
        has_aux: whether `func` returns ``(result, aux)``; then so does the jacobian.
        chunk_size: how many rows to compute at a time; all by default.

    >>> fb.func.jacrev(fb.cumsum)(fb.ones(2), 0)
    tensor([[1., 0.],
            [1., 1.]])
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        positions = _chosen(args, argnums)
        inner = _of_chosen(func, args, kwargs, positions)
        made = vjp(inner, *(args[i] for i in positions), has_aux=has_aux)
        results, out_spec = tree_flatten(made[0])
        spec = tree_flatten(tuple(args[i] for i in positions))[1]
        pull = lambda *vs: tuple(tree_flatten(made[1](out_spec.unflatten(vs)))[0])  # noqa: E731
        columns = vmap(pull, chunk_size=chunk_size)(*_basis(results))
        rows = zip(*(_cut(c, results) for c in columns), strict=True)
        jacobian = out_spec.unflatten([_shaped(spec, list(row), argnums) for row in rows])
        return (jacobian, made[2]) if has_aux else jacobian

    return wrapped


def _shaped(spec: Any, leaves: list[Tensor], argnums: Any) -> Any:
    tree = spec.unflatten(leaves)
    return tree[0] if isinstance(argnums, int) else tree


def jacfwd(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error") -> Callable[..., Any]:
    """As `jacrev`, by forward mode: one pass for each element of the arguments.

    Args:
        randomness: as for `vmap`.
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        positions = _chosen(args, argnums)
        inner = _of_chosen(func, args, kwargs, positions)
        primals, spec = tree_flatten(tuple(args[i] for i in positions))
        _check_tensors("jacfwd(f)(*args)", "the differentiated arguments", primals)
        found: dict[str, Any] = {}

        def push(*tangents: Tensor) -> Any:
            _, tangent, *aux = jvp(inner, spec.unflatten(primals), spec.unflatten(tangents), has_aux=has_aux)
            found["spec"] = tree_flatten(tangent)[1]
            return (tuple(tree_flatten(tangent)[0]), *aux)

        columns, *aux = vmap(push, randomness=randomness, out_dims=(0, None) if has_aux else (0,))(*_basis(primals))
        leaves = []
        for c in columns:  # (elements of the arguments, *result)
            parts = c.split([x.numel() for x in primals])
            leaves.append([p.movedim(0, -1).reshape(*c.shape[1:], *x.shape) for p, x in zip(parts, primals, strict=True)])
        jacobian = found["spec"].unflatten([_shaped(spec, row, argnums) for row in leaves])
        return (jacobian, aux[0]) if has_aux else jacobian

    return wrapped


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """The second derivatives of `func`, forward over reverse."""
    return jacfwd(jacrev(func, argnums), argnums)
