"""What a process pays for its first results: nothing is loaded or compiled for work that numpy does anyway."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import flambeau_kernels as kernels
from flambeau_kernels.engine.launching import elementwise
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.formula import Formula

pytestmark = pytest.mark.skipif(kernels.backend() == "numpy", reason="the numpy backend compiles nothing")

TWO = {np.add: lambda a, b: a + b, np.subtract: lambda a, b: a - b, np.multiply: lambda a, b: a * b, np.true_divide: lambda a, b: a / b}


@pytest.mark.parametrize(("program", "module"), [
    ("assert not ((a + a) * 0.5 - a).numpy().any()", "llvmlite"),
    ("assert ((a @ a).numpy() == 64).all()", "flambeau_kernels.engine.machine_code"),
], ids=["sum", "product"])  # fmt: skip
def test_first_sums_and_products_of_4096_elements_load_no_compiler(program, module):
    script = f"""
import sys
import flambeau as fb
a = fb.ones(64, 64)
{program}
print({module!r} in sys.modules)
"""
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path})

    assert done.stdout.strip() == "False"


@pytest.mark.skipif(llvm.available() is not None, reason="llvmlite is not there")
@pytest.mark.parametrize("ufunc", [*TWO, np.negative], ids=lambda u: u.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("number", [False, True])
def test_the_engine_would_leave_to_numpy_what_is_left_to_it_unasked(ufunc, dtype, number):
    d = np.dtype(dtype)
    formula = Formula(TWO.get(ufunc, lambda a: -a), ufunc.__name__, ufunc)
    out = np.empty(4096, d)
    inputs = (np.ones(4096, d), 0.5 if number else np.ones(4096, d))[: ufunc.nin]

    assert kernels._is_numpys(formula, inputs, (out,), d)
    assert "numpy tier" in elementwise.explain(formula, inputs, (out,), d)
    assert not kernels._is_numpys(formula, inputs, (np.empty(40_000, d),), d)
