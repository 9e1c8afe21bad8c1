"""The Fourier transforms as operators: over given dimensions, of the sizes that these have, with a norm by number."""

from __future__ import annotations

from .._spec import OPS, composite
from . import fft  # noqa: F401  # which declares what these call

__all__: list[str] = []

# What is divided by: nothing, the root of the number of elements, or that number.
_FORWARD = ("backward", "ortho", "forward")
_INVERSE = ("forward", "ortho", "backward")


@composite(surface=0, samples="c(3, 4), [0, 1], 0, True; c(3, 4), [1], 2, False")
def _fft_c2c(self, dim, normalization, forward):
    """The transform of complex numbers along `dim`, or its inverse.

    Args:
        normalization: 0 divides by nothing, 1 by the root of the number of elements transformed, 2 by that number.
    """
    name, norm = ("fft.fftn", _FORWARD) if forward else ("fft.ifftn", _INVERSE)
    return OPS[name].function(self, None, dim, norm[normalization])


@composite(surface=0, samples="x(3, 4), [0, 1], 1, True; x(3, 4), [1], 0, False")
def _fft_r2c(self, dim, normalization, onesided):
    """The transform of real numbers along `dim`; of the last one the first half alone, if `onesided`. See `_fft_c2c`."""
    return OPS["fft.rfftn" if onesided else "fft.fftn"].function(self, None, dim, _FORWARD[normalization])


@composite(surface=0, samples="c(3, 4), [0, 1], 2, 6; c(3, 4), [1], 0, 7")
def _fft_c2r(self, dim, normalization, last_dim_size):
    """The inverse of the transform of real numbers, of which the last of `dim` holds the first half. See `_fft_c2c`."""
    sizes = [self.shape[d] for d in dim[:-1]]
    return OPS["fft.irfftn"].function(self, [*sizes, last_dim_size], dim, _INVERSE[normalization])
