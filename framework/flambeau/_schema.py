"""Schemas of operators: ``ns::name.overload(Tensor x, int[2] size=1, *, float? p=None) -> Tensor``, read, printed and applied.

A schema says the types of arguments and results, defaults, which arguments are given by keyword alone, and which memory
is shared or written: ``Tensor(a!)`` is written, ``Tensor(a)`` shares the memory of what else carries an ``a``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import flambeau as fb

from ._symbolic import SymBool, SymFloat, SymInt

__all__ = ["Argument", "FunctionSchema", "Type", "parse_schema"]

_ABSENT: Any = object()


class SchemaMismatch(Exception):
    """A value is not of a schema's type."""


# -- types ---------------------------------------------------------------------------------------------------------------

# What a type is called in messages, where that is not its own name.
_SHOWN = {"SymInt": "int", "Scalar": "number", "ScalarType": "int", "Layout": "int", "MemoryFormat": "int", "DeviceIndex": "int"}
_PLAIN = frozenset((
    "Tensor", "int", "SymInt", "float", "bool", "str", "complex", "Scalar", "ScalarType", "Device", "DeviceIndex", "Layout",
    "MemoryFormat", "Generator", "Stream", "Storage", "QScheme", "Dimname", "Any", "number", "AnyEnumType", "SymBool",
))  # fmt: skip


@dataclass(frozen=True)
class AliasInfo:
    """Which memory an argument or result shares: the sets before and after the call, and whether it is written."""

    before_set: frozenset[str]
    after_set: frozenset[str]
    is_write: bool

    def __str__(self) -> str:
        def named(names: frozenset[str]) -> str:
            return "|".join(sorted(names))

        after = "" if self.after_set == self.before_set else f" -> {named(self.after_set)}"
        return f"({named(self.before_set)}{'!' if self.is_write else ''}{after})"


@dataclass(frozen=True)
class Type:
    """The type of an argument or result: a plain one by name, or ``Optional``, ``List``, ``Tuple`` and ``Dict`` of others."""

    kind: str
    inner: tuple[Type, ...] = ()
    size: int | None = None

    def text(self, alias: str = "") -> str:
        """As schemas spell it, `alias` beside the tensor."""
        if self.kind == "Optional":
            return f"{self.inner[0].text(alias)}?"
        if self.kind == "List":
            return f"{self.inner[0].text(alias)}[{'' if self.size is None else self.size}]"
        if self.kind in ("Tuple", "Dict"):
            listed = ", ".join(t.text() for t in self.inner)
            return f"{'Dict' if self.kind == 'Dict' else ''}({listed}){alias}"
        return f"{self.kind}{alias}"

    def __str__(self) -> str:
        if self.inner:
            return f"{self.kind}[{', '.join(map(str, self.inner))}]"
        return _SHOWN.get(self.kind, self.kind)

    @property
    def annotation_str(self) -> str:
        """As annotations of scripts spell it: ``List[int]``."""
        return str(self)

    def containedTypes(self) -> list[Type]:
        """The types of what is in it."""
        return list(self.inner)

    elements = containedTypes

    def getElementType(self) -> Type:
        """The type of the elements of a list, or of what an optional, a future or a reference has."""
        return self.inner[0]

    def getKeyType(self) -> Type:
        """The type of the keys of a dict."""
        return self.inner[0]

    def getValueType(self) -> Type:
        """The type of the values of a dict."""
        return self.inner[1]

    @property
    def has_tensors(self) -> bool:
        """Whether values of this type are or hold tensors."""
        return self.kind == "Tensor" or any(t.has_tensors for t in self.inner)

    def cast(self, value: Any) -> Any:
        """`value` as the operator is given it. Raises: SchemaMismatch, that says why it cannot be."""
        if self.kind == "Optional":
            return None if value is None else self.inner[0].cast(value)
        if self.kind == "List":
            return self._list(value)
        if self.kind == "Tuple" and isinstance(value, (tuple, list)) and len(value) == len(self.inner):
            return tuple([t.cast(v) for t, v in zip(self.inner, value, strict=True)])
        return _CASTS.get(self.kind, _unchanged)(value)

    @property
    def caster(self) -> Callable[[Any], Any]:
        """What `cast` calls in the end."""
        return self.cast if self.inner else _CASTS.get(self.kind, _unchanged)

    def _list(self, value: Any) -> list[Any]:
        inner = self.inner[0]
        of_numbers = inner.kind in _NUMBERS
        if self.size is not None and inner.kind in _REPEATED and not isinstance(value, (list, tuple)) and np.ndim(value) == 0:
            return [inner.cast(value)] * self.size
        if of_numbers and isinstance(value, (range, np.ndarray)) or isinstance(value, (list, tuple)):
            return [inner.cast(v) for v in value]
        raise _no_cast(value, str(self))


