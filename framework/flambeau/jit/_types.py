"""The types of scripts: those of schemas, and classes, modules, enumerations and functions beside them."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import flambeau as fb

from .._schema import Type

if TYPE_CHECKING:
    from ._ir import Function

__all__ = [
    "ANY", "BOOL", "COMPLEX", "DEVICE", "FLOAT", "INT", "NONE", "NUMBER", "STR", "TENSOR", "ClassType", "EnumType",
    "NamedResults", "NamedTupleType", "dict_of", "is_subtype", "list_of", "normal", "optional", "shown", "text_of", "tuple_of",
    "type_of_annotation", "type_of_value", "unified", "union_of",
]  # fmt: skip

TENSOR, INT, FLOAT, BOOL, STR, COMPLEX, NUMBER, NONE, DEVICE, ANY = map(
    Type, ("Tensor", "int", "float", "bool", "str", "complex", "number", "NoneType", "Device", "Any")
)
GENERATOR, STORAGE, STREAM = map(Type, ("Generator", "Storage", "Stream"))


class ClassType(Type):
    """A class or module of scripts: attributes with types, constants and methods. Equal to itself alone.

    Args:
        name: its qualified name, ``__torch__.package.Class``.
        is_module: whether instances are modules.
    """

    name: str
    attributes: dict[str, Type]
    constants: dict[str, Any]
    methods: dict[str, Function]
    is_module: bool
    is_interface: bool
    parameters: list[str]
    buffers: list[str]
    pre_hooks: list[str]
    hooks: list[str]
    python_class: Any
    compiler: Any

    def __init__(self, name: str, is_module: bool = False) -> None:
        super().__init__(name)
        of = object.__setattr__
        of(self, "name", name)
        of(self, "attributes", {})
        of(self, "constants", {})
        of(self, "methods", {})
        of(self, "is_module", is_module)
        of(self, "is_interface", False)
        of(self, "parameters", [])                    # names of attributes
        of(self, "buffers", [])
        of(self, "pre_hooks", [])                     # names of the methods that calls run before `forward`, and behind it
        of(self, "hooks", [])
        of(self, "python_class", None)                # the class it was compiled from, which instances are of
        of(self, "compiler", None)                    # compiles methods when they are first asked for

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class NamedTupleType(Type):
    """A NamedTuple: a tuple whose places have names."""

    name: str
    fields: tuple[str, ...]
    python_class: Any

    def __init__(self, name: str, fields: Iterable[str], inner: Iterable[Type], made_of: Any) -> None:
        super().__init__("Tuple", tuple(inner))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "fields", tuple(fields))
        object.__setattr__(self, "python_class", made_of)

    def text(self, alias: str = "") -> str:
        return self.name


class NamedResults(Type):
    """The results of an operator that have names, such as ``values`` and ``indices``: a tuple whose places have names while compiling."""

    fields: tuple[str, ...]

    def __init__(self, fields: Iterable[str], inner: Iterable[Type]) -> None:
        super().__init__("Tuple", tuple(inner))
        object.__setattr__(self, "fields", tuple(fields))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and (self.kind, self.inner) == (other.kind, other.inner)

    def __hash__(self) -> int:
        return hash((self.kind, self.inner))


class EnumType(Type):
    """An enumeration, whose members are values of one type."""

    name: str
    python_class: Any
    value: Type

    def __init__(self, name: str, python_class: type[enum.Enum]) -> None:
        super().__init__(name)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "python_class", python_class)
        object.__setattr__(self, "value", type_of_value(next(iter(python_class)).value))


def optional(inner: Type) -> Type:
    """`inner` or None."""
    return inner if inner.kind in ("Optional", "NoneType", "Any") else Type("Optional", (inner,))


_ORDER = (
    "Tensor", "Storage", "Tuple", "List", "Dict", "number", "float", "complex", "Future", "RRef", "int", "NoneType", "str", "Generator",
    "bool", "Device",
)  # fmt: skip


def union_of(parts: Iterable[Type]) -> Type:
    """A value of one of the types: they stand in the order of their kinds, each once."""
    flat: dict[Type, None] = {}
    for p in parts:
        flat.update(dict.fromkeys(p.inner if p.kind == "Union" else (p.inner[0], NONE) if p.kind == "Optional" else (p,)))
    rest = [p for p in flat if p != NONE]
    if len(rest) == 1:
        return rest[0] if len(flat) == 1 else optional(rest[0])
    if NUMBER in flat or set(flat) >= {INT, FLOAT, COMPLEX}:
        rest = [NUMBER, *[p for p in rest if p not in (INT, FLOAT, COMPLEX, NUMBER)]]
        if len(rest) == 1:
            return optional(NUMBER) if NONE in flat else NUMBER
        flat = dict.fromkeys([*rest, NONE] if NONE in flat else rest)

    def place(p: Type) -> tuple[int, str]:
        if isinstance(p, EnumType):
            return -1, p.name
        return _ORDER.index(p.kind) if p.kind in _ORDER else len(_ORDER), text_of(p)

    return Type("Union", tuple(sorted(flat, key=place)))


def list_of(inner: Type) -> Type:
    """A list of values of the type `inner`."""
    return Type("List", (inner,))


def tuple_of(*inner: Type) -> Type:
    """A tuple of values of these types."""
    return Type("Tuple", inner)


def dict_of(key: Type, value: Type) -> Type:
    """A dict."""
    return Type("Dict", (key, value))


_AS_INT = ("SymInt", "ScalarType", "Layout", "MemoryFormat", "DeviceIndex", "QScheme")


def normal(t: Type) -> Type:
    """The type that values of a schema's type have in a script: dtypes, layouts and symbolic sizes are numbers there."""
    if type(t) is not Type:
        return t
    if t.kind in _AS_INT:
        return INT
    if t.kind == "Scalar":
        return NUMBER
    if t.kind == "SymBool":
        return BOOL
    return Type(t.kind, tuple(map(normal, t.inner))) if t.inner else t


