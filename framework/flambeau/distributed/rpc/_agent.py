"""The agent of a worker: one connection to each worker it calls, calls that wait for answers, and threads that run those of others.

A message is a kind, a number, the autograd context it belongs to, and a body of data (`_pack`). Functions travel as names,
RRefs as what `_rref` says of them. Nothing that a message says is unpickled unless the program called `allow_pickle`.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ...futures import Future
from .. import _wire
from .._errors import DistNetworkError
from .._pack import pack, unpack
from .._stores import Store
from . import _names

__all__ = ["Agent", "Request", "WorkerInfo", "agent", "set_agent"]

# kind, number, autograd context, number of the message within it
_HEADER = struct.Struct("<BQqQ")
RESULT, ERROR = 254, 255
# Kinds that run a program's functions have threads of their own, so that these cannot starve what keeps references and gradients.
_PROGRAM = 100
_SYSTEM_THREADS = 64
NO_CONTEXT = -1


class WorkerInfo(NamedTuple):
    """A worker's name and rank, from `get_worker_info`."""

    name: str
    id: int

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


class Request(NamedTuple):
    """A message of another worker to answer."""

    peer: int
    body: Any
    context: int


class _Waiting(NamedTuple):
    future: Future[Any]
    to: int
    link: Any


class _Answer(Future[Any]):
    """A future that a connection's thread completes. Callbacks run in another one, for they may wait for further answers."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self._run = run

    def _call(self, callback: Callable[[Future[Any]], Any]) -> None:
        if getattr(_thread, "reads", False):
            self._run(super()._call, callback)
        else:
            super()._call(callback)


_thread = threading.local()


class _Here:
    """The connection of a worker to itself."""

    def __init__(self, dispatch: Callable[..., None], rank: int) -> None:
        self._dispatch, self._rank = dispatch, rank

    def send(self, *parts: bytes) -> None:
        self._dispatch(self, self._rank, b"".join(parts))


class Agent:
    """What a worker is to the others.

    Args:
        name, rank, size: who this is, of how many.
        store: where workers leave their addresses.
        host: the address to listen at.
        threads: how many calls of others run at once.
        timeout: seconds a call may take, where it does not say; 0 is without an end.
        start: seconds to wait for the other workers.
    Raises: RuntimeError for a name that two workers have; DistStoreError or DistNetworkError for workers that do not come.
    """

    def __init__(self, name: str, rank: int, size: int, store: Store, host: str, threads: int, timeout: float, start: float) -> None:
        self.me = WorkerInfo(name, rank)
        self.store, self.timeout, self._start = store, timeout, start
        self.handlers: dict[int, Callable[[Request], Any]] = {}
        self.describe: Callable[[Any, int], Any] = lambda value, to: None
        self.restore: Callable[[Any, int], Any] = lambda description, peer: None
        self.contexts: Any = None
        self.on_loss: list[Callable[[int], None]] = []
        self.gone: dict[int, str] = {}
        self.closing = False
        self.ready = threading.Event()  # set when the handlers are there; what comes earlier waits
        self._key = _wire.job_key()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._changed = threading.Condition()
        self._sent = self._taken = self._handled = 0
        self._links: dict[int, Any] = {rank: _Here(self._dispatch, rank)}
        self._link_locks = [threading.Lock() for _ in range(size)]
        self._all_links: list[_wire.Connection] = []
        self._deadlines: list[tuple[float, int, float]] = []
        self._program_pool = ThreadPoolExecutor(threads, f"rpc of {name}")
        self._system_pool = ThreadPoolExecutor(_SYSTEM_THREADS, f"rpc system of {name}")
        self._listener = _wire.listen(host, 0)
        threading.Thread(target=self._accept, daemon=True, name="rpc accept").start()
        threading.Thread(target=self._watch, daemon=True, name="rpc timeouts").start()
        try:
            self.workers, self._addresses = self._meet(host, size, start)
        except BaseException:
            self.close()
            raise

    # Coming together

    def _meet(self, host: str, size: int, start: float) -> tuple[list[WorkerInfo], list[tuple[str, int]]]:
        self.store.set(f"worker/{self.me.id}", pack([self.me.name, host, self._listener.getsockname()[1]]))
        workers, addresses = [], []
        end = time.monotonic() + start
        for peer in range(size):
            found = self.store._await(max(0.1, end - time.monotonic()), "get", f"worker/{peer}")
            if found is None:
                raise DistNetworkError(f"init_rpc: worker {peer} of {size} did not come within {start:g} s")
            name, address, port = unpack(found)
            workers.append(WorkerInfo(name, peer))
            addresses.append((address, port))
        names = [worker.name for worker in workers]
        if len(set(names)) < size:
            raise RuntimeError(f"init_rpc: RPC worker names must be unique, got {names}")
        self.by_name = {worker.name: worker for worker in workers}
        return workers, addresses

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._admit, args=(sock, f"{address[0]}:{address[1]}"), daemon=True).start()

    def _admit(self, sock: socket.socket, where: str) -> None:
        try:
            link = _wire.accept_proof(sock, self._key, where)
            peer = unpack(link.receive(64))
        except (DistNetworkError, ValueError):
            sock.close()  # a stranger; a worker with the wrong key is told so by its own side
            return
        if type(peer) is not int or not 0 <= peer < len(self._link_locks):
            link.close()
            return
        self._all_links.append(link)
        self._read(link, peer)

    def _link(self, to: int) -> Any:
        link = self._links.get(to)
        if link is not None:
            return link
        with self._link_locks[to]:
            if to in self._links:
                return self._links[to]
            if to in self.gone:
                raise DistNetworkError(f"rpc: {self.workers[to]} is gone: {self.gone[to]}")
            host, port = self._addresses[to]
            # The other one listens since before its address was known, so a refusal means that it has ended.
            link = _wire.connect(host, port, self._key, min(self._start, 5.0), str(self.workers[to]))
            link.send(pack(self.me.id))
            self._all_links.append(link)
            self._links[to] = link
        threading.Thread(target=self._read, args=(link, to), daemon=True, name=f"rpc to {to}").start()
        return link

    # Messages

    def encode(self, kind: int, number: int, body: Any, to: int, context: int) -> bytes:
        """A message as bytes; tensors with a history join `context`."""
        sending = self.contexts.sending(context, to) if self.contexts is not None and context != NO_CONTEXT else None

        def describe(value: Any) -> Any:
            if _names.is_named(value):
                return ["name", *_names.name_of(value)]
            description = None if sending is None else sending.describe(value)
            return self.describe(value, to) if description is None else description

        packed = pack(body, describe)
        message = 0 if sending is None else sending.record()
        return _HEADER.pack(kind, number, context, message) + packed

    def _decode(self, data: Any, peer: int, context: int, message: int) -> Any:
        receiving = self.contexts.receiving(context, message, peer) if message else None

        def restore(description: Any) -> Any:
            if description[0] == "name":
                return _names.named(description[1], description[2])
            if description[0] == "history":
                if receiving is None:
                    raise ValueError("rpc: a message has a tensor of an autograd context, and no context")
                return receiving.restore(description)
            return self.restore(description, peer)

        value = unpack(data, restore)
        if receiving is not None:
            receiving.record()
        return value

    def ask(self, to: int, kind: int, body: Any, timeout: float = -1.0, context: int = NO_CONTEXT) -> Future[Any]:
        """Send a message that is answered; the future of the answer.

        Args:
            to: rank of the worker.
            kind, body: the message.
            timeout: seconds; 0 is without an end, negative is the default's.
            context: the autograd context that tensors of the message and of the answer join.
        Raises: TypeError or AttributeError for what cannot be sent.
        """
        seconds = self.timeout if timeout < 0 else timeout
        number = next(self._numbers)
        frame = self.encode(kind, number, body, to, context)
        answer = _Answer(self.later)
        try:
            link = self._link(to)
            with self._changed:
                self._waiting[number] = _Waiting(answer, to, link)
                self._sent += 1
                if seconds:
                    heapq.heappush(self._deadlines, (time.monotonic() + seconds, number, seconds))
                    self._changed.notify_all()
            link.send(frame)
        except DistNetworkError as error:
            self._lost(to, str(error))
            if not answer.done():
                answer.set_exception(error)
        return answer

    def tell(self, to: int, kind: int, body: Any) -> None:
        """Send a message without an answer; one to a worker that has gone is dropped."""
        with contextlib.suppress(DistNetworkError):
            link = self._link(to)
            with self._changed:
                self._sent += 1
            link.send(self.encode(kind, 0, body, to, NO_CONTEXT))

    def later(self, function: Callable[..., Any], *args: Any) -> None:
        """Run `function` in a thread of this agent's own work; nothing happens any more once it has closed."""
        with contextlib.suppress(RuntimeError):  # the pool has been shut down
            self._system_pool.submit(function, *args)

    def _read(self, link: Any, peer: int) -> None:
        _thread.reads = True
        try:
            while True:
                self._dispatch(link, peer, link.receive())
        except (DistNetworkError, ValueError, struct.error) as error:
            link.close()
            if not self.closing:
                self._lost(peer, str(error))

    def _dispatch(self, link: Any, peer: int, frame: Any) -> None:
        kind, number, context, message = _HEADER.unpack_from(frame)
        data = memoryview(frame)[_HEADER.size :]
        if kind in (RESULT, ERROR):
            self._answered(kind, number, peer, context, message, data)
            return
        with self._changed:
            self._taken += 1
        pool = self._program_pool if kind >= _PROGRAM else self._system_pool
        with contextlib.suppress(RuntimeError):  # shutting down without waiting: calls of others are dropped
            pool.submit(self._handle, link, kind, number, peer, context, message, data)

    def _answered(self, kind: int, number: int, peer: int, context: int, message: int, data: Any) -> None:
        with self._changed:
            waiting = self._waiting.get(number)
        if waiting is None or waiting.to != peer:
            return  # its time was over, or nobody asked
        try:
            body = self._decode(data, peer, context, message)
            error = _rebuilt(*body) if kind == ERROR else None
        except Exception as failure:
            body, error = None, failure
        self._finish(number, body, error)

    def _finish(self, number: int, value: Any, error: BaseException | None) -> None:
        with self._changed:
            waiting = self._waiting.pop(number, None)
            self._changed.notify_all()
        if waiting is not None:
            waiting.future.set_exception(error) if error is not None else waiting.future.set_result(value)

    def _handle(self, link: Any, kind: int, number: int, peer: int, context: int, message: int, data: Any) -> None:
        def answer(kind: int, body: Any, context: int = NO_CONTEXT) -> None:
            with contextlib.suppress(DistNetworkError):  # who asked has gone
                link.send(self.encode(kind, number, body, peer, context))

        def finish(future: Any) -> None:
            try:
                value = future.value() if isinstance(future, Future) else future
                if number:
                    answer(RESULT, value, context)
            except BaseException as error:
                answer(ERROR, self.describe_error(error))
            finally:
                with self._changed:
                    self._handled += 1
                    self._changed.notify_all()

        self.ready.wait()
        try:
            if kind not in self.handlers:
                raise ValueError(f"rpc: message of the unknown kind {kind}")
            body = self._decode(data, peer, context, message)
            with self.contexts.entered(context) if self.contexts is not None else contextlib.nullcontext():
                result = self.handlers[kind](Request(peer, body, context))
        except BaseException as error:
            result = Future()
            result.set_exception(error)
        if isinstance(result, Future):
            result.add_done_callback(finish)
        else:
            finish(result)

    def describe_error(self, error: BaseException) -> list[str]:
        """Type and text of an exception for the worker that asked, with this side's traceback."""
        trace = "".join(traceback.format_exception(error))
        kind = type(error)
        return [kind.__module__, kind.__qualname__, f"On {self.me}:\n{error!r}\n{trace}"]

    # What can be wrong

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self.closing:
                    return
                if not self._deadlines:
                    self._changed.wait()
                    continue
                end, number, seconds = self._deadlines[0]
                left = end - time.monotonic()
                if left > 0 and number in self._waiting:
                    self._changed.wait(left)
                    continue
                heapq.heappop(self._deadlines)
                waiting = self._waiting.get(number)
            if waiting is not None:
                self.later(self._finish, number, None, self._late(waiting.to, seconds))

    def _late(self, to: int, seconds: float) -> RuntimeError:
        return RuntimeError(
            f"RPCErr:1:RPC ran for more than set timeout ({round(seconds * 1000)} ms) and will now be marked with an error: "
            f"{self.workers[to]} has not answered {self.me}"
        )

    def _lost(self, peer: int, why: str) -> None:
        with self._changed:
            self.gone.setdefault(peer, why)
            self._links.pop(peer, None)
            lost = [number for number, waiting in self._waiting.items() if waiting.to == peer]
        for number in lost:
            self._finish(number, None, DistNetworkError(f"rpc: {self.workers[peer]} is gone: {why}"))
        for tell in self.on_loss:
            tell(peer)

    # The end

    def drain(self) -> None:
        """Wait until nothing that this worker asked or was asked is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and self._taken == self._handled)

    def settle(self, timeout: float) -> None:
        """Wait until all workers do this and no message is under way between any of them.

        Each round tells how many messages a worker has sent and handled. Two rounds with the same numbers, as many sent as handled,
        prove that none is on its way.

        Args:
            timeout: seconds; 0 is without an end.
        Raises: RuntimeError that names a worker which has gone, or has not come in time.
        """
        end = time.monotonic() + timeout if timeout else float("inf")
        before = None
        for turn in itertools.count():
            self.drain()
            with self._changed:
                self.store.set(f"end/{turn}/{self.me.id}", pack([self._sent, self._handled]))
            counts = [self._count(turn, peer, end) for peer in range(len(self.workers))]
            if counts == before and sum(sent for sent, _ in counts) == sum(handled for _, handled in counts):
                return
            if counts == before:
                time.sleep(0.005)
            before = counts

    def _count(self, turn: int, peer: int, end: float) -> list[int]:
        while True:
            found = self.store._await(min(1.0, max(0.01, end - time.monotonic())), "get", f"end/{turn}/{peer}")
            if found is not None:
                return unpack(found)
            if time.monotonic() >= end:
                raise RuntimeError(f"rpc.shutdown: {self.workers[peer]} has not called shutdown() in time")
            why = self.has_gone(peer)
            if why:
                raise RuntimeError(f"rpc.shutdown: {self.workers[peer]} ended without shutdown(): {why}")

    def has_gone(self, peer: int) -> str:
        """Why the worker cannot be reached any more; nothing if it can."""
        try:
            self._link(peer)  # a worker that died refuses, or has closed the connection
        except DistNetworkError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """End all connections and threads; calls that wait for answers fail."""
        with self._changed:
            self.closing = True
            self.ready.set()
            numbers = list(self._waiting)
            self._changed.notify_all()
        # A thread that waits in accept() holds the socket open unless it is shut down first.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._all_links:
            link.close()
        for number in numbers:
            self._finish(number, None, RuntimeError("rpc: this worker was shut down before the answer came"))
        self._program_pool.shutdown(wait=False, cancel_futures=True)
        self._system_pool.shutdown(wait=False, cancel_futures=True)


def _rebuilt(module: str, qualname: str, text: str) -> Exception:
    kind = _names.exception_class(module, qualname)
    if kind is not None:
        try:
            return kind(text)
        except Exception as error:  # a class that wants other arguments than a text
            text = f"{module}.{qualname} cannot be made of a text here ({error}). {text}"
    else:
        text = f"{module}.{qualname}: {text}"
    return RuntimeError(text)


_agent: Agent | None = None


def agent() -> Agent:
    """This process's agent.

    Raises: RuntimeError before `init_rpc` and after `shutdown`.
    """
    if _agent is None:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return _agent


def set_agent(made: Agent | None) -> None:
    """Make `made` this process's agent."""
    global _agent
    _agent = made
