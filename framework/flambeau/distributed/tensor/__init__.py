"""Tensors that are spread over device meshes: placements, DTensor, and what makes them."""

from __future__ import annotations

from ..device_mesh import DeviceMesh, init_device_mesh
from ._dtensor import DTensor, distribute_module, distribute_tensor, empty, full, ones, rand, randn, zeros
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
    "init_device_mesh", "ones", "rand", "randn", "zeros",
]  # fmt: skip
