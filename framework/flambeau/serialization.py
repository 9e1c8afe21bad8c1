"""`save` and `load`: PyTorch's ``.pt`` files, written so that PyTorch reads them, and read without running what they hold.

A file is a zip archive of one pickle, ``data.pkl``, and the raw bytes of every storage it refers to. Files
name PyTorch's classes (``torch._utils._rebuild_tensor_v2``, ``torch.FloatStorage``), whoever writes them.
`load` understands such names from a list; it imports nothing and calls nothing that is not on that list or in
`get_safe_globals()`.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from flambeau import _state
from flambeau.devices import device
from flambeau.storage import map_file
from flambeau.types import FileLike, Storage

__all__ = [
    "LoadEndianness",
    "SourceChangeWarning",
    "add_safe_globals",
    "allow_unsafe_pickle",
    "clear_safe_globals",
    "default_restore_location",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "location_tag",
    "normalize_storage_type",
    "register_package",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
    "validate_cuda_device",
]

_FORMAT_VERSION = b"3\n"
MAP_SHARED, MAP_PRIVATE = 1, 2  # of the module mmap

DEFAULT_PROTOCOL = 2  # of pickles
STORAGE_KEY_SEPARATOR = ","
SHORT_SIZE, INT_SIZE, LONG_SIZE = 2, 4, 4  # bytes, in the older format

# The older format: five pickles and then the storages, with these constants in front.
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
_FIRST_PART = 1 << 20  # bytes of an older file that are read at first, to look for its pickles


# Names for annotations, as programs import them.
FILE_LIKE = FileLike
STORAGE = Storage
MAP_LOCATION = Callable[[Storage, str], Storage] | device | str | dict[str, str] | None


_Unpickle = Callable[[bytes, Any], Any]  # of a pickle and the storages it refers to


class LoadEndianness(enum.Enum):
    """The byte order of files that do not record theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class SourceChangeWarning(Warning):
    """PyTorch's warning that the source of a class in a file has changed. Nothing here gives it; programs silence it."""


class _Options(threading.local):
    crc32 = True
    mmap = False
    mmap_flags = MAP_PRIVATE
    endianness: LoadEndianness | None = None
    skip_data = False
    materializes = False
    unsafe = False


_options = _Options()
_safe_globals: dict[str, Any] = {}


# -- options -------------------------------------------------------------------------------------------------


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let `load` make instances of these classes and call these functions when a file names them.

    Args:
        safe_globals: classes or functions; or pairs of one and the full name under which files know it.
    """
    _safe_globals.update(map(_named_global, safe_globals))


def _named_global(entry: Any) -> tuple[str, Any]:
    if isinstance(entry, tuple):
        if len(entry) != 2 or not isinstance(entry[1], str):
            raise ValueError(f"add_safe_globals: a pair must be (class or function, full name), got {entry!r}")
        return entry[1], entry[0]
    if not callable(entry):
        raise ValueError(f"add_safe_globals: expected a class or function, got {entry!r}")
    return f"{entry.__module__}.{entry.__qualname__}", entry


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given: objects, or pairs where the name is not the object's own."""
    return [obj if _full_name(obj) == name else (obj, name) for name, obj in _safe_globals.items()]


def _full_name(obj: Any) -> str:
    return f"{obj.__module__}.{obj.__qualname__}" if hasattr(obj, "__qualname__") else ""


def clear_safe_globals() -> None:
    """Forget everything `add_safe_globals` was given."""
    _safe_globals.clear()


