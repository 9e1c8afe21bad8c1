"""The zip archives of ``.pt`` files: uncompressed records, each at a 64-byte boundary so that it can be mapped.

The reader trusts nothing it reads. Every offset and size is checked against the file before it is used,
records may not overlap, and compressed records are refused, so no file can make it read or allocate more than
the file's own size. Source: the zip specification, PKWARE APPNOTE.TXT 6.3, sections 4.3 to 4.5.
"""

from __future__ import annotations

import functools
import io
import itertools
import os
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.cpu.checksum import crc32, joined
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import allocator
from flambeau_kernels.engine.runtime.pool import get_num_threads

__all__ = ["ALIGNMENT", "ArchiveReader", "ArchiveWriter", "Record", "looks_like_archive", "read_into"]

ALIGNMENT = 64

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_LOCAL_MAGIC, _CENTRAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_END64_MAGIC, _LOCATOR64_MAGIC = b"PK\x06\x06", b"PK\x06\x07"
_UTF8_NAME, _ENCRYPTED = 0x0800, 0x0001
_STORED, _DEFLATED = 0, 8
_MOST_UNPACKED = 1 << 26                               # bytes of a compressed record, which are texts
_JAN_1980 = 0x21  # the first day zip can express
_PLAIN_VERSION, _ZIP64_VERSION = 20, 45
_MAX32 = 0xFFFFFFFF
_MAX16 = 0xFFFF
_ZIP64_EXTRA = 0x0001
_PADDING_EXTRA = 0x4246  # the id PyTorch gives its padding
_LONGEST_COMMENT = 0xFFFF
_LONG = 1 << 18  # bytes of a record whose checksum may be left to another thread
_AHEAD = 32 << 20  # bytes of records whose checksums are computed before they are written
_PIECE, _STRETCH = 4 << 20, 1 << 19  # bytes that a thread takes to read, and that it checks while they are in its cache


class Record(NamedTuple):
    """Where the bytes of one record lie in the archive, and what they should be."""

    name: str
    header: int  # where its local header starts
    start: int  # where its bytes start
    size: int
    crc: int  # 0 where the writer left it out
    packed: int  # bytes that it takes in the archive
    is_packed: bool = False  # whether they are compressed


# -- writing -------------------------------------------------------------------------------------------------


class ArchiveWriter:
    """Writes records one after another to a file that need not be seekable; `close` writes the directory."""

    def __init__(self, file: Any, folder: str, compute_crc: bool = True) -> None:
        self._file = file
        self._folder = folder
        self._compute_crc = compute_crc
        self._at = 0
        self._records: list[Record] = []

    def add(self, name: str, data: Any) -> None:
        """Write `data` (bytes or a contiguous buffer) as the record `folder/name`."""
        self._add(name, memoryview(data).cast("B"), None)

    def add_all(self, records: Iterable[tuple[str, Any]]) -> None:
        """`add` each pair of a name and data; the checksum of the next ones is computed while one is written."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as other:
            waiting: deque[tuple[str, memoryview, Any]] = deque()
            held = 0
            for name, data in records:
                view = memoryview(data).cast("B")
                waiting.append((name, view, other.submit(crc32, view) if self._compute_crc and len(view) >= _LONG else None))
                held += len(view)
                while held > _AHEAD and len(waiting) > 1:
                    held -= len(waiting[0][1])
                    self._add(*waiting.popleft())
            while waiting:
                self._add(*waiting.popleft())

    def _add(self, name: str, data: memoryview, checksum: Any) -> None:
        crc = 0 if not self._compute_crc else crc32(data) if checksum is None else checksum.result()
        record = Record(f"{self._folder}/{name}", self._at, 0, data.nbytes, crc, data.nbytes)
        self._write(_local_header(record))
        self._write(data)
        self._records.append(record)

    def close(self) -> None:
        """Write the directory. The file itself stays open."""
        start = self._at
        for record in self._records:
            self._write(_central_header(record))
        self._write(_end_of_directory(len(self._records), start, self._at - start))

    def _write(self, data: Any) -> None:
        self._file.write(data)
        self._at += len(data)


def _local_header(record: Record) -> bytes:
    name = record.name.encode()
    big = record.size >= _MAX32
    extra = struct.pack("<2H2Q", _ZIP64_EXTRA, 16, record.size, record.size) if big else b""
    padding = -(record.header + _LOCAL.size + len(name) + len(extra) + 4) % ALIGNMENT
    extra += struct.pack("<2H", _PADDING_EXTRA, padding) + b"Z" * padding
    size = _MAX32 if big else record.size
    return _LOCAL.pack(
        _LOCAL_MAGIC, _ZIP64_VERSION if big else _PLAIN_VERSION, _UTF8_NAME, _STORED, 0, _JAN_1980,
        record.crc, size, size, len(name), len(extra),
    ) + name + extra


def _central_header(record: Record) -> bytes:
    name = record.name.encode()
    wide = [value for value in (record.size, record.size, record.header) if value >= _MAX32]
    extra = struct.pack(f"<2H{len(wide)}Q", _ZIP64_EXTRA, 8 * len(wide), *wide) if wide else b""
    version = _ZIP64_VERSION if wide else _PLAIN_VERSION
    size, header = min(record.size, _MAX32), min(record.header, _MAX32)
    return _CENTRAL.pack(
        _CENTRAL_MAGIC, version, version, _UTF8_NAME, _STORED, 0, _JAN_1980,
        record.crc, size, size, len(name), len(extra), 0, 0, 0, 0, header,
    ) + name + extra


def _end_of_directory(count: int, start: int, size: int) -> bytes:
    wide = b""
    if count >= _MAX16 or start >= _MAX32 or size >= _MAX32:
        wide = _END64.pack(
            _END64_MAGIC, _END64.size - 12, _ZIP64_VERSION, _ZIP64_VERSION, 0, 0, count, count, size, start,
        ) + _LOCATOR64.pack(_LOCATOR64_MAGIC, 0, start + size, 1)
    count, size, start = min(count, _MAX16), min(size, _MAX32), min(start, _MAX32)
    return wide + _END.pack(_END_MAGIC, 0, 0, count, count, size, start, 0)


# -- reading -------------------------------------------------------------------------------------------------


def looks_like_archive(file: Any) -> bool:
    """Whether the next bytes of `file` start a zip archive; the position is left as it was."""
    at = file.tell()
    magic = file.read(4)
    file.seek(at)
    return magic == _LOCAL_MAGIC


def read_into(file: Any, start: int, target: memoryview) -> int:
    """Fill `target` from byte `start` of `file` on, copying only where the file cannot do without; returns how many bytes came."""
    file.seek(start)
    fill = getattr(file, "readinto", None) or functools.partial(_read_by_copying, file)
    done = 0
    while done < len(target):
        count = fill(target[done:])
        if not count:
            break
        done += count
    return done


def _read_by_copying(file: Any, target: memoryview) -> int:
    chunk = file.read(len(target))
    target[: len(chunk)] = chunk
    return len(chunk)


def _corrupt(what: str) -> RuntimeError:
    return RuntimeError(
        f"load: this is not a complete zip archive ({what}); the file is damaged, or was not fully written "
        f"or copied"
    )


class ArchiveReader:
    """The records of an archive that starts at the present position of `file` and ends with it.

    Args:
        may_be_packed: whether the record of a name may be compressed; none by default, so that nothing unpacks to more than it is.
    Raises: RuntimeError for anything that is not a well-formed archive, or has another record that is compressed.
    """

    def __init__(self, file: Any, may_be_packed: Callable[[str], bool] = lambda name: False) -> None:
        self._file = file
        self._may_be_packed = may_be_packed
        self._base = file.tell()
        self._length = file.seek(0, 2) - self._base
        directory_start, directory = self._read_directory()
        found = [self._locate(entry, directory_start) for entry in _directory_entries(directory, may_be_packed)]
        _check_no_overlap(found)
        self.records = {record.name: record for record in found}
        if len(self.records) != len(found):
            raise _corrupt("two records have the same name")
        if not found:
            raise _corrupt("it has no records")
        self.folder = found[0].name.partition("/")[0]

    def has(self, name: str) -> bool:
        return f"{self.folder}/{name}" in self.records

    def record(self, name: str) -> Record:
        """The record `name` of the archive's folder. Raises: RuntimeError if there is none."""
        record = self.records.get(f"{self.folder}/{name}")
        if record is None:
            raise RuntimeError(f"load: the archive has no record {self.folder}/{name}")
        return record

    def read(self, name: str) -> np.ndarray:
        """The bytes of record `name` as a new uint8 array. Raises: RuntimeError if its checksum differs."""
        record = self.record(name)
        data = np.empty(record.size, np.uint8)
        view = data.data
        if record.is_packed:
            view[:] = _unpacked(record, self._bytes(record.start, record.packed))
        else:
            self._read_into(record.start, view)
        # Writers may leave the checksum out, as 0. Few real checksums are 0, so few errors go unseen by this.
        if record.crc:
            _check(record, crc32(view))
        return data

    def reads_on_threads(self) -> bool:
        """Whether several threads can read the file at once, each at its own place."""
        return isinstance(self._file, (io.BufferedReader, io.FileIO)) and hasattr(os, "preadv")

    def read_all(self, names: list[str]) -> dict[str, np.ndarray]:
        """`read` of several records by name, on all threads, of a file that `reads_on_threads`."""
        records = [self.record(name) for name in names]
        if llvm.in_use():
            allocator.adopt_thread()                      # memory that was used before costs no page faults
        arrays = [np.empty(record.size, np.uint8) for record in records]
        pieces = [_Piece(self._base + record.start, array.data, record.crc != 0) for record, array in zip(records, arrays, strict=True)]
        smaller = [piece.cut(_PIECE) for piece in pieces]
        _on_threads(functools.partial(_read_piece, self._file.fileno()), list(itertools.chain(*smaller)))
        for record, parts in zip(records, smaller, strict=True):
            if not all(part.complete for part in parts):
                raise _corrupt("it ends early")
            if record.crc:
                _check(record, functools.reduce(lambda crc, part: joined(crc, part.crc, len(part.target)), parts[1:], parts[0].crc))
        return dict(zip(names, arrays, strict=True))

    def _read_into(self, start: int, target: memoryview) -> None:
        if read_into(self._file, self._base + start, target) < len(target):
            raise _corrupt("it ends early")

    def _bytes(self, start: int, size: int) -> bytes:
        if start < 0 or size < 0 or start + size > self._length:
            raise _corrupt(f"bytes {start} to {start + size} are outside its {self._length}")
        data = bytearray(size)
        self._read_into(start, memoryview(data))
        return bytes(data)

    def _read_directory(self) -> tuple[int, bytes]:
        tail_start = max(0, self._length - _END.size - _LONGEST_COMMENT)
        tail = self._bytes(tail_start, self._length - tail_start)
        at = tail.rfind(_END_MAGIC)
        if at < 0 or at + _END.size > len(tail):
            raise _corrupt("its directory is missing")
        _, disk, _, _, _, size, start, comment = _END.unpack_from(tail, at)
        if disk or at + _END.size + comment != len(tail):
            raise _corrupt("its end record does not end the file")
        end = tail_start + at
        # Some writers add the 64-bit record even when the values would fit without.
        end, size, start = self._read_end64(end, size, start)
        if start + size != end:
            raise _corrupt(f"its directory should end at byte {start + size}, but ends at {end}")
        return start, self._bytes(start, size)

    def _read_end64(self, end: int, size: int, start: int) -> tuple[int, int, int]:
        """Where the 64-bit end record starts, and the directory's size and start; unchanged if there is none."""
        if end < _LOCATOR64.size:
            return end, size, start
        magic, _, end64, _ = _LOCATOR64.unpack(self._bytes(end - _LOCATOR64.size, _LOCATOR64.size))
        if magic != _LOCATOR64_MAGIC:
            return end, size, start
        fields = _END64.unpack(self._bytes(end64, _END64.size))
        if fields[0] != _END64_MAGIC:
            raise _corrupt("its 64-bit end record is missing")
        return end64, fields[-2], fields[-1]

    def _locate(self, entry: Record, directory_start: int) -> Record:
        """`entry` with its start, checked against the local header."""
        fields = _LOCAL.unpack(self._bytes(entry.header, _LOCAL.size))
        name_length, extra_length = fields[-2], fields[-1]
        if fields[0] != _LOCAL_MAGIC:
            raise _corrupt(f"record {entry.name} has no header at byte {entry.header}")
        if self._bytes(entry.header + _LOCAL.size, name_length) != entry.name.encode():
            raise _corrupt(f"the header of record {entry.name} names another record")
        start = entry.header + _LOCAL.size + name_length + extra_length
        if start + entry.packed > directory_start:
            raise _corrupt(f"record {entry.name} of {entry.packed} bytes does not fit into the file")
        return entry._replace(start=start)


def _check(record: Record, found: int) -> None:
    if found != record.crc:
        raise RuntimeError(
            f"load: record {record.name} has CRC-32 {found:#010x} where the archive says "
            f"{record.crc:#010x}; the file is damaged"
        )


class _Piece:
    """Part of a record that one thread reads to `target`, from byte `start` of the file on."""

    def __init__(self, start: int, target: memoryview, checked: bool) -> None:
        self.start, self.target, self.checked = start, target, checked
        self.crc, self.complete = 0, False

    def cut(self, size: int) -> list[_Piece]:
        """Pieces of at most `size` bytes, at least one."""
        starts = range(0, max(1, len(self.target)), size)
        return [_Piece(self.start + at, self.target[at : at + size], self.checked) for at in starts]


def _read_piece(file: int, piece: _Piece) -> None:
    done, size = 0, len(piece.target)
    while done < size:
        count = os.preadv(file, [piece.target[done : done + _STRETCH]], piece.start + done)
        if not count:
            return
        if piece.checked:
            piece.crc = crc32(piece.target[done : done + count], piece.crc)
        done += count
    piece.complete = True


def _on_threads(work: Any, tasks: list[Any]) -> None:
    """``work(task)`` for each task, on as many threads as kernels use, this one among them."""
    following = iter(tasks)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def take_turns() -> None:
        try:
            while not failures:
                with lock:
                    task = next(following, None)
                if task is None:
                    return
                work(task)
        except BaseException as error:  # raised again below
            failures.append(error)

    others = [threading.Thread(target=take_turns, daemon=True) for _ in range(min(get_num_threads(), len(tasks)) - 1)]
    for thread in others:
        thread.start()
    take_turns()
    for thread in others:
        thread.join()
    if failures:
        raise failures[0]


