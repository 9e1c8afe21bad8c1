"""Many processes, one program: stores, collectives, and what trains a model over them.

Importing this opens no connection; `init_process_group` does.
"""

from __future__ import annotations

from typing import Any

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

_LAZY = {
    "DeviceMesh": "device_mesh",
    "init_device_mesh": "device_mesh",
    "GradBucket": "_buckets",
    "plan": "planning",
}
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


def __getattr__(name: str) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    home = _LAZY.get(name)
    if home is not None and find_spec(f"{__name__}.{home}") is not None:
        return getattr(import_module(f"{__name__}.{home}"), name)
    if name in _MODULES and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    from .. import _missing

    raise _missing.attribute_error(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})
