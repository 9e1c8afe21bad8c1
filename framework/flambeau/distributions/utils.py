"""What several distributions need: parameters of one shape, probabilities and log-odds, properties computed when asked for."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import flambeau as fb

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "euler_constant",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060  # DLMF 5.2.3


def broadcast_all(*values: Any) -> tuple[fb.Tensor, ...]:
    """`values` as tensors of one shape: numbers take the dtype and device of the first tensor, else the default dtype.

    Raises: ValueError for a value that is neither a number nor a tensor.
    """
    tensors = [value for value in values if _is_tensor(value)]
    if not all(_is_tensor(value) or isinstance(value, Number) for value in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__.")
    like: dict[str, Any] = {"dtype": fb.get_default_dtype()}
    if tensors:
        like = {"dtype": tensors[0].dtype, "device": tensors[0].device}
    made = [value if _is_tensor(value) else fb.tensor(value, **like) for value in values]
    if all(value.shape == made[0].shape for value in made):
        return tuple(made)  # a parameter stays the very tensor that was given
    return tuple(fb.broadcast_tensors(*made))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fb.Tensor) or hasattr(type(value), "__torch_function__")


def logits_to_probs(logits: fb.Tensor, is_binary: bool = False) -> fb.Tensor:
    """Probabilities of `logits`: the logistic function of log-odds if `is_binary`, else a softmax of the last dimension."""
    return fb.sigmoid(logits) if is_binary else fb.softmax(logits, -1)


def clamp_probs(probs: fb.Tensor) -> fb.Tensor:
    """`probs` kept one rounding step inside (0, 1), so that their logarithms are finite."""
    eps = fb.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: fb.Tensor, is_binary: bool = False) -> fb.Tensor:
    """Logarithms of `probs`, or their log-odds if `is_binary`; 0 and 1 are moved inside by one rounding step."""
    inside = clamp_probs(probs)
    return fb.log(inside) - fb.log1p(-inside) if is_binary else fb.log(inside)


class lazy_property:
    """A property that is computed on first use, with gradients recorded, and then is a plain attribute."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.__name__ = wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with fb.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.__name__, value)
        return value


def tril_matrix_to_vec(mat: fb.Tensor, diag: int = 0) -> fb.Tensor:
    """The entries on and below diagonal `diag`, row by row: ``(*, n, n) -> (*, entries)``.

    Raises: ValueError if `diag` is outside ``[-n, n)``.
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = fb.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: fb.Tensor, diag: int = 0) -> fb.Tensor:
    """The lower-triangular matrices that `tril_matrix_to_vec` would take apart: ``(*, entries) -> (*, n, n)``.

    Raises: ValueError if no matrix has that many entries on and below diagonal `diag`.
    """
    entries = vec.shape[-1]
    n = next((n for n in range(abs(diag), abs(diag) + entries + 1) if _entries(n, diag) == entries), None)
    if n is None:
        raise ValueError(
            f"The size of last dimension is {entries} which cannot be expressed as the lower triangular part of a square "
            f"D x D matrix (diag={diag})."
        )
    rows, columns = fb.tril_indices(n, n, diag, device=vec.device)
    made = vec.new_zeros((*vec.shape[:-1], n, n))
    made[..., rows, columns] = vec
    return made


def _entries(n: int, diag: int) -> int:
    """How many entries an n x n matrix has on and below diagonal `diag`."""
    return sum(min(max(row + diag + 1, 0), n) for row in range(n))


# -- helpers that distributions of other packages import -----------------------------------------------------------------


def _standard_normal(shape: Any, dtype: Any, device: Any) -> fb.Tensor:
    """Draws from the normal distribution with mean 0 and variance 1."""
    return fb.randn(tuple(shape), dtype=dtype, device=device)


def _sum_rightmost(value: fb.Tensor, dim: int) -> fb.Tensor:
    """`value` summed over its last `dim` dimensions."""
    return value if dim == 0 else value.reshape(*value.shape[:-dim], -1).sum(-1)
