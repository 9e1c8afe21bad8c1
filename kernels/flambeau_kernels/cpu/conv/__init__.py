"""Convolutions of numpy arrays: three maps, each a derivative of the other two.

Layouts: input ``(N, C, *spatial)``, weight ``(O, C / groups, *kernel)``, output ``(N, O, *positions)``. `convolve`
makes outputs of inputs and weights, `convolve_input` inputs of outputs and weights (the transposed convolution) and
`convolve_weight` weights of inputs and outputs. Compiled kernels compute floats (`compiled.py`), numpy the rest and
everything where nothing can be compiled (`arrays.py`).
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..tier import compiles
from . import arrays
from .arrays import (
    Ints,
    channel_sum,
    cropped,
    fold_windows,
    gather_windows,
    is_half,
    output_size,
    widened,
)

__all__ = [
    "channel_sum", "convolve", "convolve_input", "convolve_weight", "cropped", "fold_windows",
    "gather_windows", "is_half", "output_size", "planned", "widened",
]  # fmt: skip


def convolve(
    x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, bias: Any = None
) -> Any:
    """Cross-correlate ``(N, C, *spatial)`` with ``(O, C / groups, *kernel)`` and add a bias ``(O,)``."""
    if compiles():
        from . import compiled

        if compiled.takes(x, w):
            made = arrays.output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
            return compiled.correlation(x, w, bias, made, stride, padding, dilation, groups, False)
    return arrays.convolve(x, w, stride, padding, dilation, groups, bias)


def planned(
    x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, transposed: bool
) -> Any:
    """``run(x, w, bias)``, as `convolve` or, `transposed`, `convolve_input` with extents `made`, for contiguous arrays of these
    shapes and dtypes; or None. Only for few positions, because it holds tables of them."""
    if not compiles() or prod(x.shape[2:]) + prod(made) > MOST_PLANNED:
        return None
    from . import compiled

    return compiled.chosen(x, w, made, stride, padding, dilation, groups, transposed) if compiled.takes(x, w) else None


MOST_PLANNED = 1 << 11


def convolve_input(
    y: Any, w: Any, spatial: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, bias: Any = None
) -> Any:
    """What each output ``(N, O, *positions)`` contributes to an input of extent `spatial`: ``(N, C, *spatial)``."""
    if compiles():
        from . import compiled

        if compiled.takes(y, w):
            return compiled.correlation(y, w, bias, tuple(spatial), stride, padding, dilation, groups, True)
    return arrays.convolve_input(y, w, spatial, stride, padding, dilation, groups, bias)


def convolve_weight(
    x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """Correlate windows of ``(N, C, *spatial)`` with ``(N, O, *positions)``: ``(O, C / groups, *kernel)``."""
    if compiles():
        from . import compiled

        if compiled.takes(x, y):
            return compiled.correlation_weight(x, y, tuple(kernel), stride, padding, dilation, groups)
    return arrays.convolve_weight(x, y, kernel, stride, padding, dilation, groups)
