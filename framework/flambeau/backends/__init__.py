"""What PyTorch computes with, and whether it is here. Kernels are Flambeau's own, so most answers are no."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# How many bits products of float32 may drop: kept as set; kernels here compute in float32.
fp32_precision = "none"
_MODULES = ("cpu", "cuda", "cudnn", "cusparselt", "mha", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    from .. import _missing

    raise _missing.attribute_error(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
