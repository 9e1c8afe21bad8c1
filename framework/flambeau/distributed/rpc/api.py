"""Calls of functions of other workers."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import os
import re
import time
from collections.abc import Callable
from typing import Any, NoReturn

from ... import _missing
from ...autograd._region import record_function
from ...futures import Future
from .. import distributed_c10d
from .._errors import DistNetworkError
from .._stores import PrefixStore
from . import _agent, _names, _rref, constants
from ._agent import Request, WorkerInfo
from ._rref import Method, References, RRef
from .options import RpcBackendOptions, TensorPipeRpcBackendOptions

__all__ = [
    "BackendType", "get_rpc_timeout", "get_worker_info", "init_rpc", "is_available", "remote", "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip

CALL, REMOTE = 101, 102
_NAME = re.compile(r"[A-Za-z0-9\-_:]{1,127}")
_jobs = itertools.count()
_close_store: list[Callable[[], None]] = []


class BackendType(enum.Enum):
    """The agents there are; `TENSORPIPE` is PyTorch's name for the only one, which is Flambeau's own."""

    TENSORPIPE = "TENSORPIPE"

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


def is_available() -> bool:
    """Whether calls are built: True."""
    return True


def init_rpc(
    name: str,
    backend: BackendType | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Make this process a worker that others call; returns when all workers are there.

    Args:
        name: of this worker, unique: letters, digits, "_", ":" and "-", fewer than 128.
        backend: only `BackendType.TENSORPIPE`.
        rank, world_size: which worker this is, of how many; from the environment where they are not given.
        rpc_backend_options: timeout, threads and where workers meet.
    Raises: RuntimeError if it has been called, or two workers have one name; ValueError for a bad name; TypeError for options
        of another class.
    """
    if _agent._agent is not None:
        raise RuntimeError("RPC is already initialized")
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError(f"init_rpc: backend must be a BackendType, got {type(backend).__name__}")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RuntimeError(
            f"init_rpc: Worker name must match ^[A-Za-z0-9-_:]*$, and must be non-empty and shorter than 128 chars, but got {name!r}"
        )
    options = TensorPipeRpcBackendOptions() if rpc_backend_options is None else rpc_backend_options
    if not isinstance(options, RpcBackendOptions):
        raise TypeError(f"RPC backend options must be an instance of RpcBackendOptions, got {type(options).__name__}")
    patience = distributed_c10d.default_pg_timeout
    size = -1 if world_size is None else world_size
    if options.init_method == "env://" and distributed_c10d._world.store is not None:
        # The port of the environment is taken by the store of the process group, which all workers share already.
        store: Any = distributed_c10d._world.store
        rank = int(os.environ["RANK"]) if rank == -1 else rank
        size = int(os.environ["WORLD_SIZE"]) if size == -1 else size
    else:
        store, rank, size = next(iter(distributed_c10d.rendezvous(options.init_method, rank, size, patience)))
        inner = getattr(store, "underlying_store", store)
        _close_store.append(getattr(inner, "close", lambda: None))
    if not 0 <= rank < size:
        raise ValueError(f"init_rpc: rank must be in [0, world_size), got rank {rank} and world_size {size}")
    threads = getattr(options, "num_worker_threads", constants.DEFAULT_NUM_WORKER_THREADS)
    prefix = PrefixStore(f"rpc/{next(_jobs)}", store)
    host = distributed_c10d._address_here(store)
    try:
        agent = _agent.Agent(name, rank, size, prefix, host, threads, options.rpc_timeout, patience.total_seconds())
    except BaseException:
        while _close_store:
            _close_store.pop()()
        raise
    agent.handlers.update({CALL: _serve_call, REMOTE: _serve_remote})
    from .. import autograd

    autograd._start(agent)
    _rref.set_references(References(agent))
    _agent.set_agent(agent)
    agent.ready.set()


