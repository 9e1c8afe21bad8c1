"""Which backend's kernels run: the setting, its names, and plug-ins."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flambeau_kernels as kernels


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


@pytest.mark.parametrize("name", ["numpy", "numba"])
@pytest.mark.parametrize("n", [0, 1, 100, 100_000])
def test_every_backend_computes_the_formula(name: str, n: int) -> None:
    kernels.set_backend(name)

    assert (run(n) == 2 * np.arange(n, dtype=np.float32)).all()


def test_a_name_nobody_provides_is_refused_and_nothing_changes() -> None:
    before = kernels.backend()

    with pytest.raises(ValueError, match=r"no backend named 'abacus'.*numba, numpy"):
        kernels.set_backend("abacus")
    assert kernels.backend() == before


def test_what_is_not_there_is_refused_at_import(fresh_python: Any) -> None:
    program = """
try:
    import flambeau
except (NotImplementedError, ValueError) as error:
    print(type(error).__name__, error)
"""
    assert fresh_python("-c", program, FLAMBEAU_BACKEND="cuda").startswith("NotImplementedError FLAMBEAU_BACKEND=cuda: compiled CUDA")
    assert fresh_python("-c", program, FLAMBEAU_BACKEND="abacus").startswith("ValueError FLAMBEAU_BACKEND: no backend named 'abacus'")


def test_cuda_is_refused_and_nothing_changes() -> None:
    before = kernels.backend()

    with pytest.raises(NotImplementedError, match="CUDA kernels are not built yet"):
        kernels.set_backend("cuda")
    assert kernels.backend() == before


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


@pytest.mark.parametrize("name", ["numpy", "numba"])
def test_the_environment_variable_chooses(name: str, fresh_python: Any) -> None:
    program = "import flambeau as fb, flambeau_kernels as k; print(k.backend(), (fb.ones(5000) * 2).sum().item())"

    assert fresh_python("-c", program, FLAMBEAU_BACKEND=name).split() == [name, "10000.0"]
