"""What PyTorch computes with, and whether it is here. Kernels are Flambeau's own, so most answers are no."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .._on_demand import names_on_demand

# How many bits products of float32 may drop: kept as set; kernels here compute in float32.
fp32_precision = "none"
_MODULES = (
    "cpu", "cuda", "cudnn", "cusparselt", "kleidiai", "mha", "miopen", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum",
    "quantized", "xnnpack",
)  # fmt: skip


def flags_frozen() -> bool:
    """Whether flags can be set by their context managers alone: they can always be set."""
    return False


@contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """A region in which flags can be set, as everywhere."""
    yield


__getattr__, __dir__ = names_on_demand(__name__, modules=_MODULES)
