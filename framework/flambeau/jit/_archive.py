"""Archives of scripts: what `jit.save` writes and `jit.load` reads, PyTorch's own included.

An archive is a zip file: the module's attributes as a pickle that refers to storages (``data.pkl``, ``data/0`` ...), the tensors among
the code's constants (``constants.pkl``), and the code as text (``code/__torch__.py`` ...). Nothing in it is run as Python: the pickle by
a machine that knows what it may make, the code by the compiler of scripts.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import zipfile
from typing import Any

import numpy as np

from .._files import pickle_machine
from .._files.archive import ArchiveWriter
from .._files.storages import _Storages
from .._files.torch_globals import TorchPolicy
from .._files.torch_pickler import _name, _TorchPickler
from ..nn.parameter import Parameter
from ..tensor import Tensor
from ._ir import Function
from ._ir import Parameter as ScriptParameter
from ._modules import RecursiveScriptModule
from ._print import Constants, class_text, function_text
from ._text import Library
from ._types import ClassType, EnumType, NamedTupleType, text_of, type_of_value

__all__ = ["Code", "ScriptPickler", "load", "made_of", "save"]

# The newest of PyTorch 2.7: operators mean in the code what they mean today.
_VERSION = b"10\n"


# -- reading -------------------------------------------------------------------------------------------------------------


class _ZipStorages(_Storages):
    """The storages of an archive in one of its folders."""

    def __init__(self, archive: _Archive, folder: str, placement: Any) -> None:
        super().__init__(placement, archive.swaps_bytes())
        self._archive, self._folder = archive, folder

    def _size(self, key: str) -> int:
        return self._archive.zip.getinfo(f"{self._archive.folder}/{self._folder}/{key}").file_size

    def _read(self, key: str) -> np.ndarray:
        return np.frombuffer(bytearray(self._archive.read(f"{self._folder}/{key}")), np.uint8)


class _Archive:
    def __init__(self, file: Any) -> None:
        try:
            self.zip = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise RuntimeError(
                "PytorchStreamReader failed reading zip archive: the file is no zip archive, or damaged; jit.load reads what jit.save wrote"
            ) from error
        names = self.zip.namelist()
        self.folder = names[0].partition("/")[0] if names else ""
        self.names = frozenset(names)

    def has(self, name: str) -> bool:
        return f"{self.folder}/{name}" in self.names

    def read(self, name: str) -> bytes:
        try:
            return self.zip.read(f"{self.folder}/{name}")
        except zipfile.BadZipFile as error:
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: {error}") from error

    def swaps_bytes(self) -> bool:
        return self.has("byteorder") and self.read("byteorder").decode() != sys.byteorder


class _TypeName:
    """A class as the pickle names it."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind


def _tagged(value: Any, kind: Any) -> Any:
    return value


def _listed(value: Any) -> list[Any]:
    return list(value)


_HELPERS: dict[str, Any] = {
    "restore_type_tag": _tagged, "build_intlist": _listed, "build_doublelist": _listed, "build_boollist": _listed,
    "build_tensorlist": _listed,
}  # fmt: skip


