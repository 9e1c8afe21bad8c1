"""Elementwise kernels from C++ text. Not built: kernels here are formulas in Python."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _missing

_ADVICE = "kernels are not made from C++ text; write the formula in Python with flambeau.kernels.elementwise"


def _create_jit_fn(code_string: str, **kwargs: Any) -> NoReturn:
    """A function of one result. Not built: raises NotImplementedError."""
    raise _missing.not_built("cuda.jiterator._create_jit_fn", _ADVICE)


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs: Any) -> NoReturn:
    """A function of several results. Not built: raises NotImplementedError."""
    raise _missing.not_built("cuda.jiterator._create_multi_output_jit_fn", _ADVICE)
