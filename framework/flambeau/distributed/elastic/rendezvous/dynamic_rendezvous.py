"""A rendezvous of machines that come and go.

The state is one JSON text that all machines see: the number of the round, whether it is complete, who is in it, who waits for the next.
A machine reads it, computes what it becomes, and stores that if nobody was faster (compare-and-set); else it begins again.

Machines of a complete round leave it to meet again; when the last has left, or is dead, those who wait make up the next round. A machine
counts its heartbeats up in the state. The others look at them by their own clocks, so clocks need not agree: who has not counted
for some of their own heartbeats is taken out.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..._stores import PrefixStore, Store, TCPStore
from ..events import NodeState, construct_and_record_rdzv_event
from .api import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

__all__ = ["DynamicRendezvousHandler", "RendezvousBackend", "RendezvousSettings", "RendezvousTimeout", "create_handler"]

_log = logging.getLogger(__name__)

_PAUSE = 0.1  # seconds between two looks at the state while machines meet


class RendezvousBackend(abc.ABC):
    """Where the state of a rendezvous is kept."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of its kind."""

    @abc.abstractmethod
    def get_state(self) -> tuple[bytes, Any] | None:
        """The state and a token that stands for it; None before the first one.

        Raises: RendezvousConnectionError when it cannot be reached; RendezvousStateError for a broken state.
        """

    @abc.abstractmethod
    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        """Store `state` if nobody changed it since `token` was read.

        Args:
            state: the new state.
            token: of `get_state`; None for the first state.
        Returns: the state that holds then, its token, and whether the given one was stored.
        Raises: RendezvousConnectionError when it cannot be reached; RendezvousStateError for a broken state.
        """


class RendezvousTimeout:
    """How long a rendezvous waits.

    Args:
        join: for enough machines, 600 s if None.
        last_call: for more machines once there are enough, 30 s if None.
        close: for the state to be closed, 30 s if None.
        heartbeat: for a heartbeat that is under way when the handler shuts down, 5 s if None.
    Raises: ValueError for a time that is not positive.
    """

    def __init__(
        self,
        join: timedelta | None = None,
        last_call: timedelta | None = None,
        close: timedelta | None = None,
        heartbeat: timedelta | None = None,
    ) -> None:
        self._join = _positive("join", join, 600)
        self._last_call = _positive("last_call", last_call, 30)
        self._close = _positive("close", close, 30)
        self._heartbeat = _positive("heartbeat", heartbeat, 5)

    @property
    def join(self) -> timedelta:
        """How long to wait for enough machines."""
        return self._join

    @property
    def last_call(self) -> timedelta:
        """How long to wait for more machines once there are enough."""
        return self._last_call

    @property
    def close(self) -> timedelta:
        """How long closing may take."""
        return self._close

    @property
    def heartbeat(self) -> timedelta:
        """How long to wait for a heartbeat that is under way."""
        return self._heartbeat


def _positive(name: str, given: timedelta | None, seconds: float) -> timedelta:
    if given is None:
        return timedelta(seconds=seconds)
    if given <= timedelta():
        raise ValueError(f"The {name} timeout ({given}) must be positive.")
    return given


@dataclasses.dataclass(frozen=True)
class RendezvousSettings:
    """The settings of a rendezvous.

    Args:
        run_id: the name of the job.
        min_nodes, max_nodes: how many machines may take part.
        timeout: how long to wait.
        keep_alive_interval: time between two heartbeats.
        keep_alive_max_attempt: how many heartbeats a machine may miss before the others take it out.
    """

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int


