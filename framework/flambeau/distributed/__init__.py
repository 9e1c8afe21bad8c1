"""Many processes, one program: stores, collectives, and what trains a model over them.

Importing this opens no connection; `init_process_group` does.
"""

from __future__ import annotations

from .._on_demand import names_on_demand
from ._debug import DebugLevel as DebugLevel
from ._debug import get_debug_level as get_debug_level
from ._debug import set_debug_level as set_debug_level
from ._debug import set_debug_level_from_env as set_debug_level_from_env
from .distributed_c10d import *  # noqa: F403  # the public names, all of them listed there
from .distributed_c10d import __all__ as __all__
from .distributed_c10d import _coalescing_manager as _coalescing_manager
from .distributed_c10d import _make_nccl_premul_sum as _make_nccl_premul_sum
from .distributed_c10d import (
    breakpoint as breakpoint,  # not among the public names of the module: it hides a builtin
)
from .distributed_c10d import get_backend_config as get_backend_config

_MODULES = (
    "algorithms",
    "autograd",
    "checkpoint",
    "device_mesh",
    "distributed_c10d",
    "elastic",
    "fsdp",
    "launch",
    "launcher",
    "nn",
    "optim",
    "pipelining",
    "planning",
    "rpc",
    "run",
    "tensor",
    "utils",
)


__getattr__, __dir__ = names_on_demand(
    __name__, {".device_mesh": ("DeviceMesh", "init_device_mesh"), "._buckets": ("GradBucket",), ".planning": ("plan",)}, modules=_MODULES
)
