"""The backward engine: carries gradients from roots to leaves, newest node first.

A consumer of a value is always recorded after its producer, so popping nodes by falling `seq` meets every node only when
all its gradients have arrived; no pass to count edges is needed, nothing recurses, and graphs of any depth work.
Leaves come last so, which only hooks can tell from PyTorch's order: when one is met, leaves get their turn as soon as the
last node that has a gradient for them has run (`_give_turns`).
Gradients travel as arrays, or as Tensors when the graph of the gradient itself is wanted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from heapq import heappop, heappush, heappushpop
from typing import Any

import numpy as np

from flambeau_kernels.arithmetic import PLUS
from flambeau_kernels.cpu.shapes import move
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from .. import _state
from .._arrays import HeldArray, contiguous_strides, empty_like_layout, is_dense
from .._interpreters import unrecorded
from .._kinds import KindArray
from ..dtypes import FLOATING, from_numpy_dtype
from .tape import AT_ONCE, Leaf, Node, OutputNode, shown_line

ndarray = np.ndarray
_wrap: Any = None  # tensor.wrap, set by tensor.py to keep imports one-way
_add: Any = None  # ops' add on Tensors, set by ops


class Freed:
    """What `saved` of a node becomes once its graph has been used up."""


FREED = Freed()
# A backward inside a backward begins a thread of its own after so many, each of which takes some 20 frames of Python's 1000.
_NESTED_IN_A_THREAD = 20


class _Call:
    """What one backward is asked for.

    `places` says for each node that makes a target which of its results it is (None for the only one), and where in
    `found` its gradient goes. `wanted` has the nodes that lead to targets; both are None without targets. Gradients are
    Tensors if `as_tensors`, else arrays.
    """

    __slots__ = ("accumulate", "as_tensors", "create_graph", "found", "places", "wanted")

    def __init__(self, roots: Any, targets: dict[Node, int] | None, accumulate: bool, create_graph: bool, as_tensors: bool) -> None:
        self.accumulate, self.create_graph, self.as_tensors = accumulate, create_graph, as_tensors
        self.found: list[Any] = [None] * (len(targets) if targets else 0)
        self.wanted = None if targets is None else nodes_leading_to(roots, targets)
        self.places: dict[Node, list[tuple[int | None, int]]] = {}
        for node, place in (targets or {}).items():
            if node.__class__ is OutputNode:
                self.places.setdefault(node.parents[0], []).append((node.index, place))  # pyright: ignore[reportAttributeAccessIssue]  # an output's
            else:
                self.places.setdefault(node, []).append((None, place))


# By `create_graph + as_tensors`.
_TO_LEAVES = _Call((), None, True, False, False), _Call((), None, True, False, True), _Call((), None, True, True, True)


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
        accumulate: whether leaves that are reached add to their tensor's `.grad`, and targets run as well: `backward`;
            else gradients are only looked at: `grad`.
    Returns: gradients of `targets`, None where nothing arrived, and for leaves that it was added to. They are Tensors under
        `create_graph`, and while an interpreter of this thread sees what backward computes; else arrays.
    """
    local = _state.local
    running = local.backward
    outer = running.nested
    if outer == _NESTED_IN_A_THREAD:
        from .reentrant import in_a_thread

        return in_a_thread(run_backward, roots, keep_graph, create_graph, targets, accumulate)
    as_tensors = create_graph
    if not create_graph:
        as_tensors = _state.IN_FORCE and any(x.sees_backward for x in local.calls.interpreters)
        for _, grad in roots:
            if grad.__class__ is HeldArray:
                as_tensors = True
        if as_tensors:
            roots = [(node, _wrap(grad)) for node, grad in roots]
        grad = None
    observer = _state.observer() if _state.IN_FORCE else None
    call = _TO_LEAVES[create_graph + as_tensors] if targets is None else _Call(roots, targets, accumulate, create_graph, as_tensors)
    recording, before = local.recording, (running.wanted, running.roots)
    asked = recording.asked
    running.wanted, running.roots, running.nested = call.wanted, roots, outer + 1
    quiet = ignore_fp_flags()                                    # gradients may be infinite, and sums of them nan
    try:
        _run(roots, call, keep_graph, observer)
        if running.at_end and not outer:
            _finish(running)
    except MemoryError as error:
        raise RuntimeError(f"backward: can't allocate memory for a gradient: {error}") from error
    finally:
        restore_fp_flags(quiet)
        running.wanted, running.roots = before
        running.nested = outer
        if running.at_end and not outer:              # it failed
            running.at_end = ()
        if recording.asked is not asked:
            _state.set_grad(asked)
    return call.found


