"""Training with parameters, gradients and states of optimizers that are spread over processes.

`fully_shard` changes a module in place, parameter by parameter; `FullyShardedDataParallel` is the older class around a module.
"""

from __future__ import annotations

from . import wrap
from ._flat import FlatParameter
from ._full import FullyShardedDataParallel
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
    "BackwardPrefetch", "CPUOffload", "CPUOffloadPolicy", "FSDPModule", "FlatParameter", "FullOptimStateDictConfig", "FullStateDictConfig",
    "FullyShardedDataParallel", "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision", "MixedPrecisionPolicy",
    "OffloadPolicy", "OptimStateDictConfig", "OptimStateKeyType", "ShardedOptimStateDictConfig", "ShardedStateDictConfig",
    "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType",
    "UnshardHandle", "fully_shard", "register_fsdp_forward_method", "wrap",
]  # fmt: skip
