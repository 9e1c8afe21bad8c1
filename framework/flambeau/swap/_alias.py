"""One package under a second name, by a finder on `sys.meta_path`.

`torch` itself is a module of its own, because its version is another; everything below it is the package's
very module: `torch.nn is flambeau.nn`. A module that exists only in PyTorch's layout, such as
`torch.nn.modules.batchnorm`, stands in for the namespace that offers its classes, so that pickled references
resolve. Whatever is missing is noted and refused.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

from .. import _missing
from .._on_demand import found_so_far
from ._version import TorchVersion

__all__ = ["Alias"]

_Getattr = Callable[[str], Any]
_ABSENT = object()
# Attributes that say which module this is; the alias has its own.
_IDENTITY = frozenset(vars(ModuleType(""))) | {
    "__path__",
    "__file__",
    "__cached__",
    "__builtins__",
    "__version__",
    "__getattr__",
    "__dir__",
}


class Alias(MetaPathFinder):
    """While installed, `import name` gives `package`, and so do all ways of asking whether `name` is there.

    Args:
        name: the name that programs import, `torch`.
        package: the package they get, `flambeau`.
        version: what `name.__version__` and the package metadata say.
        hidden: submodules of `package` that are not part of `name`.
        homes: attributes of `name` that `package` has elsewhere: their modules, where they have the same name.
        renamed: classes, by the modules of `package` that define them, whose `__module__` is `name`'s while this is installed,
            and functions, whose `__module__` is `name`'s for the module they are listed under.
        beside: other top-level names that programs import, and the modules of `package` that they stand for.
        inner: modules that are only in PyTorch's layout, and those that offer their names.
        moved: older names of packages that PyTorch has, and their newer ones, which all below the older is looked for under.
    """

    def __init__(
        self,
        name: str,
        package: str,
        version: str,
        hidden: frozenset[str] = frozenset(),
        homes: Mapping[str, str] = MappingProxyType({}),
        renamed: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        beside: Mapping[str, str] = MappingProxyType({}),
        inner: Mapping[str, str] = MappingProxyType({}),
        moved: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name, self.package = name, package
        self.version = TorchVersion(version)
        self.hidden = hidden | homes.keys()
        self.homes = homes
        self.renamed = renamed
        self.beside = beside
        self.inner = inner
        self.moved = moved
        self._packages = frozenset(above for module in inner for above in _all_above(module))
        self._displaced: dict[str, Any] = {}
        self._adopted: dict[ModuleType, Any] = {}
        self._stand_ins: list[ModuleType] = []
        self._own_homes: dict[Any, str] = {}

    # Coming and going

    @property
    def installed(self) -> bool:
        return self in sys.meta_path

    def install(self) -> None:
        """Put the alias in front of the import path. Nothing is imported yet.

        Raises: RuntimeError if a real `name` has already been imported.
        """
        if self.installed:
            return
        present: dict[str, Any] = {key: sys.modules[key] for key in list(sys.modules) if self.covers(key)}
        self._refuse_real(present)
        # Only None is left: the mark of a blocked import.
        self._displaced = present
        for key in present:
            del sys.modules[key]
        sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Undo `install`: `sys.modules` and `sys.meta_path` hold for `name` what they held before."""
        if not self.installed:
            return
        sys.meta_path.remove(self)
        for module in self._stand_ins:
            self._unbind(module)
        for module, own in self._adopted.items():
            _restore(module, own)
        for named, home in self._own_homes.items():
            named.__module__ = home
        for key in [key for key in sys.modules if self.covers(key)]:
            del sys.modules[key]
        sys.modules.update(self._displaced)
        self._stand_ins, self._adopted, self._displaced, self._own_homes = [], {}, {}, {}

    def covers(self, fullname: str) -> bool:
        top = fullname.partition(".")[0]
        return top == self.name or top in self.beside

    def _refuse_real(self, present: dict[str, Any]) -> None:
        real = [module for module in present.values() if module is not None]
        if not real:
            return
        top = present.get(self.name) or real[0]
        version = getattr(top, "__version__", "(unknown version)")
        raise RuntimeError(
            f"flambeau.swap: {self.name} {version} is already imported\n"
            f"  from  {getattr(top, '__file__', 'an unknown place')}\n"
            f"  Swap in before anything imports {self.name}: call install() first, or start the program by\n"
            f"  python -m {self.package} script.py"
        )

    # The three questions Python asks of a finder

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not self.covers(fullname):
            self._word_failed_from_import(fullname)
            return None
        spec = self._spec(fullname)
        if spec is None:
            self._refuse(fullname)
        return spec

    def find_distributions(self, context: Any) -> Iterable[Any]:
        if context.name is not None and context.name.lower() != self.name:
            return ()
        from ._metadata import SwappedDistribution

        package = importlib.import_module(self.package)
        return (SwappedDistribution(self.name, str(self.version), os.path.dirname(package.__path__[0])),)

    def invalidate_caches(self) -> None:
        """Nothing is cached: every answer is looked up under the package's own name."""

    # Specs

    def _spec(self, fullname: str) -> ModuleSpec | None:
        top, dot, rest = fullname.partition(".")
        if top in self.beside:
            real = self._real_spec(self.beside[top] + dot + rest)
            return None if real is None else _spec_like(fullname, _SameModuleLoader(self, real.name), real)
        tail = fullname[len(self.name) + 1 :]
        real = self._real_spec(f"{self.package}.{tail}" if tail else self.package)
        if not tail:
            return _spec_like(fullname, _FacadeLoader(self), real)
        if tail == "version":
            return ModuleSpec(fullname, _VersionLoader(self), origin=real.origin if real else None)
        if tail == "torch_version":
            return ModuleSpec(fullname, _TorchVersionLoader())
        if tail.partition(".")[0] in self.hidden:
            return None
        if real is not None:
            return _spec_like(fullname, _SameModuleLoader(self, real.name), real)
        home = self._home_of(fullname)
        if home is None:
            return None
        return ModuleSpec(fullname, _HomeLoader(self), origin=home, is_package=True)

    def _real_spec(self, real: str) -> ModuleSpec | None:
        try:
            return importlib.util.find_spec(real)
        except ModuleNotFoundError as error:
            # Our own parent is missing; anything else is a broken dependency the user must hear of.
            if f"{error.name}.".startswith(self.package + "."):
                return None
            raise

    def _home_of(self, fullname: str) -> str | None:
        documented = "torch" + fullname[len(self.name) :]
        home = self.inner.get(documented) or _missing.home_of(documented)
        if home is not None:
            return self.name + home[len("torch") :]
        older = next((package for package in self.moved if documented.startswith(package + ".")), None)
        if older is None:
            return None
        newer = self.name + self.moved[older][len("torch") :] + documented[len(older) :]
        real = self._real_spec(self.package + newer[len(self.name) :])
        return newer if real is not None else self._home_of(newer)

    def _refuse(self, fullname: str) -> None:
        """Note that `fullname` was asked for, and raise if it was by an import rather than a mere look."""
        asked_by = _callers_in_import_machinery()
        error = _missing.module_error(fullname, looked=not asked_by & {"_handle_fromlist", "_find_and_load"})
        if "_handle_fromlist" in asked_by:
            raise _from_import_error(fullname, error)
        if "_find_and_load" in asked_by:
            raise error

    def _word_failed_from_import(self, fullname: str) -> None:
        """`from torch.nn import X` asks for `flambeau.nn.X`, by the module's own name: refuse it alike."""
        owner = sys.modules.get(fullname.rpartition(".")[0])
        if owner not in self._adopted or "_handle_fromlist" not in _callers_in_import_machinery():
            return
        if self._real_spec(fullname) is None:
            alias = self.name + fullname[len(self.package) :]
            raise _from_import_error(alias, _missing.module_error(alias))

    # Attributes

    def adopt(self, module: ModuleType) -> None:
        """Put `module` of the package under its alias too, and give it a word for what it lacks.

        Only namespaces that PyTorch documents: a module with a `__getattr__` is read some 15 ns slower, which
        our own inner modules shall not pay.
        """
        alias = self.name + module.__name__[len(self.package) :]
        half_imported = getattr(module.__spec__, "_initializing", False)
        if module in self._adopted or half_imported or not self._is_namespace(alias):
            return
        own = found_so_far(module).get("__getattr__", _ABSENT)
        self._adopted[module] = own
        sys.modules.setdefault(alias, module)
        module.__getattr__ = self.getattr_for(module, alias, None if own is _ABSENT else own)  # type: ignore[method-assign]

    def _is_namespace(self, alias: str) -> bool:
        return alias != self.name and _missing.is_namespace("torch" + alias[len(self.name) :])

    def adopt_loaded(self) -> None:
        """Adopt what the package has imported by itself since last time."""
        prefix = self.package + "."
        for name, module in list(sys.modules.items()):
            if name.startswith(prefix) and isinstance(module, ModuleType) and module.__name__ == name:
                self.adopt(module)
        for home, names in self.renamed.items():
            module = sys.modules.get(home)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                for name in names:
                    self._rename(getattr(module, name), home)

    def _rename(self, named: Any, listed: str) -> None:
        if named not in self._own_homes:
            self._own_homes[named] = named.__module__
            home = named.__module__ if isinstance(named, type) else listed
            named.__module__ = self.name + home[len(self.package) :]

    def getattr_for(self, module: ModuleType, alias: str, own: _Getattr | None, shown: ModuleType | None = None) -> _Getattr:
        """The `__getattr__` of what the program calls `alias`: its own answer, a submodule, or an error.

        Args:
            own: how the names are found that `module` loads on first use.
            shown: the module whose names those are, where it is another.
        """
        documented = "torch" + alias[len(self.name) :]
        # Packages look for the same names again and again. Asking `own` and looking through folders would take most of the time;
        # what either finds later is an attribute by then.
        absent: set[str] = set()
        gained = found_so_far(module if shown is None else shown)

        def __getattr__(name: str) -> Any:
            if name in absent and name not in gained:
                raise _missing.attribute_error(documented, name, module)
            if name == "__path__":                    # which every ``from module import name`` asks for, also within functions
                if documented in self._packages or _missing.has_homes_below(documented):
                    return []                         # so Python imports what is below, which `find_spec` answers for
                raise AttributeError(f"module {alias!r} is not a package", name=name, obj=module)
            value = _ask(own, name) if own is not None else _ABSENT
            if value is _ABSENT:
                value = self._submodule_or_home(alias, name)
            if value is _ABSENT:
                if not getattr(module.__spec__, "_initializing", False):
                    absent.add(name)
                raise _missing.attribute_error(documented, name, module)
            if isinstance(value, ModuleType) and value.__name__.startswith(self.package + "."):
                self.adopt(value)
                self.adopt_loaded()
            return value

        return __getattr__

    def _submodule_or_home(self, alias: str, name: str) -> Any:
        home = self._home_of(alias)
        value = _ABSENT if home is None else self._look_in(importlib.import_module(home), name)
        if value is not _ABSENT:
            return value
        submodule = f"{alias}.{name}"
        if name.startswith("_") and not _missing.is_public("torch" + submodule[len(self.name) :]):
            return _ABSENT
        return _ABSENT if self._spec(submodule) is None else importlib.import_module(submodule)

    def _look_in(self, namespace: ModuleType, name: str) -> Any:
        """`namespace.name` without noting that it is missing."""
        own = self._adopted.get(namespace, found_so_far(namespace).get("__getattr__", _ABSENT))
        value = found_so_far(namespace).get(name, _ABSENT)
        return _ask(own, name) if value is _ABSENT and own is not _ABSENT else value

    def stand_in(self, module: ModuleType) -> None:
        """Answer for `module`, which the package does not have, from the namespace that offers its names."""
        self._stand_ins.append(module)
        module.__getattr__ = self.getattr_for(module, module.__name__, None)  # type: ignore[method-assign]
        home = self._home_of(module.__name__)
        if home is not None:
            module.__dir__ = lambda: sorted({*found_so_far(module), *dir(importlib.import_module(home))})  # type: ignore[method-assign]

    def _unbind(self, module: ModuleType) -> None:
        """Take a stand-in back out of the real parent that importing it was bound to."""
        parent, _, child = module.__name__.rpartition(".")
        holder = sys.modules.get(parent)
        if holder is not None and found_so_far(holder).get(child) is module:
            delattr(holder, child)


