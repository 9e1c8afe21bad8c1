"""The recorded graph: nodes, edges, and what may be done with the tensors that nodes save."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .. import _state
from .._interpreters import Interpreter
from ..ops import _dispatch
from ..tensor import Tensor, bump, wrap
from .tape import Leaf, Node, OutputNode, RemovableHandle, add_hook, holds_arrays, is_array, packed_by, shown

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge",
    "increment_version", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip

_local = _state.local


class GradientEdge(NamedTuple):
    """Where a gradient arrives: result `output_nr` of the operation of `node`.

    `ownership_token` keeps alive what the node belongs to.
    """

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge that gradients of `tensor` come by; it may stand for the tensor in `autograd.grad` and `backward`.

    Raises: RuntimeError if the tensor does not require grad.
    """
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node = tensor._node
    if type(node) is OutputNode:
        return GradientEdge(shown(node.parents[0]), node.index, node)
    return GradientEdge(node if type(node) is Leaf else shown(node), 0, None)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Note a change of the memory of `tensor` (or several) that was made behind autograd's back."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        bump(t)


# -- hooks on what is saved ----------------------------------------------------------------------------------------------


class _Packed(NamedTuple):
    """What stands in a node for a saved array."""

    value: Any
    unpack: Callable[[Any], Any]


class _Packing(Interpreter):
    """The interpreter that lets hooks replace what the nodes of ops save."""

    kind = "saved_tensors_hooks"
    takes_names = True

    def __init__(self, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Any]) -> None:
        self.pack, self.unpack = self.hooks = pack, unpack

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        # Of regions inside each other the innermost has the say.
        if op.kind == "composite" or not _local.calls.saved_hooks or _local.calls.saved_hooks[-1] is not self.hooks:
            return NotImplemented
        begin = _state.next_seq()
        result = _dispatch.interpret(op, args, out, inplace)
        for r in result if isinstance(result, tuple) else (result,):
            node = r._node if isinstance(r, Tensor) else None
            if type(node) is OutputNode:
                node = node.parents[0]
            # An op that answers with its own operand hands on a node that is not of this region.
            if node is not None and node.seq > begin and type(node.saved if node.parents else None) is tuple:
                self.pack_node(node, _operands(op, args, inplace))
        return result

    def pack_node(self, node: Node, operands: dict[int, tuple[str, Tensor]]) -> None:
        put_away(node, self.pack, self.unpack, operands)


def _operands(op: Any, args: tuple[Any, ...], inplace: bool) -> dict[int, tuple[str, Tensor]]:
    """By the id of its array: each operand, with PyTorch's name of its parameter. One that was written to is what it was no more."""
    found = {}
    for name, x in list(zip(op.params, args, strict=False))[1 if inplace else 0 :]:
        if isinstance(x, Tensor):
            found[id(x._array)] = "self" if name == "input" else name, x
    return found


KEEP = object()


def put_away(
    node: Node, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor], operands: Mapping[int, tuple[str, Tensor]] | None = None
) -> None:
    """Replace the arrays `node` saved by what ``pack(tensor)`` says; they come back while its backward runs.

    Those that it answers `KEEP` for stay, and are still looked at for having been overwritten.

    Args:
        operands: by the id of its array, the name and the Tensor of each operand. Those are shown as they are and first, by their names;
            what else was saved is shown as a Tensor without a history.
    """
    if "unpacked_from" in node.__dict__ or not any(holds_arrays(v) for v in node.saved):
        return
    records = node.versions or (None,) * len(node.saved)
    with _quiet():
        known = operands or {}
        last = (1, "")
        names = [(0, known[id(v)][0]) if id(v) in known else last for v in node.saved]
        order = sorted(range(len(names)), key=names.__getitem__)
        made = {at: _packed(node.saved[at], records[at], pack, unpack, known) for at in order}
        packed = tuple(made[at] for at in range(len(made)))
    if not any(isinstance(p, _Packed) or isinstance(p, list) and any(isinstance(x, _Packed) for x in p) for p in packed):
        return
    node.saved, node.versions = packed, tuple(r if p is v else None for p, v, r in zip(packed, node.saved, records, strict=True))
    _keep_packed(node)
    node.__dict__["order_of_packing"] = order


def _keep_packed(node: Node) -> None:
    """Have what `node` has saved unpacked while its backward runs, and at no other time."""
    if "unpacked_from" in node.__dict__:
        return
    node.__dict__["unpacked_from"] = None
    ref = weakref.ref(node)
    add_hook(node, "pre", lambda grads: _restore(ref()))
    add_hook(node, "post", lambda grads, outs: _put_away(ref()))


