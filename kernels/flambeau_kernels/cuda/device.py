"""Whether there is a CUDA device, and the array library that drives it."""

from __future__ import annotations

import functools
import os
from typing import Any

__all__ = ["find", "library", "simulated", "why_none"]


def simulated() -> bool:
    """Whether FLAMBEAU_CUDA_SIMULATOR asks for a device that is simulated on the host."""
    return os.environ.get("FLAMBEAU_CUDA_SIMULATOR", "") not in ("", "0")


def library() -> Any:
    """cupy if it is installed and sees a device, what stands for it in the simulator, else None."""
    return find()[0]


def why_none() -> str:
    """Why there is no device, and what to do about it; an empty text where there is one."""
    return find()[1]


@functools.cache
def find() -> tuple[Any, str]:
    """The array library, or None and why."""
    from importlib.util import find_spec

    if simulated():
        from . import simulator

        return simulator.module(), ""
    if find_spec("cupy") is None:
        return None, "cupy is not installed; the extra brings it: pip install 'flambeau[cuda]'"
    import cupy  # pyright: ignore[reportMissingImports]  # an extra

    try:
        if cupy.cuda.runtime.getDeviceCount():
            return cupy, ""
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return None, f"cupy finds no NVIDIA driver that it can use ({error})"
    return None, "the NVIDIA driver shows no device (see CUDA_VISIBLE_DEVICES)"
