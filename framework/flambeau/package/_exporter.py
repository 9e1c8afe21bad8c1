"""`PackageExporter`: writes code and objects into a package."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pickle
import platform
import shutil
import sys
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from flambeau import _arrays, _missing
from flambeau._files.archive import ArchiveWriter
from flambeau._files.storages import SavedStorage
from flambeau._files.torch_pickler import _Name, _name, _torch_name, _TorchPickler
from flambeau.autograd.tape import RemovableHandle
from flambeau.nn.modules.module import _HOOK_TABLES, Module
from flambeau.serialization import _atomic_file, _location_of

from ._dependencies import Graph, imported_modules
from ._glob import GlobGroup, GlobPattern
from ._importers import Importer, ObjMismatchError, ObjNotFoundError, OrderedImporter, demangled, sys_importer
from ._mock import MOCK_BASE, MOCK_MODULE
from ._package_importer import resource_path

__all__ = ["EmptyMatchError", "PackageExporter", "PackagingError"]

_FORMAT_VERSION = b"6\n"
# What the loading environment has anyway. The standard library's `sys` and `io` reach far into the process, so that a
# package has to say that it needs them.
_PROVIDED = frozenset(("torch", "flambeau", "flambeau_kernels", *sys.stdlib_module_names)) - {"sys", "io"}


class EmptyMatchError(Exception):
    """A pattern with ``allow_empty=False`` matched no module."""


class _Action(Enum):
    INTERN = "intern"
    EXTERN = "extern"
    MOCK = "mock"
    DENY = "deny"


class _Broken(Enum):
    """Why a module cannot be packaged."""

    C_EXTENSION = "Module is a C extension module. Packages hold Python source only: extern or mock it."
    NO_FILE = "Module had no __file__ defined."
    NO_SOURCE = "Module has no source in a file. Packages hold Python source only: extern or mock it."
    UNRESOLVED = "Dependency resolution failed."
    NO_ACTION = "Module did not match against any action pattern. Extern, mock, or intern it."
    DENIED = "Module was denied by a pattern."
    MOCKED_BUT_USED = (
        "Module was mocked out, but is still being used in the package. Please intern or extern the mocked modules if objects "
        "are supposed to be in the package."
    )


class PackagingError(Exception):
    """A package cannot be written; the message names every module in the way, with the reason.

    Args:
        dependency_graph: the graph of the package's modules.
        debug: say for each such module over which others it came into the package.
    """

    def __init__(self, dependency_graph: Any, debug: bool = False) -> None:
        self.dependency_graph = dependency_graph
        reasons: dict[_Broken, list[str]] = {}
        for name, facts in dependency_graph.nodes.items():
            if (broken := facts.get("broken")) is not None:
                reasons.setdefault(broken, []).append(name)
        lines = [""]
        for broken, names in reasons.items():
            lines.append(f"* {broken.value}")
            for name in names:
                lines += self._about(name, debug)
        if not debug:
            lines += ["", "Set debug=True when invoking PackageExporter to see how each of these modules came into the package."]
        super().__init__("\n".join(lines) + "\n")

    def _about(self, name: str, debug: bool) -> Iterator[str]:
        yield f"    {name}"
        if (context := self.dependency_graph.nodes[name].get("context")) is not None:
            yield f"      Context: {context}"
        if name in ("sys", "io"):
            yield (
                f"      Note: `{name}` is of the standard library, but reaches far into the process that loads a package; remove "
                f'it from your code or allow it with extern("{name}")'
            )
        if debug:
            yield f"      A path to {name}: {' -> '.join(self.dependency_graph.path_to(name))}"


class _Pattern(NamedTuple):
    group: GlobGroup
    action: _Action
    allow_empty: bool


_Hook = Callable[["PackageExporter", str], None]


class PackageExporter:
    """Writes code, pickled objects, texts and binary data into one archive, from which `PackageImporter` loads them.

    Every module that packaged code or objects need must be given an action by a pattern; of several patterns that match, the
    first counts: `intern` puts it into the package, `extern` leaves it to the environment that loads the package, `mock` puts
    a stub in its place, `deny` ends the export. PyTorch, Flambeau and the standard library (but `sys` and `io`) are external
    by themselves.

    The file appears when `close` has succeeded, or the ``with`` block has ended without an error; otherwise there is none.

    Args:
        f: a path, or a binary file object with `write`.
        importer: where modules are found, or several of such in the order in which they are asked.
        debug: let `PackagingError` say how modules came into the package.
    """

    def __init__(self, f: Any, importer: Importer | Sequence[Importer] = sys_importer, debug: bool = False) -> None:
        self.importer = importer if isinstance(importer, Importer) else OrderedImporter(*importer)
        self.debug = debug
        self.dependency_graph = Graph()
        self._patterns: list[_Pattern] = []
        self._matched: set[int] = set()
        self._hooks: dict[_Action, dict[int, _Hook]] = {action: {} for action in _Action}
        self._ids = 0
        self._reduced: dict[int, tuple[Any, Any]] = {}
        self._storages: dict[Any, SavedStorage] = {}
        self._open_file = contextlib.ExitStack()
        file, folder = self._open_file.enter_context(_target(f))
        self._archive: ArchiveWriter | None = ArchiveWriter(file, folder)
        self._written: set[str] = set()

    @functools.cached_property
    def _scripts(self) -> Any:
        from flambeau.jit._packaged import PackagedScripts

        return PackagedScripts(self._write, self._kept)

    # -- actions

    def intern(self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True) -> None:
        """Let modules that match be put into the package.

        Args:
            include: a pattern or several; ``"a.**"`` is `a` and all in it, ``"a.*"`` only what is directly in it.
            exclude: patterns of modules that are not meant.
            allow_empty: False raises EmptyMatchError at the end if no module matched.
        """
        self._act(_Action.INTERN, include, exclude, allow_empty)

    def extern(self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True) -> None:
        """Let modules that match be imported from the environment that loads the package.

        Args:
            include, exclude, allow_empty: as for `intern`.
        """
        self._act(_Action.EXTERN, include, exclude, allow_empty)

    def mock(self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True) -> None:
        """Let a stub stand for modules that match: names can be imported from it, but any use of them raises NotImplementedError.

        Args:
            include, exclude, allow_empty: as for `intern`.
        """
        self._act(_Action.MOCK, include, exclude, allow_empty)

    def deny(self, include: GlobPattern, *, exclude: GlobPattern = ()) -> None:
        """Let the export fail if a module that matches is needed.

        Args:
            include, exclude: as for `intern`.
        """
        self._act(_Action.DENY, include, exclude, allow_empty=True)

    def _act(self, action: _Action, include: GlobPattern, exclude: GlobPattern, allow_empty: bool) -> None:
        self._need_open(action.value)
        self._patterns.append(_Pattern(GlobGroup(include, exclude=exclude), action, allow_empty))

    def register_intern_hook(self, hook: _Hook) -> RemovableHandle:
        """Call ``hook(exporter, module_name)`` for each module that is put into the package. Returns: a handle with `remove`."""
        return self._hook(_Action.INTERN, hook)

    def register_extern_hook(self, hook: _Hook) -> RemovableHandle:
        """Call ``hook(exporter, module_name)`` for each module that stays external. Returns: a handle with `remove`."""
        return self._hook(_Action.EXTERN, hook)

    def register_mock_hook(self, hook: _Hook) -> RemovableHandle:
        """Call ``hook(exporter, module_name)`` for each module that a stub stands for. Returns: a handle with `remove`."""
        return self._hook(_Action.MOCK, hook)

    def _hook(self, action: _Action, hook: _Hook) -> RemovableHandle:
        handle = RemovableHandle(self._hooks[action])
        self._hooks[action][handle.id] = hook
        return handle

    # -- what is put in

    def save_text(self, package: str, resource: str, text: str) -> None:
        """Save `text` as `resource` of `package`.

        Args:
            package: name of the module that it belongs to, which need not exist.
            resource: name of the file.
            text: what to save, as UTF-8.
        Raises: ValueError for names that are paths; AssertionError if there is such a file already.
        """
        if not isinstance(text, str):
            raise AttributeError(f"save_text: text must be a str, got {type(text).__name__}; save_binary takes bytes")
        self.save_binary(package, resource, text.encode("utf-8"))

    def save_binary(self, package: str, resource: str, binary: Any) -> None:
        """Save the bytes `binary` as `resource` of `package`.

        Args:
            package, resource: as for `save_text`.
            binary: bytes, or text that is written as UTF-8.
        Raises: as `save_text`.
        """
        self._need_open("save_binary")
        self._write(resource_path(package, resource), binary.encode("utf-8") if isinstance(binary, str) else binary)

    def save_pickle(self, package: str, resource: str, obj: Any, dependencies: bool = True, pickle_protocol: int = 3) -> None:
        """Save `obj`, with all tensors in it, as `resource` of `package`, and the modules that loading it needs.

        Memory that tensors share is written once for all pickles of the package, unless it has changed in between.

        Args:
            package, resource: as for `save_text`.
            obj: any object that can be pickled. One with a method ``__reduce_package__(exporter)`` is replaced by the
                function and arguments that this returns, called as ``function(importer, *arguments)`` when it is loaded.
            dependencies: whether modules of classes and functions in it go through the patterns.
            pickle_protocol: 3 is what PyTorch writes.
        Raises: pickle.PicklingError for an object that the importers do not find under its name.
        """
        self._need_open("save_pickle")
        path = resource_path(package, resource)
        self._refuse_twice(path)
        out = io.BytesIO()
        pickler = _PackagePickler(self, out, pickle_protocol)
        pickler.dump(obj)
        for storage in pickler.fresh:
            self._write(f".data/{storage.key}.storage", storage.host_bytes())
        self._write(path, out.getvalue())
        if dependencies:
            self._add_pickle(f"<{package}.{resource}>", path, pickler.names)

    def _add_pickle(self, node: str, path: str, names: dict[str, dict[str, None]]) -> None:
        self.dependency_graph.add(node, action=None)
        for module, used in names.items():
            self.dependency_graph.connect(node, module)
            self.add_dependency(module)
            if self.dependency_graph.nodes[module].get("action") is _Action.MOCK:
                self._break(
                    module, _Broken.MOCKED_BUT_USED,
                    f"Object(s) {list(used)} from module `{module}` was mocked out during packaging but is being used in the "
                    f"resource {path}",
                )  # fmt: skip

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """Save the source of the module `module_name`, found by the importers.

        Args:
            module_name: its full name.
            dependencies: whether the modules it imports go through the patterns.
        Raises: TypeError if `module_name` is no str; ModuleNotFoundError if there is no such module.
        """
        self._need_open("save_module")
        if not isinstance(module_name, str):
            raise TypeError("save_module() expects a string input, did you perhaps mean to pass `__name__`?")
        self._intern(module_name, dependencies)

    def save_source_file(self, module_name: str, file_or_directory: str, dependencies: bool = True) -> None:
        """Save a file, or all Python files below a folder, as the source of `module_name`.

        Args:
            module_name: the name it gets in the package.
            file_or_directory: where it is; a file ``__init__.py`` makes a module that has others inside.
            dependencies: whether the modules it imports go through the patterns.
        Raises: FileNotFoundError if there is nothing.
        """
        self._need_open("save_source_file")
        at = os.fspath(file_or_directory)
        if not os.path.isdir(at):
            with open(at, encoding="utf-8") as file:
                text = file.read()
            self.save_source_string(module_name, text, os.path.basename(at) == "__init__.py", dependencies)
            return
        for folder, below, names in os.walk(at):
            below.sort()
            inside = [part for part in os.path.relpath(folder, at).split(os.sep) if part != "."]
            for name in sorted(names):
                stem, ending = os.path.splitext(name)
                if ending == ".py":
                    parts = [module_name, *inside, *([] if stem == "__init__" else [stem])]
                    self.save_source_file(".".join(parts), os.path.join(folder, name), dependencies)

    def save_source_string(self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True) -> None:
        """Save the text `src` as the source of `module_name`, in place of any that was saved before.

        Args:
            module_name: the name it gets in the package.
            src: Python.
            is_package: whether the module may have others inside.
            dependencies: whether the modules it imports go through the patterns.
        """
        self._need_open("save_source_string")
        resource_path(module_name, "__init__.py")  # the name must be one
        self.dependency_graph.nodes.pop(module_name, None)
        self.dependency_graph.add(module_name, action=_Action.INTERN, source=src, is_package=is_package)
        if dependencies:
            self._follow(module_name, src, is_package)

    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Let the module `module_name` go through the patterns, as if code of the package imported it.

        Args:
            module_name: its full name.
            dependencies: whether the modules that it imports follow, if it is put into the package.
        """
        self._need_open("add_dependency")
        if "action" in self.dependency_graph.nodes.get(module_name, ()):
            return
        if module_name.partition(".")[0] in _PROVIDED:
            self.dependency_graph.add(module_name, action=_Action.EXTERN)
            return
        for pattern in self._patterns:
            if pattern.group.matches(module_name):
                self._matched.add(id(pattern.group))
                self._apply(pattern.action, module_name, dependencies)
                return
        self._break(module_name, _Broken.NO_ACTION)

    def _apply(self, action: _Action, module_name: str, dependencies: bool) -> None:
        if action is _Action.INTERN:
            self._intern(module_name, dependencies)
            return
        self.dependency_graph.add(module_name, action=action)
        if action is _Action.DENY:
            self._break(module_name, _Broken.DENIED)

    def _intern(self, module_name: str, dependencies: bool) -> None:
        module = self.importer.import_module(module_name)
        self.dependency_graph.add(module_name, action=_Action.INTERN)
        source = self._source_of(module_name, module)
        if isinstance(source, _Broken):
            self._break(module_name, source)
        else:
            self.save_source_string(module_name, source, hasattr(module, "__path__"), dependencies)

    def _source_of(self, module_name: str, module: Any) -> str | _Broken:
        file = getattr(module, "__file__", None)
        loader = getattr(module, "__loader__", None)
        if file is None:
            # A folder without __init__.py is a module without source, and the same in a package.
            return "" if hasattr(module, "__path__") else _Broken.C_EXTENSION if _is_builtin(module) else _Broken.NO_FILE
        if not file.endswith((".py", ".pyc")):
            return _Broken.C_EXTENSION
        try:
            if loader is not None and hasattr(loader, "get_source"):
                found = loader.get_source(module.__name__)
                if found is not None:
                    return found
            with open(file, encoding="utf-8") as opened:
                return opened.read()
        except (ImportError, OSError, UnicodeDecodeError):
            return _Broken.NO_SOURCE

    def _follow(self, module_name: str, source: str, is_package: bool) -> None:
        try:
            names = imported_modules(source, module_name, is_package, self.importer.has_module)
        except (SyntaxError, ImportError) as error:
            self._break(module_name, _Broken.UNRESOLVED, str(error))
            return
        for name in names:
            self.dependency_graph.connect(module_name, name)
            try:
                self.add_dependency(name)
            except Exception as error:  # the module's own code runs here, and may raise anything
                self._break(name, _Broken.UNRESOLVED, f"importing it raised {type(error).__name__}: {error}")

    def _break(self, module_name: str, why: _Broken, context: str | None = None) -> None:
        self.dependency_graph.add(module_name, broken=why, context=context)

    def get_unique_id(self) -> str:
        """A text that no other call of this exporter returns: '0', '1', ..."""
        made = str(self._ids)
        self._ids += 1
        return made

    # -- questions

    def dependency_graph_string(self) -> str:
        """All dependencies in the language of Graphviz."""
        return self.dependency_graph.dot()

    def all_paths(self, src: str, dst: str) -> str:
        """All ways over which module `src` depends on `dst`, in the language of Graphviz.

        Raises: ValueError if one of them is not in the graph.
        """
        for name in (src, dst):
            if name not in self.dependency_graph:
                raise ValueError(f"The node {name} is not in the digraph.")
        return self.dependency_graph.between(src, dst).dot()

    def get_rdeps(self, module_name: str) -> list[str]:
        """The modules and pickles (in angle brackets) that depend on `module_name` directly; none if it is unknown."""
        return self.dependency_graph.before(module_name)

    def externed_modules(self) -> list[str]:
        """The modules that are external so far, sorted."""
        return self._with(_Action.EXTERN)

    def interned_modules(self) -> list[str]:
        """The modules that are put into the package so far, sorted."""
        return self._with(_Action.INTERN)

    def mocked_modules(self) -> list[str]:
        """The modules that stubs stand for so far, sorted."""
        return self._with(_Action.MOCK)

    def denied_modules(self) -> list[str]:
        """The modules that were denied so far, sorted."""
        return self._with(_Action.DENY)

    def _with(self, action: _Action) -> list[str]:
        return sorted(name for name, facts in self.dependency_graph.nodes.items() if facts.get("action") is action)

    # -- the end

    def close(self) -> None:
        """Write the package. A second call does nothing.

        Raises: PackagingError if modules are in the way; EmptyMatchError if a pattern with ``allow_empty=False`` matched
            nothing. No file is left then.
        """
        if self._archive is None:
            return
        try:
            self._finish()
        except BaseException:
            self._abandon(*sys.exc_info())
            raise
        self._archive = None
        self._open_file.close()

    def __enter__(self) -> PackageExporter:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon(kind, error, traceback)

    def _abandon(self, *error: Any) -> None:
        self._archive = None
        with contextlib.suppress(BaseException):  # it is raised by the caller
            self._open_file.__exit__(*error)

    def _finish(self) -> None:
        for pattern in self._patterns:
            if not pattern.allow_empty and id(pattern.group) not in self._matched:
                raise EmptyMatchError(f"Exporter did not match any modules to {pattern.group}, which was marked as allow_empty=False")
        if any(facts.get("broken") for facts in self.dependency_graph.nodes.values()):
            raise PackagingError(self.dependency_graph, self.debug)
        for name, facts in list(self.dependency_graph.nodes.items()):
            if facts.get("action") is None:
                continue
            for hook in list(self._hooks[facts["action"]].values()):
                hook(self, name)
            self._write_module(name, facts)
        externs = [name for name, facts in self.dependency_graph.nodes.items() if facts.get("action") is _Action.EXTERN]
        if "_scripts" in self.__dict__:
            self._scripts.finish()
        self._write(".data/extern_modules", ("\n".join(externs) + "\n").encode())
        self._write(".data/python_version", platform.python_version().encode())
        self._write(".data/version", _FORMAT_VERSION)
        self._write("byteorder", sys.byteorder.encode())
        assert self._archive is not None
        self._archive.close()

    def _write_module(self, name: str, facts: dict[str, Any]) -> None:
        if facts["action"] is _Action.INTERN:
            self._write_source(name, facts["source"], facts["is_package"])
        elif facts["action"] is _Action.MOCK:
            if "_mock.py" not in self._written:
                self._write("_mock.py", MOCK_BASE.encode())
            self._write_source(name, MOCK_MODULE, self._is_package(name))

    def _is_package(self, name: str) -> bool:
        if any(other.startswith(name + ".") for other in self.dependency_graph.nodes):
            return True
        try:
            return hasattr(self.importer.import_module(name), "__path__")
        except Exception:  # a module that cannot be imported here is often why it is mocked
            return False

    def _write_source(self, name: str, source: str, is_package: bool) -> None:
        path = name.replace(".", "/")
        self._write(f"{path}/__init__.py" if is_package else f"{path}.py", source.encode("utf-8"))

    def _write(self, path: str, data: Any) -> None:
        self._refuse_twice(path)
        assert self._archive is not None
        self._archive.add(path, data)
        self._written.add(path)

    def _refuse_twice(self, path: str) -> None:
        if path in self._written:
            raise AssertionError(f"Tried to write file '{path}', but it already exists in this archive; give it another name")

    def _need_open(self, what: str) -> None:
        if self._archive is None:
            raise RuntimeError(f"PackageExporter.{what}: the package is closed; make another exporter")

    # -- for pickles

    def _kept(self, buffer: Any, kind: Any, location: str) -> tuple[SavedStorage, bool]:
        """The storage of this memory with its present bytes, and whether it has yet to be written."""
        made = SavedStorage(str(len(self._storages)), buffer, kind, location)
        # The checksum tells memory that was changed, in place, since an earlier pickle.
        content = zlib.crc32(made.host_bytes()) if made.nbytes else 0
        key = (location, _arrays.address(buffer) if made.nbytes else id(buffer), made.nbytes, kind, content)
        found = self._storages.setdefault(key, made)
        return found, found is made

    def _reduce(self, obj: Any) -> Any:
        """The reference to an object that packages itself, which does so once."""
        if id(obj) not in self._reduced:
            # The object is kept as well, so that its id stays its own.
            self._reduced[id(obj)] = obj, ("reduce_package", id(obj), *obj.__reduce_package__(self))
        return self._reduced[id(obj)][1]