class _ScriptPolicy(TorchPolicy):
    """Makes modules and objects of the archive's classes, beside what files of tensors hold."""

    def __init__(self, storages: Any, library: Library | None) -> None:
        super().__init__(storages, {})
        self._library = library
        self._names: dict[str, _TypeName] = {}

    def find_global(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _HELPERS:
            return _HELPERS[name]
        if (module == "__torch__" or module.startswith("__torch__.")) and self._library is not None:
            full = f"{module}.{name}"
            if full not in self._names:
                self._names[full] = _TypeName(self._library.type(full))
            return self._names[full]
        return super().find_global(module, name)

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        if function in _HELPERS.values():
            return function(*args)
        if isinstance(function, _TypeName) and isinstance(function.kind, (NamedTupleType, EnumType)):
            return function.kind.python_class(*args)  # type: ignore[union-attr]
        return super().call(function, args)

    def new(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(cls, _TypeName):
            return super().new(cls, args, kwargs)
        kind = cls.kind
        if isinstance(kind, (NamedTupleType, EnumType)):
            return kind.python_class(*args)  # type: ignore[union-attr]
        if kind.is_module:
            return RecursiveScriptModule(kind)
        return kind.python_class.__new__(kind.python_class)

    def set_state(self, obj: Any, state: Any) -> None:
        kind = getattr(obj, "_script_type", None)
        if kind is None:
            super().set_state(obj, state)
            return
        assert self._library is not None
        restore = self._library.method(kind, "__setstate__")
        if restore is not None:
            from ._run import callable_of

            callable_of(restore)(obj, state)
            return
        if not isinstance(state, dict):
            raise RuntimeError(f"jit.load: the state of a {kind.name} is no dict")
        for name, value in state.items():
            _set(obj, kind, name, value)


def _set(obj: Any, kind: ClassType, name: str, value: Any) -> None:
    if not kind.is_module:
        setattr(obj, name, value)
        return
    held = obj.__dict__
    declared = kind.attributes.get(name)
    if isinstance(value, RecursiveScriptModule) or isinstance(declared, ClassType) and declared.is_module:
        held["_modules"][name] = value
    elif name in kind.parameters:  # type: ignore[attr-defined]
        held["_parameters"][name] = Parameter(value.detach(), value.requires_grad) if isinstance(value, Tensor) else value
    elif name in kind.buffers:  # type: ignore[attr-defined]
        held["_buffers"][name] = value
    else:
        held[name] = value


def load(f: Any, map_location: Any, extra_files: dict[str, Any] | None) -> Any:
    """What `jit.load` returns."""
    if isinstance(f, (str, os.PathLike)):
        if not os.path.exists(f):
            raise ValueError(f"The provided filename {os.fspath(f)} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {os.fspath(f)} is a directory")
        with open(f, "rb") as file:
            return _read(file, map_location, extra_files)
    return _read(io.BytesIO(f.read()), map_location, extra_files)


def _read(file: Any, map_location: Any, extra_files: dict[str, Any] | None) -> Any:
    from ..serialization import Placement

    archive = _Archive(file)
    if not archive.has("constants.pkl") or not archive.has("data.pkl"):
        raise RuntimeError(
            "jit.load: the archive has no constants.pkl and data.pkl, so it is none of jit.save; load() reads files of save()"
        )
    placement = Placement(map_location)
    constants = list(made_of(archive.read("constants.pkl"), _ZipStorages(archive, "constants", placement), None))

    def code(path: str) -> str | None:
        return archive.read(f"code/{path}").decode() if archive.has(f"code/{path}") else None

    made = made_of(archive.read("data.pkl"), _ZipStorages(archive, "data", placement), Library(code, constants))
    for name in extra_files or ():
        assert extra_files is not None
        extra_files[name] = archive.read(f"extra/{name}") if archive.has(f"extra/{name}") else b""
    return made


def made_of(data: bytes, storages: Any, library: Library | None) -> Any:
    """What a pickle of an archive holds: of classes in a library, which is compiled, or without one of tensors alone."""
    made = pickle_machine.run(data, _ScriptPolicy(storages, library))[0]
    if library is not None:
        library.compile_all()
    return made


# -- writing -------------------------------------------------------------------------------------------------------------


class _Tagged:
    """A list or dict, with its type beside it."""

    def __init__(self, value: Any, kind: Any) -> None:
        self.value, self.kind = value, kind


class ScriptPickler(_TorchPickler):
    """Writes modules as PyTorch's classes by their qualified names, and parameters as tensors."""

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, _Tagged):
            super().save(_name("torch.jit._pickle", "restore_type_tag"))
            super().save(obj.value)
            super().save(text_of(obj.kind))
            self.write(pickle.TUPLE2 + pickle.REDUCE)
            return
        kind = getattr(obj, "_script_type", None) if not isinstance(obj, type) else None
        if kind is None:
            super().save(obj, save_persistent_id)
            return
        known = self.memo.get(id(obj))
        if known is not None:
            self.write(self.get(known[0]))
            return
        home, _, short = kind.name.rpartition(".")
        super().save(_name(home, short))
        self.write(pickle.EMPTY_TUPLE + pickle.NEWOBJ)
        super().save(_state_of(obj, kind))
        self.write(pickle.BUILD)
        self.memoize(obj)                             # not before: PyTorch's reader makes the object when it has the state

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return self._plain_tensor(obj)
        return super().reducer_override(obj)


def _state_of(obj: Any, kind: ClassType) -> dict[str, Any]:
    """The attributes of a module or object by name, in the order of the type."""
    return {name: _typed(_held(obj, name), t) for name, t in kind.attributes.items()}


def _held(obj: Any, name: str) -> Any:
    for place in ("_parameters", "_buffers", "_modules"):
        if name in obj.__dict__.get(place, ()):
            return obj.__dict__[place][name]
    return getattr(obj, name)


def _typed(value: Any, kind: Any) -> Any:
    """A value with the types of the lists and dicts in it."""
    inner = kind.inner[0] if kind.kind == "Optional" and value is not None else kind
    if isinstance(value, list):
        return _Tagged([_typed(v, inner.inner[0]) for v in value], inner)
    if isinstance(value, dict):
        return _Tagged({k: _typed(v, inner.inner[1]) for k, v in value.items()}, inner)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple([_typed(v, t) for v, t in zip(value, inner.inner, strict=True)])
    return value


def _pickled(obj: Any) -> tuple[bytes, dict[str, Any]]:
    from ..serialization import _location_of

    buffer = io.BytesIO()
    pickler = ScriptPickler(buffer, 2, _location_of, False)
    pickler.dump(obj)
    return buffer.getvalue(), pickler.storages


def save(script: Any, f: Any, extra_files: dict[str, Any] | None) -> None:
    """What `jit.save` does with a scripted module or function."""
    root = script if isinstance(script, RecursiveScriptModule) else _module_of(script)
    code = Code()
    code.add(root)
    files, constants = code.files(), code.constants.tensors
    if isinstance(f, (str, os.PathLike)):
        name = os.path.splitext(os.path.basename(os.fspath(f)))[0]
        buffer = io.BytesIO()
        _write(root, buffer, name, files, constants, extra_files)
        temporary = f"{os.fspath(f)}.tmp{os.getpid()}"
        try:
            with open(temporary, "wb") as file:
                file.write(buffer.getvalue())
            os.replace(temporary, f)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
    else:
        buffer = io.BytesIO()
        _write(root, buffer, "archive", files, constants, extra_files)
        f.write(buffer.getvalue())


def _module_of(script: Any) -> RecursiveScriptModule:
    """A module whose `forward` is the function."""
    function: Function = script._function
    kind = ClassType("__torch__.PlaceholderModule", is_module=True)
    kind.attributes["training"] = type_of_value(True)
    made = Function(f"{kind.name}.forward", list(function.parameters), function.result)
    made.graph = function.graph.copy()
    made.parameters.insert(0, ScriptParameter("self", kind))
    made.graph.given(kind, "self")
    made.graph._inputs.insert(0, made.graph._inputs.pop())
    made.owner = kind
    kind.methods["forward"] = made
    return RecursiveScriptModule(kind)


def _write(root: Any, file: Any, folder: str, files: dict[str, str], constants: list[Any], extra_files: dict[str, Any] | None) -> None:
    archive = ArchiveWriter(file, folder or "archive")
    for name, content in (extra_files or {}).items():
        archive.add(f"extra/{name}", content.encode() if isinstance(content, str) else content)
    data, storages = _pickled(root)
    for key, storage in storages.items():
        archive.add(f"data/{key}", storage.host_bytes())
    archive.add("data.pkl", data)
    for path, text in files.items():
        archive.add(f"code/{path}", text.encode())
    data, storages = _pickled(tuple(constants))
    for key, storage in storages.items():
        archive.add(f"constants/{key}", storage.host_bytes())
    archive.add("constants.pkl", data)
    archive.add("version", _VERSION)
    archive.add("byteorder", sys.byteorder.encode())
    archive.close()


class Code:
    """The files of code that modules need, and the tensors that they name."""

    def __init__(self) -> None:
        self.constants = Constants()
        self._texts: dict[str, dict[str, str]] = {}
        self._done: set[str] = set()

    def add(self, root: RecursiveScriptModule) -> None:
        """Add what a module needs and is not there yet."""
        constants = self.constants
        _note_all(root._script_type, constants)
        while len(self._done) < len(constants.used):
            for name, definition in list(constants.used.items()):
                if name in self._done:
                    continue
                self._done.add(name)
                home, _, short = name.rpartition(".")
                path = home.replace(".", "/") + ".py"
                text = function_text(definition, constants) if isinstance(definition, Function) else class_text(definition, constants)
                self._texts.setdefault(path, {})[short] = text

    def files(self) -> dict[str, str]:
        """The text of each file."""
        return {path: "".join(parts.values()) for path, parts in self._texts.items()}


def _note_all(kind: ClassType, constants: Constants) -> None:
    constants.note(kind)
    for t in kind.attributes.values():
        if isinstance(t, ClassType) and t.name not in constants.used:
            _note_all(t, constants)
