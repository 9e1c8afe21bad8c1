"""Norms of gradients in the log, as they arrive."""

from __future__ import annotations

import logging
from typing import Any

from ..tensor import Tensor

__all__ = ["debug_grad_log"]

_log = logging.getLogger(__name__)


def debug_grad_log(*tensors: Tensor) -> None:
    """Write the norms of the gradients of `tensors` to the log once all of them have arrived.

    Args:
        tensors: tensors that require grad; of the others nothing is written.
    """
    from ..autograd.graph import register_multi_grad_hook
    from ..distributed import get_rank, is_available, is_initialized

    watched = [t for t in tensors if t.requires_grad]
    if not watched:
        return
    rank = get_rank() if is_available() and is_initialized() else 0

    def report(grads: Any) -> None:
        norms = [None if grad is None else grad.detach().norm().item() for grad in grads]
        _log.info("[rank %d][bwd] %s", rank, " ".join(f"t{i}: {norm}" for i, norm in enumerate(norms)))

    register_multi_grad_hook(tuple(watched), report)