# -- relations -----------------------------------------------------------------------------------------------------------


def is_subtype(a: Type, b: Type) -> bool:
    """Whether each value of the type `a` is one of `b`."""
    if a == b or b == ANY:
        return True
    if b == NUMBER:
        return a in (INT, FLOAT, COMPLEX) or a.kind == "Union" and all(is_subtype(m, b) for m in a.inner)
    if b.kind == "AnyEnumType":
        return isinstance(a, EnumType)
    if b.kind == "Optional":
        return a == NONE or is_subtype(a, b.inner[0]) or a.kind == "Optional" and is_subtype(a.inner[0], b.inner[0])
    if b.kind == "Union":
        return all(is_subtype(m, b) for m in a.inner) if a.kind == "Union" else any(is_subtype(a, m) for m in b.inner)
    if a.kind == "Optional":
        return False
    if a.kind == b.kind == "Tuple":
        if isinstance(b, NamedTupleType):
            return isinstance(a, NamedTupleType) and a.text() == b.text()
        return len(a.inner) == len(b.inner) and all(map(is_subtype, a.inner, b.inner))
    if a.kind == b.kind == "List":
        return a.inner == b.inner or b.inner[0] == ANY
    if a.kind == b.kind in ("Dict", "Future", "RRef"):
        return a.inner == b.inner
    if isinstance(b, ClassType) and b.is_interface and isinstance(a, ClassType):
        return all(m in a.methods or a.compiler is not None for m in b.methods)
    return False


def unified(a: Type, b: Type, to_any: bool = False) -> Type | None:
    """The type of a value that is of `a` or of `b`, or None if there is none."""
    if a == b:
        return a
    if is_subtype(a, b):
        return b
    if is_subtype(b, a):
        return a
    if NONE in (a, b):
        return optional(a if b == NONE else b)
    if a.kind == "Optional" or b.kind == "Optional":
        inner = unified(a.inner[0] if a.kind == "Optional" else a, b.inner[0] if b.kind == "Optional" else b)
        return None if inner is None else optional(inner)
    if a.kind == b.kind == "Tuple" and len(a.inner) == len(b.inner):
        parts = [unified(x, y) for x, y in zip(a.inner, b.inner, strict=True)]
        return None if None in parts else tuple_of(*[p for p in parts if p is not None])
    return ANY if to_any else None


# -- names ---------------------------------------------------------------------------------------------------------------


def shown(t: Type) -> str:
    """As graphs spell it: ``Tensor?``, ``int[]``, ``Dict(str, int)``."""
    if isinstance(t, (ClassType, NamedTupleType, EnumType)):
        return t.name if not isinstance(t, EnumType) else f"Enum<{t.name}>"
    if t.kind == "Optional":
        return f"{shown(t.inner[0])}?"
    if t.kind == "List":
        return f"{shown(t.inner[0])}[]"
    if t.kind == "Tuple":
        return f"({', '.join(map(shown, t.inner))})"
    if t.kind == "Union":
        return f"Union({', '.join(map(shown, t.inner))})"
    if t.inner:
        return f"{t.kind}({', '.join(map(shown, t.inner))})"
    return "Scalar" if t == NUMBER else t.kind