def queue_callback(fn: Callable[[], Any]) -> None:
    """Call ``fn()`` when the backward that runs on this thread has ended, the outermost of several inside each other.

    Raises: RuntimeError outside of backward.
    """
    running = _state.local.backward
    if not running.nested:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    running.at_end = [*running.at_end, fn]


def _finish(running: _state.Backward) -> None:
    while running.at_end:
        waiting, running.at_end = running.at_end, ()
        for fn in waiting:
            fn()


def wanted_parents(node: Node) -> Any:
    """`node.parents`, with None for those whose gradient the backward that runs on this thread has no use for."""
    wanted = _state.local.backward.wanted
    return node.parents if wanted is None else [p if p in wanted else None for p in node.parents]


def _run(roots: Any, call: _Call, keep_graph: bool, observer: Any) -> None:
    # Rules on arrays do not care whether operations are recorded; what runs on Tensors switches that itself.
    wanted, places, as_tensors = call.wanted, call.places, call.as_tensors
    through = None if not as_tensors and observer is None else _by_observed_rule if observer is not None else _by_rule_on_tensors
    pending: dict[Node, Any] = {}
    heap: list[tuple[int, Node]] = []
    owned: set[Node] = set()  # nodes whose pending array was made here
    # The first parent that the last node had a gradient for: it comes next, unless the heap has a newer node. Most have one parent.
    following: Any = None
    for node, grad in roots:
        if wanted is None or node in wanted:
            if pending:
                arrive(pending, heap, owned, node, grad, as_tensors)
            else:
                pending[node] = grad
                following = node
    roots = grad = None  # a reference kept here would look like somebody else's
    turns_given, ran = False, None
    while True:
        if following is not None:
            node, following = following, None
            if heap:
                key, node = heappushpop(heap, (-node.seq, node))
            else:
                key = -node.seq
        elif heap:
            key, node = heappop(heap)
        else:
            return
        if node.more_than_rule and node.__class__ is OutputNode:
            _hand_on(node, pending, heap)
            continue
        hooks = node.hooks
        if hooks or places and node in places:
            grad = pending.get(node)
            if grad is None:                          # a leaf that has had its turn, or got no gradient
                continue
            if hooks and (not turns_given or key == -AT_ONCE):
                grad = None
                if not turns_given:
                    turns_given = True
                    if node.__class__ is not Leaf:
                        heappush(heap, (key, node))
                    _give_turns(pending, heap, wanted, ran)
                continue
            del pending[node]
            grad = _met(call, node, grad)
            if grad is _ENDS:
                continue
        else:
            grad = pending.pop(node, None)
            if grad is None:
                continue
        if node.more_than_rule:
            if node.__class__ is Leaf:
                if observer is not None:
                    observer.begins_node(node)
                accumulate_grad(node, grad, call)  # pyright: ignore[reportArgumentType]  # its class says that it is one
                if observer is not None:
                    observer.ends_leaf(node)
                continue
            if node.group is not None:
                if through is None and node.group.run(node, grad, pending, heap, owned, call, keep_graph):
                    grad = None
                    continue
            elif (
                node.parents[0] in owned and not hooks and node.saved is not FREED
                and node.add_piece(pending[node.parents[0]], grad)
            ):  # fmt: skip
                grad = None
                if not keep_graph and node.versions:
                    node.saved = FREED
                continue
        if node.saved is FREED:
            raise_freed(node)
        if through is not None:
            grads = through(node, grad, call, observer)
        elif node.has_array_vjp:
            grads = node.vjp_on_arrays(grad)
            if node.more_than_rule and node.add_piece is not None and not hooks and node.parents[0] not in pending:
                whole = grads[0]                      # zeros but for this part: the next ones are added where they lie
                if whole.__class__ is ndarray and whole is not grad and whole.flags.owndata:
                    owned.add(node.parents[0])
                whole = None
        else:
            grads = through_tensors(node, grad)
        if node.hooks and "post" in node.hooks:
            grads = _after(node, grads, grad, call)
        if not keep_graph and node.versions:          # a node without versions saved no tensor, and can run again
            node.saved = FREED
        ran = node
        for parent, arriving in zip(node.parents, grads):  # noqa: B905  # strict costs 40 ns a node
            if parent is not None and arriving is not None and (wanted is None or parent in wanted):
                have = pending.get(parent)
                if have is None:
                    pending[parent] = arriving
                    if following is None:
                        following = parent
                    else:
                        heappush(heap, (-parent.seq, parent))
                elif parent not in owned or PLUS.formula.direct_(have, arriving) is None:
                    arrive(pending, heap, owned, parent, arriving, as_tensors)
        grad = grads = arriving = have = None


