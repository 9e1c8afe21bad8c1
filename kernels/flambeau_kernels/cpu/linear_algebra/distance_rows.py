"""Distances between all rows of two small arrays, by a handful of numpy calls, and by a kernel with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import kernel, local, widened
from flambeau_kernels.vocabulary import abs, sqrt

from ..norm.as_numpy import MOST, row_total
from ..taking_over import numpy_until_kernel

__all__ = ["planned"]


@kernel
def distances(chunk, x, y, out, batch, m, n, d, *, SQUARED):
    KIND = widened(out)
    terms = local(KIND, MOST)
    for b in range(batch):
        for i in range(m):
            for j in range(n):
                p, q = x + (b * m + i) * d, y + (b * n + j) * d
                for k in range(d):
                    off = p[k] - q[k]
                    terms[k] = off * off if SQUARED else abs(off)
                total = row_total(terms, d, KIND(0), KIND, False)
                out[(b * m + i) * n + j] = sqrt(total) if SQUARED else total


def planned(first: tuple[int, ...], second: tuple[int, ...], dtype: np.dtype, squared: bool) -> Callable[..., Any]:
    """``run(x, y)`` for contiguous ``(*, m, d)`` and ``(*, n, d)``: their rows' distances ``(*, m, n)``, of order 2 or 1."""

    def by_numpy(x: Any, y: Any) -> Any:
        off = x[..., :, None, :] - y[..., None, :, :]
        made = np.sqrt(np.add.reduce(off * off, -1)) if squared else np.add.reduce(np.abs(off), -1)
        return (made,)

    (*lead, m, d), n = first, second[-2]
    if not 0 < d <= MOST:
        return lambda x, y: by_numpy(x, y)[0]
    shape, batch = (*lead, m, n), int(np.prod(lead))

    def around(form: Any) -> Any:
        def by_kernel(x: Any, y: Any) -> Any:
            out = np.empty(shape, dtype)
            form(1, False, x, y, out, batch, m, n, d)
            return (out,)

        return by_kernel

    run = numpy_until_kernel(by_numpy, distances, (dtype, dtype, dtype, *(int,) * 4), {"SQUARED": squared}, around)
    return lambda x, y: run(x, y)[0]
