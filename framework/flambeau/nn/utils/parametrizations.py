"""Ready-made parametrizations: orthogonal matrices, weight normalization, spectral normalization."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import flambeau as fb

from .. import functional as F
from ..modules.module import Module
from . import parametrize
from .spectral_norm import output_dim
from .weight_norm import _norm_except

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

Tensor = fb.Tensor


def _is_orthogonal(q: Tensor) -> bool:
    """Whether the columns of `q` (*, n, k) are orthonormal, up to rounding that grows with n."""
    n, k = q.size(-2), q.size(-1)
    identity = fb.eye(k, dtype=q.dtype, device=q.device)
    eps = 10.0 * n * fb.finfo(q.dtype).eps
    return bool(fb.allclose(q.mH @ q, identity, atol=eps))


def _make_orthogonal(a: Tensor) -> Tensor:
    """The orthogonal factor of `a`, with the signs that keep an orthogonal matrix as it is."""
    packed, tau = fb.geqrf(a)
    q = fb.linalg.householder_product(packed, tau)
    return q * packed.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


class _Orthogonal(Module):
    """Maps any matrix to one with orthonormal columns (rows, if it is wider than high).

    Args:
        weight: the matrix, or batch of them, to be parametrized; it is not changed.
        orthogonal_map: which map. ``matrix_exp`` and ``cayley`` take the skew-symmetric part of the lower
            triangle; ``householder`` multiplies reflections, one per column.
        use_trivialization: whether the result is multiplied to a base that `right_inverse` sets.
    """

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map is _OrthMaps.householder:
            raise ValueError("orthogonal: the householder map is for real matrices; use matrix_exp or cayley")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.size(-2) < X.size(-1)
        tall = X.mT if wide else X
        q = self._reflections(tall) if self.orthogonal_map is _OrthMaps.householder else self._rotation(tall)
        if hasattr(self, "base") and self.base is not None:
            q = self.base @ q
        return q.mT if wide else q

    def _rotation(self, x: Tensor) -> Tensor:
        """(*, n, k) with n >= k -> the first k columns of a rotation, from the strict lower triangle."""
        n, k = x.size(-2), x.size(-1)
        lower = x.tril()
        if n != k:
            lower = fb.cat([lower, lower.new_zeros(n, n - k).expand(*lower.shape[:-2], -1, -1)], dim=-1)
        skew = lower - lower.mH
        if self.orthogonal_map is _OrthMaps.matrix_exp:
            q = fb.matrix_exp(skew)
        else:
            identity = fb.eye(n, dtype=skew.dtype, device=skew.device)
            q = fb.linalg.solve(identity - 0.5 * skew, identity + 0.5 * skew)
        return q[..., :k] if n != k else q

    def _reflections(self, x: Tensor) -> Tensor:
        """(*, n, k) with n >= k -> the product of the reflections whose vectors are the columns below the diagonal."""
        vectors = x.tril(diagonal=-1)
        # The vector's entry on the diagonal is 1, so |v|^2 = 1 + the squares below.
        tau = 2.0 / (1.0 + (vectors * vectors).sum(dim=-2))
        q = fb.linalg.householder_product(vectors, tau)
        return q * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    def right_inverse(self, Q: Tensor) -> Tensor:
        """The matrix that is mapped to `Q`, or, with trivialization, the one mapped to the base, which becomes `Q`.

        Raises: ValueError for another shape; NotImplementedError for matrix_exp and cayley without trivialization.
        """
        if Q.shape != self.shape:
            raise ValueError(f"orthogonal: expected shape {tuple(self.shape)}, got {tuple(Q.shape)}")
        wide = Q.size(-2) < Q.size(-1)
        tall = Q.mT if wide else Q
        n, k = tall.size(-2), tall.size(-1)
        if not hasattr(self, "base"):
            return self._without_base(tall, wide)
        if n == k:
            self.base = tall.clone() if _is_orthogonal(tall) else _make_orthogonal(tall)
        else:
            # Random columns complete the base to a square.
            more = fb.randn(*tall.shape[:-2], n, n - k, dtype=tall.dtype, device=tall.device)
            self.base = _make_orthogonal(fb.cat([tall, more], dim=-1))
        start = fb.zeros_like(Q)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start

    def _without_base(self, tall: Tensor, wide: bool) -> Tensor:
        if self.orthogonal_map is not _OrthMaps.householder:
            raise NotImplementedError(
                f"orthogonal: {self.orthogonal_map.name} cannot be inverted; use_trivialization=True allows "
                "assignment"
            )
        vectors, tau = fb.geqrf(tall)
        # forward reads the sign of each column off the diagonal.
        diagonal = vectors.diagonal(dim1=-2, dim2=-1)
        diagonal.sign_()
        diagonal[tau == 0.0] *= -1
        return vectors.mT if wide else vectors


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a matrix parameter orthogonal: its columns orthonormal, or its rows if it is wider than high.

    Args:
        name: a parameter with at least 2 dimensions; those before the last 2 are a batch.
        orthogonal_map: ``'matrix_exp'`` (default for square and complex matrices), ``'cayley'`` or
            ``'householder'`` (default for the others).
        use_trivialization: whether the weight is kept as a base and a rotation of it, which allows assignment
            and conditions training better. Source: Lezcano-Casado 2019, arXiv:1909.09501.
    Returns: `module`.
    Raises: ValueError for fewer than 2 dimensions or an unknown map.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"orthogonal: {type(module).__name__} has no parameter or buffer named {name!r}")
    if weight.ndim < 2:
        raise ValueError(f"orthogonal: expected a matrix or a batch of them, got {weight.ndim} dimension(s)")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    chosen = getattr(_OrthMaps, orthogonal_map, None)
    if chosen is None:
        raise ValueError(
            "orthogonal: orthogonal_map must be 'matrix_exp', 'cayley' or 'householder', got "
            f"{orthogonal_map!r}"
        )
    parametrization = _Orthogonal(weight, chosen, use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, parametrization, unsafe=True)
    return module


class _WeightNorm(Module):
    """``g * v / |v|``, with one norm for each index of `dim`, or a single one for None."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / _norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return _norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn the length and the direction of a parameter apart, as `original0` and `original1`.

    Args:
        name: of the parameter.
        dim: lengths are taken for each index of this dimension; None for one length.
    Returns: `module`.
    Source: Salimans & Kingma 2016, "Weight normalization".
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def from_older_names(
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        older = (f"{prefix}{name}_g", f"{prefix}{name}_v")
        if all(key in state_dict for key in older):
            for i, key in enumerate(older):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(from_older_names)
    return module


class _SpectralNorm(Module):
    """``weight / sigma``, sigma being the largest singular value by the power method.

    Buffers `_u` (rows,) and `_v` (columns,) hold the vectors between calls; a vector is divided by its norm instead.
    """

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"spectral_norm: dim={dim} is out of range for {ndim} dimension(s)")
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: n_power_iterations must be > 0, got {n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight)
            rows, columns = matrix.size()
            u = matrix.new_empty(rows).normal_(0, 1)
            v = matrix.new_empty(columns).normal_(0, 1)
            self.register_buffer("_u", self._normalize(u))
            self.register_buffer("_v", self._normalize(v))
            # 15 steps give a fair start.
            self._power_method(matrix, 15)

    def _normalize(self, vector: Tensor) -> Tensor:
        return F.normalize(vector, dim=0, eps=self.eps)

    def _reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _power_method(self, weight_mat: Tensor, n_power_iterations: int) -> None:
        with fb.no_grad():
            for _ in range(n_power_iterations):
                self._u.copy_(self._normalize(fb.mv(weight_mat, self._v)))
                self._v.copy_(self._normalize(fb.mv(weight_mat.mH, self._u)))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return self._normalize(weight)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # Copies, so that a second forward before backward does not overwrite what backward needs.
        u, v = self._u.clone(), self._v.clone()
        return weight / fb.vdot(u, fb.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """`value` itself: it is taken to be normalized already."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a parameter by its largest singular value, so that the layer stretches nothing.

    Args:
        name: of the parameter.
        n_power_iterations: steps of the power method per reading, in training.
        eps: least length that the method divides its vectors by.
        dim: dimension of the output features; 0, but 1 for transposed convolutions.
    Returns: `module`.
    Raises: ValueError if there is no such parameter or buffer.
    Source: Miyato et al. 2018, "Spectral normalization for generative adversarial networks".
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"spectral_norm: {type(module).__name__} has no parameter or buffer named {name!r}")
    dim = output_dim(module) if dim is None else dim
    parametrize.register_parametrization(module, name, _SpectralNorm(weight.detach(), n_power_iterations, dim, eps))
    return module
