"""NCCL over the tensors of one process. Groups of ranks use it by `flambeau.distributed`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._unbuilt import unbuilt

__all__ = ["all_gather", "all_reduce", "broadcast", "init_rank", "is_available", "reduce", "reduce_scatter", "unique_id", "version"]

SUM = 0


def is_available(tensors: Iterable[Any]) -> bool:
    """Whether NCCL could work on `tensors`: dense ones, contiguous, each of another CUDA device, with NCCL found by cupy."""
    from ..distributed import _nccl

    if _nccl.why_not():
        return False
    devices = set()
    for tensor in tensors:
        if tensor.is_sparse or not tensor.is_contiguous() or not tensor.is_cuda or tensor.get_device() in devices:
            return False
        devices.add(tensor.get_device())
    return True


def version() -> tuple[int, ...]:
    """NCCL's version, as ``(2, 27, 3)``. Raises: RuntimeError without a device."""
    from ..distributed import _nccl

    number = _nccl.require().get_version()
    return number // 10000, number // 100 % 100, number % 100


_unbuilt = unbuilt(
    "cuda.nccl",
    ("all_gather", "all_reduce", "broadcast", "init_rank", "reduce", "reduce_scatter", "unique_id"),
    "init_process_group('nccl') makes groups, and cuda.comm moves tensors between the devices of one process",
)
all_gather, all_reduce, broadcast = _unbuilt["all_gather"], _unbuilt["all_reduce"], _unbuilt["broadcast"]
init_rank, reduce, reduce_scatter, unique_id = (
    _unbuilt["init_rank"], _unbuilt["reduce"], _unbuilt["reduce_scatter"], _unbuilt["unique_id"],
)  # fmt: skip
