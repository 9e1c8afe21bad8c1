"""The engines check each other: what numpy, the llvm engine and numba make of the same calls.

Some calls are tried; all formulas and families of kernels in all dtypes by

    FLAMBEAU_TEST_EVERY_OP=1 python -m pytest tests/properties/test_engines.py
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.engine.machine_code import llvm
from properties import engine_calls
from properties.cases import EVERYTHING

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here"),
    pytest.mark.skipif(
        os.environ.get("FLAMBEAU_BACKEND") == "numpy",
        reason="the same processes whatever the backend of this one is",
    ),
]

# Roundings of the dtype, of a number or of 1 if it is larger: how far apart formulas of elementary functions may be on numpy and
# compiled (each of these is good to 1 or 2, see kernels/flambeau_kernels/scalar/README.md), and sums, of the largest result.
FORMULAS, SUMS = 8, 16
# numpy's sine of an argument of 65000 less a phase, and its reflection of polygamma by powers of a tangent, lose digits that ours keep.
BY_NUMPY = {
    "special.bessel_j1": 64,
    "special.bessel_y0": 64,
    "special.bessel_y1": 64,
    "tetragamma": 32,
    "polygamma_of": 32,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any, fresh_python: Any) -> dict[str, dict[str, np.ndarray]]:
    """Results by engine and call. Each engine has a process of its own, for plans of one may hold kernels of another one."""
    folder, found = tmp_path_factory.mktemp("engines"), {}
    for backend in ("numpy", "llvm", "numba"):
        if backend == "numba" and importlib.util.find_spec("numba") is None:
            continue
        path = folder / f"{backend}.npz"
        fresh_python(
            "-W",
            "ignore",
            HERE / "engine_calls.py",
            path,
            "all" if EVERYTHING else "some",
            FLAMBEAU_BACKEND=backend,
        )
        with np.load(path) as file:
            found[backend] = {name: _numbers(file[name], name) for name in file.files}
    return found


def _numbers(raw: np.ndarray, name: str) -> np.ndarray:
    """The results that `raw` has the bytes of, with one nan for all."""
    dtype = name.rpartition("|")[2]
    if not dtype:
        return raw
    array: Any = raw.view(np.dtype(getattr(ml_dtypes, dtype, dtype))).copy()
    parts = array.view(array.real.dtype) if array.dtype.kind == "c" else array
    if array.dtype.kind not in "iub":
        parts[np.isnan(parts)] = np.nan
    return array


def _family(name: str) -> str:
    return name.partition("|")[0]


def _exact() -> set[str]:
    """Formulas of arithmetic and choices, whose results are to have one answer, and calls of `EXACT`."""
    return {op.qualified for op in engine_calls.formulas() if op.formula.exact} | engine_calls.EXACT.keys()


def _apart(a: np.ndarray, b: np.ndarray, of_largest: bool) -> float:
    """The largest difference of two results, in roundings."""
    if a.dtype.kind in "iub":
        return 0.0 if (a == b).all() else np.inf
    eps = float(ml_dtypes.finfo(a.dtype).eps)
    wide: Any = np.complex128 if a.dtype.name.startswith("complex") else np.float64
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        same = (x == y) | np.isnan(x) & np.isnan(y)
        size = np.abs(np.where(np.isfinite(x), x, 0))
        unit = np.maximum(size.max(initial=1.0) if of_largest else size, 1.0) * eps
        return float(np.where(same, 0.0, np.nan_to_num(np.abs(x - y) / unit, nan=np.inf)).max(initial=0.0))


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_engines_refuse_the_same_calls_and_give_results_of_the_same_dtypes(made: Any, engine: str) -> None:
    if engine not in made:
        pytest.skip("numba is not installed")
    assert made[engine].keys() == made["llvm"].keys()
    assert any(name.rpartition("|")[2] for name in made["llvm"])


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_exact_operations_have_the_same_bits_on_all_engines(made: Any, engine: str) -> None:
    if engine not in made:
        pytest.skip("numba is not installed")
    exact, theirs = _exact(), made[engine]
    wrong = []
    for name, wanted in made["llvm"].items():
        family, dtype, *_ = name.split("|")
        if family in exact and not dtype.startswith("complex") and wanted.tobytes() != theirs[name].tobytes():
            wrong.append(name)
    assert not wrong


def test_formulas_have_the_same_bits_compiled_by_llvm_and_by_numba(made: Any) -> None:
    if "numba" not in made:
        pytest.skip("numba is not installed")
    families = {op.qualified for op in engine_calls.formulas()}
    wrong = [
        name
        for name, wanted in made["llvm"].items()
        if _family(name) in families and wanted.tobytes() != made["numba"][name].tobytes()
    ]
    assert not wrong


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_what_rounds_differs_by_a_few_roundings(made: Any, engine: str) -> None:
    if engine not in made:
        pytest.skip("numba is not installed")
    wrong = {}
    for name, wanted in made["llvm"].items():
        sums = _family(name) in engine_calls.CALLS
        apart = _apart(wanted, made[engine][name], sums)
        if apart > (
            SUMS if sums else BY_NUMPY.get(_family(name), FORMULAS) if engine == "numpy" else FORMULAS
        ):
            wrong[name] = apart
    assert not wrong
