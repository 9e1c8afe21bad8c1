"""Fixtures of the whole suite: devices, the oracle, fixed seeds, and fresh processes."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sampling import taken

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (ROOT / "framework", ROOT / "kernels")

# A plan that is broken, and so leaves its calls to the slow general answer, fails the test that meets it. Read when flambeau is imported.
os.environ.setdefault("FLAMBEAU_STRICT", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-in", type=int, default=1, metavar="N", help="of each test one case in N, at least one; tests without cases all run"
    )
    parser.addoption(
        "--turn", type=int, default=0, metavar="T", help="which one in N: as many turns in a row take all cases"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    step, turn = config.getoption("--one-in"), config.getoption("--turn")
    if step < 1:
        raise pytest.UsageError(f"--one-in must be at least 1, got {step}")
    if step == 1:
        return
    chosen = taken([item.nodeid for item in items], step, turn)
    kept = [item for place, item in enumerate(items) if place in chosen]
    left = [item for place, item in enumerate(items) if place not in chosen]
    items[:] = kept
    config.hook.pytest_deselected(items=left)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take what was collected out of the garbage collector's sight: a million objects of 40,000 cases, which stay.

    Each full collection would walk through them, and `make_fx` asks the collector for the tensors of the process in each recording.
    Tensors of the modules that were collected are tracked again, for that.
    """
    gc.collect()
    tensor = getattr(sys.modules.get("flambeau"), "Tensor", None)
    tensors = [found for found in gc.get_objects() if tensor in type(found).__mro__]
    gc.freeze()
    for found in tensors:
        ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.py_object(found))
        ctypes.pythonapi.PyObject_GC_Track(ctypes.py_object(found))


def pytest_configure(config: pytest.Config) -> None:
    if importlib.util.find_spec("hypothesis"):
        from hypothesis import settings

        # The same examples in every run, and no deadline: the first call of an op compiles it.
        settings.register_profile("flambeau", derandomize=True, deadline=None)
        settings.load_profile("flambeau")


def cuda_devices() -> int:
    """How many CUDA devices cupy sees; 0 without cupy or a driver."""
    if importlib.util.find_spec("cupy") is None:
        return 0
    import cupy

    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> str:
    """Every device a test body is written for; skipped, and reported so, where there is none."""
    if request.param == "cuda" and not cuda_devices():
        pytest.skip("no CUDA device")
    return request.param


@pytest.fixture
def oracle() -> Any:
    """PyTorch, to compare with as a black box; the test is skipped where it is not installed."""
    torch = pytest.importorskip("torch")
    # PyTorch's compiler turns off the checks of distributions for the whole process, in whatever test it is first used.
    torch.distributions.Distribution.set_default_validate_args(True)
    return torch


@pytest.fixture(scope="session", autouse=True)
def builtins_at_once() -> None:
    """Formulas are answered by builtins from the first call on, which tests ask for, and not once calls have paid for compiling them."""
    from flambeau_kernels.engine.calls import direct
    from flambeau_kernels.takeover import AT_ONCE

    direct.unpaid.price = AT_ONCE


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """The same random numbers in every test, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    for name in ("flambeau", "torch"):
        if name in sys.modules:
            sys.modules[name].manual_seed(0)


@pytest.fixture(scope="session")
def fresh_python() -> Callable[..., str]:
    """``run(*arguments, path=(), status=0, **environment) -> stdout`` of Python in a process of its own.

    The process finds packages in the folders `path`, this checkout's by default, and keeps the backend and
    the cache of this one. The test fails when the exit status is another than `status`.
    """

    def run(*arguments: Any, path: tuple[Any, ...] = SOURCES, status: int = 0, **environment: str) -> str:
        kept = {name: value for name, value in os.environ.items() if name != "FLAMBEAU_AS_TORCH"}
        kept |= {"PYTHONPATH": os.pathsep.join(map(str, path)), **environment}
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(
            command, env=kept, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL
        )
        assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run
