"""An agent of each machine meets the others, starts the workers of its machine, watches them, and starts them again.

    spec = WorkerSpec("trainer", 2, handler, entrypoint=train, args=("data",))
    result = LocalElasticAgent(spec, DefaultLogsSpecs()).run()
"""

from __future__ import annotations

from .api import (
    ElasticAgent,
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from .local_elastic_agent import TORCHELASTIC_ENABLE_FILE_TIMER, TORCHELASTIC_TIMER_FILE

__all__ = [
    "TORCHELASTIC_ENABLE_FILE_TIMER",
    "TORCHELASTIC_TIMER_FILE",
    "ElasticAgent",
    "RunResult",
    "SimpleElasticAgent",
    "Worker",
    "WorkerGroup",
    "WorkerSpec",
    "WorkerState",
]
