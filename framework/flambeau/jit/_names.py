"""What names stand for while a script is compiled: values, modules, classes, functions, and what Python computes of them.

Each is asked for attributes, calls and elements by the compiler, `emit`, that writes nodes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .._schema import Type
from ._ir import Function, Value
from ._types import NONE, ClassType, EnumType, NamedTupleType, text_of

__all__ = ["Thing"]


class Thing:
    """What a name or expression stands for. What it cannot do raises the compiler's error."""

    def what(self) -> str:
        """What messages call it."""
        return type(self).__name__

    def value(self, emit: Any) -> Value:
        """It as a value. Raises: an error for what has none, such as a function."""
        raise emit.error(f"{self.what()} cannot be used as a value")

    def attribute(self, emit: Any, name: str) -> Thing:
        """Its attribute."""
        raise emit.error(f"attribute lookup is not defined on {self.what()}")

    def set_attribute(self, emit: Any, name: str, value: Value) -> None:
        """Assign to its attribute."""
        raise emit.error(f"attribute assignment is not defined on {self.what()}")

    def call(self, emit: Any, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        """Call it."""
        raise emit.error(f"cannot call a {self.what()}")

    def elements(self, emit: Any) -> list[Thing] | None:
        """Its elements, where their number is known while compiling."""
        return None


class Plain(Thing):
    """A value."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def what(self) -> str:
        return f"value of type '{text_of(self._value.type())}'"

    def value(self, emit: Any) -> Value:
        return self._value

    def attribute(self, emit: Any, name: str) -> Thing:
        return emit.attribute_of(self._value, name)

    def set_attribute(self, emit: Any, name: str, value: Value) -> None:
        kind = self._value.type()
        if not isinstance(kind, ClassType):
            return super().set_attribute(emit, name, value)
        if name in kind.constants:
            raise emit.error(f"Assignment to attribute '{name}' of constant is not allowed")
        setter = emit.method_of(kind, f"__set_{name}") if name not in kind.attributes else None
        if setter is not None:
            Method(self._value, setter).call(emit, [Plain(value)], {})
            return None
        wanted = kind.attributes.get(name)
        if wanted is None:
            if emit.function.owner is kind and emit.function.short_name == "__init__":
                wanted = kind.attributes[name] = value.type()
            else:
                raise emit.error(f"Tried to set nonexistent attribute: {name}. Did you forget to initialize it in __init__()?")
        emit.node("prim::SetAttr", [self._value, emit.as_type(value, wanted, "attribute assignment")], [], name=name)
        return None

    def call(self, emit: Any, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        kind = self._value.type()
        if isinstance(kind, ClassType):
            if kind.is_module and (kind.pre_hooks or kind.hooks):
                return self._call_with_hooks(emit, kind, args, kwargs)
            name = "forward" if kind.is_module else "__call__"
            return emit.attribute_of(self._value, name).call(emit, args, kwargs)
        if kind.kind == "Function":
            return Compiled(self._value.fact).call(emit, args, kwargs)
        raise emit.error(f"'{text_of(kind)}' object is not callable")

    def _call_with_hooks(self, emit: Any, kind: ClassType, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        """Call a module and its hooks: those before may give other arguments, those behind another result."""
        if kwargs:
            raise emit.error("modules with hooks take arguments by position in scripts")
        for hook in kind.pre_hooks:
            given = emit.attribute_of(self._value, hook).call(emit, [Plain(emit.tuple([a.value(emit) for a in args]))], {}).value(emit)
            if given.type() != NONE:
                args = [Plain(v) for v in emit.unpacked(given)] if given.type().kind == "Tuple" else [Plain(given)]
        result = emit.attribute_of(self._value, "forward").call(emit, args, {})
        for hook in kind.hooks:
            taken: list[Thing] = [Plain(emit.tuple([a.value(emit) for a in args])), result]
            given = emit.attribute_of(self._value, hook).call(emit, taken, {}).value(emit)
            result = result if given.type() == NONE else Plain(given)
        return result

    def elements(self, emit: Any) -> list[Thing] | None:
        kind = self._value.type()
        if kind.kind == "Tuple":
            return [Plain(v) for v in emit.unpacked(self._value)]
        if isinstance(kind, ClassType) and kind.is_module and emit.is_container(kind):
            return [emit.attribute_of(self._value, name) for name in emit.parts_of(kind)]
        return None


class Several(Thing):
    """A tuple of things that are no values, such as modules."""

    def __init__(self, parts: Sequence[Thing]) -> None:
        self.parts = list(parts)

    def what(self) -> str:
        return "tuple"

    def value(self, emit: Any) -> Value:
        return emit.tuple([p.value(emit) for p in self.parts])

    def elements(self, emit: Any) -> list[Thing] | None:
        return self.parts


class Counted(Thing):
    """What a loop goes over: `length` makes the number of its elements, `item` the element at an index."""

    def __init__(self, length: Callable[[Any], Value], item: Callable[[Any, Value], Thing], parts: list[Thing] | None = None) -> None:
        self.length, self.item, self.parts = length, item, parts

    def what(self) -> str:
        return "iterator"

    def elements(self, emit: Any) -> list[Thing] | None:
        return self.parts

    def value(self, emit: Any) -> Value:
        """A list of the elements."""
        return emit.list_of_all(self)


class Namespace(Thing):
    """A module of Python, such as ``torch`` or ``math``: names that are looked up in it."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def what(self) -> str:
        return "python module"

    def attribute(self, emit: Any, name: str) -> Thing:
        try:
            found = getattr(self.module, name)
        except AttributeError as error:
            raise emit.error(f"object has no attribute {name}") from error
        return emit.python(found, name, self.module)


class Operator(Thing):
    """An operator by its name, with the value whose method it is called as; one overload if that is said."""

    def __init__(self, name: str, bound: Value | None = None, overload: str | None = None) -> None:
        self.name, self.bound, self.overload = name, bound, overload

    def what(self) -> str:
        return "builtin function"

    def call(self, emit: Any, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        given = [a.value(emit) for a in args]
        named = {k: v.value(emit) for k, v in kwargs.items()}
        return Plain(emit.operator(self.name, given if self.bound is None else [self.bound, *given], named, self.overload))

    def attribute(self, emit: Any, name: str) -> Thing:
        return Operator(self.name, self.bound, name)


class Special(Thing):
    """A function that the compiler knows itself: ``apply(emit, args, kwargs)``."""

    def __init__(self, name: str, apply: Callable[[Any, list[Thing], dict[str, Thing]], Thing]) -> None:
        self.name, self.apply = name, apply

    def what(self) -> str:
        return f"builtin '{self.name}'"

    def call(self, emit: Any, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        return self.apply(emit, args, kwargs)


class Compiled(Thing):
    """A compiled function."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def what(self) -> str:
        return "function"

    def value(self, emit: Any) -> Value:
        made = emit.node("prim::Constant", [], [Type("Function")], name=self.function.short_name)[0]
        made.fact = self.function
        made.node.attributes["_function"] = self.function
        return made

    def call(self, emit: Any, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        inputs = emit.bound(self.function, args, kwargs)
        return Plain(emit.node("prim::CallFunction", inputs, [emit.result_of(self.function)], name=self.function.short_name,
                               _function=self.function)[0])  # fmt: skip


class Method(Thing):
    """A method of a module or object."""

    def __init__(self, of: Value, function: Function) -> None:
        self.of, self.function = of, function

    def what(self) -> str:
        return "method"

    def call(self, emit: Any, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        inputs = emit.bound(self.function, [Plain(self.of), *args], kwargs)
        return Plain(emit.node("prim::CallMethod", inputs, [emit.result_of(self.function)], name=self.function.short_name,
                               _function=self.function)[0])  # fmt: skip


class PythonFunction(Thing):
    """A function that is left to Python, as ``jit.ignore`` says; calls of an unused one raise."""

    def __init__(self, function: Function, is_dropped: bool, bound: Value | None = None) -> None:
        self.function, self.is_dropped, self.bound = function, is_dropped, bound

    def what(self) -> str:
        return "ignored function"

    def call(self, emit: Any, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        kind = self.function.result or NONE
        if self.is_dropped:
            emit.raises(f"{self.function.short_name} is marked unused, and cannot be called from a script")
            return Plain(emit.uninitialized(kind))
        given = args if self.bound is None else [Plain(self.bound), *args]
        inputs = emit.bound(self.function, given, kwargs)
        return Plain(emit.node("prim::PythonOp", inputs, [kind], name=self.function.short_name, _function=self.function)[0])


class Class(Thing):
    """A class of scripts: a call makes an instance."""

    def __init__(self, type: Type) -> None:
        self.type = type

    def what(self) -> str:
        return "class"

    def attribute(self, emit: Any, name: str) -> Thing:
        if isinstance(self.type, EnumType):
            member = self.type.python_class[name]  # type: ignore[attr-defined]
            return Plain(emit.constant(member, self.type))
        static = inspect.getattr_static(self.type.python_class, name, None) if isinstance(self.type, ClassType) else None
        if isinstance(static, staticmethod):
            return emit.python(static.__func__, name, self.type)
        found = emit.method_of(self.type, name)
        if found is not None:
            return Compiled(found)
        raise emit.error(f"Tried to access nonexistent attribute or method '{name}' of type '{text_of(self.type)}'")

    def value(self, emit: Any) -> Value:
        """The members of an enumeration, which loops go over."""
        if not isinstance(self.type, EnumType):
            return super().value(emit)
        members = [emit.constant(m, self.type) for m in self.type.python_class]  # type: ignore[attr-defined]
        return emit.list(members, self.type)

    def call(self, emit: Any, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        if isinstance(self.type, NamedTupleType):
            names = self.type.fields  # type: ignore[attr-defined]
            given = dict(zip(names, args, strict=False)) | kwargs
            defaults = getattr(self.type.python_class, "_field_defaults", {})  # type: ignore[attr-defined]
            values = [
                emit.as_type(given[n].value(emit) if n in given else emit.constant(defaults[n], t), t, n)
                for n, t in zip(names, self.type.inner, strict=True)
            ]
            return Plain(emit.node("prim::TupleConstruct", values, [self.type])[0])
        made = emit.node("prim::CreateObject", [], [self.type])[0]
        init = emit.method_of(self.type, "__init__")
        if init is not None:
            inputs = emit.bound(init, [Plain(made), *args], kwargs)
            emit.node("prim::CallMethod", inputs, [NONE], name="__init__", _function=init)
        return Plain(made)


