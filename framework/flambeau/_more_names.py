"""Names at the top level that PyTorch has beside what its documentation lists."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from . import dtypes
from .autograd.anomaly_mode import set_detect_anomaly
from .tensor import Tensor

__all__ = [
    "PRIVATE_OPS", "USE_GLOBAL_DEPS", "USE_RTLD_GLOBAL_WITH_LIBTORCH", "FatalError", "ccol_indices_copy", "classproperty",
    "col_indices_copy", "crow_indices_copy", "eig", "get_autocast_ipu_dtype", "get_autocast_xla_dtype", "get_file_path", "has_lapack",
    "has_mkl", "has_openmp", "has_spectral", "indices_copy", "init_num_threads", "int_repr", "is_autocast_ipu_enabled",
    "is_autocast_xla_enabled", "is_distributed", "lstsq", "matrix_rank", "prepare_multiprocessing_environment", "q_per_channel_axis",
    "q_per_channel_scales", "q_per_channel_zero_points", "q_scale", "q_zero_point", "row_indices_copy", "set_anomaly_enabled",
    "slice_copy", "slice_inverse", "solve", "split_copy", "symeig", "values_copy",
]  # fmt: skip

# Facts of a build. Solvers, transforms and threads are here, whichever library has them.
has_lapack = has_openmp = has_spectral = USE_GLOBAL_DEPS = True
has_mkl = USE_RTLD_GLOBAL_WITH_LIBTORCH = False
PRIVATE_OPS = ("unique_dim",)


class FatalError(Exception):
    """PyTorch's error that cannot be gone on from. Nothing here raises it; programs name it."""


class classproperty:  # PyTorch's name
    """A property of a class: ``@classproperty`` over ``def name(cls)``."""

    def __init__(self, func: Any) -> None:
        self.func = func

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.func(type(instance) if owner is None else owner)


def get_file_path(*path_components: str) -> str:
    """A path within the folder that this package is in."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *path_components)


def init_num_threads() -> None:
    """Nothing: threads are counted when they are first needed."""


def prepare_multiprocessing_environment(path: str) -> None:
    """Nothing: processes that are started find what they need."""


def is_distributed(input: Any) -> bool:
    """False: no tensor is spread over devices by itself."""
    return False


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Find the operations that broken gradients come from, or no longer; see `autograd.set_detect_anomaly`."""
    set_detect_anomaly(enabled, check_nan)


# -- casts of devices that are not here --------------------------------------------------------------------------------------


def is_autocast_ipu_enabled() -> bool:
    """False: there is no such device."""
    return False


def is_autocast_xla_enabled() -> bool:
    """False: there is no such device."""
    return False


def get_autocast_ipu_dtype() -> Any:
    """What casts on such a device would be to: float16."""
    return dtypes.float16


def get_autocast_xla_dtype() -> Any:
    """What casts on such a device would be to: bfloat16."""
    return dtypes.bfloat16


# -- methods as functions ----------------------------------------------------------------------------------------------------


def int_repr(input: Tensor) -> Tensor:
    """`Tensor.int_repr`."""
    return input.int_repr()


def q_scale(input: Tensor) -> float:
    """`Tensor.q_scale`."""
    return input.q_scale()


def q_zero_point(input: Tensor) -> int:
    """`Tensor.q_zero_point`."""
    return input.q_zero_point()


def q_per_channel_axis(input: Tensor) -> int:
    """`Tensor.q_per_channel_axis`."""
    return input.q_per_channel_axis()


def q_per_channel_scales(input: Tensor) -> Tensor:
    """`Tensor.q_per_channel_scales`."""
    return input.q_per_channel_scales()


def q_per_channel_zero_points(input: Tensor) -> Tensor:
    """`Tensor.q_per_channel_zero_points`."""
    return input.q_per_channel_zero_points()


# -- copies of what are views elsewhere --------------------------------------------------------------------------------------


def indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.indices()``."""
    return input.indices().clone()


def values_copy(input: Tensor) -> Tensor:
    """A copy of ``input.values()``."""
    return input.values().clone()


def crow_indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.crow_indices()``."""
    return input.crow_indices().clone()


def col_indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.col_indices()``."""
    return input.col_indices().clone()


def ccol_indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.ccol_indices()``."""
    return input.ccol_indices().clone()


def row_indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.row_indices()``."""
    return input.row_indices().clone()


def slice_copy(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """A copy of the elements of `input` from `start` to `end` along `dim`, each `step`-th."""
    return input[(slice(None),) * (dim % input.ndim) + (slice(start, end, step),)].clone()


def split_copy(input: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Copies of what ``input.split(split_size, dim)`` gives."""
    return tuple(part.clone() for part in input.split(split_size, dim))


def slice_inverse(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """The view of the memory of `input` with the sizes of `src`, of which `input` is the slice that the other arguments say.

    Raises: RuntimeError where that memory has no place for it.
    """
    first = slice(start, end, step).indices(src.shape[dim])[0]
    return input.as_strided(src.shape, src.stride(), input.storage_offset() - first * src.stride(dim))


# -- removed -----------------------------------------------------------------------------------------------------------------


def _removed(name: str, instead: str) -> NoReturn:
    raise RuntimeError(f"This function was deprecated since version 1.9 and is now removed. Use torch.linalg.{instead} instead of {name}")


def eig(self: Tensor, eigenvectors: bool = False, *, e: Any = None, v: Any = None) -> NoReturn:
    """Removed from PyTorch: raises RuntimeError that names `linalg.eig`."""
    _removed("torch.eig", "eig or eigvals")


def symeig(input: Tensor, eigenvectors: bool = False, upper: bool = True, *, out: Any = None) -> NoReturn:
    """Removed from PyTorch: raises RuntimeError that names `linalg.eigh`."""
    _removed("torch.symeig", "eigh or eigvalsh")


def lstsq(input: Tensor, A: Tensor, *, out: Any = None) -> NoReturn:
    """Removed from PyTorch: raises RuntimeError that names `linalg.lstsq`."""
    _removed("torch.lstsq", "lstsq, which takes its arguments in the other order,")


def solve(input: Tensor, A: Tensor, *, out: Any = None) -> NoReturn:
    """Removed from PyTorch: raises RuntimeError that names `linalg.solve`."""
    _removed("torch.solve", "solve, which takes its arguments in the other order,")


def matrix_rank(input: Tensor, tol: Any = None, symmetric: bool = False, *, out: Any = None) -> NoReturn:
    """Removed from PyTorch: raises RuntimeError that names `linalg.matrix_rank`."""
    _removed("torch.matrix_rank", "matrix_rank")
