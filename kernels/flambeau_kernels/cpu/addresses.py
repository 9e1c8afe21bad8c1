"""Where the elements of many arrays lie, as one table that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine import native
from ..engine.language import int64, kernel, pointer

__all__ = ["addresses_of"]

_WORD = native.DATA_OFFSET // 8


def addresses_of(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The addresses of the first elements; good as long as the caller keeps the arrays."""
    if not native.struct_matches():
        return np.array([a.__array_interface__["data"][0] for a in arrays], np.int64)
    # Asking each array costs ten times as much as reading the field where it is kept.
    made = np.fromiter(map(id, arrays), np.int64, len(arrays))
    read_fields.run(1, made, len(made))
    return made


@kernel
def read_fields(chunk: Any, objects: Any, n: Any) -> Any:
    for i in range(n):
        objects[i] = pointer(objects[i], int64)[_WORD]
