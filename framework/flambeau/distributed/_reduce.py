"""What a reduction does with the arrays of all ranks: always in the order of ranks, so that every rank gets the same bits."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

__all__ = ["ReduceOp", "RedOpType", "check_reducible", "reduce_arrays", "reduce_into"]


class RedOpType(enum.IntEnum):
    """The kinds of reduction."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8
    UNUSED = 9

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"


class ReduceOp:
    """How a collective combines the elements of all ranks: `SUM`, `AVG`, `PRODUCT`, `MIN`, `MAX`, `BAND`, `BOR`, `BXOR`, `PREMUL_SUM`.

    `AVG` divides the sum by the number of ranks, toward zero for integers. `PREMUL_SUM` multiplies each rank's elements by
    a factor before adding; `_make_nccl_premul_sum` makes one.
    """

    RedOpType: ClassVar[type[RedOpType]] = RedOpType
    SUM: ClassVar[RedOpType] = RedOpType.SUM
    AVG: ClassVar[RedOpType] = RedOpType.AVG
    PRODUCT: ClassVar[RedOpType] = RedOpType.PRODUCT
    MIN: ClassVar[RedOpType] = RedOpType.MIN
    MAX: ClassVar[RedOpType] = RedOpType.MAX
    BAND: ClassVar[RedOpType] = RedOpType.BAND
    BOR: ClassVar[RedOpType] = RedOpType.BOR
    BXOR: ClassVar[RedOpType] = RedOpType.BXOR
    PREMUL_SUM: ClassVar[RedOpType] = RedOpType.PREMUL_SUM
    UNUSED: ClassVar[RedOpType] = RedOpType.UNUSED

    def __init__(self, op: Any, factor: Any = None) -> None:
        self.op = _kind(op)
        self.factor = factor

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ReduceOp):
            return (self.op, self.factor) == (other.op, other.factor)
        return self.op == other

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        return repr(self.op)


def _kind(op: Any) -> RedOpType:
    if isinstance(op, ReduceOp):
        return op.op
    if isinstance(op, RedOpType):
        return op
    raise TypeError(f"distributed: op must be a ReduceOp, got {type(op).__name__} {op!r}")


def premul_sum(factor: Any) -> ReduceOp:
    """A sum of elements times `factor`, a number or a tensor of one element."""
    return ReduceOp(RedOpType.PREMUL_SUM, float(factor))


_COMBINE: dict[RedOpType, Callable[..., Any]] = {
    RedOpType.SUM: np.add,
    RedOpType.AVG: np.add,
    RedOpType.PREMUL_SUM: np.add,
    RedOpType.PRODUCT: np.multiply,
    RedOpType.MIN: np.minimum,
    RedOpType.MAX: np.maximum,
    RedOpType.BAND: np.bitwise_and,
    RedOpType.BOR: np.bitwise_or,
    RedOpType.BXOR: np.bitwise_xor,
}
_BITWISE = (RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR)
_ORDERED = (RedOpType.MIN, RedOpType.MAX, RedOpType.PRODUCT, *_BITWISE)


def check_reducible(name: str, op: Any, tensor: Any) -> tuple[RedOpType, float | None]:
    """The kind and factor of `op`, which elements of `tensor` must allow.

    Raises: ValueError for complex elements, RuntimeError for floating or Boolean ones, where `op` has no meaning for them.
    """
    kind = _kind(op)
    factor = op.factor if isinstance(op, ReduceOp) else None
    if kind is RedOpType.UNUSED or (kind is RedOpType.PREMUL_SUM and factor is None):
        raise ValueError(
            f"{name}: {kind} cannot be used as it is"
            + ("; make one with _make_nccl_premul_sum(factor)" * (kind is not RedOpType.UNUSED))
        )
    if tensor.is_complex() and kind in _ORDERED:
        raise ValueError(f"{name} does not support {kind} on complex tensors")
    if tensor.is_floating_point() and kind in _BITWISE:
        raise RuntimeError(f"Cannot use ReduceOp.{kind.name} with non-integral dtype ({name} of {tensor.dtype})")
    if str(tensor.dtype).endswith("bool") and kind in (RedOpType.AVG, RedOpType.PREMUL_SUM):
        raise RuntimeError(f"Cannot use ReduceOp.{kind.name} with Boolean ({name} of {tensor.dtype})")
    return kind, factor


def _wide(kind: np.dtype) -> np.dtype:
    """The dtype to combine in: halves and smaller are added in float32 and rounded once."""
    if kind.kind == "f" and kind.itemsize == 2:
        return np.dtype(np.float32)
    if kind.kind in "biufc":
        return kind
    return np.dtype(np.complex64 if "complex" in kind.name else np.float32)


def reduce_arrays(op: tuple[RedOpType, float | None], arrays: Sequence[np.ndarray]) -> np.ndarray:
    """A new array: `arrays`, one of each rank, combined from rank 0 on."""
    kind, factor = op
    given = arrays[0].dtype
    wide = _wide(given)
    combine = _COMBINE[kind]
    with np.errstate(all="ignore"):
        total = _term(arrays[0], wide, factor)
        for array in arrays[1:]:
            combine(total, _term(array, wide, factor, fresh=False), out=total)
        if kind is RedOpType.AVG:
            total = _divided(total, len(arrays))
        return total.astype(given, copy=False)


def reduce_into(op: tuple[RedOpType, float | None], arrays: Sequence[np.ndarray], out: np.ndarray) -> None:
    """`reduce_arrays` into `out`, which shares no memory with `arrays`; without memory of its own where it can."""
    kind, factor = op
    if factor is not None or kind is RedOpType.AVG or _wide(out.dtype) != out.dtype or len(arrays) < 2:
        out[...] = reduce_arrays(op, arrays)
        return
    combine = _COMBINE[kind]
    with np.errstate(all="ignore"):
        combine(arrays[0], arrays[1], out=out)
        for array in arrays[2:]:
            combine(out, array, out=out)


def _term(array: np.ndarray, wide: np.dtype, factor: float | None, fresh: bool = True) -> np.ndarray:
    if factor is not None:
        return (array.astype(wide, copy=False) * factor).astype(wide, copy=False)
    return array.astype(wide, copy=fresh)


def _divided(total: np.ndarray, count: int) -> np.ndarray:
    if total.dtype.kind not in "iu":
        return total / total.dtype.type(count)
    quotient = total // count
    return quotient + ((total < 0) & (quotient * count != total)).astype(total.dtype)
