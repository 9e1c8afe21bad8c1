"""The LKJ distribution of correlation matrices, by their Cholesky factors."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices with density proportional to ``det(matrix) ** (concentration - 1)``.

    Args:
        dim: n of the n x n matrices, at least 2.
        concentration: > 0; 1 is uniform over correlation matrices, larger values prefer weak correlations.
    Raises: ValueError for a smaller `dim`.

    Source: Lewandowski, Kurowicka and Joe 2009, "Generating random correlation matrices based on vines and extended onion
    method", section 3.2 (the onion method).
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _event_dims_of = {"concentration": 0, "_beta": 1}

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        batch_shape = self.concentration.size()
        # Row i + 1 of the factor is a direction times the root of a beta variable; the first row needs none.
        i = fb.arange(dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        rows = fb.cat([i.new_zeros((1,)), i])
        last = self.concentration.unsqueeze(-1) + 0.5 * (dim - 2) - 0.5 * rows
        self._beta = Beta(rows + 0.5, last)
        super().__init__(batch_shape, (dim, dim), validate_args=validate_args)

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        with fb.no_grad():
            squares = self._beta.sample(sample_shape).unsqueeze(-1)
            noise = fb.randn(self._extended_shape(sample_shape), dtype=squares.dtype, device=squares.device).tril(-1)
            directions = noise / noise.norm(dim=-1, keepdim=True)
            directions[..., 0, :].fill_(0.0)
            below = fb.sqrt(squares) * directions
            tiny = fb.finfo(below.dtype).tiny
            diagonal = fb.clamp(1 - fb.sum(below**2, dim=-1), min=tiny).sqrt()
            return below + fb.diag_embed(diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.dim
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = 2 * (self.concentration - 1).unsqueeze(-1) + n - fb.arange(2, n + 1, device=value.device)
        unnormalized = fb.sum(order * diagonal.log(), dim=-1)
        # The paper's equation 16, over the n - 1 betas that make the rows.
        alpha = self.concentration + 0.5 * (n - 1)
        log_norm = 0.5 * (n - 1) * math.log(math.pi) + fb.lgamma(alpha) * -(n - 1) + fb.mvlgamma(alpha - 0.5, n - 1)
        return unnormalized - log_norm
