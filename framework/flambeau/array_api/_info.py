"""What the array API's namespace can do here: the inspection interface of the standard."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ._types import isdtype

__all__ = ["__array_namespace_info__"]

_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_MOST_DIMENSIONS = 64  # numpy's arrays have no more


class Info:
    """What there is: dtypes, devices, and what indexing can do."""

    def capabilities(self) -> dict[str, Any]:
        """Whether tensors are indexed by masks, whether shapes may follow from values, and how many dimensions there can be."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": _MOST_DIMENSIONS}

    def default_device(self) -> Any:
        """The device where tensors are made."""
        return fb.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of what is made without saying one; they are the same on all devices."""
        real = fb.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": fb.complex128 if real is fb.float64 else fb.complex64,
            "integral": fb.int64,
            "indexing": fb.int64,
        }

    def devices(self) -> list[Any]:
        """The CPU, the meta device and CUDA devices that are there."""
        return [fb.device("cpu"), fb.device("meta"), *(fb.device("cuda", i) for i in range(fb.cuda.device_count()))]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The standard's dtypes by name, those of a `kind` as `isdtype` takes it; they are the same on all devices."""
        found = {name: getattr(fb, name) for name in _DTYPES}
        return {name: one for name, one in found.items() if kind is None or isdtype(one, kind)}


def __array_namespace_info__() -> Info:
    """What the namespace can do here: see `Info`."""
    return Info()