def _hand_on(node: Any, pending: Any, heap: Any) -> None:
    """Let the node of several results have what has arrived at `node`, one of them."""
    producer = node.parents[0]
    grads = pending.get(producer)
    if grads is None:
        grads = pending[producer] = [None] * producer.shape
        heappush(heap, (-producer.seq, producer))
    grads[node.index] = pending.pop(node)


def _give_turns(pending: Any, heap: Any, wanted: Any, ran: Any) -> None:
    """Let each leaf that `pending` nodes lead to come right after the last of them that has a gradient for it.

    What waits for no node comes now, in the order of arrival; `ran` is the node that has just run.
    """
    last: dict[Any, Any] = {node: None for node in pending if node.__class__ is Leaf}
    if ran is not None and ran.turns is not None:
        for leaf in [ran.parents[place] for place in ran.turns]:
            if leaf in last:
                last[leaf] = last.pop(leaf)           # among what has arrived, these came last
    stack = list(pending)
    seen = set(stack)
    while stack:
        node = stack.pop()
        for parent in node.parents:
            if parent is None or wanted is not None and parent not in wanted:
                continue
            if parent.__class__ is Leaf:
                before = last.get(parent)
                if before is None or node.seq < before.seq:
                    last[parent] = node
            elif parent not in seen:
                seen.add(parent)
                stack.append(parent)
    for i, (leaf, node) in enumerate(last.items()):
        heappush(heap, (1 + i - AT_ONCE if node is None else 0.5 - node.seq + 0.25 * _turn_at(node, leaf), leaf))


def _turn_at(node: Node, leaf: Any) -> float:
    """Where among the parents of `node` the turn of `leaf` comes, from 0 to 1."""
    place = node.parents.index(leaf)
    return (place if node.turns is None else node.turns.index(place)) / len(node.parents)


def _by_rule_on_tensors(node: Node, grad: Any, call: _Call, observer: Any) -> Any:
    _state.set_grad(call.create_graph)
    calls = _state.local.calls
    calls.composing += 1                              # what a rule makes on its way is of the class of its operands
    try:
        return node.vjp(grad)
    finally:
        calls.composing -= 1


def _by_observed_rule(node: Node, grad: Any, call: _Call, observer: Any) -> Any:
    """The gradients of the parents of `node` by the rule that plain backward takes, between two words to the profiler."""
    observer.begins_node(node)
    grads = None
    try:
        if call.as_tensors:
            grads = _by_rule_on_tensors(node, grad, call, observer)
        else:
            grads = node.vjp_on_arrays(grad) if node.has_array_vjp else through_tensors(node, grad)
    finally:
        observer.ends_node(node, grad, grads)
    return grads