class safe_globals:  # PyTorch's name
    """A context manager in which `add_safe_globals(safe_globals)` holds."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._safe_globals = safe_globals

    def __enter__(self) -> None:
        self._before = dict(_safe_globals)
        add_safe_globals(self._safe_globals)

    def __exit__(self, *_: object) -> None:
        _safe_globals.clear()
        _safe_globals.update(self._before)


@contextlib.contextmanager
def allow_unsafe_pickle() -> Iterator[None]:
    """Inside this context, in this thread, ``load(..., weights_only=False)`` runs the pickle as Python does.

    Such a file can do anything this process can. Use it only for files you made or would run as a program.
    """
    before, _options.unsafe = _options.unsafe, True
    try:
        yield
    finally:
        _options.unsafe = before


def get_crc32_options() -> bool:
    """Whether `save` writes the checksum of each record."""
    return _options.crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Choose whether `save` writes checksums. Without them it is faster, and `load` cannot notice damage."""
    _options.crc32 = bool(compute_crc32)


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order assumed for files that do not record theirs; None is this machine's."""
    return _options.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Choose the byte order assumed for files that do not record theirs. Raises: TypeError for another type."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(f"set_default_load_endianness: expected a LoadEndianness or None, got {endianness!r}")
    _options.endianness = endianness


def get_default_mmap_options() -> int:
    """How ``load(mmap=True)`` maps files: `mmap.MAP_PRIVATE` or `mmap.MAP_SHARED`."""
    return _options.mmap_flags


class set_default_mmap_options:  # PyTorch's name
    """Choose how ``load(mmap=True)`` maps files, for good or as a context manager.

    With `mmap.MAP_PRIVATE` writes to tensors stay in this process; with `mmap.MAP_SHARED` they go to the file.
    Raises: ValueError for other flags.
    """

    def __init__(self, flags: int) -> None:
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ValueError(f"set_default_mmap_options: expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, got {flags}")
        self._before, _options.mmap_flags = _options.mmap_flags, flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _options.mmap_flags = self._before


class skip_data:  # PyTorch's name
    """Inside this context `save` leaves storages as zeros in the file, and `load` does not read them.

    Args:
        materialize_fake_tensors: whether `save` writes fake tensors as tensors of the device that they stand for.
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self._asked = True, materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = _options.skip_data, _options.materializes
        _options.skip_data, _options.materializes = self._asked

    def __exit__(self, *_: object) -> None:
        _options.skip_data, _options.materializes = self._before


# -- places --------------------------------------------------------------------------------------------------

_Tagger = Callable[[Any], "str | None"]
_Deserializer = Callable[[Any, str], Any]
_packages: list[tuple[int, _Tagger, _Deserializer]] = []


def register_package(priority: int, tagger: _Tagger, deserializer: _Deserializer) -> None:
    """Teach `save` and `load` another kind of device.

    Args:
        priority: lower numbers are asked first.
        tagger: the location to write for a storage, or None if it is not of this kind.
        deserializer: the storage at a location, or None if the location is not of this kind.
    """
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda package: package[0])


def location_tag(storage: Any) -> str:
    """What `save` writes as the location of `storage`, such as ``cpu`` or ``cuda:0``."""
    for _, tagger, _ in _packages:
        location = tagger(storage)
        if location:
            return location
    return str(storage.device)


def default_restore_location(storage: Any, location: str) -> Any:
    """`storage` moved to where `location` says. Raises: RuntimeError for a place that is not here."""
    from flambeau._files.storages import bytes_of_storage

    return _restore(bytes_of_storage(storage), location).untyped_storage()


def validate_cuda_device(location: str) -> int:
    """The index of the CUDA device that `location` means. Raises: ValueError for another kind of device; RuntimeError without one.
    """
    if str(location).partition(":")[0] != "cuda":
        raise ValueError(f"validate_cuda_device: expected a CUDA device, got {str(location)!r}")
    return _cuda_index(str(location))


def normalize_storage_type(storage_type: Any) -> Any:
    """The class of storages in host memory for `storage_type`, which is this class here as well."""
    import flambeau as fb

    return getattr(fb, storage_type.__name__)


def _location_of(tensor: Any) -> str:
    return location_tag(tensor.untyped_storage()) if _packages else str(tensor.device)


def _get_layout(name: str) -> Any:
    """The layout of this name, as ``"torch.sparse_coo"``: what PyTorch's pickles of sparse tensors call."""
    from flambeau import devices

    found = [value for value in vars(devices).values() if isinstance(value, devices.layout) and str(value) == name]
    if not found:
        raise RuntimeError(f"no layout is called {name!r}")
    return found[0]


