"""Modules that run on several devices of one process."""

from __future__ import annotations

from typing import Any

from .data_parallel import DataParallel, data_parallel
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter

__all__ = ["DataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]


def __getattr__(name: str) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    # DistributedDataParallel comes with `flambeau.distributed`.
    if name == "DistributedDataParallel" and find_spec(f"{__name__}.distributed") is not None:
        return import_module(f"{__name__}.distributed").DistributedDataParallel
    from ... import _missing

    raise _missing.attribute_error(__name__, name)