def _packed(value: Any, record: Any, pack: Any, unpack: Any, operands: Mapping[int, tuple[str, Tensor]] | None = None) -> Any:
    if is_array(value):
        _, t = (operands or {}).get(id(value), ("", None))
        if t is None:
            t = wrap(value)
            if record is not None:
                t._storage = record
        made = packed_by(pack, t)
        return value if made is KEEP else _Packed(made, unpack)
    if holds_arrays(value):
        return [_packed(v, r, pack, unpack) for v, r in zip(value, record or (None,) * len(value), strict=True)]
    return value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No recording, and no hooks on what is done inside."""
    hooks, _local.calls.saved_hooks = _local.calls.saved_hooks, []
    _state.note_ambient()
    grad = _state.set_grad(False)
    try:
        yield
    finally:
        _local.calls.saved_hooks = hooks
        _state.note_ambient()
        _state.set_grad(grad)


def _restore(node: Any) -> None:
    if not isinstance(node.saved, tuple):  # freed; the engine says so
        return
    # A backward that failed has left its values in place of what they were unpacked from.
    packed, kept = node.__dict__["unpacked_from"] or (node.saved, node.versions)
    with _quiet():
        found = {at: _unpacked(packed[at], kept[at]) for at in node.__dict__.get("order_of_packing", range(len(packed)))}
        values, records = zip(*(found[at] for at in range(len(found))), strict=True)
    node.__dict__["unpacked_from"] = packed, kept
    node.saved, node.versions = values, records


def _unpacked(p: Any, record: Any) -> tuple[Any, Any]:
    if isinstance(p, _Packed):
        t = p.unpack(p.value)
        if not isinstance(t, Tensor):
            raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(t).__name__}")
        # Its versions are the hook's business: a record of its own never looks overwritten.
        return t._array, [0, 0, None, None]
    if isinstance(p, list) and any(isinstance(x, _Packed) for x in p):
        values, records = zip(*(_unpacked(x, None) for x in p), strict=True)
        return list(values), tuple(records)
    return p, record


def _put_away(node: Any) -> None:
    packed, node.__dict__["unpacked_from"] = node.__dict__["unpacked_from"], None
    node.saved, node.versions = packed


class SavedTensor:
    """A tensor that a node has saved: `grad_fn._raw_saved_self` and the like.

    Attributes:
        data: the tensor.
    """

    def __init__(self, node: Node, value: Any) -> None:
        self._node, self.data = node, value

    def unpack(self) -> Tensor:
        """The tensor."""
        return self.data

    def register_hooks(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        """Have the node keep ``pack_hook(tensor)``, called now, and ask ``unpack_hook`` for the tensor when its backward runs.

        Raises: RuntimeError when it has been freed, or has hooks; TypeError for what cannot be called.
        """
        if not callable(pack_hook) or not callable(unpack_hook):
            wrong = unpack_hook if callable(pack_hook) else pack_hook
            raise TypeError(f"register_hooks(): incompatible function arguments: {type(wrong).__name__} cannot be called")
        node = self._node
        if not isinstance(node.saved, tuple):
            raise RuntimeError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph are freed when "
                "you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph again."
            )
        array = self.data._array
        place = next((i for i, value in enumerate(node.saved) if value is array), None)
        if place is None:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. "
                "Hint: only one pair of hooks is allowed at a time."
            )
        records = list(node.versions or (None,) * len(node.saved))
        with _quiet():
            packed = _packed(array, records[place], pack_hook, unpack_hook)
        records[place] = None
        node.saved, node.versions = (*node.saved[:place], packed, *node.saved[place + 1 :]), tuple(records)
        _keep_packed(node)


class saved_tensors_hooks:  # PyTorch's name
    """A region in which ``pack_hook(tensor)`` says what nodes keep of a tensor, and ``unpack_hook`` brings it back.

    The nodes of in-place operations on views keep their tensors as they are.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        forbidden = getattr(_local, "hooks_forbidden", None)
        if forbidden is not None:
            raise RuntimeError(forbidden)
        self.packing = _Packing(self.pack_hook, self.unpack_hook)
        _local.calls.saved_hooks.append(self.packing.hooks)
        _state.note_ambient()
        _dispatch.push(self.packing)

    def __exit__(self, *_: object) -> None:
        _dispatch.pop(self.packing)
        _local.calls.saved_hooks.pop()
        _state.note_ambient()


class save_on_cpu(saved_tensors_hooks):  # PyTorch's name
    """A region in which saved tensors wait for backward in host memory.

    Args:
        pin_memory: whether copies of a device's tensors are page-locked, for faster transfers.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Any:
            if tensor.device.type == "cpu":           # nothing will be transferred
                return tensor.device, tensor.clone()
            host = tensor.cpu()
            return tensor.device, host.pin_memory() if pin_memory else host

        def unpack(packed: Any) -> Tensor:
            place, tensor = packed
            return tensor.to(place, non_blocking=pin_memory)

        super().__init__(pack, unpack)


class disable_saved_tensors_hooks(contextlib.ContextDecorator):  # PyTorch's name
    """A region in which entering `saved_tensors_hooks` raises RuntimeError with `error_message`."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> None:
        if _local.calls.saved_hooks:
            raise RuntimeError(self.error_message)
        self.before = getattr(_local, "hooks_forbidden", None)
        _local.hooks_forbidden = self.error_message

    def __exit__(self, *_: object) -> None:
        _local.hooks_forbidden = self.before


