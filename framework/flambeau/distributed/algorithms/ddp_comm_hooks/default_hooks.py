"""Hooks that take the mean of gradients, in their own dtype or in half of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb

from ... import distributed_c10d as c10d

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper"]


def _mean(process_group: Any, tensor: Any) -> Any:
    group = c10d._default() if process_group is None else process_group
    with fb.no_grad():
        tensor.div_(group.size())
    return group.all_reduce([tensor], c10d.ReduceOp.SUM, True).get_future().then(lambda future: future.value()[0])


def _compressed(process_group: Any, bucket: Any, dtype: Any) -> Any:
    buffer = bucket.buffer()

    def back(future: Any) -> Any:
        with fb.no_grad():
            return buffer.copy_(future.value())

    return _mean(process_group, buffer.to(dtype)).then(back)


def allreduce_hook(process_group: Any, bucket: Any) -> Any:
    """The mean over all ranks.

    Args:
        process_group: the state of the hook; None for all ranks.
        bucket: a `GradBucket`.
    """
    return _mean(process_group, bucket.buffer())


def fp16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """The mean, sent as float16; as for `allreduce_hook`."""
    return _compressed(process_group, bucket, fb.float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """The mean, sent as bfloat16; as for `allreduce_hook`."""
    return _compressed(process_group, bucket, fb.bfloat16)


def _wrapper(hook: Callable[[Any, Any], Any], dtype: Any) -> Callable[[Any, Any], Any]:
    def compressed(state: Any, bucket: Any) -> Any:
        full = bucket.buffer()
        bucket.set_buffer(full.to(dtype))

        def back(future: Any) -> Any:
            found = future.value()
            with fb.no_grad():
                return full.copy_(found[0] if isinstance(found, list) else found)

        return hook(state, bucket).then(back)

    return compressed


def fp16_compress_wrapper(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`hook`, given float16 gradients."""
    return _wrapper(hook, fb.float16)


def bf16_compress_wrapper(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`hook`, given bfloat16 gradients."""
    return _wrapper(hook, fb.bfloat16)
