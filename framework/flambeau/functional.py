"""The functions of the top level that PyTorch keeps in `torch.functional`."""

from __future__ import annotations

from ._on_demand import names_on_demand

__all__ = [  # noqa: F822  # they are found by `__getattr__`
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors",
    "cartesian_prod", "cdist", "chain_matmul", "einsum", "lu", "meshgrid", "norm", "split", "stft", "tensordot", "unique",
    "unique_consecutive", "unravel_index",
]  # fmt: skip


__getattr__, __dir__ = names_on_demand(__name__, {"flambeau": __all__})
