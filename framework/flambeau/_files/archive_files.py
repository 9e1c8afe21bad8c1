"""Archives of ``.pt`` files record by record, as programs read and write them that look inside."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

from .archive import ArchiveReader, ArchiveWriter

__all__ = ["PyTorchFileReader", "PyTorchFileWriter"]

_VERSION = b"3\n"
_SERIALIZATION_ID = ".data/serialization_id"


class PyTorchFileReader:
    """The records of an archive; nothing of them is unpickled.

    Args:
        file: a path, or a file that can be read and sought; it is read where the archive begins.
    Raises: RuntimeError if there is no such file, or it is no archive.
    """

    def __init__(self, file: Any) -> None:
        self._owned: Any = None
        if isinstance(file, (str, os.PathLike)):
            try:
                file = self._owned = open(file, "rb")  # noqa: SIM115  # stays open as long as this object
            except OSError as error:
                raise RuntimeError(f"PyTorchFileReader: open file failed: {error.strerror}, file path: {os.fspath(file)}") from error
        try:
            self._archive = ArchiveReader(file)
        except BaseException:
            self.__del__()
            raise

    def __del__(self) -> None:
        owned = self.__dict__.get("_owned")
        if owned is not None:
            owned.close()

    def get_all_records(self) -> list[str]:
        """The names of all records, without the archive's own."""
        first = len(self._archive.folder) + 1
        return [name[first:] for name in self._archive.records]

    def has_record(self, name: str) -> bool:
        """Whether there is a record `name`."""
        return self._archive.has(name)

    def get_record(self, name: str) -> bytes:
        """The bytes of the record `name`. Raises: RuntimeError if there is none, or it is damaged."""
        return self._archive.read(name).tobytes()

    def get_record_size(self, name: str) -> int:
        """How many bytes the record `name` has. Raises: RuntimeError if there is none."""
        return self._archive.record(name).size

    def get_record_offset(self, name: str) -> int:
        """Where in the archive the bytes of the record `name` begin. Raises: RuntimeError if there is none."""
        return self._archive.record(name).start

    def get_record_header_offset(self, name: str) -> int:
        """Where in the archive the header of the record `name` begins. Raises: RuntimeError if there is none."""
        return self._archive.record(name).header

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """A tensor without elements, whose storage has the bytes of the record `name`.

        Args:
            numel: how many elements of `dtype` they are; of bytes if `dtype` is no dtype.
        Raises: RuntimeError if there is no such record, or it has fewer bytes.
        """
        import flambeau as fb

        dtype = dtype if isinstance(dtype, fb.dtype) else fb.uint8
        data = self._archive.read(name)
        if data.nbytes < numel * dtype.itemsize:
            raise RuntimeError(f"get_storage_from_record: {name!r} has {data.nbytes} bytes, {numel} elements of {dtype} take more")
        return fb.frombuffer(data, dtype=dtype, count=numel)[:0] if numel else fb.empty(0, dtype=dtype)

    def serialization_id(self) -> str:
        """What tells archives of other contents apart: 40 digits, or nothing in archives of old."""
        return self.get_record(_SERIALIZATION_ID).decode() if self.has_record(_SERIALIZATION_ID) else ""


class PyTorchFileWriter:
    """Writes an archive record by record; `write_end_of_file` makes it readable.

    Args:
        file: a path, whose name without suffix becomes the archive's, or a file that can be written.
        compute_crc32: whether readers can notice damaged records.
    """

    def __init__(self, file: Any, compute_crc32: bool = True) -> None:
        self._owned: Any = None
        self._name = "archive"
        if isinstance(file, (str, os.PathLike)):
            self._name = os.path.splitext(os.path.basename(file))[0] or "archive"
            file = self._owned = open(file, "wb")  # noqa: SIM115  # stays open until the end is written
        self._archive = ArchiveWriter(file, self._name, compute_crc32)
        self._digest = hashlib.sha256()
        self._names: set[str] = set()
        self._ended = False

    def archive_name(self) -> str:
        """The name of the folder that all records are in."""
        return self._name

    def write_record(self, name: str, data: Any, size: int) -> None:
        """Write the first `size` bytes of `data` as the record `name`.

        Args:
            data: bytes, a text, or a tensor's storage.
        Raises: RuntimeError for a second record of that name, and after the end.
        """
        if self._ended or name in self._names:
            reason = "the end is written" if self._ended else "it is there already"
            raise RuntimeError(f"PyTorchFileWriter.write_record({name!r}): {reason}")
        if isinstance(data, str):
            data = data.encode()
        elif hasattr(data, "_cdata") or hasattr(data, "nbytes") and callable(data.nbytes):
            data = bytes(data)
        data = memoryview(data).cast("B")[:size]
        self._names.add(name)
        self._digest.update(name.encode() + b"\0")
        self._digest.update(data)
        self._archive.add(name, data)

    def get_all_written_records(self) -> set[str]:
        """The names of the records that have been written."""
        return set(self._names)

    def serialization_id(self) -> str:
        """What tells archives of other contents apart: 40 digits, from what has been written so far."""
        return f"{int.from_bytes(self._digest.digest(), 'big') % 10**40:040d}"

    def write_end_of_file(self) -> None:
        """Write version, order of bytes and directory, and close the file if it was given as a path."""
        if self._ended:
            return
        number = self.serialization_id()
        if "version" not in self._names:
            self._archive.add("version", _VERSION)
        if "byteorder" not in self._names:
            self._archive.add("byteorder", sys.byteorder.encode())
        self._archive.add(_SERIALIZATION_ID, number.encode())
        self._archive.close()
        self._ended = True
        if self._owned is not None:
            self._owned.close()
