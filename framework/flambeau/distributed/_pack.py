"""Data as bytes, and back: what travels between processes without pickle.

Numbers, text, bytes, None, lists, tuples, sets, dicts, Tensors, numpy arrays, dtypes, sizes and devices are data. Reading
them calls nothing and imports nothing, whatever the bytes say. Anything else needs `allow_pickle`, on both sides.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["allow_pickle", "pack", "unpack"]

_DEEPEST = 200
_U64 = struct.Struct("<Q")
_F64 = struct.Struct("<d")
_C128 = struct.Struct("<dd")
_allowed = os.environ.get("FLAMBEAU_ALLOW_PICKLE") == "1"
_SEQUENCES: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"e", frozenset: b"z"}
_OF_TAG = {tag: kind for kind, tag in _SEQUENCES.items()}


def allow_pickle(enabled: bool = True) -> bool:
    """Let object collectives pickle what is no data, and unpickle it where it arrives; returns what held before.

    Unpickling runs code that the sender chose, so each process that receives has to say this for itself, here or by
    ``FLAMBEAU_ALLOW_PICKLE=1``.

    Args:
        enabled: False forbids it again.
    """
    global _allowed
    before, _allowed = _allowed, bool(enabled)
    return before


class _Writer(list[bytes]):
    """Pieces of packed data, and what `pack` was told of objects beyond data."""

    describe: Callable[[Any], Any] | None = None


def pack(value: Any, describe: Callable[[Any], Any] | None = None) -> bytes:
    """`value` as bytes.

    Args:
        value: what is packed.
        describe: asked first about every object that is no plain number, text or container; the data that stands for it, or
            None where it has nothing to say. `unpack` gets this data back to make the object of.
    Raises: TypeError for what is no data, unless `allow_pickle` was called; ValueError for nesting deeper than 200.
    """
    out = _Writer()
    out.describe = describe
    _write(value, out, 0)
    return b"".join(out)


def _sized(tag: bytes, data: bytes) -> bytes:
    return tag + _U64.pack(len(data)) + data


def _write(value: Any, out: _Writer, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"distributed: an object is nested deeper than {_DEEPEST} levels, or contains itself")
    kind = type(value)
    if value is None:
        out.append(b"N")
    elif kind is bool:
        out.append(b"T" if value else b"F")
    elif kind is int:
        out.append(_sized(b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)))
    elif kind is float:
        out.append(b"d" + _F64.pack(value))
    elif kind is complex:
        out.append(b"c" + _C128.pack(value.real, value.imag))
    elif kind is str:
        out.append(_sized(b"s", value.encode("utf-8", "surrogatepass")))
    elif kind in (bytes, bytearray):
        out.append(_sized(b"b", bytes(value)))
    elif kind in _SEQUENCES:
        out.append(_SEQUENCES[kind] + _U64.pack(len(value)))
        for item in value:
            _write(item, out, depth + 1)
    elif kind is dict:
        out.append(b"m" + _U64.pack(len(value)))
        for key, item in value.items():
            _write(key, out, depth + 1)
            _write(item, out, depth + 1)
    else:
        _write_object(value, out, depth)


def _write_object(value: Any, out: _Writer, depth: int) -> None:
    import flambeau as fb

    tensor: Any = value
    described = None if out.describe is None else out.describe(value)
    if described is not None:
        out.append(b"R")
        _write(described, out, depth + 1)
        return
    if (
        isinstance(value, np.ndarray)
        and value.dtype.kind in "biufcV"
        and not value.dtype.hasobject
        and not value.dtype.names
    ):
        out.append(b"A")
        _write_array(value, out, depth)
    elif isinstance(value, np.generic) and value.dtype.kind in "biufc":
        out.append(b"G")
        _write_array(np.asarray(value), out, depth)
    elif _is_tensor(value):
        out.append(b"P" if type(value) is fb.nn.Parameter else b"X")
        out.append(b"T" if tensor.requires_grad else b"F")
        _write_array(tensor._array, out, depth)
    elif isinstance(value, fb.dtype):
        out.append(b"D")
        _write(str(value).rpartition(".")[2], out, depth)
    elif type(value) is fb.Size:
        out.append(b"S")
        _write(list(value), out, depth)
    elif type(value) is fb.device:
        out.append(b"V")
        _write(str(value), out, depth)
    elif _allowed:
        import pickle

        out.append(_sized(b"O", pickle.dumps(value)))
    else:
        raise TypeError(
            f"distributed: an object of type {type(value).__module__}.{type(value).__qualname__} is no data, so it is not sent: "
            "send numbers, text, lists, dicts or tensors, or call flambeau.distributed.allow_pickle() on every rank that trusts the others"
        )


def _is_tensor(value: Any) -> bool:
    import flambeau as fb

    return type(value) in (fb.Tensor, fb.nn.Parameter) and value.device.type == "cpu"


def _write_array(array: np.ndarray, out: _Writer, depth: int) -> None:
    import flambeau as fb

    name = str(fb.dtypes.from_numpy_dtype(array.dtype)).rpartition(".")[2]
    _write([name, list(array.shape)], out, depth)
    out.append(_sized(b"b", np.ascontiguousarray(array).tobytes()))


class _Reader:
    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = memoryview(data)
        self.at = 0
        self.restore: Callable[[Any], Any] | None = None

    def take(self, count: int) -> memoryview:
        if count < 0 or self.at + count > len(self.data):
            raise ValueError(f"distributed: packed data ends early: {count} bytes wanted at {self.at} of {len(self.data)}")
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def number(self) -> int:
        return _U64.unpack(self.take(8))[0]

    def count(self) -> int:
        """A number of items; each takes a byte at least, so a hostile one is refused before memory is asked for."""
        found = self.number()
        if found > len(self.data) - self.at:
            raise ValueError(f"distributed: packed data promises {found} items in {len(self.data) - self.at} bytes")
        return found


def unpack(data: bytes | bytearray | memoryview, restore: Callable[[Any], Any] | None = None) -> Any:
    """What `pack` made `data` of.

    Args:
        data: the bytes.
        restore: makes an object of what `describe` said of it.
    Raises: ValueError for bytes that `pack` does not make; TypeError for pickled objects without `allow_pickle`.
    """
    reader = _Reader(data)
    reader.restore = restore
    value = _read(reader, 0)
    if reader.at != len(reader.data):
        raise ValueError(f"distributed: {len(reader.data) - reader.at} bytes are left after a packed object")
    return value


def _read(reader: _Reader, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"distributed: packed data is nested deeper than {_DEEPEST} levels")
    tag = bytes(reader.take(1))
    if tag in b"NTF":
        return {b"N": None, b"T": True, b"F": False}[tag]
    if tag == b"i":
        return int.from_bytes(reader.take(reader.count()), "little", signed=True)
    if tag == b"d":
        return _F64.unpack(reader.take(8))[0]
    if tag == b"c":
        return complex(*_C128.unpack(reader.take(16)))
    if tag == b"s":
        return bytes(reader.take(reader.count())).decode("utf-8", "surrogatepass")
    if tag == b"b":
        return bytes(reader.take(reader.count()))
    if tag in _OF_TAG:
        return _hashable(lambda: _OF_TAG[tag]([_read(reader, depth + 1) for _ in range(reader.count())]))
    if tag == b"m":
        count = reader.count()
        return _hashable(lambda: {_read(reader, depth + 1): _read(reader, depth + 1) for _ in range(count)})
    return _read_object(tag, reader, depth)


def _hashable(make: Any) -> Any:
    try:
        return make()
    except TypeError as error:
        if "unhashable" in str(error):
            raise ValueError(f"distributed: packed data has a key that cannot be one: {error}") from None
        raise


def _read_object(tag: bytes, reader: _Reader, depth: int) -> Any:
    import flambeau as fb

    if tag == b"A":
        return _read_array(reader, depth)
    if tag == b"G":
        return _read_array(reader, depth)[()]
    if tag in (b"X", b"P"):
        needs = bytes(reader.take(1)) == b"T"
        tensor = fb.from_numpy(_read_array(reader, depth))
        return _possible(lambda: fb.nn.Parameter(tensor, needs) if tag == b"P" else tensor.requires_grad_(needs))
    if tag == b"D":
        return _dtype(_read(reader, depth + 1))
    if tag == b"S":
        return fb.Size(_read(reader, depth + 1))
    if tag == b"V":
        given = _read(reader, depth + 1)
        return _possible(lambda: fb.device(given))
    if tag == b"R" and reader.restore is not None:
        return reader.restore(_read(reader, depth + 1))
    if tag == b"O":
        if not _allowed:
            raise TypeError(
                "distributed: a pickled object arrived, and this process does not unpickle: "
                "call flambeau.distributed.allow_pickle() if it trusts the sender"
            )
        import pickle

        return pickle.loads(bytes(reader.take(reader.count())))
    raise ValueError(f"distributed: packed data has the unknown tag {tag!r} at byte {reader.at - 1}")


def _possible(make: Callable[[], Any]) -> Any:
    """What `make` makes of what arrived; a RuntimeError means that no sender had such a thing."""
    try:
        return make()
    except RuntimeError as error:
        raise ValueError(f"distributed: packed data describes what cannot be: {error}") from error


def _dtype(name: Any) -> Any:
    import flambeau as fb

    found = getattr(fb.dtypes, name, None) if isinstance(name, str) else None
    if not isinstance(found, fb.dtype):
        raise ValueError(f"distributed: packed data names the unknown dtype {name!r}")
    return found


def _read_array(reader: _Reader, depth: int) -> np.ndarray:
    header = _read(reader, depth + 1)
    data = _read(reader, depth + 1)
    if not (isinstance(header, list) and len(header) == 2 and isinstance(header[1], list) and isinstance(data, bytes)):
        raise ValueError("distributed: packed data has an array without dtype and shape")
    kind, shape = _numpy_dtype(header[0]), header[1]
    if not all(type(n) is int and n >= 0 for n in shape) or int(np.prod(shape, dtype=object)) * kind.itemsize != len(data):
        raise ValueError(f"distributed: packed data has {len(data)} bytes for an array of {kind} and shape {shape}")
    return np.frombuffer(bytearray(data), dtype=kind).reshape(shape)


def _numpy_dtype(name: str) -> np.dtype:
    import flambeau as fb

    return fb.empty(0, dtype=_dtype(name))._array.dtype
