"""Post-local SGD: after some iterations gradients are averaged within small groups only, and models now and then.

Source: Lin, Stich, Patel and Jaggi 2020, "Don't Use Large Mini-Batches, Use Local SGD".
"""

from __future__ import annotations

import logging
import os
from typing import Any

from ....futures import Future
from ... import distributed_c10d as c10d
from .default_hooks import allreduce_hook

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]

logger = logging.getLogger(__name__)


class PostLocalSGDState:
    """When gradients are averaged among whom.

    Args:
        process_group: the ranks before `start_localSGD_iter`; None for all.
        subgroup: the ranks from then on; None for those of this machine.
        start_localSGD_iter: how many iterations average over `process_group`.
        post_local_gradient_allreduce: False averages no gradients from then on.
    """

    __slots__ = ["iter", "post_local_gradient_allreduce", "process_group", "start_localSGD_iter", "subgroup"]

    def __init__(self, process_group: Any, subgroup: Any, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Count an iteration after its last bucket.

        Args:
            bucket: the `GradBucket` that was sent.
        """
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_localSGD_iter:
                logger.info("local SGD begins after %s iterations", self.iter)


def post_localSGD_hook(state: PostLocalSGDState, bucket: Any) -> Any:
    """The mean over all ranks at first, later over the subgroup; to be used with `PostLocalSGDOptimizer`.

    Args:
        state: a `PostLocalSGDState`.
        bucket: a `GradBucket`.
    """
    local = state.iter >= state.start_localSGD_iter
    state.maybe_increase_iter(bucket)
    if not local:
        return allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        future: Future[Any] = Future()
        future.set_result(bucket.buffer())
        return future
    if state.subgroup is None:
        state.subgroup, _ = c10d.new_subgroups(int(os.environ.get("LOCAL_WORLD_SIZE", c10d.get_world_size())))
    return allreduce_hook(state.subgroup, bucket)
