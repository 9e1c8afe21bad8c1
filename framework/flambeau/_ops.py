"""`torch.ops`: operators by namespace, name and overload, as programs that handle graphs and kernels name them.

``ops.aten.add.Tensor(x, y, alpha=2)`` calls the public function of that name. Names and overloads are PyTorch's (`aten_index.json`,
written by `.ci/make_aten_index.py`); an operator that is not built raises NotImplementedError when called. Other namespaces hold
what third parties register.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from . import _missing

__all__ = [
    "DeclaredOperator", "HigherOrderOperator", "OpOverload", "OpOverloadPacket", "OperatorBase", "has_namespace", "ops", "register",
    "unregister",
]  # fmt: skip

_REDUCTIONS = ("none", "mean", "sum")  # as operators number them


class OperatorBase:
    """What operators of all kinds have in common."""


class DeclaredOperator:
    """What `flambeau.library` registers: an operator that has a schema and says itself how calls are answered."""

    schema: Any
    tags: list[Any]

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call of the overload `func`."""
        raise NotImplementedError

    def choose(self, func: Any, operators: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call of the packet `func`, by the first of its operators that takes the arguments."""
        raise NotImplementedError

    def redispatch(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that a kernel goes on with."""
        raise NotImplementedError


class HigherOrderOperator(OperatorBase):
    """An operator that takes functions. None is built; the class is there for `isinstance`."""

    def __init__(self, name: str, **settings: Any) -> None:
        raise _missing.not_built("_ops.HigherOrderOperator", f"call the functions that {name} would take")


class OpOverload(OperatorBase):
    """One signature of an operator, such as ``aten.add.Tensor``: callable, and equal only to itself."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self._packet, self._overloadname = packet, overload
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__qualname__, self.__module__ = self.__name__, f"torch.ops.{packet._namespace}"

    @property
    def _operator(self) -> DeclaredOperator | None:
        found = self._packet._functions.get(self._overloadname)
        return found if isinstance(found, DeclaredOperator) else None

    @property
    def tags(self) -> list[Any]:
        """The `torch.Tag`s it was defined with."""
        operator = self._operator
        return [] if operator is None else operator.tags

    @property
    def _schema(self) -> Any:
        operator = self._operator
        if operator is None:
            raise AttributeError(f"{self} has no schema: only operators that programs define have one", name="_schema", obj=self)
        return operator.schema

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

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        operator = self._operator
        if operator is not None:
            return operator.call(self, args, kwargs)
        return self._packet._call(self._overloadname, args, kwargs)

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


class OpOverloadPacket(OperatorBase):
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

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        operators = [f for f in self._functions.values() if isinstance(f, DeclaredOperator)]
        if operators:
            return operators[0].choose(self, operators, args, kwargs)
        return self._call(None, args, kwargs)

    def _call(self, overload: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = self._functions.get(overload or "default") or self._functions.get("default")
        if function is None:
            function = _aten(self.__name__) if self._namespace == "aten" else None
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
            overloads = tuple(_index().get(name, "").split()) + overloads
        if not overloads:
            raise AttributeError(f"'_OpNamespace' {self.__dict__.get('name')!r} object has no attribute {name!r}", name=name, obj=self)
        made = OpOverloadPacket(self.name, name, overloads, registered.get(name, {}))
        self.__dict__[name] = made
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dir__())

    def __dir__(self) -> list[str]:
        names = _index() if self.name == "aten" else ()
        return sorted({*names, *self._registered})


class _Ops(ModuleType):
    """`torch.ops`: any name is a namespace, empty until something is registered in it."""

    def __init__(self) -> None:
        super().__init__("torch.ops")
        self.loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.ops' has no attribute {name!r}", name=name, obj=self)
        made = _OpNamespace(name)
        self.__dict__[name] = made
        return made

    def load_library(self, path: Any) -> None:
        """Refuse a library of C++ operators: they need PyTorch's own library.

        Raises: OSError if there is no such file; NotImplementedError if there is.
        """
        if not os.path.exists(path):
            raise OSError(f"Could not load this library: {path}")
        raise _missing.not_built("ops.load_library", "operators in C++ need PyTorch's library; register Python functions instead")

    def import_module(self, module: str) -> None:
        """Import a Python module that registers operators."""
        import importlib

        importlib.import_module(module)


ops = _Ops()


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


@functools.cache
def _index() -> dict[str, str]:
    import json

    with open(os.path.join(os.path.dirname(__file__), "aten_index.json"), encoding="utf-8") as file:
        return json.load(file)


# -- operators as public functions ---------------------------------------------------------------------------------------


@functools.cache
def _aten(name: str) -> Callable[..., Any] | None:
    """The public function that computes the operator `name`, with the operator's names of arguments; None if there is none."""
    found = _own().get(name) or _public(name)
    return None if found is None else _as_operator(found)


def _public(name: str) -> Any:
    import flambeau as fb

    for prefix, home in (("linalg_", fb.linalg), ("special_", fb.special), ("fft_", fb.fft)):
        if name.startswith(prefix):
            return _attribute(home, name[len(prefix) :])
    if name.startswith("__") and name.endswith("__"):
        return getattr(fb.Tensor, name, None)
    for home in (fb, fb.nn.functional, fb.Tensor):
        found = None if name in _KINDS else _attribute(home, name)
        if callable(found) and not isinstance(found, type):
            return found
    return _attribute(fb.Tensor, name) if name in _KINDS else None


# Names of dtypes and of other things in the package, which are methods as operators.
_KINDS = frozenset(("bool", "float", "int", "half", "double", "long", "short", "device", "layout", "dtype"))


def _attribute(owner: Any, name: str) -> Any:
    """`owner.name` without noting that it is missing."""
    from .ops import _derive

    if owner.__name__ == "flambeau":
        return _derive.public("", name)
    if isinstance(owner, type):
        return getattr(owner, name) if name in dir(owner) else None
    return vars(owner).get(name) or _derive.lookup(owner.__name__.partition(".")[2], name)


def _as_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` called as operators are: the first argument is `self`, a reduction may be a number."""
    try:
        names = [name for name in inspect.signature(function).parameters if name not in ("size_average", "reduce")]
    except (TypeError, ValueError):
        return function
    has_reduction = "reduction" in names
    first = names[0] if names else "input"

    def call(*args: Any, **kwargs: Any) -> Any:
        if "self" in kwargs and first != "self":
            kwargs[first] = kwargs.pop("self")
        if has_reduction:
            kwargs.update(zip(names, args, strict=False))
            args = ()
            if isinstance(kwargs.get("reduction"), int):
                kwargs["reduction"] = _REDUCTIONS[kwargs["reduction"]]
        return function(*args, **kwargs)

    return call


@functools.cache
def _own() -> dict[str, Callable[..., Any]]:
    """Operators that no public function has, or whose function takes its arguments in another way."""
    import flambeau as fb

    def slice_(self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
        parts = [slice(None)] * self.dim()
        parts[dim] = slice(start, end, step)
        return self[tuple(parts)]

    def to_copy(
        self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Any:  # fmt: skip
        kept = fb.preserve_format if memory_format is None else memory_format
        return self.to(device=device, dtype=dtype, non_blocking=non_blocking, copy=True, memory_format=kept)

    def index(self: Any, indices: Any) -> Any:
        return self[tuple(slice(None) if i is None else i for i in indices)]

    def view_sizes(self: Any, size: Any) -> Any:
        return self.view(size)

    def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
        return fb.nn.functional.layer_norm(input, normalized_shape, weight, bias, eps)

    def softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
        return fb.softmax(self, dim, dtype=fb.float32 if half_to_float else None)

    def log_softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
        return fb.log_softmax(self, dim, dtype=fb.float32 if half_to_float else None)

    def norm_dims(self: Any, dim: Any = None) -> Any:
        return self.size() if dim is None else self.size(dim)

    def embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
        place = None if padding_idx < 0 else padding_idx
        return fb.nn.functional.embedding(indices, weight, place, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)

    return {
        "slice": slice_, "_to_copy": to_copy, "index": index, "view": view_sizes, "_unsafe_view": view_sizes,
        "reshape": lambda self, shape: self.reshape(shape), "expand": lambda self, size, *, implicit=False: self.expand(size),
        "permute": lambda self, dims: self.permute(dims), "repeat": lambda self, repeats: self.repeat(repeats),
        "alias": lambda self: self.view(self.shape), "detach": lambda self: self.detach(), "lift_fresh": lambda self: self,
        "lift_fresh_copy": lambda self: self.clone(),
        "t": lambda self: self.t(), "is_same_size": lambda self, other: self.shape == other.shape,
        "sym_size": norm_dims, "size": norm_dims, "sym_numel": lambda self: self.numel(), "numel": lambda self: self.numel(),
        "sym_stride": lambda self, dim=None: self.stride() if dim is None else self.stride(dim),
        "stride": lambda self, dim=None: self.stride() if dim is None else self.stride(dim),
        "sym_storage_offset": lambda self: self.storage_offset(), "dim": lambda self: self.dim(),
        "item": lambda self: self.item(), "_local_scalar_dense": lambda self: self.item(),
        "_softmax": softmax, "_log_softmax": log_softmax, "layer_norm": layer_norm, "embedding": embedding,
        "zeros": lambda size, **kw: fb.zeros(size, **kw), "ones": lambda size, **kw: fb.ones(size, **kw),
        "empty": lambda size, **kw: fb.empty(size, **kw), "rand": lambda size, **kw: fb.rand(size, **kw),
        "randn": lambda size, **kw: fb.randn(size, **kw), "new_zeros": lambda self, size, **kw: self.new_zeros(size, **kw),
        "new_ones": lambda self, size, **kw: self.new_ones(size, **kw), "new_empty": lambda self, size, **kw: self.new_empty(size, **kw),
    }  # fmt: skip
