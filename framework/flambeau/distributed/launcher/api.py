"""One call that starts an agent, whose workers are functions or programs."""

from __future__ import annotations

import dataclasses
import sys
import uuid
from collections.abc import Callable
from typing import Any

from ..elastic.agent.server.api import WorkerSpec
from ..elastic.agent.server.health_check_server import HealthCheckServer
from ..elastic.agent.server.local_elastic_agent import LocalElasticAgent
from ..elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, SignalException
from ..elastic.multiprocessing.api import _signals_raise
from ..elastic.multiprocessing.errors import ChildFailedError
from ..elastic.rendezvous import RendezvousParameters
from ..elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from ..elastic.rendezvous.registry import get_rendezvous_handler

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]


@dataclasses.dataclass
class LaunchConfig:
    """How workers are started.

    Args:
        min_nodes, max_nodes: how many machines may take part.
        nproc_per_node: workers on each.
        logs_specs: where their output goes; printed here if None.
        run_id: the name of the job; a new one if it is empty.
        role: what workers are called.
        rdzv_endpoint: where machines meet.
        rdzv_backend: how: "static" or "c10d".
        rdzv_configs: options of that, such as ``timeout`` in seconds.
        rdzv_timeout: another place for ``timeout``; -1 leaves it out.
        max_restarts: how often workers are started again after a failure.
        monitor_interval: seconds between two looks at the workers.
        start_method: of functions: 'spawn', 'fork' or 'forkserver'.
        log_line_prefix_template: as for `LocalElasticAgent`.
        metrics_cfg: taken for compatibility.
        local_addr: address of this machine.
        event_log_handler: where events go.
        numa_options, duplicate_stdout_filters, duplicate_stderr_filters, virtual_local_rank: not built.
        signals_to_handle: taken for compatibility; ``TORCHELASTIC_SIGNALS_TO_HANDLE`` names the signals that end the workers.
        shutdown_timeout: seconds that workers have to end when they are asked to; 30 if None.
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = dataclasses.field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = dataclasses.field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        timeout = {} if self.rdzv_timeout == -1 else {"timeout": self.rdzv_timeout}
        self.rdzv_configs = {"timeout": 900, **self.rdzv_configs, **timeout}
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()


class elastic_launch:  # PyTorch's name
    """Runs a function or a program in the workers of this machine when it is called, and returns what the functions returned, by rank.

        values = elastic_launch(LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0"), train)("data")

    Args:
        config: how workers are started.
        entrypoint: the function, or the path of a program; this Python if None.
        health_check_server: tells monitors whether the agent is alive.
    """

    def __init__(
        self,
        config: LaunchConfig,
        entrypoint: Callable[..., Any] | str | None,
        health_check_server: HealthCheckServer | None = None,
    ) -> None:
        self._config, self._entrypoint, self._health_check_server = config, entrypoint, health_check_server

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args), self._health_check_server)


def launch_agent(
    config: LaunchConfig,
    entrypoint: Callable[..., Any] | str | None,
    args: list[Any],
    health_check_server: HealthCheckServer | None = None,
) -> dict[int, Any]:
    """Run an agent to its end.

    Args:
        config, entrypoint, health_check_server: as for `elastic_launch`.
        args: arguments of the function or the program.
    Returns: what the functions of this machine returned, by rank; None of programs.
    Raises: ChildFailedError when workers failed; RendezvousError when machines did not meet; SignalException for a signal.
    """
    spec_options = {
        name: getattr(config, name)
        for name in ("numa_options", "duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank")
    }
    params = RendezvousParameters(
        config.rdzv_backend, config.rdzv_endpoint, config.run_id or uuid.uuid4().hex, config.min_nodes, config.max_nodes,
        config.local_addr, **config.rdzv_configs,
    )  # fmt: skip
    with _signals_raise():
        handler = get_rendezvous_handler(params)
        try:
            spec = WorkerSpec(
                config.role, config.nproc_per_node, handler, entrypoint=entrypoint or sys.executable, args=tuple(args),
                max_restarts=config.max_restarts, monitor_interval=config.monitor_interval, local_addr=config.local_addr,
                event_log_handler=config.event_log_handler, **spec_options,
            )  # fmt: skip
            assert config.logs_specs is not None
            agent = LocalElasticAgent(
                spec, config.logs_specs, config.start_method, log_line_prefix_template=config.log_line_prefix_template,
                shutdown_timeout=30 if config.shutdown_timeout is None else config.shutdown_timeout,
                health_check_server=health_check_server,
            )  # fmt: skip
            result = agent.run()
        except SignalException:
            # The others may go on without this machine.
            if isinstance(handler, DynamicRendezvousHandler):
                handler.leave()
            raise
        except BaseException:
            handler.shutdown()
            raise
        handler.shutdown()
    if result.is_failed():
        raise ChildFailedError(spec.get_entrypoint_name(), result.failures)
    return result.return_values