# -- changing what is saved ----------------------------------------------------------------------------------------------


class _Kept:
    """A saved tensor, copied just before somebody overwrites its memory."""

    __slots__ = ("tensor", "__weakref__")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class _CopyOnWrite(Interpreter):
    """The interpreter that copies saved tensors before an in-place operation changes their memory."""

    kind = "allow_mutation_on_saved_tensors"
    takes_names = True

    def __init__(self) -> None:
        self.kept: dict[int, list[weakref.ref[_Kept]]] = {}

    def pack(self, tensor: Tensor) -> _Kept:
        made = _Kept(tensor)
        self.kept.setdefault(id(tensor._storage), []).append(weakref.ref(made))
        return made

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        target = args[0] if inplace else out
        if isinstance(target, Tensor) and op.kind != "composite":
            for ref in self.kept.pop(id(target._storage), ()):
                kept = ref()
                if kept is not None and kept.tensor._storage is target._storage:
                    kept.tensor = kept.tensor.detach().clone()
        return NotImplemented


class _AllowMutationOnSavedContext:
    def clear(self) -> None:
        """Kept for PyTorch's interface; copies go with the nodes that own them."""


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_AllowMutationOnSavedContext]:
    """A region in which saved tensors may be changed in place: backward sees them as they were.

    Raises: RuntimeError when entered inside itself.
    """
    if any(isinstance(x, _CopyOnWrite) for x in _local.calls.interpreters):
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    with saved_as_they_were():
        yield _AllowMutationOnSavedContext()


@contextlib.contextmanager
def saved_as_they_were() -> Iterator[None]:
    """`allow_mutation_on_saved_tensors` for transforms, which may be inside it and each other."""
    copies = _CopyOnWrite()

    def unpack(kept: _Kept) -> Tensor:
        return kept.tensor

    _dispatch.push(copies)
    try:
        with saved_tensors_hooks(copies.pack, unpack):
            yield
    finally:
        _dispatch.pop(copies)


# -- hooks on several gradients ------------------------------------------------------------------------------------------


class _MultiHandle(RemovableHandle):
    """Removes the hook from every tensor."""

    handles: tuple[RemovableHandle, ...]

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __getstate__(self) -> Any:
        return self.handles

    def __setstate__(self, state: Any) -> None:
        self.handles = state


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> RemovableHandle:
    """Call `fn` when gradients of `tensors` have been computed.

    Args:
        mode: 'all' calls ``fn(grads)`` once per backward, when the gradients of all tensors that take part have come,
            with None for the others; 'any' calls ``fn(grad)`` with the first.
    Raises: ValueError for another `mode`.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    state = _Progress(tensors)

    def all_hook(index: int, grad: Tensor) -> None:
        with state.lock:
            state.look()
            state.grads[index] = grad
            state.missing -= 1
            done = state.missing == 0
            grads = state.grads
            if done:
                state.forget()
        if done:
            fn(grads)

    def any_hook(grad: Tensor) -> None:
        with state.lock:
            first = state.look()
        if first:
            fn(grad)

    if mode == "any":
        return _MultiHandle([t.register_hook(any_hook) for t in tensors])
    return _MultiHandle([t.register_hook(functools.partial(all_hook, i)) for i, t in enumerate(tensors)])


class _Progress:
    """Which gradients of some tensors have come in the backward that runs."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tensors
        self.lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self.backward: Any = None
        self.grads: list[Any] = []
        self.missing = 0

    def look(self) -> bool:
        """Take note of the backward that runs; whether it is one not seen before."""
        if self.backward is _local.backward.roots:
            return False
        self.backward = _local.backward.roots
        taking_part = _nodes_taking_part()
        self.grads = [None] * len(self.tensors)
        self.missing = sum(t._node in taking_part for t in self.tensors)
        return True


def _nodes_taking_part() -> set[Any]:
    """The nodes that the running backward reaches, or, if it has targets, those on the way to them."""
    if _local.backward.wanted is not None:
        return set(_local.backward.wanted)
    return nodes_behind(_local.backward.roots)


def nodes_behind(roots: Iterable[tuple[Node, Any]]) -> set[Node]:
    """All nodes that the nodes of `roots` lead to, these among them."""
    seen: set[Node] = set()
    stack = [node for node, _ in roots]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += [p for p in node.parents if p is not None]
    return seen