_NUMBERS = frozenset(("int", "SymInt", "float", "bool", "Scalar", "complex"))
_REPEATED = frozenset(("int", "SymInt", "float", "bool"))


def _no_cast(value: Any, wanted: str) -> SchemaMismatch:
    return SchemaMismatch(f"Unable to cast Python instance of type {type(value)} to {wanted}")


def _unchanged(value: Any) -> Any:
    return value


def _tensor(value: Any) -> Any:
    # None stands for a tensor that is not there, as gradients may be.
    if value is None or isinstance(value, fb.Tensor):
        return value
    raise SchemaMismatch(f"Unable to cast {value} to Tensor")


_SYMBOLIC: dict[Any, tuple[type, ...]] = {int: (SymInt,), float: (SymFloat, SymInt), bool: (SymBool,)}


def _number(name: str, make: Callable[[Any], Any], kinds: Any) -> Callable[[Any], Any]:
    def cast(value: Any) -> Any:
        if isinstance(value, kinds):
            return make(value)
        if value.__class__ in _SYMBOLIC.get(make, ()):
            return value
        if isinstance(value, fb.Tensor) and value.numel() == 1:
            return make(value.item())
        raise _no_cast(value, name)

    return cast


def _scalar(value: Any) -> Any:
    if isinstance(value, (bool, int, float, complex, SymInt, SymFloat, SymBool)):
        return value
    raise SchemaMismatch(f"Cannot cast {value} to number")


def _device(value: Any) -> Any:
    if isinstance(value, (str, fb.device)):
        return fb.device(value)
    raise _no_cast(value, "Device")


def _instance(name: str, kind: Callable[[], type]) -> Callable[[Any], Any]:
    def cast(value: Any) -> Any:
        if isinstance(value, kind()):
            return value
        raise _no_cast(value, name)

    return cast


_INTEGERS = (bool, int, np.integer, np.bool_)
_CASTS: dict[str, Callable[[Any], Any]] = {
    "Tensor": _tensor,
    "int": _number("int", int, _INTEGERS),
    "SymInt": _number("int", int, _INTEGERS),
    "DeviceIndex": _number("int", int, _INTEGERS),
    "float": _number("float", float, (*_INTEGERS, float, np.floating)),
    "bool": _number("bool", bool, (*_INTEGERS, float, complex, np.number, type(None))),
    "complex": _number("complex", complex, (*_INTEGERS, float, complex, np.number)),
    "Scalar": _scalar,
    "number": _scalar,
    "str": _instance("str", lambda: str),
    "Device": _device,
    "ScalarType": _instance("ScalarType", lambda: fb.dtype),
    "Layout": _instance("Layout", lambda: fb.layout),
    "MemoryFormat": _instance("MemoryFormat", lambda: fb.memory_format),
    "Generator": _instance("Generator", lambda: fb.Generator),
}


# -- arguments and schemas -----------------------------------------------------------------------------------------------


class Argument:
    """An argument or result of a schema."""

    def __init__(self, name: str, type: Type, alias_info: AliasInfo | None, kwarg_only: bool, default: Any = _ABSENT) -> None:
        self.name, self.type, self.alias_info, self.kwarg_only = name, type, alias_info, kwarg_only
        self.default_value = None if default is _ABSENT else default
        self._has_default = default is not _ABSENT

    real_type = property(lambda self: self.type)

    @property
    def N(self) -> int | None:
        """The length that a list has if one number is given for it."""
        inner = self.type.inner[0] if self.type.kind == "Optional" else self.type
        return inner.size

    @property
    def is_write(self) -> bool:
        """Whether its memory is written."""
        return self.alias_info is not None and self.alias_info.is_write

    is_out = property(lambda self: self.kwarg_only and self.is_write)

    def has_default_value(self) -> bool:
        """Whether it may be left out."""
        return self._has_default

    def __str__(self) -> str:
        alias = "" if self.alias_info is None else str(self.alias_info)
        default = f"={_shown_default(self.default_value, self.type)}" if self._has_default else ""
        return f"{self.type.text(alias)} {self.name}{default}".rstrip()

    def __repr__(self) -> str:
        return f"<Argument {self}>"


