"""An agent whose workers are processes of its machine."""

from __future__ import annotations

import os
import signal
import string
import time
import uuid
from typing import Any

from ...._stores import PrefixStore
from ...multiprocessing import LogsSpecs, PContext, start_processes
from ...timer import FileTimerServer
from ...utils import macros
from .api import RunResult, SimpleElasticAgent, WorkerGroup, WorkerSpec, WorkerState
from .health_check_server import HealthCheckServer, create_healthcheck_server

__all__ = [
    "TORCHELASTIC_ENABLE_FILE_TIMER",
    "TORCHELASTIC_HEALTH_CHECK_PORT",
    "TORCHELASTIC_TIMER_FILE",
    "LocalElasticAgent",
]

TORCHELASTIC_ENABLE_FILE_TIMER = "TORCHELASTIC_ENABLE_FILE_TIMER"
TORCHELASTIC_HEALTH_CHECK_PORT = "TORCHELASTIC_HEALTH_CHECK_PORT"
TORCHELASTIC_TIMER_FILE = "TORCHELASTIC_TIMER_FILE"

_UNHEALTHY_AFTER = 60  # seconds without a look at the workers


class LocalElasticAgent(SimpleElasticAgent):
    """Starts workers as processes of this machine, as functions or as programs.

    With ``TORCHELASTIC_ENABLE_FILE_TIMER=1`` workers may set timers (`elastic.timer.FileTimerClient`, with the path in
    ``TORCHELASTIC_TIMER_FILE``); with ``TORCHELASTIC_HEALTH_CHECK_PORT`` a `HealthCheckServer` answers there.

    Args:
        spec: what the workers are.
        logs_specs: where their output goes.
        start_method: of functions: 'spawn', 'fork' or 'forkserver'.
        exit_barrier_timeout: seconds to wait for the other machines when the workers here have ended well.
        log_line_prefix_template: put before lines that are printed here; it may have ``${role_name}``, ``${local_rank}`` and ``${rank}``.
        shutdown_timeout: seconds that workers have to end when they are asked to.
        health_check_server: another server than the one of ``TORCHELASTIC_HEALTH_CHECK_PORT``.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs,
        start_method: str = "spawn",
        exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None,
        shutdown_timeout: int = 30,
        health_check_server: HealthCheckServer | None = None,
    ) -> None:
        super().__init__(spec, exit_barrier_timeout, shutdown_timeout)
        self._logs_specs, self._start_method = logs_specs, start_method
        self._prefix = log_line_prefix_template
        self._health_check_server = health_check_server
        self._health_started = False
        self._context: PContext | None = None
        self._timers: FileTimerServer | None = None
        self._looked = int(time.time())

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        spec = worker_group.spec
        assert spec.entrypoint is not None
        self._start_health_checks()
        timers = self._start_timers()
        args, envs, prefixes = {}, {}, {}
        for worker in worker_group.workers:
            local_rank = worker.local_rank
            args[local_rank] = tuple(macros.substitute(list(spec.args), str(local_rank)))
            envs[local_rank] = {**self._environment(worker_group, local_rank), **timers}
            if self._prefix is not None:
                names = {"role_name": spec.role, "rank": worker.global_rank, "local_rank": local_rank}
                prefixes[local_rank] = string.Template(self._prefix).safe_substitute(names)
        self._context = start_processes(spec.role, spec.entrypoint, args, envs, self._logs_specs, prefixes or None, self._start_method)
        return dict(self._context.pids())

    def _environment(self, group: WorkerGroup, local_rank: int) -> dict[str, str]:
        spec, worker = group.spec, group.workers[local_rank]
        handler = spec.rdzv_handler
        given = {
            "LOCAL_RANK": local_rank, "RANK": worker.global_rank, "GROUP_RANK": group.group_rank, "ROLE_RANK": worker.role_rank,
            "ROLE_NAME": spec.role, "LOCAL_WORLD_SIZE": spec.local_world_size, "WORLD_SIZE": worker.world_size,
            "GROUP_WORLD_SIZE": group.group_world_size, "ROLE_WORLD_SIZE": worker.role_world_size,
            "MASTER_ADDR": group.master_addr, "MASTER_PORT": group.master_port,
            "TORCHELASTIC_RESTART_COUNT": spec.max_restarts - self._remaining_restarts,
            "TORCHELASTIC_MAX_RESTARTS": spec.max_restarts, "TORCHELASTIC_RUN_ID": handler.get_run_id(),
            "TORCHELASTIC_USE_AGENT_STORE": handler.use_agent_store,
        }  # fmt: skip
        found = {name: str(value) for name, value in given.items()}
        if handler.use_agent_store and isinstance(group.store, PrefixStore):
            # Each round has its keys: machines that meet again may count different numbers of restarts.
            found["FLAMBEAU_STORE_PREFIX"] = f"{group.store._prefix}/workers"
        if spec.local_world_size > 1 and "OMP_NUM_THREADS" not in os.environ:
            found["OMP_NUM_THREADS"] = "1"
        return found

    def _start_timers(self) -> dict[str, str]:
        if os.environ.get(TORCHELASTIC_ENABLE_FILE_TIMER) != "1":
            return {}
        if self._timers is not None:
            self._timers.stop()
        path = os.environ.get(TORCHELASTIC_TIMER_FILE) or os.path.join(self._logs_specs.root_log_dir, f"timers_{uuid.uuid4().hex}")
        self._timers = FileTimerServer(path, self._worker_group.spec.rdzv_handler.get_run_id(), 0.1)
        self._timers.start()
        return {TORCHELASTIC_TIMER_FILE: path}

    def _start_health_checks(self) -> None:
        if self._health_started:
            return
        port = os.environ.get(TORCHELASTIC_HEALTH_CHECK_PORT)
        if self._health_check_server is None and port is not None:
            self._health_check_server = create_healthcheck_server(lambda: self._looked, int(port), _UNHEALTHY_AFTER)
        if self._health_check_server is not None:
            self._health_check_server.start()
            self._health_started = True

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._looked = int(time.time())
        assert self._context is not None
        result = self._context.wait(0)
        if result is None:
            return RunResult(WorkerState.HEALTHY)
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        if result.is_failed():
            failures = {ranks[local_rank]: failure for local_rank, failure in result.failures.items()}
            return RunResult(WorkerState.FAILED, failures=failures)
        values = {ranks[local_rank]: value for local_rank, value in result.return_values.items()}
        return RunResult(WorkerState.SUCCEEDED, values)

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._close(signal.SIGTERM, self._shutdown_timeout)

    def _close(self, death_sig: signal.Signals, timeout: int) -> None:
        context, self._context = self._context, None
        if context is not None:
            context.close(death_sig, timeout)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        if self._timers is not None:
            self._timers.stop()
            self._timers = None
        if self._health_check_server is not None and self._health_started:
            self._health_check_server.stop()
            self._health_started = False
        self._close(death_sig, timeout)