class _Loader(InspectLoader):
    """Loaders of modules without a source file of their own."""

    def get_source(self, fullname: str) -> str | None:
        return None


class _SameModuleLoader(_Loader):
    """`torch.nn` is the module object `flambeau.nn`."""

    def __init__(self, alias: Alias, real: str) -> None:
        self._alias, self._real = alias, real
        self._own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just stamped the alias's spec on a module that already had one.
        module.__spec__ = self._own_spec
        self._alias.adopt(module)
        self._alias.adopt_loaded()

    def get_code(self, fullname: str) -> CodeType | None:
        """For `python -m torch.x`, which runs the code of the real module."""
        return _inspectable(self._real).get_code(self._real)

    def get_source(self, fullname: str) -> str | None:
        return _inspectable(self._real).get_source(self._real)


class _FacadeLoader(_Loader):
    """`torch`: the names of the package, with a name and a version of its own."""

    def __init__(self, alias: Alias) -> None:
        self._alias = alias

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        alias = self._alias
        package = importlib.import_module(alias.package)
        from .. import _state  # not before the package is imported

        kept_out = _IDENTITY | alias.hidden | {"version", "torch_version"}
        module.__doc__ = package.__doc__
        module.__version__ = alias.version  # type: ignore[attr-defined]
        module.__dict__.update((key, value) for key, value in vars(package).items() if key not in kept_out)
        setattr(module, alias.name, module)           # ``torch.torch``, which is in annotations of programs
        _state.NAMESAKES.add(module)
        own = _forwarding(module, package, kept_out, alias.homes)
        module.__getattr__ = alias.getattr_for(module, alias.name, own, package)  # type: ignore[method-assign]
        module.__dir__ = lambda: sorted((set(dir(package)) - alias.hidden) | vars(module).keys())  # type: ignore[method-assign]
        alias.adopt_loaded()

    def get_resource_reader(self, fullname: str) -> Any:
        """For `importlib.resources.files("torch")`."""
        package = self._alias.package
        return _inspectable(package).get_resource_reader(package)


