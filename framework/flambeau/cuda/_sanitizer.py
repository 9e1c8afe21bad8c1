"""A tool that looks for missing synchronization between streams. Not built."""

from __future__ import annotations

from typing import NoReturn

from .. import _missing


def enable_cuda_sanitizer() -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("cuda._sanitizer.enable_cuda_sanitizer", "run under NVIDIA's compute-sanitizer --tool racecheck")
