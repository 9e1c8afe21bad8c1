"""Lists of tensors that are computed with together, under the name by which packages import it from PyTorch's insides."""

from __future__ import annotations

from typing import Any

from ..devices import device
from ..dtypes import dtype
from ..tensor import Tensor

__all__ = ["_group_tensors_by_device_and_dtype"]

_Lists = list[list[Tensor | None]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: _Lists, with_indices: bool = False
) -> dict[tuple[device, dtype], tuple[_Lists, list[int]]]:
    """The columns of `tensorlistlist`, lists of one length, by the device and dtype of the tensor in the first list.

    Args:
        with_indices: whether each group says which columns it has; the list is empty otherwise.
    """
    groups: dict[Any, tuple[_Lists, list[int]]] = {}
    for i, column in enumerate(zip(*tensorlistlist, strict=True)):
        leader: Any = column[0]
        lists, indices = groups.setdefault((leader.device, leader.dtype), ([[] for _ in column], []))
        for one, tensor in zip(lists, column, strict=True):
            one.append(tensor)
        if with_indices:
            indices.append(i)
    return groups
