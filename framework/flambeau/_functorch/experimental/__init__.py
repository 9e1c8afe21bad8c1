"""What PyTorch has as ``functorch.experimental``: transforms that are in `flambeau.func` by now, `chunk_vmap`, and `control_flow`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_
from ...func.vmap import batch_size, vmap
from . import control_flow

__all__ = ["chunk_vmap", "control_flow", "functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]


def chunk_vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", chunks: int = 2,
) -> Callable[..., Any]:  # fmt: skip
    """`vmap` of `func` over at most `chunks` pieces of the batch, one after the other.

    Args:
        func, in_dims, out_dims, randomness: as for `func.vmap`.
        chunks: as for `chunk`: pieces have the same size, and the last one what is left.
    Raises: ValueError unless `chunks` is greater than 0; what `func.vmap` raises.

    >>> from flambeau._functorch.experimental import chunk_vmap
    >>> chunk_vmap(lambda x: x.sum(), chunks=2)(fb.ones(3, 2))
    tensor([2., 2., 2.])
    """
    if chunks < 1:
        raise ValueError(f"chunk_vmap: chunks must be greater than 0, got {chunks}")

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        size = -(-batch_size(func, in_dims, args) // chunks)
        return vmap(func, in_dims, out_dims, randomness, chunk_size=size or None)(*args, **kwargs)

    return wrapper
