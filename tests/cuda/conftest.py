"""CUDA twice: on the simulator, which every machine has, and on a device where there is one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau_kernels as kernels
from flambeau_kernels.cuda import device, simulator
from flambeau_kernels.engine.machine_code import llvm

sys.path.insert(0, str(Path(__file__).parent))  # for `beside` and `registry`


def _has_device() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy  # pyright: ignore[reportMissingImports]  # an extra

    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Kernels of our own are what is tested here; `test_backends` has what runs by cupy's expressions."""
    if kernels.backend() == "numpy" or llvm.available() is not None:
        pytest.skip("nothing is compiled under this backend")


@pytest.fixture(params=["simulator", pytest.param("device", marks=pytest.mark.cuda)])
def xp(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The array library of the device, cupy or what stands for it; while it is there, ``device='cuda'`` works."""
    if request.param == "device" and not _has_device():
        pytest.skip("no CUDA device")
    monkeypatch.setenv("FLAMBEAU_CUDA_SIMULATOR", "1" if request.param == "simulator" else "0")
    device.find.cache_clear()
    if request.param == "device":
        import cupy  # pyright: ignore[reportMissingImports]  # an extra

        yield cupy
    else:
        yield simulator.module()
    device.find.cache_clear()
