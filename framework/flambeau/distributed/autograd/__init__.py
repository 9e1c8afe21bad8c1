"""Backward through calls of other workers: `context`, `backward`, `get_gradients`.

Within a context every message notes which tensors with a history it carries: a *send* at the worker they come from, a *receipt* where
they arrive. Backward has two phases. First each worker walks its graph from the roots, or from sends whose receipts were reached, and
asks the senders of the receipts it reaches to do so. Then gradients go the same way. What a worker computes is grouped: parameters
and receipts that the same sends reach get their gradients in one pass of the engine, once the gradients of all these sends are there.
So sums are made by the engine alone, in the order of the graph, and do not depend on which message came first.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

from ...futures import Future, collect_all

__all__ = ["backward", "context", "get_gradients", "is_available"]

MARK, GRADS, RELEASE = 10, 11, 12
_ROOTS = 0
_WORKER_BITS = 48


def is_available() -> bool:
    """Whether distributed autograd is built: True."""
    return True


class _Sent:
    """Tensors that left in a message, or the roots of backward: where gradients come in."""

    def __init__(self, tensors: list[Any]) -> None:
        self.tensors = tensors
        self.grads: list[Any] | None = None


class _Received:
    """Tensors that came in a message: where gradients go out, to the worker and the send they came from."""

    def __init__(self, peer: int, message: int, leaves: list[Any]) -> None:
        self.peer, self.message, self.leaves = peer, message, leaves


class _Group:
    """What the same sends reach."""

    def __init__(self, sources: frozenset[int]) -> None:
        self.sources = sources
        self.leaves: list[Any] = []
        self.received: list[_Received] = []


class _Context:
    """What a worker knows of one distributed pass."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock = threading.RLock()
        self.messages = itertools.count(1)
        self.workers: set[int] = set()
        self.sent: dict[int, _Sent] = {}
        self.received: dict[int, _Received] = {}
        self.grads: dict[Any, Any] = {}
        self.reached: dict[int, list[Any]] = {}
        self.groups: list[_Group] = []


class _Sending:
    """The tensors with a history of one message, while it is packed."""

    def __init__(self, found: _Context, to: int) -> None:
        self._context, self._to = found, to
        self._tensors: list[Any] = []

    def describe(self, value: Any) -> Any:
        import flambeau as fb

        if not isinstance(value, fb.Tensor) or not value.requires_grad:
            return None
        self._tensors.append(value)
        return ["history", len(self._tensors) - 1, value.detach()]

    def record(self) -> int:
        """The number of the message in the context, 0 if it has no such tensor."""
        with self._context.lock:
            self._context.workers.add(self._to)
            if not self._tensors:
                return 0
            # Numbers of one context are unique over workers, so that a receipt has one of its own.
            message = next(self._context.messages) << 16 | _agent_of_process().me.id
            self._context.sent[message] = _Sent(self._tensors)
        return message


class _Receiving:
    """The tensors with a history of one message, while it is read."""

    def __init__(self, found: _Context, message: int, peer: int) -> None:
        self._context = found
        self._received = _Received(peer, message, [])

    def restore(self, description: Any) -> Any:
        leaf = description[2].requires_grad_()
        self._received.leaves.append(leaf)
        # The program may write into what it gets, which a leaf does not allow.
        return leaf.clone()

    def record(self) -> None:
        with self._context.lock:
            self._context.workers.add(self._received.peer)
            for leaf in self._received.leaves:
                self._context.received[id(leaf)] = self._received


