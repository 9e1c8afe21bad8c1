"""The earlier name of `flambeau.distributed.tensor`, by which packages still import it."""

from __future__ import annotations

from typing import NoReturn

from ... import _missing
from ..tensor import (
    DeviceMesh,
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    empty,
    full,
    init_device_mesh,
    ones,
    rand,
    randn,
    zeros,
)

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
    "init_device_mesh", "ones", "rand", "randn", "zeros",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise _missing.attribute_error(__name__, name)
