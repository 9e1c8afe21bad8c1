"""The functions of the top level that PyTorch keeps in `torch.functional`."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from . import _missing

__all__ = [  # noqa: F822  # they are found by `__getattr__`
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors",
    "cartesian_prod", "cdist", "chain_matmul", "einsum", "lu", "meshgrid", "norm", "split", "stft", "tensordot", "unique",
    "unique_consecutive", "unravel_index",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(fb, name)
    raise _missing.attribute_error(__name__, name)
