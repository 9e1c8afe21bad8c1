"""Whether the code that the llvm engine makes computes what it shall on this computer: asked once, before the first kernel."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from flambeau_kernels.engine.launching import loops, native
from flambeau_kernels.engine.launching.loops import Operand
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool
from flambeau_kernels.formula import Formula
from flambeau_kernels.reference import WORDS_READ
from flambeau_kernels.scalar.words import READING
from flambeau_kernels.vocabulary import abs, sqrt, where

__all__ = ["problem", "problem_of_numba"]

# More than the widest vectors hold, four of them side by side, and some left over.
ELEMENTS = 131


def _tested(x: Any, y: Any) -> Any:
    # Every operation is rounded by IEEE 754, so that there is one answer.
    return where(x > y, x * y + sqrt(abs(x)), y / x - x)


def problem() -> str | None:
    """None where a loop over numbers gives the bits of numpy, else what went wrong."""
    # Of both signs and many magnitudes. numpy's random numbers would do too, but take longer to import than all this to run.
    places = np.arange(1, 2 * ELEMENTS + 1, dtype=np.float64)
    x, y = (np.sin(places * places) * np.exp2(places % 13 - 6)).astype(np.float32).reshape(2, ELEMENTS)
    made = np.zeros_like(x)
    try:
        _run(Formula(_tested, llvm.SELF_TEST), x, y, made)
    # LLVM's words, and those for an object that cannot be loaded.
    except (RuntimeError, ValueError, llvm.BrokenKernel) as error:
        return f"the self-test of the llvm engine failed: {error}"
    wrong = int((made != Formula(_tested).bind(WORDS_READ)(x, y)).sum())
    return f"the self-test of the llvm engine failed: {wrong} of {ELEMENTS} numbers are wrong" if wrong else None


def problem_of_numba() -> str | None:
    """None where numba's engine can take over, else why it cannot: kernels that it compiles are run by the same few texts."""
    try:
        import numba  # noqa: F401  # to see whether that works
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "numba"
        why = "is not installed: pip install numba" if missing else f"does not work here: {error}"
        return f"numba, which would take over, {why}"
    try:
        pool.compiled()
        native.compiled()
    except (RuntimeError, ValueError, llvm.BrokenKernel):
        return "numba, which would take over, needs LLVM's code that runs kernels, which is not made either"
    return None


def _run(formula: Formula, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    operand = Operand("float32", "c")
    kernel = loops.kernel(formula.name, formula.bind(READING), (operand, operand), (operand,), "float32", llvm.machine().scales)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    pointers = np.array([a.ctypes.data for a in (x, y, out)], np.int64)
    strides = np.array([4, 0] * 3, np.int64)
    # Without the copies of a loop that EVERYTHING makes, which take as long to compile as all else here.
    prototype(llvm.compile_ir(kernel.text, kernel.symbol, llvm.LOOPS))(pointers.ctypes.data, out.size, 1, strides.ctypes.data)
