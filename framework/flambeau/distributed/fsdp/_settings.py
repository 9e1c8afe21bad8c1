"""Settings of training with sharded parameters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from ...nn.modules.batchnorm import _BatchNorm

__all__ = [
    "BackwardPrefetch", "CPUOffload", "CPUOffloadPolicy", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalOptimStateDictConfig",
    "LocalStateDictConfig", "MixedPrecision", "MixedPrecisionPolicy", "OffloadPolicy", "OptimStateDictConfig", "OptimStateKeyType",
    "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType",
]  # fmt: skip


class ShardingStrategy(Enum):
    """What is sharded: parameters, gradients and states of optimizers, some of these, or none."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When the parameters that backward needs next are gathered."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class StateDictType(Enum):
    """What a state dict holds: whole tensors, flat pieces, or pieces."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


class OptimStateKeyType(Enum):
    """What states of optimizers are found by."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


@dataclass
class MixedPrecision:
    """The dtypes that are computed in; None keeps them.

    Attributes:
        param_dtype: of parameters.
        reduce_dtype: of reductions of gradients.
        buffer_dtype: of buffers.
        keep_low_precision_grads: whether gradients stay in `reduce_dtype`.
        cast_forward_inputs: whether arguments of each module are cast.
        cast_root_forward_inputs: whether arguments of the outermost module are.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Any = (_BatchNorm,)


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes that modules changed by `fully_shard` compute in; None keeps them.

    Attributes:
        param_dtype: of parameters.
        reduce_dtype: of reductions of gradients.
        output_dtype: of results.
        cast_forward_inputs: whether arguments are cast.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class CPUOffload:
    """Whether parameters are kept on the CPU between uses."""

    offload_params: bool = False


@dataclass
class OffloadPolicy:
    """No offloading; the base of policies that do."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters, gradients and states are kept on the CPU between uses."""

    pin_memory: bool = True


@dataclass
class StateDictConfig:
    """How state dicts of models are made."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Of whole tensors; `rank0_only`: on rank 0 alone."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Of flat pieces."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Of pieces."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """How state dicts of optimizers are made."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Of whole tensors; `rank0_only`: on rank 0 alone."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Of flat pieces."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Of pieces."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """Kind and settings of the state dicts of a model and its optimizers.

    Attributes:
        state_dict_type: the kind.
        state_dict_config: settings for models.
        optim_state_dict_config: settings for optimizers.
    """

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig
