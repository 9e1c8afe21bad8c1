"""Functions and classes as names that both sides import, and the list of names that this process runs for others."""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

__all__ = ["allow_functions", "check_allowed", "exception_class", "is_named", "name_of", "named"]

_given = os.environ.get("FLAMBEAU_RPC_ALLOW")
_patterns: tuple[str, ...] | None = None if _given is None else tuple(_given.split(","))


def allow_functions(patterns: Sequence[str] | None) -> tuple[str, ...] | None:
    """Run for other workers only what one of `patterns` names; returns what held before.

    Args:
        patterns: as of `fnmatch`, over "module.name": ``["trainer.*", "flambeau.add"]``. None, which is what holds without the
            variable FLAMBEAU_RPC_ALLOW (patterns with commas between), allows all that can be imported.
    Raises: TypeError if `patterns` is a str.
    """
    global _patterns
    if isinstance(patterns, str):
        raise TypeError(f"allow_functions: patterns must be a sequence of str, got the str {patterns!r}")
    before, _patterns = _patterns, None if patterns is None else tuple(patterns)
    return before


def check_allowed(name: str) -> None:
    """Raise PermissionError unless other workers may have "module.name" run here."""
    if _patterns is not None and not any(fnmatch.fnmatchcase(name, pattern) for pattern in _patterns):
        raise PermissionError(
            f"rpc: this worker does not run {name} for others; allow_functions() or FLAMBEAU_RPC_ALLOW names what it runs: "
            f"{', '.join(_patterns) or 'nothing'}"
        )


def is_named(value: Any) -> bool:
    """Whether `value` is a function or class, which travels as its name."""
    return callable(value) and isinstance(getattr(value, "__qualname__", None), str)


def _find(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module) or import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def name_of(value: Callable[..., Any]) -> list[str]:
    """Module and qualified name under which another process finds `value`.

    Raises: AttributeError where it is found under no name: a lambda, a function inside a function, a method of an object.
    """
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type):
        module, qualname = owner.__module__, f"{owner.__qualname__}.{value.__name__}"
    try:
        found = None if module is None or "<" in qualname else _find(module, qualname)
    except (ImportError, AttributeError):
        found = None
    if found is None or (found is not value and found != value):
        raise AttributeError(
            f"rpc: {value!r} cannot be sent: the other worker imports functions and classes by name, and "
            f"{module}.{qualname} does not lead to it; define it at the top of a module that both have"
        )
    return [str(module), qualname]


def named(module: str, qualname: str) -> Any:
    """What another worker named.

    Raises: PermissionError where the name is not allowed here; ImportError or AttributeError where there is nothing of that name.
    """
    check_allowed(f"{module}.{qualname}")
    return _find(module, qualname)


def exception_class(module: str, qualname: str) -> type[Exception] | None:
    """The class of an exception of another worker, if this process has it already; nothing is imported for it."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