def raise_freed(node: Node) -> None:
    """Raise RuntimeError for a graph that an earlier backward used up."""
    where = node.made_at()
    place = f" at {shown_line(where)}" if where else ""
    hint = "" if where else "; autograd.detect_anomaly() shows the line that recorded it"
    raise RuntimeError(
        f"Trying to backward through the graph a second time: what {node.name()} saved{place} was freed by the first. "
        f"Give retain_graph=True to the first backward() or autograd.grad() to keep it{hint}"
    )


def arrive(pending: Any, heap: Any, owned: Any, node: Node, grad: Any, as_tensors: bool) -> None:
    """Add `grad` to what has arrived at `node`."""
    have = pending.get(node)
    if have is None:
        pending[node] = grad
        heappush(heap, (-node.seq, node))
    elif as_tensors:
        pending[node] = _add(have, grad)
    elif type(have) is not ndarray or type(grad) is not ndarray:
        _state.set_grad(False)
        pending[node] = _add(_wrap(have), _wrap(grad))._array
    elif node in owned and have.dtype == grad.dtype:
        PLUS.into(have, grad)
    elif have.dtype == grad.dtype and not (have.flags.c_contiguous and grad.flags.c_contiguous):
        # The first that arrives says how the sum lies in memory, as the first operand of any addition.
        pending[node] = total = empty_like_layout(have.shape, have.dtype, (have, grad))
        PLUS.fill(total, have, grad)
        owned.add(node)
    else:
        pending[node] = total = PLUS(have, grad)
        if total.dtype == have.dtype:
            owned.add(node)


def _unrecorded(x: Any) -> Any:
    return unrecorded(x) if _state.INTERPRETED else x.detach()


def through_tensors(node: Node, grad: Any) -> Any:
    """Run the rule on Tensors without recording; arrays are wrapped on the way in and unwrapped on the way out."""
    _state.set_grad(False)
    if type(grad) is list:
        given: Any = [None if g is None else _wrap(g) for g in grad]
    else:
        given = _wrap(grad)
    return [None if g is None else g._array for g in node.vjp(given)]


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
        for parent in node.parents:
            if parent in leading:
                through.add(node)
                leading[node] = True
                break
        else:
            if node in targets:
                leading[node] = True
    leading["through"] = through
    return leading


def _by_seq(node: Node) -> int:
    return -1 if node.__class__ is Leaf else node.seq


# -- leaves --------------------------------------------------------------------------------------------------------------


def accumulate_grad(leaf: Leaf, grad: Any, call: _Call) -> None:
    """Add `grad` to the gradient of `leaf`'s tensor, unless that has been told since to require none."""
    tensor = leaf.tensor()
    if tensor is None or tensor._node is None:
        return
    have = tensor._gradient
    if call.as_tensors:
        _state.set_grad(call.create_graph)
        grad = in_dtype(grad, tensor._array.dtype)
        if have is None:
            tensor._gradient = _laid_out_tensor(grad, tensor._array)
        elif call.create_graph:
            tensor._gradient = _add(have, grad)
        else:
            have.add_(grad)
    elif have is None:
        like = tensor._array
        if type(grad) is ndarray and (grad.dtype is like.dtype or grad.dtype == like.dtype):
            alone = sys.getrefcount(grad) <= _REFERENCES_ALONE
            if not (alone and like.__class__ is ndarray and (flags := grad.flags).carray and flags.owndata and like.flags.c_contiguous):
                alone = alone and grad.flags.writeable and _owns(grad)
                grad = grad if alone and _is_laid_out(grad, like) else _copy(grad, like)
        else:
            grad = _copy(in_dtype(_wrap(grad), like.dtype)._array, like)
        tensor._gradient = _wrap(grad)
    elif have._array.shape != grad.shape:
        raise RuntimeError(
            f"a gradient of shape {tuple(grad.shape)} cannot be added to .grad of shape {tuple(have._array.shape)}, which was kept of a "
            "tensor that has another shape now: set .grad to None first"
        )
    elif type(have._array) is ndarray and type(grad) is ndarray and have._array.dtype == grad.dtype:
        PLUS.into(have._array, grad)
        have._storage[0] += 1
    else:
        _state.set_grad(False)
        tensor._gradient = _add(_unrecorded(have), in_dtype(_wrap(grad), tensor._array.dtype))
    hooks = leaf.hooks
    if hooks and ("accumulated" in hooks or "post" in hooks):
        _state.set_grad(call.create_graph)
        for fn in list(hooks.get("accumulated", {}).values()):
            returned = fn(tensor)
            if returned is not None and returned is not tensor:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")
        for fn in list(hooks.get("post", {}).values()):
            fn((), (_as_tensor(grad, call.as_tensors),))