@dataclasses.dataclass
class _State:
    """What all machines see.

    Args:
        round: counts up; each round has keys of its own in the store.
        complete: whether all have met, so that nobody joins this round any more.
        closed: whether the job has ended.
        members: machines of this round that have not left it, in the order in which they came.
        ranks: of the machines of a complete round; they stay when a machine leaves.
        waiting: machines that came too late, in order.
        beats: heartbeats of each machine.
    """

    round: int = 0
    complete: bool = False
    closed: bool = False
    members: list[str] = dataclasses.field(default_factory=list)
    ranks: dict[str, int] = dataclasses.field(default_factory=dict)
    waiting: list[str] = dataclasses.field(default_factory=list)
    beats: dict[str, int] = dataclasses.field(default_factory=dict)

    @staticmethod
    def read(text: bytes) -> _State:
        try:
            fields = json.loads(text)
            state = _State(**fields)
            if {name: type(value) for name, value in fields.items()} != _KINDS:
                raise TypeError("fields of other types")
        except (ValueError, TypeError) as error:
            raise RendezvousStateError(f"the store holds no state of a rendezvous: {text[:200]!r} ({error})") from None
        return state

    def write(self) -> bytes:
        return json.dumps(dataclasses.asdict(self), sort_keys=True).encode()

    def join(self, node: str, beat: int, most: int) -> None:
        """Take `node`, whose last heartbeat is `beat`, into this round, or let it wait for the next."""
        self.beats.setdefault(node, beat)
        if node not in self.members and node not in self.waiting:
            self.waiting.append(node)
        self._fill(most)

    def leave(self, node: str, most: int) -> None:
        """Forget `node`; a complete round that nobody is in any more ends."""
        for nodes in (self.members, self.waiting):
            if node in nodes:
                nodes.remove(node)
        self.beats.pop(node, None)
        self._fill(most)

    def _fill(self, most: int) -> None:
        if self.complete and not self.members:
            self.round, self.complete, self.ranks = self.round + 1, False, {}
        if not self.complete:
            free = most - len(self.members)
            self.members, self.waiting = self.members + self.waiting[:free], self.waiting[free:]

    def finish(self) -> None:
        """Nobody joins this round any more."""
        self.complete, self.ranks = True, {node: rank for rank, node in enumerate(self.members)}


_KINDS = {name: type(value) for name, value in dataclasses.asdict(_State()).items()}


