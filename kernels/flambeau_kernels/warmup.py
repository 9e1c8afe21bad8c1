"""Compile kernels ahead of their first use: `python -m flambeau_kernels.warmup`.
 A kernel that is in the cache costs half a millisecond in a new process instead of twenty. The command
compiles the native driver and pool and, for every word of the vocabulary, the kernels of contiguous and
scalar arguments; a framework passes its own formulas to `warm`.
"""
from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from flambeau_kernels import vocabulary
from flambeau_kernels.engine.launching import elementwise, loops
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.formula import Formula
from flambeau_kernels.scalar.symbols import Unsupported
from flambeau_kernels.scalar.words import READING

# Above every size from which the compiled tier runs; the kernels are the same for all sizes.
ELEMENTS = elementwise.UFUNC_COMPILED_FROM


@dataclass(frozen=True, slots=True)
class Report:
    """What a warm-up did: kernels `compiled` now, `found` in the cache, and launches `left` to the numpy tier."""

    compiled: int
    found: int
    left: int


def warm(formulas: Iterable[Formula], dtypes: Iterable[str] = ("float32", "float64")) -> Report:
    """Put the kernels of `formulas`, computing in `dtypes`, into the cache.
 Each is made for contiguous arguments, and with each single argument a scalar, in place of a Python number or
a broadcast row. Raises: Unavailable when nothing can be compiled here.
    """
    llvm.machine()
    before = dict(llvm.counts)
    prepared = [_prepare(formula, arguments, dtype) for formula, dtype in product(formulas, tuple(dtypes))
                for arguments in _arguments(len(formula.parameters), dtype)]
    compiled = llvm.counts["compiled"] - before["compiled"]
    return Report(compiled, llvm.counts["loaded"] - before["loaded"] - compiled, prepared.count(False))


def _prepare(formula: Formula, arguments: list[np.ndarray], dtype: str) -> bool:
    """Whether the compiled tier has a kernel for these arguments, which is then in the cache."""
    try:
        names = loops.result_dtypes(formula.bind(READING), len(arguments), dtype)
    except (Unsupported, TypeError, AttributeError):  # the last two: a formula that calls numpy itself, say
        return False
    outs = [np.empty(ELEMENTS, name) for name in names]
    return not isinstance(elementwise.prepare(formula, arguments, outs, np.dtype(dtype))[0], str)


def _arguments(count: int, dtype: str) -> Iterator[list[np.ndarray]]:
    array, number = np.ones(ELEMENTS, dtype), np.array(1.0)
    yield [array] * count
    for k in range(count if count > 1 else 0):
        yield [number if k == place else array for place in range(count)]


def vocabulary_formulas() -> list[Formula]:
    """One formula per word of the vocabulary that takes one argument, and per operation on two."""
    texts = {word: f"{word}(input)" for word in vocabulary.WORDS if word not in _NOT_UNARY} | _BINARY
    return [_formula(name, text, "other" in text) for name, text in texts.items()]


def _formula(name: str, text: str, binary: bool) -> Formula:
    scope = dict(vars(vocabulary))
    exec(f"def function(input{', other' if binary else ''}):\n    return {text}", scope)  # the texts above
    return Formula(scope["function"], name)


_BINARY = {"add": "input + other", "sub": "input - other", "mul": "input * other", "div": "input / other"} | {
    word: f"{word}(input, other)" for word in ("pow", "atan2", "hypot", "minimum", "maximum", "fmod",
                                               "remainder")}
_NOT_UNARY = {*_BINARY, "where", "copysign", "nextafter", "floor_divide", "fmin", "fmax", "fma",
              "logical_and",
              "logical_or", "logical_xor", "real", "imag", "conj", "angle"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile the kernels of the vocabulary into the cache.")
    parser.add_argument("--dtypes", default="float32,float64", help="dtypes to compute in, by commas")
    options = parser.parse_args()
    start = time.perf_counter()
    report = warm(vocabulary_formulas(), options.dtypes.split(","))
    place = llvm.disk().folder if llvm.disk().why_off is None else f"memory only ({llvm.disk().why_off})"
    print(f"{report.compiled} kernels compiled, {report.found} found in the cache, "
          f"{report.left} launches left to the numpy tier; {time.perf_counter() - start:.1f} s; {place}")


if __name__ == "__main__":
    main()