def in_dtype(grad: Any, dtype: Any) -> Any:
    """The Tensor `grad` in the numpy `dtype` of what it is the gradient of; the real part where that is real."""
    if grad._array.dtype == dtype:
        return grad
    if grad._array.dtype.kind == "c" and dtype.kind != "c":
        grad = grad.real
    return grad.to(from_numpy_dtype(dtype))


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
        grad = pending[0]
        del pending[0]
        return accumulate(None, grad, False)

    return run()


_REFERENCES_ALONE = _references_alone()


def _is_laid_out(grad: Any, like: Any) -> bool:
    """Whether `grad` lies in memory as the gradient of `like` does: in the same order if that is dense, else row by row."""
    if isinstance(like, KindArray):
        return True
    if grad.flags.c_contiguous:
        return like.flags.c_contiguous or not is_dense(like)
    return grad.strides == like.strides and is_dense(like)


def _copy(grad: Any, like: Any) -> Any:
    """`grad` in memory of its own, laid out as the tensor it belongs to."""
    if type(grad) is not ndarray:
        return _laid_out_tensor(_wrap(grad), like)._array
    if isinstance(like, KindArray) or like.flags.c_contiguous or not is_dense(like):
        return move.in_rows(grad)
    made = np.ndarray(like.shape, grad.dtype, np.empty(like.size, grad.dtype), 0, like.strides)
    if not move.into(made, grad):
        made[...] = grad
    return made


