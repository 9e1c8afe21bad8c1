"""Types of values of scripts and operators by the names of PyTorch's classes: ``IntType.get()``, ``ListType(IntType.get())``.

What these make is the `Type` that schemas and graphs have, and ``isinstance(t, ListType)`` asks which kind that is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._schema import Type
from . import _types

__all__ = [
    "AnyType", "AwaitType", "BoolType", "ComplexType", "DeviceObjType", "DictType", "FloatType", "FutureType", "InferredType", "IntType",
    "ListType", "NoneType", "NumberType", "OptionalType", "PyObjectType", "RRefType", "StreamObjType", "StringType", "SymBoolType",
    "SymIntType", "TensorType", "TupleType", "UnionType", "unify_type_list",
]  # fmt: skip


class _OfKind(type):
    """The metaclass of names for types of some kinds."""

    kinds: tuple[str, ...]

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Type) and instance.kind in cls.kinds


class _Plain(_OfKind):
    """That of types without others in them, which are not made but got."""

    made: Type

    def __call__(cls, *args: Any) -> Any:
        raise TypeError(f"{cls.__name__}: there is one; take {cls.__name__}.get()")

    def get(cls) -> Type:
        """The type."""
        return cls.made


def _plain(name: str, made: Type, *others: str) -> Any:
    doc = f"The type ``{made}``; `get` gives it."
    return _Plain(name, (), {"kinds": (made.kind, *others), "made": made, "__doc__": doc, "__module__": __name__})


AnyType = _plain("AnyType", _types.ANY)
BoolType = _plain("BoolType", _types.BOOL)
ComplexType = _plain("ComplexType", _types.COMPLEX)
DeviceObjType = _plain("DeviceObjType", _types.DEVICE)
FloatType = _plain("FloatType", _types.FLOAT)
IntType = _plain("IntType", _types.INT, "ScalarType", "Layout", "MemoryFormat", "DeviceIndex", "QScheme")
NoneType = _plain("NoneType", _types.NONE)
NumberType = _plain("NumberType", _types.NUMBER, "Scalar")
PyObjectType = _plain("PyObjectType", Type("PyObject"))
StreamObjType = _plain("StreamObjType", _types.STREAM)
StringType = _plain("StringType", _types.STR)
SymBoolType = _plain("SymBoolType", Type("SymBool"))
SymIntType = _plain("SymIntType", Type("SymInt"))
TensorType = _plain("TensorType", _types.TENSOR)


class _Compound(_OfKind):
    """That of types of one other."""

    def __call__(cls, inner: Type) -> Any:
        return Type(cls.kinds[0], (inner,))


class ListType(metaclass=_Compound):
    """A list of values of one type."""

    kinds = ("List",)

    @staticmethod
    def ofInts() -> Type:
        """A list of ints."""
        return _types.list_of(_types.INT)

    @staticmethod
    def ofTensors() -> Type:
        """A list of tensors."""
        return _types.list_of(_types.TENSOR)

    @staticmethod
    def ofFloats() -> Type:
        """A list of floats."""
        return _types.list_of(_types.FLOAT)

    @staticmethod
    def ofComplexDoubles() -> Type:
        """A list of complex numbers."""
        return _types.list_of(_types.COMPLEX)

    @staticmethod
    def ofBools() -> Type:
        """A list of bools."""
        return _types.list_of(_types.BOOL)

    @staticmethod
    def ofStrings() -> Type:
        """A list of texts."""
        return _types.list_of(_types.STR)


class OptionalType(metaclass=_Compound):
    """A value of one type, or None."""

    kinds = ("Optional",)

    @staticmethod
    def ofTensor() -> Type:
        """A tensor or None."""
        return _types.optional(_types.TENSOR)


class FutureType(metaclass=_Compound):
    """What `jit.fork` gives for a value of one type."""

    kinds = ("Future",)


class RRefType(metaclass=_Compound):
    """A reference to a value of one type that another process has."""

    kinds = ("RRef",)


class AwaitType(metaclass=_Compound):
    """A value of one type that is computed when it is asked for."""

    kinds = ("Await",)


class _OfSeveral(_OfKind):
    """That of types of several others, given as a list."""

    of: Any

    def __call__(cls, inner: Sequence[Type]) -> Any:
        return cls.of(inner)


class TupleType(metaclass=_OfSeveral):
    """A tuple of values of these types."""

    kinds = ("Tuple",)

    @staticmethod
    def of(inner: Sequence[Type]) -> Type:
        """The type of tuples of values of these types."""
        return _types.tuple_of(*inner)


class UnionType(metaclass=_OfSeveral):
    """A value of one of these types."""

    kinds = ("Union",)

    @staticmethod
    def of(inner: Sequence[Type]) -> Type:
        """The type of values of one of these types."""
        return _types.union_of(inner)


class _OfTwo(_OfKind):
    """That of types of keys and values."""

    def __call__(cls, key: Type, value: Type) -> Any:
        return _types.dict_of(key, value)


class DictType(metaclass=_OfTwo):
    """A dict from keys of one type to values of another."""

    kinds = ("Dict",)


class InferredType:
    """A type that was found, or a text that says why none was."""

    def __init__(self, found: Type | str) -> None:
        self._found = found

    def success(self) -> bool:
        """Whether a type was found."""
        return not isinstance(self._found, str)

    def type(self) -> Type:
        """The type. Raises: RuntimeError where none was found."""
        if isinstance(self._found, str):
            raise RuntimeError(f"Tried to get type from an InferredType that was not inferred: {self._found}")
        return self._found

    def reason(self) -> str:
        """Why none was found; empty where one was."""
        return self._found if isinstance(self._found, str) else ""


def unify_type_list(types: Sequence[Type]) -> Type:
    """The type of values of any of `types`. Raises: RuntimeError for none, or where there is no such type."""
    if not types:
        raise RuntimeError("Cannot get unified type from empty list")
    made = types[0]
    for at, t in enumerate(types[1:], 1):
        found = _types.unified(made, t)
        if found is None:
            raise RuntimeError(
                f"Could not unify type list since element {at} of type {t} did not match the types before it ({made})"
            )
        made = found
    return made
