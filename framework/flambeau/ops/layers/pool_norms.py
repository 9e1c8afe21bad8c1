"""Norms over windows of the last dimensions: roots of means of powers."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf, prod
from typing import Any

import numpy as np

from ...tensor import Tensor
from .._spec import composite, need_number
from .conv import as_ints
from .pool_maxima import max_pool1d, max_pool2d, max_pool3d
from .pool_means import window_mean, windows_of_means
from .pool_windows import check_input, check_rank


def _lp_pool(
    op: str, n: int, input: Any, norm_type: Any, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    """``(sum of x ** p) ** (1 / p)`` over windows; the gradient is 0 where the sum is not positive."""
    from ..pointwise.activation import relu

    check_rank(op, input, n)
    if not isinstance(norm_type, (Tensor, complex)):  # of a complex power the mean is refused
        need_number(op, "norm_type", norm_type)
        if isinf(norm_type):
            pooled = (max_pool1d, max_pool2d, max_pool3d)[n - 1]
            sign = 1 if norm_type > 0 else -1  # the least magnitude is the most of their negatives
            return pooled(input.abs() * sign, kernel_size, stride, ceil_mode=ceil_mode) * sign
    powers = input**norm_type
    check_input(op, powers, n, "mean")
    kernel = as_ints(op, "kernel_size", kernel_size, n)
    total = window_mean(powers, windows_of_means(op, powers, kernel, stride, 0, ceil_mode, n), True, None)
    # A Tensor or a number of numpy's may be 0: their root is of infinite order.
    if isinstance(norm_type, (int, float)) and not isinstance(norm_type, np.number) and norm_type == 0:
        raise ZeroDivisionError(f"{op}: norm_type is {norm_type}, and the root of that order is taken")
    return (total.sign() * relu(total.abs()) * prod(kernel)) ** (1.0 / norm_type)


@composite(namespace="nn.functional", samples="p(2, 3, 7), 2, 3; p(2, 3, 7), 3.0, 2, ceil_mode=True")
def lp_pool1d(input, norm_type: int | float, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, ceil_mode=False):
    """``sum(x ** p) ** (1 / p)`` over windows: ``(N, C, L) -> (N, C, L')``, or without N.

    No absolute values are taken: an odd p lets signs through, and a negative sum has no real root.

    Args:
        norm_type: the p. ``1`` gives sums, ``inf`` the largest magnitude, ``-inf`` the least.
        kernel_size, stride, ceil_mode: as for `avg_pool1d`.

    >>> F.lp_pool1d(fb.tensor([[3.0, 4.0, 6.0, 8.0]]), 2, 2)
    tensor([[ 5., 10.]])
    """
    if isinstance(kernel_size, (tuple, list)):
        raise TypeError(f"lp_pool1d(): argument 'kernel_size' must be int, not {type(kernel_size).__name__}")
    return _lp_pool("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


@composite(namespace="nn.functional", samples="p(2, 3, 5, 5), 2, 2")
def lp_pool2d(input, norm_type: int | float, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, ceil_mode=False):
    """``sum(x ** p) ** (1 / p)`` over windows: ``(N, C, H, W) -> (N, C, H', W')``.

    N may be left out. Arguments as for `lp_pool1d`, ints or pairs.
    """
    return _lp_pool("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


@composite(namespace="nn.functional", samples="p(1, 2, 4, 4, 3), 2, 2")
def lp_pool3d(input, norm_type: int | float, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, ceil_mode=False):
    """``sum(x ** p) ** (1 / p)`` over windows: ``(N, C, D, H, W) -> (N, C, D', H', W')``.

    N may be left out. Arguments as for `lp_pool1d`, ints or triples.
    """
    return _lp_pool("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)
