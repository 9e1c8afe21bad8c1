"""The backward engine: carries gradients from roots to leaves, newest node first.

A consumer of a value is always recorded after its producer, so popping nodes by falling `seq` meets every node only when
all its gradients have arrived; no pass to count edges is needed, nothing recurses, and graphs of any depth work.
Gradients travel as arrays, or as Tensors when the graph of the gradient itself is wanted.
"""

from __future__ import annotations

import sys
from heapq import heappop, heappush
from typing import Any

import numpy as np

from flambeau_kernels import small

from .. import _state
from .tape import Leaf, Node, OutputNode, shown_line

ndarray = np.ndarray
_wrap: Any = None  # tensor.wrap, set by tensor.py to keep imports one-way
_add: Any = None  # ops' add on Tensors, set by ops


class Freed:
    """What `saved` of a node becomes once its graph has been used up."""


FREED = Freed()


def run_backward(
    roots: list[tuple[Node, Any]],
    keep_graph: bool,
    create_graph: bool,
    targets: dict[Node, int] | None = None,
    accumulate: bool = True,
) -> list[Any]:
    """Carry the gradients of `roots` back.

    Args:
        roots: pairs of node and gradient (array, or Tensor under `create_graph`).
        targets: nodes whose arriving gradient is returned, with their place in the result; None means all leaves.
        accumulate: whether leaves that are reached add to their tensor's `.grad`.
    Returns: gradients of `targets`, None where nothing arrived.
    """
    found: list[Any] = [None] * (len(targets) if targets else 0)
    wanted = None if targets is None else nodes_leading_to(roots, targets)
    local = _state.local
    before = local.grad, local.wanted, local.roots
    local.wanted, local.roots = wanted, roots
    try:
        _run(roots, keep_graph, create_graph, targets, wanted, accumulate, found)
    finally:
        local.wanted, local.roots = before[1:]
        _state.set_grad(before[0])
    return found


def wanted_parents(node: Node) -> Any:
    """`node.parents`, with None for those whose gradient the backward that runs on this thread has no use for."""
    wanted = _state.local.wanted
    return node.parents if wanted is None else [p if p in wanted else None for p in node.parents]


def _run(
    roots: Any, keep_graph: bool, create_graph: bool, targets: Any, wanted: Any, accumulate: bool, found: list[Any]
) -> None:
    # Rules on arrays do not care whether operations are recorded; what runs on Tensors switches that itself.
    pending: dict[Node, Any] = {}
    heap: list[tuple[int, Node]] = []
    owned: set[Node] = set()  # nodes whose pending array was made here
    for node, grad in roots:
        if wanted is None or node in wanted:
            _arrive(pending, heap, owned, node, grad, create_graph)
    roots = grad = None  # a reference kept here would look like somebody else's
    while heap:
        node = heappop(heap)[1]
        grad = pending.pop(node)
        kind = node.__class__
        if node.hooks:
            grad = _before(node, grad, create_graph)
        if targets is not None and node in targets:
            found[targets[node]] = grad
            if node not in wanted["through"]:
                continue
        if kind is Leaf:
            if accumulate:
                accumulate_grad(node, grad, create_graph)  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out
            continue
        if kind is OutputNode:
            multi = node.parents[0]
            slots = pending.get(multi)
            if slots is None:
                slots = pending[multi] = [None] * multi.shape
                heappush(heap, (-multi.seq, multi))
            slots[node.index] = grad
            continue
        if node.saved is FREED:
            raise_freed(node)
        if node.adds_piece and node.parents[0] in owned and not node.hooks and node.add_piece(pending[node.parents[0]], grad):
            grad = None
            if not keep_graph and node.versions:
                node.saved = FREED
            continue
        if node.has_raw and not create_graph:
            grads = node.raw(grad)
        else:
            grads = through_tensors(node, grad, create_graph)
        if node.hooks and "post" in node.hooks:
            grads = _after(node, grads, grad, create_graph)
        if not keep_graph and node.versions:          # a node without versions saved no tensor, and can run again
            node.saved = FREED
        for parent, arriving in zip(node.parents, grads):  # noqa: B905  # strict costs 40 ns a node
            if parent is not None and arriving is not None and (wanted is None or parent in wanted):
                have = pending.get(parent)
                if have is None:
                    pending[parent] = arriving
                    heappush(heap, (-parent.seq, parent))
                elif parent not in owned or small.add_(have, arriving) is None:
                    _arrive(pending, heap, owned, parent, arriving, create_graph)
        grad = grads = arriving = have = None


