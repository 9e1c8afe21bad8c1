"""Which backend's kernels run: the setting, its names, and plug-ins."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flambeau_kernels as kernels
from flambeau_kernels.cuda import device
from flambeau_kernels.engines import ENGINES


@pytest.fixture(autouse=True)
def restored_backend() -> Any:
    before = kernels.backend()
    yield
    kernels.set_backend(before)


def double(x: Any) -> Any:
    return x + x


def run(n: int) -> np.ndarray:
    out = np.empty(n, np.float32)
    kernels.launch(kernels.Formula(double), (np.arange(n, dtype=np.float32),), (out,), np.dtype(np.float32))
    return out


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("n", [0, 1, 100, 100_000])
def test_every_backend_computes_the_formula(name: str, n: int) -> None:
    kernels.set_backend(name)

    assert (run(n) == 2 * np.arange(n, dtype=np.float32)).all()


def test_a_name_nobody_provides_is_refused_and_nothing_changes() -> None:
    before = kernels.backend()

    with pytest.raises(ValueError, match=r"no backend named 'abacus'.*llvm, numba, numpy"):
        kernels.set_backend("abacus")
    assert kernels.backend() == before


def test_without_numba_its_backend_is_refused_and_nothing_changes(fresh_python: Any) -> None:
    program = """
import importlib.util
import flambeau_kernels as kernels
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "numba" else found(name, package)
before = kernels.backend()
try:
    kernels.set_backend("numba")
except RuntimeError as error:
    print(kernels.backend() == before, error)
"""
    said = fresh_python("-c", program)

    assert said.startswith("True FLAMBEAU_BACKEND=numba: numba is not installed")
    assert "pip install numba" in said


def test_what_is_not_there_is_refused_at_import(fresh_python: Any) -> None:
    program = """
try:
    import flambeau
except (RuntimeError, ValueError) as error:
    print(type(error).__name__, error)
"""
    if not device.library():
        said = fresh_python("-c", program, FLAMBEAU_BACKEND="cuda")
        assert said.startswith("RuntimeError FLAMBEAU_BACKEND=cuda: there is no CUDA device: cupy")
        assert "flambeau[cuda]" in said
    assert fresh_python("-c", program, FLAMBEAU_BACKEND="abacus").startswith("ValueError FLAMBEAU_BACKEND: no backend named 'abacus'")


def test_cuda_wants_a_device_and_nothing_changes_without() -> None:
    if device.library():
        pytest.skip("there is a CUDA device")
    before = kernels.backend()

    with pytest.raises(RuntimeError, match="there is no CUDA device"):
        kernels.set_backend("cuda")
    assert kernels.backend() == before


def test_cuda_is_the_compiled_tier_where_a_device_is(fresh_python: Any) -> None:
    program = "import flambeau as fb; print(fb.kernels.backend(), (fb.ones(5000, device='cuda') * 2).sum().item(), fb.ones(2).sum().item())"

    said = fresh_python("-c", program, FLAMBEAU_BACKEND="cuda", FLAMBEAU_CUDA_SIMULATOR="1")

    assert said.split() == ["cuda", "10000.0", "2.0"]


def test_numpy_computes_cuda_tensors_by_expressions(fresh_python: Any) -> None:
    program = """
import flambeau as fb
x = fb.arange(6.0, device='cuda').reshape(2, 3).requires_grad_()
y = ((x.exp() + 1).sum(1) * 2).mean()
y.backward()
print(round(y.item(), 3), x.grad.device, 'llvmlite' in __import__('sys').modules)
"""
    said = fresh_python("-c", program, FLAMBEAU_BACKEND="numpy", FLAMBEAU_CUDA_SIMULATOR="1")

    assert said.split() == ["240.204", "cuda:0", "False"]  # (1 + e + ... + e**5) + 6


def test_a_plug_in_is_found_by_its_entry_point_and_may_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def launch(formula: Any, inputs: Any, outs: Any, compute: Any) -> bool:
        asked.append(outs[0].size)
        if outs[0].size % 2:
            return False  # not taken: the reference runs
        outs[0][...] = -1
        return True

    plug_in = SimpleNamespace(name="abacus", load=lambda: launch)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [plug_in] if group == "flambeau.backends" else [])
    kernels.set_backend("abacus")

    assert (run(50_000) == -1).all()
    assert (run(50_001) == 2 * np.arange(50_001, dtype=np.float32)).all()
    assert asked == [50_000, 50_001]


@pytest.mark.parametrize("name", ENGINES)
def test_the_environment_variable_chooses(name: str, fresh_python: Any) -> None:
    program = "import flambeau as fb, flambeau_kernels as k; print(k.backend(), (fb.ones(5000) * 2).sum().item())"

    assert fresh_python("-c", program, FLAMBEAU_BACKEND=name).split() == [name, "10000.0"]
