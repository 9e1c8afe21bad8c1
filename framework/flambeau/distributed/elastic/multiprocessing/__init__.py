"""Several workers on one machine: functions or programs, their output in files, their failures told.

    context = start_processes("trainer", "python", {0: ("train.py",)}, {0: {"RANK": "0"}}, DefaultLogsSpecs())
    result = context.wait()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .api import (
    DefaultLogsSpecs,
    LogsDest,
    LogsSpecs,
    MultiprocessContext,
    PContext,
    RunProcsResult,
    SignalException,
    Std,
    SubprocessContext,
    to_map,
)
from .errors import ProcessFailure

__all__ = [
    "DefaultLogsSpecs",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "PContext",
    "ProcessFailure",
    "RunProcsResult",
    "SignalException",
    "Std",
    "SubprocessContext",
    "start_processes",
    "to_map",
]


def start_processes(
    name: str,
    entrypoint: Callable[..., Any] | str,
    args: dict[int, tuple[Any, ...]],
    envs: dict[int, dict[str, str]],
    logs_specs: LogsSpecs,
    log_line_prefixes: dict[int, str] | None = None,
    start_method: str = "spawn",
) -> PContext:
    """Start workers on this machine.

    Args:
        name: what they are called in their output.
        entrypoint: a function, or the path of a program.
        args: arguments of each, by local rank.
        envs: environment variables of each.
        logs_specs: where their output goes.
        log_line_prefixes: put before lines that are printed here; ``[name rank]:`` without spaces if None.
        start_method: of functions: 'spawn', 'fork' or 'forkserver'.
    Returns: the workers; `wait` tells how they ended, `close` ends them.
    Raises: RuntimeError for local ranks of `args` and `envs` that differ; ValueError for an unknown start method.
    """
    if isinstance(entrypoint, str):
        context: PContext = SubprocessContext(name, entrypoint, args, envs, logs_specs, log_line_prefixes)
    else:
        context = MultiprocessContext(name, entrypoint, args, envs, start_method, logs_specs, log_line_prefixes)
    context.start()
    return context
