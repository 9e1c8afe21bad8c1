"""Gamma and Dirichlet numbers whose gradients flow into their parameters by implicit derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu import random as kernels
from flambeau_kernels.cpu.random import implicit

from .._spec import primitive

__all__ = ["dirichlet_numbers", "gamma_numbers"]


def _stream(generator: Any) -> Any:
    from ...random import default_generator, stream_of

    return stream_of(default_generator if generator is None else generator)


@primitive(surface=0, samples="p(3)", random=True)
def gamma_numbers(input, generator=None):
    """A number from the gamma distribution of each shape parameter in `input`, of scale 1; float32 or float64."""


gamma_numbers.shown_as("StandardGammaBackward0")


@gamma_numbers.kernel
def _gamma_numbers(a, generator):
    return kernels.standard_gamma(_stream(generator), a)


@gamma_numbers.shape
def _gamma_shape(input, generator):
    return input.shape, input.dtype


@gamma_numbers.vjp
def _gamma_vjp(grad, out, input, generator):
    return (grad * gamma_slope.function(input, out),)


@primitive(surface=0, tensors=("input", "drawn"), samples="of gamma_numbers")
def gamma_slope(input, drawn):
    """How gamma numbers `drawn` move with their shape parameters `input` at a fixed probability. It has no derivative."""


gamma_slope.in_pieces("...,...->...")


@gamma_slope.kernel
def _gamma_slope(a, z):
    return implicit.gamma_slope(a, z).astype(a.dtype)


@gamma_slope.shape
def _gamma_slope_shape(input, drawn):
    return input.shape, input.dtype


@gamma_slope.vjp
def _gamma_slope_vjp(grad, out, input, drawn):
    raise NotImplementedError("Gamma.rsample: second derivatives of gamma samples are not implemented")


@primitive(surface=0, samples="p(2, 3)", random=True)
def dirichlet_numbers(input, generator=None):
    """A vector from the Dirichlet distribution of each vector of concentrations in `input`, ``(*, K)``; float32 or float64."""


@dirichlet_numbers.kernel
def _dirichlet_numbers(a, generator):
    return kernels.dirichlet(_stream(generator), a)


@dirichlet_numbers.shape
def _dirichlet_shape(input, generator):
    return input.shape, input.dtype


@dirichlet_numbers.vjp
def _dirichlet_vjp(grad, out, input, generator):
    # One coordinate is a beta number of its concentration and of all the others'; when it moves, the others keep their ratios.
    slope = dirichlet_slope.function(out, input)
    others = (grad * out).sum(-1, keepdim=True) - grad * out
    return (slope * (grad - others / (1 - out)),)


@primitive(surface=0, tensors=("drawn", "input"), samples="of dirichlet_numbers")
def dirichlet_slope(drawn, input):
    """How each coordinate of `drawn` moves with its own concentration at a fixed probability. It has no derivative."""


dirichlet_slope.in_pieces("..._,..._->..._")


@dirichlet_slope.kernel
def _dirichlet_slope(x, a):
    rest = a.sum(-1, keepdims=True, dtype=np.float64) - a
    return implicit.beta_slope(x, a, rest).astype(a.dtype)


@dirichlet_slope.shape
def _dirichlet_slope_shape(drawn, input):
    return input.shape, input.dtype


@dirichlet_slope.vjp
def _dirichlet_slope_vjp(grad, out, drawn, input):
    raise NotImplementedError("Dirichlet.rsample: second derivatives of Dirichlet samples are not implemented")