def _restore(data: Any, location: str) -> Any:
    """The uint8 tensor `data` at `location`."""
    from flambeau._files.storages import bytes_of_storage

    for _, _, deserializer in _packages:
        restored = deserializer(data.untyped_storage(), location)
        if restored is not None:
            return bytes_of_storage(restored)
    kind = location.partition(":")[0]
    if kind == "cpu":
        return data
    if kind == "cuda":
        return data.to(f"cuda:{_cuda_index(location)}")
    if kind == "meta":
        return data.to("meta")
    raise RuntimeError(
        f"load: the file keeps a storage at {location!r}, which is not a place known here; pass "
        f"map_location='cpu', "
        "or teach load about it with flambeau.serialization.register_package"
    )


def _cuda_index(location: str) -> int:
    import flambeau as fb

    index = location.partition(":")[2] or "0"
    cuda = getattr(fb, "cuda", None)
    if cuda is None or not cuda.is_available():
        raise RuntimeError(
            f"load: the file keeps a storage at {location!r}, but there is no CUDA device; pass "
            f"map_location='cpu'"
        )
    count = cuda.device_count()
    if not index.isdigit() or int(index) >= count:
        raise RuntimeError(
            f"load: the file keeps a storage at {location!r}, but there are {count} CUDA devices; "
            "pass map_location with one of them"
        )
    return int(index)


class Placement:
    """Where storages go, as `map_location` says. Raises: TypeError for a `map_location` of another type."""

    def __init__(self, map_location: Any) -> None:
        if isinstance(map_location, bytes):
            map_location = map_location.decode()
        known = map_location is None or isinstance(map_location, (dict, str, device))
        if not known and not callable(map_location):
            raise TypeError(
                "load: map_location must be a device, a string, a dict or a function, "
                f"got {type(map_location).__name__}"
            )
        self.map_location: Any = map_location

    def place(self, location: str) -> str | None:
        """Where a storage saved at `location` goes; None if only a function of the storage can tell."""
        if self.map_location is None:
            return location
        if isinstance(self.map_location, dict):
            return str(self.map_location.get(location, location))
        return None if callable(self.map_location) else str(self.map_location)

    def restore(self, data: Any, location: str) -> Any:
        """The uint8 tensor `data`, saved at `location`, at its place."""
        from flambeau._files.storages import bytes_of_storage

        place = self.place(location)
        if place is not None:
            return _restore(data, place)
        moved = self.map_location(data.untyped_storage(), location)
        return _restore(data, location) if moved is None else bytes_of_storage(moved)


# -- saving --------------------------------------------------------------------------------------------------


