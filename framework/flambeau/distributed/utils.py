"""Private functions of PyTorch for tensors of several processes that programs use."""

from __future__ import annotations

import traceback
from collections.abc import Container
from typing import Any

import flambeau as fb

from ..utils import _pytree as pytree
from . import distributed_c10d as dist

__all__: list[str] = []


def _p_assert(cond: Any, s: str, raise_assertion_error: bool = True) -> None:
    """Print `s` and the stack if `cond` is false, for errors in backward are easily lost.

    Raises: AssertionError unless that is unwanted.
    """
    if not cond:
        print(s)
        traceback.print_stack()
        if raise_assertion_error:
            raise AssertionError(s)


def _cast_forward_inputs(dtype: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """`args` and `kwargs` with floating tensors in them as `dtype`; None leaves them."""
    if dtype is None:
        return args, kwargs

    def cast(x: Any) -> Any:
        return x.to(dtype) if x.is_floating_point() else x

    return pytree.tree_map_only(fb.Tensor, cast, (args, kwargs))


def _sync_params_and_buffers(process_group: Any, module_states: list[Any], broadcast_bucket_size: int, src: int) -> None:
    """Give every process the values that the tensors have in that of rank `src` of the group.

    Args:
        broadcast_bucket_size: bytes of a message in PyTorch; here all tensors are one.
    """
    if module_states:
        process_group.broadcast([t.detach() for t in module_states], src, False)


def _sync_module_states(
    module: Any,
    process_group: Any,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Container[str],
    broadcast_buffers: bool = True,
) -> None:
    """`_sync_params_and_buffers` of the parameters and buffers of `module`, but for those of the names to be ignored."""
    named = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    states = [value for name, value in named if name not in params_and_buffers_to_ignore]
    _sync_params_and_buffers(process_group, states, broadcast_bucket_size, src)


def _verify_param_shape_across_processes(process_group: Any, tensors: list[Any], logger: Any = None) -> None:
    """Compare the shapes of `tensors` in all processes. Raises: RuntimeError, in all of them, with two that differ."""
    here = [tuple(t.shape) for t in tensors]
    found: list[Any] = [None] * process_group.size()
    dist.all_gather_object(found, here, process_group)
    for rank, there in enumerate(found):
        if there != found[0]:
            pairs = zip(there, found[0], strict=False)
            differ = next((f"parameter {i} is {a} there and {b} in rank 0" for i, (a, b) in enumerate(pairs) if a != b), None)
            raise RuntimeError(
                f"parameters of rank {rank} have other shapes than those of rank 0: "
                + (differ or f"{len(there)} parameters there and {len(found[0])} in rank 0")
            )
