"""The safetensors format: named tensors and nothing else, read by mapping the file.

A file is 8 bytes with the length of a JSON header (little endian), the header, and the tensors' bytes. The
header gives for each name its dtype, shape and place; the places must cover the bytes after the header
exactly, in any order. Source: the format's description at https://github.com/huggingface/safetensors, section
"Format".
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import flambeau as fb
from flambeau import _arrays, dtypes
from flambeau.storage import map_file

__all__ = ["SafetensorError", "load", "load_file", "safe_open", "save", "save_file"]

# In the format's own order. Files are written from the last to the first, so that every tensor is aligned to
# its element.
_DTYPES = {
    "BOOL": dtypes.bool, "U8": dtypes.uint8, "I8": dtypes.int8,
    "F8_E5M2": dtypes.float8_e5m2, "F8_E4M3": dtypes.float8_e4m3fn, "F8_E8M0": dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": dtypes.float8_e5m2fnuz,
    "I16": dtypes.int16, "U16": dtypes.uint16, "F16": dtypes.float16, "BF16": dtypes.bfloat16,
    "I32": dtypes.int32, "U32": dtypes.uint32, "F32": dtypes.float32, "C64": dtypes.complex64,
    "F64": dtypes.float64, "I64": dtypes.int64, "U64": dtypes.uint64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_RANKS = {dtype: rank for rank, dtype in enumerate(_DTYPES.values())}

_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 100_000_000  # bytes; the format's limit
_ALIGNMENT = 8
_METADATA = "__metadata__"


class SafetensorError(Exception):
    """The data does not follow the format."""


class _Place(NamedTuple):
    """What the header says of one tensor; `start` and `end` count bytes after the header."""

    dtype: Any
    shape: tuple[int, ...]
    start: int
    end: int


class _Header(NamedTuple):
    places: dict[str, _Place]
    metadata: dict[str, str] | None
    size: int  # bytes before the tensors


# -- reading -------------------------------------------------------------------------------------------------


def load_file(filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Any]:
    """The tensors of a file by name. It is mapped: memory is touched as tensors are used, and writing to them stays here.

    Raises: SafetensorError for a file that does not follow the format; FileNotFoundError.
    """
    with safe_open(filename, device=device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict


def load(data: bytes) -> dict[str, Any]:
    """The tensors in `data`, the content of a file. Raises: SafetensorError if it does not follow the format."""
    buffer = np.frombuffer(bytearray(data), np.uint8)
    header = _read_header(buffer)
    return {name: _tensor(buffer, header, place) for name, place in header.places.items()}


class safe_open:  # the format's usual name for it
    """A mapped file whose tensors are made one by one.

    >>> save_file({"weight": fb.ones(2)}, "model.safetensors")
    >>> with safe_open("model.safetensors") as file:
    ...     file.get_tensor("weight")
    tensor([1., 1.])

    Args:
        framework: 'pt', as in other libraries; tensors are always flambeau's.
        device: where tensors go.
    Raises: SafetensorError for a file that does not follow the format; ValueError for another framework.
    """

    def __init__(self, filename: str | os.PathLike[str], framework: str = "pt", device: Any = "cpu") -> None:
        if framework not in ("pt", "pytorch", "torch", "flambeau"):
            raise ValueError(
                f"safe_open: framework must be 'pt', got {framework!r}; other libraries have their own"
            )
        self._buffer = map_file(filename, shared=False)
        if not self._buffer.size:
            raise SafetensorError("safe_open: the file is empty")
        self._header = _read_header(self._buffer)
        self._device = device

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        # Tensors made so far keep the mapping alive; without any, it goes with this object.
        del self._buffer

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._header.places)

    def offset_keys(self) -> list[str]:
        """The names of the tensors in the order of the file."""
        return sorted(self._header.places, key=lambda name: self._header.places[name].start)

    def metadata(self) -> dict[str, str] | None:
        """The text that was saved beside the tensors."""
        return self._header.metadata

    def get_tensor(self, name: str) -> Any:
        """The tensor `name`. Raises: SafetensorError if there is none."""
        place = self._header.places.get(name)
        if place is None:
            raise SafetensorError(f"get_tensor: the file has no tensor {name!r}")
        made = _tensor(self._buffer, self._header, place)
        return made if str(self._device) == "cpu" else made.to(self._device)

    def get_slice(self, name: str) -> Any:
        """The tensor `name`, to be indexed; only what is indexed is read."""
        return self.get_tensor(name)


def _read_header(buffer: np.ndarray) -> _Header:
    if len(buffer) < _LENGTH.size:
        raise SafetensorError(
            f"the file has {len(buffer)} bytes, fewer than the {_LENGTH.size} of the header's length"
        )
    (length,) = _LENGTH.unpack(buffer[: _LENGTH.size].tobytes())
    if length > _LONGEST_HEADER:
        raise SafetensorError(
            f"the header is said to have {length} bytes, more than the {_LONGEST_HEADER} allowed"
        )
    size = _LENGTH.size + length
    if size > len(buffer):
        raise SafetensorError(
            f"the header is said to have {length} bytes, but the file ends after {len(buffer)}"
        )
    entries = _parse_json(buffer[_LENGTH.size : size].tobytes())
    metadata = entries.pop(_METADATA, None)
    if metadata is not None and not _is_text_mapping(metadata):
        raise SafetensorError(f"{_METADATA} must map text to text, got {metadata!r}")
    places = {name: _place(name, entry) for name, entry in entries.items()}
    _check_cover(places, len(buffer) - size)
    return _Header(places, metadata, size)


def _parse_json(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text.decode(), object_pairs_hook=_dict_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise SafetensorError(f"the header is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise SafetensorError(f"the header must be a JSON object, got a {type(found).__name__}")
    return found


def _dict_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name occurs twice")
    return made


def _is_text_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(t, str) for pair in value.items() for t in pair)


def _place(name: str, entry: Any) -> _Place:
    try:
        dtype, shape, (start, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise SafetensorError(
            f"tensor {name!r}: the header must give dtype (one of {', '.join(_DTYPES)}), shape and "
            f"data_offsets, "
            f"got {entry!r}"
        ) from error
    if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in (*shape, start, end)):
        raise SafetensorError(
            f"tensor {name!r}: shape and data_offsets must be integers that are not negative: {entry!r}"
        )
    count = 1
    for n in shape:
        count *= n
    if end - start != count * dtype.itemsize:
        raise SafetensorError(
            f"tensor {name!r}: {count} elements of {dtype} are {count * dtype.itemsize} bytes, "
            f"but data_offsets are {end - start} apart"
        )
    return _Place(dtype, tuple(shape), start, end)


def _check_cover(places: dict[str, _Place], size: int) -> None:
    """Every byte belongs to exactly one tensor, so nothing can hide in a file and no two tensors overlap."""
    at = 0
    for name, place in sorted(places.items(), key=lambda item: (item[1].start, item[1].end)):
        if place.start != at:
            what = "overlaps the tensor before it" if place.start < at else "leaves a hole before it"
            raise SafetensorError(
                f"tensor {name!r} starts at byte {place.start} and {what}, which ends at byte {at}"
            )
        at = place.end
    if at != size:
        raise SafetensorError(f"the tensors end at byte {at}, but the file has {size} bytes for them")


def _tensor(buffer: np.ndarray, header: _Header, place: _Place) -> Any:
    from flambeau._files.storages import LoadedStorage
    from flambeau.tensor import wrap

    data = buffer[header.size + place.start : header.size + place.end]
    if data.size and _arrays.address(data) % place.dtype.itemsize:
        # Other writers need not align what they write.
        data = data.copy()
    strides = _arrays.contiguous_strides(place.shape, 1)
    try:
        return LoadedStorage(wrap(data), place.dtype).tensor(place.dtype, 0, place.shape, strides)
    except RuntimeError as error:  # a shape that no tensor can have
        raise SafetensorError(str(error)) from None


# -- writing -------------------------------------------------------------------------------------------------


def save_file(
    tensors: Mapping[str, Any], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None,
) -> None:
    """Write `tensors` to a file, which appears only when it is complete.

    Args:
        metadata: text to keep beside them.
    Raises: ValueError for values that are not contiguous dense tensors; RuntimeError for tensors that share memory;
        TypeError for names or metadata that are not text; KeyError for a dtype the format does not have.
    """
    from flambeau.serialization import _atomic_file

    parts = list(_parts(tensors, metadata))
    with _atomic_file(os.fspath(filename)) as file:
        for part in parts:
            file.write(part)


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """What `save_file` would write."""
    return b"".join(_parts(tensors, metadata))


def _parts(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None) -> Iterator[Any]:
    _check_tensors(tensors)
    if metadata is not None and not _is_text_mapping(metadata):
        raise TypeError(f"save: metadata must map text to text, got {metadata!r}")
    names = sorted(tensors, key=lambda name: (-_RANKS[tensors[name].dtype], name))
    header: dict[str, Any] = {} if metadata is None else {_METADATA: dict(metadata)}
    at = 0
    for name in names:
        tensor = tensors[name]
        end = at + tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield _LENGTH.pack(len(text)) + text
    for name in names:
        yield memoryview(tensors[name].detach().cpu()._array.reshape(-1).view(np.uint8))


def _check_tensors(tensors: Any) -> None:
    if not isinstance(tensors, Mapping):
        raise ValueError(f"save: expected a dict from names to tensors, got {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"save: names must be text, got {name!r}")
        if name == _METADATA:
            raise ValueError(f"save: the name {_METADATA} is kept for metadata")
        _check_tensor(name, tensor)
    _check_memory(tensors)


def _check_tensor(name: str, tensor: Any) -> None:
    if not isinstance(tensor, fb.Tensor):
        raise ValueError(f"save: {name!r} must be a tensor, got {type(tensor).__name__}")
    if tensor.layout is not fb.strided:
        raise ValueError(
            f"save: {name!r} has the layout {tensor.layout}; the format has dense tensors only, use "
            "to_dense()"
        )
    if tensor._lacks_values:
        raise NotImplementedError(f"save: {name!r} is on the meta device and has no data")
    if not tensor.is_contiguous():
        raise ValueError(f"save: {name!r} is not contiguous, and the format has no strides; use contiguous()")
    if tensor.dtype not in _NAMES:
        raise KeyError(
            f"save: {name!r} has the dtype {tensor.dtype}; the format has {', '.join(map(str, _NAMES))}"
        )


def _check_memory(tensors: Mapping[str, Any]) -> None:
    """Tensors that share memory would come back apart. Raises: RuntimeError naming two of them."""
    spans = sorted(
        (str(tensor.device), tensor.data_ptr(), tensor.nbytes, name)
        for name, tensor in tensors.items() if tensor.nbytes
    )
    for (device, start, size, name), (next_device, next_start, _, next_name) in pairwise(spans):
        if device == next_device and next_start < start + size:
            raise RuntimeError(
                f"save: {name!r} and {next_name!r} share memory, which the format cannot express: they "
                f"would take twice "
                "the space and come back apart. Save one of them, or clone()"
            )
