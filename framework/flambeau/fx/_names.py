"""Names: what functions are called in generated code, and names of values that do not collide."""

from __future__ import annotations

import builtins
import functools
import keyword
import re
import sys
from typing import Any

from .. import _ops
from ..utils._python_dispatch import OpOverload

_PACKAGE = __name__.partition(".")[0]
_NOT_A_NAME = re.compile(r"[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"(.+)_(\d+)$")
_HUMP = re.compile(r"([a-z])([A-Z])")
# Namespaces whose functions PyTorch knows by a longer name: `linalg_norm`.
_PREFIXED = ("linalg", "fft", "special")


class Namespace:
    """Names that are in use, and new ones beside them."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """A name like `candidate` that nothing else has; the one it has already, if `obj` has been given one."""
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = _NOT_A_NAME.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        numbered = _NUMBERED.match(candidate)
        base, number = (candidate, None) if numbered is None else (numbered[1], int(numbered[2]))
        while candidate in self._used or _means_something_else(candidate, obj):
            number = self._numbers.get(base, 0) + 1
            self._numbers[base] = number
            candidate = f"{base}_{number}"
        if number is not None:
            self._numbers[base] = number
        self._used.add(candidate)
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Note that `obj` has `name` already."""
        self._names[obj] = name
        self._used.add(name)

    def rename(self, obj: Any, name: str) -> None:
        """Give `obj` another name."""
        self._used.add(name)
        self._names[obj] = name


# What every generated program may say by these names.
_RESERVED = frozenset(("inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree"))


def _means_something_else(name: str, obj: Any) -> bool:
    if keyword.iskeyword(name) or name in _RESERVED:
        return True
    return name in builtins.__dict__ and builtins.__dict__[name] is not obj


def snake_case(text: str) -> str:
    """`text` in lower case, with an underscore where a hump begins: ``addMul`` is ``add_mul``."""
    return _HUMP.sub(r"\1_\2", text).lower()


def name_of_function(fn: Any) -> str:
    """What a value computed by `fn` is called."""
    op = getattr(fn, "flambeau_op", None)
    if op is not None and op.namespace in _PREFIXED:
        return f"{op.namespace}_{fn.__name__}"
    return fn.__name__                     # of an operator with its overload: ``add.Tensor``


def name_of_operator(target: Any) -> str | None:
    """What a value computed by an operator is called where operators are recorded: the name without the overload. None for others."""
    return target._opname if isinstance(target, (OpOverload, _ops.OpOverload)) else None


def qualified_name(fn: Any) -> str:
    """The dotted name of `fn`, as PyTorch's programs spell it: ``torch.relu``, ``operator.add``, ``math.sqrt``."""
    name = getattr(fn, "__name__", None)
    if isinstance(fn, (OpOverload, _ops.OpOverload)):
        return f"torch.ops.{fn}"
    if name is not None and getattr(builtins, name, None) is fn:
        return name
    if not hasattr(fn, "__module__"):
        fn = fn.__class__
    module, name = _module_of(fn), getattr(fn, "__qualname__", None) or getattr(fn, "__name__", type(fn).__name__)
    if module == "_operator":
        return f"_operator.{name}"
    return f"{_as_torch(module, name, fn)}.{name}" if module else name


def _module_of(fn: Any) -> str:
    module = getattr(fn, "__module__", None)
    return module if isinstance(module, str) else ""


def _as_torch(module: str, name: str, fn: Any) -> str:
    """PyTorch's name of `module`, one in which `fn` can be reached."""
    head, dot, rest = module.partition(".")
    if head != _PACKAGE:
        return module
    package: Any = sys.modules[_PACKAGE]
    if package.__dict__.get(name) is fn or package._HOME.get(name) == rest:
        return "torch"
    return f"torch{dot}{rest}"


@functools.lru_cache(maxsize=4096)
def is_reached(path: str, fn: Any) -> bool:
    """Whether the dotted `path`, which begins with ``torch``, leads to `fn`."""
    found: Any = sys.modules[_PACKAGE]
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
        if found is None:
            return False
    return found is fn