def raise_freed(node: Node) -> None:
    """Raise RuntimeError for a graph that an earlier backward used up."""
    where = node.made_at()
    place = f" at {shown_line(where)}" if where else ""
    hint = "" if where else "; autograd.detect_anomaly() shows the line that recorded it"
    raise RuntimeError(
        f"Trying to backward through the graph a second time: what {node.name()} saved{place} was freed by the first. "
        f"Give retain_graph=True to the first backward() or autograd.grad() to keep it{hint}"
    )


def _arrive(pending: Any, heap: Any, owned: Any, node: Node, grad: Any, as_tensors: bool) -> None:
    """Add `grad` to what has arrived at `node`."""
    have = pending.get(node)
    if have is None:
        pending[node] = grad
        heappush(heap, (-node.seq, node))
    elif as_tensors:
        pending[node] = _add(have, grad)
    elif type(have) is not ndarray or type(grad) is not ndarray:
        _state.set_grad(False)
        pending[node] = _add(_wrap(have), _wrap(grad))._a
    elif node in owned and have.dtype == grad.dtype:
        np.add(have, grad, out=have)
    else:
        total = small.add(have, grad)
        pending[node] = total = np.asarray(have + grad) if total is None else total
        if total.dtype == have.dtype:
            owned.add(node)


def through_tensors(node: Node, grad: Any, create_graph: bool) -> Any:
    """Run the rule on Tensors; without `create_graph` arrays are wrapped on the way in and unwrapped on the way out."""
    _state.set_grad(create_graph)
    if create_graph:
        return node.vjp(grad)
    if type(grad) is list:
        given: Any = [None if g is None else _wrap(g) for g in grad]
    else:
        given = _wrap(grad)
    return [None if g is None else g._a for g in node.vjp(given)]


def nodes_leading_to(roots: Any, targets: dict[Node, int]) -> dict[Any, Any]:
    """Nodes on a path from `roots` to `targets`; under 'through', the targets that lie on the way to others."""
    seen: set[Node] = set()
    order: list[Node] = []
    stack = [node for node, _ in roots]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            order.append(node)
            stack += [p for p in node.parents if p is not None and p not in seen]
    order.sort(key=_by_seq)
    leading: dict[Any, Any] = {}
    through = set()
    for node in order:  # oldest first, so parents are decided before their consumers
        onward = any(p is not None and p in leading for p in node.parents)
        if onward:
            through.add(node)
        if onward or node in targets:
            leading[node] = True
    leading["through"] = through
    return leading


def _by_seq(node: Node) -> int:
    return node.seq


# -- leaves --------------------------------------------------------------------------------------------------------------


def accumulate_grad(leaf: Leaf, grad: Any, as_tensor: bool) -> None:
    """Add `grad` to the gradient of `leaf`'s tensor."""
    tensor = leaf.tensor()
    if tensor is None:
        return
    have = tensor._g
    if as_tensor:
        tensor._g = grad if have is None else _add(have, grad)
    elif have is None:
        if type(grad) is ndarray:
            alone = sys.getrefcount(grad) <= _REFERENCES_ALONE and grad.flags.writeable and _owns(grad)
            grad = grad if alone else _copy(grad, tensor._a)
        else:
            grad = _copy(grad, tensor._a)
        tensor._g = _wrap(grad)
    elif small.add_(have._a, grad) is not None:
        have._v[0] += 1
    elif type(have._a) is ndarray and type(grad) is ndarray and have._a.dtype == grad.dtype:
        np.add(have._a, grad, out=have._a)
        have._v[0] += 1
    else:
        _state.set_grad(False)
        tensor._g = _add(have.detach(), _wrap(grad))
    if leaf.hooks and "accumulated" in leaf.hooks:
        _state.set_grad(as_tensor)
        for fn in list(leaf.hooks["accumulated"].values()):
            fn(tensor)


