"""Dtypes of the array API standard: promotion by dtypes alone, casts and facts."""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

import flambeau as fb
from flambeau import Tensor, dtype

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

SIGNED = (fb.int8, fb.int16, fb.int32, fb.int64)
UNSIGNED = (fb.uint8, fb.uint16, fb.uint32, fb.uint64)
_KINDS: dict[str, tuple[dtype, ...]] = {
    "bool": (fb.bool,),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": SIGNED + UNSIGNED,
    "real floating": (fb.float32, fb.float64, fb.float16, fb.bfloat16),
    "complex floating": (fb.complex64, fb.complex128, fb.complex32),
}
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


class FloatInfo(NamedTuple):
    """What `finfo` tells: numbers as Python floats, `bits` of one real number."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtype


class IntegerInfo(NamedTuple):
    """What `iinfo` tells."""

    bits: int
    max: int
    min: int
    dtype: dtype


def promoted(name: str, first: dtype, second: dtype) -> dtype:
    """The dtype that holds both. Raises: TypeError for uint64 and a signed integer, which no integer holds."""
    if first is second:
        return first
    integers = SIGNED + UNSIGNED
    if first in integers and second in integers:
        if (first in SIGNED) == (second in SIGNED):
            return first if first.itemsize > second.itemsize else second
        signed, unsigned = (first, second) if first in SIGNED else (second, first)
        size = builtins.max(signed.itemsize, 2 * unsigned.itemsize)
        for found in SIGNED:
            if found.itemsize == size:
                return found
        raise TypeError(f"{name}: no integer dtype holds both {first} and {second}; convert one with astype")
    if fb.bool in (first, second):
        return second if first is fb.bool else first
    # Beside floating numbers all integers count the same; PyTorch does not promote the wider unsigned ones.
    first, second = (fb.int64 if one in UNSIGNED else one for one in (first, second))
    return fb.promote_types(first, second)


def of_scalar(value: Any, beside: dtype) -> dtype:
    """The dtype that Python's number `value` has beside a tensor of dtype `beside`: that one, where its kind holds the number."""
    if isinstance(value, builtins.bool):
        return beside
    if isinstance(value, int):
        return fb.int64 if beside is fb.bool else beside
    if isinstance(value, float):
        return beside if beside.is_floating_point or beside.is_complex else fb.get_default_dtype()
    if beside.is_complex:
        return beside
    return promoted("scalar", beside if beside.is_floating_point else fb.get_default_dtype(), fb.complex32)


def is_scalar(value: Any) -> builtins.bool:
    """Whether `value` is one of Python's numbers."""
    return isinstance(value, (builtins.bool, int, float, complex))


def result_type(*arrays_and_dtypes: Any) -> dtype:
    """The dtype that arithmetic of these has; Python's numbers take the dtype of what they stand beside.

    Raises: ValueError without a tensor or dtype; TypeError for what is none, and where no dtype holds both.
    """
    found: dtype | None = None
    for one in arrays_and_dtypes:
        if is_scalar(one):
            continue
        own = one if isinstance(one, dtype) else one.dtype if isinstance(one, Tensor) else None
        if own is None:
            raise TypeError(f"result_type: takes tensors, dtypes and numbers, got a {type(one).__name__}")
        found = own if found is None else promoted("result_type", found, own)
    if found is None:
        raise ValueError("result_type: needs a tensor or a dtype, Python's numbers alone have none")
    for one in arrays_and_dtypes:
        if is_scalar(one):
            found = promoted("result_type", found, of_scalar(one, found))
    return found


def together(name: str, *values: Any) -> tuple[Tensor, ...]:
    """`values`, of which one is a tensor, as tensors of the dtype that holds all."""
    near = next((value for value in values if isinstance(value, Tensor)), None)
    if near is None:
        raise TypeError(f"{name}: one argument must be a tensor, got {', '.join(type(v).__name__ for v in values)}")
    for value in values:
        if not isinstance(value, Tensor) and not is_scalar(value):
            raise TypeError(f"{name}: takes tensors and Python's numbers, got a {type(value).__name__}")
    wanted = result_type(*values)
    return tuple(v.to(wanted) if isinstance(v, Tensor) else fb.tensor(v, dtype=wanted, device=near.device) for v in values)


def astype(x: Tensor, dtype: dtype, /, *, copy: builtins.bool = True, device: Any = None) -> Tensor:
    """`x` converted to `dtype`; `x` itself only where nothing changes and `copy` is False.

    Raises: TypeError for complex numbers to be made real.
    """
    if x.dtype.is_complex and not dtype.is_complex:
        raise TypeError(f"astype: {x.dtype} does not become {dtype}; take real(x) or abs(x) first")
    return x.to(device=device, dtype=dtype, copy=copy)


def can_cast(from_: Any, to: dtype, /) -> builtins.bool:
    """Whether the standard's promotion takes the dtype `from_`, or that of a tensor, to `to`."""
    source = from_.dtype if isinstance(from_, Tensor) else from_
    kinds = [{"complex floating": "real floating"}.get(k, k) for d in (source, to) for k in _kinds_of(d)[:1]]
    if kinds[0] != kinds[1] and not {*kinds} <= {"signed integer", "unsigned integer"}:
        return False
    try:
        return promoted("can_cast", source, to) is to
    except TypeError:
        return False


def _kinds_of(one: dtype) -> list[str]:
    return [name for name, dtypes in _KINDS.items() if one in dtypes]


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating dtype, or of the real and imaginary parts of a complex one, given it or a tensor."""
    of = type.dtype if isinstance(type, Tensor) else type
    real = {fb.complex64: fb.float32, fb.complex128: fb.float64, fb.complex32: fb.float16}.get(of, of)
    info = fb.finfo(real)
    return FloatInfo(info.bits, info.eps, info.max, info.min, info.smallest_normal, real)


def iinfo(type: Any, /) -> IntegerInfo:
    """Limits of an integer dtype, given it or a tensor."""
    of = type.dtype if isinstance(type, Tensor) else type
    info = fb.iinfo(of)
    return IntegerInfo(info.bits, info.max, info.min, of)


def isdtype(dtype: dtype, kind: Any) -> builtins.bool:
    """Whether `dtype` is the dtype `kind`, of the kind of that name, or of one in a tuple of such.

    Args:
        kind: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric", or a dtype.
    Raises: ValueError for another name.
    """
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, one) for one in kind)
    if not isinstance(kind, str):
        return dtype == kind
    if kind not in _KINDS:
        raise ValueError(f"isdtype: unknown kind {kind!r}, known are {', '.join(map(repr, _KINDS))}")
    return dtype in _KINDS[kind]
