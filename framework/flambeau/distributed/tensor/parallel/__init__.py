"""Layers spread over a device mesh: tensor and sequence parallelism."""

from __future__ import annotations

from ._loss import loss_parallel
from ._styles import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel",
    "SequenceParallel", "loss_parallel", "parallelize_module",
]  # fmt: skip
