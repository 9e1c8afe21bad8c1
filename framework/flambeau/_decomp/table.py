"""Tables of decompositions, and how programs add to them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from .._ops import OpOverload, OpOverloadPacket
from .._tags import Tag

__all__ = [
    "core_aten_decompositions", "decomposition_table", "get_decompositions", "global_decomposition_table", "register_decomposition",
    "remove_decompositions",
]  # fmt: skip

_KINDS = ("post_autograd", "pre_autograd", "meta")

global_decomposition_table: dict[str, dict[Any, Callable[..., Any]]] = {kind: {} for kind in _KINDS}
decomposition_table = global_decomposition_table["post_autograd"]


def _overloads(op: Any) -> list[Any]:
    if isinstance(op, OpOverloadPacket):
        return [getattr(op, name) for name in op.overloads()]
    if isinstance(op, OpOverload):
        return [op]
    raise TypeError(f"decompositions are of operators, such as torch.ops.aten.addmm.default, or of packets of them, got {op!r}")


def register_decomposition(
    aten_op: Any, registry: dict[Any, Any] | None = None, *, type: str = "post_autograd", unsafe: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that makes a function the decomposition of `aten_op`.

    Args:
        aten_op: an operator, a packet, which stands for those of its overloads that write to nothing, or several of them.
        registry: a table of the program's own, in the place of PyTorch's.
        type: ``post_autograd``, ``pre_autograd`` or ``meta``: which of PyTorch's tables.
        unsafe: taken for PyTorch's sake.
    Raises: RuntimeError for an operator that has one already; AssertionError for another `type`.
    """
    if type not in _KINDS:
        raise AssertionError(f"type must be one of {set(_KINDS)}, got {type}")

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        table = global_decomposition_table[type] if registry is None else registry
        for op in aten_op if isinstance(aten_op, (list, tuple)) else [aten_op]:
            for overload in _overloads(op):
                if isinstance(op, OpOverloadPacket) and any(a.is_write for a in overload._schema.arguments):
                    continue
                if overload in table:
                    raise RuntimeError(f"duplicate registrations for {overload}")
                table[overload] = f
        return f

    return register


def _loaded(kind: str = "post_autograd") -> dict[Any, Callable[..., Any]]:
    importlib.import_module("flambeau._decomp.decompositions")
    return global_decomposition_table[kind]


def get_decompositions(aten_ops: Iterable[Any], type: str = "post_autograd") -> dict[Any, Callable[..., Any]]:
    """The decompositions that there are of `aten_ops`, operators or packets; none for those that have none.

    >>> from flambeau._decomp import get_decompositions
    >>> sorted(str(op) for op in get_decompositions([fb.ops.aten.addmm, fb.ops.aten.sin]))
    ['aten.addmm.default']
    """
    if type not in _KINDS:
        raise AssertionError(f"type must be one of {set(_KINDS)}, got {type}")
    table = _loaded(type)
    return {overload: table[overload] for op in aten_ops for overload in _overloads(op) if overload in table}


def core_aten_decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions, without those of operators that belong to PyTorch's core set."""
    return {op: f for op, f in _loaded().items() if Tag.core not in op.tags}


def remove_decompositions(decompositions: dict[Any, Callable[..., Any]], aten_ops: Iterable[Any]) -> None:
    """Take the operators or packets `aten_ops` out of the table `decompositions`."""
    for op in aten_ops:
        for overload in _overloads(op):
            decompositions.pop(overload, None)
