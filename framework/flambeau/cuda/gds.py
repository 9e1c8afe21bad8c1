"""GPUDirect Storage: files read straight into the memory of a CUDA device. Not built."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from .. import _missing

__all__ = ["GdsFile", "gds_deregister_buffer", "gds_register_buffer"]

_ADVICE = "read with flambeau.load(..., mmap=True) and copy with .cuda()"


def gds_register_buffer(s: Any) -> NoReturn:
    """Not built: raises RuntimeError, as PyTorch does where the library is missing."""
    raise RuntimeError(f"cuda.gds.gds_register_buffer is not supported here: {_ADVICE}")


def gds_deregister_buffer(s: Any) -> NoReturn:
    """Not built: raises RuntimeError, as PyTorch does where the library is missing."""
    raise RuntimeError(f"cuda.gds.gds_deregister_buffer is not supported here: {_ADVICE}")


class GdsFile:
    """A file that a device reads and writes. Raises: NotImplementedError when made; FileNotFoundError if there is no such file."""

    def __init__(self, filename: str, flags: int) -> None:
        if not flags & os.O_CREAT and not os.path.exists(filename):
            raise FileNotFoundError(f"cuda.gds.GdsFile: there is no file {filename}")
        raise _missing.not_built("cuda.gds.GdsFile", _ADVICE)

    def register_handle(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.gds.GdsFile.register_handle", _ADVICE)

    def deregister_handle(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.gds.GdsFile.deregister_handle", _ADVICE)

    def load_storage(self, storage: Any, offset: int = 0) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.gds.GdsFile.load_storage", _ADVICE)

    def save_storage(self, storage: Any, offset: int = 0) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("cuda.gds.GdsFile.save_storage", _ADVICE)
