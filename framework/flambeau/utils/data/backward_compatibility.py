"""What older programs give to a DataLoader."""

from __future__ import annotations

import warnings

__all__ = ["worker_init_fn"]


def worker_init_fn(worker_id: int) -> None:
    """Nothing: workers share the work themselves. Warns: FutureWarning that says so."""
    warnings.warn(
        "Usage of backward_compatibility.worker_init_fn is deprecated as DataLoader automatically applies sharding in every worker",
        FutureWarning, stacklevel=2,
    )
