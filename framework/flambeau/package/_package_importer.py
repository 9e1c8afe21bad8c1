"""`PackageImporter`: modules and objects of a package, apart from those that are installed."""

from __future__ import annotations

import builtins
import importlib
import io
import itertools
import linecache
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from flambeau import _missing
from flambeau._files.pickle_machine import UnpicklingError
from flambeau._files.torch_globals import TorchPolicy, UnsafeUnpickler, attribute
from flambeau.serialization import Placement

from ._directory import Directory, file_tree
from ._glob import GlobPattern
from ._importers import Importer, demangled, package_name
from ._reader import PackageStorages, open_package

__all__ = ["PackageImporter"]

_numbers = itertools.count()
# Any code may use these, whatever a package lists: what it was made for, and what arrays are made of.
_ALWAYS_EXTERN = ("torch", "flambeau", "flambeau_kernels", "numpy")
_ITSELF = "torch_package_importer"
_ORIGIN = "<package_importer>"


class PackageImporter(Importer):
    """Loads what `PackageExporter`, or PyTorch's, wrote.

    Opening a package reads it and runs nothing. `load_text`, `load_binary` and ``load_pickle(..., allow_code=False)`` run
    nothing either. `import_module` and `load_pickle` run code of the package, as their purpose is, with all that this process
    may do: a package is a program.

    Modules of a package are found in the package, and are others than installed ones of the same names. They may import each
    other, modules that the package lists as external, and PyTorch, which is Flambeau here. Their names start with
    ``<torch_package_0>``, the number of the package.

    Args:
        file_or_buffer: a path to an archive or to the folder it was unpacked to, or a file object that can be read and searched.
        module_allowed: answers whether a module that the package lists as external may be imported.
    Raises: RuntimeError if it is no package or damaged; ImportError if it lists a module that is not allowed.
    """

    def __init__(self, file_or_buffer: Any, module_allowed: Callable[[str], bool] = lambda module_name: True) -> None:
        self._reader, self.filename = open_package(file_or_buffer)
        self._files = dict.fromkeys(self._reader.files)
        self.extern_modules = self._text(".data/extern_modules").split()
        for name in self.extern_modules:
            if not module_allowed(name):
                raise ImportError(f"package {self.filename!r} needs the external module {name!r} but that module has been disallowed")
        self._name = package_name(next(_numbers))
        self._sources, self._folders = _code_of(self._files)
        self._lock = threading.RLock()
        self._storages: Any = None                    # of the pickle that is being loaded
        self.modules: dict[str, Any] = {_ITSELF: self}
        # Packaged code imports through this importer, which is all that keeps it apart.
        self._builtins = {**vars(builtins), "__import__": self.__import__}

    # -- what is in it

    def id(self) -> str:
        """What tells this importer from others, such as ``<torch_package_0>``."""
        return self._name

    def file_structure(self, *, include: GlobPattern = "**", exclude: GlobPattern = ()) -> Directory:
        """The files of the package that match, as a tree.

        Args:
            include: a pattern of paths or several, as ``"**/*.py"``.
            exclude: patterns of paths to leave out.
        """
        return file_tree(self.filename, self._files, include, exclude)

    def python_version(self) -> str | None:
        """The version of Python that wrote the package, such as ``3.11.7``; None if it does not say."""
        return self._text(".data/python_version").strip() if ".data/python_version" in self._files else None

    def load_binary(self, package: str, resource: str) -> bytes:
        """The bytes of `resource` in `package`. Raises: RuntimeError if there is no such resource; ValueError for a path."""
        return self._bytes(resource_path(package, resource))

    def load_text(self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The text of `resource` in `package`.

        Args:
            package, resource: as for `load_binary`.
            encoding, errors: as for `bytes.decode`.
        Raises: RuntimeError if there is no such resource; UnicodeDecodeError if it is no such text.
        """
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package: str, resource: str, map_location: Any = None, *, allow_code: bool = True) -> Any:
        """The object that was saved as `resource` in `package`.

        This runs code: that of the modules which the object's classes are in, and whatever the pickle calls. Do so only with
        packages you would run as a program.

        Args:
            package, resource: as for `load_binary`.
            map_location: where tensors go, as for `load`.
            allow_code: False reads tensors, numbers, text and containers alone, as `load` does, and runs nothing.
        Raises: RuntimeError if there is no such resource, or the package is damaged; ModuleNotFoundError for a class of a
            module that is neither in the package nor external; pickle.UnpicklingError for anything but data where
            `allow_code` is False.
        """
        data = self._bytes(resource_path(package, resource))
        storages = PackageStorages(self._reader, Placement(map_location), self._swaps_bytes())
        before, self._storages = self._storages, storages
        try:
            if allow_code:
                return _Unpickler(self, data, storages).load()
            from flambeau._files import pickle_machine

            return pickle_machine.run(data, _DataPolicy(storages, {}, self))[0]
        finally:
            self._storages = before

    def _script(self, number: str) -> Any:
        """The script of a number, whose tensors lie in the storages of the pickle that is being loaded."""
        from flambeau.jit._packaged import packaged_script

        return packaged_script(number, lambda path: self._bytes(path) if path in self._files else None, self._storages)

    def _bytes(self, path: str) -> bytes:
        if path not in self._files:
            raise RuntimeError(f"PackageImporter: {self.filename} has no file {path}; file_structure() lists those it has")
        return self._reader.read(path).tobytes()

    def _text(self, path: str) -> str:
        return self._bytes(path).decode()

    def _swaps_bytes(self) -> bool:
        if "byteorder" not in self._files:
            return False
        order = self._text("byteorder")
        if order not in ("little", "big"):
            raise RuntimeError(f"PackageImporter: the byte order of {self.filename} is {order!r}, expected 'little' or 'big'")
        return order != sys.byteorder

    # -- modules

    def import_module(self, name: str, package: Any = None) -> Any:
        """The module `name`, which runs its code the first time.

        Args:
            name: its full name in the package.
            package: not used; it is here because `importlib.import_module` has it.
        Raises: ModuleNotFoundError if it is neither in the package nor one the package lists as external.
        """
        if not isinstance(name, str):
            raise TypeError(f"import_module: name must be a str, got {type(name).__name__}")
        if not name:
            raise ValueError("Empty module name")
        with self._lock:
            return self._find(name)

    def has_module(self, module_name: str) -> bool:
        """Whether the package has it or lists it as external. Nothing is imported to find out."""
        return self._has(module_name) or self._is_extern(module_name)

    def get_source(self, module_name: str) -> str:
        """The source of a module of the package. Raises: ImportError if it has none."""
        module_name = demangled(module_name)
        path = self._sources.get(module_name)
        if path is None:
            raise ImportError(f"PackageImporter: {self.filename} has no source of {module_name!r}", name=module_name)
        return self._text(path)

    def get_resource_reader(self, fullname: str) -> Any:
        """What `importlib.resources` reads the files beside a module with; None for what is no folder of the package."""
        name = demangled(fullname)
        return _Resources(self, name) if name in self._folders else None

    def _modules(self) -> dict[str, Any]:
        return self.modules

    def _has(self, name: str) -> bool:
        return name in self._sources or name in self._folders or name == _ITSELF

    def _is_extern(self, name: str) -> bool:
        above = {name, *(name[:at] for at, letter in enumerate(name) if letter == ".")}
        if above & {*self.extern_modules, *_ALWAYS_EXTERN}:
            return True
        return any(extern.startswith(name + ".") for extern in self.extern_modules)

    def _find(self, name: str) -> Any:
        if name in self.modules:
            return self.modules[name]
        parent, _, last = name.rpartition(".")
        if parent:
            above = self._find(parent)
            if name in self.modules:
                return self.modules[name]
            if self._has(parent) and not hasattr(above, "__path__"):
                raise ModuleNotFoundError(f"No module named {name!r} in {self.filename!r}: {parent!r} is not a package", name=name)
        if self._has(name):
            module = self._make(name)
            if parent:
                setattr(self.modules[parent], last, module)
            return module
        if self._is_extern(name):
            module = self.modules[name] = _outside(name)
            return module
        raise ModuleNotFoundError(
            f"No module named {name!r} in self-contained archive {self.filename!r}, and the module is also not in the list of "
            f"allowed external modules: {self.extern_modules}",
            name=name,
        )

    def _make(self, name: str) -> ModuleType:
        source_path = self._sources.get(name)
        is_package = name in self._folders
        spec = ModuleSpec(name, self, origin=_ORIGIN, is_package=is_package)  # type: ignore[arg-type]
        module = ModuleType(f"{self._name}.{name}")
        scope = vars(module)
        scope.update(
            __spec__=spec, __loader__=self, __builtins__=self._builtins, __torch_package__=True, __cached__=None,
            __package__=name if is_package else name.rpartition(".")[0],
            __file__=None if source_path is None else f"{self._name}.{source_path}",
        )  # fmt: skip
        if is_package:
            module.__path__ = []
        self.modules[name] = module
        if source_path is None:
            return module
        source, file = self._text(source_path), f"{self._name}.{source_path}"
        # So that tracebacks and `inspect.getsource` show the lines.
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        try:
            exec(compile(source, file, "exec", dont_inherit=True), scope)
        except BaseException:
            del self.modules[name]
            raise
        return self.modules[name]

    def __import__(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """`import` in packaged code."""
        with self._lock:
            if level:
                package = (globals or {}).get("__package__") or ""
                above = package.rsplit(".", level - 1)
                if not package or len(above) < level:
                    raise ImportError("attempted relative import beyond top-level package")
                name = f"{above[0]}.{name}" if name else above[0]
            module = self.import_module(name)
            if not fromlist:
                return module if level else self._find(name.partition(".")[0])
            self._import_below(name, module, fromlist)
            return module

    def _import_below(self, name: str, module: Any, wanted: Any) -> None:
        """Import those of the names in a ``from`` that are modules not yet imported."""
        if not hasattr(module, "__path__"):
            return
        for each in wanted:
            if each == "*":
                self._import_below(name, module, getattr(module, "__all__", ()))
            elif not hasattr(module, each) and self.has_module(f"{name}.{each}"):
                try:
                    self._find(f"{name}.{each}")
                except ModuleNotFoundError as error:
                    # Python then says that the name cannot be imported; anything missing inside the module is another matter.
                    if error.name != f"{name}.{each}":
                        raise


def resource_path(package: str, resource: str) -> str:
    """Where `resource` of `package` is in the archive. Raises: ValueError for names that are no plain names."""
    for what, name in (("package", package), ("resource", resource)):
        if not isinstance(name, str):
            raise TypeError(f"{what} must be a str, got {type(name).__name__}")
    if not resource or "/" in resource or "\\" in resource or "\0" in resource or resource in (".", ".."):
        raise ValueError(f"{resource!r} must be only a file name")
    if any(not part or "/" in part or "\\" in part or "\0" in part for part in package.split(".")):
        raise ValueError(f"{package!r} must be the name of a package: parts with dots between them")
    return f"{package.replace('.', '/')}/{resource}"


def _code_of(files: Any) -> tuple[dict[str, str], set[str]]:
    """The source files by module, and the modules that may have others inside."""
    sources: dict[str, str] = {}
    folders: set[str] = set()
    for path in files:
        *above, file = path.split("/")
        if not above or above[0] == ".data":
            if file.endswith(".py") and not above:
                sources[file[:-3]] = path
            continue
        folders.update(".".join(above[:n]) for n in range(1, len(above) + 1))
        if file == "__init__.py":
            sources[".".join(above)] = path
        elif file.endswith(".py"):
            sources.setdefault(".".join((*above, file[:-3])), path)
    return sources, folders


def _outside(name: str) -> Any:
    """An external module: one of Python's environment, and Flambeau's where a package says PyTorch's."""
    top, dot, rest = name.partition(".")
    swap = sys.modules.get("flambeau.swap")
    if top != "torch" or (swap is not None and swap.installed()):
        return importlib.import_module(name)
    home = _missing.home_of(name)
    for ours in (f"flambeau{dot}{rest}", None if home is None else "flambeau" + home[len("torch") :]):
        if ours is None:
            continue
        try:
            return importlib.import_module(ours)
        except ModuleNotFoundError as error:
            if not f"{ours}.".startswith(f"{error.name}."):
                raise
    raise _missing.module_error(name)


class _Unpickler(UnsafeUnpickler):
    """Makes an object of a package: classes come from the package's modules, tensors from its storages."""

    def __init__(self, importer: PackageImporter, data: bytes, storages: PackageStorages) -> None:
        super().__init__(data, storages)
        self._importer = importer
        self._made: dict[Any, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        module = demangled(module)
        if module.partition(".")[0] == "torch" and not self._importer._has(module):
            return super().find_class(module, name)
        return attribute(self._importer.import_module(module), name)

    def persistent_load(self, pid: Any) -> Any:
        kind = pid[0] if isinstance(pid, tuple) and pid else None
        if kind == "reduce_package" and len(pid) == 4:
            _, key, function, args = pid
            if key not in self._made:
                self._made[key] = function(self._importer, *args)
            return self._made[key]
        if kind != "storage":
            raise UnpicklingError(
                f"load_pickle: the pickle refers to something outside of kind {kind!r}; storages and objects with "
                "__reduce_package__ are known"
            )
        return super().persistent_load(pid)


_SCRIPT = object()                                    # stands for the function that makes a script


class _DataPolicy(TorchPolicy):
    """Data only, and scripts, which run nothing when they are loaded: what a package's own code would make is refused."""

    def __init__(self, storages: Any, globals_: Any, importer: PackageImporter) -> None:
        super().__init__(storages, globals_)
        self._importer = importer
        self._made: dict[Any, Any] = {}

    def find_global(self, module: str, name: str) -> Any:
        return _SCRIPT if (module, name) == ("torch.jit._script", "unpackage_script_module") else super().find_global(module, name)

    def persistent(self, key: Any) -> Any:
        if isinstance(key, tuple) and key and key[0] == "reduce_package":
            if len(key) == 4 and key[2] is _SCRIPT and isinstance(key[3], tuple) and [type(x) for x in key[3]] == [str]:
                if key[1] not in self._made:
                    self._made[key[1]] = self._importer._script(*key[3])
                return self._made[key[1]]
            raise UnpicklingError("load_pickle: the object is made by code of the package, which allow_code=False forbids")
        return super().persistent(key)


class _Resources:
    """The files of one folder of a package, as `importlib.resources` asks for them."""

    def __init__(self, importer: PackageImporter, name: str) -> None:
        self._importer, self._package = importer, name
        self._folder = name.replace(".", "/") + "/"

    def open_resource(self, resource: str) -> io.BytesIO:
        return io.BytesIO(self._importer.load_binary(self._package, resource))

    def resource_path(self, resource: str) -> Any:
        # The contract for what is in no file system.
        raise FileNotFoundError(f"{resource} of {self._package} is inside {self._importer.filename}")

    def is_resource(self, name: str) -> bool:
        return self._folder + name in self._importer._files

    def contents(self) -> Any:
        inside = (f[len(self._folder) :] for f in self._importer._files if f.startswith(self._folder))
        yield from dict.fromkeys(name.partition("/")[0] for name in inside)