def text_of(t: Type) -> str:
    """As annotations spell it: ``Optional[Tensor]``, ``List[int]``."""
    if isinstance(t, (ClassType, NamedTupleType, EnumType)):
        return t.name
    if t.kind == "Tuple" and not t.inner:
        return "Tuple[()]"
    if t.inner:
        return f"{t.kind}[{', '.join(map(text_of, t.inner))}]"
    return t.kind


# -- from Python ---------------------------------------------------------------------------------------------------------


class NoType(Exception):
    """A value or an annotation has no type in scripts."""


_PLAIN: dict[Any, Type] = {
    int: INT, float: FLOAT, bool: BOOL, str: STR, complex: COMPLEX, None: NONE, type(None): NONE, Any: ANY,
    fb.device: DEVICE, fb.Tensor: TENSOR, fb.dtype: INT, fb.layout: INT, fb.memory_format: INT,
}  # fmt: skip
_GENERIC = {list: "List", tuple: "Tuple", dict: "Dict"}


def type_of_annotation(given: Any, class_type: Any) -> Type:
    """The type that the annotation `given`, a Python object, stands for. Raises: NoType.

    Args:
        class_type: called with a class that is none of Python's or ours; returns its type, or None.
    """
    if isinstance(given, Type):
        return given
    try:
        if given in _PLAIN:
            return _PLAIN[given]
    except TypeError:
        raise NoType(f"{given!r} is no type") from None
    if given is fb.Generator:
        return GENERATOR
    origin, args = typing.get_origin(given), typing.get_args(given)
    if origin in (typing.Union, types.UnionType):
        return union_of([type_of_annotation(a, class_type) for a in args])
    if origin in _GENERIC and args:
        if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
            raise NoType("tuples of any length have no type in scripts; annotate a List")
        return Type(_GENERIC[origin], tuple([type_of_annotation(a, class_type) for a in args if a != ()]))
    if origin is tuple and not args and given != typing.Tuple:  # noqa: UP006  # that name, which says nothing of elements
        return tuple_of()
    if given in (list, tuple, dict) or origin in (list, tuple, dict) and not args:
        raise NoType(f"{given!r} needs the types of its elements, such as {getattr(given, '__name__', 'List').title()}[int]")
    if origin is not None and getattr(origin, "__name__", "") == "Future":
        return Type("Future", (type_of_annotation(args[0], class_type),))
    if origin is typing.Final:
        return type_of_annotation(args[0], class_type)
    if isinstance(given, type):
        if issubclass(given, fb.Tensor):
            return TENSOR
        made = class_type(given)
        if made is not None:
            return made
    raise NoType(f"Unknown type name '{getattr(given, '__name__', given)}'")


def type_of_value(value: Any, class_type: Any = None) -> Type:
    """The type of a Python value. Raises: NoType for what has none, such as an empty list."""
    for kind in (bool, int, float, complex, str):
        if isinstance(value, kind):
            return _PLAIN[kind]
    if value is None:
        return NONE
    if isinstance(value, fb.Tensor):
        return TENSOR
    if isinstance(value, (fb.dtype, fb.layout, fb.memory_format)):
        return INT
    if isinstance(value, fb.device):
        return DEVICE
    if isinstance(value, fb.Generator):
        return GENERATOR
    if isinstance(value, tuple):
        if hasattr(type(value), "_fields") and class_type is not None:
            made = class_type(type(value))
            if made is not None:
                return made
        return tuple_of(*[type_of_value(v, class_type) for v in value])
    if isinstance(value, (list, dict)):
        if not value:
            raise NoType("an empty list has no type" if isinstance(value, list) else "an empty dict has no type")
        if isinstance(value, list):
            return list_of(_common([type_of_value(v, class_type) for v in value]))
        return dict_of(
            _common([type_of_value(k, class_type) for k in value]), _common([type_of_value(v, class_type) for v in value.values()])
        )
    if class_type is not None:
        made = class_type(type(value))
        if made is not None:
            return made
    raise NoType(f"a value of type {type(value).__name__} has no type in scripts")


def _common(found: list[Type]) -> Type:
    kind = found[0]
    for other in found[1:]:
        joined = unified(kind, other)
        if joined is None:
            raise NoType(f"elements are of the types {text_of(kind)} and {text_of(other)}")
        kind = joined
    return kind
