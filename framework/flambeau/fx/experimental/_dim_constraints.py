"""How sizes of inputs become symbols, and what is claimed of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...utils._sympy.value_ranges import ValueRanges, int_oo
from ._sources import Source

__all__ = [
    "Constraint", "ConstraintViolationError", "DimConstraint", "DimDynamic", "EqualityConstraint", "RelaxedUnspecConstraint",
    "StatefulSymbolicContext", "StatelessSymbolicContext", "StrictMinMaxConstraint", "SubclassSymbolicContext", "SymbolicContext",
]  # fmt: skip


class ConstraintViolationError(RuntimeError):
    """A recording asks more of its inputs than was claimed of them."""


class DimDynamic(Enum):
    """How a size becomes a symbol.

    DYNAMIC gives it a symbol of its own, DUCK that of other sizes which are equal to it, STATIC none; SIZE_LIKE_UNBACKED one without a
    hint. INFER_STRIDE, of strides, follows from sizes. OBLIVIOUS_SIZE is treated as DYNAMIC.
    """

    DYNAMIC = 0
    DUCK = 1
    STATIC = 2
    SIZE_LIKE_UNBACKED = 3
    INFER_STRIDE = 4
    OBLIVIOUS_SIZE = 5


@dataclass(frozen=True)
class Constraint:
    """A claim; `warn_only` says that breaking it is no error."""

    warn_only: bool


@dataclass(frozen=True)
class StrictMinMaxConstraint(Constraint):
    """The size lies in `vr`, and a recording must be right for all of that."""

    vr: ValueRanges

    def render(self, source: Source) -> str:
        """The claim as an inequality of `source`."""
        low = 2 if self.vr.lower == -int_oo else self.vr.lower
        return f"{low} <= {source.name()}" + ("" if self.vr.upper == int_oo else f" <= {self.vr.upper}")


@dataclass(frozen=True)
class RelaxedUnspecConstraint(Constraint):
    """The size is not a number to the recording; which sizes are right follows from its guards."""

    def render(self, source: Source) -> str:
        """The claim in words."""
        return f"RelaxedUnspecConstraint({source.name()})"


DimConstraint = StrictMinMaxConstraint | RelaxedUnspecConstraint | None


@dataclass(frozen=True)
class EqualityConstraint(Constraint):
    """Sizes that are equal, and sizes that follow from others.

    Args:
        source_pairs: pairs of sources of equal sizes.
        derived_equalities: triples of a source, the source or symbol it follows from, and the function.
        phantom_symbols: symbols that no input has.
        relaxed_sources: sources of which nothing is claimed.
    """

    source_pairs: list[tuple[Source, Source]]
    derived_equalities: list[tuple[Source, Any, Any]]
    phantom_symbols: list[Any]
    relaxed_sources: set[Source] = field(default_factory=set)

    def _root(self, source: Source) -> frozenset[Source]:
        group = {source}
        while grown := {x for pair in self.source_pairs if group & set(pair) for x in pair} - group:
            group |= grown
        return frozenset(group)

    def is_equal(self, source1: Source, source2: Source) -> bool:
        """Whether two sizes are claimed to be equal, directly or by way of others."""
        return source2 in self._root(source1)

    def is_derived(self, src: Source, symbol_src: Source, fn: Any) -> bool:
        """Whether the size of `src` is claimed to be what `fn` makes of that of `symbol_src`."""
        return any(src == a and symbol_src == b and fn(7) == f(7) and fn(11) == f(11) for a, b, f in self.derived_equalities)


@dataclass(frozen=True)
class SymbolicContext:
    """How the sizes of a tensor become symbols."""


@dataclass(frozen=True)
class StatelessSymbolicContext(SymbolicContext):
    """A `DimDynamic` for each dimension, and what is claimed of it.

    Args:
        dynamic_sizes: for each dimension.
        dynamic_strides: for each dimension; strides follow from sizes by default.
        constraint_sizes, constraint_strides: what is claimed, None for nothing.
        view_base_context: that of the tensor it is a view of.
        specialize_on: conditions under which a graph of its own is wanted, for each dimension.
    """

    dynamic_sizes: list[DimDynamic]
    dynamic_strides: Any = None
    constraint_sizes: Any = None
    constraint_strides: Any = None
    view_base_context: SymbolicContext | None = None
    specialize_on: Any = None

    def __post_init__(self) -> None:
        count = len(self.dynamic_sizes)
        for name, usual in (
            ("dynamic_strides", DimDynamic.INFER_STRIDE), ("constraint_sizes", None), ("constraint_strides", None),
            ("specialize_on", ()),
        ):  # fmt: skip
            if getattr(self, name) is None:
                object.__setattr__(self, name, [usual] * count)
        if any(s in (DimDynamic.STATIC, DimDynamic.OBLIVIOUS_SIZE) for s in self.dynamic_strides):
            raise AssertionError("StatelessSymbolicContext: dynamic_strides are symbols or inferred, none of them STATIC or OBLIVIOUS_SIZE")


@dataclass(frozen=True)
class StatefulSymbolicContext(StatelessSymbolicContext):
    """As `StatelessSymbolicContext`, with the symbols that earlier recordings gave to each source.

    Args:
        tensor_source: which tensor it is for.
        shape_env_to_source_to_symbol_cache: by id of the ShapeEnv, the symbol of each name of a source.
    Raises: AssertionError without a `tensor_source`.
    """

    tensor_source: Any = None
    shape_env_to_source_to_symbol_cache: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tensor_source is None:
            raise AssertionError("StatefulSymbolicContext: tensor_source says which tensor it is for")


@dataclass(frozen=True)
class SubclassSymbolicContext(StatefulSymbolicContext):
    """As `StatefulSymbolicContext`, with one for each tensor inside a wrapper subclass.

    Args:
        tensor_source, shape_env_to_source_to_symbol_cache: as there.
        inner_contexts: by the names of attributes that hold the tensors inside.
    """

    inner_contexts: dict[str, SymbolicContext] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner_contexts is None:
            object.__setattr__(self, "inner_contexts", {})
