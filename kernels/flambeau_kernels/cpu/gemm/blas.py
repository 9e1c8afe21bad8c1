"""The BLAS that numpy brought along, called block by block from our own threads.

OpenBLAS cuts large products over threads of its own, which wait for each other by spinning and so lose to any other
load of the machine (measured: up to fifty times slower than one thread), and its cuts depend on their number. Here it
computes one block of the result per call, on the thread that calls it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.gemm.driver import A_K, A_M, ACCUMULATE, B_K, B_N, C_M, FLAGS, ROUTINE, K
from flambeau_kernels.cpu.gemm.text import Function
from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.loading import scipy_module

_ROW_MAJOR, _AS_IS, _TRANSPOSED = 101, 111, 112       # CBLAS's names for layouts
# The spellings of numpy's and scipy's wheels, and of OpenBLAS built with 64-bit integers.
_GEMM = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_")
_SET, _GET = (
    tuple(f"{prefix}openblas_{verb}_num_threads{suffix}" for suffix in ("64_", "") for prefix in ("scipy_", "")) for verb in ("set", "get")
)
_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_REALS = {"s": "float", "d": "double"}


@functools.cache
def routine(dtype: str) -> int:
    """Address of the matrix product of a dtype with 64-bit integers; 0 where numpy's BLAS is not OpenBLAS or hidden."""
    if dtype not in _LETTERS or one_thread is None or not tier.works():
        return 0
    found = _find(tuple(name.format(_LETTERS[dtype]) for name in _GEMM))
    return pyabi.address_of(found) if found is not None else 0


def _find(names: tuple[str, ...], module: Any = np._core._multiarray_umath) -> Any:  # pyright: ignore[reportAttributeAccessIssue]
    # Looking a name up in an extension module also searches the libraries it was linked with.
    library = ctypes.CDLL(module.__file__)
    return next((getattr(library, name) for name in names if hasattr(library, name)), None)


# -- threads -----------------------------------------------------------------------------------------------------


class _OneThread:
    """While anyone is inside, OpenBLAS uses one thread; the last to leave restores the setting the first one found."""

    def __init__(self, get: Any, put: Any) -> None:
        self._get, self._put = get, put
        self._start_over()

    def _start_over(self) -> None:
        self._lock, self._inside, self._setting = threading.Lock(), 0, 1

    def after_fork(self) -> None:
        """Whoever was inside at the fork does not exist in the child."""
        if self._inside:
            self._put(self._setting)
        self._start_over()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._setting = self._get()
                if self._setting != 1:
                    self._put(1)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._setting != 1:
                self._put(self._setting)


def _make_one_thread(*modules: Any) -> _OneThread | None:
    get, put = _find(_GET, *modules), _find(_SET, *modules)
    if get is None or put is None:
        return None
    get.restype = ctypes.c_int
    # Both only touch a number, so the interpreter lock is kept: giving it up would cost more than the call.
    address = pyabi.address_of
    guard = _OneThread(ctypes.PYFUNCTYPE(ctypes.c_int)(address(get)), ctypes.PYFUNCTYPE(None, ctypes.c_int)(address(put)))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=guard.after_fork)
    return guard


one_thread = _make_one_thread()


@functools.cache
def scipy_one_thread() -> Any:
    """What `one_thread` is, for the BLAS and LAPACK that scipy brought along; a context that does nothing where it is hidden."""
    return _make_one_thread(scipy_module("linalg._flapack")) or nullcontext()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run numpy's own products on one thread, so that their bits do not depend on how many there are."""
    if one_thread is None:
        yield
        return
    with one_thread:
        yield


def readable(x: Any) -> bool:
    """Whether every matrix of `x` is contiguous along one dimension, and lies along the other without overlapping itself."""
    (rows, columns), (down, along), size = x.shape[-2:], x.strides[-2:], x.itemsize
    for inner, step, outer in ((columns, along, down), (rows, down, along)):
        if step == size and outer >= inner * size and not outer % size:
            return True
    return False


# -- blocks ------------------------------------------------------------------------------------------------------


@functools.cache
def block(dtype: str) -> int:
    """Address of the block function of `driver.py` that calls BLAS; the plan's ROUTINE is `routine(dtype)`.

    Both A and B must be contiguous along one of their dimensions.
    """
    name = f"blas_{_LETTERS[dtype]}"
    return llvm.compile_ir(_text(name, _LETTERS[dtype]), name)


def _text(name: str, letter: str) -> str:
    f = Function(f"void @{name}(ptr %plan, ptr %a, ptr %b, ptr %c, ptr %bias, ptr %beside, i64 %m, i64 %n, ptr %scratch)")
    size = {"s": 4, "d": 8, "c": 8, "z": 16}[letter]
    a_m, a_k, b_k, b_n, c_m = (f.field("%plan", slot) for slot in (A_M, A_K, B_K, B_N, C_M))
    layouts, lengths = [], []
    for down, along in ((a_m, a_k), (b_k, b_n)):
        by_rows = f.compare("eq", along, size)
        layouts.append(f.let(f"select i1 {by_rows}, i32 {_AS_IS}, i32 {_TRANSPOSED}"))
        lengths.append(f.div(f.let(f"select i1 {by_rows}, i64 {down}, i64 {along}"), size))
    more = f.bit(f.field("%plan", FLAGS), ACCUMULATE)
    if letter in _REALS:
        one, kind = "1.0", _REALS[letter]
        beta = f.let(f"select i1 {more}, {kind} 1.0, {kind} 0.0")
    else:
        kind = "float" if letter == "c" else "double"
        one, beta = f.variable(f"[2 x {kind}]"), f.variable(f"[2 x {kind}]")
        f.store(f"[2 x {kind}]", f"[{kind} 1.0, {kind} 0.0]", one)
        f.store(f"[2 x {kind}]", "zeroinitializer", beta)
        f.store(kind, f.let(f"select i1 {more}, {kind} 1.0, {kind} 0.0"), beta)
        kind = "ptr"
    f.do(f"call void {f.field('%plan', ROUTINE, 'ptr')}(i32 {_ROW_MAJOR}, i32 {layouts[0]}, i32 {layouts[1]}, i64 %m, "
         f"i64 %n, i64 {f.field('%plan', K)}, {kind} {one}, ptr %a, i64 {lengths[0]}, ptr %b, i64 {lengths[1]}, "
         f"{kind} {beta}, ptr %c, i64 {f.div(c_m, size)})", "ret void")  # fmt: skip
    return "declare i64 @llvm.smin.i64(i64, i64)\n" + f.text()