def _owns(grad: Any) -> bool:
    """Whether nothing but `grad` refers to its memory: it is no view, or one of the whole of an array no one else has."""
    base = grad.base
    return base is None or (type(base) is ndarray and base.size == grad.size and sys.getrefcount(base) <= _VIEWED_ALONE)


def _viewed_alone() -> int:
    """What `sys.getrefcount` says in `_owns` of an array that only a view refers to."""
    grad = np.empty(1).reshape(1, 1)
    base = grad.base
    return sys.getrefcount(base)


_VIEWED_ALONE = _viewed_alone()


def _references_alone() -> int:
    """What `sys.getrefcount` says in `accumulate_grad` of an array that only `_run` and `accumulate_grad` refer to.

    The count depends on how an interpreter passes arguments, so it is taken from calls of the same form.
    """

    def accumulate(leaf: Any, grad: Any, as_tensor: bool) -> int:
        return sys.getrefcount(grad)

    def run() -> int:
        pending = {0: np.empty(1)}
        grad = pending.pop(0)
        return accumulate(None, grad, False)

    return run()


_REFERENCES_ALONE = _references_alone()


def _copy(grad: Any, like: Any) -> Any:
    """`grad` in memory of its own, laid out as the tensor it belongs to."""
    if type(grad) is not ndarray:
        return grad.copy() if hasattr(grad, "get") else grad
    if like.shape == grad.shape and not like.flags.c_contiguous:
        made = np.empty_like(like, dtype=grad.dtype)
        made[...] = grad
        return made
    return np.array(grad, order="C")


# -- hooks ---------------------------------------------------------------------------------------------------------------


def _before(node: Node, grad: Any, as_tensors: bool) -> Any:
    _state.set_grad(as_tensors)
    hooks = node.hooks
    if "tensor" in hooks or "retain" in hooks:
        value = grad if as_tensors else _wrap(grad)
        for fn in list(hooks.get("tensor", {}).values()):
            value = _replaced(fn(value), value, fn)
        for fn in list(hooks.get("retain", {}).values()):
            fn(value)
        grad = value if as_tensors else value._a
    if "pre" in hooks:
        given = tuple(_as_tensor(g, as_tensors) for g in (grad if type(grad) is list else [grad]))
        for fn in list(hooks["pre"].values()):
            result = fn(given)
            if result is not None:
                given = result if isinstance(result, tuple) else (result,)
        back = [g if as_tensors or g is None else g._a for g in given]
        grad = back if type(grad) is list else back[0]
    return grad


def _after(node: Node, grads: Any, arrived: Any, as_tensors: bool) -> Any:
    _state.set_grad(as_tensors)
    given = tuple(_as_tensor(g, as_tensors) for g in grads)
    outs = tuple(_as_tensor(g, as_tensors) for g in (arrived if type(arrived) is list else [arrived]))
    for fn in list(node.hooks["post"].values()):
        result = fn(given, outs)
        if result is not None:
            given = result if isinstance(result, tuple) else (result,)
    return given if as_tensors else [None if g is None else g._a for g in given]


def _as_tensor(grad: Any, is_tensor: bool) -> Any:
    return grad if is_tensor or grad is None else _wrap(grad)


def _replaced(result: Any, value: Any, fn: Any) -> Any:
    if result is None:
        return value
    if not hasattr(result, "_a"):
        raise TypeError(f"hook {getattr(fn, '__name__', fn)!r} should return a Tensor or None, got {type(result).__name__}")
    if result.shape != value.shape:
        raise RuntimeError(f"hook {fn!r} has changed the size of value: {tuple(value.shape)} to {tuple(result.shape)}")
    if result._a.dtype != value._a.dtype:
        raise RuntimeError(f"hook {fn!r} has changed the type of value: {value.dtype} to {result.dtype}; convert it back before returning")
    return result
