"""Tables of decompositions, and how programs add to them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from .. import _aten, _ops
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


def decomposes(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for decompositions of `ops.aten`: of the operators `names`, each ``name.overload`` or ``name`` for ``name.default``."""
    ops = []
    for name in names:
        packet, _, overload = name.partition(".")
        ops.append(getattr(getattr(_ops.ops.aten, packet), overload or "default"))
    register = register_decomposition(ops, decomposition_table)

    def write(f: Callable[..., Any]) -> Callable[..., Any]:
        _WRITTEN.update((name.partition(".")[0], f) for name in names)
        return register(f)

    return write


_WRITTEN: dict[str, Callable[..., Any]] = {}


def written(name: str) -> Callable[..., Any] | None:
    """What is written here for the operator `name` of `ops.aten`, whatever programs have put into the tables; or None."""
    return _WRITTEN.get(name)


def load() -> None:
    """Fill the table: what is written for operators, and what declarations say of those that PyTorch has decompositions of."""
    for name in ("decompositions", "gradients", "layers", "making"):
        importlib.import_module(f"flambeau._decomp.{name}")
    for overload, f in _derived(by_default=False).items():
        decomposition_table.setdefault(overload, f)


@functools.cache
def _derived(by_default: bool) -> dict[Any, Callable[..., Any]]:
    """What declarations say that operators are made of: of those of PyTorch's table."""
    from .derived import of_operator

    found = {}
    for name in sorted(_aten.decomposed_by_pytorch(by_default)):
        packet, _, ending = name.partition(".")
        if ending in _aten.index().get(packet, ()):
            overload = getattr(getattr(_ops.ops.aten, packet), ending)
            f = of_operator(overload)
            if f is not None:
                found[overload] = f
    return found


def get_decompositions(aten_ops: Iterable[Any], type: str = "post_autograd") -> dict[Any, Callable[..., Any]]:
    """The decompositions that there are of `aten_ops`, operators or packets; none for those that have none.

    >>> from flambeau._decomp import get_decompositions
    >>> sorted(str(op) for op in get_decompositions([fb.ops.aten.addmm.default, fb.ops.aten.unbind]))
    ['aten.addmm.default', 'aten.unbind.int']
    """
    if type not in _KINDS:
        raise AssertionError(f"type must be one of {set(_KINDS)}, got {type}")
    table = global_decomposition_table[type]
    return {overload: table[overload] for op in aten_ops for overload in _overloads(op) if overload in table}


def core_aten_decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions of what does not belong to PyTorch's core set, and of those of it that PyTorch takes apart all the same."""
    by_default, derived = _aten.decomposed_by_pytorch(True), _derived(by_default=True)
    always = _ops.ops.aten.dropout.default                # which programs never keep, whatever table they are given
    table = {
        op: f for op, f in decomposition_table.items() if op is not always
        and (_name(op) in by_default or Tag.core not in op.tags and f is not _derived(by_default=False).get(op))
    }  # fmt: skip
    return derived | table


def _name(op: Any) -> str:
    return f"{op._opname}.{op._overloadname}" if op.namespace == "aten" else ""


def remove_decompositions(decompositions: dict[Any, Callable[..., Any]], aten_ops: Iterable[Any]) -> None:
    """Take the operators or packets `aten_ops` out of the table `decompositions`."""
    for op in aten_ops:
        for overload in _overloads(op):
            decompositions.pop(overload, None)
