"""Training with parameters, gradients and states of optimizers that are spread over processes.

`fully_shard` changes a module in place, parameter by parameter; `FullyShardedDataParallel` is the older class around a module.
"""

from __future__ import annotations

from typing import Any

from ..._missing import not_built
from ...nn.modules.module import Module
from ._fully_shard import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from ._settings import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)

__all__ = [
    "BackwardPrefetch", "CPUOffload", "CPUOffloadPolicy", "FSDPModule", "FullOptimStateDictConfig", "FullStateDictConfig",
    "FullyShardedDataParallel", "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision", "MixedPrecisionPolicy",
    "OffloadPolicy", "OptimStateDictConfig", "OptimStateKeyType", "ShardedOptimStateDictConfig", "ShardedStateDictConfig",
    "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType",
    "UnshardHandle", "fully_shard", "register_fsdp_forward_method",
]  # fmt: skip

_ADVICE = "change the module by distributed.fsdp.fully_shard, which shards its parameters one by one"


class FullyShardedDataParallel(Module):
    """A module whose parameters are spread over processes. None can be made yet.

    Raises: NotImplementedError.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise not_built("distributed.fsdp.FullyShardedDataParallel", _ADVICE)