def save(
    obj: object,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write `obj`, with all tensors in it, to `f`.

    Tensors that share memory share it in the file, and the whole of that memory is written: ``large[:5]`` is as big
    as `large`; save ``large[:5].clone()`` instead. A file given by its path appears only when it is complete.

    Args:
        f: a path, or a file object with `write`.
        pickle_module: None or Python's pickle.
        pickle_protocol: PyTorch reads protocol 2 when it loads weights only.
        _use_new_zipfile_serialization: False writes the format of PyTorch before 1.6.
    Raises: AttributeError if `f` is neither path nor file; RuntimeError if its folder does not exist, or if
        tensors look at the same memory as different dtypes; pickle.PicklingError or TypeError for objects
        that cannot be pickled.
    """
    import pickle

    _state.note_python()
    if pickle_module not in (None, pickle):
        raise NotImplementedError(f"save: only Python's own pickle is supported, got pickle_module={pickle_module!r}")
    write = _write_archive if _use_new_zipfile_serialization else _write_legacy
    with _output(f) as (file, folder):
        write(obj, file, folder, pickle_protocol, not _disable_byteorder_record)


@contextlib.contextmanager
def _output(f: Any) -> Iterator[tuple[Any, str]]:
    """A file to write to and the name of the archive's folder."""
    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        stem = os.path.splitext(os.path.basename(path))[0] or "archive"
        with _atomic_file(path) as file:
            yield file, stem
        return
    if not hasattr(f, "write"):
        raise AttributeError(f"save: expected a path or a file object with a write method, got {type(f).__name__}")
    yield f, "archive"
    # What reads the file by its name finds all of it, although it is still open.
    flush = getattr(f, "flush", None)
    if flush is not None:
        flush()


@contextlib.contextmanager
def _atomic_file(path: str) -> Iterator[Any]:
    """A new file that takes the place of `path` when the block ends well, and vanishes when it does not."""
    import secrets

    # A link is written through, not replaced.
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise RuntimeError(f"save: the folder {folder} does not exist")
    if os.path.isdir(path):
        raise RuntimeError(f"save: {path} is a folder; give the path of a file")
    if os.path.exists(path) and not os.path.isfile(path):
        # A pipe or a device has to be written to as it is.
        with open(path, "wb") as file:
            yield file
        return
    temporary = os.path.join(folder, f".{os.path.basename(path)[:200]}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            if os.path.exists(path):
                os.chmod(temporary, os.stat(path).st_mode & 0o7777)
            yield file
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _write_archive(obj: object, file: Any, folder: str, protocol: int, record_byteorder: bool) -> None:
    from flambeau._files.archive import ALIGNMENT, ArchiveWriter
    from flambeau._files.torch_pickler import pickle_with_storages

    pickled, storages = pickle_with_storages(obj, protocol, _location_of, materializes=_options.materializes)
    archive = ArchiveWriter(file, folder, _options.crc32)
    archive.add("data.pkl", pickled)
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", str(ALIGNMENT).encode())
    if record_byteorder:
        archive.add("byteorder", sys.byteorder.encode())
    size = sum(storage.nbytes for storage in storages.values())
    records = (
        (f"data/{key}", bytes(storage.nbytes) if _options.skip_data else storage.host_bytes())
        for key, storage in storages.items()
    )
    if size < _LARGE:
        for name, data in records:
            archive.add(name, data)
    else:
        # With headers and the directory, and from its first block on: one that is not reserved has Linux write all others out at once
        # when the file takes the place of another.
        _reserve(file, size + _BESIDE * (len(storages) + 64))
        archive.add_all(records)
    archive.add("version", _FORMAT_VERSION)
    archive.close()


def _reserve(file: Any, size: int) -> None:
    """Ask for room for a file on a disk with `size` bytes more, which is then found in one piece and not page by page."""
    import ctypes
    import io

    call = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None) if sys.platform == "linux" else None
    if call is not None and isinstance(file, (io.BufferedWriter, io.FileIO)):
        # A file system that has no such thing says so, and the file is written all the same. The size of the file does not change.
        call(ctypes.c_int(file.fileno()), ctypes.c_int(_KEEP_SIZE), ctypes.c_int64(0), ctypes.c_int64(file.tell() + size))


_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_BESIDE = 1024  # bytes of an archive for each record, at most, beside its data
_LARGE = 8 << 20  # bytes of storages from which a file is written with the help of a second thread


def _write_legacy(obj: object, file: Any, folder: str, protocol: int, record_byteorder: bool) -> None:
    import pickle
    import struct

    from flambeau._files.torch_pickler import pickle_with_storages

    pickled, storages = pickle_with_storages(obj, protocol, _location_of, legacy=True)
    file.write(_legacy_beginning(protocol))
    file.write(pickled)
    file.write(pickle.dumps(list(storages), protocol))
    for storage in storages.values():
        file.write(struct.pack("<q", storage.numel))
        file.write(memoryview(storage.host_bytes()))


@functools.cache
def _legacy_beginning(protocol: int) -> bytes:
    """What files of the older format say of themselves and of this system."""
    import pickle

    system = {
        "protocol_version": PROTOCOL_VERSION,
        "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": SHORT_SIZE, "int": INT_SIZE, "long": LONG_SIZE},
    }
    return b"".join([pickle.dumps(part, protocol) for part in (MAGIC_NUMBER, PROTOCOL_VERSION, system)])