class _VersionLoader(_Loader):
    """`torch.version`: what the program may ask about the build."""

    def __init__(self, alias: Alias) -> None:
        self._alias = alias

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # Plain str, as PyTorch has it here.
        facts = {"__version__": str(self._alias.version), "debug": False, "git_version": "Unknown"}
        facts |= dict.fromkeys(("cuda", "hip", "rocm", "xpu"))
        module.__dict__.update(facts)


class _TorchVersionLoader(_Loader):
    """`torch.torch_version`: the type of `torch.__version__`."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.TorchVersion = TorchVersion  # type: ignore[attr-defined]


class _HomeLoader(_Loader):
    """A module of PyTorch's layout that stands in for the namespace offering its classes."""

    def __init__(self, alias: Alias) -> None:
        self._alias = alias

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._alias.stand_in(module)


def _spec_like(fullname: str, loader: _Loader, real: ModuleSpec | None) -> ModuleSpec | None:
    """A spec under another name that points to the same place."""
    if real is None:
        return None
    locations = real.submodule_search_locations
    spec = ModuleSpec(fullname, loader, origin=real.origin, is_package=locations is not None)
    if locations is not None:
        spec.submodule_search_locations = list(locations)
    spec.has_location = real.has_location
    return spec


def _inspectable(real: str) -> Any:
    spec = importlib.util.find_spec(real)
    if spec is None or not isinstance(spec.loader, InspectLoader):
        raise ImportError(f"{real} has no code to show", name=real)
    return spec.loader