class _Contexts:
    """All contexts of this worker."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self._lock = threading.Lock()
        self._counter = itertools.count()
        self._contexts: dict[int, _Context] = {}
        self.current = threading.local()
        agent.handlers.update({MARK: self._mark, GRADS: self._take, RELEASE: self._release})
        agent.contexts = self

    def new(self) -> _Context:
        number = self.agent.me.id << _WORKER_BITS | next(self._counter)
        with self._lock:
            found = self._contexts[number] = _Context(number)
        return found

    def get(self, number: int) -> _Context:
        with self._lock:
            found = self._contexts.get(number)
        if found is None:
            raise RuntimeError(f"Could not find autograd context with id: {number}")
        return found

    def _get_or_make(self, number: int) -> _Context:
        with self._lock:
            return self._contexts.setdefault(number, _Context(number))

    def sending(self, number: int, to: int) -> _Sending:
        return _Sending(self._get_or_make(number), to)

    def receiving(self, number: int, message: int, peer: int) -> _Receiving:
        return _Receiving(self._get_or_make(number), message, peer)

    @contextlib.contextmanager
    def entered(self, number: int) -> Iterator[None]:
        """Let calls that this thread makes belong to the context `number`."""
        before = getattr(self.current, "number", -1)
        self.current.number = number
        try:
            yield
        finally:
            self.current.number = before

    def release(self, number: int) -> None:
        """Forget a context, here and on all workers that its messages went to."""
        with self._lock:
            found = self._contexts.pop(number, None)
        if found is not None:
            for worker in found.workers - {self.agent.me.id}:
                self.agent.tell(worker, RELEASE, number)

    def _release(self, request: Any) -> None:
        self.release(request.body)

    # The first phase: what is reached

    def mark(self, found: _Context, source: int) -> Future[Any]:
        """Walk the graph from a send of this worker; the future of all that this leads to."""
        with found.lock:
            if source in found.reached:
                return collect_all([])  # whoever came first waits for what it leads to
            if source not in found.sent:
                raise RuntimeError(f"distributed backward: worker {self.agent.me} has no message {source} in context {found.number}")
            known = {id(item) for sinks in found.reached.values() for item in sinks if isinstance(item, _Received)}
            sinks = found.reached[source] = _sinks(found, found.sent[source].tensors)
            new = [sink for sink in sinks if isinstance(sink, _Received) and id(sink) not in known]
        return collect_all([self.agent.ask(sink.peer, MARK, [found.number, sink.message], 0) for sink in new])

    def _mark(self, request: Any) -> Future[Any]:
        number, source = request.body
        return self.mark(self.get(number), source).then(_nothing)

    # The second phase: gradients

    def take(self, found: _Context, source: int, grads: list[Any], retain_graph: bool) -> Future[Any]:
        """Note the gradients of a send, and compute and pass on all that is complete with them."""
        with found.lock:
            if not found.groups:
                found.groups = _groups(found)
            found.sent[source].grads = grads
            arrived = {number for number, sent in found.sent.items() if sent.grads is not None}
            ready = [group for group in found.groups if source in group.sources and group.sources <= arrived]
            outgoing = []
            for group in ready:
                found.groups.remove(group)
                outgoing += _run(found, group, retain_graph or bool(found.groups))
            if not found.groups:
                self._end(found)
        asked = [
            self.agent.ask(sink.peer, GRADS, [found.number, sink.message, grads, retain_graph], 0) for sink, grads in outgoing
        ]
        return collect_all(asked)

    def _take(self, request: Any) -> Future[Any]:
        number, source, grads, retain_graph = request.body
        return self.take(self.get(number), source, grads, retain_graph).then(_nothing)

    def _end(self, found: _Context) -> None:
        """All gradients of this worker are there: a further backward begins anew."""
        found.reached.clear()
        found.sent.pop(_ROOTS, None)
        for sent in found.sent.values():
            sent.grads = None


def _nothing(future: Future[Any]) -> None:
    future.value()  # raises what failed


def _sinks(found: _Context, tensors: list[Any]) -> list[Any]:
    """The leaves and receipts that the histories of `tensors` lead to, in the order of the walk."""
    sinks: dict[int, Any] = {}
    seen: set[int] = set()
    waiting: list[Any] = []

    def add(leaf: Any) -> None:
        receipt = found.received.get(id(leaf))
        sink = leaf if receipt is None else receipt
        sinks.setdefault(id(sink), sink)

    for tensor in tensors:
        add(tensor) if tensor.grad_fn is None else waiting.append(tensor.grad_fn)
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        variable = getattr(node, "variable", None)
        if variable is not None:
            add(variable)
        waiting += [parent for parent, _ in node.next_functions if parent is not None]
    return list(sinks.values())


def _groups(found: _Context) -> list[_Group]:
    sources: dict[int, set[int]] = {}
    items: dict[int, Any] = {}
    for source, sinks in sorted(found.reached.items()):
        for sink in sinks:
            items[id(sink)] = sink
            sources.setdefault(id(sink), set()).add(source)
    groups: dict[frozenset[int], _Group] = {}
    for key, item in items.items():
        of = frozenset(sources[key])
        group = groups.setdefault(of, _Group(of))
        (group.received if isinstance(item, _Received) else group.leaves).append(item)
    return list(groups.values())


def _run(found: _Context, group: _Group, retain_graph: bool) -> list[tuple[_Received, list[Any]]]:
    """One pass of the engine; what goes out to the workers that receipts came from."""
    import flambeau as fb

    outputs, grads = [], []
    for source in sorted(group.sources):
        sent = found.sent[source]
        for tensor, grad in zip(sent.tensors, sent.grads or [], strict=True):
            if grad is not None:
                outputs.append(tensor)
                grads.append(grad)
    inputs = group.leaves + [leaf for received in group.received for leaf in received.leaves]
    if not outputs:
        return [(received, [None] * len(received.leaves)) for received in group.received]
    made = fb.autograd.grad(outputs, inputs, grads, retain_graph=retain_graph, allow_unused=True)
    for leaf, grad in zip(group.leaves, made, strict=False):
        if grad is not None:
            before = found.grads.get(leaf)
            found.grads[leaf] = grad if before is None else before + grad
    rest = iter(made[len(group.leaves) :])
    return [(received, [next(rest) for _ in received.leaves]) for received in group.received]


_contexts: _Contexts | None = None


def _start(agent: Any) -> None:
    global _contexts
    _contexts = _Contexts(agent)


def _stop() -> None:
    global _contexts
    _contexts = None


def _all_contexts() -> _Contexts:
    if _contexts is None:
        raise RuntimeError("Need to initialize distributed autograd using torch.distributed.autograd._init() (init_rpc does)")
    return _contexts


def _agent_of_process() -> Any:
    return _all_contexts().agent


def _current_id() -> int:
    return -1 if _contexts is None else getattr(_contexts.current, "number", -1)


class context:
    """``with context() as context_id``: what messages of this thread carry within is part of one distributed backward pass.

    Raises: RuntimeError before `init_rpc`, and inside another context.
    """

    def __enter__(self) -> int:
        contexts = _all_contexts()
        if _current_id() != -1:
            raise RuntimeError("Already have an autograd context id for this thread.")
        self._contexts, self._found = contexts, contexts.new()
        contexts.current.number = self._found.number
        return self._found.number

    def __exit__(self, *failure: Any) -> None:
        self._contexts.current.number = -1
        self._contexts.release(self._found.number)


def backward(context_id: int, roots: list[Any], retain_graph: bool = False) -> None:
    """Compute the gradients of the sum of `roots` on all workers that had part in them; `get_gradients` has them.

    Args:
        context_id: from `context`.
        roots: scalar tensors of this worker.
        retain_graph: keep what a second backward needs.
    Raises: RuntimeError for an unknown context, no roots, and roots that are no scalars or have no history; what a rule raises on
        any worker.
    """
    import flambeau as fb

    if isinstance(roots, fb.Tensor) or not isinstance(roots, list | tuple):
        raise TypeError(f"backward(): incompatible function arguments: roots must be a list of tensors, got {type(roots).__name__}")
    contexts = _all_contexts()
    found = contexts.get(context_id)
    if not roots:
        raise RuntimeError("No tensors provided for gradient computation.")
    for root in roots:
        if not root.requires_grad:
            raise RuntimeError(f"requires_grad not set on root: shape {tuple(root.shape)}")
        if root.numel() != 1:
            raise RuntimeError(f"a root of shape {tuple(root.shape)} is not a scalar, all roots need to be scalar")
    with found.lock:
        if found.reached:
            raise RuntimeError(f"distributed backward: one is running in context {context_id} already")
        found.sent[_ROOTS] = _Sent(list(roots))
    contexts.mark(found, _ROOTS).wait()
    contexts.take(found, _ROOTS, [fb.ones_like(root) for root in roots], retain_graph).wait()


def get_gradients(context_id: int) -> dict[Any, Any]:
    """Gradients of this worker's leaves in a context, by leaf.

    Raises: RuntimeError for an unknown context.
    """
    found = _all_contexts().get(context_id)
    with found.lock:
        return dict(found.grads)
