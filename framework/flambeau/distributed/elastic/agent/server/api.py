"""What an agent is, and what all agents do: meet, start workers, watch them, begin again."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import enum
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from ...._errors import DistNetworkError, DistStoreError
from ...._stores import Store
from ...events import Event, EventSource, record
from ...metrics import prof, put_metric
from ...multiprocessing import ProcessFailure, SignalException
from ...rendezvous import RendezvousError, RendezvousGracefulExitError, RendezvousHandler

__all__ = ["ElasticAgent", "RunResult", "SimpleElasticAgent", "Worker", "WorkerGroup", "WorkerSpec", "WorkerState"]

_log = logging.getLogger(__name__)
_MEETING_SECONDS = 300.0  # that machines which have met wait for what the others say


@dataclasses.dataclass
class WorkerSpec:
    """What the workers of one role on one machine are.

    Args:
        role: what they are called.
        local_world_size: how many there are on this machine.
        rdzv_handler: how machines meet.
        fn: another name for entrypoint, for functions.
        entrypoint: a function, or the path of a program.
        args: its arguments; ``${local_rank}`` in text stands for the local rank.
        max_restarts: how often workers are started again after a failure.
        monitor_interval: seconds between two looks at the workers.
        master_port, master_addr: where workers make their store; what the machines agreed on if None.
        local_addr: address of this machine.
        event_log_handler: where events go.
        numa_options, duplicate_stdout_filters, duplicate_stderr_filters, virtual_local_rank: not built.
    Raises: AssertionError for no workers, no entrypoint or no time between looks; NotImplementedError for what is not built.
    """

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    fn: Callable[..., Any] | None = None
    entrypoint: Callable[..., Any] | str | None = None
    args: tuple[Any, ...] = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        for ok, what in (
            (self.local_world_size > 0, f"local_world_size must be positive, got {self.local_world_size}"),
            (self.monitor_interval > 0, f"monitor_interval must be positive, got {self.monitor_interval}"),
            (self.fn or self.entrypoint, "an entrypoint is missing"),
        ):
            if not ok:
                raise AssertionError(f"WorkerSpec: {what}")
        for name in ("numa_options", "duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank"):
            if getattr(self, name):
                raise NotImplementedError(f"WorkerSpec: {name} is not built")
        self.entrypoint = self.entrypoint or self.fn

    def get_entrypoint_name(self) -> str:
        """The name of the function, or the file name of the program."""
        if isinstance(self.entrypoint, str):
            return os.path.basename(self.entrypoint)
        assert self.entrypoint is not None
        return self.entrypoint.__qualname__


class Worker:
    """One worker. Its ranks may change when machines meet again, so they say nothing about which worker it is.

    Attributes: id (of the process, None before it starts), local_rank, global_rank (among all workers), role_rank (among those of its
        role), world_size, role_world_size.

    Args:
        local_rank: its rank on its machine.
        global_rank, role_rank, world_size, role_world_size: -1 until machines have met.
    """

    __slots__ = ("global_rank", "id", "local_rank", "role_rank", "role_world_size", "world_size")

    def __init__(
        self, local_rank: int, global_rank: int = -1, role_rank: int = -1, world_size: int = -1, role_world_size: int = -1
    ) -> None:
        self.id: Any = None
        self.local_rank, self.global_rank, self.role_rank = local_rank, global_rank, role_rank
        self.world_size, self.role_world_size = world_size, role_world_size

    def __repr__(self) -> str:
        return (
            f"local_rank={self.local_rank},global_rank={self.global_rank},role_rank={self.role_rank},"
            f"world_size={self.world_size},role_world_size={self.role_world_size}"
        )


class WorkerState(str, enum.Enum):  # noqa: UP042  # str() of a member is PyTorch's, which StrEnum changes
    """What state all workers of a group are in together.

    UNKNOWN: the agent does not know; nothing can be done. INIT: not started. HEALTHY: they run. UNHEALTHY: they run, and something is
    wrong. STOPPED: the agent ended them. SUCCEEDED: they ended well. FAILED: one or more did not.
    """

    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Whether workers in `state` have processes: HEALTHY or UNHEALTHY."""
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)


