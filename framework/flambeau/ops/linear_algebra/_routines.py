"""scipy's wrappers of LAPACK and BLAS, kept from threads of their own."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from flambeau_kernels.cpu.gemm.blas import scipy_one_thread
from flambeau_kernels.loading import scipy_module

__all__ = ["blas_routine", "of_scipy", "routine"]


def routine(name: str, a: Any) -> Any:
    """scipy's wrapper of the LAPACK routine `name` in the precision of `a`, on one thread."""
    return _routine(name, a.dtype.char)


@functools.cache
def _routine(name: str, char: str) -> Any:
    return _on_one_thread(scipy_module("linalg").get_lapack_funcs((name,), (np.empty(0, char),))[0])


@functools.cache
def of_scipy(name: str) -> Any:
    """The function ``scipy.linalg.<name>``, on one thread."""
    return _on_one_thread(getattr(scipy_module("linalg"), name))


def _on_one_thread(function: Any) -> Any:
    """`function` of scipy, whose LAPACK is kept from threads of its own: its results would depend on their number."""
    guard = scipy_one_thread()

    def run(*args: Any, **named: Any) -> Any:
        with guard:
            return function(*args, **named)

    return run


@functools.cache
def blas_routine(name: str, char: str) -> Any:
    return _on_one_thread(scipy_module("linalg").get_blas_funcs((name,), (np.empty(0, char),))[0])