def _shown_default(value: Any, kind: Type) -> str:
    if kind.kind == "Optional" and value is not None:
        kind = kind.inner[0]
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str) and kind.kind == "str":
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, list):
        if kind.inner[0].kind == "int" and kind.size is not None and len(set(value)) == 1:
            return str(value[0])
        return f"[{', '.join(_shown_default(v, kind.inner[0]) for v in value)}]"
    if isinstance(value, float):
        text = f"{value:.17g}"
        return text if not re.fullmatch(r"-?\d+", text) else f"{text}."
    if isinstance(value, complex):
        return f"{_shown_default(value.real, kind)}+{_shown_default(value.imag, kind)}j"
    return str(value).removeprefix("torch.")


class FunctionSchema:
    """What an operator is called, takes and returns."""

    def __init__(self, name: str, overload_name: str, arguments: list[Argument], returns: list[Argument]) -> None:
        self.name, self.overload_name, self.arguments, self.returns = name, overload_name, arguments, returns
        self.positional = [a for a in arguments if not a.kwarg_only]
        self.keyword_only = [a for a in arguments if a.kwarg_only]
        self._by_name = {a.name: a for a in arguments}
        self._casts = [a.type.caster for a in self.positional]
        self.is_mutable = any(a.is_write for a in arguments)  # whether an argument is written

    @property
    def is_functional(self) -> bool:
        """Whether nothing is written and no result shares memory with an argument."""
        return all(a.alias_info is None for a in (*self.arguments, *self.returns))

    def __str__(self) -> str:
        overload = f".{self.overload_name}" if self.overload_name else ""
        return f"{self.name}{overload}{self.signature()}"

    def signature(self) -> str:
        """The schema without its name."""
        listed = [str(a) for a in self.positional]
        if self.keyword_only:
            listed += ["*", *map(str, self.keyword_only)]
        returns = ", ".join(map(str, self.returns))
        alone = len(self.returns) == 1
        return f"({', '.join(listed)}) -> {returns if alone else f'({returns})'}"

    def __repr__(self) -> str:
        return str(self)

    # -- calls

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Values for the positional arguments and those by keyword alone, defaults among them, as the schema's types want them.

        Raises: RuntimeError for arguments that are missing, too many, unknown or of other types.
        """
        positional = self.positional
        if len(args) == len(positional) and not kwargs and not self.keyword_only:
            try:
                return tuple([cast(value) for cast, value in zip(self._casts, args, strict=True)]), {}
            except SchemaMismatch:
                pass                                  # said below, with the argument's name
        if len(args) > len(positional) and self.keyword_only:
            raise RuntimeError(
                f"{self.name}() takes {len(positional)} positional argument(s) but {len(args)} was/were given.  Declaration: {self}"
            )
        if len(args) > len(positional):
            raise RuntimeError(
                f"{self.name}() expected at most {len(positional)} argument(s) but received {len(args)} argument(s). Declaration: {self}"
            )
        rest = dict(kwargs)
        values = []
        for at, argument in enumerate(positional):
            if at < len(args):
                if argument.name in rest:
                    raise RuntimeError(f"Argument '{argument.name}' specified both as positional and keyword argument. Schema: {self}")
                values.append(self._cast(argument, args[at], at))
            else:
                values.append(self._named(argument, rest, at))
        by_name = {a.name: self._named(a, rest, len(positional) + i) for i, a in enumerate(self.keyword_only)}
        if rest:
            raise RuntimeError(f"Unknown keyword argument '{next(iter(rest))}' for operator '{self.name}'. Schema: {self}")
        return tuple(values), by_name

    def _named(self, argument: Argument, given: dict[str, Any], at: int) -> Any:
        if argument.name in given:
            return self._cast(argument, given.pop(argument.name), at)
        if not argument._has_default:
            raise RuntimeError(f"{self.name}() is missing value for argument '{argument.name}'. Declaration: {self}")
        return argument.default_value

    def _cast(self, argument: Argument, value: Any, at: int) -> Any:
        try:
            return argument.type.cast(value)
        except SchemaMismatch as reason:
            raise RuntimeError(
                f"{self.name}() Expected a value of type '{argument.type}' for argument '{argument.name}' but instead found type "
                f"'{type(value).__name__}'.\nPosition: {at}\nValue: {value!r}\nDeclaration: {self}\nCast error details: {reason}"
            ) from None

    def without_defaults(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bound values less those that are defaults: positional ones at the end, and those by keyword alone."""
        count = len(args)
        while count and self._is_default(self.positional[count - 1], args[count - 1]):
            count -= 1
        return args[:count], {name: v for name, v in kwargs.items() if not self._is_default(self._by_name[name], v)}

    def _is_default(self, argument: Argument, value: Any) -> bool:
        return argument._has_default and type(value) is type(argument.default_value) and bool(value == argument.default_value)

    def check_result(self, result: Any) -> Any:
        """`result` as the operator returns it: None, one value, or a tuple.

        Raises: RuntimeError for results that are not what the schema says.
        """
        returns = self.returns
        if not returns:
            if result is not None and result != ():
                got = type(result).__name__
                raise RuntimeError(f"{self.name}: nothing is returned by the schema {self}, but the function returned a {got}")
            return None
        if len(returns) == 1:
            return self._result(returns[0], result, 0)
        if not isinstance(result, (tuple, list)) or len(result) != len(returns):
            got = f"{len(result)} of them" if isinstance(result, (tuple, list)) else f"a {type(result).__name__}"
            raise TypeError(f"{self.name}: {len(returns)} values are returned by the schema {self}, but the function returned {got}")
        return tuple([self._result(r, v, i) for i, (r, v) in enumerate(zip(returns, result, strict=True))])

    def _result(self, declared: Argument, value: Any, at: int) -> Any:
        try:
            return declared.type.cast(value)
        except SchemaMismatch as reason:
            raise RuntimeError(f"{reason}: result {at} of {self.name} should be a {declared.type}. Declaration: {self}") from None