class WorkerGroup:
    """The workers of one role on one machine.

    Attributes: spec, workers, store (shared by the machines), group_rank (of this machine), group_world_size (how many machines),
        master_addr, master_port (where workers make their store), state.

    Args:
        spec: what they are.
    """

    __slots__ = ("group_rank", "group_world_size", "master_addr", "master_port", "spec", "state", "store", "workers")

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.workers = [Worker(rank) for rank in range(spec.local_world_size)]
        self.store: Store | None = None
        self.group_rank: int | None = None
        self.group_world_size: int | None = None
        self.master_addr: str | None = None
        self.master_port: int | None = None
        self.state = WorkerState.INIT


@dataclasses.dataclass
class RunResult:
    """How the workers of a machine ended.

    Args:
        state: of all together.
        return_values: what functions returned, by global rank.
        failures: those that failed, by global rank.
    """

    state: WorkerState
    return_values: dict[int, Any] = dataclasses.field(default_factory=dict)
    failures: dict[int, ProcessFailure] = dataclasses.field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether one or more failed."""
        return self.state is WorkerState.FAILED


class ElasticAgent(abc.ABC):
    """Runs the workers of one machine; a program's own kind defines these methods."""

    @abc.abstractmethod
    def run(self, role: str = "default") -> RunResult:
        """Run the workers to their end.

        Args:
            role: of the workers.
        Returns: how they ended; workers that fail are no exception.
        Raises: an exception for everything else that goes wrong.
        """

    @abc.abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """The workers of `role`, to be read and not to be changed."""


