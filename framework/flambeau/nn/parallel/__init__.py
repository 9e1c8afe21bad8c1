"""Modules that run on several devices of one process."""

from __future__ import annotations

from ..._on_demand import names_on_demand
from .data_parallel import DataParallel, data_parallel
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter

__all__ = ["DataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]


# DistributedDataParallel comes with `flambeau.distributed`.
__getattr__, __dir__ = names_on_demand(__name__, {".distributed": ("DistributedDataParallel",)}, modules=("distributed",))