class DynamicRendezvousHandler(RendezvousHandler):
    """Machines that come and go meet in a state that all of them see. `from_backend` makes one.

    Args:
        settings: how many machines, and how long to wait.
        backend: keeps the state.
        store: shared by the machines of each round, under keys of that round.
        local_addr: address of this machine; its full name if None.
    """

    def __init__(self, settings: RendezvousSettings, backend: RendezvousBackend, store: Store, local_addr: str | None = None) -> None:
        self._settings, self._backend, self._store, self._local_addr = settings, backend, store, local_addr
        self._node = f"{local_addr or socket.getfqdn()}_{os.getpid()}_{secrets.token_hex(4)}"
        self._changing = threading.Lock()
        self._missed: dict[str, tuple[int, int]] = {}  # of each other machine: its last heartbeat, and how often that was seen
        self._beats = 0  # of this machine; never set back, or the others could not tell that it lives
        self._stop_beating: threading.Event | None = None
        self._beating: threading.Thread | None = None

    @classmethod
    def from_backend(
        cls,
        run_id: str,
        store: Store,
        backend: RendezvousBackend,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        timeout: RendezvousTimeout | None = None,
        keep_alive_interval: int = 5,
        keep_alive_max_attempt: int = 3,
    ) -> DynamicRendezvousHandler:
        """A handler that keeps its state in `backend`.

        Args:
            run_id: the name of the job.
            store: shared by the machines of each round.
            backend: keeps the state.
            min_nodes, max_nodes: how many machines may take part.
            local_addr: address of this machine.
            timeout: how long to wait.
            keep_alive_interval: seconds between two heartbeats.
            keep_alive_max_attempt: how many heartbeats a machine may miss.
        Raises: ValueError for numbers that do not fit.
        """
        if min_nodes < 1 or max_nodes < min_nodes:
            raise ValueError(f"DynamicRendezvousHandler: {min_nodes} to {max_nodes} nodes; give 1 <= min_nodes <= max_nodes")
        if keep_alive_interval <= 0 or keep_alive_max_attempt < 1:
            raise ValueError(
                f"DynamicRendezvousHandler: keep_alive_interval {keep_alive_interval} and keep_alive_max_attempt "
                f"{keep_alive_max_attempt} must be positive"
            )
        interval = timedelta(seconds=keep_alive_interval)
        settings = RendezvousSettings(run_id, min_nodes, max_nodes, timeout or RendezvousTimeout(), interval, keep_alive_max_attempt)
        return cls(settings, backend, store, local_addr)

    @property
    def settings(self) -> RendezvousSettings:
        """How many machines, and how long to wait."""
        return self._settings

    def get_backend(self) -> str:
        """The name of the backend's kind."""
        return self._backend.name

    def get_run_id(self) -> str:
        """The name of the job."""
        return self._settings.run_id

    @property
    def use_agent_store(self) -> bool:
        """Whether workers use the store of the machines: if that is a TCPStore, and ``TORCH_DISABLE_SHARE_RDZV_TCP_STORE`` is not 1."""
        return isinstance(self._store, TCPStore) and os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def next_rendezvous(self) -> RendezvousInfo:
        """Leave the round that this machine is in, and wait until a new one is complete.

        Raises: RendezvousClosedError when the job has ended; RendezvousGracefulExitError when it ends while this machine waits;
            RendezvousTimeoutError when too few machines come; RendezvousConnectionError without the state.
        """
        self._record("machines meet", NodeState.INIT)
        try:
            state = self._meet()
        except RendezvousGracefulExitError:
            raise
        except RendezvousError as error:
            self._record(f"{type(error).__name__}: {error}", NodeState.FAILED)
            raise
        rank, size = state.ranks[self._node], len(state.ranks)
        self._record(f"round {state.round} of {size} machines", NodeState.SUCCEEDED, rank)
        store = PrefixStore(f"{self._settings.run_id}/{state.round}", self._store)
        if self.use_agent_store:
            assert isinstance(self._store, TCPStore)
            where = RendezvousStoreInfo(self._store.host, self._store.port)
        else:
            where = RendezvousStoreInfo.build(rank, store, self._local_addr)
        return RendezvousInfo(store, rank, size, where)

    def _meet(self) -> _State:
        settings, node = self._settings, self._node
        again = False
        self._beats += 1

        def begin(state: _State) -> None:
            nonlocal again
            again = state.complete and node in state.members
            if again:
                state.leave(node, settings.max_nodes)
            if not state.closed:
                state.join(node, self._beats, settings.max_nodes)

        self._check_open(self._change(begin), RendezvousClosedError)
        self._start_beating()
        late = _Clock(settings.timeout.join.total_seconds())
        enough = _Clock(settings.timeout.last_call.total_seconds())

        def go_on(state: _State) -> None:
            if state.closed:
                return
            state.join(node, self._beats, settings.max_nodes)  # again, if the others took this machine for dead
            too_few = len(state.members) < settings.min_nodes
            if state.complete or too_few:
                return
            if len(state.members) == settings.max_nodes or enough.passed(state.round):
                state.finish()

        while True:
            state = self._change(go_on)
            new = node in state.waiting and not again
            self._check_open(state, RendezvousGracefulExitError if new else RendezvousClosedError)
            if state.complete and node in state.members:
                return state
            # A machine that is new waits for as long as the others work; one of theirs expects them to come back.
            if new and state.complete:
                late = _Clock(settings.timeout.join.total_seconds())
            elif late.passed("machines"):
                self._change(lambda state: state.leave(node, settings.max_nodes))
                self._stop_heartbeats()
                raise RendezvousTimeoutError(
                    f"job {settings.run_id!r}: {len(state.members)} machines within {settings.timeout.join.total_seconds():g} s, "
                    f"{settings.min_nodes} are the least: {', '.join(state.members)}"
                )
            time.sleep(_PAUSE)

    def _check_open(self, state: _State, error: type[RendezvousError]) -> None:
        if state.closed:
            self._stop_heartbeats()
            raise error(f"the rendezvous of job {self._settings.run_id!r} is closed: the job has ended")

    def _read(self) -> tuple[_State, Any]:
        found = self._backend.get_state()
        return (_State(), None) if found is None else (_State.read(found[0]), found[1])

    def _change(self, change: Callable[[_State], None]) -> _State:
        """Apply `change` to the state, again if another machine was faster. Returns: the state with it."""
        with self._changing:
            while True:
                state, token = self._read()
                before = state.write()
                change(state)
                after = state.write()
                if after == before and token is not None:
                    return state
                answer = self._backend.set_state(after, token)
                if answer is not None and answer[2]:
                    return state

    def _beat(self) -> None:
        """One heartbeat: count up, and take out those who have not for some of ours."""

        self._beats += 1

        def change(state: _State) -> None:
            if self._node not in state.beats:
                return  # the others took this machine for dead; it joins again when it meets them
            seen.clear()
            dead.clear()
            for node in [*state.members, *state.waiting]:
                last, times = missed.get(node, (-1, 0))
                now = state.beats.get(node, 0)
                seen[node] = (now, times + 1 if now == last else 0)
                if node != self._node and seen[node][1] >= self._settings.keep_alive_max_attempt:
                    state.leave(node, self._settings.max_nodes)
                    dead.add(node)
                    del seen[node]  # it may come back
            state.beats[self._node] = self._beats

        missed, seen, dead = self._missed, dict[str, tuple[int, int]](), set[str]()
        self._change(change)
        self._missed = seen
        for node in sorted(dead):
            _log.warning("job %r: %s is gone: it missed %d heartbeats", self._settings.run_id, node, self._settings.keep_alive_max_attempt)

    def _start_beating(self) -> None:
        if self._beating is not None and self._beating.is_alive():
            return
        self._stop_beating = threading.Event()
        self._beating = threading.Thread(
            target=_keep_beating,
            args=(weakref.ref(self), self._stop_beating, self._settings.keep_alive_interval.total_seconds()),
            name="rendezvous",
            daemon=True,
        )
        self._beating.start()

    def _stop_heartbeats(self) -> None:
        if self._stop_beating is not None and self._beating is not None:
            self._stop_beating.set()
            self._beating.join(self._settings.timeout.heartbeat.total_seconds())

    def is_closed(self) -> bool:
        """Whether the job has ended."""
        return self._read()[0].closed

    def set_closed(self) -> None:
        """End the job: nobody meets any more."""

        def close(state: _State) -> None:
            state.closed = True

        self._change(close)

    def num_nodes_waiting(self) -> int:
        """How many machines wait that the next round has a place for."""
        state, _ = self._read()
        if not state.complete:
            return 0
        return min(len(state.waiting), self._settings.max_nodes - len(state.members))

    def ranks_gone(self) -> set[int]:
        """The ranks of machines of this round that have left it, or have missed their heartbeats."""
        state, _ = self._read()
        return {rank for node, rank in state.ranks.items() if node not in state.members}

    def leave(self) -> None:
        """Take this machine out of the rendezvous, which goes on for the others, and stop the heartbeats."""
        self._stop_heartbeats()
        try:
            self._change(lambda state: state.leave(self._node, self._settings.max_nodes))
        except RendezvousError as error:
            _log.debug("job %r: this machine could not say that it leaves: %s", self._settings.run_id, error)

    def shutdown(self) -> bool:
        """End the job, stop the heartbeats, and close the store.

        Returns: whether the state could be closed; it cannot if the machine that serves it has gone already.
        """
        self._stop_heartbeats()
        try:
            self.set_closed()
        except RendezvousError as error:
            _log.debug("job %r: its rendezvous could not be closed: %s", self._settings.run_id, error)
            return False
        finally:
            close = getattr(self._store, "close", None)
            if close is not None:
                close()
        self._record("closed", NodeState.SUCCEEDED)
        return True

    def _record(self, message: str, state: NodeState, rank: int | None = None) -> None:
        construct_and_record_rdzv_event(self._settings.run_id, message, state, "rendezvous", rank=rank)