class SimpleElasticAgent(ElasticAgent):
    """What all agents of one role do; a kind of agent defines how workers are started, watched and ended.

    Args:
        spec: what the workers are.
        exit_barrier_timeout: seconds to wait for the other machines when the workers here have ended well.
        shutdown_timeout: seconds that workers have to end when they are asked to.
    """

    def __init__(self, spec: WorkerSpec, exit_barrier_timeout: float = 300, shutdown_timeout: int = 30) -> None:
        self._worker_group = WorkerGroup(spec)
        self._remaining_restarts = spec.max_restarts
        self._exit_barrier_timeout, self._shutdown_timeout = exit_barrier_timeout, shutdown_timeout
        self._began = time.monotonic()

    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """The workers; there is one role only."""
        return self._worker_group

    @abc.abstractmethod
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start the workers; their ids by local rank."""

    @abc.abstractmethod
    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """End the workers, who may begin again."""

    @abc.abstractmethod
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Look at the workers."""

    @abc.abstractmethod
    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        """End the workers for good.

        Args:
            death_sig: the signal that asks them to.
            timeout: seconds they have.
        """

    @prof
    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Meet the other machines, and give the workers their ranks."""
        spec = worker_group.spec
        while True:
            info = spec.rdzv_handler.next_rendezvous()
            counts = self._reported_counts(info.store, info.rank, info.world_size, spec)
            if counts is not None:
                break
            _log.warning("a machine died when all had met; they meet again")
        worker_group.store = info.store
        worker_group.group_rank, worker_group.group_world_size = info.rank, info.world_size
        where = info.bootstrap_store_info
        assert where is not None
        worker_group.master_addr = spec.master_addr or where.master_addr
        worker_group.master_port = where.master_port if spec.master_port is None else spec.master_port
        worker_group.workers = self._assign_worker_ranks(counts, info.rank, spec)

    def _reported_counts(self, store: Store, rank: int, size: int, spec: WorkerSpec) -> list[list[Any]] | None:
        """Role and number of workers of each machine; None if one died before it said so."""
        store.set(f"agents/{rank}", json.dumps([spec.role, spec.local_world_size]))
        if self._missing(store, "agents/", size, _MEETING_SECONDS):
            return None
        found = store.multi_get([f"agents/{other}" for other in range(size)])
        store.set(f"agents.read/{rank}", "1")
        if rank == 0:                                  # it may serve the store, so it goes on last
            self._missing(store, "agents.read/", size, _MEETING_SECONDS)
        return [json.loads(text) for text in found]

    def _missing(self, store: Store, prefix: str, size: int, seconds: float) -> set[int]:
        """Wait until all machines have set ``prefix`` and their rank, or those that have not are gone: these.

        Raises: DistStoreError after `seconds`.
        """
        handler, end = self._worker_group.spec.rdzv_handler, time.monotonic() + seconds
        wanted = set(range(size))
        while True:
            wanted = {rank for rank in wanted if not store.check([f"{prefix}{rank}"])}
            if not wanted or wanted <= handler.ranks_gone():
                return wanted
            if time.monotonic() > end:
                machines = ", ".join(map(str, sorted(wanted)))
                raise DistStoreError(f"machines {machines} of {size} did not say how many workers they have within {seconds:g} s")
            time.sleep(0.05)

    def _assign_worker_ranks(self, counts: list[list[Any]], group_rank: int, spec: WorkerSpec) -> list[Worker]:
        """Ranks of the workers here: machines in order of their ranks, and those of one role among themselves."""
        before = sum(count for _, count in counts[:group_rank])
        role_before = sum(count for role, count in counts[:group_rank] if role == spec.role)
        size = sum(count for _, count in counts)
        role_size = sum(count for role, count in counts if role == spec.role)
        return [
            Worker(rank, before + rank, role_before + rank, size, role_size) for rank in range(spec.local_world_size)
        ]

    def _initialize_workers(self, worker_group: WorkerGroup) -> None:
        """Meet the other machines and start the workers."""
        self._rendezvous(worker_group)
        for local_rank, worker_id in self._start_workers(worker_group).items():
            worker_group.workers[local_rank].id = worker_id
        worker_group.state = WorkerState.HEALTHY

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        """End the workers, meet again and start others."""
        self._stop_workers(worker_group)
        worker_group.state = WorkerState.STOPPED
        self._initialize_workers(worker_group)

    def run(self, role: str = "default") -> RunResult:
        """Run the workers to their end, here and on the machines that take part.

        Workers that fail are started again, `max_restarts` times. When a machine comes that the job has a place for, workers of all
        machines are started again, which does not count.

        Args:
            role: of the workers.
        Returns: how they ended.
        Raises: RendezvousError when the machines do not meet; SignalException when a signal ended this process.
        """
        self._began = time.monotonic()
        try:
            result = self._invoke_run(role)
        except RendezvousGracefulExitError as error:
            # This machine only waited; the others did the work.
            _log.info("%s", error)
            result = RunResult(WorkerState.SUCCEEDED)
        except SignalException as error:
            self._shutdown(error.sigval, self._shutdown_timeout)
            raise
        except Exception:
            self._tell("FAILED")
            raise
        finally:
            self._shutdown(timeout=self._shutdown_timeout)
        self._tell_result(result)
        return result

    def _invoke_run(self, role: str) -> RunResult:
        group = self._worker_group
        spec = group.spec
        self._initialize_workers(group)
        while True:
            time.sleep(spec.monitor_interval)
            result = self._monitor_workers(group)
            group.state = result.state
            if result.state is WorkerState.SUCCEEDED:
                self._exit_barrier()
                return result
            if result.state in (WorkerState.UNHEALTHY, WorkerState.FAILED):
                if not self._remaining_restarts:
                    self._stop_workers(group)
                    group.state = WorkerState.FAILED
                    self._say_that_workers_ended()
                    return dataclasses.replace(result, state=WorkerState.FAILED)
                self._remaining_restarts -= 1
                self._warn_of_restart(result)
                try:
                    self._restart_workers(group)
                except RendezvousError as error:
                    # The others have ended: what ended the workers here says more than that.
                    if not result.failures:
                        raise
                    _log.warning("workers cannot start again: %s: %s", type(error).__name__, error)
                    return dataclasses.replace(result, state=WorkerState.FAILED)
            elif result.state is not WorkerState.HEALTHY:
                raise RuntimeError(f"workers of role {spec.role!r} are {result.state.name}, so the agent cannot go on")
            elif waiting := spec.rdzv_handler.num_nodes_waiting():
                _log.warning("%d machines came; starting all workers again", waiting)
                self._restart_workers(group)

    def _warn_of_restart(self, result: RunResult) -> None:
        spec = self._worker_group.spec
        attempt = spec.max_restarts - self._remaining_restarts
        ended = ", ".join(f"rank {rank} ended with {failure.exitcode}" for rank, failure in sorted(result.failures.items()))
        _log.warning("%s; starting all workers again (%d of %d)", ended or result.state.name, attempt, spec.max_restarts)

    def _exit_barrier(self) -> None:
        """Wait until the workers of all machines have ended, for one of these may serve the store of all."""
        group = self._worker_group
        store, size = group.store, group.group_world_size
        assert store is not None
        assert size is not None
        end = time.monotonic() + self._exit_barrier_timeout
        try:
            store.set(f"ended/{group.group_rank}", "1")
            handler = group.spec.rdzv_handler
            while time.monotonic() < end:
                left = {rank for rank in range(size) if not store.check([f"ended/{rank}"])}
                # One that died ends no more, and one that failed starts again only with all of them; those here have ended well.
                if left <= handler.ranks_gone() or handler.is_closed() or handler.num_nodes_waiting():
                    return
                time.sleep(min(0.1, group.spec.monitor_interval))
        except (DistNetworkError, DistStoreError, RendezvousError) as error:
            # The machine that serves the store waits for all others before it goes.
            _log.debug("waiting for the other machines ended: %s", error)

    def _say_that_workers_ended(self) -> None:
        group = self._worker_group
        assert group.store is not None
        with contextlib.suppress(DistNetworkError, DistStoreError):  # the machine that serves the store has gone: nobody waits
            group.store.set(f"ended/{group.group_rank}", "1")

    # What is told to events and numbers.

    def _tell_result(self, result: RunResult) -> None:
        group = self._worker_group
        for worker in group.workers:
            failure = result.failures.get(worker.global_rank)
            # One that did not fail itself was ended because of those that did.
            state = "SUCCEEDED" if not result.is_failed() else "FAILED" if failure else "TERMINATED"
            self._tell(state, worker, failure)
        self._tell(result.state.value)
        restarts = group.spec.max_restarts - self._remaining_restarts
        kind = "failed" if result.is_failed() else "success"
        put_metric(f"workers.{group.spec.role}.run_{kind}_{'with' if restarts else 'no'}_retries", 1)

    def _tell(self, state: str, worker: Worker | None = None, failure: ProcessFailure | None = None) -> None:
        group = self._worker_group
        spec = group.spec
        about: dict[str, Any] = {
            "run_id": spec.rdzv_handler.get_run_id(),
            "global_rank": None if worker is None else worker.global_rank,
            "group_rank": group.group_rank,
            "worker_id": None if worker is None or worker.id is None else str(worker.id),
            "role": spec.role,
            "hostname": socket.gethostname(),
            "state": state,
            "total_run_time": int(time.monotonic() - self._began),
            "rdzv_backend": spec.rdzv_handler.get_backend(),
            "raw_error": None if failure is None else json.dumps(failure.error_file_data),
            "exit_code": None if failure is None else failure.exitcode,
            "entry_point": spec.get_entrypoint_name(),
            "restarts": spec.max_restarts - self._remaining_restarts,
        }
        source = EventSource.AGENT if worker is None else EventSource.WORKER
        name = f"flambeau.worker.status.{state}"
        record(Event(name, source, int(time.time() * 1000), about), spec.event_log_handler)
