"""The mean of parameters over ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import flambeau as fb

from ... import distributed_c10d as c10d

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterable[Any], process_group: Any) -> None:
    """Replace parameters by their means over the ranks.

    Args:
        params: parameters, in the same order on all ranks.
        process_group: the ranks; None for all. A rank outside of it does nothing.
    """
    group = c10d._default() if process_group is None else process_group
    if c10d.get_rank(group) < 0:
        return
    by_dtype: dict[Any, list[Any]] = {}
    for param in params:
        by_dtype.setdefault(param.dtype, []).append(param)
    with fb.no_grad():
        for same in by_dtype.values():
            mean = fb.cat([param.detach().reshape(-1) for param in same]).div_(group.size())
            group.all_reduce([mean], c10d.ReduceOp.SUM, False)
            for param, part in zip(same, mean.split([param.numel() for param in same]), strict=True):
                param.copy_(part.view(param.shape))


def get_params_to_average(params: Iterable[Any]) -> list[Any]:
    """The parameters among `params`, or in its groups, that have a gradient.

    Raises: NotImplementedError for other items.
    """
    found = []
    for item in params:
        if isinstance(item, fb.Tensor):
            members = [item]
        elif isinstance(item, dict):
            members = item["params"]
        else:
            raise NotImplementedError(f"get_params_to_average: params must hold Tensors or dicts of parameters, got {type(item).__name__}")
        found += [param for param in members if param.grad is not None]
    return found


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any) -> None:
    """Average the parameters that have a gradient.

    Args:
        params: parameters, or groups of an optimizer.
        process_group: as for `average_parameters`.
    """
    average_parameters(get_params_to_average(params), process_group)
