"""Factorizations of one large matrix by blocks of columns, whose products with what is left run on all threads.

LAPACK factors a block and solves with its triangle, on one thread; most of the work is the products, which have the same bits on any number
of threads.
"""

from __future__ import annotations

import cmath
from typing import Any

import numpy as np

from flambeau_kernels.cpu.matmul import matmul

from ._routines import blas_routine, routine

__all__ = ["CHOLESKY_FROM", "LU_FROM", "cholesky", "lu", "takes"]

BLOCK = 128
LU_FROM, CHOLESKY_FROM = 512, 512                     # of the smaller side


def takes(a: Any, least: int) -> bool:
    """Whether the matrix `a` is one that pays: its smaller side is at least `least`."""
    return a.__class__ is np.ndarray and a.dtype.char in "fd" and min(a.shape) >= least


def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """As LAPACK's ``getrf``: packed factors by columns, rows exchanged (from 0), and the first zero on the diagonal of U, or 0."""
    left = np.array(a, order="F")
    m, n = left.shape
    k = min(m, n)
    factor, exchange, divide = routine("getrf", a), routine("laswp", a), blas_routine("trsm", a.dtype.char)
    pivots, info = np.empty(k, np.int32), 0
    for first in range(0, k, BLOCK):
        last = min(first + BLOCK, k)
        columns, rows, zero = factor(left[first:, first:last])
        left[first:, first:last] = columns
        pivots[first:last] = rows[: last - first] + first
        info = info or (zero and zero + first)
        for others in (left[:, :first], left[:, last:]):
            if others.size:                           # whole columns, so they are exchanged in place
                exchange(others, pivots[:last], k1=first, k2=last - 1, overwrite_a=1)
        if last < n:
            above = divide(1.0, columns[: last - first], left[first:last, last:], lower=1, diag=1)
            left[first:last, last:] = above
            if last < m:
                matmul(above.T, np.negative(columns[last - first :]).T, left[last:, last:].T, accumulate=True)
    return left, pivots, info


def cholesky(a: np.ndarray, upper: bool) -> np.ndarray | None:
    """The factor of a positive-definite matrix, by rows if it is the lower one; None for others, of which LAPACK says where they are not.

    The other triangle of `a` is not looked at.
    """
    left = np.array(a.T if upper else a, order="C")
    n = len(left)
    factor, divide = routine("potrf", a), blas_routine("trsm", a.dtype.char)
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        corner, info = factor(left[first:last, first:last], lower=1, clean=1)
        if info or not cmath.isfinite(corner.trace()):
            return None
        left[first:last, first:last] = corner
        left[first:last, last:] = 0
        if last == n:
            break
        # ``X @ corner.T == below``, of the transposes.
        below = divide(1.0, corner, left[last:, first:last].T, lower=1).T
        left[last:, first:last] = below
        minus = np.negative(below)
        for at in range(last, n, BLOCK):              # of what is left the lower triangle alone
            to = min(at + BLOCK, n)
            matmul(minus[at - last :], below[at - last : to - last].T, left[at:, at:to], accumulate=True)
    return left.T if upper else left
