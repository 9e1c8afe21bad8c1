"""Python's `multiprocessing` with tensors that travel by their memory: a drop-in replacement.

What goes through its queues, pipes, pools and the arguments of its processes is pickled as ever, but of tensors and storages only
a handle is sent: the receiver maps the same memory, and each side sees what the other writes.

>>> from flambeau import multiprocessing as mp
>>> mp.get_sharing_strategy()
'file_descriptor'
"""

from __future__ import annotations

from multiprocessing import (
    Array,
    AuthenticationError,
    Barrier,
    BoundedSemaphore,
    BufferTooShort,
    Condition,
    Event,
    JoinableQueue,
    Lock,
    Manager,
    Pipe,
    Pool,
    Process,
    ProcessError,
    Queue,
    RawArray,
    RawValue,
    RLock,
    Semaphore,
    SimpleQueue,
    TimeoutError,
    Value,
    active_children,
    allow_connection_pickling,
    cpu_count,
    current_process,
    freeze_support,
    get_all_start_methods,
    get_context,
    get_logger,
    get_start_method,
    log_to_stderr,
    parent_process,
    reducer,
    set_executable,
    set_forkserver_preload,
    set_start_method,
)

from .. import _shared_memory
from . import reductions
from .reductions import init_reductions
from .spawn import (
    ENV_VAR_PARALLEL_START,
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    "ENV_VAR_PARALLEL_START",
    "Array",
    "AuthenticationError",
    "Barrier",
    "BoundedSemaphore",
    "BufferTooShort",
    "Condition",
    "Event",
    "JoinableQueue",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Process",
    "ProcessContext",
    "ProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "Queue",
    "RLock",
    "RawArray",
    "RawValue",
    "Semaphore",
    "SimpleQueue",
    "SpawnContext",
    "TimeoutError",
    "Value",
    "active_children",
    "allow_connection_pickling",
    "cpu_count",
    "current_process",
    "freeze_support",
    "get_all_sharing_strategies",
    "get_all_start_methods",
    "get_context",
    "get_logger",
    "get_sharing_strategy",
    "get_start_method",
    "init_reductions",
    "log_to_stderr",
    "parent_process",
    "reducer",
    "reductions",
    "set_executable",
    "set_forkserver_preload",
    "set_sharing_strategy",
    "set_start_method",
    "spawn",
    "start_processes",
]


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` takes on this system."""
    return set(_shared_memory.STRATEGIES)


def get_sharing_strategy() -> str:
    """How tensors that are shared from now on reach other processes."""
    return _shared_memory.strategy()


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how tensors that are shared from now on reach other processes.

    Args:
        new_strategy: 'file_descriptor' for memory without a name, which costs an open file in each process, and cannot be left
            behind; 'file_system' for files of /dev/shm, of which there may be any number. Set it before processes start.
    Raises: AssertionError for another name.
    """
    if new_strategy not in _shared_memory.STRATEGIES:
        raise AssertionError(f"set_sharing_strategy: new_strategy must be one of {sorted(_shared_memory.STRATEGIES)}, got {new_strategy!r}")
    _shared_memory.set_strategy(new_strategy)


init_reductions()