def _is_builtin(module: Any) -> bool:
    return isinstance(module, ModuleType) and module.__name__ in sys.builtin_module_names


@contextlib.contextmanager
def _target(f: Any) -> Iterator[tuple[Any, str]]:
    """A file to write to, of which `f` gets all or nothing, and the name of the archive's folder."""
    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        with _atomic_file(path) as file:
            yield file, os.path.splitext(os.path.basename(path))[0] or "archive"
        return
    if not hasattr(f, "write"):
        raise AttributeError(f"PackageExporter: expected a path or a file object with a write method, got {type(f).__name__}")
    with tempfile.TemporaryFile() as file:
        yield file, "archive"
        file.seek(0)
        shutil.copyfileobj(file, f)


class _PackagePickler(_TorchPickler):
    """Writes objects by the names that the exporter's importers know, and notes these."""

    def __init__(self, exporter: PackageExporter, file: Any, protocol: int) -> None:
        super().__init__(file, protocol, _location_of, legacy=False)
        self._exporter = exporter
        self.names: dict[str, dict[str, None]] = {}  # what is used of each module
        self.fresh: list[SavedStorage] = []  # not in the package yet

    # Python's pickler finds its own method by the class of a function; this one has a say in names.
    dispatch = {**_TorchPickler.dispatch, FunctionType: lambda self, obj: self.save_global(obj)}

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Module) or type(obj).__reduce_ex__ is not object.__reduce_ex__:
            return super().reducer_override(obj)
        reduced = obj.__reduce_ex__(self.proto)
        if not isinstance(reduced, tuple) or len(reduced) < 3 or not isinstance(reduced[2], dict):
            return reduced
        # A module here has a table of hooks as soon as it has a hook; PyTorch's has all of them from the start.
        tables = {name: OrderedDict() for name in sorted(_HOOK_TABLES)}
        return (*reduced[:2], {**tables, "_is_full_backward_hook": None, **reduced[2]}, *reduced[3:])

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, type) and hasattr(type(obj), "__reduce_package__"):
            return self._exporter._reduce(obj)
        reference = super().persistent_id(obj)
        if reference is None:
            return None
        what, kind, key, *rest = reference
        return (what, kind, int(key), *rest)

    def _new_storage(self, buffer: Any, kind: Any, location: str) -> SavedStorage:
        storage, is_new = self._exporter._kept(buffer, kind, location)
        if is_new:
            self.fresh.append(storage)
        return storage

    def save_global(self, obj: Any, name: str | None = None) -> None:
        known = obj if isinstance(obj, _Name) else _torch_name(obj)
        if known is None:
            module, qualified = self._found(obj, name)
            owner, _, last = qualified.rpartition(".")
            if owner and self.proto < 4:
                # Names with dots came with protocol 4; before, an attribute is asked of what has it.
                above: Any = self._exporter.importer.import_module(module)
                for part in owner.split("."):
                    above = getattr(above, part)
                self.save_reduce(getattr, (above, last), obj=obj)
                return
            known = _name(_torch_home(module), qualified)
        self._write_global(obj, known)

    def _found(self, obj: Any, name: str | None) -> tuple[str, str]:
        try:
            return self._exporter.importer.get_name(obj, name)
        except (ObjNotFoundError, ObjMismatchError) as error:
            raise pickle.PicklingError(f"Can't pickle {obj!r}: {error}") from error

    def _write_global(self, obj: Any, known: _Name) -> None:
        self.names.setdefault(known.module, {})[known.name] = None
        super()._write_global(obj, known)


def _torch_home(module: str) -> str:
    """PyTorch's name of a module of ours that it has as well; any other name as it is."""
    top, dot, rest = demangled(module).partition(".")
    theirs = f"torch{dot}{rest}"
    return theirs if top == "flambeau" and _missing.is_namespace(theirs) else f"{top}{dot}{rest}"
