"""Discrete Fourier transforms: ``flambeau.fft``. They come from the op registry, on first use."""

from __future__ import annotations

from typing import Any

from ._on_demand import in_dict_too
from .ops.fourier.fft import fftfreq as fftfreq
from .ops.fourier.fft import rfftfreq as rfftfreq


def __getattr__(name: str) -> Any:
    from .ops import _derive

    found = ["fftfreq", "rfftfreq", *_derive.function_names("fft")] if name == "__all__" else _derive.lookup("fft", name)
    if found is None:
        import sys

        from . import _missing

        raise _missing.attribute_error(__name__, name, sys.modules[__name__])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    from .ops import _derive

    return sorted({*globals(), *_derive.function_names("fft")})


in_dict_too(__name__)