# -- reading -------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(?P<arrow>->)|(?P<dots>\.\.\.)|(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?j?)|(?P<ident>[A-Za-z_]\w*)"
    r"|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<colons>::)|(?P<sign>[-()\[\],.=*!?|:]))"
)
_DTYPES = {
    "uint8": "uint8", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "float16": "float16", "float32": "float32",
    "float64": "float64", "byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64", "half": "float16",
    "float": "float32", "double": "float64", "bool": "bool", "bfloat16": "bfloat16", "complex64": "complex64", "cfloat": "complex64",
    "complex128": "complex128", "cdouble": "complex128",
}  # fmt: skip


@dataclass
class _Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class _Reader:
    """Reads one schema from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[_Token] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                start = at + len(text[at:]) - len(text[at:].lstrip())
                raise self.error("unexpected character:\n", _Token("sign", text[start], start))
            kind = found.lastgroup or ""
            word = found[kind]
            self.tokens.append(_Token(word if kind == "sign" else kind, word, found.start(kind)))
            at = found.end()
        self.tokens.append(_Token("eof", "", len(text)))
        self.at = 0

    def error(self, what: str, token: _Token) -> RuntimeError:
        return RuntimeError(f"{what}{self.text}\n{' ' * token.start}{'~' * len(token.text)} <--- HERE\n")

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self, kind: str) -> str | None:
        """The next token's text if it is of `kind`, and then the reader is behind it; else None."""
        token = self.next
        if token.kind != kind:
            return None
        self.at += 1
        return token.text

    def expect(self, kind: str) -> str:
        token = self.next
        if token.kind != kind:
            found = f"'{token.kind}'" if token.kind != kind else ""
            raise self.error(f"expected {kind} but found {found} here:\n", token)
        self.at += 1
        return token.text

    # -- the parts of a schema

    def schema(self) -> FunctionSchema:
        name = self.expect("ident")
        while self.take("colons"):
            name += f"::{self.expect('ident')}"
        overload = self.expect("ident") if self.take(".") else ""
        if self.next.kind != "(":
            raise self.error(f"expected eof but found '{self.next.kind}' here:\n", self.next)
        arguments = self.arguments()
        self.expect("arrow")
        returns = self.returns()
        self.expect("eof")
        seen = ""
        for a in arguments:
            if a._has_default and not a.kwarg_only:
                seen = a.name
            elif seen and not a.kwarg_only:
                raise RuntimeError(f"Non-default positional argument follows default argument. Parameter {a.name} in {self.text}")
        return FunctionSchema(name, overload, arguments, returns)

    def arguments(self) -> list[Argument]:
        self.expect("(")
        found: list[Argument] = []
        by_keyword = False
        if self.take(")"):
            return found
        while True:
            if self.take("*"):
                by_keyword = True
            else:
                found.append(self.argument(by_keyword))
            if not self.take(","):
                self.expect(")")
                return found

    def argument(self, by_keyword: bool) -> Argument:
        kind, alias = self.type()
        name = self.expect("ident")
        default = self.default(kind) if self.take("=") else _ABSENT
        return Argument(name, kind, alias, by_keyword, default)

    def returns(self) -> list[Argument]:
        if not self.take("("):
            return [self.result()]
        found: list[Argument] = []
        if self.take(")"):
            return found
        while True:
            found.append(self.result())
            if not self.take(","):
                self.expect(")")
                return found

    def result(self) -> Argument:
        kind, alias = self.type()
        return Argument(self.take("ident") or "", kind, alias, False)

    def type(self) -> tuple[Type, AliasInfo | None]:
        alias = None
        if self.take("("):
            parts = [self.type()[0]]
            while self.take(","):
                parts.append(self.type()[0])
            self.expect(")")
            kind = Type("Tuple", tuple(parts))
        else:
            token = self.next
            name = self.expect("ident")
            if name == "Dict":
                self.expect("(")
                key = self.type()[0]
                self.expect(",")
                kind = Type("Dict", (key, self.type()[0]))
                self.expect(")")
            elif name in _PLAIN or re.fullmatch(r"[a-z]|t[A-Z0-9]\w*", name):  # a small letter stands for any type
                kind = Type(name)
            else:
                raise self.error(
                    "\nunknown type specifier. Common valid schema types include Tensor, SymInt, int, float, bool, Scalar; for a full "
                    "list, please see https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/README.md#func :\n",
                    token,
                )
        while True:
            if self.next.kind == "(" and alias is None:
                alias = self.alias()
            elif self.take("?"):
                kind = Type("Optional", (kind,))
            elif self.take("["):
                size = self.take("number")
                self.expect("]")
                kind = Type("List", (kind,), None if size is None else int(size))
            else:
                return kind, alias

    def alias(self) -> AliasInfo:
        self.expect("(")
        before = self.alias_set()
        write = self.take("!") is not None
        after = self.alias_set() if self.take("arrow") else before
        self.expect(")")
        return AliasInfo(before, after, write)

    def alias_set(self) -> frozenset[str]:
        found = {self.take("*") or self.expect("ident")}
        while self.take("|"):
            found.add(self.expect("ident"))
        return frozenset(found)

    def default(self, kind: Type) -> Any:
        token = self.next
        if token.text == "None" and kind.kind in ("Optional", "SymInt", "int", "float", "bool", "Generator"):
            self.at += 1
            return None
        if kind.kind == "Optional":
            return self.default(kind.inner[0])
        if kind.kind == "List":
            if not self.take("["):
                if kind.size is None:
                    raise self.error(f"expected [ but found '{token.kind}' here:\n", token)
                return [self.default(kind.inner[0])] * kind.size
            found = []
            while not self.take("]"):
                found.append(self.default(kind.inner[0]))
                if self.next.kind != "]":
                    self.expect(",")
            return found
        self.at += 1
        return self._value(kind, token)

    def _value(self, kind: Type, token: _Token) -> Any:
        text = token.text
        if token.kind == "string":
            inside = re.sub(r"\\(.)", r"\1", text[1:-1])
            return fb.device(inside) if kind.kind == "Device" else inside
        if text in ("True", "False"):
            return text == "True"
        if kind.kind == "ScalarType" and text in _DTYPES:
            return getattr(fb, _DTYPES[text])
        if kind.kind == "Layout" and isinstance(getattr(fb, text, None), fb.layout):
            return getattr(fb, text)
        if kind.kind == "MemoryFormat" and isinstance(getattr(fb, text, None), fb.memory_format):
            return getattr(fb, text)
        if token.kind != "number":
            if token.kind == "ident":
                raise self.error("\ninvalid numeric default value:\n", token)
            raise self.error(f"expected number but found '{token.kind}' here:\n", token)
        if text.endswith("j"):
            return complex(text)
        if kind.kind in ("float", "complex"):
            return float(text) if kind.kind == "float" else complex(text)
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def parse_schema(text: str) -> FunctionSchema:
    """The schema that `text` spells.

    Raises: RuntimeError with the place where it cannot be read.

    >>> from flambeau._schema import parse_schema
    >>> parse_schema("ns::scale(Tensor x, float by=1) -> Tensor")
    ns::scale(Tensor x, float by=1.) -> Tensor
    """
    return _Reader(text).schema()