def _forwarding(
    module: ModuleType, package: ModuleType, kept_out: frozenset[str], homes: Mapping[str, str]
) -> _Getattr:
    """Ask the package for what it loads on first use; keep what it keeps, so the next access is direct."""

    def forward(name: str) -> Any:
        if name in homes:
            found = getattr(importlib.import_module(homes[name]), name)
            vars(module)[name] = found
            return found
        if name in kept_out:
            raise AttributeError(name=name, obj=package)
        value = getattr(package, name)
        if name in vars(package):
            vars(module)[name] = value
        return value

    return forward


def _all_above(module: str) -> list[str]:
    """The names of all packages that `module` is in."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _ask(own: _Getattr, name: str) -> Any:
    try:
        return own(name)
    except AttributeError as error:
        # An AttributeError about something else is a bug inside a lazy import, and must be seen.
        if error.name not in (None, name):
            raise
        return _ABSENT


def _restore(module: ModuleType, own: Any) -> None:
    if own is _ABSENT:
        del module.__getattr__
    else:
        module.__getattr__ = own  # type: ignore[method-assign]


def _from_import_error(fullname: str, error: ModuleNotFoundError) -> ImportError:
    """What `from a import b` raises; a ModuleNotFoundError Python would swallow, to find words of its own."""
    owner, _, name = fullname.rpartition(".")
    reason = str(error).partition(": ")[2]
    return ImportError(f"cannot import name {name!r} from {owner!r}: {reason}", name=owner)


def _callers_in_import_machinery() -> set[str]:
    """Names of the functions of Python's import system between the asking line and `find_spec`."""
    names = set()
    frame = sys._getframe(3)
    while frame is not None and frame.f_code.co_filename == "<frozen importlib._bootstrap>":
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names
