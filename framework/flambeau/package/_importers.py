"""Where modules come from: the Python environment, packages, or several of these in order."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

__all__ = [
    "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter", "demangled", "is_from_package", "is_mangled",
    "package_name", "sys_importer",
]  # fmt: skip

_PREFIX = "<torch_package_"


class ObjNotFoundError(Exception):
    """An importer has no object of the name that was wanted."""


class ObjMismatchError(Exception):
    """An importer has an object of that name, but another one."""


# -- names of what packages hold -----------------------------------------------------------------------------


def package_name(number: int) -> str:
    """What the names of modules of package `number` begin with."""
    return f"{_PREFIX}{number}>"


def is_mangled(name: str) -> bool:
    """Whether `name` is one of a module in a package."""
    return name.startswith(_PREFIX)


def demangled(name: str) -> str:
    """`name` without the package in front, as the package itself knows it; other names as they are."""
    return name.partition(".")[2] if is_mangled(name) else name


def is_from_package(obj: Any) -> bool:
    """Whether `obj` is a module that a package holds, or an instance of a class that one defines.

    False for a class itself, and for instances of classes that a package only imports.
    """
    return is_mangled(obj.__name__ if isinstance(obj, ModuleType) else type(obj).__module__)


# -- importers -----------------------------------------------------------------------------------------------


class Importer(ABC):
    """What finds modules by name, and the names under which objects are found in them."""

    @abstractmethod
    def import_module(self, module_name: str) -> ModuleType:
        """The module `module_name`. Raises: ImportError if there is none."""

    def has_module(self, module_name: str) -> bool:
        """Whether `import_module` would find `module_name`."""
        try:
            self.import_module(module_name)
        except ImportError:
            return False
        return True

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """Module and name, with dots where it is inside a class, under which `obj` is found.

        Args:
            name: the name to look for; by default the object's own.
        Raises: ObjNotFoundError if nothing has that name; ObjMismatchError if something else has it.
        """
        if name is None:
            name = str(getattr(obj, "__qualname__", None) or obj.__name__)
        module_name = self.whichmodule(obj, name)
        # A class of a package has a name that says which one: another package's module of the same name is another.
        module_name = demangled(module_name)
        try:
            found: Any = self.import_module(module_name)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise ObjNotFoundError(f"{obj!r} was not found as {module_name}.{name}") from error
        if found is obj:
            return module_name, name
        raise ObjMismatchError(
            f"{obj!r} is not the object found as {module_name}.{name}, which comes from {self!r}: give the exporter the "
            "importers of the packages that its objects come from, importer=(package_importer, sys_importer), in the order "
            "in which they are to be asked"
        )

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that has `obj` under `name`; '__main__' if none is known."""
        module_name = getattr(obj, "__module__", None)
        if module_name is not None:
            return module_name
        for module_name, module in list(self._modules().items()):
            if module_name not in ("__main__", "__mp_main__") and isinstance(module, ModuleType) and vars(module).get(name) is obj:
                return module_name
        return "__main__"

    def _modules(self) -> dict[str, Any]:
        return {}


class _SysImporter(Importer):
    """Python's own way of importing."""

    def import_module(self, module_name: str) -> ModuleType:
        """The module, from the Python environment."""
        return importlib.import_module(module_name)

    def has_module(self, module_name: str) -> bool:
        """Whether there is such a module; only its parents are imported to find out."""
        if module_name in sys.modules:
            return True
        try:
            return importlib.util.find_spec(module_name) is not None
        except (ImportError, ValueError):
            return False

    def _modules(self) -> dict[str, Any]:
        return sys.modules


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """Several importers, of which each is asked what those before it do not have."""

    def __init__(self, *args: Importer) -> None:
        self._importers = list(args)

    def import_module(self, module_name: str) -> ModuleType:
        """The module, from the first importer that has it. Raises: ModuleNotFoundError if none has."""
        bare: ModuleType | None = None
        for importer in self._importers:
            if importer.has_module(module_name):
                module = importer.import_module(module_name)
                if not is_from_package(module) or module.__file__ is not None:
                    return module
                # A folder of a package, without source: one of the others may have the module itself.
                bare = bare or module
        if bare is not None:
            return bare
        raise ModuleNotFoundError(f"No module named {module_name!r}", name=module_name)

    def has_module(self, module_name: str) -> bool:
        """Whether one of them has it."""
        return any(importer.has_module(module_name) for importer in self._importers)

    def whichmodule(self, obj: Any, name: str) -> str:
        """The module that has `obj` under `name` in the first importer that knows one."""
        for importer in self._importers:
            if (module_name := importer.whichmodule(obj, name)) != "__main__":
                return module_name
        return "__main__"
