"""Where the elements of many arrays lie, as one table that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.builtins import pyabi
from ..engine.language import int32, int64, kernel, pointer
from ..engine.launching import native

__all__ = ["addresses_of", "dense_addresses_of"]

_WORD = native.DATA_OFFSET // 8
_FLAGS = pyabi.FLAGS // 4
_C_CONTIGUOUS = pyabi.C_CONTIGUOUS


def addresses_of(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The addresses of the first elements; good as long as the caller keeps the arrays."""
    if not native.struct_matches():
        return _asked(arrays)
    # Asking each array costs ten times as much as reading the field where it is kept.
    made = np.fromiter(map(id, arrays), np.int64, len(arrays))
    read_fields.run(1, made, len(made))
    return made


def dense_addresses_of(arrays: Sequence[np.ndarray]) -> np.ndarray | None:
    """`addresses_of` arrays that are all in C order, else None."""
    if pyabi.problem() is not None or not native.struct_matches():
        return _asked(arrays) if all(a.flags.c_contiguous for a in arrays) else None
    made = np.fromiter(map(id, arrays), np.int64, len(arrays))
    strided = np.zeros(1, np.int64)
    read_dense.run(1, made, len(made), strided)
    return None if strided[0] else made


def _asked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([a.__array_interface__["data"][0] for a in arrays], np.int64)


@kernel
def read_fields(chunk: Any, objects: Any, n: Any) -> Any:
    for i in range(n):
        objects[i] = pointer(objects[i], int64)[_WORD]


@kernel
def read_dense(chunk: Any, objects: Any, n: Any, strided: Any) -> Any:
    for i in range(n):
        if pointer(objects[i], int32)[_FLAGS] & _C_CONTIGUOUS == 0:
            strided[0] = 1
        objects[i] = pointer(objects[i], int64)[_WORD]
