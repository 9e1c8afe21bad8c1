"""Rules of a program's own for how operators run on pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ops._spec.pieces import Way
from ....utils._pytree import tree_map
from .. import _rules
from .._dtensor import DTensor

__all__ = ["register_sharding"]


def register_sharding(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare how operators may run on pieces, along one dimension of the mesh.

    Args:
        op: an overload such as ``torch.ops.aten.softmax.int``, or a list of them.
    Returns: a decorator of ``rule(*args, **kwargs)``, which gets a DTensorSpec for each spread tensor and the other arguments as they
        are, and returns pairs of placements: of the results, and of the arguments, None for those that are no tensors.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        def ways(args: Any, kwargs: Any) -> list[Way]:
            args, kwargs = tree_map(lambda x: x._spec if isinstance(x, DTensor) else x, (args, kwargs))
            return [
                Way(tuple([_rules.place_of(p) for p in operands if p is not None]), tuple([_rules.place_of(p) for p in results]))
                for results, operands in rule(*args, **kwargs)
            ]

        for one in op if isinstance(op, (list, tuple)) else [op]:
            _rules.REGISTERED[getattr(one, "_opname", None) or str(one).split(".")[1]] = ways
        return rule

    return register
