"""Rules of a program's own for how operators run on pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
        def ways(asked: Any) -> list[Any]:
            args = [x._spec if isinstance(x, DTensor) else x for x in asked.args]
            kwargs = {name: x._spec if isinstance(x, DTensor) else x for name, x in asked.kwargs.items()}
            found = []
            for results, operands in rule(*args, **kwargs):
                if len({str(r) for r in results}) != 1:
                    raise NotImplementedError(f"register_sharding: results of {asked.name} with different placements are not built yet")
                found.append(_rules.Way(tuple(p for p in operands if p is not None), results[0]))
            return found

        for one in op if isinstance(op, (list, tuple)) else [op]:
            _rules.REGISTERED[getattr(one, "_opname", None) or str(one).split(".")[1]] = ways
        return rule

    return register
