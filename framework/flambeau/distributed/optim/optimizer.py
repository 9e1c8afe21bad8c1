"""One optimizer on each worker that has parameters, stepped together."""

from __future__ import annotations

import threading
from typing import Any

from ...futures import wait_all

__all__ = ["DistributedOptimizer"]


class _LocalOptimizer:
    """The optimizer of one worker, over gradients of a distributed context."""

    # Steps of several clients take turns, for each puts its own gradients where the optimizer looks.
    _lock = threading.Lock()

    def __init__(self, optimizer_class: Any, params: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._params = [rref.local_value() for rref in params]
        self._optimizer = optimizer_class(self._params, *args, **kwargs)

    def step(self, context_id: int) -> None:
        from .. import autograd

        found = autograd.get_gradients(context_id)
        with self._lock:
            before = [param.grad for param in self._params]
            try:
                for param in self._params:
                    param.grad = found.get(param)
                self._optimizer.step()
            finally:
                for param, grad in zip(self._params, before, strict=True):
                    param.grad = grad


def _make(optimizer_class: Any, params: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _LocalOptimizer:
    return _LocalOptimizer(optimizer_class, params, args, kwargs)


def _step(local: Any, context_id: int) -> None:
    local.local_value().step(context_id)


class DistributedOptimizer:
    """Optimizers of one class on all workers that own parameters.

    Args:
        optimizer_class: a class that all workers import, such as `optim.SGD`.
        params_rref: RRefs to parameters.
        args, kwargs: of the optimizer.
    Raises: what making an optimizer raises on any worker.
    """

    def __init__(self, optimizer_class: Any, params_rref: list[Any], *args: Any, **kwargs: Any) -> None:
        from .. import rpc

        by_owner: dict[Any, list[Any]] = {}
        for rref in params_rref:
            by_owner.setdefault(rref.owner(), []).append(rref)
        self.is_functional_optim = False
        self.remote_optimizers = [
            rpc.remote(owner, _make, (optimizer_class, params, args, kwargs)) for owner, params in by_owner.items()
        ]
        for made in self.remote_optimizers:
            rpc.rpc_sync(made.owner(), _exists, (made,))

    def step(self, context_id: int) -> None:
        """Let all workers step on their gradients of the context; returns when all have.

        Raises: RuntimeError for an unknown context; what a step raises on any worker.
        """
        from .. import autograd, rpc

        autograd._all_contexts().get(context_id)
        wait_all([rpc.rpc_async(made.owner(), _step, (made, context_id)) for made in self.remote_optimizers])


def _exists(made: Any) -> None:
    made.local_value()
