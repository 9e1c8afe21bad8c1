"""What calls do where a program says nothing."""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "DEFAULT_INIT_METHOD", "DEFAULT_NUM_WORKER_THREADS", "DEFAULT_PROCESS_GROUP_TIMEOUT", "DEFAULT_RPC_TIMEOUT_SEC",
    "DEFAULT_SHUTDOWN_TIMEOUT", "UNSET_RPC_TIMEOUT",
]  # fmt: skip

DEFAULT_RPC_TIMEOUT_SEC = 60.0
DEFAULT_INIT_METHOD = "env://"
DEFAULT_SHUTDOWN_TIMEOUT = 0  # seconds; 0 waits without an end
DEFAULT_NUM_WORKER_THREADS = 16
DEFAULT_PROCESS_GROUP_TIMEOUT = timedelta(milliseconds=2**31 - 1)
UNSET_RPC_TIMEOUT = -1.0
