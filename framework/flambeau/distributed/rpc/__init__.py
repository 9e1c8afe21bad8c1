"""Calls of functions of other workers, references to their values, and what training over them needs.

Functions travel as names that both sides import, arguments as data; nothing is unpickled. See `init_rpc`.
"""

from __future__ import annotations

from . import api, constants, functions, options
from ._agent import WorkerInfo
from ._names import allow_functions
from ._rref import PyRRef, RRef
from .api import (
    BackendType,
    get_rpc_timeout,
    get_worker_info,
    init_rpc,
    is_available,
    remote,
    rpc_async,
    rpc_sync,
    shutdown,
)
from .api import _set_rpc_timeout as _set_rpc_timeout
from .options import RpcBackendOptions, TensorPipeRpcBackendOptions

__all__ = [
    "BackendType", "PyRRef", "RRef", "RpcBackendOptions", "TensorPipeRpcBackendOptions", "WorkerInfo", "allow_functions", "api",
    "constants", "functions", "get_rpc_timeout", "get_worker_info", "init_rpc", "is_available", "options", "remote", "rpc_async",
    "rpc_sync", "shutdown",
]  # fmt: skip
