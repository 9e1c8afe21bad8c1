"""There is no mps device here; this module says so."""

from __future__ import annotations

from typing import Any

from . import _no_device

globals().update(_no_device.members("mps", "use the CPU, or CUDA with the extra flambeau[cuda]"))


def __getattr__(name: str) -> Any:
    from . import _missing

    raise _missing.attribute_error(__name__, name)
