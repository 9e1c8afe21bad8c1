"""The files of a package: records of an archive, or files of the folder it was unpacked to."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import numpy as np

from flambeau._files.archive import ArchiveReader
from flambeau._files.storages import _Storages

__all__ = ["PackageStorages", "open_package"]


def _is_code_of_scripts(name: str) -> bool:
    """Whether a record is the code of a script, which PyTorch compresses."""
    return "/.data/ts_code/code/" in name


class _Archive:
    """The records of an archive below its one folder."""

    def __init__(self, file: Any) -> None:
        self._archive = ArchiveReader(file, _is_code_of_scripts)
        self._lock = threading.Lock()  # for the file's position
        start = self._archive.folder + "/"
        # Names that end with a slash are folders, which other tools write.
        self.files = [name[len(start) :] for name in self._archive.records if name.startswith(start) and name[-1] != "/"]

    def size(self, name: str) -> int:
        return self._archive.record(name).size

    def read(self, name: str) -> np.ndarray:
        with self._lock:
            return self._archive.read(name)


class _Folder:
    """The files below a folder. Only those that are listed are read, so that no name leads out of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.files: list[str] = []
        for folder, _, names in os.walk(path):
            inside = os.path.relpath(folder, path)
            self.files += [os.path.normpath(os.path.join(inside, name)).replace(os.sep, "/") for name in sorted(names)]
        self._known = frozenset(self.files)

    def _file(self, name: str) -> str:
        if name not in self._known:
            raise RuntimeError(f"load: the folder {self._path} has no file {name}")
        return os.path.join(self._path, *name.split("/"))

    def size(self, name: str) -> int:
        return os.stat(self._file(name)).st_size

    def read(self, name: str) -> np.ndarray:
        return np.fromfile(self._file(name), np.uint8)


def open_package(source: Any) -> tuple[Any, str]:
    """What reads the files of the package at `source`, a path or a file object, and what to call it.

    Raises: RuntimeError if there is nothing, or no archive; AttributeError for what is neither path nor file.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if os.path.isdir(path):
            return _Folder(path), path
        try:
            file = open(path, "rb")  # noqa: SIM115  # open as long as the importer reads from it
        except OSError as error:
            raise RuntimeError(f"PackageImporter: cannot open {path}: {error.strerror}") from error
        try:
            reader = _Archive(file)
        except BaseException:
            file.close()
            raise
        weakref.finalize(reader, file.close)
        return reader, path
    for method in ("read", "seek", "tell"):
        if not hasattr(source, method):
            raise AttributeError(
                f"PackageImporter: expected a path or a file object with read, seek and tell, but {type(source).__name__} has "
                f"no {method}"
            )
    return _Archive(source), "<binary>"


class PackageStorages(_Storages):
    """The storages of a package: the files ``.data/0.storage``, ``.data/1.storage``, ..."""

    def __init__(self, reader: Any, placement: Any, swaps: bool) -> None:
        super().__init__(placement, swaps)
        self._reader = reader

    def get(self, kind: Any, key: Any, location: Any, numel: Any) -> Any:
        return super().get(kind, str(key) if type(key) is int else key, location, numel)

    def _size(self, key: str) -> int:
        return self._reader.size(f".data/{key}.storage")

    def _read(self, key: str) -> np.ndarray:
        return self._reader.read(f".data/{key}.storage")
