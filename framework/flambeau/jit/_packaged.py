"""Scripts in packages: their data beside the other pickles of `package.PackageExporter`, and their code in files that they share."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from .._files.storages import SavedStorage
from ..serialization import _location_of
from ._archive import Code, ScriptPickler, made_of
from ._modules import RecursiveScriptModule
from ._text import Library

__all__ = ["PackagedScripts", "packaged_script"]

FOLDER = ".data/ts_code"
_SUFFIX = ".storage"


# -- writing -------------------------------------------------------------------------------------------------------------


class PackagedScripts:
    """The scripts of a package that is being written.

    Args:
        write: puts bytes into the package as the file of a name.
        kept: ``(buffer, kind, location)`` to the storage of the package with these bytes, and whether it has yet to be written.
    """

    def __init__(self, write: Callable[[str, Any], None], kept: Callable[[Any, Any, str], tuple[SavedStorage, bool]]) -> None:
        self._write, self._kept = write, kept
        self._code = Code()
        self._count = 0

    def add(self, module: RecursiveScriptModule) -> str:
        """Write the data of a module. Returns: its number, by which `packaged_script` finds it."""
        number = str(self._count)
        self._count += 1
        self._code.add(module)
        # Tensors of the code have one numbering in a package, so each module's are all until then.
        for name, value in (("data.pkl", module), ("constants.pkl", tuple(self._code.constants.tensors))):
            out = io.BytesIO()
            pickler = _Pickler(out, self._kept)
            pickler.dump(value)
            for storage in pickler.fresh:
                self._write(f".data/{storage.key}{_SUFFIX}", storage.host_bytes())
            self._write(f"{FOLDER}/{number}/{name}", out.getvalue())
        return number

    def finish(self) -> None:
        """Write the code of all modules."""
        for path, text in self._code.files().items():
            self._write(f"{FOLDER}/code/{path}", text.encode())


class _Pickler(ScriptPickler):
    """Refers to the storages of the package, by the names of their files."""

    def __init__(self, file: Any, kept: Callable[[Any, Any, str], tuple[SavedStorage, bool]]) -> None:
        super().__init__(file, 2, _location_of, False)
        self._kept = kept
        self.fresh: list[SavedStorage] = []           # not in the package yet

    def persistent_id(self, obj: Any) -> Any:
        reference = super().persistent_id(obj)
        return None if reference is None else (*reference[:2], f"{reference[2]}{_SUFFIX}", *reference[3:])

    def _new_storage(self, buffer: Any, kind: Any, location: str) -> SavedStorage:
        storage, is_new = self._kept(buffer, kind, location)
        if is_new:
            self.fresh.append(storage)
        return storage


# -- reading -------------------------------------------------------------------------------------------------------------


class _Storages:
    """The storages of a package under the names of their files."""

    def __init__(self, storages: Any) -> None:
        self._storages = storages

    def get(self, kind: Any, key: Any, location: Any, numel: Any) -> Any:
        return self._storages.get(kind, key.removesuffix(_SUFFIX) if isinstance(key, str) else key, location, numel)


def packaged_script(number: str, read: Callable[[str], bytes | None], storages: Any) -> Any:
    """The script that `PackagedScripts.add` gave a number. Nothing of it is run as Python.

    Args:
        read: the bytes of a file of the package; None if there is none.
        storages: those of the package.
    Raises: RuntimeError if the package has no such script.
    """
    data, constants = read(f"{FOLDER}/{number}/data.pkl"), read(f"{FOLDER}/{number}/constants.pkl")
    if data is None or constants is None:
        raise RuntimeError(f"load_pickle: the package has no script number {number!r}")

    def code(path: str) -> str | None:
        text = read(f"{FOLDER}/code/{path}")
        return None if text is None else text.decode()

    tensors = list(made_of(constants, _Storages(storages), None))
    return made_of(data, _Storages(storages), Library(code, tensors))
