"""Communication hooks for DistributedDataParallel."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from . import debugging_hooks, default_hooks, powerSGD_hook

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


class DDPCommHookType(Enum):
    """Hooks by name; those of PowerSGD with the rank of their matrices."""

    ALLREDUCE = partial(default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(default_hooks.bf16_compress_hook)
    POWER_SGD = (powerSGD_hook.powerSGD_hook, 1)
    POWER_SGD_RANK2 = (powerSGD_hook.powerSGD_hook, 2)
    BATCHED_POWER_SGD = (powerSGD_hook.batched_powerSGD_hook, 1)
    BATCHED_POWER_SGD_RANK2 = (powerSGD_hook.batched_powerSGD_hook, 2)
    NOOP = partial(debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Register a hook by its name.

    Args:
        comm_hook_type: which one.
        model: a DistributedDataParallel module.
        state: the ranks; None for all. Hooks of PowerSGD make their `PowerSGDState` of it.
    """
    found = comm_hook_type.value
    if isinstance(found, tuple):
        hook, rank = found
        model.register_comm_hook(powerSGD_hook.PowerSGDState(state, rank), hook)
    else:
        model.register_comm_hook(state, found.func)
