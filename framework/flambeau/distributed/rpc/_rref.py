"""References to values of other workers, and how an owner knows that one is still needed.

Each RRef on a worker that is not the owner is a *fork*, which the owner has in a table. A fork sent on to a third worker is entered for
that worker while the sender holds its own, until the third says that the owner has confirmed it. A fork is deleted when its object
is, and not before the owner has confirmed it. So the owner's table is never empty while a reference is on its way, in whatever
order messages of different connections arrive. An owner drops a value with its last fork and its own last RRef.
"""

from __future__ import annotations

import itertools
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from ...autograd._region import record_function
from ...futures import Future
from . import _agent
from ._agent import Request, WorkerInfo

__all__ = ["Method", "Owned", "PyRRef", "RRef", "References", "references", "set_references"]

T = TypeVar("T")
FETCH, FORK, ACCEPT, DELETE = 1, 2, 3, 4
BACKWARD = 103


class GloballyUniqueId(NamedTuple):
    """The rank that made something, and how many it had made before."""

    created_on: int
    local_id: int

    def __repr__(self) -> str:
        return f"GloballyUniqueId(created_on={self.created_on}, local_id={self.local_id})"


class Owned:
    """A value that this worker owns, or that a call is to make."""

    def __init__(self, rref_id: GloballyUniqueId) -> None:
        self.rref_id = rref_id
        self.value: Future[Any] = Future()
        self.forks: dict[GloballyUniqueId, int] = {}


class References:
    """All RRefs of this worker.

    Args:
        agent: what carries their messages.
    """

    def __init__(self, agent: _agent.Agent) -> None:
        self.agent = agent
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._owned: weakref.WeakValueDictionary[GloballyUniqueId, Owned] = weakref.WeakValueDictionary()
        self._forked: dict[GloballyUniqueId, Owned] = {}
        self._expected: dict[GloballyUniqueId, Owned] = {}
        self._children: dict[GloballyUniqueId, tuple[int, Any]] = {}
        self._users: weakref.WeakSet[PyRRef] = weakref.WeakSet()
        # Objects die in any thread, at any line, so their end is only noted there. A queue of this class allows that.
        self._dead: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        agent.handlers.update({FETCH: self._fetch, FORK: self._fork, ACCEPT: self._accept, DELETE: self._delete})
        agent.handlers[BACKWARD] = self._backward
        agent.describe, agent.restore = self.describe, self.restore
        agent.on_loss.append(self._lost)
        self._janitor = threading.Thread(target=self._bury, daemon=True, name="rpc references")
        self._janitor.start()

    def new_id(self) -> GloballyUniqueId:
        """An id that no other reference of the job has."""
        return GloballyUniqueId(self.agent.me.id, next(self._ids))

    # The owner

    def owned(self, rref_id: GloballyUniqueId, fork: tuple[GloballyUniqueId, int] | None = None, is_asked: bool = False) -> Owned:
        """The record of a value of this worker, made where the first message about it has overtaken the call that makes it.

        Args:
            rref_id: of the value.
            fork: a reference of another worker to enter, with that worker's rank.
            is_asked: another worker waits for the value, so the record stays for the call that is to come.
        """
        with self._lock:
            record = self._owned.get(rref_id)
            if record is None:
                record = self._owned[rref_id] = Owned(rref_id)
                if is_asked:
                    self._expected[rref_id] = record
            if fork is not None:
                record.forks[fork[0]] = fork[1]
                self._forked[rref_id] = record
        return record

    def arrive(self, rref_id: GloballyUniqueId, fork: tuple[GloballyUniqueId, int] | None) -> Owned:
        """The record for a call that has come, with the fork of the worker that made it."""
        record = self.owned(rref_id, fork)
        with self._lock:
            self._expected.pop(rref_id, None)
        return record

    def _fetch(self, request: Request) -> Future[Any]:
        return self.owned(GloballyUniqueId(*request.body), is_asked=True).value

    def _fork(self, request: Request) -> None:
        rref_id, fork_id = request.body
        self.owned(GloballyUniqueId(*rref_id), (GloballyUniqueId(*fork_id), request.peer))

    def _delete(self, request: Request) -> None:
        rref_id, fork_id = (GloballyUniqueId(*item) for item in request.body)
        self._drop(rref_id, lambda fork, _: fork == fork_id)

    def _drop(self, rref_id: GloballyUniqueId, dead: Callable[[GloballyUniqueId, int], bool]) -> None:
        with self._lock:
            record = self._forked.get(rref_id)
            if record is None:
                return
            for fork in [fork for fork, user in record.forks.items() if dead(fork, user)]:
                del record.forks[fork]
            if not record.forks:
                del self._forked[rref_id]

    def _lost(self, peer: int) -> None:
        """A worker has gone, and its references with it."""
        with self._lock:
            held = list(self._forked)
            for fork in [fork for fork, (to, _) in self._children.items() if to == peer]:
                del self._children[fork]
        for rref_id in held:
            self._drop(rref_id, lambda _, user: user == peer)

    # Sending and receiving

    def describe(self, value: Any, to: int) -> Any:
        """What is sent for an RRef, or for a method of its value; None for other objects."""
        if isinstance(value, Method):
            return ["method", value.rref, value.name]
        if not isinstance(value, PyRRef):
            return None
        value._check_usable()
        fork_id = self.new_id()
        if value._record is not None and to != self.agent.me.id:
            self.owned(value._rref_id, (fork_id, to))
        elif value._record is None or to == self.agent.me.id:
            with self._lock:
                self._children[fork_id] = (to, value)
        return ["rref", value._owner, list(value._rref_id), list(fork_id), self.agent.me.id]

    def restore(self, description: Any, peer: int) -> Any:
        """The RRef or method that `describe` of the worker `peer` was given."""
        if description[0] == "method":
            return Method(description[1], description[2])
        if description[0] != "rref":
            raise ValueError(f"rpc: a message has an object of the unknown kind {description[0]!r}")
        _, owner, rref_id, fork_id, parent = description
        rref_id, fork_id = GloballyUniqueId(*rref_id), GloballyUniqueId(*fork_id)
        if owner == self.agent.me.id:
            found: RRef[Any] = RRef._make(self, owner, rref_id, record=self.owned(rref_id))
            self.agent.later(self.agent.tell, parent, ACCEPT, list(fork_id))
            return found
        if parent == owner:
            confirmed: Future[Any] = Future()
            confirmed.set_result(None)
            return RRef._make(self, owner, rref_id, fork_id, confirmed)
        confirmed = self.agent.ask(owner, FORK, [list(rref_id), list(fork_id)], timeout=0)
        confirmed.add_done_callback(lambda _: self.agent.tell(parent, ACCEPT, list(fork_id)))
        return RRef._make(self, owner, rref_id, fork_id, confirmed)

    def _accept(self, request: Request) -> None:
        with self._lock:
            self._children.pop(GloballyUniqueId(*request.body), None)

    # The end of references

    def add_user(self, rref: PyRRef) -> None:
        """Tell the owner when the user `rref` is no longer there."""
        self._users.add(rref)
        rref._ending = weakref.finalize(rref, self._dead.put, (rref._owner, rref._rref_id, rref._fork_id, rref._confirmed))
        rref._ending.atexit = False

    def _bury(self) -> None:
        while True:
            dead = self._dead.get()
            if dead is None:
                return
            owner, rref_id, fork_id, confirmed = dead

            def tell(_: Any, owner: int = owner, ids: Any = (list(rref_id), list(fork_id))) -> None:
                self.agent.later(self.agent.tell, owner, DELETE, list(ids))

            confirmed.add_done_callback(tell)

    def delete_users(self) -> None:
        """Mark all references to values of other workers as deleted. Their owners end too, so these are not told."""
        for rref in list(self._users):
            rref._deleted = True
            rref._ending.detach()

    def close(self) -> None:
        """End the thread of this object."""
        self._dead.put(None)
        self._janitor.join(5)

    # Backward

    def _backward(self, request: Request) -> None:
        rref_id, context, retain_graph = request.body
        _backward_of(self.owned(GloballyUniqueId(*rref_id), is_asked=True).value.wait(), context, retain_graph)


def _backward_of(value: Any, context: int, retain_graph: bool) -> None:
    import flambeau as fb

    if not isinstance(value, fb.Tensor):
        raise RuntimeError(f"RRef.backward: the RRef should contain a tensor, got {type(value).__name__}")
    if context == -1:
        value.backward(retain_graph=retain_graph)
    else:
        from .. import autograd

        autograd.backward(context, [value], retain_graph)


class Method:
    """A method of the value of an RRef, as a function to call on its owner."""

    def __init__(self, rref: Any, name: str) -> None:
        self.rref, self.name = rref, name


class PyRRef:
    """A reference to a value of this or another worker, which keeps that value alive.

    Args:
        value: what this worker is to own; other workers' values come from `remote`.
        type_hint: taken for compatibility with TorchScript.
    Raises: RuntimeError before `init_rpc`.
    """

    _refs: References
    _owner: int
    _rref_id: GloballyUniqueId
    _fork_id: GloballyUniqueId | None
    _record: Owned | None
    _confirmed: Future[Any]
    _ending: Any = None
    _deleted = False

    def __init__(self, value: Any, type_hint: Any = None) -> None:
        refs = references()
        record = refs.owned(refs.new_id())
        record.value.set_result(value)
        self._fill(refs, refs.agent.me.id, record.rref_id, None, None, record)

    @classmethod
    def _make(
        cls,
        refs: References,
        owner: int,
        rref_id: GloballyUniqueId,
        fork_id: GloballyUniqueId | None = None,
        confirmed: Future[Any] | None = None,
        record: Owned | None = None,
    ) -> Any:
        made = cls.__new__(cls)
        made._fill(refs, owner, rref_id, fork_id, confirmed, record)
        return made

    def _fill(self, refs: Any, owner: int, rref_id: Any, fork_id: Any, confirmed: Any, record: Owned | None) -> None:
        self._refs, self._owner, self._rref_id, self._fork_id, self._record = refs, owner, rref_id, fork_id, record
        if record is None:
            self._confirmed = confirmed
            refs.add_user(self)

    def _check_usable(self) -> None:
        if self._deleted:
            raise RuntimeError(f"{self!r} was deleted by rpc.shutdown()")
        if self._record is None and self._confirmed.done():
            try:
                self._confirmed.value()
            except RuntimeError as error:
                if "RPCErr:1" in str(error):
                    raise RuntimeError(
                        "RRef creation via rpc.remote() timed out, and it is possible that the RRef on the owner node does not exist."
                    ) from error
                raise

    def owner(self) -> WorkerInfo:
        """The worker that has the value."""
        return self._refs.agent.workers[self._owner]

    def owner_name(self) -> str:
        """The name of the worker that has the value."""
        return self.owner().name

    def is_owner(self) -> bool:
        """Whether this worker has the value."""
        return self._record is not None

    def confirmed_by_owner(self) -> bool:
        """Whether the owner knows of this reference; always so on the owner."""
        return self._record is not None or (self._confirmed.done() and self._confirmed._error is None)

    def local_value(self) -> Any:
        """The value itself, on its owner; waits for the call that makes it.

        Raises: RuntimeError on other workers; the exception of that call.
        """
        if self._record is None:
            me = self._refs.agent.me
            raise RuntimeError(f"For {self!r}, can't call localValue() on user {me}. Call it on owner {self.owner()}")
        return self._record.value.wait()

    def to_here(self, timeout: float = -1.0) -> Any:
        """A copy of the value, or the value itself on its owner.

        Args:
            timeout: seconds; 0 is without an end, negative is the default of `init_rpc`.
        Raises: RuntimeError when the time is over; the exception of the call that was to make the value.
        """
        if self._record is not None:
            return self.local_value()
        self._check_usable()
        from .. import autograd

        agent = self._refs.agent
        with record_function(f"to_here#({agent.me.name})->({agent.workers[self._owner].name})"):
            return agent.ask(self._owner, FETCH, list(self._rref_id), timeout, autograd._current_id()).wait()

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Run backward from the value, a scalar tensor, on its owner.

        Args:
            dist_autograd_ctx_id: the distributed context whose gradients are meant; -1 for `Tensor.backward`.
            retain_graph: as of `Tensor.backward`.
        Raises: RuntimeError for what is no such tensor.
        """
        if self._record is not None:
            _backward_of(self.local_value(), dist_autograd_ctx_id, retain_graph)
        else:
            self._check_usable()
            body = [list(self._rref_id), dist_autograd_ctx_id, retain_graph]
            self._refs.agent.ask(self._owner, BACKWARD, body, 0).wait()

    def rpc_sync(self, timeout: float = -1.0) -> Any:
        """An object whose methods call those of the value on its owner, and wait."""
        return _Proxy(self, "rpc_sync", timeout)

    def rpc_async(self, timeout: float = -1.0) -> Any:
        """An object whose methods call those of the value on its owner, and return futures."""
        return _Proxy(self, "rpc_async", timeout)

    def remote(self, timeout: float = -1.0) -> Any:
        """An object whose methods call those of the value on its owner, and return RRefs."""
        return _Proxy(self, "remote", timeout)

    def __reduce__(self) -> Any:
        raise RuntimeError("Can not pickle rref in python pickler, rref can only be pickled when using RPC")

    def __repr__(self) -> str:
        if self._record is not None:
            return f"OwnerRRef({self._rref_id})"
        return f"UserRRef(RRefId = {self._rref_id}, ForkId = {self._fork_id})"


class RRef(PyRRef, Generic[T]):
    """A reference to a value of type `T`; see `PyRRef`."""


class _Proxy:
    def __init__(self, rref: PyRRef, how: str, timeout: float) -> None:
        self._rref, self._how, self._timeout = rref, how, timeout

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") and name.endswith("__") and name != "__call__":
            raise AttributeError(name)  # Python itself asks objects for such names, to copy or pickle them

        def call(*args: Any, **kwargs: Any) -> Any:
            from . import api

            self._rref._check_usable()
            return getattr(api, self._how)(self._rref.owner(), Method(self._rref, name), args, kwargs, self._timeout)

        return call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__getattr__("__call__")(*args, **kwargs)


_references: References | None = None


def references() -> References:
    """The references of this process.

    Raises: RuntimeError before `init_rpc`.
    """
    if _references is None:
        raise RuntimeError("Current RPC agent is not set! Did you initialize the RPC framework (e.g. by calling `rpc.init_rpc`)?")
    return _references


def set_references(made: References | None) -> None:
    """Make `made` the references of this process."""
    global _references
    _references = made
