"""Names for annotations: what PyTorch's functions take and give."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

from .devices import Size, device, layout
from .dtypes import dtype
from .storage import TypedStorage, UntypedStorage
from .tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "Size", "Storage", "Tensor"]

_int, _float, _bool, _complex, _bytes, _str = int, float, bool, complex, bytes, str
_dtype, _device, _layout = dtype, device, layout
_size = Size | Sequence[int]
_TensorOrTensors = Tensor | Sequence[Tensor]

Number = int | float | bool
_Number = (int, float, bool)
Device = device | str | int | None
FileLike = str | os.PathLike[str] | IO[bytes]
Storage = UntypedStorage | TypedStorage
