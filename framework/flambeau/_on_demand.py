"""Names of a module that are made when they are asked for, and that `dir` lists before.

A module that has some takes its ``__getattr__`` and ``__dir__`` from `names_on_demand`, so what is found and what is listed are one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["found_so_far", "in_dict_too", "is_module", "names_on_demand"]

_IMPORT = "<frozen importlib._bootstrap>"             # the file of the import statement


def is_module(name: str) -> bool:
    """Whether there is a module of this full name."""
    from importlib.util import find_spec  # a module that no start needs

    return find_spec(name) is not None


def names_on_demand(
    module: str,
    homes: Mapping[str, Iterable[str]] | None = None,
    *,
    modules: Iterable[str] = (),
    folder: Iterable[str] = (),
    make: Callable[[str], Any] | None = None,
    listed: Callable[[], Iterable[str]] = tuple,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of `module`.

    Args:
        module: its ``__name__``.
        homes: names by the module that has them, written as imports in `module` write it. They are kept once they have been asked for.
        modules: those below `module` that are imported when they are asked for.
        folder: the ``__path__`` of `module` where all that is in it is imported when it is asked for.
        make: gives what belongs to any other name, anew each time unless it keeps it, or None.
        listed: the names that `make` knows.
    """
    home_of = {name: home for home, names in (homes or {}).items() for name in names}
    below = frozenset(modules)

    def find(name: str) -> Any:
        if name in below or folder and not name.startswith("__") and is_module(f"{module}.{name}"):
            return import_module(f".{name}", module)
        if name in home_of:
            found = getattr(import_module(home_of[name], sys.modules[module].__package__), name)
            setattr(sys.modules[module], name, found)
            return found
        found = None if make is None or name.startswith("__") and name != "__all__" else make(name)
        if found is None:
            if sys._getframe(1).f_code.co_filename == _IMPORT:  # which looks for a module next, and asks again where there is none
                raise AttributeError(f"module {module!r} has no attribute {name!r}")
            from . import _missing

            raise _missing.attribute_error(module, name, sys.modules[module])
        return found

    def names() -> list[str]:
        from pkgutil import iter_modules

        files = (found.name for found in iter_modules(folder))
        public = (name for name in files if not name.startswith("_"))
        return sorted({*found_so_far(sys.modules[module]), *home_of, *below, *public, *listed()})

    return find, names


def found_so_far(module: ModuleType) -> dict[str, Any]:
    """The dict of `module` as it is, nothing made for it."""
    return _own_dict(module)


_own_dict: Any = vars(ModuleType)["__dict__"].__get__


class _WithWholeDict(ModuleType):
    """A module whose ``__dict__`` has all public names."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        for name in self.__all__:
            getattr(self, name)
        return _own_dict(self)


def in_dict_too(module: str) -> None:
    """Let ``vars(module)`` have all names that are on demand: programs find things by name there, as in ``optim.__dict__["Adam"]``."""
    sys.modules[module].__class__ = _WithWholeDict