def shutdown(graceful: bool = True, timeout: float = constants.DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """End this worker.

    Args:
        graceful: wait for all workers to call this, and for all calls to end.
        timeout: seconds to wait for other workers; 0 is without an end.
    Raises: RuntimeError before `init_rpc`, or when a worker has ended otherwise or is late; this worker is shut down then too.
    """
    agent, refs = _agent.agent(), _rref.references()
    try:
        if graceful:
            try:
                agent.drain()
                agent.settle(timeout)
                # The program's calls have ended everywhere, so nobody needs references any more.
                refs.delete_users()
            finally:
                _leave(agent, timeout)
    finally:
        refs.close()
        agent.close()
        from .. import autograd

        autograd._stop()
        _rref.set_references(None)
        _agent.set_agent(None)
        while _close_store:
            _close_store.pop()()


def _leave(agent: _agent.Agent, timeout: float) -> None:
    """The worker that may serve the store stays until the others have read what they want, or have ended without it."""
    if agent.me.id == 0:
        end = time.monotonic() + (timeout or agent.timeout or constants.DEFAULT_RPC_TIMEOUT_SEC)
        for peer in range(1, len(agent.workers)):
            while agent.store._await(0.1, "get", f"left/{peer}") is None and not agent.has_gone(peer) and time.monotonic() < end:
                pass
    else:
        with contextlib.suppress(DistNetworkError):  # worker 0 has ended, so the store that it served is not read any more
            agent.store.set(f"left/{agent.me.id}", b"")


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """The worker of a name, this one if it is None.

    Raises: RuntimeError for a name that no worker has.
    """
    return _agent.agent().me if worker_name is None else _worker(worker_name)


def _worker(to: str | int | WorkerInfo) -> WorkerInfo:
    agent = _agent.agent()
    if isinstance(to, WorkerInfo):
        return to
    if isinstance(to, str):
        if to not in agent.by_name:
            raise RuntimeError(f"name:{agent.me.name},rank:{agent.me.id} could not find destination name {to}")
        return agent.by_name[to]
    if isinstance(to, int):
        if not 0 <= to < len(agent.workers):
            raise RuntimeError(f"name:{agent.me.name},rank:{agent.me.id} could not find destination id {to}")
        return agent.workers[to]
    raise ValueError(f"Cannot get WorkerInfo from name {to}")


def _require_initialized(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function that raises RuntimeError while this process is no worker; packages decorate theirs with it."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _agent.agent()
        return func(*args, **kwargs)

    return wrapper


def get_rpc_timeout() -> float:
    """Seconds that a call may take where it does not say; 0 is without an end."""
    return _agent.agent().timeout


def _set_rpc_timeout(rpc_timeout: float) -> None:
    _agent.agent().timeout = float(rpc_timeout)


def _ask(kind: int, to: Any, func: Any, args: Any, kwargs: Any, timeout: float, name: str, *more: Any) -> Future[Any]:
    from .. import autograd

    agent, worker = _agent.agent(), _worker(to)
    body = [func, tuple(args or ()), dict(kwargs or {}), *more]
    # For the profiler: the call lasts until its answer is here.
    with record_function(f"{name}#{_named(func)}({agent.me.name} -> {worker.name})") as region:
        asked = agent.ask(worker.id, kind, body, timeout, autograd._current_id())
        return asked if region._observer is None else region._call_end_callbacks_on_future(asked)


def _named(func: Any) -> str:
    if isinstance(func, Method):
        return func.name
    return f"{getattr(func, '__module__', '')}.{getattr(func, '__qualname__', type(func).__qualname__)}"


def _check_callable(func: Any) -> None:
    if not callable(func) and not isinstance(func, Method):
        raise TypeError("function should be callable.")


def rpc_sync(to: Any, func: Callable[..., Any], args: Any = None, kwargs: Any = None, timeout: float = -1.0) -> Any:
    """What `func` returns on worker `to`.

    Args:
        to: name, rank or `WorkerInfo`.
        func: found by its module and name on both sides.
        args, kwargs: data, tensors of the CPU, RRefs, functions and classes.
        timeout: seconds; 0 is without an end, negative is the default of `init_rpc`.
    Raises: what `func` raises, with the traceback of the other side in its text; RuntimeError when the time is over, or a
        worker has gone; TypeError or AttributeError for what cannot be sent.
    """
    _check_callable(func)
    return _ask(CALL, to, func, args, kwargs, timeout, "rpc_sync").wait()


def rpc_async(to: Any, func: Callable[..., Any], args: Any = None, kwargs: Any = None, timeout: float = -1.0) -> Future[Any]:
    """The future of what `rpc_sync` returns or raises.

    Args:
        to, func, args, kwargs, timeout: as of `rpc_sync`; the arguments are copied before this returns.
    """
    _check_callable(func)
    return _ask(CALL, to, func, args, kwargs, timeout, "rpc_async")


def remote(to: Any, func: Callable[..., Any], args: Any = None, kwargs: Any = None, timeout: float = -1.0) -> RRef[Any]:
    """A reference to what `func` returns on worker `to`, at once.

    Args:
        to, func, args, kwargs: as of `rpc_sync`.
        timeout: seconds until the worker must have confirmed that it has the value; later uses of the reference raise.
    """
    _check_callable(func)
    worker, refs = _worker(to), _rref.references()
    rref_id, fork_id = refs.new_id(), refs.new_id()
    if worker.id == refs.agent.me.id:
        rref = RRef._make(refs, worker.id, rref_id, record=refs.owned(rref_id))
        made = _ask(REMOTE, worker, func, args, kwargs, timeout, "rpc_remote", list(rref_id), None)
        made.add_done_callback(lambda asked: _fail(rref._record.value, asked._error))
        return rref
    confirmed = _ask(REMOTE, worker, func, args, kwargs, timeout, "rpc_remote", list(rref_id), list(fork_id))
    return RRef._make(refs, worker.id, rref_id, fork_id, confirmed)


def _fail(value: Future[Any], error: BaseException | None) -> None:
    """The end of a call that could not even begin; a call that began has set its own outcome."""
    if error is not None and not value.done():
        value.set_exception(error)


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """Call `func` for another worker; a future for a function that says it returns one, its value otherwise."""
    if isinstance(func, Method):
        value = func.rref.local_value()
        _names.check_allowed(f"{type(value).__module__}.{type(value).__qualname__}.{func.name}")
        func = getattr(value, func.name)
    result = func(*args, **kwargs)
    is_async = hasattr(func, "_wrapped_async_rpc_function")
    if is_async and not isinstance(result, Future):
        raise TypeError(f"Functions decorated with @rpc.async_execution must return a Future object, but got {type(result).__name__}")
    if isinstance(result, Future) and not is_async:
        raise TypeError("rpc: a Future cannot be sent; decorate the function that returns it with rpc.functions.async_execution")
    return result


def _serve_call(request: Request) -> Any:
    return _run(*request.body)


def _serve_remote(request: Request) -> Any:
    func, args, kwargs, rref_id, fork_id = request.body
    refs = _rref.references()
    fork = None if fork_id is None else (_rref.GloballyUniqueId(*fork_id), request.peer)
    record = refs.arrive(_rref.GloballyUniqueId(*rref_id), fork)
    done: Future[Any] = Future()

    def finish(result: Future[Any]) -> None:
        try:
            record.value.set_result(result.value())
        except Exception as error:
            record.value.set_exception(_agent._rebuilt(*refs.agent.describe_error(error)))
        done.set_result(None)

    try:
        result = _run(func, args, kwargs)
    except Exception as error:
        result = Future()
        result.set_exception(error)
    if isinstance(result, Future):
        result.add_done_callback(finish)
    else:
        record.value.set_result(result)
        done.set_result(None)
    return done


def __getattr__(name: str) -> NoReturn:
    raise _missing.attribute_error(__name__, name)