def _laid_out_tensor(grad: Any, like: Any) -> Any:
    """A copy of the Tensor `grad`, recorded where that is on, laid out as the tensor with the array `like`; of a wrapper itself."""
    if isinstance(grad._array, (HeldArray, KindArray)):
        return grad
    if isinstance(like, KindArray):
        return grad.clone()
    step = like.itemsize
    strides = like.strides if is_dense(like) else contiguous_strides(like.shape, step)
    made = grad.detach().new_empty_strided(like.shape, tuple(s // step for s in strides))
    return made.copy_(grad)


# -- hooks ---------------------------------------------------------------------------------------------------------------


_ENDS = object()  # instead of a gradient: the node does not run


def _met(call: _Call, node: Node, grad: Any) -> Any:
    """Hand out the gradient that has arrived at `node` to hooks and to who asked for it; `_ENDS` if that is all.

    The order is PyTorch's: hooks of the tensors, the gradient that was asked for, hooks of the node. From a node that runs
    for the sake of others, `grad` takes what arrived before all hooks.
    """
    places = call.places.get(node)
    runs = call.accumulate or node in call.wanted["through"]
    early = places is not None and runs and not call.accumulate
    if early:
        _hand_out(call, places, grad)
    if node.hooks:
        grad = _after_hooks_of_tensors(node, grad, call)
    if places is not None and not early and not (call.accumulate and node.__class__ is Leaf):
        _hand_out(call, places, grad)
    if not runs:
        return _ENDS
    if node.hooks and "pre" in node.hooks:
        grad = _after_pre_hooks(node, grad, call)
    return grad


def _hand_out(call: _Call, places: Any, grad: Any) -> None:
    for index, place in places:
        call.found[place] = grad if index is None else grad[index]


def _after_hooks_of_tensors(node: Node, grad: Any, call: _Call) -> Any:
    hooks = node.hooks
    outputs = hooks.get("outputs")
    if outputs is None:
        return _after_hooks_of_tensor(hooks, grad, call) if "tensor" in hooks or "retain" in hooks else grad
    return [
        _after_hooks_of_tensor(outputs[i], g, call) if i in outputs else g for i, g in enumerate(grad)
    ]


def _after_hooks_of_tensor(hooks: Any, grad: Any, call: _Call) -> Any:
    """`grad`, which is None for a result that nothing arrived at, as the hooks of that tensor leave it."""
    _state.set_grad(call.create_graph)
    value = _as_tensor(grad, call.as_tensors)
    for fn in list(hooks.get("tensor", {}).values()):
        value = _replaced(fn(value), value, fn)
    for fn in list(hooks.get("retain", {}).values()):
        if value is not None:
            fn(value)
    return value if call.as_tensors or value is None else value._array


def _after_pre_hooks(node: Node, grad: Any, call: _Call) -> Any:
    _state.set_grad(call.create_graph)
    given = _shown(node, grad, call.as_tensors)
    hidden = grad[len(given) :] if type(grad) is list else []
    for fn in list(node.hooks["pre"].values()):
        result = fn(given)
        if result is not None:
            if not isinstance(result, tuple):
                raise TypeError(f"expected tuple, but hook returned '{type(result).__name__}'")
            if len(result) != len(given):
                raise RuntimeError(f"hook {fn!r} has returned an incorrect number of values (got {len(result)}, but expected {len(given)})")
            given = result
    back = [g if call.as_tensors or g is None else g._array for g in given]
    return [*back, *hidden] if type(grad) is list else back[0]


def _shown(node: Node, grad: Any, as_tensors: bool) -> tuple[Any, ...]:
    """What hooks of `node` see of the gradients that arrived: one for each result up to the last that may have one."""
    if type(grad) is not list:
        return (_as_tensor(grad, as_tensors),)
    count = len(grad)
    metas = node.__dict__.get("metas")
    while metas and count > 1 and from_numpy_dtype(metas[count - 1][1]).category < FLOATING:
        count -= 1
    return tuple(_as_tensor(g, as_tensors) for g in grad[:count])


def _after(node: Node, grads: Any, arrived: Any, call: _Call) -> Any:
    _state.set_grad(call.create_graph)
    given = tuple(_as_tensor(g, call.as_tensors) for g in grads)
    outs = _shown(node, arrived, call.as_tensors)
    for fn in list(node.hooks["post"].values()):
        result = fn(given, outs)
        if result is not None:
            if not isinstance(result, tuple) and not hasattr(result, "_array"):
                raise TypeError(f"expected tuple, but hook returned {type(result).__name__!r}")
            given = result if isinstance(result, tuple) else (result,)
    return given if call.as_tensors else [None if g is None else g._array for g in given]


def _as_tensor(grad: Any, is_tensor: bool) -> Any:
    return grad if is_tensor or grad is None else _wrap(grad)


def _replaced(result: Any, value: Any, fn: Any) -> Any:
    if result is None:
        return value
    if value is None:
        return result
    if not hasattr(result, "_array"):
        raise TypeError(f"hook {getattr(fn, '__name__', fn)!r} should return a Tensor or None, got {type(result).__name__}")
    if result.shape != value.shape:
        raise RuntimeError(f"hook {fn!r} has changed the size of value: {tuple(value.shape)} to {tuple(result.shape)}")
    if result._array.dtype != value._array.dtype:
        raise RuntimeError(f"hook {fn!r} has changed the type of value: {value.dtype} to {result.dtype}; convert it back before returning")
    return result
