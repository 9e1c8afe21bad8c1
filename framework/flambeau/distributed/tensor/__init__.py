"""Placements of tensors on device meshes. Tensors that are spread by them are not built: what would make one says so.

`DTensor` is there for `isinstance`: nothing is one yet.
"""

from __future__ import annotations

from typing import Any

from ..._missing import not_built
from ...tensor import Tensor
from ..device_mesh import DeviceMesh, init_device_mesh
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
    "init_device_mesh", "ones", "rand", "randn", "zeros",
]  # fmt: skip

_ADVICE = "keep whole tensors, and spread the work by DistributedDataParallel or by the collectives of flambeau.distributed"


class DTensor(Tensor):
    """A tensor that is spread over a device mesh. None can be made yet.

    Raises: NotImplementedError.
    """

    _plain_operand = True

    def __new__(cls, *args: Any, **kwargs: Any) -> DTensor:
        raise not_built("distributed.tensor.DTensor", _ADVICE)

    @staticmethod
    def from_local(*args: Any, **kwargs: Any) -> DTensor:
        """A spread tensor of the pieces that each process has.

        Raises: NotImplementedError.
        """
        raise not_built("distributed.tensor.DTensor", _ADVICE)


def _unbuilt(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise not_built(f"distributed.tensor.{name}", _ADVICE)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Not built.\n\nRaises: NotImplementedError."
    return refuse


distribute_module, distribute_tensor = _unbuilt("distribute_module"), _unbuilt("distribute_tensor")
empty, full, ones, rand, randn, zeros = map(_unbuilt, ("empty", "full", "ones", "rand", "randn", "zeros"))