def write_storage(storage: Any) -> bytes:
    """The file that pickles of tensors have for `storage`, a TypedStorage: in the older format."""
    import io

    from flambeau._files.pickled_storage import file_of_storage

    if not _packages and not _options.skip_data and storage.device.type == "cpu":
        made = file_of_storage(storage.untyped()._host_bytes(), storage.dtype, _legacy_beginning(2))
        if made is not None:
            _state.note_python()
            return made
    file = io.BytesIO()
    save(storage, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def read_storage(data: bytes) -> Any:
    """The storage in a file that `write_storage` or PyTorch wrote, read as data."""
    import io

    from flambeau._files.pickled_storage import storage_of_file
    from flambeau.storage import TypedStorage, UntypedStorage

    found = None if _packages else storage_of_file(data, _legacy_beginning(2))
    if found is None:
        return load(io.BytesIO(data), weights_only=False)
    _state.note_python()
    memory, kind = found
    return TypedStorage._wrap(UntypedStorage._over(memory), kind)


# -- loading -------------------------------------------------------------------------------------------------


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what `save`, or PyTorch's, wrote to `f`.

    The file is treated as data: tensors, parameters, numbers, text, containers, numpy arrays, and what
    `add_safe_globals` allows. A file that names anything else is refused.

    Args:
        f: a path, or a file object with `read`, `seek` and `tell`.
        map_location: where tensors go: a device, its name, a dict from saved to present locations, or a
            function ``(storage, location) -> storage``; None puts them where they were.
        pickle_module: None, or Python's pickle outside weights only.
        weights_only: False runs the file's pickle as Python does where that is allowed: inside `allow_unsafe_pickle()`, or
            where the environment has ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1``, which also makes it the default. Elsewhere the
            file is read as data all the same, to which settings, paths, dates and decimal numbers belong then:
            `argparse.Namespace`, `types.SimpleNamespace`, and the classes of `pathlib`, `datetime` and `decimal`.
            ``TORCH_FORCE_WEIGHTS_ONLY_LOAD=1`` forbids it everywhere.
        mmap: map the file instead of reading it, so that memory is touched only as tensors are used; `f` must
            be a path.
    Raises: pickle.UnpicklingError for a file that is no ``.pt`` file, is damaged, or names what is not allowed;
        RuntimeError for a damaged archive or storages that do not fit it; EOFError for a file that ends early;
        AttributeError if `f` is neither path nor file; ValueError for ``mmap=True`` with a file object.
    """
    _state.note_python()
    _check_load_arguments(pickle_module, weights_only, pickle_load_args)
    unpickle = _unpickler(pickle_module, weights_only)
    if mmap is None:
        mmap = _options.mmap
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("load: mmap=True maps a file from its path, but f is a file object; pass the path")
    from flambeau._files.archive import looks_like_archive

    with _input(f) as file:
        if looks_like_archive(file):
            return _read_archive(file, Placement(map_location), unpickle, os.fspath(f) if mmap else None)
        if mmap:
            raise RuntimeError("load: mmap=True needs the zip format, but this file has the format of PyTorch before 1.6")
        return _read_legacy(file, Placement(map_location), unpickle)


def _check_load_arguments(
    pickle_module: Any, weights_only: bool | None, pickle_load_args: dict[str, Any],
) -> None:
    import pickle

    unknown = set(pickle_load_args) - {"encoding"}
    if unknown:
        raise TypeError(f"load: unexpected keyword arguments {sorted(unknown)}")
    if pickle_module is not None and weights_only:
        raise RuntimeError("load: weights_only=True reads without pickle_module; give one or the other")
    if pickle_module not in (None, pickle):
        raise NotImplementedError(f"load: only Python's own pickle is supported, got pickle_module={pickle_module!r}")


def _runs_code(pickle_module: Any, weights_only: bool | None) -> bool:
    """Whether `load` with these arguments may run the file's pickle: it is asked to, and somebody has allowed it."""
    if _is_set("TORCH_FORCE_WEIGHTS_ONLY_LOAD"):
        return False
    allowed_for_all = _is_set("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    if weights_only is None and pickle_module is None:
        return allowed_for_all
    return not weights_only and (allowed_for_all or _options.unsafe)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "y", "yes", "true")


@contextlib.contextmanager
def _input(f: Any) -> Iterator[Any]:
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            yield file
        return
    for method in ("read", "seek", "tell"):
        if not hasattr(f, method):
            raise AttributeError(
                "load: expected a path or a file object with read, seek and tell, but "
                f"{type(f).__name__} has no {method}; read the data into an io.BytesIO first"
            )
    yield f


def _read_archive(file: Any, placement: Placement, unpickle: _Unpickle, path: str | None) -> Any:
    from flambeau._files.archive import ArchiveReader
    from flambeau._files.storages import ArchiveStorages

    start = file.tell()
    archive = ArchiveReader(file, _is_code)
    if archive.has("constants.pkl"):
        file.seek(start)
        return _read_script(file, placement, unpickle)
    if not archive.has("version"):
        raise RuntimeError(f"load: the archive has no record {archive.folder}/version; it is no .pt file")
    mapping = None if path is None else map_file(path, _options.mmap_flags == MAP_SHARED)
    storages = ArchiveStorages(archive, placement, _swaps_bytes(archive), mapping, _options.skip_data)
    return unpickle(archive.read("data.pkl").tobytes(), storages)


def _is_code(name: str) -> bool:
    """Whether a record of this name has code of a script, which `jit.save` compresses and `load` leaves where it is."""
    return name.partition("/")[2].startswith("code/")


def _read_script(file: Any, placement: Placement, unpickle: _Unpickle) -> Any:
    """What `jit.load` makes of an archive that `jit.save` wrote. Raises: RuntimeError where weights alone are asked for."""
    import warnings

    import flambeau as fb

    warnings.warn(
        "'torch.load' received a zip file that looks like a TorchScript archive dispatching to 'torch.jit.load' "
        "(call 'torch.jit.load' directly to silence this warning)",
        UserWarning, stacklevel=4,
    )  # fmt: skip
    if unpickle is _read_weights:
        raise RuntimeError(
            "Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``: they hold a program. "
            "Call load(..., weights_only=False), or jit.load, for files from a source you trust"
        )
    return fb.jit.load(file, placement.map_location)


def _swaps_bytes(archive: Any) -> bool:
    if archive.has("byteorder"):
        order = archive.read("byteorder").tobytes()
        if order not in (b"little", b"big"):
            raise RuntimeError(f"load: the archive's byte order is {order!r}, expected b'little' or b'big'")
        return order.decode() != sys.byteorder
    assumed = _options.endianness
    return assumed is not None and assumed.name not in ("NATIVE", sys.byteorder.upper())


def _unpickler(pickle_module: Any, weights_only: bool | None) -> _Unpickle:
    """What makes the object of a pickle and its storages where `load` is called with these arguments."""
    if _runs_code(pickle_module, weights_only):
        from flambeau._files.torch_globals import run_unsafe

        return run_unsafe
    return _read_weights if weights_only or weights_only is None and pickle_module is None else _read_data


def _read_weights(data: bytes, storages: Any, more: Mapping[str, Any] = MappingProxyType({})) -> Any:
    from flambeau._files import pickle_machine
    from flambeau._files.torch_globals import TorchPolicy

    return pickle_machine.run(data, TorchPolicy(storages, {**more, **_safe_globals}))[0]


def _read_data(data: bytes, storages: Any) -> Any:
    from flambeau._files.torch_globals import plain_data

    return _read_weights(data, storages, plain_data())


def _read_legacy(file: Any, placement: Placement, unpickle: _Unpickle) -> Any:
    """The format of PyTorch before 1.6: magic number, version, system, object, storage keys, storages."""
    from flambeau._files.storages import LegacyStorages

    start = file.tell()
    length = file.seek(0, 2) - start
    data, parts = _legacy_parts(file, start, length)
    swaps = bool(parts.system.get("little_endian", True)) != (sys.byteorder == "little")
    storages = LegacyStorages(file, start, length, parts.storages, parts.keys, parts.references, placement, swaps)
    result = unpickle(data[parts.object : parts.end], storages)
    file.seek(start + storages.end)
    return result


class _LegacyParts(NamedTuple):
    """The pickles in front of the storages, gone through without making the object."""

    system: dict[str, Any]
    object: int  # where the object's pickle starts
    end: int  # and ends
    keys: Any
    storages: int  # where the storages start
    references: list[Any]  # the persistent ids in the object


def _legacy_parts(file: Any, start: int, length: int) -> tuple[bytes, _LegacyParts]:
    """The beginning of the file with all its pickles, and what they say.

    How long they are is only known when they have been gone through, so this is tried on ever longer beginnings. The
    storages behind them, which are nearly all of most files, are read one by one.
    """
    from flambeau._files.archive import read_into

    if not length:
        raise EOFError("load: the file is empty")
    size = _FIRST_PART
    while True:
        data = bytearray(min(size, length))
        del data[read_into(file, start, memoryview(data)) :]
        _refuse_tar(data)
        beginning = bytes(data)
        try:
            return beginning, _parse_legacy(beginning)
        except EOFError:
            if len(beginning) < size:
                raise
        size *= 8


def _parse_legacy(data: bytes) -> _LegacyParts:
    from flambeau._files import pickle_machine

    system, at = _legacy_system(data)
    # The sizes of storages follow from the ids in the object, so it is gone through once without making anything.
    outline = pickle_machine.Ignorant()
    _, end = pickle_machine.run(data, outline, at)
    keys, start = pickle_machine.run(data, pickle_machine.Policy(), end)
    return _LegacyParts(system, at, end, keys, start, outline.keys)


def _legacy_system(data: bytes) -> tuple[dict[str, Any], int]:
    """What the older format says of the system that wrote it, and where the object starts."""
    from flambeau._files import pickle_machine

    nothing = pickle_machine.Policy()
    try:
        magic, at = pickle_machine.run(data, nothing)
    except pickle_machine.UnpicklingError as error:
        raise pickle_machine.UnpicklingError(
            "load: this is no .pt file: it starts neither as a zip archive nor as the older format does"
        ) from error
    if magic != MAGIC_NUMBER:
        raise pickle_machine.UnpicklingError("load: this is a pickle, but not one that save wrote")
    version, at = pickle_machine.run(data, nothing, at)
    system, at = pickle_machine.run(data, nothing, at)
    if version != PROTOCOL_VERSION or not isinstance(system, dict):
        raise pickle_machine.UnpicklingError(f"load: version {version!r} of the older format is not known")
    return system, at


def _refuse_tar(data: bytes | bytearray) -> None:
    if data[257:262] == b"ustar":
        raise NotImplementedError(
            "load: this is a tar archive, the format of PyTorch before 0.1.10; load and save it with "
            "PyTorch once"
        )


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file that `load` would refuse. Nothing is made, imported or called to find out."""
    from flambeau._files import pickle_machine
    from flambeau._files.archive import ArchiveReader
    from flambeau._files.torch_globals import is_known

    with _input(f) as file:
        data = ArchiveReader(file).read("data.pkl").tobytes()
    policy = pickle_machine.Ignorant()
    pickle_machine.run(data, policy)
    return [name for name in policy.names if not is_known(name) and name not in _safe_globals]
