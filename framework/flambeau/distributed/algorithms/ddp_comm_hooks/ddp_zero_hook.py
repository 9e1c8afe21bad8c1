"""Hooks that step a ZeroRedundancyOptimizer in the backward of DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["hook_with_zero_step", "hook_with_zero_step_interleaved"]


class _Steps:
    """The hook around `hook` that steps `zero`.

    The calls that exchange parameters are made in the order of buckets, the same on all ranks.
    """

    def __init__(self, hook: Callable[[Any, Any], Any], ddp: Any, zero: Any, shard_buckets: bool, interleaved: bool) -> None:
        if not zero._overlap_with_ddp:
            raise ValueError("ZeroRedundancyOptimizer must be constructed with `overlap_with_ddp=True` to use this hook properly")
        self.__name__ = f"zero_step_after_{getattr(hook, '__name__', 'hook')}"
        self._hook, self._zero, self._shard, self._interleaved = hook, zero, shard_buckets, interleaved
        # PyTorch's buckets are final after so many iterations, and programs count on no step before.
        self._idle = 3 if ddp.static_graph else 2
        self._layout: list[list[Any]] = []
        self._waiting: list[tuple[Any, Any]] = []
        self._works: list[Any] = []

    def __call__(self, state: Any, bucket: Any) -> Any:
        future = self._hook(state, bucket)
        if self._idle:
            self._layout.append(bucket.parameters())
            if bucket.is_last():
                self._idle -= 1
                if not self._idle:
                    self._zero._begin_overlap(self._layout, self._shard)
                self._layout = []
            return future
        self._waiting.append((bucket, future))
        if self._interleaved or bucket.is_last():
            # While the newest bucket is exchanged, the parameters of those before it are stepped.
            self._step(0 if bucket.is_last() else 1)
        if bucket.is_last():
            for work in self._works:
                work.wait()
            self._works = []
        return future

    def _step(self, leave: int) -> None:
        while len(self._waiting) > leave:
            bucket, future = self._waiting.pop(0)
            found = future.wait()
            flat = found[0] if isinstance(found, list | tuple) else found
            params = bucket.parameters()
            parts = flat.detach().split([param.numel() for param in params])
            grads = [part.view(param.shape).to(param.dtype) for param, part in zip(params, parts, strict=True)]
            self._works += self._zero._step_bucket(params, grads)


def hook_with_zero_step(hook: Callable[[Any, Any], Any], ddp: Any, zero: Any, shard_buckets: bool = False) -> Callable[[Any, Any], Any]:
    """`hook` followed, after the last bucket, by the step of `zero`.

    Args:
        hook: a communication hook.
        ddp: the DistributedDataParallel module.
        zero: a `ZeroRedundancyOptimizer` with ``overlap_with_ddp=True``.
        shard_buckets: divide the parameters of each bucket among ranks, rather than buckets.
    Returns: the hook to register.
    Raises: ValueError for an optimizer without overlap.
    """
    return _Steps(hook, ddp, zero, shard_buckets, False)


def hook_with_zero_step_interleaved(
    hook: Callable[[Any, Any], Any], ddp: Any, zero: Any, shard_buckets: bool = False
) -> Callable[[Any, Any], Any]:
    """`hook` with the step of a bucket's parameters while the next bucket is exchanged; as `hook_with_zero_step`.

    Args:
        hook, ddp, zero, shard_buckets: as there.
    """
    return _Steps(hook, ddp, zero, shard_buckets, True)