def _unpacked(record: Record, data: bytes) -> bytes:
    if record.size > _MOST_UNPACKED:
        raise RuntimeError(f"load: record {record.name} says that it unpacks to {record.size} bytes; {_MOST_UNPACKED} are the most")
    try:
        made = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, record.size + 1)
    except zlib.error as error:
        raise _corrupt(f"record {record.name} cannot be unpacked: {error}") from None
    if len(made) != record.size:
        raise _corrupt(f"record {record.name} unpacks to another size than {record.size}")
    return made


def _directory_entries(directory: bytes, may_be_packed: Callable[[str], bool] = lambda name: False) -> list[Record]:
    entries, at = [], 0
    while at < len(directory):
        if at + _CENTRAL.size > len(directory):
            raise _corrupt("its directory is cut off")
        fields = _CENTRAL.unpack_from(directory, at)
        name_length, extra_length, comment_length = fields[10:13]
        name_at = at + _CENTRAL.size
        at = name_at + name_length + extra_length + comment_length
        if fields[0] != _CENTRAL_MAGIC or at > len(directory):
            raise _corrupt("its directory is malformed")
        name = directory[name_at : name_at + name_length]
        extra = directory[name_at + name_length : name_at + name_length + extra_length]
        entries.append(_directory_entry(fields, name, extra, may_be_packed))
    return entries


def _directory_entry(fields: tuple[Any, ...], raw_name: bytes, extra: bytes, may_be_packed: Callable[[str], bool]) -> Record:
    flags, method, crc, packed, size, header = fields[3], fields[4], *fields[7:10], fields[16]
    try:
        name = raw_name.decode()
    except UnicodeDecodeError:
        raise _corrupt(f"record name {raw_name!r} is not UTF-8") from None
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in name.split("/"):
        raise RuntimeError(f"load: the archive has a record with the unsafe name {name!r}")
    is_packed = method == _DEFLATED and may_be_packed(name)
    if method != _STORED and not is_packed or flags & _ENCRYPTED:
        raise RuntimeError(
            f"load: record {name} is compressed or encrypted; .pt files hold plain records, so that nothing "
            f"can "
            "unpack to more than the file's size. Unzip it and zip it again with `zip -0`"
        )
    size, packed, header = _widen(extra, size, packed, header)
    if packed != size and not is_packed:
        raise _corrupt(f"record {name} gives two sizes, {packed} and {size}")
    return Record(name, header, 0, size, crc, packed, is_packed)


def _widen(extra: bytes, *values: int) -> list[int]:
    """`values` with those that did not fit into 32 bits taken from the zip64 field of `extra`."""
    wide, at = b"", 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == _ZIP64_EXTRA:
            wide = extra[at + 4 : at + 4 + length]
        at += 4 + length
    found = iter(struct.unpack(f"<{len(wide) // 8}Q", wide[: len(wide) // 8 * 8]))
    return [next(found, value) if value == _MAX32 else value for value in values]


def _check_no_overlap(records: list[Record]) -> None:
    end = 0
    for record in sorted(records, key=lambda record: record.header):
        if record.header < end:
            raise _corrupt(f"record {record.name} overlaps the one before it")
        end = record.start + record.packed
