"""The file of one storage that pickles of tensors have for each of them: all but a few bytes of it are always the same.

So these are compared, where the reader of files would go through six pickles for every tensor.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau._files.storages import STORAGE_NAMES

__all__ = ["file_of_storage", "storage_of_file"]

# The reference to the storage with its class, key, place and number of elements, and the list of keys.
_REFERENCE = re.compile(
    rb"\x80\x02\(X\x07\0\0\0storageq\0ctorch\n(\w+)\nq\x01X(.)\0\0\0(\d+)q\x02X\x03\0\0\0cpuq\x03"
    rb"(?:K(.)|M(..)|J(....))Ntq\x04Q\.\x80\x02\]q\0X\2\0\0\0\3q\x01a\.",
    re.DOTALL,
)
_DTYPES = {name.encode(): d for d, name in STORAGE_NAMES.items()}


def storage_of_file(data: bytes, beginning: bytes) -> tuple[Any, dtypes.dtype] | None:
    """The bytes of the storage, in an array of their own, and its dtype; None for a file that is not exactly as such files are.

    Args:
        beginning: what such files say of themselves and of the system.
    """
    found = _REFERENCE.match(data, len(beginning)) if data.startswith(beginning) else None
    if found is None:
        return None
    name, length, key, *counts = found.groups()
    kind, at = _DTYPES.get(name), found.end()
    count = int.from_bytes(next(c for c in counts if c is not None), "little")
    if kind is None or length[0] != len(key) or data[at : at + 8] != count.to_bytes(8, "little"):
        return None
    if len(data) - at - 8 != count * kind.itemsize:
        return None
    return np.frombuffer(bytearray(memoryview(data)[at + 8 :]), np.uint8), kind


def file_of_storage(memory: Any, kind: dtypes.dtype, beginning: bytes) -> bytes | None:
    """The file of a storage in host memory, to the byte what a pickler writes; None where that has more to say.

    Args:
        memory: its bytes, as an array; kind: the dtype of its elements.
    """
    name, count = STORAGE_NAMES.get(kind), memory.nbytes // kind.itemsize
    if name is None or count >= 1 << 31:
        return None
    size = 1 if count < 1 << 8 else 2 if count < 1 << 16 else 4
    number = b" KM J"[size : size + 1] + count.to_bytes(size, "little")
    reference = b"\x80\x02(X\x07\0\0\0storageq\0ctorch\n" + name.encode() + b"\nq\x01X\x01\0\0\0" + b"0q\x02X\x03\0\0\0cpuq\x03"
    keys = b"\x80\x02]q\0X\x01\0\0\0" + b"0q\x01a."
    return b"".join((beginning, reference, number, b"Ntq\x04Q.", keys, count.to_bytes(8, "little"), memoryview(memory)))