class _Clock:
    """Whether some seconds have passed since a thing was first asked for."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._what, self._since = seconds, None, 0.0

    def passed(self, what: Any) -> bool:
        now = time.monotonic()
        if what != self._what:
            self._what, self._since = what, now
        return now - self._since >= self._seconds


def _keep_beating(handler: Callable[[], DynamicRendezvousHandler | None], stop: threading.Event, seconds: float) -> None:
    while not stop.wait(seconds):
        found = handler()
        if found is None:
            return
        try:
            found._beat()
        except RendezvousError as error:
            # The machine learns that itself as soon as it asks for anything.
            _log.debug("a heartbeat failed: %s", error)
        del found


def create_handler(store: Store, backend: RendezvousBackend, params: RendezvousParameters) -> DynamicRendezvousHandler:
    """The handler that `params` describe.

    Options, in seconds: ``join_timeout`` (600; ``timeout`` is another name), ``last_call_timeout`` (30), ``close_timeout`` (30),
    ``heartbeat_timeout`` (5), ``keep_alive_interval`` (5); and ``keep_alive_max_attempt`` (3), a number of heartbeats.

    Args:
        store: shared by the machines of each round.
        backend: keeps the state.
        params: as for `get_rendezvous_handler`.
    Raises: ValueError for options that do not fit.
    """

    def seconds(*names: str) -> timedelta | None:
        for name in names:
            value = params.get_as_int(name)
            if value is not None:
                return timedelta(seconds=value)
        return None

    timeout = RendezvousTimeout(
        seconds("join_timeout", "timeout"), seconds("last_call_timeout"), seconds("close_timeout"), seconds("heartbeat_timeout")
    )
    interval, attempts = params.get_as_int("keep_alive_interval", 5), params.get_as_int("keep_alive_max_attempt", 3)
    assert interval is not None
    assert attempts is not None
    return DynamicRendezvousHandler.from_backend(
        params.run_id, store, backend, params.min_nodes, params.max_nodes, params.local_addr, timeout, interval, attempts
    )
