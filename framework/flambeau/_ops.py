"""`torch.ops`: operators by namespace, name and overload, as programs that handle graphs and kernels name them.

``ops.aten.add.Tensor(x, y, alpha=2)`` calls the public function of that name (`_aten.py`); an operator that is not built raises
NotImplementedError when called. Other namespaces hold what third parties register.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from . import _aten, _missing, _state
from ._errors import LibraryCannotBeLoaded
from .ops import _dispatch

__all__ = [
    "CalledOperator", "DeclaredOperator", "HigherOrderOperator", "OpOverload", "OpOverloadPacket", "OperatorBase", "has_namespace",
    "higher_order", "ops", "register", "unregister",
]  # fmt: skip

_local = _state.local


class OperatorBase:
    """What operators of all kinds have in common."""


class CalledOperator(OperatorBase):
    """An operator that modes and classes of operands see as what the program calls, before it runs."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        classes = _dispatch.overriding_classes(given)
        # Classes that answer ops are asked by the op that the operator calls.
        if _local.calls.modes or classes and (self._declared() or _dispatch.override_themselves(given)):
            return _dispatch.dispatch_torch_function(self, classes, args, kwargs)
        return self.answer(args, kwargs)

    def answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operator: a declared one by itself, others as the function that computes them, which asks for overrides in turn."""
        raise NotImplementedError

    def _declared(self) -> list[DeclaredOperator]:
        """What `flambeau.library` registered for it."""
        return []


class DeclaredOperator:
    """What `flambeau.library` registers: an operator that has a schema and says itself how calls are answered."""

    schema: Any
    tags: list[Any]

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call of the overload."""
        raise NotImplementedError

    def choose(self, operators: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call of the packet, by the first of its operators that takes the arguments."""
        raise NotImplementedError

    def redispatch(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that a kernel goes on with."""
        raise NotImplementedError


class HigherOrderOperator(OperatorBase):
    """An operator that takes functions, as graphs name it: ``torch.ops.higher_order.<name>``. Programs make none of their own."""

    namespace = "higher_order"

    def __init__(self, name: str, *, function: Callable[..., Any] | None = None, **settings: Any) -> None:
        if function is None:
            raise _missing.not_built("_ops.HigherOrderOperator", f"call the functions that {name} would take")
        self._function, self.__doc__ = function, function.__doc__
        self.__name__ = self.__qualname__ = self._opname = name
        self.__module__ = "torch.ops.higher_order"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def name(self) -> str:
        """The name without the namespace, as in PyTorch."""
        return self.__name__

    def __str__(self) -> str:
        return self.__name__

    def __deepcopy__(self, memo: Any) -> HigherOrderOperator:
        return self

    def __reduce__(self) -> Any:
        return _of_functions, (self.__name__,)


def higher_order(name: str) -> Callable[[Callable[..., Any]], HigherOrderOperator]:
    """A decorator that makes a function the operator ``ops.higher_order.<name>``."""
    return lambda function: HigherOrderOperator(name, function=function)


class OpOverload(CalledOperator):
    """One signature of an operator, such as ``aten.add.Tensor``: callable, and equal only to itself."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self._packet, self._overloadname = packet, overload
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__qualname__, self.__module__ = self.__name__, f"torch.ops.{packet._namespace}"

    @property
    def _operator(self) -> DeclaredOperator | None:
        found = self._packet._functions.get(self._overloadname)
        return found if isinstance(found, DeclaredOperator) else None

    def _declared(self) -> list[DeclaredOperator]:
        return [] if self._operator is None else [self._operator]

    @property
    def tags(self) -> list[Any]:
        """The `torch.Tag`s it was defined with; of operators in `torch.ops.aten` those that PyTorch gives them."""
        operator = self._operator
        if operator is not None:
            return operator.tags
        return _aten.tags(self._opname, self._overloadname) if self.namespace == "aten" else []

    @property
    def _schema(self) -> Any:
        operator = self._operator
        return _aten.schema(self._opname, self._overloadname) if operator is None else operator.schema

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """The operator with all its overloads."""
        return self._packet

    @property
    def namespace(self) -> str:
        """The name before the operator's, such as "aten"."""
        return self._packet._namespace

    @property
    def _opname(self) -> str:
        return self._packet.__name__

    def name(self) -> str:
        """The full name, such as "aten::add.Tensor"."""
        plain = self._packet._qualified_op_name
        return plain if self._overloadname == "default" else f"{plain}.{self._overloadname}"

    def answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operator = self._operator
        if operator is not None:
            return operator.call(args, kwargs)
        if kwargs and not isinstance(kwargs.get("out"), tuple):
            # Operators of several results have a name for each tensor that is written to, which may be `out` for the first.
            outs = [a.name for a in self._schema.arguments if a.is_out and a.name in kwargs]
            if outs and outs != ["out"]:
                kwargs = {k: v for k, v in kwargs.items() if k not in outs} | {"out": tuple([kwargs[name] for name in outs])}
        try:
            return self._packet._call(self._overloadname, args, kwargs)
        except TypeError:
            if self.namespace == "aten":
                self._schema.bind(args, kwargs)       # which names the argument, as PyTorch does, if one is wrong
            raise

    def redispatch(self, keyset: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Go on with a call from a kernel that was registered `with_keyset`. Raises: NotImplementedError for built-in operators."""
        operator = self._operator
        if operator is None:
            raise _missing.not_built("ops.OpOverload.redispatch", f"call {self} itself")
        return operator.redispatch(keyset, args, kwargs)

    def __str__(self) -> str:
        return f"{self._packet._namespace}.{self.__name__}"

    def __repr__(self) -> str:
        name = f"{self._packet._namespace}.{self._packet.__name__}"
        return f"<OpOverload(op='{name}', overload='{self._overloadname}')>"

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self

    def __reduce__(self) -> Any:
        return _by_name, (self._packet._namespace, self._packet.__name__, self._overloadname)


class OpOverloadPacket(CalledOperator):
    """An operator with its overloads as attributes, such as ``aten.add``; a call finds the overload by its arguments."""

    def __init__(self, namespace: str, name: str, overloads: tuple[str, ...], functions: dict[str, Any]) -> None:
        self._namespace, self.__name__ = namespace, name
        self.__qualname__, self.__module__ = name, f"torch.ops.{namespace}"
        self._qualified_op_name = f"{namespace}::{name}"
        self._overloads, self._functions = overloads, functions

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return list(self._overloads)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.__dict__.get("_overloads", ()):
            full = f"{self.__dict__.get('_namespace')}.{self.__dict__.get('__name__')}"
            raise AttributeError(f"The underlying op of '{full}' has no overload name {name!r}", name=name, obj=self)
        made = OpOverload(self, name)
        self.__dict__[name] = made
        return made

    def answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operators = self._declared()
        if operators:
            return operators[0].choose(operators, args, kwargs)
        try:
            return self._call(None, args, kwargs)
        except TypeError:
            if self._namespace == "aten":
                self._check_schemas(args, kwargs)
            raise

    def _check_schemas(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise RuntimeError if no overload takes the arguments."""
        reasons = []
        for overload in self._overloads:
            try:
                getattr(self, overload)._schema.bind(args, kwargs)
                return
            except RuntimeError as error:
                reasons.append(str(error))
        raise RuntimeError("Overloaded torch operator invoked from Python failed to match any schema:\n" + "\n\n".join(reasons))

    def _declared(self) -> list[DeclaredOperator]:
        return [f for f in self._functions.values() if isinstance(f, DeclaredOperator)]

    def _call(self, overload: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = self._functions.get(overload or "default") or self._functions.get("default")
        if function is None and self._namespace == "aten":
            return _aten.call(self.__name__, overload or "default", args, kwargs)
        if function is None:
            raise _missing.not_built(f"ops.{self._namespace}.{self.__name__}", "no public function here computes it")
        return function(*args, **kwargs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._overloads)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._overloads})

    def __str__(self) -> str:
        return f"{self._namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._namespace}.{self.__name__}')>"

    def __deepcopy__(self, memo: Any) -> OpOverloadPacket:
        return self

    def __reduce__(self) -> Any:
        return _by_name, (self._namespace, self.__name__, None)


class _OpNamespace(ModuleType):
    """The operators of one namespace, found when asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(f"torch.ops.{name}")
        self.name = name
        self._registered: dict[str, dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        registered = self.__dict__.get("_registered", {})
        overloads: tuple[str, ...] = tuple(registered.get(name, ()))
        if self.__dict__.get("name") == "aten":
            overloads = tuple(_aten.index().get(name, ())) + overloads
        if not overloads and self.__dict__.get("name") == "prims" and not name.startswith("__"):
            from .utils._python_dispatch import prims_packet

            packet = prims_packet(name)
            if packet is not None:
                return packet
        if not overloads:
            raise AttributeError(f"'_OpNamespace' {self.__dict__.get('name')!r} object has no attribute {name!r}", name=name, obj=self)
        made = OpOverloadPacket(self.name, name, overloads, registered.get(name, {}))
        self.__dict__[name] = made
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dir__())

    def __dir__(self) -> list[str]:
        names = _aten.index() if self.name == "aten" else ()
        return sorted({*names, *self._registered})


# Modules beside this one, and names in them, of operators that take functions.
_TAKE_FUNCTIONS = {
    "cond": ("_higher_order_ops.cond", "cond_op"),
    "while_loop": ("_higher_order_ops.while_loop", "while_loop_op"),
    "tag_activation_checkpoint": ("utils.checkpoint", "tag_activation_checkpoint"),
}


class _HigherOrder(ModuleType):
    """The operators that take functions."""

    def __getattr__(self, name: str) -> Any:
        if name not in _TAKE_FUNCTIONS:
            raise AttributeError(f"'_OpNamespace' 'higher_order' object has no attribute {name!r}", name=name, obj=self)
        module, found = _TAKE_FUNCTIONS[name]
        made = getattr(import_module(f"{__package__}.{module}"), found)
        self.__dict__[name] = made
        return made

    def __dir__(self) -> list[str]:
        return sorted(_TAKE_FUNCTIONS)


def _of_functions(name: str) -> Any:
    return getattr(ops.higher_order, name)


class _Ops(ModuleType):
    """`torch.ops`: any name is a namespace, empty until something is registered in it."""

    def __init__(self) -> None:
        super().__init__("torch.ops")
        self.higher_order = _HigherOrder("torch.ops.higher_order")
        self.loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.ops' has no attribute {name!r}", name=name, obj=self)
        made = _OpNamespace(name)
        self.__dict__[name] = made
        return made

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), "aten", "prims"})      # any other namespace is there once something is registered in it

    def load_library(self, path: Any) -> None:
        """Refuse a library of C++ operators: they need PyTorch's own library.

        Raises: OSError if there is no such file; LibraryCannotBeLoaded, an OSError and a NotImplementedError, if there is.
        """
        if not os.path.exists(path):
            raise OSError(f"Could not load this library: {path}")
        advice = f"{path} has operators in C++, which need PyTorch's library; register Python functions instead"
        raise LibraryCannotBeLoaded(*_missing.not_built("ops.load_library", advice).args)

    def import_module(self, module: str) -> None:
        """Import a Python module that registers operators."""
        import importlib

        importlib.import_module(module)


class _ClassNamespace(ModuleType):
    """A namespace of `torch.classes`, in which there is no class: they are C++'s alone."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        namespace = self.__name__.rpartition(".")[2]
        raise RuntimeError(
            f"Tried to instantiate class '{namespace}.{name}', but it does not exist! Classes of torch.classes are registered by C++ "
            "libraries that need PyTorch's own; write a Python class instead"
        )


class _Classes(ModuleType):
    """`torch.classes`: any name is a namespace, and no class is registered in it."""

    def __init__(self) -> None:
        super().__init__("torch.classes")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.classes' has no attribute {name!r}", name=name, obj=self)
        made = self.__dict__[name] = _ClassNamespace(f"torch.classes.{name}")
        return made

    @property
    def loaded_libraries(self) -> set[str]:
        """Paths of the libraries that `ops.load_library` has loaded."""
        return ops.loaded_libraries

    def load_library(self, path: Any) -> None:
        """Refuse a library as `ops.load_library` does."""
        ops.load_library(path)


ops = _Ops()
classes = _Classes()


def has_namespace(name: str) -> bool:
    """Whether an operator is registered in the namespace `name`."""
    found = ops.__dict__.get(name)
    return isinstance(found, _OpNamespace) and bool(found._registered)


def register(namespace: str, name: str, function: Callable[..., Any] | DeclaredOperator, overload: str = "default") -> OpOverload:
    """Make `function` the operator ``ops.<namespace>.<name>.<overload>``. Returns: the operator.

    Raises: RuntimeError if it has one already.
    """
    place = getattr(ops, namespace)
    functions = place._registered.setdefault(name, {})
    if overload in functions:
        raise RuntimeError(f"ops.register: {namespace}::{name}.{overload} is registered already")
    functions[overload] = function
    import_module("flambeau.ops").show_namespace(namespace)
    packet = place.__dict__.get(name)
    if packet is not None and overload not in packet._overloads:
        packet._overloads = (*packet._overloads, overload)
        packet._functions = functions
    return getattr(getattr(place, name), overload)


def unregister(namespace: str, name: str, overload: str) -> None:
    """Take back what `register` has registered."""
    place = getattr(ops, namespace)
    functions = place._registered[name]
    del functions[overload]
    packet = place.__dict__.get(name)
    if packet is not None:
        packet._overloads = tuple([o for o in packet._overloads if o != overload])
        packet.__dict__.pop(overload, None)
    if not functions:
        del place._registered[name]
        place.__dict__.pop(name, None)


def _by_name(namespace: str, name: str, overload: str | None) -> Any:
    packet = getattr(getattr(ops, namespace), name)
    return packet if overload is None else getattr(packet, overload)
